#include "services/importer/onnx/oldest_opset.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "services/importer/onnx/model_file.h"

namespace quench::importer {
namespace {

constexpr int64_t kOldest = 21;  // canonical forms of all older operators are those of opset 21

// Type of the tensors within.
DataType ElementType(const Type& type) {
  return type.element.empty() ? type.dtype : ElementType(type.element[0]);
}

// A node and the types of what goes in and comes out.
struct Use {
  const Graph& graph;
  const Node& node;

  template <typename Predicate>
  bool AnyType(const Predicate& predicate) const {
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (id != kNone && predicate(ElementType(graph.value(id).type))) return true;
      }
    }
    return false;
  }
  DataType TypeOf(size_t input) const {
    return input < node.inputs.size() && node.inputs[input] != kNone
               ? ElementType(graph.value(node.inputs[input]).type)
               : DataType::kUndefined;
  }
  bool Among(std::initializer_list<DataType> types) const {
    return AnyType(
        [&](DataType each) { return std::find(types.begin(), types.end(), each) != types.end(); });
  }
};

// Opset from which any operator takes a type.
int64_t OpsetOf(DataType type) {
  switch (type) {
    case DataType::kBF16:
    case DataType::kF8E8M0:
      return 24;
    case DataType::kF4E2M1:
      return 23;
    case DataType::kU2:
    case DataType::kI2:
      return 25;
    case DataType::kUndefined:
      return kNewestOpset;
    default:
      return kOldest;
  }
}

// From the change logs of ONNX's operator schemas: what came after opset 21.
struct Newer {
  std::string_view op;
  int64_t opset;
  bool (*needed)(const Use&);
};

bool Always(const Use&) { return true; }
bool Brain(const Use& use) { return use.Among({DataType::kBF16}); }
bool BeyondFloat(const Use& use) {
  return use.Among({DataType::kF64, DataType::kF16, DataType::kBF16});
}
// Optional and its accessors took only the types of opset 15 until 28.
bool NewerThanSequences(const Use& use) {
  return use.AnyType(
      [](DataType type) { return static_cast<int>(type) >= static_cast<int>(DataType::kBF16); });
}

constexpr std::array kNewer = {
    Newer{"Attention", 24, Always},
    Newer{"Attention", 25,
          [](const Use& use) {
            return use.node.Int("left_window_size", -1) != -1 ||
                   use.node.Int("right_window_size", -1) != -1;
          }},
    Newer{"BitCast", 26, Always},
    Newer{"BitShift", 28,
          [](const Use& use) {
            return use.Among({DataType::kI8, DataType::kI16, DataType::kI32, DataType::kI64});
          }},
    Newer{"Cast", 24, [](const Use& use) { return use.node.String("round_mode", "up") != "up"; }},
    Newer{"CausalConvWithState", 27, Always},
    Newer{"Celu", 28, BeyondFloat},
    Newer{"Compress", 28, Brain},
    Newer{"CumProd", 26, Always},
    Newer{"DequantizeLinear", 23,
          [](const Use& use) { return use.node.Int("output_dtype", 0) != 0; }},
    Newer{"Einsum", 28, Brain},
    Newer{"LinearAttention", 27, Always},
    Newer{"OneHot", 28, Brain},
    Newer{"Optional", 28, NewerThanSequences},
    Newer{"OptionalGetElement", 28, NewerThanSequences},
    Newer{"OptionalHasElement", 28, NewerThanSequences},
    // Before, x had its scale's type.
    Newer{"QuantizeLinear", 23,
          [](const Use& use) {
            return use.node.Int("precision", 0) != 0 || use.TypeOf(0) != use.TypeOf(1);
          }},
    Newer{"RMSNormalization", 23, Always},
    Newer{"Range", 27, [](const Use& use) { return use.Among({DataType::kF16, DataType::kBF16}); }},
    Newer{"ReverseSequence", 28, Brain},
    Newer{"RotaryEmbedding", 23, Always},
    Newer{"SpaceToDepth", 28,
          [](const Use& use) { return use.node.String("mode", "DCR") != "DCR"; }},
    Newer{"SwiGLU", 28, Always},
    Newer{"Swish", 24, Always},
    Newer{"TensorScatter", 24, Always},
    Newer{"Unique", 28, Brain},
};

// Attributes that operators got after opset 21.
struct NewerAttribute {
  std::string_view op, attribute;
  int64_t opset;
};
constexpr std::array kNewerAttributes = {
    NewerAttribute{"Attention", "left_window_size", 25},
    NewerAttribute{"Attention", "right_window_size", 25},
    NewerAttribute{"Cast", "round_mode", 24},
    NewerAttribute{"DequantizeLinear", "output_dtype", 23},
    NewerAttribute{"QuantizeLinear", "precision", 23},
    NewerAttribute{"Range", "stash_type", 27},
    NewerAttribute{"SpaceToDepth", "mode", 28},
};

// The releases of ONNX: the IR version that each opset came with.
int64_t IrVersionOf(int64_t opset) {
  if (opset <= 22) return 10;
  if (opset == 23) return 11;
  if (opset == 24) return 12;
  return opset <= 27 ? 13 : kNewestIrVersion;
}

}  // namespace

bool IsNewerAttribute(const Node& node, std::string_view attribute, int64_t opset) {
  return std::any_of(
      kNewerAttributes.begin(), kNewerAttributes.end(), [&](const NewerAttribute& newer) {
        return newer.op == node.op && newer.attribute == attribute && newer.opset > opset;
      });
}

OnnxVersion OldestOpset(const Graph& graph) {
  int64_t opset = kOldest;
  ForEachGraph(graph, [&](const Graph& each) {
    for (const Value& value : each.values)
      opset = std::max(opset, OpsetOf(ElementType(value.type)));
    for (const Node& node : each.nodes) {
      for (const Newer& newer : kNewer) {
        if (newer.op == node.op && newer.needed({each, node})) opset = std::max(opset, newer.opset);
      }
    }
  });
  return {opset, IrVersionOf(opset)};
}

}  // namespace quench::importer
