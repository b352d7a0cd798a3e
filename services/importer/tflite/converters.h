// The functions named by rows of tflite_ops.def: one for each way an operator is converted.
#pragma once

#include "services/importer/tflite/convert.h"

namespace quench::importer::tflite_ops {

#define QUENCH_TFLITE_OP(name, canonical, converter) absl::Status converter(Converter& c);
#define QUENCH_TFLITE_CUSTOM(name, canonical, converter) absl::Status converter(Converter& c);
#include "services/importer/tflite/tflite_ops.def"
#undef QUENCH_TFLITE_CUSTOM
#undef QUENCH_TFLITE_OP

}  // namespace quench::importer::tflite_ops
