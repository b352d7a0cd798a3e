#include "services/cli/best_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace quench::cli {
namespace {

constexpr int64_t kBest = 5;
constexpr int64_t kMostClasses = 100000;
constexpr size_t kMostRows = 8;

double ValueAt(const Tensor& tensor, int64_t index) {
  const double value =
      IsFloat(tensor.dtype()) ? tensor.FloatAt(index) : static_cast<double>(tensor.IntAt(index));
  return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
}

}  // namespace

bool HasClasses(const Tensor& output, const std::vector<std::string>& names) {
  if (!IsFloat(output.dtype()) && !IsInteger(output.dtype())) return false;
  if (output.rank() < 1 || output.rank() > 2 || output.size() == 0) return false;
  const int64_t columns = output.dims().back();
  if (names.empty()) return output.rank() == 2 && columns >= 2 && columns <= kMostClasses;
  return columns == static_cast<int64_t>(names.size());
}

nlohmann::json BestClasses(const Tensor& output, const std::vector<std::string>& names) {
  const int64_t columns = output.dims().back();
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t begin = 0; begin < output.size(); begin += columns) {
    std::vector<int64_t> order(static_cast<size_t>(columns));
    std::iota(order.begin(), order.end(), 0);
    const auto best = order.begin() + std::min(kBest, columns);
    std::partial_sort(order.begin(), best, order.end(), [&](int64_t a, int64_t b) {
      const double first = ValueAt(output, begin + a), second = ValueAt(output, begin + b);
      return first != second ? first > second : a < b;
    });
    nlohmann::json row = nlohmann::json::array();
    for (auto each = order.begin(); each != best; ++each) {
      row.push_back({{"class", *each}, {"value", ValueAt(output, begin + *each)}});
      if (!names.empty()) row.back()["name"] = names[static_cast<size_t>(*each)];
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void PrintBestClasses(const std::string& output, const nlohmann::json& best) {
  for (size_t row = 0; row < std::min(best.size(), kMostRows); ++row) {
    fmt::print("best of {}{}\n", output, best.size() > 1 ? fmt::format(", row {}", row) : "");
    for (const nlohmann::json& each : best[row]) {
      const auto index = each.at("class").get<int64_t>();
      fmt::print("  {:>10.4g}  {}\n", each.at("value").get<double>(),
                 each.contains("name")
                     ? fmt::format("{} ({})", each.at("name").get<std::string>(), index)
                     : fmt::format("class {}", index));
    }
  }
  if (best.size() > kMostRows)
    fmt::print("and {} rows more: --format json has them all\n", best.size() - kMostRows);
}

}  // namespace quench::cli
