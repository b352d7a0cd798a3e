// Matrix products split into tiles, for an engine that takes matrices of limited size.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"

namespace quench::analyser {

// Largest sizes of one product [m, k] x [k, n]; each at least 1.
struct TileLimits {
  int64_t m = 0, n = 0, k = 0;
};

struct TiledProduct {
  std::string node, op;
  int64_t m = 0, n = 0, k = 0;                    // symbolic sizes at their largest
  int64_t tiles_m = 1, tiles_n = 1, tiles_k = 1;  // all 1: the product fits, and is left alone
  int64_t products() const { return tiles_m * tiles_n * tiles_k; }
};

struct TileReport {
  TileLimits limits;
  std::vector<TiledProduct> products;     // every Gemm and MatMul, also in bodies
  std::map<std::string, int64_t> others;  // nodes left alone, by other operators that multiply
  int64_t samples = 0;                    // on which both graphs were run
  double error = 0;                       // RelativeError of the worst output
};

struct Tiled {
  Graph graph;
  TileReport report;
};

// Replaces Gemm and MatMul above the limits by Split, MatMul, Add and Concat within them, with
// Transpose if an operand was read transposed, and Mul for alpha and beta. The last tile of an axis is
// the remainder. Sums over tiles of k are added from first to last. Outputs keep their names, a batch
// stays a batch. `graph` is canonical. INVALID_ARGUMENT names every product whose size is not known to be
// within a limit nor fixed, and limits that make more than kMostTiles products.
absl::StatusOr<Tiled> TileGraph(Graph graph, const TileLimits& limits,
                                const StepContext& context = {});
inline constexpr int64_t kMostTiles = 1 << 18;

// Options for the comparison of a tiled graph with the original.
struct TileProof {
  int64_t samples = 20;  // random inputs
  uint64_t seed = 1;
  double tolerance = 1e-5;  // relative to an output's largest value
};
// TileGraph, with both graphs run by the interpreter. FAILED_PRECONDITION above the tolerance.
absl::StatusOr<Tiled> TileAndProve(const Graph& graph, const TileLimits& limits,
                                   const TileProof& proof, const StepContext& context);

inline constexpr int64_t kMostGemmSize = 1 << 15;
// One Gemm: C = A x B + bias, of f32, A [m, k], B [k, n], bias [m, n].
Graph GemmGraph(int64_t m, int64_t k, int64_t n);

// The largest RelativeError of an output when the interpreter runs both on `samples` random inputs.
absl::StatusOr<double> LargestError(const Graph& before, const Graph& after, int64_t samples,
                                    uint64_t seed, const StepContext& context = {});

std::string ToTable(const TileReport& report);
std::string ToJson(const TileReport& report);

}  // namespace quench::analyser
