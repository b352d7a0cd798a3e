// Calls of functions and conditionals, of both versions.
#include <algorithm>

#include "common/base/printable.h"
#include "services/importer/tensorflow/graph_reader.h"

namespace quench::importer {

// A value of the enclosing graph as one of `target`, by its name.
ValueId TensorflowReader::CaptureValue(TfTarget& target, ValueId outer) {
  if (outer == kNone) return kNone;
  const auto [known, fresh] = target.captured.emplace(outer, kNone);
  if (!fresh) return known->second;
  TfTarget& from = *target.outer;
  // An own value may have that name already.
  if (target.values.Contains(from.graph->value(outer).name))
    outer = AddOwn(from, "Identity", from.graph->value(outer).name + "/captured", {outer});
  const Value& value = from.graph->value(outer);
  target.values.Take(value.name);
  const Type type = value.constant == nullptr ? value.type : Type{};
  known->second = PushValue(*target.graph, value.name, type);
  return known->second;
}

TfItem TensorflowReader::Capture(TfScope& scope, const TfItem& item) {
  if (item.id == kNone || scope.target == scope.outer->target) return item;
  return {CaptureValue(*scope.target, item.id), "", -1};
}

TensorflowReader::Items TensorflowReader::CallFunction(TfScope& scope, const TfBody& function,
                                                       const Items& args, TfTarget& target,
                                                       const std::string& prefix) {
  TfScope inside;
  inside.body = &function;
  inside.target = &target;
  inside.prefix = prefix;
  inside.args = args;
  inside.depth = scope.depth + 1;
  Items results;
  if (inside.depth > kMaxFlowDepth) {
    problems_.Add(InvalidArgument("`{}`: functions call one another more than {} deep", prefix,
                                  kMaxFlowDepth));
    return Items(function.results.size());
  }
  for (const TfRef& ref : function.results) results.push_back(Resolve(inside, ref));
  return results;
}

void TensorflowReader::ReadCall(TfScope& scope, int node, Items& items) {
  const tf::NodeDef& def = scope.body->node(node);
  const absl::StatusOr<const TfBody*> body = program_.BodyOf(*CalledBy(def, program_.library()));
  if (!body.ok()) return problems_.Add(body.status());
  items = CallFunction(scope, **body, InputsOf(scope, node), *scope.target,
                       Printable(scope.prefix + def.name()) + "/");
}

// Numbers count as true unless they are 0.
ValueId TensorflowReader::Condition(TfScope& scope, const TfItem& item, const tf::NodeDef& node) {
  const ValueId id = ValueOf(item, node);
  const tf::AttrValue* type = FindAttr(node, "Tcond");
  if (id == kNone || type == nullptr || type->type() == tf::DT_BOOL) return id;
  return AddOwn(*scope.target, "Cast", Printable(scope.prefix + node.name()) + "/condition", {id},
                {{"to", static_cast<int64_t>(DataType::kBool)}});
}

TensorflowReader::Items TensorflowReader::MakeIf(
    TfScope& scope, const std::string& name, ValueId condition, size_t outputs,
    const std::function<Items(TfTarget& inside, bool then)>& branch) {
  Node node;
  node.op = "If";
  node.version = kOwnVersion;
  node.origin = name;
  node.inputs = {condition};
  for (const bool then : {true, false}) {
    auto body = std::make_shared<Graph>();
    body->name = name + (then ? "/then" : "/else");
    body->stage = Stage::kImported;
    body->symbols = scope.target->graph->symbols;
    TfTarget inside;
    inside.graph = body.get();
    inside.outer = scope.target;
    std::set<ValueId> taken;
    Items results = branch(inside, then);
    results.resize(outputs);
    for (const TfItem& item : results) {
      const ValueId id = Fresh(inside, item.id, taken);
      if (id != kNone) body->outputs.push_back(id);
    }
    if (body->outputs.size() != outputs && problems_.ok())
      problems_.Add(Unsupported("`{}`: a branch gives {} values and not {}, or variables", name,
                                body->outputs.size(), outputs));
    node.attributes[then ? "then_branch" : "else_branch"] = GraphPtr(std::move(body));
  }
  node.name = scope.target->nodes.Take(name);
  Items items;
  for (size_t i = 0; i < outputs; ++i) {
    const ValueId id =
        PushValue(*scope.target->graph,
                  scope.target->values.Take(i == 0 ? name : fmt::format("{}:{}", name, i)));
    node.outputs.push_back(id);
    items.push_back({id, "", -1});
  }
  PushNode(*scope.target->graph, std::move(node));
  return items;
}

void TensorflowReader::ReadIf(TfScope& scope, int index, Items& items) {
  const tf::NodeDef& def = scope.body->node(index);
  const Items given = InputsOf(scope, index);
  if (given.empty()) return Problem(def, "has no condition");
  const ValueId condition = Condition(scope, given[0], def);
  const std::string name = Printable(scope.prefix + def.name());
  const auto outputs = static_cast<size_t>(scope.body->outputs[static_cast<size_t>(index)]);
  items = MakeIf(scope, name, condition, outputs, [&](TfTarget& inside, bool then) {
    const absl::StatusOr<const TfBody*> body =
        program_.BodyIn(def, then ? "then_branch" : "else_branch");
    if (!body.ok()) {
      problems_.Add(body.status());
      return Items();
    }
    Items args;
    for (size_t i = 1; i < given.size(); ++i)
      args.push_back(given[i].id == kNone ? given[i]
                                          : TfItem{CaptureValue(inside, given[i].id), "", -1});
    return CallFunction(scope, **body, args, inside, "");
  });
}

// Reads a Merge of a conditional of TensorFlow 1: the side that its predicate chose.
void TensorflowReader::ReadMerge(TfScope& scope, int index, Items& items) {
  const tf::NodeDef& def = scope.body->node(index);
  const std::vector<TfRef>& inputs = scope.body->inputs_of(index);
  if (inputs.size() != 2) return Problem(def, fmt::format("has {} inputs", inputs.size()), true);
  const TfConditions first = ConditionsOf(*scope.body, inputs[0]);
  const TfConditions second = ConditionsOf(*scope.body, inputs[1]);
  std::vector<std::pair<TfRef, int>> found;  // the predicate, and the side of input 0
  for (const auto& [predicate, side] : first) {
    if (second.contains({predicate, 1 - side})) found.emplace_back(predicate, side);
  }
  if (found.empty()) return Problem(def, "joins what no one predicate has parted", true);
  const TfRef predicate = found.back().first;
  const int side = found.back().second;
  const ValueId condition = ValueOf(Resolve(scope, predicate), def);
  items = MakeIf(
      scope, Printable(scope.prefix + def.name()), condition, 2, [&](TfTarget& inside, bool then) {
        const std::pair<TfRef, int> branch{predicate, then ? 1 : 0};
        TfScope within;
        within.body = scope.body;
        within.target = &inside;
        within.outer = &scope;
        within.frame = scope.frame;
        within.branch = &branch;
        within.depth = scope.depth + 1;
        if (within.depth > kMaxFlowDepth) {
          Problem(def, "conditionals lie too deep in one another", true);
          return Items();
        }
        const int input = branch.second == side ? 0 : 1;
        const TfItem value = Resolve(within, inputs[static_cast<size_t>(input)]);
        const ValueId place = AddInts(inside, "value_index",
                                      Tensor::Of(DataType::kI32, {}, std::vector<int32_t>{input}));
        return Items{value, {place, "", -1}};
      });
}

}  // namespace quench::importer
