#include "services/importer/graph/converter.h"

#include <limits>

#include "common/base/half.h"
#include "common/base/status.h"

namespace quench::importer {
namespace {

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
  return InvalidArgument("node `{}` ({}): {}", node_.name, shown_op(), text);
}
absl::Status Converter::Unsupported(const std::string& text) const {
  return quench::Unsupported("node `{}` ({}): {}", node_.name, shown_op(), text);
}

}  // namespace quench::importer
