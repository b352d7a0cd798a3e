#include "services/gateway/sqlite_expiry.h"

#include <set>

#include "common/base/status.h"

namespace quench::gateway {
namespace {

constexpr int kForgottenAtOnce = 200;

// Shards of a fleet wait for its last.
constexpr char kExpired[] =
    "SELECT id, bytes, tenant, fleet FROM workflows AS w WHERE expire_us <= ? AND (fleet IS NULL "
    "OR NOT EXISTS (SELECT 1 FROM workflows AS o WHERE o.tenant = w.tenant AND o.fleet = w.fleet "
    "AND (o.expire_us IS NULL OR o.expire_us > ?))) ORDER BY expire_us LIMIT ?";
constexpr char kTenantsAbove[] =
    "SELECT tenant, workflows - ?, bytes - ? FROM ended WHERE workflows > ? OR bytes > ?";
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

absl::StatusOr<std::vector<std::string>> NextForgotten(Sqlite& db, int64_t now_us,
                                                       const EndedLimits& limits) {
  Forgotten forgotten(db);
  Sqlite::Query expired = db.Prepared(kExpired);
  expired.Int(now_us).Int(now_us).Int(kForgottenAtOnce);
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, expired.Next());
    if (!more) break;
    QUENCH_RETURN_IF_ERROR(forgotten.Add(expired));
  }
  if (forgotten.workflows() > 0) return forgotten.TakeIds();
  Sqlite::Query tenants = db.Prepared(kTenantsAbove);
  tenants.Int(limits.workflows).Int(limits.bytes).Int(limits.workflows).Int(limits.bytes);
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, tenants.Next());
    if (!more) return forgotten.TakeIds();
    const int64_t workflows = forgotten.workflows() + tenants.IntAt(1);
    const int64_t bytes = forgotten.bytes() + tenants.IntAt(2);
    Sqlite::Query ended = db.Prepared(kFirstEnded);
    ended.Text(tenants.BytesAt(0)).Int(kForgottenAtOnce);
    while (forgotten.workflows() < workflows || forgotten.bytes() < bytes) {
      QUENCH_ASSIGN_OR_RETURN(const bool another, ended.Next());
      if (!another) break;
      QUENCH_RETURN_IF_ERROR(forgotten.Add(ended));
    }
  }
}

}  // namespace quench::gateway
