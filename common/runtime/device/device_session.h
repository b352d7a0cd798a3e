/* What a session has on a GPU, for the files that it is spread over. */
#ifndef QUENCH_COMMON_RUNTIME_DEVICE_DEVICE_SESSION_H_
#define QUENCH_COMMON_RUNTIME_DEVICE_DEVICE_SESSION_H_

#include "common/runtime/device/code.h"
#include "common/runtime/device/device.h"

#if QUENCH_RT_GPUS

typedef struct device_buffer {
  CUdeviceptr address; /* 0: none */
  uint64_t bytes;
} device_buffer;

/* An input or output where the caller's memory is on the other side than the run's. */
typedef struct device_copy {
  device_buffer device;
  void* host; /* of inputs; those of outputs are output_state.owned */
  uint64_t host_bytes;
} device_copy;

/* When a node began. */
typedef struct device_mark {
  CUevent event;
  int32_t node;
} device_mark;

/* Launches that a plan's runs repeat. */
typedef struct device_graph {
  /* Those of the last run with this plan: the plan, and where its memory was. */
  uint64_t made;
  CUdeviceptr arena, scratch;
  const void** inputs;
  void** outputs;
  int repeats;      /* it was launches and copies within the device alone */
  CUgraphExec exec; /* NULL: not made yet */
} device_graph;

struct quench_device_session {
  quench_loaded_code* loaded;
  const quench_cuda* cuda;
  CUstream stream;
  int owns_stream;
  device_buffer arena, scratch, status;
  device_copy *inputs, *outputs;
  const void** device_inputs; /* as in quench_run */
  void** device_outputs;
  int32_t node;    /* the last one that began; -1: none */
  CUresult failed; /* the first failure of the run in progress */
  int32_t failed_node;
  device_graph graphs[kPlans];
  int uses_graphs;
  int only_launches;  /* of the run in progress: no copy to or from the host */
  int captures;       /* what is asked for becomes part of a graph */
  device_mark* marks; /* events are made once, and used again */
  uint32_t num_marks, used_marks;
};
typedef struct quench_device_session quench_device_session;

/* Remembers a failure of the driver, and returns QUENCH_CODE_DEVICE; QUENCH_CODE_OK for CUDA_SUCCESS. */
int32_t quench_device_result(quench_device_session* device, CUresult result);
/* Calls the run function, or does what its last call did. */
int32_t quench_device_work(quench_rt_session* session, quench_run* run);
/* Once per session; 0 when there is no memory. */
int quench_device_start_graphs(quench_rt_session* session);
/* Within the GPU's context. */
void quench_device_drop_graphs(quench_device_session* device);

/* Bytes of an input or output as the session has its dims. */
uint64_t quench_device_input_bytes(const quench_rt_session* session, uint32_t index);
uint64_t quench_device_output_bytes(const quench_rt_session* session, uint32_t index);

#endif /* QUENCH_RT_GPUS */
#endif /* QUENCH_COMMON_RUNTIME_DEVICE_DEVICE_SESSION_H_ */
