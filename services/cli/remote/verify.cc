#include <algorithm>
#include <functional>

#include "common/base/status.h"
#include "common/runner/device.h"
#include "services/analyser/report_proto.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/model.h"
#include "services/cli/remote/steps.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

// Builds that the analyser needs.
struct VerifyNeeds {
  bool reference = false, taps = false;
  bool layers = false;  // to be compared
};

// Steps around one model.
class Steps {
 public:
  Steps(const VerifyJob& job, const pb::BatchModel& model) : job_(job), model_(model) {
    if (model.has_model()) {
      importer::v1::ImportRequest* request = Add("import")->mutable_import_model();
      *request->mutable_model() = model.model();
      *request->mutable_options() = model.import_options();
      module_ = {"import", pb::PORT_CANONICAL};
    }
    if (job.model.batch == 0) return;
    pb::StepSpec* batch = Add("batch");
    *batch->mutable_transform()->mutable_options() = PassesOf(job.model);
    batch->mutable_transform()->add_passes("set_batch_size");
    Take(batch, pb::PORT_MODULE, [=] { return batch->mutable_transform()->mutable_module(); });
    module_ = {"batch", pb::PORT_MODULE};
  }

  void AddAnalyse() {
    pb::StepSpec* spec = Add("analyse");
    spec->mutable_analyse();
    // Operators are counted in the canonical module too: what quantizes there is what is verified.
    Take(spec, pb::PORT_IMPORTED, [=] { return spec->mutable_analyse()->mutable_imported(); });
    Take(spec, pb::PORT_CANONICAL, [=] { return spec->mutable_analyse()->mutable_canonical(); });
    for (const auto& [symbol, size] : job_.options.sizes) {
      step::v1::SymbolSize* added = spec->mutable_analyse()->add_sizes();
      added->set_symbol(symbol);
      added->set_size(size);
    }
  }

  // The module after all passes.
  void AddTransform() {
    pb::StepSpec* spec = Add("transform");
    *spec->mutable_transform()->mutable_options() = PassesOf(job_.model);
    Take(spec, pb::PORT_MODULE, [=] { return spec->mutable_transform()->mutable_module(); });
  }

  // Build of that graph: every layer on its reference nest (level 0), or the library's twin, which shows its
  // layers.
  void AddBuild(const std::string& name, int opt_level, const codegen::v1::Target& target) {
    pb::StepSpec* spec = Add(name);
    codegen::v1::CompileRequest* request = spec->mutable_compile();
    *request->mutable_target() = target;
    codegen::v1::CompileOptions* options = request->mutable_options();
    options->set_opt_level(opt_level);
    options->set_taps(true);
    options->set_tap_values(codegen::v1::TAP_VALUES_RUNNING_CODE);
    *options->mutable_passes() = PassesOf(job_.model);
    Bind(spec, pb::PORT_MODULE, "transform", pb::PORT_MODULE);
  }

  void AddVerify(const Digest& library, const VerifyNeeds& needs) {
    if (needs.reference || needs.taps) AddTransform();
    if (needs.reference) AddBuild("reference", 0, TargetOf("host"));
    const bool on_gpu = GpuOf(job_.options.device).has_value();
    if (needs.taps)
      AddBuild("taps", job_.opt_level, on_gpu ? TargetOf("cuda", "host") : TargetOf("host"));
    pb::StepSpec* spec = Add("verify");
    analyser::v1::VerifyRequest* request = spec->mutable_verify();
    *request->mutable_library() = library;
    request->set_device(job_.options.device);
    analyser::v1::VerifyOptions* options = request->mutable_options();
    options->set_samples(job_.options.samples);
    if (job_.options.tolerance) options->set_tolerance(*job_.options.tolerance);
    options->set_oracle(needs.reference ? analyser::v1::ORACLE_REFERENCE
                                        : analyser::v1::ORACLE_INTERPRETER);
    options->set_per_layer(needs.layers);
    options->set_seed(job_.options.seed);
    options->set_threads(job_.options.threads);
    *options->mutable_passes() = PassesOf(job_.model);
    for (const auto& [input, range] : job_.options.ranges) {
      analyser::v1::InputRange* added = options->add_ranges();
      added->set_input(input);
      added->set_low(range.low);
      added->set_high(range.high);
    }
    for (const auto& [symbol, size] : job_.options.sizes) {
      step::v1::SymbolSize* added = options->add_sizes();
      added->set_symbol(symbol);
      added->set_size(size);
    }
    Take(spec, pb::PORT_CANONICAL, [=] { return request->mutable_canonical(); });
    if (needs.reference) Bind(spec, pb::PORT_REFERENCE_LIBRARY, "reference", pb::PORT_LIBRARY);
    if (needs.taps) Bind(spec, pb::PORT_TAP_LIBRARY, "taps", pb::PORT_LIBRARY);
  }

  const pb::WorkflowSpec& spec() const { return spec_; }

 private:
  pb::StepSpec* Add(const std::string& name) {
    pb::StepSpec* spec = spec_.mutable_steps()->add_steps();
    spec->set_name(name);
    return spec;
  }
  // The module as far as it has come.
  void Take(pb::StepSpec* spec, pb::Port input, const std::function<step::v1::Module*()>& module) {
    if (module_.first.empty()) {
      *module() = model_.module();
    } else {
      Bind(spec, input, module_.first, module_.second);
    }
  }

  const VerifyJob& job_;
  const pb::BatchModel& model_;
  pb::WorkflowSpec spec_;
  std::pair<std::string, pb::Port> module_;
};

// Whether an operator makes integers of floats, so that there are groups to check.
bool Quantizes(const analyser::v1::ModelReport& report) {
  return std::any_of(report.operators().begin(), report.operators().end(), [](const auto& each) {
    return each.op() == "QuantizeLinear" || each.op() == "DynamicQuantizeLinear" ||
           each.op().starts_with("QLinear");
  });
}

absl::StatusOr<VerifyNeeds> NeedsOf(const VerifyJob& job, const pb::BatchModel& model,
                                    GatewayClient& client, const StepContext& context) {
  Steps steps(job, model);
  steps.AddAnalyse();
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, RunModels(steps.spec(), client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto report, DownloadMessage<analyser::v1::ModelReport>(
                                                 workflow, "analyse", "report", client, context));
  VerifyNeeds needs;
  needs.reference = job.options.oracle.empty() ? report.macs() > analyser::kInterpreterMacs
                                               : job.options.oracle == "reference";
  needs.layers = job.options.per_layer;
  needs.taps = needs.layers || Quantizes(report);
  return needs;
}

absl::StatusOr<analyser::VerifyReport> Compare(const VerifyJob& job, const pb::BatchModel& model,
                                               const Digest& library, const VerifyNeeds& needs,
                                               GatewayClient& client, const StepContext& context) {
  Steps steps(job, model);
  steps.AddVerify(library, needs);
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, client.Run(steps.spec(), context));
  QUENCH_ASSIGN_OR_RETURN(const auto result, DownloadMessage<analyser::v1::VerifyResult>(
                                                 workflow, "verify", "result", client, context));
  return analyser::FromProto(result);
}

}  // namespace

absl::StatusOr<analyser::VerifyReport> VerifyThere(const VerifyJob& job,
                                                   const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  QUENCH_ASSIGN_OR_RETURN(const pb::BatchModel model, UploadModel(job.model, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> library,
                          client->UploadFiles({job.library}, context));
  QUENCH_ASSIGN_OR_RETURN(VerifyNeeds needs, NeedsOf(job, model, *client, context));
  absl::StatusOr<analyser::VerifyReport> report =
      Compare(job, model, library[0], needs, *client, context);
  if (!report.ok() || report->kernels.passed || needs.layers) return report;
  // Something is wrong: which layer it was is what the user asks next.
  needs.layers = needs.taps = true;
  return Compare(job, model, library[0], needs, *client, context);
}

}  // namespace quench::cli
