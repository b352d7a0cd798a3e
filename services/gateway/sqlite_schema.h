// The tables of the job store in SQLite, and the migration of tables of earlier versions.
#pragma once

#include <absl/status/status.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/blobs/blob_id.h"
#include "services/gateway/sqlite.h"

namespace quench::gateway {

// Makes the tables in a new file, or migrates those of an older Quench, once; that takes seconds for
// a large store. FAILED_PRECONDITION for tables of a newer Quench.
absl::Status PrepareSchema(Sqlite& db, const std::filesystem::path& file);

// Blobs in the form of the table `kept`.
std::string PackBlobs(const std::vector<BlobId>& blobs);
std::vector<BlobId> UnpackBlobs(const std::string& packed);

}  // namespace quench::gateway
