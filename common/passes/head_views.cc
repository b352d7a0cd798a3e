#include "common/passes/head_views.h"

#include <algorithm>
#include <vector>

#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr size_t kDeepest = 12;  // operators read through

// Elements of a source: element i[] is at offset + sum of i[k] * strides[k].
struct View {
  std::vector<Dim> dims, strides;
  int64_t offset = 0;
};

View WholeOf(SymbolTable& symbols, const Type& type) {
  View view;
  view.dims = type.dims;
  view.strides.assign(type.dims.size(), Dim(1));
  for (size_t i = type.dims.size(); i-- > 1;)
    view.strides[i - 1] = symbols.Mul(view.strides[i], type.dims[i]);
  return view;
}

std::optional<size_t> AxisIn(const View& view, int64_t axis) {
  const auto rank = static_cast<int64_t>(view.dims.size());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return std::nullopt;
  return static_cast<size_t>(axis);
}

// Moves the start along an axis.
bool Advance(View& view, size_t axis, int64_t by) {
  if (by == 0) return true;
  if (!view.strides[axis].is_static() || by < 0) return false;
  view.offset += by * view.strides[axis].value();
  return true;
}

// An axis of static size as several.
bool SplitAxis(SymbolTable& symbols, const View& view, size_t i, const std::vector<Dim>& out,
               size_t& o, View& result) {
  if (!view.dims[i].is_static()) return false;
  std::vector<int64_t> parts;
  int64_t product = 1;
  while (product < view.dims[i].value() && o < out.size() && out[o].is_static()) {
    if (out[o].value() < 1) return false;
    parts.push_back(out[o].value());
    product *= out[o++].value();
  }
  if (product != view.dims[i].value()) return false;
  for (const int64_t part : parts) {
    product /= part;
    result.dims.emplace_back(part);
    result.strides.push_back(symbols.Mul(view.strides[i], product));
  }
  return true;
}

// Several axes that follow each other in the source as one.
bool MergeAxes(SymbolTable& symbols, const View& view, size_t& i, Dim out, View& result) {
  Dim product = view.dims[i];
  while (product != out) {
    if (i + 1 >= view.dims.size()) return false;
    if (view.strides[i] != symbols.Mul(view.dims[i + 1], view.strides[i + 1])) return false;
    product = symbols.Mul(product, view.dims[++i]);
  }
  result.dims.push_back(out);
  result.strides.push_back(view.strides[i++]);
  return true;
}

std::optional<View> Reshaped(SymbolTable& symbols, const View& view, const std::vector<Dim>& out) {
  View result;
  result.offset = view.offset;
  size_t i = 0;
  for (size_t o = 0; o < out.size();) {
    if (i < view.dims.size() && view.dims[i] == out[o]) {
      result.dims.push_back(view.dims[i]);
      result.strides.push_back(view.strides[i++]);
      ++o;
    } else if (out[o].is(1)) {
      result.dims.emplace_back(1);
      result.strides.emplace_back(0);
      ++o;
    } else if (i >= view.dims.size()) {
      return std::nullopt;
    } else if (view.dims[i].is(1)) {
      ++i;
    } else if (size_t at = o; SplitAxis(symbols, view, i, out, at, result)) {
      o = at;
      ++i;
    } else if (MergeAxes(symbols, view, i, out[o], result)) {
      ++o;
    } else {
      return std::nullopt;
    }
  }
  while (i < view.dims.size() && view.dims[i].is(1)) ++i;
  if (i < view.dims.size()) return std::nullopt;
  return result;
}

std::optional<View> Sliced(const Graph& graph, const Node& node, View view, const Type& type) {
  const auto constant = [&](size_t i) {
    return i < node.inputs.size() ? ConstantOf(graph, node.inputs[i]) : nullptr;
  };
  const Tensor* starts = constant(1);
  const Tensor* axes = constant(3);
  const Tensor* steps = constant(4);
  if (starts == nullptr || axes == nullptr || axes->size() != starts->size()) return std::nullopt;
  if (node.inputs.size() > 4 && node.inputs[4] != kNone && steps == nullptr) return std::nullopt;
  for (int64_t i = 0; i < starts->size(); ++i) {
    if (steps != nullptr && steps->IntAt(i) != 1) return std::nullopt;
    const std::optional<size_t> axis = AxisIn(view, axes->IntAt(i));
    if (!axis || !view.dims[*axis].is_static()) return std::nullopt;
    const int64_t size = view.dims[*axis].value();
    const int64_t start = starts->IntAt(i) < 0 ? starts->IntAt(i) + size : starts->IntAt(i);
    if (start > size || !Advance(view, *axis, std::max<int64_t>(start, 0))) return std::nullopt;
  }
  view.dims = type.dims;
  return view;
}

std::optional<View> Gathered(const Graph& graph, const Node& node, View view) {
  const Tensor* index = ConstantOf(graph, node.inputs[1]);
  const std::optional<size_t> axis = AxisIn(view, node.Int("axis", 0));
  if (index == nullptr || index->rank() != 0 || !axis || !view.dims[*axis].is_static())
    return std::nullopt;
  const int64_t size = view.dims[*axis].value();
  const int64_t at = index->IntAt(0) < 0 ? index->IntAt(0) + size : index->IntAt(0);
  if (at < 0 || at >= size || !Advance(view, *axis, at)) return std::nullopt;
  view.dims.erase(view.dims.begin() + static_cast<ptrdiff_t>(*axis));
  view.strides.erase(view.strides.begin() + static_cast<ptrdiff_t>(*axis));
  return view;
}

// The part of the source that output `id` of a node shows; the view of the source is the node's
// first input.
std::optional<View> Through(const Graph& graph, const Node& node, ValueId id, View view) {
  const Type& type = graph.value(id).type;
  SymbolTable& symbols = *graph.symbols;
  if (node.op == "Reshape" || node.op == "Squeeze" || node.op == "Unsqueeze" ||
      node.op == "Flatten")
    return Reshaped(symbols, view, type.dims);
  if (node.op == "Transpose") {
    const std::vector<int64_t> perm = node.Ints("perm");
    if (perm.size() != view.dims.size()) return std::nullopt;
    const View from = view;
    for (size_t i = 0; i < perm.size(); ++i) {
      const std::optional<size_t> axis = AxisIn(from, perm[i]);
      if (!axis) return std::nullopt;
      view.dims[i] = from.dims[*axis];
      view.strides[i] = from.strides[*axis];
    }
    return view;
  }
  if (node.op == "Split") {
    const std::optional<size_t> axis = AxisIn(view, node.Int("axis", 0));
    if (!axis) return std::nullopt;
    for (const ValueId part : node.outputs) {
      if (part == id) break;
      if (part == kNone || !graph.value(part).type.dims[*axis].is_static() ||
          !Advance(view, *axis, graph.value(part).type.dims[*axis].value()))
        return std::nullopt;
    }
    view.dims = type.dims;
    return view;
  }
  if (node.op == "Slice") return Sliced(graph, node, std::move(view), type);
  if (node.op == "Gather") return Gathered(graph, node, std::move(view));
  return std::nullopt;
}

// The view as heads of its source.
std::optional<HeadView> AsHeads(const Graph& graph, ValueId source, View view, bool transposed) {
  const std::vector<Dim>& dims = graph.value(source).type.dims;
  SymbolTable& symbols = *graph.symbols;
  if (view.dims.size() != 3 && view.dims.size() != 4) return std::nullopt;
  const bool one = view.dims.size() == 3;
  if (one) {
    view.dims.insert(view.dims.begin() + 1, Dim(1));
    view.strides.insert(view.strides.begin() + 1, Dim(0));
  }
  if (transposed) {
    std::swap(view.dims[2], view.dims[3]);
    std::swap(view.strides[2], view.strides[3]);
  }
  if (!view.dims[1].is_static() || !view.dims[3].is_static()) return std::nullopt;
  HeadView heads;
  heads.source = source;
  heads.offset = view.offset;
  heads.batch = view.dims[0];
  heads.heads = view.dims[1].value();
  heads.steps = view.dims[2];
  heads.size = view.dims[3].value();
  if (heads.heads < 1 || heads.size < 1) return std::nullopt;
  const auto strides = [&](size_t axis, Dim stride) {
    return view.dims[axis].is(1) || view.strides[axis] == stride;
  };
  if (!strides(3, 1)) return std::nullopt;
  if (dims.size() == 4 && dims == view.dims && view.offset == 0) {
    const Dim head = symbols.Mul(heads.steps, heads.size);
    if (strides(2, heads.size) && strides(1, head) && strides(0, symbols.Mul(head, heads.heads)))
      return heads;
  }
  if (dims.size() != 3 || dims[0] != heads.batch || dims[1] != heads.steps ||
      !dims[2].is_static() || heads.offset + heads.heads * heads.size > dims[2].value())
    return std::nullopt;
  const bool fits =
      strides(1, heads.size) && strides(2, dims[2]) && strides(0, symbols.Mul(dims[1], dims[2]));
  return fits ? std::optional(heads) : std::nullopt;
}

}  // namespace

std::optional<HeadView> FindHeads(const Graph& graph, ValueId id, bool transposed) {
  std::vector<ValueId> chain = {id};
  while (chain.size() <= kDeepest) {
    const NodeId producer = graph.value(chain.back()).producer;
    if (producer == kNone || graph.node(producer).inputs.empty()) break;
    const ValueId before = graph.node(producer).inputs[0];
    if (before == kNone || !graph.value(before).type.ranked) break;
    chain.push_back(before);
  }
  for (size_t source = chain.size(); source-- > 0;) {
    std::optional<View> view = WholeOf(*graph.symbols, graph.value(chain[source]).type);
    for (size_t i = source; i-- > 0 && view;)
      view = Through(graph, graph.node(graph.value(chain[i]).producer), chain[i], *view);
    if (!view) continue;
    if (const auto heads = AsHeads(graph, chain[source], *view, transposed)) return heads;
  }
  return std::nullopt;
}

}  // namespace quench::passes
