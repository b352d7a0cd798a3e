#include "common/rpc/tracing.h"

#include <absl/strings/escaping.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "tests/support/collector.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/common/rpc/fake_codegen.h"

namespace quench::rpc::tracing_test {
namespace {

using metrics::SpanFate;
using quench::testing::CollectedSpan;
using quench::testing::Collector;
using quench::testing::HasExemplar;
using quench::testing::HasSubstr;
using quench::testing::WaitFor;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kListTargets[] = "quench.codegen.v1.Codegen/ListTargets";
constexpr char kCompile[] = "quench.codegen.v1.Codegen/Compile";

std::string HexOf(const std::string& bytes) { return absl::BytesToHexString(bytes); }

Span SpanCalled(const std::string& name, bool sampled = true) {
  Span span;
  span.context = *ParseTraceparent(kTrace);
  span.context.sampled = sampled;
  span.name = name;
  span.start_ns = 1;
  span.end_ns = 2;
  return span;
}

class TracingTest : public ::testing::Test, protected CodegenFixture {
 protected:
  void StartTraced(double ratio = 1) {
    TracerOptions options = collector_.TracerOptions(&registry);
    options.sample_ratio = ratio;
    tracer_ = *Tracer::Start(options);
    steps_options.tracer = control_options.tracer = tracer_.get();
    ASSERT_TRUE(Start().ok());
  }
  static StepContext InTrace(const std::string& traceparent) {
    StepContext context;
    context.set_traceparent(traceparent);
    return context;
  }
  double Count(SpanFate fate) { return registry.Get(metrics::kSpans, fate).Value(); }
  // The server before the tracer that its calls use.
  ~TracingTest() override { server.reset(); }

  Collector collector_;
  std::unique_ptr<Tracer> tracer_;
};

TEST_F(TracingTest, ACallIsASpanBelowItsCallers) {
  ASSERT_NO_FATAL_FAILURE(StartTraced());
  std::string seen;
  service->list_targets = [&](const auto&, const StepContext& step) {
    seen = step.traceparent();
    return v1::ListTargetsResponse();
  };
  ASSERT_TRUE(ListTargets(InTrace(kTrace)).ok());
  ASSERT_TRUE(WaitFor([&] { return !collector_.Named(kListTargets).empty(); }));
  const CollectedSpan call = collector_.Find(kListTargets);
  EXPECT_EQ(HexOf(call.span.trace_id()), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(HexOf(call.span.parent_span_id()), "00f067aa0ba902b7");
  EXPECT_EQ(ParseTraceparent(seen)->span_id, HexOf(call.span.span_id()));
  EXPECT_EQ(call.span.kind(), opentelemetry::proto::trace::v1::Span::SPAN_KIND_SERVER);
  EXPECT_GT(call.span.start_time_unix_nano(), 1'600'000'000'000'000'000u);
  EXPECT_GE(call.span.end_time_unix_nano(), call.span.start_time_unix_nano());
  EXPECT_EQ(call.service, "test");
  EXPECT_EQ(call.Attribute("rpc.system"), "grpc");
  EXPECT_EQ(call.Attribute("rpc.service"), "quench.codegen.v1.Codegen");
  EXPECT_EQ(call.Attribute("rpc.method"), "ListTargets");
  EXPECT_EQ(call.Attribute("rpc.grpc.status_code"), "0");
  EXPECT_FALSE(call.failed());
  EXPECT_TRUE(WaitFor([&] { return Count(SpanFate::kExported) == 1; }));
  EXPECT_TRUE(
      HasExemplar(registry, "grpc_server_handling_seconds", "4bf92f3577b34da6a3ce929d0e0e4736"));
}

TEST_F(TracingTest, ACallWithoutATraceBeginsOne) {
  ASSERT_NO_FATAL_FAILURE(StartTraced());
  Compile();
  ListTargets(InTrace("nonsense")).IgnoreError();
  ASSERT_TRUE(WaitFor([&] { return collector_.spans().size() == 2; }));
  EXPECT_EQ(collector_.Find(kCompile).span.parent_span_id(), "");
  EXPECT_EQ(collector_.Find(kListTargets).span.parent_span_id(), "");
  EXPECT_NE(collector_.Find(kCompile).span.trace_id(),
            collector_.Find(kListTargets).span.trace_id());
}

TEST_F(TracingTest, ErrorsNameTheirReasonAndCarryTheTrace) {
  ASSERT_NO_FATAL_FAILURE(StartTraced());
  service->list_targets = [](const auto&,
                             const StepContext&) -> absl::StatusOr<v1::ListTargetsResponse> {
    return Internal("broken");
  };
  service->compile = [](const auto&, const StepContext&) -> absl::StatusOr<v1::CompileResult> {
    return Error(Reason::kBlobMissing, "no blob");
  };
  const absl::Status broken = ListTargets(InTrace(kTrace)).status();
  EXPECT_EQ(MetadataOf(broken)["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(ReasonOf(broken), "INTERNAL");
  const absl::Status missing = Compile(InTrace(kTrace)).status;
  EXPECT_EQ(MetadataOf(missing)["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(ReasonOf(missing), "BLOB_MISSING");
  ASSERT_TRUE(WaitFor([&] { return collector_.spans().size() == 2; }));
  EXPECT_TRUE(collector_.Find(kListTargets).failed());
  EXPECT_EQ(collector_.Find(kListTargets).span.status().message(), "broken");
  EXPECT_EQ(collector_.Find(kListTargets).Attribute("error.type"), "INTERNAL");
  EXPECT_FALSE(collector_.Find(kCompile).failed()) << "it is the caller's";
  EXPECT_EQ(collector_.Find(kCompile).Attribute("error.type"), "BLOB_MISSING");
}

TEST_F(TracingTest, WithoutATracerTracesArePassedOn) {
  ASSERT_TRUE(Start().ok());
  std::string seen;
  service->list_targets = [&](const auto&,
                              const StepContext& step) -> absl::StatusOr<v1::ListTargetsResponse> {
    seen = step.traceparent();
    return absl::NotFoundError("none");
  };
  const absl::Status status = ListTargets(InTrace(kTrace)).status();
  EXPECT_EQ(seen, kTrace);
  EXPECT_EQ(MetadataOf(status)["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_TRUE(MetadataOf(ListTargets().status()).empty());
}

TEST_F(TracingTest, TheCallersChoiceOfSamplingHolds) {
  ASSERT_NO_FATAL_FAILURE(StartTraced());
  std::string seen;
  service->list_targets = [&](const auto&, const StepContext& step) {
    seen = step.traceparent();
    return v1::ListTargetsResponse();
  };
  std::string unsampled = kTrace;
  unsampled.back() = '0';
  ASSERT_TRUE(ListTargets(InTrace(unsampled)).ok());
  EXPECT_FALSE(ParseTraceparent(seen)->sampled);
  tracer_->Flush();
  EXPECT_TRUE(collector_.spans().empty());
}

TEST_F(TracingTest, TheRatioIsOfTracesThatBeginHere) {
  ASSERT_NO_FATAL_FAILURE(StartTraced(0));
  ASSERT_TRUE(ListTargets().ok());
  ASSERT_TRUE(ListTargets(InTrace(kTrace)).ok());
  tracer_->Flush();
  EXPECT_EQ(collector_.spans().size(), 1U);
}

TEST_F(TracingTest, AFullQueueDropsAndCounts) {
  TracerOptions options = collector_.TracerOptions(&registry);
  options.queue = 3;
  options.period = std::chrono::hours(1);
  tracer_ = *Tracer::Start(options);
  for (int i = 0; i < 5; ++i) tracer_->Record(SpanCalled(std::to_string(i)));
  tracer_->Record(SpanCalled("unsampled", false));
  EXPECT_EQ(Count(SpanFate::kDropped), 2);
  tracer_->Flush();
  EXPECT_EQ(collector_.spans().size(), 3U);
  EXPECT_EQ(Count(SpanFate::kExported), 3);
}

TEST_F(TracingTest, ManySpansGoInParts) {
  tracer_ = *Tracer::Start(collector_.TracerOptions(&registry));
  for (int i = 0; i < 2000; ++i) tracer_->Record(SpanCalled(std::to_string(i)));
  tracer_.reset();
  EXPECT_EQ(collector_.spans().size(), 2000U);
}

TEST_F(TracingTest, ACollectorThatIsDownHoldsNobodyUpAndMissesNothing) {
  auto collector = std::make_unique<Collector>();
  const int port = collector->port();
  TracerOptions options = collector->TracerOptions(&registry);
  options.timeout = milliseconds(500);
  collector.reset();
  tracer_ = *Tracer::Start(options);
  const auto begin = steady_clock::now();
  for (int i = 0; i < 1000; ++i) tracer_->Record(SpanCalled("early"));
  EXPECT_LT(steady_clock::now() - begin, milliseconds(400));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(Count(SpanFate::kExported) + Count(SpanFate::kDropped), 0);
  collector = std::make_unique<Collector>(port);
  EXPECT_TRUE(WaitFor([&] { return collector->spans().size() == 1000; }));
  EXPECT_TRUE(WaitFor([&] { return Count(SpanFate::kExported) == 1000; }));
  collector.reset();
  tracer_->Record(SpanCalled("late"));
  const auto end = steady_clock::now();
  tracer_.reset();
  EXPECT_LT(steady_clock::now() - end, std::chrono::seconds(3));
  EXPECT_EQ(Count(SpanFate::kDropped), 1);
}

TEST_F(TracingTest, SpansThatAreRefusedAreDropped) {
  collector_.Answer(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no"));
  tracer_ = *Tracer::Start(collector_.TracerOptions(&registry));
  tracer_->Record(SpanCalled("refused"));
  EXPECT_TRUE(WaitFor([&] { return Count(SpanFate::kDropped) == 1; }));
  collector_.Answer(grpc::Status::OK);
  tracer_->Record(SpanCalled("taken"));
  EXPECT_TRUE(WaitFor([&] { return collector_.spans().size() == 1; }));
}

TEST_F(TracingTest, EventsAndLongTextsAreFit) {
  tracer_ = *Tracer::Start(collector_.TracerOptions(&registry));
  Span span = SpanCalled("it");
  span.attributes = {
      {"text", std::string(5000, 'x')}, {"whole", int64_t{7}}, {"part", 0.5}, {"yes", true}};
  span.events.push_back({"attempt failed", 5, {{"quench.attempt", int64_t{1}}}});
  tracer_->Record(span);
  tracer_->Flush();
  const CollectedSpan it = collector_.Find("it");
  EXPECT_EQ(it.Attribute("text").size(), 1024U);
  EXPECT_EQ(it.Attribute("whole"), "7");
  EXPECT_EQ(it.Attribute("yes"), "true");
  ASSERT_EQ(it.span.events_size(), 1);
  EXPECT_EQ(it.span.events(0).time_unix_nano(), 5U);
}

TEST(TracerOptionsTest, AreChecked) {
  TracerOptions options;
  options.collector.address = "127.0.0.1:1";
  options.sample_ratio = 1.5;
  EXPECT_THAT(MessageOf(Tracer::Start(options).status()), HasSubstr("sample_ratio"));
  options.sample_ratio = 1;
  options.collector.address = "nonsense";
  EXPECT_FALSE(Tracer::Start(options).ok());
}

}  // namespace
}  // namespace quench::rpc::tracing_test
