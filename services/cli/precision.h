// `compile --precision fastest`: the fastest number type for each layer within an accuracy budget.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/precision_graph.h"
#include "services/cli/precision_report.h"
#include "services/cli/quantization.h"
#include "services/codegen/trials.h"

namespace quench::cli {

struct PrecisionJob {
  const ModelOptions& model;
  const QuantizeJob& quantize;
  const codegen::CompileOptions& codegen;
  std::filesystem::path
      folder;  // that trials lie in a folder of: in memory, if the library is encrypted
};

// 1. Builds the model in f32, f16, bf16 and, if there are statistics, int8. They run in turn, and are timed
//    kernel by kernel.
// 2. Each layer gets its fastest type: that of the fastest build, unless another one is clearly faster.
// 3. With data: layers go back to more accurate types until the budget holds, int8 first, each time the most
//    sensitive ones; what is measured is a library.
// 4. The mixed library runs in turn with the fastest of the first builds that keeps the budget; the faster
//    one is the result.
class PrecisionSearch {
 public:
  // The objects that `job` refers to must outlive this.
  PrecisionSearch(const PrecisionJob& job, const StepContext& context);
  ~PrecisionSearch();

  absl::StatusOr<MixedModel> Run();
  // After Run. The accuracy of the library that was written: FAILED_PRECONDITION if it is outside the budget.
  absl::Status MeasureWritten(const std::filesystem::path& library);
  const PrecisionReport& report() const { return report_; }

 private:
  struct Build {
    MixedModel model;
    codegen::TrialBuild trial;
    double milliseconds = 0;  // of a run, when it was last timed
    std::optional<quantizer::Cost> cost;
    Assignment types;
  };
  using Costs = quantizer::CostMeter;

  absl::Status Prepare();
  absl::Status BuildUniform();
  // Kernels of each build, in the order in which they run. The time of a run is the sum of theirs: they are so short that a
  // machine which others use too leaves most of them alone.
  absl::StatusOr<std::vector<std::vector<TimedKernel>>> TimeKernels(
      const std::vector<Build*>& builds, double seconds);
  absl::Status MeasureUniform();
  absl::Status ChooseBudgeted();
  absl::Status SelectIntegers();
  absl::Status Descend();
  absl::StatusOr<quantizer::Selection> Selected(const Assignment& types, bool always) const;
  absl::StatusOr<std::unique_ptr<Build>> BuildMixed(const Assignment& types);
  absl::StatusOr<std::unique_ptr<Build>> MakeBuild(MixedModel model, const std::string& name);
  absl::Status Refine(Build& base, std::vector<std::unique_ptr<Build>>& mixed);
  absl::StatusOr<MixedModel> Result();
  Assignment TypesOf(Precision uniform) const;
  bool Keeps(const Build& build) const;
  bool IsUniform() const;
  Precision FastestBuild(bool floats_alone) const;

  const PrecisionJob job_;
  const StepContext& context_;
  codegen::CompileOptions options_;  // of trials
  std::optional<TempDir> folder_;
  Graph module_;
  std::optional<quantizer::Statistics> statistics_;
  std::optional<MixedSource> source_;
  quantizer::SelectOptions select_;  // the budget
  std::unique_ptr<Samples> samples_;
  std::unique_ptr<Costs> costs_;
  std::vector<Tensor> inputs_;  // that builds are timed on
  std::map<Precision, std::unique_ptr<Build>> uniform_;
  std::vector<PrecisionLayer> layers_;
  Precision usual_ = Precision::kF32, floats_ = Precision::kF32;  // types of the fastest builds
  Assignment types_;
  Sensitivities integers_;  // of layers that were tried as int8, once they were measured
  std::unique_ptr<Build> mixed_;
  int builds_ = 0;
  PrecisionReport report_;
};

}  // namespace quench::cli
