// Filters and orders of lists.
#include "services/gateway/filter.h"

#include <gtest/gtest.h>

#include "services/gateway/job_store.h"
#include "tests/support/matchers.h"

namespace quench::gateway::filter_test {
namespace {

using quench::testing::HasSubstr;

v1::Workflow Sample() {
  v1::Workflow workflow;
  workflow.set_name("workflows/a");
  workflow.set_title("compile resnet50.onnx");
  workflow.set_state(v1::STATE_FAILED);
  workflow.set_request_id("nightly/0");
  workflow.set_priority(-10);
  (*workflow.mutable_labels())["team"] = "vision models";
  (*workflow.mutable_labels())["a.b/c"] = "";
  workflow.mutable_fleet()->set_fleet("nightly");
  *workflow.mutable_create_time() = TimestampOf(1'800'000'000'000'000);  // 2027-01-15T08:00:00Z
  return workflow;
}

bool Holds(const std::string& filter) {
  std::string problem;
  const std::vector<Condition> conditions = ParseFilter(filter, &problem);
  EXPECT_EQ(problem, "") << filter;
  return Matches(conditions, Sample());
}

std::string Problem(const std::string& filter) {
  std::string problem;
  EXPECT_TRUE(ParseFilter(filter, &problem).empty());
  return problem;
}

TEST(FilterTest, Conditions) {
  EXPECT_TRUE(Holds(""));
  EXPECT_TRUE(Holds("title = compile*"));
  EXPECT_TRUE(Holds("title=*onnx"));
  EXPECT_TRUE(Holds("title = *resnet*"));
  EXPECT_TRUE(Holds("title = *"));
  EXPECT_FALSE(Holds("title = resnet"));
  EXPECT_TRUE(Holds("title != resnet"));
  EXPECT_TRUE(Holds("title = \"compile resnet50.onnx\""));
  EXPECT_TRUE(Holds(R"(title != "a \" b")"));
  EXPECT_TRUE(Holds("labels.team = \"vision models\" AND state = failed"));
  EXPECT_FALSE(Holds("labels.team = \"vision models\" AND state = queued"));
  EXPECT_TRUE(Holds("labels:a.b/c AND labels.a.b/c = \"\""));
  EXPECT_FALSE(Holds("labels:none"));
  EXPECT_TRUE(Holds("labels.none != x"));
  EXPECT_TRUE(Holds("fleet = nightly AND request_id = nightly/0"));
  EXPECT_TRUE(Holds("priority < 0 AND priority >= -10 AND priority != 3"));
  EXPECT_TRUE(Holds("create_time > 2027-01-15T07:59:59Z AND create_time <= 2027-01-16"));
  EXPECT_FALSE(Holds("create_time < 2027-01-15T09:00:00+01:00"));
  EXPECT_FALSE(Holds("end_time > 2020-01-01")) << "it has not ended";
  EXPECT_TRUE(Holds("state != SUCCEEDED"));
}

TEST(FilterTest, WhatIsWrong) {
  EXPECT_THAT(Problem("titel = x"), HasSubstr("`titel` where a condition begins"));
  EXPECT_THAT(Problem("title"), HasSubstr("has no operator"));
  EXPECT_THAT(Problem("title ="), HasSubstr("has no value"));
  EXPECT_THAT(Problem("title = \"x"), HasSubstr("double quotes"));
  EXPECT_THAT(Problem("title = x y"), HasSubstr("`y` where `AND` joins"));
  EXPECT_THAT(Problem("title = x OR title = y"), HasSubstr("`OR title = y` where `AND`"));
  EXPECT_THAT(Problem("title < x"), HasSubstr("orders `title`"));
  EXPECT_THAT(Problem("title : x"), HasSubstr("`:` after `title`"));
  EXPECT_THAT(Problem("labels = x"), HasSubstr("compares `labels`"));
  EXPECT_THAT(Problem("state = done"), HasSubstr("the state `done`"));
  EXPECT_THAT(Problem("state = unspecified"), HasSubstr("the state"));
  EXPECT_THAT(Problem("priority = high"), HasSubstr("not an integer"));
  EXPECT_THAT(Problem("create_time > yesterday"), HasSubstr("the time `yesterday`"));
  EXPECT_THAT(Problem("= x"), HasSubstr("must be title"));
}

TEST(FilterTest, Orders) {
  std::string problem;
  EXPECT_FALSE(ParseOrder("", &problem).ascending);
  EXPECT_TRUE(ParseOrder("create_time", &problem).ascending);
  const ListOrder order = ParseOrder(" end_time  desc", &problem);
  EXPECT_TRUE(order.by_end && !order.ascending);
  EXPECT_EQ(problem, "");
  ParseOrder("title", &problem);
  EXPECT_THAT(problem, HasSubstr("`create_time` or `end_time`"));
  problem.clear();
  ParseOrder("end_time desc, title", &problem);
  EXPECT_THAT(problem, HasSubstr("end_time desc, title"));
}

}  // namespace
}  // namespace quench::gateway::filter_test
