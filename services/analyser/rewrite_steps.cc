// Steps that make another module of one: tiling and editing.
#include <fmt/format.h>

#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/rpc/errors.h"
#include "common/steps/modules.h"
#include "services/analyser/edit.h"
#include "services/analyser/module_steps.h"
#include "services/analyser/report_proto.h"
#include "services/analyser/tile.h"

namespace quench::analyser {
namespace {

using rpc::FieldError;

absl::StatusOr<TileLimits> SizesIn(const v1::ProductSizes& sizes, const std::string& field,
                                   int64_t most) {
  StatusCollector problems;
  const std::pair<const char*, int64_t> named[] = {
      {"m", sizes.m()}, {"n", sizes.n()}, {"k", sizes.k()}};
  for (const auto& [name, size] : named) {
    if (size < 1 || size > most) {
      problems.Add(FieldError(fmt::format("{}.{}", field, name),
                              fmt::format("is {}, must be from 1 to {}", size, most)));
    }
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return TileLimits{.m = sizes.m(), .n = sizes.n(), .k = sizes.k()};
}

absl::StatusOr<Graph> GraphToTile(const v1::TileRequest& request, const steps::Workplace& place) {
  if (request.has_module() == request.has_gemm())
    return FieldError("module", "or `gemm`: one of them is given");
  if (request.has_gemm()) {
    QUENCH_ASSIGN_OR_RETURN(const TileLimits sizes, SizesIn(request.gemm(), "gemm", kMostGemmSize));
    return GemmGraph(sizes.m, sizes.k, sizes.n);
  }
  QUENCH_ASSIGN_OR_RETURN(Graph graph, steps::LoadModule(request.module(), "module", place.blobs));
  if (graph.stage == Stage::kImported)
    return FieldError("module", "is at stage `imported`, products of `canonical` are tiled");
  return graph;
}

absl::StatusOr<TileProof> ProofOf(const v1::TileRequest& request) {
  TileProof proof;
  if (request.samples() < 0)
    return FieldError("samples", fmt::format("is {}, must not be negative", request.samples()));
  if (!(request.tolerance() >= 0))
    return FieldError("tolerance", fmt::format("is {}, must not be negative", request.tolerance()));
  if (request.samples() > 0) proof.samples = request.samples();
  if (request.tolerance() > 0) proof.tolerance = request.tolerance();
  proof.seed = request.seed();
  return proof;
}

// The tensors of the request, as the script names them.
absl::StatusOr<std::map<std::pair<std::string, std::string>, Tensor>> TensorsOf(
    const v1::EditRequest& request, const steps::Workplace& place) {
  std::map<std::pair<std::string, std::string>, Tensor> tensors;
  StatusCollector problems;
  for (int i = 0; i < request.files_size(); ++i) {
    const v1::EditFile& file = request.files(i);
    const std::string field = fmt::format("files[{}]", i);
    const std::filesystem::path path = place.scratch / fmt::format("file{}.npy", i);
    QUENCH_RETURN_IF_ERROR(steps::LinkBlob(file.tensor(), path, place.blobs));
    absl::StatusOr<Tensor> tensor = ReadNpy(path);
    if (!tensor.ok()) {
      problems.Add(FieldError(field + ".tensor", MessageOf(tensor.status())));
    } else if (!tensors.try_emplace({file.file(), file.array()}, *std::move(tensor)).second) {
      problems.Add(FieldError(field + ".file", fmt::format("`{}` is given twice", file.file())));
    }
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return tensors;
}

}  // namespace

absl::StatusOr<v1::TileResult> TileStep(const v1::TileRequest& request,
                                        const steps::Workplace& place, const StepContext& context) {
  constexpr int64_t kMostLimit = int64_t{1} << 31;
  QUENCH_ASSIGN_OR_RETURN(const TileLimits limits, SizesIn(request.limits(), "limits", kMostLimit));
  QUENCH_ASSIGN_OR_RETURN(const TileProof proof, ProofOf(request));
  QUENCH_ASSIGN_OR_RETURN(const Graph graph, GraphToTile(request, place));
  QUENCH_ASSIGN_OR_RETURN(Tiled tiled, TileAndProve(graph, limits, proof, context));
  v1::TileResult result;
  *result.mutable_report() = ToProto(tiled.report);
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report_json(),
                          steps::StoreBytes(ToJson(tiled.report), place.blobs));
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_module(),
                          steps::StoreModule(std::move(tiled.graph), place.blobs));
  return result;
}

absl::StatusOr<v1::EditResult> EditStep(const v1::EditRequest& request,
                                        const steps::Workplace& place, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Graph graph, steps::LoadModule(request.module(), "module", place.blobs));
  const absl::StatusOr<EditScript> script = ParseEditScript(request.script());
  if (!script.ok()) return FieldError("script", MessageOf(script.status()));
  QUENCH_ASSIGN_OR_RETURN(const auto tensors, TensorsOf(request, place));
  const EditTensors find = [&](const std::string& file,
                               const std::string& array) -> absl::StatusOr<Tensor> {
    const auto found = tensors.find({file, array});
    if (found != tensors.end()) return found->second;
    return InvalidArgument("the request has no file `{}`{}", file,
                           array.empty() ? "" : fmt::format(" with an array `{}`", array));
  };
  absl::StatusOr<Edited> edited = EditGraph(graph, *script, find, context);
  if (absl::IsInvalidArgument(edited.status()))
    return FieldError("script", MessageOf(edited.status()));
  QUENCH_RETURN_IF_ERROR(edited.status());
  v1::EditResult result;
  *result.mutable_report() = ToProto(edited->report);
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_module(),
                          steps::StoreModule(std::move(edited->graph), place.blobs));
  return result;
}

}  // namespace quench::analyser
