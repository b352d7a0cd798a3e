#include "services/codegen/kernels/byte_root.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "common/ops/op.h"
#include "services/codegen/forms/picked_pairs.h"

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

// Bounds of weights that decide between the byte forms.
struct WeightBounds {
  int64_t least = 0;
  // Largest sums of one sign of neighbours along the axis that is summed over.
  int64_t positive_pair = 0, negative_pair = 0;
  int64_t neighbours = 0, conflicts = 0;  // pairs of them, and those that could saturate
  int64_t largest_sum = 0;                // of |w| of a channel
};

// Convolutions have [channels][summed][taps], products [summed][channels].
template <typename Byte>
WeightBounds BoundsOf(std::span<const Byte> weights, std::span<const int64_t> dims, int32_t zero,
                      int channel_axis) {
  const bool centred = std::is_same_v<Byte, int8_t> && zero == 0;
  const bool product = channel_axis != 0;
  const auto channels = static_cast<size_t>(dims[product ? 1 : 0]);
  const auto summed = static_cast<size_t>(dims[product ? 0 : 1]);
  const size_t outer = product ? 1 : channels, step = weights.size() / outer / summed;
  const auto part = [&](size_t i) {
    const int32_t w = weights[i] - zero;
    return centred ? w : static_cast<int32_t>(ops::NearPart(w));
  };
  std::vector<int64_t> sums(channels);
  int32_t least = 0, positive_pair = 0, negative_pair = 0;
  WeightBounds bounds;
  for (size_t o = 0; o < outer; ++o) {
    for (size_t k = 0; k < summed; ++k) {
      for (size_t i = 0; i < step; ++i) {
        const size_t at = (o * summed + k) * step + i;
        const int32_t w = part(at), next = k + 1 < summed ? part(at + step) : 0;
        sums[product ? i : o] += std::abs(weights[at] - zero);
        const int32_t positive = std::max(w, 0) + std::max(next, 0);
        const int32_t negative = std::min(w, 0) + std::min(next, 0);
        least = std::min(least, w);
        positive_pair = std::max(positive_pair, positive);
        negative_pair = std::min(negative_pair, negative);
        if (std::max(positive, -negative) > kPairMost) ++bounds.conflicts;
      }
    }
  }
  bounds.least = least;
  bounds.positive_pair = positive_pair;
  bounds.negative_pair = negative_pair;
  bounds.neighbours = static_cast<int64_t>(weights.size());
  bounds.largest_sum = *std::max_element(sums.begin(), sums.end());
  return bounds;
}

WeightBounds BoundsOf(const Tensor& weights, int64_t zero, int channel_axis) {
  if (weights.size() == 0) return {};
  const auto number = static_cast<int32_t>(zero);
  return weights.dtype() == DataType::kI8
             ? BoundsOf(weights.as<int8_t>(), weights.dims(), number, channel_axis)
             : BoundsOf(weights.as<uint8_t>(), weights.dims(), number, channel_axis);
}

// The fastest that is exact for any bytes.
BytesForm ProductsOfComputed(const Target& target) {
  if (!target.add_products_u8.empty()) return BytesForm::kUnsigned;
  if (!target.add_products_i8.empty() || target.add_pairs_of_words.empty())
    return BytesForm::kSigned;
  return BytesForm::kWords;
}

// Largest panel whose bytes are picked. With more than one conflict between two neighbours over all
// channels, a group has too few orders in which no pair saturates, and the entries left over cost
// more than picking saves.
int MostPickedVectors(const Target& target, const WeightBounds& bounds) {
  constexpr int64_t kMost = 8;
  const int64_t per_vector = bounds.conflicts * target.f32_lanes();
  return static_cast<int>(per_vector == 0 ? kMost
                                          : std::min(kMost, bounds.neighbours / per_vector));
}

// The fastest that is exact for these weights.
BytesForm ChooseProducts(const Target& target, const WeightBounds& bounds) {
  if (!target.add_products_u8.empty()) return BytesForm::kUnsigned;
  if (!target.add_products_i8.empty() || target.add_pairs_of_bytes.empty())
    return BytesForm::kSigned;
  if (std::max(bounds.positive_pair, -bounds.negative_pair) <= kPairMost) return BytesForm::kPairs;
  if (!target.pick_of_16.empty() && MostPickedVectors(target, bounds) > 0)
    return BytesForm::kPicked;
  return bounds.least > -128 ? BytesForm::kMagnitudes : BytesForm::kSigned;
}

bool WantsUnsigned(BytesForm form) {
  return form == BytesForm::kUnsigned || form == BytesForm::kPairs || form == BytesForm::kPicked ||
         form == BytesForm::kWords;
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
  const auto name = [](const ByteSide& side) {
    return fmt::format("{}{}", DataTypeName(side.type), side.flip ? " shifted" : "");
  };
  return name(x) + (w ? " and " + name(*w) : "");
}

std::string DescribeForm(const std::optional<ByteRoot>& bytes, const Form& form) {
  const std::string text = form.ToString();
  if (bytes) return fmt::format("{} {}, ", bytes->ToString(), text);
  return text.empty() ? "" : text + ", ";
}

std::optional<ByteProducts> ReadByteRoot(const KernelRequest& request, int channel_axis,
                                         Group& group) {
  if (!group.HasInput(0) || !group.HasInput(1) || group.OutputType().dtype != DataType::kI32)
    return std::nullopt;
  ByteRoot root;
  root.x.type = group.InputType(0).dtype;
  const std::shared_ptr<const Constant> weights =
      request.graph.value(request.node.inputs[static_cast<size_t>(group.inputs[1])]).constant;
  if (!IsByte(root.x.type) || weights == nullptr || !IsByte(weights->tensor.dtype()) ||
      weights->tensor.rank() <= channel_axis ||
      (channel_axis != 0 && weights->tensor.rank() != 2) ||
      ConstantInput(request, group, 0) != nullptr) {
    return std::nullopt;
  }
  const std::optional<int64_t> w_zero = ZeroOf(request, group, 3);
  if (!ReadZero(request, group, 2, root.x) || !w_zero) return std::nullopt;
  root.w_zero = *w_zero;
  const bool centred = weights->tensor.dtype() == DataType::kI8 && root.w_zero == 0;
  if (!centred && channel_axis != 0) return std::nullopt;
  const WeightBounds bounds = BoundsOf(weights->tensor, root.w_zero, channel_axis);
  const BytesForm products = ChooseProducts(request.target, bounds);
  AnyForm form = ByteForm(products);
  if (products == BytesForm::kPicked) form = PickedForm(MostPickedVectors(request.target, bounds));
  if (!centred && products != BytesForm::kPicked) {
    root.twice = ops::WordsOfTwoParts(weights->tensor, root.w_zero);
    if (!root.twice && products == BytesForm::kPairs && !request.target.pick_of_16.empty()) {
      form = PickedForm();
      root.twice.emplace();
    }
  }
  root.x.flip = WantsUnsigned(products) != (root.x.type == DataType::kU8);
  const int64_t low = root.x.type == DataType::kI8 ? -128 : 0, zero = root.x.zero;
  const bool known = root.x.zero_input < 0;
  root.weight_reach = static_cast<double>(bounds.largest_sum) *
                      static_cast<double>(known ? std::max(low + 255 - zero, zero - low) : 255);
  TakeBias(group, root);
  return ByteProducts{root, form};
}

std::optional<ByteProducts> ReadComputedBytes(const KernelRequest& request, const Group& group) {
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
  const BytesForm products = ProductsOfComputed(request.target);
  root.x.flip = WantsUnsigned(products) != (root.x.type == DataType::kU8);
  root.w->flip = (products == BytesForm::kWords) != (root.w->type == DataType::kU8);
  return ByteProducts{root, ByteForm(products)};
}

std::optional<ByteProducts> MatricesOf(const KernelRequest& request, const ByteProducts& products,
                                       DataType w_type) {
  const MatrixUnit& unit = request.target.matrices;
  ByteProducts matrices = products;
  ByteRoot& root = matrices.root;
  const bool is_signed = root.x.type == DataType::kI8;
  if ((is_signed ? unit.signed_bytes : unit.unsigned_bytes).empty() || root.w || !root.twice ||
      !root.twice->empty()) {
    return std::nullopt;
  }
  // Only picks hold all differences from a zero point.
  const bool centred = w_type == DataType::kI8 && root.w_zero == 0;
  if (!centred && products.form.As<PickedForm>() != nullptr) return std::nullopt;
  root.x.flip = false;
  matrices.form = MatrixForm(is_signed ? MatrixProducts::kSigned : MatrixProducts::kUnsigned);
  return matrices;
}

PackSpec ByteBias(const Group& group, const ByteRoot& root, int channel_axis, int64_t channels,
                  int64_t padded) {
  PackSpec spec{"byte_sums",
                {{"axis", channel_axis},
                 {"channels", channels},
                 {"padded", padded},
                 {"factor", 0},
                 {"zero", root.w_zero}},
                {group.inputs[1]}};
  if (root.bias_operand >= 0) {
    const EpilogueOperand& bias = group.epilogue.operands[static_cast<size_t>(root.bias_operand)];
    spec.inputs.push_back(bias.input);
  }
  return spec;
}

void AddByteSums(const Group& group, const ByteRoot& root, int channel_axis, int64_t channels,
                 int64_t padded, Candidate& candidate) {
  PackSpec sums = ByteBias(group, root, channel_axis, channels, padded);
  sums.params["factor"] = -(root.x.zero + root.x.shift());
  candidate.packs.push_back(sums);
  if (root.x.zero_input >= 0) {
    sums.params["factor"] = -1;
    sums.inputs.resize(1);
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

}  // namespace quench::codegen
