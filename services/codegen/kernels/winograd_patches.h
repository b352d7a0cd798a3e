// Winograd's transform of patches of the input: B^T d B.
#pragma once

#include "services/codegen/kernels/winograd_plan.h"

namespace quench::codegen {

// Number of tiles ahead for which vectors are prefetched: their points lie in more streams than
// hardware can follow. 0.96 of the time of 256 channels of 56 x 56 pixels (Emerald Rapids).
inline constexpr int64_t kTilesAhead = 4;

class PatchTransform {
 public:
  // The plan is borrowed.
  PatchTransform(VectorBuilder& b, const WinogradPlan& plan);
  // Tiles [first, last) of an image to `to`, as the plan has them in scratch. Pixels outside of the image
  // are zeros.
  void Transform(Ptr image, Int first, Int last, Ptr to);

 private:
  void Patch(Ptr plane, Int y, Int x, Ptr to);
  void CopyPatch(Ptr plane, Int y, Int x);
  std::vector<Vec> Row(Int row);

  VectorBuilder& b_;
  const WinogradPlan& plan_;
  int64_t vector_;  // bytes
  Int height_, width_, tiles_x_;
  Ptr patch_, part_;  // a copy with zeros, and the transform of columns
};

}  // namespace quench::codegen
