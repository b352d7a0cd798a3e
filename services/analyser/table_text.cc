#include "services/analyser/table_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quench::analyser {

std::string Grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string Megabytes(int64_t bytes) {
  return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
}

std::string Bar(double share) {
  return std::string(static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * 20)), '#');
}

std::string Drawn(const std::vector<int64_t>& histogram) {
  constexpr std::string_view kShades = " .:-=+*#%@";
  int64_t most = 1;
  for (const int64_t count : histogram) most = std::max(most, count);
  std::string text;
  for (const int64_t count : histogram) {
    const double share = static_cast<double>(count) / static_cast<double>(most);
    const auto shade = static_cast<size_t>(share * static_cast<double>(kShades.size() - 1));
    text += kShades[count > 0 ? std::max<size_t>(shade, 1) : 0];
  }
  return text;
}

std::string CutInFront(const std::string& text, size_t width) {
  return text.size() <= width ? text : "..." + text.substr(text.size() - width + 3);
}

std::string CutAtEnd(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

void TextTable::AddColumn(const std::string& name, bool number) {
  numbers_.push_back(number);
  rows_[0].push_back(name);
}

void TextTable::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string TextTable::Text() const {
  std::vector<size_t> widths(numbers_.size(), 0);
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += numbers_[i] ? fmt::format("{:>{}}", row[i], widths[i])
                          : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace quench::analyser
