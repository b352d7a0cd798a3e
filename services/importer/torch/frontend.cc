// The PyTorch frontend: read, convert.
#include "services/importer/frontend.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "services/importer/graph/canonicalise.h"
#include "services/importer/graph/functions.h"
#include "services/importer/graph/unsupported.h"
#include "services/importer/torch/model.h"

namespace quench::importer {
namespace {

// PyTorch itself can say most operators by few.
absl::Status UnsupportedTorchError(const TorchFile& file, std::span<const UnsupportedOp> ops) {
  absl::Status status = UnsupportedError(ops, "version");
  const bool says_more =
      file.kind == TorchKind::kExported &&
      std::any_of(ops.begin(), ops.end(), [](const auto& op) { return op.domain == "aten"; });
  if (status.ok() || !says_more) return status;
  return absl::UnimplementedError(fmt::format(
      "{}\nPyTorch turns many operators into those that are known, if that was not done "
      "yet: torch.export.save(torch.export.load(\"model.pt2\").run_decompositions(), "
      "\"model.pt2\")",
      MessageOf(status)));
}

absl::StatusOr<Imported> ImportTorch(const std::filesystem::path& path,
                                     const ImportOptions& options, BlobStore& store,
                                     const StepContext& context) {
  context.Report({"import", path.filename().string(), 0, 0});
  QUENCH_ASSIGN_OR_RETURN(const TorchFile file, OpenTorchFile(path));
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindTorchConversion;
  const FindConversion find = WithFunctions(functions, known);
  WeightWriter weights(store, context);
  QUENCH_ASSIGN_OR_RETURN(TorchGraph read, ReadTorchGraph(file, options, find, &weights, context));
  QUENCH_RETURN_IF_ERROR(UnsupportedTorchError(file, read.unsupported));
  Imported result;
  result.imported = std::move(read.graph);
  QUENCH_ASSIGN_OR_RETURN(result.canonical, Canonicalise(result.imported, find, weights, context));
  QUENCH_RETURN_IF_ERROR(Annotate(VerifyGraph(result.canonical), "imported model"));
  return result;
}

absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupportedTorch(const std::filesystem::path& path,
                                                                const ImportOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const TorchFile file, OpenTorchFile(path));
  QUENCH_ASSIGN_OR_RETURN(const Functions functions, ParseFunctions(options.conversions));
  const FindConversion known = FindTorchConversion;
  const FindConversion find = WithFunctions(functions, known);
  QUENCH_ASSIGN_OR_RETURN(const TorchGraph read, ReadTorchGraph(file, options, find, nullptr, {}));
  return read.unsupported;
}

std::vector<KnownOp> KnownOpsOfTorch() {
  std::vector<KnownOp> known;
  for (const TorchRow& row : AllTorchRows()) {
    known.push_back(
        {std::string(row.domain), std::string(row.name), std::string(row.canonical), true, {}});
  }
  return known;
}

}  // namespace

const Frontend& TorchFrontend() {
  static constexpr std::string_view kOwnOptions[] = {"default_dtype", "keep_quantized_weight"};
  static constexpr Frontend kTorch = {"torch",
                                      ".pt2",
                                      "PyTorch: torch.export's archives and TorchScript",
                                      kOwnOptions,
                                      false,
                                      &LooksLikeTorch,
                                      &ImportTorch,
                                      &FindUnsupportedTorch,
                                      &KnownOpsOfTorch,
                                      nullptr};
  return kTorch;
}

}  // namespace quench::importer
