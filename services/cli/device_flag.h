// Where a command runs a library: --device.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "services/cli/options.h"

namespace quench::cli {

// `device` becomes OpenOptions::device; a text that names no device is a usage error.
Option AddDeviceFlag(const Options& options, std::string& device);

// FAILED_PRECONDITION if `device` is a GPU that this machine does not have.
absl::Status CheckDeviceHere(const std::string& device);

}  // namespace quench::cli
