// Workflows: by whom they are seen and changed.
#include "services/gateway/workflow_api.h"

#include <gtest/gtest.h>

#include "common/rpc/tenants.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/engine_harness.h"

namespace quench::gateway::workflow_api_test {
namespace {

using absl::StatusCode;
using quench::testing::ElementsAre;
using quench::testing::HasSubstr;
using quench::testing::IsEmpty;

StepContext As(const std::string& tenant, CallerRole role = CallerRole::kUser) {
  StepContext step;
  step.set_tenant(tenant);
  step.set_role(role);
  return step;
}

struct Silent final : Watcher {
  void OnView(const ViewPtr& view) override { newest = view; }
  ViewPtr newest;
};

class WorkflowApiTest : public ::testing::Test, protected EngineHarness {
 protected:
  WorkflowApiTest() {
    runner.behave = [](const StepCall&) { return Hangs(); };
    Boot();
    BlobAccess blobs;
    blobs.missing = [](const std::string&, const std::vector<Digest>&) {
      return std::vector<Digest>();
    };
    api = std::make_unique<WorkflowApi>(*engine, store, *board, *pins, blobs, kMaxWorkflowBytes,
                                        [](const std::function<void()>& job) { job(); });
    red = Create(ChainSpec("a"), "red");
    loop.RunFor(milliseconds(10));
    blue = Create(ChainSpec("b"), "blue");
    loop.RunFor(milliseconds(10));
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& tenant,
                                                const StepContext& step) {
    v1::ListWorkflowsRequest request;
    request.set_tenant(tenant);
    QUENCH_ASSIGN_OR_RETURN(const v1::ListWorkflowsResponse page, api->List(request, step));
    std::vector<std::string> ids;
    for (const v1::Workflow& workflow : page.workflows()) ids.push_back(IdOf(workflow.name()));
    return ids;
  }
  using Method = void (WorkflowApi::*)(const std::string&, const StepContext&,
                                       const WorkflowApi::Done&);
  absl::Status Change(Method change, const std::string& id, const StepContext& step) {
    absl::Status status = absl::UnknownError("never answered");
    ((*api).*change)(WorkflowName(id), step, [&](const absl::Status& it) { status = it; });
    loop.RunFor(milliseconds(10));
    return status;
  }

  const StepContext op = As("ops", CallerRole::kOperator);
  std::unique_ptr<WorkflowApi> api;
  std::string red, blue;
};

TEST_F(WorkflowApiTest, OperatorsListAllTenantsOrOne) {
  EXPECT_THAT(*List("", op), IsEmpty());
  EXPECT_THAT(*List("-", op), ElementsAre(blue, red));
  EXPECT_THAT(*List("red", op), ElementsAre(red));
  EXPECT_THAT(*List("nobody", op), IsEmpty());
  EXPECT_EQ(List("Not a tenant", op).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(WorkflowApiTest, OthersListTheirOwn) {
  for (const CallerRole role : {CallerRole::kViewer, CallerRole::kUser}) {
    EXPECT_THAT(*List("", As("red", role)), ElementsAre(red));
    EXPECT_THAT(*List("red", As("red", role)), ElementsAre(red));
    for (const char* other : {"-", "blue"}) {
      const absl::Status refused = List(other, As("red", role)).status();
      EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
      EXPECT_THAT(MessageOf(refused), HasSubstr("needs an `operator`"));
      EXPECT_THAT(MessageOf(refused), HasSubstr(rpc::RoleName(role)));
    }
  }
}

TEST_F(WorkflowApiTest, OperatorsSeeWorkflowsByName) {
  EXPECT_EQ((*api->Get(WorkflowName(red), op))->header.tenant(), "red");
  v1::ListWorkflowStepsRequest steps;
  steps.set_name(WorkflowName(red));
  EXPECT_EQ(api->ListSteps(steps, op)->steps_size(), 3);
  const auto watcher = std::make_shared<Silent>();
  ASSERT_TRUE(api->Watch(WorkflowName(red), op, watcher).ok());
  EXPECT_EQ(Change(&WorkflowApi::Cancel, red, As("red")), absl::OkStatus());
  ASSERT_NE(watcher->newest, nullptr) << "it is told of changes";
  EXPECT_TRUE(watcher->newest->ended());
  EXPECT_EQ((*api->Get(WorkflowName(red), op))->header.state(), v1::STATE_CANCELLED) << "ended";
  EXPECT_EQ(api->Get("workflows/none", op).status().code(), StatusCode::kNotFound);
  for (const CallerRole role : {CallerRole::kViewer, CallerRole::kUser}) {
    const StepContext other = As("blue", role);
    EXPECT_EQ(api->Get(WorkflowName(red), other).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(api->ListSteps(steps, other).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(api->Watch(WorkflowName(red), other, watcher).status().code(), StatusCode::kNotFound);
  }
}

TEST_F(WorkflowApiTest, OperatorsChangeWorkflowsByName) {
  for (const auto change : {&WorkflowApi::Cancel, &WorkflowApi::Retry, &WorkflowApi::Delete}) {
    EXPECT_EQ(Change(change, red, As("blue")).code(), StatusCode::kNotFound);
    EXPECT_EQ(Change(change, "none", op).code(), StatusCode::kNotFound);
  }
  EXPECT_EQ(Change(&WorkflowApi::Cancel, red, op), absl::OkStatus());
  EXPECT_EQ(Get(red, "red").state(), v1::STATE_CANCELLED);
  EXPECT_EQ(Change(&WorkflowApi::Cancel, red, op), absl::OkStatus()) << "one that has ended";
  EXPECT_EQ(Change(&WorkflowApi::Retry, red, op), absl::OkStatus());
  EXPECT_FALSE(HasEnded(Get(red, "red").state()));
  EXPECT_EQ(Get(red, "red").tenant(), "red");
  EXPECT_EQ(Change(&WorkflowApi::Delete, red, op).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Change(&WorkflowApi::Cancel, red, op), absl::OkStatus());
  EXPECT_EQ(Change(&WorkflowApi::Delete, red, op), absl::OkStatus());
  EXPECT_EQ(api->Get(WorkflowName(red), op).status().code(), StatusCode::kNotFound);
}

TEST_F(WorkflowApiTest, CellsComeInPagesThatMayEndWithinAShard) {
  for (int shard = 0; shard < 2; ++shard) {
    v1::WorkflowSpec spec;
    AddImport(&spec, "import", "model" + std::to_string(shard));
    for (int i = 0; i < 5; ++i)
      AddTransform(&spec, fmt::format("m{}/o/t{}/compile", shard, i), "import", v1::PORT_CANONICAL);
    spec.mutable_fleet()->set_fleet("f");
    spec.mutable_fleet()->set_shard(shard);
    spec.mutable_fleet()->set_shards(2);
    Create(spec, "red");
  }
  v1::ListFleetCellsRequest request;
  request.set_id("f");
  request.set_page_size(3);
  std::vector<std::string> cells;
  std::vector<int> sizes;
  do {
    const auto page = api->ListCells(request, As("red"));
    ASSERT_TRUE(page.ok()) << page.status();
    sizes.push_back(page->cells_size());
    for (const v1::FleetCell& cell : page->cells())
      cells.push_back(cell.model() + "/" + cell.target());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(sizes, ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(cells, ElementsAre("m0/t0", "m0/t1", "m0/t2", "m0/t3", "m0/t4", "m1/t0", "m1/t1",
                                 "m1/t2", "m1/t3", "m1/t4"));
  for (const char* token : {"x", "1", "1.", ".1", "1.x", "1.2.3"}) {
    request.set_page_token(token);
    EXPECT_THAT(MessageOf(api->ListCells(request, As("red")).status()), HasSubstr("page_token"))
        << token;
  }
}

TEST_F(WorkflowApiTest, AFleetIsCancelledWhateverEndsMeanwhile) {
  for (int shard = 0; shard < 2; ++shard) {
    v1::WorkflowSpec spec = ChainSpec("c" + std::to_string(shard));
    spec.mutable_fleet()->set_fleet("f");
    spec.mutable_fleet()->set_shard(shard);
    spec.mutable_fleet()->set_shards(2);
    Create(spec, "red");
  }
  v1::CancelFleetRequest cancel;
  cancel.set_id("f");
  v1::RetryFleetRequest retry;
  retry.set_id("f");
  absl::StatusOr<int> first = absl::UnknownError("never answered"), second = first;
  api->CancelFleet(cancel, As("red"), [&](const absl::StatusOr<int>& count) { first = count; });
  api->CancelFleet(cancel, As("red"), [&](const absl::StatusOr<int>& count) { second = count; });
  loop.RunFor(milliseconds(10));
  EXPECT_EQ(*first, 2) << first.status();
  EXPECT_TRUE(second.ok()) << second.status();
  first = second = absl::UnknownError("never answered");
  api->RetryFleet(retry, As("red"), [&](const absl::StatusOr<int>& count) { first = count; });
  api->RetryFleet(retry, As("red"), [&](const absl::StatusOr<int>& count) { second = count; });
  loop.RunFor(milliseconds(10));
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(*first + *second, 2);
}

TEST_F(WorkflowApiTest, OperatorsSeeAndChangeFleetsOfATenant) {
  v1::WorkflowSpec spec = ChainSpec("c");
  spec.mutable_fleet()->set_fleet("f");
  spec.mutable_fleet()->set_shard(0);
  spec.mutable_fleet()->set_shards(1);
  Create(spec, "red");
  v1::ListFleetsRequest list;
  list.set_tenant("-");
  EXPECT_EQ(api->ListFleets(list, op)->fleets_size(), 1);
  EXPECT_EQ(api->ListFleets({}, op)->fleets_size(), 0);
  EXPECT_EQ(api->ListFleets(list, As("red")).status().code(), StatusCode::kPermissionDenied);
  v1::GetFleetRequest get;
  get.set_id("f");
  EXPECT_EQ(api->GetFleet(get, op).status().code(), StatusCode::kNotFound);
  get.set_tenant("-");
  EXPECT_EQ(api->GetFleet(get, op).status().code(), StatusCode::kInvalidArgument);
  get.set_tenant("red");
  EXPECT_EQ(api->GetFleet(get, op)->tenant(), "red");
  EXPECT_EQ(api->GetFleet(get, As("blue")).status().code(), StatusCode::kPermissionDenied);
  v1::CancelFleetRequest cancel;
  cancel.set_id("f");
  cancel.set_tenant("red");
  absl::StatusOr<int> cancelled = absl::UnknownError("never answered");
  const auto count = [&cancelled](const absl::StatusOr<int>& number) { cancelled = number; };
  api->CancelFleet(cancel, As("blue"), count);
  EXPECT_EQ(cancelled.status().code(), StatusCode::kPermissionDenied);
  api->CancelFleet(cancel, op, count);
  loop.RunFor(milliseconds(10));
  EXPECT_EQ(*cancelled, 1) << cancelled.status();
}

}  // namespace
}  // namespace quench::gateway::workflow_api_test
