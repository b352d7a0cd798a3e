#include "common/ir/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "common/base/half.h"
#include "common/base/status.h"

namespace quench {
namespace {

// Wide enough for any vector load.
constexpr std::align_val_t kAlignment{64};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::shared_ptr<std::byte[]> Allocate(size_t bytes) {
  auto* data = static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), kAlignment));
  return {data, [](std::byte* p) { ::operator delete(p, kAlignment); }};
}

template <typename T>
T Load(std::span<const std::byte> bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

// Raw bits of a sub-byte element: packed, low bits first.
uint8_t PackedBits(std::span<const std::byte> bytes, int64_t index, int width) {
  const int64_t bit = index * width;
  const auto byte = static_cast<uint8_t>(bytes[static_cast<size_t>(bit / 8)]);
  return static_cast<uint8_t>((byte >> (bit % 8)) & ((1 << width) - 1));
}

int64_t SignExtend(uint8_t bits, int width) {
  const int sign = 1 << (width - 1);
  return (bits ^ sign) - sign;
}

struct MiniFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool infinities;   // all-ones exponent is infinity or NaN, as in IEEE 754
  bool finite_only;  // no infinity and no NaN
  bool negative_zero_is_nan;
};

// Formats as in the ONNX documents on float8 and float4, after the OCP specifications.
double DecodeMini(uint8_t bits, const MiniFormat& format) {
  const int width = 1 + format.exponent_bits + format.mantissa_bits;
  const bool negative = ((bits >> (width - 1)) & 1) != 0;
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent_ones = (1 << format.exponent_bits) - 1;
  const int mantissa_ones = (1 << format.mantissa_bits) - 1;
  if (format.negative_zero_is_nan) {
    if (negative && exponent == 0 && mantissa == 0) return std::nan("");
  } else if (format.infinities && exponent == exponent_ones) {
    if (mantissa != 0) return std::nan("");
    return negative ? -kInfinity : kInfinity;
  } else if (!format.finite_only && exponent == exponent_ones && mantissa == mantissa_ones) {
    return std::nan("");
  }
  const int significand = exponent == 0 ? mantissa : mantissa + mantissa_ones + 1;
  const int scale = std::max(exponent, 1) - format.bias - format.mantissa_bits;
  const double magnitude = std::ldexp(significand, scale);
  return negative ? -magnitude : magnitude;
}

double DecodeSmall(DataType dtype, uint8_t bits) {
  switch (dtype) {
    case DataType::kF8E4M3FN:
      return DecodeMini(bits, {4, 3, 7, false, false, false});
    case DataType::kF8E4M3FNUZ:
      return DecodeMini(bits, {4, 3, 8, false, false, true});
    case DataType::kF8E5M2:
      return DecodeMini(bits, {5, 2, 15, true, false, false});
    case DataType::kF8E5M2FNUZ:
      return DecodeMini(bits, {5, 2, 16, false, false, true});
    case DataType::kF8E8M0:
      return bits == 0xff ? std::nan("") : std::ldexp(1.0, bits - 127);
    default:
      return DecodeMini(bits, {2, 1, 1, false, true, false});  // f4e2m1
  }
}

}  // namespace

Tensor Tensor::Zeros(DataType dtype, std::vector<int64_t> dims) {
  const std::optional<int64_t> count = ElementCount(dims);
  QUENCH_CHECK(count.has_value());
  if (dtype == DataType::kString) {
    return Strings(std::move(dims), std::vector<std::string>(static_cast<size_t>(*count)));
  }
  const size_t bytes = static_cast<size_t>(DataTypeBytes(dtype, *count));
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.dims_ = std::move(dims);
  tensor.owned_ = Allocate(bytes);
  std::memset(tensor.owned_.get(), 0, bytes);
  tensor.bytes_ = {tensor.owned_.get(), bytes};
  return tensor;
}

Tensor Tensor::View(DataType dtype, std::vector<int64_t> dims, std::span<const std::byte> bytes,
                    std::shared_ptr<const void> owner) {
  const std::optional<int64_t> count = ElementCount(dims);
  QUENCH_CHECK(count.has_value() && dtype != DataType::kString);
  QUENCH_CHECK(static_cast<int64_t>(bytes.size()) == DataTypeBytes(dtype, *count));
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.dims_ = std::move(dims);
  tensor.bytes_ = bytes;
  tensor.owner_ = std::move(owner);
  return tensor;
}

Tensor Tensor::Strings(std::vector<int64_t> dims, std::vector<std::string> values) {
  QUENCH_CHECK(ElementCount(dims) == static_cast<int64_t>(values.size()));
  Tensor tensor;
  tensor.dtype_ = DataType::kString;
  tensor.dims_ = std::move(dims);
  tensor.strings_ = std::make_shared<const std::vector<std::string>>(std::move(values));
  return tensor;
}

int64_t Tensor::size() const {
  int64_t count = 1;
  for (int64_t dim : dims_) count *= dim;
  return count;
}

std::byte* Tensor::mutable_bytes() {
  if (owned_ == nullptr || owned_.use_count() > 1) {
    std::shared_ptr<std::byte[]> copy = Allocate(bytes_.size());
    if (!bytes_.empty()) std::memcpy(copy.get(), bytes_.data(), bytes_.size());
    owned_ = std::move(copy);
    owner_.reset();
    bytes_ = {owned_.get(), bytes_.size()};
  }
  return owned_.get();
}

const std::vector<std::string>& Tensor::strings() const {
  static const auto* const kEmpty = new std::vector<std::string>();
  return strings_ != nullptr ? *strings_ : *kEmpty;
}

Tensor Tensor::Reshaped(std::vector<int64_t> dims) const {
  QUENCH_CHECK(ElementCount(dims) == size());
  Tensor tensor = *this;
  tensor.dims_ = std::move(dims);
  return tensor;
}

Tensor Tensor::BitCast(DataType dtype) const {
  QUENCH_CHECK(dtype_ != DataType::kString && DataTypeBits(dtype) == DataTypeBits(dtype_));
  Tensor tensor = *this;
  tensor.dtype_ = dtype;
  return tensor;
}

int64_t Tensor::IntAt(int64_t index) const {
  switch (dtype_) {
    case DataType::kI64:
    case DataType::kU64:
      return Load<int64_t>(bytes_, index);
    case DataType::kI32:
      return Load<int32_t>(bytes_, index);
    case DataType::kU32:
      return Load<uint32_t>(bytes_, index);
    case DataType::kI16:
      return Load<int16_t>(bytes_, index);
    case DataType::kU16:
      return Load<uint16_t>(bytes_, index);
    case DataType::kI8:
      return Load<int8_t>(bytes_, index);
    case DataType::kU8:
      return Load<uint8_t>(bytes_, index);
    case DataType::kBool:
      return Load<uint8_t>(bytes_, index) != 0 ? 1 : 0;
    case DataType::kI4:
    case DataType::kI2: {
      const int width = DataTypeBits(dtype_);
      return SignExtend(PackedBits(bytes_, index, width), width);
    }
    case DataType::kU4:
    case DataType::kU2:
      return PackedBits(bytes_, index, DataTypeBits(dtype_));
    default:
      QUENCH_CHECK(false && "IntAt takes integers and bool");
  }
}

Tensor Tensor::Widened() const {
  const bool is_signed = dtype_ == DataType::kI4 || dtype_ == DataType::kI2;
  Tensor wide = Zeros(is_signed ? DataType::kI8 : DataType::kU8, dims_);
  std::byte* const out = wide.mutable_bytes();
  for (int64_t i = 0; i < size(); ++i) out[i] = static_cast<std::byte>(IntAt(i));
  return wide;
}

Tensor Tensor::Floats(DataType dtype, std::vector<int64_t> dims, std::span<const float> values) {
  Tensor tensor = Zeros(dtype, std::move(dims));
  std::byte* bytes = tensor.mutable_bytes();
  if (dtype == DataType::kF32) {
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(bytes));
    return tensor;
  }
  std::transform(values.begin(), values.end(), reinterpret_cast<uint16_t*>(bytes),
                 dtype == DataType::kF16 ? FloatToHalf : FloatToBfloat16);
  return tensor;
}

double Tensor::FloatAt(int64_t index) const {
  switch (dtype_) {
    case DataType::kF64:
      return Load<double>(bytes_, index);
    case DataType::kF32:
      return Load<float>(bytes_, index);
    case DataType::kF16:
      return HalfToFloat(Load<uint16_t>(bytes_, index));
    case DataType::kBF16:
      return Bfloat16ToFloat(Load<uint16_t>(bytes_, index));
    case DataType::kF4E2M1:
      return DecodeSmall(dtype_, PackedBits(bytes_, index, 4));
    case DataType::kU64:
      return static_cast<double>(Load<uint64_t>(bytes_, index));
    default:
      if (IsFloat(dtype_)) return DecodeSmall(dtype_, Load<uint8_t>(bytes_, index));
      return static_cast<double>(IntAt(index));
  }
}

std::vector<int64_t> Tensor::ToInts() const {
  std::vector<int64_t> values(static_cast<size_t>(size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = IntAt(static_cast<int64_t>(i));
  return values;
}

std::optional<int64_t> ElementCount(std::span<const int64_t> dims) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    empty = empty || dim == 0;
    if (dim > 0 && __builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return empty ? 0 : count;
}

namespace {

// Adds one pair to the running maxima; false when one is NaN or infinite and the other is not the
// same.
bool Accumulate(double actual, double reference, double* difference, double* scale) {
  if (std::isnan(actual) || std::isnan(reference))
    return std::isnan(actual) && std::isnan(reference);
  if (std::isinf(actual) || std::isinf(reference)) return actual == reference;
  *difference = std::max(*difference, std::abs(actual - reference));
  *scale = std::max(*scale, std::abs(reference));
  return true;
}

// 64-bit integers that differ may be equal as doubles: the exact distance counts.
double IntegerDistance(const Tensor& actual, const Tensor& reference, int64_t index) {
  const auto a = static_cast<uint64_t>(actual.IntAt(index));
  const auto b = static_cast<uint64_t>(reference.IntAt(index));
  const bool less =
      actual.dtype() == DataType::kU64 ? a < b : static_cast<int64_t>(a) < static_cast<int64_t>(b);
  return static_cast<double>(less ? b - a : a - b);
}

template <typename T>
bool AccumulateAll(std::span<const T> actual, std::span<const T> reference, double* difference,
                   double* scale) {
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!Accumulate(actual[i], reference[i], difference, scale)) return false;
  }
  return true;
}

}  // namespace

double RelativeError(const Tensor& actual, const Tensor& reference) {
  const DataType dtype = actual.dtype();
  if (dtype != reference.dtype() || actual.dims() != reference.dims()) return kInfinity;
  if (dtype == DataType::kString) return actual.strings() == reference.strings() ? 0 : kInfinity;
  double difference = 0;
  double scale = 0;
  bool comparable = true;
  if (dtype == DataType::kF32 || dtype == DataType::kC64) {
    comparable = AccumulateAll(actual.as<float>(), reference.as<float>(), &difference, &scale);
  } else if (dtype == DataType::kF64 || dtype == DataType::kC128) {
    comparable = AccumulateAll(actual.as<double>(), reference.as<double>(), &difference, &scale);
  } else {
    const bool integer = !IsFloat(dtype);
    for (int64_t i = 0, n = actual.size(); i < n && comparable; ++i) {
      const double value = reference.FloatAt(i);
      if (integer) {
        difference = std::max(difference, IntegerDistance(actual, reference, i));
        scale = std::max(scale, std::abs(value));
      } else {
        comparable = Accumulate(actual.FloatAt(i), value, &difference, &scale);
      }
    }
  }
  if (!comparable) return kInfinity;
  return difference == 0 ? 0 : difference / std::max(scale, 1e-30);
}

}  // namespace quench
