// Methods: from what calibration saw of a value to the range that its integers will cover. One file
// per method, one row in methods.def.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <string_view>

#include "services/quantizer/scheme.h"
#include "services/quantizer/statistics.h"

namespace quench::quantizer {

struct MethodOptions {
  double percentile = 99;  // (50, 100]
  Scheme scheme;           // that the range will be mapped by
};

struct MethodInfo {
  std::string_view name;
  std::string_view doc;  // one line
  // `statistics` has at least one element.
  Range (*choose)(const TensorStatistics& statistics, const MethodOptions& options);
};

std::span<const MethodInfo> AllMethods();
// INVALID_ARGUMENT lists the methods there are. "" is the default.
absl::StatusOr<const MethodInfo*> FindMethod(std::string_view name);

#define QUENCH_METHOD(name, function, doc) \
  Range function(const TensorStatistics& statistics, const MethodOptions& options);
#include "services/quantizer/methods/methods.def"
#undef QUENCH_METHOD

}  // namespace quench::quantizer
