// Tensors of TensorFlow's files: types and sizes are checked before the contents are read.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <memory>
#include <span>

#include "common/ir/graph.h"
#include "quench/tensorflow/v1/tensorflow.pb.h"
#include "services/importer/graph/weights.h"

namespace quench::importer {

namespace tf = ::quench::tensorflow::v1;

// UNIMPLEMENTED for types that Quench lacks. Variables that may be assigned have the type of their
// contents; quantized types become plain integers.
absl::StatusOr<DataType> DataTypeOf(tf::ElementType type);

// Sizes, -1 for sizes known only at run time; nothing if the rank is unknown.
std::optional<std::vector<int64_t>> DimsOf(const tf::TensorShapeProto& shape);

// The sizes of a tensor with contents. INVALID_ARGUMENT for sizes that are unknown or too large for any
// memory. Allocates nothing.
absl::StatusOr<TensorHeader> HeaderOf(tf::ElementType type, const tf::TensorShapeProto& shape);

// The tensor as a constant; large ones go into a blob. `file` is the scanned file. Errors do not
// name the tensor. At most `kMaxRepeated` bytes are allocated for elements that the file has only once.
absl::StatusOr<std::shared_ptr<const Constant>> AddTensor(const tf::TensorProto& proto,
                                                          std::span<const std::byte> file,
                                                          const std::string& name,
                                                          WeightWriter& weights);
inline constexpr int64_t kMaxRepeatedBytes = int64_t{256} << 20;

}  // namespace quench::importer
