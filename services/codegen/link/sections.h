// What can be read of a library without loading it.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <span>
#include <string>

namespace quench::codegen {

struct LibrarySections {
  std::string kind;         // "shared library", "object", "archive"
  std::string machine;      // "x86_64", as LLVM calls it
  std::string uuid;         // of section .quench.uuid
  std::string description;  // JSON, of section .quench.description
};
// Of an ELF file for any machine, or an archive with one object of a model. `bytes` may be anything;
// INVALID_ARGUMENT, naming `name`, when they are not such a file.
absl::StatusOr<LibrarySections> ReadSections(std::span<const std::byte> bytes,
                                             const std::string& name);

}  // namespace quench::codegen
