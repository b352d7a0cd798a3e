// Operators whose indices come from data, and those whose output size does.
#include "tests/unit/common/ops/run_unknown.h"

namespace quench::ops::indexing_test {
namespace {

TEST(Indexing, GatherTakesNegativeIndices) {
  const Operands operands = {Iota({3, 2}), I64({2, 1}, {-1, 0})};
  ExpectTensor(RunUnknown("Gather", operands)[0], {2, 1, 2}, {4, 5, 0, 1});
  ExpectTensor(RunSymbolic("Gather", {Iota({2, 3}), I32({2}, {2, 0})}, {{"axis", int64_t{1}}})[0],
               {2, 2}, {2, 0, 5, 3});
  ExpectTensor(RunOp("Gather", {Iota({3}), I64({}, {1})})[0], {}, {1});
}

TEST(Indexing, AnIndexOutOfRangeFailsTheRun) {
  for (const int64_t bad : {3, -4}) {
    ExpectError(TryOp("Gather", {Iota({3}), I64({1}, {bad})}), "out of range");
    ExpectError(TryOp("GatherElements", {Iota({3}), I64({1}, {bad})}), "out of range");
    ExpectError(TryOp("GatherND", {Iota({3}), I64({1, 1}, {bad})}), "out of range");
    ExpectError(TryOp("ScatterElements", {Iota({3}), I64({1}, {bad}), Iota({1})}), "out of range");
    ExpectError(TryOp("ScatterND", {Iota({3}), I64({1, 1}, {bad}), Iota({1})}), "out of range");
  }
}

TEST(Indexing, GatherElementsAndGatherND) {
  ExpectTensor(RunUnknown("GatherElements", {Iota({2, 2}), I64({2, 2}, {0, 0, 1, -2})},
                          {{"axis", int64_t{1}}})[0],
               {2, 2}, {0, 0, 3, 2});
  ExpectTensor(RunUnknown("GatherND", {Iota({2, 2, 2}), I64({2, 2}, {0, 1, 1, 0})})[0], {2, 2},
               {2, 3, 4, 5});
  ExpectTensor(
      RunOp("GatherND", {Iota({2, 2, 2}), I64({2, 1}, {1, 0})}, {{"batch_dims", int64_t{1}}})[0],
      {2, 2}, {2, 3, 4, 5});
}

TEST(Indexing, ScatterElementsReduces) {
  const Operands operands = {F32({3}, {1, 2, 3}), I64({3}, {0, 0, -1}), F32({3}, {5, 7, 2})};
  const auto run = [&](const std::string& reduction) {
    return RunUnknown("ScatterElements", operands, {{"reduction", reduction}})[0];
  };
  ExpectTensor(run("none"), {3}, {7, 2, 2});
  ExpectTensor(run("add"), {3}, {13, 2, 5});
  ExpectTensor(run("mul"), {3}, {35, 2, 6});
  ExpectTensor(run("max"), {3}, {7, 2, 3});
  ExpectTensor(run("min"), {3}, {1, 2, 2});
  ExpectError(TryOp("ScatterElements", operands, {{"reduction", std::string("sum")}}),
              "reduction is `sum`");
}

TEST(Indexing, TensorScatterWritesSteps) {
  const Tensor cache = F32({2, 3, 1}, {0, 1, 2, 3, 4, 5}), steps = F32({2, 2, 1}, {10, 11, 12, 13});
  ExpectTensor(RunUnknown("TensorScatter", {cache, steps})[0], {2, 3, 1}, {10, 11, 2, 12, 13, 5});
  ExpectTensor(RunUnknown("TensorScatter", {cache, steps, I64({2}, {1, 0})})[0], {2, 3, 1},
               {0, 10, 11, 12, 13, 5});
  const Attributes circular = {{"mode", std::string("circular")}, {"axis", int64_t{1}}};
  ExpectTensor(RunUnknown("TensorScatter", {cache, steps, I64({2}, {2, 0})}, circular)[0],
               {2, 3, 1}, {11, 1, 10, 12, 13, 5});
  ExpectError(TryOp("TensorScatter", {cache, steps, I64({2}, {2, 0})}), "out of range");
  ExpectError(TryOp("TensorScatter", {cache, steps, I64({2}, {0, -1})}), "out of range");
  ExpectError(TryOp("TensorScatter", {cache, steps, I64({2}, {3, 0})}, circular), "out of range");
  ExpectError(TryOp("TensorScatter", {steps, cache}), "the cache has 2");
  ExpectError(TryOp("TensorScatter", {cache, steps}, {{"axis", int64_t{0}}}), "the batch");
  ExpectError(TryOp("TensorScatter", {cache, steps}, {{"mode", std::string("ring")}}), "`ring`");
}

TEST(Indexing, ScatterNDWritesSlices) {
  const Operands operands = {Iota({3, 2}), I64({2, 1}, {2, 0}), Iota({2, 2}, 10)};
  ExpectTensor(RunUnknown("ScatterND", operands)[0], {3, 2}, {12, 13, 2, 3, 10, 11});
  const Operands twice = {F32({2}, {1, 1}), I64({2, 1}, {1, 1}), F32({2}, {3, 4})};
  ExpectTensor(RunUnknown("ScatterND", twice, {{"reduction", std::string("add")}})[0], {2}, {1, 8});
}

TEST(Indexing, OneHotWrapsAndIgnores) {
  const Operands operands = {I64({3}, {1, -1, 7}), I64({}, {3}), F32({2}, {-1, 5})};
  const std::vector<double> expected = {-1, 5, -1, -1, -1, 5, -1, -1, -1};
  ExpectTensor(RunOp("OneHot", operands)[0], {3, 3}, expected);
  ExpectTensor(RunUnknown("OneHot", operands)[0], {3, 3}, expected);
}

TEST(Indexing, NonZeroAndCompressCountInTheRun) {
  ExpectTensor(RunUnknown("NonZero", {F32({2, 2}, {0, 3, 4, 0})})[0], {2, 2}, {0, 1, 1, 0});
  ExpectTensor(RunUnknown("NonZero", {Bool({3}, {0, 0, 0})})[0], {1, 0}, {});
  ExpectTensor(RunUnknown("Compress", {Iota({2, 2}), Bool({2}, {0, 1})}, {{"axis", int64_t{1}}})[0],
               {2, 1}, {1, 3});
  ExpectTensor(RunUnknown("Compress", {Iota({2, 2}), Bool({5}, {0, 1, 0, 1, 1})})[0], {2}, {1, 3});
}

TEST(Indexing, TopKKeepsTheOrderOfEqualElements) {
  const Tensor x = F32({2, 4}, {1, 3, 3, 2, 4, 4, 0, 4});
  const auto best = RunUnknown("TopK", {x, Tensor::I64({3})}, {}, 2);
  ExpectTensor(best[0], {2, 3}, {3, 3, 2, 4, 4, 4});
  ExpectTensor(best[1], {2, 3}, {1, 2, 3, 0, 1, 3});
  const auto least =
      RunOp("TopK", {x, Tensor::I64({1})}, {{"largest", int64_t{0}}, {"axis", int64_t{0}}}, 2);
  ExpectTensor(least[0], {1, 4}, {1, 3, 0, 2});
  ExpectTensor(least[1], {1, 4}, {0, 0, 1, 0});
  ExpectError(TryOp("TopK", {x, Tensor::I64({5})}, {}, 2), "k is 5");
}

TEST(Indexing, TopKSortsManyElements) {
  std::vector<float> values;
  for (int i = 0; i < 101; ++i) values.push_back(static_cast<float>((i * 37) % 101));
  const Tensor sorted = RunOp("TopK", {F32({101}, values), Tensor::I64({101})}, {}, 2)[0];
  for (int64_t i = 0; i < 101; ++i) ASSERT_EQ(sorted.FloatAt(i), 100 - i);
}

TEST(Indexing, NonMaxSuppressionDropsOverlaps) {
  const Tensor boxes = F32({1, 3, 4}, {0, 0, 1, 1, 0, 0.1F, 1, 1.1F, 0, 10, 1, 11});
  const Tensor scores = F32({1, 1, 3}, {0.9F, 0.75F, 0.6F});
  const Operands operands = {boxes, scores, I64({1}, {3}), F32({1}, {0.5F}), F32({1}, {0})};
  ExpectTensor(RunUnknown("NonMaxSuppression", operands)[0], {2, 3}, {0, 0, 0, 0, 0, 2});
  const Operands none = {boxes, scores};  // at most 0 boxes
  ExpectTensor(RunUnknown("NonMaxSuppression", none)[0], {0, 3}, {});
}

}  // namespace
}  // namespace quench::ops::indexing_test
