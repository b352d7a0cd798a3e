#include "services/cli/remote/fleet_outputs.h"

#include <google/protobuf/util/time_util.h>

#include "common/base/errno_status.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "quench/quantizer/v1/selection.pb.h"
#include "services/cli/remote/workflow_outputs.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;
namespace fs = std::filesystem;

using google::protobuf::util::TimeUtil;

constexpr size_t kFailedShown = 20;
constexpr int kShardsAtOnce = 200;

// Whether a blob is not at the gateway any more: evicted, or with outputs that are kept no longer.
bool IsGone(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

const pb::StepOutput* OutputAt(const pb::FleetCell& cell, pb::Port port) {
  for (const pb::StepOutput& output : cell.outputs()) {
    if (output.port() == port) return &output;
  }
  return nullptr;
}

}  // namespace

std::string FleetOutputs::FolderOf(const pb::FleetCell& cell) const {
  return (fs::path(folder_) / cell.model() / cell.options() / cell.target()).string();
}

// Files that are there already, with the same bytes, stay.
absl::Status FleetOutputs::Fetch(const pb::FleetCell& cell, const StepContext& context) {
  const pb::StepOutput* const library = OutputAt(cell, pb::PORT_LIBRARY);
  const pb::StepOutput* const header = OutputAt(cell, pb::PORT_HEADER);
  if (cell.state() != pb::STATE_SUCCEEDED || library == nullptr) return absl::OkStatus();
  const fs::path folder = FolderOf(cell);
  if (!StaysBelow(cell.model() + "/" + cell.options() + "/" + cell.target())) {
    return InvalidArgument("the names of cell `{}` lead out of the folder of its fleet",
                           cell.step());
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), "create folder", folder);
  if (header != nullptr && !client_.Holds(folder / "model.h", header->digest(), context)) {
    QUENCH_RETURN_IF_ERROR(client_.DownloadFile(header->digest(), folder / "model.h", context));
  }
  for (const char* name : {"model.so", "model.o", "model.a"}) {
    if (client_.Holds(folder / name, library->digest(), context)) return absl::OkStatus();
  }
  const fs::path part = folder / "model.part";
  QUENCH_RETURN_IF_ERROR(client_.DownloadFile(library->digest(), part, context));
  fs::rename(part, folder / NameOfLibrary(part), error);
  if (error) return ErrnoStatus(error.value(), "replace", part);
  return absl::OkStatus();
}

// A library that the gateway has no more is an error of its cell, and holds up no other.
absl::Status FleetOutputs::FetchOrNote(const pb::FleetCell& cell, const StepContext& context) {
  const std::string key = cell.workflow() + " " + cell.step();
  lost_.erase(key);
  const absl::Status fetched = Fetch(cell, context);
  if (!IsGone(fetched)) return fetched;
  lost_[key] = "its library cannot be fetched: " + MessageOf(fetched);
  return absl::OkStatus();
}

absl::Status FleetOutputs::FetchEnded(const StepContext& context) {
  if (folder_.empty()) return absl::OkStatus();
  while (true) {
    WorkflowList list;
    list.filter = "fleet = " + fleet_;
    if (!last_end_.empty()) list.filter += " AND end_time >= " + last_end_;
    list.order_by = "end_time";
    list.states = {"succeeded", "failed", "cancelled"};
    list.limit = kShardsAtOnce;
    QUENCH_ASSIGN_OR_RETURN(const std::vector<pb::Workflow> ended, client_.List(list, context));
    std::vector<int> shards;
    std::map<std::string, std::string> ends;
    for (const pb::Workflow& workflow : ended) {
      std::string end = TimeUtil::ToString(workflow.end_time());
      const auto before = fetched_.find(workflow.name());
      if (before != fetched_.end() && before->second == end) continue;
      shards.push_back(workflow.fleet().shard());
      ends[workflow.name()] = std::move(end);
    }
    if (shards.empty()) return absl::OkStatus();
    QUENCH_RETURN_IF_ERROR(fleets_.ForEachCell(
        fleet_, shards, [&](const pb::FleetCell& cell) { return FetchOrNote(cell, context); },
        context));
    for (auto& [name, end] : ends) fetched_[name] = std::move(end);
    last_end_ = TimeUtil::ToString(ended.back().end_time());
  }
}

absl::StatusOr<const CellAccuracy*> FleetOutputs::AccuracyOf(const pb::FleetCell& cell,
                                                             const StepContext& context) {
  if (!cell.has_selection()) return nullptr;
  const auto [found, fresh] = accuracies_.try_emplace(cell.selection().hash());
  if (!fresh) return &found->second;
  const absl::StatusOr<std::string> bytes = client_.DownloadBytes(cell.selection(), context);
  if (IsGone(bytes.status())) {
    accuracies_.erase(found);
    return nullptr;
  }
  QUENCH_RETURN_IF_ERROR(bytes.status());
  quantizer::v1::Selection selection;
  if (!selection.ParseFromString(*bytes)) return Internal("a selection of layers is damaged");
  const quantizer::v1::Cost& cost =
      selection.trials().empty() ? selection.cost() : selection.trials().rbegin()->cost();
  found->second = {cost.sqnr_db(), cost.has_drop(), cost.drop()};
  return &found->second;
}

void FleetOutputs::Count(const pb::FleetCell& cell) {
  ++cells_;
  if (cell.state() == pb::STATE_SUCCEEDED && !cell.has_error()) return;
  ++failed_count_;
  const std::string error =
      cell.error().message().empty() ? StateText(cell.state()) : cell.error().message();
  if (!failed_.empty() && last_model_ == cell.model() && failed_.back().error == error) {
    ++failed_.back().count;
    return;
  }
  if (failed_.size() >= kFailedShown) return;
  std::string name = cell.model() + "/" + cell.options();
  if (!cell.target().empty()) name += "/" + cell.target();
  failed_.push_back({std::move(name), error, 1});
  last_model_ = cell.model();
}

absl::Status FleetOutputs::Finish(const pb::Fleet& fleet, bool json, const StepContext& context) {
  std::unique_ptr<FleetTable> table, printed;
  if (!table_.empty()) {
    QUENCH_ASSIGN_OR_RETURN(table, FleetTable::Create(table_, fleet));
  }
  if (json) printed = FleetTable::Print(fleet);
  QUENCH_RETURN_IF_ERROR(FetchEnded(context));  // what was retried since, too
  QUENCH_RETURN_IF_ERROR(fleets_.ForEachCell(
      fleet_, {},
      [&](const pb::FleetCell& listed) -> absl::Status {
        pb::FleetCell cell = listed;
        if (!folder_.empty() && !fetched_.contains(cell.workflow()))
          QUENCH_RETURN_IF_ERROR(FetchOrNote(cell, context));
        const auto lost = lost_.find(cell.workflow() + " " + cell.step());
        if (lost != lost_.end()) cell.mutable_error()->set_message(lost->second);
        Count(cell);
        if (table == nullptr && printed == nullptr) return absl::OkStatus();
        QUENCH_ASSIGN_OR_RETURN(const CellAccuracy* const accuracy, AccuracyOf(cell, context));
        const bool made =
            cell.state() == pb::STATE_SUCCEEDED && cell.library_bytes() > 0 && lost == lost_.end();
        const std::string folder = made && !folder_.empty() ? FolderOf(cell) : "";
        for (FleetTable* each : {table.get(), printed.get()}) {
          if (each != nullptr) each->Add(cell, accuracy, folder);
        }
        return absl::OkStatus();
      },
      context));
  if (printed != nullptr) QUENCH_RETURN_IF_ERROR(printed->Finish());
  return table == nullptr ? absl::OkStatus() : table->Finish();
}

}  // namespace quench::cli
