#include "common/steps/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "common/base/files.h"
#include "common/rpc/errors.h"
#include "common/steps/child_log.h"
#include "common/steps/pipes.h"
#include "quench/child/v1/child.pb.h"
#include "tests/support/captured_log.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/common/steps/test_steps.h"
#include "tests/unit/common/steps/walls.h"

namespace quench::steps::child_test {
namespace {

using testing::CapturedLog;
using testing::HasSubstr;
using testing::WaitFor;

class ChildTest : public ::testing::Test {
 protected:
  ChildTest() {
    std::filesystem::create_directory(folder_.path() / "inputs");
    std::filesystem::create_directory(folder_.path() / "scratch");
    std::filesystem::create_directory(folder_.path() / "drafts");
    order_.set_method(TestStep().method);
    order_.set_inputs((folder_.path() / "inputs").string());
    order_.set_scratch((folder_.path() / "scratch").string());
    order_.set_drafts((folder_.path() / "drafts").string());
    order_.set_walls(WallsHere());
  }

  absl::StatusOr<std::string> Run(const std::string& what, const StepContext& context = {}) {
    order_.set_request(TestRequest(what).SerializeAsString());
    return RunInChild(STEP_PROGRAM, order_, context, registry_, &usage_);
  }
  // The step's report of its environment; "" if it failed.
  std::string Told(const std::string& what) {
    const auto bytes = Run(what);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    codegen::v1::PackageResult result;
    if (!bytes.ok() || !result.ParseFromString(*bytes)) return "";
    const auto drafts = LocalBlobStore::OpenDrafts(order_.drafts(), order_.inputs(), nullptr);
    const auto file = drafts->Open(result.library().hash());
    EXPECT_TRUE(file.ok()) << file.status();
    return {reinterpret_cast<const char*>((*file)->bytes().data()), (*file)->bytes().size()};
  }
  double Ended(metrics::ChildEnd cause) {
    return registry_.Get(metrics::kChildrenEnded, cause).Value();
  }
  void ExpectNoChildren() {
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
    for (const auto state : {metrics::ChildState::kStarting, metrics::ChildState::kRunning,
                             metrics::ChildState::kStopping}) {
      EXPECT_EQ(registry_.Get(metrics::kChildren, state).Value(), 0);
    }
  }

  TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  child::v1::Order order_;
  Usage usage_;
};

TEST_F(ChildTest, GivesTheResult) {
  EXPECT_EQ(Told("echo:hello"), "hello");
  EXPECT_EQ(Ended(metrics::ChildEnd::kDone), 1);
  EXPECT_GT(usage_.peak_memory_bytes, 1 << 20);
  ExpectNoChildren();
}

// The kernel's own count would begin at what this process has.
TEST_F(ChildTest, WhatTheServiceTakesIsNotTheSteps) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer takes memory of its own";
#endif
  const std::vector<char> taken(size_t{300} << 20, 'x');
  EXPECT_EQ(Told("echo:hello"), "hello");
  EXPECT_LT(usage_.peak_memory_bytes, int64_t{200} << 20) << taken.back();
  EXPECT_EQ(Told("memory:400"), "400");
  EXPECT_GT(usage_.peak_memory_bytes, int64_t{400} << 20);
}

TEST_F(ChildTest, PassesProgressOn) {
  std::vector<std::string> stages;
  const StepContext context(std::make_shared<CancelToken>(), [&](const Progress& progress) {
    stages.push_back(
        fmt::format("{} {} {}/{}", progress.stage, progress.detail, progress.done, progress.total));
  });
  ASSERT_TRUE(Run("progress", context).ok());
  EXPECT_EQ(stages, (std::vector<std::string>{"first a 1/2", "second b 2/2"}));
}

TEST_F(ChildTest, ErrorsKeepTheirDetails) {
  const absl::Status status = Run("fail").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rpc::FieldsOf(status), (std::vector<rpc::FieldViolation>{{"uuid", "no good"}}));
  EXPECT_EQ(Ended(metrics::ChildEnd::kDone), 1);
}

TEST_F(ChildTest, WhatIsPrintedDoesNotDisturb) { EXPECT_EQ(Told("stdout:x"), "x"); }

TEST_F(ChildTest, WhatIsWrittenToStderrIsMarkedAndBounded) {
  CapturedLog log;
  EXPECT_TRUE(Run("stderr:3").ok());
  const std::string few = log.Take();
  EXPECT_TRUE(Run("stderr:100000").ok());
  const std::string many = log.Take();
  EXPECT_THAT(few, HasSubstr(" says: _[31m[2026-11-27] [info] forged"));
  EXPECT_THAT(few, HasSubstr(" says: and more\n"));
  EXPECT_EQ(few.find('\x1b'), std::string::npos);
  EXPECT_LT(many.size(), size_t{10 * ChildLog::kMostBytes});
  EXPECT_THAT(many, HasSubstr("bytes more"));
}

TEST_F(ChildTest, WhatIsWrittenToStderrComesWithProgress) {
  std::shared_ptr<const WrittenLines> written;
  const StepContext context(std::make_shared<CancelToken>(), [&](const Progress& progress) {
    if (progress.written != nullptr) written = progress.written;
  });
  EXPECT_TRUE(Run("stderr:3", context).ok());
  ASSERT_NE(written, nullptr);
  EXPECT_EQ(written->latest.size(), static_cast<size_t>(written->count));
  EXPECT_EQ(written->latest.back(), "and more");
  EXPECT_EQ(written->latest.front().find('\x1b'), std::string::npos);
  EXPECT_TRUE(Run("stderr:100000", context).ok());
  EXPECT_EQ(written->latest.size(), ChildLog::kLatestLines);
  EXPECT_GT(written->count, int64_t{ChildLog::kLatestLines});
  for (const std::string& line : written->latest) EXPECT_LE(line.size(), ChildLog::kLongestLatest);
}

TEST_F(ChildTest, ACrashIsAnErrorOfThatStep) {
  for (const char* what : {"crash", "exit"}) {
    const absl::Status status = Run(what).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << what;
    EXPECT_EQ(rpc::ReasonOf(status), "STEP_CRASHED") << what;
  }
  EXPECT_EQ(Ended(metrics::ChildEnd::kCrashed), 2);
  ExpectNoChildren();
  EXPECT_EQ(Told("echo:next"), "next");
}

TEST_F(ChildTest, AKillFromOutsideIsAFaultOfTheMachine) {
  const absl::Status status = Run("killed").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(rpc::ReasonOf(status), "NODE_FAULT");
  EXPECT_THAT(MessageOf(status), HasSubstr("run out of memory"));
  EXPECT_EQ(Ended(metrics::ChildEnd::kMemory), 1);
  ExpectNoChildren();
}

TEST_F(ChildTest, AProgramThatCannotBeStartedIsAnError) {
  const absl::Status status =
      RunInChild("/nowhere/program", order_, {}, registry_, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  ExpectNoChildren();
}

TEST_F(ChildTest, CancelEndsItAtOnce) {
  for (const char* what : {"spin", "hang"}) {
    const auto token = std::make_shared<CancelToken>();
    std::thread cancel([&] {
      EXPECT_TRUE(WaitFor([&] {
        return registry_.Get(metrics::kChildren, metrics::ChildState::kRunning).Value() == 1;
      }));
      token->Cancel();
    });
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = Run(what, StepContext(token, {})).status();
    cancel.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << what;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << what;
  }
  EXPECT_EQ(Ended(metrics::ChildEnd::kCancelled), 2);
  ExpectNoChildren();
}

TEST_F(ChildTest, ADeadlineEndsIt) {
  StepContext context;
  context.set_deadline(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
  EXPECT_EQ(Run("hang", context).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Ended(metrics::ChildEnd::kDeadline), 1);
  ExpectNoChildren();
}

TEST_F(ChildTest, MemoryIsLimited) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer reserves more address space than any limit allows";
#endif
  order_.set_max_memory_bytes(int64_t{512} << 20);
  EXPECT_TRUE(Run("memory:10").ok());
  const absl::Status status = Run("memory:2000").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(rpc::ReasonOf(status), "RESOURCE_LIMIT");
  EXPECT_THAT(MessageOf(status), HasSubstr("more than the 512 MiB that it may take"));
  EXPECT_THAT(MessageOf(status), HasSubstr("`steps.max_memory_bytes`"));
  EXPECT_EQ(Ended(metrics::ChildEnd::kMemory), 1);
  ExpectNoChildren();
}

TEST_F(ChildTest, TheLinesOfTheNextProcessFollow) {
  ASSERT_TRUE(Run("stderr:1").ok());
  ASSERT_NE(usage_.log, nullptr);
  const int64_t first = usage_.log->count;
  ASSERT_GT(first, 0);
  ASSERT_TRUE(Run("stderr:1").ok());
  EXPECT_EQ(usage_.log->count, 2 * first);
}

TEST_F(ChildTest, TimeOnTheCpuIsLimited) {
  order_.set_max_cpu_seconds(1);
  const absl::Status status = Run("spin").status();
  EXPECT_EQ(rpc::ReasonOf(status), "RESOURCE_LIMIT") << status;
  EXPECT_GT(usage_.cpu_seconds, 0.5);
  ExpectNoChildren();
}

TEST_F(ChildTest, AChildThatHangsIsEnded) {
  order_.set_max_stall_milliseconds(500);
  for (const char* what : {"hang", "deadlock", "poll"}) {
    const absl::Status status = Run(what).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << what;
    EXPECT_EQ(rpc::ReasonOf(status), "STEP_STALLED") << what;
    EXPECT_THAT(MessageOf(status), HasSubstr("for 0.5 s")) << what;
  }
  EXPECT_EQ(Ended(metrics::ChildEnd::kStalled), 3);
  ExpectNoChildren();
}

TEST_F(ChildTest, AStoppedChildIsEnded) {
  order_.set_max_stall_milliseconds(500);
  EXPECT_EQ(rpc::ReasonOf(Run("stop").status()), "STEP_STALLED");
  ExpectNoChildren();
}

// A program that never reads what it is told: more than a pipe holds.
TEST_F(ChildTest, AProgramThatReadsNothingIsEnded) {
  order_.set_max_stall_milliseconds(500);
  order_.set_request(std::string(size_t{1} << 20, 'x'));
  const absl::Status status = RunInChild(SILENT_PROGRAM, order_, {}, registry_, nullptr).status();
  EXPECT_EQ(rpc::ReasonOf(status), "STEP_STALLED") << status;
  ExpectNoChildren();
}

TEST_F(ChildTest, AChildThatWorksWithoutAWordIsLeftAlone) {
  order_.set_max_stall_milliseconds(300);
  EXPECT_EQ(Told("busy:1500"), "1500");
  EXPECT_EQ(Told("reports:1500"), "1500");
}

// Killed service: the children see the end of their stdin.
TEST_F(ChildTest, EndsWhenTheServiceHasGone) {
  std::array<int, 2> input{}, output{};
  ASSERT_EQ(::pipe2(input.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(output.data(), O_CLOEXEC), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(input[0], STDIN_FILENO);
    ::dup2(output[1], STDOUT_FILENO);
    ::execl(STEP_PROGRAM, STEP_PROGRAM, kChildArgument, nullptr);
    ::_exit(127);
  }
  ::close(input[0]);
  ::close(output[1]);
  order_.set_request(TestRequest("hang").SerializeAsString());
  ASSERT_TRUE(WriteFrame(input[1], order_).ok());
  ::close(input[1]);
  int status = 0;
  EXPECT_TRUE(WaitFor([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }));
  ::close(output[0]);
}

}  // namespace
}  // namespace quench::steps::child_test
