// Graph <-> quench.ir.v1 protobuf. The only part of ir that sees protobuf headers.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"

namespace quench {

// Largest message that is written or read. Weights are not in it: large networks take a few MiB.
inline constexpr size_t kMaxModuleBytes = size_t{64} << 20;

// Serialised quench.ir.v1.Module, the same bytes for the same graph. Tensors above 4 KiB (constants
// and attributes) travel as {digest, location}; those whose location is not in `store` are first
// written to it, packed into blobs of at most 256 MiB; a tensor above that is cut into several
// blobs. `graph` is legal (VerifyGraph). Fails when a name is not UTF-8, the message would exceed
// kMaxModuleBytes, or the store fails.
absl::StatusOr<std::string> SerializeModule(const Graph& graph, BlobStore& store);

// Inverse; tensors by location are mapped from `store`. Every count, id and size is bounded and
// checked before memory is taken, and VerifyGraph accepts what is returned. Digests of tensors are
// taken as given: to trust a fingerprint of a stranger's module, recompute them
// (TensorDigest).
absl::StatusOr<Graph> ParseModule(const std::string& bytes, BlobStore& store);

// Digests of the blobs that a serialised module's tensors lie in, each once, sorted.
absl::StatusOr<std::vector<std::string>> ModuleBlobs(const std::string& bytes);

// Does a file that starts with `head` (64 bytes suffice) hold a serialised module? By its first two
// fields, the format version and the stage: no ONNX model starts so.
bool IsSerializedModule(std::string_view head);

}  // namespace quench
