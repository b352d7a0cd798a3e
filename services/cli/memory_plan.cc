#include "services/cli/memory_plan.h"

#include <fmt/ranges.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/passes/pass.h"
#include "services/cli/remote.h"
#include "services/codegen/codegen.h"

namespace quench::cli {
namespace {

absl::StatusOr<codegen::CompileReport> CompileHere(const ModelOptions& model,
                                                   codegen::CompileOptions options,
                                                   const std::filesystem::path& folder,
                                                   const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(importer::Imported imported, LoadModel(model, context));
  options.passes = PassOptionsOf(model);
  QUENCH_ASSIGN_OR_RETURN(const Graph graph, passes::RunPipeline(std::move(imported.canonical),
                                                                 options.passes, context));
  return codegen::Compile(graph, options, folder / "model.so", folder / "model.h", context);
}

}  // namespace

absl::StatusOr<analyser::MemoryPlan> MemoryPlanOf(GatewayOptions& gateway,
                                                  const ModelOptions& model,
                                                  const std::string& target,
                                                  const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  codegen::CompileOptions options;
  options.target = target;
  options.emit = codegen::Emit::kSharedLibrary;
  codegen::CompileReport report;
  if (UsesGateway(gateway)) {
    QUENCH_ASSIGN_OR_RETURN(
        const Made made,
        CompileThere({gateway, model, options, "", false, nullptr}, folder.path(), context));
    report = *made.report;
  } else {
    QUENCH_ASSIGN_OR_RETURN(report, CompileHere(model, options, folder.path(), context));
  }
  analyser::MemoryPlan plan;
  plan.target = target;
  plan.arena_bytes = report.arena_bytes;
  plan.lower_bound_bytes = report.arena_lower_bound;
  for (const codegen::KernelReport& kernel : report.kernels)
    plan.kernels.push_back({kernel.node, kernel.arena_bytes});
  for (const codegen::ArenaBuffer& buffer : report.arena) {
    plan.buffers.push_back({fmt::format("{}", fmt::join(buffer.values, ", ")), buffer.offset,
                            buffer.bytes, buffer.first, buffer.last});
  }
  return plan;
}

}  // namespace quench::cli
