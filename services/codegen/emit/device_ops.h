// Instructions of a GPU that are no plain LLVM: intrinsics and assembly of PTX, or calls of the emulated device.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "services/codegen/forms/gpu_builder.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// LLVM's numbers of NVPTX's address spaces.
inline constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;

// The attribute for the most registers of a function's threads, as LLVM calls it from version 20 on.
inline constexpr char kRegistersAttribute[] = "nvvm.maxnreg";

class DeviceOps {
 public:
  // `thread` is the emulated thread, a quench_emulated_thread*; null: the target is a GPU.
  DeviceOps(llvm::IRBuilder<>& b, llvm::Value* thread, const Gpu& gpu)
      : b_(b), thread_(thread), gpu_(gpu) {}

  // i32: the thread's index in its block, the block's index, and how many there are of both.
  llvm::Value* Thread() const;
  llvm::Value* Block() const;
  llvm::Value* BlockThreads() const;
  llvm::Value* Blocks() const;

  // As GpuBuilder has them. Offsets are i64.
  llvm::Value* Shared(llvm::Value* offset) const;  // its address
  void Barrier() const;
  void CopyToShared(llvm::Value* offset, llvm::Value* from, llvm::Value* present) const;
  void CopyPartToShared(llvm::Value* offset, llvm::Value* from, llvm::Value* present,
                        uint32_t bytes) const;
  void CommitCopies() const;
  void WaitForCopies(int pending) const;
  std::array<llvm::Value*, 4> LoadMatrices(llvm::Value* offset, bool transposed) const;
  void AddProducts(WarpProducts products, std::array<llvm::Value*, 4>& sums,
                   const std::array<llvm::Value*, 4>& a,
                   const std::array<llvm::Value*, 2>& b) const;
  llvm::Value* RoundToTf32(llvm::Value* word) const;
  void SyncWarp() const;
  llvm::Value* ShuffleXor(llvm::Value* word, int mask) const;
  // Null on emulated devices, which compute these as CPUs do.
  llvm::Value* HalvesOf(llvm::Value* low, llvm::Value* high, DataType type) const;
  llvm::Value* Exp2(llvm::Value* x) const;

  // Emulated devices only: `bytes` at `address` are about to be read, or written.
  void Access(llvm::Value* address, uint64_t bytes, bool write) const;

 private:
  // A call of the emulated device's function at this field of quench_emulated_ops, the thread first.
  llvm::Value* Call(unsigned field, llvm::Type* result,
                    const std::vector<llvm::Value*>& arguments) const;
  // A line of PTX. `constraints` as LLVM's inline assembly has them.
  llvm::Value* Line(const std::string& text, const std::string& constraints, llvm::Type* result,
                    const std::vector<llvm::Value*>& operands, bool pure = false) const;
  llvm::Value* GlobalWord(llvm::Value* address) const;  // in global memory, i64
  // The integer of 1, 2, 4 or 8 bytes at an address in global memory; 0, unread, unless `present`.
  llvm::Value* LoadIf(llvm::Value* present, llvm::Value* from, uint32_t bytes) const;
  llvm::Value* SharedWord(llvm::Value* offset) const;  // its address in shared memory, i32
  // One instruction; sums are of one type.
  void Multiply(const std::string& shape, std::vector<llvm::Value*>& sums,
                const std::vector<llvm::Value*>& a, const std::vector<llvm::Value*>& b) const;
  bool IsBefore80() const;

  llvm::IRBuilder<>& b_;
  llvm::Value* thread_;
  const Gpu& gpu_;
};

}  // namespace quench::codegen
