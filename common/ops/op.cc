// An operator's view of its node: OpContext, InferContext, LowerContext.
#include "common/ops/op.h"

#include <algorithm>

#include "common/base/status.h"

namespace quench::ops {
namespace {

// Contents longer than this are data, not shape arithmetic.
constexpr int64_t kMaxElements = 1024;

std::string Sanitised(const std::string& node) {
  std::string name;
  for (const char c : node) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += plain ? c : '_';
  }
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) name.insert(0, "n");
  return name;
}

std::optional<std::vector<Dim>> ElementsOf(const Tensor& tensor) {
  const bool integer = IsInteger(tensor.dtype()) || tensor.dtype() == DataType::kBool;
  if (!integer || tensor.rank() > 1 || tensor.size() > kMaxElements) return std::nullopt;
  std::vector<Dim> dims;
  for (const int64_t value : tensor.ToInts()) dims.push_back(value);
  return dims;
}

// Name of the index-th runtime symbol of `node`, and whether it exists already. Different nodes
// whose names are equal after sanitising get different symbols.
std::pair<std::string, std::optional<SymbolId>> RuntimeName(const SymbolTable& symbols,
                                                            const std::string& node, int index) {
  std::string name = fmt::format("{}_{}", Sanitised(node), index);
  for (;;) {
    const std::optional<SymbolId> found = symbols.Find(name);
    if (!found) return {name, std::nullopt};
    const auto* size = std::get_if<RuntimeSize>(&symbols.at(*found).definition);
    if (size != nullptr && size->node == node) return {name, found};
    name += '_';
  }
}

}  // namespace

std::optional<std::vector<Dim>> OpContext::elements(int i) const {
  if (!has_input(i)) return std::nullopt;
  const Operand& operand = *inputs_[static_cast<size_t>(i)];
  if (operand.constant != nullptr) return ElementsOf(*operand.constant);
  return operand.elements != nullptr ? *operand.elements : std::nullopt;
}

std::optional<std::vector<Dim>> KnownElements(const Value& value) {
  return value.constant != nullptr ? ElementsOf(value.constant->tensor) : value.elements;
}

std::optional<std::vector<int64_t>> OpContext::ints(int i) const {
  if (const Tensor* tensor = constant(i); tensor != nullptr) {
    if (IsInteger(tensor->dtype()) || tensor->dtype() == DataType::kBool) return tensor->ToInts();
    return std::nullopt;
  }
  const std::optional<std::vector<Dim>> dims = elements(i);
  if (!dims) return std::nullopt;
  std::vector<int64_t> values;
  for (const Dim dim : *dims) {
    if (!dim.is_static()) return std::nullopt;
    values.push_back(dim.value());
  }
  return values;
}

SymbolId OpContext::RuntimeSymbol(int index) const {
  const auto [name, id] = RuntimeName(symbols_, node_.name, index);
  QUENCH_CHECK(id.has_value());  // `infer` has run before any lowering
  return *id;
}

absl::Status OpContext::Error(const std::string& text) const {
  return InvalidArgument("node `{}` ({}): {}", node_.name, node_.op, text);
}

absl::Status OpContext::UnsupportedError(const std::string& text) const {
  return Unsupported("node `{}` ({}): {}", node_.name, node_.op, text);
}

void InferContext::SetOutput(int i, DataType dtype, std::vector<Dim> dims) {
  SetOutput(i, Type::Tensor(dtype, std::move(dims)));
}

void InferContext::SetOutput(int i, Type type) {
  if (i < static_cast<int>(outputs_.size())) outputs_[static_cast<size_t>(i)] = std::move(type);
}

void InferContext::SetElements(int i, std::vector<Dim> elements) {
  if (i >= static_cast<int>(outputs_.size()) || elements.size() > kMaxElements) return;
  output_elements_.resize(outputs_.size());
  output_elements_[static_cast<size_t>(i)] = std::move(elements);
}

Dim InferContext::RuntimeDim(int index, std::optional<Dim> upper) {
  const auto [name, id] = RuntimeName(symbols_, node_.name, index);
  return Dim::OfSymbol(id ? *id : symbols_.AddRuntime(name, node_.name, upper));
}

absl::StatusOr<int> InferContext::Axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) {
    return Error(fmt::format("axis {} is out of range, rank {} allows {} to {}", axis, rank, -rank,
                             rank - 1));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

absl::StatusOr<std::vector<Dim>> InferContext::Broadcast(
    std::span<const std::vector<Dim>> shapes) const {
  size_t rank = 0;
  for (const auto& shape : shapes) rank = std::max(rank, shape.size());
  std::vector<Dim> result(rank, Dim(1));
  for (const auto& shape : shapes) {
    const size_t shift = rank - shape.size();
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const Dim dim = shape[axis];
      Dim& out = result[shift + axis];
      if (dim.is(1) || dim == out) continue;
      if (out.is(1)) {
        out = dim;
      } else if (out.is_static() && dim.is_static()) {
        return Error(fmt::format("cannot broadcast {} against {} in axis {} of {}", dim.value(),
                                 out.value(), shift + axis, rank));
      } else if (dim.is_static()) {
        out = dim;
      } else if (!out.is_static()) {
        // Equal, or one of them is 1, which the nest checks: the larger one, unless it is a 1 beside a 0.
        const Dim least = symbols_.Min(out, dim);
        out = symbols_.Max(out, dim);
        if (symbols_.BoundsOf(least).min < 1) out = symbols_.Mul(out, symbols_.Min(least, 1));
      }
    }
  }
  return result;
}

LowerContext::LowerContext(const OpContext& op, loops::Builder& builder, bool sizes)
    : OpContext(op), builder_(builder) {
  ins_.resize(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i]) continue;
    const Type& type = inputs_[i]->type;
    ins_[i] = builder_.Input(fmt::format("in{}", i), type.dtype, Extents(type.dims));
  }
  outs_.resize(node_.outputs.size());
  for (size_t i = 0; !sizes && i < outs_.size(); ++i) {
    if (!has_output(static_cast<int>(i))) continue;
    const Type& type = outputs_[i];
    outs_[i] = builder_.Output(fmt::format("out{}", i), type.dtype, Extents(type.dims));
  }
}

loops::E LowerContext::Extent(Dim dim) {
  return dim.is_static() ? builder_.I(dim.value()) : builder_.Slot(dim.symbol());
}

std::vector<loops::E> LowerContext::Extents(std::span<const Dim> dims) {
  std::vector<loops::E> extents;
  for (const Dim dim : dims) extents.push_back(Extent(dim));
  return extents;
}

}  // namespace quench::ops
