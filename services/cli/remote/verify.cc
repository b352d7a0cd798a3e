#include <functional>

#include "common/base/status.h"
#include "services/analyser/report_proto.h"
#include "services/cli/remote.h"
#include "services/cli/remote/model.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

void Bind(pb::StepSpec* spec, const std::string& field, const std::string& step,
          const std::string& output) {
  pb::Binding* binding = spec->add_bindings();
  binding->set_field(field);
  binding->set_step(step);
  binding->set_output(output);
}

// Steps around one model.
class Steps {
 public:
  Steps(const VerifyJob& job, const pb::BatchModel& model) : job_(job), model_(model) {
    if (model.has_model()) {
      importer::v1::ImportRequest* request = Add("import")->mutable_import_model();
      *request->mutable_model() = model.model();
      *request->mutable_options() = model.import_options();
      module_ = {"import", "canonical"};
    }
    if (job.model.batch == 0) return;
    pb::StepSpec* batch = Add("batch");
    *batch->mutable_transform()->mutable_options() = PassesOf(job.model);
    batch->mutable_transform()->add_passes("set_batch_size");
    Take(batch, "module", [=] { return batch->mutable_transform()->mutable_module(); });
    module_ = {"batch", "module"};
  }

  void AddAnalyse() {
    pb::StepSpec* spec = Add("analyse");
    spec->mutable_analyse();
    if (model_.has_model()) {
      Bind(spec, "imported", "import", "imported");
    } else {
      *spec->mutable_analyse()->mutable_imported() = model_.module();
    }
    Take(spec, "canonical", [=] { return spec->mutable_analyse()->mutable_canonical(); });
    for (const auto& [symbol, size] : job_.options.sizes) {
      step::v1::SymbolSize* added = spec->mutable_analyse()->add_sizes();
      added->set_symbol(symbol);
      added->set_size(size);
    }
  }

  // The model as it stands, every layer on its reference nest.
  void AddReference() {
    pb::StepSpec* spec = Add("reference");
    codegen::v1::CompileRequest* request = spec->mutable_compile();
    *request->mutable_target() = TargetOf("host");
    request->mutable_options()->set_opt_level(0);
    request->mutable_options()->set_taps(true);
    Take(spec, "module", [=] { return request->mutable_module(); });
  }

  // A twin of the library that shows its layers.
  void AddTaps() {
    pb::StepSpec* transform = Add("transform");
    *transform->mutable_transform()->mutable_options() = PassesOf(job_.model);
    Take(transform, "module", [=] { return transform->mutable_transform()->mutable_module(); });
    pb::StepSpec* spec = Add("taps");
    codegen::v1::CompileRequest* request = spec->mutable_compile();
    *request->mutable_target() = TargetOf("host");
    request->mutable_options()->set_opt_level(job_.opt_level);
    request->mutable_options()->set_taps(true);
    *request->mutable_options()->mutable_passes() = PassesOf(job_.model);
    Bind(spec, "module", "transform", "module");
  }

  void AddVerify(const Digest& library, bool reference, bool layers) {
    pb::StepSpec* spec = Add("verify");
    analyser::v1::VerifyRequest* request = spec->mutable_verify();
    *request->mutable_library() = library;
    analyser::v1::VerifyOptions* options = request->mutable_options();
    options->set_samples(job_.options.samples);
    options->set_tolerance(job_.options.tolerance);
    options->set_oracle(reference ? analyser::v1::ORACLE_REFERENCE
                                  : analyser::v1::ORACLE_INTERPRETER);
    options->set_per_layer(layers);
    options->set_seed(job_.options.seed);
    options->set_threads(job_.options.threads);
    for (const auto& [symbol, size] : job_.options.sizes) {
      step::v1::SymbolSize* added = options->add_sizes();
      added->set_symbol(symbol);
      added->set_size(size);
    }
    Take(spec, "canonical", [=] { return request->mutable_canonical(); });
    if (reference) Bind(spec, "reference_library", "reference", "library");
    if (layers) Bind(spec, "tap_library", "taps", "library");
  }

  const pb::WorkflowSpec& spec() const { return spec_; }

 private:
  pb::StepSpec* Add(const std::string& name) {
    pb::StepSpec* spec = spec_.mutable_steps()->add_steps();
    spec->set_name(name);
    return spec;
  }
  // The module as far as it has come.
  void Take(pb::StepSpec* spec, const std::string& field,
            const std::function<step::v1::Module*()>& module) {
    if (module_.first.empty()) {
      *module() = model_.module();
    } else {
      Bind(spec, field, module_.first, module_.second);
    }
  }

  const VerifyJob& job_;
  const pb::BatchModel& model_;
  pb::WorkflowSpec spec_;
  std::pair<std::string, std::string> module_;
};

absl::StatusOr<bool> NeedsReference(const VerifyJob& job, const pb::BatchModel& model,
                                    GatewayClient& client, const StepContext& context) {
  if (!job.options.oracle.empty()) return job.options.oracle == "reference";
  Steps steps(job, model);
  steps.AddAnalyse();
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, client.Run(steps.spec(), context));
  QUENCH_ASSIGN_OR_RETURN(const auto report, DownloadMessage<analyser::v1::ModelReport>(
                                                 workflow, "analyse", "report", client, context));
  return report.macs() > analyser::kInterpreterMacs;
}

absl::StatusOr<analyser::VerifyReport> Compare(const VerifyJob& job, const pb::BatchModel& model,
                                               const Digest& library, bool reference, bool layers,
                                               GatewayClient& client, const StepContext& context) {
  Steps steps(job, model);
  if (reference) steps.AddReference();
  if (layers) steps.AddTaps();
  steps.AddVerify(library, reference, layers);
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
  QUENCH_ASSIGN_OR_RETURN(const bool reference, NeedsReference(job, model, *client, context));
  const auto compare = [&](bool layers) {
    return Compare(job, model, library[0], reference, layers, *client, context);
  };
  absl::StatusOr<analyser::VerifyReport> report = compare(job.options.per_layer);
  // Something is wrong: which layer it was is what the user asks next.
  if (report.ok() && !report->passed && !job.options.per_layer) return compare(true);
  return report;
}

}  // namespace quench::cli
