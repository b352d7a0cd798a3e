// Quantized layers for tests: one convolution or product between integers, with everything that
// kernels tell apart.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::codegen {

// How weights are drawn.
enum class Weights : uint8_t {
  kAny,      // from -127 to 127
  kLargest,  // 127 and -127 only: what saturates if anything does
  kSmall,    // from -60 to 60: neighbours may be added in 16 bits
  kLowest,   // -128 among them
  kPeaked,  // one of twelve from 90 to 128 or -127 to -90, the others from -40 to 40: as trained ones lie
  kFar,  // u8 less `w_zero`: two are farther from it than a byte holds; of one channel each, any
};

struct ByteLayer {
  std::string name;
  std::string op = "Conv";  // or Gemm, MatMul
  std::vector<int64_t> x = {1, 16, 9, 7};
  std::vector<int64_t> w = {24, 16, 1, 1};
  std::map<std::string, Attribute> attributes = {};
  DataType input = DataType::kU8;
  int64_t zero = 0;
  bool of_run = false;  // the zero point is an input `z`, and the scale depends on it
  DataType computed = DataType::kUndefined;  // of an input `w` that the right side is
  int64_t w_zero = 0;                        // where it is computed, or `weights` are kFar
  bool w_of_run = false;                     // the same of the right side, `wz`
  Weights weights = Weights::kAny;
  bool per_channel = true, bias = true, relu = true, residual = false;
  std::string activation = "";      // in place of Relu; Silu: times its Sigmoid
  DataType output = DataType::kU8;  // f32: not quantized
  int64_t output_zero = 0;
};
inline void PrintTo(const ByteLayer& layer, std::ostream* out) { *out << layer.name; }

// Inputs `x`, `r` where there is a residual, and `z`, as integers; DequantizeLinear and QuantizeLinear
// around the layer.
Graph ByteGraph(const ByteLayer& layer);
// Pointwise functions and averages from bytes to bytes, alone and between layers: one node of
// integers each.
std::vector<Graph> ByteFunctions();
// The meaning of the graph in integers: after the passes on integers, which must have taken the
// layer.
Graph InIntegers(const Graph& graph);
// Integers over their whole range, both ends often.
std::vector<Tensor> ByteInputs(const Graph& graph, uint32_t seed = 1);

// Adds values and nodes of `part`, their names with a prefix. Per value of it, the new one; its
// inputs are values without a producer.
std::vector<ValueId> AppendGraph(Graph& graph, const Graph& part, const std::string& prefix);

// Layers that together reach every path of the kernels.
std::vector<ByteLayer> ByteLayers();
// The layers whose weights are kPeaked.
std::vector<ByteLayer> PeakedLayers();
// Layers whose activations are computed in float, and what those give before it becomes bytes: a
// last bit of a float decides a byte too seldom to be seen.
std::vector<ByteLayer> ByteActivations();

}  // namespace quench::codegen
