#include "common/rpc/on_pool.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <thread>

#include "common/base/files.h"
#include "common/blobs/digest.h"
#include "common/rpc/audit.h"
#include "common/rpc/callers.h"
#include "common/rpc/errors.h"
#include "tests/support/captured_log.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/common/rpc/fake_codegen.h"

namespace quench::rpc::on_pool_test {
namespace {

using metrics::EventFate;
using metrics::GrpcCode;
using metrics::GrpcType;
using quench::testing::CapturedLog;
using quench::testing::HasSubstr;
using quench::testing::WaitFor;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class OnPoolTest : public ::testing::Test, protected CodegenFixture {
 protected:
  // Until the handler is released, or its call cancelled.
  void Block(const StepContext& step) {
    ++running_;
    EXPECT_TRUE(WaitFor([&] { return released_ || !step.Check().ok(); }));
    --running_;
  }
  double CompileHandled(GrpcCode code) { return Handled("Compile", GrpcType::kServerStream, code); }
  double Events(EventFate fate) { return registry.Get(metrics::kStreamEvents, fate).Value(); }

  std::atomic<int> running_{0};
  std::atomic<bool> released_{false};
};

TEST_F(OnPoolTest, AStepIsAcceptedReportsAndGivesItsResult) {
  ASSERT_EQ(Start(), absl::OkStatus());
  service->compile = [](const v1::CompileRequest& request, const StepContext& step) {
    step.Report({"pack weights", "conv1", 3, 4});
    v1::CompileResult result;
    result.mutable_library()->set_hash(request.module().digest().hash());
    return result;
  };
  v1::CompileRequest request;
  request.mutable_step()->set_request_id("mine");
  request.mutable_module()->mutable_digest()->set_hash("abc");
  const Compiled compiled = Compile({}, request);
  ASSERT_EQ(compiled.status, absl::OkStatus());
  ASSERT_EQ(compiled.events.size(), 3u);
  EXPECT_EQ(compiled.events[0].accepted().request_id(), "mine");
  const auto& progress = compiled.events[1].progress();
  EXPECT_EQ(progress.stage(), "pack weights");
  EXPECT_EQ(progress.detail(), "conv1");
  EXPECT_EQ(progress.done(), 3);
  EXPECT_EQ(progress.total(), 4);
  EXPECT_EQ(compiled.events[2].result().library().hash(), "abc");
  EXPECT_EQ(CompileHandled(GrpcCode::kOk), 1);
}

TEST_F(OnPoolTest, MethodsAreCountedFromTheirFirstCall) {
  ASSERT_EQ(Start(), absl::OkStatus());
  EXPECT_EQ(registry.Text().find("grpc_method="), std::string::npos);
  EXPECT_TRUE(ListTargets().ok());
  service->list_targets = [](const auto&, const auto&) { return absl::NotFoundError("x"); };
  EXPECT_FALSE(ListTargets().ok());
  EXPECT_EQ(Handled("ListTargets", GrpcType::kUnary, GrpcCode::kOk), 1);
  EXPECT_EQ(Handled("ListTargets", GrpcType::kUnary, GrpcCode::kNotFound), 1);
  EXPECT_THAT(registry.Text(),
              HasSubstr("grpc_server_handling_seconds_count{grpc_method=\"ListTargets\",grpc_"
                        "service=\"quench.codegen.v1.Codegen\",grpc_type=\"unary\"} 2\n"));
}

TEST_F(OnPoolTest, FullSlotsShedAtOnceAndOtherCallsAreAnswered) {
  steps_options.threads = 1;
  steps_options.retry_after = milliseconds(1500);
  ASSERT_EQ(Start(), absl::OkStatus());
  service->compile = [this](const auto&, const StepContext& step) {
    Block(step);
    return v1::CompileResult();
  };
  auto first = std::async(std::launch::async, [this] { return Compile(); });
  ASSERT_TRUE(WaitFor([&] { return running_ == 1; }));
  Compiled second;
  {
    CapturedLog log;
    second = Compile();
    EXPECT_THAT(log.Take(), HasSubstr("debug call="));
  }
  EXPECT_EQ(second.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(second.status), "SLOTS_FULL");
  EXPECT_EQ(RetryAfterOf(second.status), milliseconds(1500));
  EXPECT_TRUE(second.events.empty());
  EXPECT_TRUE(ListTargets().ok());
  released_ = true;
  EXPECT_TRUE(first.get().has_result());
  // The slot is free when the caller knows the outcome.
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(Compile().has_result());
  EXPECT_EQ(CompileHandled(GrpcCode::kResourceExhausted), 1);
}

// The table of docs/operating.md.
TEST_F(OnPoolTest, EveryOutcomeIsLoggedAtItsLevel) {
  channel_options.attempts = 1;
  ASSERT_EQ(Start(), absl::OkStatus());
  absl::Status outcome;
  service->list_targets = [&](const auto&, const auto&) -> absl::StatusOr<v1::ListTargetsResponse> {
    if (!outcome.ok()) return outcome;
    return v1::ListTargetsResponse();
  };
  service->compile = [&](const auto&, const auto&) -> absl::StatusOr<v1::CompileResult> {
    return outcome;
  };
  CapturedLog log;
  const auto level_of = [&](const absl::Status& status, GrpcType type) {
    outcome = status;
    if (type == GrpcType::kUnary) {
      EXPECT_EQ(ListTargets().status().code(), status.code());
    } else {
      EXPECT_EQ(Compile().status.code(), status.code());
    }
    const std::string line = log.Take();
    EXPECT_THAT(line, HasSubstr(" call=quench.codegen.v1.Codegen/"));
    EXPECT_THAT(line, HasSubstr(" code=" + absl::StatusCodeToString(status.code()) + " "));
    return line.substr(0, line.find(' '));
  };
  const std::map<std::string, std::set<absl::StatusCode>> levels = {
      {"debug",
       {absl::StatusCode::kOk, absl::StatusCode::kCancelled, absl::StatusCode::kNotFound,
        absl::StatusCode::kAlreadyExists, absl::StatusCode::kAborted,
        absl::StatusCode::kOutOfRange}},
      {"info",
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kFailedPrecondition,
        absl::StatusCode::kUnimplemented, absl::StatusCode::kPermissionDenied,
        absl::StatusCode::kUnauthenticated, absl::StatusCode::kResourceExhausted}},
      {"warning", {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded}},
      {"error",
       {absl::StatusCode::kUnknown, absl::StatusCode::kInternal, absl::StatusCode::kDataLoss}}};
  size_t codes = 0;
  for (const auto& [level, those] : levels) {
    for (const absl::StatusCode code : those) {
      EXPECT_EQ(level_of(absl::Status(code, "x"), GrpcType::kUnary), level) << code;
      ++codes;
    }
  }
  EXPECT_EQ(codes, 17u) << "all that gRPC has";
  // The deadline of a step is the caller's choice.
  EXPECT_EQ(level_of(absl::DeadlineExceededError("x"), GrpcType::kServerStream), "info");
  EXPECT_EQ(level_of(absl::UnavailableError("x"), GrpcType::kServerStream), "warning");
  // Callers who are told when to ask again are not in trouble; a defect stays one.
  for (const auto& [reason, level] :
       {std::pair(Reason::kSlotsFull, "debug"), std::pair(Reason::kNodeFault, "debug"),
        std::pair(Reason::kInternal, "error")}) {
    EXPECT_EQ(level_of(WithRetryAfter(Error(reason, "x"), milliseconds(5)), GrpcType::kUnary),
              level);
  }
}

TEST_F(OnPoolTest, CancellingTheCallReachesTheHandler) {
  ASSERT_EQ(Start(), absl::OkStatus());
  service->compile = [this](const auto&,
                            const StepContext& step) -> absl::StatusOr<v1::CompileResult> {
    Block(step);
    return step.Check();
  };
  const StepContext step;
  auto compiled = std::async(std::launch::async, [&] { return Compile(step); });
  ASSERT_TRUE(WaitFor([&] { return running_ == 1; }));
  const auto start = steady_clock::now();
  step.cancel_token()->Cancel();
  EXPECT_EQ(compiled.get().status.code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(WaitFor([&] { return CompileHandled(GrpcCode::kCanceled) == 1; }));
  EXPECT_EQ(running_, 0);
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(OnPoolTest, ACallOfACancelledStepIsNotMade) {
  ASSERT_EQ(Start(), absl::OkStatus());
  const StepContext step;
  step.cancel_token()->Cancel();
  EXPECT_EQ(ListTargets(step).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(OnPoolTest, TheDeadlineReachesTheHandler) {
  ASSERT_EQ(Start(), absl::OkStatus());
  std::atomic<bool> had_deadline{false};
  service->compile = [&](const auto&,
                         const StepContext& step) -> absl::StatusOr<v1::CompileResult> {
    had_deadline =
        step.deadline() && *step.deadline() < steady_clock::now() + std::chrono::hours(1);
    // Both: the client's time runs out before ours, or after, and then it cancels.
    EXPECT_TRUE(WaitFor([&] {
      return step.cancel_token()->cancelled() && steady_clock::now() >= *step.deadline();
    }));
    return step.Check();
  };
  StepContext step;
  step.set_deadline(steady_clock::now() + milliseconds(300));
  EXPECT_EQ(Compile(step).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(WaitFor([&] { return CompileHandled(GrpcCode::kDeadlineExceeded) == 1; }));
  EXPECT_TRUE(had_deadline);
}

TEST_F(OnPoolTest, WithoutADeadlineThereIsNone) {
  ASSERT_EQ(Start(), absl::OkStatus());
  std::atomic<bool> had_deadline{true};
  service->list_targets = [&](const auto&, const StepContext& step) {
    had_deadline = step.deadline().has_value();
    return v1::ListTargetsResponse();
  };
  EXPECT_TRUE(ListTargets().ok());
  EXPECT_FALSE(had_deadline);
}

// Far more than the transport takes while nobody reads: the handler is not held up, and what waits
// is one event.
TEST_F(OnPoolTest, ASlowReaderCostsNoMemory) {
  constexpr int kReports = 20'000;
  ASSERT_EQ(Start(), absl::OkStatus());
  std::atomic<bool> reported{false};
  service->compile = [&](const auto&, const StepContext& step) {
    for (int i = 1; i <= kReports; ++i) step.Report({"work", std::string(4096, 'x'), i, kReports});
    reported = true;
    return v1::CompileResult();
  };
  ClientCall call(*channel, StepContext());
  const auto reader = stub->Compile(call.context(), v1::CompileRequest());
  ASSERT_TRUE(WaitFor([&] { return reported.load(); }));
  EXPECT_GE(Events(EventFate::kConflated), kReports * 0.9);
  int64_t last = 0;
  int events = 0;
  bool result = false;
  for (v1::CompileEvent event; reader->Read(&event); ++events) {
    if (event.has_progress()) {
      EXPECT_GT(event.progress().done(), last);
      last = event.progress().done();
    }
    result = event.has_result();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(result);
  EXPECT_EQ(last, kReports);
  EXPECT_EQ(events, kReports - Events(EventFate::kConflated) + 2);
  EXPECT_EQ(events, Events(EventFate::kSent));
}

TEST_F(OnPoolTest, ASilentHandlerStillSendsEvents) {
  steps_options.heartbeat = milliseconds(20);
  ASSERT_EQ(Start(), absl::OkStatus());
  service->compile = [this](const auto&, const StepContext& step) {
    step.Report({"work", "", 1, 2});
    Block(step);
    return v1::CompileResult();
  };
  ClientCall call(*channel, StepContext());
  const auto reader = stub->Compile(call.context(), v1::CompileRequest());
  v1::CompileEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.has_accepted());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_EQ(event.progress().done(), 1);
  }
  released_ = true;
  while (reader->Read(&event)) {
  }
  EXPECT_TRUE(event.has_result());
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_GE(Events(EventFate::kHeartbeat), 3);
}

TEST_F(OnPoolTest, HandlersRunOnThreadsOfThePool) {
  ASSERT_EQ(Start(), absl::OkStatus());
  std::mutex mutex;
  std::set<std::thread::id> threads;
  service->list_targets = [&](const auto&, const auto&) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    return v1::ListTargetsResponse();
  };
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(ListTargets().ok());
  EXPECT_LE(threads.size(), 2u);
}

TEST_F(OnPoolTest, RichErrorsArriveWhole) {
  ASSERT_EQ(Start(), absl::OkStatus());
  absl::Status error =
      WithField(Error(Reason::kInvalidRequest, "``node `größe` ``: weight has rank 3"),
                {"module.digest", "is not a digest"});
  error = WithPrecondition(WithRetryAfter(error, milliseconds(10)), {"MISSING", "blobs/a/1", ""});
  service->compile = [&](const auto&, const auto&) { return error; };
  service->list_targets = [&](const auto&, const auto&) { return error; };
  EXPECT_EQ(Compile().status, error);
  EXPECT_EQ(ListTargets().status(), error);
}

TEST_F(OnPoolTest, LongErrorsArrive) {
  ASSERT_EQ(Start(), absl::OkStatus());
  absl::Status error = absl::FailedPreconditionError(std::string(50'000, '\n'));
  for (int i = 0; i < 300; ++i) {
    error = WithPrecondition(error, {"MISSING", std::string(90, 'a'), "upload it"});
  }
  service->list_targets = [&](const auto&, const auto&) { return error; };
  const absl::Status status = ListTargets().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_GE(PreconditionsOf(status).size(), 10u);
}

TEST_F(OnPoolTest, ExceptionsBecomeInternal) {
  ASSERT_EQ(Start(), absl::OkStatus());
  service->compile = [](const auto&, const auto&) -> absl::StatusOr<v1::CompileResult> {
    throw std::runtime_error("from a library");
  };
  const absl::Status status = Compile().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(status), "INTERNAL");
  service->compile = [](const auto&, const auto&) { return v1::CompileResult(); };
  EXPECT_TRUE(Compile().has_result()) << "the slot is free again";
}

TEST_F(OnPoolTest, RequestIdAndTracePassOn) {
  ASSERT_EQ(Start(), absl::OkStatus());
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  std::string id, seen;
  service->list_targets = [&](const auto&, const StepContext& step) {
    id = step.request_id();
    seen = step.traceparent();
    return v1::ListTargetsResponse();
  };
  StepContext step;
  step.set_request_id("the-id");
  step.set_traceparent(trace);
  EXPECT_TRUE(ListTargets(step).ok());
  EXPECT_EQ(id, "the-id");
  EXPECT_EQ(seen, trace);
  step.set_request_id("no id\x01");
  for (const std::string bad :
       {"00-4bf9", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", ""}) {
    StepContext other;
    other.set_traceparent(bad);
    EXPECT_TRUE(ListTargets(other).ok());
    EXPECT_EQ(seen, "") << bad;
    EXPECT_EQ(id.size(), 32u) << "one is made";
  }
}

TEST_F(OnPoolTest, CallersNeedTheirToken) {
  const auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  const auto list = folder->path() / "tokens", mine = folder->path() / "mine";
  ASSERT_TRUE(WriteFileAtomically(list, "alice " + Sha256Hex("secret") + "\n").ok());
  ASSERT_TRUE(WriteFileAtomically(mine, "wrong").ok());
  const auto callers = Callers::Open({list, {}, false});
  ASSERT_TRUE(callers.ok()) << callers.status();
  steps_options.callers = control_options.callers = callers->get();
  ASSERT_EQ(Start(), absl::OkStatus());
  std::string tenant;
  service->list_targets = [&](const auto&, const StepContext& step) {
    tenant = step.tenant();
    return v1::ListTargetsResponse();
  };
  EXPECT_EQ(ReasonOf(ListTargets().status()), "TOKEN_MISSING");
  EXPECT_EQ(ReasonOf(Compile().status), "TOKEN_MISSING");
  channel_options.token_file = mine;
  channel = *Channel::Open(channel_options);
  stub = v1::Codegen::NewStub(channel->grpc());
  EXPECT_EQ(ListTargets().status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(ReasonOf(Compile().status), "TOKEN_INVALID");
  ASSERT_TRUE(WriteFileAtomically(mine, "secret\n").ok());
  EXPECT_TRUE(ListTargets().ok());
  EXPECT_EQ(tenant, "alice");
  EXPECT_TRUE(Compile().has_result());
  ASSERT_TRUE(WriteFileAtomically(list, "bob " + Sha256Hex("secret") + "\n").ok());
  EXPECT_TRUE(ListTargets().ok());
  EXPECT_EQ(tenant, "bob");
}

TEST_F(OnPoolTest, ViewersReadOnly) {
  const auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  const auto list = folder->path() / "tokens", mine = folder->path() / "mine";
  const std::string line = "alice " + Sha256Hex("secret");
  ASSERT_TRUE(WriteFileAtomically(list, line + " role=viewer\n").ok());
  ASSERT_TRUE(WriteFileAtomically(mine, "secret").ok());
  const auto callers = *Callers::Open({list, {}, false});
  const auto audit = *AuditLog::Open(folder->path() / "audit");
  steps_options.callers = control_options.callers = callers.get();
  steps_options.audit = audit.get();
  channel_options.token_file = mine;
  ASSERT_EQ(Start(), absl::OkStatus());
  CallerRole role{};
  service->list_targets = [&](const auto&, const StepContext& step) {
    role = step.role();
    return v1::ListTargetsResponse();
  };
  EXPECT_TRUE(ListTargets().ok());
  EXPECT_EQ(role, CallerRole::kViewer);
  for (int i = 0; i < 5; ++i) {  // takes no place of the pool
    const absl::Status refused = Compile().status;
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(ReasonOf(refused), "PERMISSION_DENIED");
    EXPECT_EQ(MessageOf(refused),
              "the caller is a `viewer` of tenant `alice`, which may only read: "
              "quench.codegen.v1.Codegen/Compile needs a `user` or an `operator`");
  }
  std::ifstream in(folder->path() / "audit");
  std::string written;
  std::getline(in, written);
  EXPECT_EQ(nlohmann::json::parse(written)["role"], "viewer");
  service->compile = [&](const auto&, const StepContext& step) {
    role = step.role();
    return v1::CompileResult();
  };
  for (const auto& [word, expected] :
       {std::pair("", CallerRole::kUser), std::pair(" role=operator", CallerRole::kOperator)}) {
    ASSERT_TRUE(WriteFileAtomically(list, line + word).ok());
    EXPECT_TRUE(Compile().has_result()) << word;
    EXPECT_EQ(role, expected);
  }
}

TEST_F(OnPoolTest, WhatChangesSomethingIsWrittenDown) {
  const auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  const auto list = folder->path() / "tokens", mine = folder->path() / "mine";
  ASSERT_TRUE(WriteFileAtomically(list, "gateway " + Sha256Hex("secret") + "\n").ok());
  ASSERT_TRUE(WriteFileAtomically(mine, "secret").ok());
  const auto callers = *Callers::Open({list, {}, false});
  const auto file = folder->path() / "audit";
  const auto audit = *AuditLog::Open(file);
  steps_options.callers = control_options.callers = callers.get();
  steps_options.audit = control_options.audit = audit.get();
  channel_options.token_file = mine;
  ASSERT_EQ(Start(), absl::OkStatus());
  const auto lines = [&] {
    std::vector<nlohmann::json> read;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) read.push_back(nlohmann::json::parse(line));
    return read;
  };
  EXPECT_TRUE(ListTargets().ok());  // changes nothing
  v1::CompileRequest request;
  request.mutable_step()->set_request_id("mine");
  request.mutable_step()->set_tenant("team");
  EXPECT_TRUE(Compile({}, request).has_result());
  ASSERT_EQ(lines().size(), 1u);
  const nlohmann::json line = lines()[0];
  EXPECT_EQ(line["call"], "quench.codegen.v1.Codegen/Compile");
  EXPECT_EQ(line["caller"], "gateway");
  EXPECT_EQ(line["role"], "user");
  EXPECT_EQ(line["tenant"], "team");
  EXPECT_EQ(line["resource"], "steps/");  // this service gives no key
  EXPECT_EQ(line["request"], "mine");
  EXPECT_EQ(line["code"], "OK");
  EXPECT_FALSE(line.contains("reason"));
  EXPECT_THAT(line["time"].get<std::string>(), HasSubstr("Z"));
  struct stat status{};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(internal::OneName("operations/1"), "workflows/1") << "one thing has one name";
  EXPECT_EQ(internal::OneName("workflows/operations/"), "workflows/operations/");
  // Refused calls are logged, too, and into a new file if the old one was moved away.
  std::filesystem::rename(file, folder->path() / "audit.1");
  ASSERT_TRUE(WriteFileAtomically(mine, "wrong").ok());
  EXPECT_FALSE(Compile({}, request).status.ok());
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_EQ(lines()[0]["code"], "UNAUTHENTICATED");
  EXPECT_EQ(lines()[0]["reason"], "TOKEN_INVALID");
  EXPECT_FALSE(lines()[0].contains("caller"));
}

TEST_F(OnPoolTest, OversizedMessagesAreRefused) {
  server_options.max_message_bytes = channel_options.max_message_bytes = 1 << 20;
  ASSERT_EQ(Start(), absl::OkStatus());
  service->list_targets = [](const auto&, const auto&) {
    v1::ListTargetsResponse response;
    response.add_targets()->set_description(std::string(2 << 20, 'x'));
    return response;
  };
  EXPECT_EQ(ListTargets().status().code(), absl::StatusCode::kResourceExhausted);
  v1::CompileRequest large;
  large.mutable_target()->set_name(std::string(2 << 20, 'x'));
  EXPECT_EQ(Compile({}, large).status.code(), absl::StatusCode::kResourceExhausted);
  // A client without a limit of its own learns it from the server.
  grpc::ChannelArguments arguments;
  stub = v1::Codegen::NewStub(
      grpc::CreateCustomChannel(server->address(), grpc::InsecureChannelCredentials(), arguments));
  EXPECT_EQ(Compile({}, large).status.code(), absl::StatusCode::kResourceExhausted);
  large.mutable_target()->set_name("small");
  EXPECT_TRUE(Compile({}, large).has_result());
}

TEST_F(OnPoolTest, UnavailableIsTriedAgain) {
  ASSERT_EQ(Start(), absl::OkStatus());
  std::atomic<int> calls{0};
  service->list_targets = [&](const auto&, const auto&) -> absl::StatusOr<v1::ListTargetsResponse> {
    if (++calls < 3) return absl::UnavailableError("not yet");
    return v1::ListTargetsResponse();
  };
  EXPECT_TRUE(ListTargets().ok());
  EXPECT_EQ(calls, 3);
  channel_options.attempts = 1;
  channel = *Channel::Open(channel_options);
  stub = v1::Codegen::NewStub(channel->grpc());
  calls = 0;
  EXPECT_EQ(ListTargets().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, 1);
}

TEST_F(OnPoolTest, DrainFinishesWhatRunsAndRefusesWhatIsNew) {
  server_options.grace = std::chrono::seconds(60);
  channel_options.attempts = 1;
  ASSERT_EQ(Start(), absl::OkStatus());
  service->compile = [this](const auto&, const StepContext& step) {
    Block(step);
    return v1::CompileResult();
  };
  auto running = std::async(std::launch::async, [this] { return Compile(); });
  ASSERT_TRUE(WaitFor([&] { return running_ == 1; }));
  std::thread drain([&] { server->Drain(); });
  EXPECT_TRUE(
      WaitFor([&] { return ListTargets().status().code() == absl::StatusCode::kUnavailable; }));
  EXPECT_EQ(running_, 1);
  released_ = true;
  const Compiled compiled = running.get();
  EXPECT_EQ(compiled.status, absl::OkStatus());
  EXPECT_TRUE(compiled.has_result());
  drain.join();
}

TEST_F(OnPoolTest, DrainCancelsWhatOutlastsItsGrace) {
  server_options.grace = milliseconds(50);
  channel_options.attempts = 1;
  ASSERT_EQ(Start(), absl::OkStatus());
  service->compile = [this](const auto&,
                            const StepContext& step) -> absl::StatusOr<v1::CompileResult> {
    Block(step);
    return step.Check();
  };
  auto running = std::async(std::launch::async, [this] { return Compile(); });
  ASSERT_TRUE(WaitFor([&] { return running_ == 1; }));
  server->Drain();
  EXPECT_FALSE(running.get().status.ok());
  EXPECT_EQ(CompileHandled(GrpcCode::kCanceled), 1);
}

// ServerCall aborts the process if a call ends twice; each that started must end.
TEST_F(OnPoolTest, CallsEndOnceUnderRacingCancels) {
  ASSERT_EQ(Start(), absl::OkStatus());
  constexpr int kCalls = 300;
  service->compile = [](const auto&, const StepContext& step) -> absl::StatusOr<v1::CompileResult> {
    for (int i = 0; i < 20; ++i) {
      step.Report({"work", "", i, 20});
      if (const absl::Status status = step.Check(); !status.ok()) return status;
      std::this_thread::yield();
    }
    return v1::CompileResult();
  };
  int finished = 0;
  for (int i = 0; i < kCalls; ++i) {
    const StepContext step;
    std::thread cancel([&, i] {
      for (int spin = 0; spin < i; ++spin) std::this_thread::yield();
      step.cancel_token()->Cancel();
    });
    if (i % 3 == 2) {
      finished += ListTargets(step).ok();
    } else {
      finished += Compile(step).has_result();
    }
    cancel.join();
  }
  double started = 0, handled = 0;
  EXPECT_TRUE(WaitFor([&] {
    started = handled = 0;
    for (const auto& [method, type] : {std::pair("Compile", GrpcType::kServerStream),
                                       std::pair("ListTargets", GrpcType::kUnary)}) {
      started +=
          registry
              .Get(metrics::kRpcStarted, type, metrics::GrpcService("quench.codegen.v1.Codegen"),
                   metrics::GrpcMethod(method))
              .Value();
      for (int code = 0; code <= 16; ++code) {
        handled += Handled(method, type, static_cast<GrpcCode>(code));
      }
    }
    return started == handled;
  })) << started
      << " started, " << handled << " handled";
  EXPECT_LE(finished, kCalls);
  EXPECT_EQ(CompileHandled(GrpcCode::kInternal), 0);
  // All slots are free again.
  for (int i = 0; i < steps->options().threads; ++i) EXPECT_TRUE(steps->Admit("other").ok());
  for (int i = 0; i < steps->options().threads; ++i) steps->Release("other");
}

TEST_F(OnPoolTest, WorksOverAUnixSocketAndInProcess) {
  const auto folder = TempDir::Create("/tmp");
  ASSERT_TRUE(folder.ok());
  for (const std::string& listen : {"unix:" + (folder->path() / "s").string(), std::string()}) {
    CodegenFixture other;
    other.server_options.listen = listen;
    ASSERT_EQ(other.Start(), absl::OkStatus()) << listen;
    EXPECT_EQ(other.server->port(), 0);
    EXPECT_TRUE(other.Compile().has_result()) << listen;
    EXPECT_TRUE(other.ListTargets().ok()) << listen;
  }
}

}  // namespace
}  // namespace quench::rpc::on_pool_test
