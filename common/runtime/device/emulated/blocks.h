// Runs a kernel: its blocks one after another, the threads of each, and what they do together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/runtime/device/cuda_api.h"
#include "common/runtime/device/emulated.h"
#include "common/runtime/device/emulated/memory.h"

namespace quench::emulated {

constexpr uint32_t kMostThreads = 1024;  // of a block

struct Launch {
  const quench_emulated_entry* entry = nullptr;
  uint32_t blocks = 0, threads = 0, shared_bytes = 0;
  void* const* arguments = nullptr;
  int device = 0;
  std::vector<Span> readable;  // beside memory of the device and of the block: constants, arguments
  bool reverse = false;        // blocks and their threads from the last to the first
  bool races = false;          // finds races in global memory, too
};

struct Failure {
  CUresult code = CUDA_SUCCESS;
  std::string text;  // "kernel `relu`, block 0, thread 3: ..."
};

// Until the end or the first failure, after which no thread goes on. One call at a time.
Failure Run(const Launch& launch, const Memory& memory);

}  // namespace quench::emulated
