// Attention, rotary embeddings, losses, windows and Fourier transforms.
#include "tests/unit/common/ops/run_unknown.h"

namespace quench::ops::attention_test {
namespace {

// Two queries, two keys, one head of size 1: scores are products.
const Tensor kQuery = F32({1, 1, 2, 1}, {0, 1});
const Tensor kKey = F32({1, 1, 2, 1}, {0, std::log(3.0F)});
const Tensor kValue = F32({1, 1, 2, 1}, {0, 8});

TEST(Attention, WeighsValuesByTheSoftmaxOfScores) {
  for (const auto& y : {RunUnknown("Attention", {kQuery, kKey, kValue}),
                        RunOp("Attention", {kQuery, kKey, kValue})}) {
    ExpectTensor(y[0], {1, 1, 2, 1}, {4, 6}, 1e-5);
  }
  ExpectTensor(RunOp("Attention", {kQuery, kKey, kValue}, {{"scale", 0.0}})[0], {1, 1, 2, 1},
               {4, 4}, 1e-5);
}

TEST(Attention, CausalBooleanAndFloatMasks) {
  ExpectTensor(RunUnknown("Attention", {kQuery, kKey, kValue}, {{"is_causal", int64_t{1}}})[0],
               {1, 1, 2, 1}, {0, 6}, 1e-5);
  // A query that may attend nothing gives zeros; the second sees only the second key.
  const Tensor mask = Bool({2, 2}, {0, 0, 0, 1});
  ExpectTensor(RunUnknown("Attention", {kQuery, kKey, kValue, mask})[0], {1, 1, 2, 1}, {0, 8},
               1e-5);
  const Tensor bias = F32({1, 2}, {std::log(3.0F), 0});
  ExpectTensor(RunUnknown("Attention", {kQuery, kKey, kValue, bias})[0], {1, 1, 2, 1}, {2, 4},
               1e-5);
}

TEST(Attention, PastKeysComeFirst) {
  const Tensor query = F32({1, 1, 1, 1}, {1});
  const Tensor key = F32({1, 1, 1, 1}, {std::log(3.0F)});
  const Tensor value = F32({1, 1, 1, 1}, {8});
  const Tensor past = F32({1, 1, 1, 1}, {0});
  const auto y = RunUnknown("Attention", {query, key, value, std::nullopt, past, past},
                            {{"is_causal", int64_t{1}}}, 3);
  ExpectTensor(y[0], {1, 1, 1, 1}, {6}, 1e-5);
  ExpectTensor(y[1], {1, 1, 2, 1}, {0, std::log(3.0)});
  ExpectTensor(y[2], {1, 1, 2, 1}, {0, 8});
  ExpectError(TryOp("Attention", {query, key, value, std::nullopt, past}), "come together");
}

TEST(Attention, GroupedHeadsShareKeys) {
  const Tensor query = F32({1, 1, 2}, {0, 1});  // two heads of size 1, folded
  const Attributes attributes = {{"q_num_heads", int64_t{2}}, {"kv_num_heads", int64_t{1}}};
  const Operands operands = {query, kKey.Reshaped({1, 2, 1}), kValue.Reshaped({1, 2, 1})};
  ExpectTensor(RunUnknown("Attention", operands, attributes)[0], {1, 1, 2}, {4, 6}, 1e-5);
  ExpectError(TryOp("Attention", operands), "needs the number of heads");
}

TEST(QAttention, SaysWhatDoesNotFit) {
  const Tensor x = F32({1, 2, 2}, {0, 1, 2, 3});
  const auto attend = [&](int64_t heads, int64_t size, std::vector<int64_t> offsets) {
    return TryOp("q.attention", {x, x, x},
                 {{"heads", heads}, {"size", size}, {"offsets", std::move(offsets)}});
  };
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(attend(1, 1, {0, 1, 0}).ok());
  ExpectError(attend(most, most, {0, 0, 0}), "each is 1 to");
  ExpectError(attend(2, 1, {1, 0, 0}), "exceed the 2 columns of queries");
  ExpectError(attend(1, 1, {0, most, 0}), "of keys");
  ExpectError(attend(1, 1, {0, 0}), "there are three");
  ExpectError(
      TryOp("q.attention", {kQuery, kKey, kValue}, {{"offsets", std::vector<int64_t>{1, 0, 0}}}),
      "have an offset");
}

TEST(RotaryEmbedding, TurnsPairs) {
  const Tensor cosine = F32({2, 1}, {1, 0});
  const Tensor sine = F32({2, 1}, {0, 1});  // position 1 is a quarter turn
  const Tensor x = F32({1, 1, 2, 3}, {1, 2, 9, 1, 2, 9});
  const Attributes attributes = {{"rotary_embedding_dim", int64_t{2}}};
  ExpectTensor(RunUnknown("RotaryEmbedding", {x, cosine, sine, I64({1, 2}, {0, 1})}, attributes)[0],
               {1, 1, 2, 3}, {1, 2, 9, -2, 1, 9});
  ExpectError(TryOp("RotaryEmbedding", {x, cosine, sine, I64({1, 2}, {0, 2})}, attributes),
              "position is out of range");
}

TEST(Losses, NegativeLogLikelihood) {
  const Operands operands = {F32({3, 2}, {-1, -2, -3, -4, -5, -6}), I64({3}, {1, 0, 1}),
                             F32({2}, {1, 3})};
  const auto run = [&](const std::string& reduction) {
    return RunUnknown("NegativeLogLikelihoodLoss", operands,
                      {{"reduction", reduction}, {"ignore_index", int64_t{0}}})[0];
  };
  ExpectTensor(run("none"), {3}, {6, 0, 18});
  ExpectTensor(run("sum"), {}, {24});
  ExpectTensor(run("mean"), {}, {4});
  ExpectError(TryOp("NegativeLogLikelihoodLoss", {F32({1, 2}, {0, 0}), I64({1}, {2})}),
              "label is out of range");
}

TEST(Losses, SoftmaxCrossEntropyGivesLogProbabilities) {
  const auto y = RunUnknown("SoftmaxCrossEntropyLoss",
                            {F32({1, 2}, {0, std::log(3.0F)}), I64({1}, {1})}, {}, 2);
  ExpectTensor(y[0], {}, {-std::log(0.75)});
  ExpectTensor(y[1], {1, 2}, {std::log(0.25), std::log(0.75)});
}

TEST(Signals, Windows) {
  ExpectTensor(RunUnknown("HannWindow", {I64({}, {4})})[0], {4}, {0, 0.5, 1, 0.5});
  ExpectTensor(RunUnknown("HannWindow", {I64({}, {3})}, {{"periodic", int64_t{0}}})[0], {3},
               {0, 1, 0});
  ExpectTensor(RunOp("HammingWindow", {I64({}, {2})})[0], {2}, {4.0 / 46, 1});
  ExpectTensor(RunOp("BlackmanWindow", {I64({}, {2})})[0], {2}, {0, 1});
}

TEST(Signals, FourierTransformAndBack) {
  const Tensor x = F32({1, 4, 1}, {1, 2, 3, 5});
  const Tensor spectrum = RunUnknown("DFT", {x})[0];
  ExpectTensor(spectrum, {1, 4, 2}, {11, 0, -2, 3, -3, 0, -2, -3});
  ExpectTensor(RunUnknown("DFT", {spectrum}, {{"inverse", int64_t{1}}})[0], {1, 4, 2},
               {1, 0, 2, 0, 3, 0, 5, 0});
  const Tensor half = RunUnknown("DFT", {x}, {{"onesided", int64_t{1}}})[0];
  ExpectTensor(half, {1, 3, 2}, {11, 0, -2, 3, -3, 0});
  ExpectTensor(RunUnknown("DFT", {half}, {{"onesided", int64_t{1}}, {"inverse", int64_t{1}}})[0],
               {1, 4, 1}, {1, 2, 3, 5});
}

TEST(Signals, StftTransformsFrames) {
  const Operands operands = {F32({1, 4, 1}, {1, 2, 3, 5}), I64({}, {2}), F32({2}, {1, 2})};
  ExpectTensor(RunUnknown("STFT", operands, {}, 1, {1})[0], {1, 2, 2, 2},
               {5, 0, -3, 0, 13, 0, -7, 0});
}

}  // namespace
}  // namespace quench::ops::attention_test
