#include "services/importer/onnx/convert.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "common/base/half.h"
#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/importer/onnx/converters.h"

namespace quench::importer {
namespace {

constexpr OnnxOp kRows[] = {
#define QUENCH_ONNX_OP(domain, name, canonical, converter) \
  {domain, #name, canonical, &Convert##converter},
#define QUENCH_ONNX_OP_MISSING(domain, name) {domain, #name, #name, nullptr},
#include "services/importer/onnx/onnx_ops.def"
#undef QUENCH_ONNX_OP_MISSING
#undef QUENCH_ONNX_OP
};

struct Restriction {
  std::string_view domain, name, text;
};
constexpr Restriction kRestrictions[] = {
#define QUENCH_RESTRICTION(domain, name, text) {domain, #name, text},
#include "services/importer/onnx/restrictions.def"
#undef QUENCH_RESTRICTION
};

template <typename T>
Tensor ScalarOf(DataType dtype, T value) {
  return Tensor::Of(dtype, {}, std::vector<T>{value});
}

// Rounds towards zero and stops at the ends of the type.
template <typename T>
Tensor IntegerScalar(DataType dtype, double value) {
  if (value != value) value = 0;
  if (value <= static_cast<double>(std::numeric_limits<T>::lowest())) {
    return ScalarOf(dtype, std::numeric_limits<T>::lowest());
  }
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
    return ScalarOf(dtype, std::numeric_limits<T>::max());
  }
  return ScalarOf(dtype, static_cast<T>(value));
}

Tensor MakeScalar(DataType dtype, double value) {
  switch (dtype) {
    case DataType::kF64:
      return ScalarOf(dtype, value);
    case DataType::kF16:
      return ScalarOf(dtype, FloatToHalf(static_cast<float>(value)));
    case DataType::kBF16:
      return ScalarOf(dtype, FloatToBfloat16(static_cast<float>(value)));
    case DataType::kI64:
      return IntegerScalar<int64_t>(dtype, value);
    case DataType::kI32:
      return IntegerScalar<int32_t>(dtype, value);
    case DataType::kI16:
      return IntegerScalar<int16_t>(dtype, value);
    case DataType::kI8:
      return IntegerScalar<int8_t>(dtype, value);
    case DataType::kU64:
      return IntegerScalar<uint64_t>(dtype, value);
    case DataType::kU32:
      return IntegerScalar<uint32_t>(dtype, value);
    case DataType::kU16:
      return IntegerScalar<uint16_t>(dtype, value);
    case DataType::kU8:
      return IntegerScalar<uint8_t>(dtype, value);
    case DataType::kBool:
      return ScalarOf<uint8_t>(dtype, value != 0);
    default:
      return Tensor::ScalarF32(static_cast<float>(value));
  }
}

}  // namespace

std::span<const OnnxOp> AllOnnxOps() { return kRows; }

const OnnxOp* FindOnnxOp(std::string_view domain, std::string_view name) {
  static const auto* const kByName = [] {
    auto* rows = new std::map<std::pair<std::string_view, std::string_view>, const OnnxOp*>();
    for (const OnnxOp& row : kRows) rows->emplace(std::pair(row.domain, row.name), &row);
    return rows;
  }();
  const auto found = kByName->find({domain, name});
  return found == kByName->end() ? nullptr : found->second;
}

bool IsSupported(std::string_view domain, std::string_view name) {
  const OnnxOp* row = FindOnnxOp(domain, name);
  return row != nullptr && row->convert != nullptr;
}

std::vector<std::string_view> RestrictionsOf(std::string_view domain, std::string_view name) {
  std::vector<std::string_view> texts;
  for (const Restriction& row : kRestrictions) {
    if (row.domain == domain && row.name == name) texts.push_back(row.text);
  }
  return texts;
}

ValueId Converter::Scalar(DataType dtype, double value) {
  return AddConstant(MakeScalar(dtype, value));
}

absl::Status Converter::RequireDataType(int i) const {
  if (has(i) && type(in(i)).dtype != DataType::kUndefined) return absl::OkStatus();
  return Error(fmt::format("the type of input {} is unknown", i));
}

absl::Status Converter::RequireRank(int i) const {
  if (has(i) && Rank(in(i)) >= 0) return absl::OkStatus();
  return Unsupported(fmt::format("the rank of input {} is unknown", i));
}

absl::Status Converter::Error(const std::string& text) const {
  return InvalidArgument("node `{}` ({}): {}", node_.name, node_.op, text);
}
absl::Status Converter::Unsupported(const std::string& text) const {
  return quench::Unsupported("node `{}` ({}): {}", node_.name, node_.op, text);
}

}  // namespace quench::importer
