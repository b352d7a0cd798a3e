// Operators that move, pick and make elements.
#include <algorithm>
#include <numeric>

#include "tests/fuzz/graphs/grower.h"

namespace quench::fuzz {
namespace {

DataTypes Anything(Grower& g) {
  return {g.main(),       g.main(),       g.main(),      g.main(),
          DataType::kI64, DataType::kI32, DataType::kU8, DataType::kBool};
}

int64_t Written(Grower& g, int64_t axis, int rank) {
  return g.dice.Chance(0.3) ? axis - rank : axis;
}

Ints Indices(Grower& g, int64_t count, int64_t size) {
  Ints indices(static_cast<size_t>(count));
  for (int64_t& each : indices) each = g.dice.Integer(g.dice.Chance(0.2) ? -size : 0, size - 1);
  return indices;
}

// A tensor of indices into an axis of so many.
ValueId IndexTensor(Grower& g, const Ints& dims, int64_t size) {
  const int64_t count = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  return g.Given(Tensor::I64(Indices(g, count, size)).Reshaped(dims));
}

bool Reshape(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g));
  const int64_t count = g.tensor(x).size();
  Ints dims;
  int64_t left = count;
  for (int64_t rank = g.dice.Integer(1, 4); rank > 1 && left > 0; --rank) {
    Ints divisors;
    for (int64_t d = 1; d <= std::min<int64_t>(left, 64); ++d) {
      if (left % d == 0) divisors.push_back(d);
    }
    dims.push_back(g.dice.Of(divisors));
    left /= dims.back();
  }
  dims.push_back(left);
  if (count > 0 && g.dice.Chance(0.4))
    dims[static_cast<size_t>(g.dice.Integer(0, static_cast<int64_t>(dims.size()) - 1))] = -1;
  for (size_t i = 0; count > 0 && i < dims.size() && i < g.dims(x).size(); ++i) {
    if (dims[i] == g.dims(x)[i] && g.dice.Chance(0.5)) dims[i] = 0;
  }
  return g.Add(op, {x, g.Integers(dims, g.dice.Chance(0.7))},
               count == 0 ? Attributes{{"allowzero", int64_t{1}}} : Attributes{});
}

bool Flatten(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g));
  return g.Add(op, {x}, {{"axis", g.dice.Integer(-g.rank(x), g.rank(x))}});
}

bool Squeeze(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g));
  Ints axes;
  for (int axis = 0; axis < g.rank(x); ++axis) {
    if (g.dims(x)[static_cast<size_t>(axis)] == 1 && g.dice.Chance(0.7))
      axes.push_back(Written(g, axis, g.rank(x)));
  }
  if (axes.empty()) return false;
  return g.Add(op, {x, g.Integers(axes, true)});
}

bool Unsqueeze(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 0, 3);
  Ints axes = {g.dice.Integer(0, g.rank(x))};
  if (g.dice.Chance(0.3)) axes.push_back(g.rank(x) + 1);
  if (axes.size() == 2 && axes[0] == axes[1]) axes.pop_back();
  return g.Add(op, {x, g.Integers(axes, true)});
}

bool Transpose(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), g.dice.Chance(0.9) ? 2 : 0);
  Ints perm(static_cast<size_t>(g.rank(x)));
  std::iota(perm.begin(), perm.end(), 0);
  std::shuffle(perm.begin(), perm.end(), g.dice.engine);
  return g.Add(op, {x}, g.dice.Chance(0.8) ? Attributes{{"perm", perm}} : Attributes{});
}

bool Concat(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 1);
  const int64_t axis = g.dice.Integer(0, g.rank(x) - 1);
  std::vector<ValueId> inputs = {x};
  for (int64_t more = g.dice.Integer(0, 3); more > 0; --more) {
    Ints dims = g.dims(x);
    if (g.dice.Chance(0.5))
      dims[static_cast<size_t>(axis)] = g.dice.Integer(g.dice.Chance(0.1) ? 0 : 1, 5);
    inputs.push_back(g.dice.Chance(0.15) ? x : g.ValueOf(g.dtype(x), dims));
  }
  std::shuffle(inputs.begin(), inputs.end(), g.dice.engine);
  return g.Add(op, inputs, {{"axis", Written(g, axis, g.rank(x))}});
}

bool Split(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 1);
  int64_t axis = g.dice.Integer(0, g.rank(x) - 1);
  // Parts of the first axis that is not 1 lie one after the other.
  while (g.dice.Chance(0.5) && axis > 0 && g.dims(x)[static_cast<size_t>(axis - 1)] > 1) --axis;
  const int64_t size = g.dims(x)[static_cast<size_t>(axis)];
  if (size < 2) return false;
  const int64_t parts = g.dice.Integer(2, std::min<int64_t>(size, 4));
  Attributes attributes = {{"axis", Written(g, axis, g.rank(x))}};
  if (g.dice.Chance(0.3)) {
    attributes["num_outputs"] = parts;
    return g.Add(op, {x}, attributes, static_cast<int>(parts));
  }
  Ints sizes(static_cast<size_t>(parts), 1);
  for (int64_t left = size - parts; left > 0; --left)
    ++sizes[static_cast<size_t>(g.dice.Integer(0, parts - 1))];
  return g.Add(op, {x, g.Integers(sizes, g.dice.Chance(0.8))}, attributes, static_cast<int>(parts));
}

// Parts that lie one after the other, each seen with other dims: the product of queries, keys and values
// of a decoder.
bool ViewsOfParts(Grower& g, const std::string&) {
  const int64_t parts = g.dice.Integer(2, 3), rows = g.dice.Pick<int64_t>({1, 1, 2}),
                columns = 16 * g.dice.Integer(1, 2);
  const Ints dims = g.dice.Pick<Ints>(
      {{parts * rows, columns}, {1, parts * rows, columns}, {1, parts * rows * columns}});
  const ValueId x = g.ValueOf(g.main(), dims);
  const int64_t axis = dims.size() == 3 || dims[0] == 1 ? 1 : 0;
  // Computed, for parts of inputs and constants are copied.
  if (!g.Add(g.dice.Pick<std::string>({"Tanh", "Neg", "Relu"}), {x})) return false;
  if (!g.Add("Split", {g.last()}, {{"axis", axis}, {"num_outputs", parts}},
             static_cast<int>(parts)))
    return false;
  std::vector<ValueId> views;
  for (int part = 0; part < parts; ++part) views.push_back(g.last(part));
  for (ValueId& view : views) {
    if (!g.dice.Chance(0.7)) continue;
    const Ints seen =
        g.dice.Pick<Ints>({{rows, columns}, {-1}, {rows, 2, columns / 2}, {columns / 4, -1}});
    if (g.Add("Reshape", {view, g.Integers(seen, true)})) view = g.last();
  }
  const ValueId one = g.dice.Of(views), other = g.dice.Of(views);
  if (g.dims(one) == g.dims(other) && g.dice.Chance(0.6)) return g.Add("Mul", {one, other});
  return g.Add(g.dice.Pick<std::string>({"Tanh", "Sigmoid", "Neg"}), {one});
}

bool Slice(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 1);
  Ints starts, ends, axes, steps;
  for (int64_t axis = 0; axis < g.rank(x); ++axis) {
    if (!g.dice.Chance(0.5)) continue;
    const int64_t size = g.dims(x)[static_cast<size_t>(axis)];
    const int64_t step = g.dice.Pick<int64_t>({1, 1, 1, 2, 3, -1, -2});
    int64_t low = g.dice.Integer(0, std::max<int64_t>(size - 1, 0)),
            high = g.dice.Integer(low, size + 1);
    if (step < 0) {
      std::swap(low, high);
      high = high == 0 ? -size - 1 : high - 1;
    }
    starts.push_back(g.dice.Chance(0.2) && low < size && low > 0 ? low - size : low);
    ends.push_back(high);
    axes.push_back(Written(g, axis, g.rank(x)));
    steps.push_back(step);
  }
  if (starts.empty()) return false;
  const bool constant = g.dice.Chance(0.75);
  return g.Add(op, {x, g.Integers(starts, constant), g.Integers(ends, constant),
                    g.Integers(axes, true), g.Integers(steps, true)});
}

bool Pad(Grower& g, const std::string& op) {
  const ValueId x = g.Value({g.main(), g.main(), DataType::kI32}, 1);
  const std::string mode =
      g.dice.Pick<std::string>({"constant", "constant", "constant", "reflect", "edge", "wrap"});
  Ints pads(static_cast<size_t>(2 * g.rank(x)), 0);
  for (size_t i = 0; i < pads.size(); ++i) {
    const int64_t size = g.dims(x)[i % g.dims(x).size()];
    if (g.dice.Chance(0.4))
      pads[i] = g.dice.Integer(mode == "constant" && g.dice.Chance(0.3) ? -1 : 0,
                               mode == "constant" ? 3 : std::min<int64_t>(3, size - 1));
  }
  std::vector<ValueId> inputs = {x, g.Integers(pads, g.dice.Chance(0.8))};
  if (mode == "constant" && g.dice.Chance(0.5))
    inputs.push_back(g.Fresh(g.dtype(x), {}, g.dice.Chance(0.7)));
  return g.Add(op, inputs, {{"mode", mode}});
}

bool Expand(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 0, 3);
  Ints dims = g.dims(x);
  for (int64_t& dim : dims) {
    if (dim == 1 && g.dice.Chance(0.7)) dim = g.dice.Integer(1, 5);
  }
  while (dims.size() < 4 && g.dice.Chance(0.4)) dims.insert(dims.begin(), g.dice.Integer(1, 4));
  return g.Add(op, {x, g.Integers(dims, g.dice.Chance(0.75))});
}

bool Tile(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 1, 4);
  Ints repeats(static_cast<size_t>(g.rank(x)));
  for (int64_t& each : repeats) each = g.dice.Pick<int64_t>({1, 1, 2, 3});
  return g.Add(op, {x, g.Integers(repeats, g.dice.Chance(0.75))});
}

bool Gather(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 1, 4);
  const int64_t axis = g.dice.Integer(0, g.rank(x) - 1),
                size = g.dims(x)[static_cast<size_t>(axis)];
  if (size == 0) return false;
  return g.Add(op, {x, IndexTensor(g, g.SomeDims(0, 2, 4), size)},
               {{"axis", Written(g, axis, g.rank(x))}});
}

bool GatherElements(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 1, 4);
  const int64_t axis = g.dice.Integer(0, g.rank(x) - 1),
                size = g.dims(x)[static_cast<size_t>(axis)];
  if (size == 0) return false;
  Ints dims = g.dims(x);
  dims[static_cast<size_t>(axis)] = g.dice.Integer(1, 5);
  return g.Add(op, {x, IndexTensor(g, dims, size)}, {{"axis", Written(g, axis, g.rank(x))}});
}

// Rows of indices into the leading axes, each once where they are written to.
ValueId RowsOfIndices(Grower& g, ValueId x, int64_t rows, int64_t width) {
  Ints all;
  std::vector<Ints> seen;
  for (int64_t row = 0; row < rows; ++row) {
    Ints indices;
    for (int64_t axis = 0; axis < width; ++axis) {
      const int64_t size = g.dims(x)[static_cast<size_t>(axis)];
      if (size == 0) return kNone;
      indices.push_back(g.dice.Integer(0, size - 1));
    }
    if (std::find(seen.begin(), seen.end(), indices) != seen.end()) continue;
    seen.push_back(indices);
    all.insert(all.end(), indices.begin(), indices.end());
  }
  return g.Given(Tensor::I64(all).Reshaped({static_cast<int64_t>(seen.size()), width}));
}

bool GatherNd(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 1, 4);
  const ValueId rows = RowsOfIndices(g, x, g.dice.Integer(1, 4), g.dice.Integer(1, g.rank(x)));
  return rows != kNone && g.Add(op, {x, rows});
}

bool ScatterNd(Grower& g, const std::string& op) {
  const ValueId x = g.Float(1, 4);
  const int64_t width = g.dice.Integer(1, g.rank(x));
  const ValueId rows = RowsOfIndices(g, x, g.dice.Integer(1, 4), width);
  if (rows == kNone) return false;
  Ints dims = {g.dims(rows)[0]};
  dims.insert(dims.end(), g.dims(x).begin() + width, g.dims(x).end());
  return g.Add(
      op, {x, rows, g.ValueOf(g.dtype(x), dims)},
      {{"reduction", g.dice.Pick<std::string>({"none", "none", "add", "mul", "max", "min"})}});
}

bool ScatterElements(Grower& g, const std::string& op) {
  const ValueId x = g.Float(1, 3);
  const int64_t axis = g.dice.Integer(0, g.rank(x) - 1),
                size = g.dims(x)[static_cast<size_t>(axis)];
  if (size == 0) return false;
  Ints dims = g.dims(x);
  const int64_t count = g.dice.Integer(1, size);
  dims[static_cast<size_t>(axis)] = count;
  // Along the axis each index once.
  Ints order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), g.dice.engine);
  Tensor indices = Tensor::Zeros(DataType::kI64, dims);
  auto* values = reinterpret_cast<int64_t*>(indices.mutable_bytes());
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(axis) + 1; d < dims.size(); ++d) inner *= dims[d];
  for (int64_t i = 0; i < indices.size(); ++i)
    values[i] = order[static_cast<size_t>(i / inner % count)];
  return g.Add(op, {x, g.Given(std::move(indices)), g.ValueOf(g.dtype(x), dims)},
               {{"axis", Written(g, axis, g.rank(x))},
                {"reduction", g.dice.Pick<std::string>({"none", "add", "max"})}});
}

bool TensorScatter(Grower& g, const std::string& op) {
  const Ints dims = {g.dice.Integer(1, 2), g.dice.Integer(1, 2), g.dice.Integer(4, 9),
                     g.dice.Integer(1, 5)};
  Ints update = dims;
  update[2] = g.dice.Integer(1, 3);
  std::vector<ValueId> inputs = {g.ValueOf(g.main(), dims), g.ValueOf(g.main(), update)};
  if (g.dice.Chance(0.6)) {
    Ints at(static_cast<size_t>(dims[0]));
    for (int64_t& each : at) each = g.dice.Integer(0, dims[2] - update[2]);
    inputs.push_back(g.Integers(at));
  }
  return g.Add(op, inputs, {{"mode", std::string(g.dice.Chance(0.5) ? "linear" : "circular")}});
}

bool DepthAndSpace(Grower& g, const std::string& op) {
  const int64_t block = g.dice.Integer(1, 3);
  const int64_t c = g.dice.Integer(1, 3), h = g.dice.Integer(1, 4), w = g.dice.Integer(1, 4);
  const bool deep = op == "DepthToSpace";
  const Ints dims = deep ? Ints{g.dice.Integer(1, 2), c * block * block, h, w}
                         : Ints{g.dice.Integer(1, 2), c, h * block, w * block};
  Attributes attributes = {{"blocksize", block}};
  if (deep) attributes["mode"] = std::string(g.dice.Chance(0.5) ? "DCR" : "CRD");
  return g.Add(op, {g.ValueOf(g.main(), dims)}, attributes);
}

bool ReverseSequence(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 2, 4);
  const int64_t batch = g.dice.Integer(0, 1);
  const int64_t rows = g.dims(x)[static_cast<size_t>(batch)],
                steps = g.dims(x)[static_cast<size_t>(1 - batch)];
  if (steps == 0) return false;
  Ints lengths(static_cast<size_t>(rows));
  for (int64_t& each : lengths) each = g.dice.Integer(1, steps);
  return g.Add(op, {x, g.Integers(lengths)}, {{"batch_axis", batch}, {"time_axis", 1 - batch}});
}

bool Trilu(Grower& g, const std::string& op) {
  const ValueId x = g.Value({g.main(), g.main(), DataType::kI64}, 2, 4);
  std::vector<ValueId> inputs = {x};
  if (g.dice.Chance(0.6)) inputs.push_back(g.Scalar(g.dice.Integer(-3, 3)));
  return g.Add(op, inputs, {{"upper", g.dice.Integer(0, 1)}});
}

bool CenterCropPad(Grower& g, const std::string& op) {
  const ValueId x = g.Float(1, 4);
  Ints sizes;
  for (const int64_t dim : g.dims(x))
    sizes.push_back(std::max<int64_t>(1, dim + g.dice.Integer(-2, 2)));
  return g.Add(op, {x, g.Integers(sizes, g.dice.Chance(0.8))});
}

bool Compress(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g), 1, 4);
  const int64_t axis = g.dice.Integer(0, g.rank(x) - 1);
  return g.Add(op, {x, g.ValueOf(DataType::kBool, {g.dims(x)[static_cast<size_t>(axis)]})},
               {{"axis", axis}});
}

bool NonZero(Grower& g, const std::string& op) {
  return g.Add(op, {g.Value({g.main(), DataType::kBool, DataType::kI64}, 1, 3)});
}

bool Unique(Grower& g, const std::string& op) {
  const ValueId x = g.Value({g.main(), DataType::kI64}, 1, 3);
  Attributes attributes = {{"sorted", int64_t{1}}};
  if (g.dice.Chance(0.4)) attributes["axis"] = g.dice.Integer(0, g.rank(x) - 1);
  return g.Add(op, {x}, attributes, static_cast<int>(g.dice.Integer(1, 4)));
}

bool TopK(Grower& g, const std::string& op) {
  const ValueId x = g.Float(1, 4);
  const int64_t axis = g.dice.Integer(0, g.rank(x) - 1),
                size = g.dims(x)[static_cast<size_t>(axis)];
  if (size == 0) return false;
  return g.Add(op, {x, g.Integers({g.dice.Integer(1, size)}, g.dice.Chance(0.8))},
               {{"axis", Written(g, axis, g.rank(x))},
                {"largest", g.dice.Integer(0, 1)},
                {"sorted", int64_t{1}}},
               2);
}

bool OneHot(Grower& g, const std::string& op) {
  const int64_t depth = g.dice.Integer(1, 6);
  const ValueId indices = IndexTensor(g, g.SomeDims(0, 2, 4), depth);
  const ValueId values = g.Given(Tensor::Of(DataType::kF32, {2}, std::vector<float>{0, 1}));
  return g.Add(op, {indices, g.Scalar(depth), values}, {{"axis", g.dice.Integer(-1, 0)}});
}

bool Range(Grower& g, const std::string& op) {
  return g.Add(op, {g.Scalar(g.dice.Integer(-3, 3)), g.Scalar(g.dice.Integer(4, 9)),
                    g.Scalar(g.dice.Integer(1, 3))});
}

bool ConstantOfShape(Grower& g, const std::string& op) {
  Attributes attributes;
  if (g.dice.Chance(0.6))
    attributes["value"] = Tensor::Of(DataType::kF32, {1}, std::vector<float>{1.5F});
  return g.Add(op, {g.Integers(g.SomeDims(1, 3, 5))}, attributes);
}

bool ShapeOrSize(Grower& g, const std::string& op) {
  const ValueId x = g.Value(Anything(g));
  Attributes attributes;
  if (op == "Shape" && g.dice.Chance(0.4))
    attributes = {{"start", g.dice.Integer(-2, 1)}, {"end", g.dice.Integer(1, 4)}};
  return g.Add(op, {x}, attributes);
}

bool EyeLike(Grower& g, const std::string& op) {
  return g.Add(op, {g.Float(2, 2)}, {{"k", g.dice.Integer(-2, 2)}});
}

// Sizes that the graph computes: Shape, then arithmetic, then what takes them.
bool ShapeArithmetic(Grower& g, const std::string&) {
  const ValueId x = g.Value(Anything(g), 2, 4);
  if (g.tensor(x).size() == 0 || !g.Add("Shape", {x})) return false;
  const ValueId shape = g.last();
  const int64_t at = g.dice.Integer(0, g.rank(x) - 1);
  if (!g.Add("Gather", {shape, g.Integers({at}, true)}, {{"axis", int64_t{0}}})) return false;
  const ValueId one = g.last();
  if (!g.Add("Concat", {one, g.Integers({-1}, true)}, {{"axis", int64_t{0}}})) return false;
  return g.Add("Reshape", {x, g.last()});
}

}  // namespace

std::vector<RuleRow> MovementRules() {
  return {
      {{"Reshape"}, Reshape},
      {{"Flatten"}, Flatten},
      {{"Squeeze"}, Squeeze},
      {{"Unsqueeze"}, Unsqueeze},
      {{"Transpose"}, Transpose},
      {{"Concat"}, Concat},
      {{"Split"}, Split},
      {{"views of parts"}, ViewsOfParts},
      {{"Slice"}, Slice},
      {{"Pad"}, Pad},
      {{"Expand"}, Expand},
      {{"Tile"}, Tile},
      {{"Gather"}, Gather},
      {{"GatherElements"}, GatherElements},
      {{"GatherND"}, GatherNd},
      {{"ScatterND"}, ScatterNd},
      {{"ScatterElements"}, ScatterElements},
      {{"TensorScatter"}, TensorScatter},
      {{"DepthToSpace", "SpaceToDepth"}, DepthAndSpace},
      {{"ReverseSequence"}, ReverseSequence},
      {{"Trilu"}, Trilu},
      {{"CenterCropPad"}, CenterCropPad},
      {{"Compress"}, Compress},
      {{"NonZero"}, NonZero},
      {{"Unique"}, Unique},
      {{"TopK"}, TopK},
      {{"OneHot"}, OneHot},
      {{"Range"}, Range},
      {{"ConstantOfShape"}, ConstantOfShape},
      {{"Shape", "Size"}, ShapeOrSize},
      {{"EyeLike"}, EyeLike},
      {{"shape arithmetic"}, ShapeArithmetic},
  };
}

}  // namespace quench::fuzz
