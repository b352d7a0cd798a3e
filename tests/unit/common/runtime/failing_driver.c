#define _GNU_SOURCE /* RTLD_NEXT */
/* The emulated driver, with calls that fail when a test says so: those that give or do something. */
#include "tests/unit/common/runtime/failing_driver.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static const char* only;
static int at, objects;
static CUresult code;

void failing_driver_arm(const char* name, int call, CUresult result) {
  only = name;
  at = call;
  code = result;
}

int failing_driver_fired(void) { return at == 0; }

static int fails(const char* name) {
  if (at <= 0 || (only != NULL && strcmp(only, name) != 0)) return 0;
  return --at == 0;
}

int failing_driver_objects(void) { return objects; }

#define CALL_NEXT(name, parameters)       \
  CUresult(*next) parameters;             \
  void* symbol = dlsym(RTLD_NEXT, #name); \
  memcpy(&next, &symbol, sizeof next);

/* `made` objects there are more after a call that succeeds. */
#define FORWARD(name, parameters, arguments, made) \
  CUresult name parameters;                        \
  CUresult name parameters {                       \
    CALL_NEXT(name, parameters)                    \
    if (fails(#name)) return code;                 \
    const CUresult result = next arguments;        \
    if (result == CUDA_SUCCESS) objects += (made); \
    return result;                                 \
  }

FORWARD(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal), 0)
FORWARD(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device), 1)
FORWARD(cuCtxPushCurrent_v2, (CUcontext context), (context), 1)
FORWARD(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), (address, bytes), 1)
FORWARD(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
        (to, from, bytes, stream), 0)
FORWARD(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
        (to, from, bytes, stream), 0)
FORWARD(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
        (to, from, bytes, stream), 0)
FORWARD(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream),
        (to, value, count, stream), 0)
FORWARD(cuModuleLoadDataEx,
        (CUmodule * module, const void* image, unsigned num_options, int* options, void** values),
        (module, image, num_options, options, values), 1)
FORWARD(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name),
        (function, module, name), 0)
FORWARD(cuFuncSetAttribute, (CUfunction function, int attribute, int value),
        (function, attribute, value), 0)
FORWARD(cuLaunchKernel,
        (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
         unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
         void** arguments, void** extra),
        (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
         arguments, extra),
        0)
FORWARD(cuStreamCreate, (CUstream * stream, unsigned flags), (stream, flags), 1)
FORWARD(cuStreamSynchronize, (CUstream stream), (stream), 0)
FORWARD(cuStreamBeginCapture_v2, (CUstream stream, int mode), (stream, mode), 0)
FORWARD(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
        (exec, graph, flags), 1)
FORWARD(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, stream), 0)
FORWARD(cuEventCreate, (CUevent * event, unsigned flags), (event, flags), 1)
FORWARD(cuEventRecord, (CUevent event, CUstream stream), (event, stream), 0)
FORWARD(cuEventElapsedTime, (float* milliseconds, CUevent from, CUevent to),
        (milliseconds, from, to), 0)

/* The end of a capture happens even where it fails. */
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph);
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  CALL_NEXT(cuStreamEndCapture, (CUstream, CUgraph*))
  const CUresult result = next(stream, graph);
  if (result == CUDA_SUCCESS) ++objects;
  return fails("cuStreamEndCapture") ? code : result;
}

#define RELEASE(name, parameters, arguments) \
  CUresult name parameters;                  \
  CUresult name parameters {                 \
    CALL_NEXT(name, parameters)              \
    const CUresult result = next arguments;  \
    if (result == CUDA_SUCCESS) --objects;   \
    return result;                           \
  }

RELEASE(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device))
RELEASE(cuCtxPopCurrent_v2, (CUcontext * context), (context))
RELEASE(cuMemFree_v2, (CUdeviceptr address), (address))
RELEASE(cuModuleUnload, (CUmodule module), (module))
RELEASE(cuStreamDestroy_v2, (CUstream stream), (stream))
RELEASE(cuGraphDestroy, (CUgraph graph), (graph))
RELEASE(cuGraphExecDestroy, (CUgraphExec exec), (exec))
RELEASE(cuEventDestroy_v2, (CUevent event), (event))
