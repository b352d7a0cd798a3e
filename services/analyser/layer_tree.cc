#include "services/analyser/layer_tree.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace quench::analyser {
namespace {

// Names come from files: levels beyond this stay together.
constexpr size_t kMostLevels = 64;

struct Scope {
  std::string name;
  int layer = -1;
  std::map<std::string, size_t> scopes;  // by their names
  std::vector<size_t> parts;             // scopes and layers, in order
};

// PyTorch writes "layer1/layer1.0/conv": the second says again what the first is.
std::vector<std::string> LevelsOf(const std::string& name) {
  std::vector<std::string> levels;
  std::string above;
  for (const absl::string_view part : absl::StrSplit(name, '/', absl::SkipEmpty())) {
    const bool again = !above.empty() && absl::StartsWith(part, above + ".");
    const std::string level(again ? part.substr(above.size() + 1) : part);
    above = std::string(part);
    if (levels.size() == kMostLevels) {
      absl::StrAppend(&levels.back(), "/", level);
    } else {
      levels.push_back(level);
    }
  }
  if (levels.empty()) levels.push_back(name);
  return levels;
}

// Index 0 is the model.
std::vector<Scope> ScopesOf(const ModelReport& report) {
  std::vector<Scope> all(1);
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const std::vector<std::string> levels = LevelsOf(report.layers[i].node);
    size_t at = 0;
    for (size_t level = 0; level + 1 < levels.size(); ++level) {
      const auto [found, fresh] = all[at].scopes.emplace(levels[level], all.size());
      const size_t next = found->second;
      if (fresh) {
        all[at].parts.push_back(next);
        all.push_back({levels[level], -1, {}, {}});
      }
      at = next;
    }
    all[at].parts.push_back(all.size());
    all.push_back({levels.back(), static_cast<int>(i), {}, {}});
  }
  return all;
}

class Writer {
 public:
  Writer(const ModelReport& report, const std::vector<Scope>& scopes)
      : report_(report), scopes_(scopes) {}

  // Adds a row for `scope` and those below it.
  void Add(size_t scope, int depth) {
    std::string name = scopes_[scope].name;
    while (scopes_[scope].parts.size() == 1) {
      scope = scopes_[scope].parts[0];
      absl::StrAppend(&name, "/", scopes_[scope].name);
    }
    const size_t row = rows_.size();
    rows_.push_back({.depth = depth, .name = name, .layer = scopes_[scope].layer});
    if (scopes_[scope].layer >= 0) {
      rows_[row].first = rows_[row].last = scopes_[scope].layer;
      const LayerReport& layer = report_.layers[static_cast<size_t>(scopes_[scope].layer)];
      rows_[row].work = layer.work;
      rows_[row].moved_bytes = layer.moved_bytes;
      rows_[row].predicted_seconds = layer.predicted_seconds;
      return;
    }
    rows_[row].layers = 0;
    rows_[row].first = static_cast<int>(report_.layers.size());
    for (const size_t part : scopes_[scope].parts) {
      const size_t below = rows_.size();
      Add(part, depth + 1);
      rows_[row].work += rows_[below].work;
      rows_[row].moved_bytes += rows_[below].moved_bytes;
      rows_[row].predicted_seconds += rows_[below].predicted_seconds;
      rows_[row].layers += rows_[below].layers;
      rows_[row].first = std::min(rows_[row].first, rows_[below].first);
      rows_[row].last = std::max(rows_[row].last, rows_[below].last);
    }
  }
  std::vector<TreeRow> Take() { return std::move(rows_); }

 private:
  const ModelReport& report_;
  const std::vector<Scope>& scopes_;
  std::vector<TreeRow> rows_;
};

}  // namespace

std::vector<TreeRow> LayerTree(const ModelReport& report, int depth) {
  const std::vector<Scope> scopes = ScopesOf(report);
  Writer writer(report, scopes);
  for (const size_t part : scopes[0].parts) writer.Add(part, 1);
  std::vector<TreeRow> rows = writer.Take();
  if (depth > 0) std::erase_if(rows, [depth](const TreeRow& row) { return row.depth > depth; });
  return rows;
}

}  // namespace quench::analyser
