#include "services/codegen/kernels/gpu_attention_products.h"

#include <array>

namespace quench::codegen {
namespace {

using Places = GpuAttentionPlan::Places;

// Halves in tensor cores. A warp has 16 rows of a part; a lane of it has two of them, eight apart.
class InTensorCores final : public GpuAttentionProducts {
 public:
  InTensorCores(VectorBuilder& b, const GpuAttentionPlan& plan, const GpuAttentionTile& tile)
      : b_(b), g_(b.gpu()), plan_(plan), tile_(tile), at_(plan.PlacesOf(tile)) {
    const Int warp = g_.Thread() / 32;
    lane_ = g_.Thread() % 32;
    part_ = warp % b_.I(tile.parts);
    first_row_ = warp / b_.I(tile.parts) * 16;
    first_key_ = part_ * tile.part_keys();
  }

  int rows() const override { return 2; }
  int keys() const override { return static_cast<int>(tile_.part_keys() / 4); }
  Int Row(int row) override { return first_row_ + lane_ / 4 + 8 * row; }
  Int FirstKey() override { return first_key_ + lane_ % 4 * 2; }
  int64_t KeyAfter(int key) const override { return key / 2 * 8 + key % 2; }
  std::span<const int> Others() const override {
    static constexpr int kOthers[] = {1, 2};
    return kOthers;
  }
  Int Part() override { return part_; }
  Bool IsFirst() override { return lane_ % 4 == b_.I(0); }

  void Begin() override {
    const Vec zero = b_.F(0, 1);
    for (int64_t i = 0; i < plan_.shape.value_size / 8; ++i) sums_.push_back(Four(zero));
    for (int64_t i = 0; i < tile_.part_keys() / 8; ++i) scores_.push_back(Four(zero));
    if (!plan_.queries_in_registers()) return;
    for (int64_t k = 0; k < Steps(); ++k) queries_.push_back(LoadQueries(k));
  }

  void Multiply() override {
    const Vec zero = b_.F(0, 1);
    for (const std::array<VecVar, 4>& four : scores_) {
      for (const VecVar& score : four) score.Set(zero);
    }
    const Int from = b_.I(at_.keys) +
                     (first_key_ + lane_ / 16 * 8 + lane_ % 8) * plan_.key_pitch() +
                     lane_ / 8 % 2 * kChunk;
    for (int64_t k = 0; k < Steps(); ++k) {
      const std::array<Vec, 4> left =
          queries_.empty() ? LoadQueries(k) : queries_[static_cast<size_t>(k)];
      for (size_t j = 0; j < scores_.size(); j += 2) {
        const int64_t row = static_cast<int64_t>(j) * 8;
        const std::array<Vec, 4> right =
            g_.LoadMatrices(from + (row * plan_.key_pitch() + 2 * k * kChunk));
        AddProducts(scores_[j], left, right[0], right[1]);
        AddProducts(scores_[j + 1], left, right[2], right[3]);
      }
    }
  }

  const VecVar& Score(int row, int key) override {
    return scores_[static_cast<size_t>(key / 2)][static_cast<size_t>(2 * row + key % 2)];
  }

  void ScaleSums(int row, Vec factor) override {
    for (const std::array<VecVar, 4>& four : sums_) {
      for (int i = 2 * row; i < 2 * row + 2; ++i) {
        const VecVar& sum = four[static_cast<size_t>(i)];
        sum.Set(b_.Apply(VecOp::kMul, sum.Get(), factor));
      }
    }
  }

  void ShareExponentials() override {}

  // Exponentials of 16 keys are where the left operand has them.
  void AddValues() override {
    const Int from =
        b_.I(at_.values) + (first_key_ + lane_ % 16) * plan_.value_pitch() + lane_ / 16 * kChunk;
    for (size_t j = 0; j < scores_.size(); j += 2) {
      const std::array<Vec, 4> left = {Halves(scores_[j], 0), Halves(scores_[j], 2),
                                       Halves(scores_[j + 1], 0), Halves(scores_[j + 1], 2)};
      const int64_t row = static_cast<int64_t>(j) * 8;
      for (size_t c = 0; c < sums_.size(); c += 2) {
        const std::array<Vec, 4> right = g_.LoadMatricesTransposed(
            from + (row * plan_.value_pitch() + static_cast<int64_t>(c) * kChunk));
        AddProducts(sums_[c], left, right[0], right[1]);
        if (c + 1 < sums_.size()) AddProducts(sums_[c + 1], left, right[2], right[3]);
      }
    }
  }

  void ForSums(const Body& body) override {
    for (int row = 0; row < rows(); ++row) {
      for (size_t c = 0; c < sums_.size(); ++c) {
        const auto first = static_cast<size_t>(2 * row);
        const Vec two[] = {sums_[c][first].Get(), sums_[c][first + 1].Get()};
        body(row, lane_ % 4 * 2 + 8 * static_cast<int64_t>(c), two);
      }
    }
  }

 private:
  static constexpr int64_t kChunk = GpuAttentionPlan::kChunk;

  // Each multiplies 32 bytes of queries and keys.
  int64_t Steps() const { return plan_.Chunks(plan_.shape.size) / 2; }

  std::array<VecVar, 4> Four(Vec value) {
    std::array<VecVar, 4> four;
    for (VecVar& each : four) each = b_.Variable(value);
    return four;
  }

  std::array<Vec, 4> LoadQueries(int64_t k) {
    const Int row = first_row_ + lane_ % 16;
    return g_.LoadMatrices(b_.I(at_.queries) + row * plan_.key_pitch() + lane_ / 16 * kChunk +
                           2 * k * kChunk);
  }

  void AddProducts(std::span<const VecVar, 4> sums, std::span<const Vec, 4> left, Vec low,
                   Vec high) {
    const Vec right[] = {low, high};
    g_.AddProducts(*plan_.products, sums, left, right);
  }

  Vec Halves(const std::array<VecVar, 4>& four, size_t first) {
    return g_.HalvesOf(four[first].Get(), four[first + 1].Get(), plan_.shape.type);
  }

  VectorBuilder& b_;
  GpuBuilder& g_;
  const GpuAttentionPlan& plan_;
  const GpuAttentionTile& tile_;
  const Places at_;
  Int lane_, part_, first_row_, first_key_;
  std::vector<std::array<Vec, 4>> queries_;
  std::vector<std::array<VecVar, 4>> scores_, sums_;  // of 8 keys, of 8 columns
};

// f32 in the ordinary units. 16 threads have the same rows, and of each 16 keys one, of each 64 columns four.
class InUnits final : public GpuAttentionProducts {
 public:
  InUnits(VectorBuilder& b, const GpuAttentionPlan& plan, const GpuAttentionTile& tile)
      : b_(b),
        g_(b.gpu()),
        plan_(plan),
        tile_(tile),
        at_(plan.PlacesOf(tile)),
        apart_(plan.threads / kAcross / tile.parts) {
    across_ = g_.Thread() % kAcross;
    const Int line = g_.Thread() / kAcross;
    part_ = line / b_.I(apart_);
    first_row_ = line % b_.I(apart_);
  }

  int rows() const override { return static_cast<int>(tile_.rows / apart_); }
  int keys() const override { return static_cast<int>(tile_.part_keys() / kAcross); }
  Int Row(int row) override { return first_row_ + row * apart_; }
  Int FirstKey() override { return part_ * tile_.part_keys() + across_; }
  int64_t KeyAfter(int key) const override { return key * kAcross; }
  std::span<const int> Others() const override {
    static constexpr int kOthers[] = {1, 2, 4, 8};
    return kOthers;
  }
  Int Part() override { return part_; }
  Bool IsFirst() override { return across_ == b_.I(0); }

  void Begin() override {
    for (int i = 0; i < rows() * keys(); ++i) scores_.push_back(b_.Variable(b_.F(0, 1)));
    for (int i = 0; i < rows() * Vectors(); ++i) sums_.push_back(b_.Variable(b_.F(0, 4)));
  }

  void Multiply() override {
    std::vector<VecVar> sums;
    for (size_t i = 0; i < scores_.size(); ++i) sums.push_back(b_.Variable(b_.F(0, 4)));
    const int64_t pitch = plan_.key_pitch(), chunks = plan_.Chunks(plan_.shape.size);
    const Int query = b_.I(at_.queries) + first_row_ * pitch;
    const Int key = b_.I(at_.keys) + FirstKey() * pitch;
    b_.For(b_.I(0), b_.I(chunks * kChunk), kChunk, [&](Int at) {
      std::vector<Vec> right;
      for (int j = 0; j < keys(); ++j)
        right.push_back(g_.LoadShared(key + at + KeyAfter(j) * pitch, 4, DataType::kF32));
      for (int i = 0; i < rows(); ++i) {
        const Vec left = g_.LoadShared(query + at + i * apart_ * pitch, 4, DataType::kF32);
        for (int j = 0; j < keys(); ++j) {
          const VecVar& sum = sums[Index(i, j)];
          sum.Set(b_.Fma(left, right[static_cast<size_t>(j)], sum.Get()));
        }
      }
    });
    for (size_t i = 0; i < sums.size(); ++i) scores_[i].Set(b_.Sum(sums[i].Get()));
  }

  const VecVar& Score(int row, int key) override { return scores_[Index(row, key)]; }

  void ScaleSums(int row, Vec factor) override {
    for (int j = 0; j < Vectors(); ++j) {
      const VecVar& sum = sums_[static_cast<size_t>(row * Vectors() + j)];
      sum.Set(b_.Apply(VecOp::kMul, sum.Get(), b_.Splat(factor, 4)));
    }
  }

  void ShareExponentials() override {
    for (int i = 0; i < rows(); ++i) {
      for (int j = 0; j < keys(); ++j)
        g_.StoreShared(Exponentials(i) + across_ * 4 + KeyAfter(j) * 4, Score(i, j).Get());
    }
  }

  void AddValues() override {
    const int64_t pitch = plan_.value_pitch();
    const Int from = b_.I(at_.values) + part_ * tile_.part_keys() * pitch;
    b_.For(b_.I(0), b_.I(tile_.part_keys()), 4, [&](Int key) {
      std::vector<Vec> left;
      for (int i = 0; i < rows(); ++i)
        left.push_back(g_.LoadShared(Exponentials(i) + key * 4, 4, DataType::kF32));
      for (int k = 0; k < 4; ++k) {
        for (int j = 0; j < Vectors(); ++j) {
          const Vec right =
              g_.LoadShared(from + (key + k) * pitch + ColumnThere(j) * 4, 4, DataType::kF32);
          for (int i = 0; i < rows(); ++i) {
            const VecVar& sum = sums_[static_cast<size_t>(i * Vectors() + j)];
            const Vec factor = b_.SplatLane(left[static_cast<size_t>(i)], k, 4);
            sum.Set(b_.Fma(factor, right, sum.Get()));
          }
        }
      }
    });
  }

  void ForSums(const Body& body) override {
    for (int j = 0; j < Vectors(); ++j) {
      b_.If(Column(j) < b_.I(plan_.shape.value_size), [&] {
        for (int i = 0; i < rows(); ++i) {
          const Vec four[] = {sums_[static_cast<size_t>(i * Vectors() + j)].Get()};
          body(i, Column(j), four);
        }
      });
    }
  }

 private:
  static constexpr int64_t kChunk = GpuAttentionPlan::kChunk, kAcross = 16;

  int Vectors() const {
    return static_cast<int>((plan_.shape.value_size + 4 * kAcross - 1) / (4 * kAcross));
  }
  Int Column(int vector) { return across_ * 4 + vector * 4 * kAcross; }
  // Threads without columns of their own repeat the last ones.
  Int ColumnThere(int vector) {
    const int64_t size = plan_.shape.value_size;
    return 4 * kAcross * (vector + 1) <= size ? Column(vector)
                                              : Min(Column(vector), b_.I(size - 4));
  }
  size_t Index(int row, int key) const { return static_cast<size_t>(row * keys() + key); }
  Int Exponentials(int row) {
    return b_.I(at_.exponentials) + (part_ * tile_.rows + Row(row)) * at_.exponential_pitch;
  }

  VectorBuilder& b_;
  GpuBuilder& g_;
  const GpuAttentionPlan& plan_;
  const GpuAttentionTile& tile_;
  const Places at_;
  const int64_t apart_;  // from a row of a thread to its next one
  Int across_, part_, first_row_;
  std::vector<VecVar> scores_, sums_;  // [rows][keys]; [rows][Vectors()]
};

}  // namespace

std::unique_ptr<GpuAttentionProducts> MakeGpuAttentionProducts(VectorBuilder& b,
                                                               const GpuAttentionPlan& plan,
                                                               const GpuAttentionTile& tile) {
  if (plan.products) return std::make_unique<InTensorCores>(b, plan, tile);
  return std::make_unique<InUnits>(b, plan, tile);
}

}  // namespace quench::codegen
