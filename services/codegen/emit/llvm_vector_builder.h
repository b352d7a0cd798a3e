// Internal to llvm/: the VectorBuilder over one LLVM function of the kernel ABI (kernels/kernel.h).
#pragma once

#include <absl/status/statusor.h>
#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "services/codegen/emit/device_ops.h"
#include "services/codegen/emit/module_state.h"
#include "services/codegen/forms/gpu_builder.h"
#include "services/codegen/forms/vector_builder.h"

namespace quench::codegen {

class LlvmVectorBuilder final : public VectorBuilder, public GpuBuilder {
 public:
  // `function` is i32(ptr buffers, ptr slots, i64 begin, i64 end), without blocks. Ends with
  // Finish.
  LlvmVectorBuilder(ModuleState& state, llvm::Function* function);
  // Closes the function: it returns 0.
  void Finish();

  Ptr Buffer(int index) override;
  Int Begin() override { return New<Int>(function_->getArg(2)); }
  Int End() override { return New<Int>(function_->getArg(3)); }
  Int Size(Dim dim) override;
  Int LoadInt(Ptr address, DataType type) override;

  Int I(int64_t value) override;
  Int Apply(IntOp op, Int a, Int b) override;
  Bool Compare(IntCompare op, Int a, Int b) override;
  Bool And(Bool a, Bool b) override;
  Ptr Offset(Ptr base, Int bytes) override;

  Vec Load(Ptr address, int lanes, DataType type) override;
  Vec LoadWords(Ptr address, int lanes) override;
  Vec Sum(Vec value) override;
  Vec Largest(Vec value) override;
  std::vector<Vec> Transposed(std::span<const Vec> rows) override;
  void Store(Ptr address, Vec value) override;
  void StoreInterleaved(Ptr address, std::span<const Vec> parts) override;
  Vec LoadFirst(Ptr address, Int count, int lanes, DataType type) override;
  void StoreFirst(Ptr address, Vec value, Int count) override;
  using VectorBuilder::KeepFirst;
  Vec KeepFirst(Vec value, Int count, Vec others) override;

  Vec Constant(DataType type, double value, int lanes) override;
  Vec Splat(Vec part, int lanes) override;
  Vec SplatLane(Vec vector, int lane, int lanes) override;
  Vec Apply(VecOp op, Vec a, Vec b) override;
  Vec Fma(Vec a, Vec b, Vec c) override;
  Vec AddProducts(BytesForm form, Vec sum, const BytesOperand& x, Vec w) override;
  Vec AddProductsOfBfloats(Vec sum, Vec x, Vec w) override;
  Vec AddProductsOfHalves(Vec sum, Vec x, Vec w) override;
  std::pair<Vec, Vec> SumsOfHalves(Vec a, Vec b) override;
  Vec PickBytes(Vec x, Vec picks) override;
  BytesOperand PrepareBytes(BytesForm form, Vec x, bool flip) override;
  Vec ToI32(Vec value) override;
  Vec ToF32(Vec value) override;
  Vec FourBitsToF32(Vec words, int place, int64_t first) override;
  Vec Narrow(Vec value, DataType type) override;
  absl::StatusOr<Vec> Apply(const loops::ScalarFunction& function,
                            std::span<const Vec> operands) override;

  std::vector<Matrix> Matrices(std::span<const MatrixShape> shapes) override;
  void ReleaseMatrices() override;
  void Zero(const Matrix& matrix) override;
  void Load(const Matrix& matrix, Ptr address, Int stride) override;
  void Store(const Matrix& matrix, Ptr address, Int stride) override;
  int StoreMatricesWithin() const override { return state_.target.matrices.store_within; }
  void AddProducts(MatrixProducts products, const Matrix& sum, const Matrix& left,
                   const Matrix& right) override;

  Ptr Stack(int64_t bytes) override;
  IntVar Variable(Int initial) override;
  PtrVar Variable(Ptr initial) override;
  VecVar Variable(Vec initial) override;
  Int Get(const IntVar& variable) override { return GetVariable<Int>(variable); }
  Ptr Get(const PtrVar& variable) override { return GetVariable<Ptr>(variable); }
  Vec Get(const VecVar& variable) override;
  void Set(const IntVar& variable, Int value) override { SetVariable(variable, value); }
  void Set(const PtrVar& variable, Ptr value) override { SetVariable(variable, value); }
  void Set(const VecVar& variable, Vec value) override { SetVariable(variable, value); }

  void For(Int begin, Int end, int64_t step, const std::function<void(Int)>& body) override;
  void If(Bool condition, const std::function<void()>& then,
          const std::function<void()>& otherwise) override;
  void KeepLoadsInOrder() override;
  int Registers() const override { return state_.target.vector_registers; }
  void Prefetch(Ptr address, int level) override;
  int64_t ConstantOr(Int value, int64_t unknown) override;

  // llvm_gpu_builder.cc
  GpuBuilder& gpu() override { return *this; }
  Int Thread() override;
  void Barrier() override;
  void LimitRegisters(int most) override;
  Vec LoadAligned(Ptr address, int lanes, DataType type) override;
  void StoreAligned(Ptr address, Vec value) override;
  Vec LoadIf(Bool present, Ptr address, int lanes, DataType type, uint8_t otherwise) override;
  Vec LoadShared(Int offset, int lanes, DataType type) override;
  void StoreShared(Int offset, Vec value) override;
  void CopyToShared(Int offset, Ptr from, Bool present) override;
  void CopyPartToShared(Int offset, Ptr from, Bool present, int bytes) override;
  void CommitCopies() override;
  void WaitForCopies(int pending) override;
  std::array<Vec, 4> LoadMatrices(Int offset) override { return LoadMatrices(offset, false); }
  std::array<Vec, 4> LoadMatricesTransposed(Int offset) override {
    return LoadMatrices(offset, true);
  }
  Vec RoundToTf32(Vec word) override;
  using VectorBuilder::AddProducts;
  void AddProducts(WarpProducts products, std::span<const VecVar, 4> sums,
                   std::span<const Vec, 4> a, std::span<const Vec, 2> b) override;
  Vec ShuffleXor(Vec value, int mask) override;
  Vec HalvesOf(Vec low, Vec high, DataType type) override;
  Vec Exp2(Vec x) override;
  Vec Select(Bool condition, Vec yes, Vec no) override;

 private:
  DeviceOps Device();
  std::array<Vec, 4> LoadMatrices(Int offset, bool transposed);
  template <typename T>
  T New(llvm::Value* value) {
    T handle;
    handle.builder = this;
    handle.id = static_cast<int32_t>(values_.size());
    values_.push_back(value);
    return handle;
  }
  Vec NewVec(llvm::Value* value, int lanes, DataType type = DataType::kF32);
  Vec Loaded(llvm::Value* value, int lanes, DataType type);  // as registers hold it
  llvm::Value* At(const Handle& handle) const { return values_[static_cast<size_t>(handle.id)]; }
  llvm::Type* VecType(int lanes, DataType type = DataType::kF32) const;
  static llvm::Align AlignOf(DataType type) {
    return llvm::Align(static_cast<uint64_t>(DataTypeBits(type)) / 8);
  }
  llvm::Value* FirstLanes(Int count, int lanes);  // mask
  // A lane that has all others in it, added or compared in halves.
  Vec Folded(VecOp op, Vec value);
  llvm::Value* Divide(llvm::Value* a, llvm::Value* b, bool remainder);
  template <typename T>
  T GetVariable(const Handle& variable) {
    llvm::Value* slot = At(variable);
    return New<T>(b_.CreateLoad(llvm::cast<llvm::AllocaInst>(slot)->getAllocatedType(), slot));
  }
  void SetVariable(const Handle& variable, const Handle& value) {
    b_.CreateStore(At(value), At(variable));
  }
  Handle NewVariable(const Handle& initial);
  // The rows of a matrix's shape.
  void CopyRows(const Matrix& matrix, Ptr from, Int from_stride, Ptr to, Int to_stride);

  ModuleState& state_;
  llvm::Function* function_;
  llvm::BasicBlock* entry_;  // arguments and variables; joined to the body by Finish
  llvm::BasicBlock* body_;
  llvm::IRBuilder<> entry_builder_;
  llvm::IRBuilder<> b_;
  std::vector<llvm::Value*> values_;
  std::map<int, Ptr> buffers_;
  std::map<SymbolId, Int> slots_;
  std::vector<MatrixShape> matrices_;  // by the ids of matrices
  std::vector<Ptr> matrix_memory_;     // of those that are not in registers
};

}  // namespace quench::codegen
