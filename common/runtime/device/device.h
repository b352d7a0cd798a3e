/* A session on a GPU, for the files of sessions. On the CPU all of it does nothing. */
#ifndef QUENCH_COMMON_RUNTIME_DEVICE_DEVICE_H_
#define QUENCH_COMMON_RUNTIME_DEVICE_DEVICE_H_

#include "common/runtime/device/driver.h"
#include "common/runtime/session.h"

#if QUENCH_RT_GPUS

/* On the GPU `gpu`, if the session's variant has device code. */
int quench_device_start(quench_rt_session* session, quench_rt_model* model, uint32_t gpu,
                        quench_rt_error* error);
void quench_device_free(quench_rt_session* session);
/* "cuda:0 NAME" */
const char* quench_device_name(const quench_rt_session* session);
void* quench_device_stream(const quench_rt_session* session);

/* Whether `address` is memory of the session's GPU; INVALID, with a sentence about the input or output. */
int quench_device_owns(const quench_rt_session* session, const char* what, const char* name,
                       const void* address, quench_rt_error* error);
/* Whether output `index`, which is bound to memory of the device, needs memory of the host too. */
int quench_device_needs_host(const quench_rt_session* session, uint32_t index);
/* Once the host's memory is there: memory of the device for the next run. */
int quench_device_prepare(quench_rt_session* session, quench_rt_error* error);

/* As quench_variant.run, with copies of inputs and outputs around it; returns when the GPU is done. */
int32_t quench_device_run(quench_rt_session* session, quench_run* run);
/* The sentence for QUENCH_CODE_DEVICE. */
int quench_device_fail(const quench_rt_session* session, quench_rt_error* error);

/* Parts of quench_host. */
int32_t quench_device_launch(void* host, uint32_t kernel, uint32_t blocks, void** arguments);
int32_t quench_device_transfer(void* host, void* to, const void* from, uint64_t bytes,
                               uint32_t direction);
void quench_device_on_node(quench_rt_session* session, int32_t node);
/* What an observer sees: all that was asked for so far is done. */
void quench_device_show(quench_rt_session* session, quench_rt_memory* memory);

#else

static inline int quench_device_start(quench_rt_session* session, quench_rt_model* model,
                                      uint32_t gpu, quench_rt_error* error) {
  (void)model, (void)gpu;
  if (session->options.stream == NULL) return QUENCH_RT_OK;
  return quench_rt_fail(error, QUENCH_RT_INVALID, "GPUs need a 64-bit system");
}
static inline void quench_device_free(quench_rt_session* session) { (void)session; }
static inline const char* quench_device_name(const quench_rt_session* session) {
  (void)session;
  return "";
}
static inline void* quench_device_stream(const quench_rt_session* session) {
  (void)session;
  return NULL;
}
static inline int quench_device_owns(const quench_rt_session* session, const char* what,
                                     const char* name, const void* address,
                                     quench_rt_error* error) {
  (void)session, (void)what, (void)name, (void)address, (void)error;
  return QUENCH_RT_OK;
}
static inline int quench_device_needs_host(const quench_rt_session* session, uint32_t index) {
  (void)session, (void)index;
  return 0;
}
static inline int quench_device_prepare(quench_rt_session* session, quench_rt_error* error) {
  (void)session, (void)error;
  return QUENCH_RT_OK;
}
static inline int32_t quench_device_run(quench_rt_session* session, quench_run* run) {
  (void)session, (void)run;
  return QUENCH_CODE_DEVICE;
}
static inline int quench_device_fail(const quench_rt_session* session, quench_rt_error* error) {
  (void)session;
  return quench_rt_fail(error, QUENCH_RT_DEVICE, "GPUs need a 64-bit system");
}
static inline void quench_device_on_node(quench_rt_session* session, int32_t node) {
  (void)session, (void)node;
}
static inline void quench_device_show(quench_rt_session* session, quench_rt_memory* memory) {
  (void)session, (void)memory;
}
#define quench_device_launch NULL
#define quench_device_transfer NULL

#endif /* QUENCH_RT_GPUS */
#endif /* QUENCH_COMMON_RUNTIME_DEVICE_DEVICE_H_ */
