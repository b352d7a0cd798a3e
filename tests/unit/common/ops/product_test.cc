// Matrix products, Einsum, running sums, determinants.
#include <gtest/gtest.h>

#include "common/loops/interpreter.h"
#include "run_op.h"

namespace quench::ops::product_test {
namespace {

TEST(MatMul, FollowsNumpyForEveryRank) {
  const Tensor a = Iota({2, 3});
  const Tensor b = Iota({3, 2});
  ExpectTensor(RunOp("MatMul", {a, b})[0], {2, 2}, {10, 13, 28, 40});
  ExpectTensor(RunOp("MatMul", {Iota({3}), b})[0], {2}, {10, 13});
  ExpectTensor(RunOp("MatMul", {a, Iota({3})})[0], {2}, {5, 14});
  ExpectTensor(RunOp("MatMul", {Iota({3}), Iota({3})})[0], {}, {5});
  // Batch dims broadcast: {2, 1} against {3}.
  const Tensor left = Iota({2, 1, 1, 2});
  const Tensor right = Iota({3, 2, 1});
  ExpectTensor(RunOp("MatMul", {left, right})[0], {2, 3, 1, 1}, {1, 3, 5, 3, 13, 23});
  ExpectTensor(RunOp("MatMul", {Iota({2, 1, 2}), Iota({2})})[0], {2, 1}, {1, 3});
}

TEST(MatMul, EmptyDepthGivesZeros) {
  ExpectTensor(RunOp("MatMul", {F32({2, 0}, {}), F32({0, 2}, {})})[0], {2, 2}, {0, 0, 0, 0});
}

TEST(MatMul, MismatchesAreNamed) {
  ExpectError(TryOp("MatMul", {Iota({2, 3}), Iota({2, 3})}),
              "columns of a and rows of b are 3 and 2");
  ExpectError(TryOp("MatMul", {Iota({}), Iota({2})}), "rank 0, MatMul takes at least 1");
}

TEST(Gemm, TransposesScalesAndAdds) {
  const Tensor a = Iota({2, 3});
  const Tensor at = F32({3, 2}, {0, 3, 1, 4, 2, 5});
  const Tensor b = Iota({3, 2});
  const Tensor bt = F32({2, 3}, {0, 2, 4, 1, 3, 5});
  const Attributes both = {
      {"transA", int64_t{1}}, {"transB", int64_t{1}}, {"alpha", 2.0}, {"beta", 0.5}};
  ExpectTensor(RunOp("Gemm", {a, b})[0], {2, 2}, {10, 13, 28, 40});
  ExpectTensor(RunOp("Gemm", {at, bt, F32({2}, {10, 20})}, both)[0], {2, 2}, {25, 36, 61, 90});
  ExpectTensor(RunOp("Gemm", {a, b, F32({2, 1}, {1, 2})})[0], {2, 2}, {11, 14, 30, 42});
  ExpectTensor(RunOp("Gemm", {a, b, F32({}, {1})})[0], {2, 2}, {11, 14, 29, 41});
  ExpectTensor(
      RunOp("Gemm", {I32({1, 2}, {1, 2}), I32({2, 1}, {3, 4}), I32({1}, {5})}, {{"alpha", 0.5}})[0],
      {1, 1}, {10});
  ExpectError(TryOp("Gemm", {a, b, F32({3}, {1, 2, 3})}), "cannot broadcast");
  ExpectError(TryOp("Gemm", {a, a}), "columns of a and rows of b");
}

TEST(MatMulInteger, ZeroPointsPerTensorRowAndColumn) {
  const Tensor a = U8({2, 2}, {1, 2, 3, 4});
  const Tensor b = U8({2, 2}, {1, 0, 0, 1});
  ExpectTensor(RunOp("MatMulInteger", {a, b})[0], {2, 2}, {1, 2, 3, 4});
  ExpectTensor(RunOp("MatMulInteger", {a, b, U8({}, {1})})[0], {2, 2}, {0, 1, 2, 3});
  ExpectTensor(RunOp("MatMulInteger", {a, b, U8({2}, {1, 3})})[0], {2, 2}, {0, 1, 0, 1});
  ExpectTensor(RunOp("MatMulInteger", {a, b, std::nullopt, U8({2}, {1, 0})})[0], {2, 2},
               {-2, 2, -4, 4});
  ExpectTensor(RunOp("MatMulInteger", {a, b, U8({2, 1}, {1, 3})})[0], {2, 2}, {0, 1, 0, 1});
  // Zero points per batch.
  ExpectTensor(
      RunOp("MatMulInteger", {U8({2, 1, 1}, {5, 5}), U8({1, 1}, {1}), U8({2, 1, 1}, {1, 2})})[0],
      {2, 1, 1}, {4, 3});
}

TEST(QLinearMatMul, RequantisesRoundingHalvesToEven) {
  const Tensor a = U8({1, 2}, {3, 4});
  const Tensor b = U8({2, 2}, {2, 1, 0, 1});
  // (3 * 2, 3 + 4) * 0.5 * 0.5 / 0.5 = 3, 3.5 -> 4; zero point 10.
  const std::vector<Tensor> y =
      RunOp("QLinearMatMul", {a, F32({}, {0.5f}), U8({}, {0}), b, F32({}, {0.5f}), U8({}, {0}),
                              F32({}, {0.5f}), U8({}, {10})});
  EXPECT_EQ(y[0].dtype(), DataType::kU8);
  ExpectTensor(y[0], {1, 2}, {13, 14});
}

Attributes Equation(const char* text) { return {{"equation", std::string(text)}}; }

TEST(Einsum, SumsOverLabels) {
  const Tensor a = Iota({2, 3});
  const Tensor b = Iota({3, 2});
  ExpectTensor(RunOp("Einsum", {a, b}, Equation("ij,jk->ik"))[0], {2, 2}, {10, 13, 28, 40});
  ExpectTensor(RunOp("Einsum", {a, b}, Equation("ij, jk"))[0], {2, 2}, {10, 13, 28, 40});
  ExpectTensor(RunOp("Einsum", {a}, Equation("ij->ji"))[0], {3, 2}, {0, 3, 1, 4, 2, 5});
  ExpectTensor(RunOp("Einsum", {a}, Equation("ij->"))[0], {}, {15});
  ExpectTensor(RunOp("Einsum", {a}, Equation("ij->j"))[0], {3}, {3, 5, 7});
  ExpectTensor(RunOp("Einsum", {Iota({2, 2})}, Equation("ii"))[0], {}, {3});
  ExpectTensor(RunOp("Einsum", {Iota({2, 2})}, Equation("ii->i"))[0], {2}, {0, 3});
  ExpectTensor(RunOp("Einsum", {Iota({2}), Iota({2}, 1), Iota({2}, 2)}, Equation("i,i,i->"))[0], {},
               {6});
  ExpectTensor(RunOp("Einsum", {Iota({2, 1, 2}), Iota({2, 2})}, Equation("...ij,jk->...ik"))[0],
               {2, 1, 2}, {2, 3, 6, 11});
  ExpectTensor(RunOp("Einsum", {Iota({2, 2}), Iota({1, 2})}, Equation("...i,...i"))[0], {2},
               {1, 3});
}

TEST(Einsum, BadEquationsAreNamed) {
  const Tensor a = Iota({2, 3});
  ExpectError(TryOp("Einsum", {a}, Equation("ij,jk->ik")), "equation has 2 terms for 1 inputs");
  ExpectError(TryOp("Einsum", {a}, Equation("i->i")), "does not fit input 0 of rank 2");
  ExpectError(TryOp("Einsum", {a, a}, Equation("ij,jk->ik")), "sizes 3 and 2");
  ExpectError(TryOp("Einsum", {a}, Equation("ij->ik")), "unknown or repeated");
  ExpectError(TryOp("Einsum", {a}, Equation("i1->i")), "a term is letters");
}

TEST(Einsum, CountsMacs) {
  Graph graph = OneNode("Einsum", {Iota({2, 3}), Iota({3, 4})}, Equation("ij,jk->ik"));
  ASSERT_TRUE(InferGraph(graph).ok());
  EXPECT_EQ(FindOp("Einsum")->macs(ContextOf(graph, graph.nodes[0])), Dim(24));
}

TEST(CumSum, EveryDirection) {
  const Tensor x = F32({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor last = I64({}, {-1});
  const Attributes exclusive = {{"exclusive", int64_t{1}}};
  const Attributes reverse = {{"reverse", int64_t{1}}};
  const Attributes both = {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}};
  ExpectTensor(RunOp("CumSum", {x, last})[0], {2, 3}, {1, 3, 6, 4, 9, 15});
  ExpectTensor(RunOp("CumSum", {x, I64({}, {0})})[0], {2, 3}, {1, 2, 3, 5, 7, 9});
  ExpectTensor(RunOp("CumSum", {x, last}, exclusive)[0], {2, 3}, {0, 1, 3, 0, 4, 9});
  ExpectTensor(RunOp("CumSum", {x, last}, reverse)[0], {2, 3}, {6, 5, 3, 15, 11, 6});
  ExpectTensor(RunOp("CumSum", {x, last}, both)[0], {2, 3}, {5, 3, 0, 11, 6, 0});
  ExpectTensor(RunOp("CumProd", {x, last})[0], {2, 3}, {1, 2, 6, 4, 20, 120});
  ExpectError(TryOp("CumSum", {x, I64({}, {2})}), "axis 2 is out of range");
}

// The axis is an ordinary input: its contents are not known when the nest is made.
TEST(CumSum, AxisFromData) {
  for (const int64_t wanted : {0, 1, -1}) {
    for (const int64_t exclusive : {0, 1}) {
      for (const int64_t reverse : {0, 1}) {
        const Attributes attributes = {{"exclusive", exclusive}, {"reverse", reverse}};
        Tensor x = F32({2, 3}, {1, 2, 3, 4, 5, 6});
        Tensor axis = I64({}, {wanted});
        const Tensor expected = RunOp("CumSum", {x, axis}, attributes)[0];
        Graph graph = OneNode("CumSum", {x, axis}, attributes);
        ASSERT_TRUE(InferGraph(graph).ok());
        const auto function = LowerNode(ContextOf(graph, graph.nodes[0]));
        ASSERT_TRUE(function.ok()) << function.status();
        Tensor y = Tensor::Zeros(DataType::kF32, {2, 3});
        const std::vector<loops::BufferView> buffers = {{x.mutable_bytes(), x.dims()},
                                                        {axis.mutable_bytes(), axis.dims()},
                                                        {y.mutable_bytes(), y.dims()}};
        ASSERT_TRUE(loops::Interpret(*function, buffers, {}).ok());
        ExpectTensor(y, {2, 3}, Doubles(expected));
      }
    }
  }
}

TEST(Det, PivotsAndBatches) {
  // The second matrix needs a row swap, the third is singular.
  const Tensor x = F32({3, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0, 1, 2, 2, 4});
  ExpectTensor(RunOp("Det", {x})[0], {3}, {-2, -1, 0}, 1e-5);
  ExpectTensor(RunOp("Det", {F32({3, 3}, {2, 0, 1, 1, 3, 2, 1, 1, 4})})[0], {}, {18}, 1e-5);
  ExpectError(TryOp("Det", {Iota({2, 3})}), "rows and columns are 2 and 3");
}

}  // namespace
}  // namespace quench::ops::product_test
