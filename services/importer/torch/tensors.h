// Tensors as PyTorch's pickles describe them: a storage in the archive, a shape and strides.
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
  std::vector<double> scale;  // one, or one for each index of `axis`; none: not quantized
  std::vector<int64_t> zero;
  int64_t axis = 0;
};

struct TorchTensor {
  Tensor tensor;  // a view of the archive where that is dense
  TorchScale scale;
};

// torch.ScalarType, as TorchScript and pickles number it.
absl::StatusOr<DataType> DataTypeOfScalarType(int64_t scalar_type);
int64_t ScalarTypeOf(DataType dtype);
// "float32", "FloatStorage", "quint8" ...; kUndefined for others.
DataType DataTypeOfTorchName(std::string_view name);

// A tensor in `storage`, counted in elements. A dense one shares the storage's bytes; another is copied, and may
// have at most 256 Mi elements more than its storage.
absl::StatusOr<Tensor> StridedTensor(DataType dtype, const TorchBytes& storage, int64_t offset,
                                     const std::vector<int64_t>& dims,
                                     const std::vector<int64_t>& strides);

// Gives the storage of that key, as the pickle names it.
using StorageReader = std::function<absl::StatusOr<TorchBytes>(const std::string& key)>;

// `value` is a tensor, or a parameter, in a pickle.
bool IsTensor(const Pickled& value);
absl::StatusOr<TorchTensor> ReadTensor(const Pickled& value, const StorageReader& storages);

}  // namespace quench::importer
