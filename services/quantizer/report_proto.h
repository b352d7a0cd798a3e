// The quantization report in the message of its result.
#pragma once

#include "quench/quantizer/v1/quantizer.pb.h"
#include "services/quantizer/report.h"

namespace quench::quantizer {

void FillReport(const QuantizeReport& report, v1::QuantizeResult& result);
QuantizeReport ReportOf(const v1::QuantizeResult& result);

}  // namespace quench::quantizer
