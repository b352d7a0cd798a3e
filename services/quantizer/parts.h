// Permissions of quantization for each node of a graph whose groups are fused: the decision which
// values become integers, apart from how.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/quantizer/options.h"
#include "services/quantizer/report.h"
#include "services/quantizer/statistics.h"

namespace quench::quantizer {

enum class Part : uint8_t {
  kFloat,  // stays as it is, and reads dequantized values where others are integers
  kExact,  // stays as it is, and reads values before they are quantized: a step is too much for it
  kCompute,  // Conv, ConvTranspose, Gemm, MatMul, with the pointwise operations after it; LSTM, GRU, RNN
  kPointwise,  // Add, Mul, activations: integers in and out, arithmetic in float
  kPool,       // averages: integers in and out, arithmetic in float
  kMoves,      // MaxPool, Reshape, Concat, ...: output has the input's scale
};

inline bool StaysFloat(Part part) { return part == Part::kFloat || part == Part::kExact; }

bool IsAmong(const std::string& op, std::initializer_list<std::string_view> ops);

// LSTM, GRU or RNN: their weights become integers, their inputs and outputs stay as they are.
bool IsRecurrent(const std::string& op);
// Why their weights stay in float; empty if they are constants that can become integers.
std::string WhyRecurrentStaysFloat(const Graph& graph, const Node& node);

// The computation that a group is named after: the first of its members.
const Node& RootOf(const Node& node);
Part PartOf(const Graph& graph, const Node& node);
// Inputs whose elements reach the output, and which are quantized with it. Includes constants;
// recurrent layers have none.
std::vector<int> DataInputs(const Node& node);
// The input of `node` that is the root's operand; -1 if the root has no such operand, or it is
// within.
int OperandInput(const Node& node, int operand);

// Parts of a convolution that was split (SplitTensors) are called by its name and their number.
std::string PartName(const std::string& whole, size_t part);
// Whether `input` of a product is the result of another part of the same convolution, to be added:
// it stays as it is, because a sum is rounded only when it is whole.
bool IsPartialSum(const Graph& graph, const Node& node, int input);

// An f32 tensor of known rank that is computed while running.
bool IsActivation(const Graph& graph, ValueId id);
// Statistics of the value, if options ask for them and there are some; else null.
const TensorStatistics* StatisticsOf(const Graph& graph, ValueId id, const Statistics* statistics,
                                     const QuantizeOptions& options);

// Sets the stage `quantized`, also in bodies, and the flag of the module.
void MarkQuantized(Graph& graph);

// The result of include and exclude for a node, and so for those in its bodies.
struct Naming {
  bool included = false, excluded = false;
};
// `around` is that of the node in whose body this one is.
Naming NamingOf(const Node& node, const QuantizeOptions& options, Naming around = {});
bool IsSelected(Naming naming, const QuantizeOptions& options);
// INVALID_ARGUMENT names patterns that fit no node of the main graph or, if asked, of its bodies.
absl::Status CheckPatterns(const Graph& graph, const QuantizeOptions& options, bool bodies);
// Per node, whether include and exclude select it for quantization; errors as in CheckPatterns, without
// bodies.
absl::StatusOr<std::vector<bool>> SelectedNodes(const Graph& graph, const QuantizeOptions& options);

struct Plan {
  std::vector<Part> parts;          // per node
  std::vector<bool> wanted;         // per value: as integers
  std::vector<LayerChoice> layers;  // convolutions and products
};
// Integers are wanted where a product that options quantize reads, and from there backwards through
// operators that can work on them. INVALID_ARGUMENT names patterns of options that fit no node.
absl::StatusOr<Plan> PlanParts(const Graph& fused, const Statistics* statistics,
                               const QuantizeOptions& options);

}  // namespace quench::quantizer
