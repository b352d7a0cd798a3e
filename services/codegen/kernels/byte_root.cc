#include "services/codegen/kernels/byte_root.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "common/ops/op.h"

namespace quench::codegen {
namespace {

const Tensor* ConstantTensor(const KernelRequest& request, const Group& group, int i) {
  const Constant* constant = ConstantInput(request, group, i);
  if (constant != nullptr) return &constant->tensor;
  // A number that fusion has put into the body.
  const ValueId id = group.root->inputs[static_cast<size_t>(i)];
  const auto& inside = group.graph->value(id).constant;
  return inside == nullptr ? nullptr : &inside->tensor;
}

// Zero points of root input i: present, all equal and constant, or none.
std::optional<int64_t> ZeroOf(const KernelRequest& request, const Group& group, int i) {
  if (i >= static_cast<int>(group.root->inputs.size()) ||
      group.root->inputs[static_cast<size_t>(i)] == quench::kNone) {
    return 0;
  }
  const Tensor* zero = ConstantTensor(request, group, i);
  return zero == nullptr ? std::nullopt : ops::UniformZero(zero);
}

// Whether root input i is a tensor of one element that is computed while running.
bool IsNumberOfRun(const KernelRequest& request, const Group& group, int i) {
  if (!group.HasInput(i) || ConstantInput(request, group, i) != nullptr) return false;
  const Type& type = group.InputType(i);
  return type.ranked &&
         std::all_of(type.dims.begin(), type.dims.end(), [](Dim dim) { return dim.is(1); });
}

// Root input i as the zero point of a side.
bool ReadZero(const KernelRequest& request, const Group& group, int i, ByteSide& side) {
  const std::optional<int64_t> zero = ZeroOf(request, group, i);
  if (!zero && !IsNumberOfRun(request, group, i)) return false;
  side.zero = zero.value_or(0);
  if (!zero) side.zero_input = i;
  return true;
}

// What the forms ask of weights.
struct WeightBounds {
  int64_t least = 0;
  // Largest sums of one sign of neighbours along the axis that is summed over.
  int64_t positive_pair = 0, negative_pair = 0;
  int64_t largest_sum = 0;  // of |w| of a channel
};

int64_t ElementsAfter(const Tensor& tensor, size_t axis) {
  int64_t inner = 1;
  for (size_t i = axis + 1; i < tensor.dims().size(); ++i) inner *= tensor.dims()[i];
  return inner;
}

// Convolutions have [channels][summed][taps], products [summed][channels].
WeightBounds BoundsOf(const Tensor& weights, int64_t zero, int channel_axis) {
  const size_t summed_axis = channel_axis == 0 ? 1 : 0;
  const int64_t inner = ElementsAfter(weights, static_cast<size_t>(channel_axis));
  const int64_t step = ElementsAfter(weights, summed_axis);
  const int64_t summed = weights.dims()[summed_axis];
  std::vector<int64_t> sums(static_cast<size_t>(weights.dims()[static_cast<size_t>(channel_axis)]));
  const bool centred = weights.dtype() == DataType::kI8 && zero == 0;
  const auto part = [&](int64_t i) {
    return centred ? int64_t{weights.as<int8_t>()[static_cast<size_t>(i)]}
                   : ops::NearPart(weights.IntAt(i) - zero);
  };
  WeightBounds bounds;
  for (int64_t i = 0; i < weights.size(); ++i) {
    const int64_t w = part(i);
    sums[static_cast<size_t>(i / inner) % sums.size()] +=
        std::abs(centred ? w : weights.IntAt(i) - zero);
    bounds.least = std::min(bounds.least, w);
    const bool last = i / step % summed == summed - 1;
    const int64_t next = last ? 0 : part(i + step);
    bounds.positive_pair =
        std::max(bounds.positive_pair, std::max<int64_t>(w, 0) + std::max<int64_t>(next, 0));
    bounds.negative_pair =
        std::min(bounds.negative_pair, std::min<int64_t>(w, 0) + std::min<int64_t>(next, 0));
  }
  if (!sums.empty()) bounds.largest_sum = *std::max_element(sums.begin(), sums.end());
  return bounds;
}

// The fastest that is exact for any bytes.
BytesForm FormOfComputed(const Target& target) {
  if (!target.add_products_u8.empty()) return BytesForm::kUnsigned;
  if (!target.add_products_i8.empty() || target.add_pairs_of_words.empty())
    return BytesForm::kSigned;
  return BytesForm::kWords;
}

// The fastest that is exact for these weights.
BytesForm ChooseForm(const Target& target, const WeightBounds& bounds) {
  if (!target.add_products_u8.empty()) return BytesForm::kUnsigned;
  if (!target.add_products_i8.empty() || target.add_pairs_of_bytes.empty())
    return BytesForm::kSigned;
  constexpr int64_t kMost = 255;
  if (bounds.positive_pair * kMost <= std::numeric_limits<int16_t>::max() &&
      bounds.negative_pair * kMost >= std::numeric_limits<int16_t>::min()) {
    return BytesForm::kPairs;
  }
  return bounds.least > -128 ? BytesForm::kMagnitudes : BytesForm::kSigned;
}

bool WantsUnsigned(BytesForm form) {
  return form == BytesForm::kUnsigned || form == BytesForm::kPairs || form == BytesForm::kWords;
}

bool IsByte(DataType type) { return type == DataType::kI8 || type == DataType::kU8; }

// The first step, if it adds an i32 constant to the sums that nothing else reads.
void TakeBias(Group& group, ByteRoot& root) {
  Epilogue& epilogue = group.epilogue;
  if (epilogue.empty() || group.graph->nodes.size() < 2 || group.graph->nodes[1].op != "Add")
    return;
  const EpilogueStep& first = epilogue.steps[0];
  if (first.type != DataType::kI32 || first.args.size() != 2) return;
  const bool left = first.args[0] == -1;
  const int operand = first.args[left ? 1 : 0];
  if ((!left && first.args[1] != -1) || operand < 0) return;
  const EpilogueOperand::Kind kind = epilogue.operands[static_cast<size_t>(operand)].kind;
  if (kind != EpilogueOperand::kChannels && kind != EpilogueOperand::kScalar) return;
  for (size_t i = 1; i < epilogue.steps.size(); ++i) {
    for (const int arg : epilogue.steps[i].args) {
      if (arg == -1 || arg == operand) return;
    }
  }
  epilogue.steps.erase(epilogue.steps.begin());
  for (EpilogueStep& step : epilogue.steps) {
    for (int& arg : step.args) arg += arg < 0 ? 1 : 0;
  }
  epilogue.operands[static_cast<size_t>(operand)].kind = EpilogueOperand::kTaken;
  root.bias_operand = operand;
}

}  // namespace

std::string ByteRoot::ToString() const {
  static constexpr const char* kForms[] = {"products", "signed products", "pairs", "magnitudes",
                                           "words"};
  const auto name = [](const ByteSide& side) {
    return fmt::format("{}{}", DataTypeName(side.type), side.flip ? " shifted" : "");
  };
  return fmt::format("{}{} by {}", name(x), w ? " and " + name(*w) : "",
                     kForms[static_cast<size_t>(form)]);
}

std::string ByteRoot::Slow() const {
  if (form == BytesForm::kMagnitudes)
    return "by magnitudes: the CPU's products of pairs would overflow with its weights";
  if (form == BytesForm::kWords)
    return "by words: the CPU's products of pairs of bytes could overflow";
  return "";
}

std::optional<ByteRoot> ReadByteRoot(const KernelRequest& request, int channel_axis, Group& group) {
  if (!group.HasInput(0) || !group.HasInput(1) || group.OutputType().dtype != DataType::kI32)
    return std::nullopt;
  ByteRoot root;
  root.x.type = group.InputType(0).dtype;
  const Constant* weights = ConstantInput(request, group, 1);
  if (!IsByte(root.x.type) || weights == nullptr || !IsByte(weights->tensor.dtype()) ||
      weights->tensor.rank() <= channel_axis || ConstantInput(request, group, 0) != nullptr) {
    return std::nullopt;
  }
  const std::optional<int64_t> w_zero = ZeroOf(request, group, 3);
  if (!ReadZero(request, group, 2, root.x) || !w_zero) return std::nullopt;
  root.w_zero = *w_zero;
  if (weights->tensor.dtype() != DataType::kI8 || root.w_zero != 0) {
    if (channel_axis != 0) return std::nullopt;
    root.twice = ops::WordsOfTwoParts(weights->tensor, root.w_zero);
  }
  const WeightBounds bounds = BoundsOf(weights->tensor, root.w_zero, channel_axis);
  root.form = ChooseForm(request.target, bounds);
  root.x.flip = WantsUnsigned(root.form) != (root.x.type == DataType::kU8);
  const int64_t low = root.x.type == DataType::kI8 ? -128 : 0, zero = root.x.zero;
  const bool known = root.x.zero_input < 0;
  root.weight_reach = static_cast<double>(bounds.largest_sum) *
                      static_cast<double>(known ? std::max(low + 255 - zero, zero - low) : 255);
  TakeBias(group, root);
  return root;
}

std::optional<ByteRoot> ReadComputedBytes(const KernelRequest& request, const Group& group) {
  if (!group.HasInput(0) || !group.HasInput(1) || group.OutputType().dtype != DataType::kI32)
    return std::nullopt;
  ByteRoot root;
  root.x.type = group.InputType(0).dtype;
  root.w = ByteSide{group.InputType(1).dtype};
  if (!IsByte(root.x.type) || !IsByte(root.w->type) ||
      ConstantInput(request, group, 1) != nullptr || !ReadZero(request, group, 2, root.x) ||
      !ReadZero(request, group, 3, *root.w)) {
    return std::nullopt;
  }
  root.form = FormOfComputed(request.target);
  root.x.flip = WantsUnsigned(root.form) != (root.x.type == DataType::kU8);
  root.w->flip = (root.form == BytesForm::kWords) != (root.w->type == DataType::kU8);
  return root;
}

PackSpec ByteBias(const KernelRequest& request, const Group& group, const ByteRoot& root,
                  int channel_axis, int64_t channels, int64_t padded) {
  PackSpec spec{"byte_sums",
                {{"axis", channel_axis},
                 {"channels", channels},
                 {"padded", padded},
                 {"factor", 0},
                 {"zero", root.w_zero}},
                {request.node.inputs[static_cast<size_t>(group.inputs[1])]}};
  if (root.bias_operand >= 0) {
    const EpilogueOperand& bias = group.epilogue.operands[static_cast<size_t>(root.bias_operand)];
    spec.sources.push_back(request.node.inputs[static_cast<size_t>(bias.input)]);
  }
  return spec;
}

void AddByteSums(const KernelRequest& request, const Group& group, const ByteRoot& root,
                 int channel_axis, int64_t channels, int64_t padded, Candidate& candidate) {
  PackSpec sums = ByteBias(request, group, root, channel_axis, channels, padded);
  sums.params["factor"] = -(root.x.zero + root.x.shift());
  candidate.packs.push_back(sums);
  if (root.x.zero_input >= 0) {
    sums.params["factor"] = -1;
    sums.sources.resize(1);
    candidate.packs.push_back(sums);
  }
  PackZeros(group, root, candidate);
}

void PackZeros(const Group& group, const ByteRoot& root, Candidate& candidate) {
  for (const int i : {2, 3}) {
    if (group.HasInput(i) && i != root.x.zero_input && !(root.w && i == root.w->zero_input))
      candidate.packed[static_cast<size_t>(group.inputs[static_cast<size_t>(i)])] = true;
  }
}

RunZero LoadRunZero(VectorBuilder& b, const Group& group, const ByteSide& side,
                    const BufferMap& buffers) {
  if (side.zero_input < 0) return {};
  const Ptr zero = b.Buffer(buffers.Input(group.inputs[static_cast<size_t>(side.zero_input)]));
  const Vec byte = b.ToI32(b.Load(zero, 1, DataType::kU8));
  return {b.ToI32(b.Load(zero, 1, side.type)),
          b.Apply(VecOp::kMul, byte, b.Constant(DataType::kI32, 0x01010101, 1))};
}

double ProductsCost(BytesForm form) {
  switch (form) {
    case BytesForm::kUnsigned:
      return 1;
    case BytesForm::kPairs:
      return 2;  // additions have ports of their own
    case BytesForm::kMagnitudes:
      return 2.6;
    case BytesForm::kSigned:
      return 1;
    case BytesForm::kWords:
      return 1;  // twice, for k counts twice as many words
  }
  return 1;
}

int SpareRegisters(BytesForm form) {
  switch (form) {
    case BytesForm::kUnsigned:
      return 0;
    case BytesForm::kPairs:
      return 2;  // the products, and ones to add pairs with
    case BytesForm::kMagnitudes:
      return 3;  // and the magnitude
    case BytesForm::kSigned:
      return 2;
    case BytesForm::kWords:
      return 1;  // the products
  }
  return 0;
}

}  // namespace quench::codegen
