/* Shared by the files of libquench_rt. */
#ifndef QUENCH_COMMON_RUNTIME_RT_INTERNAL_H_
#define QUENCH_COMMON_RUNTIME_RT_INTERNAL_H_

#include "common/runtime/quench_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Largest rank a tensor can have here; models with more are refused. */
#define QUENCH_RT_MAX_RANK 32

struct quench_rt_model {
  const quench_model* model;
  const quench_variant* variant;
  void* library;                     /* dlopen handle; NULL when linked in */
  int fd;                            /* memory file behind the library; -1: none */
  struct quench_loaded_code* loaded; /* device/code.h: on which GPUs its sessions are */
};

/* Fills `error` like printf and returns `code`. */
int quench_rt_fail(quench_rt_error* error, int code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- variants.c ---- */

/* NULL: all of the variant runs on the CPU. */
const quench_device_code* quench_rt_device_code(const quench_variant* variant);
/* The strongest variant that runs here, on the first GPU or on the CPU. `name` is the library's, for the
 * sentence. */
int quench_rt_default_variant(const quench_model* model, const char* name,
                              const quench_variant** variant, quench_rt_error* error);
/* That for quench_rt_options.device, and the GPU's index. */
int quench_rt_choose_variant(const quench_rt_model* model, const char* device,
                             const quench_variant** variant, uint32_t* index,
                             quench_rt_error* error);

/* A file in memory, to be unmapped. `what` is what it should be, for messages. */
typedef struct quench_rt_mapping {
  void* data;
  size_t size;
} quench_rt_mapping;
int quench_rt_map(const char* path, const char* what, quench_rt_mapping* mapping,
                  quench_rt_error* error);
/* Whether the bytes are a model library for this machine, before anything of it runs. */
int quench_rt_inspect(const unsigned char* data, size_t size, const char* name,
                      quench_rt_error* error);
/* An empty anonymous file, or -1; and the library that was written into one, which is taken over. */
int quench_rt_memory_file(void);
int quench_rt_load_sealed(int fd, const char* name, quench_rt_model** model,
                          quench_rt_error* error);

/* An encrypted file, of any content, as quench_rt_open_encrypted takes it: decrypted into the memory
 * file *fd, which the caller closes. */
int quench_rt_decrypt(const char* path, const char* key_path, const char* password, int* fd,
                      quench_rt_error* error);

/* CPUs that the quotas of this process' control groups allow, rounded up; UINT32_MAX: there is none. The
 * paths of files have `root` before them, which is "" but in tests. */
uint32_t quench_rt_quota_cpus(const char* root);

/* 64-byte aligned; NULL when there is no memory. Free with free(). */
void* quench_rt_aligned(uint64_t bytes);

/* Where a run in progress keeps what it computes. */
typedef struct quench_rt_memory {
  const void* const* inputs;
  void* const* outputs;
  const int64_t* slots;
  const void* arena;
  /* Of the device: as in quench_run. NULL on the CPU. */
  const void* device_arena;
  const void* const* device_inputs;
  void* const* device_outputs;
} quench_rt_memory;
typedef void (*quench_rt_observer)(void* user, int32_t node, const quench_rt_memory* memory);
/* As quench_rt_run; meanwhile `observer` is called when quench_host.on_node would be. */
int quench_rt_observe(quench_rt_session* session, quench_rt_observer observer, void* user,
                      quench_rt_error* error);

/* Copies memory of the session's device to `to`, for observers. */
int quench_rt_read_device(const quench_rt_session* session, void* to, const void* from,
                          uint64_t bytes);

/* Threads that sleep when there is nothing to do. The calling thread is worker 0. */
typedef struct quench_rt_pool quench_rt_pool;
quench_rt_pool* quench_rt_pool_create(uint32_t num_threads);
void quench_rt_pool_free(quench_rt_pool* pool);
/* So many threads take part in the jobs to come, at least 1; 0 where there are not so many. */
int quench_rt_pool_use(quench_rt_pool* pool, uint32_t num_threads);
/* As quench_host.parallel_for. Calls must not overlap. */
int32_t quench_rt_pool_run(quench_rt_pool* pool, quench_task task, void* arg, int64_t count,
                           int64_t grain);

/* Adds names of a family's features to the `used` characters of `text`, cut to `size`, and returns how many
 * it has then; `size` once it is full. */
size_t quench_rt_add_names(uint32_t family, uint64_t features, char* text, size_t used,
                           size_t size);

/* True when `field` of a sized struct was written by its producer. */
#define QUENCH_RT_HAS(object, field) \
  ((object)->size >= offsetof(__typeof__(*(object)), field) + sizeof((object)->field))

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_COMMON_RUNTIME_RT_INTERNAL_H_ */
