#include "services/gateway/sqlite_lists.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <mutex>
#include <set>

#include "common/base/status.h"
#include "services/gateway/fleet.h"
#include "services/gateway/view.h"

namespace quench::gateway {
namespace {

constexpr char kFleetRows[] =
    "SELECT header FROM workflows WHERE tenant = ? AND fleet = ? ORDER BY shard";
constexpr char kFleets[] =
    "SELECT tenant, fleet, MIN(create_us) AS begun FROM workflows WHERE fleet IS NOT NULL AND "
    "(? OR tenant = ?) GROUP BY tenant, fleet HAVING (begun, tenant || '/' || fleet) < (?, ?) "
    "ORDER BY begun DESC, tenant || '/' || fleet DESC LIMIT ?";
constexpr char kPutEvent[] =
    "INSERT OR IGNORE INTO events(id, url, body, first_us, next_us) VALUES(?, ?, ?, ?, ?)";
constexpr char kDueEvents[] =
    "SELECT id, url, body, first_us, attempts FROM events WHERE next_us <= ? "
    "ORDER BY next_us LIMIT ?";

// Statements are prepared by the address of their text: there are as many as kinds of queries.
const char* Interned(std::string sql) {
  static std::mutex mutex;
  static std::set<std::string> texts;
  const std::lock_guard lock(mutex);
  return texts.insert(std::move(sql)).first->c_str();
}

const Condition* Indexed(const ListQuery& query, Condition::Field field) {
  for (const Condition& condition : query.filter) {
    if (condition.field == field && condition.op == Condition::Operator::kEqual &&
        condition.text.find('*') == std::string::npos)
      return &condition;
  }
  return nullptr;
}

// The rows that an index finds; more may be found than match.
class Finder {
 public:
  explicit Finder(const ListQuery& query)
      : query_(query),
        fleet_(Indexed(query, Condition::Field::kFleet)),
        label_(Indexed(query, Condition::Field::kLabel)) {}

  const char* sql() const {
    std::string sql = "SELECT w.header FROM workflows AS w";
    if (label_ != nullptr) sql += " JOIN labels AS l ON l.workflow = w.key";
    sql += " WHERE 1";
    if (!query_.tenant.empty()) sql += " AND w.tenant = ?";
    if (fleet_ != nullptr) sql += " AND w.fleet = ?";
    if (label_ != nullptr) sql += " AND l.name = ? AND l.value = ?";
    if (query_.states.size() == 1) sql += " AND w.state = ?";
    const std::string time = query_.order.by_end ? fmt::format("ifnull(w.end_us, {})",
                                                               std::numeric_limits<int64_t>::max())
                                                 : "w.create_us";
    const bool up = query_.order.ascending;
    sql += fmt::format(" AND ({0}, w.id) {1} (?, ?) ORDER BY {0} {2}, w.id {2}", time,
                       up ? ">" : "<", up ? "ASC" : "DESC");
    return Interned(std::move(sql));
  }
  void Bind(Sqlite::Query& rows, const PagePosition& after) const {
    if (!query_.tenant.empty()) rows.Text(query_.tenant);
    if (fleet_ != nullptr) rows.Text(fleet_->text);
    if (label_ != nullptr) rows.Text(label_->key).Text(label_->text);
    if (query_.states.size() == 1) rows.Int(query_.states[0]);
    rows.Int(after.us).Text(after.id);
  }

 private:
  const ListQuery& query_;
  const Condition* const fleet_;
  const Condition* const label_;
};

absl::Status ForEachHeader(Sqlite::Query& rows, const std::function<void(v1::Workflow)>& visit) {
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return absl::OkStatus();
    v1::Workflow header;
    if (!header.ParseFromString(rows.BytesAt(0))) return Damaged("a workflow");
    visit(std::move(header));
  }
}

}  // namespace

absl::Status Damaged(const std::string& what) {
  return absl::DataLossError(fmt::format("the job store holds {} that cannot be read", what));
}

absl::StatusOr<WorkflowPage> ListWorkflows(Sqlite& db, const ListQuery& query) {
  PagePosition after = StartOf(query.order);
  if (!query.page_token.empty()) {
    QUENCH_ASSIGN_OR_RETURN(after, ParsePageToken(query.page_token));
  }
  const Finder finder(query);
  Sqlite::Query rows = db.Prepared(finder.sql());
  finder.Bind(rows, after);
  WorkflowPage page;
  size_t bytes = 0;
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return page;
    v1::Workflow workflow;
    if (!workflow.ParseFromString(rows.BytesAt(0))) return Damaged("a workflow");
    const bool state = query.states.empty() ||
                       std::count(query.states.begin(), query.states.end(), workflow.state()) > 0;
    if (!state || !Matches(query.filter, workflow)) continue;
    bytes += workflow.ByteSizeLong();
    const bool full = static_cast<int>(page.workflows.size()) == query.page_size;
    if (full || (bytes > kMostBytes && !page.workflows.empty())) break;
    page.workflows.push_back(std::move(workflow));
  }
  page.next_page_token = PageToken(PositionOf(page.workflows.back(), query.order));
  return page;
}

absl::StatusOr<std::vector<v1::Workflow>> ListFleetWorkflows(Sqlite& db, const std::string& tenant,
                                                             const std::string& fleet) {
  Sqlite::Query rows = db.Prepared(kFleetRows);
  rows.Text(tenant).Text(fleet);
  std::vector<v1::Workflow> headers;
  QUENCH_RETURN_IF_ERROR(ForEachHeader(
      rows, [&headers](v1::Workflow header) { headers.push_back(std::move(header)); }));
  return headers;
}

absl::StatusOr<FleetPage> ListFleetPage(Sqlite& db, const FleetQuery& query) {
  PagePosition after{std::numeric_limits<int64_t>::max(), "~"};
  if (!query.page_token.empty()) {
    QUENCH_ASSIGN_OR_RETURN(after, ParsePageToken(query.page_token));
  }
  struct Found {
    std::string tenant, fleet;
    int64_t begun = 0;
  };
  std::vector<Found> found;
  {
    Sqlite::Query rows = db.Prepared(kFleets);
    rows.Int(query.tenant.empty() ? 1 : 0).Text(query.tenant).Int(after.us).Text(after.id);
    rows.Int(query.page_size + 1);
    while (true) {
      QUENCH_ASSIGN_OR_RETURN(const bool more, rows.Next());
      if (!more) break;
      found.push_back({rows.BytesAt(0), rows.BytesAt(1), rows.IntAt(2)});
    }
  }
  FleetPage page;
  const bool more = static_cast<int>(found.size()) > query.page_size;
  if (more) found.resize(query.page_size);
  for (const Found& each : found) {
    Sqlite::Query rows = db.Prepared(kFleetRows);
    rows.Text(each.tenant).Text(each.fleet);
    FleetSum sum;
    QUENCH_RETURN_IF_ERROR(ForEachHeader(rows, [&sum](v1::Workflow header) { sum.Add(header); }));
    page.fleets.push_back(sum.Take());
  }
  if (more)
    page.next_page_token =
        PageToken({found.back().begun, found.back().tenant + "/" + found.back().fleet});
  return page;
}

absl::Status PutEvents(Sqlite& db, const std::vector<QueuedEvent>& events) {
  for (const QueuedEvent& event : events) {
    QUENCH_RETURN_IF_ERROR(db.Prepared(kPutEvent)
                               .Text(event.id)
                               .Text(event.url)
                               .Text(event.body)
                               .Int(event.first_us)
                               .Int(event.first_us)
                               .Run());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<QueuedEvent>> ListDueEvents(Sqlite& db, int64_t now_us, int most) {
  Sqlite::Query rows = db.Prepared(kDueEvents);
  rows.Int(now_us).Int(most);
  std::vector<QueuedEvent> events;
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return events;
    events.push_back({rows.BytesAt(0), rows.BytesAt(1), rows.BytesAt(2), rows.IntAt(3),
                      static_cast<int>(rows.IntAt(4))});
  }
}

}  // namespace quench::gateway
