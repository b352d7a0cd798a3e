#include "common/base/near_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace quench {

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = std::tolower(static_cast<unsigned char>(a[i - 1])) ==
                        std::tolower(static_cast<unsigned char>(b[j - 1]));
      const int replaced = diagonal + (same ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string> NearNames(std::string_view name, const std::vector<std::string>& known,
                                   int count) {
  constexpr size_t kLongest = 128;  // distances take the product of both lengths
  std::vector<std::pair<int, std::string>> ranked;
  const std::string_view bounded = name.substr(0, kLongest);
  for (const std::string& each : known)
    ranked.emplace_back(EditDistance(bounded, std::string_view(each).substr(0, kLongest)), each);
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(std::min(ranked.size(), static_cast<size_t>(std::max(count, 0))));
  std::vector<std::string> names;
  for (auto& [distance, near] : ranked) names.push_back(std::move(near));
  return names;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& known) {
  const int most = std::max<int>(1, static_cast<int>(name.size()) / 3);
  std::vector<std::string> near = NearNames(name, known, 2);
  std::erase_if(near, [&](const std::string& each) {
    return EditDistance(name, each) > most && !each.starts_with(name);
  });
  return near.empty() ? "" : fmt::format("; did you mean `{}`?", fmt::join(near, "` or `"));
}

}  // namespace quench
