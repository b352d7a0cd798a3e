// The steps that this program does as a child of itself.
#pragma once

#include <vector>

#include "common/steps/step.h"

namespace quench::cli {

// Those of every service.
std::vector<steps::Step> AllSteps();

}  // namespace quench::cli
