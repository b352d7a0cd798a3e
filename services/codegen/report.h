// The report of a compilation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/passes/float16.h"
#include "services/codegen/check/report.h"
#include "services/codegen/plan/report.h"

namespace quench::codegen {

// Packed weights of a variant; weights shared with an earlier variant count there.
struct VariantWeights {
  std::string variant;
  int64_t bytes = 0;
};

// How kernels were chosen by measurement.
struct Measurement {
  int builds = 0, rounds = 0;  // builds that ran in turn, and runs of each
  // Run time with the kernels chosen by predicted cost, and with the ones finally kept.
  double predicted_choice_ms = 0, measured_choice_ms = 0;
};

// CPU time of all threads.
struct StageTime {
  std::string stage;  // "passes", "planning", "weights", "code", "link", "check"
  double seconds = 0;
};

struct CompileReport {
  std::string uuid;
  std::string target;         // resolved: triple, CPU, features
  std::string target_string;  // resolved, in the form that --target takes
  // Features asked for that no generated code uses, with their signs.
  std::vector<std::string> unused_features;
  std::vector<std::string> variants;
  std::vector<KernelReport> kernels;
  int64_t arena_bytes = 0;  // at typical sizes
  int64_t arena_lower_bound = 0;
  int64_t device_arena_bytes = 0, device_arena_lower_bound = 0;  // of the GPU's memory
  std::vector<ArenaBuffer> arena;                                // by offset
  // The library's size by part.
  int64_t weight_bytes = 0;  // packed, of all variants
  std::vector<VariantWeights> variant_weights;
  int64_t code_bytes = 0, rest_bytes = 0;
  std::vector<passes::KeptFloat32> kept_float32;  // with passes.store_as
  std::vector<StageTime> stages;                  // of a compilation in this process, in order
  std::optional<Measurement> measurement;         // at level 4
  std::optional<CheckReport> check;               // if one was requested
};

}  // namespace quench::codegen
