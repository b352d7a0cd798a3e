// Landlock: which files.
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/steps/sandbox_internal.h"

namespace quench::steps {
namespace {

constexpr uint64_t kReadFile = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kRead = kReadFile | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kFirst =
    kRead | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |
    LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
    LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
    LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
// Rights of later versions, which older kernel headers do not name.
constexpr uint64_t kRefer = 1U << 13;        // 2: renames and links across folders
constexpr uint64_t kTruncate = 1U << 14;     // 3
constexpr uint64_t kDevices = 1U << 15;      // 5: ioctl of devices
constexpr uint64_t kTcp = 1U | 1U << 1;      // 4: bind and connect
constexpr uint64_t kOutside = 1U | 1U << 1;  // 6: abstract sockets and signals leave the sandbox

// linux/landlock.h of version 6; older kernels take a prefix of it.
struct RulesetAttributes {
  uint64_t files = 0, network = 0, scoped = 0;
};

// Every handled right is refused where no rule permits it.
RulesetAttributes HandledBy(int version) {
  RulesetAttributes handled;
  handled.files = kFirst | kRefer;
  if (version >= 3) handled.files |= kTruncate;
  if (version >= 4) handled.network = kTcp;
  if (version >= 5) handled.files |= kDevices;
  if (version >= 6) handled.scoped = kOutside;
  return handled;
}

size_t SizeOfAttributes(int version) {
  const size_t words = version >= 6 ? 3 : version >= 4 ? 2 : 1;
  return words * sizeof(uint64_t);
}

class Ruleset {
 public:
  explicit Ruleset(int version) : handled_(HandledBy(version)) {
    fd_ = static_cast<int>(
        ::syscall(SYS_landlock_create_ruleset, &handled_, SizeOfAttributes(version), 0));
  }
  ~Ruleset() {
    if (fd_ >= 0) ::close(fd_);
  }
  Ruleset(const Ruleset&) = delete;
  Ruleset& operator=(const Ruleset&) = delete;

  uint64_t Writing() const {
    constexpr uint64_t kNever = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                                LANDLOCK_ACCESS_FS_MAKE_FIFO | kDevices;
    return handled_.files & ~kNever;
  }

  // A path that does not exist needs no rule.
  absl::Status Allow(const std::filesystem::path& path, uint64_t access) {
    landlock_path_beneath_attr rule{};
    rule.parent_fd = ::open(path.c_str(), O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0 && errno == ENOENT) return absl::OkStatus();
    if (rule.parent_fd < 0) return ErrnoStatus(errno, "open", path);
    struct stat info{};
    // Rights of folders cannot be had on a file.
    const bool is_folder = ::fstat(rule.parent_fd, &info) == 0 && S_ISDIR(info.st_mode);
    constexpr uint64_t kOfFiles = kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE | kDevices;
    rule.allowed_access = handled_.files & (is_folder ? access : access & kOfFiles);
    const long result = ::syscall(SYS_landlock_add_rule, fd_, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    const int error = errno;
    ::close(rule.parent_fd);
    return result == 0 ? absl::OkStatus() : ErrnoStatus(error, "restrict access to", path);
  }

  absl::Status Enter() const {
    if (::syscall(SYS_landlock_restrict_self, fd_, 0) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, "enter", "the sandbox");
  }

 private:
  const RulesetAttributes handled_;
  int fd_ = -1;
};

// Libraries, and what those and the sanitizers ask of the machine and of this process. Nothing of
// /etc: what the loader wants of it is read before.
constexpr std::array kOfEveryProcess = {"/usr/lib",
                                        "/usr/lib64",
                                        "/usr/libexec",
                                        "/usr/local/lib",
                                        "/usr/share/zoneinfo",
                                        "/lib",
                                        "/lib64",
                                        "/etc/ld.so.cache",
                                        "/proc/self",
                                        "/proc/cpuinfo",
                                        "/proc/meminfo",
                                        "/proc/stat",
                                        "/proc/sys/vm/overcommit_memory",
                                        "/sys/devices/system/cpu",
                                        "/sys/devices/system/node",
                                        "/dev/urandom"};

constexpr std::array kDevicePrefixes = {"nvidia", "nvhost", "nvmap", "nvgpu", "nvsciipc"};

// Files that NVIDIA's driver reads: about its part in the kernel, and about the bus.
constexpr std::array kOfDrivers = {"/proc/driver/nvidia", "/proc/driver/nvidia-caps",
                                   "/proc/devices", "/sys/bus/pci/devices", "/sys/devices"};

// Devices of NVIDIA's drivers: nvidia0, nvidiactl and nvidia-uvm, and what Jetson has in their place.
absl::Status AllowGpus(Ruleset& rules) {
  for (const char* path : kOfDrivers) QUENCH_RETURN_IF_ERROR(rules.Allow(path, kRead));
  constexpr uint64_t kUse = kRead | LANDLOCK_ACCESS_FS_WRITE_FILE | kDevices;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/dev", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_theirs = std::any_of(kDevicePrefixes.begin(), kDevicePrefixes.end(),
                                       [&](const char* each) { return name.starts_with(each); });
    if (is_theirs) QUENCH_RETURN_IF_ERROR(rules.Allow(entry->path(), kUse));
  }
  return absl::OkStatus();
}

}  // namespace

int LandlockVersion() {
  constexpr int kVersion = 1;  // LANDLOCK_CREATE_RULESET_VERSION
  return std::max(0,
                  static_cast<int>(::syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersion)));
}

absl::Status RestrictFiles(const Sandbox& sandbox) {
  Ruleset rules(LandlockVersion());
  for (const char* path : kOfEveryProcess) QUENCH_RETURN_IF_ERROR(rules.Allow(path, kRead));
  QUENCH_RETURN_IF_ERROR(rules.Allow("/dev/null", kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE));
  if (sandbox.gpus) QUENCH_RETURN_IF_ERROR(AllowGpus(rules));
  for (const auto& path : sandbox.readable) QUENCH_RETURN_IF_ERROR(rules.Allow(path, kRead));
  for (const auto& path : sandbox.writable) {
    QUENCH_RETURN_IF_ERROR(rules.Allow(path, rules.Writing()));
  }
  return rules.Enter();
}

}  // namespace quench::steps
