#include "services/codegen/kernels/gpu_attention_tile.h"

#include <limits>
#include <numbers>

#include "services/codegen/kernels/gpu_attention_products.h"

namespace quench::codegen {
namespace {

constexpr int64_t kChunkBytes = GpuAttentionPlan::kChunk;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr double kLowestScore = -std::numeric_limits<float>::max();

class GpuAttentionTileEmitter {
 public:
  GpuAttentionTileEmitter(VectorBuilder& b, const Planned<GpuAttentionPlan>& attention,
                          const GpuAttentionTile& tile)
      : b_(b),
        g_(b.gpu()),
        plan_(attention.plan),
        s_(plan_.shape),
        tile_(tile),
        at_(plan_.PlacesOf(tile)),
        places_(b, attention.group, attention.buffers,
                {plan_.shape, plan_.mask_dims, plan_.mask_type}),
        products_(MakeGpuAttentionProducts(b, plan_, tile)) {}

  absl::Status Emit() {
    thread_ = g_.Thread();
    steps_ = b_.Size(s_.steps);
    keys_ = b_.Size(s_.keys);
    rows_ = steps_ * plan_.sharing();
    const Int parts = (rows_ + (tile_.rows - 1)) / tile_.rows;
    const Int head = b_.Begin() / parts;
    first_row_ = b_.Begin() % parts * tile_.rows;
    kv_ = head % s_.kv_heads;
    batch_ = head / s_.kv_heads;
    FindReach();
    for (int i = 0; i < products_->rows(); ++i) StartRow(products_->Row(i));
    CopyQueries();
    CopyKeys(b_.I(0));
    Finished();
    products_->Begin();
    b_.For(b_.I(0), end_, tile_.keys, [&](Int first) { Step(first); });
    Finish();
    return status_;
  }

 private:
  // A row that a thread has scores of.
  struct Row {
    Int head, step;
    Int reach;  // how many keys it may attend, from the first on
    VecVar largest, total;
  };
  struct Place {
    Int head, step;
  };

  // Waits for all copies, of all threads.
  void Finished() {
    g_.CommitCopies();
    g_.WaitForCopies(0);
    g_.Barrier();
  }

  void Step(Int first) {
    const bool shares = !plan_.products;
    Finished();  // keys are there; values and exponentials are read no more
    CopyRows(ops::kAttentionValue, s_.value_size, first, at_.values);
    products_->Multiply();
    if (shares) Soften(first);
    if (shares) products_->ShareExponentials();
    Finished();  // values are there; keys are read no more
    b_.If(first + tile_.keys < end_, [&] { CopyKeys(first + tile_.keys); });
    if (!shares) Soften(first);
    products_->AddValues();
  }

  // ---- rows ----

  // The last rows of the last tile, which are not there, are the last one that is.
  Place PlaceOf(Int row) {
    const Int at = Min(first_row_ + row, rows_ - 1);
    if (plan_.sharing() == 1) return {kv_, at};
    return {kv_ * plan_.sharing() + at / steps_, at % steps_};
  }

  // How many keys some query of the tile, and how many all of them, may attend.
  void FindReach() {
    offset_ = b_.I(0);
    reach_ = keys_;
    if (s_.has_lengths) {
      const Int length = places_.LengthOf(batch_);
      reach_ = Max(Min(keys_, length), b_.I(0));
      offset_ = length - steps_;
    } else if (s_.at_end) {
      offset_ = keys_ - steps_;
    }
    end_ = whole_ = reach_;
    if (!s_.causal) return;
    const Place first = PlaceOf(b_.I(0)), last = PlaceOf(b_.I(tile_.rows - 1));
    if (plan_.sharing() == 1) {
      end_ = ReachOf(last.step);
      whole_ = ReachOf(first.step);
      return;
    }
    // Over several heads, all steps may occur.
    const IntVar lowest = b_.Variable(b_.I(0)), highest = b_.Variable(steps_ - 1);
    b_.If(first.head == last.head, [&] {
      lowest.Set(first.step);
      highest.Set(last.step);
    });
    end_ = ReachOf(highest.Get());
    whole_ = ReachOf(lowest.Get());
  }

  Int ReachOf(Int step) {
    if (!s_.causal) return reach_;
    return Max(Min(reach_, step + offset_ + 1), b_.I(0));
  }

  void StartRow(Int at) {
    const Place place = PlaceOf(at);
    thread_rows_.push_back({place.head, place.step, ReachOf(place.step),
                            b_.Variable(b_.F(kMinusInfinity, 1)), b_.Variable(b_.F(0, 1))});
  }

  // ---- copies ----

  // Rows of `size` numbers to shared memory, zeros for those that are not there. from(row) is the first number.
  void Copy(int64_t rows, int64_t size, int64_t to, const std::function<Ptr(Int)>& from,
            const std::function<Bool(Int)>& present) {
    const int64_t chunks = plan_.Chunks(size), there = size * plan_.element() / kChunkBytes;
    const int64_t at_once = plan_.threads / chunks;
    const Int line = thread_ / b_.I(chunks), chunk = thread_ % b_.I(chunks);
    for (int64_t first = 0; first < rows; first += at_once) {
      const Int row = line + first;
      const auto copy = [&] {
        Bool is_there = present(row);
        if (there < chunks) is_there = is_there && chunk < b_.I(there);
        g_.CopyToShared(b_.I(to) + row * plan_.Pitch(size) + chunk * kChunkBytes,
                        from(row) + chunk * kChunkBytes, is_there);
      };
      const int64_t lines = std::min(at_once, rows - first);
      lines* chunks == plan_.threads ? copy() : b_.If(line < b_.I(lines), copy);
    }
  }

  void CopyQueries() {
    Copy(
        tile_.rows, s_.size, at_.queries,
        [&](Int row) {
          const Place place = PlaceOf(row);
          return places_.StepAt(ops::kAttentionQuery, batch_, place.head, place.step);
        },
        [&](Int row) { return first_row_ + row < rows_; });
  }

  void CopyKeys(Int first) { CopyRows(ops::kAttentionKey, s_.size, first, at_.keys); }

  // The keys of a step, or their values.
  void CopyRows(int input, int64_t size, Int first, int64_t to) {
    const Ptr base = places_.StepAt(input, batch_, kv_, first);
    Copy(
        tile_.keys, size, to, [&](Int row) { return base + row * places_.StepBytes(input); },
        [&](Int row) { return first + row < end_; });
  }

  // ---- scores ----

  bool ChangesScores() const { return s_.cap > 0 || s_.has_mask; }

  Vec Call(const loops::ScalarFunction& function, std::initializer_list<Vec> operands) {
    absl::StatusOr<Vec> result = b_.Apply(function, std::vector<Vec>(operands));
    if (result.ok()) return *result;
    status_ = result.status();
    return *operands.begin();
  }

  // Scores of a step become exponentials, and earlier sums are scaled to the largest score so far.
  void Soften(Int first) {
    const Int from = first + products_->FirstKey();
    ChangeScores(from);
    b_.If(first + tile_.keys > whole_, [&] { HideScores(from); });
    for (int i = 0; i < products_->rows(); ++i) {
      const Row& row = thread_rows_[static_cast<size_t>(i)];
      const Vec before = row.largest.Get();
      Vec largest = before;  // never NaN, whose exponential is NaN all the same
      for (int j = 0; j < products_->keys(); ++j)
        largest = b_.Apply(VecOp::kMax, products_->Score(i, j).Get(), largest);
      for (const int mask : products_->Others())
        largest = b_.Apply(VecOp::kMax, g_.ShuffleXor(largest, mask), largest);
      row.largest.Set(largest);
      const Vec shift = ShiftOf(largest);
      const Vec kept = Exponential(before, shift);
      Vec total = b_.Apply(VecOp::kMul, row.total.Get(), kept);
      for (int j = 0; j < products_->keys(); ++j) {
        const VecVar& score = products_->Score(i, j);
        score.Set(Exponential(score.Get(), shift));
        total = b_.Apply(VecOp::kAdd, total, score.Get());
      }
      row.total.Set(total);  // of the thread's own keys
      products_->ScaleSums(i, kept);
    }
  }

  // If all scores are -inf, all exponentials are 0.
  Vec ShiftOf(Vec largest) { return b_.Apply(VecOp::kMax, largest, b_.F(kLowestScore, 1)); }

  // Scores that nothing but the scale changes are those of powers of 2. Others may be as low as floats go.
  Vec Exponential(Vec score, Vec shift) {
    Vec difference = b_.Apply(VecOp::kSub, score, shift);
    if (ChangesScores())
      difference = b_.Apply(VecOp::kMul, difference, b_.F(std::numbers::log2e, 1));
    return g_.Exp2(difference);
  }

  void ChangeScores(Int from) {
    const Vec scale = b_.F(ChangesScores() ? s_.scale : s_.scale * std::numbers::log2e, 1);
    for (int j = 0; j < products_->keys(); ++j) {
      const Int key = Min(from + products_->KeyAfter(j), keys_ - 1);
      Vec mask;
      for (int i = 0; i < products_->rows(); ++i) {
        const VecVar& score = products_->Score(i, j);
        Vec value = b_.Apply(VecOp::kMul, score.Get(), scale);
        if (s_.cap > 0) value = Call(CappedScore(s_.cap), {value});
        if (s_.has_mask) {
          if (i == 0 || !SharesMask()) mask = MaskOf(thread_rows_[static_cast<size_t>(i)], key);
          value = plan_.mask_type == DataType::kBool ? Call(FilledScore(s_.fill), {value, mask})
                                                     : b_.Apply(VecOp::kAdd, value, mask);
        }
        score.Set(value);
      }
    }
  }

  // Whether all rows have the same mask.
  bool SharesMask() const {
    return plan_.mask_dims[2].is(1) && (plan_.mask_dims[1].is(1) || plan_.sharing() == 1);
  }

  Vec MaskOf(const Row& row, Int key) {
    const DataType type = plan_.mask_type == DataType::kBool ? DataType::kU8 : plan_.mask_type;
    return b_.Load(places_.MaskAt(batch_, row.head, row.step, key), 1, type);
  }

  // Scores of keys that a row may not attend become -inf.
  void HideScores(Int from) {
    for (int i = 0; i < products_->rows(); ++i) {
      const Int left = thread_rows_[static_cast<size_t>(i)].reach - from;
      for (int j = 0; j < products_->keys(); ++j) {
        const VecVar& score = products_->Score(i, j);
        const Bool attends = b_.I(products_->KeyAfter(j)) < left;
        score.Set(g_.Select(attends, score.Get(), b_.F(kMinusInfinity, 1)));
      }
    }
  }

  // ---- results ----

  Vec InverseOf(Vec total) {
    const Vec inverse = Call(InverseSum(s_.empty_is_zero), {total});
    if (s_.keys.is_static()) return inverse;
    // No key at all, unlike keys that are all masked: a sum of nothing.
    return g_.Select(keys_ == b_.I(0), b_.F(0, 1), inverse);
  }

  void Finish() {
    for (const Row& row : thread_rows_) {
      Vec total = row.total.Get();
      for (const int mask : products_->Others())
        total = b_.Apply(VecOp::kAdd, total, g_.ShuffleXor(total, mask));
      row.total.Set(total);
    }
    if (tile_.parts > 1) return JoinParts();
    std::vector<Vec> inverses;
    for (const Row& row : thread_rows_) inverses.push_back(InverseOf(row.total.Get()));
    products_->ForSums([&](int i, Int column, std::span<const Vec> sums) {
      const Row& row = thread_rows_[static_cast<size_t>(i)];
      b_.If(first_row_ + products_->Row(i) < rows_,
            [&] { Store(row.head, row.step, column, sums, inverses[static_cast<size_t>(i)]); });
    });
  }

  void Store(Int head, Int step, Int column, std::span<const Vec> sums, Vec factor) {
    std::vector<Vec> values;
    for (const Vec& sum : sums)
      values.push_back(b_.Apply(VecOp::kMul, sum, b_.Splat(factor, sum.lanes)));
    const Ptr to = places_.ResultAt(batch_, head, step) + column * plan_.element();
    b_.Store(to, plan_.products ? g_.HalvesOf(values[0], values[1], s_.type) : values[0]);
  }

  // Row `row` of a part, in what parts leave for each other.
  Int PartRow(Int part, Int row) { return part * tile_.rows + row; }

  void JoinParts() {
    g_.Barrier();  // keys and values are read no more
    products_->ForSums([&](int i, Int column, std::span<const Vec> sums) {
      const Int row = PartRow(products_->Part(), products_->Row(i));
      Int at = b_.I(at_.sums) + row * at_.sum_pitch + column * 4;
      for (const Vec& sum : sums) {
        g_.StoreShared(at, sum);
        at = at + 4;
      }
    });
    b_.If(products_->IsFirst(), [&] {
      for (int i = 0; i < products_->rows(); ++i) {
        const Int at = PartRow(products_->Part(), products_->Row(i)) * 4;
        const Row& row = thread_rows_[static_cast<size_t>(i)];
        g_.StoreShared(b_.I(at_.largest) + at, row.largest.Get());
        g_.StoreShared(b_.I(at_.totals) + at, row.total.Get());
      }
    });
    g_.Barrier();
    const int64_t together = plan_.products ? 2 : 4, across = s_.value_size / together;
    b_.For(thread_, b_.I(tile_.rows * across), plan_.threads, [&](Int at) {
      const Int row = at / b_.I(across), column = at % b_.I(across) * together;
      b_.If(first_row_ + row < rows_, [&] { StoreJoined(row, column); });
    });
  }

  Vec LoadOfPart(int64_t place, int64_t part, Int row) {
    return g_.LoadShared(b_.I(place) + PartRow(b_.I(part), row) * 4, 1, DataType::kF32);
  }

  void StoreJoined(Int row, Int column) {
    Vec largest = LoadOfPart(at_.largest, 0, row);
    for (int64_t part = 1; part < tile_.parts; ++part)
      largest = b_.Apply(VecOp::kMax, LoadOfPart(at_.largest, part, row), largest);
    const Vec shift = ShiftOf(largest);
    const int lanes = plan_.products ? 1 : 4;
    const size_t count = plan_.products ? 2 : 1;
    std::vector<Vec> sums(count, b_.F(0, lanes));
    Vec total = b_.F(0, 1);
    for (int64_t part = 0; part < tile_.parts; ++part) {
      const Vec factor = Exponential(LoadOfPart(at_.largest, part, row), shift);
      total = b_.Fma(LoadOfPart(at_.totals, part, row), factor, total);
      const Int from = b_.I(at_.sums) + PartRow(b_.I(part), row) * at_.sum_pitch + column * 4;
      for (size_t i = 0; i < count; ++i) {
        const Vec sum = g_.LoadShared(from + static_cast<int64_t>(4 * i), lanes, DataType::kF32);
        sums[i] = b_.Fma(sum, b_.Splat(factor, lanes), sums[i]);
      }
    }
    const Place place = PlaceOf(row);
    Store(place.head, place.step, column, sums, InverseOf(total));
  }

  VectorBuilder& b_;
  GpuBuilder& g_;
  const GpuAttentionPlan& plan_;
  const ops::AttentionShape& s_;
  const GpuAttentionTile& tile_;
  const GpuAttentionPlan::Places at_;
  AttentionPlaces places_;
  std::unique_ptr<GpuAttentionProducts> products_;
  Int thread_, steps_, keys_;
  Int rows_;       // of all heads of queries of one of keys
  Int first_row_;  // of the tile
  Int kv_, batch_;
  Int offset_;  // of query 0 among the keys
  Int reach_;   // of any query
  Int end_;     // of the tile's queries, and
  Int whole_;   // of each of them
  std::vector<Row> thread_rows_;
  absl::Status status_;
};

}  // namespace

absl::Status EmitGpuAttentionTile(VectorBuilder& b, const Planned<GpuAttentionPlan>& attention,
                                  const GpuAttentionTile& tile) {
  return GpuAttentionTileEmitter(b, attention, tile).Emit();
}

}  // namespace quench::codegen
