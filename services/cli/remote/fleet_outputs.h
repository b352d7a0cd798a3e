// The results of a fleet's cells on this machine: libraries in folders, accuracies, the table.
#pragma once

#include <map>
#include <set>
#include <string>

#include "services/cli/remote/client.h"
#include "services/cli/remote/fleet_client.h"
#include "services/cli/remote/fleet_table.h"

namespace quench::cli {

// Cells of one model that did not succeed for one reason, for the summary.
struct FailedCells {
  std::string first;  // model/options/target
  std::string error;
  int count = 0;
};

class FleetOutputs {
 public:
  // `folder`, `table`: "" without. Both clients outlive it.
  FleetOutputs(GatewayClient& client, FleetClient& fleets, std::string fleet, std::string folder,
               std::string table)
      : client_(client),
        fleets_(fleets),
        fleet_(std::move(fleet)),
        folder_(std::move(folder)),
        table_(std::move(table)) {}

  // Fetches the libraries of shards that have ended since the last call.
  absl::Status FetchEnded(const StepContext& context);
  // Fetches what is missing still, and writes the table; with `json`, on stdout too.
  absl::Status Finish(const gateway::v1::Fleet& fleet, bool json, const StepContext& context);

  // After Finish.
  int cells() const { return cells_; }
  int failed_cells() const { return failed_count_; }
  const std::vector<FailedCells>& failed() const { return failed_; }  // the first ones

 private:
  std::string FolderOf(const gateway::v1::FleetCell& cell) const;
  absl::Status FetchOrNote(const gateway::v1::FleetCell& cell, const StepContext& context);
  absl::Status Fetch(const gateway::v1::FleetCell& cell, const StepContext& context);
  absl::StatusOr<const CellAccuracy*> AccuracyOf(const gateway::v1::FleetCell& cell,
                                                 const StepContext& context);
  void Count(const gateway::v1::FleetCell& cell);

  GatewayClient& client_;
  FleetClient& fleets_;
  const std::string fleet_, folder_, table_;
  std::map<std::string, std::string>
      fetched_;           // when these workflows had ended; they may be retried
  std::string last_end_;  // of the last of those, as a filter has it
  std::map<std::string, std::string>
      lost_;  // why these cells were not fetched, by workflow and step
  std::map<std::string, CellAccuracy> accuracies_;  // by the selection's hash
  int cells_ = 0, failed_count_ = 0;
  std::vector<FailedCells> failed_;
  std::string last_model_;  // of failed_
};

}  // namespace quench::cli
