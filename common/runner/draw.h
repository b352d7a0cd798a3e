// How random inputs are drawn so that a graph can take them. Within common/runner alone.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/ir/graph.h"
#include "common/runner/runner.h"

namespace quench {

// splitmix64 (Steele, Lea, Flood 2014): the same numbers on every machine, unlike the standard
// distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  double Uniform();  // [0, 1)
  double Normal();   // Box and Muller's normal deviate, clipped to [-4, 4]
  // Between the two, both included. The ends are as likely as all that lies between them is rare.
  int64_t Within(int64_t low, int64_t high);
  bool OneIn(uint64_t times) { return Next() % times == 0; }

 private:
  uint64_t state_;
};

// The dims of each input: `sizes` by the names of symbolic dims, else the least ones. Names that no
// input has are INVALID_ARGUMENT.
absl::StatusOr<std::vector<std::vector<int64_t>>> DrawnDims(
    std::span<const ArtifactTensor> inputs, const std::map<std::string, int64_t>& sizes);

// The generator of input `i`: inputs do not depend on one another's sizes.
Random RandomOfInput(uint64_t seed, size_t i);

// Floats from N(0, 1), integers below `below`, fair bools.
absl::StatusOr<Tensor> DrawAnything(const ArtifactTensor& input, std::vector<int64_t> dims,
                                    uint64_t below, Random& random);

// A rule for the elements of a value: those that its readers can take.
struct DrawRule {
  // An integer between two, both included.
  struct Cell {
    int64_t low = std::numeric_limits<int64_t>::min();
    int64_t high = std::numeric_limits<int64_t>::max();
    bool free() const {
      return low == std::numeric_limits<int64_t>::min() &&
             high == std::numeric_limits<int64_t>::max();
    }
  };
  // Bounds of the elements in row-major order, repeated in a cycle; empty: any integer. One for each
  // component of an index, or for each element of a list.
  std::vector<Cell> cells;
  // A number minus this is the same index (counted from the end); 0: there are no such negative
  // indices.
  int64_t negative = 0;
  // Indices of places that are written: no two are the same along this axis, or no two rows where it
  // is -1. Holds for values of these dims.
  std::optional<int> distinct;
  std::vector<int64_t> dims;
  // 0 or 1, the first along the last axis 1: a row that shuts out everything may have no result.
  bool mask = false;
  // Rows that are 0 everywhere have a result all the same.
  bool empty_rows = false;
  std::set<int64_t> compared;                     // with these the graph compares it
  std::optional<std::pair<double, double>> real;  // floats: between the two

  bool free() const;
};

// A rule for each input of the graph, whose inputs have these dims. Lists that must fit one another (sizes of
// a Reshape) are drawn here, by the seed.
std::vector<DrawRule> RulesOfInputs(const Graph& graph, std::span<const std::vector<int64_t>> dims,
                                    uint64_t seed);

}  // namespace quench
