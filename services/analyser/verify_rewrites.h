// Checks that the graph that the passes made computes the same as the model.
#pragma once

#include <memory>

#include "common/passes/cut.h"
#include "common/runner/fidelity.h"
#include "services/analyser/verify_parts.h"

namespace quench::analyser {

using passes::Quantizer;

class RewriteCheck {
 public:
  // Whether the model has groups of integers to check.
  static bool NeedsTwin(const Graph& model);
  // `rewritten` has the values that the library computes. `twin`, its tap build, may be null: then the
  // groups of a quantized model are not checked. Both must outlive this object.
  static absl::StatusOr<RewriteCheck> Create(const Graph& model, const Graph& rewritten,
                                             const VerifyOptions& options, Artifact* twin);
  // Adds a run of the library.
  absl::Status Add(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                   const StepContext& context);
  RewritesReport Finish();

 private:
  class Comparison;
  using Tensors = std::map<std::string, Tensor>;  // by value name
  RewriteCheck(Graph model, const Graph& rewritten, Artifact* twin)
      : model_(std::move(model)), rewritten_(&rewritten), twin_(twin) {}
  absl::Status AddGroups(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                         const StepContext& context);
  absl::StatusOr<Tensors> RunTwin(const std::vector<Tensor>& inputs,
                                  const std::vector<Tensor>& outputs, const StepContext& context);
  absl::Status AddHidden(const std::vector<Tensor>& inputs, Tensors& taps,
                         const StepContext& context);
  void ChooseGroups(const Tensors& taps);

  Graph model_;  // QLinear operators expanded
  const Graph* rewritten_;
  Artifact* twin_;
  std::map<std::string, DataType> wanted_;  // the model's quantized values
  std::vector<Quantizer> quantizers_;       // quantizers of the model
  std::vector<Quantizer> groups_;           // quantizers whose integers the library shows
  std::vector<std::string> fed_;            // names of inputs of `cut_` after the model's own
  Graph cut_;                               // the model cut at these, after the first sample
  std::vector<NoiseSums> noise_;            // per output
  std::map<std::string, GroupFailure> failures_;
  RewritesReport report_;
};

}  // namespace quench::analyser
