// Computes transposed convolutions as convolutions whose channels become pixels.
//   pre: types inferred; the kernel is a constant, which may be dequantized
//   x -> ConvTranspose(W[C, M, k, k], stride s) -> y
//     ==>   x -> Conv(V[M s s, C, t, t]) -> DepthToSpace(s) -> Slice -> y,   t = ceil(k / s)
//   Position s q + r of the whole result is the sum over j < t of x[q - j] W[r + s j]: the s s
//   remainders r are channels of one convolution, with zeros where r + s j is not below k. The slice
//   cuts off what padding does, whole blocks aside, which the convolution does not compute.
//   Pointwise operations of one tensor that follow go before the pixels move: they can be fused.
//   DequantizeLinear of kernel and bias stays in between, for integer_products.
//   For images with the same stride along both axes and no dilation, where those zeros do not more than
//   double the positions of a kernel along an axis; not for one input channel in each group, which
//   convolutions with several outputs for it do not gain from.
//   source: Shi et al. 2016, arXiv 1609.07009
//   case: TransposedConvolutionsTest
#include <algorithm>
#include <limits>
#include <optional>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/ops/pointwise.h"
#include "common/passes/dequantized.h"
#include "common/passes/fold.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr size_t kAxes = 2;

// One spatial axis.
struct Axis {
  int64_t kernel = 1, taps = 1;
  int64_t pad_begin = 0, pad_end = 0;  // of the convolution
  int64_t cut_begin = 0, cut_end = 0;  // of what its pixels become
};

struct Form {
  int64_t stride = 1, groups = 1;
  Axis axes[kAxes];
};

// `begin` and `end`: positions cut off the whole result, which is stride * (taps - 1) + stride
// positions longer than stride * (size - 1); none if more is asked for than there is.
std::optional<Axis> AxisOf(int64_t kernel, int64_t stride, int64_t begin, int64_t end) {
  Axis axis;
  axis.kernel = kernel;
  axis.taps = (kernel + stride - 1) / stride;
  if (stride > 2 * kernel || stride * axis.taps > 2 * kernel) return std::nullopt;
  end += stride * axis.taps - kernel;  // zeros that fill up the last block
  if (begin < 0 || end < 0) return std::nullopt;
  const int64_t whole_begin = std::min(begin / stride, axis.taps - 1);
  const int64_t whole_end = std::min(end / stride, axis.taps - 1);
  axis.pad_begin = axis.taps - 1 - whole_begin;
  axis.pad_end = axis.taps - 1 - whole_end;
  axis.cut_begin = begin - whole_begin * stride;
  axis.cut_end = end - whole_end * stride;
  return axis;
}

// Positions cut off an axis of the whole result; fewer than none at the end are added there.
struct Cut {
  int64_t begin = 0, end = 0;
};

// None where only the run knows.
std::optional<Cut> CutOf(const Graph& graph, const Node& node, size_t axis, int64_t kernel,
                         int64_t stride) {
  const std::string padding = node.String("auto_pad", "NOTSET");
  const std::vector<int64_t> wanted = node.Ints("output_shape");
  const bool same = padding == "SAME_UPPER" || padding == "SAME_LOWER";
  std::vector<int64_t> extra = node.Ints("output_padding");
  extra.resize(kAxes, 0);
  if (wanted.empty() && !same) {
    std::vector<int64_t> pads = node.Ints("pads");
    pads.resize(2 * kAxes, 0);
    if (padding == "VALID") pads.assign(2 * kAxes, 0);
    return Cut{pads[axis], pads[kAxes + axis] - extra[axis]};
  }
  const Type& input = graph.value(node.inputs[0]).type;
  if (!input.ranked || !input.dims[2 + axis].is_static()) return std::nullopt;
  const int64_t in = input.dims[2 + axis].value();
  const int64_t out = wanted.empty() ? in * stride : wanted[axis];
  const int64_t whole = (in - 1) * stride + kernel;
  const int64_t total = std::max<int64_t>(whole + extra[axis] - out, 0), half = total / 2;
  const int64_t begin = padding == "SAME_UPPER" ? half : total - half;
  return Cut{begin, whole - out - begin};
}

// Floats, or integers that are dequantized along `axis`.
struct Parameter {
  const Tensor* values = nullptr;
  NodeId dequantize = kNone;
};

bool FitsAxis(const Tensor* of_integers, const Tensor& integers, int64_t axis) {
  if (of_integers == nullptr || of_integers->rank() > 1) return false;
  return of_integers->size() == 1 ||
         of_integers->size() == integers.dims()[static_cast<size_t>(axis)];
}

std::optional<Parameter> ParameterOf(const Graph& graph, ValueId id, int64_t axis) {
  if (graph.value(id).type.dtype != DataType::kF32) return std::nullopt;
  if (const Tensor* floats = ConstantOf(graph, id)) return Parameter{floats};
  if (ProducerOf(graph, id, "DequantizeLinear") == nullptr) return std::nullopt;
  const NodeId producer = graph.value(id).producer;
  const Node& node = graph.node(producer);
  const Tensor* integers = ConstantOf(graph, node.inputs[0]);
  if (integers == nullptr || DataTypeBits(integers->dtype()) < 8 || integers->rank() <= axis ||
      node.Int("block_size", 0) != 0)
    return std::nullopt;
  bool several = false;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNone) continue;
    const Tensor* each = ConstantOf(graph, node.inputs[i]);
    if (!FitsAxis(each, *integers, axis)) return std::nullopt;
    several |= each->size() != 1;
  }
  const int64_t own = node.Int("axis", 1);
  if (several && own != axis && own != axis - integers->rank()) return std::nullopt;
  return Parameter{integers, producer};
}

// Kernels and biases that are dequantized in another way become floats.
absl::Status FoldOthers(Graph& graph, NodeId id, const StepContext& context) {
  if (graph.node(id).op != "ConvTranspose") return absl::OkStatus();
  for (size_t i = 1; i < graph.node(id).inputs.size(); ++i) {
    const ValueId value = graph.node(id).inputs[i];
    const Node* found = ProducerOf(graph, value, "DequantizeLinear");
    if (found == nullptr || ParameterOf(graph, value, i == 1 ? 1 : 0)) continue;
    const Node dequantize = *found;
    const bool constant = std::all_of(
        dequantize.inputs.begin(), dequantize.inputs.end(),
        [&](ValueId each) { return each == kNone || ConstantOf(graph, each) != nullptr; });
    if (constant) QUENCH_RETURN_IF_ERROR(FoldNode(graph, dequantize, context));
  }
  return absl::OkStatus();
}

std::optional<Form> FormOf(const Graph& graph, const Node& node) {
  if (node.op != "ConvTranspose") return std::nullopt;
  const std::optional<Parameter> weights = ParameterOf(graph, node.inputs[1], 1);
  const Tensor* kernel = weights ? weights->values : nullptr;
  if (kernel == nullptr || kernel->rank() != 2 + kAxes || kernel->size() == 0) return std::nullopt;
  const bool biased = node.inputs.size() > 2 && node.inputs[2] != kNone;
  if (biased && !ParameterOf(graph, node.inputs[2], 0)) return std::nullopt;
  std::vector<int64_t> strides = node.Ints("strides");
  strides.resize(kAxes, 1);
  for (const int64_t dilation : node.Ints("dilations")) {
    if (dilation != 1) return std::nullopt;
  }
  if (strides[0] != strides[1]) return std::nullopt;
  Form form;
  form.stride = strides[0];
  form.groups = node.Int("group", 1);
  if (form.groups > 1 && kernel->dims()[0] == form.groups) return std::nullopt;
  for (size_t i = 0; i < kAxes; ++i) {
    const int64_t size = kernel->dims()[2 + i];
    const std::optional<Cut> cut = CutOf(graph, node, i, size, form.stride);
    const std::optional<Axis> axis =
        cut ? AxisOf(size, form.stride, cut->begin, cut->end) : std::nullopt;
    if (!axis) return std::nullopt;
    form.axes[i] = *axis;
  }
  return form;
}

// [C, M / groups, kh, kw] as [M s s, C / groups, taps, taps], taps in reverse order; `zero` of 1 or
// M / groups integers stands for 0.
Tensor KernelOf(const Tensor& kernel, const Form& form, const Tensor* zero) {
  const int64_t inputs = kernel.dims()[0] / form.groups, outputs = kernel.dims()[1];
  const int64_t area = form.stride * form.stride;
  const auto& [h, w] = form.axes;
  Tensor result =
      Tensor::Zeros(kernel.dtype(), {outputs * form.groups * area, inputs, h.taps, w.taps});
  const int64_t size = DataTypeBits(kernel.dtype()) / 8;
  std::byte* out = result.mutable_bytes();
  const std::byte* in = kernel.bytes().data();
  for (int64_t i = 0; zero != nullptr && i < result.size(); ++i) {
    const int64_t output = i / (inputs * h.taps * w.taps) / area % outputs;
    std::copy_n(zero->bytes().data() + (zero->size() == 1 ? 0 : output * size), size,
                out + i * size);
  }
  for (int64_t c = 0; c < kernel.dims()[0]; ++c) {
    for (int64_t m = 0; m < outputs; ++m) {
      for (int64_t y = 0; y < h.kernel; ++y) {
        for (int64_t x = 0; x < w.kernel; ++x) {
          const int64_t pixel = y % form.stride * form.stride + x % form.stride;
          const int64_t channel = (c / inputs * outputs + m) * area + pixel;
          const int64_t tap_y = h.taps - 1 - y / form.stride, tap_x = w.taps - 1 - x / form.stride;
          const int64_t to = ((channel * inputs + c % inputs) * h.taps + tap_y) * w.taps + tap_x;
          const int64_t from = ((c * outputs + m) * h.kernel + y) * w.kernel + x;
          std::copy_n(in + from * size, size, out + to * size);
        }
      }
    }
  }
  return result;
}

// Each element `times` times; all of that `rounds` times.
Tensor Repeated(const Tensor& row, int64_t times, int64_t rounds = 1) {
  Tensor result = Tensor::Zeros(row.dtype(), {row.size() * times * rounds});
  const int64_t size = DataTypeBits(row.dtype()) / 8;
  std::byte* out = result.mutable_bytes();
  for (int64_t i = 0; i < result.size(); ++i)
    std::copy_n(row.bytes().data() + i / times % row.size() * size, size, out + i * size);
  return result;
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph)
      : graph_(graph), uses_(graph.UseCounts()), reader_(graph.values.size(), kNone) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId id : graph.nodes[i].inputs) {
        if (id != kNone) reader_[static_cast<size_t>(id)] = static_cast<NodeId>(i);
      }
    }
  }

  void Rewrite(NodeId id, const Form& form) {
    const Node node = graph_.node(id);  // adding nodes moves them
    const int64_t area = form.stride * form.stride;
    const auto& [h, w] = form.axes;
    const Parameter kernel_of = *ParameterOf(graph_, node.inputs[1], 1);
    const Tensor* zero = kernel_of.dequantize == kNone
                             ? nullptr
                             : ConstantOf(graph_, Operand(kernel_of.dequantize, 2));
    std::vector<ValueId> inputs = {
        node.inputs[0], Arranged(node, "weight", kernel_of.dequantize,
                                 KernelOf(*kernel_of.values, form, zero), area, form.groups)};
    if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
      const Parameter bias = *ParameterOf(graph_, node.inputs[2], 0);
      inputs.push_back(
          Arranged(node, "bias", bias.dequantize, Repeated(*bias.values, area), area, 1));
    }
    const std::vector<int64_t> kernel = {h.taps, w.taps};
    const std::vector<int64_t> pads = {h.pad_begin, w.pad_begin, h.pad_end, w.pad_end};
    ValueId y = InPlaceOf(id, "Conv", std::move(inputs),
                          {{"kernel_shape", kernel}, {"pads", pads}, {"group", form.groups}});
    ValueId old = node.outputs[0];
    for (NodeId next = OnlyPointwiseReader(old); next != kNone; next = OnlyPointwiseReader(old)) {
      const Node reader = graph_.node(next);
      std::vector<ValueId> operands = reader.inputs;
      std::replace(operands.begin(), operands.end(), old, y);
      y = InPlaceOf(next, reader.op, std::move(operands), reader.attributes);
      old = reader.outputs[0];
    }
    if (form.stride > 1) {
      y = Add("DepthToSpace", node, {y},
              {{"blocksize", form.stride}, {"mode", std::string("CRD")}});
    }
    TakePlace(graph_, old, Cut(node, form, y));
  }

 private:
  ValueId Operand(NodeId id, size_t i) const {
    const std::vector<ValueId>& inputs = graph_.node(id).inputs;
    return i < inputs.size() ? inputs[i] : kNone;
  }

  // A constant of the convolution, dequantized as the old one was by `dequantize`, if it was: by
  // what that has for each of its outputs, `area` times each, for all groups.
  ValueId Arranged(const Node& node, const std::string& what, NodeId dequantize, Tensor values,
                   int64_t area, int64_t groups) {
    const ValueId constant = graph_.AddConstant(node.name + "." + what, std::move(values));
    if (dequantize == kNone) return constant;
    const Node old = graph_.node(dequantize);  // adding nodes moves them
    std::vector<ValueId> operands = old.inputs;
    operands[0] = constant;
    for (size_t i = 1; i < operands.size(); ++i) {
      const Tensor* each = ConstantOf(graph_, operands[i]);
      if (each == nullptr || each->size() == 1) continue;
      const std::string name = graph_.value(operands[i]).name;
      operands[i] = graph_.AddConstant(name, Repeated(*each, area, groups));
    }
    std::map<std::string, Attribute> attributes = old.attributes;
    attributes["axis"] = int64_t{0};
    return Add("DequantizeLinear", old, std::move(operands), std::move(attributes));
  }

  ValueId Add(const std::string& op, const Node& of, std::vector<ValueId> inputs,
              std::map<std::string, Attribute> attributes) {
    const NodeId id = graph_.AddNode(op, of.name, std::move(inputs), 1, std::move(attributes));
    graph_.node(id).origin = of.origin;
    return graph_.node(id).outputs[0];
  }

  // With the name of the node whose work it does.
  ValueId InPlaceOf(NodeId old, const std::string& op, std::vector<ValueId> inputs,
                    std::map<std::string, Attribute> attributes) {
    const Node of = graph_.node(old);
    const ValueId y = Add(op, of, std::move(inputs), std::move(attributes));
    std::swap(graph_.node(graph_.value(y).producer).name, graph_.node(old).name);
    return y;
  }

  // The one node that reads a value, if it works on each of its elements with numbers only.
  NodeId OnlyPointwiseReader(ValueId id) const {
    const auto place = static_cast<size_t>(id);
    if (uses_[place] != 1 || graph_.IsOutput(id)) return kNone;
    const Node& node = graph_.node(reader_[place]);
    if (!ops::IsPointwise(node) || node.outputs.size() != 1 || node.outputs[0] == kNone)
      return kNone;
    const Type& type = graph_.value(node.outputs[0]).type;
    const bool quantized = node.op == "QuantizeLinear" && DataTypeBits(type.dtype) == 8;
    if (quantized ? type.dims != graph_.value(id).type.dims : !(type == graph_.value(id).type))
      return kNone;
    for (const ValueId input : node.inputs) {
      if (input == id || input == kNone) continue;
      const Tensor* number = ConstantOf(graph_, input);
      if (number == nullptr || number->size() != 1) return kNone;
    }
    return reader_[place];
  }

  ValueId Cut(const Node& node, const Form& form, ValueId y) {
    std::vector<int64_t> starts, ends, axes;
    for (size_t i = 0; i < kAxes; ++i) {
      const Axis& axis = form.axes[i];
      if (axis.cut_begin == 0 && axis.cut_end == 0) continue;
      starts.push_back(axis.cut_begin);
      ends.push_back(axis.cut_end == 0 ? std::numeric_limits<int64_t>::max() : -axis.cut_end);
      axes.push_back(static_cast<int64_t>(2 + i));
    }
    if (axes.empty()) return y;
    const auto list = [&](const char* name, const std::vector<int64_t>& values) {
      const auto size = static_cast<int64_t>(values.size());
      return graph_.AddConstant(node.name + name, Tensor::Of(DataType::kI64, {size}, values));
    };
    const ValueId first = list(".starts", starts), last = list(".ends", ends);
    return Add("Slice", node, {y, first, last, list(".axes", axes)}, {});
  }

  Graph& graph_;
  const std::vector<int> uses_;
  std::vector<NodeId> reader_;  // per value: one of them
};

}  // namespace

absl::StatusOr<Graph> RewriteTransposedConvolutions(Graph graph, const PassOptions& options,
                                                    const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(graph, [&](Graph body) {
    return RewriteTransposedConvolutions(std::move(body), options, context);
  }));
  const size_t nodes = graph.nodes.size();
  for (size_t i = 0; i < nodes; ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    QUENCH_RETURN_IF_ERROR(FoldOthers(graph, static_cast<NodeId>(i), context));
  }
  Rewriter rewriter(graph);
  bool changed = false;
  for (size_t i = 0; i < nodes; ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    const std::optional<Form> form = FormOf(graph, graph.nodes[i]);
    if (!form) continue;
    rewriter.Rewrite(static_cast<NodeId>(i), *form);
    changed = true;
  }
  if (!changed) return graph;
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  return graph;
}

}  // namespace quench::passes
