// Reports as messages of codegen's contract, and back.
#pragma once

#include "quench/codegen/v1/codegen.pb.h"
#include "services/codegen/report.h"

namespace quench::codegen {

v1::CompileReport ToProto(const CompileReport& report);
CompileReport FromProto(const v1::CompileReport& message);

}  // namespace quench::codegen
