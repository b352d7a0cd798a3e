// Whether what is compiled of a graph computes what its interpreter computes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "services/codegen/codegen.h"
#include "tests/fuzz/graphs/grower.h"

namespace quench::fuzz {

// A way to compile and run a graph.
struct Combination {
  int level = 3;
  std::string layout;    // as CompileOptions::channel_layout
  bool symbolic = true;  // else all sizes are bound before
  int threads = 1;
  DataType stored = DataType::kF32;  // f16, bf16: as --float16 and --bfloat16 store values
  codegen::Taps taps = codegen::Taps::kNone;
  std::string target = "host";
  bool pipeline = true;  // the standard passes run before
};
std::string Describe(const Combination& combination);

// Ways in which every two settings of different kinds meet, targets being those of this kind of machine.
// For one target alone, if it is given.
std::vector<Combination> Pairwise(uint64_t seed, const std::string& target = "");

// How far each output may be from `outputs`, by its largest magnitude: some times what it moves when the
// inputs move by a rounding; more where bytes or halves lie in between.
std::vector<double> Tolerances(const Graph& graph, const std::vector<Tensor>& inputs,
                               const std::vector<Tensor>& outputs);

struct Verdict {
  std::string wrong;  // "" if nothing is
  // Outputs compared, and those of them of which only type, sizes and finiteness are: values that rounding
  // may change altogether.
  int64_t outputs = 0, without_tolerance = 0;
};

// In a process of its own, so that a crash or a hang is an answer too.
Verdict CheckPasses(const Specimen& specimen);
Verdict CheckLibrary(const Specimen& specimen, const Combination& combination);

// The graph that is left when everything is taken away without which `fails` is false: outputs, nodes
// (what they made becomes an input). `fails` is asked at most `tries` times.
Specimen Shrink(Specimen specimen, const std::function<bool(const Specimen&)>& fails, int tries);

}  // namespace quench::fuzz
