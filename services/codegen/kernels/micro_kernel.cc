#include "services/codegen/kernels/micro_kernel.h"

#include <algorithm>
#include <vector>

#include "services/codegen/kernels/byte_panel.h"

namespace quench::codegen {
namespace {

// How far shared panels are fetched ahead: hardware follows one stream well, not several (3 to 10 % of a
// layer whose weights are cold, on Zen 4).
constexpr int64_t kRowsAhead = 16;

class MicroEmitter {
 public:
  MicroEmitter(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile)
      : b_(b), r_(reduction), t_(tile) {}

  void Emit(const std::function<void(Int, Int, int, Vec)>& store) {
    Start();
    if (r_.stored != nullptr && !blocked()) StartIntegers();
    b_.For(b_.I(0), r_.blocks, 1, [&](Int block) {
      if (blocked()) StartIntegers();
      if (apart()) weights_.Set(BlockWeights(block));
      const PtrVar row = b_.Variable(block_.Get());
      b_.For(b_.I(0), r_.kh, 1, [&](Int) {
        const PtrVar tap = b_.Variable(row.Get());
        b_.For(b_.I(0), r_.kw, 1, [&](Int) {
          Channels(tap.Get());
          tap.Set(tap.Get() + r_.kw_stride);
          if (apart()) weights_.Set(weights_.Get() + (r_.shared.block - r_.channels) * RowBytes());
        });
        row.Set(row.Get() + r_.kh_stride);
      });
      block_.Set(block_.Get() + r_.block_stride);
      if (!blocked()) return;
      AddIntegers();
      NextScales();
    });
    if (blocked()) {
      if (b_.ConstantOr(r_.tail, -1) != 0) {
        StartIntegers();
        Tail();
        AddIntegers();
      }
    } else {
      Tail();
      if (r_.stored != nullptr) AddIntegers();
    }
    for (const Int& offset : r_.again) {
      AddWords(1,
               [&](int, int, Int pixel) { return b_.LoadWords(t_.input + (offset + pixel), 1); });
    }
    if (picked()) Entries();
    if (t_.results_in_memory) return StoreFromMemory(store);
    int i = 0;
    for (int y = 0; y < t_.y; ++y) {
      for (int x = 0; x < t_.x; ++x) {
        for (int v = 0; v < t_.vectors; ++v)
          store(b_.I(y), b_.I(x), v, accumulators_[static_cast<size_t>(i++)].Get());
      }
    }
  }

 private:
  bool picked() const { return r_.picked.has_value(); }

  // Whether the weights of a block's taps do not follow each other.
  bool apart() const { return r_.shared.used() && r_.shared.block > r_.channels; }

  Ptr BlockWeights(Int block) {
    const int64_t parts = r_.shared.block / r_.channels;
    const Int taps = r_.kh * r_.kw;
    return t_.weights + (block / parts * taps * (r_.shared.block * RowBytes()) +
                         block % parts * (r_.channels * RowBytes()));
  }

  // Of floats: from a channel to the next.
  int64_t RowBytes() const {
    const int64_t row = r_.shared.used() ? r_.shared.lanes : int64_t{t_.vectors} * r_.lanes;
    return row * WeightElement();
  }

  bool blocked() const { return r_.stored != nullptr && r_.stored->blocked; }

  void StoreFromMemory(const std::function<void(Int, Int, int, Vec)>& store) {
    const int64_t vector = int64_t{4} * r_.lanes;
    const Ptr memory = b_.Stack(vector * static_cast<int64_t>(accumulators_.size()));
    for (size_t i = 0; i < accumulators_.size(); ++i)
      b_.Store(memory + vector * static_cast<int64_t>(i), accumulators_[i].Get());
    const DataType type = r_.bytes != nullptr ? DataType::kI32 : DataType::kF32;
    for (int y = 0; y < t_.y; ++y) {
      b_.For(b_.I(0), b_.I(t_.x), 1, [&](Int x) {
        const Ptr pixel = memory + (x + y * t_.x) * (vector * t_.vectors);
        for (int v = 0; v < t_.vectors; ++v)
          store(b_.I(y), x, v, b_.Load(pixel + vector * v, r_.lanes, type));
      });
    }
  }

  void Start() {
    for (int y = 0; y < t_.y; ++y) {
      for (int x = 0; x < t_.x; ++x) pixels_.push_back(t_.y_stride * y + t_.x_stride * x);
    }
    std::vector<Vec> initial;
    for (int v = 0; v < t_.vectors; ++v) {
      const DataType type = r_.bytes != nullptr ? DataType::kI32 : DataType::kF32;
      initial.push_back(t_.bias.valid() ? b_.Load(t_.bias + 4 * r_.lanes * v, r_.lanes, type)
                                        : b_.Constant(type, 0, r_.lanes));
      if (!t_.factors.valid()) continue;
      const Vec factor = b_.Load(t_.factors + 4 * r_.lanes * v, r_.lanes, type);
      const Vec moved = b_.Apply(VecOp::kMul, factor, b_.Splat(t_.zero, r_.lanes));
      initial.back() = b_.Apply(VecOp::kAdd, initial.back(), moved);
    }
    for (size_t p = 0; p < pixels_.size(); ++p) {
      for (int v = 0; v < t_.vectors; ++v) {
        accumulators_.push_back(b_.Variable(initial[static_cast<size_t>(v)]));
      }
    }
    weights_ = b_.Variable(t_.weights);
    block_ = b_.Variable(t_.input);
    if (t_.prefetch.valid()) prefetch_ = b_.Variable(t_.prefetch);
    if (picked()) picks_ = b_.Variable(t_.picks);
    if (t_.scales.valid()) scales_ = b_.Variable(t_.scales);
    if (t_.zeros.valid()) zeros_ = b_.Variable(t_.zeros);
  }

  // Sums of products with the integers less their zero points, which are exact.
  void StartIntegers() {
    const Vec zero = b_.Constant(DataType::kF32, 0, r_.lanes);
    for (size_t i = 0; i < accumulators_.size(); ++i) {
      if (integers_.size() <= i) {
        integers_.push_back(b_.Variable(zero));
      } else {
        integers_[i].Set(zero);
      }
    }
  }

  void AddIntegers() {
    const auto vectors = static_cast<size_t>(t_.vectors);
    for (size_t v = 0; v < vectors; ++v) {
      const int64_t at = int64_t{4} * r_.lanes * static_cast<int64_t>(v);
      const Vec scale = b_.Load(scales_.Get() + at, r_.lanes);
      for (size_t p = 0; p < pixels_.size(); ++p) {
        const size_t i = p * vectors + v;
        accumulators_[i].Set(b_.Fma(integers_[i].Get(), scale, accumulators_[i].Get()));
      }
    }
  }

  void NextScales() {
    const int64_t bytes = int64_t{4} * r_.lanes * t_.vectors;
    scales_.Set(scales_.Get() + bytes);
    if (t_.zeros.valid()) zeros_.Set(zeros_.Get() + bytes);
  }

  // All channels of one tap.
  void Channels(Ptr tap) {
    const int64_t bodies = r_.channels / r_.unroll;
    if (bodies > 0) {
      const PtrVar at = b_.Variable(tap);
      b_.For(b_.I(0), b_.I(bodies), 1, [&](Int) {
        Body(at.Get(), r_.unroll);
        at.Set(at.Get() + r_.channel_stride * r_.unroll);
      });
    }
    const int rest = static_cast<int>(r_.channels % r_.unroll);
    if (rest > 0) Body(tap + r_.channel_stride * (bodies * r_.unroll), rest);
  }

  void Tail() {
    const int64_t known = b_.ConstantOr(r_.tail, -1);
    if (known >= 0) {
      for (int64_t done = 0; done < known; done += r_.unroll) {
        Body(block_.Get() + r_.channel_stride * done,
             static_cast<int>(std::min<int64_t>(r_.unroll, known - done)));
      }
      Rest(block_.Get() + r_.channel_stride * known);
      return;
    }
    b_.For(b_.I(0), r_.tail, 1, [&](Int) {
      Body(block_.Get(), 1);
      block_.Set(block_.Get() + r_.channel_stride);
    });
    Rest(block_.Get());
  }

  // The weights of channel c, in floats; stored ones without their scales.
  std::vector<Vec> Row(int c) {
    if (r_.stored == nullptr) return FloatRow(c);
    const StoredReader reader(b_, *r_.stored, r_.lanes, t_.vectors, /*scales=*/{},
                              t_.zeros.valid() ? zeros_.Get() : Ptr{});
    const int together = r_.stored->rows_together();
    return reader.Row(
        weights_.Get() + c / together * r_.stored->bytes_together() * t_.vectors * r_.lanes,
        c % together);
  }

  int64_t WeightElement() const { return DataTypeBits(r_.weight_type) / 8; }

  int64_t StoredBytes(int64_t channels) const {
    return r_.stored->Parts(channels) * r_.stored->bytes_together() * t_.vectors * r_.lanes;
  }

  std::vector<Vec> FloatRow(int c) {
    std::vector<Vec> weights;
    for (int v = 0; v < t_.vectors; ++v) {
      const int64_t vector = r_.shared.used() ? r_.shared.Offset(v) : int64_t{v} * r_.lanes;
      const int64_t at = c * RowBytes() + vector * WeightElement();
      if (r_.shared.used() && vector % r_.shared.lanes == 0)
        b_.Prefetch(weights_.Get() + (at + kRowsAhead * RowBytes()), 1);
      weights.push_back(b_.Load(weights_.Get() + at, r_.lanes, r_.weight_type));
    }
    return weights;
  }

  // `channels` multiply-adds into every accumulator.
  void Body(Ptr input, int channels) {
    Prefetch();
    if (r_.bytes != nullptr || r_.pairs) return WordsBody(input, channels);
    const bool by_lane =
        r_.by_lane && channels % 4 == 0 && b_.ConstantOr(r_.channel_stride, 0) == 4;
    std::vector<Vec> quads(pixels_.size());
    const std::vector<VecVar>& sums = r_.stored != nullptr ? integers_ : accumulators_;
    for (int c = 0; c < channels; ++c) {
      const std::vector<Vec> weights = Row(c);
      for (size_t p = 0; p < pixels_.size(); ++p) {
        const Ptr address = input + r_.channel_stride * c + pixels_[p];
        if (by_lane && c % 4 == 0) quads[p] = b_.Load(address, 4);
        const Vec x = by_lane ? b_.SplatLane(quads[p], c % 4, r_.lanes)
                              : b_.Splat(b_.Load(address, 1), r_.lanes);
        for (int v = 0; v < t_.vectors; ++v) {
          const VecVar& sum = sums[p * static_cast<size_t>(t_.vectors) + static_cast<size_t>(v)];
          sum.Set(b_.Fma(x, weights[static_cast<size_t>(v)], sum.Get()));
        }
      }
    }
    weights_.Set(weights_.Get() +
                 (r_.stored != nullptr ? StoredBytes(channels) : channels * RowBytes()));
  }

  void WordsBody(Ptr input, int words) {
    AddWords(words, [&](int c, int count, Int pixel) {
      return b_.LoadWords(input + r_.channel_stride * c + pixel, count);
    });
  }

  // What picking has left over (picked_pairs.h). An entry says which of the reduction's words it is of.
  void Entries() {
    b_.For(b_.I(0), t_.entry_count, 1, [&](Int i) {
      const Ptr entry = t_.entries + i * r_.picked->EntryBytes();
      const Int word = b_.LoadInt(entry, DataType::kI32);
      const Int tap = word / r_.channels, row = tap / r_.kw;
      const Int channel = word % r_.channels, x = tap % r_.kw, y = row % r_.kh;
      const Ptr input = t_.input + (row / r_.kh * r_.block_stride + y * r_.kh_stride +
                                    x * r_.kw_stride + channel * r_.channel_stride);
      const auto count = static_cast<int>(r_.picked->EntryWords());
      picks_.Set(entry + 4);
      weights_.Set(entry + 8);
      AddWord(0, [&](Int pixel) { return b_.Splat(b_.LoadWords(input + pixel, count), r_.lanes); });
    });
  }

  void Rest(Ptr input) {
    if (!r_.rest.valid()) return;
    ForRest(b_, r_.rest, [&](int rest) {
      for (int words = picked() && rest == 3 ? 2 : 1; words > 0; --words)
        AddWords(1, [&](int, int, Int pixel) { return LoadPartOfWord(b_, input + pixel, rest); });
    });
  }

  // load(c, count, pixel) are `count` words of a pixel from c on: one, or a group.
  void AddWords(int words, const std::function<Vec(int c, int count, Int pixel)>& load) {
    for (int c = 0; c < words; ++c) {
      const WordGroup group = picked() ? GroupOf(c, words, r_.picked->most) : WordGroup{c, 1};
      AddWord(c, [&](Int pixel) {
        return b_.Splat(load(static_cast<int>(group.first), static_cast<int>(group.count), pixel),
                        r_.lanes);
      });
    }
    PassWords(words);
  }

  void PassWords(int words) {
    weights_.Set(weights_.Get() + static_cast<int64_t>(words) * t_.vectors * r_.lanes * 4);
    if (picked()) picks_.Set(picks_.Get() + int64_t{4} * words);
  }

  // The c-th word from the present one on; load(pixel) has it, or the group from which its bytes are
  // picked, in all lanes.
  void AddWord(int c, const std::function<Vec(Int pixel)>& load) {
    std::vector<Vec> weights;
    for (int v = 0; v < t_.vectors; ++v) {
      const int64_t at = (static_cast<int64_t>(c) * t_.vectors + v) * r_.lanes * 4;
      weights.push_back(b_.Load(weights_.Get() + at, r_.lanes, DataType::kI32));
    }
    Vec picks;
    if (picked()) picks = b_.Splat(b_.LoadWords(picks_.Get() + int64_t{4} * c, 1), r_.lanes);
    for (size_t p = 0; p < pixels_.size(); ++p) {
      const auto add = Products(load(pixels_[p]), picks);
      for (int v = 0; v < t_.vectors; ++v) {
        const VecVar& sum =
            accumulators_[p * static_cast<size_t>(t_.vectors) + static_cast<size_t>(v)];
        sum.Set(add(sum.Get(), weights[static_cast<size_t>(v)]));
      }
    }
  }

  // (sum, weights) -> their sum with the products of a word of every lane.
  std::function<Vec(Vec, Vec)> Products(Vec word, Vec picks) {
    if (r_.pairs)
      return [this, word](Vec sum, Vec w) { return b_.AddProductsOfBfloats(sum, word, w); };
    const ByteRoot& root = *r_.bytes;
    const bool flip = root.x.flip && root.form != BytesForm::kWords;  // widened rows are shifted
    BytesOperand x = b_.PrepareBytes(root.form, word, flip);
    if (picks.valid()) x.value = b_.PickBytes(x.value, picks);
    return [this, &root, x](Vec sum, Vec w) { return b_.AddProducts(root.form, sum, x, w); };
  }

  void Prefetch() {
    if (!t_.prefetch.valid()) return;
    for (int i = 0; i < t_.prefetch_lines; ++i) b_.Prefetch(prefetch_.Get() + i * 64, 2);
    prefetch_.Set(prefetch_.Get() + t_.prefetch_lines * 64);
  }

  VectorBuilder& b_;
  const MicroReduction& r_;
  const MicroTile& t_;
  std::vector<Int> pixels_;  // offsets of the tile's pixels
  std::vector<VecVar> accumulators_;
  std::vector<VecVar> integers_;  // see StartIntegers
  PtrVar weights_, picks_, block_, prefetch_, scales_, zeros_;
};

}  // namespace

void EmitMicroTile(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
                   const std::function<void(Int, Int, int, Vec)>& store) {
  MicroEmitter(b, reduction, tile).Emit(store);
}

void PointToPicks(VectorBuilder& b, const PickedPanels& panels, Ptr pack, Int panel,
                  MicroTile& tile) {
  tile.picks = pack + panels.PicksAt() + panel * (panels.StoredWords() * 4);
  const Ptr start = pack + panels.StartsAt() + panel * 4;
  const Int first = b.LoadInt(start, DataType::kI32);
  tile.entry_count = b.LoadInt(start + 4, DataType::kI32) - first;
  tile.entries = pack + panels.EntriesAt() + first * panels.EntryBytes();
}

PanelPrefetch PanelPrefetch::Plan(int64_t panel_bytes, int64_t bodies, int64_t tiles) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kWorthwhile = 4096;
  PanelPrefetch plan;
  if (tiles < 2 || bodies < 1 || panel_bytes < kWorthwhile) return plan;
  const int64_t lines = (panel_bytes + kLine - 1) / kLine;
  const int64_t per_body = (lines + tiles * bodies - 1) / (tiles * bodies);
  plan.lines = static_cast<int>(per_body);
  plan.slice_bytes = per_body * bodies * kLine;
  plan.slices = (panel_bytes + plan.slice_bytes - 1) / plan.slice_bytes;
  return plan;
}

Dim TileAxis::Parts(SymbolTable& symbols) const {
  if (total.is_static()) return SplitEvenly(total.value(), most).parts();
  return symbols.CeilDiv(total, most);
}

void TileAxis::For(VectorBuilder& b, Int first, Int last,
                   const std::function<void(Int, int)>& body) const {
  if (total.is_static()) {
    const Split split = SplitEvenly(total.value(), most);
    b.For(first, Min(last, b.I(split.bigs)), 1,
          [&](Int i) { body(i * split.big, static_cast<int>(split.big)); });
    if (split.smalls == 0) return;
    b.For(Max(first, b.I(split.bigs)), last, 1, [&](Int i) {
      body((i - split.bigs) * (split.big - 1) + split.bigs * split.big,
           static_cast<int>(split.big - 1));
    });
    return;
  }
  const Int size = b.Size(total);
  const Int full = size / most;
  b.For(first, Min(last, full), 1, [&](Int i) { body(i * most, most); });
  if (most == 1) return;
  b.If(last > full && first <= full, [&] {
    const IntVar at = b.Variable(full * most);
    int part = 1;
    while (part * 2 < most) part *= 2;
    for (; part > 0; part /= 2) {
      b.If(size - at.Get() >= b.I(part), [&] {
        body(at.Get(), part);
        at.Set(at.Get() + part);
      });
    }
  });
}

Int TileAxis::Start(VectorBuilder& b, Int part) const {
  if (!total.is_static()) return Min(part * most, b.Size(total));
  const Split split = SplitEvenly(total.value(), most);
  if (split.smalls == 0) return part * split.big;
  return part * split.big - Max(part - split.bigs, b.I(0));
}

void TileAxis::ForAll(VectorBuilder& b, const std::function<void(Int, int)>& body) const {
  const Int parts = total.is_static() ? b.I(SplitEvenly(total.value(), most).parts())
                                      : (b.Size(total) + (most - 1)) / most;
  For(b, b.I(0), parts, body);
}

void ForPanel(VectorBuilder& b, const Split& panels, Int p, bool peel_last,
              const std::function<void(int, Int, bool)>& fn) {
  const Int first =
      panels.smalls == 0 ? p * panels.big : p * panels.big - Max(p - panels.bigs, b.I(0));
  const auto big = [&] { fn(static_cast<int>(panels.big), first, false); };
  const auto small = [&] { fn(static_cast<int>(panels.big) - 1, first, false); };
  const int64_t bigs = panels.bigs - (peel_last && panels.smalls == 0 ? 1 : 0);
  const int64_t smalls = panels.smalls - (peel_last && panels.smalls > 0 ? 1 : 0);
  const auto others = [&] {
    if (bigs > 0 && smalls > 0) {
      b.If(p < b.I(panels.bigs), big, small);
    } else if (bigs > 0) {
      big();
    } else if (smalls > 0) {
      small();
    }
  };
  if (!peel_last) return others();
  if (panels.parts() == 1) return fn(static_cast<int>(panels.big), first, true);
  b.If(
      p == b.I(panels.parts() - 1),
      [&] { fn(static_cast<int>(panels.big) - (panels.smalls > 0 ? 1 : 0), first, true); }, others);
}

}  // namespace quench::codegen
