#include "services/cli/remote/quantize.h"

#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "services/cli/labels.h"
#include "services/cli/remote/model.h"
#include "services/cli/remote/samples.h"
#include "services/quantizer/report_proto.h"
#include "services/quantizer/rounding_file.h"
#include "services/quantizer/selection_file.h"

namespace quench::cli {
namespace {

namespace qpb = ::quench::quantizer::v1;

qpb::QuantizeOptions ToProto(const quantizer::QuantizeOptions& options, const ModelOptions& model) {
  qpb::QuantizeOptions message;
  const auto type = [](DataType dtype) { return static_cast<ir::v1::ElementType>(dtype); };
  message.set_activation_type(type(options.activation_dtype));
  message.set_kernel_type(type(options.kernel_dtype));
  message.set_bias_type(type(options.bias_dtype));
  message.set_per_channel(options.per_channel);
  message.set_symmetric(options.symmetric);
  message.set_power_of_two(options.power_of_two);
  message.set_bias_correction(options.bias_correction);
  message.set_single_operators(options.single_operators);
  message.set_method(options.method);
  message.set_percentile(options.percentile);
  if (options.block_size) message.set_block_size(*options.block_size);
  message.set_source(
      options.source == quantizer::RangeSource::kStatic    ? qpb::RANGE_SOURCE_STATIC
      : options.source == quantizer::RangeSource::kWeights ? qpb::RANGE_SOURCE_WEIGHTS_ONLY
      : options.source == quantizer::RangeSource::kDynamic ? qpb::RANGE_SOURCE_DYNAMIC
                                                           : qpb::RANGE_SOURCE_UNSPECIFIED);
  message.mutable_include()->Assign(options.include.begin(), options.include.end());
  message.mutable_exclude()->Assign(options.exclude.begin(), options.exclude.end());
  const auto& disabled = model.disabled;
  if (std::find(disabled.begin(), disabled.end(), "fuse_groups") != disabled.end())
    message.add_disabled_passes("fuse_groups");
  return message;
}

absl::Status FillSelect(const QuantizeJob& job, SampleUploads& uploads,
                        qpb::SelectRequest& select) {
  const BudgetFlags& flags = *job.how.budget;
  QUENCH_ASSIGN_OR_RETURN(const quantizer::Budget budget, BudgetOf(flags));
  if (budget.max_drop) select.mutable_budget()->set_max_drop(*budget.max_drop);
  if (budget.min_sqnr_db) select.mutable_budget()->set_min_sqnr_db(*budget.min_sqnr_db);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> labels, ReadLabels(flags.labels));
  select.set_sensitivity_samples(static_cast<int32_t>(flags.options.sensitivity_samples));
  SampleOptions measured = job.samples;
  measured.data = flags.data;
  QUENCH_ASSIGN_OR_RETURN(*select.mutable_samples(), uploads.Upload(measured, labels));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<step::v1::Samples> SampleUploads::Upload(const SampleOptions& options,
                                                        const std::vector<int64_t>& labels) {
  step::v1::Samples samples;
  samples.set_images(options.images);
  if (options.data.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const auto sizes, ParseSizes(options.sizes));
    for (const auto& [symbol, size] : sizes) {
      step::v1::SymbolSize* added = samples.add_sizes();
      added->set_symbol(symbol);
      added->set_size(size);
    }
    samples.set_random(static_cast<int32_t>(options.random));
    samples.set_seed(options.seed);
    return samples;
  }
  auto known = manifests_.find(options.data);
  if (known == manifests_.end()) {
    QUENCH_ASSIGN_OR_RETURN(step::v1::SampleManifest manifest,
                            UploadSamples(options.data, client_, context_));
    known = manifests_.emplace(options.data, std::move(manifest)).first;
  }
  step::v1::SampleManifest labelled = known->second;
  labelled.mutable_labels()->Assign(labels.begin(), labels.end());
  QUENCH_ASSIGN_OR_RETURN(*samples.mutable_manifest(), UploadManifest(labelled, client_, context_));
  return samples;
}

absl::StatusOr<gateway::v1::QuantizeChoice> ChoiceOf(const QuantizeJob& job,
                                                     const ModelOptions& model,
                                                     GatewayClient& client,
                                                     const StepContext& context) {
  SampleUploads uploads(client, context);
  gateway::v1::QuantizeChoice choice;
  *choice.mutable_options() = ToProto(OptionsOf(job.how), model);
  choice.set_equalize(job.how.rescue.equalize);
  if (job.how.rescue.split_outliers > 0)
    choice.set_outlier_share(job.how.rescue.split_outliers / 100);
  choice.set_split_parts(static_cast<int32_t>(job.how.rescue.split_tensors));
  if (!job.calibration.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                            client.UploadFiles({job.calibration}, context));
    *choice.mutable_statistics() = digests[0];
  } else if (WantsRanges(job.how) && (job.samples.random > 0 || !job.samples.data.empty())) {
    QUENCH_ASSIGN_OR_RETURN(*choice.mutable_calibrate()->mutable_samples(),
                            uploads.Upload(job.samples, {}));
  }
  if (IsAdaptive(*job.how.rounding)) {
    QUENCH_ASSIGN_OR_RETURN(*choice.mutable_adapt_rounding()->mutable_samples(),
                            uploads.Upload(job.how.rounding->samples, {}));
  }
  if (HasBudget(*job.how.budget)) {
    QUENCH_RETURN_IF_ERROR(FillSelect(job, uploads, *choice.mutable_select()));
  }
  return choice;
}

absl::Status TellPreparation(const gateway::v1::Workflow& workflow, const std::string& prefix,
                             GatewayClient& client, const StepContext& context) {
  for (const gateway::v1::Step& step : workflow.steps()) {
    if (step.name() == prefix + "equalize") {
      QUENCH_ASSIGN_OR_RETURN(
          const auto result,
          DownloadMessage<qpb::EqualizeResult>(workflow, step.name(), "result", client, context));
      TellEqualized(result.pairs(), result.spread(), result.remaining_spread());
    } else if (step.name() == prefix + "outliers") {
      QUENCH_ASSIGN_OR_RETURN(const auto result,
                              DownloadMessage<qpb::SplitOutliersResult>(workflow, step.name(),
                                                                        "result", client, context));
      std::vector<quantizer::OutlierLayer> layers;
      for (const qpb::OutlierLayer& layer : result.layers())
        layers.push_back({layer.node(), layer.channels(), layer.copies(), layer.spared()});
      TellOutliers(layers);
    } else if (step.name() == prefix + "split") {
      QUENCH_ASSIGN_OR_RETURN(const auto result,
                              DownloadMessage<qpb::SplitTensorsResult>(workflow, step.name(),
                                                                       "result", client, context));
      std::vector<quantizer::SplitLayer> layers;
      for (const qpb::SplitLayer& layer : result.layers()) {
        layers.push_back({layer.node(),
                          {layer.channels().begin(), layer.channels().end()},
                          layer.bits_before(),
                          layer.bits_after()});
      }
      TellSplit(layers);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Quantization> DownloadQuantization(const gateway::v1::Workflow& workflow,
                                                  const std::string& prefix,
                                                  const gateway::v1::QuantizeChoice& choice,
                                                  GatewayClient& client,
                                                  const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const auto result,
                          DownloadMessage<qpb::QuantizeResult>(workflow, prefix + "/quantize",
                                                               "result", client, context));
  Quantization quantization;
  quantization.report = quantizer::ReportOf(result);
  if (choice.has_adapt_rounding()) {
    QUENCH_ASSIGN_OR_RETURN(const auto adapted,
                            DownloadMessage<qpb::AdaptRoundingResult>(workflow, prefix + "/round",
                                                                      "result", client, context));
    quantization.rounding =
        std::make_shared<const quantizer::Rounding>(quantizer::FromProto(adapted.report()));
  }
  if (!choice.has_select()) return quantization;
  QUENCH_ASSIGN_OR_RETURN(
      const auto found,
      DownloadMessage<qpb::SelectResult>(workflow, prefix + "/select", "result", client, context));
  quantization.selection = quantizer::FromProto(found.report());
  return quantization;
}

}  // namespace quench::cli
