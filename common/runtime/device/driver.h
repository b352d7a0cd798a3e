/* The CUDA driver of this process, and its GPUs. */
#ifndef QUENCH_COMMON_RUNTIME_DEVICE_DRIVER_H_
#define QUENCH_COMMON_RUNTIME_DEVICE_DRIVER_H_

#include "common/runtime/device/cuda_api.h"
#include "common/runtime/rt_internal.h"

/* 32-bit systems have no driver, and an address of the device does not fit into a pointer there. */
#define QUENCH_RT_GPUS (UINTPTR_MAX > 0xffffffffu)

#if QUENCH_RT_GPUS
#ifdef __cplusplus
extern "C" {
#endif

typedef struct quench_driver {
  quench_cuda cuda;
  int version; /* 12040 is 12.4 */
  int num_gpus;
  int emulated;
} quench_driver;

/* Opened by the first call; NULL, with a sentence, where there is none: the same in every call. */
const quench_driver* quench_driver_open(quench_rt_error* error);

/* The driver's words for an error. */
const char* quench_driver_text(const quench_driver* driver, CUresult result);

typedef struct quench_gpu {
  const quench_driver* driver;
  CUdevice device;
  uint32_t index;
  quench_rt_gpu about;
} quench_gpu;

int quench_gpu_find(uint32_t index, quench_gpu* gpu, quench_rt_error* error);

/* "1.2 GB" */
const char* quench_bytes_text(uint64_t bytes, char text[32]);

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_RT_GPUS */
#endif /* QUENCH_COMMON_RUNTIME_DEVICE_DRIVER_H_ */
