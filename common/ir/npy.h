// NumPy's .npy files (format versions 1 to 3):
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ir/tensor.h"

namespace quench {

// Reads C- or Fortran-ordered little-endian numeric and bool arrays. Errors name the file and what
// was found.
absl::StatusOr<Tensor> ReadNpy(const std::filesystem::path& path);

// The same from a file's bytes; `name` is what messages call it.
absl::StatusOr<Tensor> ParseNpy(std::string_view bytes, const std::string& name);

// A .npy file of which parts are read: as little as is asked for is ever in memory.
class NpyFile {
 public:
  // `shown` is what messages call it; empty: its path.
  static absl::StatusOr<std::unique_ptr<NpyFile>> Open(const std::filesystem::path& path,
                                                       const std::string& shown = "");
  ~NpyFile();
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  DataType dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  // Rows [first, first + count) of the first axis; the array has rank >= 1 and these rows.
  absl::StatusOr<Tensor> Rows(int64_t first, int64_t count) const;
  absl::StatusOr<Tensor> All() const;

 private:
  NpyFile(int fd, std::string shown) : fd_(fd), shown_(std::move(shown)) {}
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> into) const;

  int fd_;
  std::string shown_;
  DataType dtype_ = DataType::kUndefined;
  bool fortran_ = false;
  std::vector<int64_t> dims_;
  uint64_t data_offset_ = 0;
};

// The header before the elements: version 1.0, C order. UNIMPLEMENTED if NumPy lacks the dtype.
absl::StatusOr<std::string> NpyHeader(DataType dtype, std::span<const int64_t> dims);

// Name, without `.npy`, of the file of a model's input: the input's name with `_` for `/` and `:`.
std::string NpyStemOf(std::string input);

// Writes version 1.0, C order. bf16 and the 8-bit floats, which NumPy lacks, are written as f32.
// Whole or not at all.
absl::Status WriteNpy(const Tensor& tensor, const std::filesystem::path& path);

}  // namespace quench
