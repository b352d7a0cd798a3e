// The Keras frontend: read, convert.
#include "services/importer/frontend.h"

#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "services/importer/graph/canonicalise.h"
#include "services/importer/graph/functions.h"
#include "services/importer/graph/unsupported.h"
#include "services/importer/keras/convert.h"
#include "services/importer/keras/reader.h"

namespace quench::importer {
namespace {

bool HasChannelsFirst(const KerasModel& model) {
  return std::any_of(model.layers.begin(), model.layers.end(), [](const KerasLayer& layer) {
    const auto format = layer.config.find("data_format");
    return (format != layer.config.end() && *format == "channels_first") ||
           (layer.model != nullptr && HasChannelsFirst(*layer.model));
  });
}

// Layers and functions that `find` has no conversion for, sorted by domain and name.
absl::StatusOr<std::vector<UnsupportedOp>> UnsupportedIn(const KerasFile& file,
                                                         const FindConversion& find,
                                                         const ImportOptions& options,
                                                         const StepContext& context) {
  ImportOptions without = options;
  without.freeze_params.clear();  // needs weights; what stays an input changes no layer
  QUENCH_ASSIGN_OR_RETURN(const Graph graph, ReadKerasGraph(file, without, nullptr, context));
  std::map<std::pair<std::string, std::string>, UnsupportedOp> found;
  for (const Node& node : graph.nodes) {
    if (find(node.domain, node.op) != nullptr) continue;
    UnsupportedOp& op = found[{node.domain, node.op}];
    op.domain = node.domain;
    op.op = node.op;
    op.opset = node.version;
    op.nodes.push_back(node.name);
  }
  std::vector<UnsupportedOp> ops;
  for (auto& [key, op] : found) ops.push_back(std::move(op));
  return ops;
}

absl::StatusOr<Imported> ImportKeras(const std::filesystem::path& path,
                                     const ImportOptions& options, BlobStore& store,
                                     const StepContext& context) {
  context.Report({"import", path.filename().string(), 0, 0});
  QUENCH_ASSIGN_OR_RETURN(const KerasFile file, OpenKerasFile(path, options, context));
  if (!options.layout.empty() && HasChannelsFirst(file.model))
    return Unsupported("`layout` is given, but layers of the model have their channels first");
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindKerasConversion;
  const FindConversion find = WithFunctions(functions, known);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<UnsupportedOp> unsupported,
                          UnsupportedIn(file, find, options, context));
  QUENCH_RETURN_IF_ERROR(UnsupportedError(unsupported, "Keras"));
  WeightWriter weights(store, context);
  int64_t bytes = 0;
  for (const auto& [name, dataset] : file.weights.datasets) {
    if (dataset.header.bytes >= kBlobTensorBytes) bytes += dataset.header.bytes;
  }
  weights.set_total_bytes(bytes);
  Imported result;
  QUENCH_ASSIGN_OR_RETURN(result.imported, ReadKerasGraph(file, options, &weights, context));
  QUENCH_ASSIGN_OR_RETURN(result.canonical, Canonicalise(result.imported, find, weights, context));
  QUENCH_RETURN_IF_ERROR(Annotate(VerifyGraph(result.canonical), "imported model"));
  return result;
}

absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupportedKeras(const std::filesystem::path& path,
                                                                const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const KerasFile file, OpenKerasFile(path, options, {}));
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindKerasConversion;
  return UnsupportedIn(file, WithFunctions(functions, known), options, {});
}

std::vector<KnownOp> KnownOpsOfKeras() {
  std::vector<KnownOp> known;
  for (const KerasRow& row : AllKerasRows()) {
    if (row.domain == "keras.inner") continue;
    known.push_back(
        {std::string(row.domain), std::string(row.name), std::string(row.canonical), true, {}});
  }
  return known;
}

}  // namespace

const Frontend& KerasFrontend() {
  static constexpr std::string_view kOwnOptions[] = {"architecture"};
  static constexpr Frontend kKeras = {"keras",
                                      ".h5",
                                      "Keras 2 and 3: HDF5 files and archives",
                                      kOwnOptions,
                                      true,
                                      &LooksLikeKeras,
                                      &ImportKeras,
                                      &FindUnsupportedKeras,
                                      &KnownOpsOfKeras,
                                      nullptr};
  return kKeras;
}

}  // namespace quench::importer
