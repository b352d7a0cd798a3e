// Names of devices, as OpenOptions::device takes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

namespace quench {

// The number of the GPU in "cuda", which is 0, or "cuda:1"; nothing for any other text.
inline std::optional<uint32_t> GpuOf(const std::string& device) {
  const std::string kGpu = "cuda";
  constexpr size_t kMostDigits = 6;  // as the runtime takes them
  if (device == kGpu) return 0;
  if (!device.starts_with(kGpu + ":")) return std::nullopt;
  const std::string number = device.substr(kGpu.size() + 1);
  const bool digits =
      std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (number.empty() || number.size() > kMostDigits || !digits) return std::nullopt;
  return static_cast<uint32_t>(std::strtoul(number.c_str(), nullptr, 10));
}

// Whether a text is one of "cpu", "cuda" and "cuda:N".
inline bool NamesDevice(const std::string& text) {
  return text == "cpu" || GpuOf(text).has_value();
}

}  // namespace quench
