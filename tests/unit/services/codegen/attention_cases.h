// Attention for tests: of the operator and of the products that exporters write.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen {

struct AttentionCase {
  std::string name;
  int64_t batch = 2, heads = 4, kv_heads = 4, steps = 5, keys = 5, size = 8, value_size = 8;
  std::vector<int64_t> mask = {};  // dims; none when empty
  bool bool_mask = false;
  bool causal = false, folded = true, symbolic = false;
  int64_t past = 0;
  std::vector<int64_t> lengths = {};
  double cap = 0;
  bool products = false;  // MatMul, Softmax, MatMul instead of Attention
  DataType type = DataType::kF32;
};
inline void PrintTo(const AttentionCase& c, std::ostream* out) { *out << c.name; }

struct BuiltAttention {
  Graph graph;
  std::vector<Tensor> inputs;
};
BuiltAttention BuildAttention(const AttentionCase& c);

// Cases that kernels tell apart, most of them in f32; and all of them in halves, with heads of more sizes.
std::vector<AttentionCase> AttentionCases();
std::vector<AttentionCase> HalfAttentionCases();

// Numbers within `tolerance`, NaN and infinities where `right` has them.
void ExpectNear(const Tensor& actual, const Tensor& right, double tolerance,
                const std::string& what);

}  // namespace quench::codegen
