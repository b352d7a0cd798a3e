// Devices, contexts and memory.
#include "common/runtime/device/emulated/driver.h"

#include <algorithm>
#include <cstring>

extern "C" {
int quench_emulated_cuda(void);
const char* quench_emulated_report(void);
uint64_t quench_emulated_live_bytes(void);
uint64_t quench_emulated_launches(void);
}

namespace quench::emulated {
namespace {

bool IsDevice(const Driver& driver, CUdevice device) {
  return device >= 0 && device < driver.settings.devices;
}

struct Error {
  CUresult code;
  const char *name, *text;
};

constexpr Error kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kIllegalState, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Error* FindError(CUresult code) {
  const auto* const found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                         [&](const Error& error) { return error.code == code; });
  return found == std::end(kErrors) ? nullptr : found;
}

}  // namespace
}  // namespace quench::emulated

using namespace quench::emulated;

int quench_emulated_cuda(void) { return 1; }

const char* quench_emulated_report(void) {
  const Call call(false);
  return call->report.c_str();
}

uint64_t quench_emulated_live_bytes(void) {
  const Call call(false);
  return call->memory.live_bytes();
}

uint64_t quench_emulated_launches(void) {
  const Call call(false);
  return call->launches;
}

CUresult cuInit(unsigned flags) {
  const Call call(false);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (call->Retained()) return CUDA_SUCCESS;
  call->initialized = false;
  call->report.clear();
  if (!ReadSettings(&call->settings, &call->report)) return CUDA_ERROR_INVALID_VALUE;
  if (call->settings.devices == 0) return CUDA_ERROR_NO_DEVICE;
  if (!call->memory.Reserve()) return CUDA_ERROR_OUT_OF_MEMORY;
  call->initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  const Call call(false);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Settings settings = call->settings;
  std::string problem;
  if (!call->initialized && !ReadSettings(&settings, &problem)) settings = {};
  *version = settings.driver;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  const Error* const found = FindError(error);
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const Error* const found = FindError(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  *count = call->settings.devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  if (!IsDevice(*call, ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  constexpr char kName[] = "Quench emulated device";
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  if (!IsDevice(*call, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (name == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t bytes = std::min(sizeof(kName) - 1, static_cast<size_t>(size) - 1);
  std::memcpy(name, kName, bytes);
  name[bytes] = '\0';
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  if (!IsDevice(*call, device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = kMostThreads;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = kMostSharedBytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  if (!IsDevice(*call, device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = call->settings.memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  if (!IsDevice(*call, device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& found = call->contexts[static_cast<size_t>(device)];
  found.device = device;
  ++found.retains;
  *context = HandleOf(&found);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  if (!IsDevice(*call, device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& context = call->contexts[static_cast<size_t>(device)];
  if (context.retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context.retains == 0) Reset(&*call, &context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  const auto is_it = [&](const Context& other) {
    return HandleOf(&other) == context && other.retains > 0;
  };
  auto& contexts = call->contexts;
  auto* const found = std::find_if(contexts.begin(), contexts.end(), is_it);
  if (found == contexts.end()) return CUDA_ERROR_INVALID_CONTEXT;
  CurrentContexts().push_back(found);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  if (CurrentContexts().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = HandleOf(CurrentContexts().back());
  CurrentContexts().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  *total_bytes = call->settings.memory_bytes;
  *free_bytes = call->settings.memory_bytes - call->memory.live_bytes();
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  const Call call;
  if (call.result != CUDA_SUCCESS) return call.result;
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (RefusedByCapture(&*call)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (bytes > call->settings.memory_bytes - call->memory.live_bytes()) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = call->memory.Allocate(bytes, call.context->device);
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  const Call call;
  if (!call.MayRelease()) return call.result;
  if (RefusedByCapture(&*call)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (address == 0) return call.result;
  return call.Released(call->memory.Free(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
  const Call call(false);
  if (call.result != CUDA_SUCCESS) return call.result;
  const Allocation* const allocation = call->memory.Find(address, 1);
  if (value == nullptr || allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) {
    const Context& context = call->contexts[static_cast<size_t>(allocation->device)];
    *static_cast<CUcontext*>(value) = HandleOf(&context);
    return CUDA_SUCCESS;
  }
  if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
    *static_cast<unsigned*>(value) = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
