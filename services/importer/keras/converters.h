// The functions named by rows of keras_layers.def: one for each way a layer is converted.
#pragma once

#include "services/importer/keras/convert.h"

namespace quench::importer::keras_layers {

#define QUENCH_KERAS_LAYER(name, canonical, converter, weights) \
  absl::Status converter(Converter& c);
#define QUENCH_KERAS_FUNCTION(domain, name, canonical, converter, arguments) \
  absl::Status converter(Converter& c);
#include "services/importer/keras/keras_layers.def"
#undef QUENCH_KERAS_FUNCTION
#undef QUENCH_KERAS_LAYER

// Images with channels first -> [.., height, width], as tf.image.resize does it in `mode` ("nearest",
// "bilinear", "bicubic").
absl::StatusOr<ValueId> ResizeImages(KerasNode& n, ValueId x, const std::string& mode,
                                     int64_t height, int64_t width);

}  // namespace quench::importer::keras_layers
