/* The part of the CUDA driver's interface that we call, declared in our own words: names, numbers and
 * types are those that libcuda.so.1 exports. (Source: NVIDIA, "CUDA Driver API".) Addresses of the device are
 * CUdeviceptr, 64 bits. */
#ifndef QUENCH_COMMON_RUNTIME_DEVICE_CUDA_API_H_
#define QUENCH_COMMON_RUNTIME_DEVICE_CUDA_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphExec_st* CUgraphExec;

#define CUDA_SUCCESS 0
#define CUDA_ERROR_INVALID_VALUE 1
#define CUDA_ERROR_OUT_OF_MEMORY 2
#define CUDA_ERROR_NOT_INITIALIZED 3
#define CUDA_ERROR_DEINITIALIZED 4
#define CUDA_ERROR_NO_DEVICE 100
#define CUDA_ERROR_INVALID_DEVICE 101
#define CUDA_ERROR_INVALID_IMAGE 200
#define CUDA_ERROR_INVALID_CONTEXT 201
#define CUDA_ERROR_INVALID_PTX 218
#define CUDA_ERROR_UNSUPPORTED_PTX_VERSION 222
#define CUDA_ERROR_INVALID_HANDLE 400
#define CUDA_ERROR_NOT_FOUND 500
#define CUDA_ERROR_NOT_READY 600
#define CUDA_ERROR_ILLEGAL_ADDRESS 700
#define CUDA_ERROR_LAUNCH_FAILED 719
#define CUDA_ERROR_SYSTEM_DRIVER_MISMATCH 803
#define CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED 900
#define CUDA_ERROR_UNKNOWN 999

/* CUdevice_attribute */
#define CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK 1
#define CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT 16
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR 75
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR 76
#define CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN 97
/* CUfunction_attribute */
#define CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES 8
/* CUpointer_attribute */
#define CU_POINTER_ATTRIBUTE_CONTEXT 1
#define CU_POINTER_ATTRIBUTE_MEMORY_TYPE 2
#define CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL 9
#define CU_MEMORYTYPE_DEVICE 2
/* CUjit_option */
#define CU_JIT_INFO_LOG_BUFFER 3
#define CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES 4
#define CU_JIT_ERROR_LOG_BUFFER 5
#define CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES 6
/* CUstream_flags, CUevent_flags, CUstreamCaptureMode */
#define CU_STREAM_NON_BLOCKING 1
#define CU_EVENT_DEFAULT 0
#define CU_STREAM_CAPTURE_MODE_THREAD_LOCAL 1

/* QUENCH_CUDA(name, exported name, arguments) for each function; all return CUresult. */
#define QUENCH_CUDA_FUNCTIONS(QUENCH_CUDA)                                                       \
  QUENCH_CUDA(Init, cuInit, (unsigned flags))                                                    \
  QUENCH_CUDA(DriverGetVersion, cuDriverGetVersion, (int* version))                              \
  QUENCH_CUDA(GetErrorName, cuGetErrorName, (CUresult error, const char** name))                 \
  QUENCH_CUDA(GetErrorString, cuGetErrorString, (CUresult error, const char** text))             \
  QUENCH_CUDA(DeviceGetCount, cuDeviceGetCount, (int* count))                                    \
  QUENCH_CUDA(DeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))                          \
  QUENCH_CUDA(DeviceGetName, cuDeviceGetName, (char* name, int size, CUdevice device))           \
  QUENCH_CUDA(DeviceGetAttribute, cuDeviceGetAttribute,                                          \
              (int* value, int attribute, CUdevice device))                                      \
  QUENCH_CUDA(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device))             \
  QUENCH_CUDA(PrimaryRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))   \
  QUENCH_CUDA(PrimaryRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                   \
  QUENCH_CUDA(PushCurrent, cuCtxPushCurrent_v2, (CUcontext context))                             \
  QUENCH_CUDA(PopCurrent, cuCtxPopCurrent_v2, (CUcontext * context))                             \
  QUENCH_CUDA(MemGetInfo, cuMemGetInfo_v2, (size_t* free_bytes, size_t* total_bytes))            \
  QUENCH_CUDA(MemAlloc, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                    \
  QUENCH_CUDA(MemFree, cuMemFree_v2, (CUdeviceptr address))                                      \
  QUENCH_CUDA(CopyToDevice, cuMemcpyHtoDAsync_v2,                                                \
              (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                 \
  QUENCH_CUDA(CopyToHost, cuMemcpyDtoHAsync_v2,                                                  \
              (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                       \
  QUENCH_CUDA(CopyWithin, cuMemcpyDtoDAsync_v2,                                                  \
              (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                 \
  QUENCH_CUDA(SetWords, cuMemsetD32Async,                                                        \
              (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                   \
  QUENCH_CUDA(PointerGetAttribute, cuPointerGetAttribute,                                        \
              (void* value, int attribute, CUdeviceptr address))                                 \
  QUENCH_CUDA(                                                                                   \
      ModuleLoad, cuModuleLoadDataEx,                                                            \
      (CUmodule * module, const void* image, unsigned num_options, int* options, void** values)) \
  QUENCH_CUDA(ModuleUnload, cuModuleUnload, (CUmodule module))                                   \
  QUENCH_CUDA(ModuleGetFunction, cuModuleGetFunction,                                            \
              (CUfunction * function, CUmodule module, const char* name))                        \
  QUENCH_CUDA(FuncSetAttribute, cuFuncSetAttribute,                                              \
              (CUfunction function, int attribute, int value))                                   \
  QUENCH_CUDA(Launch, cuLaunchKernel,                                                            \
              (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,           \
               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,      \
               CUstream stream, void** arguments, void** extra))                                 \
  QUENCH_CUDA(StreamCreate, cuStreamCreate, (CUstream * stream, unsigned flags))                 \
  QUENCH_CUDA(StreamDestroy, cuStreamDestroy_v2, (CUstream stream))                              \
  QUENCH_CUDA(StreamSynchronize, cuStreamSynchronize, (CUstream stream))                         \
  QUENCH_CUDA(StreamGetContext, cuStreamGetCtx, (CUstream stream, CUcontext * context))          \
  QUENCH_CUDA(StreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode))          \
  QUENCH_CUDA(StreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph * graph))          \
  QUENCH_CUDA(GraphInstantiate, cuGraphInstantiateWithFlags,                                     \
              (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                     \
  QUENCH_CUDA(GraphLaunch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                   \
  QUENCH_CUDA(GraphExecDestroy, cuGraphExecDestroy, (CUgraphExec exec))                          \
  QUENCH_CUDA(GraphDestroy, cuGraphDestroy, (CUgraph graph))                                     \
  QUENCH_CUDA(EventCreate, cuEventCreate, (CUevent * event, unsigned flags))                     \
  QUENCH_CUDA(EventRecord, cuEventRecord, (CUevent event, CUstream stream))                      \
  QUENCH_CUDA(EventSynchronize, cuEventSynchronize, (CUevent event))                             \
  QUENCH_CUDA(EventElapsedTime, cuEventElapsedTime,                                              \
              (float* milliseconds, CUevent from, CUevent to))                                   \
  QUENCH_CUDA(EventDestroy, cuEventDestroy_v2, (CUevent event))

#define QUENCH_CUDA_POINTER(name, exported, arguments) CUresult(*name) arguments;
/* The driver's functions. */
typedef struct quench_cuda {
  QUENCH_CUDA_FUNCTIONS(QUENCH_CUDA_POINTER)
} quench_cuda;
#undef QUENCH_CUDA_POINTER

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_COMMON_RUNTIME_DEVICE_CUDA_API_H_ */
