// The parts of a library that can be read without loading it.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <span>
#include <string>

namespace quench::codegen {

// Names of the sections in a library with its UUID and its description, each a text that ends with a zero.
inline constexpr char kUuidSection[] = ".quench.uuid";
inline constexpr char kDescriptionSection[] = ".quench.description";

struct LibrarySections {
  std::string kind;         // "shared library", "object", "archive"
  std::string machine;      // "x86_64", as LLVM calls it
  std::string uuid;         // of kUuidSection
  std::string description;  // JSON, of kDescriptionSection
};
// Reads an object file of one of our formats, for any machine, or an archive with one object of a model. `bytes` may be
// anything; INVALID_ARGUMENT, naming `name`, if they are not such a file.
absl::StatusOr<LibrarySections> ReadSections(std::span<const std::byte> bytes,
                                             const std::string& name);

}  // namespace quench::codegen
