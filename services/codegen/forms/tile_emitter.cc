#include "services/codegen/forms/tile_emitter.h"

#include <algorithm>

namespace quench::codegen {

void TileEmitter::Emit(const StoreSum& store) {
  StartSums();
  InPart(Part::kWhole, [&] {
    Blocks();
    if (part_ == Part::kNone || part_ == Part::kWhole) return Tail();
    if (b_.ConstantOr(r_.tail, -1) != 0) InPart(part_, [&] { Tail(); });
  });
  Finish();
  if (t_.results_in_memory) return StoreFromMemory(store);
  int i = 0;
  for (int y = 0; y < t_.y; ++y) {
    for (int x = 0; x < t_.x; ++x) {
      for (int v = 0; v < t_.vectors; ++v)
        store(b_.I(y), b_.I(x), v, accumulators_[static_cast<size_t>(i++)].Get());
    }
  }
}

Vec TileEmitter::Initial(int vector) {
  return t_.bias.valid() ? b_.Load(t_.bias + 4 * r_.lanes * vector, r_.lanes, SumType())
                         : b_.Constant(SumType(), 0, r_.lanes);
}

void TileEmitter::StartSums() {
  for (int y = 0; y < t_.y; ++y) {
    for (int x = 0; x < t_.x; ++x) pixels_.push_back(t_.y_stride * y + t_.x_stride * x);
  }
  std::vector<Vec> initial;
  for (int v = 0; v < t_.vectors; ++v) initial.push_back(Initial(v));
  for (size_t p = 0; p < pixels_.size(); ++p) {
    for (int v = 0; v < t_.vectors; ++v)
      accumulators_.push_back(b_.Variable(initial[static_cast<size_t>(v)]));
  }
  part_ = PartOf();
  weights_ = b_.Variable(t_.weights);
  block_ = b_.Variable(t_.input);
  if (t_.prefetch.valid()) prefetch_ = b_.Variable(t_.prefetch);
  Start();
}

void TileEmitter::InPart(Part part, const std::function<void()>& body) {
  if (part != part_) return body();
  StartPart();
  body();
  AddPart();
}

void TileEmitter::StartPart() {
  const Vec zero = b_.Constant(PartType(), 0, r_.lanes);
  for (size_t i = 0; i < accumulators_.size(); ++i) {
    if (part_sums_.size() <= i) {
      part_sums_.push_back(b_.Variable(zero));
    } else {
      part_sums_[i].Set(zero);
    }
  }
}

void TileEmitter::AddPart() {
  for (size_t i = 0; i < accumulators_.size(); ++i)
    accumulators_[i].Set(b_.Apply(VecOp::kAdd, accumulators_[i].Get(), part_sums_[i].Get()));
}

void TileEmitter::Blocks() {
  if (part_ != Part::kBlocks) {
    return b_.For(b_.I(0), r_.blocks, 1,
                  [&](Int block) { InPart(Part::kBlock, [&] { Block(block); }); });
  }
  const int64_t together = ProductsOfPart() / ProductsOfBlock();
  b_.For(b_.I(0), r_.blocks, together, [&](Int first) {
    InPart(Part::kBlocks, [&] {
      b_.For(first, Min(first + together, r_.blocks), 1, [&](Int block) { Block(block); });
    });
  });
}

void TileEmitter::Block(Int block) {
  BeginBlock(block);
  const PtrVar row = b_.Variable(block_.Get());
  b_.For(b_.I(0), r_.kh, 1, [&](Int) {
    const PtrVar tap = b_.Variable(row.Get());
    InPart(Part::kRow, [&] {
      b_.For(b_.I(0), r_.kw, 1, [&](Int) {
        Tap(tap.Get());
        tap.Set(tap.Get() + r_.kw_stride);
        EndTap();
      });
    });
    row.Set(row.Get() + r_.kh_stride);
  });
  block_.Set(block_.Get() + r_.block_stride);
}

void TileEmitter::Tap(Ptr tap) {
  if (part_ != Part::kTap) return Channels(tap, r_.channels);
  const int64_t each = std::max<int64_t>(1, ProductsOfPart()), rest = r_.channels % each;
  const PtrVar at = b_.Variable(tap);
  b_.For(b_.I(0), b_.I(r_.channels - rest), each, [&](Int) {
    InPart(Part::kTap, [&] { Channels(at.Get(), each); });
    at.Set(at.Get() + r_.channel_stride * each);
  });
  if (rest > 0) InPart(Part::kTap, [&] { Channels(at.Get(), rest); });
}

// Multiplies `count` channels of one tap.
void TileEmitter::Channels(Ptr tap, int64_t count) {
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

void TileEmitter::Tail() {
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

void TileEmitter::Body(Ptr input, int channels) {
  Prefetch();
  Multiply(input, channels);
}

void TileEmitter::Prefetch() {
  if (!t_.prefetch.valid()) return;
  for (int i = 0; i < t_.prefetch_lines; ++i) b_.Prefetch(prefetch_.Get() + i * 64, 2);
  prefetch_.Set(prefetch_.Get() + t_.prefetch_lines * 64);
}

// The compiler likes to load the weights of two channels at once, also where that spills sums (112
// multiply-adds of a tile of 28 vectors came with 12 stack accesses and 40 moves: 0.9 of their speed).
void TileEmitter::BeginRow(int channel) {
  const auto sums = static_cast<int>(accumulators_.size());
  if (channel > 0 && KeepsRowsApart() && sums + 2 * t_.vectors + 1 > b_.Registers())
    b_.KeepLoadsInOrder();
}

void TileEmitter::StoreFromMemory(const StoreSum& store) {
  const int64_t vector = int64_t{4} * r_.lanes;
  const Ptr memory = b_.Stack(vector * static_cast<int64_t>(accumulators_.size()));
  for (size_t i = 0; i < accumulators_.size(); ++i)
    b_.Store(memory + vector * static_cast<int64_t>(i), accumulators_[i].Get());
  for (int y = 0; y < t_.y; ++y) {
    b_.For(b_.I(0), b_.I(t_.x), 1, [&](Int x) {
      const Ptr pixel = memory + (x + y * t_.x) * (vector * t_.vectors);
      for (int v = 0; v < t_.vectors; ++v)
        store(b_.I(y), x, v, b_.Load(pixel + vector * v, r_.lanes, SumType()));
    });
  }
}

}  // namespace quench::codegen
