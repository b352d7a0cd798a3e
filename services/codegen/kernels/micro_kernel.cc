#include "services/codegen/kernels/micro_kernel.h"

#include <algorithm>
#include <vector>

#include "services/codegen/kernels/byte_panel.h"

namespace quench::codegen {
namespace {

// How far shared panels are fetched ahead: hardware follows one stream well, not several (3 to 10 % of a
// layer whose weights are cold, on Zen 4).
constexpr int64_t kRowsAhead = 16;

// How far stored weights are fetched ahead, in bytes: one row by 10 matrices of 45 million 4-bit weights
// takes 20 instead of 29 ms, of 8 bits 35 instead of 47 (Emerald Rapids).
constexpr int64_t kStoredAhead = 8192;
constexpr int64_t kStoredLine = 64;  // bytes of a cache line

// Sums of more f32 products than the first number are added up in parts of the second: one register would
// round as often as there are products.
constexpr int64_t kManyProducts = int64_t{1} << 16;
constexpr int64_t kProductsOfPart = int64_t{1} << 10;

class MicroEmitter {
 public:
  MicroEmitter(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile)
      : b_(b), r_(reduction), t_(tile) {}

  void Emit(const std::function<void(Int, Int, int, Vec)>& store) {
    Start();
    InPart(Part::kWhole, [&] {
      Blocks();
      if (part_ == Part::kNone || part_ == Part::kWhole) return Tail();
      if (b_.ConstantOr(r_.tail, -1) != 0) InPart(part_, [&] { Tail(); });
    });
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
  // Part of the reduction, from coarse to fine, that is summed by itself before it is added to the
  // accumulators.
  enum class Part { kNone, kWhole, kBlocks, kBlock, kRow, kTap };

  Part PartOf() const {
    if (r_.stored != nullptr) return blocked() ? Part::kBlock : Part::kWhole;
    if (!halves()) return floats() && ManyProducts() ? Part::kBlocks : Part::kNone;
    // Parts that are far too short would cost more than they add: of long, thin kernels they are longer.
    constexpr int64_t kMost = 2 * kWordsOfHalves, kLeast = kWordsOfHalves / 2;
    const int64_t row = r_.channels * b_.ConstantOr(r_.kw, 1);
    const int64_t block = row * b_.ConstantOr(r_.kh, 1);
    if (2 * block <= kWordsOfHalves) return Part::kBlocks;
    if (block <= (row < kLeast ? 4 * kMost : kMost)) return Part::kBlock;
    return row <= (r_.channels < kLeast ? 4 * kMost : kMost) ? Part::kRow : Part::kTap;
  }

  bool floats() const { return r_.bytes == nullptr && !r_.pairs.has_value(); }
  int64_t ProductsOfBlock() const {
    return r_.channels * b_.ConstantOr(r_.kw, 1) * b_.ConstantOr(r_.kh, 1);
  }
  bool ManyProducts() const {
    const int64_t blocks = b_.ConstantOr(r_.blocks, 0), each = ProductsOfBlock();
    return each <= kProductsOfPart && blocks > kManyProducts / each;
  }

  void InPart(Part part, const std::function<void()>& body) {
    if (part != part_) return body();
    StartPart();
    body();
    AddPart();
  }

  void Blocks() {
    if (part_ != Part::kBlocks) {
      return b_.For(b_.I(0), r_.blocks, 1,
                    [&](Int block) { InPart(Part::kBlock, [&] { Block(block); }); });
    }
    const int64_t together = (halves() ? kWordsOfHalves : kProductsOfPart) / ProductsOfBlock();
    b_.For(b_.I(0), r_.blocks, together, [&](Int first) {
      InPart(Part::kBlocks, [&] {
        b_.For(first, Min(first + together, r_.blocks), 1, [&](Int block) { Block(block); });
      });
    });
  }

  void Block(Int block) {
    if (apart()) weights_.Set(BlockWeights(block));
    const PtrVar row = b_.Variable(block_.Get());
    b_.For(b_.I(0), r_.kh, 1, [&](Int) {
      const PtrVar tap = b_.Variable(row.Get());
      InPart(Part::kRow, [&] {
        b_.For(b_.I(0), r_.kw, 1, [&](Int) {
          Tap(tap.Get());
          tap.Set(tap.Get() + r_.kw_stride);
          if (apart()) weights_.Set(weights_.Get() + (r_.shared.block - r_.channels) * RowBytes());
        });
      });
      row.Set(row.Get() + r_.kh_stride);
    });
    block_.Set(block_.Get() + r_.block_stride);
  }

  bool picked() const { return r_.picked.has_value(); }
  bool halves() const { return r_.pairs == DataType::kF16; }

  // Whether the weights of a block's taps do not follow each other.
  bool apart() const { return r_.shared.used() && r_.shared.block > r_.channels; }

  Ptr BlockWeights(Int block) {
    const int64_t parts = r_.shared.block / r_.channels;
    const Int taps = r_.kh * r_.kw;
    return t_.weights + (block / parts * taps * (r_.shared.block * RowBytes()) +
                         block % parts * (r_.channels * RowBytes()));
  }

  // Float inputs only: bytes from a channel to the next.
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
    part_ = PartOf();
    weights_ = b_.Variable(t_.weights);
    block_ = b_.Variable(t_.input);
    if (t_.prefetch.valid()) prefetch_ = b_.Variable(t_.prefetch);
    if (picked()) picks_ = b_.Variable(t_.picks);
    if (t_.scales.valid()) scales_ = b_.Variable(t_.scales);
    if (t_.zeros.valid()) zeros_ = b_.Variable(t_.zeros);
  }

  void StartPart() {
    const Vec zero = b_.Constant(halves() ? DataType::kI32 : DataType::kF32, 0, r_.lanes);
    for (size_t i = 0; i < accumulators_.size(); ++i) {
      if (part_sums_.size() <= i) {
        part_sums_.push_back(b_.Variable(zero));
      } else {
        part_sums_[i].Set(zero);
      }
    }
  }

  void AddPart() {
    if (halves()) return AddHalves();
    if (r_.stored != nullptr) return AddIntegers();
    for (size_t i = 0; i < accumulators_.size(); ++i)
      accumulators_[i].Set(b_.Apply(VecOp::kAdd, accumulators_[i].Get(), part_sums_[i].Get()));
  }

  void AddHalves() {
    const auto add = [&](size_t i, Vec sum) {
      accumulators_[i].Set(b_.Apply(VecOp::kAdd, accumulators_[i].Get(), sum));
    };
    const size_t count = accumulators_.size();
    for (size_t i = 0; i < count; i += 2) {
      const size_t next = std::min(i + 1, count - 1);
      const auto [first, second] = b_.SumsOfHalves(part_sums_[i].Get(), part_sums_[next].Get());
      add(i, first);
      if (next != i) add(next, second);
    }
  }

  // Sums of products with the integers minus their zero points, which are exact.
  void AddIntegers() {
    const auto vectors = static_cast<size_t>(t_.vectors);
    for (size_t v = 0; v < vectors; ++v) {
      const int64_t at = int64_t{4} * r_.lanes * static_cast<int64_t>(v);
      const Vec scale = b_.Load(scales_.Get() + at, r_.lanes);
      for (size_t p = 0; p < pixels_.size(); ++p) {
        const size_t i = p * vectors + v;
        accumulators_[i].Set(b_.Fma(part_sums_[i].Get(), scale, accumulators_[i].Get()));
      }
    }
    if (blocked()) NextScales();
  }

  void NextScales() {
    const int64_t bytes = int64_t{4} * r_.lanes * t_.vectors;
    scales_.Set(scales_.Get() + bytes);
    if (t_.zeros.valid()) zeros_.Set(zeros_.Get() + bytes);
  }

  void Tap(Ptr tap) {
    if (part_ != Part::kTap) return Channels(tap, r_.channels);
    const int64_t rest = r_.channels % kWordsOfHalves;
    const PtrVar at = b_.Variable(tap);
    b_.For(b_.I(0), b_.I(r_.channels - rest), kWordsOfHalves, [&](Int) {
      InPart(Part::kTap, [&] { Channels(at.Get(), kWordsOfHalves); });
      at.Set(at.Get() + r_.channel_stride * kWordsOfHalves);
    });
    if (rest > 0) InPart(Part::kTap, [&] { Channels(at.Get(), rest); });
  }

  // Multiplies `count` channels of one tap.
  void Channels(Ptr tap, int64_t count) {
    const int64_t bodies = count / r_.unroll;
    if (bodies > 0) {
      const PtrVar at = b_.Variable(tap);
      b_.For(b_.I(0), b_.I(bodies), 1, [&](Int) {
        Body(at.Get(), r_.unroll);
        at.Set(at.Get() + r_.channel_stride * r_.unroll);
      });
    }
    const int rest = static_cast<int>(count % r_.unroll);
    if (rest > 0) Body(tap + r_.channel_stride * (bodies * r_.unroll), rest);
  }

  void Tail() {
    const int64_t known = b_.ConstantOr(r_.tail, -1);
    if (known >= 0) {
      // Whole bodies in a loop where they are many.
      constexpr int64_t kMany = 8;
      int64_t done = 0;
      const PtrVar at = b_.Variable(block_.Get());
      if (known >= kMany * r_.unroll) {
        done = known / r_.unroll * r_.unroll;
        b_.For(b_.I(0), b_.I(done), r_.unroll, [&](Int) {
          Body(at.Get(), r_.unroll);
          at.Set(at.Get() + r_.channel_stride * r_.unroll);
        });
      }
      for (const int64_t looped = done; done < known; done += r_.unroll) {
        Body(at.Get() + r_.channel_stride * (done - looped),
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

  // The compiler likes to load the weights of two channels at once, also where that spills sums (112
  // multiply-adds of a tile of 28 vectors came with 12 stack accesses and 40 moves: 0.9 of their speed).
  void NextRow(int channel) {
    // Stored weights share words and zero points between rows, which are read once without it.
    const auto sums = static_cast<int>(accumulators_.size());
    if (channel > 0 && r_.stored == nullptr && sums + 2 * t_.vectors + 1 > b_.Registers())
      b_.KeepLoadsInOrder();
  }

  // The sums that products are added to.
  const VecVar& Sum(size_t pixel, int vector) const {
    const std::vector<VecVar>& sums = part_ == Part::kNone ? accumulators_ : part_sums_;
    return sums[pixel * static_cast<size_t>(t_.vectors) + static_cast<size_t>(vector)];
  }

  void FetchStored(int channels) {
    for (int64_t line = 0; line < StoredBytes(channels); line += kStoredLine)
      b_.Prefetch(weights_.Get() + (kStoredAhead + line), 1);
  }

  // `channels` multiply-adds into every sum.
  void Body(Ptr input, int channels) {
    Prefetch();
    if (r_.stored != nullptr) FetchStored(channels);
    if (r_.bytes != nullptr || r_.pairs.has_value()) return WordsBody(input, channels);
    const bool by_lane =
        r_.by_lane && channels % 4 == 0 && b_.ConstantOr(r_.channel_stride, 0) == 4;
    std::vector<Vec> quads(pixels_.size());
    for (int c = 0; c < channels; ++c) {
      NextRow(c);
      const std::vector<Vec> weights = Row(c);
      for (size_t p = 0; p < pixels_.size(); ++p) {
        const Ptr address = input + r_.channel_stride * c + pixels_[p];
        if (by_lane && c % 4 == 0) quads[p] = b_.Load(address, 4);
        const Vec x = by_lane ? b_.SplatLane(quads[p], c % 4, r_.lanes)
                              : b_.Splat(b_.Load(address, 1), r_.lanes);
        for (int v = 0; v < t_.vectors; ++v) {
          const VecVar& sum = Sum(p, v);
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

  // Multiplies the entries that picking has left over (picked_pairs.h). An entry names the words of
  // the reduction that it belongs to.
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
    NextRow(c);
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
        const VecVar& sum = Sum(p, v);
        sum.Set(add(sum.Get(), weights[static_cast<size_t>(v)]));
      }
    }
  }

  // (sum, weights) -> their sum with the products of a word of every lane.
  std::function<Vec(Vec, Vec)> Products(Vec word, Vec picks) {
    if (halves())
      return [this, word](Vec sum, Vec w) { return b_.AddProductsOfHalves(sum, word, w); };
    if (r_.pairs.has_value())
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
  Part part_ = Part::kNone;
  std::vector<VecVar> part_sums_;  // of pairs of f16, two a lane of i32
  PtrVar weights_, picks_, block_, prefetch_, scales_, zeros_;
};

}  // namespace

std::optional<DataType> PairsOf(const KernelRequest& request, DataType x, DataType w) {
  if (x != w) return std::nullopt;
  const bool bfloats = x == DataType::kBF16 && !request.target.add_products_bf16.empty();
  const bool halves =
      x == DataType::kF16 && request.target.sums_halves && request.options.half_sums;
  return bfloats || halves ? std::optional(x) : std::nullopt;
}

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

}  // namespace quench::codegen
