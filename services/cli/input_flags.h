// The tensors that a command runs a model on.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/runner/images.h"
#include "common/runner/inputs.h"
#include "services/cli/model_source.h"
#include "services/cli/options.h"

namespace quench::cli {

struct InputFlags {
  std::vector<std::string> inputs;  // NAME=FILE
  std::optional<uint64_t> random;
  std::vector<std::string> sizes;  // NAME=N

  static constexpr char kHow[] = "--input NAME=FILE, or --random SEED";
};
// --input and --random; `sizes` come from --size of AddModelOptions (TakeDataSizes).
void AddInputFlags(const Options& options, const std::shared_ptr<InputFlags>& flags);
// The files are read; all that cannot be are named, and so are names that none of `inputs` has, where
// these are known (not empty).
// Pictures become tensors as `images` says; absent: they are refused.
absl::StatusOr<InputSources> SourcesOf(const InputFlags& flags,
                                       std::span<const ArtifactTensor> inputs,
                                       const std::optional<ImageOptions>& images = std::nullopt);

// Names of files for values: the value's name with `_` for each `/` and `:`, and behind it `_2`, `_3` and so on where
// another value has that file. Names in `values` that need no change keep theirs.
class FileNames {
 public:
  // `values`: all that there will be, where they are known.
  explicit FileNames(std::span<const std::string> values = {});
  std::string Of(const std::string& value);

 private:
  std::map<std::string, std::string> files_;  // by value
  std::set<std::string> taken_;
};

}  // namespace quench::cli
