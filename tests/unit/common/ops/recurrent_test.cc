// LSTM, GRU and RNN. The expected numbers come from ONNX Runtime 1.30 on the same ramps.
#include "tests/unit/common/ops/run_unknown.h"

namespace quench::ops::recurrent_test {
namespace {

// ((3 * i) mod m - m / 2) * step: small, of both signs, no two gates alike.
Tensor Ramp(Dims dims, float step, int m = 7) {
  std::vector<float> values(static_cast<size_t>(*ElementCount(dims)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i) * 3 % m - m / 2) * step;
  return F32(std::move(dims), values);
}

// Three steps, batch 2 (lengths 3 and 2), input 2, hidden 2, both directions.
Operands Case(int64_t gates) {
  return {Ramp({3, 2, 2}, 0.2F),
          Ramp({2, gates * 2, 2}, 0.15F, 5),
          Ramp({2, gates * 2, 2}, 0.1F, 11),
          Ramp({2, gates * 4}, 0.05F, 9),
          I32({2}, {3, 2}),
          Ramp({2, 2, 2}, 0.3F, 5)};
}
const Attributes kBoth = {{"direction", std::string("bidirectional")}, {"hidden_size", int64_t{2}}};

TEST(Recurrent, LstmBothWaysWithLengthsAndPeepholes) {
  Operands operands = Case(4);
  operands.push_back(Ramp({2, 2, 2}, 0.2F));
  operands.push_back(Ramp({2, 6}, 0.1F, 5));
  for (const auto& y :
       {RunOp("LSTM", operands, kBoth, 3), RunUnknown("LSTM", operands, kBoth, 3)}) {
    ExpectTensor(y[0], {3, 2, 2, 2},
                 {-0.1002768,  -0.1131,     0.1318802,    -0.1597422,  -0.112949,   0.02650466,
                  -0.02993254, -0.1140469,  -0.1136155,   -0.08150008, -0.01646116, -0.06662437,
                  -0.04073745, -0.04773508, -0.007408726, -0.136932,   -0.0203131,  -0.1186713,
                  0,           0,           -0.01923494,  -0.05319078, 0,           0});
    ExpectTensor(y[1], {2, 2, 2},
                 {-0.0203131, -0.1186713, -0.01646116, -0.06662437, -0.112949, 0.02650466,
                  -0.02993254, -0.1140469});
    ExpectTensor(y[2], {2, 2, 2},
                 {-0.04217173, -0.2883953, -0.02999843, -0.1383263, -0.2274859, 0.05675233,
                  -0.07321245, -0.286572});
  }
}

TEST(Recurrent, LstmWithOtherActivations) {
  const Operands operands = {Ramp({3, 2, 2}, 0.2F), Ramp({1, 8, 2}, 0.15F, 5),
                             Ramp({1, 8, 2}, 0.1F, 11)};
  const Attributes attributes = {
      {"direction", std::string("reverse")},
      {"input_forget", int64_t{1}},
      {"clip", 0.1},
      {"activations", std::vector<std::string>{"HardSigmoid", "Softsign", "Relu"}},
      {"activation_alpha", std::vector<double>{0.3}},
      {"activation_beta", std::vector<double>{0.4}}};
  ExpectTensor(RunOp("LSTM", operands, attributes)[0], {3, 1, 2, 2},
               {0.01216112, 0.001679868, 0, 0.01122649, 0, 0.00387391, 0, 0.00387391, 0.01436273, 0,
                0.01446364, 0});
}

TEST(Recurrent, GruWithTheResetGateBeforeAndAfter) {
  const Operands operands = Case(3);
  ExpectTensor(RunUnknown("GRU", operands, kBoth, 2)[0], {3, 2, 2, 2},
               {-0.3872161, 0.2563973,   -0.02345928, 0.1888682,   -0.04237346, 0.1694292,
                -0.2392948, -0.05402749, -0.09680623, 0.05497944,  -0.03137288, 0.08503653,
                -0.1997961, -0.02293712, -0.09066644, -0.2011387,  -0.09003986, 0.1520892,
                0,          0,           -0.05120014, -0.08582909, 0,           0});
  Attributes linear = kBoth;
  linear["linear_before_reset"] = int64_t{1};
  ExpectTensor(RunUnknown("GRU", operands, linear, 2)[0], {3, 2, 2, 2},
               {-0.3775974, 0.245743,    -0.01024641, 0.1680862,  -0.0284585,  0.107015,
                -0.2297549, -0.09327006, -0.08208887, 0.0321909,  -0.01503634, 0.04908787,
                -0.1889119, -0.06502991, -0.08157974, -0.2179106, -0.07119189, 0.1170335,
                0,          0,           -0.04231039, -0.1099298, 0,           0});
}

TEST(Recurrent, RnnGivesTheLastStateOfEachSequence) {
  const auto y = RunUnknown("RNN", Case(1), kBoth, 2);
  ExpectTensor(y[0], {3, 2, 2, 2},
               {0.309507,   -0.09966803, -0.2729051, -0.1877462, -0.2554937,  -0.06327611,
                -0.133718,  0.1763231,   -0.3925575, -0.412746,  -0.07585227, -0.5097479,
                0.04431546, -0.06444764, -0.1586486, 0.07982981, 0.2625339,   -0.2676717,
                0,          0,           -0.3539917, -0.3274774, 0,           0});
  ExpectTensor(y[1], {2, 2, 2},
               {0.2625339, -0.2676717, -0.07585227, -0.5097479, -0.2554937, -0.06327611, -0.133718,
                0.1763231});
}

TEST(Recurrent, LayoutOnePutsTheBatchFirst) {
  Operands operands = {Ramp({3, 1, 2}, 0.2F), Ramp({1, 2, 2}, 0.15F, 5), Ramp({1, 2, 2}, 0.1F, 11)};
  const auto time_first = RunOp("RNN", operands, {}, 2);
  operands[0] = operands[0]->Reshaped({1, 3, 2});
  const auto batch_first = RunSymbolic("RNN", operands, {{"layout", int64_t{1}}}, 2, {1, 2});
  ExpectTensor(batch_first[0], {1, 3, 1, 2}, Doubles(time_first[0]));
  ExpectTensor(batch_first[1], {1, 1, 2}, Doubles(time_first[1]));
}

TEST(Recurrent, ErrorsNameWhatIsWrong) {
  Operands operands = Case(4);
  ExpectError(TryOp("LSTM", operands, {{"direction", std::string("sideways")}}),
              "direction is `sideways`");
  ExpectError(TryOp("LSTM", operands, {{"activations", std::vector<std::string>{"Tanh"}}}),
              "has 1 activations");
  ExpectError(TryOp("GRU", operands, kBoth), "axis 1 of input 1");
  operands[4] = I32({2}, {3, 9});
  ExpectError(TryOp("LSTM", operands, kBoth), "sequence length is out of range");
}

}  // namespace
}  // namespace quench::ops::recurrent_test
