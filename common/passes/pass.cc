#include "common/passes/pass.h"

#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "common/ops/op.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr PassInfo kPasses[] = {
#define QUENCH_PASS(name, function, doc) {#name, doc, function, #name},
#define QUENCH_PASS_OF(group, name, function, doc) {#name, doc, function, #group},
#define QUENCH_PASS_GROUP(name, doc)
#include "common/passes/passes.def"
#undef QUENCH_PASS_GROUP
#undef QUENCH_PASS_OF
#undef QUENCH_PASS
};

constexpr PassSwitch kSwitches[] = {
#define QUENCH_PASS(name, function, doc) {#name, doc},
#define QUENCH_PASS_OF(group, name, function, doc)
#define QUENCH_PASS_GROUP(name, doc) {#name, doc},
#include "common/passes/passes.def"
#undef QUENCH_PASS_GROUP
#undef QUENCH_PASS_OF
#undef QUENCH_PASS
};

absl::Status VerifyAll(const Graph& graph) {
  QUENCH_RETURN_IF_ERROR(VerifyGraph(graph));
  StatusCollector problems;
  ForEachGraph(graph, [&](const Graph& part) {
    for (const Node& node : part.nodes) problems.Add(ops::CheckNode(part, node));
  });
  return problems.Finish();
}

}  // namespace

std::span<const PassInfo> AllPasses() { return kPasses; }

const PassInfo* FindPass(std::string_view name) {
  for (const PassInfo& pass : kPasses) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

std::span<const PassSwitch> AllPassSwitches() { return kSwitches; }

const PassSwitch* FindPassSwitch(std::string_view name) {
  for (const PassSwitch& each : kSwitches) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

absl::StatusOr<Graph> RunPass(const PassInfo& pass, Graph graph, const PassOptions& options,
                              const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(context.Check());
  if (options.disabled.contains(std::string(pass.disabled_by))) return graph;
  const std::string where = fmt::format("pass `{}`", pass.name);
  absl::StatusOr<Graph> result = pass.run(std::move(graph), options, context);
  if (!result.ok()) return Annotate(result.status(), where);
  if (options.verify) {
    // A pass that breaks the graph is our defect; the model is not to blame.
    const absl::Status legal = VerifyAll(*result);
    if (!legal.ok()) return Internal("{} gave an illegal graph: {}", where, MessageOf(legal));
  }
  if (options.on_pass) options.on_pass(pass.name, *result);
  return result;
}

bool Replace(Graph& graph, ValueId from, ValueId to) {
  if (from == to || from == kNone || to == kNone) return false;
  if (graph.IsOutput(from)) {
    const Value& target = graph.value(to);
    if (target.producer == kNone || graph.IsOutput(to)) return false;
  }
  graph.ReplaceUses(from, to);
  return true;
}

void TakePlace(Graph& graph, ValueId from, ValueId to) {
  const bool output = graph.IsOutput(from);  // then its name goes along
  graph.ReplaceUses(from, to);
  if (!output) std::swap(graph.value(from).name, graph.value(to).name);
}

ValueId AddTyped(Graph& graph, const std::string& op, const std::string& name,
                 std::vector<ValueId> inputs, Type type,
                 std::map<std::string, Attribute> attributes) {
  const NodeId id = graph.AddNode(op, name, std::move(inputs), 1, std::move(attributes));
  const ValueId output = graph.node(id).outputs[0];
  graph.value(output).type = std::move(type);
  return output;
}

absl::StatusOr<Graph> Settled(Graph graph) {
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  return graph;
}

const Tensor* ConstantOf(const Graph& graph, ValueId id) {
  if (id == kNone || graph.value(id).constant == nullptr) return nullptr;
  return &graph.value(id).constant->tensor;
}

absl::Status ForEachBody(Graph& graph, const std::function<absl::StatusOr<Graph>(Graph)>& pass) {
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes) {
      GraphPtr* body = std::get_if<GraphPtr>(&attribute);
      if (body == nullptr) continue;
      absl::StatusOr<Graph> result = pass(**body);
      if (!result.ok())
        return Annotate(result.status(), fmt::format("body `{}` of node `{}`", name, node.name));
      *body = std::make_shared<const Graph>(*std::move(result));
    }
  }
  return absl::OkStatus();
}

}  // namespace quench::passes
