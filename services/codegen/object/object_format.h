// The interface of a kind of object file: names of sections, how an object with nothing but weights is written, how lld
// is called, how a file is recognised. A target names its format; there is one, ELF (elf.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/codegen/targets/target.h"

namespace quench::codegen {

inline constexpr uint64_t kWeightAlignment = 64;  // of each entry of the weights

// The bytes around the weights of an object that has no other section with content.
struct WeightObject {
  std::string before;  // exactly ObjectFormat::weights_offset bytes, or fewer and a gap
  std::string after;
};

struct ObjectFormat {
  const char* name;       // as LLVM calls it, and Target::object_format: "elf"
  const char* described;  // in messages: "an ELF file"
  // The section of constants that contain addresses: the loader completes them before code runs.
  const char* address_section;
  uint64_t weights_offset;  // of the first byte of weights in such an object
  // `size` bytes of weights, in a section as far from code as the target's addressing asks for, under the
  // hidden symbol `symbol`.
  WeightObject (*weight_object)(const Target& target, const std::string& symbol, uint64_t size);
  // lld's arguments, its name first, without inputs and output: for a shared library that needs no other
  // one and is called `name`, and for one relocatable object.
  std::vector<std::string> (*shared_arguments)(const Target& target, const std::string& name);
  std::vector<std::string> (*relocatable_arguments)(const Target& target);
  // Whether a file has this format, by its first bytes.
  bool (*begins)(std::span<const std::byte> file);
};

}  // namespace quench::codegen
