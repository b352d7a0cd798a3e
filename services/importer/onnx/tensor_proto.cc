#include "services/importer/onnx/tensor_proto.h"

namespace quench::importer {

void FillTensorHeader(const Tensor& tensor, onnx::v1::TensorProto& proto) {
  proto.set_data_type(static_cast<int>(tensor.dtype()));
  for (const int64_t dim : tensor.dims()) proto.add_dims(dim);
}

void FillTensorProto(const Tensor& tensor, onnx::v1::TensorProto& proto) {
  FillTensorHeader(tensor, proto);
  if (tensor.dtype() == DataType::kString) {
    for (const std::string& text : tensor.strings()) proto.add_string_data(text);
    return;
  }
  proto.set_raw_data(tensor.bytes().data(), tensor.bytes().size());
}

}  // namespace quench::importer
