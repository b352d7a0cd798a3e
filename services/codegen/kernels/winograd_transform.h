// Winograd's minimal filtering F(m x m, r x r): m x m outputs of an r x r convolution from (m + r -
// 1)^2 multiplications per channel instead of m^2 r^2.
//
//   Y = A^T [ (G g G^T) . (B^T d B) ] A
//
// The matrices are those of the Cook-Toom construction over the points 0, 1, -1, 2, -2, 1/2, -1/2 and
// infinity, as many as needed (A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks",
// 2015). The numerators of the interpolation stay in G, which is applied while compiling.
#pragma once

#include <span>
#include <vector>

#include "common/base/fields.h"
#include "services/codegen/forms/vector_builder.h"

namespace quench::codegen {

struct WinogradSize {
  int outputs = 2;  // m
  int taps = 3;     // r
  friend bool operator==(const WinogradSize&, const WinogradSize&) = default;
  QUENCH_FIELDS(outputs, taps)
  int side() const { return outputs + taps - 1; }
  int points() const { return side() * side(); }
  // Whether there are points for this size: a side of 4, 6 or 8.
  bool valid() const { return outputs > 1 && taps > 1 && side() <= 8 && side() % 2 == 0; }
};

// G g for a row or column of taps: side() values.
std::vector<double> WinogradWeights(const WinogradSize& size, std::span<const double> taps);

// The same for vectors, in f32.
std::vector<Vec> WinogradFilter(VectorBuilder& b, const WinogradSize& size,
                                std::span<const Vec> taps);

// B^T d, of side() vectors.
std::vector<Vec> WinogradInput(VectorBuilder& b, const WinogradSize& size,
                               std::span<const Vec> values);

// A^T y: `outputs` vectors of side().
std::vector<Vec> WinogradOutput(VectorBuilder& b, const WinogradSize& size,
                                std::span<const Vec> values);

}  // namespace quench::codegen
