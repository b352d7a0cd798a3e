#include "services/cli/taps.h"

#include "common/base/status.h"
#include "common/runner/inputs.h"
#include "common/runner/open_sizes.h"
#include "services/cli/model_source.h"
#include "services/codegen/codegen.h"
#include "services/codegen/targets/host_cpu.h"

namespace quench::cli {

Option AddImageFlag(const Options& options, std::string& images) {
  return options.In("Input").Add(
      "--images", images,
      "How .png and .jpg samples are scaled: imagenet, unit (0..1), signed (-1..1) or bytes "
      "(0..255), optionally followed by changes: mean=R/G/B, std=R/G/B, divide=N, order=rgb|bgr, "
      "fit=stretch|crop|pad",
      "SPEC");
}

absl::StatusOr<SampleFormat> SampleFormatOf(const std::string& images) {
  SampleFormat format{ReadTensorFile, std::nullopt};
  if (!images.empty()) {
    QUENCH_ASSIGN_OR_RETURN(format.images, ParseImageOptions(images));
  }
  return format;
}

absl::StatusOr<std::map<std::string, int64_t>> RandomSizes(const SampleOptions& options,
                                                           const Graph& graph) {
  QUENCH_ASSIGN_OR_RETURN(const auto given, ParseSizes(options.sizes));
  return ChooseSizes(InputsOf(graph), given);
}

absl::StatusOr<std::unique_ptr<Samples>> OpenSamplesOf(const SampleOptions& options,
                                                       const Graph& graph,
                                                       std::span<const ArtifactTensor> inputs,
                                                       const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const SampleFormat format, SampleFormatOf(options.images));
  if (options.random > 0) {
    QUENCH_ASSIGN_OR_RETURN(auto sizes, RandomSizes(options, graph));
    if (!sizes.empty()) fmt::print(stderr, "quench: random samples at {}\n", SizesText(sizes));
    return MakeRandomSamples(options.random, options.seed, graph, std::move(sizes));
  }
  return OpenSamples(options.data, inputs, format, context);
}

absl::StatusOr<std::filesystem::path> TapBuild::Library(const StepContext& context) {
  if (folder_) return folder_->path() / "taps.so";
  QUENCH_ASSIGN_OR_RETURN(TempDir folder, TempDir::Create());
  codegen::CompileOptions options;
  options.opt_level = 2;  // fast kernels, and every value is to be seen: nothing is fused
  options.taps = codegen::Taps::kModelValues;
  if (device_ != "cpu" && !codegen::ThisGpu().empty()) {
    options.target = "cuda";
    options.host_target = "host";
  }
  QUENCH_RETURN_IF_ERROR(codegen::Compile(graph_, options, folder.path() / "taps.so",
                                          folder.path() / "taps.h", context)
                             .status());
  folder_ = std::move(folder);
  return folder_->path() / "taps.so";
}

}  // namespace quench::cli
