#include "services/cli/model_files.h"

#include <absl/strings/str_split.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "common/base/status.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

bool IsPattern(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

// Adds the paths that `parts[at...]` match below `folder`.
void Expand(const fs::path& folder, const std::vector<std::string>& parts, size_t at,
            std::set<fs::path>* found) {
  std::error_code error;
  const fs::path here = folder.empty() ? fs::path(".") : folder;
  const std::string& part = parts[at];
  const bool last = at + 1 == parts.size();
  if (part == "**") {
    if (last) return;
    Expand(folder, parts, at + 1, found);
    // Folders that are links are not followed: they may lead back.
    for (const fs::directory_entry& entry : fs::directory_iterator(here, error)) {
      if (entry.is_directory(error) && !entry.is_symlink(error))
        Expand(folder / entry.path().filename(), parts, at, found);
    }
    return;
  }
  if (!IsPattern(part)) {
    const fs::path path = folder / part;
    if (!fs::exists(path, error)) return;
    if (last) {
      found->insert(path);
    } else {
      Expand(path, parts, at + 1, found);
    }
    return;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(here, error)) {
    const std::string name = entry.path().filename().string();
    if (::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
    if (last) {
      found->insert(folder / name);
    } else if (entry.is_directory(error)) {
      Expand(folder / name, parts, at + 1, found);
    }
  }
}

// The folder that names of a pattern's models begin below.
fs::path RootOf(const std::string& pattern) {
  fs::path root;
  for (const fs::path& part : fs::path(pattern).parent_path()) {
    if (IsPattern(part.string())) break;
    root /= part;
  }
  return root;
}

std::string NameOf(const fs::path& path, const fs::path& root) {
  fs::path below = path.lexically_relative(root.empty() ? fs::path(".") : root);
  if (below.empty() || *below.begin() == "..") below = path.filename();
  below.replace_extension();
  std::string name = below.generic_string();
  for (char& c : name) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-' || c == '.';
    if (!kept) c = c == '/' ? '.' : '_';
  }
  return name.substr(0, 200);
}

}  // namespace

absl::StatusOr<std::vector<FleetModel>> FindModels(const std::vector<std::string>& patterns) {
  std::map<fs::path, std::string> names;  // by path
  StatusCollector problems;
  for (const std::string& pattern : patterns) {
    std::set<fs::path> found;
    std::error_code error;
    if (fs::exists(pattern, error)) {
      found.insert(fs::path(pattern));
    } else {
      const fs::path path = fs::path(pattern).lexically_normal();
      const std::vector<std::string> parts =
          absl::StrSplit(path.relative_path().generic_string(), '/', absl::SkipEmpty());
      if (!parts.empty()) Expand(path.root_path(), parts, 0, &found);
    }
    if (found.empty()) {
      const char* const why = IsPattern(pattern) ? "no file matches" : "there is no file";
      problems.Add(absl::NotFoundError(fmt::format("{} `{}`", why, pattern)));
    }
    for (const fs::path& path : found)
      names.emplace(path.lexically_normal(), NameOf(path.lexically_normal(), RootOf(pattern)));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  std::vector<FleetModel> models;
  std::set<std::string> taken;
  for (const auto& [path, name] : names) {
    std::string unique = name.empty() ? "model" : name;
    for (int i = 2; !taken.insert(unique).second; ++i) unique = fmt::format("{}-{}", name, i);
    models.push_back({path.string(), unique});
  }
  return models;
}

}  // namespace quench::cli
