#include "common/blobs/space.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/folder.h"

namespace quench {
namespace {

// A full store is looked at once in a while, not for each write that it refuses.
constexpr auto kFresh = std::chrono::milliseconds(200);
// How long a follower waits for the owner, who looks every 100 ms and needs a moment itself.
constexpr auto kPatience = std::chrono::seconds(3);
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr uint64_t kMagic = 0x31656361'70537551;  // QuSpace1, little-endian

bool IsFresh(std::chrono::steady_clock::time_point time) {
  return std::chrono::steady_clock::now() - time <= kFresh;
}

uint64_t Less(uint64_t from, uint64_t bytes) { return from - std::min(from, bytes); }

}  // namespace

uint64_t DefaultReserve(const std::filesystem::path& folder) {
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return 0;
  return std::min<uint64_t>(uint64_t{1} << 30, disk.f_frsize * disk.f_blocks / 50);
}

BlobSpace::~BlobSpace() {
  if (file_ >= 0) ::close(file_);
}

// `change` sees the account, and nobody else meanwhile. An account that cannot be read is as none.
template <typename Change>
auto BlobSpace::With(const Change& change) {
  const std::lock_guard lock(mutex_);
  if (file_ < 0 && !followed_.empty()) {
    file_ = ::open(followed_.c_str(), O_RDWR | O_CLOEXEC);
  }
  if (file_ < 0) return change(own_);
  while (::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
  }
  Account read, account = own_;
  if (::pread(file_, &read, sizeof read, 0) != sizeof read || read.magic != kMagic) {
    read = Account();
  } else {
    account = read;
  }
  if (followed_.empty()) {  // the owner's word
    account.magic = kMagic;
    account.max = max_bytes_;
    account.reserve = reserve_;
  }
  auto result = change(account);
  own_ = account;
  const bool changed = account.magic == kMagic && account != read;
  if (changed) (void)!::pwrite(file_, &account, sizeof account, 0);
  ::flock(file_, LOCK_UN);
  return result;
}

absl::Status BlobSpace::Share(const std::filesystem::path& file) {
  {
    const std::lock_guard lock(mutex_);
    file_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) return ErrnoStatus(errno, "open", file);
  }
  (void)Measure();
  return absl::OkStatus();
}

void BlobSpace::Follow(const std::filesystem::path& file) {
  {
    const std::lock_guard lock(mutex_);
    followed_ = file;
  }
  (void)used();  // opens it, if it is there: later, a sandbox may forbid that
  const std::lock_guard lock(mutex_);
  if (file_ < 0 && ::access(file.c_str(), F_OK) == 0) {
    spdlog::warn("`{}` cannot be written: the gateway's limits of blobs do not hold here",
                 file.string());
  }
}

void BlobSpace::AddRoot(const std::filesystem::path& root) {
  {
    const std::lock_guard lock(mutex_);
    roots_.push_back(root);
    if (!followed_.empty() || max_bytes_ == kNoLimit) return;
  }
  (void)Measure();
}

void BlobSpace::SetMakeRoom(std::function<void(uint64_t)> make_room) {
  const std::lock_guard lock(making_room_);
  make_room_ = std::move(make_room);
}

void BlobSpace::MakeRoomForFollowers() {
  const uint64_t wanted = With([](Account& account) { return account.wanted; });
  if (wanted == 0) return;
  {
    const std::lock_guard lock(making_room_);
    if (make_room_) make_room_(wanted);
  }
  (void)Measure();
  With([&](Account& account) {
    if (account.wanted <= wanted) account.wanted = 0;
    return ++account.answers;
  });
}

uint64_t BlobSpace::DiskBytesFree() {
  std::filesystem::path root;
  {
    const std::lock_guard lock(mutex_);
    if (roots_.empty()) return kNoLimit;
    root = roots_.front();
  }
  struct statvfs disk{};
  if (::statvfs(root.c_str(), &disk) != 0) return kNoLimit;
  return disk.f_frsize * disk.f_bavail;
}

uint64_t BlobSpace::FreeOnDisk() {
  const uint64_t free = DiskBytesFree();
  return free == kNoLimit ? free : Less(free, reserve());
}

uint64_t BlobSpace::MissingOfReserve() { return Less(reserve(), DiskBytesFree()); }

uint64_t BlobSpace::reserve() {
  return With([](const Account& account) { return account.reserve; });
}

uint64_t BlobSpace::used() {
  return With([](const Account& account) { return account.used; });
}

bool BlobSpace::TryTake(uint64_t bytes) {
  if (reserve() > 0 && FreeOnDisk() < bytes) return false;
  return With([&](Account& account) {
    if (bytes > account.max || account.used > account.max - bytes) return false;
    account.used += bytes;
    account.taken += bytes;
    return true;
  });
}

absl::Status BlobSpace::Take(uint64_t bytes) {
  if (TryTake(bytes)) return absl::OkStatus();
  if (bytes > With([](const Account& account) { return account.max; })) return Full(bytes);
  const std::lock_guard lock(making_room_);
  if (TryTake(bytes)) return absl::OkStatus();  // whoever was here before has made room
  if (!followed_.empty()) return AskForRoom(bytes) ? absl::OkStatus() : Full(bytes);
  bool measured = false;
  {
    const std::lock_guard measuring(mutex_);
    measured = IsFresh(measured_);
  }
  if (!measured) {
    (void)Measure();
    if (TryTake(bytes)) return absl::OkStatus();
  }
  if (make_room_ && !IsFresh(made_room_)) {
    make_room_(bytes);
    (void)Measure();
    if (TryTake(bytes)) return absl::OkStatus();
    made_room_ = std::chrono::steady_clock::now();
  }
  return Full(bytes);
}

// Until the owner has answered twice: the first answer may be one to somebody else.
bool BlobSpace::AskForRoom(uint64_t bytes) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  const bool is_shared = With([](const Account& account) { return account.magic == kMagic; });
  if (!is_shared || IsFresh(made_room_)) return false;
  for (int asked = 0; asked < 2; ++asked) {
    const uint64_t answers = With([&](Account& account) {
      account.wanted = std::max(account.wanted, bytes);
      return account.answers;
    });
    while (With([](const Account& account) { return account.answers; }) == answers) {
      if (std::chrono::steady_clock::now() > give_up) break;
      std::this_thread::sleep_for(kPause);
    }
    if (TryTake(bytes)) return true;
  }
  made_room_ = std::chrono::steady_clock::now();
  return false;
}

// With the errno of a full disk: to steps it is one.
absl::Status BlobSpace::Full(uint64_t bytes) {
  const Account account = With([](const Account& each) { return each; });
  std::string text;
  if (bytes <= account.max && account.used <= account.max - bytes) {
    text = fmt::format(
        "no space left on the disk of the blob store: {} bytes more, where {} are free beside the "
        "{} that blobs leave to others",
        bytes, FreeOnDisk(), account.reserve);
  } else {
    text = fmt::format("the blob store is full: {} bytes more, where {} of {} are used", bytes,
                       account.used, account.max);
  }
  absl::Status full = absl::ResourceExhaustedError(text);
  ErrnoStatus(ENOSPC, "write", "").ForEachPayload([&](auto url, const auto& payload) {
    full.SetPayload(url, payload);
  });
  return full;
}

void BlobSpace::Give(uint64_t bytes) {
  With([&](Account& account) { return account.used = Less(account.used, bytes); });
}

uint64_t BlobSpace::Measure() {
  std::vector<std::filesystem::path> roots;
  {
    const std::lock_guard lock(mutex_);
    roots = roots_;
  }
  const uint64_t taken = With([](const Account& account) { return account.taken; });
  uint64_t bytes = 0;
  for (const std::filesystem::path& root : roots) {
    for (const auto& file : blobs::ListDigests(root / "blobs" / "sha256")) bytes += file.bytes;
    for (const auto& file : blobs::ListFiles(root / "tmp")) bytes += file.bytes;
    for (const auto& file : blobs::ListFiles(root / "uploads")) bytes += file.reserved;
  }
  // Bytes taken meanwhile may lie there already, or not yet.
  With([&](Account& account) { return account.used = bytes + (account.taken - taken); });
  const std::lock_guard lock(mutex_);
  measured_ = std::chrono::steady_clock::now();
  return bytes;
}

}  // namespace quench
