// Naive arithmetic that the kernels are held against, and graphs to put them in.
#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

Tensor RandomTensor(std::vector<int64_t> dims, uint32_t seed);

struct ConvCase {
  std::string name;
  int64_t n = 1, ic = 8, ih = 8, iw = 8, oc = 8, kh = 1, kw = 1;
  std::vector<int64_t> strides = {1, 1}, pads = {0, 0, 0, 0}, dilations = {1, 1};
  int64_t group = 1;
  bool bias = true;
  int64_t out(int axis) const {
    const int64_t in = axis == 0 ? ih : iw;
    const int64_t k = ((axis == 0 ? kh : kw) - 1) * dilations[static_cast<size_t>(axis)] + 1;
    const size_t a = static_cast<size_t>(axis);
    return (in + pads[a] + pads[a + 2] - k) / strides[a] + 1;
  }
};
inline void PrintTo(const ConvCase& c, std::ostream* out) { *out << c.name; }
// Double accumulation over row-major tensors.
Tensor NaiveConv(const ConvCase& c, const Tensor& x, const Tensor& w, const Tensor& bias);

// [batch, m, k] x [batch, k, n]; a batch of 1 broadcasts.
Tensor NaiveMatMul(const Tensor& a, const Tensor& b, std::vector<int64_t> out_dims);

// A tail of pointwise nodes for a q.fused body: adds nodes to `body` that start from `root`, may
// add captures through `capture`, and returns the last value.
using Tail = std::function<ValueId(Graph& body, ValueId root,
                                   const std::function<ValueId(ValueId outer)>& capture)>;

// Wraps the last node of `graph` and a tail into a q.fused node in its place.
void Fuse(Graph& graph, const Tail& tail);
// A pointwise node in a body with the type of `like`.
ValueId Pointwise(Graph& body, const std::string& op, std::vector<ValueId> inputs, ValueId like);

// Targets of this machine's kind that it can run, weakest first, after its ForeignShape().
std::vector<Target> RunnableTargets();

}  // namespace quench::codegen
