// The interpreter's arithmetic: for every operation and type a function on one element and one on
// `n` elements.
//
// A register holds elements of the C++ type of its scalar type: bool, int8_t .. uint64_t, float,
// double. Values of storage float types (f16, bf16, f8) live in registers as the float they stand
// for: loads decode, casts round, stores encode. `many` functions take densely packed elements;
// results may coincide with an operand exactly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/loops/loops.h"

namespace quench::loops {

using UnaryFn = void (*)(void* d, const void* a, int64_t n);
using BinaryFn = void (*)(void* d, const void* a, const void* b, int64_t n);
using SelectFn = void (*)(void* d, const void* condition, const void* a, const void* b, int64_t n);
// acc = acc (op) a[0] (op) a[1] ..., in this order.
using FoldFn = void (*)(void* acc, const void* a, int64_t n);
// d[i] = memory[offset + i * step]; offsets and steps in elements.
using LoadFn = void (*)(void* d, const std::byte* memory, int64_t offset, int64_t step, int64_t n);
using StoreFn = void (*)(std::byte* memory, const void* a, int64_t offset, int64_t step, int64_t n);
// d[i] = memory[offsets[i]] where `mask` is null or mask[i], else 0.
using GatherFn = void (*)(void* d, const std::byte* memory, const int64_t* offsets,
                          const bool* mask, int64_t n);
using ScatterFn = void (*)(std::byte* memory, const void* a, const int64_t* offsets,
                           const bool* mask, int64_t n);

// `one` ignores n.
template <typename Fn>
struct Lanes {
  Fn one = nullptr;
  Fn many = nullptr;
};

struct MemoryOps {
  LoadFn load = nullptr;  // null: the interpreter does not run this element type
  StoreFn store = nullptr;
  GatherFn gather = nullptr;
  ScatterFn scatter = nullptr;
};

// Bytes of one register element.
int RegisterBytes(DataType type);
bool IsRunnable(DataType type);

// Operations that Verify() accepts on `type` are never null.
Lanes<UnaryFn> FindUnary(UnaryOp op, DataType type);
Lanes<BinaryFn> FindBinary(BinaryOp op, DataType type);
// To a storage float: rounds a float register; other operands are cast to f32 first.
Lanes<UnaryFn> FindCast(DataType from, DataType to);
Lanes<SelectFn> FindSelect(DataType type);
FoldFn FindFold(BinaryOp op, DataType type);
UnaryFn FindSplat(DataType type);  // d[0..n) = a[0]
MemoryOps FindMemory(DataType storage);

}  // namespace quench::loops
