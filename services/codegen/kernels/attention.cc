// q.attention in tiles (attention_plan.h): the scores of a tile never leave the nearest cache.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "common/base/status.h"
#include "common/loops/builder.h"
#include "services/codegen/forms/matrix_tile.h"
#include "services/codegen/kernels/attention_halves.h"
#include "services/codegen/kernels/attention_operands.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/float_forms.h"
#include "services/codegen/kernels/planned_kernel.h"

namespace quench::codegen {
namespace {

using loops::ScalarFunction;

constexpr DataType kFloat = DataType::kF32;
constexpr double kLowest = -std::numeric_limits<float>::max();

ScalarFunction Exponential() {
  loops::Builder b("exponential");
  return b.FinishScalar(loops::Unary(loops::UnaryOp::kExp, b.Param(0, kFloat)), {kFloat});
}

class AttentionEmitter {
 public:
  AttentionEmitter(VectorBuilder& b, const Group& group, const AttentionPlan& plan,
                   const BufferMap& buffers)
      : b_(b),
        plan_(plan),
        s_(plan.shape),
        buffers_(buffers),
        places_(b, group, buffers, {plan.shape, plan.mask_dims, plan.mask_type}),
        vector_(int64_t{4} * plan.lanes),
        halves_(b, plan),
        exponential_(Exponential()),
        inverse_(InverseSum(plan.shape.empty_is_zero)) {}

  absl::Status Emit() {
    steps_ = b_.Size(s_.steps);
    keys_ = b_.Size(s_.keys);
    registers_ = plan_.form->Registers(b_, {1, plan_.rows.most, plan_.vectors}, Panels(),
                                       plan_.rows.WholeTile(b_));
    const Int row_tasks = b_.Size(plan_.row_tasks);
    b_.For(b_.Begin(), b_.End(), 1, [&](Int task) {
      const Int rows = task % row_tasks, head = task / row_tasks;
      kv_ = head % s_.kv_heads;
      batch_ = head / s_.kv_heads;
      first_tile_ = rows * plan_.task_tiles;
      last_tile_ = Min(first_tile_ + plan_.task_tiles, TileCount());
      first_row_ = plan_.rows.Start(b_, first_tile_);
      end_row_ = Min(plan_.rows.Start(b_, last_tile_), steps_);
      StartTask();
      if (plan_.few && plan_.many) {
        b_.If(
            steps_ <= b_.I(AttentionPlan::kFewQueries), [&] { Task(true); }, [&] { Task(false); });
      } else {
        Task(plan_.few);
      }
    });
    if (registers_) registers_->Release();
    return status_;
  }

 private:
  // Keys from the first of a block on.
  struct Block {
    Int first, keys;
  };
  // A query of head kv * sharing + `shared`; `local` counts the rows of the task.
  struct Row {
    Int shared, row, local;
  };

  // A tile of queries from `row` on: `count` of at most `rows`, the first of which an earlier tile has stored.
  struct Queries {
    Int shared, row;
    int rows;
    Int count, stored;
  };

  WeightPanels Panels() const { return {.lanes = plan_.lanes, .unroll = plan_.unroll}; }

  Int TileCount() {
    if (s_.steps.is_static()) return b_.I(SplitEvenly(s_.steps.value(), plan_.rows.most).parts());
    return (steps_ + (plan_.rows.most - 1)) / plan_.rows.most;
  }

  void StartTask() {
    offset_ = b_.I(0);
    end_ = keys_;
    if (s_.has_lengths) {
      const Int length = places_.LengthOf(batch_);
      end_ = Max(Min(end_, length), b_.I(0));
      offset_ = length - steps_;
    } else if (s_.at_end) {
      offset_ = keys_ - steps_;
    }
    reach_ = end_;
    if (s_.causal) end_ = Max(Min(end_, end_row_ + offset_), b_.I(0));
  }

  void Task(bool few) {
    if (!plan_.single) StartSums();
    b_.For(b_.I(0), plan_.single ? b_.I(1) : end_, plan_.block, [&](Int first) {
      const Block block{first, plan_.single ? end_ : Min(end_ - first, b_.I(plan_.block))};
      if (!few) PackKeys(block);
      if (!few) PackValues(block);
      b_.For(b_.I(0), b_.I(plan_.sharing()), 1, [&](Int shared) {
        if (few) return Alone(block, shared);
        if (!plan_.halves()) {
          plan_.rows.For(b_, first_tile_, last_tile_, [&](Int row, int rows) {
            Tile(block, {shared, row, rows, b_.I(rows), b_.I(0)});
          });
          return;
        }
        plan_.rows.ForWhole(b_, first_tile_, last_tile_, [&](Int row, Int stored) {
          Tile(block, {shared, row, plan_.rows.most, plan_.rows.WholeTile(b_), stored});
        });
      });
    });
    if (!plan_.single) FinishSums();
  }

  // ---- where tensors lie ----

  static int64_t Bytes(DataType type) { return AttentionPlaces::Bytes(type); }
  int64_t StepBytes(int i) const { return places_.StepBytes(i); }
  Ptr StepAt(int i, Int head, Int step) { return places_.StepAt(i, batch_, head, step); }
  Ptr ResultAt(Int head, Int step) { return places_.ResultAt(batch_, head, step); }

  Ptr Scratch(int64_t at) { return b_.Buffer(buffers_.Scratch()) + at; }

  Int Head(Int shared) { return kv_ * plan_.sharing() + shared; }

  Row RowOf(Int shared, Int row) {
    return {shared, row, shared * plan_.task_rows() + (row - first_row_)};
  }

  // ---- packing ----

  // Calls body(vectors, first vector) for the tiles of keys that hold the first `keys`.
  void ForKeyTiles(Int keys, const std::function<void(int, Int)>& body) {
    if (plan_.single && !s_.causal && !s_.has_lengths && !plan_.halves()) {
      const PanelSplit split =
          SplitIntoPanels((s_.keys.value() + plan_.lanes - 1) / plan_.lanes, plan_.vectors);
      b_.For(b_.I(0), b_.I(split.parts()), 1, [&](Int p) {
        ForPanel(b_, split, p, false, [&](int vectors, Int first, bool) { body(vectors, first); });
      });
      return;
    }
    const int64_t width = int64_t{plan_.vectors} * plan_.lanes;
    b_.For(b_.I(0), (keys + (width - 1)) / width, 1,
           [&](Int p) { body(plan_.vectors, p * plan_.vectors); });
  }

  // [tiles][size][vectors][lanes of keys], where the size of halves is that in words. Keys behind the last one are copies of it, whose scores
  // nobody reads.
  void PackKeys(const Block& block) {
    const Ptr base = StepAt(ops::kAttentionKey, kv_, b_.I(0));
    const int64_t step = StepBytes(ops::kAttentionKey), element = Bytes(s_.type);
    ForKeyTiles(block.keys, [&](int vectors, Int first_vector) {
      const Ptr tile = Scratch(plan_.keys_at) + first_vector * (plan_.size_words() * vector_);
      for (int v = 0; v < vectors; ++v) {
        std::vector<Ptr> keys;
        const Int first = block.first + (first_vector + v) * plan_.lanes;
        for (int lane = 0; lane < plan_.lanes; ++lane)
          keys.push_back(base + Min(first + lane, keys_ - 1) * step);
        if (plan_.halves()) {
          halves_.PackKeys(tile, vectors, v, keys);
          continue;
        }
        const auto columns = [&](Int column, int count) {
          std::vector<Vec> rows;
          for (const Ptr& key : keys)
            rows.push_back(b_.LoadFirst(key + column * element, b_.I(count), plan_.lanes, s_.type));
          const std::vector<Vec> transposed = b_.Transposed(rows);
          const Ptr to = tile + column * (vectors * vector_) + vector_ * v;
          for (int c = 0; c < count; ++c)
            b_.Store(to + vector_ * vectors * c, transposed[static_cast<size_t>(c)]);
        };
        const int64_t whole = s_.size / plan_.lanes * plan_.lanes;
        b_.For(b_.I(0), b_.I(whole), plan_.lanes,
               [&](Int column) { columns(column, plan_.lanes); });
        if (whole < s_.size) columns(b_.I(whole), static_cast<int>(s_.size - whole));
      }
    });
  }

  PanelSplit ValueTiles() const { return SplitIntoPanels(plan_.value_vectors(), plan_.vectors); }

  void ForValueTiles(const std::function<void(int, Int)>& body) {
    const PanelSplit split = ValueTiles();
    b_.For(b_.I(0), b_.I(split.parts()), 1, [&](Int p) {
      ForPanel(b_, split, p, false, [&](int vectors, Int first, bool) { body(vectors, first); });
    });
  }

  // How many columns of a value vector there are.
  Int Columns(Int vector) { return b_.I(s_.value_size) - vector * plan_.lanes; }
  Int Columns(Int vector, int v) {
    if (s_.value_size % plan_.lanes == 0) return b_.I(plan_.lanes);
    return Columns(vector + v);
  }

  Ptr ValueTile(Int first) {
    const int64_t words = plan_.halves() ? plan_.block / 2 : plan_.block;
    return Scratch(plan_.values_at) + first * (words * vector_);
  }

  // [tiles][keys or, of halves, pairs of keys][vectors][lanes], with room for the keys of a whole block.
  void PackValues(const Block& block) {
    const Ptr base = StepAt(ops::kAttentionValue, kv_, block.first);
    const int64_t step = StepBytes(ops::kAttentionValue);
    ForValueTiles([&](int vectors, Int first) {
      const Ptr tile = ValueTile(first);
      for (int v = 0; plan_.halves() && v < vectors; ++v) {
        const Ptr from = base + (first + v) * (plan_.lanes * Bytes(s_.type));
        halves_.PackValues(tile, vectors, v, from, step, block.keys, Columns(first, v));
      }
      if (plan_.halves()) return;
      b_.For(b_.I(0), block.keys, 1, [&](Int key) {
        const Ptr from = base + key * step + first * (plan_.lanes * Bytes(s_.type));
        for (int v = 0; v < vectors; ++v) {
          const Vec value = b_.LoadFirst(from + v * plan_.lanes * Bytes(s_.type), Columns(first, v),
                                         plan_.lanes, s_.type);
          b_.Store(tile + key * (vectors * vector_) + vector_ * v, value);
        }
      });
    });
  }

  // Query `row`, scaled, as f32 at place `x` of the tile.
  void PackQuery(Int head, Int row, Int x) {
    const Ptr from = StepAt(ops::kAttentionQuery, head, row);
    const Ptr to = Scratch(plan_.queries_at) + x * plan_.QueryBytes();
    const Vec scale = b_.F(s_.scale, plan_.lanes);
    for (int64_t c = 0; c < s_.size; c += plan_.lanes) {
      const Vec value =
          b_.LoadFirst(from + c * Bytes(s_.type), b_.I(s_.size - c), plan_.lanes, s_.type);
      b_.Store(to + 4 * c, b_.Apply(VecOp::kMul, value, scale));
    }
  }

  // ---- a tile of queries ----

  void Tile(const Block& block, const Queries& q) {
    const auto emit = [&](Int keys) {
      b_.For(b_.I(0), q.count, 1, [&](Int x) {
        if (!plan_.halves()) return PackQuery(Head(q.shared), q.row + x, x);
        halves_.PackQuery(StepAt(ops::kAttentionQuery, Head(q.shared), q.row + x),
                          Scratch(plan_.queries_at) + x * plan_.QueryBytes());
      });
      ForKeyTiles(keys, [&](int vectors, Int first) { Scores(vectors, first, q); });
      b_.For(q.stored, q.count, 1, [&](Int x) {
        Exponentials(block, RowOf(q.shared, q.row + x), x, keys, plan_.halves());
      });
      ForValueTiles([&](int vectors, Int first) { Mix(vectors, first, q, keys); });
    };
    if (!s_.causal) return emit(block.keys);
    // The last query reaches furthest.
    const Int keys = Max(Min(block.keys, q.row + offset_ + q.count - block.first), b_.I(0));
    plan_.single ? emit(keys) : b_.If(keys > b_.I(0), [&] { emit(keys); });
  }

  MicroReduction Reduction(Int length) {
    MicroReduction r;
    r.lanes = plan_.lanes;
    r.channels = r.unroll = plan_.unroll;
    r.blocks = length / r.channels;
    r.tail = length - r.blocks * r.channels;
    r.block_stride = b_.I(4 * r.channels);
    r.kh = r.kw = b_.I(1);
    r.kh_stride = r.kw_stride = b_.I(0);
    r.channel_stride = b_.I(4);
    return r;
  }

  TileCode Code() { return plan_.form->Code(b_, Panels(), {.registers = registers_}); }

  MicroTile TileOf(const Queries& q, int vectors) {
    MicroTile tile;
    tile.x = q.rows;
    tile.vectors = vectors;
    tile.y_stride = b_.I(0);
    if (plan_.halves()) tile.pixels = q.count, tile.stored = q.stored;
    return tile;
  }

  void Scores(int vectors, Int first, const Queries& q) {
    MicroTile tile = TileOf(q, vectors);
    tile.x_stride = b_.I(plan_.QueryBytes());
    tile.input = Scratch(plan_.queries_at);
    tile.weights = Scratch(plan_.keys_at) + first * (plan_.size_words() * vector_);
    const Ptr to = Scratch(plan_.scores_at) + first * vector_;
    const Vec scale = b_.F(s_.scale, plan_.lanes);
    const MicroReduction reduction =
        plan_.halves() ? halves_.Reduction(b_.I(2 * plan_.size_words())) : Reduction(b_.I(s_.size));
    Code()(reduction, tile, [&](Int, Int x, int v, Vec value) {
      if (plan_.halves()) value = b_.Apply(VecOp::kMul, value, scale);  // queries are not
      b_.Store(to + x * plan_.pitch() + vector_ * v, value);
    });
  }

  void Mix(int vectors, Int first, const Queries& q, Int keys) {
    MicroTile tile = TileOf(q, vectors);
    tile.x_stride = b_.I(plan_.pitch());
    tile.input = Scratch(plan_.scores_at);
    tile.weights = ValueTile(first);
    const MicroReduction reduction =
        plan_.halves() ? halves_.Reduction(halves_.Padded(keys)) : Reduction(keys);
    Code()(reduction, tile, [&](Int, Int x, int v, Vec value) {
      AddResult(RowOf(q.shared, q.row + x), x, first, v, value);
    });
  }

  // ---- a query ----

  // Keys of the block that the query reaches.
  Int ReachIn(const Block& block, const Row& row) {
    Int reach = plan_.single ? end_ : block.keys;
    if (s_.causal) {
      const Int last = Min(reach_, row.row + offset_ + b_.I(1));
      reach = Max(Min(reach, last - block.first), b_.I(0));
    }
    return reach;
  }

  // Address of the mask for the first key of the block.
  Ptr MaskAt(const Block& block, const Row& row) {
    return places_.MaskAt(batch_, Head(row.shared), row.row, block.first);
  }

  bool ChangesScores() const { return s_.cap > 0 || s_.has_mask; }

  Vec Call(const ScalarFunction& function, std::initializer_list<Vec> operands) {
    absl::StatusOr<Vec> result = b_.Apply(function, std::vector<Vec>(operands));
    if (result.ok()) return *result;
    status_ = result.status();
    return *operands.begin();
  }

  // Scores as the cap and the mask leave them; `count` of a vector are read.
  Vec Changed(Vec score, Ptr mask, Int key, Int count) {
    if (s_.cap > 0) score = Call(CappedScore(s_.cap), {score});
    if (!s_.has_mask) return score;
    const bool chosen = plan_.mask_type == DataType::kBool;
    const DataType type = chosen ? DataType::kU8 : plan_.mask_type;
    const Vec value = b_.LoadFirst(mask + key * Bytes(type), count, plan_.lanes, type);
    return chosen ? Call(FilledScore(s_.fill), {score, value})
                  : b_.Apply(VecOp::kAdd, score, value);
  }

  // Calls body(key, count) for vectors of the first `keys`, the last of which may have fewer lanes.
  void ForVectors(Int keys, const std::function<void(Int, Int)>& body) {
    const Int whole = keys / plan_.lanes * plan_.lanes;
    b_.For(b_.I(0), whole, plan_.lanes, [&](Int key) { body(key, b_.I(plan_.lanes)); });
    b_.If(whole < keys, [&] { body(whole, keys - whole); });
  }

  // The scores of place `x` become exponentials, 0 for keys out of reach, up to `keys`, in f32 or, from
  // the same address on, in halves; the factor of earlier sums, or the inverse of the sum, is stored.
  void Exponentials(const Block& block, const Row& row, Int x, Int keys, bool halves) {
    const Ptr scores = Scratch(plan_.scores_at) + x * plan_.pitch();
    const Int reach = ReachIn(block, row);
    const Ptr mask = s_.has_mask ? MaskAt(block, row) : Ptr{};
    const double lowest = -std::numeric_limits<double>::infinity();
    const VecVar maxima = b_.Variable(b_.F(lowest, plan_.lanes));
    ForVectors(reach, [&](Int key, Int count) {
      Vec score = b_.Load(scores + key * 4, plan_.lanes);
      if (ChangesScores()) {
        score = Changed(score, mask, key, count);
        b_.Store(scores + key * 4, score);
      }
      score = b_.KeepFirst(score, count, b_.F(lowest, plan_.lanes));
      maxima.Set(b_.Apply(VecOp::kMax, score, maxima.Get()));
    });
    Vec largest = b_.Largest(maxima.Get());
    const Ptr known = Scratch(plan_.largest_at) + row.local * 4;
    Vec before;
    if (!plan_.single) {
      before = b_.Load(known, 1);
      largest = b_.Apply(VecOp::kMax, before, largest);
      b_.Store(known, largest);
    }
    // If all are -inf, all exponentials are 0.
    const Vec shift = b_.Apply(VecOp::kMax, largest, b_.F(kLowest, 1));
    const Vec shifts = b_.Splat(shift, plan_.lanes);
    const VecVar sums = b_.Variable(b_.F(0, plan_.lanes));
    ForVectors(reach, [&](Int key, Int count) {
      const Vec score = b_.Load(scores + key * 4, plan_.lanes);
      Vec value = Call(exponential_, {b_.Apply(VecOp::kSub, score, shifts)});
      value = b_.KeepFirst(value, count);
      // Halves overtake no score that is still to be read.
      halves ? b_.Store(scores + key * 2, b_.Narrow(value, s_.type))
             : b_.Store(scores + key * 4, value);
      sums.Set(b_.Apply(VecOp::kAdd, sums.Get(), value));
    });
    if (s_.causal || halves) {
      const Int done = (reach + (plan_.lanes - 1)) / plan_.lanes * plan_.lanes;
      const Vec none = b_.F(0, plan_.lanes);
      b_.For(done, halves ? halves_.Padded(keys) : keys, plan_.lanes, [&](Int key) {
        halves ? b_.Store(scores + key * 2, b_.Narrow(none, s_.type))
               : b_.Store(scores + key * 4, none);
      });
    }
    const Vec sum = b_.Sum(sums.Get());
    const Ptr factor = Scratch(plan_.factors_at) + x * 4;
    if (plan_.single) return b_.Store(factor, Call(inverse_, {sum}));
    const Vec kept = Call(exponential_, {b_.Apply(VecOp::kSub, before, shift)});
    b_.Store(factor, kept);
    const Ptr total = Scratch(plan_.totals_at) + row.local * 4;
    b_.Store(total, b_.Fma(b_.Load(total, 1), kept, sum));
  }

  // Weighted values of a query, of one block.
  void AddResult(const Row& row, Int x, Int first, int v, Vec value) {
    const Vec factor = b_.Splat(b_.Load(Scratch(plan_.factors_at) + x * 4, 1), plan_.lanes);
    if (plan_.single) return StoreResult(row, first, v, b_.Apply(VecOp::kMul, value, factor));
    const Ptr sum = SumsAt(row.local) + (first + v) * vector_;
    b_.Store(sum, b_.Fma(b_.Load(sum, plan_.lanes), factor, value));
  }

  void StoreResult(const Row& row, Int first, int v, Vec value) {
    const Vec stored = AsStored(b_, s_.type, value);
    const Ptr to =
        ResultAt(Head(row.shared), row.row) + (first + v) * (plan_.lanes * Bytes(s_.type));
    b_.StoreFirst(to, stored, Columns(first, v));
  }

  // A query at a time, keys and values where they are.
  void Alone(const Block& block, Int shared) {
    b_.For(first_row_, end_row_, 1, [&](Int at) {
      const Row row = RowOf(shared, at);
      const Int reach = ReachIn(block, row);
      PackQuery(Head(shared), at, b_.I(0));
      b_.For(b_.I(0), reach, 1, [&](Int key) { Score(block.first + key, key); });
      Exponentials(block, row, b_.I(0), reach, false);
      MixAlone(block, row, reach);
    });
  }

  void Score(Int key, Int place) {
    const Ptr from = StepAt(ops::kAttentionKey, kv_, key);
    const Ptr query = Scratch(plan_.queries_at);
    Vec sum = b_.F(0, plan_.lanes);
    for (int64_t c = 0; c < s_.size; c += plan_.lanes) {
      const Vec value =
          b_.LoadFirst(from + c * Bytes(s_.type), b_.I(s_.size - c), plan_.lanes, s_.type);
      sum = b_.Fma(value, b_.Load(query + 4 * c, plan_.lanes), sum);
    }
    b_.Store(Scratch(plan_.scores_at) + place * 4, b_.Sum(sum));
  }

  void MixAlone(const Block& block, const Row& row, Int keys) {
    constexpr int64_t kTogether = 8;
    const PanelSplit split = SplitIntoPanels(plan_.value_vectors(), kTogether);
    for (int64_t part = 0; part < split.parts(); ++part) {
      const int64_t first = split.Start(part), vectors = split.Size(part);
      std::vector<VecVar> sums;
      for (int64_t v = 0; v < vectors; ++v) sums.push_back(b_.Variable(b_.F(0, plan_.lanes)));
      const Ptr base = StepAt(ops::kAttentionValue, kv_, block.first);
      b_.For(b_.I(0), keys, 1, [&](Int key) {
        const Vec weight = b_.Splat(b_.Load(Scratch(plan_.scores_at) + key * 4, 1), plan_.lanes);
        const Ptr from = base + key * StepBytes(ops::kAttentionValue);
        for (int64_t v = 0; v < vectors; ++v) {
          const int64_t column = (first + v) * plan_.lanes;
          const Vec value = b_.LoadFirst(from + column * Bytes(s_.type),
                                         b_.I(s_.value_size - column), plan_.lanes, s_.type);
          const VecVar& sum = sums[static_cast<size_t>(v)];
          sum.Set(b_.Fma(weight, value, sum.Get()));
        }
      });
      for (int64_t v = 0; v < vectors; ++v)
        AddResult(row, b_.I(0), b_.I(first), static_cast<int>(v),
                  sums[static_cast<size_t>(v)].Get());
    }
  }

  // ---- sums over several blocks ----

  Ptr SumsAt(Int local) {
    return Scratch(plan_.sums_at) + local * (plan_.value_vectors() * vector_);
  }

  void ForTaskRows(const std::function<void(const Row&)>& body) {
    b_.For(b_.I(0), b_.I(plan_.sharing()), 1, [&](Int shared) {
      b_.For(first_row_, end_row_, 1, [&](Int row) { body(RowOf(shared, row)); });
    });
  }

  void StartSums() {
    ForTaskRows([&](const Row& row) {
      b_.For(b_.I(0), b_.I(plan_.value_vectors()), 1,
             [&](Int v) { b_.Store(SumsAt(row.local) + v * vector_, b_.F(0, plan_.lanes)); });
      b_.Store(Scratch(plan_.totals_at) + row.local * 4, b_.F(0, 1));
      b_.Store(Scratch(plan_.largest_at) + row.local * 4,
               b_.F(-std::numeric_limits<double>::infinity(), 1));
    });
  }

  void FinishSums() {
    b_.If(
        keys_ > b_.I(0), [&] { DivideSums(); },
        // No key at all, unlike keys that are all masked: a sum of nothing.
        [&] {
          ForTaskRows([&](const Row& row) {
            b_.For(b_.I(0), b_.I(plan_.value_vectors()), 1,
                   [&](Int v) { StoreResult(row, v, 0, b_.F(0, plan_.lanes)); });
          });
        });
  }

  void DivideSums() {
    ForTaskRows([&](const Row& row) {
      const Vec total = b_.Load(Scratch(plan_.totals_at) + row.local * 4, 1);
      const Vec inverse = b_.Splat(Call(inverse_, {total}), plan_.lanes);
      b_.For(b_.I(0), b_.I(plan_.value_vectors()), 1, [&](Int v) {
        const Vec sum = b_.Load(SumsAt(row.local) + v * vector_, plan_.lanes);
        StoreResult(row, v, 0, b_.Apply(VecOp::kMul, sum, inverse));
      });
    });
  }

  VectorBuilder& b_;
  const AttentionPlan& plan_;
  const ops::AttentionShape& s_;
  const BufferMap& buffers_;
  AttentionPlaces places_;
  const int64_t vector_;  // bytes
  AttentionHalves halves_;
  std::shared_ptr<MatrixRegisters> registers_;
  const ScalarFunction exponential_, inverse_;
  Int steps_, keys_;
  // The present task:
  Int batch_, kv_;
  Int first_tile_, last_tile_, first_row_, end_row_;
  Int offset_;  // of query 0 among the keys
  Int reach_;   // of any query
  Int end_;     // of its own queries
  absl::Status status_;
};

absl::Status EmitAttention(VectorBuilder& b, const Planned<AttentionPlan>& attention) {
  return AttentionEmitter(b, attention.group, attention.plan, attention.buffers).Emit();
}

Candidate MakeCandidate(const KernelRequest& request, const Group& group,
                        const AttentionPlan& plan) {
  CandidateBuilder builder(request, group, {});
  builder.SetCode<EmitAttention>(plan);
  Candidate& candidate = builder.candidate();
  candidate.in_place = -1;
  candidate.cost = AttentionCost(request, plan);
  const std::string of = plan.form->ToString();
  candidate.reason = fmt::format(
      "{}tile {}x{} of {} lanes, {}{}", of.empty() ? of : of + ", ", plan.rows.most, plan.vectors,
      plan.lanes, plan.single ? "all keys at once" : fmt::format("{} keys at once", plan.block),
      !plan.few   ? ""
      : plan.many ? ", few queries one by one"
                  : ", queries one by one");
  return candidate;
}

void ProposeAttention(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.options.opt_level < 2) return;
  const std::optional<Group> group = ReadGroup(request, -1);
  if (!group || group->root->op != "q.attention") return;
  const auto propose = [&](const AnyForm& form) {
    const std::optional<AttentionPlan> plan = PlanAttention(request, *group, form);
    if (plan) candidates.push_back(MakeCandidate(request, *group, *plan));
    return plan.has_value();
  };
  const DataType type = group->InputType(ops::kAttentionKey).dtype;
  const std::optional<MatrixForm> matrices = MatricesOf(request, type, type);
  // Emulated ones are there to be compared.
  if (matrices && propose(*matrices) && !request.target.matrices.in_registers()) return;
  propose(AnyForm());
}

}  // namespace

const Kernel& AttentionKernel() {
  static const Kernel kKernel{
      .name = "attention", .propose = ProposeAttention, .reread = Reread<AttentionPlan>};
  return kKernel;
}

}  // namespace quench::codegen
