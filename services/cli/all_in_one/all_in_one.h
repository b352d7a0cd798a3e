// Gateway and services in one process.
#pragma once

#include <vector>

#include "common/steps/main.h"

namespace quench::all_in_one {

// With a file of quench.config.v1.AllInOneConfig, if there is one, and the arguments over it.
absl::StatusOr<std::unique_ptr<steps::Serving>> Start(const steps::ServerArguments& arguments);

// The step functions of every service, for a child of the program.
std::vector<steps::Step> AllSteps();

}  // namespace quench::all_in_one
