// Operators that --float16 keeps in f32 so that large numbers have the results that f32 has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "common/ir/text.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "common/passes/float16.h"
#include "common/passes/pass.h"
#include "tests/support/graphs.h"

namespace quench::passes::float16_ranges_test {
namespace {

constexpr int64_t kRows = 4, kColumns = 32;

Graph Parsed(const std::string& body) {
  Graph graph = ParseGraph("quench.ir 1\nmodule \"m\" canonical {\n" + body + "}\n").value();
  EXPECT_TRUE(ops::InferGraph(graph).ok()) << body;
  return graph;
}

Graph Stored(const Graph& graph, const PassOptions& options) {
  return RunPass(*FindPass("store_float16"), graph, options, {}).value();
}

PassOptions Float16() {
  PassOptions options;
  options.store_as = DataType::kF16;
  return options;
}

// Random numbers of [-scale, scale) for inputs that are called x or s, and for masks, called m, a row
// that is open, one that is shut out but for one column, and others that are shut out wholly.
std::vector<Tensor> InputsFor(const Graph& graph, float scale, float open, float shut) {
  std::vector<Tensor> inputs = testing::RandomInputsFor(graph, 7);
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto* values = reinterpret_cast<float*>(inputs[i].mutable_bytes());
    const bool mask = graph.value(graph.inputs[i]).name == "m";
    for (int64_t j = 0; j < inputs[i].size(); ++j) {
      const int64_t row = j / kColumns, column = j % kColumns;
      if (!mask) values[j] *= scale;
      if (mask) values[j] = row == 0 || (row == 1 && column == 5) ? open : shut;
    }
  }
  return inputs;
}

struct RangeCase {
  std::string name, body;
  float scale = 1000;        // of inputs that are not masks
  float open = 1, shut = 0;  // what masks hold
  double most = 5e-2;        // RelativeError, of scores of 100 in f16; infinite with NaN
};

// Values between 600 and 10000, squares and sums of which f16 does not hold.
std::vector<RangeCase> LargeValues() {
  const std::string x = "  input %x: f32[4, 32]\n  const %last: i64[1] = [-1]\n";
  const std::string inverse =
      "  const %eps: f32[] = [1e-6]\n  const %one: f32[] = [1.0]\n"
      "  %e = Add(%m, %eps)\n  %r = Sqrt(%e)\n";
  return {
      {"RMS norm by division", x + "  %q = Mul(%x, %x)\n  %m = ReduceMean(%q, %last)\n" + inverse +
                                   "  %y = Div(%x, %r)\n  output %y\n"},
      {"RMS norm by one through the root",
       x + "  const %two: f32[] = [2.0]\n  %q = Pow(%x, %two)\n  %m = ReduceMean(%q, %last)\n" +
           inverse + "  %i = Div(%one, %r)\n  %y = Mul(%x, %i)\n  output %y\n"},
      {"RMS norm of what moved, by Reciprocal",
       x +
           "  const %s: i64[3] = [4, 4, 8]\n  const %axes: i64[2] = [1, 2]\n  %q = Mul(%x, %x)\n"
           "  %v = Reshape(%q, %s)\n  %w = ReduceSum(%v, %axes) {keepdims = 0}\n"
           "  %m = Unsqueeze(%w, %last)\n" +
           inverse + "  %i = Reciprocal(%r)\n  %y = Mul(%x, %i)\n  output %y\n"},
      {"layer norm by hand",
       x +
           "  %a = ReduceMean(%x, %last)\n  %d = Sub(%x, %a)\n  %f = Sub(%x, %a)\n"
           "  %q = Mul(%d, %f)\n  %m = ReduceMean(%q, %last)\n" +
           inverse + "  %y = Div(%d, %r)\n  output %y\n"},
      {"variance as a difference of squares",
       x +
           "  %q = Mul(%x, %x)\n  %b = ReduceMean(%q, %last)\n  %a = ReduceMean(%x, %last)\n"
           "  %c = Mul(%a, %a)\n  %m = Sub(%b, %c)\n" +
           inverse + "  %d = Sub(%x, %a)\n  %y = Div(%d, %r)\n  output %y\n"},
      {"L2 norm", x + "  %n = ReduceL2(%x, %last)\n  %y = Div(%x, %n)\n  output %y\n", 30000},
      {"sum of squares",
       x + "  %m = ReduceSumSquare(%x, %last)\n" + inverse + "  %y = Div(%x, %r)\n  output %y\n"},
      {"mean by hand",
       x + "  const %n: f32[] = [32.0]\n  %s = ReduceSum(%x, %last)\n  %a = Abs(%x)\n"
           "  %t = ReduceSum(%a, %last)\n  %b = Div(%t, %n)\n  %y = Div(%s, %b)\n"
           "  output %y\n",
       10000},
      {"cosine of two",
       x + "  input %s: f32[4, 32]\n  %a = Neg(%x)\n  %b = Neg(%s)\n  %p = Mul(%a, %b)\n"
           "  %d = ReduceSum(%p, %last)\n  %k = ReduceL2(%a, %last)\n  %l = ReduceL2(%b, %last)\n"
           "  %n = Mul(%k, %l)\n  %y = Div(%d, %n)\n  output %y\n"},
      {"softmax by hand",
       x + "  %e = Exp(%x)\n  %t = ReduceSum(%e, %last)\n  %y = Div(%e, %t)\n  output %y\n", 20},
      {"sigmoid by hand",
       x + "  const %one: f32[] = [1.0]\n  %n = Neg(%x)\n  %e = Exp(%n)\n  %t = Add(%one, %e)\n"
           "  %i = Reciprocal(%t)\n  %y = Mul(%i, %x)\n  output %y\n",
       20},
      {"between a large factor and its inverse",
       x + "  const %up: f32[] = [100000.0]\n  const %down: f32[] = [1e-05]\n  %u = Mul(%x, %up)\n"
           "  %v = Relu(%u)\n  %y = Mul(%v, %down)\n  output %y\n"},
      {"a division that normalises, behind a product",
       x + "  const %w: f32[32, 1] = [" +
           [] {
             std::string ones = "1.0";
             for (int i = 1; i < kColumns; ++i) ones += ", 1.0";
             return ones;
           }() +
           "]\n  %q = Mul(%x, %x)\n  %m = MatMul(%q, %w)\n" + inverse +
           "  %y = Div(%x, %r)\n  output %y\n"},
  };
}

// Masks as attention has them; y is what Softmax gives.
std::vector<RangeCase> Masks() {
  const std::string s =
      "  input %s: f32[4, 32]\n  input %m: f32[4, 32]\n  const %one: f32[] = [1.0]\n"
      "  %x = Neg(%s)\n";
  const std::string end = "  %y = Softmax(%t)\n  output %y\n";
  const auto times = [&](const std::string& low, double most) {
    return RangeCase{low + " times one less the mask",
                     s + "  const %low: f32[] = [" + low +
                         "]\n  %i = Sub(%one, %m)\n  %b = Mul(%i, %low)\n  %t = Add(%x, %b)\n" +
                         end,
                     100,
                     1,
                     0,
                     most};
  };
  return {
      times("-3.4028235e+38", 5e-2),
      times("-1e9", 5e-2),
      times("-65504.0", 5e-2),
      times("-10000.0", 1),  // f16 rounds what is shut out wholly
      {"mask less one, times a large number",
       s +
           "  const %high: f32[] = [1e9]\n  %i = Sub(%m, %one)\n  %b = Mul(%i, %high)\n"
           "  %t = Add(%x, %b)\n" +
           end,
       100},
      {"scores times the mask, less a large number",
       s +
           "  const %high: f32[] = [1e10]\n  %a = Mul(%x, %m)\n  %i = Sub(%one, %m)\n"
           "  %b = Mul(%i, %high)\n  %t = Sub(%a, %b)\n" +
           end,
       100},
      {"chosen",
       s +
           "  const %low: f32[] = [-1e9]\n  const %half: f32[] = [0.5]\n"
           "  %c = Greater(%m, %half)\n  %t = Where(%c, %x, %low)\n" +
           end,
       100},
      {"chosen first, then added, twice",
       s +
           "  const %zero: f32[] = [0.0]\n  const %low: f32[] = [-65504.0]\n"
           "  const %half: f32[] = [0.5]\n  %c = Greater(%m, %half)\n"
           "  %b = Where(%c, %zero, %low)\n  %d = Add(%b, %b)\n  %t = Add(%x, %d)\n" +
           end,
       100},
      {"a filling of a shape",
       s +
           "  %h = Shape(%x)\n  %f = ConstantOfShape(%h) {value = tensor(f32[1] = [-1e9])}\n"
           "  %i = Sub(%one, %m)\n  %b = Mul(%i, %f)\n  %t = Add(%x, %b)\n" +
           end,
       100},
      {"an input of lowest floats", s + "  %t = Add(%x, %m)\n" + end, 100, 0, -3.4028235e38F},
      {"an input of lowest floats that moves first",
       s +
           "  const %axes: i64[1] = [0]\n  %u = Unsqueeze(%m, %axes)\n"
           "  %v = Unsqueeze(%x, %axes)\n  %t = Add(%v, %u)\n" +
           end,
       100, 0, -3.4028235e38F},
  };
}

double ErrorOf(const RangeCase& each) {
  const Graph graph = Parsed(each.body);
  const Graph stored = Stored(graph, Float16());
  const std::vector<Tensor> inputs = InputsFor(graph, each.scale, each.open, each.shut);
  const Tensor expected = ops::Evaluate(graph, inputs).value()[0];
  const std::span<const float> numbers = expected.as<float>();
  EXPECT_TRUE(
      std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); }));
  for (const KeptFloat32& kept : KeptInFloat32(stored, Float16()))
    EXPECT_FALSE(kept.reason.empty()) << kept.node;
  return RelativeError(ops::Evaluate(stored, inputs).value()[0], expected);
}

TEST(Float16RangesTest, LargeValuesComeBackIntoRange) {
  for (const RangeCase& each : LargeValues()) {
    SCOPED_TRACE(each.name);
    EXPECT_LE(ErrorOf(each), 1e-2);
  }
}

// Rows that are shut out wholly have no NaN.
TEST(Float16RangesTest, MasksShutOut) {
  for (const RangeCase& each : Masks()) {
    SCOPED_TRACE(each.name);
    EXPECT_LE(ErrorOf(each), each.most);
  }
}

std::vector<std::string> KeptOps(const std::string& body, const PassOptions& options) {
  std::vector<std::string> kept;
  for (const KeptFloat32& each : KeptInFloat32(Stored(Parsed(body), options), options))
    kept.push_back(each.op);
  return kept;
}

using Ops = std::vector<std::string>;

TEST(Float16RangesTest, NothingStaysWithoutAReason) {
  const std::string x = "  input %x: f32[4, 32]\n  const %last: i64[1] = [-1]\n";
  // Behind what brings back into range, and with masks of which f16 holds several.
  EXPECT_EQ(KeptOps(x + "  const %low: f32[] = [-10000.0]\n  %a = Relu(%x)\n  %b = Mul(%a, %low)\n"
                        "  %c = Add(%a, %b)\n  %y = Softmax(%c)\n  %z = Mul(%y, %a)\n  output %z\n",
                    Float16()),
            Ops{"Softmax"});
  EXPECT_EQ(KeptOps(x + "  const %three: f32[] = [3.0]\n  %p = Pow(%x, %three)\n  %t = Tanh(%p)\n"
                        "  %y = Mul(%t, %x)\n  output %y\n",
                    Float16()),
            (Ops{"Pow", "Tanh"}));
  // A padding that the largest of a window does not see.
  EXPECT_EQ(
      KeptOps("  input %i: f32[1, 1, 4, 4]\n  const %pads: i64[8] = [0, 0, 1, 1, 0, 0, 1, 1]\n"
              "  const %low: f32[] = [-3.4e38]\n  %p = Pad(%i, %pads, %low)\n"
              "  %m = MaxPool(%p) {kernel_shape = [2, 2]}\n  %y = Neg(%m)\n  output %y\n",
              Float16()),
      (Ops{"Pad", "MaxPool"}));
  // e^x of what is at most 0.
  EXPECT_EQ(KeptOps(x + "  %m = ReduceMax(%x, %last)\n  %d = Sub(%x, %m)\n  %e = Exp(%d)\n"
                        "  %y = Mul(%e, %x)\n  output %y\n",
                    Float16()),
            Ops{"Exp"});
  // A sum of two branches.
  EXPECT_EQ(KeptOps("  input %i: f32[4, 2, 8]\n  const %axis: i64[1] = [1]\n  %r = Relu(%i)\n"
                    "  %s = ReduceSum(%r, %axis)\n  %y = Neg(%s)\n  output %y\n",
                    Float16()),
            Ops{"ReduceSum"});
}

// Samples tell that squares are small; that no mask shut out anything says nothing.
TEST(Float16RangesTest, SamplesLiftWhatIsNoMask) {
  const std::string square =
      "  input %x: f32[4, 32]\n  %q = Mul(%x, %x)\n  %y = Neg(%q)\n  output %y\n";
  EXPECT_EQ(KeptOps(square, Float16()), (Ops{"Mul", "Neg"}));
  PassOptions options = Float16();
  options.magnitudes = {{"x", 100}, {"q", 10000}, {"y", 10000}};
  EXPECT_EQ(KeptOps(square, options), Ops{});
  options.magnitudes["q"] = 20000;
  EXPECT_EQ(KeptOps(square, options), (Ops{"Mul", "Neg"}));
  options.magnitudes["q"] = 0;
  EXPECT_EQ(KeptOps("  input %x: f32[4, 32]\n  const %low: f32[] = [-1e9]\n  %q = Mul(%x, %low)\n"
                    "  %y = Neg(%q)\n  output %y\n",
                    options),
            (Ops{"Mul", "Neg"}));
}

}  // namespace
}  // namespace quench::passes::float16_ranges_test
