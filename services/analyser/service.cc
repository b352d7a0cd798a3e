#include "services/analyser/service.h"

#include <google/protobuf/util/time_util.h>

#include <cmath>

#include "common/rpc/errors.h"
#include "common/runner/open_sizes.h"
#include "common/runner/runner.h"
#include "common/steps/modules.h"
#include "common/steps/samples.h"
#include "quench/analyser/v1/analyser.grpc.pb.h"
#include "services/analyser/analyser.h"
#include "services/analyser/module_steps.h"
#include "services/analyser/report_page.h"
#include "services/analyser/report_proto.h"
#include "services/analyser/roofline.h"

namespace quench::analyser {
namespace {

// Its own messages beside ours of the same names.
namespace pb = ::quench::analyser::v1;

using google::protobuf::Duration;
using google::protobuf::util::TimeUtil;
using rpc::FieldError;
using steps::Workplace;

absl::StatusOr<int> ThreadsOf(int threads, const std::string& field, const Workplace& place) {
  if (threads < 0 || threads > 1024) {
    return FieldError(field, fmt::format("{}, must be 1 to 1024", threads));
  }
  return std::min(std::max(threads, 1), place.max_threads);
}

// A library of the request as a file that can be opened.
absl::StatusOr<std::filesystem::path> PlaceLibrary(const steps::BlobDigest& digest,
                                                   const std::string& field,
                                                   const std::string& name,
                                                   const Workplace& place) {
  if (digest.hash().empty()) return FieldError(field, "missing, must be a library's digest");
  std::filesystem::path path = place.scratch / name;
  QUENCH_RETURN_IF_ERROR(steps::LinkBlob(digest, path, place.blobs));
  return path;
}

absl::StatusOr<pb::AnalyseResult> AnalyseStep(const pb::AnalyseRequest& request,
                                              const Workplace& place, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Graph canonical,
                          steps::LoadModule(request.canonical(), "canonical", place.blobs));
  // A caller without the imported module has the canonical one's operators listed.
  Graph imported = canonical;
  if (request.has_imported()) {
    QUENCH_ASSIGN_OR_RETURN(imported,
                            steps::LoadModule(request.imported(), "imported", place.blobs));
  }
  AnalyseOptions options;
  QUENCH_ASSIGN_OR_RETURN(options.sizes, SizesOf(request.sizes(), "sizes"));
  options.weight_statistics = request.weight_statistics();
  if (request.has_ceilings()) {
    options.ceilings = FromProto(request.ceilings());
    QUENCH_RETURN_IF_ERROR(CheckCeilings(*options.ceilings));
  }
  QUENCH_ASSIGN_OR_RETURN(const ModelReport report, Analyse(imported, canonical, options, context));
  pb::AnalyseResult result;
  *result.mutable_summary() = ToProto(report);
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report(),
                          steps::StoreBytes(result.summary().SerializeAsString(), place.blobs));
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report_json(),
                          steps::StoreBytes(ToJson(report), place.blobs));
  if (request.page()) {
    QUENCH_ASSIGN_OR_RETURN(*result.mutable_page(),
                            steps::StoreBytes(ReportPage({&report}), place.blobs));
  }
  result.mutable_summary()->clear_layers();
  result.mutable_summary()->clear_values();
  result.mutable_summary()->clear_weights();
  return result;
}

// Gives Verify the libraries that it builds: the caller has built them already.
BuildFunction BuiltAs(const steps::BlobDigest& digest, const std::string& field,
                      const std::string& missing, const Workplace& place) {
  return [digest, field, missing, &place](const Graph&, const std::filesystem::path& library,
                                          const StepContext&) -> absl::Status {
    if (digest.hash().empty()) return FieldError(field, missing);
    return steps::LinkBlob(digest, library, place.blobs);
  };
}

absl::StatusOr<VerifyOptions> OptionsOf(const pb::VerifyRequest& request, const Workplace& place) {
  const pb::VerifyOptions& asked = request.options();
  VerifyOptions options;
  if (asked.samples() < 0 || asked.samples() > 100'000) {
    return FieldError("options.samples", fmt::format("{}, must be 1 to 100000", asked.samples()));
  }
  if (asked.samples() != 0) options.samples = asked.samples();
  if (asked.has_tolerance()) options.tolerance = asked.tolerance();
  if (options.tolerance && !(*options.tolerance >= 0)) {
    return FieldError("options.tolerance",
                      fmt::format("{}, must not be negative", *options.tolerance));
  }
  options.passes.batch = asked.passes().batch();
  options.passes.disabled = {asked.passes().disabled().begin(), asked.passes().disabled().end()};
  QUENCH_ASSIGN_OR_RETURN(options.passes.store_as,
                          steps::StoredType(asked.passes(), "options.passes"));
  for (const step::v1::ValueMagnitude& value : asked.passes().magnitudes())
    options.passes.magnitudes[value.value()] = value.magnitude();
  for (const pb::InputRange& range : asked.ranges()) {
    if (!std::isfinite(range.low()) || !std::isfinite(range.high()) || range.low() > range.high()) {
      return FieldError("options.ranges", fmt::format("`{}` goes from {} to {}, must be finite and "
                                                      "not empty",
                                                      range.input(), range.low(), range.high()));
    }
    options.ranges[range.input()] = {range.low(), range.high()};
  }
  if (asked.oracle() == pb::ORACLE_INTERPRETER) options.oracle = "interpreter";
  if (asked.oracle() == pb::ORACLE_REFERENCE) options.oracle = "reference";
  if (!pb::Oracle_IsValid(asked.oracle())) {
    return FieldError("options.oracle", fmt::format("{} is not an oracle", int{asked.oracle()}));
  }
  options.per_layer = asked.per_layer();
  if (asked.has_seed()) options.seed = asked.seed();
  QUENCH_ASSIGN_OR_RETURN(options.threads, ThreadsOf(asked.threads(), "options.threads", place));
  QUENCH_ASSIGN_OR_RETURN(options.sizes, SizesOf(asked.sizes(), "options.sizes"));
  options.device = request.device();
  return options;
}

absl::StatusOr<pb::VerifyResult> VerifyStep(const pb::VerifyRequest& request,
                                            const Workplace& place, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(VerifyOptions options, OptionsOf(request, place));
  // Without it a mismatch is told without its layers.
  if (options.per_layer || request.has_tap_library()) {
    options.build_twin = BuiltAs(request.tap_library(), "tap_library",
                                 "missing: comparing layers needs a build with taps", place);
  }
  options.build_reference =
      BuiltAs(request.reference_library(), "reference_library",
              "missing: the reference oracle needs a build at level 0 with taps", place);
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          steps::LoadModule(request.canonical(), "canonical", place.blobs));
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path library,
                          PlaceLibrary(request.library(), "library", "model.so", place));
  QUENCH_ASSIGN_OR_RETURN(const VerifyReport report, Verify(graph, library, options, context));
  return ToProto(report);
}

absl::StatusOr<CompareReport> CompareAsAsked(const pb::CompareRequest& request,
                                             CompareOptions options, const Workplace& place,
                                             const StepContext& context) {
  if (request.has_reference_library() == request.has_expected()) {
    return FieldError("reference_library",
                      "must be given, or `expected` in its place: one of the two");
  }
  if (request.has_expected() && (options.layers || request.expected().has_random()))
    return FieldError(
        "expected", "contains only outputs: layers and random samples need a reference that runs");
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path library,
                          PlaceLibrary(request.library(), "library", "model.so", place));
  std::filesystem::path reference;
  if (request.has_reference_library()) {
    QUENCH_ASSIGN_OR_RETURN(reference, PlaceLibrary(request.reference_library(),
                                                    "reference_library", "reference.so", place));
    QUENCH_RETURN_IF_ERROR(steps::OpenLibrary(reference, "reference_library").status());
  }
  steps::LabelledSamples samples, expected;
  {
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                            steps::OpenLibrary(library, "library"));
    QUENCH_ASSIGN_OR_RETURN(
        samples, steps::SamplesOf(request.samples(), artifact->inputs(), place, context));
    if (request.has_expected()) {
      QUENCH_ASSIGN_OR_RETURN(expected, steps::SamplesOf(request.expected(), artifact->outputs(),
                                                         place, context, "expected", "output"));
    }
  }
  options.labels = std::move(samples.labels);
  if (request.has_expected())
    return CompareWithFiles(*expected.samples, library, *samples.samples, options, context);
  return Compare(reference, library, *samples.samples, options, context);
}

absl::StatusOr<pb::CompareResult> CompareStep(const pb::CompareRequest& request,
                                              const Workplace& place, const StepContext& context) {
  CompareOptions options;
  options.layers = request.layers();
  options.device = request.device();
  QUENCH_ASSIGN_OR_RETURN(options.threads, ThreadsOf(request.threads(), "threads", place));
  if (request.has_tolerance()) options.tolerance = request.tolerance();
  if (options.tolerance && !(*options.tolerance >= 0))
    return FieldError("tolerance", fmt::format("{}, must not be negative", *options.tolerance));
  QUENCH_ASSIGN_OR_RETURN(const CompareReport report,
                          CompareAsAsked(request, options, place, context));
  pb::CompareResult result = ToProto(report);
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report_json(),
                          steps::StoreBytes(ToJson(report), place.blobs));
  return result;
}

Duration Milliseconds(double value) {
  return TimeUtil::NanosecondsToDuration(std::llround(value * 1e6));
}

absl::StatusOr<pb::BenchmarkResult> BenchmarkStep(const pb::BenchmarkRequest& request,
                                                  const Workplace& place,
                                                  const StepContext& context) {
  const pb::BenchmarkOptions& asked = request.options();
  QUENCH_ASSIGN_OR_RETURN(const int threads, ThreadsOf(asked.threads(), "options.threads", place));
  QUENCH_ASSIGN_OR_RETURN(const auto sizes, SizesOf(asked.sizes(), "options.sizes"));
  const double seconds =
      asked.has_time() ? static_cast<double>(TimeUtil::DurationToMilliseconds(asked.time())) / 1e3
                       : 3;
  if (seconds < 0.01 || seconds > 86400) {
    return FieldError("options.time", fmt::format("{} s, must be 10 ms to 1 day", seconds));
  }
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path library,
                          PlaceLibrary(request.library(), "library", "model.so", place));
  const uint64_t seed = asked.has_seed() ? asked.seed() : 1;
  QUENCH_ASSIGN_OR_RETURN(
      const BenchResult measured,
      Benchmark(library, {threads, seconds, sizes, seed, request.device()}, context));
  pb::BenchmarkResult result;
  result.set_variant(measured.variant);
  result.set_device(measured.device);
  *result.mutable_median() = Milliseconds(measured.median_ms);
  *result.mutable_min() = Milliseconds(measured.min_ms);
  *result.mutable_p99() = Milliseconds(measured.p99_ms);
  *result.mutable_load() = Milliseconds(measured.load_ms);
  *result.mutable_first_run() = Milliseconds(measured.first_run_ms);
  result.set_runs(measured.runs);
  result.set_arena_bytes(measured.arena_bytes);
  result.set_arena_lower_bound_bytes(measured.arena_lower_bound);
  result.set_threads(threads);
  for (const auto& [symbol, size] : measured.sizes) {
    step::v1::SymbolSize* added = result.add_sizes();
    added->set_symbol(symbol);
    added->set_size(size);
  }
  result.set_batch(measured.batch);
  *result.mutable_lower_quartile() = Milliseconds(measured.lower_quartile_ms);
  *result.mutable_upper_quartile() = Milliseconds(measured.upper_quartile_ms);
  result.set_cores(measured.cores);
  result.set_taken_cores(measured.taken_cores);
  return result;
}

class AnalyserService final : public pb::Analyser::CallbackService {
 public:
  AnalyserService(const steps::ServiceParts& parts, const std::vector<steps::Step>& list)
      : analyse_(parts, list[0]),
        verify_(parts, list[1]),
        compare_(parts, list[2]),
        benchmark_(parts, list[3]),
        introspect_(parts, list[4]),
        partition_(parts, list[5]),
        infer_(parts, list[6]),
        diff_(parts, list[7]),
        tile_(parts, list[8]),
        edit_(parts, list[9]) {}

 private:
  grpc::ServerWriteReactor<pb::AnalyseEvent>* Analyse(grpc::CallbackServerContext* context,
                                                      const pb::AnalyseRequest* request) override {
    return analyse_.Serve<pb::AnalyseEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::VerifyEvent>* Verify(grpc::CallbackServerContext* context,
                                                    const pb::VerifyRequest* request) override {
    return verify_.Serve<pb::VerifyEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::CompareEvent>* Compare(grpc::CallbackServerContext* context,
                                                      const pb::CompareRequest* request) override {
    return compare_.Serve<pb::CompareEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::BenchmarkEvent>* Benchmark(
      grpc::CallbackServerContext* context, const pb::BenchmarkRequest* request) override {
    return benchmark_.Serve<pb::BenchmarkEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::IntrospectEvent>* Introspect(
      grpc::CallbackServerContext* context, const pb::IntrospectRequest* request) override {
    return introspect_.Serve<pb::IntrospectEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::PartitionEvent>* Partition(
      grpc::CallbackServerContext* context, const pb::PartitionRequest* request) override {
    return partition_.Serve<pb::PartitionEvent>(context, request);
  }

  grpc::ServerWriteReactor<pb::InferEvent>* Infer(grpc::CallbackServerContext* context,
                                                  const pb::InferRequest* request) override {
    return infer_.Serve<pb::InferEvent>(context, request);
  }

  grpc::ServerWriteReactor<pb::DiffEvent>* Diff(grpc::CallbackServerContext* context,
                                                const pb::DiffRequest* request) override {
    return diff_.Serve<pb::DiffEvent>(context, request);
  }

  grpc::ServerWriteReactor<pb::TileEvent>* Tile(grpc::CallbackServerContext* context,
                                                const pb::TileRequest* request) override {
    return tile_.Serve<pb::TileEvent>(context, request);
  }

  grpc::ServerWriteReactor<pb::EditEvent>* Edit(grpc::CallbackServerContext* context,
                                                const pb::EditRequest* request) override {
    return edit_.Serve<pb::EditEvent>(context, request);
  }

  steps::StepMethod analyse_, verify_, compare_, benchmark_, introspect_, partition_, infer_, diff_,
      tile_, edit_;
};

}  // namespace

const steps::ServiceDefinition& AnalyserDefinition() {
  static const steps::ServiceDefinition* const definition = new steps::ServiceDefinition{
      metrics::Service::kAnalyser,
      "analyser",
      pb::Analyser::service_full_name(),
      7452,
      {steps::MakeStep("quench.analyser.v1.Analyser/Analyse", metrics::Stage::kAnalyse,
                       steps::Caching::kPure, AnalyseStep),
       TakesLibraries(steps::MakeStep("quench.analyser.v1.Analyser/Verify", metrics::Stage::kVerify,
                                      steps::Caching::kOfThisCpu, VerifyStep),
                      {"library", "reference_library", "tap_library"}),
       TakesLibraries(
           steps::MakeStep("quench.analyser.v1.Analyser/Compare", metrics::Stage::kCompare,
                           steps::Caching::kOfThisCpu, CompareStep),
           {"reference_library", "library"}),
       TakesLibraries(
           steps::MakeStep("quench.analyser.v1.Analyser/Benchmark", metrics::Stage::kBenchmark,
                           steps::Caching::kNever, BenchmarkStep),
           {"library"}),
       steps::MakeStep("quench.analyser.v1.Analyser/Introspect", metrics::Stage::kAnalyse,
                       steps::Caching::kPure, IntrospectStep),
       steps::MakeStep("quench.analyser.v1.Analyser/Partition", metrics::Stage::kTransform,
                       steps::Caching::kPure, PartitionStep),
       TakesLibraries(steps::MakeStep("quench.analyser.v1.Analyser/Infer", metrics::Stage::kAnalyse,
                                      steps::Caching::kOfThisCpu, InferStep),
                      {"library"}),
       steps::MakeStep("quench.analyser.v1.Analyser/Diff", metrics::Stage::kAnalyse,
                       steps::Caching::kPure, DiffStep),
       steps::MakeStep("quench.analyser.v1.Analyser/Tile", metrics::Stage::kTransform,
                       steps::Caching::kPure, TileStep),
       steps::MakeStep("quench.analyser.v1.Analyser/Edit", metrics::Stage::kTransform,
                       steps::Caching::kPure, EditStep)},
      [](const steps::ServiceParts& parts, const std::vector<steps::Step>& list) {
        return std::make_unique<AnalyserService>(parts, list);
      },
      /*uses_gpus=*/true};
  return *definition;
}

}  // namespace quench::analyser
