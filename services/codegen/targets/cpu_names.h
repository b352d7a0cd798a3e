// The CPUs that LLVM knows: names, and the features of each.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

namespace quench::codegen {

// A triple's parts, in LLVM's names.
struct TripleParts {
  std::string architecture;   // "x86_64", "i386", "aarch64", "arm"; "" is unknown to LLVM
  std::string system;         // "linux"
  std::string environment;    // "gnu", "gnueabihf", "android", "musleabi", ...; "" none
  std::string object_format;  // "elf"
  bool hard_floats = false;   // its environment passes floats in float registers
  bool little_endian = false;
};
TripleParts PartsOf(const std::string& triple);

struct CpuNames {
  std::vector<std::string> cpus, features;  // without signs
};
// The CPUs of a triple's architecture, read once; INVALID_ARGUMENT if LLVM has no back end for it.
absl::StatusOr<const CpuNames*> NamesOfCpus(const std::string& triple);

// The features of `cpu` with `changes` ("+avx2", "-avx512f") applied in order, what they imply among
// them, sorted. All names must be known.
absl::StatusOr<std::vector<std::string>> FeaturesOf(const std::string& triple,
                                                    const std::string& cpu,
                                                    const std::vector<std::string>& changes);

}  // namespace quench::codegen
