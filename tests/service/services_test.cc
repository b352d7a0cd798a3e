// The four services behind their gRPC contracts: what they give is what one process gives.
#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>

#include "common/base/files.h"
#include "common/blobs/digest.h"
#include "common/rpc/channel.h"
#include "common/rpc/errors.h"
#include "common/steps/host.h"
#include "common/steps/modules.h"
#include "common/steps/storage.h"
#include "quench/analyser/v1/analyser.grpc.pb.h"
#include "quench/codegen/v1/codegen.grpc.pb.h"
#include "quench/importer/v1/importer.grpc.pb.h"
#include "quench/quantizer/v1/quantizer.grpc.pb.h"
#include "services/analyser/service.h"
#include "services/codegen/codegen.h"
#include "services/codegen/service.h"
#include "services/importer/service.h"
#include "services/quantizer/service.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"

namespace quench::services_test {
namespace {

using testing::HasSubstr;

const std::string kDigits = std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits.onnx";

template <typename Result>
struct Seen {
  absl::Status status;
  bool accepted = false;
  std::vector<std::string> stages;
  Result result;
};

class Services : public ::testing::TestWithParam<bool> {
 protected:
  Services() {
    config_.mutable_folder()->append((folder_.path() / "store").string());
    storage_ = *steps::OpenStorage(config_, true);
    importer_ = Start(importer::ImporterDefinition());
    analyser_ = Start(analyser::AnalyserDefinition());
    codegen_ = Start(codegen::CodegenDefinition());
    quantizer_ = Start(quantizer::QuantizerDefinition());
  }

  std::unique_ptr<steps::ServiceHost> Start(const steps::ServiceDefinition& definition) {
    steps::ServiceHost::Options options;
    options.config.server.set_listen("127.0.0.1:0");
    *options.config.blobs.mutable_folder() = config_.folder();
    options.config.steps.set_slots(2);
    if (GetParam()) options.config.steps.set_isolation(config::v1::ISOLATION_NONE);
    options.config.steps.set_scratch_dir(scratch_.string());
    options.config.steps.set_memory_bytes(memory_bytes_);
    options.config.server.mutable_grace()->set_seconds(grace_.count());
    options.probe_period = probe_period_;
    options.program = std::string(QUENCH_BINARIES) + "/quench-" + definition.name;
    options.registry = &registry_;
    auto host = steps::ServiceHost::Start(definition, std::move(options));
    EXPECT_TRUE(host.ok()) << host.status();
    return *std::move(host);
  }

  // A step through a channel of its own, as any client calls it.
  template <typename Stub, typename Event, typename Request, typename Method>
  auto Call(steps::ServiceHost& host, Method method, const Request& request,
            const StepContext& step = {}) {
    rpc::ChannelOptions options;
    options.address = host.server().address();
    const auto channel = *rpc::Channel::Open(options);
    Stub stub(channel->grpc());
    rpc::ClientCall call(*channel, step);
    const std::unique_ptr<grpc::ClientReader<Event>> reader =
        (stub.*method)(call.context(), request);
    Seen<std::remove_cvref_t<decltype(Event().result())>> seen;
    for (Event event; reader->Read(&event);) {
      if (event.has_accepted()) seen.accepted = true;
      if (event.has_progress()) seen.stages.push_back(event.progress().stage());
      if (event.has_result()) seen.result = event.result();
    }
    seen.status = rpc::FromGrpc(reader->Finish());
    return seen;
  }

  steps::BlobDigest Put(const std::filesystem::path& path) {
    return *steps::StoreBytes(*ReadFile(path), (*storage_("default"))->local());
  }
  // The digest of a blob that nobody stored.
  static steps::BlobDigest Unknown() {
    steps::BlobDigest digest;
    digest.set_hash(Sha256Hex("unknown"));
    digest.set_size_bytes(7);
    return digest;
  }
  // One file under a path of its own.
  step::v1::Samples ManifestOf(const std::string& path, const steps::BlobDigest& digest) {
    step::v1::SampleManifest manifest;
    step::v1::File* file = manifest.add_files();
    file->set_path(path);
    *file->mutable_digest() = digest;
    step::v1::Samples samples;
    *samples.mutable_manifest() =
        *steps::StoreBytes(manifest.SerializeAsString(), (*storage_("default"))->local());
    return samples;
  }
  std::string Get(const steps::BlobDigest& digest) {
    const auto file = (*storage_("default"))->local().Open(digest.hash());
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return "";
    EXPECT_EQ((*file)->bytes().size(), static_cast<size_t>(digest.size_bytes()));
    return {reinterpret_cast<const char*>((*file)->bytes().data()), (*file)->bytes().size()};
  }

  auto Import(const importer::v1::ImportRequest& request) {
    return Call<importer::v1::Importer::Stub, importer::v1::ImportEvent>(
        *importer_, &importer::v1::Importer::Stub::Import, request);
  }
  importer::v1::ImportRequest DigitsRequest() {
    importer::v1::ImportRequest request;
    *request.mutable_model()->mutable_file() = Put(kDigits);
    request.mutable_model()->set_name("digits.onnx");
    return request;
  }
  auto Transform(const importer::v1::TransformRequest& request) {
    return Call<importer::v1::Importer::Stub, importer::v1::TransformEvent>(
        *importer_, &importer::v1::Importer::Stub::Transform, request);
  }
  auto Compile(const codegen::v1::CompileRequest& request) {
    return Call<codegen::v1::Codegen::Stub, codegen::v1::CompileEvent>(
        *codegen_, &codegen::v1::Codegen::Stub::Compile, request);
  }
  codegen::v1::CompileRequest CompileFor(const step::v1::Module& module) {
    codegen::v1::CompileRequest request;
    *request.mutable_module() = module;
    request.mutable_target()->set_name("host");
    const codegen::HostCpu cpu = codegen::ThisCpu();
    request.mutable_target()->mutable_host()->set_machine(cpu.machine);
    request.mutable_target()->mutable_host()->mutable_features()->Assign(cpu.features.begin(),
                                                                         cpu.features.end());
    request.mutable_target()->mutable_host()->set_l1_bytes(cpu.l1_bytes);
    request.mutable_target()->mutable_host()->set_l2_bytes(cpu.l2_bytes);
    return request;
  }
  step::v1::Module Ready() {
    const auto imported = Import(DigitsRequest());
    EXPECT_TRUE(imported.status.ok()) << imported.status;
    importer::v1::TransformRequest request;
    *request.mutable_module() = imported.result.canonical();
    const auto transformed = Transform(request);
    EXPECT_TRUE(transformed.status.ok()) << transformed.status;
    return transformed.result.module();
  }

  TempDir folder_ = *TempDir::Create();
  std::filesystem::path scratch_ = folder_.path() / "scratch";
  std::chrono::seconds grace_{30};
  int64_t memory_bytes_ = 0;  // the default
  std::chrono::milliseconds probe_period_{10'000};
  metrics::Registry registry_;
  config::v1::BlobStore config_;
  steps::StepRunner::StorageOf storage_;
  std::unique_ptr<steps::ServiceHost> importer_, analyser_, codegen_, quantizer_;
};

TEST_P(Services, CompileTheBytesThatOneProcessCompiles) {
  codegen::v1::CompileRequest asked = CompileFor(Ready());
  asked.mutable_options()->set_header_prefix("digits");  // the program takes it from the file
  const auto compiled = Compile(asked);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status;
  EXPECT_TRUE(compiled.accepted);
  EXPECT_FALSE(compiled.stages.empty());
  EXPECT_FALSE(compiled.result.summary().uuid().empty());
  const std::filesystem::path local = folder_.path() / "local";
  const std::string command =
      fmt::format("XDG_CACHE_HOME={} {}/quench compile {} --output {} --progress none >/dev/null",
                  (folder_.path() / "cache").string(), QUENCH_BINARIES, kDigits, local.string());
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_TRUE(Get(compiled.result.library()) == *ReadFile(local / "model.so"));
  EXPECT_EQ(Get(compiled.result.header()), *ReadFile(local / "model.h"));
  codegen::v1::CompileReport report;
  ASSERT_TRUE(report.ParseFromString(Get(compiled.result.report())));
  EXPECT_GT(report.kernels_size(), 0);
}

TEST_P(Services, AnotherUuidIsStampedAsIfItHadBeenCompiledIn) {
  codegen::v1::CompileRequest asked = CompileFor(Ready());
  asked.mutable_options()->set_header_prefix("digits");  // the program takes it from the file
  const auto compiled = Compile(asked);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status;
  codegen::v1::PackageRequest request;
  *request.mutable_library() = compiled.result.library();
  *request.mutable_header() = compiled.result.header();
  request.set_uuid("123E4567E89B12D3A456426614174000");
  const auto package = [&] {
    return Call<codegen::v1::Codegen::Stub, codegen::v1::PackageEvent>(
        *codegen_, &codegen::v1::Codegen::Stub::Package, request);
  };
  const auto packaged = package();
  ASSERT_TRUE(packaged.status.ok()) << packaged.status;
  const std::filesystem::path local = folder_.path() / "local";
  const std::string command = fmt::format(
      "XDG_CACHE_HOME={} {}/quench compile {} --output {} --progress none --uuid {} >/dev/null",
      (folder_.path() / "cache").string(), QUENCH_BINARIES, kDigits, local.string(),
      "123e4567-e89b-12d3-a456-426614174000");
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_TRUE(Get(packaged.result.library()) == *ReadFile(local / "model.so"));
  EXPECT_EQ(Get(packaged.result.header()), *ReadFile(local / "model.h"));
  request.set_uuid("short");
  EXPECT_EQ(package().status.code(), absl::StatusCode::kInvalidArgument);
  request.set_uuid("123E4567E89B12D3A456426614174000");
  *request.mutable_header() = packaged.result.header();
  EXPECT_THAT(MessageOf(package().status), HasSubstr("does not have the UUID"));
}

TEST_P(Services, TheSecondTimeEverythingIsCached) {
  const step::v1::Module first = Ready();
  EXPECT_FALSE(Compile(CompileFor(first)).result.execution().cache_hit());
  EXPECT_TRUE(Import(DigitsRequest()).result.execution().cache_hit());
  EXPECT_TRUE(Compile(CompileFor(Ready())).result.execution().cache_hit());
}

TEST_P(Services, VerifyAndBenchmarkLibraries) {
  const auto imported = Import(DigitsRequest());
  const auto compiled = Compile(CompileFor(Ready()));
  analyser::v1::VerifyRequest request;
  *request.mutable_canonical() = imported.result.canonical();
  *request.mutable_library() = compiled.result.library();
  const auto verify = [&] {
    return Call<analyser::v1::Analyser::Stub, analyser::v1::VerifyEvent>(
        *analyser_, &analyser::v1::Analyser::Stub::Verify, request);
  };
  const auto verified = verify();
  ASSERT_TRUE(verified.status.ok()) << verified.status;
  EXPECT_TRUE(verified.result.passed());
  EXPECT_TRUE(verified.result.kernels_passed());
  EXPECT_TRUE(verified.result.rewrites().checked());
  EXPECT_TRUE(verified.result.rewrites().passed());
  EXPECT_EQ(verified.result.outputs(0).type(), "f32");
  EXPECT_EQ(verified.result.outputs(0).tolerance(), 1e-4);
  EXPECT_EQ(verified.result.oracle(), analyser::v1::ORACLE_INTERPRETER);
  EXPECT_TRUE(verify().result.execution().cache_hit());
  request.mutable_options()->set_tolerance(0);
  const auto mismatch = verify();
  ASSERT_TRUE(mismatch.status.ok()) << mismatch.status;
  EXPECT_FALSE(mismatch.result.passed());
  request.mutable_options()->set_oracle(analyser::v1::ORACLE_REFERENCE);
  EXPECT_THAT(MessageOf(verify().status), HasSubstr("reference oracle"));
  // With a build at level 0 with taps, the reference oracle works, layer by layer.
  codegen::v1::CompileRequest reference = CompileFor(imported.result.canonical());
  reference.mutable_options()->set_opt_level(0);
  reference.mutable_options()->set_taps(true);
  *request.mutable_reference_library() = Compile(reference).result.library();
  codegen::v1::CompileRequest taps = CompileFor(Ready());
  taps.mutable_options()->set_taps(true);
  *request.mutable_tap_library() = Compile(taps).result.library();
  request.mutable_options()->set_tolerance(1e-4);
  request.mutable_options()->set_per_layer(true);
  const auto layers = verify();
  ASSERT_TRUE(layers.status.ok()) << layers.status;
  EXPECT_TRUE(layers.result.passed());
  EXPECT_GT(layers.result.layers_size(), 3);

  analyser::v1::BenchmarkRequest bench;
  *bench.mutable_library() = compiled.result.library();
  bench.mutable_options()->mutable_time()->set_nanos(50'000'000);
  const auto measured = Call<analyser::v1::Analyser::Stub, analyser::v1::BenchmarkEvent>(
      *analyser_, &analyser::v1::Analyser::Stub::Benchmark, bench);
  ASSERT_TRUE(measured.status.ok()) << measured.status;
  EXPECT_GT(measured.result.runs(), 0);
  EXPECT_FALSE(measured.result.variant().empty());
  EXPECT_EQ(measured.result.device(), "cpu");
  bench.set_device("cuda");
  const auto refused = Call<analyser::v1::Analyser::Stub, analyser::v1::BenchmarkEvent>(
      *analyser_, &analyser::v1::Analyser::Stub::Benchmark, bench);
  EXPECT_FALSE(refused.accepted);
  EXPECT_EQ(rpc::ReasonOf(refused.status), "NO_DEVICE") << refused.status;
  EXPECT_EQ(registry_.Get(metrics::kGpus, metrics::Service::kAnalyser).Value(), 0);
}

// A library of f16: verified against what f16's passes make, and near the end of its range.
TEST_P(Services, VerifyHalves) {
  importer::v1::TransformRequest transform;
  *transform.mutable_module() = Import(DigitsRequest()).result.canonical();
  transform.mutable_options()->set_float16(true);
  analyser::v1::VerifyRequest request;
  *request.mutable_canonical() = transform.module();
  *request.mutable_library() =
      Compile(CompileFor(Transform(transform).result.module())).result.library();
  request.mutable_options()->mutable_passes()->set_float16(true);
  const auto verify = [&] {
    return Call<analyser::v1::Analyser::Stub, analyser::v1::VerifyEvent>(
        *analyser_, &analyser::v1::Analyser::Stub::Verify, request);
  };
  const auto scaled = verify();
  ASSERT_TRUE(scaled.status.ok()) << scaled.status;
  EXPECT_TRUE(scaled.result.passed());
  EXPECT_EQ(scaled.result.outputs(0).type(), "f16");
  ASSERT_EQ(scaled.result.magnitudes_size(), 1);
  EXPECT_TRUE(scaled.result.magnitudes(0).passed());
  EXPECT_GE(scaled.result.magnitudes(0).magnitude(), 6550);
  analyser::v1::InputRange* range = request.mutable_options()->add_ranges();
  range->set_input("image");
  range->set_high(16);
  EXPECT_TRUE(verify().result.magnitudes(0).given());
  range->set_low(17);
  EXPECT_EQ(rpc::FieldsOf(verify().status)[0].field, "options.ranges");
}

// A server that is replaced costs a step no attempt: it says in time that it drained.
TEST_P(Services, EndLongStepsWithAReasonWhenTheyDrain) {
  const auto compiled = Compile(CompileFor(Ready()));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status;
  grace_ = std::chrono::seconds(2);
  const auto analyser = Start(analyser::AnalyserDefinition());
  analyser::v1::BenchmarkRequest bench;
  *bench.mutable_library() = compiled.result.library();
  bench.mutable_options()->mutable_time()->set_seconds(600);
  auto running = std::async(std::launch::async, [&] {
    return Call<analyser::v1::Analyser::Stub, analyser::v1::BenchmarkEvent>(
        *analyser, &analyser::v1::Analyser::Stub::Benchmark, bench);
  });
  auto& busy =
      registry_.Get(metrics::kSlots, metrics::Service::kAnalyser, metrics::SlotState::kBusy);
  ASSERT_TRUE(testing::WaitFor([&] { return busy.Value() > 0; }));
  analyser->Drain();
  const auto seen = running.get();
  EXPECT_TRUE(seen.accepted);
  EXPECT_EQ(rpc::ReasonOf(seen.status), "SERVER_DRAINED") << seen.status;
}

// Two slots, and memory for one step: the other is refused before it is accepted.
TEST_P(Services, RefuseStepsWhoseMemoryOthersHave) {
  if (GetParam()) GTEST_SKIP() << "nobody can tell what a thread takes";
  const auto compiled = Compile(CompileFor(Ready()));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status;
  memory_bytes_ = int64_t{64} << 20;
  const auto analyser = Start(analyser::AnalyserDefinition());
  analyser::v1::BenchmarkRequest bench;
  *bench.mutable_library() = compiled.result.library();
  const auto benchmark = [&](int seconds, const StepContext& context) {
    analyser::v1::BenchmarkRequest request = bench;
    request.mutable_options()->mutable_time()->set_seconds(seconds);
    return Call<analyser::v1::Analyser::Stub, analyser::v1::BenchmarkEvent>(
        *analyser, &analyser::v1::Analyser::Stub::Benchmark, request, context);
  };
  const auto token = std::make_shared<CancelToken>();
  auto running =
      std::async(std::launch::async, [&] { return benchmark(600, StepContext(token, nullptr)); });
  auto& reserved = registry_.Get(metrics::kStepMemory, metrics::MemoryState::kReserved);
  ASSERT_TRUE(testing::WaitFor([&] { return reserved.Value() > 0; }));
  const auto refused = benchmark(1, {});
  EXPECT_FALSE(refused.accepted);
  EXPECT_EQ(rpc::ReasonOf(refused.status), "MEMORY_FULL") << refused.status;
  EXPECT_TRUE(rpc::RetryAfterOf(refused.status));
  EXPECT_THAT(MessageOf(refused.status), HasSubstr("of the 64 MiB for steps, and 0 MiB are free"));
  token->Cancel();
  EXPECT_TRUE(absl::IsCancelled(running.get().status));
  EXPECT_TRUE(testing::WaitFor([&] { return reserved.Value() == 0; }));
  EXPECT_EQ(benchmark(1, {}).status, absl::OkStatus());
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "store" / "memory-analyser"));
}

// No scratch space, as with a full or read-only disk: the step goes back to its caller, the server
// takes no more, and comes back by itself.
TEST_P(Services, TakeNoStepsWhileTheirMachineCannotDoThem) {
  const std::filesystem::path scratch = folder_.path() / "own-scratch";
  scratch_ = scratch;
  probe_period_ = std::chrono::milliseconds(20);
  const auto importer = Start(importer::ImporterDefinition());
  const auto import = [&] {
    importer::v1::ImportRequest request = DigitsRequest();
    request.mutable_step()->set_cache(step::v1::CACHE_MODE_OFF);
    return Call<importer::v1::Importer::Stub, importer::v1::ImportEvent>(
               *importer, &importer::v1::Importer::Stub::Import, request)
        .status;
  };
  EXPECT_EQ(import(), absl::OkStatus());
  const std::filesystem::path aside = folder_.path() / "aside";
  std::filesystem::rename(scratch, aside);
  const absl::Status fault = import();
  EXPECT_EQ(rpc::ReasonOf(fault), "NODE_FAULT") << fault;
  EXPECT_THAT(MessageOf(fault), HasSubstr("cannot create a folder in"));
  const absl::Status refused = import();
  EXPECT_EQ(rpc::ReasonOf(refused), "NODE_FAULT") << refused;
  EXPECT_THAT(MessageOf(refused), HasSubstr("out of service"));
  EXPECT_TRUE(rpc::RetryAfterOf(refused));
  std::filesystem::rename(aside, scratch);
  EXPECT_TRUE(testing::WaitFor([&] { return import().ok(); }));
  EXPECT_EQ(registry_.Get(metrics::kNodeFaults, metrics::Service::kImporter).Value(), 1);
}

TEST_P(Services, AnalyseCountsWhatOneProcessCounts) {
  const auto imported = Import(DigitsRequest());
  analyser::v1::AnalyseRequest request;
  *request.mutable_imported() = imported.result.imported();
  *request.mutable_canonical() = imported.result.canonical();
  analyser::v1::Ceilings& ceilings = *request.mutable_ceilings();
  ceilings.set_name("given");
  ceilings.set_source("the command line");
  ceilings.set_gflops(40);
  ceilings.set_gbytes(0);
  request.set_page(true);
  const auto analyse = [&] {
    return Call<analyser::v1::Analyser::Stub, analyser::v1::AnalyseEvent>(
        *analyser_, &analyser::v1::Analyser::Stub::Analyse, request);
  };
  EXPECT_THAT(MessageOf(analyse().status), HasSubstr("gbytes is 0, must be above 0"));
  ceilings.set_gbytes(12.5);
  const auto analysed = analyse();
  ASSERT_TRUE(analysed.status.ok()) << analysed.status;
  const std::filesystem::path local = folder_.path() / "report.json";
  const std::filesystem::path page = folder_.path() / "report.html";
  const std::string command = fmt::format(
      "XDG_CACHE_HOME={} {}/quench analyse {} --format json --progress none --ceilings 40,12.5 "
      "--report {} -o {}",
      (folder_.path() / "cache").string(), QUENCH_BINARIES, kDigits, page.string(), local.string());
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(Get(analysed.result.report_json()), *ReadFile(local));
  EXPECT_EQ(Get(analysed.result.page()), *ReadFile(page));
  EXPECT_EQ(analysed.result.summary().layers_size(), 0);
  analyser::v1::ModelReport report;
  ASSERT_TRUE(report.ParseFromString(Get(analysed.result.report())));
  EXPECT_GT(report.layers_size(), 3);
  EXPECT_EQ(report.parameters(), analysed.result.summary().parameters());
  EXPECT_EQ(report.layers(0).bound(), "compute");  // 3.9 operations a byte
  EXPECT_EQ(report.layers(1).bound(), "memory");   // a quarter
  EXPECT_GT(report.predicted_seconds(), report.layers(0).predicted_seconds());
}

TEST_P(Services, ExportGivesAModelThatImportsToTheSame) {
  const auto imported = Import(DigitsRequest());
  importer::v1::ExportRequest request;
  *request.mutable_module() = imported.result.imported();
  const auto exported = Call<importer::v1::Importer::Stub, importer::v1::ExportEvent>(
      *importer_, &importer::v1::Importer::Stub::Export, request);
  ASSERT_TRUE(exported.status.ok()) << exported.status;
  importer::v1::ImportRequest again;
  *again.mutable_model()->mutable_file() = exported.result.file();
  const auto back = Import(again);
  ASSERT_TRUE(back.status.ok()) << back.status;
  EXPECT_EQ(back.result.canonical().fingerprint(), imported.result.canonical().fingerprint());
}

TEST_P(Services, WrongRequestsAreAnsweredWithTheirFields) {
  importer::v1::ImportRequest request = DigitsRequest();
  request.mutable_model()->set_name("../digits.onnx");
  absl::Status status = Import(request).status;
  ASSERT_EQ(rpc::FieldsOf(status).size(), 1u) << status;
  EXPECT_EQ(rpc::FieldsOf(status)[0].field, "model.name");
  request = DigitsRequest();
  request.mutable_model()->mutable_file()->set_hash(std::string(64, 'a'));
  status = Import(request).status;
  EXPECT_EQ(rpc::ReasonOf(status), "BLOB_MISSING") << status;
  ASSERT_EQ(rpc::PreconditionsOf(status).size(), 1u);
  // A module is not a model, and a model no module.
  codegen::v1::CompileRequest compile = CompileFor({});
  *compile.mutable_module()->mutable_digest() = Put(kDigits);
  EXPECT_THAT(MessageOf(Compile(compile).status), HasSubstr("not an IR module"));
  compile = CompileFor(Import(DigitsRequest()).result.imported());
  EXPECT_THAT(MessageOf(Compile(compile).status), HasSubstr("codegen takes `canonical`"));
  compile = CompileFor(Ready());
  compile.mutable_target()->clear_host();
  EXPECT_EQ(rpc::FieldsOf(Compile(compile).status)[0].field, "target.host");
  compile.mutable_target()->set_name("x86_64");
  EXPECT_THAT(MessageOf(Compile(compile).status), HasSubstr("similar ones are"));
  importer::v1::TransformRequest transform;
  *transform.mutable_module() = Ready();
  transform.add_passes("fold_everything");
  EXPECT_THAT(MessageOf(Transform(transform).status), HasSubstr("(known: "));
}

TEST_P(Services, ListsAreThere) {
  rpc::ChannelOptions options;
  options.address = codegen_->server().address();
  const auto channel = *rpc::Channel::Open(options);
  rpc::ClientCall call(*channel, {});
  codegen::v1::ListTargetsResponse targets;
  ASSERT_TRUE(codegen::v1::Codegen::NewStub(channel->grpc())
                  ->ListTargets(call.context(), {}, &targets)
                  .ok());
  EXPECT_GT(targets.targets_size(), 5);
  options.address = quantizer_->server().address();
  const auto other = *rpc::Channel::Open(options);
  rpc::ClientCall list(*other, {});
  quantizer::v1::ListMethodsResponse methods;
  EXPECT_TRUE(quantizer::v1::Quantizer::NewStub(other->grpc())
                  ->ListMethods(list.context(), {}, &methods)
                  .ok());
  ASSERT_EQ(methods.methods_size(), 5);
  EXPECT_EQ(methods.methods(0).name(), "average");
}

// A module at batch 1 compiled so that every value can be seen.
TEST_P(Services, QuantizeWhatTheyHaveCalibrated) {
  namespace qpb = quantizer::v1;
  const auto imported = Import(DigitsRequest());
  importer::v1::TransformRequest transform;
  *transform.mutable_module() = imported.result.canonical();
  transform.mutable_options()->set_batch(1);
  qpb::EqualizeRequest equalize;
  *equalize.mutable_module() = Transform(transform).result.module();
  const auto equalized = Call<qpb::Quantizer::Stub, qpb::EqualizeEvent>(
      *quantizer_, &qpb::Quantizer::Stub::Equalize, equalize);
  ASSERT_TRUE(equalized.status.ok()) << equalized.status;
  EXPECT_GT(equalized.result.pairs(), 0);
  EXPECT_LT(equalized.result.remaining_spread(), equalized.result.spread());
  const auto build = [&](const step::v1::Module& module) {
    codegen::v1::CompileRequest compile = CompileFor(module);
    compile.mutable_options()->set_taps(true);
    compile.mutable_options()->set_opt_level(2);
    const auto compiled = Compile(compile);
    EXPECT_TRUE(compiled.status.ok()) << compiled.status;
    return compiled.result.library();
  };
  qpb::CalibrateRequest calibrate;
  *calibrate.mutable_module() = equalized.result.module();
  *calibrate.mutable_tap_library() = build(calibrate.module());
  const auto sample = Put(std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy");
  const auto run = [&] {
    return Call<qpb::Quantizer::Stub, qpb::CalibrateEvent>(
        *quantizer_, &qpb::Quantizer::Stub::Calibrate, calibrate);
  };
  EXPECT_THAT(MessageOf(run().status), HasSubstr("samples: missing"));
  *calibrate.mutable_samples()->mutable_manifest() = sample;
  EXPECT_THAT(MessageOf(run().status), HasSubstr("samples.manifest: the blob is not a serialised"));
  *calibrate.mutable_samples() = ManifestOf("sample.npy", Unknown());
  EXPECT_THAT(MessageOf(run().status), HasSubstr("blob is missing"));
  *calibrate.mutable_samples() = ManifestOf("digits/sample.npy", sample);
  EXPECT_THAT(MessageOf(run().status), HasSubstr("`digits` has no file of input `image`"));
  *calibrate.mutable_samples() = ManifestOf("../sample.npy", sample);
  EXPECT_THAT(MessageOf(run().status), HasSubstr("samples.manifest: paths must be relative"));
  *calibrate.mutable_samples() = ManifestOf("sample.npy", sample);
  const auto calibrated = run();
  ASSERT_TRUE(calibrated.status.ok()) << calibrated.status;
  EXPECT_EQ(calibrated.result.samples(), 8);
  *calibrate.mutable_statistics() = calibrated.result.statistics();
  const auto more = run();
  ASSERT_TRUE(more.status.ok()) << more.status;
  EXPECT_EQ(more.result.samples(), 16);
  *calibrate.mutable_statistics() = sample;
  EXPECT_THAT(MessageOf(run().status), HasSubstr("statistics: has no statistics"));

  qpb::QuantizeRequest quantize;
  *quantize.mutable_module() = calibrate.module();
  *quantize.mutable_statistics() = calibrated.result.statistics();
  quantize.mutable_options()->set_per_channel(true);
  quantize.mutable_options()->set_bias_correction(true);
  quantize.mutable_options()->set_source(qpb::RANGE_SOURCE_STATIC);
  const auto quantized = Call<qpb::Quantizer::Stub, qpb::QuantizeEvent>(
      *quantizer_, &qpb::Quantizer::Stub::Quantize, quantize);
  ASSERT_TRUE(quantized.status.ok()) << quantized.status;
  EXPECT_EQ(quantized.result.layers_size(), 4);
  EXPECT_GT(quantized.result.corrected_biases(), 0);

  analyser::v1::CompareRequest compare;
  *compare.mutable_reference_library() = build(equalize.module());
  *compare.mutable_library() = build(quantized.result.module());
  *compare.mutable_samples() = calibrate.samples();
  compare.set_layers(true);
  const auto compared = Call<analyser::v1::Analyser::Stub, analyser::v1::CompareEvent>(
      *analyser_, &analyser::v1::Analyser::Stub::Compare, compare);
  ASSERT_TRUE(compared.status.ok()) << compared.status;
  EXPECT_EQ(compared.result.accuracy().agreement(), 1);
  EXPECT_GT(compared.result.outputs(0).sqnr_db(), 25);
  EXPECT_GT(compared.result.layers_size(), 2);
  EXPECT_THAT(Get(compared.result.report_json()), HasSubstr("sqnr_db"));
}

TEST_P(Services, ListAndPartitionModules) {
  namespace apb = analyser::v1;
  const auto imported = Import(DigitsRequest());
  apb::IntrospectRequest nodes;
  *nodes.mutable_module() = imported.result.canonical();
  const auto list = [&] {
    return Call<apb::Analyser::Stub, apb::IntrospectEvent>(*analyser_,
                                                           &apb::Analyser::Stub::Introspect, nodes);
  };
  nodes.add_operators("Con*");
  const auto listed = list();
  ASSERT_TRUE(listed.status.ok()) << listed.status;
  EXPECT_EQ(listed.result.summary().nodes_size(), 0);
  apb::ModuleFacts facts;
  ASSERT_TRUE(facts.ParseFromString(Get(listed.result.report())));
  ASSERT_EQ(facts.nodes_size(), 3);
  EXPECT_EQ(facts.nodes(0).attributes().at("pads"), "[1,1,1,1]");
  EXPECT_THAT(Get(listed.result.report_json()), HasSubstr("\"nodes\""));
  nodes.add_operators("Sin");
  EXPECT_THAT(MessageOf(list().status), HasSubstr("no node has an operator `Sin`"));

  apb::PartitionRequest partition;
  *partition.mutable_module() = imported.result.canonical();
  const auto cut = [&] {
    return Call<apb::Analyser::Stub, apb::PartitionEvent>(
        *analyser_, &apb::Analyser::Stub::Partition, partition);
  };
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("backend: "));
  partition.set_backend("npu");
  partition.add_operators("Conv");
  partition.add_operators("Convolve");
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("operators: "));
  partition.set_operators(1, "Relu");
  partition.mutable_options()->set_min_nodes(-1);
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("options.min_nodes"));
  partition.clear_options();
  const auto parts = cut();
  ASSERT_TRUE(parts.status.ok()) << parts.status;
  ASSERT_EQ(parts.result.report().parts_size(), 3);
  importer::v1::ExportRequest out;
  *out.mutable_module() = parts.result.report().parts(0).module();
  EXPECT_TRUE((Call<importer::v1::Importer::Stub, importer::v1::ExportEvent>(
                   *importer_, &importer::v1::Importer::Stub::Export, out)
                   .status.ok()));
  partition.set_inline_parts(true);
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("inline_parts"));
  partition.clear_backend();
  partition.clear_operators();
  *partition.mutable_module() = parts.result.module();
  const auto whole = cut();
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_EQ(whole.result.inlined(), 3);
  EXPECT_EQ(whole.result.module().fingerprint(), imported.result.canonical().fingerprint());
  *partition.mutable_module() = imported.result.imported();
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("at stage `imported`"));
}

TEST_P(Services, TileProducts) {
  namespace apb = analyser::v1;
  apb::TileRequest tile;
  const auto run = [&] {
    return Call<apb::Analyser::Stub, apb::TileEvent>(*analyser_, &apb::Analyser::Stub::Tile, tile);
  };
  EXPECT_THAT(MessageOf(run().status), HasSubstr("limits.m: is 0, must be from 1 to"));
  for (apb::ProductSizes* sizes : {tile.mutable_limits(), tile.mutable_gemm()}) {
    sizes->set_m(8);
    sizes->set_n(8);
    sizes->set_k(8);
  }
  *tile.mutable_module() = Import(DigitsRequest()).result.canonical();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("module: or `gemm`: one of them is given"));
  tile.clear_module();
  tile.mutable_gemm()->set_k(17);
  tile.set_samples(-1);
  EXPECT_THAT(MessageOf(run().status), HasSubstr("samples: is -1"));
  tile.set_samples(3);
  const auto tiled = run();
  ASSERT_TRUE(tiled.status.ok()) << tiled.status;
  ASSERT_EQ(tiled.result.report().products_size(), 1);
  EXPECT_EQ(tiled.result.report().products(0).tiles().k(), 3);
  EXPECT_LE(tiled.result.report().error(), 1e-5);
  tile.set_tolerance(1e-30);
  EXPECT_THAT(MessageOf(run().status), HasSubstr("above the tolerance"));
}

TEST_P(Services, EditModules) {
  namespace apb = analyser::v1;
  apb::EditRequest edit;
  const auto imported = Import(DigitsRequest());
  *edit.mutable_module() = imported.result.canonical();
  const auto run = [&] {
    return Call<apb::Analyser::Stub, apb::EditEvent>(*analyser_, &apb::Analyser::Stub::Edit, edit);
  };
  edit.set_script("remove");
  EXPECT_THAT(MessageOf(run().status), HasSubstr("script: script:1:7: a name was expected"));
  edit.set_script("remove relu3 constant %image = file \"picture.npy\"");
  EXPECT_THAT(MessageOf(run().status),
              HasSubstr("script: script:1:14: the request has no file `picture.npy`"));
  apb::EditFile* file = edit.add_files();
  file->set_file("picture.npy");
  *file->mutable_tensor() = edit.module().digest();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("files[0].tensor: "));
  *file->mutable_tensor() = Put(std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy");
  const auto edited = run();
  ASSERT_TRUE(edited.status.ok()) << edited.status;
  EXPECT_EQ(edited.result.report().changes_size(), 2);
  EXPECT_NE(edited.result.module().fingerprint(), edit.module().fingerprint());
  *edit.mutable_module() = imported.result.imported();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("at stage `imported`"));
}

TEST_P(Services, ShowInnerValues) {
  namespace apb = analyser::v1;
  apb::InferRequest infer;
  *infer.mutable_module() = Import(DigitsRequest()).result.canonical();
  const auto run = [&] {
    return Call<apb::Analyser::Stub, apb::InferEvent>(*analyser_, &apb::Analyser::Stub::Infer,
                                                      infer);
  };
  EXPECT_THAT(MessageOf(run().status), HasSubstr("inputs: input `image` is missing"));
  infer.set_seed(1);
  infer.add_operators("Relu");
  infer.set_store_tensors(true);
  infer.set_store_images(true);
  const auto shown = run();
  ASSERT_TRUE(shown.status.ok()) << shown.status;
  ASSERT_EQ(shown.result.values_size(), 4);
  EXPECT_TRUE(shown.result.values(3).output());
  EXPECT_EQ(shown.result.values(0).statistics().min(), 0);
  EXPECT_THAT(Get(shown.result.values(0).image()), HasSubstr("PNG"));
  EXPECT_THAT(Get(shown.result.report_json()), HasSubstr("histogram"));

  // Its output is an input.
  apb::InferInput* input = infer.add_inputs();
  input->set_name("picture");
  *input->mutable_tensor() = shown.result.values(0).tensor();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("the model has no input `picture`"));
  input->set_name("image");
  EXPECT_THAT(MessageOf(run().status), HasSubstr("image"));  // of another shape
  *input->mutable_tensor() = shown.result.report_json();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("inputs[0].tensor: "));
  infer.clear_inputs();
  *infer.mutable_library() = shown.result.report_json();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("library"));
}

// Split, calibrated, tried with switches, and quantized as the trials say.
TEST_P(Services, KeepLayersInFloatWithinABudget) {
  namespace qpb = quantizer::v1;
  const auto imported = Import(DigitsRequest());
  importer::v1::TransformRequest transform;
  *transform.mutable_module() = imported.result.canonical();
  transform.mutable_options()->set_batch(1);
  const auto build = [&](const step::v1::Module& module, bool taps) {
    codegen::v1::CompileRequest compile = CompileFor(module);
    compile.mutable_options()->set_taps(taps);
    if (taps) compile.mutable_options()->set_opt_level(2);
    const auto compiled = Compile(compile);
    EXPECT_TRUE(compiled.status.ok()) << compiled.status;
    return compiled.result.library();
  };
  qpb::SplitTensorsRequest split;
  *split.mutable_module() = Transform(transform).result.module();
  split.set_parts(9);
  const auto cut = [&] {
    return Call<qpb::Quantizer::Stub, qpb::SplitTensorsEvent>(
        *quantizer_, &qpb::Quantizer::Stub::SplitTensors, split);
  };
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("9 parts, must be 2 to 8"));
  split.set_parts(2);
  split.set_least_gain(0.01);
  const auto parts = cut();
  ASSERT_TRUE(parts.status.ok()) << parts.status;
  ASSERT_GT(parts.result.layers_size(), 0);
  EXPECT_EQ(parts.result.layers(0).channels_size(), 2);

  qpb::CalibrateRequest calibrate;
  *calibrate.mutable_module() = parts.result.module();
  *calibrate.mutable_tap_library() = build(calibrate.module(), true);
  *calibrate.mutable_samples() = ManifestOf(
      "sample.npy", Put(std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy"));
  const auto calibrated = Call<qpb::Quantizer::Stub, qpb::CalibrateEvent>(
      *quantizer_, &qpb::Quantizer::Stub::Calibrate, calibrate);
  ASSERT_TRUE(calibrated.status.ok()) << calibrated.status;
  *split.mutable_module() = calibrate.module();
  *split.mutable_statistics() = calibrated.result.statistics();
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("force gives them up"));
  split.set_force(true);
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("split already"));

  qpb::QuantizeRequest quantize;
  *quantize.mutable_module() = calibrate.module();
  *quantize.mutable_statistics() = calibrated.result.statistics();
  quantize.mutable_options()->set_switches(true);
  const auto run = [&] {
    return Call<qpb::Quantizer::Stub, qpb::QuantizeEvent>(
        *quantizer_, &qpb::Quantizer::Stub::Quantize, quantize);
  };
  const auto switched = run();
  ASSERT_TRUE(switched.status.ok()) << switched.status;
  qpb::SelectRequest select;
  *select.mutable_module() = switched.result.module();
  *select.mutable_library() = build(select.module(), false);
  *select.mutable_samples() = calibrate.samples();
  const auto choose = [&] {
    return Call<qpb::Quantizer::Stub, qpb::SelectEvent>(*quantizer_, &qpb::Quantizer::Stub::Select,
                                                        select);
  };
  EXPECT_THAT(MessageOf(choose().status), HasSubstr("no budget"));
  select.mutable_budget()->set_min_sqnr_db(300);
  EXPECT_THAT(MessageOf(choose().status), HasSubstr("can be in integers"));
  const double all = [&] {
    select.mutable_budget()->set_min_sqnr_db(-100);
    return choose().result.report().cost().sqnr_db();
  }();
  EXPECT_GT(all, 10);
  select.mutable_budget()->set_min_sqnr_db(all + 1);
  const auto selected = choose();
  ASSERT_TRUE(selected.status.ok()) << selected.status;
  EXPECT_GE(selected.result.report().cost().sqnr_db(), all + 1);
  EXPECT_EQ(selected.result.report().samples(), 8);

  quantize.mutable_options()->set_switches(false);
  *quantize.mutable_selection() = calibrate.samples().manifest();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("selection: is not a result of Select"));
  *quantize.mutable_selection() = selected.result.selection();
  const auto quantized = run();
  ASSERT_TRUE(quantized.status.ok()) << quantized.status;
  int kept = 0, sensitive = 0;
  for (const qpb::LayerChoice& layer : quantized.result.layers()) kept += !layer.quantized();
  for (const auto& layer : selected.result.report().layers()) sensitive += layer.kept();
  EXPECT_EQ(kept, sensitive);
  EXPECT_GT(kept, 0);
}

INSTANTIATE_TEST_SUITE_P(Isolation, Services, ::testing::Values(false, true),
                         [](const auto& isolation) {
                           return isolation.param ? "OnThreads" : "InProcesses";
                         });

}  // namespace
}  // namespace quench::services_test
