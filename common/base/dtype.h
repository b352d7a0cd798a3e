// Element types of tensors and scalars. The numbers are the ONNX TensorProto ones: they appear in
// the wire format, in artifacts and in the C ABI, and never change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quench {

enum class DataType : uint8_t {
  kUndefined = 0,
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kI32 = 6,
  kI64 = 7,
  kString = 8,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kU32 = 12,
  kU64 = 13,
  kC64 = 14,
  kC128 = 15,
  kBF16 = 16,
  kF8E4M3FN = 17,
  kF8E4M3FNUZ = 18,
  kF8E5M2 = 19,
  kF8E5M2FNUZ = 20,
  kU4 = 21,
  kI4 = 22,
  kF4E2M1 = 23,
  kF8E8M0 = 24,
  kU2 = 25,
  kI2 = 26,
};
inline constexpr int kDataTypeCount = 27;

// Short lower-case name as used in the text forms: `f32`, `i64`, `bool`, `bf16`, `f8e4m3fn`, ...
std::string_view DataTypeName(DataType type);

// Inverse of DataTypeName; also takes ONNX and NumPy spellings (`float`, `float32`, `int64`, ...).
std::optional<DataType> ParseDataType(std::string_view name);

// Bits of one element in storage: 8 for bool, 4 for i4, 0 for string and undefined.
int DataTypeBits(DataType type);

// Bytes that `count` densely packed elements take (sub-byte types are packed, low nibble first).
int64_t DataTypeBytes(DataType type, int64_t count);

bool IsFloat(DataType type);     // f64 f32 f16 bf16 f8* f4
bool IsHalf(DataType type);      // f16 bf16
bool IsSigned(DataType type);    // i64 .. i2
bool IsUnsigned(DataType type);  // u64 .. u2, not bool
bool IsInteger(DataType type);   // signed or unsigned, not bool
bool IsComplex(DataType type);

}  // namespace quench
