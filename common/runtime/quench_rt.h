/* libquench_rt: opens compiled models and runs them. C11, needs libc and pthread only.
 *
 *   quench_rt_error error;
 *   quench_rt_model* model;
 *   quench_rt_session* session;
 *   if (quench_rt_open_file("model.so", &model, &error)) return puts(error.text);
 *   if (quench_rt_session_create(model, NULL, &session, &error)) return puts(error.text);
 *   quench_rt_tensor x = {pixels, dims, 1, 4}, y;  // f32, rank 4
 *   if (quench_rt_set_input(session, 0, &x, &error)) return puts(error.text);
 *   if (quench_rt_run(session, &error)) return puts(error.text);
 *   if (quench_rt_get_output(session, 0, &y, &error)) return puts(error.text);
 *
 * Every function that can fail returns a QUENCH_RT_* code, 0 on success, and fills `error` (which
 * may be NULL) with one sentence otherwise. A model may be used from any number of threads; a
 * session from one at a time.
 */
#ifndef QUENCH_COMMON_RUNTIME_QUENCH_RT_H_
#define QUENCH_COMMON_RUNTIME_QUENCH_RT_H_

#include <stddef.h>
#include <stdint.h>

#include "common/runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QUENCH_RT_OK 0
#define QUENCH_RT_IO 1          /* the file cannot be read */
#define QUENCH_RT_NOT_A_MODEL 2 /* not a model library, or for another kind of machine */
#define QUENCH_RT_ABI 3         /* made by a newer Quench than this runtime knows */
#define QUENCH_RT_CPU 4         /* no variant for this CPU */
#define QUENCH_RT_INVALID 5     /* a wrong argument: count, dtype, rank, size, missing input */
#define QUENCH_RT_MEMORY 6      /* out of memory */
#define QUENCH_RT_CHECK 7 /* the data broke a rule of the model (an index out of range, say) */
#define QUENCH_RT_CANCELLED 8
#define QUENCH_RT_SYSTEM 9     /* the system refused a thread, or lacks libcrypto */
#define QUENCH_RT_ENCRYPTED 10 /* the library is encrypted, and there is no key */
#define QUENCH_RT_KEY 11       /* a wrong password, a corrupted key, or that of another library */
#define QUENCH_RT_CORRUPT 12   /* the key fits, and the encrypted library was altered or cut */
#define QUENCH_RT_DEVICE 13    /* no such device, no driver or one too old, or the device failed */

typedef struct quench_rt_error {
  char text[1024];
} quench_rt_error;

typedef struct quench_rt_tensor {
  void* data; /* dense, row-major; not written through for inputs. Host memory, but where device
                          memory is asked for: then an address of the device */
  const int64_t* dims; /* `rank` of them */
  int32_t dtype;       /* ONNX number */
  int32_t rank;
} quench_rt_tensor;

typedef struct quench_rt_model quench_rt_model;
typedef struct quench_rt_session quench_rt_session;

/* Opens a model library. The model must outlive its sessions. */
int quench_rt_open_file(const char* path, quench_rt_model** model, quench_rt_error* error);
/* The same from memory, which may be freed afterwards. The bytes go into an anonymous memory file.
 */
int quench_rt_open_memory(const void* data, size_t size, quench_rt_model** model,
                          quench_rt_error* error);
/* An encrypted model library (age format). `key_path` names its modelKey.bin, which `password` opens,
 * or a file with an age identity ("AGE-SECRET-KEY-1..."), for which `password` is NULL. The plain
 * library exists in anonymous memory only. Needs OpenSSL's libcrypto.so.3, which is loaded now. */
int quench_rt_open_encrypted(const char* path, const char* key_path, const char* password,
                             quench_rt_model** model, quench_rt_error* error);
/* Encrypts a model library, or any bytes, to the file `path`: with `password` to a fresh key, which
 * becomes `key_path`, sealed with it; or to whoever has the identity of `recipient` ("age1..."). One
 * of the two is NULL; with `recipient`, `key_path` is not read. Neither file is left where it fails. */
int quench_rt_encrypt(const void* data, size_t size, const char* path, const char* key_path,
                      const char* password, const char* recipient, quench_rt_error* error);
/* A model that is linked into the program (model.o, model.a). */
int quench_rt_open_linked(quench_model_query_fn query, quench_rt_model** model,
                          quench_rt_error* error);
/* A model that registered itself (model.a of a target with `system-lib`), by its name or UUID. */
int quench_rt_open_registered(const char* name, quench_rt_model** model, quench_rt_error* error);
void quench_rt_close(quench_rt_model* model);

const quench_model* quench_rt_describe(const quench_rt_model* model);
/* The strongest variant that runs here: with device code for the first GPU, if the library has any and there
 * is such a GPU with a driver. */
const quench_variant* quench_rt_variant(const quench_rt_model* model);
/* That of a session. */
const quench_variant* quench_rt_session_variant(const quench_rt_session* session);

/* A GPU as the CUDA driver tells of it. */
typedef struct quench_rt_gpu {
  uint32_t size; /* sizeof(quench_rt_gpu) */
  uint32_t multiprocessors;
  char name[128];
  char arch[16];     /* "sm_86" */
  uint64_t memory;   /* bytes */
  uint64_t features; /* QUENCH_CUDA_* */
  uint32_t driver;   /* the CUDA version that the driver knows: 12040 is 12.4 */
  uint32_t reserved;
} quench_rt_gpu;
/* The GPU of this index; QUENCH_RT_DEVICE, with a sentence, if there is none. Opens the driver
 * (libcuda.so.1, or the library that the environment's QUENCH_CUDA_DRIVER names). */
int quench_rt_find_gpu(uint32_t index, quench_rt_gpu* gpu, quench_rt_error* error);

/* QUENCH_CPU_* of this machine, as far as processor and kernel support them. */
uint64_t quench_rt_cpu_features(void);
/* The same for a family, QUENCH_CPU_FAMILY_*; 0 for unknown ones. That of x86 asks the kernel for tile
 * registers, for the whole process, if the processor has them. */
uint64_t quench_rt_cpu_family(uint32_t family);
/* Names of features, "avx2, fma", cut to fit: of the first family, of any, and of all that this machine
 * has. */
void quench_rt_cpu_feature_names(uint64_t features, char* text, size_t size);
void quench_rt_cpu_family_names(uint32_t family, uint64_t features, char* text, size_t size);
void quench_rt_cpu_names(char* text, size_t size);
/* CPUs that the calling thread, and those it starts, may keep busy: as many as its affinity has, or fewer
 * where a control group (cgroup, version 1 or 2) has a quota, rounded up. At least 1. */
uint32_t quench_rt_cpus(void);
/* "f32", "i64", ...; "?" for unknown numbers. */
const char* quench_rt_dtype_name(int32_t dtype);
/* Bytes of `count` packed elements; -1 when the dtype has no fixed size or the product overflows.
 */
int64_t quench_rt_dtype_bytes(int32_t dtype, int64_t count);

typedef struct quench_rt_options {
  uint32_t size; /* sizeof(quench_rt_options) */
  /* At most 1024; 0: the target's num-cores, but no more than quench_rt_cpus(), or 1. */
  uint32_t num_threads;
  /* The caller's threads instead of the session's own; see quench_host.parallel_for. NULL: own. */
  int32_t (*parallel_for)(void* user, quench_task task, void* arg, int64_t count, int64_t grain);
  void* user;
  /* Memory for arena and scratch (64-byte aligned, at least quench_rt_memory_bytes after a plan).
   * NULL: own. */
  void* arena;
  uint64_t arena_bytes;
  uint64_t rng_seed;
  /* "cpu", "cuda" (the first GPU), "cuda:1". NULL: that of quench_rt_variant: the first GPU if the library
   * has code for it, else the CPU. QUENCH_RT_DEVICE if the device is not there, QUENCH_RT_CPU if the library
   * has no code for it. */
  const char* device;
  /* The caller's CUDA stream (a CUstream of the device's primary context), to which a run adds its work.
   * NULL: the session's own. */
  void* stream;
} quench_rt_options;

int quench_rt_session_create(quench_rt_model* model, const quench_rt_options* options,
                             quench_rt_session** session, quench_rt_error* error);
void quench_rt_session_free(quench_rt_session* session);

/* Threads of the runs to come; 0: as many as the session was created with. New threads are started
 * when more are asked for than there have been, and stay. Ends the plan: what a run needs may change. */
int quench_rt_set_threads(quench_rt_session* session, uint32_t num_threads, quench_rt_error* error);

/* Binds an input; data must stay valid until the run is over. Dims are copied. Sizes are checked by
 * plan and run. An input of a state (quench_model.states) need not be bound: the session carries it
 * from run to run. NULL for `tensor` goes back to that. */
int quench_rt_set_input(quench_rt_session* session, uint32_t index, const quench_rt_tensor* tensor,
                        quench_rt_error* error);
/* Binds memory for an output; NULL goes back to memory of the session. Refused for outputs whose
 * size only a run can tell. It overlaps no input and no other output; but an output with `in_place_of`
 * (a cache, of which a run changes a part) may have the very memory of that input, which is not copied
 * then; a run that fails may have changed it. Run checks all of this, of the session's memory too. */
int quench_rt_set_output(quench_rt_session* session, uint32_t index, void* data, uint64_t bytes,
                         quench_rt_error* error);

/* The same with memory of the session's device, from the CUDA driver or anything above it: nothing is copied.
 * INVALID for a session on the CPU, and for an address that is not of its device. An input must be complete
 * when run is called (cudaMemcpy from pageable memory alone does not ensure it: synchronise its stream), or written
 * by earlier work of the session's stream. Earlier work with the memory of an output has the same rule. */
int quench_rt_set_device_input(quench_rt_session* session, uint32_t index,
                               const quench_rt_tensor* tensor, quench_rt_error* error);
int quench_rt_set_device_output(quench_rt_session* session, uint32_t index, void* data,
                                uint64_t bytes, quench_rt_error* error);

/* Checks the inputs' sizes and plans memory; run does it when it has not been done. Plans of recent
 * sizes are kept. */
int quench_rt_plan(quench_rt_session* session, quench_rt_error* error);
int quench_rt_run(quench_rt_session* session, quench_rt_error* error);
/* Where the session runs: "cpu", or "cuda:0", then a space and the device's name. Valid as long as it is. */
const char* quench_rt_device(const quench_rt_session* session);
/* The CUDA stream (a CUstream) to which runs add their work: the caller's, or the session's own. NULL on the CPU.
 * Work that writes an input on the device may be ordered before a run by an event that this stream waits for. */
void* quench_rt_stream(const quench_rt_session* session);
/* The next run begins with the model's initial states, as the first one did. */
void quench_rt_reset_states(quench_rt_session* session);
/* Output of the last run, or, after a plan, dims only (data may be NULL; a dim the run will tell is
 * -1). Valid until the next plan or run, or until states are reset. */
int quench_rt_get_output(quench_rt_session* session, uint32_t index, quench_rt_tensor* tensor,
                         quench_rt_error* error);
/* Ends the run in progress between two nodes; does nothing when there is none. The only call
 * allowed from another thread. */
void quench_rt_cancel(quench_rt_session* session);

/* Arena plus scratch for all threads, arena alone, and the arena's lower bound, as of the last
 * plan. */
uint64_t quench_rt_memory_bytes(const quench_rt_session* session);
uint64_t quench_rt_arena_bytes(const quench_rt_session* session);
uint64_t quench_rt_arena_lower_bound(const quench_rt_session* session);

/* Called with each tapped value of a tap build, during run. NULL: nobody. */
typedef void (*quench_rt_tap_fn)(void* user, uint32_t tap, const quench_rt_tensor* tensor);
int quench_rt_set_tap(quench_rt_session* session, quench_rt_tap_fn tap, void* user,
                      quench_rt_error* error);

/* One run with the time of each node, in seconds, added to seconds[0 .. variant->num_nodes). */
int quench_rt_profile(quench_rt_session* session, double* seconds, quench_rt_error* error);

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_COMMON_RUNTIME_QUENCH_RT_H_ */
