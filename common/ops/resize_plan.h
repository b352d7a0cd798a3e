// The effect of one Resize node on each axis: sizes, scales, sampling places and weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/ops/nest.h"

namespace quench::ops {

struct ResizeAxis {
  int axis = 0;
  int entry = 0;                // position in scales, sizes and (first half of) roi
  std::optional<double> scale;  // out / in, where known before a run
  std::optional<Dim> size;      // output size, where known before a run
  bool identity = false;        // output equals input along this axis
};

// Checked attributes and what the inputs tell about each axis (those not resized are left out).
struct ResizePlan {
  std::string mode;         // nearest, linear, cubic
  std::string coordinates;  // coordinate_transformation_mode
  std::string nearest;      // nearest_mode
  std::string policy;       // keep_aspect_ratio_policy
  bool antialias = false;
  bool exclude_outside = false;
  bool by_scales = false;      // else by sizes
  bool runtime_ratio = false;  // only a run knows the scale that `policy` chooses: CommonScale
  int entries = 0;             // entries of scales or sizes; roi has twice as many
  double cubic_a = -0.75;
  double extrapolation = 0;
  std::vector<ResizeAxis> axes;
};
absl::StatusOr<ResizePlan> PlanResize(const OpContext& ctx);

// The scale that a policy which keeps the aspect ratio chooses from sizes that only a run knows.
E CommonScale(LowerContext& ctx, const ResizePlan& plan);

// Computes the sampling tables of one resized axis into scratch, before the main nest.
class ResizeTable {
 public:
  ResizeTable(LowerContext& ctx, const ResizePlan& plan, const ResizeAxis& axis);

  // Computes the tables; extents must not depend on data, so antialias needs a known scale.
  absl::Status Build();
  int taps() const { return taps_; }
  E Index(E out, E tap) const { return index_.At({out, tap}); }
  E Weight(E out, E tap) const { return weight_.At({out, tap}); }
  // False where tf_crop_and_resize looks outside the input; invalid in other modes.
  E Inside(E out) const { return inside_.valid() ? inside_.At({out}) : E(); }

 private:
  E Coordinate(E x, E in, E out);
  E Nearest(E x);
  E Kernel(E distance);
  void StoreTaps(E x, E position, E in, E scale);

  LowerContext& ctx_;
  const ResizePlan& plan_;
  const ResizeAxis& axis_;
  int taps_ = 1;
  int first_tap_ = 0;  // offset of tap 0 from the left neighbour
  B index_, weight_, inside_;
};

}  // namespace quench::ops
