// Products of bytes: ConvInteger and MatMulInteger as the kernels look at them.
#pragma once

#include <optional>
#include <string>

#include "services/codegen/kernels/epilogue.h"

namespace quench::codegen {

// x is i8 or u8 with one zero point, w a constant i8 around 0. Kernels add up w x', where
// x' is x as the form of multiplication wants it, starting from
//   bias[c] - (zero + shift) * (sum of all w of channel c),   x' = x + shift,
// which is what the pack `byte_sums` holds. Zero points may so lie in borders. Where the zero point is
// one of each run, a second pack holds the sums that it is multiplied by.
struct ByteRoot {
  DataType input = DataType::kI8;
  int64_t zero = 0;
  int zero_input = -1;  // of the root, where the zero point is one of each run; `zero` is 0 then
  BytesForm form = BytesForm::kSigned;
  bool flip = false;        // x' is x with the highest bit changed: i8 to u8 or back
  int bias_operand = -1;    // of the epilogue: an i32 constant per channel, taken out of it
  double weight_reach = 0;  // largest sum of |w| of a channel, times the largest |x - zero|
  int64_t shift() const { return !flip ? 0 : input == DataType::kU8 ? -128 : 128; }
  // "u8 in pairs": for reports and identities.
  std::string ToString() const;
  // As Candidate.slow.
  std::string Slow() const;
};

// Nothing when the root's operands are not such. `channel_axis` is that of the weights. Takes an
// addition of constants to the sums out of the epilogue.
std::optional<ByteRoot> ReadByteRoot(const KernelRequest& request, int channel_axis, Group& group);

// Appends the packs that sums start from: one, or two where the zero point is one of each run.
// Declares zero points packed that are constants.
void AddByteSums(const KernelRequest& request, const Group& group, const ByteRoot& root,
                 int channel_axis, int64_t channels, int64_t padded, Candidate& candidate);
// The bias alone, for kernels that see x less its zero point.
PackSpec ByteBias(const KernelRequest& request, const Group& group, const ByteRoot& root,
                  int channel_axis, int64_t channels, int64_t padded);

// A zero point of this run, as i32 numbers.
struct RunZero {
  Vec value;    // invalid: the zero point is a constant
  Vec pattern;  // its byte, four times
};
RunZero LoadRunZero(VectorBuilder& b, const Group& group, const ByteRoot& root,
                    const BufferMap& buffers);

// Instructions that one AddProducts takes for a vector, beside one multiply-add of floats.
double ProductsCost(BytesForm form);
// Registers that it needs beside sums, one input and the weights.
int SpareRegisters(BytesForm form);

}  // namespace quench::codegen
