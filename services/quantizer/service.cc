#include "services/quantizer/service.h"

#include "common/ir/hash.h"
#include "common/rpc/errors.h"
#include "common/steps/modules.h"
#include "common/steps/samples.h"
#include "quench/quantizer/v1/quantizer.grpc.pb.h"
#include "services/quantizer/adapt_rounding.h"
#include "services/quantizer/calibrate.h"
#include "services/quantizer/equalize.h"
#include "services/quantizer/methods/method.h"
#include "services/quantizer/quantize.h"
#include "services/quantizer/report_proto.h"
#include "services/quantizer/rounding_file.h"
#include "services/quantizer/selection_file.h"
#include "services/quantizer/split_outliers.h"
#include "services/quantizer/split_tensors.h"
#include "services/quantizer/statistics_file.h"
#include "services/quantizer/switches.h"

namespace quench::quantizer {
namespace {

// Its own messages beside ours of the same names.
namespace pb = ::quench::quantizer::v1;

using rpc::FieldError;
using steps::Workplace;

constexpr size_t kMaxLayers = 10'000;  // in a result

absl::StatusOr<pb::ListMethodsResponse> ListMethodsCall(const pb::ListMethodsRequest&,
                                                        const StepContext&) {
  pb::ListMethodsResponse response;
  for (const MethodInfo& method : AllMethods()) {
    pb::Method& added = *response.add_methods();
    added.set_name(std::string(method.name));
    added.set_description(std::string(method.doc));
  }
  return response;
}

absl::StatusOr<pb::EqualizeResult> EqualizeStep(const pb::EqualizeRequest& request,
                                                const Workplace& place,
                                                const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Graph graph, steps::LoadModule(request.module(), "module", place.blobs));
  QUENCH_ASSIGN_OR_RETURN(const Equalized equalized, Equalize(std::move(graph), context));
  pb::EqualizeResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_module(),
                          steps::StoreModule(equalized.graph, place.blobs));
  result.set_pairs(equalized.pairs);
  result.set_spread(equalized.spread);
  result.set_remaining_spread(equalized.remains);
  return result;
}

absl::StatusOr<Statistics> ReadFrom(const steps::BlobDigest& digest, const std::string& field,
                                    const Workplace& place) {
  const std::filesystem::path path = place.scratch / "statistics";
  QUENCH_RETURN_IF_ERROR(steps::LinkBlob(digest, path, place.blobs));
  absl::StatusOr<Statistics> statistics = ReadStatistics(path);
  if (!statistics.ok()) return FieldError(field, "has no statistics that Calibrate gave");
  return statistics;
}

absl::StatusOr<pb::SplitTensorsResult> SplitTensorsStep(const pb::SplitTensorsRequest& request,
                                                        const Workplace& place,
                                                        const StepContext& context) {
  SplitOptions options;
  if (request.parts() != 0) options.parts = request.parts();
  if (request.has_least_gain()) options.least_gain = request.least_gain();
  QUENCH_ASSIGN_OR_RETURN(Graph graph, steps::LoadModule(request.module(), "module", place.blobs));
  if (request.has_statistics() && !request.force()) {
    QUENCH_ASSIGN_OR_RETURN(const Statistics statistics,
                            ReadFrom(request.statistics(), "statistics", place));
    if (statistics.fingerprint == Fingerprint(graph)) {
      return absl::FailedPreconditionError(fmt::format(
          "statistics of {} samples would fit the module no longer; force gives them up",
          statistics.samples));
    }
  }
  QUENCH_ASSIGN_OR_RETURN(const SplitModule split,
                          SplitTensors(std::move(graph), options, context));
  pb::SplitTensorsResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_module(), steps::StoreModule(split.graph, place.blobs));
  for (size_t i = 0; i < std::min(split.layers.size(), kMaxLayers); ++i) {
    pb::SplitLayer& layer = *result.add_layers();
    layer.set_node(split.layers[i].node);
    layer.mutable_channels()->Assign(split.layers[i].channels.begin(),
                                     split.layers[i].channels.end());
    layer.set_bits_before(split.layers[i].bits_before);
    layer.set_bits_after(split.layers[i].bits_after);
  }
  return result;
}

absl::StatusOr<pb::SplitOutliersResult> SplitOutliersStep(const pb::SplitOutliersRequest& request,
                                                          const Workplace& place,
                                                          const StepContext& context) {
  OutlierOptions options;
  if (request.has_share()) options.share = request.share();
  QUENCH_ASSIGN_OR_RETURN(Graph graph, steps::LoadModule(request.module(), "module", place.blobs));
  QUENCH_ASSIGN_OR_RETURN(const OutlierModule split,
                          SplitOutliers(std::move(graph), options, context));
  pb::SplitOutliersResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_module(), steps::StoreModule(split.graph, place.blobs));
  for (size_t i = 0; i < std::min(split.layers.size(), kMaxLayers); ++i) {
    pb::OutlierLayer& layer = *result.add_layers();
    layer.set_node(split.layers[i].node);
    layer.set_channels(split.layers[i].channels);
    layer.set_copies(split.layers[i].copies);
    layer.set_spared(split.layers[i].spared);
  }
  return result;
}

// As many as the request's field `threads` asks for and the place has.
template <typename Request>
absl::StatusOr<int> ThreadsOf(const Request& request, const Workplace& place) {
  if (request.threads() < 0)
    return FieldError("threads", fmt::format("{}, must not be negative", request.threads()));
  return request.threads() == 0 ? place.max_threads
                                : std::min(request.threads(), place.max_threads);
}

// A module, its build with taps, and what runs through that.
struct TapRun {
  Graph graph;
  std::filesystem::path library;
  std::unique_ptr<Samples> samples;
  std::string device;  // Artifact::device
};
// `Request` has the fields module, tap_library and samples.
template <typename Request>
absl::StatusOr<TapRun> TapRunOf(const Request& request, const Workplace& place,
                                const StepContext& context, const std::string& device) {
  if (!request.has_tap_library()) return FieldError("tap_library", "missing, must be a digest");
  TapRun run;
  QUENCH_ASSIGN_OR_RETURN(run.graph, steps::LoadModule(request.module(), "module", place.blobs));
  run.library = place.scratch / "taps.so";
  QUENCH_RETURN_IF_ERROR(steps::LinkBlob(request.tap_library(), run.library, place.blobs));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          steps::OpenLibrary(run.library, "tap_library", device));
  run.device = artifact->device();
  QUENCH_ASSIGN_OR_RETURN(steps::LabelledSamples samples,
                          steps::SamplesOf(request.samples(), artifact->inputs(), place, context,
                                           "samples", "input", &run.graph));
  run.samples = std::move(samples.samples);
  return run;
}

absl::StatusOr<pb::CalibrateResult> CalibrateStep(const pb::CalibrateRequest& request,
                                                  const Workplace& place,
                                                  const StepContext& context) {
  if (request.workers() < 0) {
    return FieldError("workers", fmt::format("{}, must not be negative", request.workers()));
  }
  std::optional<Statistics> before;
  if (request.has_statistics()) {
    QUENCH_ASSIGN_OR_RETURN(before, ReadFrom(request.statistics(), "statistics", place));
  }
  QUENCH_ASSIGN_OR_RETURN(const TapRun run, TapRunOf(request, place, context, request.device()));
  if (before && before->fingerprint != Fingerprint(run.graph)) {
    return FieldError("statistics", "are of another module");
  }
  CalibrateOptions options;
  options.random = request.samples().has_random();
  options.device = request.device();
  options.workers =
      request.workers() == 0 ? place.max_threads : std::min(request.workers(), place.max_threads);
  if (request.workers() == 0 && run.device != "cpu")
    options.workers = std::min(options.workers, kWorkersOnGpu);
  QUENCH_ASSIGN_OR_RETURN(Statistics statistics,
                          Calibrate(run.graph, run.library, *run.samples, options, context));
  if (before) {
    QUENCH_RETURN_IF_ERROR(Annotate(before->Merge(statistics), "statistics"));
    statistics = *std::move(before);
  }
  pb::CalibrateResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_statistics(),
                          steps::StoreBytes(StatisticsBytes(statistics), place.blobs));
  result.set_device(run.device);
  result.set_samples(statistics.samples);
  result.set_values(static_cast<int32_t>(statistics.values.size()));
  return result;
}

absl::StatusOr<DataType> TypeOf(ir::v1::ElementType type, DataType absent) {
  if (type == ir::v1::ELEMENT_TYPE_UNSPECIFIED) return absent;
  // The numbers of quench.ir.v1.ElementType are those of DataType.
  if (!ir::v1::ElementType_IsValid(type)) {
    return FieldError("options", fmt::format("{} is not an element type", int{type}));
  }
  return static_cast<DataType>(type);
}

absl::StatusOr<QuantizeOptions> OptionsOf(const pb::QuantizeOptions& asked) {
  QuantizeOptions options;
  QUENCH_ASSIGN_OR_RETURN(options.activation_dtype,
                          TypeOf(asked.activation_type(), options.activation_dtype));
  QUENCH_ASSIGN_OR_RETURN(options.kernel_dtype, TypeOf(asked.kernel_type(), options.kernel_dtype));
  QUENCH_ASSIGN_OR_RETURN(options.bias_dtype, TypeOf(asked.bias_type(), options.bias_dtype));
  options.per_channel = asked.per_channel();
  options.symmetric = asked.symmetric();
  options.power_of_two = asked.power_of_two();
  options.bias_correction = asked.bias_correction();
  options.method = asked.method();
  if (asked.has_percentile()) options.percentile = asked.percentile();
  if (!pb::RangeSource_IsValid(asked.source())) {
    return FieldError("options.source", fmt::format("{} is not a source", int{asked.source()}));
  }
  if (asked.source() == pb::RANGE_SOURCE_STATIC) options.source = RangeSource::kStatic;
  if (asked.source() == pb::RANGE_SOURCE_DYNAMIC) options.source = RangeSource::kDynamic;
  if (asked.source() == pb::RANGE_SOURCE_WEIGHTS_ONLY) options.source = RangeSource::kWeights;
  if (asked.has_block_size()) options.block_size = asked.block_size();
  options.switches = asked.switches();
  options.single_operators = asked.single_operators();
  options.include = {asked.include().begin(), asked.include().end()};
  options.exclude = {asked.exclude().begin(), asked.exclude().end()};
  for (const std::string& name : asked.disabled_passes()) {
    if (name != "fuse_groups") {
      return FieldError("options.disabled_passes",
                        fmt::format("`{}` does not run here, only fuse_groups does", name));
    }
    options.passes.disabled.insert(name);
  }
  return options;
}

absl::StatusOr<pb::AdaptRoundingResult> AdaptRoundingStep(const pb::AdaptRoundingRequest& request,
                                                          const Workplace& place,
                                                          const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const int threads, ThreadsOf(request, place));
  QUENCH_ASSIGN_OR_RETURN(const QuantizeOptions options, OptionsOf(request.options()));
  QUENCH_ASSIGN_OR_RETURN(const TapRun run, TapRunOf(request, place, context, "cpu"));
  QUENCH_ASSIGN_OR_RETURN(Rounding rounding,
                          AdaptRounding(run.graph, run.library, *run.samples, options,
                                        {threads, request.samples().has_random()}, context));
  pb::AdaptRoundingResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_rounding(),
                          steps::StoreBytes(RoundingBytes(rounding), place.blobs));
  rounding.kernels.resize(std::min(rounding.kernels.size(), kMaxLayers));
  for (AdaptedKernel& kernel : rounding.kernels) kernel.otherwise.clear();
  *result.mutable_report() = ToProto(rounding);
  return result;
}

// Samples are for the inputs of the float module: all but the last.
absl::StatusOr<steps::LabelledSamples> TrialSamples(const pb::SelectRequest& request,
                                                    const std::filesystem::path& library,
                                                    const Workplace& place,
                                                    const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact,
                          steps::OpenLibrary(library, "library"));
  std::vector<ArtifactTensor> inputs = artifact->inputs();
  if (inputs.empty() || inputs.back().name != kSwitchesInput) {
    return FieldError("library",
                      fmt::format("has no input `{}`: it is not a build of a module that "
                                  "was quantized with switches",
                                  kSwitchesInput));
  }
  inputs.pop_back();
  return steps::SamplesOf(request.samples(), inputs, place, context);
}

absl::StatusOr<pb::SelectResult> SelectStep(const pb::SelectRequest& request,
                                            const Workplace& place, const StepContext& context) {
  SelectOptions options;
  const pb::AccuracyBudget& budget = request.budget();
  if (budget.has_max_drop()) options.budget.max_drop = budget.max_drop();
  if (budget.has_min_sqnr_db()) options.budget.min_sqnr_db = budget.min_sqnr_db();
  if (request.sensitivity_samples() != 0)
    options.sensitivity_samples = request.sensitivity_samples();
  QUENCH_ASSIGN_OR_RETURN(options.threads, ThreadsOf(request, place));
  if (!request.has_library()) return FieldError("library", "missing, must be a digest");
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          steps::LoadModule(request.module(), "module", place.blobs));
  const std::filesystem::path library = place.scratch / "trials.so";
  QUENCH_RETURN_IF_ERROR(steps::LinkBlob(request.library(), library, place.blobs));
  QUENCH_ASSIGN_OR_RETURN(steps::LabelledSamples samples,
                          TrialSamples(request, library, place, context));
  options.labels = std::move(samples.labels);
  QUENCH_ASSIGN_OR_RETURN(const Selection selection,
                          Select(graph, library, *samples.samples, options, context));
  pb::SelectResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_selection(),
                          steps::StoreBytes(SelectionBytes(selection), place.blobs));
  *result.mutable_report() = ToProto(selection);
  return result;
}

absl::StatusOr<pb::QuantizeResult> QuantizeStep(const pb::QuantizeRequest& request,
                                                const Workplace& place,
                                                const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(QuantizeOptions options, OptionsOf(request.options()));
  std::optional<Statistics> statistics;
  if (request.has_statistics()) {
    QUENCH_ASSIGN_OR_RETURN(statistics, ReadFrom(request.statistics(), "statistics", place));
  }
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          steps::LoadModule(request.module(), "module", place.blobs));
  if (request.has_selection()) {
    const std::filesystem::path path = place.scratch / "selection";
    QUENCH_RETURN_IF_ERROR(steps::LinkBlob(request.selection(), path, place.blobs));
    const absl::StatusOr<Selection> selection = ReadSelection(path);
    if (!selection.ok()) return FieldError("selection", "is not a result of Select");
    QUENCH_RETURN_IF_ERROR(KeepSelected(*selection, graph, options));
  }
  if (request.has_rounding()) {
    const std::filesystem::path path = place.scratch / "rounding";
    QUENCH_RETURN_IF_ERROR(steps::LinkBlob(request.rounding(), path, place.blobs));
    absl::StatusOr<Rounding> rounding = ReadRounding(path);
    if (!rounding.ok()) return FieldError("rounding", "is not a result of AdaptRounding");
    options.rounding = std::make_shared<const Rounding>(*std::move(rounding));
  }
  QUENCH_ASSIGN_OR_RETURN(QuantizedModule quantized,
                          Quantize(graph, statistics ? &*statistics : nullptr, options, context));
  quantized.report.layers.resize(std::min(quantized.report.layers.size(), kMaxLayers));
  pb::QuantizeResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_module(),
                          steps::StoreModule(quantized.graph, place.blobs));
  FillReport(quantized.report, result);
  return result;
}

class QuantizerService final : public pb::Quantizer::CallbackService {
 public:
  QuantizerService(const steps::ServiceParts& parts, const std::vector<steps::Step>& list)
      : list_methods_(parts.control, pb::Quantizer::service_full_name(), "ListMethods",
                      metrics::GrpcType::kUnary),
        equalize_(parts, list[0]),
        calibrate_(parts, list[1]),
        quantize_(parts, list[2]),
        select_(parts, list[3]),
        split_tensors_(parts, list[4]),
        split_outliers_(parts, list[5]),
        adapt_rounding_(parts, list[6]) {}

 private:
  grpc::ServerUnaryReactor* ListMethods(grpc::CallbackServerContext* context,
                                        const pb::ListMethodsRequest* request,
                                        pb::ListMethodsResponse* response) override {
    return rpc::UnaryOnPool(list_methods_, context, request, response, ListMethodsCall);
  }
  grpc::ServerWriteReactor<pb::EqualizeEvent>* Equalize(
      grpc::CallbackServerContext* context, const pb::EqualizeRequest* request) override {
    return equalize_.Serve<pb::EqualizeEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::CalibrateEvent>* Calibrate(
      grpc::CallbackServerContext* context, const pb::CalibrateRequest* request) override {
    return calibrate_.Serve<pb::CalibrateEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::QuantizeEvent>* Quantize(
      grpc::CallbackServerContext* context, const pb::QuantizeRequest* request) override {
    return quantize_.Serve<pb::QuantizeEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::SplitTensorsEvent>* SplitTensors(
      grpc::CallbackServerContext* context, const pb::SplitTensorsRequest* request) override {
    return split_tensors_.Serve<pb::SplitTensorsEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::SplitOutliersEvent>* SplitOutliers(
      grpc::CallbackServerContext* context, const pb::SplitOutliersRequest* request) override {
    return split_outliers_.Serve<pb::SplitOutliersEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::AdaptRoundingEvent>* AdaptRounding(
      grpc::CallbackServerContext* context, const pb::AdaptRoundingRequest* request) override {
    return adapt_rounding_.Serve<pb::AdaptRoundingEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::SelectEvent>* Select(grpc::CallbackServerContext* context,
                                                    const pb::SelectRequest* request) override {
    return select_.Serve<pb::SelectEvent>(context, request);
  }

  rpc::Method list_methods_;
  steps::StepMethod equalize_, calibrate_, quantize_, select_, split_tensors_, split_outliers_,
      adapt_rounding_;
};

}  // namespace

const steps::ServiceDefinition& QuantizerDefinition() {
  static const steps::ServiceDefinition* const definition = new steps::ServiceDefinition{
      metrics::Service::kQuantizer,
      "quantizer",
      pb::Quantizer::service_full_name(),
      7453,
      {steps::MakeStep("quench.quantizer.v1.Quantizer/Equalize", metrics::Stage::kQuantize,
                       steps::Caching::kPure, EqualizeStep),
       TakesLibraries(
           steps::MakeStep("quench.quantizer.v1.Quantizer/Calibrate", metrics::Stage::kCalibrate,
                           steps::Caching::kOfThisCpu, CalibrateStep),
           {"tap_library"}),
       steps::MakeStep("quench.quantizer.v1.Quantizer/Quantize", metrics::Stage::kQuantize,
                       steps::Caching::kPure, QuantizeStep),
       TakesLibraries(
           steps::MakeStep("quench.quantizer.v1.Quantizer/Select", metrics::Stage::kSelect,
                           steps::Caching::kOfThisCpu, SelectStep),
           {"library"}),
       steps::MakeStep("quench.quantizer.v1.Quantizer/SplitTensors", metrics::Stage::kQuantize,
                       steps::Caching::kPure, SplitTensorsStep),
       steps::MakeStep("quench.quantizer.v1.Quantizer/SplitOutliers", metrics::Stage::kQuantize,
                       steps::Caching::kPure, SplitOutliersStep),
       TakesLibraries(
           steps::MakeStep("quench.quantizer.v1.Quantizer/AdaptRounding", metrics::Stage::kQuantize,
                           steps::Caching::kOfThisCpu, AdaptRoundingStep),
           {"tap_library"})},
      [](const steps::ServiceParts& parts, const std::vector<steps::Step>& list) {
        return std::make_unique<QuantizerService>(parts, list);
      },
      /*uses_gpus=*/true};
  return *definition;
}

}  // namespace quench::quantizer
