// The interpreter's program: straight code with relative jumps over two register files.
//
// Scalar registers are 8 bytes each and hold one element. Lane registers hold kLanes elements: a
// loop whose iterations are independent runs up to kLanes of them at once, every instruction of its
// body on all of them. Operands are byte offsets into the file that the instruction's comment
// names: s (scalar) or v (lanes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/loops/lane_ops.h"

namespace quench::loops {

inline constexpr int64_t kLanes = 128;
inline constexpr int32_t kScalarBytes = 8;
inline constexpr int32_t kLaneBytes = static_cast<int32_t>(kLanes) * 8;
inline constexpr int32_t kNoMask = -1;

enum class Op : uint8_t {
  kEnd,
#define INSTRUCTION(name) k##name,
#include "common/loops/instructions.def"
#undef INSTRUCTION
};

struct Instr {
  Op op = Op::kEnd;
  int32_t d = 0;
  int32_t a = 0;
  int32_t b = 0;
  int32_t c = 0;
  int32_t jump = 0;  // relative to this instruction
  int64_t imm = 0;
  int64_t imm2 = 0;
  std::byte* memory = nullptr;
  union {
    UnaryFn unary;
    BinaryFn binary;
    SelectFn select;
    LoadFn load;
    StoreFn store;
    GatherFn gather;
    ScatterFn scatter;
    FoldFn fold;
  } fn = {nullptr};
};

// Message of a failing kBound or kCheck.
struct Trap {
  bool bound = false;
  int64_t limit = 0;  // bound: the size of the dim
  int32_t dim = 0;
  std::string text;  // bound: the buffer's name; check: the message
};

struct Program {
  std::vector<Instr> code;
  std::vector<uint64_t> scalars;  // initial contents of the scalar registers
  int32_t lane_registers = 0;
  std::vector<Trap> traps;
};

}  // namespace quench::loops
