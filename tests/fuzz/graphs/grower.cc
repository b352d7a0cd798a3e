#include "tests/fuzz/graphs/grower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"

namespace quench::fuzz {
namespace {

constexpr int64_t kMostElements = 1 << 14;  // of one value: graphs are for their structure
constexpr double kLargest = 1e4;            // of floats; of halves a tenth
constexpr double kNudge = 1e-4;         // what operands are moved by to see what rounding decides
constexpr double kMostAmplified = 100;  // how much more a result may move than its operands
constexpr double kMostMoved =
    0.2;  // of its largest magnitude: more is not a rounding, of halves either

bool IsWhole(const Tensor& tensor) {
  if (!IsFloat(tensor.dtype())) return true;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double value = tensor.FloatAt(i);
    if (value != std::floor(value) || std::abs(value) > 1 << 20) return false;
  }
  return true;
}

// The tensor with each number moved a little, up or down.
Tensor Nudged(const Tensor& tensor, Dice& dice, double direction) {
  std::vector<double> values;
  const double by = direction * (IsHalf(tensor.dtype()) ? 1e-2 : kNudge);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double value = tensor.FloatAt(i);
    values.push_back(value + by * dice.Real(0.2, 1) * (std::abs(value) + 0.01));
  }
  return OfNumbers(tensor.dtype(), tensor.dims(), values);
}

// Nothing overflows, of which other runtimes have other ideas.
bool Settled(const Tensor& tensor) {
  const double largest = !IsFloat(tensor.dtype()) ? 1 << 30
                         : IsHalf(tensor.dtype()) ? kLargest / 10
                                                  : kLargest;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (!(std::abs(tensor.FloatAt(i)) <= largest)) return false;
  }
  return true;
}

}  // namespace

Tensor OfNumbers(DataType type, const Ints& dims, const std::vector<double>& values) {
  if (type == DataType::kF64) return Tensor::Of(type, dims, values);
  if (IsFloat(type))
    return Tensor::Floats(type, dims, std::vector<float>(values.begin(), values.end()));
  Tensor tensor = Tensor::Zeros(type, dims);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<int64_t>(values[i]);
    const auto width = static_cast<size_t>(DataTypeBits(type) / 8);
    std::copy_n(reinterpret_cast<const std::byte*>(&value), width,
                tensor.mutable_bytes() + i * width);
  }
  return tensor;
}

int64_t Dice::Integer(int64_t low, int64_t high) {
  if (high < low) return low;
  return low + static_cast<int64_t>(engine() % static_cast<uint64_t>(high - low + 1));
}
double Dice::Real(double low, double high) {
  return low + (high - low) * static_cast<double>(engine() >> 11) / 9007199254740992.0;
}
bool Dice::Chance(double probability) { return Real(0, 1) < probability; }

Grower::Grower(Dice& dice, Family family, DataType main, Statistics& statistics,
               std::shared_ptr<SymbolTable> symbols, int depth)
    : dice(dice),
      family_(family),
      main_(main),
      statistics_(statistics),
      depth_(depth),
      body_(depth == 0 ? 0 : ++dice.bodies) {
  graph.symbols = std::move(symbols);
  for (int i = 0; i < 3; ++i) sizes_.push_back(dice.Pick<int64_t>({1, 2, 3, 4, 5, 6, 8, 16}));
}

Tensor Grower::Numbers(DataType type, const Ints& dims) {
  const int64_t count = ElementCount(dims).value();
  std::vector<double> values(static_cast<size_t>(count));
  const auto salt = static_cast<uint64_t>(dice.Integer(0, 1 << 20));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t mixed = (static_cast<uint64_t>(i) * 7919 + salt) * 0x9E3779B97F4A7C15ULL >> 40;
    double value = static_cast<double>(mixed) / (1 << 23) - 1;  // [-1, 1)
    if (type == DataType::kBool) {
      value = mixed % 2;
    } else if (!IsFloat(type)) {
      value = std::floor(value * 6);
      if (IsUnsigned(type)) value = std::abs(value);
    } else if (family_ == Family::kWhole) {
      value = std::floor(value * 4);
    } else {
      value *= 2;
    }
    values[static_cast<size_t>(i)] = value;
  }
  return OfNumbers(type, dims, values);
}

Ints Grower::SomeDims(int min_rank, int max_rank, int64_t largest) {
  Ints dims(static_cast<size_t>(dice.Integer(min_rank, max_rank)));
  for (int64_t& dim : dims) dim = dice.Chance(0.5) ? dice.Of(sizes_) : dice.Integer(1, largest);
  if (dims.empty()) return dims;
  const auto any = static_cast<size_t>(dice.Integer(0, static_cast<int64_t>(dims.size()) - 1));
  if (dice.Chance(0.15)) dims[any] = dice.Integer(15, 40);
  if (dice.Chance(0.03)) dims[any] = 0;
  while (ElementCount(dims).value() > kMostElements / 8)
    *std::max_element(dims.begin(), dims.end()) /= 2;
  return dims;
}

// Sizes that a symbol has become that symbol now and then; a new symbol is made now and then, too.
std::vector<Dim> Grower::WithSymbols(const Ints& dims, int input) {
  std::vector<Dim> result(dims.begin(), dims.end());
  if (!dice.Chance(0.3)) return result;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (!dice.Chance(0.4)) continue;
    const std::string name = fmt::format("size{}", dims[axis]);
    const InputAxis at = {input, static_cast<int>(axis)};
    const Bounds bounds = {0, std::max<int64_t>(64, dims[axis])};
    result[axis] = Dim::OfSymbol(graph.symbols->AddInput(name, at, bounds));
  }
  return result;
}

ValueId Grower::Given(Tensor tensor, bool constant, bool fixed) {
  const bool input = depth_ == 0 && !constant && dice.Chance(0.6);
  ValueId id = 0;
  if (input) {
    const auto index = static_cast<int>(graph.inputs.size());
    const Ints& dims = tensor.dims();
    id = graph.AddInput(
        fmt::format("x{}", index),
        Type::Tensor(tensor.dtype(), fixed ? std::vector<Dim>(dims.begin(), dims.end())
                                           : WithSymbols(dims, index)));
  } else {
    id = graph.AddConstant("c", tensor);
  }
  tensors_.resize(graph.values.size());
  tensors_[static_cast<size_t>(id)] = std::move(tensor);
  return id;
}

ValueId Grower::AddBodyInput(const std::string& name, Type type, Tensor value) {
  const ValueId id = graph.AddInput(name, std::move(type));
  tensors_.resize(graph.values.size());
  tensors_[static_cast<size_t>(id)] = std::move(value);
  return id;
}

ValueId Grower::Fresh(DataType type, const Ints& dims, bool constant) {
  return Given(Numbers(type, dims), constant);
}

ValueId Grower::Integers(const Ints& values, bool constant) {
  return Given(Tensor::I64(values), constant || dice.Chance(0.6), true);
}
ValueId Grower::Scalar(int64_t value, bool constant) {
  return Given(Tensor::I64({value}).Reshaped({}), constant || dice.Chance(0.6), true);
}
ValueId Grower::FloatScalar(DataType type, double value, bool constant) {
  return Given(OfNumbers(type, {}, {value}), constant);
}

ValueId Grower::Value(const DataTypes& types, int min_rank, int max_rank) {
  std::vector<ValueId> fitting;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Tensor& each = tensors_[i];
    if (each.rank() < min_rank || each.rank() > max_rank) continue;
    if (std::find(types.begin(), types.end(), each.dtype()) != types.end())
      fitting.push_back(static_cast<ValueId>(i));
  }
  if (fitting.empty() || dice.Chance(0.1))
    return Fresh(dice.Of(types), SomeDims(min_rank, std::min(max_rank, std::max(min_rank, 4))));
  // The last ones most often, and later ones more often than others.
  const auto last = static_cast<int64_t>(fitting.size()) - 1;
  if (dice.Chance(0.4))
    return fitting[static_cast<size_t>(dice.Integer(std::max<int64_t>(last - 3, 0), last))];
  return fitting[static_cast<size_t>(std::max(dice.Integer(0, last), dice.Integer(0, last)))];
}

ValueId Grower::Float(int min_rank, int max_rank) {
  DataTypes types = {main_};
  if (dice.Chance(0.1)) types.push_back(DataType::kF32);
  return Value(types, min_rank, max_rank);
}

ValueId Grower::ValueOf(DataType type, const Ints& wanted) {
  std::vector<ValueId> fitting;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (tensors_[i].dtype() == type && tensors_[i].dims() == wanted)
      fitting.push_back(static_cast<ValueId>(i));
  }
  if (fitting.empty() || dice.Chance(0.3)) return Fresh(type, wanted, dice.Chance(0.5));
  return dice.Of(fitting);
}

ValueId Grower::Broadcastable(ValueId value) {
  std::vector<ValueId> fitting;
  const Ints& to = dims(value);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Ints& from = tensors_[i].dims();
    if (tensors_[i].dtype() != dtype(value) || from.size() > to.size()) continue;
    bool fits = true;
    for (size_t d = 1; d <= from.size(); ++d)
      fits = fits && (from[from.size() - d] == 1 || from[from.size() - d] == to[to.size() - d]);
    if (fits) fitting.push_back(static_cast<ValueId>(i));
  }
  if (!fitting.empty() && dice.Chance(0.7)) return dice.Of(fitting);
  Ints from(to.begin() + dice.Integer(0, static_cast<int64_t>(to.size())), to.end());
  for (int64_t& dim : from) {
    if (dice.Chance(0.3)) dim = 1;
  }
  return Fresh(dtype(value), from, dice.Chance(0.5));
}

bool Grower::Evaluate(const Node& node, std::vector<Tensor>& outputs) const {
  std::vector<const Tensor*> operands;
  for (const ValueId id : node.inputs)
    operands.push_back(id == kNone ? nullptr : &tensors_[static_cast<size_t>(id)]);
  absl::StatusOr<std::vector<Tensor>> result = ops::EvaluateNode(node, operands);
  if (!result.ok()) return false;
  outputs = *std::move(result);
  return true;
}

// Whether the value is of whole numbers that nothing has rounded on the way to them.
bool Grower::IsExact(ValueId id) const {
  static const std::set<std::string> exact = {
      "Abs",       "Add",    "Clip",     "Concat",    "Conv",      "Expand",
      "Flatten",   "Gather", "Identity", "MatMul",    "Max",       "MaxPool",
      "Min",       "Mul",    "Neg",      "Pad",       "ReduceMax", "ReduceMin",
      "ReduceSum", "Relu",   "Reshape",  "Slice",     "Split",     "Squeeze",
      "Sub",       "Sum",    "Tile",     "Transpose", "Unsqueeze", "Where"};
  if (!IsWhole(tensor(id))) return false;
  const NodeId producer = graph.value(id).producer;
  if (producer == kNone) return true;
  const Node& node = graph.node(producer);
  return exact.contains(node.op) && std::ranges::all_of(node.inputs, [&](ValueId operand) {
           return operand == kNone || IsExact(operand);
         });
}

bool Grower::IsSettled(const Node& node, const std::vector<Tensor>& outputs) {
  for (const Tensor& each : outputs) {
    if (each.size() > kMostElements || !Settled(each)) return false;
  }
  return StaysWhenMoved(node, outputs, 1) && StaysWhenMoved(node, outputs, -1);
}

// Whether results move little when all operands that something has rounded move in one direction.
bool Grower::StaysWhenMoved(const Node& node, const std::vector<Tensor>& outputs,
                            double direction) {
  std::vector<Tensor> moved;
  std::vector<const Tensor*> operands;
  bool any = false;
  for (const ValueId id : node.inputs) {
    moved.push_back(id == kNone ? Tensor() : tensor(id));
    if (id == kNone || !IsFloat(dtype(id)) || IsExact(id)) continue;
    moved.back() = Nudged(tensor(id), dice, direction);
    any = true;
  }
  if (!any) return true;
  for (size_t i = 0; i < moved.size(); ++i)
    operands.push_back(node.inputs[i] == kNone ? nullptr : &moved[i]);
  const absl::StatusOr<std::vector<Tensor>> results = ops::EvaluateNode(node, operands);
  if (!results.ok()) return false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double by = IsHalf(outputs[i].dtype()) ? 1e-2 : kNudge;
    const double most = IsFloat(outputs[i].dtype()) ? std::min(by * kMostAmplified, kMostMoved) : 0;
    if (outputs[i].size() > 0 && RelativeError((*results)[i], outputs[i]) > most) return false;
  }
  return true;
}

bool Grower::Add(const std::string& op, std::vector<ValueId> inputs, Attributes attributes,
                 int outputs) {
  const Mark mark = Save();
  // Names of nodes are unique over all bodies, as those of an importer are: sizes of a run belong to names.
  const std::string name = depth_ == 0 ? op : fmt::format("{}_in{}", op, body_);
  const NodeId id = graph.AddNode(op, name, inputs, outputs, std::move(attributes));
  std::vector<Tensor> results;
  Node& node = graph.node(id);
  absl::Status valid = ops::CheckNode(graph, node);
  if (valid.ok()) valid = ops::InferNode(graph, node);
  if (!valid.ok() || !Evaluate(node, results) || !IsSettled(node, results)) {
    ++statistics_.refused[op];
    if (statistics_.why)
      std::cout << fmt::format("{}: {}\n", op, valid.ok() ? "values" : MessageOf(valid));
    Restore(mark);
    return false;
  }
  tensors_.resize(graph.values.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (node.outputs[i] != kNone)
      tensors_[static_cast<size_t>(node.outputs[i])] = std::move(results[i]);
  }
  ++statistics_.nodes[op];
  for (const ValueId operand : inputs) {
    if (operand == kNone || graph.value(operand).producer == kNone) continue;
    statistics_.neighbours.emplace(graph.node(graph.value(operand).producer).op, op);
  }
  return true;
}

ValueId Grower::last(int output) const {
  return graph.nodes.back().outputs[static_cast<size_t>(output)];
}

Grower::Mark Grower::Save() const {
  return {graph.values.size(), graph.nodes.size(), graph.inputs.size(), *graph.symbols};
}

void Grower::Restore(const Mark& mark) {
  graph.values.resize(mark.values);
  graph.nodes.resize(mark.nodes);
  graph.inputs.resize(mark.inputs);
  tensors_.resize(mark.values);
  *graph.symbols = mark.symbols;
}

bool Grower::Step(const std::string& op) {
  std::string name = op;
  if (name.empty()) {
    static const std::vector<std::string> names = [] {
      std::vector<std::string> all;
      for (const auto& [each, rule] : AllRules()) all.push_back(each);
      return all;
    }();
    // Operators that models contain more often than the rest.
    static const std::vector<std::string> common = {"Reshape",
                                                    "Transpose",
                                                    "Split",
                                                    "Slice",
                                                    "Concat",
                                                    "Add",
                                                    "Mul",
                                                    "MatMul",
                                                    "Conv",
                                                    "Squeeze",
                                                    "Unsqueeze",
                                                    "Gather",
                                                    "Pad",
                                                    "Relu",
                                                    "Softmax",
                                                    "Expand",
                                                    "Cast",
                                                    "ReduceMean",
                                                    "block",
                                                    "block",
                                                    "views of parts",
                                                    "views of parts",
                                                    "If",
                                                    "loop of growing states"};
    name = dice.Chance(0.35) ? dice.Of(common) : dice.Of(names);
  }
  const Mark mark = Save();
  if (AllRules().at(name)(*this, name)) return true;
  Restore(mark);
  return false;
}

void Grower::Finish() {
  const std::vector<int> uses = graph.UseCounts();
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const bool made = graph.values[i].producer != kNone;
    if (made && (uses[i] == 0 || dice.Chance(0.1)))
      graph.outputs.push_back(static_cast<ValueId>(i));
  }
}

std::vector<Tensor> Grower::inputs() const {
  std::vector<Tensor> tensors;
  for (const ValueId id : graph.inputs) tensors.push_back(tensor(id));
  return tensors;
}

const std::map<std::string, Rule>& AllRules() {
  static const std::map<std::string, Rule> rules = [] {
    std::map<std::string, Rule> all;
    for (const auto& rows : {PointwiseRules(), MovementRules(), LayerRules(), ControlRules()}) {
      for (const RuleRow& row : rows) {
        for (const std::string& op : row.ops) all[op] = row.rule;
      }
    }
    return all;
  }();
  return rules;
}

Specimen Grow(uint64_t seed, Statistics& statistics) {
  Dice dice{std::mt19937_64(seed)};
  const Family family = dice.Pick({Family::kIndices, Family::kIndices, Family::kIndices,
                                   Family::kWhole, Family::kWhole, Family::kBytes});
  const DataType main = dice.Chance(0.85)
                            ? DataType::kF32
                            : dice.Pick({DataType::kF64, DataType::kF16, DataType::kBF16});
  Grower grower(dice, family, family == Family::kBytes ? DataType::kF32 : main, statistics,
                std::make_shared<SymbolTable>(), 0);
  grower.graph.name = fmt::format("graph{}", seed);
  grower.Fresh(grower.main(), grower.SomeDims(1, 4));
  // Every operator has its turn.
  auto turn = AllRules().begin();
  std::advance(turn, static_cast<int64_t>(seed % AllRules().size()));
  const auto wanted = static_cast<size_t>(dice.Integer(2, dice.Chance(0.3) ? 40 : 14));
  for (int tries = 0; tries < 200 && grower.graph.nodes.size() < wanted; ++tries)
    grower.Step(tries % 3 == 0 && tries < 12 ? turn->first : "");
  grower.Finish();
  Specimen specimen{grower.graph, family, grower.inputs(), {}};
  for (int i = 0; i < grower.graph.symbols->size(); ++i) {
    const Symbol& symbol = grower.graph.symbols->at(i);
    if (!symbol.is_input()) continue;
    specimen.sizes[symbol.name] = std::stoll(symbol.name.substr(4));
  }
  return specimen;
}

}  // namespace quench::fuzz
