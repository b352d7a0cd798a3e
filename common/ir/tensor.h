// A concrete tensor: dtype, dims, dense row-major little-endian bytes. Bytes are shared and
// immutable once a tensor has been copied; a tensor may point into a mapping that it keeps alive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/dtype.h"

namespace quench {

class Tensor {
 public:
  Tensor() = default;

  // Zero-filled, owned. `dims` are >= 0 and their product fits in memory (the caller has checked).
  static Tensor Zeros(DataType dtype, std::vector<int64_t> dims);
  // Points at `bytes` (exactly DataTypeBytes(dtype, product of dims)), kept alive by `owner`.
  static Tensor View(DataType dtype, std::vector<int64_t> dims, std::span<const std::byte> bytes,
                     std::shared_ptr<const void> owner);
  static Tensor Strings(std::vector<int64_t> dims, std::vector<std::string> values);
  template <typename T>
  static Tensor Of(DataType dtype, std::vector<int64_t> dims, const std::vector<T>& values) {
    Tensor tensor = Zeros(dtype, std::move(dims));
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(tensor.mutable_bytes()));
    return tensor;
  }
  static Tensor I64(const std::vector<int64_t>& values) {
    return Of(DataType::kI64, {static_cast<int64_t>(values.size())}, values);
  }
  // An f32, f16 or bf16 tensor: `values` rounded to nearest even; f16 overflows to infinity.
  static Tensor Floats(DataType dtype, std::vector<int64_t> dims, std::span<const float> values);
  static Tensor ScalarF32(float value) { return Of(DataType::kF32, {}, std::vector<float>{value}); }

  DataType dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t size() const;  // number of elements

  std::span<const std::byte> bytes() const { return bytes_; }
  std::byte* mutable_bytes();  // copies first when the bytes are shared or not owned
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  const std::vector<std::string>& strings() const;  // empty unless dtype is kString

  // The same bytes under other dims (same element count), or as another dtype of equal width.
  Tensor Reshaped(std::vector<int64_t> dims) const;
  Tensor BitCast(DataType dtype) const;

  // Elements as int64 (integer and bool dtypes; u64 wraps) or double (any real dtype). `index` is
  // row-major.
  int64_t IntAt(int64_t index) const;
  // The same numbers, a byte each: of i4 and i2 as i8, of u4 and u2 as u8.
  Tensor Widened() const;
  double FloatAt(int64_t index) const;
  std::vector<int64_t> ToInts() const;

 private:
  DataType dtype_ = DataType::kUndefined;
  std::vector<int64_t> dims_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<std::byte[]> owned_;  // set iff this tensor allocated its bytes
  std::shared_ptr<const std::vector<std::string>> strings_;
};

// Product of dims, or nullopt when it overflows int64 or a dim is negative.
std::optional<int64_t> ElementCount(std::span<const int64_t> dims);

// Largest |a-b| divided by the largest |reference| (1e-30 when that is 0): the error of f32
// results. NaN or infinity in one but not the other, and any dtype or dims mismatch, give +inf.
// Integers and bools compare exactly: 0 or the relative difference.
double RelativeError(const Tensor& actual, const Tensor& reference);

}  // namespace quench
