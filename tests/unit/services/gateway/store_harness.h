// Stores, and workflows to put into them, for the tests of all stores.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/gateway/memory_store.h"
#include "services/gateway/sqlite_store.h"
#include "tests/unit/services/gateway/sample_specs.h"

namespace quench::gateway::store_test {

inline StoredWorkflow Sample(const std::string& id, int64_t create_us,
                             const std::string& tenant = "t", const std::string& request_id = "") {
  StoredWorkflow stored;
  stored.workflow.set_name(WorkflowName(id));
  stored.workflow.set_tenant(tenant);
  stored.workflow.set_request_id(request_id);
  stored.workflow.set_state(v1::STATE_QUEUED);
  stored.workflow.set_revision(1);
  *stored.workflow.mutable_create_time() = TimestampOf(create_us);
  for (const std::string name : {"import", "transform", "compile"}) {
    v1::Step* step = stored.workflow.add_steps();
    step->set_name(name);
    step->set_state(v1::STATE_QUEUED);
  }
  stored.spec = ChainSpec();
  stored.asked.mutable_compile()->add_models()->set_name("as " + id + " came");
  stored.spec_hash = "hash of " + id;
  stored.traceparent = "trace of " + id;
  return stored;
}

// Waits for a write.
template <typename Start>
inline absl::Status Await(Start start) {
  std::promise<absl::Status> promise;
  start([&](const absl::Status& status) { promise.set_value(status); });
  return promise.get_future().get();
}
inline absl::Status Create(JobStore& store, StoredWorkflow stored) {
  return Await([&](auto done) { store.Create(std::move(stored), done); });
}
inline absl::Status Update(JobStore& store, WorkflowUpdate update) {
  return Await([&](auto done) { store.Update(std::move(update), done); });
}
inline absl::Status Delete(JobStore& store, const std::string& tenant, const std::string& id) {
  return Await([&](auto done) { store.Delete(tenant, id, done); });
}

// The update that takes a workflow of Sample() to `state` at the next revision.
inline WorkflowUpdate To(const StoredWorkflow& stored, v1::State state, int64_t expire_us = 0) {
  WorkflowUpdate update;
  update.header = stored.workflow;
  update.header.clear_steps();
  update.previous_revision = update.header.revision();
  update.header.set_revision(update.previous_revision + 1);
  update.header.set_state(state);
  if (expire_us > 0) *update.header.mutable_expire_time() = TimestampOf(expire_us);
  return update;
}

inline std::vector<std::string> IdsOf(const absl::StatusOr<WorkflowPage>& page) {
  std::vector<std::string> ids;
  if (!page.ok()) return {page.status().ToString()};
  for (const v1::Workflow& workflow : page->workflows) ids.push_back(IdOf(workflow.name()));
  return ids;
}

inline absl::StatusOr<std::vector<StoredWorkflow>> Unfinished(JobStore& store) {
  std::vector<StoredWorkflow> found;
  QUENCH_RETURN_IF_ERROR(store.ForEachUnfinished(
      [&found](StoredWorkflow stored) { found.push_back(std::move(stored)); }));
  return found;
}

inline ListQuery QueryOf(const std::string& tenant, std::vector<v1::State> states, int page_size,
                         const std::string& token = "") {
  ListQuery query;
  query.tenant = tenant;
  query.states = std::move(states);
  query.page_size = page_size;
  query.page_token = token;
  return query;
}

// A list of `t`'s by a filter and an order.
inline ListQuery Asked(const std::string& filter, const std::string& order_by = "") {
  ListQuery query = QueryOf("t", {}, 100);
  std::string problem;
  query.filter = ParseFilter(filter, &problem);
  if (problem.empty()) query.order = ParseOrder(order_by, &problem);
  EXPECT_EQ(problem, "");
  return query;
}

inline StoredWorkflow Shard(const std::string& id, int64_t create_us, const std::string& fleet,
                            int shard, int shards) {
  StoredWorkflow stored = Sample(id, create_us, "t", fleet + "/" + std::to_string(shard));
  stored.workflow.mutable_fleet()->set_fleet(fleet);
  stored.workflow.mutable_fleet()->set_shard(shard);
  stored.workflow.mutable_fleet()->set_shards(shards);
  return stored;
}

struct StoreCase {
  std::string name;
  std::function<std::unique_ptr<JobStore>(const std::filesystem::path&)> open;
};

class JobStoreTest : public ::testing::TestWithParam<StoreCase> {
 protected:
  const TempDir folder_ = *TempDir::Create();
  const std::unique_ptr<JobStore> store_ = GetParam().open(folder_.path());
};

inline std::vector<StoreCase> AllStores() {
  return {{"memory", [](const auto&) { return std::make_unique<MemoryJobStore>(); }},
          {"sqlite", [](const auto& folder) -> std::unique_ptr<JobStore> {
             auto store = SqliteJobStore::Open(folder / "state");
             EXPECT_TRUE(store.ok()) << store.status();
             return *std::move(store);
           }}};
}

}  // namespace quench::gateway::store_test
