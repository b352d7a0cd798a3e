#include "tests/fuzz/graphs/guarded_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

extern "C" void __libc_free(void*);
extern "C" void* __libc_memalign(size_t, size_t);

namespace quench::fuzz {
namespace {

constexpr size_t kPage = 4096, kReserved = size_t{1} << 36;

struct Block {
  unsigned char* data;
  size_t size, pages;
  bool freed;
};

std::atomic<bool> guarding{false};
std::atomic<int> filled{0};
std::mutex mutex;
unsigned char *region = nullptr, *free_from = nullptr;
std::vector<Block>* blocks = nullptr;
bool overrun = false;

bool IsOurs(const void* memory) {
  const auto* at = static_cast<const unsigned char*>(memory);
  return region != nullptr && at >= region && at < region + kReserved;
}

// Whether the bytes behind the block up to its page still have the fill.
bool IsWhole(const Block& block, int fill) {
  for (const unsigned char* at = block.data + block.size;
       reinterpret_cast<uintptr_t>(at) % kPage != 0; ++at) {
    if (*at != fill) return false;
  }
  return true;
}

void* Allocate(size_t alignment, size_t size) {
  const std::lock_guard lock(mutex);
  const size_t pages = (size + alignment + kPage - 1) / kPage * kPage;
  if (free_from + pages + kPage > region + kReserved) return nullptr;
  unsigned char* begin = free_from;
  free_from += pages + kPage;
  if (::mprotect(begin, pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(begin, filled, pages);
  const auto end = reinterpret_cast<uintptr_t>(begin + pages);
  auto* data = reinterpret_cast<unsigned char*>((end - size) / alignment * alignment);
  blocks->push_back({data, size, pages, false});
  return data;
}

void Release(void* memory) {
  const std::lock_guard lock(mutex);
  for (Block& block : *blocks) {
    if (block.data != memory || block.freed) continue;
    block.freed = true;
    overrun = overrun || !IsWhole(block, filled);
    auto* begin = reinterpret_cast<unsigned char*>(
        (reinterpret_cast<uintptr_t>(block.data) + block.size + kPage - 1) / kPage * kPage -
        block.pages);
    ::mprotect(begin, block.pages, PROT_NONE);
    return;
  }
}

}  // namespace

void GuardMemory(uint8_t fill) {
  if (region == nullptr) {
    void* reserved =
        ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return;
    region = free_from = static_cast<unsigned char*>(reserved);
    blocks = new std::vector<Block>;
  }
  filled = fill;
  guarding = true;
}

const char* WrittenBeyond() {
  const std::lock_guard lock(mutex);
  for (const Block& block : *blocks) overrun = overrun || (!block.freed && !IsWhole(block, filled));
  return overrun ? "memory behind a block is written" : "";
}

Tensor Guarded(const Tensor& tensor) {
  const size_t size = tensor.bytes().size();
  void* memory = Allocate(1, size);
  if (memory == nullptr || size == 0) return tensor;
  std::memcpy(memory, tensor.bytes().data(), size);
  return Tensor::View(tensor.dtype(), tensor.dims(), {static_cast<std::byte*>(memory), size},
                      nullptr);
}

}  // namespace quench::fuzz

#ifndef __SANITIZE_ADDRESS__  // whose own memory is guarded by itself
// Before those of the C library.
extern "C" int posix_memalign(void** memory, size_t alignment, size_t size) {
  using namespace quench::fuzz;
  *memory = guarding ? Allocate(alignment, size) : __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
extern "C" void free(void* memory) {
  using namespace quench::fuzz;
  if (IsOurs(memory)) return Release(memory);
  __libc_free(memory);
}
#endif
