// Index arithmetic and loop shapes that the lowerings of many operators share.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/ops/helpers.h"

namespace quench::ops {

using loops::Builder;

// --- shapes ---

// Each of `axes` in [-rank, rank) made non-negative, in the given order; one out of range or
// repeated is an error.
absl::StatusOr<std::vector<int>> NormalAxes(const OpContext& ctx, std::span<const int64_t> axes,
                                            int rank);
// Axes from input `i`, which must be known before a run (see AxesAreKnown); nullopt when the input
// is omitted.
absl::StatusOr<std::optional<std::vector<int>>> AxesInput(const OpContext& ctx, int i, int rank);
// Input `i` is omitted, empty, or a list whose entries are known before a run.
bool AxesAreKnown(const OpContext& ctx, int i);
// Number of axes in input `i`, whose entries only a run knows and from which the rank of the output
// follows. An error where that number is not known or larger than `rank`.
absl::StatusOr<int> AxesCount(const OpContext& ctx, int i, int rank);

// A dim of this node's output that only a run can tell: true for the symbols of
// InferContext::RuntimeDim.
bool IsOwnRuntimeDim(const OpContext& ctx, Dim dim);
// In lower_sizes: gives `dim` its value if it is one of this node's runtime dims. Checks that it is
// not negative.
void SetRuntimeDim(LowerContext& ctx, Dim dim, E value);

// In a lowering: fails the run unless the two dims are equal; nothing when they are the same dim.
void EnsureEqual(LowerContext& ctx, Dim a, Dim b, const std::string& what);

// --- indices ---

std::vector<E> Replaced(std::span<const E> indices, int axis, E value);
std::vector<E> Inserted(std::span<const E> indices, int axis, E value);
std::vector<E> Erased(std::span<const E> indices, int axis);
std::vector<E> DimsOf(B buffer);
E ProductOf(Builder& b, std::span<const E> dims);
// Row-major position of `indices` in a tensor of `dims`, and back.
E Flatten(Builder& b, std::span<const E> indices, std::span<const E> dims);
std::vector<E> Unflatten(Builder& b, E position, std::span<const E> dims);

// Index read from data as i64: negative ones count from the end; out of [-size, size) fails the
// run.
E CheckedIndex(Builder& b, E raw, E size, const std::string& what);
// Element `i` of an integer input of rank <= 1 as i64: a constant where it is known, else a load.
E Element(LowerContext& ctx, int input, int64_t i);

// Axes that input `i`, a vector, names in a run, of a tensor of `rank`. Made before the loops that
// use it: it fails the run where an axis is out of range or given twice.
class RuntimeAxes {
 public:
  RuntimeAxes(LowerContext& ctx, int input, int rank);
  // Number of entries, as i64.
  E count() const { return count_; }
  // Whether an entry names the axis.
  E Has(int axis) const { return has_[static_cast<size_t>(axis)]; }
  // Number of axes before this one that no entry names, as i64.
  E KeptBefore(int axis) const;
  // value(position of the entry that names the axis), an i64; 0 where no entry does.
  E Of(int axis, const std::function<E(E)>& value) const;

 private:
  E Named(E entry) const;

  LowerContext& ctx_;
  int input_;
  int rank_;
  E count_;
  std::vector<E> has_;
};

// Sum of `dims`, fixed ones folded.
E ExtentSum(LowerContext& ctx, std::span<const Dim> dims);
// True when a <= b for every value the symbols can take.
bool ProvablyLessEqual(const OpContext& ctx, Dim a, Dim b);

// --- loops ---

// One parallel loop over all index vectors of `dims`, flattened: scratch of iteration scope belongs
// to one of them.
void ParallelRows(Builder& b, std::span<const E> dims,
                  const std::function<void(std::span<const E>)>& body);
// Nested serial loops over all indices of `dims`.
void SerialForAll(Builder& b, std::span<const E> dims,
                  const std::function<void(std::span<const E>)>& body);

// Copies all of `from` to `to` (same shape).
void CopyAll(Builder& b, B from, B to);

}  // namespace quench::ops
