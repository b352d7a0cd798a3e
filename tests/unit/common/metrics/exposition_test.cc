// tests/cases/metrics/exposition.txt and openmetrics.txt: every metric as a scrape of a fresh server with
// two methods shows it; dashboards and alerts depend on these names. QUENCH_UPDATE_GOLDENS=1 rewrites
// them. Left out: the process's own values and the times of exemplars, which differ, and the buckets of all
// histograms but one, which are the same.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "common/base/files.h"
#include "common/metrics/metrics.h"

namespace quench::metrics::exposition_test {
namespace {

namespace fs = std::filesystem;

void Fill(Registry& registry) {
  registry.Get(kBuildInfo, Version("1.2.3"), BuildId("0123abcd")).Set(1);
  registry
      .Get(kRpcStarted, GrpcType::kServerStream, GrpcService("quench.codegen.v1.Codegen"),
           GrpcMethod("Compile"))
      .Increment();
  registry
      .Get(kRpcHandled, GrpcType::kServerStream, GrpcService("quench.codegen.v1.Codegen"),
           GrpcMethod("Compile"), GrpcCode::kResourceExhausted)
      .Increment();
  registry
      .Get(kRpcSeconds, GrpcType::kServerStream, GrpcService("quench.codegen.v1.Codegen"),
           GrpcMethod("Compile"))
      .Observe(0.003, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
}

std::string Exposition() {
  Registry registry;
  Fill(registry);
  return registry.Text();
}

std::string Masked(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("quench_") && line.find("_bucket{") != std::string::npos) continue;
    if (line.starts_with("process_") || line.find(" # {") != std::string::npos) {
      line = line.substr(0, line.rfind(' ')) + " *";
    }
    out += line + "\n";
  }
  return out;
}

void ExpectGolden(const std::string& text, const std::string& file) {
  const fs::path path = fs::path(QUENCH_METRICS_CASES) / file;
  if (std::getenv("QUENCH_UPDATE_GOLDENS") != nullptr) {
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
    return;
  }
  const absl::StatusOr<std::string> golden = ReadFile(path);
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ(text, *golden);
}

TEST(ExpositionTest, IsAsTheGoldenFile) { ExpectGolden(Masked(Exposition()), "exposition.txt"); }

TEST(ExpositionTest, OpenMetricsIsAsTheGoldenFile) {
  Registry registry;
  Fill(registry);
  ExpectGolden(Masked(registry.OpenMetrics()), "openmetrics.txt");
}

// Prometheus's own linter: names, units, help and types as its users expect them.
TEST(ExpositionTest, PassesPromtool) {
  if (std::system("command -v promtool >/dev/null") != 0) GTEST_SKIP() << "no promtool here";
  const auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok()) << folder.status();
  const fs::path input = folder->path() / "metrics", output = folder->path() / "output";
  ASSERT_TRUE(WriteFileAtomically(input, Exposition()).ok());
  const std::string command =
      "promtool check metrics <" + input.string() + " >" + output.string() + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << *ReadFile(output);
}

}  // namespace
}  // namespace quench::metrics::exposition_test
