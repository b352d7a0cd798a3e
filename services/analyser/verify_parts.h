// The parts of Verify.
#pragma once

#include <memory>
#include <span>

#include "common/runner/runner.h"
#include "services/analyser/verify_report.h"

namespace quench::analyser {

using TensorSink = std::function<void(const std::string&, const Tensor&)>;

// Computes the graph's expected results: by the interpreter, or by a build in which every layer is on
// its reference nest. The graph must outlive it.
class Oracle {
 public:
  static absl::StatusOr<Oracle> Create(const Graph& graph, const VerifyOptions& options,
                                       const std::filesystem::path& folder,
                                       const StepContext& context);
  // `sink` receives every value of the outermost graph.
  absl::StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs, const TensorSink& sink,
                                          const StepContext& context) const;
  const std::string& kind() const { return kind_; }

 private:
  explicit Oracle(const Graph& graph) : graph_(&graph) {}
  const Graph* graph_;
  std::string kind_;
  std::unique_ptr<Artifact> artifact_;
};

using passes::Tolerances;

// Keeps the larger error; NaN counts as the largest.
void Worsen(ValueError& value, double error);

// Compares the values of the library's tap build with the oracle's, by name.
absl::Status CompareLayers(Artifact& twin, const Oracle& oracle,
                           const std::map<std::string, ValueError>& tolerances,
                           std::span<const Tensor> inputs, LayersReport& report,
                           const StepContext& context);

}  // namespace quench::analyser
