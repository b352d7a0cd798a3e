#include "services/cli/cli.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <pthread.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <set>
#include <system_error>
#include <thread>

#include "common/base/status.h"
#include "services/cli/colour.h"
#include "services/cli/command.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/progress.h"
#include "services/cli/remote.h"
#include "services/cli/traceparent.h"

namespace quench::cli {

namespace {

constexpr Command kCommands[] = {
#define QUENCH_COMMAND(function, name, summary) {name, summary, Declare##function},
#include "services/cli/commands/commands.def"
#undef QUENCH_COMMAND
};

constexpr char kFooter[] = R"(Examples:
  quench show model.onnx                       what is it, and what can be done with it?
  quench compile model.onnx --output out       native library in out/model.so, for this machine
  quench compile model.onnx --target aarch64   the same for a 64-bit Arm CPU
  quench verify model.onnx out/model.so        does it compute what the model says?
  quench bench out/model.so --seconds 3        how fast is it?
  quench help COMMAND                          options and examples of a command

Exit codes: 0 ok, 1 failed, 2 usage, 3 unavailable, 4 not permitted, 130 cancelled.)";

int ExitCode(const absl::Status& status) {
  if (IsUsageError(status)) return 2;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kUnavailable:
      return 3;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return 4;
    case absl::StatusCode::kCancelled:
      return 130;
    default:
      return 1;
  }
}

// The first SIGINT or SIGTERM cancels the work, the second ends the process. Signals are blocked in
// every other thread, so that no library is interrupted in the middle of something.
void CancelOnSignals(const std::shared_ptr<CancelToken>& token) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, token] {
    int received = 0;
    sigwait(&signals, &received);
    token->Cancel();
    sigwait(&signals, &received);
    _exit(130);
  }).detach();
}

// The command's own status, or else that of its results, which may not have reached a full disk.
absl::Status Run(const Action& action, const StepContext& context) {
  try {
    const absl::Status status = action(context);
    const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    if (!status.ok() || written) return status;
  } catch (const std::system_error&) {  // fmt::print's
    std::clearerr(stdout);
  }
  return absl::DataLossError(
      fmt::format("the results cannot be written to stdout: {}", std::strerror(errno)));
}

int Report(const absl::Status& status) {
  if (!status.ok()) PrintError(MessageOf(status));
  return ExitCode(status);
}

}  // namespace

int Main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("quench"));
  spdlog::set_level(spdlog::level::warn);
  google::protobuf::SetLogHandler(nullptr);  // what it would print of a bad model is in our errors
  CommandLine line("quench",
                   "Quench: a trained model in, a fast, small, self-contained native library out.",
                   QUENCH_VERSION, kFooter);
  std::string progress = "auto";
  line.Everywhere()
      .Add("--progress", progress, "Progress display on stderr",
           "auto|tty|plain|json|none (default auto)")
      .OneOf({"auto", "tty", "plain", "json", "none"});
  Action chosen;
  std::vector<Action> actions(std::size(kCommands));
  const std::set<std::string_view> words(argv, argv + argc);
  const bool describes = words.contains("completion") || words.contains("man");
  for (size_t i = 0; i < std::size(kCommands); ++i) {
    const Options options =
        line.Command(std::string(kCommands[i].name), std::string(kCommands[i].summary),
                     [&chosen, &actions, i] { chosen = actions[i]; });
    // Only what may be chosen: the options of all commands take longer to declare than most to run.
    if (describes || words.contains(kCommands[i].name)) actions[i] = kCommands[i].declare(options);
  }
  if (const std::optional<int> code = line.Parse(argc, argv)) return *code;
  auto token = std::make_shared<CancelToken>();
  CancelOnSignals(token);
  ProgressDisplay display(progress);
  StepContext context(token, display.sink());
  context.set_traceparent(CommandTraceparent());
  const absl::Status status = Run(chosen, context);
  display.Finish();
  const absl::Status started = StartSuccessor();
  return Report(started.ok() ? status : started);
}

}  // namespace quench::cli
