// The part of kernels of a GPU's block that a VectorBuilder lacks: its threads, the memory that they share, and products of
// matrices that a warp computes together. LLVM-free, as vector_builder.h is.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "services/codegen/forms/vector_builder.h"

namespace quench::codegen {

// Numbers of the factors of a warp's products of matrices; sums are f32, or i32 for bytes.
enum class WarpProducts : uint8_t { kF16, kBF16, kTF32, kI8, kU8 };  // kU8: u8 times i8

// Threads are those of one block, which does the kernel's task Begin(); those that do tasks by themselves have nothing
// but accesses to global memory. Each call that is said to be for all threads
// must be reached by all of them.
class GpuBuilder {
 public:
  virtual ~GpuBuilder() = default;

  // The thread's index in the block.
  virtual Int Thread() = 0;
  // For all threads of the block: each sees after it what the others have written before.
  virtual void Barrier() = 0;

  // Threads get at most this many registers, so that enough blocks fit a multiprocessor.
  virtual void LimitRegisters(int most) = 0;

  // Global memory, aligned to whole values, or to 16 bytes where these are longer. f16 and bf16 become f32.
  virtual Vec LoadAligned(Ptr address, int lanes, DataType type) = 0;
  virtual void StoreAligned(Ptr address, Vec value) = 0;
  // The same load; unless `present` holds, memory is not touched, and each byte counts as `otherwise`.
  virtual Vec LoadIf(Bool present, Ptr address, int lanes, DataType type, uint8_t otherwise) = 0;

  // Shared memory, by byte offsets; accesses are aligned to their size.
  virtual Vec LoadShared(Int offset, int lanes, DataType type) = 0;
  virtual void StoreShared(Int offset, Vec value) = 0;

  // Copies 16 aligned bytes to shared memory, or fills these with zeros where `present` does not hold. They are there
  // once a later WaitForCopies has returned, and, for other threads, a barrier after it.
  virtual void CopyToShared(Int offset, Ptr from, Bool present) = 0;
  // The same of 1, 2, 4 or 8 bytes, aligned to as many.
  virtual void CopyPartToShared(Int offset, Ptr from, Bool present, int bytes) = 0;
  // Ends a group of copies; and waits for all but the last `pending` groups.
  virtual void CommitCopies() = 0;
  virtual void WaitForCopies(int pending) = 0;

  // For all threads of a warp: four matrices of 8 rows of 16 bytes, whose 32 rows are at the lanes' offsets. Each lane
  // gets a word of each: lane l word l % 4 of row l / 4.
  virtual std::array<Vec, 4> LoadMatrices(Int offset) = 0;
  // The same of matrices of 8 rows of 8 numbers of 16 bits, transposed: lane l gets the numbers l % 4 * 2 and the next
  // of column l / 4.
  virtual std::array<Vec, 4> LoadMatricesTransposed(Int offset) = 0;
  // For all threads of a warp: sums += a x b, where a has 16 rows and b 8 columns of 32 bytes each. Words of a: LoadMatrices
  // of rows 0 to 7 and 8 to 15 of its first 16 bytes, then of the others; of b: of the first 16 bytes of its columns, then
  // of the others. Lane l has the sums of row l / 4, columns l % 4 * 2 and the next, then those of row l / 4 + 8.
  virtual void AddProducts(WarpProducts products, std::span<const VecVar, 4> sums,
                           std::span<const Vec, 4> a, std::span<const Vec, 2> b) = 0;
  // A word of f32 as TF32: 10 bits of mantissa, to nearest, away from zero where two are equally near.
  virtual Vec RoundToTf32(Vec word) = 0;
  // For all threads of a warp: each lane's value is that of lane `lane ^ mask`. One number of 32 bits.
  virtual Vec ShuffleXor(Vec value, int mask) = 0;

  // A word (i32) of two f32 as f16 or bf16, rounded to nearest even, `low` in the lower half.
  virtual Vec HalvesOf(Vec low, Vec high, DataType type) = 0;
  // 2^x of one f32, within 2^-21 of it. Results below 2^-126 may be 0.
  virtual Vec Exp2(Vec x) = 0;
  virtual Vec Select(Bool condition, Vec yes, Vec no) = 0;
};

}  // namespace quench::codegen
