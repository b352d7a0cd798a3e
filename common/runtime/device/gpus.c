/* What GPUs there are. */
#include <stdio.h>
#include <string.h>

#include "common/runtime/device/driver.h"

#if QUENCH_RT_GPUS

/* Capability 8.6 runs the code of 8.6 and of all before it. Bit i of QUENCH_CUDA_* is that of entry i. */
static uint64_t features_of(int capability) {
  static const uint8_t kCapabilities[] = {60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90};
  uint64_t features = 0;
  for (unsigned i = 0; i < sizeof kCapabilities; ++i) {
    if (capability >= kCapabilities[i]) features |= UINT64_C(1) << i;
  }
  return features;
}

static CUresult describe(const quench_cuda* cuda, CUdevice device, quench_rt_gpu* about,
                         int* capability) {
  int major = 0, minor = 0, multiprocessors = 0;
  size_t memory = 0;
  CUresult result = cuda->DeviceGetName(about->name, sizeof about->name, device);
  if (result == CUDA_SUCCESS)
    result = cuda->DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (result == CUDA_SUCCESS)
    result = cuda->DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (result == CUDA_SUCCESS)
    result = cuda->DeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                      device);
  if (result == CUDA_SUCCESS) result = cuda->DeviceTotalMem(&memory, device);
  about->multiprocessors = (uint32_t)multiprocessors;
  about->memory = memory;
  *capability = 10 * major + minor;
  return result;
}

int quench_gpu_find(uint32_t index, quench_gpu* gpu, quench_rt_error* error) {
  memset(gpu, 0, sizeof *gpu);
  const quench_driver* driver = quench_driver_open(error);
  if (driver == NULL) return QUENCH_RT_DEVICE;
  if (driver->num_gpus <= 0 || index >= (uint32_t)driver->num_gpus) {
    return quench_rt_fail(error, QUENCH_RT_DEVICE,
                          driver->num_gpus <= 0 ? "there is no GPU %u, the driver has none"
                                                : "there is no GPU %u, the driver has %d",
                          index, driver->num_gpus);
  }
  int capability = 0;
  CUresult result = driver->cuda.DeviceGet(&gpu->device, (int)index);
  if (result == CUDA_SUCCESS)
    result = describe(&driver->cuda, gpu->device, &gpu->about, &capability);
  if (result != CUDA_SUCCESS) {
    memset(gpu, 0, sizeof *gpu);
    return quench_rt_fail(error, QUENCH_RT_DEVICE, "GPU %u cannot be used: %s", index,
                          quench_driver_text(driver, result));
  }
  gpu->driver = driver;
  gpu->index = index;
  gpu->about.size = sizeof gpu->about;
  gpu->about.driver = (uint32_t)driver->version;
  if (driver->emulated) {
    gpu->about.features = QUENCH_CUDA_EMULATED;
    memcpy(gpu->about.arch, "emulated", sizeof "emulated");
  } else {
    gpu->about.features = features_of(capability);
    snprintf(gpu->about.arch, sizeof gpu->about.arch, "sm_%d", capability);
  }
  return QUENCH_RT_OK;
}

int quench_rt_find_gpu(uint32_t index, quench_rt_gpu* gpu, quench_rt_error* error) {
  quench_gpu found;
  const int code = quench_gpu_find(index, &found, error);
  if (code != QUENCH_RT_OK) return code;
  const uint32_t size = gpu->size < sizeof *gpu ? gpu->size : (uint32_t)sizeof *gpu;
  found.about.size = size;
  memcpy(gpu, &found.about, size);
  return QUENCH_RT_OK;
}

const char* quench_bytes_text(uint64_t bytes, char text[32]) {
  static const char* const kUnits[] = {"bytes", "KB", "MB", "GB", "TB"};
  double value = (double)bytes;
  unsigned unit = 0;
  while (value >= 999.95 && unit + 1 < sizeof kUnits / sizeof kUnits[0]) {
    value /= 1000;
    ++unit;
  }
  snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

#else

int quench_rt_find_gpu(uint32_t index, quench_rt_gpu* gpu, quench_rt_error* error) {
  (void)index, (void)gpu;
  return quench_rt_fail(error, QUENCH_RT_DEVICE, "GPUs need a 64-bit system");
}

#endif /* QUENCH_RT_GPUS */
