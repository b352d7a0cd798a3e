// Products of matrices: in the tile registers of x86 (AMX), or in memory by plain vector code.
#include <llvm/IR/Constants.h>

#include "services/codegen/emit/arith.h"
#include "services/codegen/emit/llvm_vector_builder.h"

namespace quench::codegen {
namespace {

// The configuration of tile registers (Intel's manual, volume 1, 18.2): palette 1, then from these
// offsets on the bytes of each register's rows, 16 bits, and the number of its rows, 8 bits.
constexpr int64_t kConfigBytes = 64, kRowBytesAt = 16, kRowsAt = 48;
constexpr uint64_t kPalette = 1;
// Bytes from a row to the next of a matrix in memory.
constexpr int64_t kRowPitch = 4 * MatrixUnit::kWords;

std::string NameOf(const MatrixUnit& unit, MatrixProducts products) {
  switch (products) {
    case MatrixProducts::kBfloats:
      return unit.bfloats;
    case MatrixProducts::kHalves:
      return unit.halves;
    case MatrixProducts::kUnsigned:
      return unit.unsigned_bytes;
    case MatrixProducts::kSigned:
      return unit.signed_bytes;
  }
  return "";
}

// Calls an instruction by its name in LLVM.
void Call(ModuleState& state, llvm::IRBuilder<>& b, const std::string& name,
          llvm::ArrayRef<llvm::Value*> arguments) {
  std::vector<llvm::Type*> types;
  for (llvm::Value* argument : arguments) types.push_back(argument->getType());
  b.CreateCall(state.module->getOrInsertFunction(
                   name, llvm::FunctionType::get(b.getVoidTy(), types, /*isVarArg=*/false)),
               arguments);
}

llvm::Value* Register(llvm::IRBuilder<>& b, const Matrix& matrix) {
  return b.getInt8(static_cast<uint8_t>(matrix.id));
}

// Products of two words of a vector each, added to a vector of sums.
class PlainProducts {
 public:
  PlainProducts(ModuleState& state, llvm::IRBuilder<>& b, MatrixProducts products, int64_t words)
      : state_(state),
        b_(b),
        products_(products),
        i32_(llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(words))) {}

  llvm::Type* words() const { return i32_; }
  llvm::Type* sums() const {
    const bool floats =
        products_ == MatrixProducts::kBfloats || products_ == MatrixProducts::kHalves;
    return floats ? llvm::FixedVectorType::get(b_.getFloatTy(), i32_->getNumElements()) : i32_;
  }

  llvm::Value* Add(llvm::Value* sum, llvm::Value* x, llvm::Value* w) {
    const int parts = sums() == i32_ ? 4 : 2;
    for (int part = 0; part < parts; ++part) {
      llvm::Value* const left = Part(x, part, products_ != MatrixProducts::kUnsigned);
      llvm::Value* const right = Part(w, part, true);
      sum = sums() == i32_ ? b_.CreateAdd(sum, b_.CreateMul(left, right))
                           : b_.CreateFAdd(sum, b_.CreateFMul(left, right));
    }
    return sum;
  }

 private:
  // A number of each word as sums have it.
  llvm::Value* Part(llvm::Value* words, int part, bool is_signed) {
    if (products_ == MatrixProducts::kBfloats) {
      llvm::Value* const high =
          part == 0 ? b_.CreateShl(words, 16) : b_.CreateAnd(words, uint64_t{0xffff0000});
      return b_.CreateBitCast(high, sums());
    }
    const uint64_t bits = products_ == MatrixProducts::kHalves ? 16 : 8;
    llvm::Value* const shifted = b_.CreateShl(words, 32 - bits * (static_cast<uint64_t>(part) + 1));
    if (products_ == MatrixProducts::kHalves) {
      llvm::Type* const half = llvm::FixedVectorType::get(b_.getInt16Ty(), i32_->getNumElements());
      return Arith(state_, b_)
          .Cast(DataType::kF16, DataType::kF32, b_.CreateTrunc(b_.CreateLShr(shifted, 16), half));
    }
    return is_signed ? b_.CreateAShr(shifted, 24) : b_.CreateLShr(shifted, 24);
  }

  ModuleState& state_;
  llvm::IRBuilder<>& b_;
  const MatrixProducts products_;
  llvm::FixedVectorType* const i32_;
};

}  // namespace

std::vector<Matrix> LlvmVectorBuilder::Matrices(std::span<const MatrixShape> shapes) {
  matrices_.assign(shapes.begin(), shapes.end());
  matrix_memory_.clear();
  std::vector<Matrix> matrices;
  for (size_t i = 0; i < shapes.size(); ++i) {
    Matrix& matrix = matrices.emplace_back();
    matrix.builder = this;
    matrix.id = static_cast<int32_t>(i);
  }
  if (!state_.target.matrices.in_registers()) {
    for (const Matrix& matrix : matrices) {
      matrix_memory_.push_back(Stack(kRowPitch * MatrixUnit::kRows));
      Zero(matrix);
    }
    return matrices;
  }
  const Ptr config = Stack(kConfigBytes);
  llvm::Type* const all = llvm::FixedVectorType::get(b_.getInt8Ty(), kConfigBytes);
  b_.CreateAlignedStore(llvm::Constant::getNullValue(all), At(config), llvm::Align(64));
  const auto set = [&](int64_t at, llvm::Value* value) {
    b_.CreateAlignedStore(value, At(config + at), llvm::Align(1));
  };
  set(0, b_.getInt8(kPalette));
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    set(kRowBytesAt + 2 * index, b_.getInt16(static_cast<uint16_t>(4 * shapes[i].words)));
    set(kRowsAt + index, b_.CreateTrunc(At(shapes[i].rows), b_.getInt8Ty()));
  }
  Call(state_, b_, state_.target.matrices.configure, {At(config)});
  return matrices;
}

void LlvmVectorBuilder::ReleaseMatrices() {
  if (state_.target.matrices.in_registers()) Call(state_, b_, state_.target.matrices.release, {});
}

void LlvmVectorBuilder::Zero(const Matrix& matrix) {
  if (state_.target.matrices.in_registers())
    return Call(state_, b_, state_.target.matrices.zero, {Register(b_, matrix)});
  const Ptr memory = matrix_memory_[static_cast<size_t>(matrix.id)];
  For(I(0), I(MatrixUnit::kRows), 1, [&](Int row) {
    Store(memory + row * kRowPitch, Constant(DataType::kI32, 0, MatrixUnit::kWords));
  });
}

void LlvmVectorBuilder::CopyRows(const Matrix& matrix, Ptr from, Int from_stride, Ptr to,
                                 Int to_stride) {
  const MatrixShape& shape = matrices_[static_cast<size_t>(matrix.id)];
  For(I(0), shape.rows, 1, [&](Int row) {
    Store(to + row * to_stride, LoadWords(from + row * from_stride, static_cast<int>(shape.words)));
  });
}

void LlvmVectorBuilder::Load(const Matrix& matrix, Ptr address, Int stride) {
  if (state_.target.matrices.in_registers()) {
    return Call(state_, b_, state_.target.matrices.load,
                {Register(b_, matrix), At(address), At(stride)});
  }
  CopyRows(matrix, address, stride, matrix_memory_[static_cast<size_t>(matrix.id)], I(kRowPitch));
}

void LlvmVectorBuilder::Store(const Matrix& matrix, Ptr address, Int stride) {
  if (state_.target.matrices.in_registers()) {
    return Call(state_, b_, state_.target.matrices.store,
                {Register(b_, matrix), At(address), At(stride)});
  }
  CopyRows(matrix, matrix_memory_[static_cast<size_t>(matrix.id)], I(kRowPitch), address, stride);
}

void LlvmVectorBuilder::AddProducts(MatrixProducts products, const Matrix& sum, const Matrix& left,
                                    const Matrix& right) {
  const MatrixUnit& unit = state_.target.matrices;
  if (unit.in_registers()) {
    return Call(state_, b_, NameOf(unit, products),
                {Register(b_, sum), Register(b_, left), Register(b_, right)});
  }
  const auto memory = [&](const Matrix& matrix) {
    return matrix_memory_[static_cast<size_t>(matrix.id)];
  };
  const MatrixShape& shape = matrices_[static_cast<size_t>(sum.id)];
  const auto words = static_cast<int>(matrices_[static_cast<size_t>(left.id)].words);
  PlainProducts plain(state_, b_, products, shape.words);
  For(I(0), shape.rows, 1, [&](Int row) {
    llvm::Value* const sums = At(memory(sum) + row * kRowPitch);
    llvm::Value* value = b_.CreateAlignedLoad(plain.sums(), sums, llvm::Align(64));
    for (int k = 0; k < words; ++k) {
      const Vec x = LoadWords(memory(left) + (row * kRowPitch + int64_t{4} * k), 1);
      llvm::Value* const w =
          b_.CreateAlignedLoad(plain.words(), At(memory(right) + k * kRowPitch), llvm::Align(64));
      value = plain.Add(value, At(Splat(x, static_cast<int>(shape.words))), w);
    }
    b_.CreateAlignedStore(value, sums, llvm::Align(64));
  });
}

}  // namespace quench::codegen
