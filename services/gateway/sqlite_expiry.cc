#include "services/gateway/sqlite_expiry.h"

#include <set>

#include "common/base/status.h"

namespace quench::gateway {
namespace {

constexpr int kForgottenAtOnce = 200;

constexpr int kFleetsAtOnce = 8;

constexpr char kExpired[] =
    "SELECT id, bytes, tenant, fleet FROM workflows WHERE expire_us <= ? AND fleet IS NULL "
    "ORDER BY expire_us LIMIT ?";
// Shards of a fleet wait for its last.
constexpr char kExpiredFleets[] =
    "SELECT '', 0, tenant, fleet FROM workflows WHERE fleet IS NOT NULL GROUP BY tenant, fleet "
    "HAVING COUNT(expire_us) = COUNT(*) AND MAX(expire_us) <= ? LIMIT ?";
constexpr char kTenantsAbove[] =
    "SELECT tenant, workflows - ?, bytes - ? FROM ended WHERE workflows > ? OR bytes > ?";
// Ended shards of fleets that go on: they stay, and count for nothing meanwhile.
constexpr char kHeldByFleets[] =
    "SELECT ifnull(SUM(ended), 0), ifnull(SUM(size), 0) FROM (SELECT COUNT(expire_us) AS ended, "
    "SUM(CASE WHEN expire_us IS NULL THEN 0 ELSE bytes END) AS size FROM workflows WHERE "
    "tenant = ? AND fleet IS NOT NULL GROUP BY fleet HAVING COUNT(expire_us) < COUNT(*))";
constexpr char kFirstEnded[] =
    "SELECT id, bytes, tenant, fleet FROM workflows AS w WHERE tenant = ? AND expire_us IS NOT "
    "NULL AND (fleet IS NULL OR NOT EXISTS (SELECT 1 FROM workflows AS o WHERE o.tenant = w.tenant "
    "AND o.fleet = w.fleet AND o.expire_us IS NULL)) ORDER BY expire_us LIMIT ?";
constexpr char kOfFleet[] = "SELECT id, bytes FROM workflows WHERE tenant = ? AND fleet = ?";

// Workflows that are to be forgotten, fleets as a whole.
class Forgotten {
 public:
  explicit Forgotten(Sqlite& db) : db_(db) {}

  // A row of kExpired or kFirstEnded.
  absl::Status Add(const Sqlite::Query& row) {
    const std::string id = row.BytesAt(0), tenant = row.BytesAt(2), fleet = row.BytesAt(3);
    if (fleet.empty()) {
      Add(id, row.IntAt(1));
      return absl::OkStatus();
    }
    if (!fleets_.emplace(tenant, fleet).second) return absl::OkStatus();
    Sqlite::Query others = db_.Prepared(kOfFleet);
    others.Text(tenant).Text(fleet);
    while (true) {
      QUENCH_ASSIGN_OR_RETURN(const bool more, others.Next());
      if (!more) return absl::OkStatus();
      Add(others.BytesAt(0), others.IntAt(1));
    }
  }

  int64_t workflows() const { return static_cast<int64_t>(ids_.size()); }
  int64_t bytes() const { return bytes_; }
  std::vector<std::string> TakeIds() { return std::move(ids_); }

 private:
  void Add(std::string id, int64_t bytes) {
    ids_.push_back(std::move(id));
    bytes_ += bytes;
  }

  Sqlite& db_;
  std::vector<std::string> ids_;
  int64_t bytes_ = 0;
  std::set<std::pair<std::string, std::string>> fleets_;  // tenant, fleet
};

}  // namespace

// Adds what the tenant has above its limits, at most kForgottenAtOnce rows.
static absl::Status AddAbove(Sqlite& db, const std::string& tenant, int64_t workflows,
                             int64_t bytes, Forgotten* forgotten) {
  {
    Sqlite::Query held = db.Prepared(kHeldByFleets);
    QUENCH_RETURN_IF_ERROR(held.Text(tenant).Next().status());
    workflows += forgotten->workflows() - held.IntAt(0);
    bytes += forgotten->bytes() - held.IntAt(1);
  }
  Sqlite::Query ended = db.Prepared(kFirstEnded);
  ended.Text(tenant).Int(kForgottenAtOnce);
  while (forgotten->workflows() < workflows || forgotten->bytes() < bytes) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, ended.Next());
    if (!more) break;
    QUENCH_RETURN_IF_ERROR(forgotten->Add(ended));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> NextForgotten(Sqlite& db, int64_t now_us,
                                                       const EndedLimits& limits) {
  Forgotten forgotten(db);
  const auto add_all = [&forgotten](Sqlite::Query& rows) -> absl::Status {
    while (true) {
      QUENCH_ASSIGN_OR_RETURN(const bool more, rows.Next());
      if (!more) return absl::OkStatus();
      QUENCH_RETURN_IF_ERROR(forgotten.Add(rows));
    }
  };
  Sqlite::Query expired = db.Prepared(kExpired);
  QUENCH_RETURN_IF_ERROR(add_all(expired.Int(now_us).Int(kForgottenAtOnce)));
  Sqlite::Query fleets = db.Prepared(kExpiredFleets);
  QUENCH_RETURN_IF_ERROR(add_all(fleets.Int(now_us).Int(kFleetsAtOnce)));
  if (forgotten.workflows() > 0) return forgotten.TakeIds();
  Sqlite::Query tenants = db.Prepared(kTenantsAbove);
  tenants.Int(limits.workflows).Int(limits.bytes).Int(limits.workflows).Int(limits.bytes);
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, tenants.Next());
    if (!more) return forgotten.TakeIds();
    QUENCH_RETURN_IF_ERROR(
        AddAbove(db, tenants.BytesAt(0), tenants.IntAt(1), tenants.IntAt(2), &forgotten));
  }
}

}  // namespace quench::gateway
