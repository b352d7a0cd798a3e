// A quantized model, cut where it quantizes, and the rule by which its integers are held against
// those of another computation.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::analyser {

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
// follow the graph's own, in this order. What made the values still makes them.
Graph CutAt(Graph graph, const std::vector<std::string>& values);

enum class Rounding { kNearest, kOtherOfTie, kWrong };
// How far from a tie, in steps, a number may lie for either neighbour to be right: 1e-3, and more
// where floats of the type `x` are too coarse for that.
double TieWidth(DataType x, DataType integers);
// Whether `actual` is `steps` rounded to the nearest integer, plus `zero`, saturated; else whether
// it is the other neighbour of a tie within `width`.
Rounding Judge(int64_t actual, double steps, int64_t zero, DataType type, double width);

}  // namespace quench::analyser
