// Graph IR: what a model computes.
//
// Values and nodes live in vectors and refer to one another by index. Nodes are kept in topological
// order. A node is an op name plus attributes; vocabulary and semantics are ONNX's at the newest
// opset, ops of our own start with `q.`. Bodies of If/Loop/Scan, `q.fused` and `q.partition` are graphs in
// attributes that share the symbol table and capture nothing: outer values are explicit inputs.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/dtype.h"
#include "common/ir/symbols.h"
#include "common/ir/tensor.h"

namespace quench {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;  // an omitted optional input or output, or no producer

enum class ValueKind : uint8_t { kTensor, kSequence, kOptional, kMap };

struct Type {
  ValueKind kind = ValueKind::kTensor;
  DataType dtype = DataType::kUndefined;  // tensor: element; map: key
  bool ranked = false;                    // false: not even the rank is known
  std::vector<Dim> dims;
  std::vector<Type> element;  // sequence, optional, map: exactly one

  static Type Tensor(DataType dtype, std::vector<Dim> dims) {
    return {ValueKind::kTensor, dtype, true, std::move(dims), {}};
  }
  int rank() const { return static_cast<int>(dims.size()); }
  bool is_static() const;  // ranked tensor whose dims are all integers
  bool known() const { return kind != ValueKind::kTensor || dtype != DataType::kUndefined; }
  friend bool operator==(const Type&, const Type&) = default;
};

// Constants and tensor attributes above this size travel by digest, not inside messages or text.
inline constexpr uint64_t kMaxInlineBytes = 4096;

// Part of a blob; blobs of weights have at most 256 MiB.
struct BlobRange {
  std::string blob;  // sha256 of the blob, hex
  uint64_t offset = 0;
  uint64_t size = 0;
  friend bool operator==(const BlobRange&, const BlobRange&) = default;
};

struct Constant {
  quench::Tensor tensor;
  std::string digest;  // sha256 (hex) of the tensor's own bytes; empty until computed
  // Where the bytes lie, in order: one range for almost all, several for tensors above 256 MiB,
  // none while the constant is only in memory.
  std::vector<BlobRange> location;
};

struct Value {
  std::string name;  // unique in its graph, never empty
  Type type;
  NodeId producer = kNone;  // kNone for inputs and constants
  std::shared_ptr<const Constant> constant;
  // Contents of small integer tensors of rank <= 1, as dims, where inference could tell (shape
  // arithmetic).
  std::optional<std::vector<Dim>> elements;
};

struct Graph;
using GraphPtr = std::shared_ptr<const Graph>;
using Attribute =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                 std::vector<std::string>, quench::Tensor, GraphPtr, Type>;

struct Node {
  std::string name;  // unique in its graph
  std::string op;
  std::string domain;  // imported stage only; "" is ONNX's own
  int version = 0;     // imported stage only: the opset the node was written against
  std::string origin;  // name in the source model, kept through passes; "" when it had none
  std::vector<ValueId> inputs;   // kNone for omitted ones
  std::vector<ValueId> outputs;  // kNone for unused ones
  std::map<std::string, Attribute> attributes;

  const Attribute* Find(const std::string& attribute) const;
  int64_t Int(const std::string& attribute, int64_t fallback) const;
  double Float(const std::string& attribute, double fallback) const;
  std::string String(const std::string& attribute, const std::string& fallback) const;
  std::vector<int64_t> Ints(const std::string& attribute) const;  // empty when absent
  std::vector<double> Floats(const std::string& attribute) const;
  GraphPtr Body(const std::string& attribute) const;  // null when absent

  // Means what its `body` means: a fusion group, or a partition for another backend.
  bool IsGroup() const { return op == "q.fused" || op == "q.partition"; }
};

enum class Stage : uint8_t { kImported, kCanonical, kQuantized };
std::string_view StageName(Stage stage);

// Metadata of a graph: sha256 (hex) of the model file that it was read from.
inline constexpr char kSourceDigest[] = "source_sha256";

struct Graph {
  std::string name;
  Stage stage = Stage::kCanonical;
  std::shared_ptr<SymbolTable> symbols = std::make_shared<SymbolTable>();
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  // producer, opset imports, doc: free text, not hashed
  std::map<std::string, std::string> metadata;

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  Node& node(NodeId id) { return nodes[static_cast<size_t>(id)]; }

  // `name` is made unique by a numeric suffix if it is taken.
  ValueId AddValue(const std::string& name, Type type = {});
  ValueId AddInput(const std::string& name, Type type);
  ValueId AddConstant(const std::string& name, quench::Tensor tensor);
  // Appends a node with `outputs` fresh values named `name`, `name.1`, ... and sets their
  // producers.
  NodeId AddNode(const std::string& op, const std::string& name, std::vector<ValueId> inputs,
                 int outputs = 1, std::map<std::string, Attribute> attributes = {});
  std::optional<ValueId> FindValue(const std::string& value_name) const;

  // Every use of `from` (node inputs, graph outputs) becomes `to`. A graph output keeps its name:
  // the names of the two values are swapped when `from` is an output and `to` is neither input,
  // constant nor output; else the output still refers to `from` (an Identity in its place is the
  // caller's business).
  void ReplaceUses(ValueId from, ValueId to);
  bool IsOutput(ValueId id) const;

  // Drops nodes whose outputs nobody uses and values that nothing refers to, restores topological
  // order and renumbers. Graph inputs always stay; bodies are left alone. Returns the number of
  // nodes dropped. CHECKs that there is no cycle.
  int Compact();

  // Number of uses (as node input or graph output) per value.
  std::vector<int> UseCounts() const;
};

// Calls visit(graph) on `graph` and every nested body, outermost first.
template <typename Visit>
void ForEachGraph(const Graph& graph, Visit&& visit) {
  visit(graph);
  for (const Node& node : graph.nodes) {
    for (const auto& [name, attribute] : node.attributes) {
      const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
      if (body != nullptr && *body != nullptr) ForEachGraph(**body, visit);
    }
  }
}

// Per symbol of the table, whether a type, known elements or a runtime size's bound needs it
// (bodies included); inputs and runtime sizes always count.
std::vector<bool> UsedSymbols(const Graph& graph);

// A copy in which the named input dims (by symbol name) have a fixed size and every dim expression
// is folded accordingly, bodies included.
absl::StatusOr<Graph> BindSymbols(const Graph& graph, const std::map<std::string, int64_t>& sizes);

}  // namespace quench
