#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runner/device.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "services/cli/remote/quantize.h"
#include "services/cli/remote/steps.h"
#include "services/quantizer/statistics_file.h"

namespace quench::cli {

namespace pb = ::quench::gateway::v1;
namespace qpb = ::quench::quantizer::v1;

namespace {

// The module after its passes and what makes it fitter for integers.
ModuleSource AddPreparation(const CalibrateJob& job, const pb::BatchModel& model,
                            pb::WorkflowSpec& spec) {
  ModuleSource module = AddImport(spec, "import", model);
  importer::v1::TransformRequest passes;
  *passes.mutable_options() = PassesOf(job.model);
  module =
      AddModuleStep(spec, "transform", &pb::StepSpec::mutable_transform, module, std::move(passes));
  if (job.rescue.equalize)
    module = AddModuleStep(spec, "equalize", &pb::StepSpec::mutable_equalize, module);
  if (job.rescue.split_outliers > 0) {
    qpb::SplitOutliersRequest outliers;
    outliers.set_share(job.rescue.split_outliers / 100);
    module = AddModuleStep(spec, "outliers", &pb::StepSpec::mutable_split_outliers, module,
                           std::move(outliers));
  }
  if (job.rescue.split_tensors != 0) {
    qpb::SplitTensorsRequest split;
    split.set_parts(static_cast<int32_t>(job.rescue.split_tensors));
    module = AddModuleStep(spec, "split", &pb::StepSpec::mutable_split_tensors, module,
                           std::move(split));
  }
  return module;
}

}  // namespace

absl::StatusOr<quantizer::Statistics> CalibrateThere(const CalibrateJob& job,
                                                     const StepContext& context,
                                                     std::string* ran_on) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  QUENCH_ASSIGN_OR_RETURN(const pb::BatchModel model, UploadModel(job.model, *client, context));
  pb::WorkflowSpec spec;
  const ModuleSource module = AddPreparation(job, model, spec);
  codegen::v1::CompileRequest taps;
  const bool for_gpu = job.use_cuda || GpuOf(job.device).has_value();
  *taps.mutable_target() = for_gpu ? TargetOf("cuda", "host") : TargetOf("host");
  taps.mutable_options()->set_opt_level(2);  // every value is to be seen: nothing is fused
  taps.mutable_options()->set_taps(true);
  AddModuleStep(spec, "taps", &pb::StepSpec::mutable_compile, module, std::move(taps));
  qpb::CalibrateRequest calibrate;
  calibrate.set_device(job.device);
  calibrate.set_workers(static_cast<int32_t>(job.samples.workers));
  SampleUploads uploads(*client, context);
  QUENCH_ASSIGN_OR_RETURN(*calibrate.mutable_samples(), uploads.Upload(job.samples, {}));
  AddModuleStep(spec, "calibrate", &pb::StepSpec::mutable_calibrate, module, std::move(calibrate));
  Bind(spec.mutable_steps()->mutable_steps(spec.steps().steps_size() - 1), pb::PORT_TAP_LIBRARY,
       "taps", pb::PORT_LIBRARY);
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_RETURN_IF_ERROR(TellPreparation(workflow, "", *client, context));
  QUENCH_ASSIGN_OR_RETURN(
      const auto result,
      DownloadMessage<qpb::CalibrateResult>(workflow, "calibrate", "result", *client, context));
  *ran_on = result.device().empty() ? "cpu" : result.device();  // "": of an older gateway
  QUENCH_ASSIGN_OR_RETURN(const Digest digest, OutputOf(workflow, "calibrate", "statistics"));
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  const std::filesystem::path file = folder.path() / "statistics";
  QUENCH_RETURN_IF_ERROR(client->DownloadFile(digest, file, context));
  return quantizer::ReadStatistics(file);
}

absl::StatusOr<QuantizedModel> QuantizeThere(const QuantizeModelJob& job,
                                             const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  pb::WorkflowSpec spec;
  pb::CompileBatch& batch = *spec.mutable_compile();  // without targets: nothing is compiled
  QUENCH_ASSIGN_OR_RETURN(*batch.add_models(), UploadModel(job.model, *client, context));
  pb::CompileChoice& choice = *batch.add_choices();
  choice.set_name("options");
  *choice.mutable_passes() = PassesOf(job.model);
  QUENCH_ASSIGN_OR_RETURN(*choice.mutable_quantize(),
                          ChoiceOf(job.quantize, job.model, *client, context));
  const std::string prefix = batch.models(0).name() + "/options";
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_RETURN_IF_ERROR(TellPreparation(workflow, prefix + "/", *client, context));
  QuantizedModel quantized;
  QUENCH_ASSIGN_OR_RETURN(
      quantized.quantization,
      DownloadQuantization(workflow, prefix, choice.quantize(), *client, context));
  QUENCH_ASSIGN_OR_RETURN(
      quantized.graph, DownloadModule(workflow, prefix + "/quantize", "module", *client, context));
  return quantized;
}

}  // namespace quench::cli
