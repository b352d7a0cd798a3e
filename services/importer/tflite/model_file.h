// A TensorFlow Lite file, checked whole before anything of it is believed.
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
  const tflite::Model* model = nullptr;  // in the mapping
};

// INVALID_ARGUMENT lists every index of the file that points at nothing. A file that is returned
// has at least one subgraph; tensors, buffers, operators, operator codes and subgraphs that
// anything refers to exist. No allocation depends on numbers that the file claims.
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

// The tensor has its contents in the file.
bool IsConstant(const tflite::Model& model, const tflite::Tensor& tensor);
// Sizes as the file says them; -1 for those of the run.
std::vector<int64_t> DeclaredDims(const tflite::Tensor& tensor);
// A tensor with contents, as a constant; a sparse one becomes dense. Errors do not name the tensor.
absl::StatusOr<std::shared_ptr<const Constant>> AddConstant(const TfliteFile& file,
                                                            const tflite::Tensor& tensor,
                                                            WeightWriter& weights);

// Quantized with this scale, of each slice along `axis` if there are several: real = (q - zero) * scale.
struct TensorScale {
  std::vector<double> scale;
  std::vector<int64_t> zero;  // as many
  int64_t axis = 0;
};
// Empty scale: the tensor holds plain numbers. INVALID_ARGUMENT for lists that do not fit together,
// UNIMPLEMENTED for scales of blocks.
absl::StatusOr<TensorScale> ScaleOf(const tflite::Tensor& tensor);

}  // namespace quench::importer
