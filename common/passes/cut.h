// A quantized model, cut where it quantizes, and the rule by which its integers are held against
// those of another computation.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::passes {

// A node of the outermost graph that makes integers of floats: QuantizeLinear or
// DynamicQuantizeLinear. Operands by the names of their values.
struct Quantizer {
  std::string node;   // in the source model
  std::string value;  // its integers
  DataType type = DataType::kUndefined;
  std::string x, scale, zero;  // zero: "" is 0
  int64_t axis = 1, block_size = 0;
  bool dynamic = false;  // scale and zero are its own results
};
std::vector<Quantizer> QuantizersOf(const Graph& graph);

// QLinearConv and QLinearMatMul as DequantizeLinear, Conv or MatMul, and QuantizeLinear, which is
// how ONNX defines them. Names of values stay.
absl::StatusOr<Graph> ExpandLinear(Graph graph);

// The graph with every reader of one of these values reading an input in its place: the new inputs
// follow the graph's own, in this order. The nodes that made the values still make them.
Graph CutAt(Graph graph, const std::vector<std::string>& values);

enum class Rounding { kNearest, kOtherOfTie, kWrong };
// How far from a tie, in steps, a number may lie for either neighbour to be right: 1e-3, and more
// where floats of the type `x` are too coarse for that.
double TieWidth(DataType x, DataType integers);
// Whether `actual` is `steps` rounded to the nearest integer, plus `zero`, saturated; else whether
// it is the other neighbour of a tie within `width`.
Rounding Judge(int64_t actual, double steps, int64_t zero, DataType type, double width);

// A quantizer's integers beside what it reads.
struct IntegerErrors {
  int64_t wrong = 0, ties = 0;  // elements
  // The wrong one that is farthest off: its row-major index, what it is, and what is computed, in
  // steps, before that is rounded.
  int64_t index = 0, actual = 0;
  double expected = 0;

  void Count(Rounding rounding, int64_t at, int64_t integer, double steps);
};
// `computed` is what the interpreter makes of `x`; both that and `actual` have its dims. `zero` may be
// null.
IntegerErrors JudgeElements(const Quantizer& quantizer, const Tensor& computed,
                            const Tensor& actual, const Tensor& x, const Tensor& scale,
                            const Tensor* zero);

}  // namespace quench::passes
