#include "services/codegen/kernels/nests.h"

#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "common/loops/builder.h"
#include "common/ops/op.h"
#include "common/ops/pointwise.h"
#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

using loops::B;
using loops::E;

const Type& ResultType(const KernelRequest& request) {
  const auto& outputs = request.node.outputs;
  const auto present =
      std::find_if(outputs.begin(), outputs.end(), [](ValueId id) { return id != quench::kNone; });
  return request.graph.value(*present).type;
}

bool PointwiseGroup(const Graph& body, const std::vector<Dim>& dims) {
  return std::all_of(body.nodes.begin(), body.nodes.end(), [&](const Node& node) {
    return ops::IsPointwise(node) && node.outputs.size() == 1 &&
           body.value(node.outputs[0]).type.dims == dims;
  });
}

// The element of every value of a group at one index, computed as it is asked for.
class GroupElements {
 public:
  GroupElements(const Graph& body, loops::Builder& builder, const std::map<ValueId, B>& buffers,
                std::span<const E> index)
      : body_(body), b_(builder), buffers_(buffers), index_(index) {}

  absl::StatusOr<E> Of(ValueId id) {
    for (const Node& node : body_.nodes) {
      QUENCH_ASSIGN_OR_RETURN(const E value, Evaluate(node));
      elements_[node.outputs[0]] = value;
    }
    return elements_.at(id);
  }

 private:
  // Values round to their storage type between nodes, as they would in memory.
  E Rounded(E value, DataType type) {
    const DataType compute = loops::ComputeType(type);
    if (value.type() != compute) value = Cast(value, compute);
    return compute == type ? value : Cast(Cast(value, type), compute);
  }

  absl::StatusOr<E> Evaluate(const Node& node) {
    const ops::OpContext op = ops::ContextOf(body_, node);
    QUENCH_ASSIGN_OR_RETURN(const loops::ScalarFunction scalar, ops::ScalarOf(op));
    std::vector<E> operands;
    for (int i = 0; i < op.num_inputs(); ++i) {
      if (!op.has_input(i)) continue;
      const ValueId id = node.inputs[static_cast<size_t>(i)];
      const auto made = elements_.find(id);
      operands.push_back(made != elements_.end() ? made->second : Load(op, i, id));
    }
    E value = Apply(b_, scalar, operands);
    return b_.Let(Rounded(value, op.output(0).dtype));
  }

  E Load(const ops::OpContext& op, int operand, ValueId id) {
    if (const auto& constant = body_.value(id).constant; constant != nullptr) {
      const DataType type = loops::ComputeType(constant->tensor.dtype());
      return IsFloat(type) ? b_.F(constant->tensor.FloatAt(0), type)
                           : b_.Int(constant->tensor.IntAt(0), type);
    }
    const B& buffer = buffers_.at(id);
    const std::vector<int> axes = ops::OperandAxes(op, operand);
    std::vector<E> at;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const Dim dim = op.input(operand).dims[axis];
      const E index = index_[static_cast<size_t>(axes[axis])];
      if (dim.is(1)) {
        at.push_back(b_.I(0));
      } else if (dim == op.output(0).dims[static_cast<size_t>(axes[axis])] || dim.is_static()) {
        at.push_back(index);
      } else {  // 1 or the result's size: only the run knows
        at.push_back(Select(buffer.dim(static_cast<int>(axis)) == b_.I(1), b_.I(0), index));
      }
    }
    return buffer.At(at);
  }

  const Graph& body_;
  loops::Builder& b_;
  const std::map<ValueId, B>& buffers_;
  std::span<const E> index_;
  std::map<ValueId, E> elements_;
};

absl::StatusOr<loops::Function> LowerGroup(const KernelRequest& request, const Graph& body) {
  loops::Builder b("fused");
  std::map<ValueId, B> buffers;
  auto extents = [&](const std::vector<Dim>& dims) {
    std::vector<E> result;
    for (const Dim dim : dims)
      result.push_back(dim.is_static() ? b.I(dim.value()) : b.Slot(dim.symbol()));
    return result;
  };
  for (const ValueId id : body.inputs) {
    const Value& value = body.value(id);
    buffers[id] = b.Input(value.name, value.type.dtype, extents(value.type.dims));
  }
  const Type& type = ResultType(request);
  const std::vector<E> dims = extents(type.dims);
  const B out = b.Output("y", type.dtype, dims);
  absl::Status status;
  b.ParallelForAll(dims, [&](std::span<const E> index) {
    const absl::StatusOr<E> element = GroupElements(body, b, buffers, index).Of(body.outputs[0]);
    status = element.status();
    if (element.ok()) b.Store(out, index, *element);
  });
  QUENCH_RETURN_IF_ERROR(status);
  return b.Finish();
}

bool IsGroup(const KernelRequest& request) {
  if (request.node.op != "q.fused" || request.node.outputs.size() != 1) return false;
  const GraphPtr body = request.node.Body("body");
  if (body == nullptr || body->outputs.size() != 1 || body->nodes.empty()) return false;
  const bool plain = std::all_of(body->values.begin(), body->values.end(), [](const Value& value) {
    const bool number = value.constant == nullptr || value.constant->tensor.size() == 1;
    return number && value.type.kind == ValueKind::kTensor && value.type.ranked &&
           DataTypeBits(value.type.dtype) >= 8 && !IsComplex(value.type.dtype);
  });
  return plain && body->value(body->outputs[0]).producer != quench::kNone &&
         PointwiseGroup(*body, ResultType(request).dims);
}

double Elements(const Graph& graph, const std::vector<Dim>& dims) {
  double count = 1;
  for (const Dim dim : dims) {
    count *= static_cast<double>(std::max<int64_t>(TypicalValue(*graph.symbols, dim), 1));
  }
  return std::min(count, 1e15);
}

}  // namespace

std::string WhyNestIsSlow(const Node& node) {
  if (node.op == "ConvInteger" || node.op == "MatMulInteger")
    return "integers by a nest: no micro-kernel takes it";
  if (node.op == "q.weight_only_matmul")
    return "weights are scaled by a nest: no micro-kernel takes it";
  return "";
}

bool UpdatesFirstInput(const KernelRequest& request) {
  const ops::OpDef* op = ops::FindOp(request.node.op);
  return op != nullptr && op->updates &&
         request.graph.value(request.node.inputs[0]).constant == nullptr;
}

bool LowersToNest(const KernelRequest& request) {
  if (request.node.op == "q.fused") return IsGroup(request);
  return ops::LowerNode(ops::ContextOf(request.graph, request.node)).ok();
}

absl::StatusOr<loops::Function> LowerToNest(const KernelRequest& request) {
  if (request.node.op == "q.fused") return LowerGroup(request, *request.node.Body("body"));
  return ops::LowerNode(ops::ContextOf(request.graph, request.node));
}

std::vector<Layout> NestLayouts(const KernelRequest& request, const Candidate& candidate) {
  std::vector<Layout> layouts;
  for (size_t i = 0; i < request.node.inputs.size(); ++i) {
    if (request.node.inputs[i] != quench::kNone) layouts.push_back(candidate.inputs[i]);
  }
  for (size_t i = 0; i < request.node.outputs.size(); ++i) {
    if (request.node.outputs[i] != quench::kNone) layouts.push_back(candidate.outputs[i]);
  }
  return layouts;
}

NestCosts NestCost(const KernelRequest& request) {
  const Graph& graph = request.graph;
  double elements = 0, bytes = 0, macs = 0;
  auto touch = [&](ValueId id) {
    const Type& type = graph.value(id).type;
    if (!type.ranked) return;
    const double count = Elements(graph, type.dims);
    elements = std::max(elements, count);
    bytes += count * DataTypeBits(type.dtype) / 8;
  };
  for (const ValueId id : request.node.inputs) {
    if (id != quench::kNone) touch(id);
  }
  for (const ValueId id : request.node.outputs) {
    if (id != quench::kNone) touch(id);
  }
  const ops::OpDef* op = ops::FindOp(request.node.op);
  if (op != nullptr && op->macs != nullptr) {
    const Dim count = op->macs(ops::ContextOf(graph, request.node));
    macs = Elements(graph, {count});
  }
  const Target& target = request.target;
  const double memory = 1e-3 * bytes / target.gbytes;  // microseconds
  const double overhead = 0.2;
  // A scalar step is about a nanosecond; a vector step serves its lanes, with loads that do not
  // overlap well. Multiply-adds of a nest reach a small part of peak: operands come from memory
  // each time.
  NestCosts costs;
  if (target.gpu) {  // what many threads do at once, whichever way the loops are written
    costs.scalar = costs.vectorised = memory + 1e-5 * elements + 1e-6 * macs;
    return costs;
  }
  costs.scalar = overhead + memory + 1e-3 * (2 * elements + 1.2 * macs);
  costs.vectorised = overhead + memory + 1e-3 * (2 * elements / target.f32_lanes()) +
                     1e-3 * 2 * macs / (0.12 * target.gflops);
  return costs;
}

}  // namespace quench::codegen
