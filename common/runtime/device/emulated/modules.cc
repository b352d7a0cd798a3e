// Modules and their functions.
#include <link.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/runtime/device/emulated/driver.h"

namespace quench::emulated {
namespace {

struct Search {
  uint64_t address;
  std::vector<Span> constants;
};

// dl_iterate_phdr: what can only be read of the library that has the address.
int NoteConstants(dl_phdr_info* info, size_t /*size*/, void* data) {
  auto& search = *static_cast<Search*>(data);
  std::vector<Span> constants;
  bool found = false;
  for (uint32_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD && header.p_type != PT_GNU_RELRO) continue;
    const uint64_t begin = info->dlpi_addr + header.p_vaddr;
    const Span span = {begin, begin + header.p_memsz};
    found |= span.Holds(search.address, 1);
    if (header.p_type == PT_GNU_RELRO || (header.p_flags & PF_W) == 0) constants.push_back(span);
  }
  if (found) search.constants = std::move(constants);
  return found ? 1 : 0;
}

std::vector<Span> ConstantsOf(quench_emulated_kernel kernel) {
  Search search = {std::bit_cast<uint64_t>(kernel), {}};
  dl_iterate_phdr(NoteConstants, &search);
  return search.constants;
}

constexpr uint64_t kMostArgumentBytes =
    4352;  // PTX ISA, "Kernel Function Parameters", before PTX 8.1

uint64_t ArgumentBytes(const quench_emulated_entry& entry) {
  return std::accumulate(entry.argument_bytes, entry.argument_bytes + entry.num_arguments,
                         uint64_t{0});
}

bool IsImage(const void* data) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  for (uint32_t i = 0; i < 4; ++i) {  // text may end before
    if (bytes[i] != (QUENCH_EMULATED_MAGIC >> (8 * i) & 255)) return false;
  }
  const auto& image = *static_cast<const quench_emulated_image*>(data);
  if (image.num_entries > 0 && image.entries == nullptr) return false;
  return std::all_of(image.entries, image.entries + image.num_entries,
                     [](const quench_emulated_entry& entry) {
                       return entry.name != nullptr && entry.kernel != nullptr &&
                              (entry.num_arguments == 0 || entry.argument_bytes != nullptr) &&
                              ArgumentBytes(entry) <= kMostArgumentBytes;
                     });
}

// As ptxas does.
void WriteErrorLog(const char* text, unsigned num_options, const int* options, void** values) {
  char* log = nullptr;
  size_t bytes = 0;
  for (unsigned i = 0; i < num_options; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      bytes = static_cast<uint32_t>(std::bit_cast<uint64_t>(values[i]));
    }
  }
  if (log == nullptr || bytes == 0) return;
  const size_t length = std::min(std::strlen(text), bytes - 1);
  std::memcpy(log, text, length);
  log[length] = '\0';
}

}  // namespace
}  // namespace quench::emulated

using namespace quench::emulated;

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned num_options, int* options,
                            void** values) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsImage(image)) {
    WriteErrorLog("not an image of the emulated device", num_options, options, values);
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const auto& loaded = *static_cast<const quench_emulated_image*>(image);
  Module added = {call.context, {}};
  for (uint32_t i = 0; i < loaded.num_entries; ++i) {
    const quench_emulated_entry& entry = loaded.entries[i];
    added.functions.push_back(
        call->functions.Add({call.context, &entry, kSharedBytes, ConstantsOf(entry.kernel)}));
  }
  *module = call->modules.Add(std::move(added));
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  const Call call;
  if (!call.MayRelease()) return call.result;
  const Module* const found = call->modules.Find(module);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (CUfunction function : found->functions) call->functions.Erase(function);
  call->modules.Erase(module);
  return call.result;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Module* const found = call->modules.Find(module);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (CUfunction candidate : found->functions) {
    if (std::strcmp(call->functions.Find(candidate)->entry->name, name) != 0) continue;
    *function = candidate;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  Function* const found = call->functions.Find(function);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      static_cast<uint32_t>(value) > kMostSharedBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->most_shared_bytes = static_cast<uint32_t>(value);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** arguments, void** extra) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  const Function* const found = call->functions.Find(function);
  if (found == nullptr || found->context != call.context) return CUDA_ERROR_INVALID_HANDLE;
  const quench_emulated_entry& entry = *found->entry;
  const auto within = [](unsigned value, uint64_t most) { return value >= 1 && value <= most; };
  const uint64_t most_blocks = 0x7FFFFFFF;
  if (!within(grid_x, most_blocks) || !within(grid_y, 65535) || !within(grid_z, 65535) ||
      !within(block_x, kMostThreads) || !within(block_y, kMostThreads) || !within(block_z, 64) ||
      uint64_t{block_x} * block_y * block_z > kMostThreads ||
      uint64_t{grid_y} * grid_z > most_blocks / grid_x) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (shared_bytes > found->most_shared_bytes || extra != nullptr ||
      (entry.num_arguments > 0 && arguments == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelOperation operation = {
      function, entry.name, grid_x * grid_y * grid_z, block_x * block_y * block_z, shared_bytes,
      {},       {}};
  for (uint32_t i = 0; i < entry.num_arguments; ++i) {
    const size_t offset = RoundUp(operation.arguments.size(), 16);
    operation.offsets.push_back(offset);
    operation.arguments.resize(offset + entry.argument_bytes[i]);
    std::memcpy(operation.arguments.data() + offset, arguments[i], entry.argument_bytes[i]);
  }
  return Submit(call, stream, std::move(operation));
}
