// Samples of a step's request: files in the blob store, or random ones.
#pragma once

#include "common/rpc/errors.h"
#include "common/runner/open_sizes.h"
#include "common/runner/samples.h"
#include "common/steps/manifest.h"
#include "common/steps/modules.h"
#include "common/steps/step.h"

namespace quench::steps {

// A library of a request; errors name its field, not its path.
inline absl::StatusOr<std::unique_ptr<Artifact>> OpenLibrary(const std::filesystem::path& path,
                                                             const std::string& field,
                                                             const std::string& device = "") {
  absl::StatusOr<std::unique_ptr<Artifact>> artifact = Artifact::Open(path, {1, device});
  if (artifact.ok()) return artifact;
  std::string text = MessageOf(artifact.status());
  for (size_t at = text.find(path.string()); at != std::string::npos;
       at = text.find(path.string())) {
    text.replace(at, path.string().size(), field);
  }
  if (absl::IsInvalidArgument(artifact.status())) return rpc::FieldError(field, text);
  return absl::Status(artifact.status().code(), text);
}

// Samples, and their labels if known.
struct LabelledSamples {
  std::unique_ptr<Samples> samples;
  std::vector<int64_t> labels;  // empty: unknown
};

// `inputs` are the inputs of the library to run; the blobs of the manifest must be there. Errors name the
// wrong field beneath `field`, and samples that do not fit by their paths in the manifest. Random samples
// fit `graph`, if given.
inline absl::StatusOr<LabelledSamples> SamplesOf(const step::v1::Samples& asked,
                                                 const std::vector<ArtifactTensor>& inputs,
                                                 const Workplace& place, const StepContext& context,
                                                 const std::string& field = "samples",
                                                 const std::string& what = "input",
                                                 const Graph* graph = nullptr) {
  constexpr int kMaxRandomSamples = 100'000;
  if (asked.source_case() == step::v1::Samples::SOURCE_NOT_SET)
    return rpc::FieldError(field, "missing, must have a manifest or a number of random ones");
  if (asked.has_random()) {
    if (asked.random() < 1 || asked.random() > kMaxRandomSamples) {
      return rpc::FieldError(field + ".random",
                             fmt::format("{}, must be 1 to {}", asked.random(), kMaxRandomSamples));
    }
    const uint64_t seed = asked.has_seed() ? asked.seed() : 1;
    std::map<std::string, int64_t> given;
    for (const step::v1::SymbolSize& size : asked.sizes()) {
      if (!given.emplace(size.symbol(), size.size()).second || size.size() < 0) {
        return rpc::FieldError(field + ".sizes",
                               fmt::format("`{}`: {}, must be given once and not be negative",
                                           size.symbol(), size.size()));
      }
    }
    absl::StatusOr<std::map<std::string, int64_t>> sizes = ChooseSizes(inputs, given);
    if (!sizes.ok()) return rpc::FieldError(field + ".sizes", MessageOf(sizes.status()));
    return LabelledSamples{graph != nullptr
                               ? MakeRandomSamples(asked.random(), seed, *graph, *std::move(sizes))
                               : MakeRandomSamples(asked.random(), seed, inputs, *std::move(sizes)),
                           {}};
  }
  if (asked.sizes_size() > 0)
    return rpc::FieldError(field + ".sizes", "given with a manifest, must go with random samples");
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> file,
                          place.blobs.Open(asked.manifest().hash()));
  absl::StatusOr<step::v1::SampleManifest> manifest =
      ParseManifest({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
  if (!manifest.ok()) return rpc::FieldError(field + ".manifest", MessageOf(manifest.status()));
  const std::filesystem::path folder = place.scratch / field;
  QUENCH_RETURN_IF_ERROR(LinkFiles(manifest->files(), field + ".manifest", folder, place.blobs));
  SampleFormat format;
  format.what = what;
  if (!asked.images().empty()) {
    absl::StatusOr<ImageOptions> images = ParseImageOptions(asked.images());
    if (!images.ok()) return rpc::FieldError(field + ".images", MessageOf(images.status()));
    format.images = *images;
  }
  LabelledSamples opened;
  QUENCH_ASSIGN_OR_RETURN(opened.samples, OpenSamples(folder, inputs, format, context));
  opened.labels.assign(manifest->labels().begin(), manifest->labels().end());
  return opened;
}

}  // namespace quench::steps
