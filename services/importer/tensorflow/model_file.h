// A TensorFlow model on disk: a graph, or a saved model with its signatures and variables.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "quench/tensorflow/v1/tensorflow.pb.h"
#include "services/importer/graph/external_files.h"
#include "services/importer/importer.h"
#include "services/importer/tensorflow/checkpoint.h"

namespace quench::importer {

struct TensorflowFile {
  std::shared_ptr<const FileMapping> mapping;  // the bytes of tensors that are left in the file
  bool is_saved_model = false;
  tf::GraphDef graph;
  std::map<std::string, tf::SignatureDef> signatures;
  tf::SaverDef saver;
  // Set for a saved model with variables; its files belong to `external`.
  std::shared_ptr<ExternalFiles> external;
  std::shared_ptr<Checkpoint> checkpoint;
};

// Whether the bytes are a graph or a saved model, binary or text.
bool LooksLikeTensorflow(std::span<const std::byte> bytes);

// INVALID_ARGUMENT for files that do not parse, graphs without nodes, nodes without a name or with
// the same name.
absl::StatusOr<TensorflowFile> OpenTensorflowFile(const std::filesystem::path& path,
                                                  const ImportOptions& options);

// The other files of a saved model: the index of its variables and their shards; none for a graph.
absl::StatusOr<std::vector<std::string>> TensorflowLocations(const std::filesystem::path& path,
                                                             const ImportOptions& options);

}  // namespace quench::importer
