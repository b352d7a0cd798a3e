// Layers that move elements, and layers that join several inputs.
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/importer/keras/converters.h"

namespace quench::importer::keras_layers {
namespace {

// Inputs of one rank: those of fewer axes get some behind the batch.
std::vector<ValueId> OfOneRank(KerasNode& n) {
  int rank = 0;
  for (int i = 0; i < n.count(); ++i) rank = std::max(rank, n.c.Rank(n.in(i)));
  std::vector<ValueId> inputs;
  for (int i = 0; i < n.count(); ++i) {
    std::vector<int64_t> axes;
    for (int axis = 1; axis <= rank - n.c.Rank(n.in(i)); ++axis) axes.push_back(axis);
    inputs.push_back(axes.empty() ? n.in(i) : n.Unsqueeze(n.in(i), axes));
  }
  return inputs;
}

// [before, after] of each axis between batch and channels: one number, one of each, or pairs.
absl::StatusOr<std::vector<int64_t>> Margins(const KerasNode& n, const char* key, size_t spatial) {
  std::vector<int64_t> given = n.c.node().Ints(key);
  if (given.empty()) given = {n.Int(key, spatial == 1 ? 1 : 0)};
  std::vector<int64_t> margins;
  if (given.size() == 2 * spatial) {
    margins = given;
  } else if (given.size() == 1 || given.size() == spatial) {
    for (size_t i = 0; i < spatial; ++i)
      margins.insert(margins.end(), 2, given[given.size() == 1 ? 0 : i]);
  } else {
    return n.c.Error(fmt::format("{} has {} numbers, expected {}", key, given.size(), 2 * spatial));
  }
  if (std::any_of(margins.begin(), margins.end(), [](int64_t v) { return v < 0; }))
    return n.c.Error(fmt::format("{} is [{}]", key, fmt::join(margins, ", ")));
  return margins;
}

size_t SpatialOf(const KerasNode& n) {
  const std::string& name = n.c.node().op;
  return static_cast<size_t>(name[name.size() - 2] - '0');
}

}  // namespace

absl::Status Merge(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1 << 20));
  const std::string& kind = c.node().op;
  const char* op = kind == "Subtract"   ? "Sub"
                   : kind == "Multiply" ? "Mul"
                   : kind == "Maximum"  ? "Max"
                   : kind == "Minimum"  ? "Min"
                                        : "Add";
  const std::vector<ValueId> inputs = OfOneRank(n);
  ValueId y = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) y = n.Emit(op, {y, inputs[i]});
  if (kind == "Average") y = n.Binary("Div", y, static_cast<double>(inputs.size()));
  return n.Finish(y);
}

absl::Status Concatenate(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1 << 20));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.Axes("axis", c.Rank(n.in(0)), -1));
  std::vector<ValueId> inputs;
  for (int i = 0; i < n.count(); ++i) inputs.push_back(n.in(i));
  return n.Finish(n.Emit("Concat", inputs, {{"axis", axes[0]}}));
}

// Products along one axis of each input; the batch is theirs both.
absl::Status Dot(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(2, 2));
  std::vector<int64_t> given = c.node().Ints("axes");
  if (given.empty()) given = {n.Int("axes", -1)};
  if (given.size() == 1) given.push_back(given[0]);
  std::string terms[2];
  std::string result = "a";
  char next = 'c';
  ValueId inputs[2] = {kNone, kNone};
  for (int side = 0; side < 2; ++side) {
    const auto at = static_cast<size_t>(side);
    const int rank = c.Rank(n.in(side));
    const int64_t axis = given[at] < 0 ? given[at] + rank : given[at];
    if (axis < 1 || axis >= rank)
      return c.Error(
          fmt::format("axes are [{}], input {} has rank {}", fmt::join(given, ", "), side, rank));
    inputs[at] = n.in(side);
    if (n.Flag("normalize")) {
      const ValueId squares = n.Emit("Mul", {inputs[at], inputs[at]});
      const ValueId sum =
          n.Emit("Max", {n.Reduce("ReduceSum", squares, {axis}, true), n.Scalar(squares, 1e-12)});
      inputs[at] = n.Emit("Div", {inputs[at], n.Emit("Sqrt", {sum})});
    }
    for (int64_t i = 0; i < rank; ++i) {
      const char letter = i == 0 ? 'a' : (i == axis ? 'b' : next);
      terms[at] += letter;
      if (i > 0 && i != axis) {
        result += letter;
        ++next;
      }
    }
  }
  const bool vectors = result.size() == 1;
  const std::string equation = fmt::format("{},{}->{}", terms[0], terms[1], result);
  ValueId y = n.Emit("Einsum", {inputs[0], inputs[1]}, {{"equation", equation}});
  if (vectors) y = n.Unsqueeze(y, {1});
  return n.Finish(y);
}

absl::Status Flatten(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  const int rank = c.Rank(n.in(0));
  if (rank < 1) return c.Error("its input has no axis");
  if (rank == 1) return n.Finish(n.Unsqueeze(n.in(0), {1}));
  ValueId x = n.in(0);
  if (n.ChannelsFirst() && rank > 2) x = n.Transpose(x, KerasToLast(rank - 2));
  return n.Finish(n.Reshape(x, {0, -1}));
}

absl::Status ReshapeLayer(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  std::vector<int64_t> shape = c.node().Ints("target_shape");
  if (shape.empty() && n.Has("target_shape")) shape = n.Ints("target_shape", 1);
  if (std::any_of(shape.begin(), shape.end(), [](int64_t v) { return v == 0 || v < -1; }))
    return c.Error(fmt::format("its shape is [{}]", fmt::join(shape, ", ")));
  // With a batch of a known size a dim that is not known can be any but the first.
  shape.insert(shape.begin(), 0);
  return n.Finish(n.Reshape(n.in(0), shape));
}

absl::Status Permute(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireInputs(1, 1));
  std::vector<int64_t> perm = c.node().Ints("dims");
  if (perm.empty()) perm = n.Ints("dims", 1);
  perm.insert(perm.begin(), 0);
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int64_t>(i) ||
        sorted.size() != static_cast<size_t>(c.Rank(n.in(0))))
      return c.Error(fmt::format("its dims are [{}], its input has rank {}",
                                 fmt::join(perm.begin() + 1, perm.end(), ", "), c.Rank(n.in(0))));
  }
  return n.Finish(n.Emit("Transpose", {n.in(0)}, {{"perm", perm}}));
}

absl::Status RepeatVector(Converter& c) {
  KerasNode n(c);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(2));
  const int64_t times = n.Int("n", 1);
  if (times < 1) return c.Error(fmt::format("n is {}", times));
  return n.Finish(n.Emit("Tile", {n.Unsqueeze(n.in(0), {1}), c.Ints({1, times, 1})}));
}

absl::Status ZeroPad(Converter& c) {
  KerasNode n(c);
  const size_t spatial = SpatialOf(n);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(static_cast<int>(spatial) + 2));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> margins, Margins(n, "padding", spatial));
  const size_t first = n.ChannelsFirst() ? 2 : 1;
  std::vector<int64_t> pads(2 * (spatial + 2), 0);
  for (size_t i = 0; i < spatial; ++i) {
    pads[first + i] = margins[2 * i];
    pads[spatial + 2 + first + i] = margins[2 * i + 1];
  }
  return n.Finish(n.Emit("Pad", {n.in(0), c.Ints(pads), n.Scalar(n.in(0), 0)},
                         {{"mode", std::string("constant")}}));
}

absl::Status Crop(Converter& c) {
  KerasNode n(c);
  const size_t spatial = SpatialOf(n);
  QUENCH_RETURN_IF_ERROR(n.RequireRank(static_cast<int>(spatial) + 2));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> margins, Margins(n, "cropping", spatial));
  const int64_t first = n.ChannelsFirst() ? 2 : 1;
  std::vector<int64_t> begins, ends, axes;
  for (size_t i = 0; i < spatial; ++i) {
    begins.push_back(margins[2 * i]);
    ends.push_back(margins[2 * i + 1] == 0 ? kToEnd : -margins[2 * i + 1]);
    axes.push_back(first + static_cast<int64_t>(i));
  }
  return n.Finish(n.Emit("Slice", {n.in(0), c.Ints(begins), c.Ints(ends), c.Ints(axes)}));
}

}  // namespace quench::importer::keras_layers
