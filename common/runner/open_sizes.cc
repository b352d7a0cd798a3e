#include "common/runner/open_sizes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "common/base/status.h"
#include "common/ir/quoting.h"
#include "common/ir/symbols.h"

namespace quench {
namespace {

constexpr int64_t kPictureSide = 224, kLength = 64;

struct Open {
  int64_t min = 1, max = 0;
  bool first = true;     // the first axis of all inputs that have it, with others behind it
  bool picture = false;  // of an input of rank 4
};

bool IsCalledBatch(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name == "n" || name == "b" || name.find("batch") != std::string::npos;
}

std::map<std::string, Open> OpenDims(std::span<const ArtifactTensor> inputs) {
  std::map<std::string, Open> open;
  for (const ArtifactTensor& input : inputs) {
    for (size_t axis = 0; axis < input.dims.size(); ++axis) {
      const ArtifactDim& dim = input.dims[axis];
      if (dim.value >= 0) continue;
      Open& found = open[dim.symbol];
      found.min = dim.min;
      found.max = dim.max;
      found.first = found.first && axis == 0 && input.dims.size() > 1;
      found.picture = found.picture || input.dims.size() == 4;
    }
  }
  return open;
}

// A size to try, for whoever does not know the model.
int64_t Example(const Open& open) {
  const int64_t least = std::max<int64_t>(open.min, 1);
  return std::clamp(open.picture ? kPictureSide : kLength, least, std::max(open.max, least));
}

}  // namespace

absl::StatusOr<std::map<std::string, int64_t>> ChooseSizes(
    std::span<const ArtifactTensor> inputs, const std::map<std::string, int64_t>& given) {
  const std::map<std::string, Open> open = OpenDims(inputs);
  const bool named =
      std::ranges::any_of(open, [](const auto& dim) { return IsCalledBatch(dim.first); });
  std::map<std::string, int64_t> sizes;
  std::vector<std::string> unknown, asked, options;
  for (const auto& [name, size] : given) {
    if (open.contains(name)) {
      sizes[name] = size;
    } else {
      unknown.push_back(name);
    }
  }
  if (!unknown.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, dim] : open) names.push_back(name);
    return InvalidArgument("no input has a symbolic dim `{}`; {}", fmt::join(unknown, "`, `"),
                           names.empty() ? std::string("all dims of the inputs are fixed")
                                         : fmt::format("there are `{}`", fmt::join(names, "`, `")));
  }
  for (const auto& [name, dim] : open) {
    // Sizes that other dims determine ("2*n") follow from those.
    if (sizes.contains(name) || !IsIdentifier(name)) continue;
    if (IsCalledBatch(name) || (dim.first && !named)) {
      sizes[name] = std::max<int64_t>(dim.min, 1);
      continue;
    }
    asked.push_back(dim.max == kUnbounded ? fmt::format("`{}` ({} and more)", name, dim.min)
                                          : fmt::format("`{}` ({} to {})", name, dim.min, dim.max));
    options.push_back(fmt::format("--size {}={}", name, Example(dim)));
  }
  if (asked.empty()) return sizes;
  return InvalidArgument(
      "the model leaves {} open, and the result depends on {}: say at which, like `{}`",
      fmt::join(asked, ", "), asked.size() == 1 ? "it" : "them", fmt::join(options, " "));
}

int64_t BatchOf(std::span<const ArtifactTensor> inputs, std::span<const ArtifactTensor> outputs,
                const std::map<std::string, int64_t>& sizes) {
  if (inputs.empty() || inputs[0].dims.size() < 2) return 0;
  const ArtifactDim& batch = inputs[0].dims[0];
  const auto begins_so = [&](const ArtifactTensor& tensor, size_t least_rank) {
    return tensor.dims.size() >= least_rank && tensor.dims[0].value == batch.value &&
           tensor.dims[0].symbol == batch.symbol;
  };
  for (const ArtifactTensor& input : inputs) {
    if (!begins_so(input, 2)) return 0;
  }
  for (const ArtifactTensor& output : outputs) {
    if (!begins_so(output, 1)) return 0;
  }
  if (batch.value >= 0) return batch.value;
  const auto size = sizes.find(batch.symbol);
  return size == sizes.end() ? 0 : size->second;
}

std::string SizesText(const std::map<std::string, int64_t>& sizes) {
  std::vector<std::string> texts;
  for (const auto& [name, size] : sizes) texts.push_back(fmt::format("{}={}", name, size));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace quench
