// The TensorFlow frontend: read, convert.
#include "services/importer/frontend.h"

#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/ir/verify.h"
#include "services/importer/graph/canonicalise.h"
#include "services/importer/graph/functions.h"
#include "services/importer/graph/unsupported.h"
#include "services/importer/tensorflow/convert.h"
#include "services/importer/tensorflow/reader.h"

namespace quench::importer {
namespace {

constexpr char kUseDense[] = "use_dense";

absl::Status CheckConvertConfig(const std::map<std::string, bool>& config) {
  StatusCollector problems;
  for (const auto& [key, value] : config) {
    if (key == kUseDense) continue;
    problems.Add(InvalidArgument("convert_config: `{}` is unknown, TensorFlow models have `{}`",
                                 Printable(key), kUseDense));
  }
  return problems.Finish();
}

// Bytes of what goes into blobs, as far as the graph itself has it.
int64_t LargeTensorBytes(const TfEntry& entry) {
  int64_t bytes = 0;
  for (const auto& [body, nodes] : entry.needed) {
    for (const int i : nodes) {
      if (body->node(i).op() != "Const") continue;
      const tf::AttrValue* value = FindAttr(body->node(i), "value");
      if (value == nullptr) continue;
      const absl::StatusOr<TensorHeader> header =
          HeaderOf(value->tensor().dtype(), value->tensor().tensor_shape());
      if (header.ok() && header->bytes >= kBlobTensorBytes) bytes += header->bytes;
    }
  }
  return bytes;
}

absl::StatusOr<Imported> ImportTensorflow(const std::filesystem::path& path,
                                          const ImportOptions& options, BlobStore& store,
                                          const StepContext& context) {
  context.Report({"import", path.filename().string(), 0, 0});
  QUENCH_RETURN_IF_ERROR(CheckConvertConfig(options.convert_config));
  QUENCH_ASSIGN_OR_RETURN(const TensorflowFile file, OpenTensorflowFile(path, options));
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindTensorflowConversion;
  const FindConversion find = WithFunctions(functions, known);
  TfProgram program(file);
  QUENCH_RETURN_IF_ERROR(program.Read());
  QUENCH_ASSIGN_OR_RETURN(const TfEntry entry, EntryOf(program, options));
  QUENCH_RETURN_IF_ERROR(UnsupportedError(UnsupportedIn(program, entry, find), "version"));
  WeightWriter weights(store, context);
  weights.set_total_bytes(LargeTensorBytes(entry));
  Imported result;
  QUENCH_ASSIGN_OR_RETURN(result.imported,
                          ReadTensorflowGraph(program, entry, options, weights, context));
  QUENCH_ASSIGN_OR_RETURN(result.canonical, Canonicalise(result.imported, find, weights, context));
  QUENCH_RETURN_IF_ERROR(Annotate(VerifyGraph(result.canonical), "imported model"));
  return result;
}

absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupportedTensorflow(
    const std::filesystem::path& path, const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const TensorflowFile file, OpenTensorflowFile(path, options));
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindTensorflowConversion;
  TfProgram program(file);
  QUENCH_RETURN_IF_ERROR(program.Read());
  QUENCH_ASSIGN_OR_RETURN(const TfEntry entry, EntryOf(program, options));
  return UnsupportedIn(program, entry, WithFunctions(functions, known));
}

std::vector<KnownOp> KnownOpsOfTensorflow() {
  std::vector<KnownOp> known;
  for (const TensorflowOp& row : AllTensorflowOps()) {
    std::string op(row.canonical);
    for (const TfliteOp& same : AllTfliteOps()) {
      if (!row.same_as.empty() && same.name == row.same_as) op = same.canonical;
    }
    known.push_back({"tensorflow", std::string(row.name), op, true, {}});
  }
  return known;
}

}  // namespace

const Frontend& TensorflowFrontend() {
  static constexpr std::string_view kOwnOptions[] = {"signature", "convert_config", "inputs"};
  static constexpr Frontend kTensorflow = {"tensorflow",
                                           ".pb",
                                           "TensorFlow: frozen graphs (binary or text) and saved "
                                           "models",
                                           kOwnOptions,
                                           true,
                                           &LooksLikeTensorflow,
                                           &ImportTensorflow,
                                           &FindUnsupportedTensorflow,
                                           &KnownOpsOfTensorflow,
                                           &TensorflowLocations};
  return kTensorflow;
}

}  // namespace quench::importer
