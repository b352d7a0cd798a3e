#include "common/base/dtype.h"

#include <array>

namespace quench {
namespace {

struct Row {
  std::string_view name;
  std::string_view onnx;   // spelling in ONNX documents
  std::string_view numpy;  // spelling in NumPy, where it has one
  int bits;
};

constexpr std::array<Row, kDataTypeCount> kRows = {{
    {"undefined", "undefined", "", 0},
    {"f32", "float", "float32", 32},
    {"u8", "uint8", "uint8", 8},
    {"i8", "int8", "int8", 8},
    {"u16", "uint16", "uint16", 16},
    {"i16", "int16", "int16", 16},
    {"i32", "int32", "int32", 32},
    {"i64", "int64", "int64", 64},
    {"string", "string", "str", 0},
    {"bool", "bool", "bool_", 8},
    {"f16", "float16", "float16", 16},
    {"f64", "double", "float64", 64},
    {"u32", "uint32", "uint32", 32},
    {"u64", "uint64", "uint64", 64},
    {"c64", "complex64", "complex64", 64},
    {"c128", "complex128", "complex128", 128},
    {"bf16", "bfloat16", "bfloat16", 16},
    {"f8e4m3fn", "float8e4m3fn", "float8_e4m3fn", 8},
    {"f8e4m3fnuz", "float8e4m3fnuz", "float8_e4m3fnuz", 8},
    {"f8e5m2", "float8e5m2", "float8_e5m2", 8},
    {"f8e5m2fnuz", "float8e5m2fnuz", "float8_e5m2fnuz", 8},
    {"u4", "uint4", "uint4", 4},
    {"i4", "int4", "int4", 4},
    {"f4e2m1", "float4e2m1", "float4_e2m1fn", 4},
    {"f8e8m0", "float8e8m0", "float8_e8m0fnu", 8},
    {"u2", "uint2", "uint2", 2},
    {"i2", "int2", "int2", 2},
}};

const Row& RowOf(DataType type) { return kRows[static_cast<size_t>(type) % kRows.size()]; }

}  // namespace

std::string_view DataTypeName(DataType type) { return RowOf(type).name; }

std::optional<DataType> ParseDataType(std::string_view name) {
  for (size_t i = 1; i < kRows.size(); ++i) {
    const Row& row = kRows[i];
    if (name == row.name || name == row.onnx || (!row.numpy.empty() && name == row.numpy)) {
      return static_cast<DataType>(i);
    }
  }
  return std::nullopt;
}

int DataTypeBits(DataType type) { return RowOf(type).bits; }

int64_t DataTypeBytes(DataType type, int64_t count) { return (count * DataTypeBits(type) + 7) / 8; }

bool IsHalf(DataType type) { return type == DataType::kF16 || type == DataType::kBF16; }

bool IsFloat(DataType type) {
  switch (type) {
    case DataType::kF64:
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBF16:
    case DataType::kF8E4M3FN:
    case DataType::kF8E4M3FNUZ:
    case DataType::kF8E5M2:
    case DataType::kF8E5M2FNUZ:
    case DataType::kF8E8M0:
    case DataType::kF4E2M1:
      return true;
    default:
      return false;
  }
}

bool IsSigned(DataType type) {
  switch (type) {
    case DataType::kI64:
    case DataType::kI32:
    case DataType::kI16:
    case DataType::kI8:
    case DataType::kI4:
    case DataType::kI2:
      return true;
    default:
      return false;
  }
}

bool IsUnsigned(DataType type) {
  switch (type) {
    case DataType::kU64:
    case DataType::kU32:
    case DataType::kU16:
    case DataType::kU8:
    case DataType::kU4:
    case DataType::kU2:
      return true;
    default:
      return false;
  }
}

bool IsInteger(DataType type) { return IsSigned(type) || IsUnsigned(type); }

bool IsComplex(DataType type) { return type == DataType::kC64 || type == DataType::kC128; }

}  // namespace quench
