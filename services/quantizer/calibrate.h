// Calibration: a tap build of a module runs over samples, and statistics of its values are kept.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <string>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/runner/runner.h"
#include "common/runner/samples.h"
#include "services/quantizer/statistics.h"

namespace quench::quantizer {

// The channel axis of each float value of the main graph, by the operators that give and take it: 1
// around convolutions and pooling, the last one around matrix products; others have none (-1), as
// do values with a symbolic number of channels. Constants do not count as values here.
std::map<std::string, int> ChannelAxes(const Graph& graph);

struct CalibrateOptions {
  int workers = 1;          // that run samples side by side; the statistics do not depend on it
  bool random = false;      // the samples are: noted in the statistics
  std::string device = {};  // where they run: OpenOptions::device
};

// Workers if nobody says how many: each has an arena on the GPU, and its statistics are made by a CPU.
inline constexpr int kWorkersOnGpu = 4;

// FAILED_PRECONDITION unless the library is a build of `graph`.
absl::Status CheckTapLibrary(const Artifact& library, const Graph& graph);

// `tap_library` is a tap build of `graph` in which values keep their names and no operators are
// fused; FAILED_PRECONDITION if it is of another graph. NaN or infinity in an input, and samples
// that do not run, are INVALID_ARGUMENT with the sample's name; values inside that are not finite
// have no statistics and are listed.
absl::StatusOr<Statistics> Calibrate(const Graph& graph, const std::filesystem::path& tap_library,
                                     const Samples& samples, const CalibrateOptions& options,
                                     const StepContext& context = {});

}  // namespace quench::quantizer
