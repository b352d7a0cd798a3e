// Fleets and their cells, as workflows make them.
#include "services/gateway/fleet.h"

#include <gtest/gtest.h>

#include "services/gateway/live_workflow.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/sample_specs.h"

namespace quench::gateway::fleet_test {
namespace {

using quench::testing::HasSubstr;

v1::Workflow Header(int shard, v1::State state, int64_t end_us = 0) {
  v1::Workflow workflow;
  workflow.set_tenant("t");
  workflow.set_state(state);
  workflow.mutable_fleet()->set_fleet("f");
  workflow.mutable_fleet()->set_shard(shard);
  workflow.mutable_fleet()->set_shards(2);
  (*workflow.mutable_labels())["team"] = "x";
  (*workflow.mutable_labels())["shard"] = std::to_string(shard);
  *workflow.mutable_create_time() = TimestampOf(100 + shard);
  if (end_us > 0) *workflow.mutable_end_time() = TimestampOf(end_us);
  return workflow;
}

TEST(FleetTest, TheWholeOfItsWorkflows) {
  v1::Workflow first = Header(0, v1::STATE_SUCCEEDED, 500);
  first.mutable_counts()->set_succeeded(3);
  first.mutable_counts()->set_cache_hits(1);
  v1::Fleet fleet = FleetOf({first});
  EXPECT_EQ(fleet.state(), v1::STATE_RUNNING) << "a shard is still to come";
  EXPECT_EQ(fleet.created_shards(), 1);
  v1::Workflow second = Header(1, v1::STATE_QUEUED);
  second.mutable_counts()->set_queued(4);
  fleet = FleetOf({first, second});
  EXPECT_EQ(fleet.state(), v1::STATE_RUNNING);
  EXPECT_FALSE(fleet.has_end_time());
  EXPECT_EQ(fleet.steps().succeeded(), 3);
  EXPECT_EQ(fleet.steps().queued(), 4);
  EXPECT_EQ(fleet.steps().cache_hits(), 1);
  EXPECT_EQ(fleet.workflows().queued(), 1);
  EXPECT_EQ(Microseconds(fleet.create_time()), 100);
  ASSERT_EQ(fleet.labels().size(), 1u);
  EXPECT_EQ(fleet.labels().at("team"), "x");
  fleet = FleetOf({first, Header(1, v1::STATE_CANCELLED, 700)});
  EXPECT_EQ(fleet.state(), v1::STATE_CANCELLED);
  EXPECT_EQ(Microseconds(fleet.end_time()), 700);
  EXPECT_EQ(FleetOf({Header(0, v1::STATE_CANCELLED, 1), Header(1, v1::STATE_FAILED, 1)}).state(),
            v1::STATE_FAILED);
  EXPECT_EQ(FleetOf({Header(0, v1::STATE_QUEUED), Header(1, v1::STATE_QUEUED)}).state(),
            v1::STATE_QUEUED);
}

// Two models with two sets of options, one of which compiles nothing, for two targets.
v1::Workflow Batch() {
  v1::WorkflowSpec spec;
  for (const std::string model : {"a", "b"}) {
    AddImport(&spec, model + "/import");
    AddTransform(&spec, model + "/o/transform", model + "/import", v1::PORT_CANONICAL);
    for (const std::string target : {"x86-64-v3", "raspberry-pi/5"})
      AddCompile(&spec, model + "/o/" + target + "/compile", model + "/o/transform");
    AddTransform(&spec, model + "/only/transform", model + "/import", v1::PORT_CANONICAL);
  }
  return NewWorkflow("w", "t", "", spec, "", 1).workflow;
}

TEST(FleetTest, CellsOfABatch) {
  v1::Workflow workflow = Batch();
  std::vector<v1::FleetCell> cells = CellsOf(ViewOf(workflow));
  ASSERT_EQ(cells.size(), 6u);
  EXPECT_EQ(cells[1].model() + " " + cells[1].options() + " " + cells[1].target(),
            "a o raspberry-pi/5");
  EXPECT_EQ(cells[2].options() + "," + cells[2].target(), "only,");
  EXPECT_EQ(cells[0].state(), v1::STATE_QUEUED);
  EXPECT_EQ(cells[0].workflow(), "workflows/w");
  EXPECT_EQ(cells[0].step(), "a/o/x86-64-v3/compile");
  workflow.mutable_steps(1)->set_state(v1::STATE_RUNNING);  // a/o/transform
  cells = CellsOf(ViewOf(workflow));
  EXPECT_EQ(cells[0].state(), v1::STATE_RUNNING);
  EXPECT_EQ(cells[3].state(), v1::STATE_QUEUED);
}

TEST(FleetTest, CellsSayWhatTheirLastStepMadeOrWhichFailed) {
  v1::Workflow workflow = Batch();
  v1::Step& compile = *workflow.mutable_steps(2);
  compile.set_state(v1::STATE_SUCCEEDED);
  compile.set_cache_hit(true);
  *compile.mutable_start_time() = TimestampOf(1'000'000);
  *compile.mutable_end_time() = TimestampOf(3'500'000);
  v1::StepOutput* library = compile.add_outputs();
  library->set_port(v1::PORT_LIBRARY);
  *library->mutable_digest() = DigestOf("library");
  // b cannot be imported: what needs it is cancelled.
  for (int i = 5; i < 10; ++i) {
    v1::Step& step = *workflow.mutable_steps(i);
    step.set_state(i == 5 ? v1::STATE_FAILED : v1::STATE_CANCELLED);
    step.mutable_error()->set_code(3);
    step.mutable_error()->set_message(i == 5 ? "the file is damaged" : "another step failed");
  }
  const std::vector<v1::FleetCell> cells = CellsOf(ViewOf(workflow));
  EXPECT_EQ(cells[0].state(), v1::STATE_SUCCEEDED);
  EXPECT_TRUE(cells[0].cached());
  EXPECT_EQ(cells[0].library_bytes(), 7);
  EXPECT_DOUBLE_EQ(cells[0].seconds(), 2.5);
  for (int i = 3; i < 6; ++i) {
    EXPECT_EQ(cells[i].state(), v1::STATE_FAILED) << i;
    EXPECT_EQ(cells[i].error().message(), "step `b/import`: the file is damaged") << i;
  }
}

TEST(FleetTest, AReasonIsFoundHoweverFarBack) {
  constexpr int kSteps = 20'000;
  WorkflowView view;
  for (int i = 0; i < kSteps; ++i) {
    auto step = std::make_shared<v1::Step>();
    step->set_name(i == kSteps - 1 ? "a/o/x/compile" : fmt::format("a/o/{}", i));
    step->set_state(i == 0 ? v1::STATE_FAILED : v1::STATE_CANCELLED);
    if (i == 0) step->mutable_error()->set_message("no model");
    if (i > 0) step->add_depends_on(fmt::format("a/o/{}", i - 1));
    view.steps.push_back({step, 1});
  }
  const std::vector<v1::FleetCell> cells = CellsOf(view);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].state(), v1::STATE_FAILED);
  EXPECT_EQ(cells[0].error().message(), "step `a/o/0`: no model");
}

}  // namespace
}  // namespace quench::gateway::fleet_test
