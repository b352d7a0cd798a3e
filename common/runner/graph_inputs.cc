#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/base/half.h"
#include "common/base/status.h"
#include "common/runner/draw.h"
#include "common/runner/inputs.h"

namespace quench {
namespace {

constexpr int64_t kManyIntegers = 8;  // below it, where nobody says what they are

// The integers that a type holds, as far as 64 bits with a sign go.
DrawRule::Cell RangeOf(DataType type) {
  const int bits = DataTypeBits(type);
  if (type == DataType::kBool) return {0, 1};
  if (IsFloat(type)) {
    const int digits = type == DataType::kF16 ? 11 : type == DataType::kBF16 ? 8 : 24;
    return {-(int64_t{1} << digits), int64_t{1} << digits};
  }
  const bool is_unsigned = type == DataType::kU8 || type == DataType::kU16 ||
                           type == DataType::kU32 || type == DataType::kU64;
  if (bits == 64) return {is_unsigned ? 0 : DrawRule::Cell{}.low, DrawRule::Cell{}.high};
  const int64_t half = int64_t{1} << (bits - 1);
  return is_unsigned ? DrawRule::Cell{0, 2 * half - 1} : DrawRule::Cell{-half, half - 1};
}

Tensor OfNumbers(DataType type, std::vector<int64_t> dims, const std::vector<double>& numbers) {
  Tensor tensor = Tensor::Zeros(type, std::move(dims));
  const auto fill = [&]<typename T>(T) {
    auto* values = reinterpret_cast<T*>(tensor.mutable_bytes());
    for (size_t i = 0; i < numbers.size(); ++i) values[i] = static_cast<T>(numbers[i]);
  };
  const auto halves = [&](uint16_t (*narrow)(float)) {
    auto* values = reinterpret_cast<uint16_t*>(tensor.mutable_bytes());
    for (size_t i = 0; i < numbers.size(); ++i) values[i] = narrow(static_cast<float>(numbers[i]));
  };
  if (type == DataType::kF32) fill(float{});
  if (type == DataType::kF64) fill(double{});
  if (type == DataType::kF16) halves(FloatToHalf);
  if (type == DataType::kBF16) halves(FloatToBfloat16);
  return tensor;
}

Tensor OfIntegers(DataType type, std::vector<int64_t> dims, const std::vector<int64_t>& integers) {
  if (IsFloat(type)) return OfNumbers(type, std::move(dims), {integers.begin(), integers.end()});
  Tensor tensor = Tensor::Zeros(type, std::move(dims));
  const auto bytes = static_cast<size_t>(DataTypeBits(type) / 8);
  for (size_t i = 0; i < integers.size(); ++i)
    std::memcpy(tensor.mutable_bytes() + i * bytes, &integers[i], bytes);  // little-endian
  return tensor;
}

bool IsDrawn(DataType type) {
  return type == DataType::kBool || type == DataType::kF32 || type == DataType::kF64 ||
         IsHalf(type) || (IsInteger(type) && DataTypeBits(type) >= 8);
}

// Step `i` of a walk through `count` numbers that comes to each of them once.
class Walk {
 public:
  Walk(int64_t count, Random& random)
      : count_(count), start_(static_cast<int64_t>(random.Next() % static_cast<uint64_t>(count))) {
    while (std::gcd(step_, count) != 1 || (step_ == 1 && count > 4)) ++step_;
    if (random.OneIn(2)) step_ = count - step_ % count;
  }
  int64_t At(int64_t i) const { return (start_ + i % count_ * step_) % count_; }

 private:
  int64_t count_, start_, step_ = 1;
};

// Different ones along an axis.
void DrawAlongAxis(const DrawRule& rule, std::span<const int64_t> dims, Random& random,
                   std::vector<int64_t>& integers) {
  const auto axis = static_cast<size_t>(*rule.distinct);
  if (axis >= dims.size() || rule.cells.size() != 1) return;
  int64_t inner = 1;
  for (size_t i = axis + 1; i < dims.size(); ++i) inner *= dims[i];
  const int64_t places = rule.cells[0].high - rule.cells[0].low + 1;
  if (dims[axis] > places) return;  // more than there are places: some meet
  const auto count = static_cast<int64_t>(integers.size());
  for (int64_t line = 0; line < count / std::max<int64_t>(dims[axis], 1); ++line) {
    const Walk walk(places, random);
    const int64_t first = line / inner * inner * dims[axis] + line % inner;
    for (int64_t i = 0; i < dims[axis]; ++i)
      integers[static_cast<size_t>(first + i * inner)] = rule.cells[0].low + walk.At(i);
  }
}

// Different rows, a component for each cell.
void DrawRows(const DrawRule& rule, Random& random, std::vector<int64_t>& integers) {
  std::vector<int64_t> counts;
  for (const DrawRule::Cell& cell : rule.cells) counts.push_back(cell.high - cell.low + 1);
  const std::optional<int64_t> places = ElementCount(counts);
  const size_t rows = counts.empty() ? 0 : integers.size() / counts.size();
  if (!places || *places < static_cast<int64_t>(rows) || *places < 1) return;
  const Walk walk(*places, random);
  for (size_t row = 0; row < rows; ++row) {
    int64_t place = walk.At(static_cast<int64_t>(row));
    for (size_t i = counts.size(); i-- > 0; place /= counts[i])
      integers[row * counts.size() + i] = rule.cells[i].low + place % counts[i];
  }
}

// The two ends between which an element is drawn: of what is open, a part.
DrawRule::Cell EndsOf(DrawRule::Cell cell, const DrawRule::Cell& type, bool bytes) {
  if (cell.free()) return bytes ? type : DrawRule::Cell{0, kManyIntegers - 1};
  if (cell.low == DrawRule::Cell{}.low) cell.low = cell.high > 0 ? 0 : cell.high - kManyIntegers;
  if (cell.high == DrawRule::Cell{}.high) cell.high = cell.low + kManyIntegers;
  return {std::clamp(cell.low, type.low, type.high), std::clamp(cell.high, type.low, type.high)};
}

int64_t DrawOne(const DrawRule& rule, const DrawRule::Cell& ends, const DrawRule::Cell& type,
                Random& random) {
  if (!rule.compared.empty() && random.OneIn(4)) {
    auto chosen = rule.compared.begin();
    std::advance(chosen, static_cast<ptrdiff_t>(random.Next() % rule.compared.size()));
    const bool open = rule.free();  // nothing else says which integers these are
    int64_t near = *chosen;
    const bool ends_there =
        __builtin_add_overflow(*chosen, random.OneIn(2) ? 0 : random.Within(-1, 1), &near);
    if (!ends_there && near >= (open ? type.low : ends.low) &&
        near <= (open ? type.high : ends.high))
      return near;
  }
  const int64_t value = random.Within(ends.low, ends.high);
  const bool from_end = rule.negative > 0 && type.low < 0 && random.OneIn(8);
  return from_end ? value - rule.negative : value;
}

std::vector<int64_t> DrawIntegers(const DrawRule& rule, DataType dtype,
                                  std::span<const int64_t> dims, Random& random) {
  const DrawRule::Cell type = RangeOf(dtype);
  const bool bytes = IsInteger(dtype) && DataTypeBits(dtype) == 8;
  std::vector<DrawRule::Cell> ends;
  for (const DrawRule::Cell& cell : rule.cells) ends.push_back(EndsOf(cell, type, bytes));
  if (ends.empty()) ends.push_back(EndsOf({}, type, bytes));
  std::vector<int64_t> integers(static_cast<size_t>(ElementCount(dims).value_or(0)));
  const auto row = static_cast<size_t>(dims.empty() ? 1 : std::max<int64_t>(dims.back(), 1));
  bool empty = false;
  for (size_t i = 0; i < integers.size(); ++i) {
    integers[i] = DrawOne(rule, ends[i % ends.size()], type, random);
    if (!rule.mask) continue;
    if (i % row == 0) empty = rule.empty_rows && random.OneIn(4);
    if (i % row == 0 || empty) integers[i] = empty ? 0 : 1;
  }
  if (rule.distinct && std::ranges::equal(rule.dims, dims)) {
    if (*rule.distinct >= 0) DrawAlongAxis(rule, dims, random, integers);
    if (*rule.distinct < 0) DrawRows(rule, random, integers);
  }
  return integers;
}

// Within a range, its ends included.
std::vector<double> DrawWithin(double low, double high, int64_t count, bool even, Random& random) {
  std::vector<double> numbers(static_cast<size_t>(count));
  for (double& number : numbers) {
    const double at = even ? random.Uniform() : (random.Normal() + 4) / 8;
    number = random.OneIn(32) ? (random.OneIn(2) ? low : high) : low + at * (high - low);
  }
  return numbers;
}

absl::StatusOr<Tensor> DrawByRule(const ArtifactTensor& input, const std::vector<int64_t>& dims,
                                  const DrawRule& rule, const InputRange* range, Random& random) {
  const DataType dtype = input.dtype;
  const bool floats = IsFloat(dtype);
  const bool bytes = IsInteger(dtype) && DataTypeBits(dtype) == 8;
  const bool integers = IsInteger(dtype) && !rule.compared.empty();
  const bool ruled = floats && rule.cells.empty() ? rule.real.has_value() : !rule.free();
  if (!IsDrawn(dtype) || (!ruled && !bytes && !integers && range == nullptr))
    return DrawAnything(input, dims, kManyIntegers, random);
  const int64_t count = ElementCount(dims).value_or(0);
  if (floats && range != nullptr && rule.free())
    return OfNumbers(dtype, dims, DrawWithin(range->low, range->high, count, false, random));
  if (floats && rule.real && rule.cells.empty())
    return OfNumbers(dtype, dims,
                     DrawWithin(rule.real->first, rule.real->second, count, true, random));
  return OfIntegers(dtype, dims, DrawIntegers(rule, dtype, dims, random));
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> RandomInputs(const Graph& graph, uint64_t seed,
                                                 const std::map<std::string, int64_t>& sizes,
                                                 const std::map<std::string, InputRange>& ranges) {
  const std::vector<ArtifactTensor> inputs = InputsOf(graph);
  QUENCH_ASSIGN_OR_RETURN(const auto dims, DrawnDims(inputs, sizes));
  const std::vector<DrawRule> rules = RulesOfInputs(graph, dims, seed);
  std::vector<Tensor> tensors;
  StatusCollector problems;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Random random = RandomOfInput(seed, i);
    const auto range = ranges.find(inputs[i].name);
    absl::StatusOr<Tensor> tensor = DrawByRule(
        inputs[i], dims[i], rules[i], range == ranges.end() ? nullptr : &range->second, random);
    problems.Add(tensor.status());
    if (tensor.ok()) tensors.push_back(*std::move(tensor));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return tensors;
}

absl::StatusOr<std::vector<bool>> AnyMagnitude(const Graph& graph) {
  const std::vector<ArtifactTensor> inputs = InputsOf(graph);
  QUENCH_ASSIGN_OR_RETURN(const auto dims, DrawnDims(inputs, {}));
  std::vector<bool> any;
  for (const DrawRule& rule : RulesOfInputs(graph, dims, 1)) {
    const size_t i = any.size();
    any.push_back(IsFloat(inputs[i].dtype) && rule.free());
  }
  return any;
}

}  // namespace quench
