#include "services/codegen/forms/matrix_tile.h"

#include <algorithm>

#include "common/base/status.h"

namespace quench::codegen {
namespace {

constexpr int64_t kColumnBytes = 4 * MatrixUnit::kWords;

int64_t ColumnsOf(int vectors, int lanes) { return int64_t{vectors} * lanes / MatrixUnit::kWords; }

}  // namespace

MatrixRegisters::MatrixRegisters(VectorBuilder& b, MatrixProducts products,
                                 const MatrixShapes& shapes, Int rows, int lanes)
    : b_(b), products_(products), shapes_(shapes), rows_(rows), lanes_(lanes) {
  const auto sums = static_cast<size_t>(shapes.blocks * shapes.columns);
  const auto blocks = static_cast<size_t>(shapes.blocks);
  QUENCH_CHECK(sums + blocks < MatrixUnit::kRegisters);  // MatrixShapes::MostColumns
  const size_t weights =
      std::min(static_cast<size_t>(shapes.columns), size_t{MatrixUnit::kRegisters} - sums - blocks);
  std::vector<MatrixShape> all(sums, {rows, MatrixUnit::kWords});
  all.insert(all.end(), blocks, {rows, shapes.words});
  all.insert(all.end(), weights, {b.I(shapes.words), MatrixUnit::kWords});
  const std::vector<Matrix> registers = b.Matrices(all);
  const auto at = [&](size_t i) { return registers.begin() + static_cast<std::ptrdiff_t>(i); };
  sums_.assign(at(0), at(sums));
  pixels_.assign(at(sums), at(sums + blocks));
  weights_.assign(at(sums + blocks), registers.end());
  memory_ = b.Stack(static_cast<int64_t>(sums) * MatrixUnit::kRows * kColumnBytes);
  starts_ = b.Stack(shapes.columns * kColumnBytes);
  if (b.StoreMatricesWithin() > 0) steps_ = b.Variable(b.I(0));
}

DataType MatrixRegisters::SumType() const {
  const bool floats = products_ == MatrixProducts::kBfloats || products_ == MatrixProducts::kHalves;
  return floats ? DataType::kF32 : DataType::kI32;
}

Ptr MatrixRegisters::Moved(const MicroTile& tile, Ptr factors, Int first, Vec zero) {
  const int64_t vector = int64_t{4} * lanes_;
  const Vec factor = b_.Splat(zero, lanes_);
  for (int v = 0; v < tile.vectors; ++v) {
    const Vec sums = b_.Load(tile.bias + vector * v, lanes_, DataType::kI32);
    const Vec each = b_.Load(factors + (first + v) * vector, lanes_, DataType::kI32);
    b_.Store(starts_ + vector * v,
             b_.Apply(VecOp::kAdd, sums, b_.Apply(VecOp::kMul, each, factor)));
  }
  return starts_;
}

void MatrixRegisters::Start(const MatrixTile& tile) {
  for (size_t block = 0; block < tile.blocks.size(); ++block) {
    for (int column = 0; column < ColumnsOf(tile.vectors, lanes_); ++column) {
      const Matrix& sum = Sum(static_cast<int>(block), column);
      if (tile.bias.valid()) {
        b_.Load(sum, tile.bias + column * kColumnBytes, b_.I(0));  // the same row for all pixels
      } else {
        b_.Zero(sum);
      }
    }
  }
  weights_at_ = b_.Variable(tile.weights);
  if (tile.prefetch.valid()) prefetch_at_ = b_.Variable(tile.prefetch);
}

void MatrixRegisters::StoreInTime() {
  if (!steps_.valid()) return;
  steps_.Set(steps_.Get() + 1);
  b_.If(steps_.Get() >= b_.I(b_.StoreMatricesWithin()), [&] {
    b_.Store(pixels_[0], memory_, b_.I(kColumnBytes));
    steps_.Set(b_.I(0));
  });
}

void MatrixRegisters::Step(const MatrixTile& tile, Int offset) {
  const Ptr weights = weights_at_.Get();
  const int64_t columns = ColumnsOf(tile.vectors, lanes_), pitch = columns * kColumnBytes;
  if (tile.prefetch.valid()) {
    for (int i = 0; i < tile.prefetch_lines; ++i) b_.Prefetch(prefetch_at_.Get() + i * 64, 2);
    prefetch_at_.Set(prefetch_at_.Get() + tile.prefetch_lines * 64);
  }
  for (int column = 0; column < columns; ++column) {
    const Matrix& right = weights_[static_cast<size_t>(column) % weights_.size()];
    b_.Load(right, weights + column * kColumnBytes, b_.I(pitch));
    for (size_t block = 0; block < tile.blocks.size(); ++block) {
      const Matrix& left = pixels_[block];
      if (column == 0) b_.Load(left, tile.blocks[block].input + offset, tile.stride);
      b_.AddProducts(products_, Sum(static_cast<int>(block), column), left, right);
    }
  }
  weights_at_.Set(weights + shapes_.words * pitch);
  StoreInTime();
}

void MatrixRegisters::StoreSums(const MatrixTile& tile, const StoreRow& store) {
  const int64_t vector = int64_t{4} * lanes_, row_bytes = vector * tile.vectors;
  const int64_t block_bytes = row_bytes * MatrixUnit::kRows;
  for (size_t block = 0; block < tile.blocks.size(); ++block) {
    const Ptr memory = memory_ + static_cast<int64_t>(block) * block_bytes;
    for (int column = 0; column < ColumnsOf(tile.vectors, lanes_); ++column)
      b_.Store(Sum(static_cast<int>(block), column), memory + column * kColumnBytes,
               b_.I(row_bytes));
    b_.For(tile.blocks[block].first, rows_, 1, [&](Int row) {
      for (int v = 0; v < tile.vectors; ++v) {
        const Ptr at = memory + (row * row_bytes + v * vector);
        store(static_cast<int>(block), row, v, b_.Load(at, lanes_, SumType()));
      }
    });
  }
  // `store` takes its time, too.
  if (steps_.valid()) steps_.Set(b_.I(b_.StoreMatricesWithin() / 2));
}

void MatrixRegisters::Emit(const MicroReduction& r, const MatrixTile& tile, const StoreRow& store) {
  Start(tile);
  const IntVar block = b_.Variable(b_.I(0));
  b_.For(b_.I(0), r.blocks, 1, [&](Int) {
    const IntVar row = b_.Variable(block.Get());
    b_.For(b_.I(0), r.kh, 1, [&](Int) {
      const IntVar tap = b_.Variable(row.Get());
      b_.For(b_.I(0), r.kw, 1, [&](Int) {
        const IntVar at = b_.Variable(tap.Get());
        b_.For(b_.I(0), b_.I(r.channels / shapes_.words), 1, [&](Int) {
          Step(tile, at.Get());
          at.Set(at.Get() + int64_t{4} * shapes_.words);
        });
        tap.Set(tap.Get() + r.kw_stride);
      });
      row.Set(row.Get() + r.kh_stride);
    });
    block.Set(block.Get() + r.block_stride);
  });
  StoreSums(tile, store);
}

}  // namespace quench::codegen
