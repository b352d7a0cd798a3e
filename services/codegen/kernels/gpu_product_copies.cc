#include "services/codegen/kernels/gpu_product_copies.h"

namespace quench::codegen {
namespace {

constexpr int64_t kTileChunk = GpuProductPlan::kChunk, kTileRow = GpuProductPlan::kRow;

}  // namespace

GpuTileCopies::GpuTileCopies(VectorBuilder& b, const Planned<GpuProductPlan>& product,
                             const GpuBlockPlace& place)
    : b_(b),
      g_(b.gpu()),
      plan_(product.plan),
      buffers_(product.buffers),
      place_(place),
      inputs_(product.group.inputs),
      apart_(plan_.threads / GpuProductPlan::kStepChunks) {
  thread_ = g_.Thread();
  chunk_ = thread_ % GpuProductPlan::kStepChunks;
  row_ = thread_ / GpuProductPlan::kStepChunks;
  BeginLeft();
  BeginRight();
}

// Row `at` of `rows` of an operand, `first` rows into the tile. Rows beyond the last are zeros.
GpuTileCopies::Source GpuTileCopies::RowSource(Int at, Int rows, Int row) {
  Source source;
  source.present = at < rows;
  source.to = PlaceInTile(row, chunk_);
  source.base = Min(at, rows - 1) * (b_.Size(plan_.k) * plan_.element());
  return source;
}

void GpuTileCopies::BeginLeft() {
  a_ = b_.Buffer(plan_.prepares ? buffers_.Workspace() : buffers_.Input(inputs_[0]));
  const Int m = b_.Size(plan_.m);
  const int64_t element = plan_.element();
  if (plan_.a_batched) a_ = a_ + place_.batch * (m * b_.Size(plan_.k) * element);
  if (plan_.groups > 1) a_ = a_ + place_.group * (plan_.channels * element);
  for (int64_t first = 0; first < plan_.block_m; first += apart_) {
    const Int at = place_.m0 + row_ + first;
    left_.push_back(RowSource(at, m, row_ + first));
    if (plan_.conv) PlacePixel(Min(at, m - 1), left_.back());
  }
}

void GpuTileCopies::BeginRight() {
  const int64_t a_tile = plan_.a_tile();
  if (plan_.right == GpuRight::kPacked) {
    w_ = b_.Buffer(buffers_.Pack(kWeights)) +
         (place_.group * plan_.padded_n() + place_.n0 + row_) * plan_.row_bytes() +
         chunk_ * kTileChunk;
    weights_to_ = b_.I(a_tile) + PlaceInTile(row_, chunk_);
    return;
  }
  w_ = b_.Buffer(buffers_.Input(inputs_[1]));
  const Int n = b_.Size(plan_.n);
  if (plan_.w_batched) w_ = w_ + place_.batch * (n * b_.Size(plan_.k) * plan_.element());
  if (plan_.right == GpuRight::kColumns) return;
  for (int64_t first = 0; first < plan_.block_n; first += apart_) {
    right_.push_back(RowSource(place_.n0 + row_ + first, n, row_ + first));
    right_.back().to = right_.back().to + a_tile;
  }
}

void GpuTileCopies::PlacePixel(Int pixel, Source& source) {
  const ConvShape& s = *plan_.conv;
  const Int width = b_.Size(s.out_w), height = b_.Size(s.out_h);
  source.x = pixel % width * s.stride_w - s.pad_left;
  const Int row = pixel / width;
  source.y = row % height * s.stride_h - s.pad_top;
  source.base = ((row / height * b_.Size(s.h) + source.y) * b_.Size(s.w) + source.x) *
                (plan_.groups * plan_.channels * plan_.element());
}

Bool GpuTileCopies::IsInImage(Int y, Int x) {
  const ConvShape& s = *plan_.conv;
  return b_.I(-1) < y && y < b_.Size(s.h) && b_.I(-1) < x && x < b_.Size(s.w);
}

void GpuTileCopies::CopyStep(Int step, Int stage) {
  CopyLeft(step, stage);
  if (plan_.right == GpuRight::kColumns) return CopyColumns(step, stage);
  for (const Source& source : right_) CopyRow(source, w_, step, stage, plan_.w_piece);
  if (plan_.right != GpuRight::kPacked) return;
  for (int64_t first = 0; first < plan_.block_n; first += apart_) {
    // Rows a multiple of 8 apart have their chunks at the same places.
    g_.CopyToShared(stage + weights_to_ + first * kTileRow,
                    w_ + (step * kTileRow + first * plan_.row_bytes()), Always());
  }
}

void GpuTileCopies::CopyLeft(Int step, Int stage) {
  if (!plan_.conv) {
    for (const Source& source : left_) CopyRow(source, a_, step, stage, plan_.a_piece);
    return;
  }
  const ConvShape& s = *plan_.conv;
  const Int chunk = step * 4 + chunk_, row_chunks = b_.I(plan_.channels / plan_.unit());
  const Bool inside = chunk < b_.I(plan_.k.value() / plan_.unit());
  const Int tap = chunk / row_chunks;
  const Int y = tap / b_.I(s.kernel_w) * s.dilation_h, x = tap % b_.I(s.kernel_w) * s.dilation_w;
  const int64_t pixel = plan_.groups * plan_.channels * plan_.element();
  const Int offset = (y * b_.Size(s.w) + x) * pixel + chunk % row_chunks * kTileChunk;
  for (const Source& source : left_) {
    const Bool present = source.present && inside && IsInImage(source.y + y, source.x + x);
    g_.CopyToShared(stage + source.to, a_ + (source.base + offset), present);
  }
}

// A chunk of a row of `operand`. Zeros lie behind its end.
void GpuTileCopies::CopyRow(const Source& source, Ptr operand, Int step, Int stage, int64_t piece) {
  const Int from = step * kTileRow + chunk_ * kTileChunk;
  const Int end = b_.Size(plan_.k) * plan_.element();
  const Ptr chunk = operand + (source.base + from);
  if (piece == kTileChunk)
    return g_.CopyToShared(stage + source.to, chunk, source.present && from < end);
  for (int64_t at = 0; at < kTileChunk; at += piece) {
    g_.CopyPartToShared(stage + source.to + at, chunk + at, source.present && from + at < end,
                        static_cast<int>(piece));
  }
}

// Chunks along n of the rows of k that the step has: there are as many, or twice, as threads, and so on.
void GpuTileCopies::CopyColumns(Int step, Int stage) {
  const int64_t element = plan_.element(), across = plan_.block_n / plan_.unit();
  const int64_t rows = plan_.column_rows(), apart = plan_.threads / across;
  const Int column = place_.n0 + thread_ % across * plan_.unit();
  const Int n = b_.Size(plan_.n), k = b_.Size(plan_.k);
  for (int64_t first = 0; first < rows; first += apart) {
    const Int row = thread_ / across + first, at = step * rows + row;
    const Ptr from = w_ + (at * n + column) * element;
    const Int to =
        stage + plan_.a_tile() + row * plan_.column_pitch() + thread_ % across * kTileChunk;
    if (plan_.w_piece == kTileChunk) {
      g_.CopyToShared(to, from, at < k && column < n);
      continue;
    }
    for (int64_t i = 0; i < kTileChunk; i += plan_.w_piece) {
      g_.CopyPartToShared(to + i, from + i, at < k && column + i / element < n,
                          static_cast<int>(plan_.w_piece));
    }
  }
}

}  // namespace quench::codegen
