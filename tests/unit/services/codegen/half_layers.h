// Layers of f16 or bf16 for tests: one convolution or product, with what kernels tell apart.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen {

// The largest relative error of one rounding: kernels round a result once, the interpreter after
// each node, and both add in f32.
double HalfEpsilon(DataType type);

// How far a library's results may be from the interpreter's: sums in f16 are coarser.
double HalfTolerance(const Compiled& compiled, DataType type);
// Number of its convolutions and products with sums in f16.
int64_t HalfSums(const Compiled& compiled);

Tensor HalfValues(DataType type, const std::vector<int64_t>& dims, uint64_t seed);

struct HalfLayer {
  std::string name, kernel;
  std::vector<int64_t> x, w;
  std::map<std::string, Attribute> attributes;
  std::string op = "Conv";
  bool bias = true, residual = false;
  std::vector<int64_t> computed_w = {};  // the right side is an input of these dims
};

const std::vector<HalfLayer>& HalfLayers();

// The layer, then Relu: one output.
Graph HalfGraph(const HalfLayer& layer, DataType type);

// Replaces constants by whole numbers: 0 but for one in every 61, so that sums stay below what bf16 counts, 256.
void UseWholeNumbers(Graph& graph, DataType type);
// Inputs that are whole numbers from 0 to 3: sums that do not round.
std::vector<Tensor> WholeInputs(const Graph& graph, DataType type);

// Convolutions and products of f16 with long reductions, an output each, and whole numbers for them
// whose sums a sum in f16 cannot hold: rounded once, results are the interpreter's.
Graph LongHalfSums();
std::vector<Tensor> LongHalfInputs(const Graph& graph);

}  // namespace quench::codegen
