#include "common/steps/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/rpc/errors.h"
#include "common/steps/child_agreement.h"
#include "common/steps/child_log.h"
#include "common/steps/disk_watch.h"
#include "common/steps/liveness.h"
#include "common/steps/node_guard.h"
#include "common/steps/peak_memory.h"
#include "common/steps/pipes.h"
#include "common/steps/step_error.h"
#include "quench/child/v1/child.pb.h"

namespace quench::steps {
namespace {

using child::v1::News;
using child::v1::Order;
using metrics::ChildEnd;
using metrics::ChildState;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(2);  // with a process that is to end
// With one whose work nobody wants.
constexpr auto kShortPatience = std::chrono::milliseconds(250);
// The kernel's counts of two processes with the same memory may differ by this.
constexpr int64_t kCountsDiffer = int64_t{32} << 20;
constexpr auto kNoWatch = std::chrono::milliseconds(60'000);

// A descriptor of ours.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { Close(); }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

absl::StatusOr<std::pair<Fd, Fd>> MakePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe for", "a step");
  return std::pair{Fd(ends[0]), Fd(ends[1])};
}

// Variables that a step's program needs from its service's environment: where the loader finds its
// libraries, which GPUs it sees, and in tests how the sanitizers work.
constexpr std::array kPassedOn = {
    "LD_LIBRARY_PATH",    "QUENCH_CUDA_DRIVER", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE",
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    "ASAN_OPTIONS",       "UBSAN_OPTIONS",      "TSAN_OPTIONS",         "LSAN_OPTIONS",
#endif
};

std::vector<std::string> EnvironmentOfSteps() {
  std::vector<std::string> all = {"LC_ALL=C", "TZ=UTC0"};
  for (const char* name : kPassedOn) {
    if (const char* value = std::getenv(name)) all.push_back(fmt::format("{}={}", name, value));
  }
  return all;
}

// Counts a child as long as it is in this state.
class InState {
 public:
  InState(metrics::Registry& registry, ChildState state)
      : registry_(registry), gauge_(&registry.Get(metrics::kChildren, state)) {
    gauge_->Increment();
  }
  ~InState() { gauge_->Decrement(); }
  InState(const InState&) = delete;
  InState& operator=(const InState&) = delete;
  void Become(ChildState state) {
    gauge_->Decrement();
    gauge_ = &registry_.Get(metrics::kChildren, state);
    gauge_->Increment();
  }

 private:
  metrics::Registry& registry_;
  metrics::Gauge* gauge_;
};

absl::Status Stalled(std::chrono::milliseconds limit) {
  return rpc::Error(
      rpc::Reason::kStepStalled,
      fmt::format("the step's process has hung: for {} s it reported nothing, and used neither CPU "
                  "nor disk",
                  static_cast<double>(limit.count()) / 1000));
}

class Child {
 public:
  Child(const Order& order, const StepContext& context, metrics::Registry& registry,
        const Usage& before)
      : order_(order),
        context_(context),
        registry_(registry),
        log_(context.request_id(), before.log) {}
  ~Child() { Reap(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  absl::Status Start(const std::filesystem::path& program);
  // Until the child has answered or ended, or we end it.
  void Attend();
  absl::StatusOr<std::string> Outcome();
  Usage usage() const { return usage_; }

 private:
  // Writes the part of the order that the child still has to read; false when it never will.
  bool Feed();
  bool TakeAll();
  void Take(const std::string& bytes);
  void Report();
  void ReportNewLines();
  void Kill(absl::Status why, ChildEnd cause);
  void Reap();
  int PollMilliseconds() const;
  bool HasEnded() const;
  absl::Status CauseOfDeath();

  const Order& order_;
  const StepContext& context_;
  metrics::Registry& registry_;
  InState state_{registry_, ChildState::kStarting};
  pid_t pid_ = -1;
  int wait_status_ = 0;
  bool ended_by_itself_ = false;  // not by our SIGKILL
  Fd to_child_, from_child_, errors_, cancelled_, ended_;
  ChildLog log_;
  Progress progress_;  // as reported last
  std::string unsent_;
  FrameBuffer buffer_;
  const std::chrono::milliseconds max_stall_{order_.max_stall_milliseconds()};
  Liveness liveness_{max_stall_, Clock::now()};
  Usage usage_;
  DiskWatch disk_{{order_.scratch(), order_.drafts()}, order_.max_disk_bytes(), Clock::now()};
  ChildEnd cause_ = ChildEnd::kDone;
  absl::Status killed_;  // why we ended it
  std::optional<absl::StatusOr<std::string>> answer_;
};

absl::Status Child::Start(const std::filesystem::path& program) {
  QUENCH_ASSIGN_OR_RETURN(auto input, MakePipe());
  QUENCH_ASSIGN_OR_RETURN(auto output, MakePipe());
  QUENCH_ASSIGN_OR_RETURN(auto errors, MakePipe());
  cancelled_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.first.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.second.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.second.get(), STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own: Ctrl-C at a terminal goes to the service, which decides.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  std::string path = program.string(), argument = kChildArgument;
  std::array<char*, 3> arguments = {path.data(), argument.data(), nullptr};
  std::vector<std::string> variables = EnvironmentOfSteps();
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, path.c_str(), &actions, &attributes, arguments.data(),
                                  environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    return ErrnoStatus(error, "start", program);
  }
  ended_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  to_child_ = std::move(input.second);
  (void)::fcntl(to_child_.get(), F_SETFL, O_NONBLOCK);  // the child may hang before it reads
  from_child_ = std::move(output.first);
  errors_ = std::move(errors.first);
  (void)::fcntl(errors_.get(), F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

void Child::Attend() {
  const std::stop_callback on_cancel(context_.cancel_token()->stop_token(), [this] {
    const uint64_t one = 1;
    (void)!::write(cancelled_.get(), &one, sizeof one);
  });
  absl::StatusOr<std::string> order = FrameOf(order_);
  if (!order.ok()) return Kill(order.status(), ChildEnd::kDone);
  unsent_ = *std::move(order);
  state_.Become(ChildState::kRunning);
  // Where the kernel has no such descriptor as the last, the end of stdout tells: no process that it
  // left holds it.
  std::array<pollfd, 5> fds = {pollfd{from_child_.get(), POLLIN, 0},
                               pollfd{cancelled_.get(), POLLIN, 0},
                               pollfd{to_child_.get(), POLLOUT, 0}, pollfd{ended_.get(), POLLIN, 0},
                               pollfd{errors_.get(), POLLIN, 0}};
  while (killed_.ok()) {
    // A child that died at once is known by the end of its stdout.
    if (unsent_.empty() || !Feed()) fds[2].fd = -1;
    const int ready = ::poll(fds.data(), fds.size(), PollMilliseconds());
    if (ready < 0 && errno != EINTR) return Kill(Internal("poll failed"), ChildEnd::kCrashed);
    log_.Drain(errors_.get());
    ReportNewLines();
    if ((fds[4].revents & (POLLHUP | POLLERR)) != 0) fds[4].fd = -1;  // it has closed its stderr
    if (const absl::Status status = context_.Check(); !status.ok()) {
      return Kill(status, absl::IsCancelled(status) ? ChildEnd::kCancelled : ChildEnd::kDeadline);
    }
    if (const absl::Status status = disk_.Look(Clock::now()); !status.ok()) {
      return Kill(status, ChildEnd::kDisk);
    }
    const bool has_news = (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
    if (has_news && !TakeAll()) return;
    if (answer_ || (!has_news && fds[3].revents != 0)) return;
    if (liveness_.IsStalled(Clock::now())) {
      if (!HasThreadInTurn(pid_)) return Kill(Stalled(max_stall_), ChildEnd::kStalled);
      liveness_.Spare();
    }
  }
}

bool Child::Feed() {
  const ssize_t written = ::write(to_child_.get(), unsent_.data(), unsent_.size());
  if (written < 0) return errno == EAGAIN || errno == EINTR;
  unsent_.erase(0, static_cast<size_t>(written));
  return !unsent_.empty();
}

// False at the end of the child's stdout.
bool Child::TakeAll() {
  if (!buffer_.Fill(from_child_.get())) return false;
  while (killed_.ok()) {
    const auto next = buffer_.Next();
    if (!next.ok()) Kill(next.status(), ChildEnd::kCrashed);
    if (!next.ok() || !next->has_value()) break;
    Take(**next);
  }
  return true;
}

int Child::PollMilliseconds() const {
  std::chrono::milliseconds wait = max_stall_.count() > 0 ? PulsePeriod(max_stall_) : kNoWatch;
  wait = std::min(wait, disk_.UntilNextLook(Clock::now()));
  if (context_.deadline()) {
    wait = std::min(
        wait, std::chrono::ceil<std::chrono::milliseconds>(*context_.deadline() - Clock::now()));
  }
  return static_cast<int>(std::max<int64_t>(wait.count(), 0));
}

void Child::Take(const std::string& bytes) {
  News news;
  if (!news.ParseFromString(bytes)) {
    return Kill(Internal("the step's process sent an invalid message"), ChildEnd::kCrashed);
  }
  // The child's own word counts up to its limit only: what it runs may have taken it over.
  const int64_t limit = order_.max_memory_bytes();
  const int64_t peak = news.peak_memory_bytes();
  usage_.peak_memory_bytes =
      std::max(usage_.peak_memory_bytes, limit == 0 ? peak : std::min(peak, limit));
  if (news.has_pulse()) return liveness_.OnPulse(news.pulse(), Clock::now());
  if (news.has_progress()) {
    liveness_.OnProgress();
    const auto& progress = news.progress();
    progress_ = {progress.stage(), progress.detail(), progress.done(), progress.total()};
    Report();
  } else if (news.has_error()) {
    answer_ = ErrorOfStep(news.error());
  } else {
    answer_ = news.result();
  }
}

// The latest progress, with the latest lines of its log.
void Child::Report() {
  progress_.written = log_.lines();
  context_.Report(progress_);
}

void Child::ReportNewLines() {
  if (log_.lines() != progress_.written) Report();
}

void Child::Kill(absl::Status why, ChildEnd cause) {
  state_.Become(ChildState::kStopping);
  killed_ = std::move(why);
  cause_ = cause;
  to_child_
      .Close();  // it ends itself: in namespaces, with whom it started, before anybody inherits them
}

bool Child::HasEnded() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
         info.si_pid == pid_;
}

// A child that has closed its stdout and does not end gets a moment, then is killed, and so is whoever is
// left of a step that starts processes: what these have written is theirs until they have ended.
void Child::Reap() {
  if (pid_ < 0) return;
  to_child_.Close();
  rusage usage{};
  auto patience = Clock::now() + (killed_.ok() ? kPatience : kShortPatience);
  while (!HasEnded() && Clock::now() < patience) {
    log_.Drain(errors_.get());  // it may wait for room
    ::poll(nullptr, 0, 1);
  }
  ended_by_itself_ = HasEnded();
  ::kill(-pid_, SIGKILL);
  ::wait4(pid_, &wait_status_, 0, &usage);
  patience = Clock::now() + kPatience;
  while (HasProcesses(pid_) && Clock::now() < patience) ::poll(nullptr, 0, 1);
  pid_ = -1;
  log_.Drain(errors_.get());
  log_.Finish();
  ReportNewLines();
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  usage_.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  // The kernel's count begins at what this process had when it started the child.
  const int64_t counted = int64_t{usage.ru_maxrss} * 1024;
  if (counted > PeakMemory().bytes() + kCountsDiffer) {
    usage_.peak_memory_bytes = std::max(usage_.peak_memory_bytes, counted);
  }
}

absl::Status Child::CauseOfDeath() {
  if (WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == kExitOutOfMemory) {
    cause_ = ChildEnd::kMemory;
    return rpc::Error(rpc::Reason::kResourceLimit,
                      order_.max_memory_bytes() == 0
                          ? "the step needed more memory than the machine has"
                          : fmt::format("the step needed more than the {} MiB that it may take "
                                        "(its service's `steps.max_memory_bytes`)",
                                        order_.max_memory_bytes() >> 20));
  }
  if (WIFSIGNALED(wait_status_) && WTERMSIG(wait_status_) == SIGXCPU) {
    cause_ = ChildEnd::kDeadline;
    return rpc::Error(rpc::Reason::kResourceLimit,
                      fmt::format("the step needed more than the {} s of CPU time that it may take",
                                  order_.max_cpu_seconds()));
  }
  // No step sends itself this signal: the kernel does, where memory has run out, and that may be all
  // that other processes took.
  if (ended_by_itself_ && WIFSIGNALED(wait_status_) && WTERMSIG(wait_status_) == SIGKILL) {
    cause_ = ChildEnd::kMemory;
    return NodeFault(absl::ResourceExhaustedError(
        fmt::format("the step's process was killed from outside (SIGKILL), at {} MiB: the machine "
                    "has run out of memory, or somebody ended it",
                    usage_.peak_memory_bytes >> 20)));
  }
  cause_ = ChildEnd::kCrashed;
  const std::string how = WIFSIGNALED(wait_status_)
                              ? fmt::format("signal {}", sigabbrev_np(WTERMSIG(wait_status_)))
                              : fmt::format("exit code {}", WEXITSTATUS(wait_status_));
  return rpc::WithReason(Internal("the step's process crashed ({})", how),
                         rpc::Reason::kStepCrashed);
}

absl::StatusOr<std::string> Child::Outcome() {
  Reap();
  if (!answer_) answer_ = killed_.ok() ? CauseOfDeath() : killed_;
  usage_.ran_out_of_memory = cause_ == ChildEnd::kMemory;
  usage_.log = log_.lines();
  registry_.Get(metrics::kChildrenEnded, cause_).Increment();
  return *std::move(answer_);
}

}  // namespace

absl::StatusOr<std::string> RunInChild(const std::filesystem::path& program, const Order& order,
                                       const StepContext& context, metrics::Registry& registry,
                                       Usage* usage) {
  QUENCH_RETURN_IF_ERROR(context.Check());
  Child child(order, context, registry, usage == nullptr ? Usage() : *usage);
  QUENCH_RETURN_IF_ERROR(child.Start(program));
  child.Attend();
  absl::StatusOr<std::string> outcome = child.Outcome();
  if (usage != nullptr) *usage = child.usage();
  return outcome;
}

}  // namespace quench::steps
