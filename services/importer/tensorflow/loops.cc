// Loops of both versions, and the arrays that they read and write.
#include <algorithm>

#include "common/base/printable.h"
#include "services/importer/tensorflow/graph_reader.h"

namespace quench::importer {
namespace {

// The value behind copies of it.
ValueId WithoutCopies(const Graph& graph, ValueId id) {
  while (id != kNone && graph.value(id).producer != kNone) {
    const Node& node = graph.node(graph.value(id).producer);
    if (node.op != "Identity" || node.inputs.size() != 1) break;
    id = node.inputs[0];
  }
  return id;
}

std::optional<int64_t> IntOf(const Graph& graph, ValueId id) {
  id = WithoutCopies(graph, id);
  if (id == kNone || graph.value(id).constant == nullptr) return std::nullopt;
  const Tensor& tensor = graph.value(id).constant->tensor;
  if (tensor.size() != 1 || !IsInteger(tensor.dtype())) return std::nullopt;
  return tensor.IntAt(0);
}

// The loop with the states that outputs or its condition need: others may read what is not even read.
TfFrame WithNeeded(const TfFrame& frame, const std::vector<int>& needed) {
  TfFrame part = frame;
  std::erase_if(part.merges, [&](int merge) {
    return !std::binary_search(needed.begin(), needed.end(), merge);
  });
  return part;
}

// A loop while its body is complete: which of its values are known.
struct LoopView {
  const Graph& outside;
  const Graph& body;
  const TfTarget& target;
  const std::vector<TfItem>& initial;
  const std::vector<TfItem>& states;
  const std::vector<TfItem>& next;

  ValueId Next(size_t i) const { return WithoutCopies(body, next[i].id); }

  // An integer that is the same in every iteration: of the body, from outside, or a state that stays.
  std::optional<int64_t> Known(ValueId id) const {
    id = WithoutCopies(body, id);
    if (const std::optional<int64_t> own = IntOf(body, id)) return own;
    for (const auto& [outer, inner] : target.captured) {
      if (inner == id) return IntOf(outside, outer);
    }
    for (size_t i = 0; i < states.size(); ++i) {
      if (id != kNone && states[i].id == id && Next(i) == id) return IntOf(outside, initial[i].id);
    }
    return std::nullopt;
  }

  // The number of the iteration: a state that begins with 0 and grows by 1.
  bool IsCounter(ValueId index) const {
    index = WithoutCopies(body, index);
    for (size_t i = 0; i < states.size(); ++i) {
      if (index == kNone || states[i].id != index) continue;
      const ValueId after = Next(i);
      if (IntOf(outside, initial[i].id) != 0 || after == kNone ||
          body.value(after).producer == kNone)
        return false;
      const Node& node = body.node(body.value(after).producer);
      if ((node.op != "Add" && node.op != "AddV2") || node.inputs.size() != 2) return false;
      const ValueId a = WithoutCopies(body, node.inputs[0]);
      const ValueId b = WithoutCopies(body, node.inputs[1]);
      return (a == index && Known(b) == 1) || (b == index && Known(a) == 1);
    }
    return false;
  }
};

}  // namespace

TensorflowReader::Items TensorflowReader::MakeLoop(TfScope& scope, const tf::NodeDef& def,
                                                   const std::string& name, const Items& initial,
                                                   const ConditionIn& condition,
                                                   const BodyIn& body_of) {
  TfTarget& outside = *scope.target;
  const TfItem first = condition(outside, name + "/first/", initial);
  auto body = std::make_shared<Graph>();
  body->name = name + "/body";
  body->stage = Stage::kImported;
  body->symbols = outside.graph->symbols;
  TfTarget inside;
  inside.graph = body.get();
  inside.outer = &outside;
  const auto add_input = [&](const std::string& wanted, Type type) {
    body->inputs.push_back(PushValue(*body, inside.values.Take(wanted), std::move(type)));
    return body->inputs.back();
  };
  add_input(name + "/iteration", Type::Tensor(DataType::kI64, {}));
  add_input(name + "/condition", Type::Tensor(DataType::kBool, {}));

  Items states;
  for (size_t i = 0; i < initial.size(); ++i) {
    TfItem state = initial[i];
    if (state.id != kNone) state.id = add_input(fmt::format("{}/state_{}", name, i), {});
    if (state.id == kNone && state.array >= 0) {
      state.array = static_cast<int>(arrays_.size());
      arrays_.push_back({});
    }
    states.push_back(state);
  }
  Items next = body_of(inside, states);
  next.resize(states.size());
  const TfItem again = condition(inside, name + "/next/", next);

  const LoopView view = {*outside.graph, *body, inside, initial, states, next};
  Node node;
  node.op = "Loop";
  node.version = kOwnVersion;
  node.origin = name;
  node.inputs = {kNone, first.id};
  std::set<ValueId> taken;
  body->outputs = {Fresh(inside, again.id, taken)};
  std::vector<ValueId> collected;
  std::vector<size_t> values, arrays;
  std::set<size_t> only_last;  // arrays of one element, which every iteration writes
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].id != kNone) {
      if (next[i].id == kNone && problems_.ok())
        Problem(def, fmt::format("its state {} is lost", i), true);
      node.inputs.push_back(initial[i].id);
      body->outputs.push_back(Fresh(inside, next[i].id, taken));
      values.push_back(i);
    } else if (states[i].array >= 0 && next[i].array >= 0 && next[i].array != states[i].array) {
      const TfArray& written = arrays_[static_cast<size_t>(next[i].array)];
      // A counter says which iteration this is, so what is written there is what the loop collects.
      const TfArray& made = arrays_[static_cast<size_t>(initial[i].array)];
      const bool single = made.maker == outside.graph && IntOf(*outside.graph, made.size) == 1 &&
                          view.Known(written.index) == 0;
      if (single) only_last.insert(i);
      if (written.written_from != states[i].array || (!single && !view.IsCounter(written.index)))
        Problem(def, "writes an array otherwise than one element in each iteration, in order",
                true);
      collected.push_back(Fresh(inside, written.value, taken));
      arrays.push_back(i);
    }
  }
  body->outputs.insert(body->outputs.end(), collected.begin(), collected.end());
  if (std::find(body->outputs.begin(), body->outputs.end(), kNone) != body->outputs.end() ||
      first.id == kNone) {
    if (problems_.ok()) Problem(def, "its condition or its states have no value", true);
    return Items(initial.size());
  }
  node.attributes["body"] = GraphPtr(std::move(body));
  node.name = outside.nodes.Take(name);
  Items results = initial;  // variables, and arrays that are not written, are what they were
  const auto add_output = [&](size_t i) {
    const ValueId id =
        PushValue(*outside.graph, outside.values.Take(fmt::format("{}:{}", name, i)));
    node.outputs.push_back(id);
    results[i] = {id, "", -1};
  };
  for (const size_t i : values) add_output(i);
  for (const size_t i : arrays) add_output(i);
  PushNode(*outside.graph, std::move(node));
  for (const size_t i : only_last) {
    const std::string last = fmt::format("{}:{}/last", name, i);
    const ValueId begin = AddInts(outside, last + "/begin", Tensor::I64({-1}));
    const ValueId end = AddInts(outside, last + "/end", Tensor::I64({kEnd}));
    const ValueId axis = AddInts(outside, last + "/axis", Tensor::I64({0}));
    results[i].id = AddOwn(outside, "Slice", last, {results[i].id, begin, end, axis});
  }
  return results;
}

void TensorflowReader::ReadWhile(TfScope& scope, int index, Items& items) {
  const tf::NodeDef& def = scope.body->node(index);
  const absl::StatusOr<const TfBody*> condition = program_.BodyIn(def, "cond");
  const absl::StatusOr<const TfBody*> body = program_.BodyIn(def, "body");
  problems_.Add(condition.status());
  problems_.Add(body.status());
  if (!condition.ok() || !body.ok()) return;
  items = MakeLoop(
      scope, def, Printable(scope.prefix + def.name()), InputsOf(scope, index),
      [&](TfTarget& target, const std::string& prefix, const Items& states) {
        const Items results = CallFunction(scope, **condition, states, target, prefix);
        return results.empty() ? TfItem{} : results[0];
      },
      [&](TfTarget& target, const Items& states) {
        return CallFunction(scope, **body, states, target, "");
      });
}

// ---- Frames of version 1 ----

void TensorflowReader::ReadExit(TfScope& scope, int index, Items& items) {
  const TfBody& body = *scope.body;
  const tf::NodeDef& def = body.node(index);
  // Exit reads the Switch of a Merge.
  const auto input = [&](int node) {
    const std::vector<TfRef>& inputs = body.inputs_of(node);
    return inputs.empty() ? -1 : inputs[0].node;
  };
  const int parted = input(index);
  const int merge = parted < 0 ? -1 : input(parted);
  const std::string frame = merge < 0 ? "" : body.frame_of_merge[static_cast<size_t>(merge)];
  if (frame.empty()) return Problem(def, "leaves no loop", true);
  const TfFrame part = WithNeeded(body.frames.at(frame), entry_.needed.at(&body));
  const auto at = std::find(part.merges.begin(), part.merges.end(), merge);
  if (at == part.merges.end()) return Problem(def, "leaves a loop that an input cuts", true);
  if (!scope.loops.contains(frame)) {
    scope.loops[frame] = Items(part.merges.size());
    Items results = ReadFrame(scope, part, def);
    scope.loops[frame] = std::move(results);
  }
  items.push_back(scope.loops[frame][static_cast<size_t>(at - part.merges.begin())]);
}

TensorflowReader::Items TensorflowReader::ReadFrame(TfScope& scope, const TfFrame& frame,
                                                    const tf::NodeDef& exit) {
  const TfBody& body = *scope.body;
  Items initial;
  std::vector<TfRef> next;
  for (const int merge : frame.merges) {
    const std::vector<TfRef>& inputs = body.inputs_of(merge);
    const std::vector<TfRef>& entered = body.inputs_of(inputs[0].node);
    const bool turns = inputs[1].node >= 0 && body.node(inputs[1].node).op() == "NextIteration" &&
                       body.inputs_of(inputs[1].node).size() == 1;
    if (entered.size() != 1 || !turns) {
      Problem(body.node(merge), "is not a state of a loop", true);
      return Items(frame.merges.size());
    }
    initial.push_back(Resolve(scope, entered[0]));
    next.push_back(body.inputs_of(inputs[1].node)[0]);
  }
  if (frame.condition < 0 || body.inputs_of(frame.condition).size() != 1 ||
      scope.depth >= kMaxFlowDepth) {
    Problem(exit,
            fmt::format("the loop `{}` has no condition, or lies too deep in others",
                        Printable(frame.name)),
            true);
    return Items(frame.merges.size());
  }
  const auto scope_of = [&](TfTarget& target, const std::string& prefix, const Items& states) {
    TfScope inside;
    inside.body = &body;
    inside.target = &target;
    inside.prefix = prefix;
    inside.outer = &scope;
    inside.frame = frame.name;
    inside.depth = scope.depth + 1;
    for (size_t i = 0; i < states.size(); ++i) inside.bound[TfRef{frame.merges[i], 0}] = states[i];
    return inside;
  };
  const std::string name = Printable(scope.prefix + frame.name);
  return MakeLoop(
      scope, exit, name, initial,
      [&](TfTarget& target, const std::string& prefix, const Items& states) {
        TfScope inside = scope_of(target, prefix, states);
        return Resolve(inside, body.inputs_of(frame.condition)[0]);
      },
      [&](TfTarget& target, const Items& states) {
        TfScope inside = scope_of(target, "", states);
        Items results;
        for (const TfRef& ref : next) results.push_back(Resolve(inside, ref));
        return results;
      });
}

// ---- Arrays ----

TfItem TensorflowReader::WriteArray(TfScope& scope, const tf::NodeDef& node, const TfItem& array,
                                    const TfItem& index, const TfItem& value) {
  const ValueId at = ValueOf(index, node), what = ValueOf(value, node);
  TfItem result;
  if (array.id == kNone) {
    result.array = static_cast<int>(arrays_.size());
    arrays_.push_back({array.array, at, what, kNone, nullptr});
    return result;
  }
  // Into one that has contents: one row of it changes.
  const std::string name = Printable(scope.prefix + node.name());
  TfTarget& target = *scope.target;
  const ValueId place =
      AddOwn(target, "Cast", name + "/place", {at}, {{"to", static_cast<int64_t>(DataType::kI64)}});
  const ValueId row = AddOwn(target, "Reshape", name + "/row",
                             {place, AddInts(target, name + "/one", Tensor::I64({1, 1}))});
  const ValueId first = AddInts(target, name + "/first", Tensor::I64({0}));
  const ValueId update = AddOwn(target, "Unsqueeze", name + "/update", {what, first});
  result.id = AddOwn(target, "ScatterND", name, {array.id, row, update});
  return result;
}

// Arrays of version 1 go along as what is called their flow, lists of version 2 as themselves.
bool TensorflowReader::ReadArray(TfScope& scope, int index, Items& items) {
  const tf::NodeDef& def = scope.body->node(index);
  const std::string& op = def.op();
  const TensorflowOp* row = FindTensorflowRow(op);
  if (row == nullptr || row->convert != nullptr || !row->same_as.empty()) return false;
  const Items given = InputsOf(scope, index);
  const auto at = [&](size_t i) { return i < given.size() ? given[i] : TfItem{}; };
  TfTarget& target = *scope.target;
  const std::string name = Printable(scope.prefix + def.name());
  const auto make = [&](const TfItem& size) {
    TfItem item;
    item.array = static_cast<int>(arrays_.size());
    arrays_.push_back({-1, kNone, kNone, size.id, target.graph});
    return item;
  };
  const auto gather = [&](const TfItem& array, const TfItem& indices) {
    const ValueId dense = ValueOf(array, def), places = ValueOf(indices, def);
    return TfItem{AddOwn(target, "Gather", name, {dense, places}), "", -1};
  };
  const auto length = [&](const TfItem& array) {
    const ValueId shape = AddOwn(target, "Shape", name + "/shape", {ValueOf(array, def)});
    const ValueId zero =
        AddInts(target, name + "/zero", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{0}));
    const ValueId size = AddOwn(target, "Gather", name + "/size", {shape, zero});
    return TfItem{
        AddOwn(target, "Cast", name, {size}, {{"to", static_cast<int64_t>(DataType::kI32)}}), "",
        -1};
  };
  if (op == "TensorArrayV3") {
    const TfItem array = make(at(0));
    items = {array, array};
  } else if (op == "TensorListReserve") {
    items = {make(at(1))};
  } else if (op == "TensorListFromTensor") {
    items = {at(0)};
  } else if (op == "TensorArrayScatterV3") {
    // Every element once, in order.
    const ValueId places = WithoutCopies(*target.graph, at(1).id);
    const NodeId producer = places == kNone ? kNone : target.graph->value(places).producer;
    const bool ordered = producer != kNone && target.graph->node(producer).op == "Range" &&
                         IntOf(*target.graph, target.graph->node(producer).inputs[0]) == 0 &&
                         at(3).id == kNone;
    if (!ordered) Problem(def, "writes an array otherwise than all of it, in order", true);
    items = {at(2)};
  } else if (op == "TensorArrayReadV3") {
    items = {gather(at(2), at(1))};
  } else if (op == "TensorArrayGatherV3") {
    items = {gather(at(2), at(1))};
  } else if (op == "TensorListGetItem") {
    items = {gather(at(0), at(1))};
  } else if (op == "TensorArrayWriteV3") {
    items = {WriteArray(scope, def, at(3), at(1), at(2))};
  } else if (op == "TensorListSetItem") {
    items = {WriteArray(scope, def, at(0), at(1), at(2))};
  } else if (op == "TensorListStack") {
    items = {{ValueOf(at(0), def), "", -1}};
  } else if (op == "TensorArraySizeV3" || op == "TensorListLength") {
    const TfItem array = op == "TensorArraySizeV3" ? at(1) : at(0);
    const bool made = array.id == kNone && array.array >= 0;
    const TfArray* own = made ? &arrays_[static_cast<size_t>(array.array)] : nullptr;
    if (made && own->maker != target.graph)
      Problem(def, "asks for the size of an array of the graph around it", true);
    else if (made)
      items = {{own->size, "", -1}};
    else
      items = {length(array)};
  } else if (op == "NoOp" || op == "Assert") {
    items = {};
  } else {
    return false;
  }
  return true;
}

}  // namespace quench::importer
