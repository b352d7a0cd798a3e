// Tensors of TensorFlow's files: types and sizes are checked first, then the contents flow.
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

// UNIMPLEMENTED for types that Quench has none for. Variables that may be assigned have the type of
// what they hold; quantized types are the integers that they are.
absl::StatusOr<DataType> DataTypeOf(tf::ElementType type);

// Sizes, -1 for those of the run; nothing where not even the rank is known.
std::optional<std::vector<int64_t>> DimsOf(const tf::TensorShapeProto& shape);

// The sizes of a tensor that is there. INVALID_ARGUMENT for sizes that are not known or that no memory
// holds. Allocates nothing.
absl::StatusOr<TensorHeader> HeaderOf(tf::ElementType type, const tf::TensorShapeProto& shape);

// The tensor as a constant; large ones go into a blob. `file` is what the scanner read. Errors do not
// name the tensor. No more is allocated than `kMaxRepeated` bytes for elements that the file has once.
absl::StatusOr<std::shared_ptr<const Constant>> AddTensor(const tf::TensorProto& proto,
                                                          std::span<const std::byte> file,
                                                          const std::string& name,
                                                          WeightWriter& weights);
inline constexpr int64_t kMaxRepeatedBytes = int64_t{256} << 20;

}  // namespace quench::importer
