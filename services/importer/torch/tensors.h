// Tensors as described in PyTorch's pickles: a storage in the archive, a shape and strides.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>
#include <vector>

#include "common/ir/tensor.h"
#include "services/importer/torch/archive.h"
#include "services/importer/torch/pickle.h"

namespace quench::importer {

// The meaning of a quantized tensor's numbers.
struct TorchScale {
  std::vector<double> scale;  // one, or one for each index of `axis`; empty: not quantized
  std::vector<int64_t> zero;
  int64_t axis = 0;
};

struct TorchTensor {
  Tensor tensor;  // a view of the archive if dense
  TorchScale scale;
};

// The element type for a number of torch.ScalarType, as in TorchScript and pickles.
absl::StatusOr<DataType> DataTypeOfScalarType(int64_t scalar_type);
int64_t ScalarTypeOf(DataType dtype);
// "float32", "FloatStorage", "quint8" ...; kUndefined for others.
DataType DataTypeOfTorchName(std::string_view name);

// A tensor in `storage`; offset and strides count elements. A dense one shares the storage's bytes; any other is
// copied, and may have at most 256 Mi elements more than its storage.
absl::StatusOr<Tensor> StridedTensor(DataType dtype, const TorchBytes& storage, int64_t offset,
                                     const std::vector<int64_t>& dims,
                                     const std::vector<int64_t>& strides);

// Gives the storage with this key of the pickle.
using StorageReader = std::function<absl::StatusOr<TorchBytes>(const std::string& key)>;

// `value` is a tensor, or a parameter, in a pickle.
bool IsTensor(const Pickled& value);
absl::StatusOr<TorchTensor> ReadTensor(const Pickled& value, const StorageReader& storages);

}  // namespace quench::importer
