// Lists that the SQLite store is asked for: workflows, fleets, events.
#pragma once

#include "services/gateway/job_store.h"
#include "services/gateway/sqlite.h"

namespace quench::gateway {

absl::StatusOr<WorkflowPage> ListWorkflows(Sqlite& db, const ListQuery& query);
// By shard, without steps.
absl::StatusOr<std::vector<v1::Workflow>> ListFleetWorkflows(Sqlite& db, const std::string& tenant,
                                                             const std::string& fleet);
absl::StatusOr<FleetPage> ListFleetPage(Sqlite& db, const FleetQuery& query);

absl::Status PutEvents(Sqlite& db, const std::vector<QueuedEvent>& events);
absl::StatusOr<std::vector<QueuedEvent>> ListDueEvents(Sqlite& db, int64_t now_us, int most);

// DATA_LOSS that names what cannot be read: "a workflow".
absl::Status Damaged(const std::string& what);

}  // namespace quench::gateway
