#include "services/cli/input_flags.h"

#include <algorithm>

#include "common/base/status.h"

namespace quench::cli {

void AddInputFlags(const Options& options, const std::shared_ptr<InputFlags>& flags) {
  options.Add("--input,-i", flags->inputs,
              "Tensor for an input, from a .npy or .pb file; or what --shape says of it",
              "NAME=FILE|SHAPE[:f32]");
  options.Add("--random", flags->random, "Random values for inputs without a file", "SEED");
  options
      .Add("--size", flags->sizes,
           "Size of a symbolic dim for random inputs; only that of a batch may be left out",
           "NAME=N")
      .Needs({"--random"});
}

// Of `--input NAME=VALUE`: the value is a shape.
static bool GivesShape(const std::string& text) {
  const size_t equals = text.find('=');
  return equals != std::string::npos && IsShapeText(std::string_view(text).substr(equals + 1));
}

bool HasInputFiles(const InputFlags& flags) {
  return !std::all_of(flags.inputs.begin(), flags.inputs.end(), GivesShape);
}

void TakeInputShapes(InputFlags& flags, ModelOptions& model) {
  const auto first_shape = std::stable_partition(
      flags.inputs.begin(), flags.inputs.end(), [](const auto& text) { return !GivesShape(text); });
  model.input_shapes.insert(model.input_shapes.end(), first_shape, flags.inputs.end());
  flags.inputs.erase(first_shape, flags.inputs.end());
}

absl::StatusOr<InputSources> SourcesOf(const InputFlags& flags,
                                       std::span<const ArtifactTensor> inputs) {
  InputSources sources;
  sources.seed = flags.random;
  QUENCH_ASSIGN_OR_RETURN(sources.sizes, ParseSizes(flags.sizes));
  StatusCollector problems;
  for (const std::string& text : flags.inputs) {
    QUENCH_ASSIGN_OR_RETURN(const auto pair, SplitAssignment("--input", text));
    if (!inputs.empty()) {
      const absl::Status known = CheckInputName(inputs, pair.first);
      problems.Add(Annotate(known, "--input"));
      if (!known.ok()) continue;
    }
    absl::StatusOr<Tensor> tensor = ReadTensorFile(pair.second);
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
