/* A session from inside, for the files that it is spread over. */
#ifndef QUENCH_COMMON_RUNTIME_SESSION_H_
#define QUENCH_COMMON_RUNTIME_SESSION_H_

#include <stdatomic.h>
#include <time.h>

#include "common/runtime/rt_internal.h"

enum { kPlans = 4 };

typedef struct input_state {
  const void* data;
  int on_device; /* data is an address of the session's device */
  int64_t dims[QUENCH_RT_MAX_RANK];
} input_state;

typedef struct output_state {
  void* data; /* what the run writes or has written */
  int64_t dims[QUENCH_RT_MAX_RANK];
  void* bound;   /* the caller's, or NULL */
  int on_device; /* bound is an address of the session's device */
  uint64_t bound_bytes;
  void* owned; /* ours, always the host's */
  uint64_t owned_bytes;
} output_state;

/* What the session carries from an output to an input of the next run. */
typedef struct carried_state {
  const quench_state_info* info;
  void* memory;
  uint64_t bytes;
  int bound; /* the caller gives the input */
} carried_state;

/* A plan for one set of input sizes. */
typedef struct plan_entry {
  int64_t* key;   /* values of the input symbols */
  int64_t* slots; /* after planning */
  uint64_t arena_bytes, scratch_bytes, lower_bound;
  uint64_t device_arena_bytes, device_scratch_bytes;
  uint64_t made; /* clock of its making, which tells it from others in its place */
  uint64_t used; /* clock of last use; 0: empty */
} plan_entry;

/* Memory that a run has asked for; freed with it. */
typedef struct heap_block {
  struct heap_block *previous, *next;
  int32_t output; /* >= 0: an output's data */
} heap_block;

struct quench_rt_session {
  const quench_model* model;
  const quench_variant* variant;
  struct quench_device_session* device; /* NULL: on the CPU */
  quench_rt_options options;
  uint32_t created_threads;
  quench_rt_pool* pool;
  input_state* inputs;
  output_state* outputs;
  carried_state* states;
  uint32_t num_states;
  int64_t* slots;
  int64_t* key;
  plan_entry plans[kPlans];
  plan_entry* plan; /* NULL: the inputs changed since the last plan */
  uint64_t clock;
  uint64_t arena_bytes, memory_bytes, lower_bound;
  void* memory;
  uint64_t memory_capacity;
  heap_block heap; /* ring */
  const void** input_pointers;
  void** output_pointers;
  quench_rt_tap_fn tap;
  void* tap_user;
  quench_rt_observer observer; /* or NULL */
  void* observer_user;
  double* seconds; /* of the profile in progress, or NULL */
  int32_t profiled;
  struct timespec since;
  _Atomic int cancelled;
};

/* ---- bindings.c ---- */

/* No input lies in the memory of an output, but one that the output may take the place of, at the same
 * address; nor does an output that comes before it. */
int quench_rt_check_overlaps(const quench_rt_session* session, uint32_t index,
                             quench_rt_error* error);

/* ---- states.c ---- */

/* Bytes of a tensor with these dims; -1 on overflow or when a dim is not known. */
int64_t quench_rt_tensor_bytes(int32_t dtype, const int64_t* dims, int32_t rank);

/* Memory for all states, with their initial contents; 0 when there is none. */
int quench_rt_allocate_states(quench_rt_session* session);
/* The next run reads what the session carries. */
void quench_rt_read_carried(quench_rt_session* session, const carried_state* state);
/* What the run has written is what the next one reads. */
void quench_rt_carry_states(quench_rt_session* session);
int quench_rt_is_state_output(const quench_rt_session* session, uint32_t output);
/* NULL when the input is not a state's. */
carried_state* quench_rt_state_of_input(quench_rt_session* session, uint32_t input);

#endif /* QUENCH_COMMON_RUNTIME_SESSION_H_ */
