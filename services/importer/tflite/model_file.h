// A TensorFlow Lite file, checked as a whole before any of it is used.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "services/importer/graph/weights.h"
#include "services/importer/tflite/schema_generated.h"

namespace quench::importer {

// Entries of a list that may be missing.
template <typename T>
uint32_t SizeOf(const flatbuffers::Vector<T>* list) {
  return list == nullptr ? 0 : list->size();
}

struct TfliteFile {
  std::shared_ptr<const FileMapping> mapping;
  const tflite::Model* model = nullptr;  // points into the mapping
};

// INVALID_ARGUMENT lists every invalid index in the file. A returned file has at least one subgraph, and
// all tensors, buffers, operators, operator codes and subgraphs that are referred to exist. No allocation
// depends on numbers that the file claims.
absl::StatusOr<TfliteFile> OpenTfliteFile(const std::filesystem::path& path);
bool LooksLikeTflite(std::span<const std::byte> bytes);

// The operator's name: "CONV_2D", or that of a custom operator. Its domain is "tflite", or
// "tflite.custom".
std::string OperatorName(const tflite::Model& model, const tflite::Operator& op);
std::string_view OperatorDomain(const tflite::Model& model, const tflite::Operator& op);
int OperatorVersion(const tflite::Model& model, const tflite::Operator& op);

// The subgraphs that an operator runs, by number.
std::vector<int64_t> SubgraphsOf(const tflite::Operator& op);

// UNIMPLEMENTED for strings, resources, variants.
absl::StatusOr<DataType> DataTypeOf(tflite::TensorType type);

// Whether the file has the tensor's contents.
bool IsConstant(const tflite::Model& model, const tflite::Tensor& tensor);
// The sizes in the file; -1 for sizes known only at run time.
std::vector<int64_t> DeclaredDims(const tflite::Tensor& tensor);
// A tensor with contents, as a constant; a sparse one becomes dense. Errors do not name the tensor.
absl::StatusOr<std::shared_ptr<const Constant>> AddConstant(const TfliteFile& file,
                                                            const tflite::Tensor& tensor,
                                                            WeightWriter& weights);

// The scale of a quantized tensor, or those of its slices along `axis`: real = (q - zero) * scale.
struct TensorScale {
  std::vector<double> scale;
  std::vector<int64_t> zero;  // as many as in `scale`
  int64_t axis = 0;
};
// An empty scale means that the tensor is not quantized. INVALID_ARGUMENT for lists of inconsistent
// lengths, UNIMPLEMENTED for scales of blocks.
absl::StatusOr<TensorScale> ScaleOf(const tflite::Tensor& tensor);

}  // namespace quench::importer
