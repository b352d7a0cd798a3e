// ELF files, as the systems that we know store libraries and objects in them.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quench {

inline constexpr char kAnElfFile[] = "an ELF file";  // in messages

// Whether a file begins as one.
bool IsElf(std::span<const std::byte> file);

// A section that is loaded with the program and never written.
struct LoadedSection {
  uint64_t size = 0;
  bool code = false;
};
// `file` begins as an ELF file, for any architecture; INVALID_ARGUMENT if its headers are damaged.
absl::StatusOr<std::vector<LoadedSection>> LoadedSectionsOfElf(std::span<const std::byte> file);

}  // namespace quench
