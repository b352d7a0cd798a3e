// Layers: convolutions, products, pools, recurrent networks, attention, resampling, spectra, integers.
#include <algorithm>

#include "tests/fuzz/graphs/grower.h"

namespace quench::fuzz {
namespace {

struct Window {
  Ints kernel, image;
  Attributes attributes;
};

// A kernel for the image axes `image`, or for new ones if it is empty.
Window SomeWindow(Grower& g, Ints image, bool dilated = true) {
  Window window;
  const auto rank =
      image.empty() ? static_cast<size_t>(g.dice.Pick({1, 2, 2, 2, 3})) : image.size();
  Ints dilations(rank, 1), strides(rank, 1), pads(2 * rank, 0);
  for (size_t i = 0; i < rank; ++i) {
    if (i >= window.image.size() && image.size() < rank)
      image.push_back(g.dice.Integer(3, rank == 3 ? 5 : 12));
    const int64_t most = std::min<int64_t>(image[i], g.dice.Chance(0.1) ? 5 : 3);
    window.kernel.push_back(g.dice.Integer(1, std::max<int64_t>(most, 1)));
    if (dilated && g.dice.Chance(0.2) && 2 * (window.kernel[i] - 1) < image[i]) dilations[i] = 2;
    if (g.dice.Chance(0.3)) strides[i] = g.dice.Integer(1, 3);
    if (g.dice.Chance(0.5)) pads[i] = g.dice.Integer(0, window.kernel[i] - 1);
    if (g.dice.Chance(0.5)) pads[rank + i] = g.dice.Integer(0, window.kernel[i] - 1);
  }
  window.image = std::move(image);
  window.attributes["strides"] = strides;
  if (dilated) window.attributes["dilations"] = dilations;
  // With SAME other runtimes think otherwise of strides beyond the kernel and of dilations.
  bool automatic = g.dice.Chance(0.15) && dilations == Ints(rank, 1);
  for (size_t i = 0; i < rank; ++i) automatic = automatic && strides[i] <= window.kernel[i];
  if (automatic) {
    window.attributes["auto_pad"] = g.dice.Pick<std::string>({"SAME_UPPER", "SAME_LOWER", "VALID"});
  } else {
    window.attributes["pads"] = pads;
  }
  return window;
}

// A value that was made as an image, [batch, channels, axes...], or new sizes of one.
ValueId SomeImage(Grower& g, int min_rank = 3, int max_rank = 5) {
  const ValueId x = g.Float(min_rank, max_rank);
  return g.tensor(x).size() == 0 || g.tensor(x).size() > 4000 ? kNone : x;
}

ValueId AsBytes(Grower& g, ValueId x) {
  if (g.family() != Family::kBytes || x == kNone || g.dtype(x) != DataType::kF32 ||
      g.dice.Chance(0.15))
    return x;
  const ValueId scale = g.FloatScalar(DataType::kF32, g.dice.Real(0.01, 0.04));
  const ValueId zero =
      g.Given(Tensor::Of(DataType::kU8, {},
                         std::vector<uint8_t>{static_cast<uint8_t>(g.dice.Integer(100, 140))}),
              true);
  if (!g.Add("QuantizeLinear", {x, scale, zero}) ||
      !g.Add("DequantizeLinear", {g.last(), scale, zero}))
    return x;
  return g.last();
}

// Weights; of kBytes i8 with a scale for each output channel.
ValueId Weights(Grower& g, const Ints& dims, int64_t axis) {
  if (g.family() != Family::kBytes || g.dice.Chance(0.15))
    return g.Fresh(g.main(), dims, g.dice.Chance(0.85));
  const ValueId values = g.Given(
      [&] {
        Tensor tensor = Tensor::Zeros(DataType::kI8, dims);
        for (int64_t i = 0; i < tensor.size(); ++i)
          tensor.mutable_bytes()[i] = static_cast<std::byte>(g.dice.Integer(-127, 127));
        return tensor;
      }(),
      true);
  std::vector<float> scales(static_cast<size_t>(dims[static_cast<size_t>(axis)]));
  for (float& each : scales) each = static_cast<float>(g.dice.Real(0.002, 0.01));
  const ValueId scale =
      g.Given(Tensor::Of(DataType::kF32, {static_cast<int64_t>(scales.size())}, scales), true);
  const ValueId zero =
      g.Given(Tensor::Zeros(DataType::kI8, {static_cast<int64_t>(scales.size())}), true);
  return g.Add("DequantizeLinear", {values, scale, zero}, {{"axis", axis}}) ? g.last() : kNone;
}

bool Finish(Grower& g) {
  if (g.family() == Family::kBytes && g.dice.Chance(0.7)) AsBytes(g, g.last());
  return true;
}

bool Conv(Grower& g, const std::string& op) {
  ValueId x = SomeImage(g);
  if (x == kNone || g.dice.Chance(0.3)) {
    Window fresh = SomeWindow(g, {});
    Ints dims = {g.dice.Integer(1, 2), g.dice.Pick<int64_t>({1, 2, 3, 4, 8, 16, 17})};
    dims.insert(dims.end(), fresh.image.begin(), fresh.image.end());
    x = g.Fresh(g.main(), dims);
  }
  const Window window = SomeWindow(g, Ints(g.dims(x).begin() + 2, g.dims(x).end()));
  const int64_t channels = g.dims(x)[1];
  int64_t group = g.dice.Chance(0.7) ? 1 : g.dice.Pick<int64_t>({2, 4, channels});
  if (channels % group != 0) group = 1;
  const int64_t outputs = group * g.dice.Pick<int64_t>({1, 1, 2, 3, 5, 8, 16});
  if (outputs > 64) return false;
  Ints dims = {outputs, channels / group};
  dims.insert(dims.end(), window.kernel.begin(), window.kernel.end());
  const ValueId input = AsBytes(g, x);
  std::vector<ValueId> inputs = {input, Weights(g, dims, 0)};
  if (inputs[1] == kNone) return false;
  if (g.dice.Chance(0.5)) inputs.push_back(g.ValueOf(g.main(), {outputs}));
  Attributes attributes = window.attributes;
  attributes["group"] = group;
  return g.Add(op, inputs, attributes) && Finish(g);
}

// A layer whose result is along another axis as large as along the channels': one can be mistaken for
// the other.
bool SquareLayer(Grower& g) {
  const int64_t size = g.dice.Integer(2, 9), from = g.dice.Integer(1, 6);
  const auto weights = [&](const Ints& dims) { return g.Fresh(g.main(), dims, true); };
  if (g.dice.Chance(0.5))
    return g.Add("MatMul", {g.ValueOf(g.main(), {size, from}), weights({from, size})});
  const ValueId x = g.ValueOf(g.main(), {1, from, size, g.dice.Integer(1, 4)});
  return g.Add("Conv", {x, weights({size, from, 1, 1})});
}

// Operators that models put behind a layer: an affine map per channel, a function, a second reader. The map's
// constants lie along the channels' axis or, now and then, along another one, of the same size if there is one.
bool Block(Grower& g, const std::string&) {
  if (g.dice.Chance(0.35)
          ? !SquareLayer(g)
          : !g.Step(g.dice.Pick<std::string>({"Conv", "Conv", "MatMul", "Gemm", "ConvTranspose"})))
    return false;
  const std::string layer = g.graph.nodes.back().op;
  const ValueId y = g.last();
  if (g.rank(y) < 2) return true;
  const auto rank = static_cast<size_t>(g.rank(y));
  const size_t channel = layer == "Conv" || layer == "ConvTranspose" ? 1 : rank - 1;
  std::vector<size_t> alike, others;
  for (size_t axis = 0; axis < rank; ++axis) {
    others.push_back(axis);
    if (axis != channel && g.dims(y)[axis] == g.dims(y)[channel]) alike.push_back(axis);
  }
  const auto constant = [&] {
    const std::vector<size_t>& from = alike.empty() ? others : alike;
    const size_t axis = g.dice.Chance(alike.empty() ? 0.8 : 0.5) ? channel : g.dice.Of(from);
    Ints dims(rank - (g.dice.Chance(0.5) ? axis : 0), 1);
    dims[dims.size() - (rank - axis)] = g.dims(y)[axis];
    return g.Fresh(g.dtype(y), dims, g.dice.Chance(0.9));
  };
  ValueId mapped = y;
  if (g.dice.Chance(0.3)) g.Add("Tanh", {y});  // a second reader before the map, not behind it
  if (g.dice.Chance(0.3) && rank > 2 && channel == 1) {
    const Ints channels = {g.dims(y)[1]};
    if (!g.Add("Abs", {g.Fresh(g.dtype(y), channels, true)})) return true;
    const ValueId spread = g.last();
    g.Add("BatchNormalization",
          {y, g.Fresh(g.dtype(y), channels, true), g.Fresh(g.dtype(y), channels, true),
           g.Fresh(g.dtype(y), channels, true), spread},
          {{"epsilon", 1e-2}});
  } else {
    if (g.dice.Chance(0.5) && g.Add("Mul", {y, constant()})) mapped = g.last();
    if (g.dice.Chance(0.6)) g.Add("Add", {mapped, constant()});
  }
  if (g.dice.Chance(0.6) && !g.Step(g.dice.Pick<std::string>(
                                {"Relu", "Sigmoid", "HardSwish", "Clip", "Tanh", "LeakyRelu"})))
    return true;
  const ValueId end = g.last();
  if (g.dice.Chance(0.4) && g.dims(end) == g.dims(y))
    g.Add("Add", {end, g.dice.Chance(0.5) ? y : g.ValueOf(g.dtype(y), g.dims(y))});
  return true;
}

bool ConvTranspose(Grower& g, const std::string& op) {
  const ValueId x = SomeImage(g);
  if (x == kNone) return false;
  const Window window = SomeWindow(g, Ints(g.dims(x).begin() + 2, g.dims(x).end()));
  const int64_t channels = g.dims(x)[1], group = channels % 2 == 0 && g.dice.Chance(0.3) ? 2 : 1;
  Ints dims = {channels, g.dice.Integer(1, 4)};
  dims.insert(dims.end(), window.kernel.begin(), window.kernel.end());
  std::vector<ValueId> inputs = {x, g.Fresh(g.main(), dims, g.dice.Chance(0.8))};
  if (g.dice.Chance(0.5)) inputs.push_back(g.ValueOf(g.main(), {dims[1] * group}));
  Attributes attributes = window.attributes;
  attributes["group"] = group;
  if (attributes.contains("pads") && g.dice.Chance(0.3)) {
    Ints more = std::get<Ints>(attributes["strides"]);
    for (int64_t& each : more) each = g.dice.Integer(0, each - 1);
    attributes["output_padding"] = more;
  }
  return g.Add(op, inputs, attributes);
}

bool Pool(Grower& g, const std::string& op) {
  const ValueId x = SomeImage(g);
  if (x == kNone) return false;
  const Window window = SomeWindow(g, Ints(g.dims(x).begin() + 2, g.dims(x).end()));
  Attributes attributes = window.attributes;
  attributes["kernel_shape"] = window.kernel;
  if (g.dice.Chance(0.3)) attributes["ceil_mode"] = int64_t{1};
  if (op == "AveragePool" && g.dice.Chance(0.4)) attributes["count_include_pad"] = int64_t{1};
  if (op == "LpPool") attributes["p"] = g.dice.Integer(1, 2);
  const int outputs = op == "MaxPool" && g.dice.Chance(0.2) ? 2 : 1;
  return g.Add(op, {x}, attributes, outputs);
}

bool GlobalPool(Grower& g, const std::string& op) {
  const ValueId x = SomeImage(g);
  return x != kNone && g.Add(op, {x});
}

bool MaxUnpool(Grower& g, const std::string& op) {
  const Ints dims = {g.dice.Integer(1, 2), g.dice.Integer(1, 3), 2 * g.dice.Integer(1, 4),
                     2 * g.dice.Integer(1, 4)};
  const Attributes attributes = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  if (!g.Add("MaxPool", {g.Fresh(g.main(), dims)}, attributes, 2)) return false;
  return g.Add(op, {g.last(0), g.last(1)}, attributes);
}

bool MatMul(Grower& g, const std::string& op) {
  const ValueId x = g.Float(1, 4);
  const int64_t k = g.dims(x).back(), columns = g.dice.Pick<int64_t>({1, 3, 8, 17, 33});
  if (g.dice.Chance(0.7)) {
    const ValueId a = AsBytes(g, x), w = Weights(g, {k, columns}, 1);
    return w != kNone && g.Add(op, {a, w}) && Finish(g);
  }
  Ints dims(g.dims(x).begin(), g.dims(x).end());
  if (dims.size() > 1) dims.pop_back();
  dims.back() = k;
  dims.push_back(columns);
  for (size_t i = 0; i + 2 < dims.size(); ++i) {
    if (g.dice.Chance(0.3)) dims[i] = 1;
  }
  const ValueId a = AsBytes(g, x), b = AsBytes(g, g.ValueOf(g.main(), dims));
  return g.Add(op, {a, b}) && Finish(g);
}

bool Gemm(Grower& g, const std::string& op) {
  const ValueId x = g.Float(2, 2);
  const bool across = g.dice.Chance(0.3), over = g.dice.Chance(0.4);
  const int64_t m = g.dims(x)[across ? 1 : 0], k = g.dims(x)[across ? 0 : 1];
  const int64_t n = g.dice.Pick<int64_t>({1, 4, 9, 16, 33});
  const ValueId a = AsBytes(g, x), b = Weights(g, over ? Ints{n, k} : Ints{k, n}, over ? 0 : 1);
  if (b == kNone) return false;
  std::vector<ValueId> inputs = {a, b};
  if (g.dice.Chance(0.6))
    inputs.push_back(g.ValueOf(g.main(), g.dice.Pick<Ints>({{n}, {m, n}, {1, n}, {m, 1}, {}})));
  Attributes attributes = {{"transA", int64_t{across}}, {"transB", int64_t{over}}};
  if (g.dice.Chance(0.3)) attributes["alpha"] = g.dice.Real(0.3, 2);
  if (g.dice.Chance(0.3)) attributes["beta"] = g.dice.Real(0.3, 2);
  return g.Add(op, inputs, attributes) && Finish(g);
}

bool Einsum(Grower& g, const std::string& op) {
  const int64_t b = g.dice.Integer(1, 3), i = g.dice.Integer(1, 7), j = g.dice.Integer(1, 9),
                k = g.dice.Integer(1, 7);
  struct Form {
    std::string equation;
    std::vector<Ints> operands;
  };
  const Form form = g.dice.Of(std::vector<Form>{{"ij,jk->ik", {{i, j}, {j, k}}},
                                                {"bij,bjk->bik", {{b, i, j}, {b, j, k}}},
                                                {"bij,bkj->bik", {{b, i, j}, {b, k, j}}},
                                                {"bij->bji", {{b, i, j}}},
                                                {"ij->i", {{i, j}}},
                                                {"ij,ij->", {{i, j}, {i, j}}},
                                                {"i,j->ij", {{i}, {j}}},
                                                {"...ij,jk->...ik", {{b, i, j}, {j, k}}}});
  std::vector<ValueId> inputs;
  for (const Ints& dims : form.operands) inputs.push_back(g.ValueOf(g.main(), dims));
  return g.Add(op, inputs, {{"equation", form.equation}});
}

bool Det(Grower& g, const std::string& op) {
  const int64_t n = g.dice.Integer(1, 4);
  return g.Add(op, {g.Fresh(g.main(), {g.dice.Integer(1, 3), n, n})});
}

bool Recurrent(Grower& g, const std::string& op) {
  const int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  const int64_t steps = g.dice.Integer(1, 5), batch = g.dice.Integer(1, 3),
                size = g.dice.Integer(1, 6), hidden = g.dice.Integer(1, 9);
  const std::string direction = g.dice.Pick<std::string>({"forward", "reverse", "bidirectional"});
  const int64_t ways = direction == "bidirectional" ? 2 : 1;
  std::vector<ValueId> inputs = {
      g.ValueOf(g.main(), {steps, batch, size}),
      g.Fresh(g.main(), {ways, gates * hidden, size}, g.dice.Chance(0.8)),
      g.Fresh(g.main(), {ways, gates * hidden, hidden}, g.dice.Chance(0.8))};
  inputs.push_back(g.dice.Chance(0.5) ? g.Fresh(g.main(), {ways, 2 * gates * hidden}, true)
                                      : kNone);
  if (g.dice.Chance(0.3)) {
    std::vector<int32_t> lengths(static_cast<size_t>(batch));
    for (int32_t& each : lengths) each = static_cast<int32_t>(g.dice.Integer(1, steps));
    inputs.push_back(g.Given(Tensor::Of(DataType::kI32, {batch}, lengths)));
  } else {
    inputs.push_back(kNone);
  }
  if (g.dice.Chance(0.4)) inputs.push_back(g.ValueOf(g.main(), {ways, batch, hidden}));
  Attributes attributes = {{"hidden_size", hidden}, {"direction", direction}};
  if (op == "GRU" && g.dice.Chance(0.5)) attributes["linear_before_reset"] = int64_t{1};
  return g.Add(op, inputs, attributes, op == "LSTM" ? 3 : 2);
}

bool Attention(Grower& g, const std::string& op) {
  const int64_t batch = g.dice.Integer(1, 2), shared = g.dice.Integer(1, 2),
                heads = shared * g.dice.Integer(1, 2);
  const int64_t steps = g.dice.Pick<int64_t>({1, 3, 7}),
                keys = g.dice.Pick<int64_t>({steps, 5, 19}),
                size = g.dice.Pick<int64_t>({4, 8, 11});
  std::vector<ValueId> inputs;
  Attributes attributes;
  if (g.dice.Chance(0.5)) {
    inputs = {g.ValueOf(g.main(), {batch, heads, steps, size}),
              g.ValueOf(g.main(), {batch, shared, keys, size}),
              g.ValueOf(g.main(), {batch, shared, keys, size})};
  } else {
    inputs = {g.ValueOf(g.main(), {batch, steps, heads * size}),
              g.ValueOf(g.main(), {batch, keys, shared * size}),
              g.ValueOf(g.main(), {batch, keys, shared * size})};
    attributes = {{"q_num_heads", heads}, {"kv_num_heads", shared}};
  }
  if (g.dice.Chance(0.4)) {
    inputs.push_back(g.ValueOf(
        g.dice.Chance(0.5) ? DataType::kBool : g.main(),
        g.dice.Pick<Ints>({{steps, keys}, {1, 1, steps, keys}, {batch, 1, steps, keys}})));
  }
  if (g.dice.Chance(0.3)) attributes["is_causal"] = int64_t{1};
  if (g.dice.Chance(0.3)) attributes["scale"] = g.dice.Real(0.1, 0.7);
  return g.Add(op, inputs, attributes);
}

// Attention of single operators, which a pass finds.
bool AttentionByHand(Grower& g, const std::string&) {
  const int64_t heads = g.dice.Integer(1, 3), steps = g.dice.Integer(1, 9),
                keys = g.dice.Integer(1, 21), size = g.dice.Pick<int64_t>({4, 8, 16});
  const ValueId q = g.ValueOf(g.main(), {1, heads, steps, size}),
                k = g.ValueOf(g.main(), {1, heads, keys, size}),
                v = g.ValueOf(g.main(), {1, heads, keys, size});
  if (!g.Add("Transpose", {k}, {{"perm", Ints{0, 1, 3, 2}}}) || !g.Add("MatMul", {q, g.last()}))
    return false;
  if (!g.Add(g.dice.Chance(0.5) ? "Mul" : "Div", {g.last(), g.FloatScalar(g.main(), 2.5)}))
    return false;
  if (g.dice.Chance(0.5) && !g.Add("Add", {g.last(), g.ValueOf(g.main(), {1, 1, steps, keys})}))
    return false;
  if (!g.Add("Softmax", {g.last()}, {{"axis", int64_t{-1}}})) return false;
  if (!g.Add("MatMul", {g.last(), v})) return false;
  return !g.dice.Chance(0.5) || g.Add("Transpose", {g.last()}, {{"perm", Ints{0, 2, 1, 3}}});
}

bool Rotary(Grower& g, const std::string& op) {
  const int64_t heads = g.dice.Integer(1, 3), steps = g.dice.Integer(1, 5),
                size = 2 * g.dice.Integer(1, 4);
  return g.Add(
      op,
      {g.ValueOf(g.main(), {1, heads, steps, size}), g.ValueOf(g.main(), {1, steps, size / 2}),
       g.ValueOf(g.main(), {1, steps, size / 2})},
      {{"interleaved", g.dice.Integer(0, 1)}});
}

bool Resize(Grower& g, const std::string& op) {
  const ValueId x = SomeImage(g, 3, 4);
  if (x == kNone) return false;
  const std::string mode = g.dice.Pick<std::string>({"nearest", "linear", "linear", "cubic"});
  Attributes attributes = {{"mode", mode},
                           {"coordinate_transformation_mode",
                            g.dice.Pick<std::string>({"half_pixel", "asymmetric", "align_corners",
                                                      "pytorch_half_pixel"})}};
  if (mode == "nearest")
    attributes["nearest_mode"] = g.dice.Pick<std::string>({"floor", "round_prefer_floor", "ceil"});
  if (g.dice.Chance(0.5)) {
    Ints sizes = g.dims(x);
    for (size_t i = 2; i < sizes.size(); ++i)
      sizes[i] = std::max<int64_t>(1, sizes[i] + g.dice.Integer(-2, 5));
    return g.Add(op, {x, kNone, kNone, g.Integers(sizes, g.dice.Chance(0.8))}, attributes);
  }
  std::vector<float> scales(static_cast<size_t>(g.rank(x)), 1);
  for (size_t i = 2; i < scales.size(); ++i) scales[i] = g.dice.Pick({0.5F, 1.0F, 1.5F, 2.0F});
  return g.Add(op, {x, kNone, g.Given(Tensor::Of(DataType::kF32, {g.rank(x)}, scales), true)},
               attributes);
}

bool GridSample(Grower& g, const std::string& op) {
  const ValueId x = SomeImage(g, 4, 4);
  if (x == kNone) return false;
  const ValueId grid =
      g.Fresh(g.dtype(x), {g.dims(x)[0], g.dice.Integer(1, 4), g.dice.Integer(1, 4), 2});
  return g.Add(op, {x, grid},
               {{"mode", g.dice.Pick<std::string>({"linear", "nearest", "cubic"})},
                {"padding_mode", g.dice.Pick<std::string>({"zeros", "border", "reflection"})},
                {"align_corners", g.dice.Integer(0, 1)}});
}

bool AffineGrid(Grower& g, const std::string& op) {
  const int64_t batch = g.dice.Integer(1, 2), aligned = g.dice.Integer(0, 1);
  // ONNX Runtime aligns the only element with the last corner, PyTorch (as we do) with the centre.
  const auto size = [&] { return g.dice.Integer(1 + aligned, 5); };
  return g.Add(op,
               {g.ValueOf(g.main(), {batch, 2, 3}),
                g.Integers({batch, 2, size(), size()}, g.dice.Chance(0.8))},
               {{"align_corners", aligned}});
}

bool RoiAlign(Grower& g, const std::string& op) {
  const ValueId x = SomeImage(g, 4, 4);
  if (x == kNone) return false;
  const int64_t rois = g.dice.Integer(1, 3);
  std::vector<float> boxes;
  Ints batches;
  for (int64_t i = 0; i < rois; ++i) {
    const double left = g.dice.Real(0, 2), top = g.dice.Real(0, 2);
    for (const double each : {left, top, left + g.dice.Real(1, 4), top + g.dice.Real(1, 4)})
      boxes.push_back(static_cast<float>(each));
    batches.push_back(g.dice.Integer(0, g.dims(x)[0] - 1));
  }
  const bool largest =
      g.dice.Chance(0.5);  // of several samples, ONNX Runtime says that its own is wrong
  return g.Add(op, {x, g.Given(Tensor::Floats(g.dtype(x), {rois, 4}, boxes)), g.Integers(batches)},
               {{"output_height", g.dice.Integer(1, 3)},
                {"output_width", g.dice.Integer(1, 3)},
                {"sampling_ratio", largest ? 1 : g.dice.Integer(1, 2)},
                {"mode", std::string(largest ? "max" : "avg")}});
}

bool NonMaxSuppression(Grower& g, const std::string& op) {
  const int64_t boxes = g.dice.Integer(1, 6);
  return g.Add(op, {g.Fresh(DataType::kF32, {1, boxes, 4}),
                    g.Fresh(DataType::kF32, {1, g.dice.Integer(1, 2), boxes}),
                    g.Scalar(g.dice.Integer(1, 3)), g.FloatScalar(DataType::kF32, 0.5)});
}

bool Fourier(Grower& g, const std::string& op) {
  const bool complex = g.dice.Chance(0.4);
  const ValueId x = g.ValueOf(g.main() == DataType::kF64 ? DataType::kF64 : DataType::kF32,
                              {g.dice.Integer(1, 2), g.dice.Integer(2, 9), complex ? 2 : 1});
  Attributes attributes;
  if (complex && g.dice.Chance(0.5)) attributes["inverse"] = int64_t{1};
  if (!complex && g.dice.Chance(0.5)) attributes["onesided"] = int64_t{1};
  return g.Add(op, {x, kNone, g.Scalar(1, true)}, attributes);
}

bool ShortFourier(Grower& g, const std::string& op) {
  const ValueId signal =
      g.ValueOf(DataType::kF32, {g.dice.Integer(1, 2), g.dice.Integer(8, 20), 1});
  return g.Add(
      op,
      {signal, g.Scalar(g.dice.Integer(1, 4), true), kNone, g.Scalar(g.dice.Integer(3, 8), true)},
      {{"onesided", g.dice.Integer(0, 1)}});
}

bool Windows(Grower& g, const std::string& op) {
  return g.Add(op, {g.Scalar(g.dice.Integer(3, 12))}, {{"periodic", g.dice.Integer(0, 1)}});
}

bool Col2Im(Grower& g, const std::string& op) {
  const int64_t h = g.dice.Integer(2, 6), w = g.dice.Integer(2, 6), c = g.dice.Integer(1, 3);
  const int64_t kh = g.dice.Integer(1, 2), kw = g.dice.Integer(1, 2);
  return g.Add(
      op, {g.ValueOf(g.main(), {g.dice.Integer(1, 2), c * kh * kw, (h - kh + 1) * (w - kw + 1)}),
           g.Integers({h, w}, true), g.Integers({kh, kw}, true)});
}

ValueId Bytes(Grower& g, DataType type, const Ints& dims, bool constant) {
  Tensor tensor = Tensor::Zeros(type, dims);
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.mutable_bytes()[i] = static_cast<std::byte>(g.dice.Integer(0, 255));
  return g.Given(std::move(tensor), constant);
}

bool IntegerProduct(Grower& g, const std::string& op) {
  const DataType left = g.dice.Chance(0.5) ? DataType::kU8 : DataType::kI8,
                 right = g.dice.Chance(0.5) ? DataType::kU8 : DataType::kI8;
  const int64_t k = g.dice.Integer(1, 20), n = g.dice.Integer(1, 17);
  std::vector<ValueId> inputs;
  if (op == "MatMulInteger") {
    inputs = {Bytes(g, left, {g.dice.Integer(1, 6), k}, false),
              Bytes(g, right, {k, n}, g.dice.Chance(0.7))};
  } else {
    inputs = {Bytes(g, left, {1, g.dice.Integer(1, 4), 6, 5}, false), kNone};
    inputs[1] = Bytes(g, right, {n, g.dims(inputs[0])[1], 3, 3}, g.dice.Chance(0.7));
  }
  for (const DataType type : {left, right})
    inputs.push_back(g.dice.Chance(0.6) ? Bytes(g, type, {}, true) : kNone);
  while (inputs.back() == kNone) inputs.pop_back();
  return g.Add(op, inputs);
}

bool LinearProduct(Grower& g, const std::string& op) {
  const DataType left = g.dice.Chance(0.5) ? DataType::kU8 : DataType::kI8,
                 out = g.dice.Chance(0.5) ? DataType::kU8 : DataType::kI8;
  const int64_t k = g.dice.Integer(1, 20), n = g.dice.Integer(1, 17);
  const auto scale = [&] { return g.FloatScalar(DataType::kF32, g.dice.Real(0.01, 0.04)); };
  const bool conv = op == "QLinearConv";
  const ValueId a = Bytes(g, left, conv ? Ints{1, 3, 6, 5} : Ints{g.dice.Integer(1, 6), k}, false);
  const ValueId b = Bytes(g, DataType::kI8, conv ? Ints{n, 3, 3, 3} : Ints{k, n}, true);
  std::vector<ValueId> inputs = {a,
                                 scale(),
                                 Bytes(g, left, {}, true),
                                 b,
                                 scale(),
                                 g.Given(Tensor::Zeros(DataType::kI8, {}), true),
                                 scale(),
                                 Bytes(g, out, {}, true)};
  return g.Add(op, inputs);
}

}  // namespace

std::vector<RuleRow> LayerRules() {
  return {
      {{"Conv"}, Conv},
      {{"ConvTranspose"}, ConvTranspose},
      {{"block"}, Block},
      {{"MaxPool", "AveragePool", "LpPool"}, Pool},
      {{"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}, GlobalPool},
      {{"MaxUnpool"}, MaxUnpool},
      {{"MatMul"}, MatMul},
      {{"Gemm"}, Gemm},
      {{"Einsum"}, Einsum},
      {{"Det"}, Det},
      {{"LSTM", "GRU", "RNN"}, Recurrent},
      {{"Attention"}, Attention},
      {{"attention by hand"}, AttentionByHand},
      {{"RotaryEmbedding"}, Rotary},
      {{"Resize"}, Resize},
      {{"GridSample"}, GridSample},
      {{"AffineGrid"}, AffineGrid},
      {{"RoiAlign"}, RoiAlign},
      {{"NonMaxSuppression"}, NonMaxSuppression},
      {{"DFT"}, Fourier},
      {{"STFT"}, ShortFourier},
      {{"BlackmanWindow", "HammingWindow", "HannWindow"}, Windows},
      {{"Col2Im"}, Col2Im},
      {{"MatMulInteger", "ConvInteger"}, IntegerProduct},
      {{"QLinearMatMul", "QLinearConv"}, LinearProduct},
  };
}

}  // namespace quench::fuzz
