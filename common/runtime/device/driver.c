#define _POSIX_C_SOURCE 200809L
/* libcuda.so.1 is opened when the first GPU is asked for, and stays: programs run without it. */
#include "common/runtime/device/driver.h"

#if QUENCH_RT_GPUS
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* In the order of quench_cuda, each with its zero. */
#define EXPORTED(name, exported, arguments) #exported "\0"
static const char kFunctions[] = QUENCH_CUDA_FUNCTIONS(EXPORTED);
#undef EXPORTED

static int look_up(void* library, quench_cuda* cuda, quench_rt_error* error) {
  char* entry = (char*)cuda; /* pointers to functions, which all have one size */
  for (const char* name = kFunctions; *name != '\0'; name += strlen(name) + 1) {
    void* function = dlsym(library, name);
    if (function == NULL) {
      return quench_rt_fail(error, QUENCH_RT_DEVICE, "the CUDA driver is too old: it lacks %s",
                            name);
    }
    memcpy(entry, &function, sizeof function);
    entry += sizeof function;
  }
  return QUENCH_RT_OK;
}

const char* quench_driver_text(const quench_driver* driver, CUresult result) {
  const char* text = NULL;
  if (driver->cuda.GetErrorString(result, &text) == CUDA_SUCCESS && text != NULL) return text;
  return "an error that the driver does not know";
}

static int start(quench_driver* driver, quench_rt_error* error) {
  CUresult result = driver->cuda.Init(0);
  if (result == CUDA_ERROR_NO_DEVICE) return QUENCH_RT_OK; /* num_gpus is 0 */
  if (result == CUDA_SUCCESS) result = driver->cuda.DriverGetVersion(&driver->version);
  if (result == CUDA_SUCCESS) result = driver->cuda.DeviceGetCount(&driver->num_gpus);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NO_DEVICE) return QUENCH_RT_OK;
  return quench_rt_fail(error, QUENCH_RT_DEVICE, "the CUDA driver does not start: %s",
                        quench_driver_text(driver, result));
}

static int open_driver(quench_driver* driver, quench_rt_error* error) {
  const char* name = getenv("QUENCH_CUDA_DRIVER");
  if (name == NULL || *name == '\0') name = "libcuda.so.1";
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    return quench_rt_fail(error, QUENCH_RT_DEVICE,
                          "there is no CUDA driver: %s cannot be loaded (%s)", name, dlerror());
  }
  const int code = look_up(library, &driver->cuda, error);
  if (code != QUENCH_RT_OK) {
    dlclose(library);
    return code;
  }
  driver->emulated = dlsym(library, "quench_emulated_cuda") != NULL;
  return start(driver, error);
}

const quench_driver* quench_driver_open(quench_rt_error* error) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static quench_driver driver;
  static quench_rt_error failure;
  static int code = -1;
  pthread_mutex_lock(&mutex);
  if (code < 0) code = open_driver(&driver, &failure);
  pthread_mutex_unlock(&mutex);
  if (code == QUENCH_RT_OK) return &driver;
  if (error != NULL) *error = failure;
  return NULL;
}

#endif /* QUENCH_RT_GPUS */
