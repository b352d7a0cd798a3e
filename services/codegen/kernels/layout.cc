#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {
namespace {

constexpr std::string_view kAxes = "NCHW", kLanes = "nchw";

// A number that begins at `at`, which moves behind it; -1 where there is none below 2^20.
int64_t TakeNumber(std::string_view text, size_t& at) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number >= 1 << 20) return -1;
  at = static_cast<size_t>(end - text.data());
  return number;
}

// An axis by its letter or, in brackets, by its number; -1 where there is none.
int TakeAxis(std::string_view text, std::string_view letters, size_t& at) {
  if (at == text.size()) return -1;
  if (const size_t letter = letters.find(text[at]); letter != std::string_view::npos) {
    ++at;
    return static_cast<int>(letter);
  }
  if (text[at] != '[') return -1;
  ++at;
  const int64_t axis = TakeNumber(text, at);
  if (axis < 0 || at == text.size()) return -1;
  const bool closed = text[at] == ']';
  ++at;
  return closed ? static_cast<int>(axis) : -1;
}

}  // namespace

bool Layout::row_major() const {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int>(i)) return false;
  }
  return blocked_axis < 0 || block == 1;
}

std::string Layout::ToString() const {
  if (row_major()) return "row-major";
  // Letters of the usual activations; other axes by number.
  auto letter = [](int axis) {
    return axis < 4 ? std::string(1, kAxes[static_cast<size_t>(axis)]) : fmt::format("[{}]", axis);
  };
  std::string text;
  const size_t rank = order.empty() ? 4 : order.size();
  for (size_t i = 0; i < rank; ++i) text += letter(order.empty() ? static_cast<int>(i) : order[i]);
  if (blocked_axis >= 0 && block > 1) {
    std::string inner = letter(blocked_axis);
    for (char& c : inner) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    text += fmt::format("{}{}", block, inner);
  }
  return text;
}

std::optional<Layout> Layout::Parse(std::string_view text) {
  Layout layout;
  if (text == "row-major") return layout;
  size_t at = 0;
  while (at < text.size() && (text[at] < '0' || text[at] > '9')) {
    layout.order.push_back(TakeAxis(text, kAxes, at));
    if (layout.order.back() < 0) return std::nullopt;
  }
  std::vector<int> sorted = layout.order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int>(i)) return std::nullopt;
  }
  if (at < text.size()) {
    layout.block = TakeNumber(text, at);
    layout.blocked_axis = TakeAxis(text, kLanes, at);
    if (layout.block < 2 || layout.blocked_axis < 0 || at < text.size()) return std::nullopt;
  }
  if (layout.order == std::vector<int>{0, 1, 2, 3}) layout.order.clear();
  return layout.ToString() == text ? std::optional(layout) : std::nullopt;
}

}  // namespace quench::codegen
