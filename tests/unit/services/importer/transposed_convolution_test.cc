// TRANSPOSE_CONV of TensorFlow Lite, whose result has the sizes that an input says.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"
#include "tests/support/tflite_models.h"

namespace quench::importer::transposed_convolution_test {
namespace {

using testing::ErrorOf;
using testing::F32;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::TfliteModel;

constexpr auto kFloat = tflite::TensorType_FLOAT32;
constexpr auto kInt32 = tflite::TensorType_INT32;
constexpr float kBias = 0.5F;

Tensor I32(const std::vector<int64_t>& dims, const std::vector<int32_t>& values) {
  return Tensor::Of(DataType::kI32, dims, values);
}

// One row of pixels, a kernel of `kernel` ones and a bias.
struct Row {
  int kernel = 3;
  int stride = 2;
  bool same = false;
};

// The row of `size` that TensorFlow Lite's reference makes: pixel i lands at i * stride - begin.
std::vector<float> Expected(const Row& row, const std::vector<float>& x, int size) {
  const int positions = (size + row.stride - 1) / row.stride;
  const int surplus = std::max((positions - 1) * row.stride + row.kernel - size, 0);
  const int begin = row.same ? surplus / 2 : 0;
  std::vector<float> y(static_cast<size_t>(size), kBias);
  for (size_t i = 0; i < x.size(); ++i) {
    for (int k = 0; k < row.kernel; ++k) {
      const int at = static_cast<int>(i) * row.stride - begin + k;
      if (at >= 0 && at < size) y[static_cast<size_t>(at)] += x[i];
    }
  }
  return y;
}

// Tensors `sizes` of [1, 1, size, 1] and `x` of [1, 1, width, 1] go in.
void AddConvolution(TfliteModel& model, const Row& row, int sizes, int x) {
  const std::vector<float> ones(static_cast<size_t>(row.kernel), 1);
  const int w = model.Constant("w", F32({1, 1, row.kernel, 1}, ones));
  const int bias = model.Constant("bias", F32({1}, {kBias}));
  const int y = model.Tensor("y", kFloat, {1, 1, -1, 1});
  tflite::TransposeConvOptionsT options;
  options.padding = row.same ? tflite::Padding_SAME : tflite::Padding_VALID;
  options.stride_h = 1;
  options.stride_w = row.stride;
  model.Op(tflite::BuiltinOperator_TRANSPOSE_CONV, {sizes, w, x, bias}, {y}, options);
  model.Outputs({y});
}

// As converters write it: the size is width * factor + offset, by Shape, StridedSlice and Pack.
TfliteModel Computed(const Row& row, int width, int factor, int offset) {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {1, 1, width, 1});
  const int shape = model.Tensor("shape", kInt32, {4}), size = model.Tensor("size", kInt32, {});
  const int scaled = model.Tensor("scaled", kInt32, {}), sum = model.Tensor("sum", kInt32, {});
  const int sizes = model.Tensor("sizes", kInt32, {4});
  const auto list = [&](const char* name, int value) {
    return model.Constant(name, I32({1}, {value}));
  };
  const auto scalar = [&](const char* name, int value) {
    return model.Constant(name, I32({}, {value}));
  };
  model.Op(tflite::BuiltinOperator_SHAPE, {x}, {shape}, tflite::ShapeOptionsT());
  tflite::StridedSliceOptionsT slice;
  slice.shrink_axis_mask = 1;
  model.Op(tflite::BuiltinOperator_STRIDED_SLICE,
           {shape, list("from", 2), list("to", 3), list("step", 1)}, {size}, slice);
  model.Op(tflite::BuiltinOperator_MUL, {size, scalar("factor", factor)}, {scaled},
           tflite::MulOptionsT());
  model.Op(tflite::BuiltinOperator_ADD, {scaled, scalar("offset", offset)}, {sum},
           tflite::AddOptionsT());
  tflite::PackOptionsT pack;
  pack.values_count = 4;
  const int one = scalar("one", 1);
  model.Op(tflite::BuiltinOperator_PACK, {one, one, sum, one}, {sizes}, pack);
  AddConvolution(model, row, sizes, x);
  return model;
}

TfliteModel Given(const Row& row) {
  TfliteModel model;
  const int sizes = model.Input("sizes", kInt32, {4});
  AddConvolution(model, row, sizes, model.Input("x", kFloat, {1, 1, 5, 1}));
  return model;
}

absl::StatusOr<Imported> Import(const TfliteModel& model) {
  static auto* const folder = new ImportFolder();
  return ImportModel(folder->Write("model.tflite", model.Bytes()), {}, folder->store());
}

int CountOf(const Graph& graph, const std::string& op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& node) { return node.op == op; }));
}

std::vector<float> Pixels(int count) {
  std::vector<float> x(static_cast<size_t>(count));
  std::iota(x.begin(), x.end(), 1.0F);
  return x;
}

// Expects these outputs of the model, before and after the passes.
void ExpectRow(const Graph& graph, const std::vector<Tensor>& inputs,
               const std::vector<float>& expected) {
  const auto passed = passes::RunPipeline(graph, {}, {});
  ASSERT_TRUE(passed.ok()) << MessageOf(passed.status());
  for (const Graph* form : {&graph, &*passed}) {
    const auto results = ops::Evaluate(*form, inputs);
    ASSERT_TRUE(results.ok()) << MessageOf(results.status());
    const std::vector<int64_t> dims = {1, 1, static_cast<int64_t>(expected.size()), 1};
    ASSERT_EQ((*results)[0].dims(), dims);
    const auto values = (*results)[0].as<float>();
    EXPECT_EQ(std::vector<float>(values.begin(), values.end()), expected);
  }
}

// Keras' output_padding 0 with SAME (one less than the default) and 1 with VALID, and kernels that
// are smaller than their stride.
TEST(TransposedConvolution, SizesThatFollowFromShapesAreKept) {
  struct Case {
    Row row;
    int factor, offset;
  };
  for (const Case& c :
       {Case{{3, 2, true}, 2, -1}, Case{{3, 2, true}, 2, 0}, Case{{3, 2, false}, 2, 2},
        Case{{2, 3, false}, 3, 0}, Case{{1, 3, true}, 3, 0}}) {
    for (const int width : {5, -1}) {
      const auto imported = Import(Computed(c.row, width, c.factor, c.offset));
      ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
      EXPECT_EQ(CountOf(imported->canonical, "Pad"), 0);
      const std::vector<float> x = Pixels(5);
      ExpectRow(imported->canonical, {F32({1, 1, 5, 1}, x)},
                Expected(c.row, x, 5 * c.factor + c.offset));
    }
  }
}

TEST(TransposedConvolution, SizesOfARunCutTheLargestResult) {
  for (const Row& row : {Row{3, 2, true}, Row{3, 2, false}, Row{2, 3, false}, Row{5, 2, true}}) {
    const auto imported = Import(Given(row));
    ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
    EXPECT_EQ(CountOf(imported->canonical, "Pad"), 1);
    for (const int size : {1, 8, 9, 10, 11, 12, 17}) {
      const std::vector<float> x = Pixels(5);
      ExpectRow(imported->canonical, {I32({4}, {1, 1, size, 1}), F32({1, 1, 5, 1}, x)},
                Expected(row, x, size));
    }
  }
}

TEST(TransposedConvolution, SizesOfOtherRanksAreRefused) {
  TfliteModel model;
  const int x = model.Input("x", kFloat, {1, 1, 5, 1});
  AddConvolution(model, {}, model.Constant("sizes", I32({2}, {1, 9})), x);
  EXPECT_THAT(ErrorOf(Import(model).status()),
              HasSubstr("the shape of its result has 2 entries, expected 4"));
}

}  // namespace
}  // namespace quench::importer::transposed_convolution_test
