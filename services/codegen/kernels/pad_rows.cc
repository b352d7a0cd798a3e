#include "services/codegen/kernels/pad_rows.h"

#include <algorithm>

namespace quench::codegen {
namespace {

class Copier {
 public:
  Copier(VectorBuilder& b, const PaddedRows& p)
      : b_(b),
        p_(p),
        pixel_(p.pixel_floats * 4),
        copied_(Max(Min(p.width, p.row_pixels - p.left), b.I(0))) {}

  void Run(Ptr source, Ptr destination, Int first, Int rows) {
    b_.For(b_.I(0), b_.I(p_.blocks), 1, [&](Int block) {
      b_.For(b_.I(0), rows, 1, [&](Int row) {
        const Ptr to = destination + (block * p_.block_bytes + row * p_.row_bytes);
        const Int y = first + row;
        b_.If(
            y >= b_.I(0) && y < p_.height, [&] { Row(source, block, y, to); },
            [&] { Zero(to, p_.row_pixels * p_.pixel_floats); });
      });
    });
  }

 private:
  void Row(Ptr source, Int block, Int y, Ptr to) {
    const Ptr body = to + p_.left * pixel_;
    Zero(to, Min(b_.I(p_.left), p_.row_pixels) * p_.pixel_floats);
    if (p_.row_major) {
      GatherBlock(source, block, y, body);
    } else {
      Copy(source + ((block * p_.height + y) * p_.width) * (4 * p_.lanes), body,
           copied_ * p_.lanes);
    }
    Zero(body + copied_ * pixel_, (p_.row_pixels - p_.left - copied_) * p_.pixel_floats);
  }

  // One row of one block of channels; the last block may have fewer.
  void GatherBlock(Ptr source, Int block, Int y, Ptr body) {
    const int64_t per_block = p_.blocks == 1 ? p_.channels : p_.lanes;
    const Ptr plane = source + ((block * per_block * p_.height + y) * p_.width) * 4;
    const int rest = static_cast<int>(p_.channels % per_block);
    const auto whole = [&] { Gather(plane, body, static_cast<int>(per_block)); };
    if (rest == 0) return whole();
    b_.If(block == b_.I(p_.blocks - 1), [&] { Gather(plane, body, rest); }, whole);
  }

  // `floats` is a multiple of the vector length where pixels are whole vectors.
  void Zero(Ptr to, Int floats) {
    const int lanes = p_.pixel_floats == p_.lanes ? p_.lanes : 1;
    b_.For(b_.I(0), floats, lanes, [&](Int i) { b_.Store(to + i * 4, b_.F(0, lanes)); });
  }

  void Copy(Ptr from, Ptr to, Int floats) {
    const int64_t step = 4 * p_.lanes;
    const Int whole = floats / step * step;
    b_.For(b_.I(0), whole, step, [&](Int i) {
      Vec values[4];
      for (int k = 0; k < 4; ++k) values[k] = b_.Load(from + i * 4 + k * step, p_.lanes);
      for (int k = 0; k < 4; ++k) b_.Store(to + i * 4 + k * step, values[k]);
    });
    b_.For(whole, floats, p_.lanes,
           [&](Int i) { b_.Store(to + i * 4, b_.Load(from + i * 4, p_.lanes)); });
  }

  // Pixels of `channels` planes, side by side; missing channels become 0.
  void Gather(Ptr plane, Ptr to, int channels) {
    const Int plane_bytes = p_.height * p_.width * 4;
    b_.For(b_.I(0), copied_, 1, [&](Int x) {
      for (int c = 0; c < static_cast<int>(p_.pixel_floats); ++c) {
        const Vec value = c < channels ? b_.Load(plane + plane_bytes * c + x * 4, 1) : b_.F(0, 1);
        b_.Store(to + x * pixel_ + c * 4, value);
      }
    });
  }

  VectorBuilder& b_;
  const PaddedRows& p_;
  int64_t pixel_;
  Int copied_;
};

}  // namespace

void PadRows(VectorBuilder& b, const PaddedRows& p, Ptr source, Ptr destination, Int first,
             Int rows) {
  Copier(b, p).Run(source, destination, first, rows);
}

}  // namespace quench::codegen
