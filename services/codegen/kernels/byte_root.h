// Products of bytes: ConvInteger and MatMulInteger as the kernels look at them.
#pragma once

#include <optional>
#include <string>

#include "common/base/fields.h"
#include "common/ops/byte_weights.h"
#include "services/codegen/forms/any_form.h"
#include "services/codegen/kernels/epilogue.h"

namespace quench::codegen {

// One side of the products: i8 or u8 minus one zero point.
struct ByteSide {
  DataType type = DataType::kI8;
  int64_t zero = 0;
  int zero_input = -1;  // of the root, where the zero point is one of each run; `zero` is 0 then
  bool flip = false;    // the highest bit is changed first: i8 to u8 or back
  friend bool operator==(const ByteSide&, const ByteSide&) = default;
  QUENCH_FIELDS(type, zero, zero_input, flip)
  // The change of the value by that flip.
  int64_t shift() const { return !flip ? 0 : type == DataType::kU8 ? -128 : 128; }
};

// The right side is constant, or computed like the left one. Constants are i8 around 0. Convolution
// weights may have any zero point; w is then the weight minus its zero point, split into two bytes
// if the difference does not fit in one (see common/ops/byte_weights.h). Kernels add up w' x',
// where x' = x + shift is x as the form of multiplication needs it, starting from
//   bias[c] - (zero + shift) * (sum of all w of channel c),
// which the pack `byte_sums` contains. So borders may hold zero points. If the zero point is known
// only at run time, a second pack contains the sums that it is multiplied by. A computed right side
// has no packs (see BytePanel).
struct ByteRoot {
  ByteSide x;
  std::optional<ByteSide> w;  // where it is computed
  int64_t w_zero = 0;         // of constants
  // Words of constants that are multiplied twice. Nothing where two bytes do not hold them either, or
  // there are too many: kernels that make floats of them take them all the same.
  std::optional<std::vector<ops::WeightWord>> twice = std::vector<ops::WeightWord>();
  int bias_operand = -1;    // of the epilogue: an i32 constant per channel, taken out of it
  double weight_reach = 0;  // of constants: largest sum of |w| of a channel, times the largest
                            // |x - zero|
  friend bool operator==(const ByteRoot&, const ByteRoot&) = default;
  QUENCH_FIELDS(x, w, w_zero, twice, bias_operand, weight_reach)
  // "u8 shifted and i8": for reports.
  std::string ToString() const;
};
// The operands with the form that multiplies them.
struct ByteProducts {
  ByteRoot root;
  AnyForm form;
};

// Nothing when the root's operands are not such. `channel_axis` is that of the weights; where it is 0
// these are a convolution's. Takes an addition of constants to the sums out of the epilogue.
std::optional<ByteProducts> ReadByteRoot(const KernelRequest& request, int channel_axis,
                                         Group& group);
// The same for a right side that is computed: the form is a ByteForm.
std::optional<ByteProducts> ReadComputedBytes(const KernelRequest& request, const Group& group);
// The same products in matrix registers, where the target has them and they hold these operands.
std::optional<ByteProducts> MatricesOf(const KernelRequest& request, const ByteProducts& products,
                                       DataType w_type);
// The form and its operands, for reports: "u8 by pairs, ", or nothing for f32.
std::string DescribeForm(const std::optional<ByteRoot>& bytes, const Form& form);

// Appends the packs that sums start from: one, or two where the zero point is one of each run.
// Declares zero points packed that are constants.
void AddByteSums(const Group& group, const ByteRoot& root, int channel_axis, int64_t channels,
                 int64_t padded, Candidate& candidate);
// The bias alone, for kernels that see x minus its zero point.
PackSpec ByteBias(const Group& group, const ByteRoot& root, int channel_axis, int64_t channels,
                  int64_t padded);
// Declares zero points packed that are constants.
void PackZeros(const Group& group, const ByteRoot& root, Candidate& candidate);

// A zero point of this run, as i32 numbers.
struct RunZero {
  Vec value;    // invalid: the zero point is a constant
  Vec pattern;  // its byte, four times
};
RunZero LoadRunZero(VectorBuilder& b, const Group& group, const ByteSide& side,
                    const BufferMap& buffers);

}  // namespace quench::codegen
