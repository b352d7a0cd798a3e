// Instructions of a GPU that are no plain LLVM: intrinsics of NVPTX, or calls of the emulated device.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>

namespace quench::codegen {

// LLVM's numbers of NVPTX's address spaces.
inline constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;

class DeviceOps {
 public:
  // `thread` is the emulated thread, a quench_emulated_thread*; null: the target is a GPU.
  DeviceOps(llvm::IRBuilder<>& b, llvm::Value* thread) : b_(b), thread_(thread) {}

  // i32: the thread's index in its block, the block's index, and how many there are of both.
  llvm::Value* Thread() const;
  llvm::Value* Block() const;
  llvm::Value* BlockThreads() const;
  llvm::Value* Blocks() const;

  // Emulated devices only: `bytes` at `address` are about to be read, or written.
  void Access(llvm::Value* address, uint64_t bytes, bool write) const;

 private:
  llvm::IRBuilder<>& b_;
  llvm::Value* thread_;
};

}  // namespace quench::codegen
