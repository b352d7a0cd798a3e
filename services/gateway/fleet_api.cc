// The functions of the service Fleets.
#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "services/gateway/fleet.h"
#include "services/gateway/workflow_api.h"

namespace quench::gateway {
namespace {

constexpr int kUsualFleets = 50, kMostFleets = 200, kUsualCells = 1000;
constexpr int kMostCells = 5000;
constexpr size_t kMostChangesAtOnce = 16;

// Where a page of cells begins.
struct CellPlace {
  int shard = 0;
  size_t cell = 0;  // in its shard
};

// "SHARD.CELL"; "" is the first. Nothing for anything else.
std::optional<CellPlace> ParsePlace(const std::string& token) {
  CellPlace place;
  if (token.empty()) return place;
  const char* const end = token.data() + token.size();
  const auto shard = std::from_chars(token.data(), end, place.shard);
  if (shard.ec != std::errc() || shard.ptr == end || *shard.ptr != '.') return std::nullopt;
  const auto cell = std::from_chars(shard.ptr + 1, end, place.cell);
  if (cell.ec != std::errc() || cell.ptr != end) return std::nullopt;
  return place;
}

// Whether a list of a request has the value; an empty one has all.
template <typename Values>
bool Asked(const Values& values, int value) {
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

absl::StatusOr<std::vector<v1::Workflow>> WorkflowApi::WorkflowsOf(const std::string& tenant,
                                                                   const std::string& fleet,
                                                                   const StepContext& step) {
  QUENCH_ASSIGN_OR_RETURN(const std::string owner, ListedTenant(tenant, step));
  if (owner.empty()) {
    Violations violations;
    violations.Add("tenant", "must be the name of the fleet's tenant");
    return violations.Finish();
  }
  QUENCH_ASSIGN_OR_RETURN(std::vector<v1::Workflow> workflows, store_.ListFleet(owner, fleet));
  if (!workflows.empty()) return workflows;
  return rpc::Error(rpc::Reason::kNotFound,
                    fmt::format("there is no fleet `{}`", fleet.substr(0, 100)));
}

absl::StatusOr<v1::Fleet> WorkflowApi::GetFleet(const v1::GetFleetRequest& request,
                                                const StepContext& step) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<v1::Workflow> workflows,
                          WorkflowsOf(request.tenant(), request.id(), step));
  return FleetOf(workflows);
}

absl::StatusOr<v1::ListFleetsResponse> WorkflowApi::ListFleets(const v1::ListFleetsRequest& request,
                                                               const StepContext& step) {
  if (request.page_size() < 0) {
    Violations violations;
    violations.Add("page_size", fmt::format("is {}, must not be negative", request.page_size()));
    return violations.Finish();
  }
  QUENCH_ASSIGN_OR_RETURN(const std::string tenant, ListedTenant(request.tenant(), step));
  FleetQuery query{tenant, kUsualFleets, request.page_token()};
  if (request.page_size() > 0) query.page_size = std::min(request.page_size(), kMostFleets);
  QUENCH_ASSIGN_OR_RETURN(const FleetPage page, store_.ListFleets(query));
  v1::ListFleetsResponse response;
  response.mutable_fleets()->Assign(page.fleets.begin(), page.fleets.end());
  response.set_next_page_token(page.next_page_token);
  return response;
}

absl::StatusOr<v1::ListFleetCellsResponse> WorkflowApi::ListCells(
    const v1::ListFleetCellsRequest& request, const StepContext& step) {
  Violations violations;
  if (request.page_size() < 0)
    violations.Add("page_size", fmt::format("is {}, must not be negative", request.page_size()));
  const std::optional<CellPlace> next = ParsePlace(request.page_token());
  if (!next) violations.Add("page_token", "was not returned with a page");
  QUENCH_RETURN_IF_ERROR(violations.Finish());
  const int most =
      request.page_size() == 0 ? kUsualCells : std::min(request.page_size(), kMostCells);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<v1::Workflow> workflows,
                          WorkflowsOf(request.tenant(), request.id(), step));
  v1::ListFleetCellsResponse response;
  size_t bytes = 0;
  for (const v1::Workflow& workflow : workflows) {
    const int shard = workflow.fleet().shard();
    if (shard < next->shard || !Asked(request.shards(), shard)) continue;
    const absl::StatusOr<ViewPtr> view = Get(workflow.name(), step);
    if (absl::IsNotFound(view.status())) continue;  // deleted meanwhile
    QUENCH_RETURN_IF_ERROR(view.status());
    std::vector<v1::FleetCell> cells = CellsOf(**view);
    for (size_t i = shard == next->shard ? next->cell : 0; i < cells.size(); ++i) {
      if (!Asked(request.states(), cells[i].state())) continue;
      bytes += cells[i].ByteSizeLong();
      const bool full = response.cells_size() == most || bytes > kMostBytes;
      if (full && !response.cells().empty()) {
        response.set_next_page_token(fmt::format("{}.{}", shard, i));
        return response;
      }
      response.add_cells()->Swap(&cells[i]);
    }
  }
  return response;
}

void WorkflowApi::CancelFleet(const v1::CancelFleetRequest& request, const StepContext& step,
                              const Counted& done) {
  const absl::StatusOr<std::vector<v1::Workflow>> workflows =
      WorkflowsOf(request.tenant(), request.id(), step);
  if (!workflows.ok()) {
    done(workflows.status());
    return;
  }
  std::vector<std::string> names;
  for (const v1::Workflow& workflow : *workflows) {
    if (!HasEnded(workflow.state())) names.push_back(workflow.name());
  }
  ForEach(
      std::move(names),
      [this, step](const std::string& name, const Done& end) { Cancel(name, step, end); }, done);
}

void WorkflowApi::RetryFleet(const v1::RetryFleetRequest& request, const StepContext& step,
                             const Counted& done) {
  const absl::StatusOr<std::vector<v1::Workflow>> workflows =
      WorkflowsOf(request.tenant(), request.id(), step);
  if (!workflows.ok()) {
    done(workflows.status());
    return;
  }
  std::vector<std::string> names;
  for (const v1::Workflow& workflow : *workflows) {
    if (workflow.state() == v1::STATE_FAILED || workflow.state() == v1::STATE_CANCELLED)
      names.push_back(workflow.name());
  }
  ForEach(
      std::move(names),
      [this, step](const std::string& name, const Done& end) { Retry(name, step, end); }, done);
}

void WorkflowApi::ForEach(std::vector<std::string> names, const Change& change,
                          const Counted& done) {
  struct Progress {
    std::mutex mutex;
    std::vector<std::string> names;
    size_t next = 0, ended = 0;
    int changed = 0;
    absl::Status first_error;
  };
  if (names.empty()) {
    done(0);
    return;
  }
  auto progress = std::make_shared<Progress>();
  progress->names = std::move(names);
  // Begins the next one; each end of one begins another.
  auto begin = std::make_shared<std::function<void()>>();
  *begin = [this, progress, change, done, weak = std::weak_ptr<std::function<void()>>(begin)] {
    std::string name;
    {
      const std::lock_guard lock(progress->mutex);
      if (progress->next == progress->names.size()) return;
      name = progress->names[progress->next++];
    }
    change(name, [this, progress, done, begin = weak.lock()](const absl::Status& status) {
      bool last = false;
      {
        const std::lock_guard lock(progress->mutex);
        if (status.ok()) ++progress->changed;
        // Deleted, or changed by another call meanwhile.
        const bool moot =
            absl::IsNotFound(status) || absl::IsAborted(status) ||
            rpc::ReasonOf(status) == rpc::ReasonName(rpc::Reason::kFailedPrecondition);
        if (!moot) progress->first_error.Update(status);
        last = ++progress->ended == progress->names.size();
      }
      if (!last) {
        run_([begin] { (*begin)(); });
      } else if (progress->first_error.ok()) {
        done(progress->changed);
      } else {
        done(progress->first_error);
      }
    });
  };
  const size_t at_once = std::min(progress->names.size(), kMostChangesAtOnce);
  for (size_t i = 0; i < at_once; ++i) (*begin)();
}

}  // namespace quench::gateway
