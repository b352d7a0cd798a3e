// Elements of tensors as text: decimal where that reads back to the same bits, else the bits in
// hex.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/dtype.h"
#include "common/ir/tensor.h"

namespace quench::text {

// Shortest decimal that reads back to the same double; always with a point, an exponent, `inf` or
// `nan`.
std::string FormatFloat(double value);
// Inverse of FormatFloat; `text` has no sign. Nullopt when it is not a number or out of range.
std::optional<double> ParseFloat(std::string_view text, bool negative);

// "[1.0, -2.5, 0x7fc1]", row-major. Strings are quoted, complex numbers are pairs "(1.0, 0.0)".
std::string FormatElements(const Tensor& tensor);

// Collects elements of one dtype (not strings, not complex: those are pushed as their two parts)
// into packed bytes.
class ElementWriter {
 public:
  explicit ElementWriter(DataType dtype) : dtype_(dtype) {}

  // One number as written: digits, `inf`, `nan`, `true` or `false`, without sign. Fails when the
  // dtype has no such value.
  absl::Status AddNumber(std::string_view text, bool negative);
  absl::Status AddBits(std::string_view hex);
  int64_t count() const { return count_; }
  // The elements under `dims`, which multiply to `count()` (half of it for complex).
  Tensor Finish(std::vector<int64_t> dims) const;

 private:
  int part_bits() const;
  void Push(uint64_t bits);

  DataType dtype_;
  int64_t count_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace quench::text
