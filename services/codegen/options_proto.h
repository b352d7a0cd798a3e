// Options of a compilation as messages of codegen's contract, and back: all of CompileOptions but the target,
// the passes and the UUID, which are messages and fields of their own.
#pragma once

#include <absl/status/statusor.h>

#include "quench/codegen/v1/codegen.pb.h"
#include "services/codegen/options/options.h"

namespace quench::codegen {

// INVALID_ARGUMENT names the field: "options.emit: ...".
absl::StatusOr<CompileOptions> FromProto(const v1::CompileOptions& message);
v1::CompileOptions ToProto(const CompileOptions& options);

}  // namespace quench::codegen
