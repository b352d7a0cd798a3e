// Types while a program is read: PyTorch's control flow depends on ranks, sizes and element types, so each
// call is converted at once, into a graph that is then discarded.
#pragma once

#include <memory>
#include <vector>

#include "common/ir/graph.h"
#include "services/importer/graph/converter.h"

namespace quench::importer {

class TypeProbe {
 public:
  TypeProbe();

  // Sets the symbols of the model's inputs, before the first call.
  void SetSymbols(const SymbolTable& symbols);
  ValueId AddValue(Type type);
  ValueId AddConstant(std::shared_ptr<const Constant> constant);
  // A value that is either `a` or `b`: where their sizes differ, its size is unknown.
  ValueId Join(ValueId a, ValueId b);
  // `a` with unknown sizes and contents.
  ValueId Blur(ValueId a);
  // The node's outputs, of unknown type if it could not be converted: `problem` has the first reason.
  std::vector<ValueId> Convert(const Node& node, const std::vector<ValueId>& inputs,
                               const Conversion& convert);

  const Value& value(ValueId id) const { return graph_.value(id); }
  const absl::Status& problem() const { return problem_; }

 private:
  friend class ProbeConverter;
  void Infer(Node node);
  bool Fold(const Node& node);
  Dim NewDim();

  Graph graph_;
  absl::Status problem_;
  int64_t names_ = 0;
};

}  // namespace quench::importer
