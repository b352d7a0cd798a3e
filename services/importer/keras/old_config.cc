#include "services/importer/keras/old_config.h"

#include <array>
#include <utility>

namespace quench::importer {
namespace {

using Json = nlohmann::json;

constexpr std::pair<const char*, const char*> kClasses[] = {
    {"AtrousConvolution1D", "Conv1D"},
    {"AtrousConvolution2D", "Conv2D"},
    {"Convolution1D", "Conv1D"},
    {"Convolution2D", "Conv2D"},
    {"Convolution3D", "Conv3D"},
    {"Deconvolution2D", "Conv2DTranspose"},
    {"SeparableConvolution2D", "SeparableConv2D"},
};

constexpr std::pair<const char*, const char*> kKeys[] = {
    {"border_mode", "padding"},
    {"subsample", "strides"},
    {"bias", "use_bias"},
    {"atrous_rate", "dilation_rate"},
    {"nb_filter", "filters"},
    {"p", "rate"},
    {"pool_length", "pool_size"},
    {"stride", "strides"},
    {"subsample_length", "strides"},
    {"inner_activation", "recurrent_activation"},
    {"output_dim", "units"},
    {"length", "size"},
};

}  // namespace

void RenameOldConfig(std::string& class_name, Json& config) {
  for (const auto& [old, now] : kClasses) {
    if (class_name == old) class_name = now;
  }
  const bool embedding = class_name == "Embedding";
  for (const auto& [old, now] : kKeys) {
    if (embedding || !config.contains(old) || config.contains(now)) continue;
    config[now] = config[old];
  }
  const auto kernel = [&](std::initializer_list<const char*> sides) {
    Json sizes = Json::array();
    for (const char* side : sides) {
      if (!config.contains(side)) return;
      sizes.push_back(config[side]);
    }
    config["kernel_size"] = std::move(sizes);
  };
  kernel({"filter_length"});
  kernel({"nb_row", "nb_col"});
  kernel({"kernel_dim1", "kernel_dim2", "kernel_dim3"});
  const auto ordering = config.find("dim_ordering");
  if (ordering != config.end() && ordering->is_string())
    config["data_format"] = *ordering == "th" ? "channels_first" : "channels_last";
  if (class_name == "BatchNormalization" && config.contains("mode") && config["mode"] == 0 &&
      !config.contains("scale"))
    config["scale"] = config["center"] = true;
}

}  // namespace quench::importer
