// What the interpreter executes: straight code with relative jumps over two register files.
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
  // Control
  kLoop,         // s[d] = s[a]; unless s[d] < s[b], jump
  kNext,         // if ++s[d] < s[b], jump; costs imm
  kLanesLoop,    // as kLoop; n = min(kLanes, s[b] - s[d])
  kLanesNext,    // as kNext, in steps of kLanes
  kJump,         // jump; costs imm
  kJumpIfFalse,  // unless s[a] (bool), jump
  kJumpIfNone,   // unless any lane of v[a] (bool), jump
  // Scalars
  kUnary,        // s[d] = fn(s[a])
  kBinary,       // s[d] = fn(s[a], s[b])
  kSelect,       // s[d] = fn(s[c], s[a], s[b])
  kMove,         // s[d] = s[a], 8 bytes
  kMulAddIndex,  // s[d] = s[a] + s[b] * imm (i64)
  kAddI64,
  kSubI64,
  kMulI64,  // s[d] = s[a] op s[b]
  kAddF32,
  kSubF32,
  kMulF32,
  kDivF32,
  kMulAddF32,  // kMulAddF32: s[d] = s[c] + s[a] * s[b], rounded twice
  kLtI64,      // s[d] = s[a] < s[b] (bool)
  kLoad4,
  kLoad8,  // s[d] = memory[s[a] + s[b] * imm + imm2]
  kLoad,   // the same, through fn
  kStore4,
  kStore8,  // memory[s[a] + s[b] * imm + imm2] = s[d]
  kStore,
  kBound,    // fails unless 0 <= s[a] + s[b] * imm + imm2 < limit of check c
  kCheck,    // fails with check c unless s[a] (bool)
  kGetSlot,  // s[d] = slot imm
  kSetSlot,  // slot imm = s[a]
  // Lanes
  kLaneUnary,    // v[d] = fn(v[a])
  kLaneBinary,   // v[d] = fn(v[a], v[b])
  kLaneSelect,   // v[d] = fn(v[c], v[a], v[b])
  kSplat,        // v[d] = s[a] everywhere
  kIota,         // v[d] = s[a] + lane (i64)
  kLaneAffine,   // v[d] = s[a] + imm2 + v[b] * imm (i64)
  kLaneMulAdd,   // v[d] = v[a] + v[b] * imm (i64)
  kLaneLoad,     // v[d] = memory[s[a] + imm2 + lane * imm]
  kClampedLoad,  // v[d] = memory[s[a] + imm2 + imm * clamp(x)], for lanes where v[b] (bool) or all;
                 // the next instruction says x = s[a] + imm2 + lane * imm, clamped to s[b] .. s[c]
  kData,         // belongs to the instruction before
  kLaneCompare,  // v[d] = (s[a] + imm2 + lane * imm) <=> 0; c: the BinaryOp
  kLaneStore,    // memory[s[a] + imm2 + lane * imm] = v[d]
  kGather,       // v[d] = memory[v[a]] where v[c] (bool) or everywhere
  kScatter,      // memory[v[a]] = v[d] where v[c] or everywhere
  kLaneFold,     // s[d] = fn(s[d], v[a])
  kLaneBound,    // kBound of s[a] + imm2 + lane * imm, for lanes where v[b] (bool) or all
  kGatherBound,  // kBound of v[a], for lanes where v[b] or all
  kLaneCheck,    // kCheck of v[a], for lanes where v[b] or all
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

// What a failing kBound or kCheck says.
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
