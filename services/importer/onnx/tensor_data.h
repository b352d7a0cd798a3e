// From TensorProto to bytes: types and sizes are checked first, then the data flows in pieces.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/ir/tensor.h"
#include "quench/onnx/v1/onnx.pb.h"
#include "services/importer/graph/external_files.h"
#include "services/importer/graph/weights.h"

namespace quench::importer {

// Where the data of tensors lies that a skeleton left out.
struct TensorSources {
  std::span<const std::byte> file;    // the scanned file
  ExternalFiles* external = nullptr;  // null: external data is refused
};

// Checks data type, rank and dims. Allocates nothing.
absl::StatusOr<TensorHeader> HeaderOf(const onnx::v1::TensorProto& proto);

// Feeds the tensor's dense row-major little-endian bytes to `sink`, in pieces of at most 1 MiB,
// exactly `header.bytes` in all. That the source has as many is checked before the first piece. Not
// for strings.
absl::Status CopyTensorData(const onnx::v1::TensorProto& proto, const TensorHeader& header,
                            const TensorSources& sources, const ByteSink& sink);

// The tensor in memory. Allocates no more than its source has bytes (times 8 for packed numbers).
absl::StatusOr<Tensor> ReadTensor(const onnx::v1::TensorProto& proto, const TensorSources& sources);

// A sparse tensor made dense, of at most 256 MiB.
absl::StatusOr<Tensor> ReadSparseTensor(const onnx::v1::SparseTensorProto& proto,
                                        const TensorSources& sources);

// The tensor as a constant; large ones go into a blob. Errors name the tensor.
absl::StatusOr<std::shared_ptr<const Constant>> AddTensor(const onnx::v1::TensorProto& proto,
                                                          const TensorSources& sources,
                                                          WeightWriter& weights);

// Dtype of an `elem_type` or `data_type` number, kUndefined for 0; UNIMPLEMENTED for numbers Quench
// has no type for.
absl::StatusOr<DataType> DataTypeOf(int32_t number);

// Locations of all external data inside `message` (a model, a graph), each once, sorted.
std::vector<std::string> ExternalLocationsIn(const google::protobuf::Message& message);

}  // namespace quench::importer
