#include <fmt/format.h>

#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

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
    return axis < 4 ? std::string(1, "NCHW"[axis]) : fmt::format("[{}]", axis);
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

}  // namespace quench::codegen
