// Explicit vector code without LLVM headers: hand-written kernels are written with it.
//
// Values are handles into the function being built; they are valid inside the loop or branch that
// made them. A value that changes over iterations is a variable (a register after mem2reg).
// Arithmetic on constants folds as it is written, so strides may be constants or run-time sizes
// without the kernel noticing, and `p + constant` becomes a displacement.
//
//   PtrVar w = b.Var(weights);
//   b.For(b.I(0), channels, 1, [&](Int) {
//     acc.Set(b.Fma(b.Splat(b.Load(x, 1), 8), b.Load(w.Get(), 8), acc.Get()));
//     w.Set(w.Get() + 32);
//   });
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/dtype.h"
#include "common/ir/symbols.h"
#include "common/loops/loops.h"

namespace quench::codegen {

class GpuBuilder;  // gpu_builder.h
class VectorBuilder;

struct Handle {
  VectorBuilder* builder = nullptr;
  int32_t id = -1;
  bool valid() const { return id >= 0; }
};
struct Int : Handle {};  // 64-bit signed integer; arithmetic wraps
struct Bool : Handle {};
struct Ptr : Handle {};  // byte address
struct Vec : Handle {    // a vector, or a scalar when lanes == 1
  int lanes = 1;
  DataType type = DataType::kF32;  // or i32, i8, u8; f16 and bf16 of Narrow, for Store alone
};

// Mutable variables. They live until the function ends.
template <typename T>
struct Var : Handle {
  T shape{};  // carries the type
  T Get() const;
  void Set(T value) const;
};
using IntVar = Var<Int>;
using PtrVar = Var<Ptr>;
using VecVar = Var<Vec>;

enum class IntOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kRem,
  kMin,
  kMax
};  // div and rem of values >= 0 only
enum class IntCompare : uint8_t { kLt, kLe, kEq, kNe };
enum class VecOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kMin,
  kMax,
  kAnd,
  kShiftRight
};  // of f32, kAdd and kMul also of i32, the last two of i32 only (the shift fills up with zeros); min
    // and max: the second operand when unordered

// Ways to multiply bytes that CPUs have. Weights are always i8.
enum class BytesForm : uint8_t {
  kUnsigned,    // x is u8: one instruction
  kSigned,      // x is i8: one instruction, or plain code where there is none
  kPairs,       // x is u8: pairs of products are added in i16, so for neighbours (2 i, 2 i + 1)
                // 255 (w0 + w1) over the positive ones, and likewise the negative ones, fits i16
  kPicked,      // as kPairs, of bytes in an order that fulfils this (picked_pairs.h)
  kMagnitudes,  // x is i8: |x| is multiplied by w with the sign of x, in pairs; no weight may be -128
  kWords,       // x and w are pairs of i16 in place of four bytes
};
struct BytesOperand {
  Vec value, magnitude;
};

// A matrix register (Target::matrices), or a matrix in memory on targets without.
struct Matrix : Handle {};
struct MatrixShape {
  Int rows;           // 1 to MatrixUnit::kRows
  int64_t words = 1;  // of four bytes in a row, 1 to MatrixUnit::kWords
};
// The numbers in words of factors. Sums are f32 for halves, which are flushed to 0 where they are denormal, and i32 for
// bytes, modulo 2^32.
enum class MatrixProducts : uint8_t {
  kBfloats,   // pairs of bf16
  kHalves,    // pairs of f16
  kUnsigned,  // four u8 times four i8
  kSigned,    // four i8 each
};

class VectorBuilder {
 public:
  virtual ~VectorBuilder() = default;

  // The function's arguments. `index` counts buffers as kernel.h's ABI does.
  virtual Ptr Buffer(int index) = 0;
  virtual Int Begin() = 0;
  virtual Int End() = 0;
  virtual Int Size(Dim dim) = 0;  // a constant or a slot

  virtual Int I(int64_t value) = 0;
  virtual Int Apply(IntOp op, Int a, Int b) = 0;
  virtual Bool Compare(IntCompare op, Int a, Int b) = 0;
  virtual Bool And(Bool a, Bool b) = 0;
  virtual Int LoadInt(Ptr address, DataType type) = 0;  // i32 or i64
  virtual Ptr Offset(Ptr base, Int bytes) = 0;

  // Alignment is that of one element; memory is little-endian. f16 and bf16 become f32.
  virtual Vec Load(Ptr address, int lanes, DataType type) = 0;
  Vec Load(Ptr address, int lanes) { return Load(address, lanes, DataType::kF32); }
  // Words of four bytes as i32, aligned or not.
  virtual Vec LoadWords(Ptr address, int lanes) = 0;
  virtual void Store(Ptr address, Vec value) = 0;
  // The first lanes of all parts, then their second lanes, and so on; parts are of one type.
  virtual void StoreInterleaved(Ptr address, std::span<const Vec> parts) = 0;
  // The first `count` lanes (clamped to 0..lanes): other lanes load as 0 and are not stored; their
  // memory is not touched.
  virtual Vec LoadFirst(Ptr address, Int count, int lanes, DataType type) = 0;
  virtual void StoreFirst(Ptr address, Vec value, Int count) = 0;
  // Other lanes become those of `others`, or 0.
  virtual Vec KeepFirst(Vec value, Int count, Vec others) = 0;
  Vec KeepFirst(Vec value, Int count) {
    return KeepFirst(value, count, Constant(value.type, 0, value.lanes));
  }

  virtual Vec Constant(DataType type, double value, int lanes) = 0;
  Vec F(double value, int lanes) { return Constant(DataType::kF32, value, lanes); }
  virtual Vec Splat(Vec part, int lanes) = 0;  // the lanes of `part`, 1, 2 or 4, repeated
  virtual Vec SplatLane(Vec vector, int lane, int lanes) = 0;
  virtual Vec Apply(VecOp op, Vec a, Vec b) = 0;
  // a * b + c: fused where the target has it, else two roundings.
  virtual Vec Fma(Vec a, Vec b, Vec c) = 0;
  // Sums of products of bytes, for i32 vectors whose lanes hold four bytes each: lane l of the
  // result is sum[l] + the four products of the bytes of x[l] and w[l]. Exact, modulo 2^32, under
  // the condition that the form states (BytesForm). `x` is what BytesOperand gave for this form.
  virtual Vec AddProducts(BytesForm form, Vec sum, const BytesOperand& x, Vec w) = 0;
  // The same for bf16, if the target has an instruction for it (Target::add_products_bf16): lane l
  // is the f32 sum[l] plus the two products of the halves of x[l] and w[l], whose lanes are i32.
  virtual Vec AddProductsOfBfloats(Vec sum, Vec x, Vec w) = 0;
  // If the target has it (Target::sums_halves), for i32 lanes that hold two f16 each: each half of
  // the result is sum + x * w of these halves, rounded to f16 once.
  virtual Vec AddProductsOfHalves(Vec sum, Vec x, Vec w) = 0;
  // The two halves of each lane of such sums, added in f16 and widened to f32, for `a` and for `b`.
  virtual std::pair<Vec, Vec> SumsOfHalves(Vec a, Vec b) = 0;
  // Picks bytes of `x`, whose i32 lanes repeat the same 4, 8 or 16 bytes: lane l of the result has
  // the bytes whose indices are the bytes of picks[l]. Only with Target::pick_of_16.
  virtual Vec PickBytes(Vec x, Vec picks) = 0;
  // `flip` first converts between i8 and u8, by changing every byte's highest bit.
  virtual BytesOperand PrepareBytes(BytesForm form, Vec x, bool flip) = 0;
  virtual Vec Sum(Vec value) = 0;      // of all lanes: of i32, modulo 2^32; of f32, halves first
  virtual Vec Largest(Vec value) = 0;  // of all lanes, of f32 without NaN
  // Lane r of result c is lane c of row r. The number of vectors of f32 equals the number of their
  // lanes, 4 or more.
  virtual std::vector<Vec> Transposed(std::span<const Vec> rows) = 0;
  virtual Vec ToI32(Vec value) = 0;  // of integers, and of f32 whole numbers that fit
  virtual Vec ToF32(Vec value) = 0;  // of integers
  // `first` + the four bits of i32 from bit 4 * place on; `place` is 0 to 7, `first` -15 to 0. Exact.
  virtual Vec FourBitsToF32(Vec words, int place, int64_t first) = 0;
  // f32 as elements of `type` (f16 or bf16) in memory, rounded to nearest even; denormals of bf16 may become 0.
  virtual Vec Narrow(Vec value, DataType type) = 0;
  // The scalar function on every lane: pointwise epilogues come from the same source as nests.
  // Operands have equal lanes.
  virtual absl::StatusOr<Vec> Apply(const loops::ScalarFunction& function,
                                    std::span<const Vec> operands) = 0;

  // Matrix registers, MatrixUnit::kRegisters at most, zeroed, until ReleaseMatrices. A function calls it once, before
  // its loops, and the other one after them.
  virtual std::vector<Matrix> Matrices(std::span<const MatrixShape> shapes) = 0;
  virtual void ReleaseMatrices() = 0;
  virtual void Zero(const Matrix& matrix) = 0;
  // Rows `stride` bytes apart; 0 repeats one row.
  virtual void Load(const Matrix& matrix, Ptr address, Int stride) = 0;
  virtual void Store(const Matrix& matrix, Ptr address, Int stride) = 0;
  virtual int StoreMatricesWithin() const = 0;  // MatrixUnit::store_within
  // sum[m][n] += the products of the numbers of word k of left[m] and of word n of right[k], over all k. The left
  // matrix has as many words as the right one has rows.
  virtual void AddProducts(MatrixProducts products, const Matrix& sum, const Matrix& left,
                           const Matrix& right) = 0;

  // Memory for this function only, on the stack, so a few KiB at most; aligned as vectors are. Its
  // contents are undefined on entry.
  virtual Ptr Stack(int64_t bytes) = 0;

  virtual IntVar Variable(Int initial) = 0;
  virtual PtrVar Variable(Ptr initial) = 0;
  virtual VecVar Variable(Vec initial) = 0;
  virtual Int Get(const IntVar& variable) = 0;
  virtual Ptr Get(const PtrVar& variable) = 0;
  virtual Vec Get(const VecVar& variable) = 0;
  virtual void Set(const IntVar& variable, Int value) = 0;
  virtual void Set(const PtrVar& variable, Ptr value) = 0;
  virtual void Set(const VecVar& variable, Vec value) = 0;

  // for (i = begin; i < end; i += step) body(i). `step` is >= 1. A loop that provably runs once is
  // emitted inline.
  virtual void For(Int begin, Int end, int64_t step, const std::function<void(Int)>& body) = 0;
  virtual void If(Bool condition, const std::function<void()>& then,
                  const std::function<void()>& otherwise) = 0;
  void If(Bool condition, const std::function<void()>& then) { If(condition, then, nullptr); }
  // A barrier: loads that follow are not moved before loads that precede, so that their registers
  // are not in use longer than written here.
  virtual void KeepLoadsInOrder() = 0;
  virtual int Registers() const = 0;  // Target::vector_registers
  // Hint: the line at `address` is read soon; never faults. `level` 1 is the nearest cache.
  virtual void Prefetch(Ptr address, int level) = 0;

  // Kernels of GPUs whose blocks do a task together, only.
  virtual GpuBuilder& gpu() = 0;

  // The value when it is known while building, else `unknown`.
  virtual int64_t ConstantOr(Int value, int64_t unknown) = 0;
};

template <typename T>
T Var<T>::Get() const {
  return builder->Get(*this);
}
template <typename T>
void Var<T>::Set(T value) const {
  builder->Set(*this, value);
}

inline Int operator+(Int a, Int b) { return a.builder->Apply(IntOp::kAdd, a, b); }
inline Int operator-(Int a, Int b) { return a.builder->Apply(IntOp::kSub, a, b); }
inline Int operator*(Int a, Int b) { return a.builder->Apply(IntOp::kMul, a, b); }
inline Int operator/(Int a, Int b) { return a.builder->Apply(IntOp::kDiv, a, b); }
inline Int operator%(Int a, Int b) { return a.builder->Apply(IntOp::kRem, a, b); }
inline Int operator+(Int a, int64_t b) { return a + a.builder->I(b); }
inline Int operator-(Int a, int64_t b) { return a - a.builder->I(b); }
inline Int operator*(Int a, int64_t b) { return a * a.builder->I(b); }
inline Int operator/(Int a, int64_t b) { return a / a.builder->I(b); }
inline Int operator%(Int a, int64_t b) { return a % a.builder->I(b); }
inline Int Min(Int a, Int b) { return a.builder->Apply(IntOp::kMin, a, b); }
inline Int Max(Int a, Int b) { return a.builder->Apply(IntOp::kMax, a, b); }
inline Bool operator<(Int a, Int b) { return a.builder->Compare(IntCompare::kLt, a, b); }
inline Bool operator<=(Int a, Int b) { return a.builder->Compare(IntCompare::kLe, a, b); }
inline Bool operator>=(Int a, Int b) { return b <= a; }
inline Bool operator>(Int a, Int b) { return b < a; }
inline Bool operator==(Int a, Int b) { return a.builder->Compare(IntCompare::kEq, a, b); }
inline Bool operator!=(Int a, Int b) { return a.builder->Compare(IntCompare::kNe, a, b); }
inline Bool operator&&(Bool a, Bool b) { return a.builder->And(a, b); }
inline Ptr operator+(Ptr base, Int bytes) { return base.builder->Offset(base, bytes); }
inline Ptr operator+(Ptr base, int64_t bytes) { return base + base.builder->I(bytes); }

}  // namespace quench::codegen
