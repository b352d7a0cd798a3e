// TensorFlow Lite models: what they compute, as graphs and as numbers.

#include <flatbuffers/flexbuffers.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"
#include "tests/support/tflite_models.h"

namespace quench::importer::tflite_test {
namespace {

using testing::ErrorOf;
using testing::F32;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::Steps;
using testing::TfliteModel;

constexpr auto kFloat = tflite::TensorType_FLOAT32;
constexpr auto kInt8 = tflite::TensorType_INT8;
constexpr auto kInt32 = tflite::TensorType_INT32;
constexpr auto kBoolean = tflite::TensorType_BOOL;

Tensor I8(const std::vector<int64_t>& dims, const std::vector<int8_t>& values) {
  return Tensor::Of(DataType::kI8, dims, values);
}
Tensor I32(const std::vector<int64_t>& dims, const std::vector<int32_t>& values) {
  return Tensor::Of(DataType::kI32, dims, values);
}

std::vector<float> Floats(const Tensor& tensor) {
  const auto values = tensor.as<float>();
  return {values.begin(), values.end()};
}

absl::StatusOr<Imported> Import(const TfliteModel& model, const ImportOptions& options = {}) {
  static auto* const folder = new ImportFolder();
  return ImportModel(folder->Write("model.tflite", model.Bytes()), options, folder->store());
}

// Outputs of the model, and of what the passes make of it: they are the same.
std::vector<Tensor> Results(const TfliteModel& model, const std::vector<Tensor>& inputs,
                            const ImportOptions& options = {}) {
  const absl::StatusOr<Imported> imported = Import(model, options);
  EXPECT_TRUE(imported.ok()) << MessageOf(imported.status());
  if (!imported.ok()) return {};
  EXPECT_TRUE(VerifyGraph(imported->imported).ok());
  auto results = ops::Evaluate(imported->canonical, inputs);
  EXPECT_TRUE(results.ok()) << MessageOf(results.status());
  const auto passed = passes::RunPipeline(imported->canonical, {}, {});
  EXPECT_TRUE(passed.ok()) << MessageOf(passed.status());
  const auto again = ops::Evaluate(*passed, inputs);
  EXPECT_TRUE(again.ok()) << MessageOf(again.status());
  for (size_t i = 0; results.ok() && again.ok() && i < results->size(); ++i)
    EXPECT_LE(RelativeError((*again)[i], (*results)[i]), 1e-6);
  return results.ok() ? *results : std::vector<Tensor>();
}

std::string ImportError(const TfliteModel& model, const ImportOptions& options = {}) {
  return ErrorOf(Import(model, options).status());
}

TfliteModel Sum() {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {2}), y = model.Tensor("y", kFloat, {2});
  const int one = model.Constant("one", F32({1}, {1}));
  tflite::AddOptionsT options;
  options.fused_activation_function = tflite::ActivationFunctionType_RELU;
  model.Op(tflite::BuiltinOperator_ADD, {x, one}, {y}, options);
  model.Outputs({y});
  return model;
}

TEST(Tflite, OperatorsKeepTheirNamesAndOptions) {
  const absl::StatusOr<Imported> imported = Import(Sum());
  ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
  const Node& node = imported->imported.nodes.at(0);
  EXPECT_EQ(node.op, "ADD");
  EXPECT_EQ(node.domain, "tflite");
  EXPECT_EQ(node.name, "y");
  EXPECT_EQ(node.Int("fused_activation_function", -1), 1);
  EXPECT_EQ(imported->canonical.value(imported->canonical.outputs[0]).name, "y");
  EXPECT_EQ(Floats(Results(Sum(), {F32({2}, {-3, 2})})[0]), (std::vector<float>{0, 3}));
}

// 1x1 kernels that sum and subtract channels: their order is visible.
TEST(Tflite, ConvolutionsHaveChannelsLast) {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {1, 1, 2, 2}), y = model.Tensor("y", kFloat, {1, 1, 2, 3});
  const int w = model.Constant("w", F32({3, 1, 1, 2}, {1, 1, 1, -1, 10, 0}));
  const int b = model.Constant("b", F32({3}, {0, 0, 0.5}));
  tflite::Conv2DOptionsT options;
  options.padding = tflite::Padding_VALID;
  options.stride_h = options.stride_w = 1;
  model.Op(tflite::BuiltinOperator_CONV_2D, {x, w, b}, {y}, options);
  model.Outputs({y});
  EXPECT_EQ(Floats(Results(model, {F32({1, 1, 2, 2}, {1, 2, 3, 5})})[0]),
            (std::vector<float>{3, -1, 10.5, 8, -2, 30.5}));
}

TEST(Tflite, DepthwiseConvolutionsMultiplyChannels) {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {1, 2, 1, 2}), y = model.Tensor("y", kFloat, {1, 2, 1, 4});
  const int w = model.Constant("w", F32({1, 2, 1, 4}, {1, 2, 3, 4, 10, 20, 30, 40}));
  tflite::DepthwiseConv2DOptionsT options;
  options.padding = tflite::Padding_SAME;
  options.stride_h = options.stride_w = 1;
  options.depth_multiplier = 2;
  model.Op(tflite::BuiltinOperator_DEPTHWISE_CONV_2D, {x, w}, {y}, options);
  model.Outputs({y});
  // Rows (1, 2) and (5, 7); SAME adds a row of zeros behind.
  EXPECT_EQ(Floats(Results(model, {F32({1, 2, 1, 2}, {1, 2, 5, 7})})[0]),
            (std::vector<float>{51, 102, 216, 288, 5, 10, 21, 28}));
}

TEST(Tflite, QuantizedLayersComputeInSteps) {
  TfliteModel model;
  const int x = model.Input("x", kInt8, {1, 2}, {{0.5f}, {-10}});
  const int w = model.Constant("w", I8({2, 2}, {2, -4, 6, 8}), {{0.25f, 0.5f}, {0, 0}, 0});
  const int b = model.Constant("b", I32({2}, {8, -4}), {{0.125f, 0.25f}, {0, 0}, 0});
  const int y = model.Tensor("y", kInt8, {1, 2}, {{0.5f}, {3}});
  model.Op(tflite::BuiltinOperator_FULLY_CONNECTED, {x, w, b}, {y},
           tflite::FullyConnectedOptionsT());
  model.Outputs({y});
  // x is (2, -1): 2 * 0.5 + -1 * -1 + 1 = 3 and 2 * 3 + -1 * 4 - 1 = 1.
  const std::vector<Tensor> result = Results(model, {I8({1, 2}, {-6, -12})});
  ASSERT_EQ(result.size(), 1u);
  EXPECT_EQ(result[0].ToInts(), (std::vector<int64_t>{9, 5}));
  const absl::StatusOr<Imported> imported = Import(model);
  EXPECT_EQ(imported->imported.metadata.at("quantization.x"), "scale 0.5 zero_point -10");
}

// y = x + 1 in steps of 0.5.
TfliteModel Increment(tflite::TensorType type, int64_t zero) {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {2}), one = model.Constant("one", F32({2}, {1, 1}));
  const int y = model.Tensor("y", type, {2}, {{0.5f}, {zero}});
  model.Op(tflite::BuiltinOperator_ADD, {x, one}, {y});
  model.Outputs({y});
  return model;
}

TEST(Tflite, StepsMayHaveManyBits) {
  const auto steps = [](tflite::TensorType type, int64_t zero) {
    return Results(Increment(type, zero), {F32({2}, {-3, 49})})[0].ToInts();
  };
  EXPECT_EQ(steps(tflite::TensorType_UINT16, 7), (std::vector<int64_t>{3, 107}));
  EXPECT_EQ(steps(tflite::TensorType_INT32, -2), (std::vector<int64_t>{-6, 98}));
  EXPECT_EQ(steps(tflite::TensorType_INT64, 5), (std::vector<int64_t>{1, 105}));
}

TEST(Tflite, OnlyConstantsHaveFourBits) {
  EXPECT_EQ(MessageOf(Import(Increment(tflite::TensorType_INT4, -2)).status()),
            "operator `y` (ADD): its result is i4, which only constants may be");
}

TEST(Tflite, ACallerMayGiveFloatsToAQuantizedInput) {
  TfliteModel model;
  const int x = model.Input("x", kInt8, {2}, {{0.5f}, {1}});
  const int y = model.Tensor("y", kInt8, {2}, {{0.5f}, {1}});
  model.Op(tflite::BuiltinOperator_RELU, {x}, {y});
  model.Outputs({y});
  ImportOptions options;
  options.dtypes["x"] = DataType::kF32;
  EXPECT_EQ(Results(model, {F32({2}, {-2, 3})}, options)[0].ToInts(), (std::vector<int64_t>{1, 7}));
  options.dtypes["x"] = DataType::kU8;
  EXPECT_EQ(MessageOf(Import(model, options).status()),
            "input `x`: is asked for as u8, but has steps of its own, which are i8: i8 or a float "
            "type is possible");
}

TEST(Tflite, WhileRunsUntilItsConditionFails) {
  TfliteModel model;
  const size_t condition = model.AddSubgraph(), body = model.AddSubgraph();
  model.Select(condition);
  const int i = model.Input("i", kInt32, {}), v = model.Input("v", kFloat, {2});
  const int less = model.Tensor("less", kBoolean, {});
  model.Op(tflite::BuiltinOperator_LESS, {i, model.Constant("five", I32({}, {5}))}, {less});
  model.Outputs({less});
  model.Select(body);
  const int j = model.Input("j", kInt32, {}), w = model.Input("w", kFloat, {2});
  const int next = model.Tensor("next", kInt32, {}), twice = model.Tensor("twice", kFloat, {2});
  model.Op(tflite::BuiltinOperator_ADD, {j, model.Constant("one", I32({}, {1}))}, {next});
  model.Op(tflite::BuiltinOperator_ADD, {w, w}, {twice});
  model.Outputs({next, twice});
  model.Select(0);
  const int start = model.Input("start", kInt32, {}), x = model.Input("x", kFloat, {2});
  const int end = model.Tensor("end", kInt32, {}), y = model.Tensor("y", kFloat, {2});
  tflite::WhileOptionsT options;
  options.cond_subgraph_index = static_cast<int>(condition);
  options.body_subgraph_index = static_cast<int>(body);
  model.Op(tflite::BuiltinOperator_WHILE, {start, x}, {end, y}, options);
  model.Outputs({end, y});
  (void)v;
  const std::vector<Tensor> three = Results(model, {I32({}, {2}), F32({2}, {1, -1})});
  ASSERT_EQ(three.size(), 2u);
  EXPECT_EQ(three[0].ToInts(), (std::vector<int64_t>{5}));
  EXPECT_EQ(Floats(three[1]), (std::vector<float>{8, -8}));
  const std::vector<Tensor> none = Results(model, {I32({}, {9}), F32({2}, {1, -1})});
  EXPECT_EQ(Floats(none[1]), (std::vector<float>{1, -1}));
}

TEST(Tflite, IfTakesOneBranch) {
  TfliteModel model;
  const size_t branches[] = {model.AddSubgraph(), model.AddSubgraph()};
  for (const size_t branch : branches) {
    model.Select(branch);
    const int x = model.Input("x", kFloat, {2}), y = model.Tensor("y", kFloat, {2});
    model.Op(branch == branches[0] ? tflite::BuiltinOperator_NEG : tflite::BuiltinOperator_SQUARE,
             {x}, {y});
    model.Outputs({y});
  }
  model.Select(0);
  const int c = model.Input("c", kBoolean, {}), x = model.Input("x", kFloat, {2});
  const int y = model.Tensor("y", kFloat, {2});
  tflite::IfOptionsT options;
  options.then_subgraph_index = static_cast<int>(branches[0]);
  options.else_subgraph_index = static_cast<int>(branches[1]);
  model.Op(tflite::BuiltinOperator_IF, {c, x}, {y}, options);
  model.Outputs({y});
  const auto flag = [](uint8_t value) {
    return Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{value});
  };
  EXPECT_EQ(Floats(Results(model, {flag(1), F32({2}, {3, -4})})[0]), (std::vector<float>{-3, 4}));
  EXPECT_EQ(Floats(Results(model, {flag(0), F32({2}, {3, -4})})[0]), (std::vector<float>{9, 16}));
}

// A sum over all runs: what the variable holds comes in and goes out.
TEST(Tflite, VariablesAreInputsAndOutputs) {
  TfliteModel model;
  const size_t setup = model.AddSubgraph();
  const auto handle = [&] {
    const int tensor = model.Tensor("handle", tflite::TensorType_RESOURCE, {});
    tflite::VarHandleOptionsT options;
    options.shared_name = "total";
    model.Op(tflite::BuiltinOperator_VAR_HANDLE, {}, {tensor}, options);
    return tensor;
  };
  model.Select(setup);
  const int there = handle();
  model.Op(tflite::BuiltinOperator_ASSIGN_VARIABLE,
           {there, model.Constant("seven", F32({2}, {7, 7}))}, {});
  model.Select(0);
  tflite::CallOnceOptionsT once;
  once.init_subgraph_index = static_cast<int>(setup);
  model.Op(tflite::BuiltinOperator_CALL_ONCE, {}, {}, once);
  const int x = model.Input("x", kFloat, {2}), here = handle();
  const int old = model.Tensor("old", kFloat, {2}), sum = model.Tensor("sum", kFloat, {2});
  model.Op(tflite::BuiltinOperator_READ_VARIABLE, {here}, {old});
  model.Op(tflite::BuiltinOperator_ADD, {x, old}, {sum});
  model.Op(tflite::BuiltinOperator_ASSIGN_VARIABLE, {here, sum}, {});
  model.Outputs({sum});
  const absl::StatusOr<Imported> imported = Import(model);
  ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
  const auto& metadata = imported->canonical.metadata;
  ASSERT_EQ(imported->canonical.inputs.size(), 2u);
  ASSERT_EQ(imported->canonical.outputs.size(), 2u);
  EXPECT_EQ(imported->canonical.value(imported->canonical.inputs[1]).name, "total");
  EXPECT_EQ(metadata.at("state.total"),
            imported->canonical.value(imported->canonical.outputs[1]).name);
  EXPECT_EQ(metadata.at("state_initial.total"), "7");
  const std::vector<Tensor> result = Results(model, {F32({2}, {1, 2}), F32({2}, {7, 7})});
  EXPECT_EQ(Floats(result[0]), (std::vector<float>{8, 9}));
  EXPECT_EQ(Floats(result[1]), (std::vector<float>{8, 9}));
}

// A layer of one unit whose gates are half open, forget and input gate as one: the cell goes half of
// the way to 1 in each step.
TfliteModel HalfOpen(int steps, tflite::TensorType cell_type, const Steps& cell_steps,
                     float cell_clip) {
  TfliteModel model;
  std::vector<int> inputs = {model.Input("x", kFloat, {1, steps, 1})};
  const int zero = model.Constant("zero", F32({1, 1}, {0}));
  const int shut = model.Constant("half", F32({1}, {0})),
            open = model.Constant("one", F32({1}, {20}));
  for (int set = 0; set < 2; ++set) inputs.insert(inputs.end(), {-1, zero, zero, zero});
  inputs.insert(inputs.end(), {-1, -1, -1, -1, shut, open, shut, -1, -1});
  for (const bool is_cell : {false, true}) {
    inputs.push_back(model.Tensor(is_cell ? "cell" : "hidden", is_cell ? cell_type : kFloat, {1, 1},
                                  is_cell ? cell_steps : Steps()));
    model.graph().tensors.back()->is_variable = true;
  }
  const int y = model.Tensor("y", kFloat, {1, steps, 1});
  tflite::UnidirectionalSequenceLSTMOptionsT options;
  options.fused_activation_function = tflite::ActivationFunctionType_TANH;
  options.cell_clip = cell_clip;
  model.Op(tflite::BuiltinOperator_UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, {y}, options);
  model.Outputs({y});
  return model;
}

TEST(Tflite, CellsOfLstmLayersAreBounded) {
  const std::vector<Tensor> inputs = {F32({1, 2, 1}, {3, 4}), F32({1, 1}, {0}), F32({1, 1}, {0})};
  for (const float bound : {0.0f, 0.6f}) {
    const std::vector<Tensor> results = Results(HalfOpen(2, kFloat, {}, bound), inputs);
    ASSERT_EQ(results.size(), 3u);
    const float last = bound == 0 ? 0.75f : 0.6f;
    EXPECT_LE(RelativeError(results[0], F32({1, 2, 1}, {std::tanh(0.5f) / 2, std::tanh(last) / 2})),
              1e-6);
    EXPECT_LE(RelativeError(results[1], F32({1, 1}, {std::tanh(last) / 2})), 1e-6);
    EXPECT_LE(RelativeError(results[2], F32({1, 1}, {last})), 1e-6);
  }
}

// 1/2, 3/4, 7/8, which the cell keeps as 4 quarters, and 1.
TEST(Tflite, StatesOfIntegersAreRoundedAfterEachStep) {
  const std::vector<Tensor> inputs = {F32({1, 3, 1}, {0, 0, 0}), F32({1, 1}, {0}),
                                      Tensor::Of(DataType::kI16, {1, 1}, std::vector<int16_t>{0})};
  const std::vector<Tensor> results =
      Results(HalfOpen(3, tflite::TensorType_INT16, Steps{{0.25}, {0}}, 0), inputs);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[2].ToInts(), (std::vector<int64_t>{4}));
  EXPECT_LE(RelativeError(results[1], F32({1, 1}, {std::tanh(1.0f) / 2})), 1e-6);
}

TEST(Tflite, StepsOfRecurrentLayersAreKnownAndFew) {
  EXPECT_THAT(ImportError(HalfOpen(-1, kFloat, {}, 0.5)),
              HasSubstr("the number of steps is known only at run time"));
  EXPECT_THAT(ImportError(HalfOpen(1025, kFloat, {}, 0.5)),
              HasSubstr("has 1025 steps, 1 to 1024 are read"));
}

// Sums from either end, and both states behind them.
TEST(Tflite, BidirectionalLayersReadBackwards) {
  TfliteModel model;
  std::vector<int> inputs = {model.Input("x", kFloat, {3, 1, 1})};
  const int one = model.Constant("one", F32({1, 1}, {1}));
  const int zero = model.Constant("zero", F32({1}, {0}));
  for (const char* state : {"forward", "backward"}) {
    inputs.insert(inputs.end(), {one, one, zero, model.Tensor(state, kFloat, {1, 1})});
    model.graph().tensors.back()->is_variable = true;
  }
  const int y = model.Tensor("y", kFloat, {3, 1, 2});
  tflite::BidirectionalSequenceRNNOptionsT options;
  options.time_major = options.merge_outputs = true;
  model.Op(tflite::BuiltinOperator_BIDIRECTIONAL_SEQUENCE_RNN, inputs, {y}, options);
  model.Outputs({y});
  const std::vector<Tensor> results =
      Results(model, {F32({3, 1, 1}, {1, 2, 4}), F32({1, 1}, {10}), F32({1, 1}, {20})});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(Floats(results[0]), (std::vector<float>{11, 27, 13, 26, 17, 24}));
  EXPECT_EQ(Floats(results[1]), (std::vector<float>{17}));
  EXPECT_EQ(Floats(results[2]), (std::vector<float>{27}));
}

TEST(Tflite, ShiftsKeepTheSign) {
  TfliteModel model;
  const int x = model.Input("x", kInt8, {5}), y = model.Tensor("y", kInt8, {5});
  const int by = model.Constant("by", I8({5}, {1, 1, 7, 9, -1}));
  model.Op(tflite::BuiltinOperator_RIGHT_SHIFT, {x, by}, {y}, tflite::RightShiftOptionsT());
  model.Outputs({y});
  EXPECT_EQ(Results(model, {I8({5}, {-5, 5, -128, 127, -3})})[0].ToInts(),
            (std::vector<int64_t>{-3, 2, -1, 0, -3}));
}

// Complex numbers are pairs in the graph: what would read them as anything else is refused.
TEST(Tflite, ComplexNumbersHaveOnlyParts) {
  const auto spectrum = [](tflite::BuiltinOperator part, tflite::TensorType type) {
    TfliteModel model;
    const int x = model.Input("x", kFloat, {1, 4});
    const int length = model.Constant("length", I32({2}, {1, 4}));
    const int pairs = model.Tensor("pairs", tflite::TensorType_COMPLEX64, {1, 3});
    const int y = model.Tensor("y", type, {1, 3});
    model.Op(tflite::BuiltinOperator_RFFT2D, {x, length}, {pairs}, tflite::Rfft2dOptionsT());
    model.Op(part, {pairs}, {y});
    model.Outputs({y});
    return model;
  };
  const TfliteModel magnitude = spectrum(tflite::BuiltinOperator_COMPLEX_ABS, kFloat);
  EXPECT_LE(
      RelativeError(Results(magnitude, {F32({1, 4}, {3, 0, 0, 4})})[0], F32({1, 3}, {7, 5, 1})),
      1e-6);
  EXPECT_THAT(
      ImportError(spectrum(tflite::BuiltinOperator_NEG, tflite::TensorType_COMPLEX64)),
      HasSubstr("operator `y` (NEG): `pairs` is complex, of which only parts and magnitude are"));
  ImportOptions options;
  options.outputs = {"pairs"};
  EXPECT_THAT(ImportError(magnitude, options), HasSubstr("output `pairs`: `pairs` is complex"));
}

TEST(Tflite, SignaturesNameInputsAndOutputs) {
  TfliteModel model = Sum();
  auto signature = std::make_unique<tflite::SignatureDefT>();
  signature->signature_key = "serve";
  for (auto* list : {&signature->inputs, &signature->outputs}) {
    list->push_back(std::make_unique<tflite::TensorMapT>());
    list->back()->name = list == &signature->inputs ? "image" : "scores";
    list->back()->tensor_index = list == &signature->inputs ? 0 : 1;
  }
  model.model().signature_defs.push_back(std::move(signature));
  ImportOptions options;
  options.signature = "serve";
  const absl::StatusOr<Imported> imported = Import(model, options);
  ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
  EXPECT_EQ(imported->canonical.value(imported->canonical.inputs[0]).name, "image");
  EXPECT_EQ(imported->canonical.value(imported->canonical.outputs[0]).name, "scores");
  options.signature = "train";
  EXPECT_EQ(ImportError(model, options), "the model has no signature `train`, it has `serve`");
}

TEST(Tflite, SizesOfTheRunAreSymbols) {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {-1, 2}), y = model.Tensor("y", kFloat, {-1, 2});
  model.Op(tflite::BuiltinOperator_NEG, {x}, {y});
  model.Outputs({y});
  EXPECT_EQ(Results(model, {F32({3, 2}, {1, 2, 3, 4, 5, 6})})[0].dims(),
            (std::vector<int64_t>{3, 2}));
  ImportOptions options;
  options.shapes["x"] = {4, -1};
  const absl::StatusOr<Imported> fixed = Import(model, options);
  ASSERT_TRUE(fixed.ok()) << MessageOf(fixed.status());
  EXPECT_TRUE(fixed->canonical.value(fixed->canonical.inputs[0]).type.dims[0].is(4));
}

TEST(Tflite, LayoutMovesChannelsOfInputsAndOutputs) {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {1, 1, 2, 3}), y = model.Tensor("y", kFloat, {1, 1, 2, 3});
  model.Op(tflite::BuiltinOperator_NEG, {x}, {y});
  model.Outputs({y});
  ImportOptions options;
  options.layout = "first";
  const std::vector<Tensor> result =
      Results(model, {F32({1, 3, 1, 2}, {1, 2, 3, 4, 5, 6})}, options);
  EXPECT_EQ(result[0].dims(), (std::vector<int64_t>{1, 3, 1, 2}));
  EXPECT_EQ(Floats(result[0]), (std::vector<float>{-1, -2, -3, -4, -5, -6}));
  options.layout = "last";  // as it is
  EXPECT_EQ(Results(model, {F32({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6})}, options)[0].dims(),
            (std::vector<int64_t>{1, 1, 2, 3}));
}

TEST(Tflite, ACutKeepsWhatItsOutputsNeed) {
  TfliteModel model = Sum();
  const int z = model.Tensor("z", kFloat, {2});
  model.Op(tflite::BuiltinOperator_NEG, {1}, {z});
  model.Outputs({z});
  ImportOptions options;
  options.outputs = {"y"};
  const absl::StatusOr<Imported> imported = Import(model, options);
  ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
  EXPECT_EQ(imported->imported.nodes.size(), 1u);
  options.outputs = {"nothing"};
  EXPECT_EQ(ImportError(model, options),
            "the model is cut at `nothing`, which is not a tensor of it");
}

// ---- One way in ----

TEST(Tflite, FilesAreKnownByTheirBytes) {
  ImportFolder folder;
  const auto path = folder.Write("model.onnx", Sum().Bytes());
  EXPECT_TRUE(ImportModel(path, {}, folder.store()).ok());
}

TEST(Tflite, OptionsOfOtherFormatsAreRefusedByName) {
  ImportOptions options;
  options.opset = 13;
  options.external_root = "weights";
  const std::string error = ImportError(Sum(), options);
  EXPECT_THAT(error,
              HasSubstr("`opset` is an option for models of format onnx, this one is `tflite`"));
  EXPECT_THAT(error, HasSubstr("`external_root` is an option"));
}

// ---- What is wrong ----

TEST(Tflite, UnsupportedOperatorsAreListedAtOnce) {
  TfliteModel model = Sum();
  const int hash = model.Tensor("hash", tflite::TensorType_RESOURCE, {});
  const int a = model.Tensor("a", kFloat, {2}), b = model.Tensor("b", kFloat, {2});
  model.Op(tflite::BuiltinOperator_HASHTABLE, {}, {hash});
  model.Op(tflite::BuiltinOperator_RANDOM_UNIFORM, {0}, {a});
  model.Op(tflite::BuiltinOperator_RANDOM_UNIFORM, {0}, {b});
  const std::string error = ImportError(model);
  EXPECT_THAT(error, HasSubstr("2 operators of the model are not supported"));
  EXPECT_THAT(error, HasSubstr("`HASHTABLE` of domain `tflite`, version 1: 1 node (`hash`)"));
  EXPECT_THAT(error,
              HasSubstr("`RANDOM_UNIFORM` of domain `tflite`, version 1: 2 nodes (`a`, `b`)"));
}

TEST(Tflite, EveryIndexThatPointsAtNothingIsNamed) {
  TfliteModel model = Sum();
  model.graph().operators[0]->inputs = {0, 99};
  model.graph().operators[0]->opcode_index = 7;
  model.graph().tensors[0]->buffer = 1000;
  model.graph().outputs = {-5};
  const std::string error = ImportError(model);
  EXPECT_THAT(error, HasSubstr("subgraph 0, operator 0: input 1 is tensor 99, the subgraph has 3"));
  EXPECT_THAT(error, HasSubstr("subgraph 0, operator 0: has operator code 7, the file has 1"));
  EXPECT_THAT(error, HasSubstr("subgraph 0: tensor 0 lies in buffer 1000, the file has 2"));
  EXPECT_THAT(error, HasSubstr("subgraph 0: output 0 is tensor -5, the subgraph has 3"));
}

TEST(Tflite, DataThatDoesNotFitItsShape) {
  TfliteModel model = Sum();
  model.graph().tensors[2]->shape = {1 << 30, 1 << 20};
  EXPECT_THAT(ImportError(model), HasSubstr("tensor `one`: has 4 bytes of data, f32 of "
                                            "[1073741824, 1048576] takes 4503599627370496"));
}

TEST(Tflite, BuffersBehindTheEndOfTheFile) {
  TfliteModel model = Sum();
  model.model().buffers[1]->data.clear();
  model.model().buffers[1]->offset = 3'000'000'000;
  model.model().buffers[1]->size = 4;
  EXPECT_THAT(ImportError(model),
              HasSubstr("buffer 1 has 4 bytes from offset 3000000000, the file has"));
}

TEST(Tflite, WrongScalesAreNamed) {
  TfliteModel model;
  const int x = model.Input("x", kInt8, {2, 3}, {{0.5f, 0.25f}, {0, 0}, 1});
  const int y = model.Tensor("y", kInt8, {2, 3}, {{-1.0f}, {0}});
  model.Op(tflite::BuiltinOperator_RELU, {x}, {y});
  model.Outputs({y});
  EXPECT_THAT(ImportError(model),
              HasSubstr("input `x`: has 2 scales along axis 1, its shape is [2, 3]"));
  model.graph().tensors[0]->quantization.reset();
  EXPECT_THAT(ImportError(model),
              HasSubstr("tensor `y`: has the scale -1, which is not a positive number"));
}

TEST(Tflite, NumbersOutsideTheirRange) {
  TfliteModel model = Sum();
  model.graph().operators[0]->builtin_options.AsAddOptions()->fused_activation_function =
      static_cast<tflite::ActivationFunctionType>(77);
  EXPECT_THAT(ImportError(model),
              HasSubstr("operator `y` (ADD): its activation is 77, 0 to 5 are known"));
  TfliteModel steps;
  const int x = steps.Input("x", kInt8, {2}, {{0.5f}, {300}});
  const int y = steps.Tensor("y", kInt8, {2}, {{0.5f}, {0}});
  steps.Op(tflite::BuiltinOperator_RELU, {x}, {y});
  steps.Outputs({y});
  EXPECT_THAT(ImportError(steps),
              HasSubstr("input `x`: has the zero point 300, its type has -128 to 127"));
  steps.graph().tensors[0]->shape.clear();
  steps.graph().tensors[0]->quantization->scale = {1, 2};
  steps.graph().tensors[0]->quantization->zero_point.clear();
  EXPECT_THAT(ImportError(steps),
              HasSubstr("input `x`: has 2 scales along axis 0, its shape is []"));
}

// Sizes that only claims make large take no memory; constants without elements are not numbers.
TEST(Tflite, ArgumentsThatDoNotFit) {
  TfliteModel diagonal;
  const int x = diagonal.Input("x", kFloat, {1 << 30}), y = diagonal.Tensor("y", kFloat, {1, 1});
  diagonal.Op(tflite::BuiltinOperator_MATRIX_DIAG, {x}, {y});
  diagonal.Outputs({y});
  EXPECT_THAT(ImportError(diagonal), HasSubstr("a diagonal of 1073741824 elements"));
  TfliteModel split;
  const int z = split.Input("z", kFloat, {4}), part = split.Tensor("part", kFloat, {2});
  split.Op(tflite::BuiltinOperator_SPLIT, {split.Constant("axis", I32({2}, {0, 0})), z}, {part});
  split.Outputs({part});
  EXPECT_THAT(ImportError(split), HasSubstr("the axis has 2 elements, expected one"));
}

TEST(Tflite, SegmentsDropWhatHasNone) {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {4}), y = model.Tensor("y", kFloat, {2});
  const int ids = model.Constant("ids", I32({4}, {1, -1, 0, 1}));
  const int count = model.Constant("count", I32({}, {2}));
  model.Op(tflite::BuiltinOperator_UNSORTED_SEGMENT_SUM, {x, ids, count}, {y});
  model.Outputs({y});
  EXPECT_EQ(Floats(Results(model, {F32({4}, {1, 2, 3, 4})})[0]), (std::vector<float>{3, 5}));
}

// An axis that is not set is the first one: the schema's default.
TEST(Tflite, OneHotAlongTheFirstAxis) {
  TfliteModel model;
  const int x = model.Input("x", kInt32, {2}), y = model.Tensor("y", kFloat, {3, 2});
  const int depth = model.Constant("depth", I32({}, {3}));
  const int on = model.Constant("on", F32({}, {5})), off = model.Constant("off", F32({}, {1}));
  model.Op(tflite::BuiltinOperator_ONE_HOT, {x, depth, on, off}, {y}, tflite::OneHotOptionsT());
  model.Outputs({y});
  EXPECT_EQ(Floats(Results(model, {I32({2}, {2, 0})})[0]), (std::vector<float>{1, 5, 1, 1, 5, 1}));
}

TEST(Tflite, ATensorThatNobodyComputes) {
  TfliteModel model = Sum();
  const int ghost = model.Tensor("ghost", kFloat, {2});
  model.graph().operators[0]->inputs = {0, ghost};
  EXPECT_EQ(
      ImportError(model),
      "operator `y` (ADD): tensor `ghost` has no contents and no operator before it gives it any");
}

TEST(Tflite, SubgraphsThatRunThemselves) {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {2}), y = model.Tensor("y", kFloat, {2});
  tflite::CallOptionsT options;
  model.Op(tflite::BuiltinOperator_CALL, {x}, {y}, options);
  model.Outputs({y});
  EXPECT_THAT(ImportError(model), HasSubstr("subgraphs run one another more than 30 deep"));
}

// `calls` calls in a row of `callee`, in the subgraph that is selected.
void CallInTurn(TfliteModel& model, size_t callee, int calls) {
  int value = model.Input("x", kFloat, {2});
  for (int i = 0; i < calls; ++i) {
    const int next = model.Tensor("y", kFloat, {2});
    tflite::CallOptionsT options;
    options.subgraph = static_cast<uint32_t>(callee);
    model.Op(tflite::BuiltinOperator_CALL, {value}, {next}, options);
    value = next;
  }
  model.Outputs({value});
}

// A file of some hundred bytes may ask for any number of operators: they are counted, not read.
TEST(Tflite, SubgraphsThatRunOthersManyTimes) {
  TfliteModel itself;
  CallInTurn(itself, 0, 10);
  EXPECT_EQ(ImportError(itself), "subgraphs run one another more than 30 deep");

  TfliteModel model;
  CallInTurn(model, 1, 10);
  for (size_t level = 1; level <= 5; ++level) {
    model.Select(model.AddSubgraph());
    if (level < 5) CallInTurn(model, level + 1, 10);
  }
  const int x = model.Input("x", kFloat, {2}), y = model.Tensor("y", kFloat, {2});
  model.Op(tflite::BuiltinOperator_NEG, {x}, {y});
  model.Outputs({y});
  EXPECT_EQ(ImportError(model),
            "the model has 211110 operators with the subgraphs that it runs, and 51 in the file: "
            "at most 50000 more are read");
}

TEST(Tflite, TruncatedAtEveryByte) {
  const std::string bytes = Sum().Bytes();
  ImportFolder folder;
  for (size_t size = 1; size < bytes.size(); ++size) {
    const auto result =
        ImportModel(folder.Write("model.tflite", bytes.substr(0, size)), {}, folder.store());
    EXPECT_TRUE(result.ok() || !MessageOf(result.status()).empty()) << size;
    if (size < bytes.size() / 2) {
      EXPECT_FALSE(result.ok()) << size;
    }
  }
}

// Each byte of the file changed, one at a time: an error or a graph that holds.
TEST(Tflite, EveryByteChanged) {
  const std::string bytes = Sum().Bytes();
  ImportFolder folder;
  int imported = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      const auto result = ImportModel(folder.Write("model.tflite", changed), {}, folder.store());
      EXPECT_TRUE(result.ok() || !MessageOf(result.status()).empty()) << at;
      if (result.ok()) {
        EXPECT_TRUE(VerifyGraph(result->canonical).ok()) << at;
      }
      imported += result.ok();
    }
  }
  EXPECT_GT(imported, 0);
}

// Two boxes at one place and a third, of two classes: of each class the worse of the two goes, though
// it is the better one of the other class.
TEST(Tflite, DetectionsOfEachClassByItself) {
  for (const int most : {4, 2}) {
    TfliteModel model;
    const int codes = model.Input("codes", kFloat, {1, 3, 4});
    const int scores = model.Input("scores", kFloat, {1, 3, 3});
    const int anchors = model.Constant(
        "anchors", F32({3, 4}, {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25}));
    flexbuffers::Builder options;
    options.Map([&] {
      options.Bool("use_regular_nms", true);
      options.Int("num_classes", 2);
      options.Int("max_detections", most);
      options.Int("detections_per_class", 2);
      options.Float("nms_iou_threshold", 0.5);
      options.Float("nms_score_threshold", 0.3f);
      for (const char* scale : {"y_scale", "x_scale", "h_scale", "w_scale"})
        options.Float(scale, 1);
    });
    options.Finish();
    const std::vector<int> outputs = {
        model.Tensor("boxes", kFloat, {1, most, 4}), model.Tensor("classes", kFloat, {1, most}),
        model.Tensor("best", kFloat, {1, most}), model.Tensor("count", kFloat, {1})};
    model.Op(tflite::BuiltinOperator_CUSTOM, {codes, scores, anchors}, outputs).custom_options =
        options.GetBuffer();
    model.model().operator_codes.back()->custom_code = "TFLite_Detection_PostProcess";
    model.Outputs(outputs);
    // The first column is the background.
    const std::vector<Tensor> result =
        Results(model, {F32({1, 3, 4}, std::vector<float>(12, 0)),
                        F32({1, 3, 3}, {0.1f, 0.9f, 0.6f, 0.2f, 0.8f, 0.7f, 0.3f, 0.2f, 0.5f})});
    ASSERT_EQ(result.size(), 4u);
    std::vector<float> boxes = {0.25,  0.25,  0.75,  0.75,  0.25, 0.25, 0.75, 0.75,
                                0.125, 0.125, 0.375, 0.375, 0,    0,    0,    0};
    std::vector<float> classes = {0, 1, 1, 0}, best = {0.9f, 0.7f, 0.5f, 0};
    boxes.resize(static_cast<size_t>(most) * 4);
    classes.resize(static_cast<size_t>(most));
    best.resize(static_cast<size_t>(most));
    EXPECT_EQ(Floats(result[0]), boxes);
    EXPECT_EQ(Floats(result[1]), classes);
    EXPECT_EQ(Floats(result[2]), best);
    EXPECT_EQ(Floats(result[3]), (std::vector<float>{std::min(3.0F, static_cast<float>(most))}));
  }
}

// Blocks of two columns in which whole blocks are left out.
TEST(Tflite, SparseConstantsBecomeDense) {
  TfliteModel model = Sum();
  tflite::TensorT& sparse = *model.graph().tensors[2];
  sparse.shape = {2, 4};
  model.graph().tensors[0]->shape = model.graph().tensors[1]->shape = {2, 4};
  sparse.sparsity = std::make_unique<tflite::SparsityParametersT>();
  sparse.sparsity->traversal_order = {0, 1, 2};
  sparse.sparsity->block_map = {1};
  for (int level = 0; level < 3; ++level)
    sparse.sparsity->dim_metadata.push_back(std::make_unique<tflite::DimensionMetadataT>());
  sparse.sparsity->dim_metadata[0]->dense_size = 2;
  tflite::DimensionMetadataT& columns = *sparse.sparsity->dim_metadata[1];
  columns.format = tflite::DimensionType_SPARSE_CSR;
  tflite::Int32VectorT segments, indices;
  segments.values = {0, 1, 2};
  indices.values = {1, 0};
  columns.array_segments.Set(std::move(segments));
  columns.array_indices.Set(std::move(indices));
  sparse.sparsity->dim_metadata[2]->dense_size = 2;
  const Tensor values = F32({4}, {1, 2, 3, 4});
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.bytes().data());
  model.model().buffers[1]->data.assign(bytes, bytes + 16);
  EXPECT_EQ(Floats(Results(model, {F32({2, 4}, {0, 0, 0, 0, 0, 0, 0, 0})})[0]),
            (std::vector<float>{0, 0, 1, 2, 3, 4, 0, 0}));
  columns.array_segments.AsInt32Vector()->values = {0, 1, 9};
  EXPECT_THAT(ImportError(model), HasSubstr("segment 1 of level 1 lies outside its indices"));
}

}  // namespace
}  // namespace quench::importer::tflite_test
