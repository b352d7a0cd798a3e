// NumPy's .npy files (format versions 1 to 3):
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "common/ir/tensor.h"

namespace quench {

// Reads C- or Fortran-ordered little-endian numeric and bool arrays. Errors name the file and what
// was found.
absl::StatusOr<Tensor> ReadNpy(const std::filesystem::path& path);

// Writes version 1.0, C order. bf16 and the 8-bit floats, which NumPy lacks, are written as f32.
// Whole or not at all.
absl::Status WriteNpy(const Tensor& tensor, const std::filesystem::path& path);

}  // namespace quench
