#include "common/base/trace_context.h"

#include <gtest/gtest.h>

namespace quench::trace_context_test {
namespace {

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContextTest, ReadsAndWritesTraceparents) {
  const std::optional<TraceContext> context = ParseTraceparent(kTrace);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(context->span_id, "00f067aa0ba902b7");
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(context->traceparent(), kTrace);
  EXPECT_FALSE(
      ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")->sampled);
  EXPECT_FALSE(
      ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02")->sampled);
  EXPECT_TRUE(ParseTraceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03")->sampled);
}

TEST(TraceContextTest, RefusesEverythingElse) {
  for (const char* text : {"", "00", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                           "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-010",
                           "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}) {
    EXPECT_FALSE(ParseTraceparent(text)) << text;
  }
}

TEST(TraceContextTest, NewSpansAreOfTheTraceOrBeginOne) {
  const TraceContext child = NewSpan(ParseTraceparent(kTrace));
  EXPECT_EQ(child.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_NE(child.span_id, "00f067aa0ba902b7");
  EXPECT_TRUE(child.sampled);
  EXPECT_TRUE(ParseTraceparent(child.traceparent()));
  TraceContext unsampled = *ParseTraceparent(kTrace);
  unsampled.sampled = false;
  EXPECT_FALSE(NewSpan(unsampled).sampled);
  const TraceContext a = NewSpan(std::nullopt), b = NewSpan(std::nullopt);
  EXPECT_TRUE(ParseTraceparent(a.traceparent()));
  EXPECT_NE(a.trace_id, b.trace_id);
}

TEST(TraceContextTest, SamplesAShareOfTraces) {
  const auto sampled_of = [](double ratio) {
    int sampled = 0;
    for (int i = 0; i < 2000; ++i) sampled += NewSpan(std::nullopt, ratio).sampled ? 1 : 0;
    return sampled;
  };
  EXPECT_EQ(sampled_of(0), 0);
  EXPECT_EQ(sampled_of(1), 2000);
  EXPECT_NEAR(sampled_of(0.25), 500, 150);
}

}  // namespace
}  // namespace quench::trace_context_test
