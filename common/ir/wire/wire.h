// Graph <-> quench.ir.v1 protobuf. The only part of ir that sees protobuf headers.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"

namespace quench {

// Serialised quench.ir.v1.Module. Constants above 4 KiB travel as {digest, location}: those without a location are
// first written to `store`, packed into blobs of at most 256 MiB.
absl::StatusOr<std::string> SerializeModule(const Graph& graph, BlobStore& store);

// Inverse; constants by location are mapped from `store`. Every count, id and size is bounded and checked.
absl::StatusOr<Graph> ParseModule(const std::string& bytes, BlobStore& store);

// Does a file that starts with `head` (64 bytes suffice) hold a serialised module? Its first field, a `format` string, tells.
bool IsSerializedModule(std::string_view head);

}  // namespace quench
