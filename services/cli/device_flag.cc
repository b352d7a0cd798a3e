#include "services/cli/device_flag.h"

#include <fmt/format.h>

#include <iterator>

#include "common/runner/device.h"
#include "common/runtime/quench_rt.h"

namespace quench::cli {

Option AddDeviceFlag(const Options& options, std::string& device) {
  options.AddRule([&device] {
    return device.empty() || NamesDevice(device)
               ? ""
               : fmt::format("--device: `{}` is not cpu, cuda or cuda:N", device);
  });
  return options.Add(
      "--device", device,
      "Where to run: cpu, cuda, or cuda:1 for the second GPU; a gateway waits for a service "
      "that has it (default: a GPU if the library has code for it and there is one)",
      "cpu|cuda|cuda:N");
}

absl::Status CheckDeviceHere(const std::string& device) {
  const std::optional<uint32_t> gpu = GpuOf(device);
  quench_rt_gpu found = {};
  found.size = sizeof found;
  quench_rt_error error;
  if (!gpu || quench_rt_find_gpu(*gpu, &found, &error) == QUENCH_RT_OK) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("--device: {}", std::data(error.text)));
}

}  // namespace quench::cli
