// The parts of a compiled library's file.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <filesystem>

namespace quench {

// In bytes; `file` is the sum of the others.
struct LibrarySizes {
  int64_t file = 0;
  int64_t code = 0;  // machine code
  int64_t data = 0;  // what it only reads: weights and other constants
  int64_t rest = 0;  // tables of the linker, padding
};

// Works for libraries of any architecture. INVALID_ARGUMENT if it is not a library, or damaged.
absl::StatusOr<LibrarySizes> SizesOfLibrary(const std::filesystem::path& path);

}  // namespace quench
