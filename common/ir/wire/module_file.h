// Modules as files that hold their weights, or name a file beside them that does. docs/modules.md has both forms.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>
#include <string_view>

#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"
#include "common/ir/text.h"

namespace quench {

// kBeside: the module's file is small, and weights lie in WeightsFileOf it; the two move together.
enum class WeightsIn : uint8_t { kFile, kBeside };
std::filesystem::path WeightsFileOf(const std::filesystem::path& module);

// Each of the files appears whole or not at all. `graph` is legal (VerifyGraph). Weights are read from where the graph
// has them while they are written, and need no more memory than that.
absl::Status WriteModuleFile(const Graph& graph, const std::filesystem::path& path,
                             WeightsIn weights = WeightsIn::kFile);
absl::Status WriteTextModuleFile(const Graph& graph, const std::filesystem::path& path,
                                 WeightsIn weights = WeightsIn::kFile,
                                 const PrintOptions& options = {});

// Does a file that starts with `head` (64 bytes suffice) hold a module with its weights? Texts: IsTextModule.
bool IsModuleFile(std::string_view head);

// Reads a module in any of its forms: a file of the above, or a message or text (without types, these stay unknown)
// whose tensors lie in `store`. Weights of a text become blobs of `store`, those of other files are mapped where they
// lie. `folder`: where a file with weights may be; empty, if none may be read. Every count and size is bounded by the
// bytes that are there before memory is taken, and weights are compared with their digests.
absl::StatusOr<Graph> ReadModule(const std::shared_ptr<const FileMapping>& file,
                                 const std::filesystem::path& folder, BlobStore& store);

}  // namespace quench
