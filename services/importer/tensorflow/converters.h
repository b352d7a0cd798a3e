// The functions named by rows of tensorflow_ops.def: one for each way an operator is converted.
#pragma once

#include "services/importer/tensorflow/convert.h"

namespace quench::importer::tensorflow_ops {

#define QUENCH_TF_OP(name, canonical, converter, outputs) absl::Status converter(Converter& c);
#define QUENCH_TF_SAME(name, tflite, outputs)
#define QUENCH_TF_FLOW(name, canonical, outputs)
#include "services/importer/tensorflow/tensorflow_ops.def"
#undef QUENCH_TF_FLOW
#undef QUENCH_TF_SAME
#undef QUENCH_TF_OP

}  // namespace quench::importer::tensorflow_ops
