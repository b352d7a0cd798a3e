// The tables of the job store in SQLite, and how those of earlier versions become them.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/blobs/blob_id.h"
#include "services/gateway/sqlite.h"

namespace quench::gateway {

// Makes the tables in a new file, or brings those of an older Quench up to date: once, which takes
// seconds where there is much. FAILED_PRECONDITION for those of a newer one.
absl::Status PrepareSchema(Sqlite& db, const std::filesystem::path& file);

// Blobs as the table `kept` has them.
std::string PackBlobs(const std::vector<BlobId>& blobs);
std::vector<BlobId> UnpackBlobs(const std::string& packed);

}  // namespace quench::gateway
