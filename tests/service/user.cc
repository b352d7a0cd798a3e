#include "tests/service/user.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/status.h"

namespace quench::testing {

namespace pb = ::quench::gateway::v1;

namespace {

const std::string kDigits = std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits.onnx";

void Bind(pb::StepSpec& step, pb::Port input, const std::string& from, pb::Port output) {
  pb::Binding* binding = step.add_bindings();
  binding->set_input(input);
  binding->set_step(from);
  binding->set_output(output);
}

// From `fixed`, the module for one image, to integers and how far they are from it.
void AddQuantization(std::map<std::string, pb::StepSpec*>& steps) {
  const auto follow = [&](const std::string& name, const std::string& from) {
    Bind(*steps[name], pb::PORT_MODULE, from, pb::PORT_MODULE);
  };
  const auto build = [&](const std::string& name, const std::string& from) {
    auto* compile = steps[name]->mutable_compile();
    compile->mutable_target()->set_name("x86-64-v2");
    compile->mutable_options()->set_taps(true);
    compile->mutable_options()->set_opt_level(2);
    follow(name, from);
  };
  steps["fixed"]->mutable_transform()->mutable_options()->set_batch(1);
  Bind(*steps["fixed"], pb::PORT_MODULE, "import", pb::PORT_CANONICAL);
  steps["equalize"]->mutable_equalize();
  follow("equalize", "fixed");
  steps["outliers"]->mutable_split_outliers()->set_share(0.1);
  follow("outliers", "equalize");
  steps["split"]->mutable_split_tensors()->set_least_gain(0.01);
  follow("split", "outliers");
  build("taps", "split");
  steps["calibrate"]->mutable_calibrate()->mutable_samples()->set_random(4);
  follow("calibrate", "split");
  Bind(*steps["calibrate"], pb::PORT_TAP_LIBRARY, "taps", pb::PORT_LIBRARY);
  steps["round"]->mutable_adapt_rounding()->mutable_samples()->set_random(2);
  follow("round", "split");
  Bind(*steps["round"], pb::PORT_TAP_LIBRARY, "taps", pb::PORT_LIBRARY);
  steps["switched"]->mutable_quantize()->mutable_options()->set_switches(true);
  follow("switched", "split");
  Bind(*steps["switched"], pb::PORT_STATISTICS, "calibrate", pb::PORT_STATISTICS);
  build("trials", "switched");
  steps["select"]->mutable_select()->mutable_samples()->set_random(4);
  steps["select"]->mutable_select()->mutable_budget()->set_min_sqnr_db(-100);
  follow("select", "switched");
  Bind(*steps["select"], pb::PORT_LIBRARY, "trials", pb::PORT_LIBRARY);
  steps["quantize"]->mutable_quantize();
  follow("quantize", "split");
  Bind(*steps["quantize"], pb::PORT_STATISTICS, "calibrate", pb::PORT_STATISTICS);
  Bind(*steps["quantize"], pb::PORT_SELECTION, "select", pb::PORT_SELECTION);
  Bind(*steps["quantize"], pb::PORT_ROUNDING, "round", pb::PORT_ROUNDING);
  build("int8", "quantize");
  steps["compare"]->mutable_compare()->mutable_samples()->set_random(2);
  Bind(*steps["compare"], pb::PORT_REFERENCE_LIBRARY, "taps", pb::PORT_LIBRARY);
  Bind(*steps["compare"], pb::PORT_LIBRARY, "int8", pb::PORT_LIBRARY);
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& AllSteps() {
  static const auto* const steps = new std::vector<std::pair<std::string, std::string>>{
      {"import", "importer"},    {"transform", "importer"},  {"export", "importer"},
      {"analyse", "analyser"},   {"introspect", "analyser"}, {"partition", "analyser"},
      {"infer", "analyser"},     {"diff", "analyser"},       {"tile", "analyser"},
      {"edit", "analyser"},      {kCompileStep, "codegen"},  {"verify", "analyser"},
      {"benchmark", "analyser"}, {"package", "codegen"},     {"equalize", "quantizer"},
      {"outliers", "quantizer"}, {"split", "quantizer"},     {"calibrate", "quantizer"},
      {"round", "quantizer"},    {"select", "quantizer"},    {"quantize", "quantizer"},
      {"compare", "analyser"}};
  return *steps;
}

User::User(const Cluster& cluster, const std::string& name) {
  local_ = *LocalBlobStore::Open(cluster.folder() / name);
  cli::GatewayOptions options;
  options.address = cluster.gateway();
  client_ = *cli::GatewayClient::Open(options, local_, {});
  cli::ModelOptions model;
  model.model = kDigits;
  const auto uploaded = cli::UploadModel(model, *client_, {});
  EXPECT_TRUE(uploaded.ok()) << uploaded.status();
  model_ = *uploaded;
}

pb::WorkflowSpec User::Spec(const std::string& salt) const {
  pb::WorkflowSpec spec;
  spec.set_salt(salt);
  std::map<std::string, pb::StepSpec*> steps;
  const auto add = [&](const std::string& name) {
    steps[name] = spec.mutable_steps()->add_steps();
    steps[name]->set_name(name);
  };
  for (const auto& [name, service] : AllSteps()) add(name);
  for (const char* name : {"fixed", "taps", "switched", "trials", "int8"}) add(name);
  *steps["import"]->mutable_import_model()->mutable_model() = model_.model();
  steps["transform"]->mutable_transform();
  Bind(*steps["transform"], pb::PORT_MODULE, "import", pb::PORT_CANONICAL);
  steps["export"]->mutable_export_model();
  Bind(*steps["export"], pb::PORT_MODULE, "import", pb::PORT_CANONICAL);
  steps["analyse"]->mutable_analyse();
  Bind(*steps["analyse"], pb::PORT_IMPORTED, "import", pb::PORT_IMPORTED);
  Bind(*steps["analyse"], pb::PORT_CANONICAL, "import", pb::PORT_CANONICAL);
  steps["introspect"]->mutable_introspect();
  steps["partition"]->mutable_partition()->set_backend("tensorrt");
  steps["infer"]->mutable_infer()->set_seed(1);
  steps["edit"]->mutable_edit()->set_script("remove relu3");
  for (const char* name : {"introspect", "partition", "infer", "edit"})
    Bind(*steps[name], pb::PORT_MODULE, "import", pb::PORT_CANONICAL);
  for (analyser::v1::ProductSizes* sizes : {steps["tile"]->mutable_tile()->mutable_limits(),
                                            steps["tile"]->mutable_tile()->mutable_gemm()}) {
    sizes->set_m(4);
    sizes->set_n(4);
    sizes->set_k(8);
  }
  steps["diff"]->mutable_diff();
  Bind(*steps["diff"], pb::PORT_REFERENCE, "import", pb::PORT_CANONICAL);
  Bind(*steps["diff"], pb::PORT_MODULE, "transform", pb::PORT_MODULE);
  steps[kCompileStep]->mutable_compile()->mutable_target()->set_name("x86-64-v2");
  Bind(*steps[kCompileStep], pb::PORT_MODULE, "transform", pb::PORT_MODULE);
  steps["verify"]->mutable_verify();
  Bind(*steps["verify"], pb::PORT_CANONICAL, "import", pb::PORT_CANONICAL);
  Bind(*steps["verify"], pb::PORT_LIBRARY, kCompileStep, pb::PORT_LIBRARY);
  steps["benchmark"]->mutable_benchmark()->mutable_options()->mutable_time()->set_nanos(50'000'000);
  Bind(*steps["benchmark"], pb::PORT_LIBRARY, kCompileStep, pb::PORT_LIBRARY);
  steps["package"]->mutable_package_library()->set_uuid("00000000-0000-0000-0000-000000000001");
  Bind(*steps["package"], pb::PORT_LIBRARY, kCompileStep, pb::PORT_LIBRARY);
  Bind(*steps["package"], pb::PORT_HEADER, kCompileStep, pb::PORT_HEADER);
  AddQuantization(steps);
  return spec;
}

std::string LibraryOf(const pb::Workflow& workflow) {
  const auto digest = cli::OutputOf(workflow, kCompileStep, "library");
  EXPECT_TRUE(digest.ok()) << digest.status();
  return digest.ok() ? digest->hash() : "";
}

const pb::Step& StepOf(const pb::Workflow& workflow, const std::string& name) {
  const auto found = std::find_if(workflow.steps().begin(), workflow.steps().end(),
                                  [&](const pb::Step& step) { return step.name() == name; });
  QUENCH_CHECK(found != workflow.steps().end());
  return *found;
}

std::string Failures(const pb::Workflow& workflow) {
  std::string text = workflow.name() + ", " + pb::State_Name(workflow.state()) + "\n";
  for (const pb::Step& step : workflow.steps())
    if (step.state() == pb::STATE_FAILED || step.failed_attempts_size() > 0)
      text += step.DebugString();
  return text;
}

}  // namespace quench::testing
