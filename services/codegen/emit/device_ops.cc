#include "services/codegen/emit/device_ops.h"

#include <fmt/format.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <bit>

#include "common/runtime/abi.h"
#include "services/codegen/emit/abi_structs.h"

namespace quench::codegen {
namespace {

using EmulatedThread = AbiStruct<quench_emulated_thread>;
using EmulatedOps = AbiStruct<quench_emulated_ops>;

constexpr char kSharedName[] = "quench_shared";
constexpr uint64_t kChunk = 16;  // bytes of a copy

// Memory of the function, whatever loop asks for it.
llvm::Value* Words(llvm::IRBuilder<>& b, size_t count) {
  llvm::BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> first(&entry, entry.begin());
  return first.CreateAlloca(llvm::ArrayType::get(b.getInt32Ty(), count));
}

llvm::GlobalVariable* SharedMemory(llvm::Module& module) {
  llvm::LLVMContext& context = module.getContext();
  if (llvm::GlobalVariable* known = module.getGlobalVariable(kSharedName)) return known;
  auto* type = llvm::ArrayType::get(llvm::Type::getInt8Ty(context), 0);
  auto* memory = new llvm::GlobalVariable(module, type, /*isConstant=*/false,
                                          llvm::GlobalValue::ExternalLinkage, nullptr, kSharedName,
                                          nullptr, llvm::GlobalValue::NotThreadLocal, kSharedSpace);
  memory->setAlignment(llvm::Align(128));
  return memory;
}

}  // namespace

llvm::Value* DeviceOps::Call(unsigned field, llvm::Type* result,
                             const std::vector<llvm::Value*>& arguments) const {
  llvm::Value* ops = LoadAbiField<quench_emulated_thread>(b_, thread_, EmulatedThread::ops);
  llvm::Value* function =
      LoadAbiField<quench_emulated_ops>(b_, ops, static_cast<EmulatedOps::Field>(field));
  std::vector<llvm::Value*> all = {thread_};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<llvm::Type*> types;
  for (const llvm::Value* value : all) types.push_back(value->getType());
  return b_.CreateCall(llvm::FunctionType::get(result, types, false), function, all);
}

llvm::Value* DeviceOps::Line(const std::string& text, const std::string& constraints,
                             llvm::Type* result, const std::vector<llvm::Value*>& operands,
                             bool pure) const {
  std::vector<llvm::Type*> types;
  for (const llvm::Value* value : operands) types.push_back(value->getType());
  llvm::FunctionType* type = llvm::FunctionType::get(result, types, false);
  llvm::CallInst* call =
      b_.CreateCall(type, llvm::InlineAsm::get(type, text, constraints, !pure), operands);
  call->addFnAttr(llvm::Attribute::Convergent);
  return call;
}

llvm::Value* DeviceOps::Thread() const {
  if (thread_ != nullptr)
    return LoadAbiField<quench_emulated_thread>(b_, thread_, EmulatedThread::thread);
  return b_.CreateIntrinsic(b_.getInt32Ty(), llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {});
}

llvm::Value* DeviceOps::Block() const {
  if (thread_ != nullptr)
    return LoadAbiField<quench_emulated_thread>(b_, thread_, EmulatedThread::block);
  return b_.CreateIntrinsic(b_.getInt32Ty(), llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {});
}

llvm::Value* DeviceOps::BlockThreads() const {
  if (thread_ != nullptr)
    return LoadAbiField<quench_emulated_thread>(b_, thread_, EmulatedThread::threads);
  return b_.CreateIntrinsic(b_.getInt32Ty(), llvm::Intrinsic::nvvm_read_ptx_sreg_ntid_x, {});
}

llvm::Value* DeviceOps::Blocks() const {
  if (thread_ != nullptr)
    return LoadAbiField<quench_emulated_thread>(b_, thread_, EmulatedThread::blocks);
  return b_.CreateIntrinsic(b_.getInt32Ty(), llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x, {});
}

llvm::Value* DeviceOps::Shared(llvm::Value* offset) const {
  if (thread_ != nullptr) {
    llvm::Value* shared = LoadAbiField<quench_emulated_thread>(b_, thread_, EmulatedThread::shared);
    return b_.CreateGEP(b_.getInt8Ty(), shared, offset);
  }
  llvm::GlobalVariable* memory = SharedMemory(*b_.GetInsertBlock()->getModule());
  return b_.CreateGEP(b_.getInt8Ty(), memory, b_.CreateTrunc(offset, b_.getInt32Ty()));
}

llvm::Value* DeviceOps::SharedWord(llvm::Value* offset) const {
  return b_.CreatePtrToInt(Shared(offset), b_.getInt32Ty());
}

void DeviceOps::Barrier() const {
  if (thread_ != nullptr) {
    Call(EmulatedOps::barrier, b_.getVoidTy(), {});
  } else {
    Line("bar.sync 0;", "~{memory}", b_.getVoidTy(), {});
  }
}

void DeviceOps::CopyToShared(llvm::Value* offset, llvm::Value* from, llvm::Value* present) const {
  llvm::Type* i32 = b_.getInt32Ty();
  llvm::Value* bytes =
      b_.CreateSelect(present, b_.getInt32(static_cast<uint32_t>(kChunk)), b_.getInt32(0));
  if (thread_ != nullptr) {
    Call(EmulatedOps::copy_async, b_.getVoidTy(), {Shared(offset), from, bytes});
    return;
  }
  if (!IsBefore80()) {
    Line("cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r,~{memory}", b_.getVoidTy(),
         {SharedWord(offset), GlobalWord(from), bytes});
    return;
  }
  // Through registers, at once.
  auto* words = llvm::FixedVectorType::get(i32, 4);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* load = llvm::BasicBlock::Create(b_.getContext(), "copy", function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "copied", function);
  b_.CreateCondBr(present, load, after);
  b_.SetInsertPoint(load);
  llvm::Value* global =
      b_.CreateAddrSpaceCast(from, llvm::PointerType::get(b_.getContext(), kGlobalSpace));
  llvm::Value* loaded = b_.CreateAlignedLoad(words, global, llvm::Align(kChunk));
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* value = b_.CreatePHI(words, 2);
  value->addIncoming(llvm::Constant::getNullValue(words), before);
  value->addIncoming(loaded, load);
  b_.CreateAlignedStore(value, Shared(offset), llvm::Align(kChunk));
}

llvm::Value* DeviceOps::GlobalWord(llvm::Value* address) const {
  llvm::Type* global = llvm::PointerType::get(b_.getContext(), kGlobalSpace);
  return b_.CreatePtrToInt(b_.CreateAddrSpaceCast(address, global), b_.getInt64Ty());
}

llvm::Value* DeviceOps::LoadIf(llvm::Value* present, llvm::Value* from, uint32_t bytes) const {
  static constexpr const char* kLines[] = {
      "mov.b16 $0, 0; @p ld.global.u8 $0, [$1];", "mov.b16 $0, 0; @p ld.global.b16 $0, [$1];",
      "mov.b32 $0, 0; @p ld.global.b32 $0, [$1];", "mov.b64 $0, 0; @p ld.global.b64 $0, [$1];"};
  const auto which = static_cast<size_t>(std::countr_zero(bytes));
  // A byte is in the register of two.
  llvm::Type* type = b_.getIntNTy(std::max(bytes, 2U) * 8);
  const char* const outputs[] = {"=&h", "=&h", "=&r", "=&l"};  // written before all are read
  const std::string text =
      fmt::format("{{ .reg .pred p; setp.ne.b32 p, $2, 0; {} }}", kLines[which]);
  llvm::Value* value = Line(text, fmt::format("{},l,r", outputs[which]), type,
                            {GlobalWord(from), b_.CreateZExt(present, b_.getInt32Ty())});
  return b_.CreateTrunc(value, b_.getIntNTy(bytes * 8));
}

void DeviceOps::CopyPartToShared(llvm::Value* offset, llvm::Value* from, llvm::Value* present,
                                 uint32_t bytes) const {
  if (thread_ != nullptr) {
    Call(EmulatedOps::copy_part, b_.getVoidTy(),
         {Shared(offset), from, b_.getInt32(bytes), b_.CreateZExt(present, b_.getInt32Ty())});
    return;
  }
  if (bytes >= 4 && !IsBefore80()) {
    Line(fmt::format("cp.async.ca.shared.global [$0], [$1], {}, $2;", bytes), "r,l,r,~{memory}",
         b_.getVoidTy(),
         {SharedWord(offset), GlobalWord(from),
          b_.CreateSelect(present, b_.getInt32(bytes), b_.getInt32(0))});
    return;
  }
  b_.CreateAlignedStore(LoadIf(present, from, bytes), Shared(offset), llvm::Align(bytes));
}

void DeviceOps::CommitCopies() const {
  if (thread_ != nullptr) {
    Call(EmulatedOps::commit, b_.getVoidTy(), {});
  } else if (!IsBefore80()) {
    Line("cp.async.commit_group;", "~{memory}", b_.getVoidTy(), {});
  }
}

void DeviceOps::WaitForCopies(int pending) const {
  if (thread_ != nullptr) {
    Call(EmulatedOps::wait, b_.getVoidTy(), {b_.getInt32(static_cast<uint32_t>(pending))});
  } else if (!IsBefore80()) {
    Line(fmt::format("cp.async.wait_group {};", pending), "~{memory}", b_.getVoidTy(), {});
  }
}

std::array<llvm::Value*, 4> DeviceOps::LoadMatrices(llvm::Value* offset, bool transposed) const {
  std::array<llvm::Value*, 4> words{};
  llvm::Type* i32 = b_.getInt32Ty();
  if (thread_ != nullptr) {
    llvm::Value* out = Words(b_, 4);
    Call(EmulatedOps::load_matrices, b_.getVoidTy(),
         {Shared(offset), b_.getInt32(transposed ? 1 : 0), out});
    for (unsigned i = 0; i < 4; ++i)
      words[i] = b_.CreateLoad(i32, b_.CreateConstGEP1_32(i32, out, i));
    return words;
  }
  llvm::Type* four = llvm::StructType::get(i32, i32, i32, i32);
  const std::string text =
      fmt::format("ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{$0, $1, $2, $3}}, [$4];",
                  transposed ? ".trans" : "");
  llvm::Value* all = Line(text, "=r,=r,=r,=r,r,~{memory}", four, {SharedWord(offset)});
  for (unsigned i = 0; i < 4; ++i) words[i] = b_.CreateExtractValue(all, i);
  return words;
}

bool DeviceOps::IsBefore80() const { return gpu_.features < QUENCH_CUDA_SM_80; }

void DeviceOps::Multiply(const std::string& shape, std::vector<llvm::Value*>& sums,
                         const std::vector<llvm::Value*>& a,
                         const std::vector<llvm::Value*>& b) const {
  const bool floats = sums[0]->getType()->isFloatTy();
  std::vector<llvm::Type*> results(sums.size(), sums[0]->getType());
  std::vector<llvm::Value*> operands = a;
  operands.insert(operands.end(), b.begin(), b.end());
  operands.insert(operands.end(), sums.begin(), sums.end());
  size_t next = 0;
  const auto list = [&](size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += fmt::format("{}${}", i == 0 ? "" : ", ", next++);
    return text;
  };
  std::string text = fmt::format("mma.sync.aligned.{} {{{}}}", shape, list(sums.size()));
  text += fmt::format(", {{{}}}", list(a.size()));
  text += fmt::format(", {{{}}}", list(b.size()));
  text += fmt::format(", {{{}}};", list(sums.size()));
  std::string constraints;
  for (size_t i = 0; i < sums.size(); ++i) constraints += floats ? "=f," : "=r,";
  for (size_t i = 0; i < a.size() + b.size(); ++i) constraints += "r,";
  for (size_t i = 0; i < sums.size(); ++i) constraints += floats ? "f," : "r,";
  constraints.pop_back();
  llvm::Value* all = Line(text, constraints, llvm::StructType::get(b_.getContext(), results),
                          operands, /*pure=*/true);
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = b_.CreateExtractValue(all, static_cast<unsigned>(i));
}

void DeviceOps::AddProducts(WarpProducts products, std::array<llvm::Value*, 4>& sums,
                            const std::array<llvm::Value*, 4>& a,
                            const std::array<llvm::Value*, 2>& b) const {
  if (thread_ != nullptr) {
    static constexpr uint32_t kKinds[] = {QUENCH_MMA_F16, QUENCH_MMA_BF16, QUENCH_MMA_TF32,
                                          QUENCH_MMA_I8, QUENCH_MMA_U8};
    llvm::Type* i32 = b_.getInt32Ty();
    const auto spill = [&](auto& values) {
      llvm::Value* memory = Words(b_, values.size());
      for (unsigned i = 0; i < values.size(); ++i)
        b_.CreateStore(values[i], b_.CreateConstGEP1_32(i32, memory, i));
      return memory;
    };
    llvm::Type* type = sums[0]->getType();
    llvm::Value *memory = spill(sums), *left = spill(a), *right = spill(b);
    Call(EmulatedOps::mma, b_.getVoidTy(),
         {b_.getInt32(kKinds[static_cast<size_t>(products)]), memory, left, right});
    for (unsigned i = 0; i < sums.size(); ++i)
      sums[i] = b_.CreateLoad(type, b_.CreateConstGEP1_32(i32, memory, i));
    return;
  }
  static constexpr const char* kShapes[] = {
      "m16n8k16.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f32.bf16.bf16.f32",
      "m16n8k8.row.col.f32.tf32.tf32.f32", "m16n8k32.row.col.s32.s8.s8.s32",
      "m16n8k32.row.col.s32.u8.s8.s32"};
  std::vector<llvm::Value*> all(sums.begin(), sums.end());
  const auto put = [&] { std::copy(all.begin(), all.end(), sums.begin()); };
  if (!IsBefore80()) {
    Multiply(kShapes[static_cast<size_t>(products)], all, {a.begin(), a.end()},
             {b.begin(), b.end()});
    return put();
  }
  // Turing's are smaller: of 16 bytes, and of bytes also of 8 rows.
  if (products == WarpProducts::kF16) {
    for (size_t half = 0; half < 2; ++half)
      Multiply("m16n8k8.row.col.f32.f16.f16.f32", all, {a[2 * half], a[2 * half + 1]}, {b[half]});
    return put();
  }
  const char* shape = products == WarpProducts::kI8 ? "m8n8k16.row.col.s32.s8.s8.s32"
                                                    : "m8n8k16.row.col.s32.u8.s8.s32";
  for (size_t rows = 0; rows < 2; ++rows) {
    std::vector<llvm::Value*> part = {all[2 * rows], all[2 * rows + 1]};
    for (size_t half = 0; half < 2; ++half) Multiply(shape, part, {a[2 * half + rows]}, {b[half]});
    std::copy(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(2 * rows));
  }
  put();
}

llvm::Value* DeviceOps::RoundToTf32(llvm::Value* word) const {
  if (thread_ == nullptr) {
    return Line("cvt.rna.tf32.f32 $0, $1;", "=r,f", b_.getInt32Ty(),
                {b_.CreateBitCast(word, b_.getFloatTy())}, /*pure=*/true);
  }
  constexpr uint32_t kInfinity = 0x7F800000, kDropped = 0x1FFF, kHalf = 0x1000;
  llvm::Value* exponent = b_.CreateAnd(word, b_.getInt32(kInfinity));
  llvm::Value* rounded =
      b_.CreateAnd(b_.CreateAdd(word, b_.getInt32(kHalf)), b_.getInt32(~kDropped));
  return b_.CreateSelect(b_.CreateICmpEQ(exponent, b_.getInt32(kInfinity)), word, rounded);
}

void DeviceOps::SyncWarp() const {
  if (thread_ != nullptr) {
    ShuffleXor(b_.getInt32(0), 0);  // all of the warp come to it
  } else {
    Line("bar.warp.sync 0xffffffff;", "~{memory}", b_.getVoidTy(), {});
  }
}

llvm::Value* DeviceOps::ShuffleXor(llvm::Value* word, int mask) const {
  llvm::Value* other = b_.getInt32(static_cast<uint32_t>(mask));
  if (thread_ != nullptr) return Call(EmulatedOps::shuffle_xor, b_.getInt32Ty(), {word, other});
  return Line("shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", "=r,r,r", b_.getInt32Ty(),
              {word, other});
}

llvm::Value* DeviceOps::HalvesOf(llvm::Value* low, llvm::Value* high, DataType type) const {
  if (thread_ != nullptr) return nullptr;
  const bool bf16 = type == DataType::kBF16;
  if (bf16 || !IsBefore80()) {
    return Line(fmt::format("cvt.rn.{}x2.f32 $0, $1, $2;", bf16 ? "bf16" : "f16"), "=r,f,f",
                b_.getInt32Ty(), {high, low}, /*pure=*/true);
  }
  return Line(
      "{ .reg .b16 low, high; cvt.rn.f16.f32 low, $1; cvt.rn.f16.f32 high, $2; mov.b32 $0, {low, "
      "high}; }",
      "=r,f,f", b_.getInt32Ty(), {low, high}, /*pure=*/true);
}

llvm::Value* DeviceOps::Exp2(llvm::Value* x) const {
  if (thread_ != nullptr) return nullptr;
  return Line("ex2.approx.ftz.f32 $0, $1;", "=f,f", b_.getFloatTy(), {x}, /*pure=*/true);
}

void DeviceOps::Access(llvm::Value* address, uint64_t bytes, bool write) const {
  Call(EmulatedOps::access, b_.getVoidTy(),
       {address, b_.getInt64(bytes), b_.getInt32(write ? 1 : 0)});
}

}  // namespace quench::codegen
