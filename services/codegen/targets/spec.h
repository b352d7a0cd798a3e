// The text of --target and --host, parsed: a target string or JSON. Nothing is looked up here.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quench::codegen {

// How much of a wrong text a message repeats, in bytes.
inline constexpr size_t kShown = 64;

// The keys are those of TVM's targets, which users of such tools know.
struct TargetSpec {
  std::string kind;               // "llvm"
  std::vector<std::string> keys;  // recorded only, as are device, model and runtime
  std::string device;
  std::vector<std::string> libs;
  bool system_lib = false;  // a static library whose model registers itself
  std::string mcpu;         // LLVM's name; "" is the triple's baseline
  std::string model;
  std::string runtime;
  std::string mtriple;             // "" is the triple of the caller's machine
  std::vector<std::string> mattr;  // "+dotprod", "-avx512f"
  std::string mfloat_abi;          // "hard", "soft" or ""
  std::string mabi;
  bool emulate_matrices = false;  // matrix registers lie in memory (Target::matrices)
  int num_cores = 0;              // threads of a session that asks for no number; 0: not said
  std::string arch;               // of devices: "sm_86"
  std::shared_ptr<const TargetSpec> host;
};

// `text` is `llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod`, its first word the kind, or a
// JSON object of the same keys (lists as arrays or joined by commas; `host` an object or a text).
// INVALID_ARGUMENT lists every unknown key, with near names, and every value of a wrong type.
absl::StatusOr<TargetSpec> ParseTargetSpec(std::string_view text);

// True where `text` is not a name: it has spaces or braces, or is a kind.
bool IsTargetSpec(std::string_view text);

// In one line, keys in the order of the struct; parses to the same.
std::string ToString(const TargetSpec& spec);

}  // namespace quench::codegen
