// Builds of a model that show all its values, and the samples that run through them.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/base/files.h"
#include "common/ir/graph.h"
#include "common/runner/samples.h"
#include "services/cli/options.h"

namespace quench::cli {

// Where samples come from: `data`, or `random` of them.
struct SampleOptions {
  std::string data;
  std::string images;  // how they are scaled; empty: nobody said
  int64_t random = 0;
  uint64_t seed = 1;
  std::vector<std::string> sizes = {};  // NAME=N, of random ones
  int64_t workers = 0;                  // 0: one for each CPU
};
// The key of a library's preprocessing under which compile records --images, and run looks for it.
constexpr char kImagesKey[] = "images";
Option AddImageFlag(const Options& options, std::string& images);
absl::StatusOr<SampleFormat> SampleFormatOf(const std::string& images);
// Sizes of random samples: those that are given, and for others what ChooseSizes says.
absl::StatusOr<std::map<std::string, int64_t>> RandomSizes(const SampleOptions& options,
                                                           const Graph& graph);
// For the graph, whose build has such inputs.
absl::StatusOr<std::unique_ptr<Samples>> OpenSamplesOf(const SampleOptions& options,
                                                       const Graph& graph,
                                                       std::span<const ArtifactTensor> inputs,
                                                       const StepContext& context);

// A tap build of a graph for this machine, made when it is first asked for.
class TapBuild {
 public:
  // `graph` must outlive this. With `device` (OpenOptions::device) the build has code for this
  // machine's first GPU too, if there is one, unless the device is the CPU.
  explicit TapBuild(const Graph& graph, std::string device = "cpu")
      : graph_(graph), device_(std::move(device)) {}
  // Stays where it is as long as this does.
  absl::StatusOr<std::filesystem::path> Library(const StepContext& context);
  const Graph& graph() const { return graph_; }
  const std::string& device() const { return device_; }

 private:
  const Graph& graph_;
  const std::string device_;
  std::optional<TempDir> folder_;
};

}  // namespace quench::cli
