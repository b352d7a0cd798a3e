// Finds attention, and has it computed without its scores: q.attention.
//   pre: types inferred; f32, f16 or bf16
//   MatMul(q, k^T) -> Mul or Div by a number -> Add(mask) or Where(mask, ., number) -> Softmax -> MatMul(., v)
//     ==>   q.attention(q, k, v, mask)
//   Casts between f32, f16 and bf16 on that way go: the scores stay f32
//   Attention   ==>   the same, past keys and values joined by Concat before; unless it has windows, its scores are
//   wanted or not f32, or types do not tell that its mask and lengths fit
//   Reshapes, Transposes, Splits, Slices and Gathers that only take heads out of [batch, steps, columns] are read
//   through; so is the Transpose with which the heads of the result are put side by side.
//   A mask that is a constant triangle, from its begin   ==>   causal: keys that no query of a tile reaches do not
//   count, whatever they hold; a triangle that is too small for a run is taken as continued
//   MatMul(x, a), MatMul(x, b), MatMul(x, c) as q, k and v, with constants added or not   ==>   one MatMul
//   case: attention.ir.txt, AttentionPassTest
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/passes/dequantized.h"
#include "common/passes/head_views.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

bool IsFloat32OrHalf(const Type& type) {
  return type.kind == ValueKind::kTensor && type.ranked &&
         (type.dtype == DataType::kF32 || type.dtype == DataType::kF16 ||
          type.dtype == DataType::kBF16);
}

std::optional<double> NumberOf(const Graph& graph, ValueId id) {
  const Tensor* tensor = ConstantOf(graph, id);
  if (tensor == nullptr || tensor->size() != 1 || !IsFloat(tensor->dtype())) return std::nullopt;
  return tensor->FloatAt(0);
}

// Scores of which this is added, or that are chosen where this is not set, have no weight: e^x of what
// is so far below the largest is 0.
constexpr double kShutOut = -1e30;

// Whether a mask, a constant or slices from its begin, lets query i attend keys 0 to i and no others. Types
// need not tell that it is as large as the scores, but that it is not a row or column for all of them.
bool IsTriangle(const Graph& graph, ValueId mask, const Type& scores) {
  const Type& type = graph.value(mask).type;
  while (const Node* slice = ProducerOf(graph, mask, "Slice")) {
    const Tensor* starts = ConstantOf(graph, slice->inputs[1]);
    const bool has_steps = slice->inputs.size() > 4 && slice->inputs[4] != kNone;
    const Tensor* steps = has_steps ? ConstantOf(graph, slice->inputs[4]) : nullptr;
    if (starts == nullptr || (has_steps && steps == nullptr)) return false;
    for (int64_t i = 0; i < starts->size(); ++i) {
      if (starts->IntAt(i) != 0 || (steps != nullptr && steps->IntAt(i) != 1)) return false;
    }
    mask = slice->inputs[0];
  }
  const Tensor* tensor = ConstantOf(graph, mask);
  if (tensor == nullptr || tensor->rank() < 2 || !type.ranked || type.rank() != tensor->rank() ||
      type.rank() > scores.rank() || tensor->size() == 0)
    return false;
  for (const int axis : {1, 2}) {  // from the end
    const Dim own = type.dims[static_cast<size_t>(type.rank() - axis)];
    const Dim full = scores.dims[static_cast<size_t>(scores.rank() - axis)];
    const int64_t whole = tensor->dims()[static_cast<size_t>(tensor->rank() - axis)];
    if (own != graph.symbols->Min(full, whole) || (whole == 1 && !full.is(1))) return false;
  }
  const int64_t columns = tensor->dims().back();
  const int64_t rows = tensor->dims()[static_cast<size_t>(tensor->rank()) - 2];
  if (rows * columns != tensor->size()) return false;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const double value = tensor->dtype() == DataType::kBool
                               ? (tensor->IntAt(i * columns + j) != 0 ? 0 : kShutOut)
                               : tensor->FloatAt(i * columns + j);
      if (j <= i ? value != 0 : !(value <= kShutOut)) return false;
    }
  }
  return true;
}

// The parts of a q.attention, heads apart: tensors of [batch, heads, steps, size].
struct Found {
  ValueId query = kNone, key = kNone, value = kNone;
  bool key_transposed = false;  // [batch, heads, size, steps]
  ValueId mask = kNone, lengths = kNone;
  double scale = 1, cap = 0;
  double fill = -std::numeric_limits<double>::infinity();
  bool causal = false, at_end = false, empty_is_zero = false;
};

class AttentionFinder {
 public:
  explicit AttentionFinder(Graph& graph) : graph_(graph), uses_(graph.UseCounts()) {
    readers_.resize(graph.values.size(), quench::kNone);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId id : graph.nodes[i].inputs) {
        if (id != quench::kNone) readers_[static_cast<size_t>(id)] = static_cast<NodeId>(i);
      }
    }
  }

  // Whether the node was the last of an attention that is rewritten now.
  bool Rewrite(NodeId id) {
    const Node node = graph_.node(id);  // adding nodes moves them
    std::optional<Found> found;
    if (node.op == "MatMul") found = OfProducts(node);
    if (node.op == "Attention") found = OfAttention(node);
    return found && Write(id, *found);
  }

 private:
  const Type& TypeOf(ValueId id) const { return graph_.value(id).type; }

  // Uses of a value that there was before; 0 for others.
  int Uses(ValueId id) const {
    return static_cast<size_t>(id) < uses_.size() ? uses_[static_cast<size_t>(id)] : 0;
  }
  // The node that makes a value nobody else reads.
  const Node* OnlyFor(ValueId id, std::string_view op) const {
    if (Uses(id) != 1) return nullptr;
    return ProducerOf(graph_, id, op);
  }

  // ---- patterns ----

  // The value that a Cast between f32 and 16 bits rounds or widens, for nobody else; else `id`.
  ValueId BehindCast(ValueId id) const {
    const Node* cast = OnlyFor(id, "Cast");
    const bool floats =
        cast != nullptr && IsFloat32OrHalf(TypeOf(id)) && IsFloat32OrHalf(TypeOf(cast->inputs[0]));
    return floats ? cast->inputs[0] : id;
  }

  std::optional<Found> OfProducts(const Node& mix) {
    const Node* softmax = OnlyFor(BehindCast(mix.inputs[0]), "Softmax");
    if (softmax == nullptr) return std::nullopt;
    const Type& type = TypeOf(softmax->inputs[0]);
    const int64_t axis = softmax->Int("axis", -1);
    if (!IsFloat32OrHalf(type) || (axis != -1 && axis != type.rank() - 1)) return std::nullopt;
    if (type.rank() != 3 && type.rank() != 4) return std::nullopt;
    Found found;
    ValueId scores = BehindCast(softmax->inputs[0]);
    const ValueId inner = BehindMask(scores, found);
    if (inner != quench::kNone) scores = inner;
    while (const std::optional<ValueId> unscaled = BehindScale(scores, found.scale))
      scores = *unscaled;
    const Node* product = OnlyFor(BehindCast(scores), "MatMul");
    if (product == nullptr) return std::nullopt;
    found.query = product->inputs[0];
    found.key = product->inputs[1];
    found.key_transposed = true;
    found.value = mix.inputs[1];
    for (const ValueId part : {found.query, found.key, found.value}) {
      if (TypeOf(part).rank() != type.rank() ||
          TypeOf(part).dtype != TypeOf(product->outputs[0]).dtype)
        return std::nullopt;
    }
    return found;
  }

  // The scores that a mask was added to, or chosen instead of.
  ValueId BehindMask(ValueId scores, Found& found) {
    if (const Node* add = OnlyFor(scores, "Add")) {
      for (const size_t i : {0U, 1U}) {
        const ValueId mask = add->inputs[1 - i];
        const Node* product = ProductOf(add->inputs[i]);
        if (product != nullptr && TakeMask(mask, TypeOf(product->outputs[0]), found))
          return add->inputs[i];
      }
    }
    if (const Node* where = OnlyFor(scores, "Where")) {
      const std::optional<double> fill = NumberOf(graph_, where->inputs[2]);
      found.fill = fill.value_or(0);
      const Node* product = ProductOf(where->inputs[1]);
      if (!fill || product == nullptr ||
          !TakeMask(where->inputs[0], TypeOf(product->outputs[0]), found))
        return quench::kNone;
      return where->inputs[1];
    }
    return quench::kNone;
  }

  bool TakeMask(ValueId mask, const Type& scores, Found& found) const {
    found.causal = found.fill <= kShutOut && IsTriangle(graph_, mask, scores);
    if (!found.causal && !MaskFits(mask, scores)) return false;
    if (!found.causal) found.mask = mask;
    return true;
  }

  // The product that is scaled to a value which nobody else reads.
  const Node* ProductOf(ValueId id) const {
    double scale = 1;
    while (const std::optional<ValueId> unscaled = BehindScale(id, scale)) id = *unscaled;
    return OnlyFor(BehindCast(id), "MatMul");
  }

  std::optional<ValueId> BehindScale(ValueId id, double& scale) const {
    id = BehindCast(id);
    if (const Node* mul = OnlyFor(id, "Mul")) {
      for (const size_t i : {0U, 1U}) {
        const std::optional<double> factor = NumberOf(graph_, mul->inputs[1 - i]);
        if (!factor || TypeOf(mul->inputs[i]).rank() != TypeOf(id).rank()) continue;
        scale *= *factor;
        return mul->inputs[i];
      }
    }
    if (const Node* div = OnlyFor(id, "Div")) {
      const std::optional<double> divisor = NumberOf(graph_, div->inputs[1]);
      if (!divisor || *divisor == 0 || TypeOf(div->inputs[0]).rank() != TypeOf(id).rank())
        return std::nullopt;
      scale /= *divisor;
      return div->inputs[0];
    }
    return std::nullopt;
  }

  // Each axis of a mask is 1 or that of the scores; the last one is.
  bool MaskFits(ValueId mask, const Type& scores) const {
    const Type& type = TypeOf(mask);
    if (type.kind != ValueKind::kTensor || !type.ranked || type.rank() < 1 ||
        type.rank() > scores.rank())
      return false;
    if (type.dtype != DataType::kBool && !IsFloat32OrHalf(type)) return false;
    for (int axis = 1; axis <= type.rank(); ++axis) {
      const Dim own = type.dims[static_cast<size_t>(type.rank() - axis)];
      const Dim full = scores.dims[static_cast<size_t>(scores.rank() - axis)];
      if (own != full && !(own.is(1) && axis > 1)) return false;
    }
    return true;
  }

  std::optional<Found> OfAttention(const Node& node) {
    const auto has = [&](const std::vector<ValueId>& ids, size_t i) {
      return i < ids.size() && ids[i] != quench::kNone;
    };
    const auto input = [&](size_t i) {
      return has(node.inputs, i) ? node.inputs[i] : quench::kNone;
    };
    const Type type = TypeOf(node.inputs[0]);
    if (!IsFloat32OrHalf(type) || has(node.outputs, 3) || node.Int("left_window_size", -1) >= 0 ||
        node.Int("right_window_size", -1) >= 0 ||
        static_cast<DataType>(
            node.Int("softmax_precision", static_cast<int64_t>(DataType::kF32))) != DataType::kF32)
      return std::nullopt;
    Found found;
    ValueId* const parts[] = {&found.query, &found.key, &found.value};
    for (size_t i = 0; i < 3; ++i) {
      const int64_t heads = node.Int(i == 0 ? "q_num_heads" : "kv_num_heads", 0);
      *parts[i] = WithHeads(node.inputs[i], heads);
      if (*parts[i] == quench::kNone) return std::nullopt;
    }
    const Type query = TypeOf(found.query);
    const Dim size = query.dims[3];
    if (!size.is_static() || size.value() < 1) return std::nullopt;
    found.scale = node.Find("scale") != nullptr ? node.Float("scale", 1)
                                                : 1 / std::sqrt(static_cast<double>(size.value()));
    found.cap = node.Float("softcap", 0);
    found.causal = node.Int("is_causal", 0) != 0;
    found.empty_is_zero = true;
    found.lengths = input(6);
    found.at_end = input(4) != quench::kNone;
    if (found.at_end != has(node.inputs, 5)) return std::nullopt;
    // Query i is at past + i, which counts from the end where there are as many new keys as queries.
    if (found.at_end && query.dims[2] != TypeOf(found.key).dims[2]) return std::nullopt;
    if (found.lengths != quench::kNone && TypeOf(found.lengths).dims[0] != query.dims[0])
      return std::nullopt;
    if (!found.at_end && (has(node.outputs, 1) || has(node.outputs, 2))) return std::nullopt;
    Dim keys = TypeOf(found.key).dims[2];
    if (found.at_end) keys = graph_.symbols->Add(TypeOf(input(4)).dims[2], keys);
    found.mask = input(3);
    const Type scores =
        Type::Tensor(type.dtype, {query.dims[0], query.dims[1], query.dims[2], keys});
    if (found.mask != quench::kNone && !MaskFits(found.mask, scores)) return std::nullopt;
    if (found.at_end) {
      found.key = Joined(node, input(4), found.key, 1, keys);
      found.value = Joined(node, input(5), found.value, 2, keys);
    }
    return found;
  }

  // [batch, heads, steps, size] of a tensor of rank 4 or 3.
  ValueId WithHeads(ValueId id, int64_t heads) {
    const Type type = TypeOf(id);
    if (type.rank() == 4) return id;
    if (type.rank() != 3 || heads < 1 || !type.dims[2].is_static() ||
        type.dims[2].value() % heads != 0)
      return quench::kNone;
    const int64_t size = type.dims[2].value() / heads;
    const ValueId cut =
        Reshaped(id, {0, 0, heads, size}, {type.dims[0], type.dims[1], heads, size});
    return Transposed(cut, {0, 2, 1, 3});
  }

  // Past and new keys; output `output` of the node is what it gives.
  ValueId Joined(const Node& node, ValueId past, ValueId fresh, size_t output, Dim keys) {
    Type type = TypeOf(past);
    type.dims[2] = keys;
    const ValueId joined =
        AddTyped(graph_, "Concat", node.name + (output == 1 ? ".keys" : ".values"), {past, fresh},
                 type, {{"axis", int64_t{2}}});
    if (output < node.outputs.size() && node.outputs[output] != quench::kNone)
      TakePlace(graph_, node.outputs[output], joined);
    return joined;
  }

  // ---- what takes its place ----

  ValueId Constant(const std::string& name, const std::vector<int64_t>& values) {
    return graph_.AddConstant(
        name, Tensor::Of(DataType::kI64, {static_cast<int64_t>(values.size())}, values));
  }
  ValueId Reshaped(ValueId id, const std::vector<int64_t>& shape, std::vector<Dim> dims) {
    const std::string name = graph_.value(id).name;
    const Type type = Type::Tensor(TypeOf(id).dtype, std::move(dims));
    return AddTyped(graph_, "Reshape", name + ".reshaped", {id, Constant(name + ".shape", shape)},
                    type);
  }
  ValueId Transposed(ValueId id, const std::vector<int64_t>& perm) {
    Type type = TypeOf(id);
    for (size_t i = 0; i < perm.size(); ++i)
      type.dims[i] = TypeOf(id).dims[static_cast<size_t>(perm[i])];
    return AddTyped(graph_, "Transpose", graph_.value(id).name + ".transposed", {id}, type,
                    {{"perm", perm}});
  }
  ValueId Unsqueezed(ValueId id, const std::vector<int64_t>& axes) {
    if (axes.empty()) return id;
    Type type = TypeOf(id);
    for (const int64_t axis : axes) type.dims.insert(type.dims.begin() + axis, Dim(1));
    const std::string name = graph_.value(id).name;
    return AddTyped(graph_, "Unsqueeze", name + ".unsqueezed", {id, Constant(name + ".axes", axes)},
                    type);
  }

  // As a mask of four axes for scores of `rank`.
  ValueId WholeMask(ValueId mask, int rank) {
    const int own = TypeOf(mask).rank();
    std::vector<int64_t> axes;
    if (rank == 3 && own == 3)
      axes = {1};
    else
      for (int axis = 0; axis < 4 - own; ++axis) axes.push_back(axis);
    return Unsqueezed(mask, axes);
  }

  // The keys of [batch, heads, size, steps] the other way round, of one Transpose.
  ValueId KeysOf(ValueId transposed) {
    const auto rank = static_cast<size_t>(TypeOf(transposed).rank());
    std::vector<int64_t> perm(rank);
    for (size_t i = 0; i < rank; ++i) perm[i] = static_cast<int64_t>(i);
    std::swap(perm[rank - 1], perm[rank - 2]);
    if (const Node* before = ProducerOf(graph_, transposed, "Transpose")) {
      const std::vector<int64_t> first = before->Ints("perm");
      const ValueId source = before->inputs[0];
      if (first.size() == rank) {
        std::vector<int64_t> both;
        for (const int64_t axis : perm) both.push_back(first[static_cast<size_t>(axis)]);
        return std::is_sorted(both.begin(), both.end()) ? source : Transposed(source, both);
      }
    }
    return Transposed(transposed, perm);
  }

  bool Write(NodeId id, Found found) {
    const Node node = graph_.node(id);
    const int rank = TypeOf(found.query).rank();
    const Type result = TypeOf(node.outputs[0]);  // adding values moves them
    std::optional<HeadView> views[3];
    const ValueId ids[] = {found.query, found.key, found.value};
    for (size_t i = 0; i < 3; ++i) {
      views[i] = FindHeads(graph_, ids[i], i == 1 && found.key_transposed);
      if (views[i]) continue;
      if (i != 1 || !found.key_transposed) return false;
      views[i] = FindHeads(graph_, KeysOf(found.key), false);
      if (!views[i]) return false;
    }
    const HeadView &q = *views[0], &k = *views[1], &v = *views[2];
    constexpr int64_t kWidest = 1024;  // products of wider heads are large enough by themselves
    if (k.heads != v.heads || q.heads % k.heads != 0 || q.size != k.size ||
        std::max(q.size, v.size) > kWidest)
      return false;
    // Broadcast batches stay products.
    if (q.batch != k.batch || k.batch != v.batch || k.steps != v.steps) return false;
    if (node.op == "MatMul" && q.heads != k.heads) return false;
    std::vector<ValueId> inputs = {q.source, k.source, v.source};
    std::vector<int64_t> offsets = {q.offset, k.offset, v.offset};
    MergeProducts(node.name, inputs, offsets);
    if (found.mask != quench::kNone || found.lengths != quench::kNone)
      inputs.push_back(found.mask == quench::kNone ? quench::kNone : WholeMask(found.mask, rank));
    if (found.lengths != quench::kNone) inputs.push_back(found.lengths);
    std::map<std::string, Attribute> attributes = {{"heads", q.heads},
                                                   {"kv_heads", k.heads},
                                                   {"size", q.size},
                                                   {"value_size", v.size},
                                                   {"scale", found.scale}};
    const auto flag = [&](const char* name, bool set) {
      if (set) attributes[name] = int64_t{1};
    };
    flag("causal", found.causal);
    flag("at_end", found.at_end);
    flag("empty_is_zero", found.empty_is_zero);
    if (found.cap > 0) attributes["softcap"] = found.cap;
    if (found.mask != quench::kNone && TypeOf(found.mask).dtype == DataType::kBool)
      attributes["fill"] = found.fill;
    if (offsets != std::vector<int64_t>{0, 0, 0}) attributes["offsets"] = offsets;
    const Type folded = Type::Tensor(result.dtype, {q.batch, q.steps, q.heads * v.size});
    const ValueId end = result.rank() == 3 ? node.outputs[0] : FoldedEnd(node.outputs[0], folded);
    const bool side_by_side = end != quench::kNone;
    flag("folded", side_by_side);
    const ValueId place = side_by_side ? end : node.outputs[0];
    const Type type = side_by_side ? folded : result;
    graph_.node(id).name += ".products";  // it goes, and leaves its name
    // A value of other dims than the model's must not have the model's name.
    const bool reshaped = side_by_side && TypeOf(place).rank() == 4;
    ValueId y = AddTyped(graph_, "q.attention", reshaped ? node.name + ".folded" : node.name,
                         inputs, type, attributes);
    graph_.node(graph_.value(y).producer).name = node.name;
    if (reshaped) y = Reshaped(y, {0, 0, q.heads, v.size}, {q.batch, q.steps, q.heads, v.size});
    graph_.node(graph_.value(y).producer).origin = node.origin;
    TakePlace(graph_, place, y);
    return true;
  }

  // Where heads of a result of rank 4 lie side by side: a Transpose that alone reads it, or a Reshape
  // that alone reads that.
  ValueId FoldedEnd(ValueId result, const Type& folded) const {
    const Node* transpose = OnlyReader(result, "Transpose");
    if (transpose == nullptr || transpose->Ints("perm") != std::vector<int64_t>{0, 2, 1, 3})
      return quench::kNone;
    const ValueId apart = transpose->outputs[0];
    const Node* reshape = OnlyReader(apart, "Reshape");
    if (reshape != nullptr && TypeOf(reshape->outputs[0]).dims == folded.dims)
      return reshape->outputs[0];
    return apart;
  }

  const Node* OnlyReader(ValueId id, std::string_view op) const {
    if (Uses(id) != 1 || readers_[static_cast<size_t>(id)] == quench::kNone) return nullptr;
    const Node& node = graph_.node(readers_[static_cast<size_t>(id)]);
    return node.op == op ? &node : nullptr;
  }

  // ---- one product for queries, keys and values ----

  struct Linear {
    ValueId x = kNone, weights = kNone, bias = kNone;
  };

  std::optional<Linear> LinearOf(ValueId id) const {
    Linear linear;
    ValueId product = id;
    if (const Node* add = OnlyFor(id, "Add")) {
      for (const size_t i : {0U, 1U}) {
        const Tensor* bias = ConstantOf(graph_, add->inputs[i]);
        if (bias == nullptr || bias->rank() != 1) continue;
        linear.bias = add->inputs[i];
        product = add->inputs[1 - i];
      }
      if (linear.bias == quench::kNone) return std::nullopt;
    }
    const Node* matmul = OnlyFor(product, "MatMul");
    if (matmul == nullptr) return std::nullopt;
    const Tensor* weights = ConstantOf(graph_, matmul->inputs[1]);
    if (weights == nullptr || weights->rank() != 2) return std::nullopt;
    const Tensor* bias = ConstantOf(graph_, linear.bias);
    if (bias != nullptr && bias->dims()[0] != weights->dims()[1]) return std::nullopt;
    linear.x = matmul->inputs[0];
    linear.weights = matmul->inputs[1];
    return linear;
  }

  void MergeProducts(const std::string& name, std::vector<ValueId>& inputs,
                     std::vector<int64_t>& offsets) {
    constexpr int64_t kMostBytes = int64_t{16} << 20;  // copies; larger products gain nothing
    std::vector<Tensor> weights, biases;
    ValueId x = quench::kNone;
    int64_t bytes = 0;
    for (size_t i = 0; i < 3; ++i) {
      const std::optional<Linear> linear = LinearOf(inputs[i]);
      if (TypeOf(inputs[i]).rank() != 3 || !linear || (i > 0 && linear->x != x) || offsets[i] != 0)
        return;
      x = linear->x;
      weights.push_back(*ConstantOf(graph_, linear->weights));
      if (linear->bias != quench::kNone) biases.push_back(*ConstantOf(graph_, linear->bias));
      bytes += static_cast<int64_t>(weights[i].bytes().size());
      if (weights[i].dtype() != weights[0].dtype() || bytes > kMostBytes) return;
    }
    if (!biases.empty() && biases.size() != 3) return;
    Type type = TypeOf(inputs[0]);
    int64_t columns = 0;
    for (size_t i = 0; i < 3; ++i) {
      offsets[i] = columns;
      columns += weights[i].dims()[1];
    }
    type.dims[2] = columns;
    ValueId all =
        AddTyped(graph_, "MatMul", name + ".qkv",
                 {x, graph_.AddConstant(name + ".qkv.weights", SideBySide(weights))}, type);
    if (!biases.empty()) {
      for (Tensor& bias : biases) bias = bias.Reshaped({1, bias.size()});
      const Tensor bias = SideBySide(biases).Reshaped({columns});
      all = AddTyped(graph_, "Add", name + ".qkv.biased",
                     {all, graph_.AddConstant(name + ".qkv.bias", bias)}, type);
    }
    inputs.assign(3, all);
  }

  // Matrices of as many rows.
  static Tensor SideBySide(const std::vector<Tensor>& parts) {
    const int64_t rows = parts[0].dims()[0], width = DataTypeBits(parts[0].dtype()) / 8;
    int64_t columns = 0;
    for (const Tensor& part : parts) columns += part.dims()[1];
    Tensor result = Tensor::Zeros(parts[0].dtype(), {rows, columns});
    std::byte* out = result.mutable_bytes();
    for (int64_t r = 0; r < rows; ++r) {
      for (const Tensor& part : parts) {
        const int64_t bytes = part.dims()[1] * width;
        out = std::copy_n(part.bytes().data() + r * bytes, bytes, out);
      }
    }
    return result;
  }

  Graph& graph_;
  const std::vector<int> uses_;  // of the values that there were
  std::vector<NodeId> readers_;  // one of each value
};

}  // namespace

absl::StatusOr<Graph> FuseAttention(Graph graph, const PassOptions& options,
                                    const StepContext& context) {
  const size_t nodes = graph.nodes.size();
  bool any = false;
  if (!options.whole_values) {
    AttentionFinder finder(graph);
    for (size_t i = 0; i < nodes; ++i) {
      QUENCH_RETURN_IF_ERROR(context.Check());
      if (finder.Rewrite(static_cast<NodeId>(i))) any = true;
    }
  }
  if (any || graph.nodes.size() > nodes) {
    QUENCH_ASSIGN_OR_RETURN(graph, Settled(std::move(graph)));
  }
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return FuseAttention(std::move(body), options, context); }));
  return graph;
}

}  // namespace quench::passes
