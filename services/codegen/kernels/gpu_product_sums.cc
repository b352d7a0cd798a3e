#include "services/codegen/kernels/gpu_product_sums.h"

#include <array>
#include <vector>

#include "services/codegen/kernels/gpu_product_copies.h"

namespace quench::codegen {
namespace {

constexpr int64_t kRowBytes = GpuProductPlan::kRow;

Int PlaceOfSum(const GpuProductPlan& plan, Int row, Int column) {
  return (row * plan.block_n + column) * 4;
}

// Each warp has a part of the tile, of 16 x 8 sums at a time.
class WarpSums final : public GpuSums {
 public:
  WarpSums(VectorBuilder& b, const GpuProductPlan& plan) : b_(b), g_(b.gpu()), plan_(plan) {
    const Vec zero = b_.Constant(plan_.sums(), 0, 1);
    for (int64_t i = 0; i < TilesM() * TilesN(); ++i) {
      sums_.emplace_back();
      for (VecVar& sum : sums_.back()) sum = b_.Variable(zero);
    }
    const Int thread = g_.Thread(), warp = thread / 32;
    const int64_t across = plan_.block_n / plan_.warp_n;
    lane_ = thread % 32;
    warp_m_ = warp / b_.I(across) * plan_.warp_m;
    warp_n_ = warp % b_.I(across) * plan_.warp_n;
  }

  void Multiply(Int stage) override {
    for (int64_t half = 0; half < 2; ++half) MultiplyHalf(stage, half);
  }

  void Store() override {
    for (int64_t i = 0; i < TilesM(); ++i) {
      for (int64_t j = 0; j < TilesN(); ++j) {
        const std::array<VecVar, 4>& sums = sums_[static_cast<size_t>(i * TilesN() + j)];
        const Int at =
            PlaceOfSum(plan_, warp_m_ + lane_ / 4 + i * 16, warp_n_ + lane_ % 4 * 2 + j * 8);
        for (int64_t half = 0; half < 2; ++half) {
          for (int64_t k = 0; k < 2; ++k)
            g_.StoreShared(at + (half * 8 * plan_.block_n + k) * 4,
                           sums[static_cast<size_t>(half * 2 + k)].Get());
        }
      }
    }
  }

 private:
  using Words = std::array<Vec, 4>;

  int64_t TilesM() const { return plan_.warp_m / 16; }
  int64_t TilesN() const { return plan_.warp_n / 8; }

  // 32 bytes of k, the first or the second of the step.
  void MultiplyHalf(Int stage, int64_t half) {
    const Int a_at = stage + PlaceInTile(warp_m_ + lane_ % 16, lane_ / 16 + 2 * half);
    std::vector<Words> left, right;
    for (int64_t i = 0; i < TilesM(); ++i)
      left.push_back(Rounded(g_.LoadMatrices(a_at + i * 16 * kRowBytes)));
    for (int64_t j = 0; j < TilesN() / 2; ++j) right.push_back(Columns(stage, half, j));
    for (int64_t i = 0; i < TilesM(); ++i) {
      for (int64_t j = 0; j < TilesN(); ++j) {
        const Words& two = right[static_cast<size_t>(j / 2)];
        const auto first = static_cast<size_t>(j % 2 * 2);
        const std::array<Vec, 2> columns = {two[first], two[first + 1]};
        g_.AddProducts(*plan_.products, sums_[static_cast<size_t>(i * TilesN() + j)],
                       left[static_cast<size_t>(i)], columns);
      }
    }
  }

  Words Rounded(Words words) {
    if (plan_.rounds()) {
      for (Vec& word : words) word = g_.RoundToTf32(word);
    }
    return words;
  }

  // 16 columns of the right side: the words of 8, then of the others.
  Words Columns(Int stage, int64_t half, int64_t j) {
    const Int tile = stage + plan_.a_tile();
    if (plan_.right != GpuRight::kColumns) {
      const Int row = warp_n_ + lane_ / 16 * 8 + lane_ % 8;
      const Words words =
          g_.LoadMatrices(tile + PlaceInTile(row, lane_ / 8 % 2 + 2 * half) + j * 16 * kRowBytes);
      return plan_.right == GpuRight::kPacked ? words : Rounded(words);
    }
    const int64_t pitch = plan_.column_pitch(), element = plan_.element();
    const Int first = tile + half * plan_.column_rows() / 2 * pitch + (warp_n_ + j * 16) * element;
    if (element == 2)
      return g_.LoadMatricesTransposed(first + lane_ % 16 * pitch + lane_ / 16 * (8 * element));
    Words words;
    for (int64_t i = 0; i < 4; ++i) {
      const Int at = first + (lane_ % 4 + i % 2 * 4) * pitch + (lane_ / 4 + i / 2 * 8) * element;
      words[static_cast<size_t>(i)] = g_.LoadShared(at, 1, DataType::kI32);
    }
    return Rounded(words);
  }

  VectorBuilder& b_;
  GpuBuilder& g_;
  const GpuProductPlan& plan_;
  Int lane_, warp_m_, warp_n_;
  std::vector<std::array<VecVar, 4>> sums_;
};

// Each thread has rows and columns of the tile in equal distances, or, where columns lie side by side, four of them at
// a time.
class ThreadSums final : public GpuSums {
 public:
  ThreadSums(VectorBuilder& b, const GpuProductPlan& plan)
      : b_(b), g_(b.gpu()), plan_(plan), apart_m_(plan.threads / kApart) {
    for (int64_t i = 0; i < Rows() * Columns(); ++i) sums_.push_back(b_.Variable(b_.F(0, 1)));
    row_ = g_.Thread() / kApart;
    column_ = g_.Thread() % kApart;
  }

  // A loop: unrolled, the numbers of all chunks would take registers at once.
  void Multiply(Int stage) override {
    b_.For(b_.I(0), b_.I(GpuProductPlan::kStepChunks), 1,
           [&](Int chunk) { MultiplyChunk(stage, chunk); });
  }

  void Store() override {
    for (int64_t i = 0; i < Rows(); ++i) {
      for (int64_t j = 0; j < Columns(); ++j) {
        const Int column = plan_.right == GpuRight::kColumns
                               ? column_ * 4 + (j / 4 * 4 * kApart + j % 4)
                               : column_ + j * kApart;
        g_.StoreShared(PlaceOfSum(plan_, row_ + i * apart_m_, column),
                       sums_[static_cast<size_t>(i * Columns() + j)].Get());
      }
    }
  }

 private:
  static constexpr int64_t kApart = 16;  // columns

  int64_t Rows() const { return plan_.block_m / apart_m_; }
  int64_t Columns() const { return plan_.block_n / kApart; }

  void MultiplyChunk(Int stage, Int chunk) {
    const std::vector<Vec> columns = plan_.right == GpuRight::kColumns
                                         ? ColumnsSideBySide(stage, chunk)
                                         : ColumnsOfRows(stage, chunk);
    const Int a_at = stage + PlaceInTile(row_, chunk);
    for (int64_t i = 0; i < Rows(); ++i) {
      const Vec row = g_.LoadShared(a_at + i * apart_m_ * kRowBytes, 4, DataType::kF32);
      for (int k = 0; k < 4; ++k) {
        const Vec a = b_.SplatLane(row, k, 1);
        for (int64_t j = 0; j < Columns(); ++j) {
          const VecVar& sum = sums_[static_cast<size_t>(i * Columns() + j)];
          sum.Set(b_.Fma(a, columns[static_cast<size_t>(k * Columns() + j)], sum.Get()));
        }
      }
    }
  }

  // The thread's columns at each of the four numbers of a chunk along k.
  std::vector<Vec> ColumnsOfRows(Int stage, Int chunk) {
    const Int at = stage + plan_.a_tile() + PlaceInTile(column_, chunk);
    std::vector<Vec> loaded, columns;
    for (int64_t j = 0; j < Columns(); ++j)
      loaded.push_back(g_.LoadShared(at + j * kApart * kRowBytes, 4, DataType::kF32));
    for (int k = 0; k < 4; ++k) {
      for (const Vec& column : loaded) columns.push_back(b_.SplatLane(column, k, 1));
    }
    return columns;
  }

  std::vector<Vec> ColumnsSideBySide(Int stage, Int chunk) {
    const Int at = stage + plan_.a_tile() + chunk * (4 * plan_.column_pitch()) + column_ * 16;
    std::vector<Vec> columns;
    for (int64_t k = 0; k < 4; ++k) {
      for (int64_t j = 0; j < Columns(); j += 4) {
        const Vec four =
            g_.LoadShared(at + (k * plan_.column_pitch() + j * kApart * 4), 4, DataType::kF32);
        for (int lane = 0; lane < 4; ++lane) columns.push_back(b_.SplatLane(four, lane, 1));
      }
    }
    return columns;
  }

  VectorBuilder& b_;
  GpuBuilder& g_;
  const GpuProductPlan& plan_;
  int64_t apart_m_;  // rows
  Int row_, column_;
  std::vector<VecVar> sums_;
};

}  // namespace

std::unique_ptr<GpuSums> MakeGpuSums(VectorBuilder& b, const GpuProductPlan& plan) {
  if (plan.products) return std::make_unique<WarpSums>(b, plan);
  return std::make_unique<ThreadSums>(b, plan);
}

}  // namespace quench::codegen
