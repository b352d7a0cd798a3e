// Numbers and tables for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quench::analyser {

std::string Grouped(int64_t value);  // 25557032: "25,557,032"
std::string Megabytes(int64_t bytes);
std::string Bar(double share);  // up to 20 characters
// A histogram with one character for each part, darker for more elements.
std::string Drawn(const std::vector<int64_t>& histogram);
// At most `width` characters: names differ at their end, types at their beginning.
std::string CutInFront(const std::string& text, size_t width);
std::string CutAtEnd(const std::string& text, size_t width);

// Columns as wide as their widest cell.
class TextTable {
 public:
  void AddColumn(const std::string& name, bool number);
  void AddRow(std::vector<std::string> cells);  // one per column
  std::string Text() const;

 private:
  std::vector<bool> numbers_;
  std::vector<std::vector<std::string>> rows_ = {{}};  // the first row has the names
};

}  // namespace quench::analyser
