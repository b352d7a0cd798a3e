// The accuracy that a cheaper computation of a model costs, and may cost.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/runner/fidelity.h"
#include "common/runner/runner.h"
#include "common/runner/samples.h"

namespace quench::quantizer {

// The accuracy that quantization may cost; at least one limit, and all that are given must hold.
struct Budget {
  // Largest share of rows, 0 to 1, that become wrong (with labels) or get another class than in
  // float (without).
  std::optional<double> max_drop;
  // SQNR of every output, over all samples (NoiseSums::SqnrDb).
  std::optional<double> min_sqnr_db;
};

// The loss of accuracy against the float model.
struct Cost {
  double sqnr_db = 0;          // of the worst output
  std::optional<double> drop;  // absent where the first output has no classes
};

// "25.96 dB", or with the drop: "25.96 dB, drop 0.10 %".
std::string CostText(const Cost& cost);
bool Holds(const Budget& budget, const Cost& cost);
// Whether such outputs can tell what the budget asks for.
absl::Status CheckOutputs(const std::vector<ArtifactTensor>& outputs, const Budget& budget);

// The cost over the samples that were added.
class Score {
 public:
  explicit Score(const std::vector<int64_t>& labels) : labels_(labels) {}

  // Outputs of the float model, and the others. INVALID_ARGUMENT where they have other sizes, or
  // there are fewer labels than rows.
  absl::Status Add(const std::vector<Tensor>& a, const std::vector<Tensor>& b);
  Cost cost() const;
  // All samples were added: FAILED_PRECONDITION or INVALID_ARGUMENT where `budget` asks for rows and there are
  // none, or where there are more labels than rows.
  absl::Status Check(const Budget& budget) const;

 private:
  const std::vector<int64_t>& labels_;
  std::vector<NoiseSums> outputs_;
  int64_t rows_ = 0, lost_ = 0;
};

// Measures libraries against one of the float model, on all samples.
class CostMeter {
 public:
  // All must outlive this. `labels` as in Score: empty, or one for each row of the first output.
  CostMeter(Artifact& reference, const Samples& samples, const Budget& budget,
            const std::vector<int64_t>& labels)
      : reference_(reference), samples_(samples), budget_(budget), labels_(labels) {}

  // `what` is what progress calls it.
  absl::StatusOr<Cost> Of(Artifact& other, const std::string& what, const StepContext& context);

 private:
  absl::StatusOr<std::vector<Tensor>> Reference(int64_t sample, const std::vector<Tensor>& inputs,
                                                const StepContext& context);

  Artifact& reference_;
  const Samples& samples_;
  const Budget& budget_;
  const std::vector<int64_t>& labels_;
  std::map<int64_t, std::vector<Tensor>> references_;  // by sample, as many as memory is given to
  int64_t bytes_ = 0;
};

}  // namespace quench::quantizer
