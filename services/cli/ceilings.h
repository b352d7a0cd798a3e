// Ceilings of the roofline, as --ceilings takes them.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "common/base/context.h"
#include "services/analyser/analyser.h"

namespace quench::cli {

// `text` is "host" (measured on all cores of this machine, once: then kept in the user's cache), a
// target, or GFLOPS,GBYTES. INVALID_ARGUMENT and UNIMPLEMENTED say what would be right.
absl::StatusOr<analyser::Ceilings> CeilingsOf(const std::string& text, const StepContext& context);

// Measures this machine, where nothing else should run meanwhile, and keeps that for CeilingsOf("host").
absl::StatusOr<analyser::Ceilings> MeasureHost(const StepContext& context);

}  // namespace quench::cli
