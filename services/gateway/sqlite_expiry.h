// The workflows that a database forgets.
#pragma once

#include "services/gateway/job_store.h"
#include "services/gateway/sqlite.h"

namespace quench::gateway {

// The ids of workflows that are to be forgotten next, some at a time; none are left when there are none. For JobStore::Expire.
absl::StatusOr<std::vector<std::string>> NextForgotten(Sqlite& db, int64_t now_us,
                                                       const EndedLimits& limits);

}  // namespace quench::gateway
