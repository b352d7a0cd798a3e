#include "services/cli/input_flags.h"

#include <algorithm>
#include <filesystem>

#include "common/base/status.h"

namespace quench::cli {

void AddInputFlags(const Options& all, const std::shared_ptr<InputFlags>& flags) {
  const Options options = all.In("Input");
  options.Add(
      "--input,-i", flags->inputs,
      "Tensor for an input, from a .npy or .pb file; NAME may be left out if there is one input",
      "NAME=FILE");
  options.Add("--random", flags->random, "Fill inputs that have no file with random values",
              "SEED");
}

static absl::StatusOr<Tensor> ReadPicture(const std::string& path, const ArtifactTensor& input,
                                          const std::optional<ImageOptions>& images) {
  if (!images) {
    return InvalidArgument(
        "`{}` is a picture, and nothing says how it is scaled: give --images SPEC (imagenet, unit, "
        "signed, bytes); `quench compile --images SPEC` records it in the library",
        path);
  }
  QUENCH_ASSIGN_OR_RETURN(const ImagePlace place, ImagePlaceOf(input));
  return ReadImage(path, place, input.dtype, *images, path);
}

static bool IsTensorFileName(const std::filesystem::path& path) {
  return IsImageFile(path) || path.extension() == ".npy" || path.extension() == ".pb";
}

absl::StatusOr<InputSources> SourcesOf(const InputFlags& flags,
                                       std::span<const ArtifactTensor> inputs,
                                       const std::optional<ImageOptions>& images) {
  InputSources sources;
  sources.seed = flags.random;
  QUENCH_ASSIGN_OR_RETURN(sources.sizes, ParseSizes(flags.sizes));
  StatusCollector problems;
  for (const std::string& text : flags.inputs) {
    std::error_code error;
    const bool file_only = inputs.size() == 1 && text.find('=') == std::string::npos &&
                           (std::filesystem::exists(text, error) || IsTensorFileName(text));
    QUENCH_ASSIGN_OR_RETURN(
        const auto pair,
        SplitAssignment("--input", file_only ? inputs[0].name + "=" + text : text));
    if (!inputs.empty()) {
      const absl::Status known = CheckInputName(inputs, pair.first);
      problems.Add(Annotate(known, "--input"));
      if (!known.ok()) continue;
    }
    const auto input = std::find_if(inputs.begin(), inputs.end(), [&](const ArtifactTensor& each) {
      return each.name == pair.first;
    });
    absl::StatusOr<Tensor> tensor = IsImageFile(pair.second) && input != inputs.end()
                                        ? ReadPicture(pair.second, *input, images)
                                        : ReadTensorFile(pair.second);
    problems.Add(Annotate(tensor.status(), fmt::format("input `{}`", pair.first)));
    if (tensor.ok()) sources.given[pair.first] = *std::move(tensor);
  }
  if (!problems.ok()) return problems.Finish();
  return sources;
}

FileNames::FileNames(std::span<const std::string> values) {
  for (const std::string& value : values) {
    if (value.find_first_of("/:") == std::string::npos && taken_.insert(value).second)
      files_[value] = value;
  }
}

std::string FileNames::Of(const std::string& value) {
  const auto [found, is_new] = files_.try_emplace(value);
  if (!is_new) return found->second;
  std::string plain = value;
  std::replace(plain.begin(), plain.end(), '/', '_');
  std::replace(plain.begin(), plain.end(), ':', '_');
  found->second = plain;
  for (int i = 2; !taken_.insert(found->second).second; ++i)
    found->second = fmt::format("{}_{}", plain, i);
  return found->second;
}

}  // namespace quench::cli
