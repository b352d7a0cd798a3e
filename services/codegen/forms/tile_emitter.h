// The loops of a tile, and its sums; forms fill in how channels are multiplied.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "services/codegen/forms/tile.h"

namespace quench::codegen {

class TileEmitter {
 public:
  TileEmitter(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile)
      : b_(b), r_(reduction), t_(tile) {}
  virtual ~TileEmitter() = default;
  TileEmitter(const TileEmitter&) = delete;
  TileEmitter& operator=(const TileEmitter&) = delete;

  void Emit(const StoreSum& store);

 protected:
  // Part of the reduction, from coarse to fine, that is summed by itself before it is added to the
  // accumulators.
  enum class Part { kNone, kWhole, kBlocks, kBlock, kRow, kTap };

  // ---- of each form ----

  virtual DataType SumType() const { return DataType::kF32; }
  // Start values of the sums of a vector of channels.
  virtual Vec Initial(int vector);
  // Makes the form's variables, once the sums have their start values.
  virtual void Start() {}
  virtual Part PartOf() const { return Part::kNone; }
  // Products that a part of several blocks, or of a tap, adds up.
  virtual int64_t ProductsOfPart() const { return 0; }
  virtual DataType PartType() const { return DataType::kF32; }
  // Adds the sums of a part to the accumulators.
  virtual void AddPart();
  // Multiplies `channels` of every pixel, from `input` on, and passes their weights.
  virtual void Multiply(Ptr input, int channels) = 0;
  virtual void BeginBlock(Int /*block*/) {}
  virtual void EndTap() {}
  // Multiplies the rest after the last whole channel.
  virtual void Rest(Ptr /*input*/) {}
  // After the reduction.
  virtual void Finish() {}
  // Whether the loads of two channels' weights stay apart (BeginRow).
  virtual bool KeepsRowsApart() const { return true; }

  // ---- for forms ----

  // The sums that products are added to.
  const VecVar& Sum(size_t pixel, int vector) const {
    const std::vector<VecVar>& sums = part_ == Part::kNone ? accumulators_ : part_sums_;
    return sums[pixel * static_cast<size_t>(t_.vectors) + static_cast<size_t>(vector)];
  }
  // Call it before the weights of a body's channel are loaded.
  void BeginRow(int channel);
  int64_t ProductsOfBlock() const {
    return r_.channels * b_.ConstantOr(r_.kw, 1) * b_.ConstantOr(r_.kh, 1);
  }

  VectorBuilder& b_;
  const MicroReduction& r_;
  const MicroTile& t_;
  std::vector<Int> pixels_;  // offsets of the tile's pixels
  std::vector<VecVar> accumulators_, part_sums_;
  PtrVar weights_;

 private:
  void StartSums();
  void InPart(Part part, const std::function<void()>& body);
  void StartPart();
  void Blocks();
  void Block(Int block);
  void Tap(Ptr tap);
  void Channels(Ptr tap, int64_t count);
  void Tail();
  void Body(Ptr input, int channels);
  void Prefetch();
  void StoreFromMemory(const StoreSum& store);

  Part part_ = Part::kNone;
  PtrVar block_, prefetch_;
};

}  // namespace quench::codegen
