#include "services/importer/keras/hdf5_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/status.h"
#include "common/steps/sandbox.h"
#include "services/importer/keras/hdf5_copy.h"

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
constexpr rlim_t kMemory = rlim_t{1} << 30;  // that libhdf5 may take
constexpr rlim_t kBaseSeconds = 30;
constexpr size_t kBytesPerSecond = 20 << 20;
constexpr size_t kMaxIndex = size_t{1} << 30;
constexpr int kExitRefused = 3;
constexpr int kExitHung = 4;
constexpr int kPollMilliseconds = 50;
constexpr int kReaders = 3;  // until one does not hang

// Sanitizers reserve more address space than any limit allows.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kLimitsAddressSpace = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kLimitsAddressSpace = false;
#else
constexpr bool kLimitsAddressSpace = true;
#endif
#else
constexpr bool kLimitsAddressSpace = true;
#endif

bool Limit(decltype(RLIMIT_AS) resource, rlim_t soft, rlim_t more = 0) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return false;
  limit.rlim_max = std::min(limit.rlim_max, soft + more);
  limit.rlim_cur = std::min(soft, limit.rlim_max);
  return ::setrlimit(resource, &limit) == 0;
}

// Bytes of address space that this process has, and its children at their start.
rlim_t AddressSpace() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  std::array<char, 64> text{};
  const ssize_t size = file < 0 ? -1 : ::read(file, text.data(), text.size());
  if (file >= 0) ::close(file);
  rlim_t pages = 0;  // the first number
  if (size <= 0 || std::from_chars(text.data(), text.data() + size, pages).ec != std::errc())
    return 0;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

// Ends this process once it has done nothing since the last time: nobody else may, in a sandbox.
volatile int64_t done_before = 0;
void OnWatch(int) {
  constexpr int64_t kNothing = 2'000'000;  // nanoseconds: this is counted, too
  timespec now{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0) return;
  const int64_t done = int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
  if (done - done_before < kNothing) ::_exit(kExitHung);
  done_before = done;
}

void WatchThisProcess(std::chrono::milliseconds patience) {
  (void)std::signal(SIGALRM, OnWatch);
  const auto half = std::chrono::duration_cast<std::chrono::microseconds>(patience) / 2;
  const timeval period{half.count() / 1'000'000, half.count() % 1'000'000};
  const itimerval timer{period, period};
  (void)::setitimer(ITIMER_REAL, &timer, nullptr);
}

// All that this process does. `used`: AddressSpace. Its limits are those of the step that it is a part of, or lower.
[[noreturn]] void RunChild(std::span<const std::byte> bytes, int index, int data, rlim_t used,
                           std::chrono::milliseconds patience) {
  WatchThisProcess(patience);
  (void)std::signal(SIGINT, SIG_DFL);
  (void)std::signal(SIGTERM, SIG_DFL);
  (void)std::signal(SIGXCPU, SIG_DFL);
  (void)std::signal(SIGABRT, SIG_DFL);
  (void)std::signal(SIGPIPE, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::set_new_handler([] { ::_exit(kHdf5OutOfMemory); });
  // The two descriptors become the lowest; every other one is the parent's business.
  const int high_index = ::fcntl(index, F_DUPFD_CLOEXEC, 16);
  const int high_data = ::fcntl(data, F_DUPFD_CLOEXEC, 16);
  const int own_index = ::dup2(high_index, STDERR_FILENO + 1);
  const int own_data = ::dup2(high_data, STDERR_FILENO + 2);
  if (own_index < 0 || own_data < 0 || ::close_range(STDERR_FILENO + 3, ~0U, 0) != 0)
    ::_exit(kExitRefused);
  bool ok = Limit(RLIMIT_CORE, 0);
  if (kLimitsAddressSpace) ok = used > 0 && Limit(RLIMIT_AS, used + kMemory) && ok;
  ok = Limit(RLIMIT_CPU, kBaseSeconds + bytes.size() / kBytesPerSecond, 1) && ok;
  // No file, no program, no socket.
  steps::Sandbox sandbox;
  sandbox.walls = steps::WallsOfThisKernel();
  ok = steps::EnterSandbox(sandbox).ok() && ok;
  ok = Limit(RLIMIT_NOFILE, 0) && ok;
  ::_exit(ok && CopyHdf5(bytes, own_index, own_data) ? 0 : kExitRefused);
}

struct Pipe {
  int read = -1, write = -1;
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
};

// Says that something is done, while the child uses its CPU: this process itself only waits.
class ChildsProgress {
 public:
  ChildsProgress(pid_t child, std::chrono::milliseconds patience) : patience_(patience) {
    has_clock_ = ::clock_getcpuclockid(child, &clock_) == 0;
  }
  // False once the child has done nothing for too long.
  bool Report(const StepContext& context) {
    timespec now{};
    if (!has_clock_ || ::clock_gettime(clock_, &now) != 0) return true;
    const auto time = std::chrono::steady_clock::now();
    if (now.tv_sec == used_.tv_sec && now.tv_nsec == used_.tv_nsec) {
      return time - changed_ < patience_;
    }
    if (now.tv_sec != used_.tv_sec) context.Report({"import", "HDF5", 0, 0});
    used_ = now;
    changed_ = time;
    return true;
  }

 private:
  const std::chrono::milliseconds patience_;
  clockid_t clock_{};
  bool has_clock_ = false;
  timespec used_{};
  std::chrono::steady_clock::time_point changed_ = std::chrono::steady_clock::now();
};

absl::Status Hung() { return absl::AbortedError("the process that reads HDF5 hangs"); }

// Until the child has closed its end. ABORTED when it hangs.
absl::Status ReadIndex(int fd, ChildsProgress progress, const StepContext& context,
                       std::string& index) {
  std::array<char, 1 << 16> buffer;
  for (;;) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    if (!progress.Report(context)) return Hung();
    pollfd wait{fd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, kPollMilliseconds);
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for", "the reader of HDF5");
    if (ready <= 0) continue;
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return absl::OkStatus();
    if (index.size() + static_cast<size_t>(size) > kMaxIndex)
      return InvalidArgument("has too many attributes");
    index.append(buffer.data(), static_cast<size_t>(size));
  }
}

absl::Status EndOf(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitHung) return Hung();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kHdf5OutOfMemory)
    return absl::ResourceExhaustedError(
        fmt::format("reading it takes more than {} MiB of memory", kMemory >> 20));
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU))
    return absl::ResourceExhaustedError("reading it takes too long");
  if (WIFSIGNALED(status))
    return InvalidArgument("is damaged: libhdf5 ended with signal {} ({})", WTERMSIG(status),
                           ::strsignal(WTERMSIG(status)));
  return Internal("the process that reads HDF5 could not do its work");
}

// The child's index, and its numbers in `data`. ABORTED when the child hangs.
absl::StatusOr<std::string> RunReader(std::span<const std::byte> bytes, int data,
                                      const StepContext& context,
                                      std::chrono::milliseconds patience) {
  Pipe pipe;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe for", "HDF5");
  pipe.read = ends[0];
  pipe.write = ends[1];
  const rlim_t used = AddressSpace();  // the child may not ask
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "start", "the reader of HDF5");
  if (child == 0) RunChild(bytes, pipe.write, data, used, patience);
  ::close(std::exchange(pipe.write, -1));
  std::string index;
  const absl::Status read = ReadIndex(pipe.read, ChildsProgress(child, patience), context, index);
  if (!read.ok()) ::kill(child, SIGKILL);  // where that is refused, it meets the end of its pipe
  ::close(std::exchange(pipe.read, -1));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  QUENCH_RETURN_IF_ERROR(read);
  QUENCH_RETURN_IF_ERROR(EndOf(status));
  return index;
}

// The index comes from a process that may have been taken over: nothing of it is believed.
absl::Status ReadDatasets(const Json& index, Hdf5File& file) {
  const auto damaged = [] { return Internal("the copy of the HDF5 file is damaged"); };
  const std::span<const std::byte> numbers = file.numbers->bytes();
  for (const auto& [path, entry] : index.items()) {
    if (!entry.is_object()) return damaged();
    Hdf5Dataset& dataset = file.datasets[path];
    const auto refused = entry.find("refused");
    if (refused != entry.end()) {
      if (!refused->is_string()) return damaged();
      dataset.refused = refused->get<std::string>();
      continue;
    }
    const auto dtype = entry.find("dtype"), dims = entry.find("dims"),
               offset = entry.find("offset");
    if (dtype == entry.end() || !dtype->is_string() || dims == entry.end() || !dims->is_array() ||
        offset == entry.end() || !offset->is_number_unsigned())
      return damaged();
    const std::optional<DataType> type = ParseDataType(dtype->get<std::string>());
    std::vector<int64_t> sizes;
    for (const Json& dim : *dims) {
      if (!dim.is_number_unsigned()) return damaged();
      sizes.push_back(dim.get<int64_t>());
    }
    if (!type) return damaged();
    QUENCH_ASSIGN_OR_RETURN(dataset.header, HeaderOf(*type, sizes));
    const auto first = offset->get<uint64_t>(), size = static_cast<uint64_t>(dataset.header.bytes);
    if (size > numbers.size() || first > numbers.size() - size) return damaged();
    dataset.bytes = numbers.subspan(first, size);
  }
  return absl::OkStatus();
}

absl::Status ReadAttributes(const Json& index, Hdf5File& file) {
  for (const auto& [path, entries] : index.items()) {
    if (!entries.is_object()) continue;
    for (const auto& [name, texts] : entries.items()) {
      std::vector<std::string>& list = file.attributes[path][name];
      for (const Json& text : texts) {
        if (!text.is_string()) return Internal("the copy of the HDF5 file is damaged");
        list.push_back(text.get<std::string>());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>* Hdf5File::Attribute(const std::string& path,
                                                    const std::string& name) const {
  const auto object = attributes.find(path);
  if (object == attributes.end()) return nullptr;
  const auto found = object->second.find(name);
  return found == object->second.end() ? nullptr : &found->second;
}

bool LooksLikeHdf5(std::span<const std::byte> bytes) {
  if (bytes.size() < kSignature.size()) return false;
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  return std::string_view(text, kSignature.size()) == kSignature;
}

absl::StatusOr<Hdf5File> ReadHdf5(std::span<const std::byte> bytes, const StepContext& context,
                                  std::chrono::milliseconds patience) {
  if (!LooksLikeHdf5(bytes)) return InvalidArgument("not an HDF5 file: its signature is missing");
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  const std::filesystem::path path = folder.path() / "numbers";
  absl::StatusOr<std::string> text;
  // The process is a copy of this one, whose other threads may have held a lock of an allocator at that moment: the
  // C library's opens again, a sanitizer's does not.
  for (int tries = 0; tries < kReaders && (tries == 0 || absl::IsAborted(text.status())); ++tries) {
    const int data = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (data < 0) return ErrnoStatus(errno, "create", path);
    text = RunReader(bytes, data, context, patience);
    ::close(data);
  }
  if (absl::IsAborted(text.status())) return Internal("{}", MessageOf(text.status()));
  QUENCH_RETURN_IF_ERROR(text.status());
  Hdf5File file;
  QUENCH_ASSIGN_OR_RETURN(file.numbers, FileMapping::Open(path));
  const Json index = Json::parse(*text, nullptr, false);
  if (!index.is_object()) return Internal("the copy of the HDF5 file is damaged");
  if (index.contains("error") && index["error"].is_string())
    return InvalidArgument("not an HDF5 file that can be read: {}",
                           index["error"].get<std::string>());
  if (!index.contains("datasets") || !index.contains("attributes"))
    return Internal("the copy of the HDF5 file is damaged");
  QUENCH_RETURN_IF_ERROR(ReadAttributes(index["attributes"], file));
  QUENCH_RETURN_IF_ERROR(ReadDatasets(index["datasets"], file));
  return file;
}

}  // namespace quench::importer
