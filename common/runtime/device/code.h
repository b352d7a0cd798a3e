/* A variant's device code on a GPU: module, kernels and weights, which its sessions share. */
#ifndef QUENCH_COMMON_RUNTIME_DEVICE_CODE_H_
#define QUENCH_COMMON_RUNTIME_DEVICE_CODE_H_

#include "common/runtime/device/driver.h"

#if QUENCH_RT_GPUS

typedef struct quench_loaded_code {
  struct quench_loaded_code* next; /* in quench_rt_model.loaded */
  quench_rt_model* model;
  const quench_variant* variant;
  const quench_device_code* code;
  quench_gpu gpu;
  const quench_cuda* cuda;
  uint32_t sessions;
  CUcontext context;
  CUmodule module;
  CUfunction* functions; /* one per kernel */
  CUdeviceptr weights;
  char device[160]; /* "cuda:0 NAME" */
} quench_loaded_code;

/* What a session needs of the GPU `index`: loaded by the first one, freed with the last one. */
int quench_code_acquire(quench_rt_model* model, const quench_variant* variant, uint32_t index,
                        quench_loaded_code** out, quench_rt_error* error);
void quench_code_release(quench_loaded_code* loaded);

/* The calling thread uses the GPU's context until it leaves. */
CUresult quench_code_enter(const quench_loaded_code* loaded);
void quench_code_leave(const quench_loaded_code* loaded);

/* The sentence for memory that the GPU has not got: "GPU 0 (NAME) has 1.2 GB free, `what` 3.4 GB". */
int quench_code_fail_memory(const quench_loaded_code* loaded, const char* what, uint64_t bytes,
                            quench_rt_error* error);

#endif /* QUENCH_RT_GPUS */
#endif /* QUENCH_COMMON_RUNTIME_DEVICE_CODE_H_ */
