// Where a command runs a library: --device.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "services/cli/options.h"

namespace quench::cli {

// `device` becomes OpenOptions::device; a text that names no device is a usage error.
Option AddDeviceFlag(const Options& options, std::string& device);

// INVALID_ARGUMENT where a device is asked for and a gateway would do the work.
absl::Status RefuseDeviceThere(const std::string& device);

}  // namespace quench::cli
