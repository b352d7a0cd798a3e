// Compiles graphs to native libraries.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/codegen/options/options.h"
#include "services/codegen/report.h"

namespace quench::codegen {

// Compiles a canonical or quantized graph into `library` (model.so, model.o or model.a) and
// `header`. Each file appears complete or not at all.
absl::StatusOr<CompileReport> Compile(const Graph& graph, const CompileOptions& options,
                                      const std::filesystem::path& library,
                                      const std::filesystem::path& header,
                                      const StepContext& context = {});

// The form of output that `options` ask for: an archive with `system-lib`. INVALID_ARGUMENT if that
// and `emit` contradict each other, or the target does not resolve.
absl::StatusOr<Emit> WhatToEmit(const CompileOptions& options);

struct TargetInfo {
  std::string name;  // "host", "x86-64", "aarch64", "raspberry-pi/5", ...
  std::string kind;  // "x86", "arm", "android", "cuda"
  std::string triple;
  std::vector<std::string> variants;  // each with its CPU and features; of GPUs: device code alone
  std::vector<std::string> strings;   // a target string for each variant
  std::string description;
};
// `kind` as in TargetInfo, or "all"; INVALID_ARGUMENT for others.
absl::StatusOr<std::vector<TargetInfo>> ListTargets(const std::string& kind = "all");

}  // namespace quench::codegen
