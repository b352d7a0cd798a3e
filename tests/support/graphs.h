// Small graphs for tests: built, run and compared.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::testing {

// Values in [-1, 1), the same for the same seed.
Tensor RandomTensor(const std::vector<int64_t>& dims, uint64_t seed);

// One random tensor per graph input: 8-bit integers over their whole range where it takes those,
// else f32; symbolic dims take `symbol_size`.
std::vector<Tensor> RandomInputsFor(const Graph& graph, uint64_t seed, int64_t symbol_size = 3);

// Adds a node with one output, infers its type, and returns the output. Test failure on an error.
ValueId Add(Graph& graph, const std::string& op, std::vector<ValueId> inputs,
            std::map<std::string, Attribute> attributes = {}, const std::string& name = "");

// Number of nodes with this op.
int CountOps(const Graph& graph, const std::string& op);

// Largest RelativeError over the outputs of the two graphs on equal random inputs; +inf when one of
// them fails.
double Difference(const Graph& a, const Graph& b, uint64_t seed = 1);

}  // namespace quench::testing
