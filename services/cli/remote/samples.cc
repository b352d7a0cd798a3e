#include "services/cli/remote/samples.h"

#include <algorithm>
#include <optional>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/runner/images.h"
#include "common/runner/unpack.h"
#include "common/steps/modules.h"
#include "services/cli/model_source.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

// A file as it goes up.
struct Sample {
  fs::path file;
  std::string path;  // in the request
};

// Files of a sample's folder that ONNX's test data say that a model gives, and what is there as .npy too,
// which goes before it.
bool IsRead(const fs::path& path, bool of_sample) {
  if (path.extension() != ".pb" || !of_sample) return true;
  std::error_code error;
  return !path.stem().string().starts_with("output_") &&
         !fs::exists(fs::path(path).replace_extension(".npy"), error);
}

bool IsSample(const fs::path& path) {
  const std::string extension = path.extension().string();
  return IsImageFile(path) || extension == ".npy" || extension == ".npz" || extension == ".pb";
}

absl::StatusOr<std::vector<Sample>> SamplesIn(const std::string& data) {
  std::error_code error;
  if (!fs::is_directory(data, error))
    return std::vector<Sample>{{data, fs::path(data).filename().string()}};
  std::vector<Sample> samples;
  fs::recursive_directory_iterator entries(data, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    const fs::path& path = entries->path();
    const fs::path relative = path.lexically_relative(data);
    if (IsSample(path) && IsRead(path, relative.has_parent_path()))
      samples.push_back({path, relative.string()});
  }
  if (error) return ErrnoStatus(error.value(), "list", data);
  if (samples.empty())
    return InvalidArgument("`{}` has no .npy, .npz, .pb, .png or .jpg files", data);
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.file < b.file; });
  return samples;
}

// Writes what `file`, a .pb file, holds to `npy`.
absl::Status ToNpy(const fs::path& file, const fs::path& npy) {
  QUENCH_ASSIGN_OR_RETURN(const Tensor tensor, ReadTensorFile(file.string()));
  // WriteNpy would make others of the dtypes that NumPy lacks.
  QUENCH_RETURN_IF_ERROR(NpyHeader(tensor.dtype(), tensor.dims()).status());
  return WriteNpy(tensor, npy);
}

// Tensors of .pb files become files of `scratch`.
absl::Status ConvertTensorFiles(std::vector<Sample>& samples, std::optional<TempDir>& scratch,
                                const StepContext& context) {
  StatusCollector problems;
  for (size_t i = 0; i < samples.size(); ++i) {
    Sample& sample = samples[i];
    if (sample.file.extension() != ".pb") continue;
    QUENCH_RETURN_IF_ERROR(context.Check());
    context.Report(
        {"look at samples", "", static_cast<int64_t>(i), static_cast<int64_t>(samples.size())});
    if (!scratch) {
      QUENCH_ASSIGN_OR_RETURN(scratch, TempDir::Create());
    }
    const fs::path npy = scratch->path() / fmt::format("{}.npy", i);
    const absl::Status made = ToNpy(sample.file, npy);
    if (!made.ok()) problems.Add(Annotate(made, fmt::format("sample `{}`", sample.path)));
    sample = {npy, sample.path + ".npy"};
  }
  return problems.Finish();
}

}  // namespace

absl::StatusOr<step::v1::SampleManifest> UploadSamples(const std::string& data,
                                                       GatewayClient& client,
                                                       const StepContext& context) {
  if (data.ends_with(".zip")) {
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<UnpackedArchive> archive,
                            UnpackedArchive::Open(data, context));
    return UploadSamples(archive->samples().string(), client, context);
  }
  QUENCH_ASSIGN_OR_RETURN(std::vector<Sample> samples, SamplesIn(data));
  std::optional<TempDir> scratch;
  QUENCH_RETURN_IF_ERROR(ConvertTensorFiles(samples, scratch, context));
  std::vector<fs::path> paths;
  for (const Sample& sample : samples) paths.push_back(sample.file);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> digests, client.UploadFiles(paths, context));
  step::v1::SampleManifest manifest;
  for (size_t i = 0; i < samples.size(); ++i) {
    step::v1::File& file = *manifest.add_files();
    file.set_path(samples[i].path);
    *file.mutable_digest() = digests[i];
  }
  return manifest;
}

absl::StatusOr<Digest> UploadManifest(const step::v1::SampleManifest& manifest,
                                      GatewayClient& client, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Digest digest,
                          steps::StoreBytes(manifest.SerializeAsString(), client.local()));
  QUENCH_RETURN_IF_ERROR(
      client.UploadBlobs({{digest.hash(), static_cast<uint64_t>(digest.size_bytes())}}, context));
  return digest;
}

}  // namespace quench::cli
