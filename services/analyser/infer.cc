#include "services/analyser/infer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "services/analyser/nodes.h"

namespace quench::analyser {
namespace {

// The values that are shown, and their statistics.
class Watcher {
 public:
  static absl::StatusOr<Watcher> Create(const Graph& graph, const InferOptions& options,
                                        const ValueSink& sink) {
    Watcher watcher(options.all, sink);
    for (const Node& node : graph.nodes) {
      for (const ValueId id : node.outputs) {
        if (id != kNone) watcher.makers_[graph.value(id).name] = {node.name, node.op};
      }
    }
    if (options.ops.empty() && options.names.empty()) return watcher;
    QUENCH_ASSIGN_OR_RETURN(const ModuleFacts facts,
                            Introspect(graph, {.ops = options.ops, .names = options.names}));
    for (const NodeFacts& node : facts.nodes) {
      if (node.graph != "main") continue;  // bodies run any number of times
      for (const ValueFacts& value : node.outputs) watcher.chosen_.insert(value.name);
    }
    if (watcher.chosen_.empty()) {
      return InvalidArgument(
          "all {} nodes that match lie in bodies of control flow, whose values are not shown",
          facts.nodes.size());
    }
    return watcher;
  }

  void See(const std::string& name, const Tensor& tensor) {
    if ((all_ || chosen_.contains(name)) && !shown_.contains(name)) Add(name, tensor, false);
  }

  absl::StatusOr<InferReport> Finish(std::string source, const std::vector<std::string>& names,
                                     const std::vector<Tensor>& outputs) {
    // An output that was seen on the way keeps its place.
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto seen = std::ranges::find(report_.values, names[i], &InferredValue::name);
      if (seen != report_.values.end()) {
        seen->output = true;
      } else {
        Add(names[i], outputs[i], true);
      }
    }
    QUENCH_RETURN_IF_ERROR(status_);
    for (const std::string& name : chosen_) {
      if (!shown_.contains(name)) report_.absent.push_back(name);
    }
    report_.source = std::move(source);
    return std::move(report_);
  }

 private:
  Watcher(bool all, const ValueSink& sink) : all_(all), sink_(sink) {}

  void Add(const std::string& name, const Tensor& tensor, bool output) {
    InferredValue value{
        .name = name,
        .type = fmt::format("{}[{}]", DataTypeName(tensor.dtype()), fmt::join(tensor.dims(), ", ")),
        .output = output,
        .statistics = StatisticsOf(tensor)};
    if (const auto maker = makers_.find(name); maker != makers_.end())
      std::tie(value.node, value.op) = maker->second;
    shown_.insert(name);
    if (status_.ok() && sink_) status_ = sink_(value, tensor);
    report_.values.push_back(std::move(value));
  }

  const bool all_;
  const ValueSink& sink_;
  std::map<std::string, std::pair<std::string, std::string>> makers_;  // by value
  std::set<std::string> chosen_, shown_;
  absl::Status status_;
  InferReport report_;
};

}  // namespace

absl::StatusOr<InferReport> Infer(const Graph& graph, std::span<const Tensor> inputs,
                                  const InferOptions& options, const ValueSink& sink,
                                  const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Watcher watcher, Watcher::Create(graph, options, sink));
  ops::EvaluateOptions watching;
  watching.on_value = [&](const std::string& name, const Tensor& tensor) {
    watcher.See(name, tensor);
  };
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                          ops::Evaluate(graph, inputs, context, watching));
  std::vector<std::string> names;
  for (const ValueId id : graph.outputs) names.push_back(graph.value(id).name);
  return watcher.Finish("interpreter", names, outputs);
}

absl::StatusOr<InferReport> InferLibrary(const Graph& graph, Artifact& library,
                                         std::span<const Tensor> inputs,
                                         const InferOptions& options, const ValueSink& sink,
                                         const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Watcher watcher, Watcher::Create(graph, options, sink));
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<Tensor> outputs,
      library.Run(inputs, context, [&](const std::string& name, const Tensor& tensor) {
        watcher.See(name, tensor);
      }));
  std::vector<std::string> names;
  for (const ArtifactTensor& output : library.outputs()) names.push_back(output.name);
  return watcher.Finish("library", names, outputs);
}

}  // namespace quench::analyser
