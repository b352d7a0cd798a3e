// Statistics as messages: what is saved in files and sent between services.
#pragma once

#include <absl/status/statusor.h>

#include "quench/quantizer/v1/statistics.pb.h"
#include "services/quantizer/statistics.h"

namespace quench::quantizer {

v1::Statistics ToProto(const Statistics& statistics);
// INVALID_ARGUMENT names all values whose parts do not go together: nobody's calibration wrote it.
absl::StatusOr<Statistics> FromProto(const v1::Statistics& message);

}  // namespace quench::quantizer
