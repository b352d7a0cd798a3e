#include "common/metrics/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <set>
#include <sstream>
#include <thread>

#include "common/metrics/process.h"
#include "tests/support/matchers.h"

namespace quench::metrics::metrics_test {
namespace {

using quench::testing::HasSubstr;
using quench::testing::Not;

template <typename MetricRow, typename... Values>
concept Gettable =
    requires(Registry& registry, MetricRow row, Values... values) { registry.Get(row, values...); };
using RetriesRow = std::remove_const_t<decltype(kStepRetries)>;
static_assert(Gettable<RetriesRow, Stage, RetryReason>);
static_assert(!Gettable<RetriesRow, Stage>, "a label is missing");
static_assert(!Gettable<RetriesRow, RetryReason, Stage>, "labels are swapped");
static_assert(!Gettable<RetriesRow, const char*, RetryReason>, "a label is not free text");
static_assert(!Gettable<RetriesRow, Stage, RetryReason, Result>, "a label is too many");

TEST(RegistryTest, KnownSeriesStartAtZero) {
  const Registry registry;
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("quench_step_retries_total{reason=\"shed\",stage=\"compile\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("quench_cas_size_bytes 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("grpc_method=")));
  EXPECT_THAT(text, Not(HasSubstr("_bucket{")));
  EXPECT_LT(text.size(), size_t{22'000});
}

TEST(RegistryTest, CountsPerSeries) {
  Registry registry;
  registry.Get(kStepRetries, Stage::kImport, RetryReason::kCrashed).Increment();
  registry.Get(kStepRetries, Stage::kImport, RetryReason::kCrashed).Increment();
  registry.Get(kCasSize).Set(7);
  registry.Get(kStepSeconds, Stage::kCompile, Result::kOk).Observe(40);
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("retries_total{reason=\"crashed\",stage=\"import\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("retries_total{reason=\"crashed\",stage=\"compile\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("quench_cas_size_bytes 7\n"));
  EXPECT_THAT(text, HasSubstr("bucket{result=\"ok\",stage=\"compile\",le=\"30\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("bucket{result=\"ok\",stage=\"compile\",le=\"60\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("quench_step_seconds_sum{result=\"ok\",stage=\"compile\"} 40\n"));
}

constexpr char kSampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(RegistryTest, BucketsKeepTheirLatestRecordedTrace) {
  Registry registry;
  Histogram& seconds = registry.Get(kStepSeconds, Stage::kCompile, Result::kOk);
  seconds.Observe(1, "00-11111111111111111111111111111111-b7ad6b7169203331-01");
  seconds.Observe(0.7, kSampled);
  seconds.Observe(0.8, "00-22222222222222222222222222222222-b7ad6b7169203331-00");  // not sampled
  seconds.Observe(0.9, "no traceparent");
  seconds.Observe(0.9);
  seconds.Observe(5000, kSampled);
  EXPECT_EQ(&seconds, &registry.Get(kStepSeconds, Stage::kCompile, Result::kOk));
  const std::string text = registry.OpenMetrics();
  const std::string series = "quench_step_seconds_bucket{result=\"ok\",stage=\"compile\",le=";
  const std::string trace = " # {trace_id=\"0af7651916cd43dd8448eb211c80319c\"} ";
  EXPECT_THAT(text, HasSubstr(series + "\"0.5\"} 0\n"));
  EXPECT_THAT(text, HasSubstr(series + "\"1.0\"} 5" + trace + "0.7 "));
  EXPECT_THAT(text, HasSubstr(series + "\"2.5\"} 5\n"));
  EXPECT_THAT(text, HasSubstr(series + "\"+Inf\"} 6" + trace + "5000.0 "));
  EXPECT_THAT(text, HasSubstr("quench_step_seconds_count{result=\"ok\",stage=\"compile\"} 6\n"));
  EXPECT_THAT(text, Not(HasSubstr("trace_id=\"1111")));
  EXPECT_THAT(text, Not(HasSubstr("trace_id=\"2222")));
}

TEST(RegistryTest, OpenMetricsNamesFamiliesWithoutTheSuffixOfTheirSamples) {
  Registry registry;
  registry.Get(kBuildInfo, Version("a\"b\\c\nd"), BuildId("0")).Set(1);
  registry.Get(kCasBytes, CasOp::kRead).Increment(1e16);
  const std::string text = registry.OpenMetrics();
  EXPECT_THAT(text, HasSubstr("\n# TYPE quench_cas_bytes counter\n"));
  EXPECT_THAT(text, HasSubstr("\nquench_cas_bytes_total{op=\"read\"} 1e+16\n"));
  EXPECT_THAT(text, HasSubstr("\n# TYPE quench_cas_size_bytes gauge\nquench_cas_size_bytes 0.0\n"));
  EXPECT_THAT(text, HasSubstr("version=\"a\\\"b\\\\c\\nd\"} 1.0\n"));
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  std::set<std::string> families;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    EXPECT_TRUE(families.insert(line.substr(7, line.rfind(' ') - 7)).second) << line;
  }
  EXPECT_GT(families.size(), size_t{40});
}

TEST(RegistryTest, SeriesKeepTheirAddress) {
  Registry registry;
  Counter* const first =
      &registry.Get(kRpcStarted, GrpcType::kUnary, GrpcService("a"), GrpcMethod("first"));
  for (int i = 0; i < 50; ++i) {
    registry.Get(kRpcStarted, GrpcType::kUnary, GrpcService("a"), GrpcMethod(std::to_string(i)));
  }
  EXPECT_EQ(first,
            &registry.Get(kRpcStarted, GrpcType::kUnary, GrpcService("a"), GrpcMethod("first")));
}

TEST(RegistryTest, OpenLabelsAreBounded) {
  Registry registry;
  for (int i = 0; i < 1000; ++i) {
    registry
        .Get(kRpcStarted, GrpcType::kUnary, GrpcService("s"), GrpcMethod("m" + std::to_string(i)))
        .Increment();
  }
  const std::string text = registry.Text();
  size_t series = 0;
  for (size_t at = text.find("grpc_server_started_total{"); at != std::string::npos;
       at = text.find("grpc_server_started_total{", at + 1)) {
    ++series;
  }
  EXPECT_EQ(series, 97u);  // 96 methods and "other"
  EXPECT_THAT(text,
              HasSubstr("grpc_method=\"other\",grpc_service=\"s\",grpc_type=\"unary\"} 904\n"));
}

TEST(RegistryTest, CountsFromManyThreads) {
  Registry registry;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        registry
            .Get(kRpcStarted, GrpcType::kUnary, GrpcService("s"), GrpcMethod(std::to_string(i % 7)))
            .Increment();
        if (i % 100 == 0) registry.Collect();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (int i = 0; i < 7; ++i) {
    sum +=
        registry.Get(kRpcStarted, GrpcType::kUnary, GrpcService("s"), GrpcMethod(std::to_string(i)))
            .Value();
  }
  EXPECT_EQ(sum, 4000);
}

TEST(RegistryTest, RefreshesBeforeACollection) {
  Registry registry;
  int calls = 0;
  Registry::Refresh refresh =
      registry.AddRefresh([&] { registry.Get(kCasSize).Set(static_cast<double>(++calls)); });
  EXPECT_THAT(registry.Text(), HasSubstr("quench_cas_size_bytes 1\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("quench_cas_size_bytes 2\n"));
  refresh.reset();
  EXPECT_THAT(registry.Text(), HasSubstr("quench_cas_size_bytes 2\n"));
}

TEST(ProcessStatsTest, SeesTheProcess) {
  const ProcessStats before = ReadProcessStats();
  const int fd = open("/dev/null", O_RDONLY);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ReadProcessStats().open_fds, before.open_fds + 1);
  close(fd);
  const long page = sysconf(_SC_PAGESIZE);
  EXPECT_GT(before.resident_bytes, page * 100.0);
  EXPECT_GE(before.virtual_bytes, before.resident_bytes);
  const double now = static_cast<double>(time(nullptr));
  EXPECT_LE(before.start_time_seconds, now + 2);
  EXPECT_GT(before.start_time_seconds, now - 3600);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(before.max_fds, static_cast<double>(limit.rlim_cur));
}

TEST(ProcessStatsTest, ProcessorTimeGrowsWithWork) {
  const double before = ReadProcessStats().cpu_seconds;
  volatile uint64_t sum = 0;
  // Two clock ticks of work at least; `clock` is the processor time as libc measures it.
  for (const clock_t start = clock(); clock() - start < CLOCKS_PER_SEC / 20;) sum = sum + 1;
  EXPECT_GT(ReadProcessStats().cpu_seconds, before);
}

}  // namespace
}  // namespace quench::metrics::metrics_test
