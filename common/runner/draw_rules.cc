#include "common/runner/draw_rules.h"

#include <algorithm>
#include <cmath>

namespace quench {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
// Lists up to this length have a rule for each element.
constexpr int64_t kLongestList = 64;
constexpr double kLargeFactor = 1e4;  // of masks that shut out by adding -10000 and beyond

template <size_t n>
bool Among(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Their result has the elements of input 0 in the same order.
constexpr std::string_view kViews[] = {"Identity", "Reshape", "Unsqueeze", "Squeeze",
                                       "Flatten",  "Cast",    "Dropout"};
// Their result has elements of input 0 in another order, or some of them.
constexpr std::string_view kMoves[] = {"Transpose", "Slice",     "Gather",    "Expand",
                                       "Tile",      "ReduceMax", "ReduceMin", "GatherElements",
                                       "GatherND",  "MaxPool",   "Compress",  "ReverseSequence"};
constexpr std::string_view kComparisons[] = {"Equal", "Less", "LessOrEqual", "Greater",
                                             "GreaterOrEqual"};

DrawRule::Cell Both(const DrawRule::Cell& a, const DrawRule::Cell& b) {
  const DrawRule::Cell both = {std::max(a.low, b.low), std::min(a.high, b.high)};
  return both.low <= both.high ? both : a;
}

// One rule for all elements, where their order is not that of the list.
DrawRule Mixed(DrawRule rule) {
  if (rule.cells.size() > 1) {
    DrawRule::Cell all;
    for (const DrawRule::Cell& cell : rule.cells) all = Both(all, cell);
    rule.cells = {all};
  }
  rule.distinct.reset();
  return rule;
}

int64_t Plus(int64_t a, int64_t b) {
  if (a == kLowest || a == kHighest) return a;
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? a : sum;
}

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

DrawRule OfRange(int64_t low, int64_t high) {
  DrawRule rule;
  rule.cells = {{low, high}};
  return rule;
}

}  // namespace

bool DrawRule::free() const {
  return !mask && !real && std::ranges::all_of(cells, [](const Cell& each) { return each.free(); });
}

void DrawRules::Add(ValueId id, const DrawRule& rule) {
  if (id == kNone) return;
  DrawRule& own = of(id);
  const bool was_free = own.cells.empty();
  if (!rule.cells.empty()) {
    if (was_free) {
      own.cells = rule.cells;
    } else if (own.cells.size() == rule.cells.size() || rule.cells.size() == 1) {
      for (size_t i = 0; i < own.cells.size(); ++i)
        own.cells[i] = Both(own.cells[i], rule.cells[rule.cells.size() == 1 ? 0 : i]);
    } else {
      const DrawRule mixed = Mixed(own);
      own.cells = rule.cells;
      if (mixed.cells.size() == 1) {
        for (DrawRule::Cell& cell : own.cells) cell = Both(cell, mixed.cells[0]);
      }
    }
    own.negative = was_free || own.negative == rule.negative ? rule.negative : 0;
  }
  if (rule.distinct && !own.distinct) {
    own.distinct = rule.distinct;
    own.dims = rule.dims;
  }
  own.mask = own.mask || rule.mask;
  own.empty_rows = own.empty_rows || rule.empty_rows;
  own.compared.insert(rule.compared.begin(), rule.compared.end());
  if (rule.real && !own.real) own.real = rule.real;
}

void DrawRules::AddCells(ValueId id, std::vector<DrawRule::Cell> cells) {
  DrawRule rule;
  rule.cells = std::move(cells);
  Add(id, rule);
}
void DrawRules::AddRange(ValueId id, int64_t low, int64_t high) {
  Add(id, OfRange(low, std::max(low, high)));
}
void DrawRules::AddReal(ValueId id, double low, double high) {
  DrawRule rule;
  rule.real = {low, high};
  Add(id, rule);
}

std::vector<int64_t> DrawRules::DimsOf(ValueId id) const {
  std::vector<int64_t> dims;
  if (id == kNone) return dims;
  for (const Dim dim : graph_.value(id).type.dims) {
    const bool told = dim.is_static() || static_cast<size_t>(dim.symbol()) < slots_.size();
    dims.push_back(told ? SymbolTable::ValueOf(dim, slots_) : -1);
  }
  return dims;
}

int64_t DrawRules::SizeOf(ValueId id, int64_t axis) const {
  const std::vector<int64_t> dims = DimsOf(id);
  const auto rank = static_cast<int64_t>(dims.size());
  if (axis < 0) axis += rank;
  return axis >= 0 && axis < rank ? dims[static_cast<size_t>(axis)] : -1;
}

int64_t DrawRules::ElementsOf(ValueId id) const {
  if (id == kNone || !graph_.value(id).type.ranked) return -1;
  return ElementCount(DimsOf(id)).value_or(-1);
}

DrawRules::Contents DrawRules::ContentsOf(ValueId id) const {
  if (id == kNone) return {};
  const Value& value = graph_.value(id);
  if (value.constant != nullptr) {
    const Tensor& tensor = value.constant->tensor;
    if (!IsInteger(tensor.dtype()) || tensor.size() > kLongestList) return {};
    const std::vector<int64_t> ints = tensor.ToInts();
    return {ints.begin(), ints.end()};
  }
  const int64_t count = ElementsOf(id);
  if (count < 0 || count > kLongestList) return {};
  Contents contents(static_cast<size_t>(count));
  if (value.elements && value.elements->size() == contents.size()) {
    for (size_t i = 0; i < contents.size(); ++i) {
      const int64_t size = SymbolTable::ValueOf((*value.elements)[i], slots_);
      if (size >= 0 || (*value.elements)[i].is_static()) contents[i] = size;
    }
    return contents;
  }
  if (value.producer == kNone) return contents;
  const Node& node = graph_.node(value.producer);
  if (Among(kViews, node.op)) {
    Contents before = ContentsOf(node.inputs[0]);
    if (before.size() == contents.size()) contents = std::move(before);
  } else if (node.op == "Concat") {
    Contents joined;
    for (const ValueId part : node.inputs) {
      const Contents each = ContentsOf(part);
      joined.insert(joined.end(), each.begin(), each.end());
    }
    if (joined.size() == contents.size()) contents = std::move(joined);
  }
  return contents;
}

// Between which two a value lies, where that can be told before the run.
std::optional<DrawRule::Cell> DrawRules::KnownRange(ValueId id) const {
  if (id == kNone) return std::nullopt;
  const Value& value = graph_.value(id);
  if (value.constant != nullptr && value.constant->tensor.size() > 0) {
    const Tensor& tensor = value.constant->tensor;
    if (!IsInteger(tensor.dtype()) && !IsFloat(tensor.dtype())) return std::nullopt;
    double low = tensor.FloatAt(0), high = low;
    for (int64_t i = 1; i < tensor.size(); ++i) {
      low = std::min(low, tensor.FloatAt(i));
      high = std::max(high, tensor.FloatAt(i));
    }
    if (!(std::abs(low) < 1e15) || !(std::abs(high) < 1e15)) return std::nullopt;
    return DrawRule::Cell{static_cast<int64_t>(std::floor(low)),
                          static_cast<int64_t>(std::ceil(high))};
  }
  const Contents contents = ContentsOf(id);
  DrawRule::Cell cell = {kHighest, kLowest};
  for (const std::optional<int64_t>& each : contents) {
    if (!each) return std::nullopt;
    cell = {std::min(cell.low, *each), std::max(cell.high, *each)};
  }
  if (!contents.empty()) return cell;
  if (value.producer == kNone) return std::nullopt;
  const Node& node = graph_.node(value.producer);
  if (Among(kViews, node.op) || Among(kMoves, node.op)) return KnownRange(node.inputs[0]);
  if (node.op == "Range") {
    const auto low = KnownRange(node.inputs[0]), high = KnownRange(node.inputs[1]);
    if (low && high && low->low < high->high) return DrawRule::Cell{low->low, high->high - 1};
  }
  return std::nullopt;
}

// y = max(a, b, ...): an operand needs no rule of its own where another one keeps the result within
// bounds.
void DrawRules::PassThroughExtremum(const Node& node, const DrawRule::Cell& wanted) {
  if (wanted.free()) return;
  const bool open = node.op == "Min" ? wanted.low == kLowest : wanted.high == kHighest;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    bool kept = false;
    for (size_t other = 0; other < node.inputs.size() && open; ++other) {
      const std::optional<DrawRule::Cell> range =
          other == i ? std::nullopt : KnownRange(node.inputs[other]);
      kept = kept || (range && range->low >= wanted.low && range->high <= wanted.high);
    }
    if (!kept) Add(node.inputs[i], OfRange(wanted.low, wanted.high));
  }
}

// y = x + c, and the like: what x may be, so that y is what it may be.
void DrawRules::PassThroughArithmetic(const Node& node) {
  DrawRule rule = Mixed(of(node.outputs[0]));
  rule.negative = 0;
  rule.compared.clear();
  if (node.op == "Neg") {
    for (DrawRule::Cell& cell : rule.cells) {
      cell = {cell.high == kHighest ? kLowest : -cell.high,
              cell.low == kLowest ? kHighest : -cell.low};
    }
    return Add(node.inputs[0], rule);
  }
  const DrawRule::Cell wanted = rule.cells.empty() ? DrawRule::Cell{} : rule.cells[0];
  if (node.op == "Min" || node.op == "Max") return PassThroughExtremum(node, wanted);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const std::optional<DrawRule::Cell> other = KnownRange(node.inputs[1 - i]);
    DrawRule mine;
    if (wanted.free()) continue;
    if (!other && node.op == "Add" && wanted.low <= 0 && wanted.high > 0) {
      mine = OfRange(0, wanted.high / 2);  // half of it each
    } else if (!other) {
      continue;
    } else if (node.op == "Add") {
      mine = OfRange(Plus(wanted.low, -other->low), Plus(wanted.high, -other->high));
    } else if (node.op == "Sub" && i == 0) {
      mine = OfRange(Plus(wanted.low, other->high), Plus(wanted.high, other->low));
    } else if (node.op == "Sub") {
      mine = OfRange(wanted.high == kHighest ? kLowest : Plus(other->high, -wanted.high),
                     wanted.low == kLowest ? kHighest : Plus(other->low, -wanted.low));
    } else if (node.op == "Mul" && other->low > 0) {
      mine = OfRange(wanted.low == kLowest ? kLowest : -FloorDiv(-wanted.low, other->high),
                     wanted.high == kHighest ? kHighest : FloorDiv(wanted.high, other->high));
    } else if (node.op == "Div" && i == 0 && other->low > 0 && wanted.low <= 0 &&
               wanted.high < kHighest / (other->low + 1)) {
      mine = OfRange(0, wanted.high * other->low);
    } else if (node.op == "Mod" && i == 0 && other->low > 0) {
      mine = OfRange(0, 4 * other->high);
    }
    if (!mine.cells.empty() && mine.cells[0].low <= mine.cells[0].high) Add(node.inputs[i], mine);
  }
}

void DrawRules::PassBack(const Node& node) {
  constexpr std::string_view kArithmetic[] = {"Add", "Sub", "Mul", "Div",
                                              "Mod", "Min", "Max", "Neg"};
  if (node.outputs.empty() || node.inputs.empty() || node.inputs[0] == kNone) return;
  const DrawRule& rule = node.outputs[0] == kNone ? DrawRule{} : of(node.outputs[0]);
  const Type& from = graph_.value(node.inputs[0]).type;
  if (node.op == "Cast" && node.outputs[0] != kNone) {
    const DataType to = graph_.value(node.outputs[0]).type.dtype;
    if (to == DataType::kBool && IsInteger(from.dtype)) {
      DrawRule mask = OfRange(0, 1);
      mask.mask = true;
      mask.empty_rows = rule.empty_rows;
      return Add(node.inputs[0], mask);
    }
    if (from.dtype == DataType::kBool || to == DataType::kBool) return;
  }
  if (Among(kViews, node.op)) return Add(node.inputs[0], rule);
  if (node.op == "Concat" && rule.cells.size() > 1) {
    size_t at = 0;
    for (const ValueId part : node.inputs) {
      const int64_t count = ElementsOf(part);
      if (count < 0 || at + static_cast<size_t>(count) > rule.cells.size()) return;
      const auto begin = rule.cells.begin() + static_cast<ptrdiff_t>(at);
      AddCells(part, {begin, begin + count});
      at += static_cast<size_t>(count);
    }
    return;
  }
  // An element of a list: the others stay as they are.
  if (node.op == "Gather" && from.rank() == 1 && !rule.free()) {
    const Contents at = ContentsOf(node.inputs[1]);
    const int64_t count = ElementsOf(node.inputs[0]);
    if (at.size() == 1 && at[0] && count > 0 && count <= kLongestList) {
      std::vector<DrawRule::Cell> cells(static_cast<size_t>(count));
      const int64_t place = *at[0] < 0 ? *at[0] + count : *at[0];
      if (place >= 0 && place < count && !rule.cells.empty()) {
        cells[static_cast<size_t>(place)] = Mixed(rule).cells[0];
        return AddCells(node.inputs[0], std::move(cells));
      }
    }
  }
  if (Among(kMoves, node.op)) return Add(node.inputs[0], Mixed(rule));
  if (node.op == "Split" || node.op == "Concat") {
    for (const ValueId in : node.op == "Split" ? std::vector{node.inputs[0]} : node.inputs) {
      for (const ValueId out : node.outputs) {
        if (out != kNone) Add(in, Mixed(of(out)));
      }
    }
    return;
  }
  if (node.op == "Where") {
    for (const size_t i : {1U, 2U}) Add(node.inputs[i], Mixed(rule));
  } else if (node.op == "Clip") {
    Add(node.inputs[0], Mixed(rule));
  } else if (node.op == "CumSum" && !rule.cells.empty()) {
    const int64_t length = std::max<int64_t>(ElementsOf(node.inputs[0]), 1);
    AddRange(node.inputs[0], 0, std::max<int64_t>(Mixed(rule).cells[0].high / length, 1));
  } else if (Among(kArithmetic, node.op) && !rule.free()) {
    PassThroughArithmetic(node);
  } else if (Among(kComparisons, node.op) && IsInteger(from.dtype)) {
    for (const size_t i : {0U, 1U}) {
      const Contents other = ContentsOf(node.inputs[1 - i]);
      if (other.size() != 1 || !other[0]) continue;
      DrawRule compared;
      compared.compared = {*other[0]};
      Add(node.inputs[i], compared);
    }
  } else if (node.op == "Mul") {
    PassToMask(node);
  }
}

// (1 - m) * -10000, (m - 1) * 10000 and m * -10000 are added to scores: m is a mask, and rows that it
// shuts out have a result.
void DrawRules::PassToMask(const Node& node) {
  for (const size_t i : {0U, 1U}) {
    const Value& factor = graph_.value(node.inputs[1 - i]);
    if (factor.constant == nullptr || factor.constant->tensor.size() != 1) continue;
    if (!IsFloat(factor.type.dtype)) continue;
    const double by = factor.constant->tensor.FloatAt(0);
    if (!(std::abs(by) >= kLargeFactor)) continue;
    const NodeId producer = graph_.value(node.inputs[i]).producer;
    const bool difference = producer != kNone && graph_.node(producer).op == "Sub";
    if (!difference && by > 0) continue;
    DrawRule mask = OfRange(0, 1);
    mask.mask = mask.empty_rows = true;
    Add(difference ? graph_.node(producer).inputs[by < 0 ? 1 : 0] : node.inputs[i], mask);
  }
}

// Rules for inputs of the bodies become rules for the node's own inputs.
void DrawRules::PassIntoBodies(const Node& node) {
  if (node.op == "Loop") {
    AddRange(node.inputs[0], 1, 4);
    if (node.inputs.size() > 1) AddRange(node.inputs[1], 1, 1);
  }
  const bool same = node.op == "If" || node.IsGroup();
  const size_t first = node.op == "If" ? 1 : 0;  // the condition
  for (const auto& [name, attribute] : node.attributes) {
    const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
    if (body == nullptr || *body == nullptr) continue;
    const bool own_table = (*body)->symbols != graph_.symbols;
    DrawRules within(**body, own_table ? std::span<const int64_t>() : slots_, random_);
    for (size_t i = 0; same && i < std::min((*body)->outputs.size(), node.outputs.size()); ++i) {
      if (node.outputs[i] != kNone) within.Add((*body)->outputs[i], of(node.outputs[i]));
    }
    within.Find();
    for (size_t i = 0; i < (*body)->inputs.size() && i + first < node.inputs.size(); ++i) {
      const ValueId outer = node.inputs[i + first];
      if (outer == kNone || (node.op == "Loop" && i < 2)) continue;
      const DrawRule& rule = within.of((*body)->inputs[i]);
      Add(outer, node.op == "Scan" ? Mixed(rule) : rule);
    }
  }
}

void DrawRules::Find() {
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    AddOperandRules(*node, *this);
    PassIntoBodies(*node);
    PassBack(*node);
  }
}

std::vector<DrawRule> RulesOfInputs(const Graph& graph, std::span<const std::vector<int64_t>> dims,
                                    uint64_t seed) {
  std::vector<int64_t> slots(static_cast<size_t>(graph.symbols->size()), -1);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Type& type = graph.value(graph.inputs[i]).type;
    for (size_t axis = 0; axis < type.dims.size() && axis < dims[i].size(); ++axis) {
      if (!type.dims[axis].is_static())
        slots[static_cast<size_t>(type.dims[axis].symbol())] = dims[i][axis];
    }
  }
  const absl::StatusOr<std::vector<int64_t>> all = graph.symbols->Evaluate(slots);
  Random random(seed ^ 0x5851f42d4c957f2du);
  DrawRules rules(graph, all.ok() ? *all : slots, random);
  rules.Find();
  std::vector<DrawRule> of_inputs;
  for (const ValueId id : graph.inputs) of_inputs.push_back(rules.of(id));
  return of_inputs;
}

}  // namespace quench
