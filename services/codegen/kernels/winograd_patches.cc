#include "services/codegen/kernels/winograd_patches.h"

namespace quench::codegen {

PatchTransform::PatchTransform(VectorBuilder& b, const WinogradPlan& plan)
    : b_(b),
      plan_(plan),
      vector_(plan.vector_bytes()),
      height_(b.Size(plan.shape.h)),
      width_(b.Size(plan.shape.w)),
      tiles_x_(b.Size(plan.tiles_x)),
      patch_(b.Stack(plan.points() * vector_)),
      part_(b.Stack(plan.points() * vector_)) {}

void PatchTransform::Transform(Ptr image, Int first, Int last, Ptr to) {
  b_.For(b_.I(0), b_.I(plan_.blocks), 1, [&](Int block) {
    const Ptr plane = image + block * (height_ * width_ * vector_);
    const Ptr of_block = to + block * (plan_.room * vector_);
    b_.For(first, last, 1, [&](Int tile) {
      const Int row = tile / tiles_x_;
      Patch(plane, row * plan_.size.outputs - plan_.shape.pad_top,
            (tile - row * tiles_x_) * plan_.size.outputs - plan_.shape.pad_left,
            of_block + (tile - first) * vector_);
    });
  });
}

// The patch whose first pixel is (y, x), which may lie outside of the image.
void PatchTransform::Patch(Ptr plane, Int y, Int x, Ptr to) {
  const int side = plan_.size.side();
  const PtrVar source = b_.Variable(plane + (y * width_ + x) * vector_);
  const IntVar line = b_.Variable(width_ * vector_);
  const Bool inside = y >= b_.I(0) && y + side <= height_ && x >= b_.I(0) && x + side <= width_;
  b_.If(
      inside, [] {},
      [&] {
        CopyPatch(plane, y, x);
        source.Set(patch_);
        line.Set(b_.I(side * vector_));
      });
  b_.For(b_.I(0), b_.I(side), 1, [&](Int column) {
    std::vector<Vec> values;
    for (int i = 0; i < side; ++i)
      values.push_back(b_.Load(source.Get() + (column * vector_ + line.Get() * i), plan_.lanes));
    const std::vector<Vec> results = WinogradInput(b_, plan_.size, values);
    for (int i = 0; i < side; ++i)
      b_.Store(part_ + (column + i * side) * vector_, results[static_cast<size_t>(i)]);
  });
  b_.For(b_.I(0), b_.I(side), 1, [&](Int row) {
    const std::vector<Vec> results = WinogradInput(b_, plan_.size, Row(row));
    for (int i = 0; i < side; ++i) {
      const Ptr point = to + (row * side + i) * plan_.input_point();
      if (plan_.by_points()) b_.Prefetch(point + kTilesAhead * vector_, 1);
      b_.Store(point, results[static_cast<size_t>(i)]);
    }
  });
}

void PatchTransform::CopyPatch(Ptr plane, Int y, Int x) {
  const int side = plan_.size.side();
  b_.For(b_.I(0), b_.I(side), 1, [&](Int i) {
    const Int row = y + i;
    const Bool row_inside = row >= b_.I(0) && row < height_;
    b_.For(b_.I(0), b_.I(side), 1, [&](Int j) {
      const Int column = x + j;
      const Ptr to = patch_ + (i * side + j) * vector_;
      b_.If(
          row_inside && column >= b_.I(0) && column < width_,
          [&] { b_.Store(to, b_.Load(plane + (row * width_ + column) * vector_, plan_.lanes)); },
          [&] { b_.Store(to, b_.F(0, plan_.lanes)); });
    });
  });
}

std::vector<Vec> PatchTransform::Row(Int row) {
  std::vector<Vec> values;
  for (int i = 0; i < plan_.size.side(); ++i)
    values.push_back(b_.Load(part_ + (row * plan_.size.side() + i) * vector_, plan_.lanes));
  return values;
}

}  // namespace quench::codegen
