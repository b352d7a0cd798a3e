#include "tests/conformance/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <optional>

#include "common/base/status.h"

extern char** environ;

// A case may take 6 GiB. AddressSanitizer reserves terabytes of addresses, and limits itself.
#if defined(__SANITIZE_ADDRESS__)
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "hard_rss_limit_mb=6144"; }
static void LimitMemory() {}
#else
static void LimitMemory() {
  const rlimit memory{rlim_t{6} << 30, rlim_t{6} << 30};
  ::setrlimit(RLIMIT_AS, &memory);
}
#endif

namespace quench::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kAnswer[] = "\x1e";  // starts an answer: libraries may print to stdout too

class Worker {
 public:
  explicit Worker(const std::vector<std::string>& arguments) : arguments_(arguments) {}
  ~Worker() { Stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool busy() const { return index_.has_value(); }
  size_t index() const { return *index_; }
  int out() const { return out_; }
  Clock::time_point since() const { return since_; }

  void Give(size_t index, const std::string& folder);
  // Reads what there is. The case's result once it is complete, or once the child has died.
  std::optional<CaseResult> Read();
  CaseResult GiveUp(std::chrono::seconds limit);

 private:
  void Start();
  void Stop();
  CaseResult Finish(CaseResult result) {
    index_.reset();
    return result;
  }

  const std::vector<std::string>& arguments_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string buffer_;
  std::optional<size_t> index_;
  Clock::time_point since_;
};

void Worker::Start() {
  int to[2], from[2];
  QUENCH_CHECK(::pipe2(to, O_CLOEXEC) == 0 && ::pipe2(from, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  std::vector<char*> argv;
  for (const std::string& argument : arguments_)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  QUENCH_CHECK(::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ) ==
               0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(to[0]);
  ::close(from[1]);
  in_ = to[1];
  out_ = from[0];
  buffer_.clear();
}

void Worker::Stop() {
  if (pid_ < 0) return;
  ::close(in_);
  ::close(out_);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = in_ = out_ = -1;
}

void Worker::Give(size_t index, const std::string& folder) {
  if (pid_ < 0) Start();
  index_ = index;
  since_ = Clock::now();
  const std::string line = folder + "\n";
  if (::write(in_, line.data(), line.size()) < 0)
    return;  // a dead child shows when its answer is read
}

std::optional<CaseResult> Worker::Read() {
  char piece[4096];
  const ssize_t got = ::read(out_, piece, sizeof piece);
  if (got > 0) {
    buffer_.append(piece, static_cast<size_t>(got));
    const size_t begin = buffer_.find(kAnswer);
    const size_t end = begin == std::string::npos ? begin : buffer_.find('\n', begin);
    if (end == std::string::npos) return std::nullopt;
    const std::string line = buffer_.substr(begin + 1, end - begin - 1);
    buffer_.clear();
    const size_t tab = line.find('\t');
    const absl::StatusOr<Outcome> interpreted = Outcome::Parse(line.substr(0, tab));
    const absl::StatusOr<Outcome> compiled = Outcome::Parse(line.substr(tab + 1));
    QUENCH_CHECK(interpreted.ok() && compiled.ok());  // ServeCases writes no others
    return Finish({*interpreted, *compiled});
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ::close(in_);
  ::close(out_);
  pid_ = in_ = out_ = -1;
  const Outcome crash = Outcome::Of(
      Kind::kCrash, WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status))
                                        : fmt::format("exited with {}", WEXITSTATUS(status)));
  return Finish({crash, crash});
}

CaseResult Worker::GiveUp(std::chrono::seconds limit) {
  Stop();
  const Outcome timeout =
      Outcome::Of(Kind::kTimeout, fmt::format("took longer than {} s", limit.count()));
  return Finish({timeout, timeout});
}

}  // namespace

int ServeCases(const CaseOptions& options) {
  LimitMemory();
  const rlimit core{0, 0};
  ::setrlimit(RLIMIT_CORE, &core);
  for (std::string folder; std::getline(std::cin, folder);) {
    const CaseResult result = RunCase(folder, options);
    std::cout << kAnswer << result.interpreted.ToString() << '\t' << result.compiled.ToString()
              << std::endl;
  }
  return 0;
}

void RunInWorkers(const std::vector<std::string>& folders, int jobs, std::chrono::seconds limit,
                  const std::vector<std::string>& arguments,
                  const std::function<void(size_t, const CaseResult&)>& done) {
  ::signal(SIGPIPE, SIG_IGN);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < jobs; ++i) workers.push_back(std::make_unique<Worker>(arguments));
  size_t next = 0;
  for (;;) {
    std::vector<pollfd> polls;
    std::vector<Worker*> busy;
    for (const auto& worker : workers) {
      if (!worker->busy() && next < folders.size()) {
        worker->Give(next, folders[next]);
        ++next;
      }
      if (!worker->busy()) continue;
      polls.push_back({worker->out(), POLLIN, 0});
      busy.push_back(worker.get());
    }
    if (busy.empty()) return;
    ::poll(polls.data(), polls.size(), 200);
    for (size_t i = 0; i < busy.size(); ++i) {
      const size_t index = busy[i]->index();
      std::optional<CaseResult> result;
      if (polls[i].revents != 0) result = busy[i]->Read();
      if (!result && Clock::now() - busy[i]->since() > limit) {
        result = busy[i]->GiveUp(limit);
      }
      if (result) done(index, *result);
    }
  }
}

}  // namespace quench::conformance
