// The four services behind their gRPC contracts: what they give is what one process gives.
#include <gtest/gtest.h>

#include "tests/service/services_fixture.h"

namespace quench::services_test {
namespace {

using testing::HasSubstr;

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

// A server that is replaced costs a step no attempt: it says in time that it drained. Another step, for which it has a
// slot but no memory, is refused before it is accepted.
TEST_P(Services, EndLongStepsWithAReasonWhenTheyDrain) {
  const auto compiled = Compile(CompileFor(Ready()));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status;
  grace_ = std::chrono::seconds(2);
  if (!GetParam()) memory_bytes_ = int64_t{64} << 20;
  const auto analyser = Start(analyser::AnalyserDefinition());
  analyser::v1::BenchmarkRequest bench;
  *bench.mutable_library() = compiled.result.library();
  bench.mutable_options()->mutable_time()->set_seconds(600);
  const auto benchmark = [&] {
    return Call<analyser::v1::Analyser::Stub, analyser::v1::BenchmarkEvent>(
        *analyser, &analyser::v1::Analyser::Stub::Benchmark, bench);
  };
  auto running = std::async(std::launch::async, benchmark);
  auto& busy =
      registry_.Get(metrics::kSlots, metrics::Service::kAnalyser, metrics::SlotState::kBusy);
  auto& reserved = registry_.Get(metrics::kStepMemory, metrics::MemoryState::kReserved);
  ASSERT_TRUE(testing::WaitFor([&] { return (GetParam() ? busy : reserved).Value() > 0; }));
  if (!GetParam()) {
    const auto refused = benchmark();
    EXPECT_FALSE(refused.accepted);
    EXPECT_EQ(rpc::ReasonOf(refused.status), "MEMORY_FULL") << refused.status;
    EXPECT_THAT(MessageOf(refused.status), HasSubstr("of the 64 MiB for steps, and 0 MiB are"));
  }
  analyser->Drain();
  const auto seen = running.get();
  EXPECT_TRUE(seen.accepted);
  EXPECT_EQ(rpc::ReasonOf(seen.status), "SERVER_DRAINED") << seen.status;
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

INSTANTIATE_TEST_SUITE_P(Isolation, Services, ::testing::Values(false, true),
                         [](const auto& isolation) {
                           return isolation.param ? "OnThreads" : "InProcesses";
                         });

}  // namespace
}  // namespace quench::services_test
