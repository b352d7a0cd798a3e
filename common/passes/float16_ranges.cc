// Follows values that may be beyond f16, or bf16, from where they come from to what brings them back.
//   Mul(x, x) -> ReduceMean -> Add -> Sqrt -> s;  Div(x, s) -> y    all of them, but y is in range
//   Mul(mask, -3.4e38) -> Add(scores, .) -> Softmax -> p            all of them, but p is in range
//   They come from constants, from squares, powers, exponentials and sums, and from inputs that are
//   added to scores before Softmax. Softmax, Sigmoid, Clip, normalizations and the like bring them
//   back, and quotients of two such values. Values that stayed far from the end of the range on
//   samples are in it, except constants: a mask may have shut out nothing in the samples.
//   bf16 has the range of f32 except for its last 0.4 %, which is where masks lie: the lowest f32
//   becomes -inf, and a row that is wholly masked NaN. Only constants lead there.
//   cases: tests/cases/passes/store_float16_*.ir.txt, Float16RangesTest
#include "common/passes/float16_ranges.h"

#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "common/ir/graph.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr double kLargestFloat16 = 65504;
constexpr double kLargestBfloat16 = 0x1.FEp127;
// Samples are a part of what a model may see, and masks are added to scores and to other masks:
// values keep this far from the largest f16.
constexpr double kHeadroom = 4;
constexpr double kLargestExponent = 9.7;  // e^x stays below the largest f16 by kHeadroom
constexpr int64_t kFewTerms = 16;         // a sum of so few is like any other value

enum class Range : uint8_t {
  kIn,
  kSmall,  // f16 may lose it: one through a value that is beyond
  kSum,    // of so many terms that it may be beyond; a mean of them is not
  kLow,    // beyond downwards alone: what is shut out by a mask or a padding
  kWide,
};

struct ValueRange {
  Range range = Range::kIn;
  std::string why;  // "`q` is a square" ...
};

template <size_t n>
bool Among(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Operators whose results are in range whatever they read.
constexpr std::string_view kBounding[] = {"Softmax",
                                          "Hardmax",
                                          "Sigmoid",
                                          "HardSigmoid",
                                          "Tanh",
                                          "Softsign",
                                          "Erf",
                                          "Sin",
                                          "Cos",
                                          "Atan",
                                          "Sign",
                                          "Log",
                                          "InstanceNormalization",
                                          "GroupNormalization",
                                          "LayerNormalization",
                                          "RMSNormalization",
                                          "MeanVarianceNormalization",
                                          "LpNormalization",
                                          "LSTM",
                                          "GRU",
                                          "RNN"};
constexpr std::string_view kProducts[] = {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"};
constexpr std::string_view kSums[] = {"ReduceSum", "ReduceL1", "ReduceL2",
                                      "CumSum",    "LpPool",   "GlobalLpPool"};
constexpr std::string_view kLargestOf[] = {"ReduceMax", "MaxPool", "GlobalMaxPool", "Max", "Relu"};
constexpr std::string_view kMoves[] = {"Cast",      "Identity", "Reshape", "Transpose",
                                       "Unsqueeze", "Slice",    "Squeeze", "Expand",
                                       "Gather",    "Flatten",  "Tile",    "Split"};
constexpr std::string_view kNotNegative[] = {"Relu",     "Sigmoid", "Softplus", "Exp",
                                             "Softmax",  "Abs",     "Sqrt",     "ReduceSumSquare",
                                             "ReduceL1", "ReduceL2"};
constexpr std::string_view kExponentials[] = {"Exp", "Sinh", "Cosh"};

bool IsF32(const Type& type) {
  return type.kind == ValueKind::kTensor && type.dtype == DataType::kF32;
}

class RangeFinder {
 public:
  RangeFinder(const Graph& graph, const PassOptions& options)
      : graph_(graph),
        options_(options),
        narrow_(options.store_as == DataType::kF16),
        largest_(narrow_ ? kLargestFloat16 : kLargestBfloat16),
        limit_(narrow_ ? largest_ / kHeadroom : largest_),
        type_(DataTypeName(options.store_as)),
        ranges_(graph.values.size()),
        to_softmax_(graph.values.size(), true),
        to_sums_(graph.values.size(), true) {
    for (const ValueId id : graph.outputs) to_softmax_[Index(id)] = to_sums_[Index(id)] = false;
    for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) LookBack(*node);
  }

  std::vector<std::string> Run() {
    MarkConstants();
    for (const Node& node : graph_.nodes) {
      if (narrow_) MarkMasks(node);
    }
    std::vector<std::string> reasons;
    for (const Node& node : graph_.nodes) {
      const ValueRange result = RangeOf(node);
      for (const ValueId id : node.outputs) {
        if (id != kNone && IsF32(graph_.value(id).type)) ranges_[Index(id)] = result;
      }
      reasons.push_back(ReasonOf(node, result));
    }
    return reasons;
  }

 private:
  static size_t Index(ValueId id) { return static_cast<size_t>(id); }

  const Node* Producer(ValueId id) const {
    const NodeId node = id == kNone ? kNone : graph_.value(id).producer;
    return node == kNone ? nullptr : &graph_.node(node);
  }

  // ---- who reads a value ----

  // Readers of each value have been seen: whether they are Softmax alone, or sums alone.
  void LookBack(const Node& node) {
    const bool softmax = node.op == "Softmax" || node.op == "LogSoftmax" ||
                         (node.op == "Add" && to_softmax_[Index(node.outputs[0])]);
    const bool sums = node.op == "ReduceMean" || Among(kSums, node.op);
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      if (!softmax) to_softmax_[Index(id)] = false;
      if (!sums) to_sums_[Index(id)] = false;
    }
  }

  // ---- where values come from that are beyond ----

  ValueRange OfNumbers(const Tensor& tensor, std::string_view name) const {
    float low = 0, high = 0;
    for (const float number : tensor.as<float>()) {
      // Infinities are what they are in either type.
      if (!std::isfinite(number)) continue;
      low = std::min(low, number);
      high = std::max(high, number);
    }
    if (high <= limit_ && low >= -limit_) return {};
    const float number = high > -low ? high : low;
    return {high > limit_ ? Range::kWide : Range::kLow,
            fmt::format("constant `{}` has {:g}, {} {}", name, number,
                        std::abs(number) > largest_ ? "beyond" : "near the end of", type_)};
  }

  void MarkConstants() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (value.constant != nullptr && IsF32(value.type))
        ranges_[i] = OfNumbers(value.constant->tensor, value.name);
    }
  }

  // An input that only moves on its way to where it is added to scores may be a mask.
  void MarkMasks(const Node& node) {
    if (node.op != "Add" || !to_softmax_[Index(node.outputs[0])]) return;
    for (const size_t i : {0U, 1U}) {
      if (Producer(node.inputs[1 - i]) == nullptr) continue;  // nothing that is masked
      ValueId id = node.inputs[i];
      while (const Node* moves = Producer(id)) {
        if (!Among(kMoves, moves->op)) break;
        id = moves->inputs[0];
      }
      const Value& value = graph_.value(id);
      if (Producer(id) != nullptr || value.constant != nullptr || !IsF32(value.type)) continue;
      ranges_[Index(id)] = {Range::kLow,
                            fmt::format("`{}` is added before Softmax, as masks are", value.name)};
    }
  }

  // The result of a node whose operator leads out of the range, unless samples tell otherwise.
  ValueRange Source(const Node& node, Range range, std::string_view what) const {
    if (!narrow_) return {};
    const std::string& name = graph_.value(node.outputs[0]).name;
    const auto found = options_.magnitudes.find(name);
    if (found != options_.magnitudes.end() && found->second <= limit_) return {};
    return {range, fmt::format("`{}` is {}", name, what)};
  }

  // ---- what a node makes of what it reads ----

  // Whether input `i` of a node is of the type that its result has.
  bool IsData(const Node& node, size_t i) const {
    return i < node.inputs.size() && node.inputs[i] != kNone &&
           IsF32(graph_.value(node.inputs[i]).type) && (node.op != "Resize" || i == 0);
  }

  ValueRange In(const Node& node, size_t i) const {
    return IsData(node, i) ? ranges_[Index(node.inputs[i])] : ValueRange{};
  }

  ValueRange Worst(const Node& node) const {
    ValueRange worst;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (ValueRange each = In(node, i); each.range > worst.range) worst = std::move(each);
    }
    return worst;
  }

  static ValueRange Widened(ValueRange range) {
    if (range.range == Range::kLow) range.range = Range::kWide;
    return range;
  }

  ValueRange RangeOf(const Node& node) const {
    ValueRange worst = Worst(node);
    const bool far = worst.range >= Range::kLow;
    if (Among(kBounding, node.op)) return {};
    if (const Attribute* value = node.Find("value"); value != nullptr) {  // of ConstantOfShape
      const Tensor* tensor = std::get_if<Tensor>(value);
      if (tensor != nullptr && tensor->dtype() == DataType::kF32)
        return OfNumbers(*tensor, "value");
    }
    if (node.op == "Mul") return RangeOfMul(node);
    if (node.op == "Div") return RangeOfDiv(node);
    if (node.op == "Pow") return RangeOfPow(node);
    if (node.op == "Clip") return RangeOfClip(node);
    if (node.op == "Reciprocal") return Inverse(worst);
    if (node.op == "Sqrt") return worst.range == Range::kSum ? ValueRange{} : Widened(worst);
    if (Among(kExponentials, node.op)) {
      return node.op == "Exp" && StaysBelow(node.inputs[0])
                 ? ValueRange{}
                 : Source(node, Range::kWide, "an exponential");
    }
    if (Among(kProducts, node.op)) return far ? Widened(worst) : ValueRange{};
    if (node.op == "ReduceSumSquare") return Source(node, Range::kWide, "a sum of squares");
    if (node.op == "ReduceProd" || node.op == "CumProd")
      return Source(node, Range::kWide, "a product of many factors");
    if (Among(kSums, node.op)) {
      if (far) return Widened(worst);
      return HasFewTerms(node) ? worst : Source(node, Range::kSum, "a sum");
    }
    if (Among(kLargestOf, node.op) && worst.range == Range::kLow) return {};
    if (node.op == "Min" || node.op == "Neg" || node.op == "Abs") return RangeOfMin(node);
    if (node.op == "Sub" && In(node, 1).range == Range::kLow) return Widened(In(node, 1));
    return worst;
  }

  static ValueRange Inverse(const ValueRange& range) {
    if (range.range == Range::kIn) return {};
    return {range.range == Range::kSmall ? Range::kWide : Range::kSmall, range.why};
  }

  ValueRange RangeOfMul(const Node& node) const {
    const ValueRange a = In(node, 0), b = In(node, 1);
    if (a.range == Range::kSmall || b.range == Range::kSmall) return {};
    const ValueRange& worst = a.range < b.range ? b : a;
    if (worst.range == Range::kIn)
      return IsSquare(node) ? Source(node, Range::kWide, "a square") : ValueRange{};
    if (worst.range == Range::kSum) {
      for (const ValueId id : node.inputs) {
        if (IsBelow(id, 1.0 / kFewTerms)) return {};  // one through the number of terms
      }
      return {a.range == b.range ? Range::kWide : Range::kSum, worst.why};
    }
    return Widened(worst);
  }

  ValueRange RangeOfDiv(const Node& node) const {
    const ValueRange a = In(node, 0), b = In(node, 1);
    const auto is_constant = [&](size_t i) {
      return graph_.value(node.inputs[i]).constant != nullptr;
    };
    if (b.range == Range::kSmall) return {Range::kWide, b.why};
    if (b.range == Range::kIn || is_constant(1)) {
      if (a.range == Range::kSum) return {};
      return is_constant(1) ? a : Widened(a);
    }
    return is_constant(0) ? Inverse(b) : ValueRange{};
  }

  ValueRange RangeOfPow(const Node& node) const {
    const ValueRange base = In(node, 0);
    const Tensor* exponent = ConstantOf(graph_, node.inputs[1]);
    const bool one = exponent != nullptr && exponent->size() == 1;
    if (one && exponent->FloatAt(0) < 0) return Inverse(base);
    if (one && exponent->FloatAt(0) <= 1) return Widened(base);
    return Source(node, Range::kWide, "a power");
  }

  ValueRange RangeOfClip(const Node& node) const {
    const auto bounds = [&](size_t i) {
      return IsData(node, i) && ConstantOf(graph_, node.inputs[i]) != nullptr &&
             In(node, i).range == Range::kIn;
    };
    ValueRange x = In(node, 0);
    if (bounds(1) && (bounds(2) || x.range <= Range::kLow)) return {};
    return x;
  }

  // The bound of Min is not a number that it gives, unless that is a low one.
  ValueRange RangeOfMin(const Node& node) const {
    ValueRange worst;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueRange each = Widened(In(node, i));
      const bool bound = In(node, i).range == Range::kWide && node.inputs.size() > 1 &&
                         graph_.value(node.inputs[i]).constant != nullptr;
      if (!bound && each.range > worst.range) worst = std::move(each);
    }
    return worst;
  }

  // ---- what is known of numbers ----

  // The node that makes a value, before it was cast.
  const Node* Maker(ValueId id) const {
    const Node* node = Producer(id);
    while (node != nullptr && node->op == "Cast") node = Producer(node->inputs[0]);
    return node;
  }

  // Whether both factors are one value, or computed from it in the same way.
  bool IsSquare(const Node& mul) const {
    if (mul.inputs[0] == mul.inputs[1]) return true;
    const Node *a = Maker(mul.inputs[0]), *b = Maker(mul.inputs[1]);
    return a != nullptr && b != nullptr && a->op == b->op && a->inputs == b->inputs &&
           a->attributes.empty() && b->attributes.empty() && a->outputs.size() == 1;
  }

  bool IsBelow(ValueId id, double limit) const {
    const Tensor* tensor = ConstantOf(graph_, id);
    if (tensor == nullptr || tensor->dtype() != DataType::kF32) return false;
    const std::span<const float> numbers = tensor->as<float>();
    return std::all_of(numbers.begin(), numbers.end(),
                       [&](float number) { return number <= limit; });
  }

  // Sizes that only a run knows are no terms where the result has as many.
  bool HasFewTerms(const Node& node) const {
    const auto count = [&](ValueId id, int& unknown) {
      int64_t product = 1;
      for (const Dim dim : graph_.value(id).type.dims) {
        if (dim.is_static()) {
          product *= std::max<int64_t>(dim.value(), 1);
        } else {
          ++unknown;
        }
      }
      return product;
    };
    const auto ranked = [&](ValueId id) { return graph_.value(id).type.ranked; };
    if (!node.op.starts_with("Reduce") || !ranked(node.inputs[0]) || !ranked(node.outputs[0]))
      return false;
    int before = 0, after = 0;
    const int64_t all = count(node.inputs[0], before), results = count(node.outputs[0], after);
    return before == after && all <= kFewTerms * results;
  }

  // Looks through at most `depth` factors: a value may be a factor of both sides.
  bool IsNotNegative(ValueId id, int depth = 8) const {
    const Node* node = Producer(id);
    if (node == nullptr || depth == 0) return false;
    const auto is = [&](size_t i) { return IsNotNegative(node->inputs[i], depth - 1); };
    if (node->op == "Mul") return IsSquare(*node) || (is(0) && is(1));
    if (Among(kMoves, node->op)) return is(0);
    return Among(kNotNegative, node->op);
  }

  // Whether e^x of a value is in range: its largest was taken from it, or a number bounds it.
  bool StaysBelow(ValueId id) const {
    const Node* node = Producer(id);
    if (node == nullptr) return IsBelow(id, kLargestExponent);
    const std::vector<ValueId>& in = node->inputs;
    if (Among(kMoves, node->op)) return StaysBelow(in[0]);
    if (node->op == "Neg") return IsNotNegative(in[0]);
    if (node->op == "Clip") return in.size() > 2 && IsBelow(in[2], kLargestExponent);
    if (node->op == "Min")
      return std::any_of(in.begin(), in.end(),
                         [&](ValueId each) { return IsBelow(each, kLargestExponent); });
    if (node->op == "Mul")
      return (IsBelow(in[0], 0) && IsNotNegative(in[1])) ||
             (IsBelow(in[1], 0) && IsNotNegative(in[0]));
    if (node->op != "Sub") return false;
    const Node* largest = Maker(in[1]);
    return largest != nullptr && largest->op == "ReduceMax" && largest->inputs[0] == in[0];
  }

  // ---- reasons ----

  std::string ReasonOf(const Node& node, const ValueRange& result) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueRange in = In(node, i);
      if (in.range == Range::kIn) continue;
      if (ConstantOf(graph_, node.inputs[i]) != nullptr) return "its " + in.why;
      return fmt::format("what it reads may be {} {}: {}",
                         in.range == Range::kSmall ? "too small for" : "beyond", type_, in.why);
    }
    const bool makes = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
      return id != kNone && IsF32(graph_.value(id).type);
    });
    if (makes && result.range != Range::kIn)
      return fmt::format("{}, which may be beyond {}", result.why, type_);
    if (narrow_ && makes && node.op == "Mul" && to_sums_[Index(node.outputs[0])] &&
        Producer(node.inputs[0]) != nullptr && Producer(node.inputs[1]) != nullptr)
      return "its products are added in f32";
    return TooLarge(node);
  }

  std::string TooLarge(const Node& node) const {
    for (const std::vector<ValueId>* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (id == kNone || !IsF32(graph_.value(id).type)) continue;
        const auto found = options_.magnitudes.find(graph_.value(id).name);
        if (found != options_.magnitudes.end() && !(found->second <= limit_))
          return fmt::format("`{}` reached {:g} on samples", found->first, found->second);
      }
    }
    return "";
  }

  const Graph& graph_;
  const PassOptions& options_;
  const bool narrow_;             // f16: more than constants leads out of its range
  const double largest_, limit_;  // of the type, and of what is stored in it
  const std::string type_;
  std::vector<ValueRange> ranges_;  // of each value
  std::vector<bool> to_softmax_;  // values that Softmax reads, behind Add or not, and nothing else
  std::vector<bool> to_sums_;     // values that sums read, and nothing else
};

}  // namespace

std::vector<std::string> WhyBeyondRange(const Graph& graph, const PassOptions& options) {
  return RangeFinder(graph, options).Run();
}

}  // namespace quench::passes
