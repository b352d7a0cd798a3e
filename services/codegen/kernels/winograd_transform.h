// Winograd's minimal filtering F(m x m, 3 x 3): m x m outputs of a 3x3 convolution from (m + 2)^2
// multiplications a channel instead of 9 m^2.
//
//   Y = A^T [ (G g G^T) . (B^T d B) ] A
//
// The matrices are those of the Cook-Toom construction over the points 0, 1, -1, 2, -2, 1/2, -1/2 and
// infinity, as many as needed (A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks",
// 2015). The numerators of the interpolation stay in G, which is applied while compiling.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "services/codegen/kernels/vector_builder.h"

namespace quench::codegen {

constexpr size_t kWinogradTaps = 3;
inline int WinogradTile(int outputs) { return outputs + 2; }

// G g of a row or column of taps: outputs + 2 values. `outputs` is 2, 4 or 6, here and below.
std::vector<double> WinogradWeights(int outputs, std::span<const double, kWinogradTaps> taps);

// B^T d, of outputs + 2 vectors.
std::vector<Vec> WinogradInput(VectorBuilder& b, int outputs, std::span<const Vec> values);

// A^T y: `outputs` vectors of outputs + 2.
std::vector<Vec> WinogradOutput(VectorBuilder& b, int outputs, std::span<const Vec> values);

}  // namespace quench::codegen
