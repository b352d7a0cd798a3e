// Tests of every job store, then of what is particular to SQLite's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/store_harness.h"

namespace quench::gateway::store_test {
namespace {

using quench::testing::ElementsAre;
using quench::testing::HasSubstr;
using quench::testing::IsEmpty;

TEST_P(JobStoreTest, GivesBackWhatItTook) {
  const StoredWorkflow sample = Sample("a", 5, "t", "r");
  ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
  const auto stored = store_->Get("t", "a");
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->workflow.SerializeAsString(), sample.workflow.SerializeAsString());
  EXPECT_EQ(stored->spec.SerializeAsString(), sample.spec.SerializeAsString());
  EXPECT_EQ(stored->spec_hash, "hash of a");
  EXPECT_EQ(stored->traceparent, "trace of a");
}

TEST_P(JobStoreTest, OtherTenantsSeeNothing) {
  ASSERT_EQ(Create(*store_, Sample("a", 5, "t", "r")), absl::OkStatus());
  EXPECT_EQ(store_->Get("u", "a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Get("t", "b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(*store_->FindRequest("u", "r"), std::nullopt);
  EXPECT_EQ(Delete(*store_, "u", "a").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(IdsOf(store_->List(QueryOf("u", {}, 10))), IsEmpty());
}

TEST_P(JobStoreTest, WhoAsksForAllTenantsSeesThemInOneOrder) {
  for (int i = 0; i < 6; ++i) {
    StoredWorkflow sample = Sample(std::string(1, static_cast<char>('a' + i)), i,
                                   i % 2 == 0 ? "t" : "u" + std::to_string(i));
    if (i < 2) sample.workflow.set_state(v1::STATE_RUNNING);
    ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
  }
  EXPECT_EQ(store_->Get("", "b")->workflow.tenant(), "u1");
  EXPECT_EQ(store_->Get("", "x").status().code(), absl::StatusCode::kNotFound);
  auto page = store_->List(QueryOf("", {}, 4, ""));
  EXPECT_THAT(IdsOf(page), ElementsAre("f", "e", "d", "c"));
  page = store_->List(QueryOf("", {}, 4, page->next_page_token));
  EXPECT_THAT(IdsOf(page), ElementsAre("b", "a"));
  EXPECT_EQ(page->next_page_token, "");
  EXPECT_THAT(IdsOf(store_->List(QueryOf("", {v1::STATE_RUNNING}, 4, ""))), ElementsAre("b", "a"));
  EXPECT_THAT(IdsOf(store_->List(QueryOf("t", {}, 4, ""))), ElementsAre("e", "c", "a"));
}

TEST_P(JobStoreTest, StepSecondsAreKeptByDay) {
  const auto put = [this](const std::vector<StepSecondsRow>& rows) {
    return Await([&](auto done) { store_->PutStepSeconds(rows, done); });
  };
  EXPECT_THAT(*store_->LoadStepSeconds(100), IsEmpty());
  ASSERT_EQ(put({{"t", 100, 1.5}, {"u", 100, 2}}), absl::OkStatus());
  ASSERT_EQ(put({{"t", 101, 3}, {"t", 100, 7.25}}), absl::OkStatus());
  EXPECT_THAT(*store_->LoadStepSeconds(100),
              ElementsAre(StepSecondsRow{"t", 100, 7.25}, StepSecondsRow{"u", 100, 2}));
  EXPECT_THAT(*store_->LoadStepSeconds(101), ElementsAre(StepSecondsRow{"t", 101, 3}));
  EXPECT_EQ(put({}), absl::OkStatus());
}

TEST_P(JobStoreTest, ARequestIdIsUsedOnce) {
  ASSERT_EQ(Create(*store_, Sample("a", 5, "t", "r")), absl::OkStatus());
  const absl::Status again = Create(*store_, Sample("b", 6, "t", "r"));
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(MessageOf(again), HasSubstr("`r`"));
  EXPECT_EQ(store_->Get("t", "b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Create(*store_, Sample("c", 7, "u", "r")), absl::OkStatus());
  EXPECT_EQ(Create(*store_, Sample("d", 8)), absl::OkStatus());
  EXPECT_EQ(Create(*store_, Sample("e", 9)), absl::OkStatus());
  const auto found = store_->FindRequest("t", "r");
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->id, "a");
  EXPECT_EQ((*found)->spec_hash, "hash of a");
  EXPECT_EQ(*store_->FindRequest("t", ""), std::nullopt);
}

// The update that ends a workflow of Sample(), which promises to keep `blobs`.
WorkflowUpdate Keeping(const StoredWorkflow& stored, const std::vector<BlobId>& blobs,
                       int64_t until_us) {
  WorkflowUpdate update = To(stored, v1::STATE_FAILED, until_us);
  *update.header.mutable_outputs_expire_time() = update.header.expire_time();
  update.kept = blobs;
  return update;
}

std::map<std::string, KeptOutputs> KeptIn(JobStore& store) {
  std::map<std::string, KeptOutputs> kept;
  const absl::Status read = store.ForEachKept([&](KeptOutputs each) {
    kept[each.id] = std::move(each);
    return true;
  });
  EXPECT_EQ(read, absl::OkStatus());
  return kept;
}

TEST_P(JobStoreTest, TellsOfWhatEndedOnesPromised) {
  const std::vector<BlobId> blobs = {{std::string(64, 'a'), 7}, {std::string(64, 'b'), 1ULL << 40}};
  for (const std::string id : {"a", "b", "c"}) {
    ASSERT_EQ(Create(*store_, Sample(id, 5)), absl::OkStatus());
  }
  ASSERT_EQ(Update(*store_, Keeping(Sample("a", 5), blobs, 100)), absl::OkStatus());
  ASSERT_EQ(Update(*store_, Keeping(Sample("b", 5), {}, 200)), absl::OkStatus());
  std::map<std::string, KeptOutputs> kept = KeptIn(*store_);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept["a"].blobs, blobs);
  EXPECT_EQ(kept["a"].tenant, "t");
  EXPECT_EQ(kept["a"].until_us, 100);
  ASSERT_EQ(Delete(*store_, "t", "b"), absl::OkStatus());
  StoredWorkflow again = *store_->Get("t", "a");
  again.workflow.clear_expire_time();
  again.workflow.clear_outputs_expire_time();
  WorkflowUpdate retry = To(again, v1::STATE_QUEUED);
  retry.spec = std::make_shared<v1::WorkflowSpec>(ChainSpec());
  ASSERT_EQ(Update(*store_, retry), absl::OkStatus());
  EXPECT_TRUE(KeptIn(*store_).empty());
}

std::vector<std::string> Expire(JobStore& store, int64_t now_us, const EndedLimits& limits = {}) {
  std::promise<std::vector<std::string>> promise;
  store.Expire(now_us, limits,
               [&](const absl::Status& status, const std::vector<std::string>& forgotten) {
                 EXPECT_EQ(status, absl::OkStatus());
                 promise.set_value(forgotten);
               });
  return promise.get_future().get();
}

TEST_P(JobStoreTest, WhatEndedFirstGoesFirstAboveATenantsShare) {
  for (int i = 0; i < 10; ++i) {
    const StoredWorkflow sample = Sample("w" + std::to_string(i), i);
    ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
    // The later it was made, the earlier it ended; one has not ended.
    if (i > 0) {
      ASSERT_EQ(Update(*store_, To(sample, v1::STATE_CANCELLED, 1000 - i)), absl::OkStatus());
    }
  }
  ASSERT_EQ(Create(*store_, Sample("other", 1, "u")), absl::OkStatus());
  ASSERT_EQ(Update(*store_, To(Sample("other", 1, "u"), v1::STATE_FAILED, 1)), absl::OkStatus());
  EXPECT_THAT(Expire(*store_, 0), IsEmpty());
  std::vector<std::string> forgotten = Expire(*store_, 0, {.workflows = 7});
  std::sort(forgotten.begin(), forgotten.end());
  EXPECT_THAT(forgotten, ElementsAre("w8", "w9"));
  EXPECT_THAT(IdsOf(store_->List(QueryOf("t", {}, 20))),
              ElementsAre("w7", "w6", "w5", "w4", "w3", "w2", "w1", "w0"));
  const StoredWorkflow one = *store_->Get("t", "w1");
  const auto bytes =
      static_cast<int64_t>(one.workflow.ByteSizeLong() + one.asked.ByteSizeLong()) * 3 / 2;
  forgotten = Expire(*store_, 0, {.bytes = bytes});
  EXPECT_EQ(forgotten.size(), 6u);
  EXPECT_THAT(IdsOf(store_->List(QueryOf("t", {}, 20))), ElementsAre("w1", "w0"));
  EXPECT_TRUE(store_->Get("u", "other").ok());
}

TEST_P(JobStoreTest, EndedOnesKeepTheirSpecAsItCame) {
  for (const std::string id : {"good", "bad"}) {
    ASSERT_EQ(Create(*store_, Sample(id, 5)), absl::OkStatus());
    const v1::State end = id == "good" ? v1::STATE_SUCCEEDED : v1::STATE_FAILED;
    ASSERT_EQ(Update(*store_, To(Sample(id, 5), end, 100)), absl::OkStatus());
    const auto stored = store_->Get("t", id);
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->spec.ByteSizeLong(), 0u);
    EXPECT_EQ(stored->asked.ByteSizeLong(), id == "good" ? 0 : Sample(id, 5).asked.ByteSizeLong());
  }
}

TEST_P(JobStoreTest, UpdatesNeedTheRevisionThatTheyWereMadeFrom) {
  const StoredWorkflow sample = Sample("a", 5);
  ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
  WorkflowUpdate update = To(sample, v1::STATE_RUNNING);
  auto step = std::make_shared<v1::Step>(sample.workflow.steps(1));
  step->set_attempt(7);
  update.steps.emplace_back(1, step);
  ASSERT_EQ(Update(*store_, update), absl::OkStatus());
  const auto stored = store_->Get("t", "a");
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->workflow.state(), v1::STATE_RUNNING);
  EXPECT_EQ(stored->workflow.revision(), 2);
  ASSERT_EQ(stored->workflow.steps_size(), 3);
  EXPECT_EQ(stored->workflow.steps(1).attempt(), 7);
  EXPECT_EQ(stored->workflow.steps(0).attempt(), 0);
  step->set_attempt(8);
  EXPECT_EQ(Update(*store_, update).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Update(*store_, To(Sample("b", 5), v1::STATE_RUNNING)).code(),
            absl::StatusCode::kNotFound);
}

TEST_P(JobStoreTest, WhatHasFailedMayBeTakenUpAgain) {
  StoredWorkflow sample = Sample("a", 5);
  ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
  ASSERT_EQ(Update(*store_, To(sample, v1::STATE_FAILED, 100)), absl::OkStatus());
  auto stored = store_->Get("t", "a");
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->asked.SerializeAsString(), sample.asked.SerializeAsString());
  stored->workflow.clear_expire_time();
  WorkflowUpdate retry = To(*stored, v1::STATE_QUEUED);
  retry.spec = std::make_shared<v1::WorkflowSpec>(sample.spec);
  ASSERT_EQ(Update(*store_, retry), absl::OkStatus());
  EXPECT_THAT(Expire(*store_, 200, {.workflows = 0}), IsEmpty());
  const auto unfinished = Unfinished(*store_);
  ASSERT_TRUE(unfinished.ok() && unfinished->size() == 1) << unfinished.status();
  EXPECT_EQ((*unfinished)[0].spec.SerializeAsString(), sample.spec.SerializeAsString());
  EXPECT_EQ((*unfinished)[0].traceparent, "trace of a");
}

TEST_P(JobStoreTest, DeletesWhatHasEnded) {
  const StoredWorkflow sample = Sample("a", 5, "t", "r");
  ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
  EXPECT_EQ(Delete(*store_, "t", "a").code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(Update(*store_, To(sample, v1::STATE_FAILED)), absl::OkStatus());
  EXPECT_EQ(Delete(*store_, "t", "a"), absl::OkStatus());
  EXPECT_EQ(store_->Get("t", "a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Delete(*store_, "t", "a").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Create(*store_, Sample("b", 6, "t", "r")), absl::OkStatus());
}

TEST_P(JobStoreTest, ListsNewestFirstInPages) {
  for (int i = 0; i < 7; ++i) {
    const StoredWorkflow sample = Sample("w" + std::to_string(i), 100 + i / 2);  // pairs of a time
    ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
    if (i % 3 == 0) {
      ASSERT_EQ(Update(*store_, To(sample, v1::STATE_SUCCEEDED)), absl::OkStatus());
    }
  }
  ListQuery query = QueryOf("t", {}, 3);
  auto page = store_->List(query);
  EXPECT_THAT(IdsOf(page), ElementsAre("w6", "w5", "w4"));
  EXPECT_EQ(page->workflows[0].steps_size(), 0);
  query.page_token = page->next_page_token;
  page = store_->List(query);
  EXPECT_THAT(IdsOf(page), ElementsAre("w3", "w2", "w1"));
  query.page_token = page->next_page_token;
  page = store_->List(query);
  EXPECT_THAT(IdsOf(page), ElementsAre("w0"));
  EXPECT_EQ(page->next_page_token, "");
  EXPECT_THAT(IdsOf(store_->List(QueryOf("t", {v1::STATE_SUCCEEDED}, 10))),
              ElementsAre("w6", "w3", "w0"));
  EXPECT_THAT(IdsOf(store_->List(QueryOf("t", {v1::STATE_RUNNING, v1::STATE_QUEUED}, 4))),
              ElementsAre("w5", "w4", "w2", "w1"));
  for (const std::string token : {"x", "1", "1x.", ".a"}) {
    EXPECT_EQ(store_->List(QueryOf("t", {}, 10, token)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << token;
  }
}

TEST_P(JobStoreTest, LoadsWhatHasNotEnded) {
  for (const std::string id : {"c", "a", "b"}) {
    const StoredWorkflow sample = Sample(id, 1000 - id[0]);
    ASSERT_EQ(Create(*store_, sample), absl::OkStatus());
    if (id == "c") continue;
    const v1::State state = id == "b" ? v1::STATE_CANCELLED : v1::STATE_RUNNING;
    ASSERT_EQ(Update(*store_, To(sample, state)), absl::OkStatus());
  }
  const auto unfinished = Unfinished(*store_);
  ASSERT_TRUE(unfinished.ok()) << unfinished.status();
  ASSERT_EQ(unfinished->size(), 2u);
  EXPECT_EQ(unfinished->at(0).workflow.name(), "workflows/c");
  EXPECT_EQ(unfinished->at(1).workflow.name(), "workflows/a");
  EXPECT_EQ(unfinished->at(1).workflow.steps_size(), 3);
  EXPECT_EQ(unfinished->at(1).spec.steps().steps_size(), 3);
}

TEST_P(JobStoreTest, ForgetsWhatHasExpired) {
  for (int i = 0; i < 500; ++i) {
    const StoredWorkflow sample = Sample("w" + std::to_string(i), i, "t", "r" + std::to_string(i));
    store_->Create(sample, [](const absl::Status&) {});
    if (i > 0) store_->Update(To(sample, v1::STATE_FAILED, 1000 + i), [](const absl::Status&) {});
  }
  EXPECT_EQ(Expire(*store_, 1450).size(), 450u);
  EXPECT_EQ(store_->List(QueryOf("t", {}, 1000, ""))->workflows.size(), 50u);
  EXPECT_TRUE(store_->Get("t", "w451").ok());
  EXPECT_FALSE(store_->Get("t", "w450").ok());
  EXPECT_TRUE(store_->Get("t", "w0").ok());  // has not ended
  EXPECT_EQ(*store_->FindRequest("t", "r450"), std::nullopt);
}

TEST_P(JobStoreTest, ManyWritersAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 50; ++i) {
        const StoredWorkflow sample = Sample(std::to_string(t) + "-" + std::to_string(i), i);
        EXPECT_EQ(Create(*store_, sample), absl::OkStatus());
        EXPECT_EQ(Update(*store_, To(sample, v1::STATE_RUNNING)), absl::OkStatus());
        EXPECT_EQ(store_->Get("t", IdOf(sample.workflow.name()))->workflow.revision(), 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->List(QueryOf("t", {}, 1000, ""))->workflows.size(), 200u);
}

INSTANTIATE_TEST_SUITE_P(Stores, JobStoreTest, ::testing::ValuesIn(AllStores()),
                         [](const auto& each) { return each.param.name; });

TEST(SqliteJobStoreTest, KeepsWhatItHasWhenItIsOpenedAgain) {
  const TempDir folder = *TempDir::Create();
  const StoredWorkflow sample = Sample("a", 5, "t", "r");
  {
    const auto store = SqliteJobStore::Open(folder.path());
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_EQ(Create(**store, sample), absl::OkStatus());
  }
  const auto store = SqliteJobStore::Open(folder.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Get("t", "a")->workflow.SerializeAsString(),
            sample.workflow.SerializeAsString());
  EXPECT_EQ(Create(**store, Sample("b", 5, "t", "r")).code(), absl::StatusCode::kAlreadyExists);
}

TEST(SqliteJobStoreTest, AFolderHasOneGateway) {
  const TempDir folder = *TempDir::Create();
  auto first = SqliteJobStore::Open(folder.path());
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = SqliteJobStore::Open(folder.path()).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(second), HasSubstr("is used by another gateway"));
  first->reset();
  EXPECT_TRUE(SqliteJobStore::Open(folder.path()).ok());
}

TEST(SqliteJobStoreTest, RefusesWhatItCannotRead) {
  const TempDir folder = *TempDir::Create();
  ASSERT_TRUE(SqliteJobStore::Open(folder.path()).ok());
  {
    const auto db = Sqlite::Open(folder.path() / "workflows.db");
    ASSERT_EQ((*db)->Execute("PRAGMA user_version = 5"), absl::OkStatus());
  }
  const absl::Status newer = SqliteJobStore::Open(folder.path()).status();
  EXPECT_EQ(newer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(newer), HasSubstr("has schema 5, this Quench knows 4"));
  for (const std::string end : {"-wal", "-shm"}) {
    std::filesystem::remove(folder.path() / ("workflows.db" + end));
  }
  std::ofstream(folder.path() / "workflows.db") << std::string(5000, 'x');
  EXPECT_EQ(SqliteJobStore::Open(folder.path()).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(SqliteJobStore::Open(folder.path() / "lock" / "below a file").ok());
}

TEST(SqliteJobStoreTest, DamagedRowsCostOthersNothing) {
  const TempDir folder = *TempDir::Create();
  {
    const auto store = SqliteJobStore::Open(folder.path());
    ASSERT_TRUE(store.ok()) << store.status();
    for (const std::string id : {"a", "b", "c", "d"})
      ASSERT_EQ(Create(**store, Sample(id, 5)), absl::OkStatus());
    for (const std::string id : {"c", "d"})
      ASSERT_EQ(Update(**store, To(Sample(id, 5), v1::STATE_SUCCEEDED, 100)), absl::OkStatus());
  }
  {
    const auto db = Sqlite::Open(folder.path() / "workflows.db");
    ASSERT_EQ((*db)->Execute("UPDATE workflows SET header = x'ff' WHERE id IN ('a', 'c')"),
              absl::OkStatus());
  }
  const auto store = SqliteJobStore::Open(folder.path());
  ASSERT_TRUE(store.ok()) << store.status();
  const auto unfinished = Unfinished(**store);
  ASSERT_TRUE(unfinished.ok()) << unfinished.status();
  ASSERT_EQ(unfinished->size(), 1u);
  EXPECT_EQ(IdOf((*unfinished)[0].workflow.name()), "b");
  const absl::Status damaged = (*store)->Get("t", "a").status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(damaged), HasSubstr("workflow, `a`,"));
}

// As the first schema had it: what has ended with its spec written out, and nothing of what it keeps
// but in its steps.
TEST(SqliteJobStoreTest, BringsOlderFilesUpToDate) {
  const TempDir folder = *TempDir::Create();
  StoredWorkflow running = Sample("running", 1), failed = Sample("failed", 2);
  failed.workflow.set_state(v1::STATE_FAILED);
  *failed.workflow.mutable_expire_time() = TimestampOf(100);
  *failed.workflow.mutable_outputs_expire_time() = TimestampOf(100);
  v1::StepOutput* output = failed.workflow.mutable_steps(0)->add_outputs();
  output->set_name("module");
  output->mutable_digest()->set_hash(std::string(64, 'a'));
  output->mutable_digest()->set_size_bytes(9);
  {
    const auto db = Sqlite::Open(folder.path() / "workflows.db");
    ASSERT_TRUE(db.ok()) << db.status();
    ASSERT_EQ((*db)->Execute(R"sql(
        PRAGMA journal_mode = WAL;
        CREATE TABLE workflows(key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
          tenant TEXT NOT NULL, request_id TEXT, spec_hash TEXT NOT NULL, state INTEGER NOT NULL,
          revision INTEGER NOT NULL, create_us INTEGER NOT NULL, expire_us INTEGER,
          header BLOB NOT NULL, traceparent TEXT, spec BLOB);
        CREATE UNIQUE INDEX workflows_by_request ON workflows(tenant, request_id)
          WHERE request_id IS NOT NULL;
        CREATE INDEX workflows_by_time ON workflows(tenant, create_us, id, state);
        CREATE INDEX workflows_by_expiry ON workflows(expire_us) WHERE expire_us IS NOT NULL;
        CREATE INDEX workflows_unfinished ON workflows(create_us) WHERE state < 3;
        CREATE TABLE steps(
          workflow INTEGER NOT NULL REFERENCES workflows(key) ON DELETE CASCADE,
          position INTEGER NOT NULL, step BLOB NOT NULL,
          PRIMARY KEY(workflow, position)) WITHOUT ROWID;
        PRAGMA user_version = 1;)sql"),
              absl::OkStatus());
    for (const StoredWorkflow* each : {&running, &failed}) {
      v1::Workflow header = each->workflow;
      header.clear_steps();
      const std::string header_bytes = header.SerializeAsString();
      const std::string spec = each->spec.SerializeAsString();
      ASSERT_EQ((*db)
                    ->Prepared("INSERT INTO workflows(id, tenant, spec_hash, state, revision, "
                               "create_us, header, traceparent, spec) VALUES(?, 't', 'hash', ?, 1, "
                               "1, ?, '', ?)")
                    .Text(IdOf(header.name()))
                    .Int(header.state())
                    .Blob(header_bytes)
                    .Blob(spec)
                    .Run(),
                absl::OkStatus());
      for (int i = 0; i < 3; ++i) {
        const std::string step = each->workflow.steps(i).SerializeAsString();
        ASSERT_EQ((*db)
                      ->Prepared("INSERT INTO steps SELECT key, ?, ? FROM workflows WHERE id = ?")
                      .Int(i)
                      .Blob(step)
                      .Text(IdOf(header.name()))
                      .Run(),
                  absl::OkStatus());
      }
    }
    ASSERT_EQ((*db)->Execute("UPDATE workflows SET expire_us = 100 WHERE id = 'failed'"),
              absl::OkStatus());
  }
  for (int open = 0; open < 2; ++open) {
    const auto store = SqliteJobStore::Open(folder.path());
    ASSERT_TRUE(store.ok()) << store.status();
    const auto unfinished = Unfinished(**store);
    ASSERT_TRUE(unfinished.ok() && unfinished->size() == 1u) << unfinished.status();
    EXPECT_EQ(unfinished->at(0).spec.SerializeAsString(), running.spec.SerializeAsString());
    EXPECT_EQ(unfinished->at(0).asked.SerializeAsString(), running.spec.SerializeAsString());
    const auto ended = (*store)->Get("t", "failed");
    ASSERT_TRUE(ended.ok()) << ended.status();
    EXPECT_EQ(ended->asked.SerializeAsString(), failed.spec.SerializeAsString());
    EXPECT_EQ(ended->spec.ByteSizeLong(), 0u);
    const std::vector<BlobId> kept = {{std::string(64, 'a'), 9}};
    EXPECT_EQ(KeptIn(**store)["failed"].blobs, kept);
    EXPECT_THAT(IdsOf((*store)->List(QueryOf("t", {v1::STATE_FAILED}, 10))), ElementsAre("failed"));
    if (open == 0) continue;
    EXPECT_THAT(Expire(**store, 0, {.workflows = 0}), ElementsAre("failed"));
  }
  const auto db = Sqlite::Open(folder.path() / "workflows.db");
  Sqlite::Query mode = (*db)->Prepared("PRAGMA auto_vacuum");
  ASSERT_TRUE(*mode.Next());
  EXPECT_EQ(mode.IntAt(0), 2);
}

TEST(SqliteJobStoreTest, TheFileShrinksWithWhatItHolds) {
  const TempDir folder = *TempDir::Create();
  const std::filesystem::path file = folder.path() / "workflows.db";
  auto store = SqliteJobStore::Open(folder.path());
  ASSERT_TRUE(store.ok()) << store.status();
  for (int i = 0; i < 16; ++i) {
    StoredWorkflow sample = Sample(std::to_string(i), i);
    sample.spec.set_title(std::string(1 << 20, 'x'));  // written out, of 1 MiB
    ASSERT_EQ(Create(**store, sample), absl::OkStatus());
    ASSERT_EQ(Update(**store, To(sample, v1::STATE_CANCELLED, 1000)), absl::OkStatus());
    Expire(**store, 0);
  }
  store->reset();
  EXPECT_LT(std::filesystem::file_size(file), 8u << 20);
}

// A defect or a crash of SQLite's own would end the transaction: others' writes must not suffer.
TEST(SqliteJobStoreTest, AFailedWriteLeavesItsNeighboursAlone) {
  const TempDir folder = *TempDir::Create();
  const auto store = SqliteJobStore::Open(folder.path());
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<std::future<absl::Status>> outcomes;
  for (int i = 0; i < 300; ++i) {  // every third has the request id of the one before
    auto promise = std::make_shared<std::promise<absl::Status>>();
    outcomes.push_back(promise->get_future());
    (*store)->Create(Sample(std::to_string(i), i, "t", std::to_string(i - (i % 3 == 2 ? 1 : 0))),
                     [promise](const absl::Status& status) { promise->set_value(status); });
  }
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(outcomes[i].get().code(),
              i % 3 == 2 ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kOk);
    EXPECT_EQ((*store)->Get("t", std::to_string(i)).ok(), i % 3 != 2);
  }
}

// Runs below, on a file system of 600 KiB.
TEST(SqliteJobStoreTest, DISABLED_OnASmallDisk) {
  const std::filesystem::path folder = std::getenv("QUENCH_SMALL_DISK");
  // Room to open it again, wherever its pages end.
  const std::filesystem::path ballast = folder / "ballast";
  ASSERT_TRUE(WriteFileAtomically(ballast, std::string(64 << 10, 'x')).ok());
  auto store = SqliteJobStore::Open(folder);
  ASSERT_TRUE(store.ok()) << store.status();
  int created = 0;
  absl::Status status;
  while (true) {
    StoredWorkflow sample = Sample(std::to_string(created), created);
    sample.workflow.set_title(std::string(3000, 'x'));
    status = Create(**store, sample);
    if (!status.ok()) break;
    ASSERT_LT(++created, 1000);
  }
  ASSERT_GT(created, 5);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  // Answered writes are there, the others are not, and they can be listed.
  EXPECT_EQ((*store)->List(QueryOf("t", {}, 1000, ""))->workflows.size(),
            static_cast<size_t>(created));
  EXPECT_FALSE((*store)->Get("t", std::to_string(created)).ok());
  for (int i = 0; i < created; ++i) {
    ASSERT_EQ((*store)->Get("t", std::to_string(i))->workflow.steps_size(), 3) << i;
  }
  const absl::Status again = Create(**store, Sample("more", 1));
  EXPECT_TRUE(again.ok() || absl::IsResourceExhausted(again)) << again;
  // The same after it was closed and opened.
  store->reset();
  std::filesystem::remove(ballast);
  const auto reopened = SqliteJobStore::Open(folder);
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  EXPECT_GE((*reopened)->List(QueryOf("t", {}, 1000, ""))->workflows.size(),
            static_cast<size_t>(created));
}

TEST(SqliteJobStoreTest, AFullDiskRefusesWritesAndServesReads) {
  const TempDir folder = *TempDir::Create();
  const std::string small = (folder.path() / "small").string();
  std::filesystem::create_directory(small);
  const std::string unshare =
      std::string("unshare --mount ") + (geteuid() == 0 ? "" : "--map-root-user ") + "sh -c '" +
      "mount -t tmpfs -o size=600k none " + small + " 2>/dev/null || exit 77; ";
  if (std::system((unshare + "true' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "no right to mount a small file system";
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      unshare + "GTEST_OUTPUT= QUENCH_SMALL_DISK=" + small + " exec " + self +
      " --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter=*DISABLED_OnASmallDisk'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(SqliteJobStoreTest, TenThousandEndedWorkflowsAreQuickToOpenAndList) {
  const TempDir folder = *TempDir::Create();
  constexpr int kCount = 10'000;
  {
    const auto store = SqliteJobStore::Open(folder.path());
    ASSERT_TRUE(store.ok()) << store.status();
    for (int i = 0; i < kCount; ++i) {
      const StoredWorkflow sample = Sample(std::to_string(i), i);
      (*store)->Create(sample, [](const absl::Status&) {});
      (*store)->Update(To(sample, v1::STATE_SUCCEEDED, 1), [](const absl::Status&) {});
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const auto store = SqliteJobStore::Open(folder.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE(Unfinished(**store)->empty());
  const auto opened = std::chrono::steady_clock::now();
  EXPECT_THAT(IdsOf((*store)->List(QueryOf("t", {v1::STATE_RUNNING}, 1000))), IsEmpty());
  size_t listed = 0;
  ListQuery query = QueryOf("t", {}, 1000);
  do {
    const auto page = (*store)->List(query);
    ASSERT_TRUE(page.ok()) << page.status();
    listed += page->workflows.size();
    query.page_token = page->next_page_token;
  } while (!query.page_token.empty());
  const auto end = std::chrono::steady_clock::now();
  EXPECT_EQ(listed, static_cast<size_t>(kCount));
  const auto seconds = [](auto duration) {
    return std::chrono::duration<double>(duration).count();
  };
  std::cout << "opened in " << seconds(opened - start) << " s, all listed in "
            << seconds(end - opened) << " s\n";
  EXPECT_LT(seconds(end - start), 30);
}

}  // namespace
}  // namespace quench::gateway::store_test
