// Quantized layers as kernels compute them: bit for bit what the integers mean, by every form of
// multiplication that this CPU has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "tests/unit/services/codegen/byte_layers.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::integer_test {
namespace {

void ExpectBits(const Tensor& actual, const Tensor& expected, const std::string& where) {
  ASSERT_EQ(actual.dims(), expected.dims()) << where;
  ASSERT_EQ(actual.dtype(), expected.dtype()) << where;
  for (int64_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual.FloatAt(i), expected.FloatAt(i)) << where << ", element " << i;
  }
}

// On every level and CPU, whatever the interpreter makes of the graph.
void ExpectInterpretersBits(const Graph& graph, const std::vector<Tensor>& inputs) {
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(graph, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForEachBuild(graph, {}, [&](const Compiled& compiled, int, const std::string& build) {
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      for (size_t i = 0; i < actual.size(); ++i)
        ExpectBits(actual[i], (*expected)[i], fmt::format("{}, {}, output {}", build, run, i));
    });
  });
}

class ByteLayerTest : public ::testing::TestWithParam<ByteLayer> {};

TEST_P(ByteLayerTest, HasTheIntegersBits) {
  const Graph graph = ByteGraph(GetParam());
  const std::vector<Tensor> inputs = ByteInputs(graph);
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(InIntegers(graph), inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForEachBuild(graph, {0, 2}, [&](const Compiled& compiled, int level, const std::string& build) {
    for (const KernelReport& report : compiled.report.kernels) {
      const bool nest = report.slow.find("nest") != std::string::npos;
      EXPECT_FALSE(level > 0 && nest && GetParam().op != "Conv") << build;
    }
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      ExpectBits(actual[0], (*expected)[0], build + ", " + run);
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Layers, ByteLayerTest, ::testing::ValuesIn(ByteLayers()),
                         [](const auto& test) { return test.param.name; });

Tensor Bytes255() {
  Tensor bytes = Tensor::Zeros(DataType::kU8, {256});
  for (int64_t i = 0; i < bytes.size(); ++i)
    bytes.mutable_bytes()[i] = static_cast<std::byte>(255 - i);
  return bytes;
}

// Sums of nearly the same length, which must not share code, in both orders.
TEST(ByteProducts, OfSeveralLengthsInOneModel) {
  Graph graph;
  graph.name = "lengths";
  for (const int64_t k : {8, 5, 6, 7, 13, 16, 15}) {
    const ValueId x = graph.AddInput(fmt::format("x{}", k), Type::Tensor(DataType::kU8, {3, k}));
    const ValueId w = graph.AddInput(fmt::format("w{}", k), Type::Tensor(DataType::kI8, {k, 9}));
    graph.outputs.push_back(Node1(graph, "MatMulInteger", {x, w}));
  }
  Infer(graph);
  const std::vector<Tensor> inputs = ByteInputs(graph);
  ExpectInterpretersBits(graph, inputs);
}

// A sum whose length is a size of the run.
TEST(ByteProducts, OfAnyLength) {
  for (const DataType type : {DataType::kU8, DataType::kI8}) {
    Graph graph;
    graph.name = "any_length";
    const Dim depth = Dim::OfSymbol(graph.symbols->AddInput("k", {0, 2}, {1, 1000}));
    const ValueId scale = graph.AddConstant("scale", Tensor::ScalarF32(0.02F));
    Tensor five = Tensor::Zeros(type, {});
    *five.mutable_bytes() = std::byte{5};
    const ValueId zero = graph.AddConstant("zero", five);
    const auto side = [&](const char* name, std::vector<Dim> dims) {
      const ValueId x = graph.AddInput(name, Type::Tensor(type, std::move(dims)));
      return Node1(graph, "DequantizeLinear", {x, scale, zero});
    };
    const ValueId x = side("x", {2, 7, depth}), w = side("w", {2, depth, 37});
    graph.outputs = {Node1(graph, "QuantizeLinear", {Node1(graph, "MatMul", {x, w}), scale, zero})};
    Infer(graph);
    const Graph integers = InIntegers(graph);
    ForEachBuild(graph, {0}, [&](const Compiled& compiled, int, const std::string& build) {
      for (const int64_t k : {1, 2, 3, 4, 5, 31, 64, 66, 197}) {
        std::vector<Tensor> inputs = {Tensor::Zeros(type, {2, 7, k}),
                                      Tensor::Zeros(type, {2, k, 37})};
        for (Tensor& input : inputs) {
          for (int64_t i = 0; i < input.size(); ++i)
            input.mutable_bytes()[i] = static_cast<std::byte>(i * 89 + i / 7);
        }
        const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(integers, inputs);
        ASSERT_TRUE(expected.ok()) << expected.status();
        ForEachRun(
            compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
              ExpectBits(actual[0], (*expected)[0], fmt::format("{}, {}, k {}", build, run, k));
            });
      }
    });
  }
}

// For any byte, however far below 0.
TEST(ByteFunctions, TheExponentialEndsAtZero) {
  Graph graph;
  graph.name = "exp";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kU8, {256}));
  const ValueId real = Node1(graph, "Cast", {x}, {{"to", static_cast<int64_t>(DataType::kF32)}});
  const ValueId factor = graph.AddConstant("factor", Tensor::ScalarF32(-3));
  graph.outputs = {Node1(graph, "Exp", {Node1(graph, "Mul", {real, factor})})};
  Infer(graph);
  const std::vector<Tensor> inputs = {Bytes255()};
  ForEachBuild(graph, {}, [&](const Compiled& compiled, int, const std::string& build) {
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string&) {
      for (int i = 0; i < 256; ++i) {
        const double expected = i > 226 ? std::exp(-3.0 * (255 - i)) : 0;
        EXPECT_NEAR(actual[0].FloatAt(i), expected, 1e-5 * expected) << build << ", " << 255 - i;
      }
    });
  });
}

// The report's text about one product of floats, quantized on both sides.
std::string SlowOf(Dim depth, int64_t rows, int64_t columns) {
  Graph graph;
  graph.name = "small";
  const ValueId scale = graph.AddConstant("scale", Tensor::ScalarF32(0.02F));
  const ValueId zero =
      graph.AddConstant("zero", Tensor::Of(DataType::kU8, {}, std::vector<uint8_t>{117}));
  const auto side = [&](const char* name, std::vector<Dim> dims) {
    const ValueId x = graph.AddInput(name, Type::Tensor(DataType::kF32, std::move(dims)));
    return Node1(graph, "DequantizeLinear",
                 {Node1(graph, "QuantizeLinear", {x, scale, zero}), scale, zero});
  };
  if (!depth.is_static()) depth = Dim::OfSymbol(graph.symbols->AddInput("k", {0, 1}));
  const ValueId x = side("x", {rows, depth}), w = side("w", {depth, columns});
  graph.outputs = {Node1(graph, "MatMul", {x, w})};
  Infer(graph);
  CompileOptions options;  // a CPU that multiplies bytes, whatever runs the test
  options.target = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=cascadelake";
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  std::string slow;
  for (const KernelReport& report : compiled->report.kernels) slow += report.slow;
  return slow;
}

TEST(SlowIntegers, AreInTheReport) {
  EXPECT_EQ(SlowOf(64, 64, 64), "");
  EXPECT_EQ(SlowOf(8, 4, 4),
            "only 2.0 multiplications for each number that is made an integer for them");
  EXPECT_EQ(SlowOf(Dim::OfSymbol(0), 64, 64),
            "computed in float, though what it reads is integers");
}

class ByteActivationTest : public ::testing::TestWithParam<ByteLayer> {};

// Functions are approximated, so not always to the bit of what they mean; but everywhere alike.
TEST_P(ByteActivationTest, HasTheSameBitsOnEveryCpu) {
  const Graph graph = ByteGraph(GetParam());
  const std::vector<Tensor> inputs = ByteInputs(graph);
  std::optional<Tensor> first;
  ForEachBuild(graph, {3}, [&](const Compiled& compiled, int, const std::string& build) {
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      if (!first) first = actual[0];
      ExpectBits(actual[0], *first, build + ", " + run);
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Layers, ByteActivationTest, ::testing::ValuesIn(ByteActivations()),
                         [](const auto& test) { return test.param.name; });

class ByteFunctionTest : public ::testing::TestWithParam<Graph> {};

TEST_P(ByteFunctionTest, HasTheIntegersBits) {
  const Graph& graph = GetParam();
  const std::vector<Tensor> inputs = ByteInputs(graph);
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(InIntegers(graph), inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForEachBuild(graph, {0, 1, 2}, [&](const Compiled& compiled, int, const std::string& build) {
    int functions = 0;
    for (const KernelReport& report : compiled.report.kernels) {
      functions += report.op == "q.table" || report.op == "q.average_pool";
      EXPECT_NE(report.op, "DequantizeLinear") << build;
    }
    EXPECT_EQ(functions, 1) << build;
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      ExpectBits(actual[0], (*expected)[0], build + ", " + run);
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Functions, ByteFunctionTest, ::testing::ValuesIn(ByteFunctions()),
                         [](const auto& test) { return test.param.name; });

// A table of the run, which bytes of its own look up.
TEST(ByteFunctions, TablesMayBeInputs) {
  Graph graph;
  graph.name = "table_of_the_run";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kU8, {256}));
  const ValueId row = graph.AddConstant("row", Bytes255());
  const ValueId table = Node1(graph, "BitwiseXor", {x, row});
  graph.outputs = {Node1(graph, "q.table", {x, table}), Node1(graph, "q.table", {table, table})};
  Infer(graph);
  ExpectSame(graph, ByteInputs(graph), 3, 0);
  ExpectSame(graph, ByteInputs(graph), 0, 0);
}

// From floats to floats, with all that stands between layers: pooling, a residual sum of two
// quantized branches, channels joined, an average.
Graph Network() {
  Graph graph;
  graph.name = "network";
  const ValueId scale = graph.AddConstant("scale", Tensor::ScalarF32(0.02F));
  const ValueId zero =
      graph.AddConstant("zero", Tensor::Of(DataType::kU8, {}, std::vector<uint8_t>{117}));
  const auto pair = [&](ValueId x) {
    return Node1(graph, "DequantizeLinear",
                 {Node1(graph, "QuantizeLinear", {x, scale, zero}), scale, zero});
  };
  int seed = 1;
  const auto conv = [&](ValueId x, int64_t out, int64_t in, int64_t k) {
    Tensor weights = Tensor::Zeros(DataType::kI8, {out, in, k, k});
    for (int64_t i = 0; i < weights.size(); ++i)
      weights.mutable_bytes()[i] = static_cast<std::byte>((i * 89 + ++seed) % 255 - 127);
    const ValueId w = Node1(
        graph, "DequantizeLinear",
        {graph.AddConstant("w", weights), graph.AddConstant("ws", Tensor::ScalarF32(0.002F))});
    return Node1(graph, "Conv", {x, w}, {{"pads", std::vector<int64_t>(4, k / 2)}});
  };
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 3, 20, 18}));
  const ValueId stem = pair(Node1(graph, "Relu", {conv(pair(x), 24, 3, 3)}));
  const ValueId pooled = pair(Node1(graph, "MaxPool", {stem},
                                    {{"kernel_shape", std::vector<int64_t>{3, 3}},
                                     {"strides", std::vector<int64_t>{2, 2}},
                                     {"pads", std::vector<int64_t>{1, 1, 1, 1}}}));
  const ValueId left = pair(conv(pooled, 16, 24, 1)), right = pair(conv(pooled, 16, 24, 3));
  const ValueId sum = pair(Node1(graph, "Add", {left, right}));
  const ValueId joined = Node1(graph, "Concat", {sum, left}, {{"axis", int64_t{1}}});
  const ValueId last = conv(joined, 20, 32, 1);
  graph.outputs = {Node1(graph, "GlobalAveragePool", {pair(Node1(graph, "Relu", {last}))}),
                   Node1(graph, "QuantizeLinear", {last, scale, zero})};
  Infer(graph);
  return graph;
}

TEST(ByteNetwork, HasTheIntegersBits) {
  const Graph graph = Network();
  const Graph integers = InIntegers(graph);
  for (const Node& node : integers.nodes) {
    if (node.op == "MaxPool" || node.op == "Concat") {
      EXPECT_EQ(integers.value(node.outputs[0]).type.dtype, DataType::kU8) << node.name;
    }
  }
  const std::vector<Tensor> inputs = {Values({1, 3, 20, 18})};
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(integers, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ForEachBuild(graph, {}, [&](const Compiled& compiled, int, const std::string& build) {
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      ExpectBits(actual[1], (*expected)[1], build + ", " + run);
      EXPECT_LE(RelativeError(actual[0], (*expected)[0]), 1e-6)  // a sum of floats
          << build << ", " << run;
    });
  });
}

// As other tools write it: kernel and bias of a transposed convolution are dequantized constants.
Graph TransposedLayer() {
  Graph graph;
  graph.name = "transposed";
  const auto number = [&](float value) {
    return graph.AddConstant("scale", Tensor::ScalarF32(value));
  };
  const ValueId zero =
      graph.AddConstant("zero", Tensor::Of(DataType::kU8, {}, std::vector<uint8_t>{117}));
  Tensor weights = Tensor::Zeros(DataType::kI8, {16, 12, 4, 4});
  for (int64_t i = 0; i < weights.size(); ++i)
    weights.mutable_bytes()[i] = static_cast<std::byte>(i * 89 % 255 - 127);
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kU8, {1, 16, 7, 9}));
  const ValueId w =
      Node1(graph, "DequantizeLinear", {graph.AddConstant("w", weights), number(0.01F)});
  const ValueId b = Node1(
      graph, "DequantizeLinear",
      {graph.AddConstant("b", Tensor::Of(DataType::kI32, {12}, std::vector<int32_t>(12, 2900))),
       number(0.0002F)});
  const ValueId real = Node1(graph, "DequantizeLinear", {x, number(0.02F), zero});
  const ValueId y =
      Node1(graph, "ConvTranspose", {real, w, b},
            {{"strides", std::vector<int64_t>{2, 2}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  graph.outputs = {Node1(graph, "QuantizeLinear", {Node1(graph, "Relu", {y}), number(0.3F), zero})};
  Infer(graph);
  return graph;
}

TEST(ByteLayers, TransposedConvolutionsAreSumsOfProducts) {
  const Graph before = TransposedLayer();
  const absl::StatusOr<Graph> graph = passes::RunPipeline(before, {}, {});
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Graph integers = InIntegers(*graph);
  for (const Node& node : integers.nodes) {
    EXPECT_NE(node.op, "ConvTranspose");
    EXPECT_NE(node.op, "DequantizeLinear");
    if (node.op != "DepthToSpace" && node.op != "Slice") continue;
    EXPECT_EQ(integers.value(node.inputs[0]).type.dtype, DataType::kU8) << node.name;
  }
  const std::vector<Tensor> inputs = ByteInputs(*graph);
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(integers, inputs);
  const absl::StatusOr<std::vector<Tensor>> real = ops::Evaluate(before, inputs);
  ASSERT_TRUE(expected.ok() && real.ok()) << expected.status() << real.status();
  for (int64_t i = 0; i < (*real)[0].size(); ++i)
    ASSERT_NEAR((*expected)[0].FloatAt(i), (*real)[0].FloatAt(i), 1) << i;
  ForEachBuild(*graph, {}, [&](const Compiled& compiled, int, const std::string& build) {
    ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& run) {
      ExpectBits(actual[0], (*expected)[0], build + ", " + run);
    });
  });
}

// A right side of constants with batches stays with the nests.
TEST(ByteProducts, OfBatchesOfConstants) {
  for (const int64_t batches : {1, 2}) {
    Graph graph;
    graph.name = "batches";
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kU8, {2, 5, 64}));
    Tensor weights = Tensor::Zeros(DataType::kI8, {batches, 64, 32});
    std::byte* out = weights.mutable_bytes();
    for (int64_t i = 0; i < weights.size(); ++i)
      out[i] = static_cast<std::byte>(i * 37 % 255 - 127);
    graph.outputs = {Node1(graph, "MatMulInteger", {x, graph.AddConstant("w", weights)})};
    Infer(graph);
    ExpectInterpretersBits(graph, ByteInputs(graph));
  }
}

// Vectors round as they convert, between limits; a NaN gives 0.
TEST(QuantizeLinear, OfAnyFloat) {
  std::vector<float> values = {0.0F,  -0.0F,  INFINITY, -INFINITY, NAN,  -NAN,
                               1e30F, -1e30F, 1e-40F,   3e9F,      -3e9F};
  for (int i = -1100; i <= 1100; ++i)
    values.push_back(static_cast<float>(i) / 8);  // ties among them
  for (const int i : {32766, 32767, 32768, 65535, 65536}) {
    for (const float part : {-0.5F, 0.0F, 0.25F}) {
      values.push_back((static_cast<float>(i) + part) / 2);
      values.push_back((static_cast<float>(-i) + part) / 2);
    }
  }
  const auto count = static_cast<int64_t>(values.size());
  const std::vector<Tensor> inputs = {Tensor::Of(DataType::kF32, {count}, values)};
  Graph graph;
  graph.name = "quantized";
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {count}));
  const ValueId scale = graph.AddConstant("scale", Tensor::ScalarF32(0.5F));
  for (const DataType type : {DataType::kU8, DataType::kI8, DataType::kU16, DataType::kI16}) {
    const int64_t low = IsSigned(type) ? -(int64_t{1} << (DataTypeBits(type) - 1)) : 0;
    const int64_t high = low + (int64_t{1} << DataTypeBits(type)) - 1;
    for (const int64_t value : {low, int64_t{0}, int64_t{7}, high}) {
      Tensor zero = Tensor::Zeros(type, {});
      std::memcpy(zero.mutable_bytes(), &value, static_cast<size_t>(DataTypeBits(type) / 8));
      graph.outputs.push_back(
          Node1(graph, "QuantizeLinear", {x, scale, graph.AddConstant("zero", zero)}));
    }
  }
  Infer(graph);
  ExpectInterpretersBits(graph, inputs);
}

// On a CPU that adds pairs of products in 16 bits.
TEST(ByteLayers, ArePickedWhereFewPairsCouldSaturate) {
  CompileOptions options;
  options.target = "x86-64-v3";
  for (const ByteLayer& layer : PeakedLayers()) {
    const absl::StatusOr<Compiled> compiled = CompileGraph(ByteGraph(layer), options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    std::string reasons;
    for (const KernelReport& report : compiled->report.kernels) reasons += report.reason + "; ";
    EXPECT_NE(reasons.find("picked pairs"), std::string::npos) << layer.name << ": " << reasons;
  }
}

// Kernels of bytes take these layers, and name the form they multiply by.
TEST(ByteLayers, AreNotLeftToNests) {
  for (const ByteLayer& layer : ByteLayers()) {
    const absl::StatusOr<Compiled> compiled = CompileGraph(ByteGraph(layer));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    int products = 0;
    for (const KernelReport& report : compiled->report.kernels) {
      const bool product =
          report.kernel == "conv" || report.kernel == "depthwise" || report.kernel == "matmul";
      products += product ? 1 : 0;
      EXPECT_TRUE(product || layer.of_run || report.op == "Pad")
          << layer.name << ": " << report.kernel;
    }
    EXPECT_EQ(products, 1) << layer.name;
  }
}

}  // namespace
}  // namespace quench::codegen::integer_test
