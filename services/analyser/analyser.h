// What is in a model, and does an artifact compute it?
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/passes/pass.h"

namespace quench::analyser {

struct LayerReport {
  std::string node, op;
  std::vector<std::string> output_shapes;  // "f32[1, 64, 56, 56]"
  int64_t parameters = 0;
  int64_t macs = 0;  // without bias
  int64_t macs_with_bias = 0;
  int64_t activation_bytes = 0;  // outputs
};

struct ModelReport {
  std::string name, fingerprint, structure_hash;
  std::vector<std::pair<std::string, std::string>> inputs, outputs;  // name, type
  std::map<std::string, int64_t> operators;                          // histogram
  int64_t parameters = 0, weight_bytes = 0;
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

// Compiles the graph into `library`: with taps or without, every layer on its reference nest or as
// codegen likes best. Given by whoever composes the services: the analyser itself dials nobody.
using BuildFunction =
    std::function<absl::Status(const Graph& graph, bool reference, bool taps,
                               const std::filesystem::path& library, const StepContext& context)>;

// What the interpreter is asked to compute; larger models are compared with a build.
inline constexpr int64_t kInterpreterMacs = 200'000'000;

struct VerifyOptions {
  int samples = 3;
  double tolerance = 1e-4;
  std::string oracle;  // "interpreter", "reference", "" picks by MACs (interpreter up to 200 M)
  bool per_layer = false;
  uint64_t seed = 1;
  int threads = 1;
  std::map<std::string, int64_t> sizes;  // of symbolic dims, by name
  BuildFunction build;                   // needed by the reference oracle and for layers
  passes::PassOptions passes;            // those that the library was compiled with
};
struct OutputError {
  std::string name;
  double error = 0;  // RelativeError, worst over samples
};
struct VerifyReport {
  bool passed = false;
  std::string oracle;
  std::vector<OutputError> outputs;
  std::vector<OutputError> layers;  // with per_layer, in execution order
  // out of tolerance; found by a tap build when an output fails
  std::string first_layer, worst_layer;
};
// Compares an artifact with its model on random inputs. A mismatch is a report with passed = false,
// not an error.
absl::StatusOr<VerifyReport> Verify(const Graph& canonical, const std::filesystem::path& artifact,
                                    const VerifyOptions& options, const StepContext& context = {});

}  // namespace quench::analyser
