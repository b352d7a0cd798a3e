#include <fcntl.h>
#include <google/protobuf/stubs/logging.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "common/rpc/errors.h"
#include "common/steps/child.h"
#include "common/steps/child_agreement.h"
#include "common/steps/peak_memory.h"
#include "common/steps/pipes.h"
#include "common/steps/sandbox.h"
#include "google/rpc/status.pb.h"
#include "quench/child/v1/child.pb.h"

namespace quench::steps {
namespace {

using child::v1::News;
using child::v1::Order;

constexpr auto kProgressGap = std::chrono::milliseconds(50);

// The pipe to the service. Anything that prints to stdout does it on stderr from here on.
class Reporter {
 public:
  Reporter() : fd_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
  }

  // From here on, what is sent says how much memory the process has had. Before it enters the sandbox.
  void WatchMemory() { memory_.emplace(); }

  void Send(News news) {
    if (memory_) news.set_peak_memory_bytes(memory_->bytes());
    const std::lock_guard lock(mutex_);
    (void)WriteFrame(fd_, news);  // nobody is left to be told
  }

  void Report(const Progress& progress) {
    {
      const std::lock_guard lock(mutex_);
      const auto now = std::chrono::steady_clock::now();
      if (progress.stage == stage_ && now - last_ < kProgressGap) return;
      stage_ = progress.stage;
      last_ = now;
    }
    News news;
    news.mutable_progress()->set_stage(progress.stage);
    news.mutable_progress()->set_detail(progress.detail);
    news.mutable_progress()->set_done(progress.done);
    news.mutable_progress()->set_total(progress.total);
    Send(news);
  }

 private:
  const int fd_;
  std::optional<PeakMemory> memory_;
  std::mutex mutex_;
  std::string stage_;
  std::chrono::steady_clock::time_point last_;
};

absl::StatusOr<Order> ReadOrder() {
  FrameBuffer buffer;
  Order order;
  for (;;) {
    QUENCH_ASSIGN_OR_RETURN(const std::optional<std::string> frame, buffer.Next());
    if (frame) {
      if (!order.ParseFromString(*frame)) return Internal("the order is damaged");
      return order;
    }
    if (!buffer.Fill(STDIN_FILENO)) return absl::UnavailableError("stdin ended before the order");
  }
}

// The process that gave the order holds the other end of stdin as long as it wants the result.
void EndWithStdin() {
  std::thread([] {
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    ::_exit(1);
  }).detach();
}

// Says now and then what the rest of this process has done: a watcher that only says that it is
// alive itself would hide a deadlock.
void SendPulses(Reporter& reporter, std::chrono::milliseconds max_stall) {
  std::thread([&reporter, period = PulsePeriod(max_stall)] {
    const auto microseconds = [](const rusage& usage) {
      return int64_t{1'000'000} * (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
             usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    };
    for (;;) {
      rusage all{}, own{};
      (void)::getrusage(RUSAGE_SELF, &all);
      (void)::getrusage(RUSAGE_THREAD, &own);
      News news;
      news.mutable_pulse()->set_cpu_microseconds(microseconds(all) - microseconds(own));
      news.mutable_pulse()->set_disk_accesses(all.ru_majflt + all.ru_inblock + all.ru_oublock);
      reporter.Send(news);
      std::this_thread::sleep_for(period);
    }
  }).detach();
}

// Whether there is no address space left: what a library that aborts for want of memory has met.
bool OutOfMemory() {
  constexpr size_t kProbeBytes = size_t{32} << 20;
  // Writable: RLIMIT_DATA counts only that.
  void* const probe = ::mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) return true;
  ::munmap(probe, kProbeBytes);
  return false;
}

void OnAbort(int) {
  if (OutOfMemory()) ::_exit(kExitOutOfMemory);
  (void)std::signal(SIGABRT, SIG_DFL);
  (void)std::raise(SIGABRT);
}

// Sanitizers reserve more address space than any limit allows.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kLimitsAddressSpace = false;
#else
constexpr bool kLimitsAddressSpace = true;
#endif

// At most what it is now.
bool Lower(decltype(RLIMIT_AS) resource, int64_t soft, int64_t more = 0) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return false;
  limit.rlim_max = std::min(limit.rlim_max, static_cast<rlim_t>(soft + more));
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(soft));
  return ::setrlimit(resource, &limit) == 0;
}

absl::Status SetLimits(const Order& order) {
  std::set_new_handler([] { ::_exit(kExitOutOfMemory); });
  (void)std::signal(SIGABRT, OnAbort);
  (void)std::signal(SIGXFSZ, SIG_IGN);  // writes fail with EFBIG, which says the file
  bool ok = Lower(RLIMIT_CORE, 0) && Lower(RLIMIT_MSGQUEUE, 0);
  if (order.max_memory_bytes() > 0 && kLimitsAddressSpace) {
    // A driver of GPUs reserves as much address space as all memory of the machine and its GPUs takes.
    ok = Lower(order.gpus() ? RLIMIT_DATA : RLIMIT_AS, order.max_memory_bytes()) && ok;
  }
  // The kernel sends SIGXCPU at the first limit, by which the service knows the cause, and SIGKILL at
  // the second.
  if (order.max_cpu_seconds() > 0) ok = Lower(RLIMIT_CPU, order.max_cpu_seconds(), 1) && ok;
  if (order.max_disk_bytes() > 0) ok = Lower(RLIMIT_FSIZE, order.max_disk_bytes()) && ok;
  if (order.max_open_files() > 0) ok = Lower(RLIMIT_NOFILE, order.max_open_files()) && ok;
  // Elsewhere the service's own would count too.
  const bool counts_own = (order.walls() & kNamespaces) != 0;
  if (order.max_processes() > 0 && counts_own) {
    ok = Lower(RLIMIT_NPROC, order.max_processes()) && ok;
  }
  return ok ? absl::OkStatus() : Internal("the step's limits cannot be set");
}

absl::Status Enter(const Order& order, const Step* step) {
  Sandbox sandbox;
  sandbox.walls = order.walls();
  sandbox.readable = {order.inputs()};
  sandbox.writable = {order.scratch(), order.drafts()};
  sandbox.starts_processes = step != nullptr && step->starts_processes;
  sandbox.gpus = order.gpus();
  const char* const driver = std::getenv("QUENCH_CUDA_DRIVER");
  if (order.gpus() && driver != nullptr && *driver == '/') sandbox.readable.emplace_back(driver);
  return EnterSandbox(sandbox);
}

absl::StatusOr<std::string> Do(const Order& order, std::span<const Step> steps,
                               Reporter& reporter) {
  const auto step = std::find_if(steps.begin(), steps.end(),
                                 [&](const Step& each) { return each.method == order.method(); });
  const bool only_enters = order.method().empty();
  if (step == steps.end() && !only_enters) {
    return Internal("this program has no step `{}`", order.method());
  }
  if ((order.walls() & kNamespaces) != 0) QUENCH_RETURN_IF_ERROR(EnterNamespaces());
  // Where libraries look for a place for temporary files.
  if (::setenv("TMPDIR", order.scratch().c_str(), 1) != 0) return Internal("no environment");
  // A folder of the step's own: kernels that one leaves in a common one would run in another's.
  const std::string kernels = order.scratch() + "/kernels";
  if (::setenv("CUDA_CACHE_PATH", kernels.c_str(), 1) != 0) return Internal("no environment");
  reporter.WatchMemory();
  QUENCH_RETURN_IF_ERROR(SetLimits(order));
  const auto blobs = LocalBlobStore::OpenDrafts(
      order.drafts(), order.inputs(),
      std::make_shared<BlobSpace>(BlobSpace::kNoLimit, DefaultReserve(order.drafts())));
  QUENCH_RETURN_IF_ERROR(Enter(order, only_enters ? nullptr : &*step));
  // Threads: they, too, are in the sandbox.
  EndWithStdin();
  SendPulses(reporter, std::chrono::milliseconds(order.max_stall_milliseconds()));
  if (only_enters) return std::string();
  StepContext context(std::make_shared<CancelToken>(),
                      [&reporter](const Progress& progress) { reporter.Report(progress); });
  context.set_request_id(order.request_id());
  context.set_traceparent(order.traceparent());
  const Workplace place{*blobs, order.scratch(), std::max(order.max_threads(), 1)};
  try {
    return step->run(order.request(), place, context);
  } catch (const std::bad_alloc&) {
    ::_exit(kExitOutOfMemory);
  } catch (const std::exception& error) {
    return Internal("an exception came out of the step: {}", error.what());
  }
}

}  // namespace

int RunAsChild(std::span<const Step> steps) {
  (void)std::signal(SIGPIPE, SIG_IGN);
  spdlog::set_default_logger(spdlog::stderr_color_mt("step"));
  spdlog::set_level(spdlog::level::warn);
  google::protobuf::SetLogHandler(nullptr);  // what it would print of bad input is in our errors
  Reporter reporter;
  absl::StatusOr<Order> order = ReadOrder();
  if (!order.ok()) return 2;
  const absl::StatusOr<std::string> result = Do(*order, steps, reporter);
  if (ErrnoOf(result.status()) == ENOMEM) ::_exit(kExitOutOfMemory);
  News news;
  if (result.ok()) {
    news.set_result(*result);
  } else {
    *news.mutable_error() = rpc::ToProto(result.status());
  }
  reporter.Send(news);
  // Without destructors: threads of libraries may still run, and nothing here has to be flushed.
  ::_exit(0);
}

}  // namespace quench::steps
