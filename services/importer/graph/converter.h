// The conversion of one node of a model into canonical nodes: the interface for the operators of all
// formats.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ir/graph.h"

namespace quench::importer {

using Attributes = std::map<std::string, Attribute>;

// One imported node, and the canonical graph it goes to. Values are those of the canonical graph;
// their types are inferred as nodes are emitted. A converter emits any number of intermediate nodes
// and exactly one Final, whose outputs are the node's own.
class Converter {
 public:
  virtual ~Converter() = default;

  const Node& node() const { return node_; }
  int version() const { return node_.version; }

  const std::vector<ValueId>& inputs() const { return inputs_; }
  ValueId in(int i) const { return has(i) ? inputs_[static_cast<size_t>(i)] : kNone; }
  bool has(int i) const {
    return i < static_cast<int>(inputs_.size()) && inputs_[static_cast<size_t>(i)] != kNone;
  }
  int num_outputs() const { return static_cast<int>(node_.outputs.size()); }
  // Whether output i exists and is used.
  virtual bool IsUsed(int output) const = 0;

  // The model's own declaration of output i, often with only the element type.
  virtual const Type& declared(int output) const = 0;

  // kNone has an unknown type and no constant. The reference is valid until a value is added.
  virtual const Type& type(ValueId id) const = 0;
  virtual const Tensor* constant(ValueId id) const = 0;
  // Elements of an integer scalar or list, if constants or shapes determine them.
  virtual std::optional<std::vector<Dim>> elements(ValueId id) const = 0;
  virtual SymbolTable& symbols() = 0;  // of these dims
  // Whether types hold for every run of the node. In a loop they do not: its first iteration may have
  // other types than later ones.
  virtual bool types_are_final() const = 0;
  // Rank of a value, -1 while unknown.
  int Rank(ValueId id) const { return type(id).ranked ? type(id).rank() : -1; }
  // Error unless the element type, or the rank, of input i is known.
  absl::Status RequireDataType(int i) const;
  absl::Status RequireRank(int i) const;

  virtual ValueId AddConstant(Tensor tensor) = 0;
  ValueId Ints(const std::vector<int64_t>& values) { return AddConstant(Tensor::I64(values)); }
  // A scalar of type `dtype` (a float, integer or bool type) nearest to `value`.
  ValueId Scalar(DataType dtype, double value);
  // An intermediate node with one output.
  virtual ValueId Emit(const std::string& op, std::vector<ValueId> inputs,
                       Attributes attributes = {}) = 0;
  // An intermediate node with several outputs.
  virtual std::vector<ValueId> EmitMany(const std::string& op, std::vector<ValueId> inputs,
                                        int outputs, Attributes attributes = {}) = 0;
  // Emits the node that has the imported node's outputs.
  virtual absl::Status Final(const std::string& op, std::vector<ValueId> inputs,
                             Attributes attributes = {}) = 0;
  // Instead of Final: output i of the imported node is the value `ids[i]` (kNone for unused ones).
  virtual absl::Status FinalValues(const std::vector<ValueId>& ids) = 0;
  // Instead of Final: the imported node's only output is this constant.
  virtual absl::Status FinalConstant(Tensor tensor) = 0;

  // Instead of Final, for If, Loop and Scan: the node with its bodies converted and their captures
  // explicit.
  virtual absl::Status FinalControl() = 0;

  // Warns that the imported node may not compute what the model's author meant: adds "node `name` (Op): "
  // + text to WarningsOf(the canonical graph).
  virtual void Warn(const std::string& text) = 0;

  // The operator's name for messages.
  virtual const std::string& shown_op() const { return node_.op; }
  // "node `name` (Op): " + text.
  absl::Status Error(const std::string& text) const;
  absl::Status Unsupported(const std::string& text) const;

 protected:
  Converter(const Node& node, std::vector<ValueId> inputs)
      : node_(node), inputs_(std::move(inputs)) {}

 private:
  const Node& node_;
  std::vector<ValueId> inputs_;
};

// The conversion of a format's operator into canonical nodes; null if the catalogue lacks it.
using ConvertFunction = absl::Status (*)(Converter&);

// The conversion of nodes of this domain and name; empty if there is none.
using Conversion = std::function<absl::Status(Converter&)>;
using FindConversion = std::function<Conversion(std::string_view domain, std::string_view op)>;

}  // namespace quench::importer
