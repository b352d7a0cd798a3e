#include "services/cli/quantization.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "services/quantizer/equalize.h"

namespace quench::cli {

absl::StatusOr<Graph> PrepareForQuantization(const ModelOptions& options, bool equalize,
                                             const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported model, LoadModel(options, context));
  if (model.canonical.stage == Stage::kQuantized) return std::move(model.canonical);
  QUENCH_ASSIGN_OR_RETURN(Graph graph, passes::RunPipeline(std::move(model.canonical),
                                                           PassOptionsOf(options), context));
  if (!equalize) return graph;
  QUENCH_ASSIGN_OR_RETURN(quantizer::Equalized equalized,
                          quantizer::Equalize(std::move(graph), context));
  fmt::print(stderr,
             "quench: equalized {} pairs of layers; ranges of channels differ by {:.3g}, before by "
             "{:.3g}\n",
             equalized.pairs, equalized.remains, equalized.spread);
  return std::move(equalized.graph);
}

}  // namespace quench::cli
