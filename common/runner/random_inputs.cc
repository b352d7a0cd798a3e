#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "common/base/half.h"
#include "common/base/status.h"
#include "common/ir/quoting.h"
#include "common/ir/symbols.h"
#include "common/runner/draw.h"

namespace quench {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 31;

template <typename T, typename Make>
Tensor Fill(DataType dtype, std::vector<int64_t> dims, Make make) {
  Tensor tensor = Tensor::Zeros(dtype, std::move(dims));
  auto* values = reinterpret_cast<T*>(tensor.mutable_bytes());
  for (int64_t i = 0; i < tensor.size(); ++i) values[i] = static_cast<T>(make());
  return tensor;
}

// Every size must be of a symbolic dim that some input has.
absl::Status CheckNames(std::span<const ArtifactTensor> inputs,
                        const std::map<std::string, int64_t>& sizes) {
  std::set<std::string> known;
  for (const ArtifactTensor& input : inputs) {
    for (const ArtifactDim& dim : input.dims) {
      if (dim.value < 0) known.insert(dim.symbol);
    }
  }
  StatusCollector problems;
  for (const auto& [name, size] : sizes) {
    if (known.contains(name)) continue;
    problems.Add(InvalidArgument("no input has a symbolic dim `{}`; {}", name,
                                 known.empty()
                                     ? std::string("all dims of the inputs are fixed")
                                     : fmt::format("there are `{}`", fmt::join(known, "`, `"))));
  }
  return problems.Finish();
}

// The sizes that are given, and those of other dims: the least ones, or what an expression over dims makes of its own
// ("2*n").
std::map<std::string, int64_t> AllSizes(std::span<const ArtifactTensor> inputs,
                                        const std::map<std::string, int64_t>& given) {
  std::map<std::string, int64_t> all = given;
  SymbolTable symbols;
  std::vector<int64_t> values;
  std::vector<std::string> expressions;
  for (const ArtifactTensor& input : inputs) {
    for (const ArtifactDim& dim : input.dims) {
      if (dim.value >= 0) continue;
      const bool fresh = all.emplace(dim.symbol, std::max<int64_t>(dim.min, 1)).second;
      if (IsIdentifier(dim.symbol)) {
        symbols.AddInput(dim.symbol, {});
        values.resize(static_cast<size_t>(symbols.size()), all.at(dim.symbol));
      } else if (fresh) {
        expressions.push_back(dim.symbol);
      }
    }
  }
  for (const std::string& text : expressions) {
    const absl::StatusOr<Dim> dim = symbols.Parse(text);
    if (!dim.ok()) continue;  // a name after all
    const absl::StatusOr<std::vector<int64_t>> slots = symbols.Evaluate(values);
    if (slots.ok()) all[text] = SymbolTable::ValueOf(*dim, *slots);
  }
  return all;
}

absl::StatusOr<std::vector<int64_t>> SizesOf(const ArtifactTensor& input,
                                             const std::map<std::string, int64_t>& sizes) {
  std::vector<int64_t> dims;
  for (const ArtifactDim& dim : input.dims) {
    dims.push_back(dim.value >= 0 ? dim.value : sizes.at(dim.symbol));
    if (dims.back() < 0)
      return InvalidArgument("input `{}`: `{}` is {}, sizes are not negative", input.name,
                             dim.symbol, dims.back());
  }
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count || *count > kMaxElements)
    return absl::ResourceExhaustedError("input `" + input.name + "` is too large");
  return dims;
}

}  // namespace

uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

double Random::Normal() {
  const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
  return std::clamp(radius * std::cos(2 * std::numbers::pi * Uniform()), -4.0, 4.0);
}

int64_t Random::Within(int64_t low, int64_t high) {
  const uint64_t chosen = Next() % 8;
  if (chosen < 2) return chosen == 0 ? low : high;
  const uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  return static_cast<int64_t>(static_cast<uint64_t>(low) + (count == 0 ? Next() : Next() % count));
}

Random RandomOfInput(uint64_t seed, size_t i) {
  return Random(seed + 0x632be59bd9b4e019u * (i + 1));
}

absl::StatusOr<Tensor> DrawAnything(const ArtifactTensor& input, std::vector<int64_t> dims,
                                    uint64_t below, Random& random) {
  auto normal = [&] { return random.Normal(); };
  auto small = [&] { return random.Next() % below; };
  switch (input.dtype) {
    case DataType::kF32:
      return Fill<float>(input.dtype, std::move(dims), normal);
    case DataType::kF64:
      return Fill<double>(input.dtype, std::move(dims), normal);
    case DataType::kF16:
      return Fill<uint16_t>(input.dtype, std::move(dims),
                            [&] { return FloatToHalf(static_cast<float>(random.Normal())); });
    case DataType::kBF16:
      return Fill<uint16_t>(input.dtype, std::move(dims),
                            [&] { return FloatToBfloat16(static_cast<float>(random.Normal())); });
    case DataType::kBool:
      return Fill<uint8_t>(input.dtype, std::move(dims), [&] { return random.Next() >> 63; });
    case DataType::kI8:
    case DataType::kU8:
      return Fill<uint8_t>(input.dtype, std::move(dims), small);
    case DataType::kI16:
    case DataType::kU16:
      return Fill<uint16_t>(input.dtype, std::move(dims), small);
    case DataType::kI32:
    case DataType::kU32:
      return Fill<uint32_t>(input.dtype, std::move(dims), small);
    case DataType::kI64:
    case DataType::kU64:
      return Fill<uint64_t>(input.dtype, std::move(dims), small);
    default:
      return Unsupported("input `{}`: no random values of type {}", input.name,
                         DataTypeName(input.dtype));
  }
}

absl::StatusOr<std::vector<std::vector<int64_t>>> DrawnDims(
    std::span<const ArtifactTensor> inputs, const std::map<std::string, int64_t>& sizes) {
  StatusCollector problems;
  problems.Add(CheckNames(inputs, sizes));
  const std::map<std::string, int64_t> all = AllSizes(inputs, sizes);
  std::vector<std::vector<int64_t>> drawn;
  for (const ArtifactTensor& input : inputs) {
    absl::StatusOr<std::vector<int64_t>> dims = SizesOf(input, all);
    problems.Add(dims.status());
    if (dims.ok()) drawn.push_back(*std::move(dims));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return drawn;
}

absl::StatusOr<std::vector<Tensor>> RandomInputs(std::span<const ArtifactTensor> inputs,
                                                 uint64_t seed,
                                                 const std::map<std::string, int64_t>& sizes,
                                                 uint64_t below) {
  QUENCH_ASSIGN_OR_RETURN(const auto dims, DrawnDims(inputs, sizes));
  std::vector<Tensor> tensors;
  StatusCollector problems;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Random random = RandomOfInput(seed, i);
    absl::StatusOr<Tensor> tensor = DrawAnything(inputs[i], dims[i], below, random);
    problems.Add(tensor.status());
    if (tensor.ok()) tensors.push_back(*std::move(tensor));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return tensors;
}

}  // namespace quench
