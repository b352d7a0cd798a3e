// The operator catalogue: one file per operator, one row in ops.def.
//
// An operator's file holds everything Quench knows about it: arity and attribute checks, shape
// inference, MAC counts, quantization role, lowering to loops. Importer, analyser, quantizer and
// codegen read the same truth.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ir/graph.h"
#include "common/loops/builder.h"

namespace quench::ops {

// Read-only view of one node with everything known about its inputs.
class OpContext {
 public:
  struct Operand {
    Type type;
    const Tensor* constant = nullptr;                           // contents, when known
    const std::optional<std::vector<Dim>>* elements = nullptr;  // symbolic contents, when known
  };
  OpContext(const Node& node, std::vector<std::optional<Operand>> inputs, std::vector<Type> outputs,
            SymbolTable& symbols)
      : node_(node), inputs_(std::move(inputs)), outputs_(std::move(outputs)), symbols_(symbols) {}

  const Node& node() const { return node_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  bool has_input(int i) const {
    return i < num_inputs() && inputs_[static_cast<size_t>(i)].has_value();
  }
  const Type& input(int i) const { return inputs_[static_cast<size_t>(i)]->type; }
  // Concrete contents of input i, or null.
  const Tensor* constant(int i) const {
    return has_input(i) ? inputs_[static_cast<size_t>(i)]->constant : nullptr;
  }
  // Contents of an integer input of rank <= 1 as dims, from a constant or from shape arithmetic.
  std::optional<std::vector<Dim>> elements(int i) const;
  // The same when every element is a plain integer.
  std::optional<std::vector<int64_t>> ints(int i) const;

  int num_outputs() const { return static_cast<int>(node_.outputs.size()); }
  bool has_output(int i) const {
    return i < num_outputs() && node_.outputs[static_cast<size_t>(i)] != quench::kNone;
  }
  const Type& output(int i) const { return outputs_[static_cast<size_t>(i)]; }
  SymbolTable& symbols() const { return symbols_; }

  // The symbol that InferContext::RuntimeDim(index, ...) made for this node: what `lower_sizes`
  // sets.
  SymbolId RuntimeSymbol(int index) const;

  // "node `name` (Op): " + text, INVALID_ARGUMENT.
  absl::Status Error(const std::string& text) const;
  absl::Status UnsupportedError(const std::string& text) const;

 protected:
  const Node& node_;
  std::vector<std::optional<Operand>> inputs_;
  std::vector<Type> outputs_;
  SymbolTable& symbols_;
};

// Shape inference fills in the outputs.
class InferContext : public OpContext {
 public:
  using OpContext::OpContext;
  void SetOutput(int i, DataType dtype, std::vector<Dim> dims);
  void SetOutput(int i, Type type);
  // Symbolic contents of a small integer output, for shape arithmetic.
  void SetElements(int i, std::vector<Dim> elements);
  // A size that only a run can tell; the operator must have `lower_sizes` that sets it. `index`
  // tells several runtime sizes of one node apart. Idempotent: the same node and index give the
  // same symbol.
  Dim RuntimeDim(int index, std::optional<Dim> upper);

  // Validates and normalises an axis in [-rank, rank).
  absl::StatusOr<int> Axis(int64_t axis, int rank) const;
  // NumPy broadcasting of two or more shapes. Symbolic dims broadcast against 1 and themselves; of
  // two different dims where one is static > 1 the static one wins (checked when a run is planned).
  absl::StatusOr<std::vector<Dim>> Broadcast(std::span<const std::vector<Dim>> shapes) const;

  std::vector<Type>& outputs() { return outputs_; }
  std::vector<std::optional<std::vector<Dim>>>& output_elements() { return output_elements_; }

 private:
  std::vector<std::optional<std::vector<Dim>>> output_elements_;
};

// Lowering: buffers for the present inputs and outputs are already declared (`sizes`: inputs only).
class LowerContext : public OpContext {
 public:
  LowerContext(const OpContext& op, loops::Builder& builder, bool sizes = false);
  loops::Builder& b() { return builder_; }
  loops::B in(int i) const { return ins_[static_cast<size_t>(i)]; }    // invalid when omitted
  loops::B out(int i) const { return outs_[static_cast<size_t>(i)]; }  // invalid when unused
  // A dim as an expression: a constant or a slot.
  loops::E Extent(Dim dim);
  std::vector<loops::E> Extents(std::span<const Dim> dims);

 private:
  loops::Builder& builder_;
  std::vector<loops::B> ins_;
  std::vector<loops::B> outs_;
};

enum class OpKind : uint8_t {
  kNest,       // lowered by `lower`
  kPointwise,  // one scalar expression per element, given by `scalar`; lowered by the catalogue
  kView,  // output is the input's bytes with other dims (Reshape, Squeeze, Flatten, Identity, ...)
  kControl,  // If, Loop, Scan: run by the evaluator and by codegen, not lowered
};

// The quantizer's permission for the operator.
enum class QuantRole : uint8_t {
  kNone,     // stays in float; of pointwise ones: a step of the input may change the output by much
             // (1 / x, log, sqrt, exp)
  kCompute,  // has an integer kernel with its own output scale (Conv, MatMul, Add, ...)
  kPassThrough,  // moves values: output shares the input's scale (MaxPool, Reshape, Transpose, ...)
};

// How the operator acts on tensors whose axes stand in another order: what a pass that moves
// Transposes has to know. Pointwise operators that broadcast act in any order; nothing says so here.
enum class AxisRole : uint8_t {
  kFixed,        // the order is part of what it computes (Conv, MatMul, Reshape)
  kAxis,         // all inputs and outputs alike; attribute `axis` names one (Concat, Softmax)
  kAxisOfFirst,  // the same for input 0; the others are not tensors of that shape (Split, QuantizeLinear)
  kReduced,  // input 1 lists axes of input 0, which attribute `keepdims` keeps (ReduceMean)
  kPerAxis,  // input 1 has an entry for the begin of each axis, then one for each end (Pad)
  kListed,   // input 3 lists axes of input 0; without it they are the first ones (Slice)
};

// The kind of an operator's work. services/analyser counts by it; docs/analysing.md has the rules.
enum class WorkKind : uint8_t {
  kNone,         // moves values, or nothing is known; pointwise operators are elementwise anyway
  kConvolution,  // of those that have `macs`
  kProduct,      // the others that have `macs`
  kRecurrent,    // of those that have `macs`
  kElementwise,
  kNormalisation,
  kPooling,
  kReduction,
};

struct AttributeSpec {
  std::string name;
  enum Kind { kInt, kFloat, kString, kInts, kFloats, kStrings, kTensor, kGraph } kind = kInt;
  bool required = false;
};

struct OpDef {
  std::string name;
  std::string summary;  // one line for `quench ops`
  OpKind kind = OpKind::kNest;
  int min_inputs = 1;
  int max_inputs = 1;  // -1: any number
  int min_outputs = 1;
  int max_outputs = 1;  // -1: any number
  std::vector<AttributeSpec> attributes = {};
  QuantRole quant = QuantRole::kNone;
  AxisRole axes = AxisRole::kFixed;
  WorkKind work = WorkKind::kNone;  // see WorkOf
  int bias = -1;                    // the input that is added to every element of output 0, if any

  // Output types from input types; errors name what was found and what the operator takes.
  absl::Status (*infer)(InferContext&) = nullptr;
  // Multiply-accumulates without bias, as a dim expression. Null: none.
  Dim (*macs)(const OpContext&) = nullptr;
  // kPointwise: the element, from operands already widened to their compute types (invalid E for
  // omitted ones).
  absl::StatusOr<loops::E> (*scalar)(const OpContext&, loops::Builder&,
                                     std::span<const loops::E> operands) = nullptr;
  // kPointwise: output axis of each dim of operand i; null means right-aligned NumPy broadcasting.
  std::vector<int> (*operand_axes)(const OpContext&, int operand) = nullptr;
  // kNest: the computation.
  absl::Status (*lower)(LowerContext&) = nullptr;
  // kNest: output 0 is input 0 except for the elements that `lower` writes. The caller that runs
  // its loops first copies all of input 0 there, unless both are the same memory.
  bool updates = false;
  // Present iff `infer` may create runtime dims: a function over the same inputs (no outputs) that
  // sets them.
  absl::Status (*lower_sizes)(LowerContext&) = nullptr;
};

// The catalogue, sorted by name.
std::span<const OpDef* const> AllOps();
const OpDef* FindOp(std::string_view name);
// Names closest to `name`, best first, for error texts.
std::vector<std::string> SimilarOps(std::string_view name, int count = 3);

// Checks arity, attributes (unknown, missing, wrong kind) of a canonical node against its OpDef.
absl::Status CheckNode(const Graph& graph, const Node& node);

// Builds the context of a node from its graph (types, constants, elements of its operands).
OpContext ContextOf(const Graph& graph, const Node& node);

// Elements of an integer scalar or list, symbolic or not, where constants or shapes say them.
std::optional<std::vector<Dim>> KnownElements(const Value& value);

// Infers output types (and elements) of one node and writes them to its output values.
absl::Status InferNode(Graph& graph, Node& node);
// Infers every node, bodies included; reports all failing nodes at once. Requires topological
// order.
absl::Status InferGraph(Graph& graph);

// Loops of a kNest, kPointwise or kView operator for the given types. Buffers: present inputs, then
// present outputs.
absl::StatusOr<loops::Function> LowerNode(const OpContext& op);
// Loops that compute the node's runtime sizes, or nullopt when it has none.
absl::StatusOr<std::optional<loops::Function>> LowerSizes(const OpContext& op);
// The scalar function of a kPointwise operator. Parameters: present inputs in order.
absl::StatusOr<loops::ScalarFunction> ScalarOf(const OpContext& op);
// Output axis of every dim of operand i of a pointwise operator (right-aligned unless the op says
// otherwise).
std::vector<int> OperandAxes(const OpContext& op, int operand);

}  // namespace quench::ops
