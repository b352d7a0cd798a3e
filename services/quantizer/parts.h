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
  kFloat,  // stays as it is, and reads what comes back from integers where others made them
  kExact,  // stays as it is, and reads values before they become integers: a step is too much for it
  kCompute,  // Conv, ConvTranspose, Gemm, MatMul, with the pointwise operations after it; LSTM, GRU, RNN
  kPointwise,  // Add, Mul, activations: integers in and out, arithmetic in float
  kPool,       // averages: likewise
  kMoves,      // MaxPool, Reshape, Concat, ...: output has the input's scale
};

inline bool StaysFloat(Part part) { return part == Part::kFloat || part == Part::kExact; }

bool IsAmong(const std::string& op, std::initializer_list<std::string_view> ops);

// LSTM, GRU or RNN: their weights become integers, what goes in and out stays as it is.
bool IsRecurrent(const std::string& op);
// Empty where their weights are constants, and can.
std::string WhyRecurrentStaysFloat(const Graph& graph, const Node& node);

// The computation that a group is named after: the first of its members.
const Node& RootOf(const Node& node);
Part PartOf(const Graph& graph, const Node& node);
// Inputs whose elements reach the output: those that are quantized with it. Constants among them; of
// recurrent layers none.
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

// The stage `quantized`, of bodies too, and the flag of the module.
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
// Per node, whether include and exclude leave it; errors as CheckPatterns has them, without bodies.
absl::StatusOr<std::vector<bool>> SelectedNodes(const Graph& graph, const QuantizeOptions& options);

struct Plan {
  std::vector<Part> parts;          // per node
  std::vector<bool> wanted;         // per value: as integers
  std::vector<LayerChoice> layers;  // convolutions and products
};
// Integers are wanted where a product that options leave reads, and from there backwards through
// what can work on them. INVALID_ARGUMENT names patterns of options that fit no node.
absl::StatusOr<Plan> PlanParts(const Graph& fused, const Statistics* statistics,
                               const QuantizeOptions& options);

}  // namespace quench::quantizer
