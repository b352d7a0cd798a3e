/* One place to run a model: inputs, plan, memory, outputs, threads. */
#define _POSIX_C_SOURCE 200809L
#include "common/runtime/session.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/runtime/device/device.h"

enum { kHeapHeader = 64 }; /* keeps the memory behind it aligned */

static int64_t dim_value(const quench_rt_session* session, const quench_dim* dim) {
  return dim->value >= 0 ? dim->value : session->slots[dim->symbol];
}

/* ---- callbacks of a run ---- */

static int32_t host_parallel_for(void* host, quench_task task, void* arg, int64_t count,
                                 int64_t grain) {
  quench_rt_session* session = host;
  if (session->options.parallel_for != NULL) {
    return session->options.parallel_for(session->options.user, task, arg, count, grain);
  }
  return quench_rt_pool_run(session->pool, task, arg, count, grain);
}

static void heap_release(heap_block* block) {
  block->previous->next = block->next;
  block->next->previous = block->previous;
  free(block);
}

static void* host_alloc(void* host, uint64_t bytes, int32_t output) {
  quench_rt_session* session = host;
  heap_block* block =
      bytes > UINT64_MAX - kHeapHeader ? NULL : quench_rt_aligned(bytes + kHeapHeader);
  if (block == NULL) return NULL;
  block->output = output;
  block->previous = session->heap.previous;
  block->next = &session->heap;
  block->previous->next = block->next->previous = block;
  return (char*)block + kHeapHeader;
}

static void host_free(void* host, void* memory) {
  (void)host;
  if (memory != NULL) heap_release((heap_block*)((char*)memory - kHeapHeader));
}

/* Frees what runs left: all of it, or all but outputs. */
static void heap_clear(quench_rt_session* session, int outputs_too) {
  for (heap_block* block = session->heap.next; block != &session->heap;) {
    heap_block* next = block->next;
    if (outputs_too || block->output < 0) heap_release(block);
    block = next;
  }
}

static void host_on_tensor(void* host, int32_t tap, const void* data) {
  quench_rt_session* session = host;
  const quench_tensor_info* info = session->variant->taps[tap];
  int64_t dims[QUENCH_RT_MAX_RANK];
  for (int32_t i = 0; i < info->rank && i < QUENCH_RT_MAX_RANK; ++i)
    dims[i] = dim_value(session, &info->dims[i]);
  quench_rt_tensor view;
  memcpy(&view.data, &data, sizeof data); /* drops const: the view is documented as read only */
  view.dims = dims;
  view.dtype = info->dtype;
  view.rank = info->rank;
  session->tap(session->tap_user, (uint32_t)tap, &view);
}

static char* memory_of_run(const quench_rt_session* session) {
  return session->options.arena != NULL ? session->options.arena : session->memory;
}

static void host_on_node(void* host, int32_t node) {
  quench_rt_session* session = host;
  quench_device_on_node(session, node);
  if (session->observer != NULL) {
    quench_rt_memory memory = {session->input_pointers,
                               session->output_pointers,
                               session->slots,
                               memory_of_run(session),
                               NULL,
                               NULL,
                               NULL};
    quench_device_show(session, &memory);
    session->observer(session->observer_user, node, &memory);
  }
  if (session->seconds == NULL || session->device != NULL) return;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (session->profiled >= 0 && (uint32_t)session->profiled < session->variant->num_nodes) {
    session->seconds[session->profiled] += (double)(now.tv_sec - session->since.tv_sec) +
                                           1e-9 * (double)(now.tv_nsec - session->since.tv_nsec);
  }
  session->profiled = node;
  session->since = now;
}

static int32_t host_cancelled(void* host) {
  return atomic_load_explicit(&((quench_rt_session*)host)->cancelled, memory_order_relaxed);
}

/* ---- sessions ---- */

static int allocate_tables(quench_rt_session* session) {
  const quench_model* model = session->model;
  const size_t slots = session->variant->num_slots + 1u, symbols = model->num_symbols + 1u;
  session->inputs = calloc(model->num_inputs + 1u, sizeof *session->inputs);
  session->outputs = calloc(model->num_outputs + 1u, sizeof *session->outputs);
  session->states = calloc(session->num_states + 1u, sizeof *session->states);
  session->input_pointers = calloc(model->num_inputs + 1u, sizeof *session->input_pointers);
  session->output_pointers = calloc(model->num_outputs + 1u, sizeof *session->output_pointers);
  session->slots = calloc(slots, sizeof *session->slots);
  session->key = calloc(symbols, sizeof *session->key);
  int complete = session->inputs && session->outputs && session->states &&
                 session->input_pointers && session->output_pointers && session->slots &&
                 session->key;
  for (int i = 0; i < kPlans; ++i) {
    session->plans[i].key = calloc(symbols, sizeof *session->key);
    session->plans[i].slots = calloc(slots, sizeof *session->slots);
    complete = complete && session->plans[i].key && session->plans[i].slots;
  }
  return complete;
}

static int check_threads(uint32_t num_threads, quench_rt_error* error) {
  if (num_threads <= 1024) return QUENCH_RT_OK;
  return quench_rt_fail(error, QUENCH_RT_INVALID, "num_threads is %u, at most 1024 are possible",
                        num_threads);
}

/* The pool has so many threads, at least, and uses that many. */
static int start_threads(quench_rt_session* session, uint32_t num_threads, quench_rt_error* error) {
  if (session->options.parallel_for != NULL) return QUENCH_RT_OK;
  if (session->pool == NULL ? num_threads == 1 : quench_rt_pool_use(session->pool, num_threads))
    return QUENCH_RT_OK;
  quench_rt_pool* pool = quench_rt_pool_create(num_threads);
  if (pool == NULL)
    return quench_rt_fail(error, QUENCH_RT_SYSTEM, "cannot start %u threads", num_threads - 1);
  quench_rt_pool_free(session->pool);
  session->pool = pool;
  return QUENCH_RT_OK;
}

/* Where the caller gives no number. More threads than CPUs would wait for each other. */
static uint32_t threads_of(const quench_model* model) {
  const uint32_t wanted = QUENCH_RT_HAS(model, num_cores) ? model->num_cores : 0;
  if (wanted <= 1) return 1;
  const uint32_t cpus = quench_rt_cpus();
  return wanted < cpus ? wanted : cpus;
}

int quench_rt_session_create(quench_rt_model* model, const quench_rt_options* options,
                             quench_rt_session** out, quench_rt_error* error) {
  *out = NULL;
  quench_rt_options chosen;
  memset(&chosen, 0, sizeof chosen);
  if (options != NULL)
    memcpy(&chosen, options, options->size < sizeof chosen ? options->size : sizeof chosen);
  if (chosen.num_threads == 0) chosen.num_threads = threads_of(model->model);
  int code = check_threads(chosen.num_threads, error);
  if (code != QUENCH_RT_OK) return code;
  if (((uintptr_t)chosen.arena & 63u) != 0) {
    return quench_rt_fail(error, QUENCH_RT_INVALID, "the arena is not aligned to 64 bytes");
  }
  const quench_variant* variant;
  uint32_t gpu;
  code = quench_rt_choose_variant(model, chosen.device, &variant, &gpu, error);
  if (code != QUENCH_RT_OK) return code;
  quench_rt_session* session = calloc(1, sizeof *session);
  if (session == NULL) return quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  session->model = model->model;
  session->variant = variant;
  session->options = chosen;
  session->options.device = NULL; /* the caller's text, which need not stay */
  session->created_threads = chosen.num_threads;
  session->heap.previous = session->heap.next = &session->heap;
  if (QUENCH_RT_HAS(model->model, states)) session->num_states = model->model->num_states;
  if (!allocate_tables(session) || !quench_rt_allocate_states(session))
    code = quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  if (code == QUENCH_RT_OK) code = quench_device_start(session, model, gpu, error);
  if (code == QUENCH_RT_OK) code = start_threads(session, chosen.num_threads, error);
  if (code != QUENCH_RT_OK) {
    quench_rt_session_free(session);
    return code;
  }
  *out = session;
  return QUENCH_RT_OK;
}

int quench_rt_set_threads(quench_rt_session* session, uint32_t num_threads,
                          quench_rt_error* error) {
  if (num_threads == 0) num_threads = session->created_threads;
  if (num_threads == session->options.num_threads) return QUENCH_RT_OK;
  int code = check_threads(num_threads, error);
  if (code == QUENCH_RT_OK) code = start_threads(session, num_threads, error);
  if (code != QUENCH_RT_OK) return code;
  session->options.num_threads = num_threads;
  session->plan = NULL; /* each thread has scratch memory of its own */
  return QUENCH_RT_OK;
}

void quench_rt_session_free(quench_rt_session* session) {
  if (session == NULL) return;
  quench_device_free(session);
  quench_rt_pool_free(session->pool);
  heap_clear(session, 1);
  for (uint32_t i = 0; session->outputs != NULL && i < session->model->num_outputs; ++i)
    free(session->outputs[i].owned);
  for (uint32_t i = 0; session->states != NULL && i < session->num_states; ++i)
    free(session->states[i].memory);
  free(session->states);
  for (int i = 0; i < kPlans; ++i) {
    free(session->plans[i].key);
    free(session->plans[i].slots);
  }
  free(session->memory);
  free(session->inputs);
  free(session->outputs);
  free(session->input_pointers);
  free(session->output_pointers);
  free(session->slots);
  free(session->key);
  free(session);
}

/* ---- planning ---- */

/* Problems of one check, joined with "; ". */
typedef struct problems {
  quench_rt_error* error;
  size_t used;
  int count;
} problems;

__attribute__((format(printf, 2, 3))) static void add_problem(problems* list, const char* format,
                                                              ...) {
  ++list->count;
  if (list->error == NULL) return;
  char* text = list->error->text;
  const size_t size = sizeof list->error->text;
  va_list args;
  va_start(args, format);
  if (list->used + 2 < size) {
    if (list->used > 0) {
      memcpy(text + list->used, "; ", 3);
      list->used += 2;
    }
    const int n = vsnprintf(text + list->used, size - list->used, format, args);
    if (n > 0) list->used = list->used + (size_t)n < size ? list->used + (size_t)n : size - 1;
  }
  va_end(args);
}

/* Reads the input symbols from the inputs' dims into slots, and checks what can be checked before
 * planning. */
static int read_symbols(quench_rt_session* session, quench_rt_error* error) {
  const quench_model* model = session->model;
  problems list = {error, 0, 0};
  for (uint32_t i = 0; i < model->num_inputs; ++i) {
    const quench_tensor_info* info = model->inputs[i];
    if (session->inputs[i].data == NULL) {
      add_problem(&list, "input `%s` is not set", info->name);
      continue;
    }
    for (int32_t axis = 0; axis < info->rank; ++axis) {
      const int64_t found = session->inputs[i].dims[axis];
      if (info->dims[axis].value >= 0 && found != info->dims[axis].value) {
        add_problem(&list, "input `%s`: dim %d is %lld, the model takes %lld", info->name, axis,
                    (long long)found, (long long)info->dims[axis].value);
      }
    }
  }
  if (list.count > 0) return QUENCH_RT_INVALID;
  for (uint32_t i = 0; i < model->num_symbols; ++i) {
    const quench_symbol_info* symbol = model->symbols[i];
    session->slots[i] = -1;
    if (symbol->kind != QUENCH_SYMBOL_INPUT || symbol->input < 0 ||
        (uint32_t)symbol->input >= model->num_inputs)
      continue;
    const quench_tensor_info* info = model->inputs[symbol->input];
    const int64_t value = session->inputs[symbol->input].dims[symbol->axis];
    session->slots[i] = value;
    if (value < symbol->min || value > symbol->max) {
      char most[32] = "";
      if (symbol->max != INT64_MAX) snprintf(most, sizeof most, "%lld", (long long)symbol->max);
      add_problem(&list, "input `%s`: dim %d (`%s`) is %lld, the model takes %lld..%s", info->name,
                  symbol->axis, symbol->name, (long long)value, (long long)symbol->min, most);
    } else if (symbol->multiple_of > 1 && value % symbol->multiple_of != 0) {
      add_problem(&list, "input `%s`: dim %d (`%s`) is %lld, the model takes multiples of %lld",
                  info->name, symbol->axis, symbol->name, (long long)value,
                  (long long)symbol->multiple_of);
    }
  }
  return list.count > 0 ? QUENCH_RT_INVALID : QUENCH_RT_OK;
}

/* Dims that other dims determine: the same symbol twice, or an expression. */
static int check_repeated_symbols(quench_rt_session* session, quench_rt_error* error) {
  const quench_model* model = session->model;
  problems list = {error, 0, 0};
  for (uint32_t i = 0; i < model->num_inputs; ++i) {
    const quench_tensor_info* info = model->inputs[i];
    for (int32_t axis = 0; axis < info->rank; ++axis) {
      if (info->dims[axis].value >= 0) continue;
      const int64_t found = session->inputs[i].dims[axis],
                    expected = session->slots[info->dims[axis].symbol];
      if (found == expected) continue;
      add_problem(&list, "input `%s`: dim %d (`%s`) is %lld, the other inputs make it %lld",
                  info->name, axis, model->symbols[info->dims[axis].symbol]->name, (long long)found,
                  (long long)expected);
    }
  }
  return list.count > 0 ? QUENCH_RT_INVALID : QUENCH_RT_OK;
}

static int fail_of_code(quench_rt_session* session, int32_t code, int32_t node, const char* message,
                        quench_rt_error* error) {
  switch (code) {
    case QUENCH_CODE_CANCELLED:
      return quench_rt_fail(error, QUENCH_RT_CANCELLED, "cancelled");
    case QUENCH_CODE_MEMORY:
      return quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
    case QUENCH_CODE_DEVICE:
      return quench_device_fail(session, error);
    default:
      break;
  }
  if (message == NULL) message = "a check failed";
  if (strncmp(message, "node `", 6) == 0) {
    return quench_rt_fail(error, QUENCH_RT_CHECK, "%s", message); /* says where already */
  }
  if (node < 0 || (uint32_t)node >= session->variant->num_nodes)
    return quench_rt_fail(error, QUENCH_RT_CHECK, "%s", message);
  const quench_node_info* info = session->variant->nodes[node];
  return quench_rt_fail(error, QUENCH_RT_CHECK, "node `%s` (%s): %s", info->name, info->op,
                        message);
}

/* The kept plan for the sizes in session->key, or the entry to use for a new one. */
static plan_entry* find_plan(quench_rt_session* session, int* found) {
  const size_t bytes = sizeof(int64_t) * session->model->num_symbols;
  plan_entry* oldest = &session->plans[0];
  for (int i = 0; i < kPlans; ++i) {
    plan_entry* entry = &session->plans[i];
    *found = entry->used != 0 && memcmp(entry->key, session->key, bytes) == 0;
    if (*found) return entry;
    if (entry->used < oldest->used) oldest = entry;
  }
  return oldest;
}

static int make_plan(quench_rt_session* session, plan_entry* entry, quench_rt_error* error) {
  for (uint32_t i = session->model->num_symbols; i < session->variant->num_slots; ++i)
    session->slots[i] = -1;
  quench_plan plan;
  memset(&plan, 0, sizeof plan);
  plan.size = sizeof plan;
  plan.error_node = -1;
  plan.slots = session->slots;
  const int32_t code = session->variant->plan(&plan);
  if (code != QUENCH_CODE_OK) {
    entry->used = 0;
    const int failed = fail_of_code(session, code, plan.error_node, plan.error_message, error);
    return failed == QUENCH_RT_CHECK ? QUENCH_RT_INVALID : failed;
  }
  memcpy(entry->key, session->key, sizeof(int64_t) * session->model->num_symbols);
  memcpy(entry->slots, session->slots, sizeof(int64_t) * session->variant->num_slots);
  entry->arena_bytes = plan.arena_bytes;
  entry->scratch_bytes = plan.scratch_bytes;
  entry->lower_bound = plan.arena_lower_bound;
  entry->device_arena_bytes = plan.device_arena_bytes;
  entry->device_scratch_bytes = plan.device_scratch_bytes;
  entry->made = ++session->clock;
  return QUENCH_RT_OK;
}

static uint64_t round_up(uint64_t bytes) { return (bytes + 63) & ~UINT64_C(63); }

/* Sizes of outputs as far as they are known. */
static void read_output_dims(quench_rt_session* session) {
  for (uint32_t i = 0; i < session->model->num_outputs; ++i) {
    const quench_tensor_info* info = session->model->outputs[i];
    for (int32_t axis = 0; axis < info->rank; ++axis) {
      session->outputs[i].dims[axis] = dim_value(session, &info->dims[axis]);
    }
  }
}

int quench_rt_plan(quench_rt_session* session, quench_rt_error* error) {
  session->plan = NULL;
  int code = read_symbols(session, error);
  if (code != QUENCH_RT_OK) return code;
  memcpy(session->key, session->slots, sizeof(int64_t) * session->model->num_symbols);
  int found = 0;
  plan_entry* entry = find_plan(session, &found);
  if (found) {
    memcpy(session->slots, entry->slots, sizeof(int64_t) * session->variant->num_slots);
  } else {
    code = make_plan(session, entry, error);
    if (code != QUENCH_RT_OK) return code;
  }
  code = check_repeated_symbols(session, error);
  if (code != QUENCH_RT_OK) return code;
  entry->used = ++session->clock;
  const uint64_t scratch = round_up(entry->scratch_bytes);
  if (scratch != 0 && scratch > (UINT64_MAX / 2) / session->options.num_threads) {
    return quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  }
  session->plan = entry;
  session->arena_bytes = entry->arena_bytes;
  session->lower_bound = entry->lower_bound;
  session->memory_bytes = round_up(entry->arena_bytes) + scratch * session->options.num_threads;
  read_output_dims(session);
  return QUENCH_RT_OK;
}

/* ---- running ---- */

/* Whether a dim of this output is known only after the run. */
static int depends_on_run(const quench_rt_session* session, const quench_tensor_info* info) {
  for (int32_t i = 0; i < info->rank; ++i) {
    if (info->dims[i].value < 0 && session->plan != NULL &&
        session->plan->slots[info->dims[i].symbol] < 0)
      return 1;
  }
  return 0;
}

static int prepare_memory(quench_rt_session* session, quench_rt_error* error) {
  const uint64_t needed = session->memory_bytes;
  if (session->options.arena != NULL) {
    if (session->options.arena_bytes >= needed) return QUENCH_RT_OK;
    return quench_rt_fail(error, QUENCH_RT_INVALID, "the arena has %llu bytes, this run needs %llu",
                          (unsigned long long)session->options.arena_bytes,
                          (unsigned long long)needed);
  }
  if (session->memory != NULL && session->memory_capacity >= needed) return QUENCH_RT_OK;
  free(session->memory);
  session->memory_capacity = 0;
  session->memory = quench_rt_aligned(needed);
  if (session->memory == NULL) {
    return quench_rt_fail(error, QUENCH_RT_MEMORY, "no memory for an arena of %llu bytes",
                          (unsigned long long)needed);
  }
  session->memory_capacity = needed;
  return QUENCH_RT_OK;
}

/* The host's memory for an output, which a run on a device may need beside what is bound there. */
static int prepare_output(quench_rt_session* session, uint32_t index, quench_rt_error* error) {
  output_state* output = &session->outputs[index];
  const quench_tensor_info* info = session->model->outputs[index];
  output->data = NULL;
  if (depends_on_run(session, info)) {
    if (output->bound == NULL) return QUENCH_RT_OK;
    return quench_rt_fail(
        error, QUENCH_RT_INVALID,
        "output `%s`: its size is known only after the run, its memory cannot be bound",
        info->name);
  }
  const int64_t bytes = quench_rt_tensor_bytes(info->dtype, output->dims, info->rank);
  if (bytes < 0)
    return quench_rt_fail(error, QUENCH_RT_MEMORY, "output `%s` is too large", info->name);
  if (output->bound != NULL) {
    if (output->bound_bytes < (uint64_t)bytes) {
      return quench_rt_fail(error, QUENCH_RT_INVALID,
                            "output `%s`: %llu bytes are bound, this run writes %lld", info->name,
                            (unsigned long long)output->bound_bytes, (long long)bytes);
    }
    if (!output->on_device) output->data = output->bound;
    if (!output->on_device || !quench_device_needs_host(session, index)) return QUENCH_RT_OK;
  }
  if (output->owned == NULL || output->owned_bytes < (uint64_t)bytes) {
    free(output->owned);
    output->owned = quench_rt_aligned((uint64_t)bytes);
    output->owned_bytes = output->owned == NULL ? 0 : (uint64_t)bytes;
    if (output->owned == NULL)
      return quench_rt_fail(error, QUENCH_RT_MEMORY, "no memory for output `%s`", info->name);
  }
  output->data = output->owned;
  return QUENCH_RT_OK;
}

static int prepare(quench_rt_session* session, quench_rt_error* error) {
  heap_clear(session, 1);
  int code = session->plan == NULL ? quench_rt_plan(session, error) : QUENCH_RT_OK;
  if (code == QUENCH_RT_OK) code = prepare_memory(session, error);
  if (code != QUENCH_RT_OK) return code;
  memcpy(session->slots, session->plan->slots, sizeof(int64_t) * session->variant->num_slots);
  read_output_dims(session);
  for (uint32_t i = 0; i < session->model->num_inputs; ++i)
    session->input_pointers[i] = session->inputs[i].data;
  for (uint32_t i = 0; i < session->model->num_outputs; ++i) {
    code = quench_rt_check_overlaps(session, i, error);
    if (code == QUENCH_RT_OK) code = prepare_output(session, i, error);
    if (code != QUENCH_RT_OK) return code;
    session->output_pointers[i] = session->outputs[i].data;
  }
  return quench_device_prepare(session, error);
}

int quench_rt_run(quench_rt_session* session, quench_rt_error* error) {
  atomic_store(&session->cancelled, 0);
  int code = prepare(session, error);
  if (code != QUENCH_RT_OK) return code;
  const quench_host host = {
      .size = sizeof host,
      .num_threads = session->options.num_threads,
      .host = session,
      .parallel_for = host_parallel_for,
      .alloc = host_alloc,
      .free = host_free,
      .on_tensor = session->tap != NULL ? host_on_tensor : NULL,
      .on_node = session->seconds != NULL || session->observer != NULL || session->device != NULL
                     ? host_on_node
                     : NULL,
      .cancelled = host_cancelled,
      .launch = quench_device_launch,
      .transfer = quench_device_transfer,
  };
  char* memory = memory_of_run(session);
  quench_run run = {
      .size = sizeof run,
      .error_node = -1,
      .host = &host,
      .inputs = session->input_pointers,
      .outputs = session->output_pointers,
      .slots = session->slots,
      .arena = memory,
      .scratch = memory + round_up(session->arena_bytes),
      .rng_seed = session->options.rng_seed,
  };
  const int32_t result =
      session->device != NULL ? quench_device_run(session, &run) : session->variant->run(&run);
  heap_clear(session, result != QUENCH_CODE_OK);
  if (result != QUENCH_CODE_OK)
    return fail_of_code(session, result, run.error_node, run.error_message, error);
  for (uint32_t i = 0; i < session->model->num_outputs; ++i)
    session->outputs[i].data =
        session->outputs[i].on_device ? session->outputs[i].bound : session->output_pointers[i];
  read_output_dims(session);
  quench_rt_carry_states(session);
  return QUENCH_RT_OK;
}

int quench_rt_profile(quench_rt_session* session, double* seconds, quench_rt_error* error) {
  session->seconds = seconds;
  session->profiled = -1;
  const int code = quench_rt_run(session, error);
  session->seconds = NULL;
  return code;
}

int quench_rt_observe(quench_rt_session* session, quench_rt_observer observer, void* user,
                      quench_rt_error* error) {
  session->observer = observer;
  session->observer_user = user;
  const int code = quench_rt_run(session, error);
  session->observer = NULL;
  return code;
}

int quench_rt_get_output(quench_rt_session* session, uint32_t index, quench_rt_tensor* tensor,
                         quench_rt_error* error) {
  const quench_model* model = session->model;
  if (index >= model->num_outputs) {
    return quench_rt_fail(error, QUENCH_RT_INVALID, "there is no output %u, the model has %u",
                          index, model->num_outputs);
  }
  if (session->plan == NULL)
    return quench_rt_fail(error, QUENCH_RT_INVALID, "there is no plan and no run for these inputs");
  const output_state* output = &session->outputs[index];
  tensor->data = output->data;
  tensor->dims = output->dims;
  tensor->dtype = model->outputs[index]->dtype;
  tensor->rank = model->outputs[index]->rank;
  return QUENCH_RT_OK;
}

const quench_variant* quench_rt_session_variant(const quench_rt_session* session) {
  return session->variant;
}

const char* quench_rt_device(const quench_rt_session* session) {
  return session->device == NULL ? "cpu" : quench_device_name(session);
}

void* quench_rt_stream(const quench_rt_session* session) {
  return session->device == NULL ? NULL : quench_device_stream(session);
}

void quench_rt_cancel(quench_rt_session* session) { atomic_store(&session->cancelled, 1); }

uint64_t quench_rt_memory_bytes(const quench_rt_session* session) { return session->memory_bytes; }
uint64_t quench_rt_arena_bytes(const quench_rt_session* session) { return session->arena_bytes; }
uint64_t quench_rt_arena_lower_bound(const quench_rt_session* session) {
  return session->lower_bound;
}

int quench_rt_set_tap(quench_rt_session* session, quench_rt_tap_fn tap, void* user,
                      quench_rt_error* error) {
  if (tap != NULL && session->variant->num_taps == 0) {
    return quench_rt_fail(error, QUENCH_RT_INVALID, "the model was not built with taps");
  }
  session->tap = tap;
  session->tap_user = user;
  return QUENCH_RT_OK;
}
