// Samples of a step's request: files in the blob store, or random ones.
#pragma once

#include "common/rpc/errors.h"
#include "common/runner/samples.h"
#include "common/steps/modules.h"
#include "common/steps/step.h"

namespace quench::steps {

// A library of a request; errors name its field, not where it lies.
inline absl::StatusOr<std::unique_ptr<Artifact>> OpenLibrary(const std::filesystem::path& path,
                                                             const std::string& field) {
  absl::StatusOr<std::unique_ptr<Artifact>> artifact = Artifact::Open(path);
  if (artifact.ok()) return artifact;
  std::string text = MessageOf(artifact.status());
  for (size_t at = text.find(path.string()); at != std::string::npos;
       at = text.find(path.string())) {
    text.replace(at, path.string().size(), field);
  }
  if (absl::IsInvalidArgument(artifact.status())) return rpc::FieldError(field, text);
  return absl::Status(artifact.status().code(), text);
}

// `Request` has the fields samples, random_samples, seed and images; `inputs` are those of the library that
// will run. FieldError names what is wrong with them; samples that do not fit are named by their
// paths in the request.
template <typename Request>
absl::StatusOr<std::unique_ptr<Samples>> SamplesOf(const Request& request,
                                                   const std::vector<ArtifactTensor>& inputs,
                                                   const Workplace& place,
                                                   const StepContext& context) {
  constexpr int kMaxRandomSamples = 100'000;
  if (request.random_samples() < 0 || request.random_samples() > kMaxRandomSamples) {
    return rpc::FieldError(
        "random_samples",
        fmt::format("{}, must be 1 to {}", request.random_samples(), kMaxRandomSamples));
  }
  if (request.samples().empty() == (request.random_samples() == 0)) {
    return rpc::FieldError("samples", "either these or random_samples must be there");
  }
  if (request.random_samples() > 0) {
    return MakeRandomSamples(request.random_samples(), request.has_seed() ? request.seed() : 1,
                             inputs);
  }
  const std::filesystem::path folder = place.scratch / "samples";
  QUENCH_RETURN_IF_ERROR(LinkFiles(request.samples(), "samples", folder, place.blobs));
  SampleFormat format;
  if (!request.images().empty()) {
    absl::StatusOr<ImageOptions> images = ParseImageOptions(request.images());
    if (!images.ok()) return rpc::FieldError("images", MessageOf(images.status()));
    format.images = *images;
  }
  return OpenSamples(folder, inputs, format, context);
}

}  // namespace quench::steps
