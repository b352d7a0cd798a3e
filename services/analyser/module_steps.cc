#include "services/analyser/module_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/passes/pass.h"
#include "common/rpc/errors.h"
#include "common/steps/modules.h"
#include "services/analyser/report_proto.h"

namespace quench::analyser {

using rpc::FieldError;

absl::StatusOr<std::map<std::string, int64_t>> SizesOf(
    const google::protobuf::RepeatedPtrField<step::v1::SymbolSize>& message,
    const std::string& field) {
  std::map<std::string, int64_t> sizes;
  for (const step::v1::SymbolSize& each : message) {
    if (each.size() < 0) {
      return FieldError(
          field, fmt::format("`{}` is {}, must not be negative", each.symbol(), each.size()));
    }
    sizes[each.symbol()] = each.size();
  }
  return sizes;
}

absl::StatusOr<v1::IntrospectResult> IntrospectStep(const v1::IntrospectRequest& request,
                                                    const steps::Workplace& place,
                                                    const StepContext&) {
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          steps::LoadModule(request.module(), "module", place.blobs));
  NodesOptions options;
  options.ops = {request.operators().begin(), request.operators().end()};
  options.names = {request.names().begin(), request.names().end()};
  QUENCH_ASSIGN_OR_RETURN(options.sizes, SizesOf(request.sizes(), "sizes"));
  QUENCH_ASSIGN_OR_RETURN(const ModuleFacts facts, Introspect(graph, options));
  v1::IntrospectResult result;
  *result.mutable_summary() = ToProto(facts);
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report(),
                          steps::StoreBytes(result.summary().SerializeAsString(), place.blobs));
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report_json(),
                          steps::StoreBytes(ToJson(facts), place.blobs));
  result.mutable_summary()->clear_nodes();
  return result;
}

namespace {

absl::StatusOr<Backend> BackendFor(const v1::PartitionRequest& request) {
  const bool named = request.operators().empty();
  absl::StatusOr<Backend> backend =
      named ? FindBackend(request.backend())
            : BackendOf(request.backend(), fmt::format("{}", fmt::join(request.operators(), "\n")));
  if (backend.ok()) return backend;
  return Annotate(backend.status(), named ? "backend" : "operators");
}

absl::StatusOr<PartitionOptions> OptionsOf(const v1::PartitionOptions& asked) {
  if (asked.min_nodes() < 0)
    return FieldError("options.min_nodes",
                      fmt::format("{}, must not be negative", asked.min_nodes()));
  return PartitionOptions{.remove_no_mac_subgraphs = !asked.keep_no_mac_subgraphs(),
                          .simplify_batch_matmul = !asked.keep_batch_matmul(),
                          .simplify_scalar_add = !asked.keep_scalar_add(),
                          .remove_stacks = !asked.keep_stacks(),
                          .min_nodes = std::max<int64_t>(asked.min_nodes(), 1)};
}

absl::Status CheckInlineAlone(const v1::PartitionRequest& request) {
  if (request.backend().empty() && request.operators().empty() && !request.has_options())
    return absl::OkStatus();
  return FieldError("inline_parts",
                    "puts parts back only: `backend`, `operators` and `options` are for others");
}

}  // namespace

absl::StatusOr<v1::PartitionResult> PartitionStep(const v1::PartitionRequest& request,
                                                  const steps::Workplace& place,
                                                  const StepContext& context) {
  v1::PartitionResult result;
  QUENCH_ASSIGN_OR_RETURN(Graph graph, steps::LoadModule(request.module(), "module", place.blobs));
  if (graph.stage == Stage::kImported)
    return FieldError("module", "is at stage `imported`, parts are made of `canonical`");
  if (request.inline_parts()) {
    QUENCH_RETURN_IF_ERROR(CheckInlineAlone(request));
    const size_t parts = SubgraphNames(graph).size();
    QUENCH_ASSIGN_OR_RETURN(graph, passes::InlinePartitions(std::move(graph)));
    result.set_inlined(static_cast<int64_t>(parts - SubgraphNames(graph).size()));
    QUENCH_ASSIGN_OR_RETURN(*result.mutable_module(),
                            steps::StoreModule(std::move(graph), place.blobs));
    return result;
  }
  QUENCH_ASSIGN_OR_RETURN(const Backend backend, BackendFor(request));
  QUENCH_ASSIGN_OR_RETURN(const PartitionOptions options, OptionsOf(request.options()));
  QUENCH_ASSIGN_OR_RETURN(const Partitioned partitioned,
                          PartitionGraph(std::move(graph), backend, options, context));
  *result.mutable_report() = ToProto(partitioned.report);
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report_json(),
                          steps::StoreBytes(ToJson(partitioned.report), place.blobs));
  for (v1::PartitionPart& part : *result.mutable_report()->mutable_parts()) {
    const auto node = std::ranges::find(partitioned.graph.nodes, part.name(), &Node::name);
    if (node == partitioned.graph.nodes.end()) return Internal("part `{}` is lost", part.name());
    QUENCH_ASSIGN_OR_RETURN(Graph alone, passes::StandAlone(*node));
    QUENCH_ASSIGN_OR_RETURN(*part.mutable_module(),
                            steps::StoreModule(std::move(alone), place.blobs));
  }
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_module(),
                          steps::StoreModule(partitioned.graph, place.blobs));
  return result;
}

absl::StatusOr<v1::DiffResult> DiffStep(const v1::DiffRequest& request,
                                        const steps::Workplace& place, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Graph reference,
                          steps::LoadModule(request.reference(), "reference", place.blobs));
  QUENCH_ASSIGN_OR_RETURN(const Graph other,
                          steps::LoadModule(request.module(), "module", place.blobs));
  QUENCH_ASSIGN_OR_RETURN(const ModuleDiff diff, Diff(reference, other, context));
  v1::DiffResult result;
  *result.mutable_diff() = ToProto(diff);
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report_json(),
                          steps::StoreBytes(ToJson(diff), place.blobs));
  return result;
}

}  // namespace quench::analyser
