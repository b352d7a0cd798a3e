// The gateway over gRPC, with services that do as they are told.
#include "services/gateway/gateway.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "common/base/files.h"
#include "services/gateway/sqlite.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::gateway::gateway_test {
namespace {

using google::longrunning::Operation;
using google::longrunning::Operations;
using quench::testing::HasSubstr;
using quench::testing::WaitFor;
using std::chrono::milliseconds;

// A gateway with its server and a client of it.
class GatewayProcess {
 public:
  GatewayProcess(const std::filesystem::path& state_dir, const ServiceChannels& channels,
                 std::set<std::string> missing = {}, int refused_stores = 0)
      : refused_stores(refused_stores) {
    GatewayOptions options;
    options.state_dir = state_dir;
    options.channels = channels;
    options.blobs.missing = [missing](const std::string&, const std::vector<Digest>& all) {
      std::vector<Digest> absent;
      for (const Digest& digest : all) {
        if (missing.contains(digest.hash())) absent.push_back(digest);
      }
      return absent;
    };
    options.put_blob = [this](const std::string&,
                              const std::string& bytes) -> absl::StatusOr<Digest> {
      if (this->refused_stores > 0 && --this->refused_stores >= 0)
        return absl::ResourceExhaustedError("the disk is full");
      return DigestOf(bytes);
    };
    options.engine.registry = &registry;
    options.engine.backoff = milliseconds(20);
    auto started = Gateway::Start(options);
    QUENCH_CHECK(started.ok());
    gateway = *std::move(started);
    rpc::ServerOptions server_options;
    server_options.registry = &registry;
    server_options.grace = milliseconds(100);
    auto listening = rpc::Server::Start(server_options, gateway->services());
    QUENCH_CHECK(listening.ok());
    server = *std::move(listening);
    rpc::ChannelOptions channel;
    channel.address = server->address();
    stub = v1::Workflows::NewStub((*rpc::Channel::Open(channel))->grpc());
    operations = Operations::NewStub((*rpc::Channel::Open(channel))->grpc());
  }
  ~GatewayProcess() {
    server.reset();
    gateway.reset();
  }

  absl::StatusOr<Operation> Create(const v1::WorkflowSpec& spec,
                                   const std::string& request_id = "") {
    grpc::ClientContext context;
    v1::CreateWorkflowRequest request;
    request.set_request_id(request_id);
    *request.mutable_spec() = spec;
    Operation operation;
    const absl::Status status = rpc::FromGrpc(stub->CreateWorkflow(&context, request, &operation));
    if (!status.ok()) return status;
    return operation;
  }
  absl::StatusOr<v1::Workflow> Get(const std::string& operation) {
    grpc::ClientContext context;
    v1::GetWorkflowRequest request;
    request.set_name(WorkflowName(IdOf(operation)));
    v1::GetWorkflowResponse response;
    const absl::Status status = rpc::FromGrpc(stub->GetWorkflow(&context, request, &response));
    if (!status.ok()) return status;
    return response.workflow();
  }
  v1::State StateOf(const std::string& operation) {
    const auto workflow = Get(operation);
    return workflow.ok() ? workflow->state() : v1::STATE_UNSPECIFIED;
  }
  absl::StatusOr<Operation> Wait(const std::string& operation, int64_t seconds = 30) {
    grpc::ClientContext context;
    google::longrunning::WaitOperationRequest request;
    request.set_name(operation);
    request.mutable_timeout()->set_seconds(seconds);
    Operation response;
    const absl::Status status =
        rpc::FromGrpc(operations->WaitOperation(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  template <typename Request, typename Response, typename Stub>
  absl::Status Call(Stub& of,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const std::string& name) {
    grpc::ClientContext context;
    Request request;
    request.set_name(name);
    Response response;
    return rpc::FromGrpc((of.*method)(&context, request, &response));
  }
  absl::Status Cancel(const std::string& operation) {
    return Call(*stub, &v1::Workflows::Stub::CancelWorkflow, WorkflowName(IdOf(operation)));
  }
  absl::Status Delete(const std::string& operation) {
    return Call(*stub, &v1::Workflows::Stub::DeleteWorkflow, WorkflowName(IdOf(operation)));
  }

  metrics::Registry registry;
  std::atomic<int> refused_stores;  // of results, before they succeed
  std::unique_ptr<Gateway> gateway;
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<v1::Workflows::Stub> stub;
  std::unique_ptr<Operations::Stub> operations;
};

// A watcher's view.
struct Watched {
  std::vector<v1::WatchWorkflowEvent> events;
  absl::Status status;
};

Watched Watch(GatewayProcess& gateway, const std::string& operation, int64_t after = 0,
              size_t most = 1000) {
  grpc::ClientContext context;
  v1::WatchWorkflowRequest request;
  request.set_name(WorkflowName(IdOf(operation)));
  request.set_after_revision(after);
  const auto reader = gateway.stub->WatchWorkflow(&context, request);
  Watched watched;
  for (v1::WatchWorkflowEvent event; watched.events.size() < most && reader->Read(&event);) {
    watched.events.push_back(event);
  }
  if (watched.events.size() == most) context.TryCancel();
  watched.status = rpc::FromGrpc(reader->Finish());
  return watched;
}

class GatewayTest : public ::testing::Test {
 protected:
  // Steps of this method wait until the test lets them go, or their call is cancelled.
  void Block(const std::string& method) {
    services_.script = [this, method](const std::string& asked, const StepContext& step) {
      if (asked != method) return absl::OkStatus();
      ++blocked_;
      EXPECT_TRUE(WaitFor([&] { return released_ || !step.Check().ok(); }));
      --blocked_;
      return step.Check();
    };
  }

  const TempDir folder_ = *TempDir::Create();
  std::atomic<int> blocked_{0};
  std::atomic<bool> released_{false};
  FakeServices services_;
};

TEST_F(GatewayTest, AWorkflowRunsToItsEnd) {
  GatewayProcess gateway(folder_.path(), services_.Channels());
  const auto operation = gateway.Create(ChainSpec());
  ASSERT_TRUE(operation.ok()) << operation.status();
  EXPECT_THAT(operation->name(), HasSubstr("operations/"));
  v1::WorkflowMetadata metadata;
  ASSERT_TRUE(operation->metadata().UnpackTo(&metadata));
  EXPECT_EQ(metadata.workflow(), WorkflowName(IdOf(operation->name())));
  const auto done = gateway.Wait(operation->name());
  ASSERT_TRUE(done.ok()) << done.status();
  ASSERT_TRUE(done->done());
  v1::Workflow workflow;
  ASSERT_TRUE(done->response().UnpackTo(&workflow)) << done->DebugString();
  EXPECT_EQ(workflow.state(), v1::STATE_SUCCEEDED);
  EXPECT_EQ(workflow.tenant(), "default");
  EXPECT_EQ(workflow.counts().cache_hits(), 1);
  const v1::Step& compile = workflow.steps(2);
  ASSERT_EQ(compile.outputs_size(), 2);
  EXPECT_EQ(compile.outputs(0).name(), "library");
  EXPECT_EQ(compile.outputs(1).name(), "result");
  const std::string module =
      DigestOf("transformed" + DigestOf("canonical" + DigestOf("model").hash()).hash()).hash();
  EXPECT_EQ(compile.outputs(0).digest().hash(), DigestOf("library" + module).hash());
  EXPECT_FALSE(gateway.gateway->IsPinned(DigestOf("model").hash()));
  EXPECT_TRUE(gateway.gateway->IsPinned(compile.outputs(0).digest().hash()));
  EXPECT_TRUE(workflow.has_outputs_expire_time());
  ASSERT_EQ(gateway.Delete(done->name()), absl::OkStatus());
  EXPECT_FALSE(gateway.gateway->IsPinned(compile.outputs(0).digest().hash()));
}

TEST_F(GatewayTest, ResultsThatCannotBeStoredAreKept) {
  GatewayProcess gateway(folder_.path(), services_.Channels(), {}, 3);
  const auto operation = gateway.Create(ChainSpec());
  ASSERT_TRUE(operation.ok()) << operation.status();
  const auto done = gateway.Wait(operation->name());
  ASSERT_TRUE(done.ok()) << done.status();
  v1::Workflow workflow;
  ASSERT_TRUE(done->response().UnpackTo(&workflow)) << done->DebugString();
  EXPECT_EQ(workflow.state(), v1::STATE_SUCCEEDED);
  EXPECT_EQ(workflow.steps(0).attempt(), 1);
  // And one that never can be is dropped by cancelling it.
  gateway.refused_stores = 1'000'000;
  const auto second = gateway.Create(ChainSpec("other"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(WaitFor([&] { return gateway.refused_stores < 999'999; }));
  EXPECT_EQ(gateway.Cancel(second->name()), absl::OkStatus());
  EXPECT_TRUE(WaitFor([&] { return gateway.StateOf(second->name()) == v1::STATE_CANCELLED; }));
}

TEST_F(GatewayTest, WhatFailedIsWrittenOutAgainForARetry) {
  std::atomic<bool> broken = true;
  services_.script = [&](const std::string& method, const StepContext&) {
    return broken && method == "Compile" ? absl::InvalidArgumentError("cannot") : absl::OkStatus();
  };
  v1::WorkflowSpec spec;
  v1::CompileBatch& batch = *spec.mutable_compile();
  v1::BatchModel* model = batch.add_models();
  model->set_name("digits");
  *model->mutable_model()->mutable_file() = DigestOf("model");
  batch.add_choices()->set_name("plain");
  batch.add_targets()->set_name("x86-64-v3");
  std::string operation;
  {
    GatewayProcess gateway(folder_.path(), services_.Channels());
    const auto created = gateway.Create(spec);
    ASSERT_TRUE(created.ok()) << created.status();
    operation = created->name();
    ASSERT_TRUE(gateway.Wait(operation).ok());
    EXPECT_EQ(gateway.StateOf(operation), v1::STATE_FAILED);
  }
  broken = false;
  GatewayProcess gateway(folder_.path(), services_.Channels());
  const auto retry = [&] {
    return gateway.Call(*gateway.stub, &v1::Workflows::Stub::RetryWorkflow,
                        WorkflowName(IdOf(operation)));
  };
  EXPECT_EQ(retry(), absl::OkStatus());
  ASSERT_TRUE(gateway.Wait(operation).ok());
  EXPECT_EQ(gateway.StateOf(operation), v1::STATE_SUCCEEDED);
  EXPECT_EQ(retry().code(), absl::StatusCode::kFailedPrecondition);
}

// As a file system does whose fsync takes long, or `sqlite3 .backup`.
TEST_F(GatewayTest, AStoreThatStallsTakesNoOtherCallsWithItAndLeavesNoGhosts) {
  Block("Import");
  GatewayProcess gateway(folder_.path(), services_.Channels());
  const auto first = gateway.Create(ChainSpec());
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(WaitFor(
      [&] { return blocked_ == 1 && gateway.StateOf(first->name()) == v1::STATE_RUNNING; }));
  const auto other = Sqlite::Open(folder_.path() / "workflows.db");
  ASSERT_TRUE(other.ok() && (*other)->Execute("BEGIN IMMEDIATE").ok());
  std::vector<std::future<absl::Status>> calls;
  for (int i = 0; i < 12; ++i) {  // more than there are threads
    calls.push_back(std::async(std::launch::async, [&, i] {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + milliseconds(i < 10 ? 500 : 20'000));
      v1::CreateWorkflowRequest request;
      *request.mutable_spec() = ChainSpec("model" + std::to_string(i));
      Operation operation;
      return rpc::FromGrpc(gateway.stub->CreateWorkflow(&context, request, &operation));
    }));
  }
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(absl::IsDeadlineExceeded(calls[i].get())) << i;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(gateway.StateOf(first->name()), v1::STATE_RUNNING);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1000));
  EXPECT_EQ((*other)->Execute("COMMIT"), absl::OkStatus());
  EXPECT_EQ(calls[10].get(), absl::OkStatus());
  EXPECT_EQ(calls[11].get(), absl::OkStatus());
  // Those whose callers have gone exist all the same, and have what they need.
  ASSERT_TRUE(WaitFor([&] { return blocked_ >= 8; }));
  for (int i = 0; i < 12; ++i)
    EXPECT_TRUE(gateway.gateway->IsPinned(DigestOf("model" + std::to_string(i)).hash())) << i;
  released_ = true;
}

TEST_F(GatewayTest, WrongRequestsAreRefused) {
  GatewayProcess gateway(folder_.path(), services_.Channels(), {DigestOf("gone").hash()});
  EXPECT_EQ(gateway.Create({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rpc::FieldsOf(gateway.Create({}).status()).at(0).field, "spec.work");
  EXPECT_EQ(rpc::FieldsOf(gateway.Create(ChainSpec(), "new\nline").status()).at(0).field,
            "request_id");
  const absl::Status missing = gateway.Create(ChainSpec("gone")).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rpc::PreconditionsOf(missing).at(0).subject, "blobs/" + DigestOf("gone").hash() + "/4");
  EXPECT_FALSE(gateway.gateway->IsPinned(DigestOf("gone").hash()));
  for (const std::string name : {"workflows/x", "x", "", "operations/"}) {
    EXPECT_EQ(gateway.Call(*gateway.stub, &v1::Workflows::Stub::CancelWorkflow, name).code(),
              absl::StatusCode::kNotFound);
    EXPECT_EQ(gateway.Call(*gateway.operations, &Operations::Stub::GetOperation, name).code(),
              absl::StatusCode::kNotFound);
  }
  EXPECT_EQ(Watch(gateway, "operations/x").status.code(), absl::StatusCode::kNotFound);
  v1::WorkflowSpec newer = ChainSpec();
  newer.GetReflection()->MutableUnknownFields(&newer)->AddVarint(4000, 1);
  const absl::Status unknown = gateway.Create(newer).status();
  EXPECT_EQ(rpc::ReasonOf(unknown), "UNKNOWN_FIELD");
  EXPECT_EQ(rpc::FieldsOf(unknown).at(0).field, "spec.4000");
}

TEST_F(GatewayTest, ARequestIdNamesOneWorkflowAlsoAfterARestart) {
  std::string first;
  {
    GatewayProcess gateway(folder_.path(), services_.Channels());
    first = gateway.Create(ChainSpec(), "id")->name();
    EXPECT_EQ(gateway.Create(ChainSpec(), "id")->name(), first);
    const absl::Status other = gateway.Create(ChainSpec("other"), "id").status();
    EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
    std::vector<std::future<std::string>> together;
    for (int i = 0; i < 6; ++i) {
      together.push_back(std::async(std::launch::async, [&] {
        const auto operation = gateway.Create(ChainSpec(), "race");
        return operation.ok() ? operation->name() : operation.status().ToString();
      }));
    }
    const std::string winner = together[0].get();
    for (size_t i = 1; i < together.size(); ++i) EXPECT_EQ(together[i].get(), winner);
  }
  GatewayProcess gateway(folder_.path(), services_.Channels());
  EXPECT_EQ(gateway.Create(ChainSpec(), "id")->name(), first);
  EXPECT_EQ(gateway.Create(ChainSpec("other"), "id").status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(GatewayTest, CancelReachesTheServiceAndEndsTheWorkflow) {
  Block("Transform");
  GatewayProcess gateway(folder_.path(), services_.Channels());
  const std::string name = gateway.Create(ChainSpec())->name();
  ASSERT_TRUE(WaitFor([&] { return blocked_ == 1; }));
  EXPECT_EQ(gateway.Delete(name).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(gateway.gateway->IsPinned(DigestOf("model").hash()));
  EXPECT_EQ(gateway.Cancel(name), absl::OkStatus());
  EXPECT_EQ(gateway.StateOf(name), v1::STATE_CANCELLED);
  EXPECT_TRUE(WaitFor([&] { return blocked_ == 0; }, std::chrono::seconds(10)));
  EXPECT_EQ(gateway.Cancel(name), absl::OkStatus());
  const auto done = gateway.Wait(name);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->error().code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(gateway.Delete(name), absl::OkStatus());
  EXPECT_EQ(gateway.Get(name).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(GatewayTest, WatchersSeeASnapshotThenChangesThenTheEnd) {
  Block("Compile");
  GatewayProcess gateway(folder_.path(), services_.Channels());
  const std::string name = gateway.Create(ChainSpec())->name();
  ASSERT_TRUE(WaitFor([&] { return blocked_ == 1; }));
  auto watching = std::async(std::launch::async, [&] { return Watch(gateway, name); });
  const Watched first = Watch(gateway, name, 0, 1);
  released_ = true;
  const Watched watched = watching.get();
  EXPECT_EQ(watched.status, absl::OkStatus());
  ASSERT_GE(watched.events.size(), 1u);
  EXPECT_EQ(watched.events[0].snapshot().steps_size(), 3);
  const v1::WatchWorkflowEvent& last = watched.events.back();
  EXPECT_EQ(last.has_change() ? last.change().workflow().state() : last.snapshot().state(),
            v1::STATE_SUCCEEDED);
  // Taken up again where the first left off: what happened since, and no more.
  ASSERT_EQ(first.events.size(), 1u);
  const Watched resumed = Watch(gateway, name, last.revision());
  ASSERT_EQ(resumed.events.size(), 1u);
  EXPECT_TRUE(resumed.events[0].has_change());
  EXPECT_EQ(resumed.events[0].change().steps_size(), 0);
}

TEST_F(GatewayTest, WaitReturnsAfterItsTimeout) {
  Block("Import");
  GatewayProcess gateway(folder_.path(), services_.Channels());
  const std::string name = gateway.Create(ChainSpec())->name();
  const auto waited = gateway.Wait(name, 0);
  ASSERT_TRUE(waited.ok()) << waited.status();
  EXPECT_FALSE(waited->done());
  released_ = true;
  EXPECT_TRUE(gateway.Wait(name)->done());
}

TEST_F(GatewayTest, ListsWorkflowsAndOperationsInPages) {
  GatewayProcess gateway(folder_.path(), services_.Channels());
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) {
    names.push_back(gateway.Create(ChainSpec(std::to_string(i)))->name());
    ASSERT_TRUE(gateway.Wait(names.back())->done());
  }
  v1::ListWorkflowsRequest request;
  request.set_page_size(3);
  std::vector<std::string> listed;
  do {
    grpc::ClientContext context;
    v1::ListWorkflowsResponse page;
    ASSERT_TRUE(gateway.stub->ListWorkflows(&context, request, &page).ok());
    for (const auto& workflow : page.workflows()) {
      listed.push_back(OperationName(IdOf(workflow.name())));
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  std::reverse(names.begin(), names.end());
  EXPECT_EQ(listed, names);
  request.set_page_size(5000);  // as many as there may be
  grpc::ClientContext large;
  v1::ListWorkflowsResponse all;
  ASSERT_TRUE(gateway.stub->ListWorkflows(&large, request, &all).ok());
  EXPECT_EQ(all.workflows_size(), 5);
  request.set_page_size(-1);
  request.add_states(v1::STATE_UNSPECIFIED);
  grpc::ClientContext wrong;
  v1::ListWorkflowsResponse none;
  EXPECT_EQ(
      rpc::FieldsOf(rpc::FromGrpc(gateway.stub->ListWorkflows(&wrong, request, &none))).size(), 2u);
  grpc::ClientContext context;
  google::longrunning::ListOperationsRequest operations;
  google::longrunning::ListOperationsResponse found;
  ASSERT_TRUE(gateway.operations->ListOperations(&context, operations, &found).ok());
  EXPECT_EQ(found.operations_size(), 5);
  EXPECT_TRUE(found.operations(0).done());
}

TEST_F(GatewayTest, ListsStepsInPages) {
  GatewayProcess gateway(folder_.path(), services_.Channels());
  const auto operation = gateway.Create(ChainSpec());
  ASSERT_TRUE(operation.ok()) << operation.status();
  ASSERT_TRUE(gateway.Wait(operation->name())->done());
  v1::GetWorkflowRequest get;
  get.set_name(WorkflowName(IdOf(operation->name())));
  get.set_view(v1::WORKFLOW_VIEW_BASIC);
  grpc::ClientContext context;
  v1::GetWorkflowResponse basic;
  ASSERT_TRUE(gateway.stub->GetWorkflow(&context, get, &basic).ok());
  EXPECT_EQ(basic.workflow().steps_size(), 0);
  EXPECT_EQ(basic.workflow().counts().succeeded(), 3);
  v1::ListWorkflowStepsRequest request;
  request.set_name(get.name());
  request.set_page_size(2);
  std::vector<std::string> names;
  do {
    grpc::ClientContext each;
    v1::ListWorkflowStepsResponse page;
    ASSERT_TRUE(gateway.stub->ListWorkflowSteps(&each, request, &page).ok());
    for (const v1::Step& step : page.steps()) names.push_back(step.name());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names, quench::testing::ElementsAre("import", "transform", "compile"));
  request.add_states(v1::STATE_FAILED);
  grpc::ClientContext failed;
  v1::ListWorkflowStepsResponse none;
  ASSERT_TRUE(gateway.stub->ListWorkflowSteps(&failed, request, &none).ok());
  EXPECT_EQ(none.steps_size() + static_cast<int>(none.next_page_token().size()), 0);
  request.set_page_token("x");
  grpc::ClientContext wrong;
  EXPECT_EQ(rpc::FieldsOf(rpc::FromGrpc(gateway.stub->ListWorkflowSteps(&wrong, request, &none)))
                .at(0)
                .field,
            "page_token");
}

TEST_F(GatewayTest, SheddingServicesAreAskedAgain) {
  FakeServices small(1);
  small.script = [](const std::string&, const StepContext&) {
    std::this_thread::sleep_for(milliseconds(5));
    return absl::OkStatus();
  };
  GatewayProcess gateway(folder_.path(), small.Channels());
  v1::WorkflowSpec spec;
  for (int i = 0; i < 20; ++i) AddImport(&spec, std::to_string(i), std::to_string(i));
  const auto done = gateway.Wait(gateway.Create(spec)->name());
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->has_response()) << done->DebugString();
}

TEST_F(GatewayTest, AServiceThatIsNotThereFailsItsSteps) {
  ServiceChannels channels = services_.Channels();
  channels.codegen = nullptr;
  GatewayProcess gateway(folder_.path(), channels);
  const auto done = gateway.Wait(gateway.Create(ChainSpec())->name());
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(done->error().message(), HasSubstr("service `codegen` is not configured"));
}

TEST_F(GatewayTest, AServerThatGoesDownIsReplacedAndItsStepDoneAgain) {
  const std::string listen = "unix:" + (folder_.path() / "s").string();
  auto doomed = std::make_unique<FakeServices>(4, listen);
  std::atomic<int> started{0};
  doomed->script = [&](const std::string&, const StepContext& step) {
    ++started;
    EXPECT_TRUE(WaitFor([&] { return !step.Check().ok(); }));
    return step.Check();
  };
  GatewayProcess gateway(folder_.path() / "state", doomed->Channels());
  const std::string name = gateway.Create(ChainSpec())->name();
  ASSERT_TRUE(WaitFor([&] { return started == 1; }));
  doomed.reset();
  FakeServices heir(4, listen);
  const auto done = gateway.Wait(name, 60);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->has_response()) << done->DebugString();
  EXPECT_EQ(gateway.Get(name)->steps(0).attempt(), 2);
}

TEST_F(GatewayTest, ADrainEndsWatchesAndLeavesStepsToTheNextGateway) {
  Block("Transform");
  std::string name;
  {
    GatewayProcess gateway(folder_.path(), services_.Channels());
    name = gateway.Create(ChainSpec())->name();
    ASSERT_TRUE(WaitFor([&] { return blocked_ == 1; }));
    auto watching = std::async(std::launch::async, [&] { return Watch(gateway, name); });
    auto waiting = std::async(std::launch::async, [&] { return gateway.Wait(name).status(); });
    gateway.gateway->BeginDrain();
    const absl::Status waited = waiting.get();
    EXPECT_EQ(waited.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(rpc::RetryAfterOf(waited), std::nullopt);
    const Watched watched = watching.get();
    EXPECT_EQ(watched.status.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(rpc::RetryAfterOf(watched.status), std::nullopt);
    EXPECT_EQ(gateway.Create(ChainSpec("x")).status().code(), absl::StatusCode::kUnavailable);
    gateway.gateway->AwaitSteps(std::chrono::system_clock::now() + milliseconds(50));
    gateway.server->Drain();
    gateway.gateway->Stop();
    EXPECT_TRUE(WaitFor([&] { return blocked_ == 0; }));
  }
  released_ = true;
  GatewayProcess gateway(folder_.path(), services_.Channels());
  const auto done = gateway.Wait(name);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->has_response()) << done->DebugString();
  EXPECT_EQ(gateway.Get(name)->steps(1).attempt(), 2);
}

// The helper below: a gateway of its own process, killed from here.
TEST(GatewayHelper, DISABLED_RunsUntilKilled) {
  rpc::ChannelOptions options;
  options.address = std::getenv("QUENCH_SERVICES");
  ServiceChannels channels;
  channels.importer = *rpc::Channel::Open(options);
  channels.codegen = *rpc::Channel::Open(options);
  GatewayProcess gateway(std::getenv("QUENCH_STATE"), channels);
  const auto operation = gateway.Create(ChainSpec(), "mine");
  ASSERT_TRUE(operation.ok()) << operation.status();
  ASSERT_TRUE(WriteFileAtomically(std::getenv("QUENCH_NAME"), operation->name()).ok());
  pause();
}

TEST_F(GatewayTest, AKilledGatewayIsTakenUpWhereItWas) {
  const std::string listen = "unix:" + (folder_.path() / "s").string();
  FakeServices services(4, listen);
  std::atomic<int> started{0};
  services.script = [&](const std::string& method, const StepContext& step) {
    if (method != "Transform" || released_) return absl::OkStatus();
    ++started;
    EXPECT_TRUE(WaitFor([&] { return !step.Check().ok(); }));
    return step.Check();
  };
  const std::filesystem::path state = folder_.path() / "state", name_file = folder_.path() / "name";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "GTEST_OUTPUT= QUENCH_SERVICES=" + listen +
                              " QUENCH_STATE=" + state.string() +
                              " QUENCH_NAME=" + name_file.string() + " exec " + self +
                              " --gtest_also_run_disabled_tests --gtest_brief=1"
                              " --gtest_filter=GatewayHelper.DISABLED_RunsUntilKilled";
  const char* const argv[] = {"sh", "-c", command.c_str(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, "/bin/sh", nullptr, nullptr, const_cast<char**>(argv), environ), 0);
  EXPECT_TRUE(WaitFor([&] { return started == 1 && std::filesystem::exists(name_file); },
                      std::chrono::seconds(60)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  released_ = true;
  const std::string name = *ReadFile(name_file);
  GatewayProcess gateway(state, services.Channels());
  const auto done = gateway.Wait(name);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->has_response()) << done->DebugString();
  const v1::Workflow workflow = *gateway.Get(name);
  EXPECT_EQ(workflow.request_id(), "mine");
  EXPECT_EQ(workflow.steps(1).state(), v1::STATE_SUCCEEDED);
  EXPECT_LE(workflow.steps(1).attempt(), workflow.steps(1).max_attempts());
}

}  // namespace
}  // namespace quench::gateway::gateway_test
