// Lists, fleets and events of every job store.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/store_harness.h"

namespace quench::gateway::store_test {
namespace {

using quench::testing::ElementsAre;
using quench::testing::HasSubstr;
using quench::testing::IsEmpty;

using JobStoreListsTest = JobStoreTest;

TEST_P(JobStoreListsTest, ListsByFilterInPages) {
  for (int i = 0; i < 8; ++i) {
    StoredWorkflow sample = Sample("w" + std::to_string(i), 100 + i);
    sample.workflow.set_title(i % 2 == 0 ? "nightly " + std::to_string(i) : "other");
    (*sample.workflow.mutable_labels())["team"] = i < 4 ? "x" : "y";
    if (i == 5) (*sample.workflow.mutable_labels())["x"] = "team";
    sample.workflow.set_priority(i - 4);
    ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
  }
  ASSERT_EQ(Create(*store_, Sample("other", 500, "u")), absl::OkStatus());
  EXPECT_THAT(IdsOf(store_->List(Asked("labels.team = x"))), ElementsAre("w3", "w2", "w1", "w0"));
  EXPECT_THAT(IdsOf(store_->List(Asked("labels.team = x AND title = \"nightly*\""))),
              ElementsAre("w2", "w0"));
  EXPECT_THAT(IdsOf(store_->List(Asked("labels:x"))), ElementsAre("w5"));
  EXPECT_THAT(IdsOf(store_->List(Asked("labels.team != x AND priority > 1", "create_time"))),
              ElementsAre("w6", "w7"));
  EXPECT_THAT(IdsOf(store_->List(Asked("labels.team = z"))), IsEmpty());
  ListQuery query = Asked("title = nightly*", "create_time asc");
  query.page_size = 3;
  auto page = store_->List(query);
  EXPECT_THAT(IdsOf(page), ElementsAre("w0", "w2", "w4"));
  query.page_token = page->next_page_token;
  page = store_->List(query);
  EXPECT_THAT(IdsOf(page), ElementsAre("w6"));
  EXPECT_EQ(page->next_page_token, "");
  query = QueryOf("", {}, 2);  // all tenants
  EXPECT_THAT(IdsOf(store_->List(query)), ElementsAre("other", "w7"));
}

TEST_P(JobStoreListsTest, ListsByTheirEnd) {
  for (const auto& [id, end] : std::map<std::string, int>{{"a", 30}, {"b", 0}, {"c", 10}}) {
    const StoredWorkflow sample = Sample(id, 5);
    ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
    if (end == 0) continue;
    WorkflowUpdate update = To(sample, v1::STATE_FAILED, 1000);
    *update.header.mutable_end_time() = TimestampOf(end);
    ASSERT_EQ(Update(*store_, update), absl::OkStatus());
  }
  EXPECT_THAT(IdsOf(store_->List(Asked("", "end_time"))), ElementsAre("c", "a", "b"));
  EXPECT_THAT(IdsOf(store_->List(Asked("", "end_time desc"))), ElementsAre("b", "a", "c"));
  ListQuery query = Asked("", "end_time desc");
  query.page_size = 1;
  std::vector<std::string> all;
  do {
    const auto page = store_->List(query);
    for (const std::string& id : IdsOf(page)) all.push_back(id);
    query.page_token = page->next_page_token;
  } while (!query.page_token.empty());
  EXPECT_THAT(all, ElementsAre("b", "a", "c"));
}

TEST_P(JobStoreListsTest, FleetsHaveEachShardOnce) {
  ASSERT_EQ(Create(*store_, Shard("b", 20, "f", 1, 2)), absl::OkStatus());
  ASSERT_EQ(Create(*store_, Shard("a", 10, "f", 0, 2)), absl::OkStatus());
  ASSERT_EQ(Create(*store_, Shard("c", 30, "g", 0, 1)), absl::OkStatus());
  EXPECT_EQ(Create(*store_, Shard("d", 40, "f", 1, 2)).code(), absl::StatusCode::kAlreadyExists);
  StoredWorkflow other = Shard("e", 50, "f", 1, 2);
  other.workflow.set_request_id("another");
  const absl::Status twice = Create(*store_, other);
  EXPECT_EQ(twice.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(MessageOf(twice), HasSubstr("fleet `f` has another workflow as shard 1"));
  EXPECT_THAT(MessageOf(Create(*store_, Shard("h", 60, "f", 2, 3))),
              HasSubstr("fleet `f` has 2 shards, not 3"));
  const auto fleet = store_->ListFleet("t", "f");
  ASSERT_TRUE(fleet.ok() && fleet->size() == 2u) << fleet.status();
  EXPECT_EQ(fleet->at(0).name(), "workflows/a");
  EXPECT_EQ(fleet->at(0).steps_size(), 0);
  EXPECT_TRUE(store_->ListFleet("u", "f")->empty());
  const auto fleets = store_->ListFleets({"t", 1, ""});
  ASSERT_TRUE(fleets.ok() && fleets->fleets.size() == 1u) << fleets.status();
  EXPECT_EQ(fleets->fleets[0].id(), "g");
  const auto next = store_->ListFleets({"t", 1, fleets->next_page_token});
  ASSERT_TRUE(next.ok() && next->fleets.size() == 1u) << next.status();
  EXPECT_EQ(next->fleets[0].created_shards(), 2);
  EXPECT_EQ(next->next_page_token, "");
  EXPECT_THAT(IdsOf(store_->List(Asked("fleet = f"))), ElementsAre("b", "a"));
}

TEST_P(JobStoreListsTest, AFleetIsForgottenAsAWhole) {
  const auto forget = [this](int64_t now_us, const EndedLimits& limits = {}) {
    std::promise<std::vector<std::string>> promise;
    store_->Expire(now_us, limits, [&](const absl::Status& status, std::vector<std::string> ids) {
      EXPECT_EQ(status, absl::OkStatus());
      std::sort(ids.begin(), ids.end());
      promise.set_value(std::move(ids));
    });
    return promise.get_future().get();
  };
  std::vector<StoredWorkflow> shards;
  for (int i = 0; i < 3; ++i) {
    shards.push_back(Shard("f" + std::to_string(i), 10, "f", i, 3));
    ASSERT_EQ(Create(*store_, shards.back()), absl::OkStatus());
  }
  const StoredWorkflow single = Sample("single", 10);
  ASSERT_EQ(Create(*store_, single), absl::OkStatus());
  ASSERT_EQ(Update(*store_, To(single, v1::STATE_FAILED, 1500)), absl::OkStatus());
  ASSERT_EQ(Update(*store_, To(shards[0], v1::STATE_FAILED, 1000)), absl::OkStatus());
  ASSERT_EQ(Update(*store_, To(shards[1], v1::STATE_FAILED, 2000)), absl::OkStatus());
  EXPECT_THAT(forget(1600), ElementsAre("single")) << "a shard still runs";
  EXPECT_THAT(forget(1600, {1, 1}), IsEmpty());
  ASSERT_EQ(Update(*store_, To(shards[2], v1::STATE_FAILED, 3000)), absl::OkStatus());
  EXPECT_THAT(forget(2500), IsEmpty()) << "the last one is kept for longer";
  EXPECT_THAT(forget(3000), ElementsAre("f0", "f1", "f2"));
  EXPECT_TRUE(store_->ListFleet("t", "f")->empty());
}

TEST_P(JobStoreListsTest, ShardsOfAFleetThatGoesOnCountForNoLimit) {
  for (int i = 0; i < 3; ++i) {
    const StoredWorkflow shard = Shard("f" + std::to_string(i), 10, "f", i, 3);
    ASSERT_EQ(Create(*store_, shard), absl::OkStatus());
    if (i == 2) continue;
    ASSERT_EQ(Update(*store_, To(shard, v1::STATE_FAILED, 5000)), absl::OkStatus());
  }
  const StoredWorkflow single = Sample("single", 10);
  ASSERT_EQ(Create(*store_, single), absl::OkStatus());
  ASSERT_EQ(Update(*store_, To(single, v1::STATE_FAILED, 6000)), absl::OkStatus());
  EndedLimits limits;
  limits.workflows = 1;
  std::promise<std::vector<std::string>> promise;
  store_->Expire(1000, limits, [&](const absl::Status& status, std::vector<std::string> ids) {
    EXPECT_EQ(status, absl::OkStatus());
    promise.set_value(std::move(ids));
  });
  EXPECT_THAT(promise.get_future().get(), IsEmpty());
}

TEST_P(JobStoreListsTest, PagesFitIntoAMessage) {
  for (int i = 0; i < 20; ++i) {
    StoredWorkflow sample = Sample("w" + std::to_string(i), 100 + i);
    sample.workflow.set_title(std::string(1 << 20, 'x'));
    ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
  }
  ListQuery query = QueryOf("t", {}, 1000);
  std::vector<size_t> sizes;
  do {
    const auto page = store_->List(query);
    ASSERT_TRUE(page.ok()) << page.status();
    sizes.push_back(page->workflows.size());
    query.page_token = page->next_page_token;
  } while (!query.page_token.empty());
  EXPECT_THAT(sizes, ElementsAre(7u, 7u, 6u));
}

TEST_P(JobStoreListsTest, ALimitTakesWholeFleets) {
  for (const std::string fleet : {"old", "new"}) {
    for (int i = 0; i < 2; ++i) {
      const StoredWorkflow shard = Shard(fleet + std::to_string(i), 10, fleet, i, 2);
      ASSERT_EQ(Create(*store_, shard), absl::OkStatus());
      ASSERT_EQ(Update(*store_, To(shard, v1::STATE_FAILED, fleet == "old" ? 5000 : 6000 + i)),
                absl::OkStatus());
    }
  }
  EndedLimits limits;
  limits.workflows = 3;
  std::promise<std::vector<std::string>> promise;
  store_->Expire(1000, limits, [&](const absl::Status&, std::vector<std::string> ids) {
    std::sort(ids.begin(), ids.end());
    promise.set_value(std::move(ids));
  });
  EXPECT_THAT(promise.get_future().get(), ElementsAre("old0", "old1"));
}

TEST_P(JobStoreListsTest, EventsComeWithTheirUpdate) {
  const StoredWorkflow first = Shard("a", 10, "f", 0, 2), second = Shard("b", 10, "f", 1, 2);
  ASSERT_EQ(Create(*store_, first), absl::OkStatus());
  ASSERT_EQ(Create(*store_, second), absl::OkStatus());
  WorkflowUpdate update = To(first, v1::STATE_SUCCEEDED, 1000);
  update.events = {{"e1", "http://r", "{}", 100, 0}};
  update.fleet_urls = {"http://r"};
  ASSERT_EQ(Update(*store_, update), absl::OkStatus());
  EXPECT_EQ(Update(*store_, update).code(), absl::StatusCode::kAborted);  // nor its events again
  EXPECT_TRUE(store_->DueEvents(99, 10)->empty());
  auto due = store_->DueEvents(100, 10);
  ASSERT_TRUE(due.ok() && due->size() == 1u) << due.status();
  EXPECT_EQ(due->at(0).url, "http://r");
  store_->PostLater("e1", 1, 500);
  update = To(second, v1::STATE_FAILED, 1000);
  *update.header.mutable_end_time() = TimestampOf(200);
  update.fleet_urls = {"http://r"};
  ASSERT_EQ(Update(*store_, update), absl::OkStatus());
  due = store_->DueEvents(499, 10);
  ASSERT_TRUE(due.ok() && due->size() == 1u) << due.status();
  EXPECT_THAT(due->at(0).body, HasSubstr("quench.fleet.ended"));
  EXPECT_THAT(due->at(0).body, HasSubstr("STATE_FAILED")) << due->at(0).body;
  due = store_->DueEvents(500, 10);
  ASSERT_TRUE(due.ok() && due->size() == 2u) << due.status();
  EXPECT_EQ(due->at(1).attempts, 1);
  store_->Delivered("e1");
  store_->Dropped(due->at(0).id);
  ASSERT_EQ(Create(*store_, Sample("later", 5)), absl::OkStatus());  // writes come in turn
  EXPECT_TRUE(store_->DueEvents(1000, 10)->empty());
}

INSTANTIATE_TEST_SUITE_P(Stores, JobStoreListsTest, ::testing::ValuesIn(AllStores()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace quench::gateway::store_test
