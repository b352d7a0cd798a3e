// Numbers in reports: JSON has neither NaN nor infinities.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace quench::analyser {

// The number, or "nan", "inf" or "-inf".
inline nlohmann::json JsonNumber(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

}  // namespace quench::analyser
