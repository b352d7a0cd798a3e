// The ONNX frontend: read, convert, check.
#include "services/importer/frontend.h"

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "services/importer/graph/canonicalise.h"
#include "services/importer/graph/functions.h"
#include "services/importer/graph/names.h"
#include "services/importer/graph/unsupported.h"
#include "services/importer/onnx/convert.h"
#include "services/importer/onnx/reader.h"
#include "services/importer/onnx/tensor_data.h"
#include "services/importer/onnx/unsupported.h"

namespace quench::importer {
namespace {

// A model that declares another output type than it computes was edited by hand or exported
// wrongly.
absl::Status CheckDeclaredOutputs(const onnx::v1::GraphProto& proto, const Graph& canonical) {
  StatusCollector problems;
  for (int i = 0; i < proto.output_size(); ++i) {
    const auto& declared = proto.output(i).type();
    if (!declared.has_tensor_type() || declared.tensor_type().elem_type() == 0) continue;
    const Type& actual = canonical.value(canonical.outputs[static_cast<size_t>(i)]).type;
    if (static_cast<int>(actual.dtype) == declared.tensor_type().elem_type()) continue;
    absl::StatusOr<DataType> wanted = DataTypeOf(declared.tensor_type().elem_type());
    problems.Add(InvalidArgument(
        "output `{}` is declared {}, the graph computes {}", Printable(proto.output(i).name()),
        wanted.ok() ? DataTypeName(*wanted) : "of an unknown type", DataTypeName(actual.dtype)));
  }
  return problems.Finish();
}

constexpr char kUseNtBatchMatMul[] = "use_nt_batch_matmul";

// Bytes of the initializers that go into blobs: nearly all there is to do. Broken ones count nothing
// here and are reported where they are read.
int64_t LargeTensorBytes(const onnx::v1::GraphProto& graph) {
  int64_t bytes = 0;
  for (const onnx::v1::TensorProto& tensor : graph.initializer()) {
    const absl::StatusOr<TensorHeader> header = HeaderOf(tensor);
    if (header.ok() && header->bytes >= kBlobTensorBytes) bytes += header->bytes;
  }
  return bytes;
}

absl::Status CheckConvertConfig(const std::map<std::string, bool>& config) {
  StatusCollector problems;
  for (const auto& [key, value] : config) {
    if (key == kUseNtBatchMatMul) continue;
    if (key == "use_dense") {
      problems.Add(
          InvalidArgument("convert_config: `use_dense` is of TensorFlow models, this is an "
                          "ONNX model, which has `{}`",
                          kUseNtBatchMatMul));
    } else {
      problems.Add(InvalidArgument("convert_config: `{}` is unknown, ONNX models have `{}`",
                                   Printable(key), kUseNtBatchMatMul));
    }
  }
  return problems.Finish();
}

// Products of two matrices as Gemm.
void WriteAsGemm(Graph& graph) {
  for (Node& node : graph.nodes) {
    const auto is_matrix = [&](ValueId id) { return graph.value(id).type.rank() == 2; };
    if (node.op == "MatMul" && is_matrix(node.inputs[0]) && is_matrix(node.inputs[1]) &&
        IsFloat(graph.value(node.inputs[0]).type.dtype)) {
      node.op = "Gemm";
    }
  }
}

absl::StatusOr<Imported> ImportOnnx(const std::filesystem::path& path, const ImportOptions& options,
                                    BlobStore& store, const StepContext& context) {
  context.Report({"import", path.filename().string(), 0, 0});
  QUENCH_RETURN_IF_ERROR(CheckConvertConfig(options.convert_config));
  QUENCH_ASSIGN_OR_RETURN(const ModelFile file, OpenModelFile(path));
  QUENCH_ASSIGN_OR_RETURN(const Opsets opsets, OpsetsOf(file.proto, options.opset));
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindOnnxConversion;
  const FindConversion find = WithFunctions(functions, known);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<UnsupportedOp> unsupported,
                          FindUnsupportedOps(file.proto, opsets, find, options));
  QUENCH_RETURN_IF_ERROR(UnsupportedError(unsupported, "opset"));

  ExternalFiles external =
      options.external_files ? ExternalFiles(*options.external_files)
                             : ExternalFiles(options.external_root.empty() ? path.parent_path()
                                                                           : options.external_root);
  const TensorSources sources{file.mapping->bytes(), &external};
  WeightWriter weights(store, context);
  weights.set_total_bytes(LargeTensorBytes(file.proto.graph()));
  Imported result;
  QUENCH_ASSIGN_OR_RETURN(result.imported,
                          ReadGraph(file, opsets, options, sources, weights, context));
  QUENCH_ASSIGN_OR_RETURN(result.canonical, Canonicalise(result.imported, find, weights, context));
  const auto nt = options.convert_config.find(kUseNtBatchMatMul);
  if (nt != options.convert_config.end() && !nt->second) WriteAsGemm(result.canonical);
  if (options.outputs.empty() && options.dtypes.empty()) {
    QUENCH_RETURN_IF_ERROR(CheckDeclaredOutputs(file.proto.graph(), result.canonical));
  }
  QUENCH_RETURN_IF_ERROR(Annotate(VerifyGraph(result.canonical), "imported model"));
  return result;
}

absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupportedOnnx(const std::filesystem::path& path,
                                                               const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const ModelFile file, OpenModelFile(path));
  QUENCH_ASSIGN_OR_RETURN(const Opsets opsets, OpsetsOf(file.proto, options.opset));
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindOnnxConversion;
  return FindUnsupportedOps(file.proto, opsets, WithFunctions(functions, known), options);
}

std::vector<KnownOp> KnownOpsOfOnnx() {
  std::vector<KnownOp> known;
  for (const OnnxOp& row : AllOnnxOps()) {
    KnownOp op{std::string(row.domain),
               std::string(row.name),
               std::string(row.canonical),
               IsSupported(row.domain, row.name),
               {}};
    for (const std::string_view text : RestrictionsOf(row.domain, row.name))
      op.restrictions.emplace_back(text);
    known.push_back(std::move(op));
  }
  return known;
}

absl::StatusOr<std::vector<std::string>> ExternalLocationsOnnx(const std::filesystem::path& path,
                                                               const ImportOptions&) {
  QUENCH_ASSIGN_OR_RETURN(const ModelFile file, OpenModelFile(path));
  return ExternalLocationsIn(file.proto);
}

}  // namespace

const Frontend& OnnxFrontend() {
  static constexpr std::string_view kOwnOptions[] = {"opset", "external_root", "convert_config",
                                                     "no_freeze"};
  static constexpr Frontend kOnnx = {"onnx",
                                     ".onnx",
                                     "ONNX, IR versions 3 to 14, opsets 1 to 28",
                                     kOwnOptions,
                                     false,
                                     &LooksLikeOnnx,
                                     &ImportOnnx,
                                     &FindUnsupportedOnnx,
                                     &KnownOpsOfOnnx,
                                     &ExternalLocationsOnnx};
  return kOnnx;
}

}  // namespace quench::importer
