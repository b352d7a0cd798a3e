// The lines of a step's log, and what becomes of progress there.
#include "services/gateway/step_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "services/gateway/job_store.h"
#include "tests/support/matchers.h"

namespace quench::gateway::step_log_test {
namespace {

using quench::testing::ElementsAre;
using quench::testing::HasSubstr;

std::vector<std::string> TextsOf(const v1::Step& step) {
  std::vector<std::string> texts;
  for (const v1::LogLine& line : step.log()) texts.push_back(line.text());
  return texts;
}

TEST(StepLogTest, LinesHaveTheirTimeAndAttempt) {
  v1::Step step;
  step.set_attempt(2);
  AddLogLine("taken by here", 7'000'000, &step);
  ASSERT_EQ(step.log_size(), 1);
  EXPECT_EQ(step.log(0).attempt(), 2);
  EXPECT_EQ(Microseconds(step.log(0).time()), 7'000'000);
}

TEST(StepLogTest, TheLatestLinesStay) {
  v1::Step step;
  for (int i = 0; i < 150; ++i) AddLogLine(std::to_string(i), i, &step);
  EXPECT_EQ(step.log_size(), kMostLogLines);
  EXPECT_EQ(step.log(0).text(), "50");
  for (int i = 0; i < 40; ++i) AddLogLine(std::string(5000, 'x'), i, &step);
  EXPECT_LE(step.ByteSizeLong(), static_cast<size_t>(kMostLogBytes) + 1000);
  EXPECT_GT(step.log_size(), 5);
  EXPECT_EQ(TextsOf(step).back(), std::string(kLongestLogLine, 'x'));
}

TEST(StepLogTest, ACutLineIsText) {
  v1::Step step;
  AddLogLine(std::string(kLongestLogLine - 1, 'x') + "\xc3\xa9\x1b", 1, &step);
  EXPECT_EQ(step.log(0).text().back(), '_');
  v1::Step read;
  EXPECT_TRUE(read.ParseFromString(step.SerializeAsString()));
}

TEST(StepLogTest, ProgressAddsStagesAndNewLines) {
  v1::Step step;
  step::v1::Progress progress;
  progress.set_stage("import");
  progress.set_detail("model.onnx");
  int64_t seen = AddLogOf(progress, 0, 1, &step);
  *step.mutable_progress() = progress;
  progress.set_done(5);
  for (const char* line : {"one", "two"}) progress.add_log(line);
  progress.set_log_lines(2);
  seen = AddLogOf(progress, seen, 2, &step);
  EXPECT_EQ(seen, 2);
  seen = AddLogOf(progress, seen, 3, &step);  // a heartbeat
  EXPECT_THAT(TextsOf(step), ElementsAre("import: model.onnx", "stderr: one", "stderr: two"));
  progress.set_log_lines(7);
  seen = AddLogOf(progress, seen, 4, &step);
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(step.log(3).text(), "stderr: ... 3 lines");
  EXPECT_EQ(step.log_size(), 6);
  progress.set_log_lines(2);  // of a second process
  EXPECT_EQ(AddLogOf(progress, seen, 5, &step), 2);
  EXPECT_EQ(step.log_size(), 8);
}

TEST(StepLogTest, WhoWaitsDoesNotFillTheLog) {
  v1::Step step;
  AddLogLine("attempt failed: x", 1, &step);
  for (int i = 0; i < 500; ++i) AddWaitLine(fmt::format("{} MiB are free", i), 10 + i, &step);
  EXPECT_THAT(TextsOf(step), ElementsAre("attempt failed: x", "waits: 499 MiB are free"));
  step.set_attempt(1);
  AddWaitLine("again", 1000, &step);
  EXPECT_EQ(step.log_size(), 3);
}

TEST(StepLogTest, ResultsSayWhatTheyTook) {
  step::v1::Execution execution;
  execution.mutable_cpu_time()->set_seconds(1);
  execution.mutable_cpu_time()->set_nanos(250'000'000);
  execution.set_peak_memory_bytes(int64_t{312} << 20);
  EXPECT_EQ(LogTextOf(execution), "done in 1.25 s of CPU time, at most 312 MiB");
  execution.set_cache_hit(true);
  EXPECT_EQ(LogTextOf(execution), "taken from the cache");
}

}  // namespace
}  // namespace quench::gateway::step_log_test
