#include "services/cli/labels.h"

#include <charconv>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runner/samples.h"
#include "services/cli/model_source.h"

namespace quench::cli {
namespace {

// One number a line.
absl::StatusOr<std::vector<int64_t>> ParseLabels(const std::string& path, std::string_view text) {
  std::vector<int64_t> labels;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!word.empty() && (word.back() == '\r' || word.back() == ' ')) word.remove_suffix(1);
    if (word.empty()) continue;
    int64_t label = 0;
    const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), label);
    if (error != std::errc() || last != word.data() + word.size()) {
      return InvalidArgument(
          "`{}`, line {}: `{}` is not a class number (expected one number per line)", path, line,
          word.substr(0, 40));
    }
    labels.push_back(label);
  }
  return labels;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ReadLabels(const std::string& path) {
  if (path.empty()) return std::vector<int64_t>();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return ClassesOfFolders(path);
  if (std::filesystem::path(path).extension() == ".npy") {
    QUENCH_ASSIGN_OR_RETURN(const Tensor tensor, ReadTensorFile(path));
    if (!IsInteger(tensor.dtype())) {
      return InvalidArgument("`{}` contains {}, but labels must be integers", path,
                             DataTypeName(tensor.dtype()));
    }
    return tensor.ToInts();
  }
  QUENCH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseLabels(path, text);
}

absl::StatusOr<std::vector<std::string>> ReadClassNames(const std::string& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> names;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    if (!name.empty() && name.back() == '\r') name.pop_back();
    names.push_back(std::move(name));
    begin = end + 1;
  }
  if (names.empty()) return InvalidArgument("`{}` has no class names, one a line", path);
  return names;
}

}  // namespace quench::cli
