/* Shared by the files of libquench_rt. */
#ifndef QUENCH_COMMON_RUNTIME_RT_INTERNAL_H_
#define QUENCH_COMMON_RUNTIME_RT_INTERNAL_H_

#include "common/runtime/quench_rt.h"

/* Largest rank a tensor can have here; models with more are refused. */
#define QUENCH_RT_MAX_RANK 32

struct quench_rt_model {
  const quench_model* model;
  const quench_variant* variant;
  void* library; /* dlopen handle; NULL when linked in */
  int fd;        /* memory file behind the library; -1: none */
};

/* Fills `error` like printf and returns `code`. */
int quench_rt_fail(quench_rt_error* error, int code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

/* 64-byte aligned; NULL when there is no memory. Free with free(). */
void* quench_rt_aligned(uint64_t bytes);

/* Threads that sleep when there is nothing to do. The calling thread is worker 0. */
typedef struct quench_rt_pool quench_rt_pool;
quench_rt_pool* quench_rt_pool_create(uint32_t num_threads);
void quench_rt_pool_free(quench_rt_pool* pool);
/* As quench_host.parallel_for. Calls must not overlap. */
int32_t quench_rt_pool_run(quench_rt_pool* pool, quench_task task, void* arg, int64_t count,
                           int64_t grain);

/* True when `field` of a sized struct was written by its producer. */
#define QUENCH_RT_HAS(object, field) \
  ((object)->size >= offsetof(__typeof__(*(object)), field) + sizeof((object)->field))

#endif /* QUENCH_COMMON_RUNTIME_RT_INTERNAL_H_ */
