// Loops IR: how one op computes. Knows nothing of LLVM, graphs or files.
//
// A Function has buffers (parameters and scratch), 64-bit slots (the sizes of symbolic dims) and a
// body of statements over scalar expressions. Buffers are indexed *logically*, one index per dim; a
// layout chosen by the code generator decides the address. All nodes live in vectors and refer to
// one another by index.
//
// Semantics
//  * Integers wrap. Integer division and remainder by zero give 0; INT_MIN / -1 wraps. `kDiv` and
//    `kRem` truncate, `kFloorDiv` and `kFloorMod` floor. Shifts by >= width give 0 (arithmetic
//    right shift: the sign).
//  * Float -> integer casts saturate, NaN gives 0. Integer narrowing wraps. To bool: != 0.
//  * f16, bf16 and the f8 kinds are storage types: loads and stores of them are typed so, and
//    arithmetic happens in f32 (Builder widens operands and the lowering casts back). Casts round
//    to nearest even; a cast between a storage float and anything but f32 goes by way of f32. f8
//    overflow gives infinity (E5M2) or NaN (the others).
//  * kMin/kMax propagate NaN. Comparisons with NaN are false except kNe.
//  * kPow on integers wraps; a negative exponent gives the truncated reciprocal, which is 0 unless
//    the base is 1 or -1.
//  * An expression is evaluated where a statement uses it: a kLocal or kLoad gives the value of
//    that moment.
//  * Nodes may be shared (the expressions of a statement form a DAG): walk them with a memo.
//  * An index out of range is a defect of the lowering, except behind a kCheck.
//  * Locals start out undefined: they are set before they are read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/dtype.h"

namespace quench::loops {

using ExprId = int32_t;
using StmtId = int32_t;
using BufferId = int32_t;
using VarId = int32_t;    // loop index or let-bound immutable scalar
using LocalId = int32_t;  // mutable scalar
inline constexpr int32_t kNone = -1;

enum class ExprKind : uint8_t {
  kInt,     // `i`, of `type` (integer or bool)
  kFloat,   // `f`, of `type`
  kVar,     // `id`
  kLocal,   // current value of local `id`
  kSlot,    // i64 slot `id` (symbol id)
  kParam,   // operand `id` of a scalar function
  kLoad,    // buffer `id` at `args` (i64 indices, one per dim)
  kUnary,   // `unary` of args[0]
  kBinary,  // `binary` of args[0], args[1]; both of one type
  kSelect,  // args[0] ? args[1] : args[2]; both sides are evaluated
  kCast,    // args[0] to `type`
};

enum class UnaryOp : uint8_t {
  kNeg,
  kAbs,
  kNot,  // kNot: logical on bool, bitwise on integers
  kSqrt,
  kExp,
  kLog,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kLogistic,  // 1 / (1 + e^-x)
  kFloor,
  kCeil,
  kTrunc,
  kRoundEven,
  kIsNan,
  kIsInf,
};

enum class BinaryOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kRem,
  kFloorDiv,
  kFloorMod,
  kMin,
  kMax,
  kPow,
  kAnd,
  kOr,
  kXor,
  kShl,
  kShr,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,  // result is bool
};

std::string_view Name(UnaryOp op);   // "exp", "isnan", ...
std::string_view Name(BinaryOp op);  // "+", "min", "<", ...
bool IsComparison(BinaryOp op);      // result is bool

struct Expr {
  ExprKind kind = ExprKind::kInt;
  DataType type = DataType::kI64;
  UnaryOp unary = UnaryOp::kNeg;
  BinaryOp binary = BinaryOp::kAdd;
  int32_t id = kNone;
  int64_t i = 0;
  double f = 0;
  std::vector<ExprId> args = {};
};

enum class StmtKind : uint8_t {
  kFor,      // for var `id` in [args[0], args[1]) step 1: body
  kWhile,    // while args[0]: body
  kIf,       // if args[0]: body else: otherwise
  kLet,      // var `id` = args[0]
  kSet,      // local `id` = args[0]
  kStore,    // buffer `id` at args[1..] = args[0]
  kSetSlot,  // slot `id` = args[0] (i64): sizes functions only
  kCheck,    // unless args[0] (bool) holds, the run fails with `message`
};

// Knowledge about the iterations of a loop.
enum class LoopMark : uint8_t {
  kSerial,
  kParallel,  // independent: any order, any number at once
  kReduce,  // each iteration does `local = local (op) expr` on the locals in `reductions`, nothing
            // else leaves it; f32 sums of many terms go in blocks (long_sums.h)
};

struct Reduction {
  LocalId local = kNone;
  BinaryOp op = BinaryOp::kAdd;  // kAdd kMul kMin kMax kAnd kOr
};

struct Stmt {
  StmtKind kind = StmtKind::kFor;
  int32_t id = kNone;
  LoopMark mark = LoopMark::kSerial;
  std::vector<Reduction> reductions = {};
  std::vector<ExprId> args = {};
  std::vector<StmtId> body = {};
  std::vector<StmtId> otherwise = {};
  std::string message = {};
};

enum class BufferRole : uint8_t { kInput, kOutput, kScratch };
// How long the contents of scratch live: one iteration of the outermost parallel loop, or the whole
// function.
enum class ScratchScope : uint8_t { kIteration, kFunction };

struct Buffer {
  std::string name;
  DataType dtype = DataType::kF32;
  BufferRole role = BufferRole::kInput;
  ScratchScope scope = ScratchScope::kFunction;
  std::vector<ExprId> dims;  // i64 expressions over constants and slots
};

struct Local {
  std::string name;
  DataType type = DataType::kF32;
};

struct Function {
  std::string name;
  // inputs in operand order (present ones), then outputs, then scratch
  std::vector<Buffer> buffers;
  std::vector<Local> locals;
  std::vector<std::string> vars;  // names, by VarId
  std::vector<Expr> exprs;
  std::vector<Stmt> stmts;
  std::vector<StmtId> body;
};

inline Stmt& At(Function& f, StmtId id) { return f.stmts[static_cast<size_t>(id)]; }
inline const Stmt& At(const Function& f, StmtId id) { return f.stmts[static_cast<size_t>(id)]; }

// One scalar result from scalar operands: what a pointwise op computes. Expressions use kParam
// leaves (index = operand) and no loads; `param_types` are the operands' types after widening.
struct ScalarFunction {
  std::vector<DataType> param_types;
  std::vector<Expr> exprs;
  ExprId result = kNone;
};

// Type in which arithmetic on a storage type happens: f32 for f16, bf16, f8 and f4; itself
// otherwise.
DataType ComputeType(DataType storage);

// Indented pseudo-code, one statement a line; stable (golden files).
std::string Print(const Function& function);
std::string Print(const ScalarFunction& function);

// Structure: every id in range, argument counts and types as the comments above say, variables
// defined before use, reduce and parallel marks truthful in form. Empty string when fine, else the
// first defect.
//  * An expression's arguments have smaller ids than it; every statement appears at most once.
//  * Storage floats (f16, bf16, f8, f4) appear only as the type of a kLoad or a kCast.
//  * A loop marked kReduce or kParallel contains no kSetSlot, kReduce no kStore either. Every other
//  local it
//    sets is private: set unconditionally before it is read, and not read outside the loop.
std::string Verify(const Function& function);
// The same for a scalar function: no loads, variables, locals or slots; params in range and of
// their types.
std::string Verify(const ScalarFunction& function);

}  // namespace quench::loops
