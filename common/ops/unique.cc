#include "common/ops/sorting.h"

namespace quench::ops {
namespace {

bool Flat(const OpContext& ctx) { return ctx.node().Find("axis") == nullptr; }
int UniqueAxisOf(const OpContext& ctx) {
  return Flat(ctx) ? 0 : NormalAxis(ctx.node().Int("axis", 0), ctx.input(0).rank());
}

absl::Status InferUnique(InferContext& ctx) {
  QUENCH_RETURN_IF_ERROR(RequireType(ctx, 0, kNumericTypes | kBoolType));
  const Type& x = ctx.input(0);
  Dim items = ctx.symbols().Product(x.dims);
  if (!Flat(ctx)) {
    QUENCH_ASSIGN_OR_RETURN(const int axis, ctx.Axis(ctx.node().Int("axis", 0), x.rank()));
    items = x.dims[static_cast<size_t>(axis)];
  }
  const Dim count = ctx.RuntimeDim(0, items);
  std::vector<Dim> dims = Flat(ctx) ? std::vector<Dim>{count} : x.dims;
  dims[static_cast<size_t>(UniqueAxisOf(ctx))] = count;
  ctx.SetOutput(0, x.dtype, std::move(dims));
  ctx.SetOutput(1, DataType::kI64, {count});
  ctx.SetOutput(2, DataType::kI64, {items});
  ctx.SetOutput(3, DataType::kI64, {count});
  return absl::OkStatus();
}

// The items among which duplicates are looked for: elements, or slices across one axis.
class Items {
 public:
  explicit Items(LowerContext& ctx)
      : b_(ctx.b()), x_(ctx.in(0)), flat_(Flat(ctx)), axis_(UniqueAxisOf(ctx)), dims_(DimsOf(x_)) {
    count_ = b_.Let(flat_ ? ProductOf(b_, dims_) : x_.dim(axis_), "items");
    if (!flat_) others_ = Erased(dims_, axis_);
    length_ = b_.Let(flat_ ? b_.I(1) : ProductOf(b_, others_), "length");
  }

  E count() const { return count_; }
  const std::vector<E>& others() const { return others_; }
  bool flat() const { return flat_; }
  // Element `place` of item `i`.
  E At(E i, E place) const {
    if (flat_) return x_.At(Unflatten(b_, i, dims_));
    return x_.At(Inserted(Unflatten(b_, place, others_), axis_, i));
  }
  std::vector<E> Full(std::span<const E> others, E i) const { return Inserted(others, axis_, i); }

  // Lexicographic order: -1, 0 or 1. Emits the comparison here.
  E Compare(E i, E j) const {
    const auto result = b_.Local(b_.I(0), "order");
    const auto place = b_.Local(b_.I(0), "place");
    b_.While([&] { return result.Get() == b_.I(0) && place.Get() < length_; },
             [&] {
               const E here = b_.Let(place.Get(), "here");
               const E p = b_.Let(At(i, here), "p");
               const E q = b_.Let(At(j, here), "q");
               result.Set(Cast(Less(q, p), DataType::kI64) - Cast(Less(p, q), DataType::kI64));
               place.Set(here + b_.I(1));
             });
    return b_.Let(result.Get(), "compared");
  }

 private:
  E Less(E p, E q) const { return p.type() == DataType::kBool ? !p && q : p < q; }

  Builder& b_;
  B x_;
  bool flat_;
  int axis_;
  std::vector<E> dims_;
  std::vector<E> others_;
  E count_, length_;
};

// The distinct items in output order.
struct Groups {
  B first;   // [groups] first occurrence of each
  B group;   // [items] which group an item belongs to
  B counts;  // [groups]
  E size;
};

// Sorts the items, numbers the runs of equal ones, and renumbers them by first occurrence unless
// sorted.
Groups FindGroups(LowerContext& ctx, const Items& items) {
  Builder& b = ctx.b();
  const auto scope = loops::ScratchScope::kFunction;
  const std::vector<E> dims = DimsOf(ctx.in(0));
  const E capacity = Flat(ctx) ? ProductOf(b, dims) : ctx.in(0).dim(UniqueAxisOf(ctx));
  const SortScratch order = MakeSortScratch(b, capacity, scope);
  const auto table = [&](const char* name) {
    return b.Scratch(name, DataType::kI64, {capacity}, scope);
  };
  Groups groups{table("first"), table("group"), table("counts"), E()};
  const E side =
      SortIndices(b, order, items.count(), [&](E i, E j) { return items.Compare(i, j) < b.I(0); });
  const auto size = b.Local(b.I(0), "groups");
  b.For(items.count(), [&](E k) {
    const E item = b.Let(order.items.At({side, k}), "item");
    const auto fresh = b.Local(b.Bool(true), "fresh");
    b.If(k > b.I(0),
         [&] { fresh.Set(items.Compare(order.items.At({side, k - b.I(1)}), item) != b.I(0)); });
    b.If(fresh.Get(), [&] {
      b.Store(groups.first, {size.Get()},
              item);  // the sort is stable: the first of a run came first
      b.Store(groups.counts, {size.Get()}, b.I(0));
      size.Set(size.Get() + b.I(1));
    });
    const E at = b.Let(size.Get() - b.I(1), "at");
    b.Store(groups.group, {item}, at);
    b.Store(groups.counts, {at}, groups.counts.At({at}) + b.I(1));
  });
  groups.size = b.Let(size.Get(), "size");
  if (ctx.node().Int("sorted", 1) != 0) return groups;

  const SortScratch by_place = MakeSortScratch(b, capacity, scope);
  Groups renumbered{table("first_by_place"), table("group_by_place"), table("counts_by_place"),
                    groups.size};
  const B rank = table("rank");
  const E row = SortIndices(b, by_place, groups.size,
                            [&](E i, E j) { return groups.first.At({i}) < groups.first.At({j}); });
  b.For(groups.size, [&](E k) {
    const E old = b.Let(by_place.items.At({row, k}), "old");
    b.Store(rank, {old}, k);
    b.Store(renumbered.first, {k}, groups.first.At({old}));
    b.Store(renumbered.counts, {k}, groups.counts.At({old}));
  });
  b.For(items.count(),
        [&](E i) { b.Store(renumbered.group, {i}, rank.At({groups.group.At({i})})); });
  return renumbered;
}

absl::Status LowerSizesOfUnique(LowerContext& ctx) {
  const Items items(ctx);
  const Groups groups = FindGroups(ctx, items);
  SetRuntimeDim(ctx, Dim::OfSymbol(ctx.RuntimeSymbol(0)), groups.size);
  return absl::OkStatus();
}

absl::Status LowerUnique(LowerContext& ctx) {
  Builder& b = ctx.b();
  const Items items(ctx);
  const Groups groups = FindGroups(ctx, items);
  b.For(groups.size, [&](E k) {
    const E item = b.Let(groups.first.At({k}), "item");
    if (ctx.has_output(0) && items.flat()) b.Store(ctx.out(0), {k}, items.At(item, b.I(0)));
    if (ctx.has_output(0) && !items.flat()) {
      b.ParallelForAll(items.others(), [&](std::span<const E> others) {
        b.Store(ctx.out(0), items.Full(others, k), ctx.in(0).At(items.Full(others, item)));
      });
    }
    if (ctx.has_output(1)) b.Store(ctx.out(1), {k}, item);
    if (ctx.has_output(3)) b.Store(ctx.out(3), {k}, groups.counts.At({k}));
  });
  if (ctx.has_output(2)) {
    b.ParallelFor(items.count(), [&](E i) { b.Store(ctx.out(2), {i}, groups.group.At({i})); });
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& UniqueOp() {
  static const OpDef op = {
      .name = "Unique",
      .summary = "distinct elements or slices, where they are and how often",
      .max_outputs = 4,
      .attributes = {{"axis", AttributeSpec::kInt}, {"sorted", AttributeSpec::kInt}},
      .infer = InferUnique,
      .lower = LowerUnique,
      .lower_sizes = LowerSizesOfUnique};
  return op;
}

}  // namespace quench::ops
