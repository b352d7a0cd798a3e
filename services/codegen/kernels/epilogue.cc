#include "services/codegen/kernels/epilogue.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "common/ops/pointwise.h"
#include "services/codegen/forms/gpu_builder.h"

namespace quench::codegen {
namespace {

bool IsTranscendental(const loops::Expr& expr) {
  if (expr.kind == loops::ExprKind::kBinary) return expr.binary == loops::BinaryOp::kPow;
  return expr.kind == loops::ExprKind::kUnary && expr.unary >= loops::UnaryOp::kExp &&
         expr.unary <= loops::UnaryOp::kLogistic;
}

// Types that the tail of a group may read and give.
bool IsPlain(const Type& type) {
  const bool plain = type.dtype == DataType::kF32 || type.dtype == DataType::kI32 ||
                     type.dtype == DataType::kI8 || type.dtype == DataType::kU8 ||
                     IsHalf(type.dtype);
  return type.kind == ValueKind::kTensor && type.ranked && plain;
}

// Types that packs hold and sums are kept in.
bool IsWords(const Type& type) {
  return IsPlain(type) && DataTypeBits(RegisterTypeOf(type.dtype)) == 32;
}

// True when a constant broadcasts to `output` along nothing but the channel axis.
bool IsPerChannel(const Type& constant, const Type& output, int channel_axis) {
  if (!IsWords(constant) || constant.rank() > output.rank()) return false;
  const int shift = output.rank() - constant.rank();
  for (int i = 0; i < constant.rank(); ++i) {
    const Dim dim = constant.dims[static_cast<size_t>(i)];
    if (dim.is(1)) continue;
    if (i + shift != channel_axis || dim != output.dims[static_cast<size_t>(channel_axis)])
      return false;
  }
  return true;
}

// Reads the tail of a q.fused body.
class TailReader {
 public:
  TailReader(const KernelRequest& request, Group& group, int channel_axis)
      : request_(request),
        group_(group),
        output_(group.OutputType()),
        channel_axis_(channel_axis) {}

  bool Read() {
    values_[group_.root->outputs[0]] = 0;
    for (size_t i = 1; i < group_.graph->nodes.size(); ++i) {
      if (!ReadStep(group_.graph->nodes[i])) return false;
    }
    const auto last = values_.find(group_.graph->outputs[0]);
    return last != values_.end() && last->second == static_cast<int>(group_.epilogue.steps.size());
  }

 private:
  bool ReadStep(const Node& node) {
    const ops::OpDef* op = ops::FindOp(node.op);
    if (op == nullptr || !ops::IsPointwise(node) || node.outputs.size() != 1) return false;
    const Type& type = group_.graph->value(node.outputs[0]).type;
    if (!IsPlain(type) || type.dims != output_.dims) return false;
    EpilogueStep step;
    step.type = type.dtype;
    for (const ValueId input : node.inputs) {
      if (input != quench::kNone && !ReadOperand(input, step)) return false;
    }
    const ops::OpContext context = ops::ContextOf(*group_.graph, node);
    absl::StatusOr<loops::ScalarFunction> function = ops::ScalarOf(context);
    if (!function.ok() || function->param_types.size() != step.args.size()) return false;
    if (function->exprs[static_cast<size_t>(function->result)].type != RegisterTypeOf(step.type))
      return false;
    for (size_t i = 0; i < step.args.size(); ++i) {
      if (function->param_types[i] != TypeOf(step.args[i])) return false;
      // Its scales do not lie along the axes that NumPy's broadcasting would give them.
      if (op->operand_axes != nullptr && i > 0 && !IsNumber(step.args[i])) return false;
    }
    step.function = *std::move(function);
    group_.epilogue.steps.push_back(std::move(step));
    values_[node.outputs[0]] = static_cast<int>(group_.epilogue.steps.size());
    return true;
  }

  // In registers.
  DataType TypeOf(int arg) const {
    if (arg >= 0) return RegisterTypeOf(group_.epilogue.operands[static_cast<size_t>(arg)].type);
    return RegisterTypeOf(arg == -1 ? output_.dtype
                                    : group_.epilogue.steps[static_cast<size_t>(-2 - arg)].type);
  }

  bool IsNumber(int arg) const {
    if (arg < 0) return false;
    const EpilogueOperand::Kind kind = group_.epilogue.operands[static_cast<size_t>(arg)].kind;
    return kind == EpilogueOperand::kImmediate || kind == EpilogueOperand::kScalar;
  }

  bool ReadOperand(ValueId id, EpilogueStep& step) {
    if (const auto found = values_.find(id); found != values_.end()) {
      step.args.push_back(-1 - found->second);
      return true;
    }
    std::optional<EpilogueOperand> operand = Operand(id);
    if (!operand) return false;
    step.args.push_back(static_cast<int>(group_.epilogue.operands.size()));
    group_.epilogue.operands.push_back(*operand);
    return true;
  }

  std::optional<EpilogueOperand> Operand(ValueId id) {
    const Value& value = group_.graph->value(id);
    if (value.constant != nullptr) {
      if (!IsPlain(value.type) || value.constant->tensor.size() != 1) return std::nullopt;
      return EpilogueOperand{EpilogueOperand::kImmediate, -1, value.constant->tensor.FloatAt(0),
                             value.type.dtype};
    }
    const auto& captures = group_.graph->inputs;
    const auto at = std::find(captures.begin(), captures.end(), id);
    if (at == captures.end()) return std::nullopt;
    const int input = static_cast<int>(at - captures.begin());
    const Value& outer = request_.graph.value(request_.node.inputs[static_cast<size_t>(input)]);
    const DataType type = outer.type.dtype;
    if (outer.constant != nullptr && IsWords(outer.type) && outer.constant->tensor.size() == 1 &&
        outer.type.rank() <= output_.rank()) {
      return EpilogueOperand{EpilogueOperand::kScalar, input, 0, type};
    }
    if (outer.constant != nullptr && IsPlain(outer.type) && outer.constant->tensor.size() == 1)
      return EpilogueOperand{EpilogueOperand::kImmediate, input, outer.constant->tensor.FloatAt(0),
                             type};
    if (outer.constant != nullptr && IsPerChannel(outer.type, output_, channel_axis_)) {
      return EpilogueOperand{EpilogueOperand::kChannels, input, 0, type};
    }
    const bool one = std::all_of(outer.type.dims.begin(), outer.type.dims.end(),
                                 [](Dim dim) { return dim.is(1); });
    if (outer.constant == nullptr && IsPlain(outer.type) && one &&
        outer.type.rank() <= output_.rank() && outer.type.dims != output_.dims) {
      return EpilogueOperand{EpilogueOperand::kNumber, input, 0, type};
    }
    if (outer.constant != nullptr || !IsPlain(outer.type) || outer.type.dims != output_.dims)
      return std::nullopt;
    return EpilogueOperand{EpilogueOperand::kTensor, input, 0, type};
  }

  const KernelRequest& request_;
  Group& group_;
  const Type& output_;
  int channel_axis_;
  std::map<ValueId, int> values_;  // results of the root and of steps
};

}  // namespace

bool IsLong(const Epilogue& epilogue) {
  size_t exprs = 0;
  for (const EpilogueStep& step : epilogue.steps) {
    const auto& all = step.function.exprs;
    if (std::any_of(all.begin(), all.end(), IsTranscendental)) return true;
    exprs += all.size();
  }
  constexpr size_t kShort = 32;
  return exprs > kShort;
}

DataType RegisterTypeOf(DataType type) { return IsHalf(type) ? DataType::kF32 : type; }

std::optional<Group> ReadGroup(const KernelRequest& request, int channel_axis) {
  Group group;
  if (request.node.outputs.size() != 1) return std::nullopt;
  if (request.node.op != "q.fused") {
    group.graph = &request.graph;
    group.root = &request.node;
    for (size_t i = 0; i < request.node.inputs.size(); ++i) {
      group.inputs.push_back(request.node.inputs[i] == quench::kNone ? -1 : static_cast<int>(i));
    }
    group.root_type = group.OutputType().dtype;
    return group;
  }
  const GraphPtr body = request.node.Body("body");
  if (body == nullptr || body->nodes.empty() || body->outputs.size() != 1) return std::nullopt;
  group.graph = body.get();  // kept alive by the node
  group.root = &body->nodes[0];
  if (group.root->outputs.size() != 1 || body->inputs.size() != request.node.inputs.size())
    return std::nullopt;
  for (const ValueId id : group.root->inputs) {
    const auto at = std::find(body->inputs.begin(), body->inputs.end(), id);
    if (id != quench::kNone && at == body->inputs.end()) return std::nullopt;
    group.inputs.push_back(id == quench::kNone ? -1 : static_cast<int>(at - body->inputs.begin()));
  }
  if (!IsWords(group.OutputType())) return std::nullopt;
  group.root_type = group.OutputType().dtype;
  if (channel_axis < 0) channel_axis += group.OutputType().rank();
  if (channel_axis < 0 || channel_axis >= group.OutputType().rank()) return std::nullopt;
  if (!TailReader(request, group, channel_axis).Read()) return std::nullopt;
  return group;
}

const Constant* ConstantInput(const KernelRequest& request, const Group& group, int i) {
  if (!group.HasInput(i)) return nullptr;
  const int input = group.inputs[static_cast<size_t>(i)];
  return request.graph.value(request.node.inputs[static_cast<size_t>(input)]).constant.get();
}

std::vector<int> PackEpilogue(const KernelRequest& request, const Group& group, int64_t channels,
                              int64_t padded, Candidate& candidate) {
  std::vector<int> packs;
  for (const EpilogueOperand& operand : group.epilogue.operands) {
    packs.push_back(-1);
    const bool known = operand.kind == EpilogueOperand::kTaken ||
                       (operand.kind == EpilogueOperand::kImmediate && operand.input >= 0);
    if (known) candidate.packed[static_cast<size_t>(operand.input)] = true;
    const bool scalar = operand.kind == EpilogueOperand::kScalar;
    if (operand.kind != EpilogueOperand::kChannels && !scalar) continue;
    packs.back() = static_cast<int>(candidate.packs.size());
    const size_t input = static_cast<size_t>(operand.input);
    // Threads of a GPU have up to 8 results at once.
    const int64_t lanes = request.target.gpu ? 8 : request.target.f32_lanes();
    candidate.packed[input] = true;
    candidate.packs.push_back(
        {"channels",
         {{"channels", scalar ? lanes : channels}, {"padded", scalar ? lanes : padded}},
         {operand.input}});
  }
  return packs;
}

absl::StatusOr<Vec> EmitEpilogue(VectorBuilder& b, const Epilogue& epilogue,
                                 const BufferMap& buffers, Vec value,
                                 const std::function<Vec(int operand)>& load) {
  std::vector<Vec> values = {value};
  std::vector<Vec> operands(epilogue.operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    const EpilogueOperand& operand = epilogue.operands[i];
    if (operand.kind == EpilogueOperand::kTaken) continue;
    if (operand.kind == EpilogueOperand::kNumber) {
      const Ptr number = b.Buffer(buffers.Input(operand.input));
      operands[i] = b.Splat(b.Load(number, 1, operand.type), value.lanes);
      continue;
    }
    operands[i] = operand.kind == EpilogueOperand::kImmediate
                      ? b.Constant(RegisterTypeOf(operand.type), operand.value, value.lanes)
                      : load(static_cast<int>(i));
  }
  for (const EpilogueStep& step : epilogue.steps) {
    std::vector<Vec> args;
    for (const int arg : step.args) {
      args.push_back(arg >= 0 ? operands[static_cast<size_t>(arg)]
                              : values[static_cast<size_t>(-1 - arg)]);
    }
    QUENCH_ASSIGN_OR_RETURN(Vec result, b.Apply(step.function, args));
    values.push_back(result);
  }
  return values.back();
}

Vec AsStored(VectorBuilder& b, DataType type, Vec value) {
  return IsHalf(type) ? b.Narrow(value, type) : value;
}

Candidate CandidateIn(const Layout& layout, const KernelRequest& request, const Group& group) {
  Candidate candidate;
  candidate.inputs.assign(request.node.inputs.size(), Layout{});
  candidate.packed.assign(request.node.inputs.size(), false);
  candidate.inputs[static_cast<size_t>(group.inputs[0])] = layout;
  candidate.outputs = {layout};
  for (const EpilogueOperand& operand : group.epilogue.operands) {
    if (operand.kind == EpilogueOperand::kTensor)
      candidate.inputs[static_cast<size_t>(operand.input)] = layout;
  }
  candidate.in_place = InPlaceOperand(group);
  return candidate;
}

BufferMap::BufferMap(const Node& node, const Candidate& candidate) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const bool buffer = node.inputs[i] != quench::kNone && !candidate.packed[i];
    inputs_.push_back(buffer ? workspace_++ : -1);
  }
  first_output_ = workspace_ + (candidate.preparation ? 1 : 0);
  first_pack_ = first_output_;
  for (const ValueId output : node.outputs) first_pack_ += output == quench::kNone ? 0 : 1;
  scratch_ = first_pack_ + static_cast<int>(candidate.packs.size());
}

Vec LoadOperand(VectorBuilder& b, const EpilogueOperand& operand, const BufferMap& buffers,
                int pack, const Place& place, Int channel, int lanes, bool aligned) {
  const auto load = [&](Ptr address, DataType type) {
    return aligned ? b.gpu().LoadAligned(address, lanes, type) : b.Load(address, lanes, type);
  };
  if (operand.kind == EpilogueOperand::kTensor)
    return load(b.Buffer(buffers.Input(operand.input)) + place.At(operand.type), operand.type);
  const Ptr constant = b.Buffer(buffers.Pack(pack));
  return load(operand.kind == EpilogueOperand::kScalar ? constant : constant + channel,
              RegisterTypeOf(operand.type));
}

void ResultWriter::Store(const Place& place, Int channel, Vec value, Int count) {
  const auto load = [&](int operand) {
    const auto i = static_cast<size_t>(operand);
    return LoadOperand(b_, group_.epilogue.operands[i], buffers_, packs_[i], place, channel, lanes_,
                       aligned_);
  };
  absl::StatusOr<Vec> result = EmitEpilogue(b_, group_.epilogue, buffers_, value, load);
  if (!result.ok()) {
    status_.Update(result.status());
    return;
  }
  // Without an epilogue, what weights of zeros give is 0.
  if (count.valid() && !group_.epilogue.empty()) *result = b_.KeepFirst(*result, count);
  const Vec stored = AsStored(b_, group_.ResultType(), *result);
  const Ptr address = b_.Buffer(buffers_.Output()) + place.At(stored.type);
  aligned_ ? b_.gpu().StoreAligned(address, stored) : b_.Store(address, stored);
}

int InPlaceOperand(const Group& group) {
  for (const EpilogueOperand& operand : group.epilogue.operands) {
    const bool read_early =
        std::find(group.inputs.begin(), group.inputs.end(), operand.input) != group.inputs.end();
    if (operand.kind == EpilogueOperand::kTensor && !read_early &&
        DataTypeBits(operand.type) == DataTypeBits(group.ResultType())) {
      return operand.input;
    }
  }
  return -1;
}

}  // namespace quench::codegen
