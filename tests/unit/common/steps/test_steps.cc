#include "tests/unit/common/steps/test_steps.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
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

#include "common/rpc/errors.h"
#include "common/steps/modules.h"

extern char** environ;

namespace quench::steps {
namespace {

using codegen::v1::PackageRequest;
using codegen::v1::PackageResult;

// What the kernel says to it: "ok", or the error's text.
std::string Told(bool ok) { return ok ? "ok" : std::strerror(errno); }

std::string Write(const std::string& path) {
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const std::string told = Told(fd >= 0);
  if (fd >= 0) ::close(fd);
  return told;
}

std::string Read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::string told = Told(fd >= 0);
  if (fd >= 0) ::close(fd);
  return told;
}

std::string Exec() {
  std::array<char*, 2> arguments = {const_cast<char*>("true"), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, "/bin/true", nullptr, nullptr, arguments.data(), environ);
  if (error == 0) ::waitpid(pid, nullptr, 0);
  return error == 0 ? "ok" : std::strerror(error);
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
  const std::string argument =
      colon < request.uuid().size() ? request.uuid().substr(colon + 1) : "";
  std::string told = argument;
  if (what == "fail") {
    return rpc::WithField(InvalidArgument("uuid: no good"), {"uuid", "no good"});
  }
  if (what == "crash") (void)std::raise(SIGSEGV);
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
  if (what == "write") told = Write(argument);
  if (what == "read") told = Read(argument);
  if (what == "socket") told = Told(::socket(AF_INET, SOCK_STREAM, 0) >= 0);
  if (what == "exec") told = Exec();
  if (what == "scratch") {
    told = place.scratch.string() + " " + Write((place.scratch / "x").string());
  }
  if (what == "threads") told = std::to_string(place.max_threads);
  PackageResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_library(), StoreBytes(told, place.blobs));
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

PackageRequest TestRequest(const std::string& what) {
  PackageRequest request;
  request.set_uuid(what);
  return request;
}

}  // namespace quench::steps
