// Single tensors in files: the `.pb` form that ONNX's test data uses, a serialised TensorProto.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "common/ir/tensor.h"

namespace quench::importer {

// Reads a TensorProto of any size; external data is refused.
absl::StatusOr<Tensor> ReadTensorProto(const std::filesystem::path& path);

// Writes one, with raw data. The file appears whole or not at all. At most 2 GiB, protobuf's limit.
absl::Status WriteTensorProto(const Tensor& tensor, const std::string& name,
                              const std::filesystem::path& path);

}  // namespace quench::importer
