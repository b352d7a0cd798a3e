// Writes small TensorFlow Lite models that between them have what the reader knows: seeds for
// fuzz_tflite. Usage: fuzz_tflite_seeds FOLDER
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/support/tflite_models.h"

namespace {

namespace tflite = quench::tflite;
using quench::DataType;
using quench::Tensor;
using quench::testing::Steps;
using quench::testing::TfliteModel;

constexpr auto kFloat = tflite::TensorType_FLOAT32;
constexpr auto kInt8 = tflite::TensorType_INT8;

TfliteModel Layers() {
  TfliteModel model;
  const int x = model.Input("x", kInt8, {1, 4, 4, 2}, {{0.5f}, {1}});
  const int w =
      model.Constant("w", Tensor::Zeros(DataType::kI8, {2, 3, 3, 2}), {{0.25f, 0.5f}, {0, 0}, 0});
  const int b = model.Constant("b", Tensor::Zeros(DataType::kI32, {2}), {{0.1f, 0.2f}, {0, 0}, 0});
  const int y = model.Tensor("y", kInt8, {1, 4, 4, 2}, {{0.5f}, {0}});
  const int flat = model.Tensor("flat", kInt8, {1, 32}, {{0.5f}, {0}});
  tflite::Conv2DOptionsT options;
  options.stride_h = options.stride_w = 1;
  model.Op(tflite::BuiltinOperator_CONV_2D, {x, w, b}, {y}, options);
  const int shape =
      model.Constant("shape", Tensor::Of(DataType::kI32, {2}, std::vector<int32_t>{1, -1}));
  model.Op(tflite::BuiltinOperator_RESHAPE, {y, shape}, {flat});
  model.Outputs({flat});
  return model;
}

TfliteModel Loop() {
  TfliteModel model;
  const size_t condition = model.AddSubgraph(), body = model.AddSubgraph();
  model.Select(condition);
  const int i = model.Input("i", kFloat, {});
  const int less = model.Tensor("less", tflite::TensorType_BOOL, {});
  model.Op(tflite::BuiltinOperator_LESS, {i, model.Constant("five", Tensor::ScalarF32(5))}, {less});
  model.Outputs({less}).Select(body);
  const int j = model.Input("j", kFloat, {}), next = model.Tensor("next", kFloat, {});
  model.Op(tflite::BuiltinOperator_ADD, {j, model.Constant("one", Tensor::ScalarF32(1))}, {next});
  model.Outputs({next}).Select(0);
  const int x = model.Input("x", kFloat, {}), y = model.Tensor("y", kFloat, {});
  tflite::WhileOptionsT options;
  options.cond_subgraph_index = static_cast<int>(condition);
  options.body_subgraph_index = static_cast<int>(body);
  model.Op(tflite::BuiltinOperator_WHILE, {x}, {y}, options);
  model.Outputs({y});
  return model;
}

// Every operator once, with one float input, two and three: most are refused for their arguments.
TfliteModel Each(int inputs) {
  TfliteModel model;
  std::vector<int> given;
  for (int i = 0; i < inputs; ++i) given.push_back(model.Input("x", kFloat, {1, 2, 2, 2}));
  std::vector<int> outputs;
  for (const tflite::BuiltinOperator op : tflite::EnumValuesBuiltinOperator()) {
    outputs.push_back(model.Tensor("y", kFloat, {1, 2, 2, 2}));
    model.Op(op, given, {outputs.back()});
  }
  model.Outputs(outputs);
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_tflite_seeds FOLDER\n";
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  int number = 0;
  for (const TfliteModel& model : {Layers(), Loop(), Each(1), Each(2), Each(3)}) {
    std::ofstream(std::filesystem::path(argv[1]) / (std::to_string(number++) + ".tflite"),
                  std::ios::binary)
        << model.Bytes();
  }
  return 0;
}
