// Makes 8-bit activations unsigned, or signed, where that is what products of the target multiply:
// otherwise they change each byte as they read it, once for every tile.
//   pre: products are final; PassOptions::activation_bytes says which, else nothing happens
//   x: f32 -> QuantizeLinear(s, z: i8) -> q: i8 -> ConvInteger(q, w, z)   ==>
//   x -> QuantizeLinear(s, z + 128: u8) -> q: u8 -> ConvInteger(q, w, z + 128)
//   Values become what they were plus 128 (or minus 128), and zero points with them: results are the
//   same. Values that move bytes between each other, as MaxPool and Concat do, change together or not
//   at all; inputs and outputs of the graph stay.
//   case: byte_activations.ir.txt
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "common/base/status.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr int64_t kHalf = 128;
constexpr auto kTopBit = static_cast<std::byte>(0x80);

bool In(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

// Gives the bytes of some inputs as they are, or the largest of them. (Padding of MaxPool is the least.)
bool Moves(const Node& node) {
  return In(node.op, {"MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze",
                      "Concat", "Slice", "Split"}) &&
         (node.op != "MaxPool" || node.outputs.size() == 1 || node.outputs[1] == kNone);
}

// The input with the zero point of input `i`; none where the operator has no such thing.
std::optional<size_t> ZeroOf(const Node& node, size_t i) {
  if (In(node.op, {"ConvInteger", "MatMulInteger"}) && i < 2) return i + 2;
  if (node.op == "DequantizeLinear" && i == 0) return 2;
  return std::nullopt;
}

class Retyper {
 public:
  Retyper(Graph& graph, DataType to)
      : graph_(graph),
        to_(to),
        from_(to == DataType::kU8 ? DataType::kI8 : DataType::kU8),
        set_(graph.values.size()),
        stays_(graph.values.size()) {
    std::iota(set_.begin(), set_.end(), 0);
  }

  void Run() {
    for (const ValueId id : graph_.inputs) Keep(id);
    for (const ValueId id : graph_.outputs) Keep(id);
    for (const Node& node : graph_.nodes) Look(node);
    if (!multiplied_) return;
    for (size_t i = 0; i < set_.size(); ++i) {
      if (stays_[i]) stays_[static_cast<size_t>(SetOf(static_cast<ValueId>(i)))] = true;
    }
    const size_t nodes = graph_.nodes.size();
    for (size_t i = 0; i < nodes; ++i) Change(static_cast<NodeId>(i));
    for (size_t i = 0; i < set_.size(); ++i) {
      if (Changes(static_cast<ValueId>(i))) graph_.values[i].type.dtype = to_;
    }
  }

 private:
  bool IsByte(ValueId id) const {
    if (id == kNone) return false;
    const Type& type = graph_.value(id).type;
    return type.kind == ValueKind::kTensor && type.dtype == from_;
  }

  ValueId SetOf(ValueId id) {
    while (set_[static_cast<size_t>(id)] != id) {
      ValueId& parent = set_[static_cast<size_t>(id)];
      parent = set_[static_cast<size_t>(parent)];
      id = parent;
    }
    return id;
  }

  void Keep(ValueId id) {
    if (id != kNone) stays_[static_cast<size_t>(id)] = true;
  }

  // Known once all nodes have been looked at.
  bool Changes(ValueId id) {
    return id != kNone && static_cast<size_t>(id) < set_.size() && IsByte(id) &&
           graph_.value(id).constant == nullptr && !stays_[static_cast<size_t>(SetOf(id))];
  }

  // Finds what has to stay as it is.
  void Look(const Node& node) {
    if (Moves(node)) return Join(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (!IsByte(id) || graph_.value(id).constant != nullptr) continue;
      if (!Reads(node, i)) Keep(id);
      if (i == 0 && In(node.op, {"ConvInteger", "MatMulInteger"})) multiplied_ = true;
    }
    for (const ValueId id : node.outputs) {
      if (IsByte(id) && !Makes(node)) Keep(id);
    }
  }

  void Join(const Node& node) {
    ValueId first = kNone;
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (!IsByte(id)) continue;
        if (graph_.value(id).constant != nullptr) Keep(id);
        if (first == kNone) first = id;
        set_[static_cast<size_t>(SetOf(id))] = SetOf(first);
      }
    }
  }

  bool HasConstant(const Node& node, size_t i) const {
    return i < node.inputs.size() && ConstantOf(graph_, node.inputs[i]) != nullptr;
  }

  bool Reads(const Node& node, size_t i) const {
    if (i == 0 && node.op == "q.average_pool") return true;
    if (i == 0 && node.op == "q.table") return HasConstant(node, 1);
    if (node.Int("block_size", 0) != 0) return false;  // zero points have the scales' shape
    const std::optional<size_t> zero = ZeroOf(node, i);
    return zero &&
           (*zero >= node.inputs.size() || node.inputs[*zero] == kNone || HasConstant(node, *zero));
  }

  bool Makes(const Node& node) const {
    if (node.op == "QuantizeLinear") return HasConstant(node, 2);
    return node.op == "q.average_pool" || (node.op == "q.table" && HasConstant(node, 1));
  }

  void Change(NodeId id) {
    const Node node = graph_.node(id);  // constants that are added may move it
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!Changes(node.inputs[i]) || Moves(node)) continue;
      if (node.op == "q.average_pool") ChangeNumber(id, "x_zero_point");
      if (node.op == "q.table") ChangeTable(id, /*entries=*/false);
      if (const std::optional<size_t> zero = ZeroOf(node, i)) ChangeZero(id, *zero);
    }
    if (node.outputs.empty() || !Changes(node.outputs[0]) || Moves(node)) return;
    if (node.op == "q.average_pool") {
      ChangeNumber(id, "y_zero_point");
      graph_.node(id).attributes["to"] = static_cast<int64_t>(to_);
    }
    if (node.op == "q.table") ChangeTable(id, /*entries=*/true);
    if (node.op == "QuantizeLinear") {
      ChangeZero(id, 2);
      if (node.Find("output_dtype") != nullptr)
        graph_.node(id).attributes["output_dtype"] = static_cast<int64_t>(to_);
    }
  }

  void ChangeNumber(NodeId id, const char* name) {
    graph_.node(id).attributes[name] =
        graph_.node(id).Int(name, 0) + (to_ == DataType::kU8 ? kHalf : -kHalf);
  }

  void ChangeZero(NodeId id, size_t input) {
    std::vector<ValueId>& inputs = graph_.node(id).inputs;
    if (inputs.size() <= input) inputs.resize(input + 1, kNone);
    const ValueId old = inputs[input];
    const ValueId zero = Shifted(old);
    graph_.node(id).inputs[input] = zero;
  }

  // A zero point as the other type has it; of none, 0 as it has it.
  ValueId Shifted(ValueId id) {
    const auto [found, fresh] = shifted_.emplace(id, kNone);
    if (!fresh) return found->second;
    const Tensor old = id == kNone ? Tensor::Zeros(from_, {}) : *ConstantOf(graph_, id);
    Tensor tensor = Tensor::Zeros(to_, old.dims());
    for (size_t i = 0; i < old.bytes().size(); ++i)
      tensor.mutable_bytes()[i] = old.bytes()[i] ^ kTopBit;
    const std::string name = id == kNone ? "zero_point" : graph_.value(id).name;
    found->second = graph_.AddConstant(name, std::move(tensor));
    return found->second;
  }

  // Changes the entries of a table, or the bytes that index it.
  void ChangeTable(NodeId id, bool entries) {
    const ValueId old = graph_.node(id).inputs[1];
    const Tensor table = *ConstantOf(graph_, old);
    Tensor changed = Tensor::Zeros(entries ? to_ : table.dtype(), table.dims());
    for (size_t i = 0; i < table.bytes().size(); ++i) {
      changed.mutable_bytes()[entries ? i : i ^ 0x80U] =
          entries ? table.bytes()[i] ^ kTopBit : table.bytes()[i];
    }
    const ValueId constant = graph_.AddConstant(graph_.value(old).name, std::move(changed));
    graph_.node(id).inputs[1] = constant;
  }

  Graph& graph_;
  const DataType to_, from_;
  std::vector<ValueId> set_;  // of values: another of the same set, or itself
  std::vector<bool> stays_;
  std::map<ValueId, ValueId> shifted_;
  bool multiplied_ = false;
};

}  // namespace

absl::StatusOr<Graph> RetypeByteActivations(Graph graph, const PassOptions& options,
                                            const StepContext& context) {
  if (options.activation_bytes == DataType::kUndefined) return graph;
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return RetypeByteActivations(std::move(body), options, context); }));
  Retyper(graph, options.activation_bytes).Run();
  return Settled(std::move(graph));
}

}  // namespace quench::passes
