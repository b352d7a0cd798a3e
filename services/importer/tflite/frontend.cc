// The TensorFlow Lite frontend: read, convert.
#include "services/importer/frontend.h"

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "services/importer/graph/canonicalise.h"
#include "services/importer/graph/functions.h"
#include "services/importer/graph/unsupported.h"
#include "services/importer/tflite/convert.h"
#include "services/importer/tflite/entry.h"
#include "services/importer/tflite/reader.h"

namespace quench::importer {
namespace {

int64_t LargeTensorBytes(const tflite::Model& model) {
  int64_t bytes = 0;
  for (const tflite::Buffer* buffer : *model.buffers()) {
    const auto size = static_cast<int64_t>(buffer->offset() > 1        ? buffer->size()
                                           : buffer->data() == nullptr ? 0
                                                                       : buffer->data()->size());
    if (size >= kBlobTensorBytes) bytes += size;
  }
  return bytes;
}

absl::StatusOr<Imported> ImportTflite(const std::filesystem::path& path,
                                      const ImportOptions& options, BlobStore& store,
                                      const StepContext& context) {
  context.Report({"import", path.filename().string(), 0, 0});
  QUENCH_ASSIGN_OR_RETURN(const TfliteFile file, OpenTfliteFile(path));
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindTfliteConversion;
  const FindConversion find = WithFunctions(functions, known);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<UnsupportedOp> unsupported,
                          FindUnsupportedTflite(file, find, options));
  QUENCH_RETURN_IF_ERROR(UnsupportedError(unsupported, "version"));
  WeightWriter weights(store, context);
  if (file.model->buffers() != nullptr) weights.set_total_bytes(LargeTensorBytes(*file.model));
  Imported result;
  QUENCH_ASSIGN_OR_RETURN(result.imported, ReadTfliteGraph(file, options, weights, context));
  QUENCH_ASSIGN_OR_RETURN(result.canonical, Canonicalise(result.imported, find, weights, context));
  QUENCH_RETURN_IF_ERROR(Annotate(VerifyGraph(result.canonical), "imported model"));
  return result;
}

absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupportedIn(const std::filesystem::path& path,
                                                             const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const TfliteFile file, OpenTfliteFile(path));
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindTfliteConversion;
  return FindUnsupportedTflite(file, WithFunctions(functions, known), options);
}

std::vector<KnownOp> KnownOpsOfTflite() {
  std::vector<KnownOp> known;
  for (const TfliteOp& row : AllTfliteOps()) {
    known.push_back(
        {std::string(row.domain), std::string(row.name), std::string(row.canonical), true, {}});
  }
  return known;
}

}  // namespace

const Frontend& TfliteFrontend() {
  static constexpr std::string_view kOwnOptions[] = {"signature"};
  static constexpr Frontend kTflite = {"tflite",
                                       ".tflite",
                                       "TensorFlow Lite, schema version 3",
                                       kOwnOptions,
                                       true,
                                       &LooksLikeTflite,
                                       &ImportTflite,
                                       &FindUnsupportedIn,
                                       &KnownOpsOfTflite,
                                       nullptr};
  return kTflite;
}

}  // namespace quench::importer
