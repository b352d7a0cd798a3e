#include "services/gateway/fleet.h"

#include <absl/strings/match.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace quench::gateway {
namespace {

void AddCounts(const v1::Counts& counts, v1::Counts* sum) {
  sum->set_queued(sum->queued() + counts.queued());
  sum->set_running(sum->running() + counts.running());
  sum->set_succeeded(sum->succeeded() + counts.succeeded());
  sum->set_failed(sum->failed() + counts.failed());
  sum->set_cancelled(sum->cancelled() + counts.cancelled());
  sum->set_cache_hits(sum->cache_hits() + counts.cache_hits());
}

v1::Counts One(v1::State state) {
  v1::Counts counts;
  if (state == v1::STATE_QUEUED) counts.set_queued(1);
  if (state == v1::STATE_RUNNING) counts.set_running(1);
  if (state == v1::STATE_SUCCEEDED) counts.set_succeeded(1);
  if (state == v1::STATE_FAILED) counts.set_failed(1);
  if (state == v1::STATE_CANCELLED) counts.set_cancelled(1);
  return counts;
}

v1::State StateOf(const v1::Fleet& fleet) {
  const v1::Counts& workflows = fleet.workflows();
  const bool whole = fleet.created_shards() >= fleet.shards();
  if (whole && workflows.queued() + workflows.running() == 0) {
    if (workflows.failed() > 0) return v1::STATE_FAILED;
    return workflows.cancelled() > 0 ? v1::STATE_CANCELLED : v1::STATE_SUCCEEDED;
  }
  const v1::Counts& steps = fleet.steps();
  const int begun = steps.running() + steps.succeeded() + steps.failed();
  return begun > 0 ? v1::STATE_RUNNING : v1::STATE_QUEUED;
}

// The parts of `{model}/{options}/{target}/{step}`, whose target may have slashes; or of
// `{model}/{options}/{step}`, which has no target.
struct StepName {
  std::string model, options, target, step;
};

bool Split(const std::string& name, StepName* parts) {
  const size_t first = name.find('/');
  if (first == std::string::npos) return false;
  const size_t second = name.find('/', first + 1), last = name.rfind('/');
  if (second == std::string::npos) return false;
  parts->model = name.substr(0, first);
  parts->options = name.substr(first + 1, second - first - 1);
  if (last > second) parts->target = name.substr(second + 1, last - second - 1);
  parts->step = name.substr(last + 1);
  return true;
}

double SecondsOf(const v1::Step& step) {
  if (!step.has_end_time() || !step.has_start_time()) return 0;
  return static_cast<double>(Microseconds(step.end_time()) - Microseconds(step.start_time())) / 1e6;
}

const v1::StepOutput* Output(const v1::Step& step, v1::Port port) {
  for (const v1::StepOutput& output : step.outputs()) {
    if (output.port() == port) return &output;
  }
  return nullptr;
}

// The earlier step that keeps this cancelled one from being done; null: there is none.
const v1::Step* Hindrance(const WorkflowView& view, const std::map<std::string, size_t>& places,
                          const v1::Step& step) {
  for (const std::string& name : step.depends_on()) {
    const auto place = places.find(name);
    if (place == places.end()) continue;
    const v1::Step* const before = view.steps[place->second].step.get();
    if (before->state() == v1::STATE_FAILED || before->state() == v1::STATE_CANCELLED)
      return before;
  }
  return nullptr;
}

// Why a step did not succeed: the failure of the step that it needs, however far back.
const v1::Step* ReasonOf(const WorkflowView& view, const std::map<std::string, size_t>& places,
                         const v1::Step* step) {
  while (step->state() == v1::STATE_CANCELLED) {
    const v1::Step* const before = Hindrance(view, places, *step);
    if (before == nullptr) break;
    step = before;
  }
  return step;
}

struct Places {
  std::map<std::string, size_t> steps;        // by name
  std::map<std::string, v1::State> prepared;  // by model/options: RUNNING where a step runs
  std::set<std::string> compiled;             // model/options that have cells of their own
};

Places PlacesOf(const WorkflowView& view) {
  Places places;
  for (size_t i = 0; i < view.steps.size(); ++i) {
    const v1::Step& step = *view.steps[i].step;
    places.steps.emplace(step.name(), i);
    StepName name;
    if (!Split(step.name(), &name)) continue;
    const std::string way = name.model + "/" + name.options;
    if (!name.target.empty()) places.compiled.insert(way);
    if (name.target.empty() && step.state() == v1::STATE_RUNNING)
      places.prepared[way] = v1::STATE_RUNNING;
  }
  return places;
}

void Fill(const WorkflowView& view, const Places& places, const v1::Step& step,
          v1::FleetCell* cell) {
  cell->set_step(step.name());
  cell->set_state(step.state());
  cell->set_cached(step.cache_hit());
  cell->set_seconds(cell->seconds() + SecondsOf(step));
  *cell->mutable_outputs() = step.outputs();
  if (const v1::StepOutput* library = Output(step, v1::PORT_LIBRARY))
    cell->set_library_bytes(library->digest().size_bytes());
  if (const v1::StepOutput* report = Output(step, v1::PORT_REPORT))
    *cell->mutable_report() = report->digest();
  cell->clear_error();
  if (step.state() != v1::STATE_FAILED && step.state() != v1::STATE_CANCELLED) return;
  const v1::Step& reason = *ReasonOf(view, places.steps, &step);
  // A cell whose import failed has failed; nobody cancelled it.
  cell->set_state(reason.state());
  *cell->mutable_error() = reason.error();
  if (&reason != &step)
    cell->mutable_error()->set_message("step `" + reason.name() + "`: " + reason.error().message());
}

}  // namespace

void FleetSum::Add(const v1::Workflow& workflow) {
  if (fleet_.created_shards() == 0) {
    fleet_.set_id(workflow.fleet().fleet());
    fleet_.set_tenant(workflow.tenant());
    fleet_.set_shards(workflow.fleet().shards());
    *fleet_.mutable_labels() = workflow.labels();
    created_us_ = Microseconds(workflow.create_time());
  }
  fleet_.set_created_shards(fleet_.created_shards() + 1);
  AddCounts(One(workflow.state()), fleet_.mutable_workflows());
  AddCounts(workflow.counts(), fleet_.mutable_steps());
  created_us_ = std::min(created_us_, Microseconds(workflow.create_time()));
  if (workflow.has_start_time()) {
    const int64_t start = Microseconds(workflow.start_time());
    started_us_ = started_us_ == 0 ? start : std::min(started_us_, start);
  }
  if (workflow.has_end_time()) ended_us_ = std::max(ended_us_, Microseconds(workflow.end_time()));
  auto& labels = *fleet_.mutable_labels();
  for (auto label = labels.begin(); label != labels.end();) {
    const auto other = workflow.labels().find(label->first);
    const bool equal = other != workflow.labels().end() && other->second == label->second;
    label = equal ? std::next(label) : labels.erase(label);
  }
}

v1::Fleet FleetSum::Take() {
  fleet_.set_state(StateOf(fleet_));
  *fleet_.mutable_create_time() = TimestampOf(created_us_);
  if (started_us_ != 0) *fleet_.mutable_start_time() = TimestampOf(started_us_);
  if (HasEnded(fleet_.state())) *fleet_.mutable_end_time() = TimestampOf(ended_us_);
  return std::move(fleet_);
}

v1::Fleet FleetOf(const std::vector<v1::Workflow>& workflows) {
  FleetSum sum;
  for (const v1::Workflow& workflow : workflows) sum.Add(workflow);
  return sum.Take();
}

std::vector<v1::FleetCell> CellsOf(const WorkflowView& view) {
  const Places places = PlacesOf(view);
  std::vector<v1::FleetCell> cells;
  std::map<std::string, size_t> by_name;  // model/options/target
  for (const StepView& each : view.steps) {
    const v1::Step& step = *each.step;
    StepName name;
    if (!Split(step.name(), &name)) continue;
    const std::string way = name.model + "/" + name.options;
    if (name.target.empty() && places.compiled.contains(way)) continue;
    const auto [found, fresh] = by_name.emplace(way + "/" + name.target, cells.size());
    if (fresh) {
      v1::FleetCell& cell = cells.emplace_back();
      cell.set_model(name.model);
      cell.set_options(name.options);
      cell.set_target(name.target);
      cell.set_workflow(view.header.name());
    }
    v1::FleetCell& cell = cells[found->second];
    const v1::State before = cell.state();
    Fill(view, places, step, &cell);
    const auto select = places.steps.find(way + "/select");
    if (select != places.steps.end()) {
      const v1::StepOutput* selection =
          Output(*view.steps[select->second].step, v1::PORT_SELECTION);
      if (selection != nullptr) *cell.mutable_selection() = selection->digest();
    }
    const bool runs = before == v1::STATE_RUNNING || places.prepared.contains(way);
    if (runs && cell.state() == v1::STATE_QUEUED) cell.set_state(v1::STATE_RUNNING);
  }
  return cells;
}

}  // namespace quench::gateway
