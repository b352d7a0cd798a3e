// One network as ONNX writes it, channels first, and as TensorFlow Lite does, channels last: it has
// as many Transposes either way, and the same results.
#include <gtest/gtest.h>

#include <random>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "tests/support/onnx_models.h"
#include "tests/support/tflite_models.h"

namespace quench::importer::layouts_test {
namespace {

using testing::ImportFolder;
using testing::OnnxModel;
using testing::TfliteModel;
using Ints = std::vector<int64_t>;

constexpr int kSize = 12, kChannels = 8, kClasses = 5;

// `from` has channels first, the result last: [o, i, h, w] as [o, h, w, i].
Tensor ChannelsLast(const Tensor& from) {
  const Ints& d = from.dims();
  std::vector<float> values;
  for (int64_t o = 0; o < d[0]; ++o) {
    for (int64_t pixel = 0; pixel < d[2] * d[3]; ++pixel) {
      for (int64_t c = 0; c < d[1]; ++c)
        values.push_back(
            from.as<float>()[static_cast<size_t>((o * d[1] + c) * d[2] * d[3] + pixel)]);
    }
  }
  return testing::F32({d[0], d[2], d[3], d[1]}, values);
}

// A network that both formats are written from, layer by layer: results are named alike.
class Pair {
 public:
  Pair() {
    onnx_.Input("image", DataType::kF32, {1, 3, kSize, kSize});
    last_["image"] = tflite_.Input("image", kFloat, {1, kSize, kSize, 3});
    size_["image"] = {3, kSize};
  }

  // With padding that keeps the size, or halves it for a stride of 2, and Relu6.
  std::string Conv(const std::string& x, int channels, int kernel, int stride, bool depthwise) {
    const auto [in, side] = size_[x];
    const Tensor weights = Random({channels, depthwise ? 1 : in, kernel, kernel});
    const Tensor bias = Random({channels});
    const std::string y = Name("conv");
    Initializer(y + ".w", weights);
    Initializer(y + ".b", bias);
    auto& node = onnx_.Node("Conv", {x, y + ".w", y + ".b"}, {y + ".sum"});
    testing::SetInts(node, "strides", {stride, stride});
    testing::SetString(node, "auto_pad", "SAME_UPPER");
    testing::SetInt(node, "group", depthwise ? in : 1);
    onnx_.Node("Clip", {y + ".sum", "zero", "six"}, {y});
    const int out = (side + stride - 1) / stride;
    const int result = Result(y, channels, out);
    Tensor placed = ChannelsLast(weights);
    if (depthwise) {  // [o, h, w, 1] as [1, h, w, o]
      placed = ChannelsLast(weights.Reshaped({1, channels, kernel, kernel}));
    }
    const int w = tflite_.Constant(y + ".w", placed), b = tflite_.Constant(y + ".b", bias);
    if (depthwise) {
      tflite::DepthwiseConv2DOptionsT options;
      Window(options, stride);
      options.depth_multiplier = 1;
      options.fused_activation_function = tflite::ActivationFunctionType_RELU6;
      tflite_.Op(tflite::BuiltinOperator_DEPTHWISE_CONV_2D, {last_[x], w, b}, {result}, options);
    } else {
      tflite::Conv2DOptionsT options;
      Window(options, stride);
      options.fused_activation_function = tflite::ActivationFunctionType_RELU6;
      tflite_.Op(tflite::BuiltinOperator_CONV_2D, {last_[x], w, b}, {result}, options);
    }
    return y;
  }

  std::string Sum(const std::string& a, const std::string& b) {
    const std::string y = Name("sum");
    onnx_.Node("Add", {a, b}, {y});
    const int result = Result(y, size_[a].first, size_[a].second);
    tflite_.Op(tflite::BuiltinOperator_ADD, {last_[a], last_[b]}, {result}, tflite::AddOptionsT());
    return y;
  }

  std::string Joined(const std::string& a, const std::string& b) {
    const std::string y = Name("joined");
    testing::SetInt(onnx_.Node("Concat", {a, b}, {y}), "axis", 1);
    const int result = Result(y, size_[a].first + size_[b].first, size_[a].second);
    tflite::ConcatenationOptionsT options;
    options.axis = 3;
    tflite_.Op(tflite::BuiltinOperator_CONCATENATION, {last_[a], last_[b]}, {result}, options);
    return y;
  }

  std::string MaxPool(const std::string& x) {
    const std::string y = Name("pool");
    auto& node = onnx_.Node("MaxPool", {x}, {y});
    testing::SetInts(node, "kernel_shape", {2, 2});
    testing::SetInts(node, "strides", {2, 2});
    const int result = Result(y, size_[x].first, size_[x].second / 2);
    tflite::Pool2DOptionsT options;
    options.padding = tflite::Padding_VALID;
    options.stride_h = options.stride_w = options.filter_height = options.filter_width = 2;
    tflite_.Op(tflite::BuiltinOperator_MAX_POOL_2D, {last_[x]}, {result}, options);
    return y;
  }

  // The mean of each channel, classes of it, and their shares; or the image itself is the output.
  void Classify(const std::string& x) {
    const int channels = size_[x].first;
    onnx_.Node("GlobalAveragePool", {x}, {"mean"});
    onnx_.Node("Flatten", {"mean"}, {"flat"});
    const Tensor weights = Random({kClasses, channels}), bias = Random({kClasses});
    Initializer("classes.w", weights);
    Initializer("classes.b", bias);
    testing::SetInt(onnx_.Node("Gemm", {"flat", "classes.w", "classes.b"}, {"classes"}), "transB",
                    1);
    onnx_.Node("Softmax", {"classes"}, {"shares"});
    onnx_.Output("shares");
    const int axes = tflite_.Constant("axes", Tensor::Of(DataType::kI32, {2}, std::vector{1, 2}));
    const int mean = tflite_.Tensor("mean", kFloat, {1, channels});
    tflite_.Op(tflite::BuiltinOperator_MEAN, {last_[x], axes}, {mean}, tflite::ReducerOptionsT());
    const int classes = tflite_.Tensor("classes", kFloat, {1, kClasses});
    tflite_.Op(tflite::BuiltinOperator_FULLY_CONNECTED,
               {mean, tflite_.Constant("classes.w", weights), tflite_.Constant("classes.b", bias)},
               {classes}, tflite::FullyConnectedOptionsT());
    const int shares = tflite_.Tensor("shares", kFloat, {1, kClasses});
    tflite::SoftmaxOptionsT options;
    options.beta = 1;
    tflite_.Op(tflite::BuiltinOperator_SOFTMAX, {classes}, {shares}, options);
    tflite_.Outputs({shares});
  }
  void Return(const std::string& x) {
    onnx_.Output(x);
    tflite_.Outputs({last_[x]});
  }

  // After the passes, with the channels of inputs and outputs where `layout` says.
  Graph Onnx(const std::string& layout) {
    Initializer("zero", testing::F32({}, {0}));
    Initializer("six", testing::F32({}, {6}));
    return Passed(folder_.Import(onnx_, In(layout)));
  }
  Graph Tflite(const std::string& layout) {
    return Passed(
        ImportModel(folder_.Write("model.tflite", tflite_.Bytes()), In(layout), folder_.store()));
  }

 private:
  static constexpr auto kFloat = tflite::TensorType_FLOAT32;

  static ImportOptions In(const std::string& layout) {
    ImportOptions options;
    options.layout = layout;
    return options;
  }

  template <typename Options>
  static void Window(Options& options, int stride) {
    options.padding = tflite::Padding_SAME;
    options.stride_h = options.stride_w = stride;
    options.dilation_h_factor = options.dilation_w_factor = 1;
  }

  static Graph Passed(const absl::StatusOr<Imported>& imported) {
    EXPECT_TRUE(imported.ok()) << MessageOf(imported.status());
    if (!imported.ok()) return {};
    const auto passed = passes::RunPipeline(imported->canonical, {}, {});
    EXPECT_TRUE(passed.ok()) << MessageOf(passed.status());
    return passed.ok() ? *passed : Graph();
  }

  std::string Name(const char* kind) { return kind + std::to_string(count_++); }
  void Initializer(const std::string& name, const Tensor& tensor) {
    onnx_.Initializer(name, tensor);
  }
  int Result(const std::string& name, int channels, int side) {
    size_[name] = {channels, side};
    return last_[name] = tflite_.Tensor(name, kFloat, {1, side, side, channels});
  }
  Tensor Random(const Ints& dims) {
    Tensor tensor = Tensor::Zeros(DataType::kF32, dims);
    auto* out = reinterpret_cast<float*>(tensor.mutable_bytes());
    for (int64_t i = 0; i < tensor.size(); ++i)
      out[i] = static_cast<float>(static_cast<int>(random_() >> 16) % 1000) / 2000 - 0.1F;
    return tensor;
  }

  ImportFolder folder_;
  OnnxModel onnx_;
  TfliteModel tflite_;
  std::map<std::string, int> last_;                  // tensors of tflite_
  std::map<std::string, std::pair<int, int>> size_;  // channels, height and width
  std::mt19937 random_{1};
  int count_ = 0;
};

int Transposes(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes) count += node.op == "Transpose" ? 1 : 0;
  return count;
}

void ExpectAlike(Pair& pair, const std::string& layout, int transposes) {
  const Graph onnx = pair.Onnx(layout), tflite = pair.Tflite(layout);
  EXPECT_EQ(Transposes(onnx), transposes) << layout;
  EXPECT_EQ(Transposes(tflite), transposes) << layout;
  ASSERT_EQ(onnx.inputs.size(), 1u);
  ASSERT_EQ(tflite.inputs.size(), 1u);
  Ints dims;
  for (const Dim dim : onnx.value(onnx.inputs[0]).type.dims) dims.push_back(dim.value());
  Tensor image = Tensor::Zeros(DataType::kF32, dims);
  for (int64_t i = 0; i < image.size(); ++i)
    reinterpret_cast<float*>(image.mutable_bytes())[i] = static_cast<float>(i * 37 % 101) / 101;
  const std::vector<Tensor> images = {image};
  const auto first = ops::Evaluate(onnx, images);
  const auto second = ops::Evaluate(tflite, images);
  ASSERT_TRUE(first.ok()) << MessageOf(first.status());
  ASSERT_TRUE(second.ok()) << MessageOf(second.status());
  EXPECT_LE(RelativeError((*first)[0], (*second)[0]), 1e-5) << layout;
}

// Blocks of a mobile network with a branch that meets them again.
std::string Body(Pair& pair) {
  const std::string a = pair.Conv("image", kChannels, 3, 2, false);
  const std::string b = pair.Conv(pair.Conv(a, kChannels, 3, 1, true), kChannels, 1, 1, false);
  return pair.Joined(pair.MaxPool(pair.Sum(a, b)), pair.Conv(a, kChannels, 3, 2, true));
}

TEST(LayoutsTest, AClassifierHasNoTransposeButOfItsImage) {
  for (const auto& [layout, transposes] : {std::pair("first", 0), std::pair("last", 1)}) {
    Pair pair;
    pair.Classify(Body(pair));
    ExpectAlike(pair, layout, transposes);
  }
}

TEST(LayoutsTest, FromImagesToImages) {
  for (const auto& [layout, transposes] : {std::pair("first", 0), std::pair("last", 2)}) {
    Pair pair;
    pair.Return(Body(pair));
    ExpectAlike(pair, layout, transposes);
  }
}

}  // namespace
}  // namespace quench::importer::layouts_test
