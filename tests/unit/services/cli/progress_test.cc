#include "services/cli/progress.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

namespace quench::cli::progress_test {
namespace {

std::string Shown(const std::string& mode) {
  ::testing::internal::CaptureStderr();
  {
    ProgressDisplay display(mode);
    const ProgressSink sink = display.sink();
    sink({"import", "model.onnx", 0, 2});
    sink({"codegen", "conv\"1", 1, 4});
    sink({"codegen", "conv2", 4, 4});
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(ProgressTest, JsonLinesParseAndKeepOrder) {
  std::istringstream lines(Shown("json"));
  std::vector<std::string> stages;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    stages.push_back(json.at("stage"));
    EXPECT_GE(json.at("seconds").get<double>(), 0);
  }
  EXPECT_EQ(stages, (std::vector<std::string>{"import", "codegen", "codegen"}));
}

TEST(ProgressTest, PlainShowsEachStageOnce) {
  const std::string text = Shown("plain");
  EXPECT_NE(text.find("import 0/2 model.onnx\n"), std::string::npos);
  EXPECT_NE(text.find("codegen 1/4"), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

// However fast it was over: a step that a gateway had in its cache begins and ends at once.
TEST(ProgressTest, PlainShowsTheEndOfWhatHadNoneInSight) {
  ::testing::internal::CaptureStderr();
  {
    ProgressDisplay display("plain");
    const ProgressSink sink = display.sink();
    sink({"import", "at the gateway", 0, 0});
    sink({"import", "cached", 1, 1});
    sink({"passes", "", 1, 2});
    sink({"passes", "", 2, 2});
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("import 1/1 cached\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("passes 2/2"), std::string::npos) << text;
}

TEST(ProgressTest, TheBarClearsItself) {
  const std::string text = Shown("tty");
  EXPECT_NE(text.find("100 %"), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 4), "\r\033[K");
}

TEST(ProgressTest, APlanIsOneBarThatNeverGoesBack) {
  ::testing::internal::CaptureStderr();
  {
    ProgressDisplay display("json");
    display.SetPlan({{"import", 1}, {"build", 2}, {"check", 1}});
    const ProgressSink sink = display.sink();
    sink({"import", "", 1, 2});
    sink({"aside", "", 1, 1});  // not planned: moves nothing
    sink({"build", "", 1, 2});
    sink({"import", "", 1, 1});  // once more
    sink({"check", "", 1, 1});
  }
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  std::vector<double> shares;
  for (std::string line; std::getline(lines, line);)
    shares.push_back(nlohmann::json::parse(line).at("share"));
  EXPECT_EQ(shares, (std::vector<double>{0.125, 0.125, 0.5, 0.5, 1}));
}

TEST(ProgressTest, MessagesClearTheBarFirst) {
  ::testing::internal::CaptureStderr();
  {
    ProgressDisplay display("tty");
    display.sink()({"import", "", 1, 2});
    std::fputs("a warning\n", stderr);
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("\r\033[Ka warning\n"), std::string::npos) << text;
}

TEST(ProgressTest, TheClockRunsWhileNothingIsReported) {
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe(ends.data()), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  int bars = 0;
  {
    ProgressDisplay display("tty");
    display.sink()({"import", "", 1, 2});
    std::array<char, 256> text;
    pollfd readable{ends[0], POLLIN, 0};
    while (bars < 3 && ::poll(&readable, 1, 10000) > 0) {
      const ssize_t count = ::read(ends[0], text.data(), text.size());
      bars += static_cast<int>(std::count(text.data(), text.data() + count, '['));
    }
  }
  ::dup2(before, STDERR_FILENO);
  for (const int each : {before, ends[0], ends[1]}) ::close(each);
  EXPECT_GE(bars, 3);
}

TEST(ProgressTest, NoneIsSilent) { EXPECT_EQ(Shown("none"), ""); }

}  // namespace
}  // namespace quench::cli::progress_test
