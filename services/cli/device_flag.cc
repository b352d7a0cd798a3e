#include "services/cli/device_flag.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"

namespace quench::cli {
namespace {

bool NamesDevice(const std::string& text) {
  constexpr std::string_view kGpu = "cuda:";
  if (text == "cpu" || text == "cuda") return true;
  return text.size() > kGpu.size() && text.compare(0, kGpu.size(), kGpu) == 0 &&
         std::all_of(text.begin() + kGpu.size(), text.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Option AddDeviceFlag(const Options& options, std::string& device) {
  options.AddRule([&device] {
    return device.empty() || NamesDevice(device)
               ? ""
               : fmt::format("--device: `{}` is not cpu, cuda or cuda:N", device);
  });
  return options.Add("--device", device,
                     "Where to run: cpu, cuda, or cuda:1 for the second GPU (default: a GPU if the "
                     "library has code for it and there is one)",
                     "cpu|cuda|cuda:N");
}

absl::Status RefuseDeviceThere(const std::string& device) {
  if (device.empty()) return absl::OkStatus();
  return InvalidArgument(
      "--device: it names devices of this machine, and a gateway runs libraries on its own; remove "
      "--gateway (or QUENCH_GATEWAY) to run here");
}

}  // namespace quench::cli
