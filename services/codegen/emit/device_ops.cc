#include "services/codegen/emit/device_ops.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include "services/codegen/emit/abi_structs.h"

namespace quench::codegen {
namespace {

using EmulatedThread = AbiStruct<quench_emulated_thread>;
using EmulatedOps = AbiStruct<quench_emulated_ops>;

}  // namespace

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

void DeviceOps::Access(llvm::Value* address, uint64_t bytes, bool write) const {
  llvm::Value* ops = LoadAbiField<quench_emulated_thread>(b_, thread_, EmulatedThread::ops);
  llvm::Value* function = LoadAbiField<quench_emulated_ops>(b_, ops, EmulatedOps::access);
  llvm::Type* ptr = b_.getPtrTy();
  auto* type = llvm::FunctionType::get(
      b_.getVoidTy(), {ptr, ptr, b_.getInt64Ty(), b_.getInt32Ty()}, false);
  b_.CreateCall(type, function,
                {thread_, address, b_.getInt64(bytes), b_.getInt32(write ? 1 : 0)});
}

}  // namespace quench::codegen
