// A gateway with a console for tests in a browser: 10,000 workflows that have ended, a fleet, and a workflow that runs
// until it is told to go on. Prints the console's address; `go` on its input lets steps end; the end of the input ends it.
#include <grpcpp/grpcpp.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <exception>
#include <future>
#include <iostream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "google/longrunning/operations.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"
#include "services/gateway/host.h"
#include "services/gateway/sqlite_store.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::gateway {
namespace {

constexpr int kWorkflows = 10'000;
constexpr int64_t kBegin = 1'790'000'000'000'000;  // Unix microseconds
constexpr int64_t kSecond = 1'000'000;
constexpr const char* kModels[] = {"resnet50", "mobilenet_v2", "bert-base"};

v1::Step& AddStep(v1::Workflow& workflow, const std::string& name, const std::string& method,
                  v1::State state) {
  v1::Step& step = *workflow.add_steps();
  if (workflow.steps_size() > 1)
    step.add_depends_on(workflow.steps(workflow.steps_size() - 2).name());
  step.set_name(name);
  step.set_method(method);
  step.set_state(state);
  step.set_attempt(1);
  step.set_max_attempts(3);
  *step.mutable_start_time() = workflow.create_time();
  *step.mutable_end_time() = TimestampOf(Microseconds(workflow.create_time()) + 7 * kSecond);
  return step;
}

StoredWorkflow Ended(int index, const Digest& page) {
  const bool failed = index % 10 == 3;
  const std::string model = fmt::format("model{:05}", index),
                    target = index % 2 == 0 ? "x86-64-v3" : "raspberry-pi/5";
  StoredWorkflow stored;
  v1::Workflow& workflow = stored.workflow;
  workflow.set_name(WorkflowName(fmt::format("{:032x}", index)));
  workflow.set_tenant("default");
  workflow.set_title("compile " + model + ".onnx");
  workflow.set_state(failed ? v1::STATE_FAILED : v1::STATE_SUCCEEDED);
  workflow.set_revision(9);
  workflow.add_models(model);
  workflow.add_targets(target);
  (*workflow.mutable_labels())["team"] = index % 3 == 0 ? "vision" : "speech";
  *workflow.mutable_create_time() = TimestampOf(kBegin + index * kSecond);
  *workflow.mutable_start_time() = workflow.create_time();
  *workflow.mutable_end_time() = TimestampOf(kBegin + (index + 20) * kSecond);
  AddStep(workflow, model + "/import", "Import", v1::STATE_SUCCEEDED).set_cache_hit(true);
  v1::Step& analyse = AddStep(workflow, model + "/analyse", "Analyse", v1::STATE_SUCCEEDED);
  v1::StepOutput& output = *analyse.add_outputs();
  output.set_name("page");
  output.set_port(v1::PORT_PAGE);
  *output.mutable_digest() = page;
  v1::Step& compile = AddStep(workflow, fmt::format("{}/plain/{}/compile", model, target),
                              "Compile", workflow.state());
  if (failed) {
    compile.mutable_error()->set_code(3);
    compile.mutable_error()->set_message("node `conv1`: weight has rank 3, Conv takes 4");
    v1::LogLine& line = *compile.add_log();
    *line.mutable_time() = workflow.create_time();
    line.set_attempt(1);
    line.set_text("accepted by codegen-3 <b>");
    *workflow.mutable_error() = compile.error();
  }
  workflow.mutable_counts()->set_succeeded(failed ? 2 : 3);
  workflow.mutable_counts()->set_failed(failed ? 1 : 0);
  workflow.mutable_counts()->set_cache_hits(1);
  return stored;
}

absl::Status Fill(const std::filesystem::path& state, const Digest& page) {
  QUENCH_ASSIGN_OR_RETURN(const auto store, SqliteJobStore::Open(state));
  std::atomic<int> left = kWorkflows;
  std::promise<void> done;
  for (int i = 0; i < kWorkflows; ++i) {
    store->Create(Ended(i, page), [&](const absl::Status& status) {
      QUENCH_CHECK(status.ok());
      if (--left == 0) done.set_value();
    });
  }
  done.get_future().wait();
  return absl::OkStatus();
}

v1::CreateWorkflowRequest Batch(int shard, int shards) {
  v1::CreateWorkflowRequest request;
  v1::WorkflowSpec& spec = *request.mutable_spec();
  spec.set_title(shards == 0 ? "compile live.onnx"
                             : fmt::format("fleet nightly {}/{}", shard + 1, shards));
  if (shards > 0) {
    spec.mutable_fleet()->set_fleet("nightly");
    spec.mutable_fleet()->set_shard(shard);
    spec.mutable_fleet()->set_shards(shards);
  }
  v1::CompileBatch& batch = *spec.mutable_compile();
  for (const std::string name : kModels) {
    v1::BatchModel& model = *batch.add_models();
    model.set_name(fmt::format("{}{}", name, shards == 0 ? "" : fmt::format("-{}", shard)));
    *model.mutable_model()->mutable_file() = DigestOf(name);
  }
  batch.add_choices()->set_name("plain");
  batch.add_targets()->set_name("x86-64-v3");
  batch.add_targets()->set_name("raspberry-pi/5");
  return request;
}

absl::Status Create(rpc::Server& server, const v1::CreateWorkflowRequest& request) {
  const auto channel = rpc::Channel::InProcess(server);
  grpc::ClientContext context;
  google::longrunning::Operation operation;
  return rpc::FromGrpc(
      v1::Workflows::NewStub(channel->grpc())->CreateWorkflow(&context, request, &operation));
}

absl::Status Run() {
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  const std::filesystem::path state = folder.path() / "state";
  QUENCH_ASSIGN_OR_RETURN(auto blobs, LocalBlobStore::Open(state / "store", nullptr));
  const std::string page =
      "<!DOCTYPE html><title>r</title><h1>Report</h1><script>document.title = 'ran'; "
      "try { parent.document.title = 'reached'; } catch (error) {}</script>";
  for (const std::string blob : {kModels[0], kModels[1], kModels[2], page.c_str()})
    QUENCH_RETURN_IF_ERROR(blobs->Put(std::as_bytes(std::span(blob))).status());
  QUENCH_RETURN_IF_ERROR(Fill(state, DigestOf(page)));
  std::atomic<bool> go = false;
  FakeServices services(32);
  services.script = [&go](const std::string& method, const StepContext& step) {
    if (method != "Compile") return absl::OkStatus();
    step.Report({.stage = "pack weights", .detail = "conv1", .done = 3, .total = 8});
    while (!go && step.Check().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return step.Check();
  };
  metrics::Registry registry;
  GatewayHost::Options options;
  options.config.mutable_server()->set_listen("127.0.0.1:0");
  options.config.mutable_console()->set_listen("127.0.0.1:0");
  options.config.mutable_server()->set_audit_file((folder.path() / "audit").string());
  options.config.set_state_dir(state.string());
  options.config.mutable_blob_limits()->set_min_free_bytes(1);
  options.channels = services.Channels();
  options.registry = &registry;
  QUENCH_ASSIGN_OR_RETURN(const auto host, GatewayHost::Start(options));
  for (int shard = 0; shard < 2; ++shard)
    QUENCH_RETURN_IF_ERROR(Create(host->server(), Batch(shard, 2)));
  QUENCH_RETURN_IF_ERROR(Create(host->server(), Batch(0, 0)));
  std::cout << host->console()->url() << std::endl;
  for (std::string line; std::getline(std::cin, line);) go = line == "go";
  go = true;
  host->Drain();
  return absl::OkStatus();
}

}  // namespace
}  // namespace quench::gateway

int main() try {
  spdlog::set_default_logger(spdlog::stderr_color_mt("console_gateway"));
  spdlog::set_level(spdlog::level::warn);
  const absl::Status status = quench::gateway::Run();
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
