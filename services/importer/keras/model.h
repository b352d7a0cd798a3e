// The contents of a Keras configuration, whatever version wrote it: layers, how they are called,
// and what the model gives. It is checked before it is here.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quench::importer {

// An output of a call of a layer; by index.
struct TensorRef {
  int layer = -1;
  int call = 0;
  int output = 0;
  friend auto operator<=>(const TensorRef&, const TensorRef&) = default;
};

// The key of an object that stands for a tensor in the arguments of a call: {kTensorKey: number}.
inline constexpr char kTensorKey[] = "$tensor";

// One use of a layer. Tensors within the arguments are numbers of `tensors`.
struct KerasCall {
  std::vector<TensorRef> tensors;
  nlohmann::json args = nlohmann::json::array();
  nlohmann::json kwargs = nlohmann::json::object();
};

struct KerasModel;

struct KerasLayer {
  std::string class_name;
  std::string written_as;  // its class in the file, where that is another; "" if it is not
  std::string name;
  std::string domain;  // "keras" for layers, "keras.tf" and "keras.ops" for functions
  nlohmann::json config = nlohmann::json::object();
  std::vector<KerasCall> calls;
  std::shared_ptr<const KerasModel> model;  // of a layer that is a model
  // Layers that a wrapper runs: one for TimeDistributed; the forward and the backward one for Bidirectional.
  std::vector<KerasLayer> inner;
};

struct KerasModel {
  std::string name;
  bool sequential = false;
  std::vector<KerasLayer> layers;
  std::vector<TensorRef> inputs, outputs;  // inputs are of InputLayers
};

// INVALID_ARGUMENT for text that is not a configuration, with everything in it that does not fit together:
// calls of layers that are not there, cycles. `version` is the major version of the Keras that wrote
// it: 1, 2, 3.
absl::StatusOr<KerasModel> ParseKerasModel(std::string_view text, int version);

}  // namespace quench::importer
