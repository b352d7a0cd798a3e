#include "services/cli/metadata.h"

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/hash.h"
#include "services/cli/quantization.h"
#include "services/codegen/description.h"
#include "services/codegen/kernels/typical_sizes.h"

namespace quench::cli {
namespace {

nlohmann::json KernelsToJson(const codegen::CompileReport& report) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const codegen::KernelReport& kernel : report.kernels) {
    kernels.push_back({{"node", kernel.node},
                       {"op", kernel.op},
                       {"kernel", kernel.kernel},
                       {"runner_up", kernel.runner_up},
                       {"reason", kernel.reason},
                       {"cost", kernel.cost},
                       {"slow", kernel.slow},
                       {"multiplications", kernel.multiplications},
                       {"performed", kernel.performed},
                       {"dtype", kernel.dtype},
                       {"bytes", kernel.bytes}});
  }
  return kernels;
}

// Sizes of symbolic dims of inputs: what kernels' costs, multiplications and bytes are counted at.
nlohmann::json TypicalSizesToJson(const Graph& graph) {
  nlohmann::json sizes = nlohmann::json::object();
  codegen::TypicalSizes typical(*graph.symbols);
  for (SymbolId id = 0; id < graph.symbols->size(); ++id) {
    const Symbol& symbol = graph.symbols->at(id);
    if (symbol.is_input()) sizes[symbol.name] = typical.Of(Dim::OfSymbol(id));
  }
  return sizes;
}

nlohmann::json CheckToJson(const codegen::CheckReport& check) {
  using Extent = codegen::CheckReport::Extent;
  return {{"extent", check.extent == Extent::kWhole    ? "whole"
                     : check.extent == Extent::kGroups ? "groups"
                                                       : "none"},
          {"reason", check.reason},
          {"variant", check.variant},
          {"groups", check.groups},
          {"all_groups", check.all_groups},
          {"kernels", check.kernels},
          {"all_kernels", check.all_kernels},
          {"nodes", check.nodes},
          {"largest_error", check.largest_error},
          {"undecided", check.undecided}};
}

}  // namespace

absl::StatusOr<std::string> MetadataOf(const Made& made, const MetadataFacts& facts) {
  const codegen::CompileReport& report = *made.report;
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> library,
                          FileMapping::Open(facts.library));
  QUENCH_ASSIGN_OR_RETURN(
      nlohmann::json metadata,
      codegen::DescribeLibrary(library->bytes(), facts.library.filename().string()));
  nlohmann::json weights = nlohmann::json::object();
  for (const codegen::VariantWeights& each : report.variant_weights)
    weights[each.variant] = each.bytes;
  metadata.update({{"model", facts.model},
                   {"structure_hash", StructureHash(*made.graph)},
                   {"target", report.target},
                   {"opt_level", facts.opt_level},
                   {"arena_bytes", report.arena_bytes},
                   {"arena_lower_bound", report.arena_lower_bound},
                   {"weight_bytes", report.weight_bytes},
                   {"variant_weights", weights},
                   {"code_bytes", report.code_bytes},
                   {"rest_bytes", report.rest_bytes},
                   {"unused_features", report.unused_features},
                   {"typical_sizes", TypicalSizesToJson(*made.graph)},
                   {"kernels", KernelsToJson(report)}});
  if (report.device_arena_bytes > 0) {
    metadata["device_arena_bytes"] = report.device_arena_bytes;
    metadata["device_arena_lower_bound"] = report.device_arena_lower_bound;
  }
  if (report.check) metadata["check"] = CheckToJson(*report.check);
  if (facts.halves) {
    nlohmann::json kept = nlohmann::json::array();
    for (const passes::KeptFloat32& each : report.kept_float32)
      kept.push_back({{"node", each.node}, {"op", each.op}, {"reason", each.reason}});
    metadata["kept_float32"] = kept;
  }
  if (made.quantized) {
    metadata["quantization"] = CountsToJson(made.quantized->report);
    metadata["layers"] = LayersToJson(made.quantized->report);
    if (made.quantized->rounding) metadata["rounding"] = RoundingToJson(*made.quantized->rounding);
    if (made.quantized->selection)
      metadata["selection"] = SelectionToJson(*made.quantized->selection);
  }
  return metadata.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quench::cli
