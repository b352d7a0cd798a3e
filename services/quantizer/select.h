// Choice of the layers that must stay in float for a module to be accurate enough.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/runner/samples.h"
#include "services/quantizer/cost.h"
#include "services/quantizer/options.h"

namespace quench::quantizer {

struct SelectOptions {
  Budget budget;
  std::vector<int64_t> labels;  // a class for each row of the first output; empty: none
  // Number of samples, from the first on, on which each layer is tried by itself.
  int64_t sensitivity_samples = 32;
  int threads = 1;
  // Every layer is tried by itself, also where the budget holds with all in integers.
  bool always_sensitivity = false;
  // A selection that keeps all layers in float is a result, and no error.
  bool may_keep_all = false;
};

// All errors in a budget and in how it is measured.
absl::Status CheckOptions(const SelectOptions& options);

struct LayerSensitivity {
  std::string node;
  Cost alone;  // only this layer in integers, on the first samples
  bool kept = false;
};

struct Trial {
  int kept = 0;  // layers in float: the most sensitive
  Cost cost;     // on all samples
};

struct Selection {
  std::string fingerprint;               // of the float module
  std::vector<LayerSensitivity> layers;  // most sensitive first: by SQNR
  std::vector<Trial> trials;             // in the order they were made; the first keeps none
  int64_t samples = 0, sensitivity_samples = 0;
  // The cost of the selection, as it was tried. A module made of it may differ a little where
  // layers share ranges: there, the layers that are kept widen none.
  Cost cost;
};

// `library` is a build of `module`, which was quantized with switches. Layers go back to float, the
// most sensitive first, until the budget holds; their number is found by bisection, each time
// measured on all samples. FAILED_PRECONDITION if no layer can be in integers, if the result has an
// SQNR of 0 dB or less (the worst layer is named), or if the budget needs classes and there are
// none.
absl::StatusOr<Selection> Select(const Graph& module, const std::filesystem::path& library,
                                 const Samples& samples, const SelectOptions& options,
                                 const StepContext& context = {});

// Quantization of `graph` leaves in float what `selection` keeps. FAILED_PRECONDITION if it is of
// another module.
absl::Status KeepSelected(const Selection& selection, const Graph& graph, QuantizeOptions& options);

std::string ToTable(const Selection& selection);

}  // namespace quench::quantizer
