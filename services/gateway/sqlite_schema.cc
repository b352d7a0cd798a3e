#include "services/gateway/sqlite_schema.h"

#include <spdlog/spdlog.h>

#include <charconv>
#include <chrono>

#include "common/base/status.h"
#include "services/gateway/job_store.h"
#include "services/gateway/live_workflow.h"

namespace quench::gateway {
namespace {

constexpr int kSchemaVersion = 4;

// `header` is the workflow without its steps. `spec` is written out, `asked` as it came: those that
// have ended have no `spec`, those that have succeeded neither. `bytes`: of an ended one's record.
constexpr char kFirstSchema[] = R"sql(
CREATE TABLE workflows(
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  request_id TEXT,
  spec_hash TEXT NOT NULL,
  state INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  expire_us INTEGER,
  header BLOB NOT NULL,
  traceparent TEXT,
  spec BLOB);
CREATE UNIQUE INDEX workflows_by_request ON workflows(tenant, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX workflows_by_time ON workflows(tenant, create_us, id, state);
CREATE INDEX workflows_by_expiry ON workflows(expire_us) WHERE expire_us IS NOT NULL;
CREATE INDEX workflows_unfinished ON workflows(create_us) WHERE state < 3;
CREATE TABLE steps(
  workflow INTEGER NOT NULL REFERENCES workflows(key) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  step BLOB NOT NULL,
  PRIMARY KEY(workflow, position)) WITHOUT ROWID;
)sql";
static_assert(v1::STATE_QUEUED < 3 && v1::STATE_RUNNING < 3 && v1::STATE_SUCCEEDED == 3);

// `kept`: what the start needs of those that have ended. `ended`: what each tenant has of them.
constexpr char kSecondSchema[] = R"sql(
ALTER TABLE workflows ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workflows ADD COLUMN asked BLOB;
UPDATE workflows SET asked = CASE state WHEN 3 THEN NULL ELSE spec END;
UPDATE workflows SET spec = NULL, bytes = length(header) + ifnull(length(asked), 0) +
  ifnull((SELECT SUM(length(step)) FROM steps WHERE workflow = key), 0) WHERE expire_us IS NOT NULL;
CREATE INDEX workflows_by_state ON workflows(tenant, state, create_us, id);
CREATE INDEX workflows_ended ON workflows(tenant, expire_us, bytes) WHERE expire_us IS NOT NULL;
CREATE TABLE kept(
  workflow INTEGER PRIMARY KEY REFERENCES workflows(key) ON DELETE CASCADE,
  id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  until_us INTEGER NOT NULL,
  blobs TEXT NOT NULL);
CREATE TABLE ended(tenant TEXT PRIMARY KEY, workflows INTEGER NOT NULL, bytes INTEGER NOT NULL)
  WITHOUT ROWID;
INSERT INTO ended SELECT tenant, COUNT(*), SUM(bytes) FROM workflows WHERE expire_us IS NOT NULL
  GROUP BY tenant;
CREATE TRIGGER workflow_ended AFTER UPDATE OF expire_us ON workflows BEGIN
  UPDATE ended SET workflows = workflows - 1, bytes = bytes - OLD.bytes
    WHERE tenant = OLD.tenant AND OLD.expire_us IS NOT NULL;
  INSERT INTO ended SELECT NEW.tenant, 1, NEW.bytes WHERE NEW.expire_us IS NOT NULL
    ON CONFLICT(tenant) DO UPDATE SET workflows = workflows + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER workflow_deleted AFTER DELETE ON workflows WHEN OLD.expire_us IS NOT NULL BEGIN
  UPDATE ended SET workflows = workflows - 1, bytes = bytes - OLD.bytes WHERE tenant = OLD.tenant;
END;
)sql";

// `labels`: of workflows, to find these by. `events`: on their way to receivers. `usage`: of
// each tenant in a day of UTC.
constexpr char kThirdSchema[] = R"sql(
ALTER TABLE workflows ADD COLUMN end_us INTEGER;
ALTER TABLE workflows ADD COLUMN fleet TEXT;
ALTER TABLE workflows ADD COLUMN shard INTEGER;
ALTER TABLE workflows ADD COLUMN shards INTEGER;
CREATE UNIQUE INDEX workflows_by_fleet ON workflows(tenant, fleet, shard) WHERE fleet IS NOT NULL;
CREATE INDEX workflows_by_creation ON workflows(create_us, id);
CREATE INDEX workflows_by_end ON workflows(tenant, end_us, id);
CREATE TABLE labels(
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  workflow INTEGER NOT NULL REFERENCES workflows(key) ON DELETE CASCADE,
  PRIMARY KEY(name, value, workflow)) WITHOUT ROWID;
CREATE INDEX labels_of ON labels(workflow);
CREATE TABLE events(
  id TEXT PRIMARY KEY,
  url TEXT NOT NULL,
  body TEXT NOT NULL,
  first_us INTEGER NOT NULL,
  next_us INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0);
CREATE INDEX events_due ON events(next_us);
CREATE TABLE usage(
  tenant TEXT NOT NULL,
  day INTEGER NOT NULL,
  step_seconds REAL NOT NULL,
  PRIMARY KEY(day, tenant)) WITHOUT ROWID;
)sql";
// Whether fleets have ended, without their rows.
constexpr char kFourthSchema[] =
    "CREATE INDEX workflows_of_fleets ON workflows(tenant, fleet, expire_us, bytes) WHERE fleet IS "
    "NOT NULL";
constexpr char kSetEnd[] = "UPDATE workflows SET end_us = ? WHERE key = ?";

constexpr char kEndedHeaders[] =
    "SELECT key, id, tenant, header FROM workflows WHERE expire_us IS NOT NULL";
constexpr char kOldStepsOf[] = "SELECT step FROM steps WHERE workflow = ?";
constexpr char kKeepOld[] =
    "INSERT INTO kept(workflow, id, tenant, until_us, blobs) VALUES(?, ?, ?, ?, ?)";

absl::StatusOr<int64_t> NumberOf(Sqlite& db, const char* query_text) {
  Sqlite::Query query = db.Prepared(query_text);
  QUENCH_ASSIGN_OR_RETURN(const bool row, query.Next());
  return row ? query.IntAt(0) : 0;
}

// Collects the columns that the first schema has in steps only. Damaged rows are reported by their
// readers.
absl::Status CollectKept(Sqlite& db) {
  Sqlite::Query rows = db.Prepared(kEndedHeaders);
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return absl::OkStatus();
    v1::Workflow header;
    if (!header.ParseFromString(rows.BytesAt(3)) || !header.has_outputs_expire_time()) continue;
    std::vector<BlobId> blobs;
    Sqlite::Query steps = db.Prepared(kOldStepsOf);
    steps.Int(rows.IntAt(0));
    while (true) {
      QUENCH_ASSIGN_OR_RETURN(const bool another, steps.Next());
      if (!another) break;
      v1::Step step;
      if (step.ParseFromString(steps.BytesAt(0))) AddOutputs(step, &blobs);
    }
    QUENCH_RETURN_IF_ERROR(db.Prepared(kKeepOld)
                               .Int(rows.IntAt(0))
                               .Text(rows.BytesAt(1))
                               .Text(rows.BytesAt(2))
                               .Int(Microseconds(header.outputs_expire_time()))
                               .Text(PackBlobs(blobs))
                               .Run());
  }
}

// The ends of workflows that older schemas have in their headers only.
absl::Status CollectEnds(Sqlite& db) {
  Sqlite::Query rows = db.Prepared(kEndedHeaders);
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return absl::OkStatus();
    v1::Workflow header;
    if (!header.ParseFromString(rows.BytesAt(3))) continue;
    QUENCH_RETURN_IF_ERROR(
        db.Prepared(kSetEnd).Int(Microseconds(header.end_time())).Int(rows.IntAt(0)).Run());
  }
}

absl::Status Migrate(Sqlite& db, int64_t version) {
  QUENCH_RETURN_IF_ERROR(db.Execute("BEGIN IMMEDIATE"));
  absl::Status status;
  if (version < 1) status = db.Execute(kFirstSchema);
  if (status.ok() && version < 2) {
    status = db.Execute(kSecondSchema);
    if (status.ok()) status = CollectKept(db);
  }
  if (status.ok() && version < 3) {
    status = db.Execute(kThirdSchema);
    if (status.ok()) status = CollectEnds(db);
  }
  if (status.ok()) status = db.Execute(kFourthSchema);
  if (status.ok()) {
    status = db.Execute(fmt::format("PRAGMA user_version = {}; COMMIT", kSchemaVersion));
  }
  if (!status.ok() && db.InTransaction()) db.Execute("ROLLBACK").IgnoreError();
  return status;
}

// A file that cannot shrink is written anew, once. It may have no room for that: then it goes on as
// it is, and the next start tries again.
void LetShrink(Sqlite& db, const std::filesystem::path& file) {
  constexpr int64_t kIncremental = 2;
  const absl::StatusOr<int64_t> mode = NumberOf(db, "PRAGMA auto_vacuum");
  if (!mode.ok() || *mode == kIncremental) return;
  const absl::Status status = db.Execute("PRAGMA auto_vacuum = INCREMENTAL; VACUUM");
  if (!status.ok()) {
    spdlog::warn("`{}` cannot be written anew, and does not shrink: {}", file.string(),
                 MessageOf(status));
  }
}

}  // namespace

absl::Status PrepareSchema(Sqlite& db, const std::filesystem::path& file) {
  // Before anything is in the file, auto_vacuum costs nothing. The log is folded in at 1 MiB: it needs room beside the
  // database's own growth.
  QUENCH_RETURN_IF_ERROR(
      db.Execute("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; "
                 "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; "
                 "PRAGMA journal_size_limit = 67108864; PRAGMA wal_autocheckpoint = 256"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t version, NumberOf(db, "PRAGMA user_version"));
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        fmt::format("`{}` has schema {}, this Quench knows {}: it was written by a newer one",
                    file.string(), version, kSchemaVersion));
  }
  if (version < kSchemaVersion) {
    const auto start = std::chrono::steady_clock::now();
    if (version > 0) {
      spdlog::info("`{}` is brought from schema {} to {}", file.string(), version, kSchemaVersion);
    }
    QUENCH_RETURN_IF_ERROR(Migrate(db, version));
    LetShrink(db, file);
    if (version > 0) {
      spdlog::info("`{}` has schema {} after {:.1f} s", file.string(), kSchemaVersion,
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return absl::OkStatus();
  }
  LetShrink(db, file);
  return absl::OkStatus();
}

std::string PackBlobs(const std::vector<BlobId>& blobs) {
  std::string packed;
  for (const BlobId& blob : blobs) packed += fmt::format("{}/{}\n", blob.hash, blob.size);
  return packed;
}

std::vector<BlobId> UnpackBlobs(const std::string& packed) {
  std::vector<BlobId> blobs;
  size_t at = 0;
  while (at < packed.size()) {
    const size_t slash = packed.find('/', at), end = packed.find('\n', at);
    if (slash == std::string::npos || end == std::string::npos || slash > end) break;
    BlobId& blob = blobs.emplace_back();
    blob.hash = packed.substr(at, slash - at);
    std::from_chars(packed.data() + slash + 1, packed.data() + end, blob.size);
    at = end + 1;
  }
  return blobs;
}

}  // namespace quench::gateway
