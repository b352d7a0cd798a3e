#include "common/ops/control.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "common/base/status.h"
#include "common/ops/bodies.h"

namespace quench::ops {
namespace {

constexpr int64_t kMaxTensorBytes = int64_t{16} << 30;

using Tensors = std::vector<Tensor>;

absl::Status Error(const Node& node, const std::string& text) {
  return InvalidArgument("node `{}` ({}): {}", node.name, node.op, text);
}

Tensor ScalarI64(int64_t value) {
  return Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{value});
}
Tensor ScalarBool(bool value) {
  return Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{static_cast<uint8_t>(value)});
}

absl::StatusOr<Tensors> RunBody(const Node& node, const std::string& attribute,
                                std::span<const Tensor> inputs, const RunSizes& sizes,
                                const StepContext& context) {
  absl::StatusOr<Tensors> outputs = EvaluateBody(*node.Body(attribute), inputs, sizes, context);
  if (outputs.ok()) return outputs;
  return Annotate(outputs.status(), fmt::format("node `{}`: {}", node.name, attribute));
}

// Present operands from `first` on; an omitted one is an error, bodies take them all.
absl::Status Append(const Node& node, std::span<const Tensor* const> inputs, size_t first,
                    Tensors& to) {
  for (size_t i = first; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) return Error(node, fmt::format("input {} is omitted", i));
    to.push_back(*inputs[i]);
  }
  return absl::OkStatus();
}

// The single element of a bool or integer tensor.
absl::StatusOr<int64_t> Single(const Node& node, const Tensor& tensor, const std::string& what) {
  const bool whole = IsInteger(tensor.dtype()) || tensor.dtype() == DataType::kBool;
  if (!whole || tensor.size() != 1) {
    return Error(node, fmt::format("{} is {} with {} elements, it must be one bool or integer",
                                   what, DataTypeName(tensor.dtype()), tensor.size()));
  }
  return tensor.IntAt(0);
}

absl::StatusOr<Tensors> EvaluateIf(const Node& node, std::span<const Tensor* const> inputs,
                                   const RunSizes& sizes, const StepContext& context) {
  if (inputs[0] == nullptr) return Error(node, "the condition is omitted");
  QUENCH_ASSIGN_OR_RETURN(const int64_t condition, Single(node, *inputs[0], "the condition"));
  Tensors captures;
  QUENCH_RETURN_IF_ERROR(Append(node, inputs, 1, captures));
  return RunBody(node, condition != 0 ? "then_branch" : "else_branch", captures, sizes, context);
}

// Bytes of rows before an axis, of one slice, and of a whole axis.
struct Strides {
  int64_t outer = 1;
  int64_t inner_bytes = 0;
  int64_t extent = 0;
};
Strides StridesOf(const Tensor& tensor, int axis) {
  Strides strides;
  for (int i = 0; i < axis; ++i) strides.outer *= tensor.dims()[static_cast<size_t>(i)];
  int64_t inner = 1;
  for (int i = axis + 1; i < tensor.rank(); ++i) inner *= tensor.dims()[static_cast<size_t>(i)];
  strides.inner_bytes = DataTypeBytes(tensor.dtype(), inner);
  strides.extent = tensor.dims()[static_cast<size_t>(axis)];
  return strides;
}

absl::Status CheckSliceable(const Node& node, const Tensor& tensor) {
  if (DataTypeBits(tensor.dtype()) >= 8) return absl::OkStatus();
  return Unsupported("node `{}` ({}): cannot slice or stack {}", node.name, node.op,
                     DataTypeName(tensor.dtype()));
}

// Slice `at` of `axis`, without that axis.
Tensor Slice(const Tensor& tensor, int axis, int64_t at) {
  const Strides strides = StridesOf(tensor, axis);
  std::vector<int64_t> dims = tensor.dims();
  dims.erase(dims.begin() + axis);
  Tensor slice = Tensor::Zeros(tensor.dtype(), std::move(dims));
  std::byte* to = slice.mutable_bytes();
  const std::byte* from = tensor.bytes().data();
  for (int64_t row = 0; row < strides.outer && strides.inner_bytes > 0; ++row) {
    std::memcpy(to + row * strides.inner_bytes,
                from + (row * strides.extent + at) * strides.inner_bytes,
                static_cast<size_t>(strides.inner_bytes));
  }
  return slice;
}

// Slices of one shape side by side along a new axis, last to first if `reverse`. Without a slice
// the shape is that of the declared type, the dims that nothing has told 0.
absl::StatusOr<Tensor> Stack(const Node& node, const Tensors& slices, int64_t wanted_axis,
                             bool reverse, const Type& declared, const RunSizes& sizes) {
  std::vector<int64_t> dims;
  DataType dtype = declared.dtype;
  if (slices.empty()) {
    for (const Dim dim : declared.dims) dims.push_back(sizes.Of(dim).value_or(0));
  } else {
    dims = slices[0].dims();
    dtype = slices[0].dtype();
    QUENCH_RETURN_IF_ERROR(CheckSliceable(node, slices[0]));
  }
  const int64_t rank = static_cast<int64_t>(dims.size()) + 1;
  if (wanted_axis < -rank || wanted_axis >= rank) {
    return Error(node,
                 fmt::format("output axis {} is out of range for rank {}", wanted_axis, rank));
  }
  const int axis = static_cast<int>(wanted_axis < 0 ? wanted_axis + rank : wanted_axis);
  dims.insert(dims.begin() + axis, static_cast<int64_t>(slices.size()));
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count || *count > kMaxTensorBytes || DataTypeBytes(dtype, *count) > kMaxTensorBytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "node `{}` ({}): stacked output is over the limit of 16 GiB", node.name, node.op));
  }
  Tensor stacked = Tensor::Zeros(dtype, dims);
  const Strides strides = StridesOf(stacked, axis);
  std::byte* to = stacked.mutable_bytes();
  for (size_t i = 0; i < slices.size(); ++i) {
    const Tensor& slice = slices[reverse ? slices.size() - 1 - i : i];
    if (slice.dims() != slices[0].dims()) {
      return Error(node, "an output changes its shape between iterations, it cannot be stacked");
    }
    for (int64_t row = 0; row < strides.outer && strides.inner_bytes > 0; ++row) {
      std::memcpy(to + (row * strides.extent + static_cast<int64_t>(i)) * strides.inner_bytes,
                  slice.bytes().data() + row * strides.inner_bytes,
                  static_cast<size_t>(strides.inner_bytes));
    }
  }
  return stacked;
}

// The sizes of a body's inputs, as many as there are tensors.
void NoteAll(const Graph& body, std::span<const Tensor> inputs, RunSizes& sizes) {
  if (body.symbols.get() != sizes.symbols()) return;
  for (size_t i = 0; i < std::min(inputs.size(), body.inputs.size()); ++i)
    sizes.Note(body.value(body.inputs[i]).type, inputs[i].dims());
}

// Outputs of a body that are collected over the iterations.
class Collected {
 public:
  Collected(const Node& node, size_t carried, size_t first_output)
      : node_(node), body_(*node.Body("body")), first_(first_output + carried) {
    if (body_.outputs.size() > first_) slices_.resize(body_.outputs.size() - first_);
  }
  // Endless loops end here at the latest.
  absl::Status Take(const Tensors& outputs) {
    for (size_t i = 0; i < slices_.size(); ++i) {
      slices_[i].push_back(outputs[first_ + i]);
      bytes_ += static_cast<int64_t>(outputs[first_ + i].bytes().size() + sizeof(Tensor));
    }
    if (bytes_ <= kMaxTensorBytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(fmt::format(
        "node `{}` ({}): collected outputs are over the limit of 16 GiB", node_.name, node_.op));
  }
  // Stacks all, appended to `to`; axes and directions may be shorter than the outputs (0: axis 0,
  // forward). `sizes` are those before the first iteration.
  absl::Status Finish(const std::vector<int64_t>& axes, const std::vector<int64_t>& directions,
                      const RunSizes& sizes, Tensors& to) const {
    for (size_t i = 0; i < slices_.size(); ++i) {
      const Type& declared = body_.value(body_.outputs[first_ + i]).type;
      QUENCH_ASSIGN_OR_RETURN(Tensor stacked,
                              Stack(node_, slices_[i], i < axes.size() ? axes[i] : 0,
                                    i < directions.size() && directions[i] != 0, declared, sizes));
      to.push_back(std::move(stacked));
    }
    return absl::OkStatus();
  }

 private:
  const Node& node_;
  const Graph& body_;
  size_t first_;
  std::vector<Tensors> slices_;
  int64_t bytes_ = 0;
};

absl::StatusOr<Tensors> EvaluateLoop(const Node& node, std::span<const Tensor* const> inputs,
                                     const RunSizes& sizes, const StepContext& context) {
  if (CarriedCount(node) < 0) return Error(node, "`q.captures` is larger than its inputs allow");
  int64_t trips = std::numeric_limits<int64_t>::max();
  bool condition = true;
  if (inputs[0] != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(trips, Single(node, *inputs[0], "the trip count"));
  }
  if (inputs[1] != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(const int64_t first, Single(node, *inputs[1], "the condition"));
    condition = first != 0;
  }
  const auto carried = static_cast<size_t>(CarriedCount(node));
  Tensors state = {ScalarI64(0), ScalarBool(condition)};
  QUENCH_RETURN_IF_ERROR(Append(node, inputs, 2, state));
  Collected collected(node, carried, 1);
  RunSizes at_entry = sizes;
  NoteAll(*node.Body("body"), state, at_entry);
  for (int64_t trip = 0; trip < trips && condition; ++trip) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    state[0] = ScalarI64(trip);
    QUENCH_ASSIGN_OR_RETURN(Tensors outputs, RunBody(node, "body", state, sizes, context));
    if (outputs.size() < 1 + carried) return Error(node, "body has too few outputs");
    QUENCH_RETURN_IF_ERROR(collected.Take(outputs));
    QUENCH_ASSIGN_OR_RETURN(const int64_t next, Single(node, outputs[0], "the next condition"));
    condition = next != 0;
    state[1] = ScalarBool(condition);
    for (size_t i = 0; i < carried; ++i) state[2 + i] = std::move(outputs[1 + i]);
  }
  Tensors results(state.begin() + 2, state.begin() + 2 + static_cast<ptrdiff_t>(carried));
  QUENCH_RETURN_IF_ERROR(collected.Finish({}, {}, at_entry, results));
  return results;
}

absl::StatusOr<Tensors> EvaluateScan(const Node& node, std::span<const Tensor* const> inputs,
                                     const RunSizes& sizes, const StepContext& context) {
  const int scans = static_cast<int>(node.Int("num_scan_inputs", 0));
  if (CarriedCount(node) < 0 || scans < 1)
    return Error(node, "num_scan_inputs does not fit its inputs");
  const auto carried = static_cast<size_t>(CarriedCount(node));
  Tensors state;
  QUENCH_RETURN_IF_ERROR(Append(node, inputs, 0, state));
  const std::vector<int64_t> axes = node.Ints("scan_input_axes");
  const std::vector<int64_t> directions = node.Ints("scan_input_directions");
  Tensors sources;
  std::vector<int> source_axes;
  int64_t length = -1;
  for (size_t i = 0; i < static_cast<size_t>(scans); ++i) {
    const Tensor& source = sources.emplace_back(state[carried + i]);
    const int64_t wanted = i < axes.size() ? axes[i] : 0;
    if (wanted < -source.rank() || wanted >= source.rank()) {
      return Error(node,
                   fmt::format("scan axis {} is out of range for rank {}", wanted, source.rank()));
    }
    QUENCH_RETURN_IF_ERROR(CheckSliceable(node, source));
    source_axes.push_back(static_cast<int>(wanted < 0 ? wanted + source.rank() : wanted));
    const int64_t extent = source.dims()[static_cast<size_t>(source_axes[i])];
    if (length >= 0 && extent != length) {
      return Error(node, fmt::format("scan inputs have lengths {} and {}", length, extent));
    }
    length = extent;
  }
  Collected collected(node, carried, 0);
  RunSizes at_entry = sizes;
  NoteAll(*node.Body("body"), std::span(state).first(carried), at_entry);
  for (int64_t step = 0; step < length; ++step) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    for (size_t i = 0; i < sources.size(); ++i) {
      const bool backwards = i < directions.size() && directions[i] != 0;
      state[carried + i] = Slice(sources[i], source_axes[i], backwards ? length - 1 - step : step);
    }
    QUENCH_ASSIGN_OR_RETURN(Tensors outputs, RunBody(node, "body", state, sizes, context));
    if (outputs.size() < carried) return Error(node, "body has too few outputs");
    QUENCH_RETURN_IF_ERROR(collected.Take(outputs));
    for (size_t i = 0; i < carried; ++i) state[i] = std::move(outputs[i]);
  }
  Tensors results(state.begin(), state.begin() + static_cast<ptrdiff_t>(carried));
  QUENCH_RETURN_IF_ERROR(collected.Finish(node.Ints("scan_output_axes"),
                                          node.Ints("scan_output_directions"), at_entry, results));
  return results;
}

absl::StatusOr<Tensors> EvaluateGroup(const Node& node, std::span<const Tensor* const> inputs,
                                      const RunSizes& sizes, const StepContext& context) {
  Tensors operands;
  QUENCH_RETURN_IF_ERROR(Append(node, inputs, 0, operands));
  return RunBody(node, "body", operands, sizes, context);
}

}  // namespace

void RunSizes::Note(const Type& declared, std::span<const int64_t> dims) {
  if (symbols_ == nullptr || !declared.ranked || declared.dims.size() != dims.size()) return;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (declared.dims[i].is_static()) continue;
    const SymbolId id = declared.dims[i].symbol();
    if (id >= symbols_->size() || symbols_->at(id).is_expression()) continue;
    if (slots_.empty()) slots_.assign(static_cast<size_t>(symbols_->size()), -1);
    slots_[static_cast<size_t>(id)] = dims[i];
  }
}

std::optional<int64_t> RunSizes::Of(Dim dim) const {
  if (dim.is_static()) return dim.value();
  if (symbols_ == nullptr || dim.symbol() >= symbols_->size()) return std::nullopt;
  const absl::StatusOr<std::vector<int64_t>> slots = symbols_->Evaluate(slots_);
  if (!slots.ok()) return std::nullopt;
  const int64_t size = SymbolTable::ValueOf(dim, *slots);
  return size < 0 ? std::nullopt : std::optional(size);
}

absl::StatusOr<Tensors> EvaluateControl(const Node& node, std::span<const Tensor* const> inputs,
                                        const RunSizes& sizes, const StepContext& context) {
  absl::StatusOr<Tensors> results =
      Unsupported("node `{}`: no evaluation of {}", node.name, node.op);
  if (node.op == "If") results = EvaluateIf(node, inputs, sizes, context);
  if (node.op == "Loop") results = EvaluateLoop(node, inputs, sizes, context);
  if (node.op == "Scan") results = EvaluateScan(node, inputs, sizes, context);
  if (node.IsGroup()) results = EvaluateGroup(node, inputs, sizes, context);
  if (!results.ok()) return results;
  if (results->size() < node.outputs.size()) {
    return Error(node, fmt::format("has {} outputs, its body gives {}", node.outputs.size(),
                                   results->size()));
  }
  results->resize(node.outputs.size());
  return results;
}

}  // namespace quench::ops
