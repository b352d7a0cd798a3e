// Weights in the text form: what stands behind the module. Grammar: docs/graph_text.md.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/atomic_file.h"
#include "common/blobs/blob_store.h"
#include "common/ir/wire/span_blobs.h"

namespace quench {

// `weights "DIGEST" SIZE`, then lines of base64.
absl::Status AppendWeights(const SpanBlob& blob, AtomicFile& file);
// `weights file "NAME"`.
std::string WeightsFileLine(const std::string& name);

struct ModuleText {
  std::string module;             // for ParseGraph
  std::string_view weights;       // what follows it, in the text that was split
  int64_t first_line = 1;         // of `weights` in that text
  std::string weights_file = {};  // instead
};
// RESOURCE_EXHAUSTED when the module itself is too long for ParseGraph.
absl::StatusOr<ModuleText> SplitModuleText(std::string_view text);

// Blobs of the weights, which are written to the store unless they lie there, and stay while they are held. Their
// bytes are those of their digests. Errors begin with the line.
absl::StatusOr<std::vector<std::shared_ptr<const FileMapping>>> StoreWeights(const ModuleText& text,
                                                                             BlobStore& store);

}  // namespace quench
