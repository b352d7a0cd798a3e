// Tensor -> TensorProto.
#pragma once

#include "common/ir/tensor.h"
#include "quench/onnx/v1/onnx.pb.h"

namespace quench::importer {

// Data type and dims.
void FillTensorHeader(const Tensor& tensor, onnx::v1::TensorProto& proto);
// Data type, dims and data (raw, strings in `string_data`); the name stays as it is.
void FillTensorProto(const Tensor& tensor, onnx::v1::TensorProto& proto);

}  // namespace quench::importer
