#include "services/gateway/sqlite_store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <set>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "services/gateway/cloud_event.h"
#include "services/gateway/fleet.h"
#include "services/gateway/sqlite_expiry.h"
#include "services/gateway/sqlite_lists.h"
#include "services/gateway/sqlite_schema.h"

namespace quench::gateway {
namespace {

// Pages of 4 KiB that the file keeps for what comes next, and that it gives back in one transaction.
constexpr int64_t kSparePages = 1024, kPagesAtOnce = 5000;

constexpr char kCreate[] =
    "INSERT INTO workflows(id, tenant, request_id, spec_hash, state, revision, create_us, header, "
    "traceparent, spec, asked, fleet, shard, shards) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
    "?)";
constexpr char kPutLabel[] =
    "INSERT INTO labels(name, value, workflow) SELECT ?, ?, key FROM workflows WHERE id = ?";
constexpr char kShardsOf[] = "SELECT shards FROM workflows WHERE tenant = ? AND fleet = ? LIMIT 1";
constexpr char kPutStep[] =
    "INSERT OR REPLACE INTO steps(workflow, position, step) SELECT key, ?, ? FROM workflows WHERE "
    "id = ?";
constexpr char kUpdate[] =
    "UPDATE workflows SET state = ?, revision = ?, header = ? WHERE id = ? AND revision = ?";
constexpr char kEnd[] =
    "UPDATE workflows SET expire_us = ?, end_us = ?, spec = NULL, "
    "asked = CASE state WHEN 3 THEN NULL ELSE asked END, "
    "bytes = length(header) + CASE state WHEN 3 THEN 0 ELSE ifnull(length(asked), 0) END + "
    "ifnull((SELECT SUM(length(step)) FROM steps WHERE workflow = key), 0) WHERE id = ?";
constexpr char kKeep[] =
    "INSERT OR REPLACE INTO kept(workflow, id, tenant, until_us, blobs) "
    "SELECT key, id, tenant, ?, ? FROM workflows WHERE id = ?";
constexpr char kReopen[] =
    "UPDATE workflows SET expire_us = NULL, end_us = NULL, bytes = 0, spec = ? WHERE id = ?";
constexpr char kKeepNoMore[] =
    "DELETE FROM kept WHERE workflow = (SELECT key FROM workflows WHERE id = ?)";
constexpr char kStateOf[] = "SELECT state, revision FROM workflows WHERE id = ? AND tenant = ?";
constexpr char kRevisionOf[] = "SELECT revision FROM workflows WHERE id = ?";
constexpr char kDelete[] = "DELETE FROM workflows WHERE id = ?";
constexpr char kFreePages[] = "PRAGMA freelist_count";
constexpr char kGet[] =
    "SELECT key, header, spec_hash, traceparent, spec, asked, id FROM workflows WHERE id = ? AND "
    "? IN (tenant, '')";
constexpr char kStepsOf[] = "SELECT step FROM steps WHERE workflow = ? ORDER BY position";
constexpr char kFindRequest[] =
    "SELECT id, spec_hash FROM workflows WHERE tenant = ? AND request_id = ?";
constexpr char kUnfinished[] =
    "SELECT key, header, spec_hash, traceparent, spec, asked, id FROM workflows WHERE state < 3 "
    "ORDER BY create_us";
constexpr char kPutSeconds[] =
    "INSERT OR REPLACE INTO usage(tenant, day, step_seconds) VALUES(?, ?, ?)";
constexpr char kForgetSeconds[] = "DELETE FROM usage WHERE day < ?";
constexpr char kSecondsOf[] = "SELECT tenant, step_seconds FROM usage WHERE day = ?";
constexpr int64_t kDaysOfSeconds = 35;
constexpr char kKept[] = "SELECT id, tenant, until_us, blobs FROM kept";
constexpr char kOpenShards[] =
    "SELECT COUNT(*), COUNT(expire_us) FROM workflows WHERE tenant = ? AND fleet = ?";
constexpr char kForgetEvent[] = "DELETE FROM events WHERE id = ?";
constexpr char kPostLater[] = "UPDATE events SET attempts = ?, next_us = ? WHERE id = ?";

absl::Status PutStep(Sqlite& db, const std::string& id, int position, const v1::Step& step) {
  const std::string bytes = step.SerializeAsString();
  return db.Prepared(kPutStep).Int(position).Blob(bytes).Text(id).Run();
}

// Whether the fleet takes this shard.
absl::Status CheckShard(Sqlite& db, const v1::Workflow& header) {
  if (!header.has_fleet()) return absl::OkStatus();
  Sqlite::Query query = db.Prepared(kShardsOf);
  QUENCH_ASSIGN_OR_RETURN(const bool row,
                          query.Text(header.tenant()).Text(header.fleet().fleet()).Next());
  if (!row || query.IntAt(0) == header.fleet().shards()) return absl::OkStatus();
  return OtherShards(header.fleet(), static_cast<int>(query.IntAt(0)));
}

// Whether the request_id is what a new row collides with.
absl::StatusOr<bool> HasRequest(Sqlite& db, const v1::Workflow& header) {
  if (header.request_id().empty()) return false;
  Sqlite::Query query = db.Prepared(kFindRequest);
  return query.Text(header.tenant()).Text(header.request_id()).Next();
}

absl::Status CreateRow(Sqlite& db, const StoredWorkflow& stored) {
  QUENCH_RETURN_IF_ERROR(CheckShard(db, stored.workflow));
  v1::Workflow header = stored.workflow;
  header.clear_steps();
  const std::string id = IdOf(header.name());
  const std::string header_bytes = header.SerializeAsString();
  const std::string spec_bytes = stored.spec.SerializeAsString();
  const std::string asked_bytes = stored.asked.SerializeAsString();
  Sqlite::Query create = db.Prepared(kCreate);
  create.Text(id)
      .Text(header.tenant())
      .TextOrNull(header.request_id())
      .Text(stored.spec_hash)
      .Int(header.state())
      .Int(header.revision())
      .Int(Microseconds(header.create_time()))
      .Blob(header_bytes)
      .TextOrNull(stored.traceparent)
      .Blob(spec_bytes)
      .Blob(asked_bytes)
      .TextOrNull(header.fleet().fleet());
  if (header.has_fleet()) create.Int(header.fleet().shard()).Int(header.fleet().shards());
  const absl::Status inserted = create.Run();
  if (absl::IsAlreadyExists(inserted)) {
    QUENCH_ASSIGN_OR_RETURN(const bool request, HasRequest(db, header));
    return request ? RequestIdInUse(header.request_id()) : ShardExists(header.fleet());
  }
  QUENCH_RETURN_IF_ERROR(inserted);
  for (const auto& [name, value] : header.labels()) {
    QUENCH_RETURN_IF_ERROR(db.Prepared(kPutLabel).Text(name).Text(value).Text(id).Run());
  }
  for (int i = 0; i < stored.workflow.steps_size(); ++i) {
    QUENCH_RETURN_IF_ERROR(PutStep(db, id, i, stored.workflow.steps(i)));
  }
  return absl::OkStatus();
}

// Why an update found no row.
absl::Status Unchanged(Sqlite& db, const WorkflowUpdate& update) {
  const std::string id = IdOf(update.header.name());
  Sqlite::Query query = db.Prepared(kRevisionOf);
  QUENCH_ASSIGN_OR_RETURN(const bool row, query.Text(id).Next());
  if (!row) return NoSuchWorkflow(id);
  return absl::AbortedError(fmt::format("workflow `{}` is at revision {}, not {}",
                                        update.header.name(), query.IntAt(0),
                                        update.previous_revision));
}

absl::Status Reopen(Sqlite& db, const std::string& id, const v1::WorkflowSpec& spec) {
  const std::string bytes = spec.SerializeAsString();
  QUENCH_RETURN_IF_ERROR(db.Prepared(kReopen).Blob(bytes).Text(id).Run());
  return db.Prepared(kKeepNoMore).Text(id).Run();
}

// The events of the fleet, if this workflow was the last of it to end.
absl::Status EndFleet(Sqlite& db, const WorkflowUpdate& update) {
  const v1::Workflow& header = update.header;
  if (update.fleet_urls.empty() || !header.has_fleet()) return absl::OkStatus();
  {
    Sqlite::Query query = db.Prepared(kOpenShards);
    query.Text(header.tenant()).Text(header.fleet().fleet());
    QUENCH_ASSIGN_OR_RETURN(const bool row, query.Next());
    const int64_t shards = header.fleet().shards();
    if (!row || query.IntAt(0) < shards || query.IntAt(1) < shards) return absl::OkStatus();
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<v1::Workflow> workflows,
                          ListFleetWorkflows(db, header.tenant(), header.fleet().fleet()));
  return PutEvents(db, FleetEvents(update.fleet_urls, workflows));
}

absl::Status UpdateRow(Sqlite& db, const WorkflowUpdate& update) {
  const std::string id = IdOf(update.header.name());
  const std::string header = update.header.SerializeAsString();
  QUENCH_RETURN_IF_ERROR(db.Prepared(kUpdate)
                             .Int(update.header.state())
                             .Int(update.header.revision())
                             .Blob(header)
                             .Text(id)
                             .Int(update.previous_revision)
                             .Run());
  if (db.Changes() == 0) return Unchanged(db, update);
  for (const auto& [position, step] : update.steps) {
    QUENCH_RETURN_IF_ERROR(PutStep(db, id, position, *step));
  }
  if (update.spec != nullptr) QUENCH_RETURN_IF_ERROR(Reopen(db, id, *update.spec));
  QUENCH_RETURN_IF_ERROR(PutEvents(db, update.events));
  if (!HasEnded(update.header.state())) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(db.Prepared(kEnd)
                             .Int(Microseconds(update.header.expire_time()))
                             .Int(Microseconds(update.header.end_time()))
                             .Text(id)
                             .Run());
  QUENCH_RETURN_IF_ERROR(EndFleet(db, update));
  if (!update.header.has_outputs_expire_time()) return absl::OkStatus();
  return db.Prepared(kKeep)
      .Int(Microseconds(update.header.outputs_expire_time()))
      .Text(PackBlobs(update.kept))
      .Text(id)
      .Run();
}

absl::Status DeleteRow(Sqlite& db, const std::string& tenant, const std::string& id) {
  {
    Sqlite::Query query = db.Prepared(kStateOf);
    QUENCH_ASSIGN_OR_RETURN(const bool row, query.Text(id).Text(tenant).Next());
    if (!row) return NoSuchWorkflow(id);
    if (!HasEnded(static_cast<v1::State>(query.IntAt(0)))) return NotEnded(id);
  }
  return db.Prepared(kDelete).Text(id).Run();
}

// Whether there are more pages to give back.
absl::StatusOr<bool> GiveBackPages(Sqlite& db) {
  const auto count = [&db]() -> absl::StatusOr<int64_t> {
    Sqlite::Query query = db.Prepared(kFreePages);
    QUENCH_ASSIGN_OR_RETURN(const bool row, query.Next());
    return row ? query.IntAt(0) : 0;
  };
  QUENCH_ASSIGN_OR_RETURN(const int64_t free, count());
  if (free <= kSparePages) return false;
  QUENCH_RETURN_IF_ERROR(db.Execute(
      fmt::format("PRAGMA incremental_vacuum({})", std::min(free - kSparePages, kPagesAtOnce))));
  QUENCH_ASSIGN_OR_RETURN(const int64_t left, count());
  return left < free && left > kSparePages;  // none go from a file that was not written anew
}

// A row of kGet or kUnfinished, with the workflow's steps.
absl::StatusOr<StoredWorkflow> ReadRow(Sqlite& db, const Sqlite::Query& row) {
  StoredWorkflow stored;
  if (!stored.workflow.ParseFromString(row.BytesAt(1)) ||
      !stored.spec.ParseFromString(row.BytesAt(4)) ||
      !stored.asked.ParseFromString(row.BytesAt(5))) {
    return Damaged(fmt::format("a workflow, `{}`,", row.BytesAt(6)));
  }
  stored.spec_hash = row.BytesAt(2);
  stored.traceparent = row.BytesAt(3);
  Sqlite::Query steps = db.Prepared(kStepsOf);
  steps.Int(row.IntAt(0));
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, steps.Next());
    if (!more) return stored;
    if (!stored.workflow.add_steps()->ParseFromString(steps.BytesAt(0)))
      return Damaged(fmt::format("a step of workflow `{}`", row.BytesAt(6)));
  }
}

// Each row; one that is damaged is named in the log, and costs no other workflow anything.
absl::Status ForEachRow(Sqlite& db, Sqlite::Query& rows,
                        const std::function<void(StoredWorkflow)>& visit) {
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return absl::OkStatus();
    absl::StatusOr<StoredWorkflow> stored = ReadRow(db, rows);
    if (absl::IsDataLoss(stored.status())) {
      spdlog::error("{}; it is left out", MessageOf(stored.status()));
      continue;
    }
    QUENCH_RETURN_IF_ERROR(stored.status());
    visit(*std::move(stored));
  }
}

void LogFailure(const absl::Status& status) {
  if (!status.ok()) spdlog::error("an event is posted again: {}", MessageOf(status));
}

}  // namespace

// Advisory: keeps gateways apart, and goes with its process however that ends.
class SqliteJobStore::FolderLock {
 public:
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / "lock";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return ErrnoStatus(errno, "open", path);
    std::unique_ptr<FolderLock> lock(new FolderLock(fd));
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", path);
    return absl::UnavailableError(fmt::format(
        "state dir `{}` is used by another gateway: stop that one, or use another folder",
        folder.string()));
  }
  ~FolderLock() { ::close(fd_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  const int fd_;
};

// A connection lent from the idle ones, within one transaction: what it reads is of one moment.
class SqliteJobStore::Reader {
 public:
  static absl::StatusOr<std::unique_ptr<Reader>> Take(SqliteJobStore* store) {
    std::unique_ptr<Sqlite> db;
    {
      const std::lock_guard lock(store->readers_mutex_);
      if (!store->idle_readers_.empty()) {
        db = std::move(store->idle_readers_.back());
        store->idle_readers_.pop_back();
      }
    }
    if (db == nullptr) {
      QUENCH_ASSIGN_OR_RETURN(db, Sqlite::Open(store->file_));
      QUENCH_RETURN_IF_ERROR(db->Execute("PRAGMA query_only = ON"));
    }
    QUENCH_RETURN_IF_ERROR(db->Execute("BEGIN"));
    return std::unique_ptr<Reader>(new Reader(store, std::move(db)));
  }
  ~Reader() {
    if (!db_->Execute("COMMIT").ok()) return;  // a broken connection is not lent again
    const std::lock_guard lock(store_->readers_mutex_);
    store_->idle_readers_.push_back(std::move(db_));
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  Sqlite& db() { return *db_; }

 private:
  Reader(SqliteJobStore* store, std::unique_ptr<Sqlite> db) : store_(store), db_(std::move(db)) {}
  SqliteJobStore* const store_;
  std::unique_ptr<Sqlite> db_;
};

absl::StatusOr<std::unique_ptr<SqliteJobStore>> SqliteJobStore::Open(
    const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), "create", folder);
  QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock, FolderLock::Take(folder));
  const std::filesystem::path file = folder / "workflows.db";
  QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<Sqlite> writer, Sqlite::Open(file));
  QUENCH_RETURN_IF_ERROR(Annotate(PrepareSchema(*writer, file), "`" + file.string() + "`"));
  return std::unique_ptr<SqliteJobStore>(
      new SqliteJobStore(file, std::move(lock), std::move(writer)));
}

SqliteJobStore::SqliteJobStore(std::filesystem::path file, std::unique_ptr<FolderLock> lock,
                               std::unique_ptr<Sqlite> writer)
    : file_(std::move(file)),
      lock_(std::move(lock)),
      writer_(std::move(writer)),
      thread_([this] { WriteAll(); }) {}

SqliteJobStore::~SqliteJobStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SqliteJobStore::Enqueue(std::function<absl::Status(Sqlite&)> apply, Done done) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(apply), std::move(done)});
  }
  wake_.notify_one();
}

void SqliteJobStore::WriteAll() {
  constexpr size_t kMostAtOnce = 1000;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::vector<Write> batch;
    while (!queue_.empty() && batch.size() < kMostAtOnce) {
      batch.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    lock.unlock();
    const std::vector<absl::Status> statuses = Commit(batch);
    for (size_t i = 0; i < batch.size(); ++i) batch[i].done(statuses[i]);
    batch.clear();
    lock.lock();
  }
}

std::vector<absl::Status> SqliteJobStore::Commit(const std::vector<Write>& batch) {
  std::vector<absl::Status> statuses;
  absl::Status status = writer_->Execute("BEGIN IMMEDIATE");
  // Somebody else holds the file: it is no use to wait again for each.
  if (!status.ok()) return std::vector<absl::Status>(batch.size(), status);
  for (const Write& write : batch) {
    if (status.ok()) status = writer_->Execute("SAVEPOINT one");
    if (!status.ok()) break;
    statuses.push_back(write.apply(*writer_));
    // Without a transaction, SQLite has undone it all.
    if (!writer_->InTransaction()) status = absl::ResourceExhaustedError("undone");
    if (status.ok() && !statuses.back().ok()) status = writer_->Execute("ROLLBACK TO one");
    if (status.ok()) status = writer_->Execute("RELEASE one");
  }
  if (status.ok()) status = writer_->Execute("COMMIT");
  if (status.ok()) return statuses;
  if (writer_->InTransaction()) writer_->Execute("ROLLBACK").IgnoreError();
  // The log holds many versions of a page: folded into the database, it gives back most of its room.
  if (absl::IsResourceExhausted(status))
    writer_->Execute("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
  // Writes that there is room for still go through, and each learns its own fate.
  statuses.clear();
  for (const Write& write : batch) statuses.push_back(CommitOne(write));
  return statuses;
}

absl::Status SqliteJobStore::CommitOne(const Write& write) {
  absl::Status status = writer_->Execute("BEGIN IMMEDIATE");
  if (status.ok()) status = write.apply(*writer_);
  if (status.ok()) status = writer_->Execute("COMMIT");
  if (!status.ok() && writer_->InTransaction()) writer_->Execute("ROLLBACK").IgnoreError();
  return status;
}

void SqliteJobStore::Create(StoredWorkflow workflow, Done done) {
  Enqueue([stored = std::make_shared<StoredWorkflow>(std::move(workflow))](
              Sqlite& db) { return CreateRow(db, *stored); },
          std::move(done));
}

void SqliteJobStore::Update(WorkflowUpdate update, Done done) {
  Enqueue([shared = std::make_shared<WorkflowUpdate>(std::move(update))](
              Sqlite& db) { return UpdateRow(db, *shared); },
          std::move(done));
}

void SqliteJobStore::Delete(const std::string& tenant, const std::string& id, Done done) {
  Enqueue([tenant, id](Sqlite& db) { return DeleteRow(db, tenant, id); }, std::move(done));
}

void SqliteJobStore::Expire(int64_t now_us, const EndedLimits& limits, Forgotten done) {
  ExpireMore(now_us, limits, std::make_shared<std::vector<std::string>>(), std::move(done));
}

// In turns, so that others' writes do not wait for a long one.
void SqliteJobStore::ExpireMore(int64_t now_us, const EndedLimits& limits,
                                const std::shared_ptr<std::vector<std::string>>& forgotten,
                                Forgotten done) {
  struct Turn {
    std::vector<std::string> ids;
    bool more = false;
  };
  auto turn = std::make_shared<Turn>();
  Enqueue(
      [turn, now_us, limits](Sqlite& db) -> absl::Status {
        QUENCH_ASSIGN_OR_RETURN(turn->ids, NextForgotten(db, now_us, limits));
        for (const std::string& id : turn->ids)
          QUENCH_RETURN_IF_ERROR(db.Prepared(kDelete).Text(id).Run());
        QUENCH_ASSIGN_OR_RETURN(turn->more, GiveBackPages(db));
        return absl::OkStatus();
      },
      [this, turn, now_us, limits, forgotten, done = std::move(done)](const absl::Status& status) {
        if (status.ok()) forgotten->insert(forgotten->end(), turn->ids.begin(), turn->ids.end());
        if (status.ok() && (turn->more || !turn->ids.empty())) {
          ExpireMore(now_us, limits, forgotten, done);
        } else {
          done(status, *forgotten);
        }
      });
}

absl::StatusOr<StoredWorkflow> SqliteJobStore::Get(const std::string& tenant,
                                                   const std::string& id) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Take(this));
  Sqlite::Query query = reader->db().Prepared(kGet);
  QUENCH_ASSIGN_OR_RETURN(const bool row, query.Text(id).Text(tenant).Next());
  if (!row) return NoSuchWorkflow(id);
  return ReadRow(reader->db(), query);
}

absl::StatusOr<std::optional<StoredRequest>> SqliteJobStore::FindRequest(
    const std::string& tenant, const std::string& request_id) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Take(this));
  Sqlite::Query query = reader->db().Prepared(kFindRequest);
  QUENCH_ASSIGN_OR_RETURN(const bool row, query.Text(tenant).Text(request_id).Next());
  if (!row) return std::nullopt;
  return StoredRequest{query.BytesAt(0), query.BytesAt(1)};
}

absl::StatusOr<WorkflowPage> SqliteJobStore::List(const ListQuery& query) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Take(this));
  return ListWorkflows(reader->db(), query);
}

absl::StatusOr<std::vector<v1::Workflow>> SqliteJobStore::ListFleet(const std::string& tenant,
                                                                    const std::string& fleet) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Take(this));
  return ListFleetWorkflows(reader->db(), tenant, fleet);
}

absl::StatusOr<FleetPage> SqliteJobStore::ListFleets(const FleetQuery& query) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Take(this));
  return ListFleetPage(reader->db(), query);
}

absl::Status SqliteJobStore::ForEachUnfinished(const std::function<void(StoredWorkflow)>& visit) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Take(this));
  Sqlite::Query rows = reader->db().Prepared(kUnfinished);
  return ForEachRow(reader->db(), rows, visit);
}

absl::StatusOr<std::vector<QueuedEvent>> SqliteJobStore::DueEvents(int64_t now_us, int most) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Take(this));
  return ListDueEvents(reader->db(), now_us, most);
}

void SqliteJobStore::Delivered(const std::string& id) {
  Enqueue([id](Sqlite& db) { return db.Prepared(kForgetEvent).Text(id).Run(); }, LogFailure);
}

void SqliteJobStore::Dropped(const std::string& id) { Delivered(id); }

void SqliteJobStore::PostLater(const std::string& id, int attempts, int64_t next_us) {
  Enqueue(
      [id, attempts, next_us](Sqlite& db) {
        return db.Prepared(kPostLater).Int(attempts).Int(next_us).Text(id).Run();
      },
      LogFailure);
}

void SqliteJobStore::PutStepSeconds(std::vector<StepSecondsRow> rows, Done done) {
  Enqueue(
      [rows = std::move(rows)](Sqlite& db) -> absl::Status {
        for (const StepSecondsRow& row : rows) {
          QUENCH_RETURN_IF_ERROR(
              db.Prepared(kPutSeconds).Text(row.tenant).Int(row.day).Real(row.seconds).Run());
          QUENCH_RETURN_IF_ERROR(db.Prepared(kForgetSeconds).Int(row.day - kDaysOfSeconds).Run());
        }
        return absl::OkStatus();
      },
      std::move(done));
}

absl::StatusOr<std::vector<StepSecondsRow>> SqliteJobStore::LoadStepSeconds(int64_t day) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Take(this));
  Sqlite::Query query = reader->db().Prepared(kSecondsOf);
  query.Int(day);
  std::vector<StepSecondsRow> rows;
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, query.Next());
    if (!more) return rows;
    rows.push_back({query.BytesAt(0), day, query.RealAt(1)});
  }
}

absl::Status SqliteJobStore::ForEachKept(const std::function<bool(KeptOutputs)>& visit) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::Take(this));
  Sqlite::Query rows = reader->db().Prepared(kKept);
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return absl::OkStatus();
    const bool on =
        visit({rows.BytesAt(0), rows.BytesAt(1), UnpackBlobs(rows.BytesAt(3)), rows.IntAt(2)});
    if (!on) return absl::OkStatus();
  }
}

}  // namespace quench::gateway
