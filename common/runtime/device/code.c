#define _POSIX_C_SOURCE 200809L
#include "common/runtime/device/code.h"

#if QUENCH_RT_GPUS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kLogBytes = 2048, kSharedOfAll = 48 << 10 /* a block may have so much without asking */ };

/* Loading takes long, and is rare: one at a time, whatever the model. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

CUresult quench_code_enter(const quench_loaded_code* loaded) {
  return loaded->cuda->PushCurrent(loaded->context);
}

void quench_code_leave(const quench_loaded_code* loaded) {
  CUcontext ours;
  (void)loaded->cuda->PopCurrent(&ours);
}

int quench_code_fail_memory(const quench_loaded_code* loaded, const char* what, uint64_t bytes,
                            quench_rt_error* error) {
  size_t free_bytes = 0, total = 0;
  char has[32], needs[32];
  (void)loaded->cuda->MemGetInfo(&free_bytes, &total);
  return quench_rt_fail(error, QUENCH_RT_MEMORY, "GPU %u (%s) has %s free, %s %s",
                        loaded->gpu.index, loaded->gpu.about.name,
                        quench_bytes_text(free_bytes, has), what, quench_bytes_text(bytes, needs));
}

static int fail_of(const quench_loaded_code* loaded, const char* what, CUresult result,
                   quench_rt_error* error) {
  return quench_rt_fail(error, QUENCH_RT_DEVICE, "GPU %u (%s) %s: %s", loaded->gpu.index,
                        loaded->gpu.about.name, what,
                        quench_driver_text(loaded->gpu.driver, result));
}

/* The first line of the log that says something. */
static const char* first_line(char* log) {
  log += strspn(log, "\r\n\t ");
  log[strcspn(log, "\r\n")] = '\0';
  return log;
}

static int load_module(quench_loaded_code* loaded, quench_rt_error* error) {
  char log[kLogBytes] = "";
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, (void*)(uintptr_t)(kLogBytes - 1)};
  const CUresult result =
      loaded->cuda->ModuleLoad(&loaded->module, loaded->code->image, 2, options, values);
  if (result == CUDA_SUCCESS) return QUENCH_RT_OK;
  loaded->module = NULL;
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return quench_code_fail_memory(loaded, "the model's code needs", loaded->code->image_bytes,
                                   error);
  const char* line = first_line(log);
  if (*line == '\0') line = quench_driver_text(loaded->gpu.driver, result);
  if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    const int version = loaded->gpu.driver->version;
    return quench_rt_fail(error, QUENCH_RT_DEVICE,
                          "the driver (CUDA %d.%d) is too old for this library's code: %s",
                          version / 1000, version % 1000 / 10, line);
  }
  return quench_rt_fail(error, QUENCH_RT_DEVICE, "GPU %u (%s) does not take the model's code: %s",
                        loaded->gpu.index, loaded->gpu.about.name, line);
}

static int find_functions(quench_loaded_code* loaded, quench_rt_error* error) {
  const quench_cuda* cuda = loaded->cuda;
  loaded->functions = calloc(loaded->code->num_kernels + 1u, sizeof *loaded->functions);
  if (loaded->functions == NULL) return quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  for (uint32_t i = 0; i < loaded->code->num_kernels; ++i) {
    const quench_device_kernel* kernel = &loaded->code->kernels[i];
    CUresult result = cuda->ModuleGetFunction(&loaded->functions[i], loaded->module, kernel->name);
    if (result == CUDA_SUCCESS && kernel->shared_bytes > kSharedOfAll) {
      result = cuda->FuncSetAttribute(loaded->functions[i],
                                      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      (int)kernel->shared_bytes);
    }
    if (result == CUDA_SUCCESS) continue;
    char what[200];
    snprintf(what, sizeof what, "does not take kernel `%s` (%u threads, %u bytes of shared memory)",
             kernel->name, kernel->threads, kernel->shared_bytes);
    return fail_of(loaded, what, result, error);
  }
  return QUENCH_RT_OK;
}

static CUresult copy_weights(const quench_loaded_code* loaded) {
  const quench_cuda* cuda = loaded->cuda;
  CUstream stream = NULL;
  CUresult result = cuda->StreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < loaded->code->num_ranges; ++i) {
    const quench_device_range* range = &loaded->code->ranges[i];
    if (range->bytes == 0) continue;
    result = cuda->CopyToDevice(loaded->weights + range->device_offset,
                                (const char*)loaded->code->weights + range->offset,
                                (size_t)range->bytes, stream);
  }
  const CUresult waited = cuda->StreamSynchronize(stream);
  (void)cuda->StreamDestroy(stream);
  return result != CUDA_SUCCESS ? result : waited;
}

static int load_weights(quench_loaded_code* loaded, quench_rt_error* error) {
  const uint64_t bytes = loaded->code->weight_bytes;
  if (bytes == 0) return QUENCH_RT_OK;
  CUresult result = loaded->cuda->MemAlloc(&loaded->weights, (size_t)bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    char what[200];
    snprintf(what, sizeof what, "the weights of `%.128s` need", loaded->model->model->name);
    return quench_code_fail_memory(loaded, what, bytes, error);
  }
  if (result == CUDA_SUCCESS) result = copy_weights(loaded);
  if (result == CUDA_SUCCESS) return QUENCH_RT_OK;
  return fail_of(loaded, "does not take the weights", result, error);
}

/* Everything that there is of it; errors of a GPU that has failed do not matter any more. */
static void unload(quench_loaded_code* loaded) {
  const quench_cuda* cuda = loaded->cuda;
  if (loaded->context != NULL) {
    if (quench_code_enter(loaded) == CUDA_SUCCESS) {
      if (loaded->weights != 0) (void)cuda->MemFree(loaded->weights);
      if (loaded->module != NULL) (void)cuda->ModuleUnload(loaded->module);
      quench_code_leave(loaded);
    }
    (void)cuda->PrimaryRelease(loaded->gpu.device);
  }
  free(loaded->functions);
  free(loaded);
}

static int load(quench_loaded_code* loaded, quench_rt_error* error) {
  CUresult result = loaded->cuda->PrimaryRetain(&loaded->context, loaded->gpu.device);
  if (result != CUDA_SUCCESS) loaded->context = NULL;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return quench_rt_fail(error, QUENCH_RT_MEMORY, "GPU %u (%s) has no memory for a context",
                          loaded->gpu.index, loaded->gpu.about.name);
  }
  if (result == CUDA_SUCCESS) result = quench_code_enter(loaded);
  if (result != CUDA_SUCCESS) return fail_of(loaded, "cannot be used", result, error);
  int code = load_module(loaded, error);
  if (code == QUENCH_RT_OK) code = find_functions(loaded, error);
  if (code == QUENCH_RT_OK) code = load_weights(loaded, error);
  quench_code_leave(loaded);
  return code;
}

/* Under the mutex. */
static int acquire(quench_rt_model* model, const quench_variant* variant, uint32_t index,
                   quench_loaded_code** out, quench_rt_error* error) {
  for (quench_loaded_code* each = model->loaded; each != NULL; each = each->next) {
    if (each->variant != variant || each->gpu.index != index) continue;
    ++each->sessions;
    *out = each;
    return QUENCH_RT_OK;
  }
  quench_gpu gpu;
  int code = quench_gpu_find(index, &gpu, error);
  if (code != QUENCH_RT_OK) return code;
  quench_loaded_code* loaded = calloc(1, sizeof *loaded);
  if (loaded == NULL) return quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  loaded->model = model;
  loaded->variant = variant;
  loaded->code = quench_rt_device_code(variant);
  loaded->gpu = gpu;
  loaded->cuda = &gpu.driver->cuda;
  loaded->sessions = 1;
  snprintf(loaded->device, sizeof loaded->device, "cuda:%u %s", index, gpu.about.name);
  code = load(loaded, error);
  if (code != QUENCH_RT_OK) {
    unload(loaded);
    return code;
  }
  loaded->next = model->loaded;
  model->loaded = loaded;
  *out = loaded;
  return QUENCH_RT_OK;
}

int quench_code_acquire(quench_rt_model* model, const quench_variant* variant, uint32_t index,
                        quench_loaded_code** out, quench_rt_error* error) {
  pthread_mutex_lock(&loading);
  const int code = acquire(model, variant, index, out, error);
  pthread_mutex_unlock(&loading);
  return code;
}

void quench_code_release(quench_loaded_code* loaded) {
  pthread_mutex_lock(&loading);
  if (--loaded->sessions == 0) {
    quench_loaded_code** link = &loaded->model->loaded;
    while (*link != loaded) link = &(*link)->next;
    *link = loaded->next;
    unload(loaded);
  }
  pthread_mutex_unlock(&loading);
}

#endif /* QUENCH_RT_GPUS */
