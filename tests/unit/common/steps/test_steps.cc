#include "tests/unit/common/steps/test_steps.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <mutex>
#include <thread>

#include "common/base/errno_status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/steps/modules.h"
#include "tests/unit/common/steps/escapes.h"

extern char** environ;

namespace quench::steps {
namespace {

using codegen::v1::PackageRequest;
using codegen::v1::PackageResult;

// The kernel's answer: "ok", or the error's text.
std::string Told(bool ok) { return ok ? "ok" : std::strerror(errno); }

// The result of the last write to a file of `bytes` bytes.
std::string WriteFile(const std::string& path, uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const std::vector<char> block(size_t{1} << 20, 'x');
  bool ok = fd >= 0;
  for (uint64_t done = 0; ok && done < bytes; done += block.size()) {
    ok = ::write(fd, block.data(), block.size()) == static_cast<ssize_t>(block.size());
  }
  const std::string told = Told(ok);
  if (fd >= 0) ::close(fd);
  return told;
}

// Blocks of the disk beyond the end of a file, and room for what is about to be written.
std::string Allocate(const std::string& path, off_t bytes) {
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const std::string told = Told(::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0);
  ::close(fd);
  return told;
}
std::string Reserve(const std::string& path, off_t bytes) {
  const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  const int error = ::posix_fallocate(fd, 0, bytes);
  ::close(fd);
  return error == 0 ? "ok" : std::strerror(error);
}

// Folders in each other, without an end.
void Nest(const std::string& folder) {
  int at = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (::mkdirat(at, "another", 0700) == 0) {
    const int inner = ::openat(at, "another", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ::close(at);
    at = inner;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string OpenMany() {
  std::vector<int> files;
  for (int fd = 0; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) files.push_back(fd);
  std::string told = Told(false);
  for (const int fd : files) ::close(fd);
  return told;
}

// One that holds the file, and would for ever.
std::string LeaveProcess(const std::string& path) {
  const pid_t child = ::fork();
  if (child < 0) return Told(false);
  if (child > 0) return "ok";
  (void)::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  for (;;) ::sleep(1000);
}

// Threads whose system calls are not filtered, or that may gain rights.
std::string LooseThreads() {
  std::thread another([] {});
  int loose = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string status;
    std::array<char, 4096> text{};
    const int fd = ::open((task.path() / "status").c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t size = ::read(fd, text.data(), text.size());
    ::close(fd);
    status.assign(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
    if (!status.empty() && (status.find("Seccomp:\t2") == std::string::npos ||
                            status.find("NoNewPrivs:\t1") == std::string::npos ||
                            status.find("CapEff:\t0000000000000000") == std::string::npos)) {
      ++loose;
    }
  }
  another.join();
  return std::to_string(loose);
}

std::string Environment() {
  std::string all;
  for (char** each = environ; *each != nullptr; ++each) all += std::string(*each) + "\n";
  return all;
}

// A library of the machine's, and a function in it.
std::string Load() {
  void* const library = ::dlopen("libcrypto.so.3", RTLD_NOW);
  return library != nullptr && ::dlsym(library, "SHA256_Init") != nullptr ? "ok" : ::dlerror();
}

void Fill(size_t mebibytes) {
  for (size_t i = 0; i < mebibytes; ++i) {
    std::vector<char>* leaked = new std::vector<char>(size_t{1} << 20, 'x');
    if (leaked->back() != 'x') std::abort();
  }
}

void Spin() {
  volatile bool on = true;
  while (on) {
  }
}

// Two locks, taken the other way round by two threads.
void Deadlock() {
  std::mutex a, b;
  std::latch both(2);
  const auto take = [&](std::mutex& first, std::mutex& second) {
    const std::lock_guard one(first);
    both.arrive_and_wait();
    const std::lock_guard other(second);
  };
  std::thread thread([&] { take(b, a); });
  take(a, b);
  thread.join();
}

// Wakes up now and then, and does nothing.
[[noreturn]] void Poll() {
  while (true) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// Calls `each` until the time is over.
template <typename Each>
void During(const std::string& milliseconds, Each each) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(std::stoi(milliseconds));
  while (std::chrono::steady_clock::now() < end) each();
}

absl::StatusOr<PackageResult> Do(const PackageRequest& request, const Workplace& place,
                                 const StepContext& context) {
  const size_t colon = std::min(request.uuid().find(':'), request.uuid().size());
  const std::string what = request.uuid().substr(0, colon);
  std::string argument = colon < request.uuid().size() ? request.uuid().substr(colon + 1) : "";
  std::string told = argument;
  if (argument == "@input") argument = place.blobs.PathOf(request.library().hash()).string();
  if (what == "fail") {
    return rpc::WithField(InvalidArgument("uuid: no good"), {"uuid", "no good"});
  }
  if (what == "crash") (void)std::raise(SIGSEGV);
  if (what == "killed") (void)std::raise(SIGKILL);
  if (what == "stderr") {
    for (int i = 0; i < std::stoi(argument); ++i)
      std::fputs("\x1b[31m[2026-11-27] [info] forged\nand more", stderr);
  }
  if (what == "exit") ::_exit(3);
  if (what == "spin") Spin();
  if (what == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (what == "deadlock") Deadlock();
  if (what == "poll") Poll();
  if (what == "stop") (void)std::raise(SIGSTOP);
  if (what == "busy") During(argument, [] {});
  if (what == "reports") {
    int64_t done = 0;
    During(argument, [&] {
      context.Report({"step", "", ++done, 0});
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
    });
  }
  if (what == "sleep") std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(argument)));
  if (what == "stdout") std::puts("not a frame");
  if (what == "progress") {
    context.Report({"first", "a", 1, 2});
    context.Report({"second", "b", 2, 2});
  }
  if (what == "memory") Fill(std::stoul(argument));
  if (what == "map") {
    const size_t bytes = std::stoul(argument) << 20;
    void* const mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return ErrnoStatus(errno, "map", place.scratch / "x");
    ::munmap(mapped, bytes);
    told = argument;
  }
  if (what == "file") told = WriteFile((place.scratch / "x").string(), std::stoull(argument) << 20);
  if (what == "files") {
    for (int i = 0; i < std::stoi(argument); ++i) {
      told = WriteFile((place.scratch / std::to_string(i)).string(), uint64_t{1} << 20);
    }
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (what == "allocate") {
    told = Allocate((place.scratch / "x").string(), std::stoll(argument) << 20);
  }
  if (what == "reserve") {
    told = Reserve((place.scratch / "x").string(), std::stoll(argument) << 20);
  }
  if (what == "empty") {  // files
    for (int i = 0; i < std::stoi(argument); ++i) {
      told = WriteFile((place.scratch / std::to_string(i)).string(), 0);
    }
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (what == "nest") Nest(place.scratch.string());
  if (what == "leave") told = LeaveProcess((place.scratch / "x").string());
  if (what == "open") told = OpenMany();
  if (what == "loose") told = LooseThreads();
  if (what == "environment") told = Environment();
  if (what == "load") told = Load();
  if (what == "late") {
    const std::filesystem::path go = place.scratch / "go";
    context.Report({"late", go.string(), 0, 0});
    while (!std::filesystem::exists(go)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (what == "input" || what == "late") {
    QUENCH_ASSIGN_OR_RETURN(const auto file, place.blobs.Open(request.library().hash()));
    told.assign(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  }
  if (const std::string escaped = TryEscape(what, argument, place.scratch.string());
      !escaped.empty()) {
    told = escaped;
  }
  if (what == "threads") told = std::to_string(place.max_threads);
  PackageResult result;
  if (what == "lie") {  // of a blob that it has not made
    result.mutable_library()->set_hash(argument);
    return result;
  }
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_library(), StoreBytes(told, place.blobs));
  if (what == "forge") result.mutable_library()->set_hash(Sha256Hex("another"));
  return result;
}

}  // namespace

const Step& TestStep() {
  static const Step* const step = new Step(
      MakeStep("quench.codegen.v1.Codegen/Package", metrics::Stage::kPackage, Caching::kPure, Do));
  return *step;
}

const Step& UncachedTestStep() {
  static const Step* const step = new Step(
      MakeStep("quench.codegen.v1.Codegen/Package", metrics::Stage::kPackage, Caching::kNever, Do));
  return *step;
}

const Step& ForkingTestStep() {
  static const Step* const step = [] {
    auto* forking = new Step(
        MakeStep("quench.codegen.v1.Codegen/Fork", metrics::Stage::kPackage, Caching::kNever, Do));
    forking->starts_processes = true;
    return forking;
  }();
  return *step;
}

PackageRequest TestRequest(const std::string& what) {
  PackageRequest request;
  request.set_uuid(what);
  return request;
}

}  // namespace quench::steps
