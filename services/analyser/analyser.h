// What is in a model?
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/base/library_sizes.h"
#include "common/ir/graph.h"

namespace quench::analyser {

struct LayerReport {
  std::string node, op;
  std::vector<std::string> output_shapes;  // "f32[1, 64, 56, 56]"
  int64_t parameters = 0, weight_bytes = 0;
  int64_t macs = 0;  // without bias
  int64_t macs_with_bias = 0;
  int64_t activation_bytes = 0;  // outputs
};

struct ModelReport {
  std::string name, fingerprint, structure_hash;
  std::vector<std::pair<std::string, std::string>> inputs, outputs;  // name, type
  std::map<std::string, int64_t> operators;                          // histogram
  int64_t parameters = 0, weight_bytes = 0;
  std::map<std::string, int64_t> parameters_by_type;  // "i8"
  int64_t macs = 0, macs_with_bias = 0;
  std::map<std::string, int64_t> macs_by_op;
  int64_t activation_bytes = 0, peak_activation_bytes = 0;
  std::vector<LayerReport> layers;
  std::vector<std::string> rules;               // how things were counted
  std::map<std::string, int64_t> symbol_sizes;  // sizes that symbolic dims were counted at
};

// `canonical` gives types and counts node by node, before any pass; symbolic dims count at `sizes`
// by name, else at max(min, 1).
absl::StatusOr<ModelReport> Analyse(const Graph& imported, const Graph& canonical,
                                    const std::map<std::string, int64_t>& sizes = {},
                                    const StepContext& context = {});
std::string ToTable(const ModelReport& report);
std::string ToJson(const ModelReport& report);

// A compiled library, as it describes itself: its model's layers are gone, its nodes are there.
struct LibraryReport {
  std::string uuid, fingerprint, producer;
  std::string variant;                                               // the one that this CPU takes
  std::vector<std::pair<std::string, std::string>> inputs, outputs;  // name, type
  std::vector<std::pair<std::string, std::string>> nodes;            // name, kernel
  std::map<std::string, int64_t> kernels;                            // histogram
  LibrarySizes sizes;
  int64_t arena_bytes = 0, arena_lower_bound_bytes = 0;
  std::map<std::string, int64_t> symbol_sizes;  // that the arena is planned for
};
// Of this machine's kind: others cannot be opened. Runs it once on random inputs.
absl::StatusOr<LibraryReport> AnalyseLibrary(const std::filesystem::path& path,
                                             const std::map<std::string, int64_t>& sizes,
                                             const StepContext& context);
std::string ToTable(const LibraryReport& report);
std::string ToJson(const LibraryReport& report);

}  // namespace quench::analyser
