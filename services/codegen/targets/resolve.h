// From what a user asks for to targets.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <vector>

#include "services/codegen/targets/host_cpu.h"
#include "services/codegen/targets/spec.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// The meaning of a request's target.
struct ResolvedTarget {
  TargetSpec spec;                  // of the strongest variant, its triple filled in
  std::vector<Target> variants;     // weakest first
  std::vector<std::string> unused;  // features asked for that no generated code uses, with signs
};

// `text` is a name (of TargetNames or TagNames), a target string or JSON (spec.h). "host", and a
// string without a triple, is resolved to what `caller` describes; absent: this machine. `host` is
// the same for --host, "" none: it must be able to run the target's code. INVALID_ARGUMENT has near
// names for what is unknown; UNIMPLEMENTED for kinds and systems without code.
absl::StatusOr<ResolvedTarget> Resolve(const std::string& text, const std::string& host,
                                       const std::optional<HostCpu>& caller);

// The variants alone, without a host.
absl::StatusOr<std::vector<Target>> ResolveTarget(const std::string& text,
                                                  const std::optional<HostCpu>& caller = {});

// The target that stands for a machine's own CPU.
inline constexpr char kHost[] = "host";

// Whether `text` is a name of TargetNames or TagNames.
bool IsTargetName(const std::string& text);

// Whether `text` cannot be resolved without a description of the caller's CPU. False for what does
// not resolve at all.
bool NeedsCaller(const std::string& text);

// Whether it is a GPU's target without an architecture: the caller's GPU is meant.
bool NeedsGpu(const std::string& text);

enum class TagKind { kX86, kArm, kAndroid, kCuda };

// A name that --target takes.
struct TargetName {
  std::string name;
  TagKind kind = TagKind::kX86;  // of `host`: this machine's
  std::string description;
  std::vector<std::string> strings;  // a target string for each variant; of `host`: none
};
// The kinds of code, in the order of targets.def, "host" first.
std::vector<TargetName> TargetNames();
// `cuda` alone, and with each architecture: target strings, which are their own names.
std::vector<TargetName> CudaNames();
// Boards, processors and GPUs: tags.def and cuda_tags.def.
std::vector<TargetName> TagNames();

}  // namespace quench::codegen
