#include "services/codegen/kernels/pad_rows.h"

#include <algorithm>
#include <vector>

namespace quench::codegen {
namespace {

class Copier {
 public:
  Copier(VectorBuilder& b, const PaddedRows& p)
      : b_(b),
        p_(p),
        pixel_(p.pixel_words * 4),
        element_(DataTypeBits(p.type) / 8),
        block_(p.block == 0 ? p.lanes : p.block),
        copied_(Max(Min(p.width, p.row_pixels - p.left), b.I(0))) {}

  void Run(Ptr source, Ptr destination, Int first, Int rows) {
    b_.For(b_.I(0), b_.I(p_.blocks), 1, [&](Int block) {
      b_.For(b_.I(0), rows, 1, [&](Int row) {
        const Ptr to = destination + (block * p_.block_bytes + row * p_.row_bytes);
        const Int y = first + row;
        b_.If(
            y >= b_.I(0) && y < p_.height, [&] { Row(source, block, y, to); },
            [&] { Fill(to, p_.row_pixels * p_.pixel_words); });
      });
    });
  }

 private:
  void Row(Ptr source, Int block, Int y, Ptr to) {
    const Ptr body = to + p_.left * pixel_;
    Fill(to, Min(b_.I(p_.left), p_.row_pixels) * p_.pixel_words);
    const Ptr blocked = source + ((block * p_.height + y) * p_.width) * (element_ * block_);
    if (p_.row_major) {
      GatherBlock(source, block, y, body);
    } else if (p_.to_floats) {
      Convert(blocked, body);
    } else {
      Copy(blocked, body, copied_ * p_.pixel_words);
    }
    Fill(body + copied_ * pixel_, (p_.row_pixels - p_.left - copied_) * p_.pixel_words);
  }

  // One row of one block of channels; the last block may have fewer.
  void GatherBlock(Ptr source, Int block, Int y, Ptr body) {
    const int64_t per_block = p_.blocks == 1 ? p_.channels : p_.lanes;
    const Ptr plane = source + ((block * per_block * p_.height + y) * p_.width) * element_;
    const int rest = static_cast<int>(p_.channels % per_block);
    const auto whole = [&] { Gather(plane, body, static_cast<int>(per_block)); };
    if (rest == 0) return whole();
    b_.If(block == b_.I(p_.blocks - 1), [&] { Gather(plane, body, rest); }, whole);
  }

  // `words` is a multiple of a pixel's.
  void Fill(Ptr to, Int words) {
    const int lanes = p_.pixel_words == p_.lanes ? p_.lanes : 1;
    const bool bytes = element_ == 1 && !p_.to_floats;
    const Vec value = !bytes                        ? b_.F(0, lanes)
                      : p_.run_fill.pattern.valid() ? b_.Splat(p_.run_fill.pattern, lanes)
                                                    : b_.Constant(DataType::kI32, Pattern(), lanes);
    b_.For(b_.I(0), words, lanes, [&](Int i) { b_.Store(to + i * 4, value); });
  }

  // The byte `fill`, four times.
  double Pattern() const {
    const auto byte = static_cast<uint32_t>(static_cast<uint8_t>(p_.fill));
    return static_cast<int32_t>(byte * 0x01010101U);
  }

  void Copy(Ptr from, Ptr to, Int words) {
    const int64_t step = 4 * p_.lanes;
    const Int whole = words / step * step;
    const auto load = [&](Int i, int lanes) {
      return b_.Load(from + i * 4, lanes, DataType::kI32);
    };
    b_.For(b_.I(0), whole, step, [&](Int i) {
      Vec values[4];
      for (int k = 0; k < 4; ++k) values[k] = load(i + k * p_.lanes, p_.lanes);
      for (int k = 0; k < 4; ++k) b_.Store(to + i * 4 + k * step, values[k]);
    });
    const Int vectors = words / p_.lanes * p_.lanes;
    b_.For(whole, vectors, p_.lanes, [&](Int i) { b_.Store(to + i * 4, load(i, p_.lanes)); });
    if (p_.pixel_words % p_.lanes == 0) return;
    b_.For(vectors, words, 1, [&](Int i) { b_.Store(to + i * 4, load(i, 1)); });
  }

  void Convert(Ptr from, Ptr to) {
    const Vec zero = p_.run_fill.value.valid() ? b_.Splat(b_.ToF32(p_.run_fill.value), p_.lanes)
                                               : b_.F(static_cast<double>(p_.fill), p_.lanes);
    const bool moved = p_.fill != 0 || p_.run_fill.value.valid();
    b_.For(b_.I(0), copied_, 1, [&](Int x) {
      const Vec value = Float(b_.Load(from + x * (block_ * element_), p_.lanes, p_.type));
      b_.Store(to + x * pixel_, moved ? b_.Apply(VecOp::kSub, value, zero) : value);
    });
  }

  // Converts bytes; f16 and bf16 are floats as soon as they are loaded.
  Vec Float(Vec value) { return IsFloat(value.type) ? value : b_.ToF32(value); }

  // Pixels of `channels` planes, side by side; missing channels become 0.
  void Gather(Ptr plane, Ptr to, int channels) {
    const Int plane_bytes = p_.height * p_.width * element_;
    const int64_t written = p_.to_floats ? 4 : element_;
    const DataType type = p_.to_floats ? DataType::kF32 : p_.type;
    const int all = static_cast<int>(pixel_ / written);
    const auto pixels = [&](Int x, int lanes) {
      std::vector<Vec> values;
      for (int c = 0; c < all; ++c) {
        values.push_back(c < channels
                             ? b_.Load(plane + plane_bytes * c + x * element_, lanes, p_.type)
                             : b_.Constant(RegisterTypeOf(type), 0, lanes));
        if (IsHalf(type)) values.back() = b_.Narrow(values.back(), type);
      }
      return values;
    };
    constexpr int kMostInterleaved = 4;
    const Int whole = all <= kMostInterleaved ? copied_ / p_.lanes * p_.lanes : b_.I(0);
    b_.For(b_.I(0), whole, p_.lanes,
           [&](Int x) { b_.StoreInterleaved(to + x * pixel_, pixels(x, p_.lanes)); });
    b_.For(whole, copied_, 1, [&](Int x) {
      const std::vector<Vec> values = pixels(x, 1);
      for (int c = 0; c < all; ++c)
        b_.Store(to + x * pixel_ + c * written, values[static_cast<size_t>(c)]);
    });
  }

  VectorBuilder& b_;
  const PaddedRows& p_;
  int64_t pixel_;    // bytes of the destination
  int64_t element_;  // bytes of the source
  int64_t block_;    // channels of a pixel of a block of the source
  Int copied_;
};

}  // namespace

void PadRows(VectorBuilder& b, const PaddedRows& p, Ptr source, Ptr destination, Int first,
             Int rows) {
  Copier(b, p).Run(source, destination, first, rows);
}

}  // namespace quench::codegen
