// A Keras file, whichever of its forms: the configuration and the weights.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "services/importer/importer.h"
#include "services/importer/keras/hdf5_file.h"
#include "services/importer/keras/model.h"

namespace quench::importer {

struct KerasFile {
  KerasModel model;
  int version = 2;         // major, of the Keras that wrote it
  std::string written_by;  // "2.4.0", "" if it does not say
  Hdf5File weights;
  bool is_archive = false;  // .keras: weights by numbers within layers
  std::string root;         // of the weights: "model_weights/", or ""
};

// HDF5, or a zip archive of Keras 3.
bool LooksLikeKeras(std::span<const std::byte> bytes);

// The configuration comes from the file, or from `options.architecture` where the file has weights alone.
absl::StatusOr<KerasFile> OpenKerasFile(const std::filesystem::path& path,
                                        const ImportOptions& options, const StepContext& context);

// One weight of a layer: what it is to the layer, and where it lies.
struct LayerWeight {
  std::string role;  // "kernel"
  std::string path;
  const Hdf5Dataset* data = nullptr;
};
// Weights of layers that compute, including those within models and wrappers.
using LayerWeights = std::map<const KerasLayer*, std::vector<LayerWeight>>;

// The weights of every layer of the model, each named by what the rows of keras_layers.def say it is.
// INVALID_ARGUMENT lists the layers whose weights are missing, too many, or not readable.
absl::StatusOr<LayerWeights> WeightsOf(const KerasFile& file);

}  // namespace quench::importer
