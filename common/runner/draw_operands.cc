#include <algorithm>
#include <numeric>

#include "common/runner/draw_rules.h"

namespace quench {
namespace {

using Cell = DrawRule::Cell;
using Contents = DrawRules::Contents;

constexpr int64_t kSomeSize = 8;  // where a model says nothing of a size
constexpr int64_t kFewTimes = 3;

ValueId In(const Node& node, size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNone; }

int64_t RankOf(const DrawRules& rules, ValueId id) {
  return static_cast<int64_t>(rules.DimsOf(id).size());
}

int64_t Normal(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

// ---- indices ----

// Indices into an axis of `size` elements: the last ones may be named from its end.
DrawRule Index(int64_t size) {
  DrawRule rule;
  rule.cells = {{0, size > 0 ? size - 1 : 1}};
  rule.negative = std::max<int64_t>(size, 0);
  return rule;
}

void OfGather(const Node& node, DrawRules& rules) {
  rules.Add(In(node, 1), Index(rules.SizeOf(In(node, 0), node.Int("axis", 0))));
}

// Index tuples, a component of each at a time.
DrawRule Tuple(const Node& node, DrawRules& rules, int64_t batch_dims) {
  DrawRule rule;
  const int64_t components = rules.SizeOf(In(node, 1), -1);
  for (int64_t i = 0; i < components; ++i)
    rule.cells.push_back(Index(rules.SizeOf(In(node, 0), batch_dims + i)).cells[0]);
  return rule;
}

void OfGatherND(const Node& node, DrawRules& rules) {
  rules.Add(In(node, 1), Tuple(node, rules, node.Int("batch_dims", 0)));
}

void OfScatterND(const Node& node, DrawRules& rules) {
  DrawRule rule = Tuple(node, rules, 0);
  rule.distinct = -1;
  rule.dims = rules.DimsOf(In(node, 1));
  rules.Add(In(node, 1), rule);
}

void OfScatterElements(const Node& node, DrawRules& rules) {
  const int64_t axis = node.Int("axis", 0);
  DrawRule rule = Index(rules.SizeOf(In(node, 0), axis));
  rule.distinct = static_cast<int>(Normal(axis, RankOf(rules, In(node, 0))));
  rule.dims = rules.DimsOf(In(node, 1));
  rules.Add(In(node, 1), rule);
}

void OfTensorScatter(const Node& node, DrawRules& rules) {
  const int64_t axis = node.Int("axis", -2);
  const int64_t room = rules.SizeOf(In(node, 0), axis), steps = rules.SizeOf(In(node, 1), axis);
  const bool circular = node.String("mode", "linear") == "circular";
  rules.AddRange(In(node, 2), 0, std::max<int64_t>(circular ? room - 1 : room - steps, 0));
}

void OfOneHot(const Node& node, DrawRules& rules) {
  const Contents depth = rules.ContentsOf(In(node, 1));
  const bool known = depth.size() == 1 && depth[0];
  if (!known) rules.AddRange(In(node, 1), 2, kSomeSize);
  rules.Add(In(node, 0), Index(known ? *depth[0] : 2));
}

void OfClasses(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, 1), 0, std::max<int64_t>(rules.SizeOf(In(node, 0), 1), 1) - 1);
}

void OfRotaryEmbedding(const Node& node, DrawRules& rules) {
  if (RankOf(rules, In(node, 1)) != 2) return;
  rules.AddRange(In(node, 3), 0, std::max<int64_t>(rules.SizeOf(In(node, 1), 0), 1) - 1);
}

void OfMaxUnpool(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, 1), 0, std::max<int64_t>(rules.ElementsOf(In(node, 0)), 1) - 1);
}

void OfRoiAlign(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, 2), 0, std::max<int64_t>(rules.SizeOf(In(node, 0), 0), 1) - 1);
}

// ---- axes ----

// A list of different axes, or one, of a tensor of this rank.
void AddAxes(DrawRules& rules, ValueId list, int64_t rank) {
  const int64_t count = rules.ElementsOf(list);
  if (count < 0 || rank < 1 || count > rank) return;
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  std::vector<Cell> cells;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(rules.random().Within(0, rank - 1 - i));
    const int64_t axis = rules.random().OneIn(2) ? axes[at] : axes[at] - rank;
    axes.erase(axes.begin() + static_cast<ptrdiff_t>(at));
    cells.push_back({axis, axis});
  }
  if (!cells.empty()) rules.AddCells(list, std::move(cells));
}

void OfAxes(const Node& node, DrawRules& rules) {
  AddAxes(rules, In(node, 1), RankOf(rules, In(node, 0)));
}

// Axes of size 1.
void OfSqueeze(const Node& node, DrawRules& rules) {
  const std::vector<int64_t> dims = rules.DimsOf(In(node, 0));
  const int64_t count = rules.ElementsOf(In(node, 1));
  std::vector<Cell> cells;
  for (size_t axis = 0; axis < dims.size() && static_cast<int64_t>(cells.size()) < count; ++axis) {
    if (dims[axis] == 1) cells.push_back({static_cast<int64_t>(axis), static_cast<int64_t>(axis)});
  }
  if (!cells.empty()) rules.AddCells(In(node, 1), std::move(cells));
}

void OfUnsqueeze(const Node& node, DrawRules& rules) {
  const int64_t count = rules.ElementsOf(In(node, 1));
  AddAxes(rules, In(node, 1), RankOf(rules, In(node, 0)) + std::max<int64_t>(count, 0));
}

void OfTrilu(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, 1), -std::max<int64_t>(rules.SizeOf(In(node, 0), -2), 1),
                 std::max<int64_t>(rules.SizeOf(In(node, 0), -1), 1));
}

// ---- sizes ----

// Factors of `product`, as many as there are.
std::vector<int64_t> Factors(int64_t product, size_t count, Random& random) {
  std::vector<int64_t> factors(count, 1);
  for (int64_t prime = 2; prime <= product && count > 0; ++prime) {
    if (prime * prime > product) prime = product;
    for (; product > 1 && product % prime == 0; product /= prime)
      factors[static_cast<size_t>(random.Next() % count)] *= prime;
  }
  return factors;
}

void OfReshape(const Node& node, DrawRules& rules) {
  const ValueId list = In(node, 1);
  const Contents known = rules.ContentsOf(list);
  int64_t left = rules.ElementsOf(In(node, 0));
  size_t open = 0;
  bool rest = false;  // a size is whatever is left
  for (size_t i = 0; i < known.size(); ++i) {
    const int64_t same = rules.SizeOf(In(node, 0), static_cast<int64_t>(i));
    const int64_t size = !known[i] ? 1 : *known[i] == 0 ? same : *known[i];
    open += known[i] ? 0 : 1;
    rest = rest || size == -1;
    if (size > 0 && left > 0) left = left % size == 0 ? left / size : -1;
  }
  if (open == 0) return;
  std::vector<int64_t> factors(open, 1);
  if (left > 0) {
    factors = Factors(left, open + (rest ? 1 : 0), rules.random());
  } else if (!rest) {
    factors[0] = -1;
  }
  std::vector<Cell> cells;
  for (const std::optional<int64_t>& each : known) {
    cells.emplace_back();
    if (each) continue;
    cells.back() = {factors.back(), factors.back()};
    factors.pop_back();
  }
  rules.AddCells(list, std::move(cells));
}

void OfExpand(const Node& node, DrawRules& rules) {
  const std::vector<int64_t> dims = rules.DimsOf(In(node, 0));
  const int64_t count = rules.ElementsOf(In(node, 1));
  std::vector<Cell> cells;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t axis = i - count + static_cast<int64_t>(dims.size());
    const int64_t size = axis < 0 ? 1 : dims[static_cast<size_t>(axis)];
    cells.push_back(size == 1 ? Cell{1, kFewTimes}
                              : Cell{std::max<int64_t>(size, 1), std::max<int64_t>(size, 1)});
  }
  if (!cells.empty()) rules.AddCells(In(node, 1), std::move(cells));
}

void OfTile(const Node& node, DrawRules& rules) { rules.AddRange(In(node, 1), 1, kFewTimes); }
void OfSizes(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, node.op == "CenterCropPad" || node.op == "AffineGrid" ? 1 : 0), 1,
                 kSomeSize);
}

void OfAffineGrid(const Node& node, DrawRules& rules) {
  const int64_t samples = std::max<int64_t>(rules.SizeOf(In(node, 0), 0), 1);
  std::vector<Cell> cells(static_cast<size_t>(std::max<int64_t>(rules.ElementsOf(In(node, 1)), 0)),
                          {1, kSomeSize});
  if (cells.empty()) return;
  cells[0] = {samples, samples};
  rules.AddCells(In(node, 1), std::move(cells));
}

// The axes of which lists speak: those of an operand, or the first ones.
std::vector<int64_t> AxesOf(DrawRules& rules, ValueId axes, int64_t rank, int64_t count) {
  const Contents known = rules.ContentsOf(axes);
  std::vector<int64_t> result;
  for (int64_t i = 0; i < count; ++i) {
    const bool told = static_cast<size_t>(i) < known.size() && known[static_cast<size_t>(i)];
    result.push_back(told ? Normal(*known[static_cast<size_t>(i)], rank) : i);
  }
  return result;
}

void OfSlice(const Node& node, DrawRules& rules) {
  const int64_t rank = RankOf(rules, In(node, 0));
  const int64_t count = rules.ElementsOf(In(node, 1));
  if (count < 0) return;
  if (rules.ContentsOf(In(node, 3)) == Contents(static_cast<size_t>(count)))
    AddAxes(rules, In(node, 3), rank);
  const Contents steps = rules.ContentsOf(In(node, 4));
  std::vector<Cell> starts, ends;
  for (const int64_t axis : AxesOf(rules, In(node, 3), rank, count)) {
    const int64_t size = std::max<int64_t>(rules.SizeOf(In(node, 0), axis), 2);
    const size_t at = starts.size();
    const bool back = at < steps.size() && steps[at].value_or(1) < 0;
    const Cell low = {0, (size - 1) / 2}, high = {size / 2 + (back ? 0 : 1), size - (back ? 1 : 0)};
    starts.push_back(back ? high : low);
    ends.push_back(back ? Cell{0, size / 2 - 1} : high);
  }
  if (starts.empty()) return;
  rules.AddCells(In(node, 1), std::move(starts));
  rules.AddCells(In(node, 2), std::move(ends));
  rules.AddRange(In(node, 4), 1, 2);
}

void OfPad(const Node& node, DrawRules& rules) {
  const int64_t rank = RankOf(rules, In(node, 0));
  const int64_t count = rules.ElementsOf(In(node, 1));
  const std::string mode = node.String("mode", "constant");
  if (count < 0) return;
  const std::vector<int64_t> axes = AxesOf(rules, In(node, 3), rank, count / 2);
  AddAxes(rules, In(node, 3), rank);
  std::vector<Cell> cells;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = rules.SizeOf(In(node, 0), axes[static_cast<size_t>(i % (count / 2))]);
    const int64_t most = mode == "reflect" ? size - 1 : mode == "wrap" ? size : kFewTimes;
    cells.push_back({0, std::clamp<int64_t>(most, 0, kFewTimes)});
  }
  if (!cells.empty()) rules.AddCells(In(node, 1), std::move(cells));
}

// Parts that together are the axis.
void OfSplit(const Node& node, DrawRules& rules) {
  int64_t left = rules.SizeOf(In(node, 0), node.Int("axis", 0));
  const int64_t count = rules.ElementsOf(In(node, 1));
  if (left < 0 || count < 1) return;
  std::vector<Cell> cells;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t others = count - 1 - i;
    const int64_t most = std::max<int64_t>(left - others, 0);
    const int64_t least = std::min<int64_t>(most, 1);
    const int64_t size = others == 0 ? left : rules.random().Within(least, most);
    left -= size;
    cells.push_back({size, size});
  }
  rules.AddCells(In(node, 1), std::move(cells));
}

void OfTopK(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, 1), 1, rules.SizeOf(In(node, 0), node.Int("axis", -1)));
}

void OfRange(const Node& node, DrawRules& rules) {
  const Contents start = rules.ContentsOf(In(node, 0));
  const int64_t first = start.size() == 1 && start[0] ? *start[0] : 2;
  rules.AddRange(In(node, 0), 0, 2);
  rules.AddRange(In(node, 1), first + 1, first + kSomeSize);
  rules.AddRange(In(node, 2), 1, 2);
}

void OfResize(const Node& node, DrawRules& rules) {
  rules.AddReal(In(node, 2), 0.5, 2);
  const std::vector<int64_t> dims = rules.DimsOf(In(node, 0));
  const int64_t count = rules.ElementsOf(In(node, 3));
  if (count < 0) return;
  const std::vector<int64_t> listed = node.Ints("axes");
  std::vector<Cell> cells;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t axis = at < listed.size() ? Normal(listed[at], RankOf(rules, In(node, 0))) : i;
    const int64_t size = std::max<int64_t>(rules.SizeOf(In(node, 0), axis), 1);
    const bool whole = listed.empty() && i < 2 && dims.size() > 2;  // samples and channels
    cells.push_back(whole ? Cell{size, size} : Cell{(size + 1) / 2, 2 * size});
  }
  rules.AddCells(In(node, 3), std::move(cells));
}

void OfCol2Im(const Node& node, DrawRules& rules) { rules.AddRange(In(node, 1), 4, kSomeSize); }

// ---- lengths, masks, numbers ----

void OfReverseSequence(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, 1), 1, rules.SizeOf(In(node, 0), node.Int("time_axis", 0)));
}

void OfRecurrent(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, 4), 1, rules.SizeOf(In(node, 0), node.Int("layout", 0) == 0 ? 0 : 1));
}

void OfAttention(const Node& node, DrawRules& rules) {
  const ValueId mask = In(node, 3);
  if (mask != kNone && rules.graph().value(mask).type.dtype == DataType::kBool) {
    DrawRule rule;
    rule.cells = {{0, 1}};
    rule.mask = true;
    rules.Add(mask, rule);
  }
  rules.AddRange(In(node, 6), 1, rules.SizeOf(In(node, 1), -2));
}

void OfNonMaxSuppression(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, 2), 1, rules.SizeOf(In(node, 0), 1));
  rules.AddReal(In(node, 3), 0.1, 0.9);
  rules.AddReal(In(node, 4), -1, 1);
}

void OfBitShift(const Node& node, DrawRules& rules) {
  const int bits = DataTypeBits(rules.graph().value(node.inputs[0]).type.dtype);
  rules.AddRange(In(node, 1), 0, std::max(bits, 1) - 1);
}

// No integer is divided by 0.
void OfDivision(const Node& node, DrawRules& rules) {
  if (IsInteger(rules.graph().value(node.inputs[0]).type.dtype))
    rules.AddRange(In(node, 1), 1, kSomeSize);
}

void OfPow(const Node& node, DrawRules& rules) {
  if (IsInteger(rules.graph().value(node.inputs[1]).type.dtype))
    rules.AddRange(In(node, 1), 0, kFewTimes);
}

void OfScale(const Node& node, DrawRules& rules) { rules.AddReal(In(node, 1), 0.01, 0.1); }
void OfVariance(const Node& node, DrawRules& rules) { rules.AddReal(In(node, 4), 0.5, 2); }

void OfFourier(const Node& node, DrawRules& rules) {
  rules.AddRange(In(node, 1), 1, kSomeSize);  // points of DFT, steps of STFT
  if (node.op == "DFT" && rules.ElementsOf(In(node, 2)) == 1)
    rules.AddRange(In(node, 2), 0, std::max<int64_t>(RankOf(rules, In(node, 0)) - 2, 0));
}

struct Wants {
  std::string_view op;
  void (*add)(const Node&, DrawRules&);
};
constexpr Wants kWants[] = {
    {"Gather", OfGather},
    {"GatherElements", OfGather},
    {"GatherND", OfGatherND},
    {"ScatterND", OfScatterND},
    {"ScatterElements", OfScatterElements},
    {"TensorScatter", OfTensorScatter},
    {"OneHot", OfOneHot},
    {"NegativeLogLikelihoodLoss", OfClasses},
    {"SoftmaxCrossEntropyLoss", OfClasses},
    {"RotaryEmbedding", OfRotaryEmbedding},
    {"MaxUnpool", OfMaxUnpool},
    {"RoiAlign", OfRoiAlign},
    {"ReduceL1", OfAxes},
    {"ReduceL2", OfAxes},
    {"ReduceLogSum", OfAxes},
    {"ReduceLogSumExp", OfAxes},
    {"ReduceMax", OfAxes},
    {"ReduceMean", OfAxes},
    {"ReduceMin", OfAxes},
    {"ReduceProd", OfAxes},
    {"ReduceSum", OfAxes},
    {"ReduceSumSquare", OfAxes},
    {"CumSum", OfAxes},
    {"CumProd", OfAxes},
    {"Squeeze", OfSqueeze},
    {"Unsqueeze", OfUnsqueeze},
    {"Trilu", OfTrilu},
    {"Reshape", OfReshape},
    {"Expand", OfExpand},
    {"Tile", OfTile},
    {"ConstantOfShape", OfSizes},
    {"CenterCropPad", OfSizes},
    {"BlackmanWindow", OfSizes},
    {"HammingWindow", OfSizes},
    {"HannWindow", OfSizes},
    {"AffineGrid", OfAffineGrid},
    {"Slice", OfSlice},
    {"Pad", OfPad},
    {"Split", OfSplit},
    {"TopK", OfTopK},
    {"Range", OfRange},
    {"Resize", OfResize},
    {"Col2Im", OfCol2Im},
    {"ReverseSequence", OfReverseSequence},
    {"LSTM", OfRecurrent},
    {"GRU", OfRecurrent},
    {"RNN", OfRecurrent},
    {"Attention", OfAttention},
    {"NonMaxSuppression", OfNonMaxSuppression},
    {"BitShift", OfBitShift},
    {"Div", OfDivision},
    {"Mod", OfDivision},
    {"Pow", OfPow},
    {"QuantizeLinear", OfScale},
    {"DequantizeLinear", OfScale},
    {"BatchNormalization", OfVariance},
    {"DFT", OfFourier},
    {"STFT", OfFourier},
};

}  // namespace

void AddOperandRules(const Node& node, DrawRules& rules) {
  const auto* const found = std::ranges::find(kWants, node.op, &Wants::op);
  if (found != std::end(kWants)) found->add(node, rules);
}

}  // namespace quench
