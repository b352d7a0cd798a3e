#include "common/ir/text_elements.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/half.h"
#include "common/base/status.h"
#include "common/ir/quoting.h"

namespace quench::text {
namespace {

// The element type of the two parts of a complex number; others are their own.
DataType PartType(DataType dtype) {
  if (dtype == DataType::kC64) return DataType::kF32;
  return dtype == DataType::kC128 ? DataType::kF64 : dtype;
}

template <typename T>
std::string Shortest(T value) {
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), end);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

template <typename T>
std::optional<T> FromChars(std::string_view text, bool negative) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return negative ? -value : value;
}

uint64_t BitsAt(const Tensor& tensor, int64_t index, int width) {
  if (width < 8) {
    const int64_t bit = index * width;
    const auto byte = static_cast<uint8_t>(tensor.bytes()[static_cast<size_t>(bit / 8)]);
    return static_cast<uint64_t>(byte >> (bit % 8)) & ((1u << width) - 1);
  }
  uint64_t bits = 0;
  const size_t size = static_cast<size_t>(width / 8);
  std::memcpy(&bits, tensor.bytes().data() + static_cast<size_t>(index) * size, size);
  return bits;
}

// The value of one element of a small float type.
double DecodeSmall(DataType dtype, uint64_t bits) {
  const auto byte = static_cast<std::byte>(bits);
  return Tensor::View(dtype, {1}, {&byte, 1}, nullptr).FloatAt(0);
}

// Bits of the value in a float type; nullopt when the type does not hold it (float8 and smaller
// hold few).
std::optional<uint64_t> EncodeFloat(DataType dtype, std::string_view text, bool negative) {
  if (dtype == DataType::kF64) {
    const auto value = FromChars<double>(text, negative);
    return value ? std::optional(std::bit_cast<uint64_t>(*value)) : std::nullopt;
  }
  if (dtype == DataType::kF32 || dtype == DataType::kF16 || dtype == DataType::kBF16) {
    const auto value = FromChars<float>(text, negative);
    if (!value) return std::nullopt;
    if (dtype == DataType::kF32) return std::bit_cast<uint32_t>(*value);
    const uint16_t bits = dtype == DataType::kF16 ? FloatToHalf(*value) : FloatToBfloat16(*value);
    const float back = dtype == DataType::kF16 ? HalfToFloat(bits) : Bfloat16ToFloat(bits);
    return std::isinf(back) && !std::isinf(*value) ? std::nullopt : std::optional<uint64_t>(bits);
  }
  const auto value = FromChars<double>(text, negative);
  if (!value) return std::nullopt;
  const uint64_t codes = uint64_t{1} << DataTypeBits(dtype);
  for (uint64_t bits = 0; bits < codes; ++bits) {
    const double code = DecodeSmall(dtype, bits);
    const bool same = std::isnan(code)
                          ? std::isnan(*value)
                          : code == *value && std::signbit(code) == std::signbit(*value);
    if (same) return bits;
  }
  return std::nullopt;
}

std::string DecimalFloat(DataType dtype, uint64_t bits) {
  switch (dtype) {
    case DataType::kF64:
      return Shortest(std::bit_cast<double>(bits));
    case DataType::kF32:
      return Shortest(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case DataType::kF16:
      return Shortest(HalfToFloat(static_cast<uint16_t>(bits)));
    case DataType::kBF16:
      return Shortest(Bfloat16ToFloat(static_cast<uint16_t>(bits)));
    default:
      return Shortest(DecodeSmall(dtype, bits));
  }
}

std::string FormatFloatBits(DataType dtype, uint64_t bits) {
  std::string decimal = DecimalFloat(dtype, bits);
  const bool negative = decimal[0] == '-';
  // NaNs with a payload or a sign, mostly.
  if (EncodeFloat(dtype, std::string_view(decimal).substr(negative ? 1 : 0), negative) != bits) {
    return fmt::format("0x{:x}", bits);
  }
  return decimal;
}

std::string FormatElement(const Tensor& tensor, DataType part, int64_t index) {
  const int width = DataTypeBits(part);
  const uint64_t bits = BitsAt(tensor, index, width);
  if (IsFloat(part)) return FormatFloatBits(part, bits);
  if (part == DataType::kBool)
    return bits == 0 ? "false" : bits == 1 ? "true" : fmt::format("0x{:x}", bits);
  if (IsUnsigned(part)) return std::to_string(bits);
  return std::to_string(tensor.IntAt(index));
}

std::optional<uint64_t> EncodeInteger(DataType dtype, std::string_view text, bool negative) {
  const int width = DataTypeBits(dtype);
  uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), magnitude);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  const uint64_t mask = width == 64 ? UINT64_MAX : (uint64_t{1} << width) - 1;
  const uint64_t half = uint64_t{1} << (width - 1);
  uint64_t limit = half;  // of magnitudes of negative numbers
  if (IsUnsigned(dtype)) {
    limit = negative ? 0 : mask;
  } else if (!negative) {
    limit = half - 1;
  }
  if (magnitude > limit) return std::nullopt;
  return (negative ? uint64_t{0} - magnitude : magnitude) & mask;
}

}  // namespace

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  return Shortest(value);
}

std::optional<double> ParseFloat(std::string_view text, bool negative) {
  return FromChars<double>(text, negative);
}

std::string FormatElements(const Tensor& tensor) {
  std::string text = "[";
  const auto separate = [&] {
    if (text.size() > 1) text += ", ";
  };
  const DataType part = PartType(tensor.dtype());
  for (int64_t i = 0, n = tensor.size(); i < n; ++i) {
    separate();
    if (tensor.dtype() == DataType::kString) {
      text += Quote(tensor.strings()[static_cast<size_t>(i)]);
    } else if (IsComplex(tensor.dtype())) {
      text += "(" + FormatElement(tensor, part, 2 * i) + ", " +
              FormatElement(tensor, part, 2 * i + 1) + ")";
    } else {
      text += FormatElement(tensor, part, i);
    }
  }
  return text + "]";
}

int ElementWriter::part_bits() const { return DataTypeBits(PartType(dtype_)); }

void ElementWriter::Push(uint64_t bits) {
  const int width = part_bits();
  if (width < 8) {
    const int64_t bit = count_ * width;
    if (bit % 8 == 0) bytes_.push_back(std::byte{0});
    bytes_.back() |= static_cast<std::byte>(bits << (bit % 8));
  } else {
    for (int shift = 0; shift < width; shift += 8)
      bytes_.push_back(static_cast<std::byte>(bits >> shift));
  }
  ++count_;
}

absl::Status ElementWriter::AddNumber(std::string_view text, bool negative) {
  const DataType part = PartType(dtype_);
  std::optional<uint64_t> bits;
  if (part == DataType::kBool) {
    if (!negative && (text == "true" || text == "1")) bits = 1;
    if (!negative && (text == "false" || text == "0")) bits = 0;
  } else {
    bits = IsFloat(part) ? EncodeFloat(part, text, negative) : EncodeInteger(part, text, negative);
  }
  if (!bits) {
    return InvalidArgument("`{}{}` is not a value of type {}", negative ? "-" : "",
                           text.substr(0, 40), DataTypeName(part));
  }
  Push(*bits);
  return absl::OkStatus();
}

absl::Status ElementWriter::AddBits(std::string_view hex) {
  uint64_t bits = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), bits, 16);
  const int width = part_bits();
  if (error != std::errc() || end != hex.data() + hex.size() ||
      (width < 64 && (bits >> width) != 0)) {
    return InvalidArgument("`0x{}` is not {} bits", hex.substr(0, 40), width);
  }
  Push(bits);
  return absl::OkStatus();
}

Tensor ElementWriter::Finish(std::vector<int64_t> dims) const {
  Tensor tensor = Tensor::Zeros(dtype_, std::move(dims));
  QUENCH_CHECK(tensor.bytes().size() == bytes_.size());
  if (!bytes_.empty()) std::memcpy(tensor.mutable_bytes(), bytes_.data(), bytes_.size());
  return tensor;
}

}  // namespace quench::text
