#include <gtest/gtest.h>

#include <cmath>

#include "services/codegen/kernels/catalogue.h"
#include "tests/support/kernel_runner.h"
#include "tests/support/sample.h"
#include "tests/unit/services/codegen/kernels/reference.h"

namespace quench::codegen::matmul_test {
namespace {

// Every variation that a measured choice may take, on a sample of the targets that run here.
void Check(const Graph& graph, const std::map<ValueId, Tensor>& inputs,
           const std::vector<int64_t>& input_sizes, const Tensor& reference) {
  for (const Target& target : testing::Sample(RunnableTargets())) {
    const KernelRequest request{
        graph, graph.nodes.back(), target, {.opt_level = 4}, *graph.symbols};
    std::vector<Candidate> candidates;
    Propose(MatMulKernel(), request, candidates);
    ASSERT_GE(candidates.size(), 1U) << target.name;
    for (const Candidate& candidate : candidates) {
      SCOPED_TRACE(target.name + ": " + candidate.reason);
      auto runner = KernelRunner::Create(request, candidate);
      ASSERT_TRUE(runner.ok()) << runner.status();
      const auto slots = graph.symbols->Evaluate(input_sizes);
      ASSERT_TRUE(slots.ok()) << slots.status();
      for (const int ranges : {1, 3}) {
        const absl::Status prepared = (*runner)->Prepare(inputs, *slots);
        ASSERT_TRUE(prepared.ok()) << prepared;
        ASSERT_TRUE((*runner)->Run(ranges).ok());
        EXPECT_LT(RelativeError((*runner)->Output(), reference), 1e-5) << "ranges " << ranges;
      }
    }
  }
}

struct Shape {
  std::string name;
  std::vector<int64_t> a, b, y;
  bool constant_b = true;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

class MatMulTest : public ::testing::TestWithParam<Shape> {};

TEST_P(MatMulTest, EqualsTheNaiveSum) {
  const Shape& shape = GetParam();
  const auto dims = [](const std::vector<int64_t>& values) {
    return std::vector<Dim>(values.begin(), values.end());
  };
  Graph graph;
  const Tensor a = RandomTensor(shape.a, 1), b = RandomTensor(shape.b, 2);
  const ValueId left = graph.AddInput("a", Type::Tensor(DataType::kF32, dims(shape.a)));
  const ValueId right = shape.constant_b
                            ? graph.AddConstant("b", b)
                            : graph.AddInput("b", Type::Tensor(DataType::kF32, dims(shape.b)));
  const NodeId node = graph.AddNode("MatMul", "matmul", {left, right});
  graph.value(graph.node(node).outputs[0]).type = Type::Tensor(DataType::kF32, dims(shape.y));
  Check(graph, {{left, a}, {right, b}}, {}, NaiveMatMul(a, b, shape.y));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, MatMulTest,
    ::testing::Values(Shape{"square", {16, 32}, {32, 48}, {16, 48}},
                      Shape{"one_row", {1, 40}, {40, 100}, {1, 100}},
                      Shape{"one_column", {7, 9}, {9, 1}, {7, 1}},
                      Shape{"odd", {13, 17}, {17, 19}, {13, 19}},
                      Shape{"short_k", {5, 3}, {3, 33}, {5, 33}},
                      Shape{"many_rows", {301, 24}, {24, 20}, {301, 20}},
                      Shape{"rows_of_batches", {2, 3, 5, 11}, {11, 24}, {2, 3, 5, 24}},
                      Shape{"constant_batch", {3, 4, 8}, {3, 8, 18}, {3, 4, 18}},
                      Shape{"dynamic", {9, 21}, {21, 37}, {9, 37}, false},
                      Shape{"dynamic_batch", {2, 3, 7, 5}, {2, 3, 5, 23}, {2, 3, 7, 23}, false},
                      Shape{"dynamic_shared_left", {4, 6}, {3, 6, 9}, {3, 4, 9}, false},
                      Shape{"dynamic_shared_right", {3, 4, 6}, {6, 9}, {3, 4, 9}, false}),
    [](const auto& shape) { return shape.param.name; });

TEST(MatMul, DeclinesBatchesThatBroadcastInPart) {
  Graph graph;
  const ValueId a = graph.AddInput("a", Type::Tensor(DataType::kF32, {2, 1, 4, 5}));
  const ValueId b = graph.AddInput("b", Type::Tensor(DataType::kF32, {1, 3, 5, 6}));
  const NodeId node = graph.AddNode("MatMul", "matmul", {a, b});
  graph.value(graph.node(node).outputs[0]).type = Type::Tensor(DataType::kF32, {2, 3, 4, 6});
  std::vector<Candidate> candidates;
  const Target target = RunnableTargets().back();
  Propose(MatMulKernel(), {graph, graph.nodes.back(), target, {.opt_level = 3}, *graph.symbols},
          candidates);
  EXPECT_TRUE(candidates.empty());
}

TEST(Gemm, TransposedScaledBiased) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      const int64_t m = 11, k = 13, n = 21;
      Graph graph;
      const Tensor a = RandomTensor({m, k}, 1), b = RandomTensor({k, n}, 2),
                   c = RandomTensor({1, n}, 3);
      const auto transposed = [](const Tensor& t) {
        Tensor out = Tensor::Zeros(DataType::kF32, {t.dims()[1], t.dims()[0]});
        float* to = reinterpret_cast<float*>(out.mutable_bytes());
        for (int64_t i = 0; i < t.dims()[0]; ++i) {
          for (int64_t j = 0; j < t.dims()[1]; ++j) {
            to[j * t.dims()[0] + i] = t.as<float>()[static_cast<size_t>(i * t.dims()[1] + j)];
          }
        }
        return out;
      };
      const Tensor left = trans_a ? transposed(a) : a;
      const ValueId x = graph.AddInput(
          "a",
          Type::Tensor(DataType::kF32, std::vector<Dim>(left.dims().begin(), left.dims().end())));
      const ValueId w = graph.AddConstant("b", trans_b ? transposed(b) : b);
      const ValueId bias = graph.AddConstant("c", c);
      const NodeId node = graph.AddNode("Gemm", "gemm", {x, w, bias}, 1,
                                        {{"transA", int64_t{trans_a}},
                                         {"transB", int64_t{trans_b}},
                                         {"alpha", 0.5},
                                         {"beta", 2.0}});
      graph.value(graph.node(node).outputs[0]).type = Type::Tensor(DataType::kF32, {m, n});
      Tensor reference = NaiveMatMul(a, b, {m, n});
      float* values = reinterpret_cast<float*>(reference.mutable_bytes());
      for (int64_t i = 0; i < m * n; ++i) {
        values[i] = 0.5F * values[i] + 2 * c.as<float>()[static_cast<size_t>(i % n)];
      }
      Check(graph, {{x, left}}, {}, reference);
    }
  }
}

TEST(MatMulFused, ScaleBiasResidualAndGelu) {
  Graph graph;
  const int64_t m = 10, k = 12, n = 27;
  const Tensor a = RandomTensor({m, k}, 1), b = RandomTensor({k, n}, 2),
               r = RandomTensor({m, n}, 4);
  const ValueId x = graph.AddInput("a", Type::Tensor(DataType::kF32, {m, k}));
  const ValueId w = graph.AddConstant("b", b);
  const ValueId residual = graph.AddInput("residual", Type::Tensor(DataType::kF32, {m, n}));
  const ValueId scale = graph.AddConstant("scale", Tensor::ScalarF32(0.25F));
  const ValueId bias = graph.AddConstant("bias", RandomTensor({n}, 5));
  const NodeId node = graph.AddNode("MatMul", "matmul", {x, w});
  graph.value(graph.node(node).outputs[0]).type = Type::Tensor(DataType::kF32, {m, n});
  graph.outputs = {graph.node(node).outputs[0]};
  Fuse(graph, [&](Graph& body, ValueId root, const auto& capture) {
    ValueId v = Pointwise(body, "Mul", {root, capture(scale)}, root);
    v = Pointwise(body, "Add", {capture(bias), v}, root);
    v = Pointwise(body, "Add", {v, capture(residual)}, root);
    return Pointwise(body, "Gelu", {v}, root);
  });
  Tensor reference = NaiveMatMul(a, b, {m, n});
  float* values = reinterpret_cast<float*>(reference.mutable_bytes());
  for (int64_t i = 0; i < m * n; ++i) {
    const size_t at = static_cast<size_t>(i);
    const double v = values[i] * 0.25 + graph.value(bias).constant->tensor.as<float>()[at % n] +
                     r.as<float>()[at];
    values[i] = static_cast<float>(0.5 * v * (1 + std::erf(v / std::sqrt(2.0))));
  }
  Check(graph, {{x, a}, {residual, r}}, {}, reference);
}

// Attention with a symbolic sequence: rows, columns or the reduction known only at run time.
TEST(MatMulSymbolic, AnySequenceLength) {
  Graph scores, mix;
  for (Graph* graph : {&scores, &mix}) {
    const Dim seq = Dim::OfSymbol(graph->symbols->AddInput("seq", {0, 2}));
    const bool first = graph == &scores;
    const std::vector<Dim> a =
        first ? std::vector<Dim>{2, 3, seq, 8} : std::vector<Dim>{2, 3, seq, seq};
    const std::vector<Dim> b =
        first ? std::vector<Dim>{2, 3, 8, seq} : std::vector<Dim>{2, 3, seq, 20};
    const ValueId left = graph->AddInput("a", Type::Tensor(DataType::kF32, a));
    const ValueId right = graph->AddInput("b", Type::Tensor(DataType::kF32, b));
    const NodeId node = graph->AddNode("MatMul", "matmul", {left, right});
    graph->value(graph->node(node).outputs[0]).type = Type::Tensor(
        DataType::kF32, first ? std::vector<Dim>{2, 3, seq, seq} : std::vector<Dim>{2, 3, seq, 20});
  }
  for (const int64_t s : {1, 7, 16, 45}) {
    const Tensor a = RandomTensor({2, 3, s, 8}, 1), b = RandomTensor({2, 3, 8, s}, 2);
    Check(scores, {{scores.inputs[0], a}, {scores.inputs[1], b}}, {s},
          NaiveMatMul(a, b, {2, 3, s, s}));
    const Tensor p = RandomTensor({2, 3, s, s}, 3), v = RandomTensor({2, 3, s, 20}, 4);
    Check(mix, {{mix.inputs[0], p}, {mix.inputs[1], v}}, {s}, NaiveMatMul(p, v, {2, 3, s, 20}));
  }
}

TEST(MatMulSymbolic, ConstantWeights) {
  Graph graph;
  const Dim rows = Dim::OfSymbol(graph.symbols->AddInput("rows", {0, 0}));
  const ValueId x = graph.AddInput("a", Type::Tensor(DataType::kF32, {rows, 16}));
  const Tensor b = RandomTensor({16, 30}, 2);
  const NodeId node = graph.AddNode("MatMul", "matmul", {x, graph.AddConstant("b", b)});
  graph.value(graph.node(node).outputs[0]).type = Type::Tensor(DataType::kF32, {rows, 30});
  for (const int64_t m : {1, 5, 64, 131}) {
    const Tensor a = RandomTensor({m, 16}, 1);
    Check(graph, {{x, a}}, {m}, NaiveMatMul(a, b, {m, 30}));
  }
}

}  // namespace
}  // namespace quench::codegen::matmul_test
