#include "tests/unit/common/runtime/fake_model.h"

#include <stddef.h>

/* Slots: n, count, 4*n (an expression), arena offset. */
enum { N, COUNT, SIZE, OFFSET, SLOTS };

#if defined(__x86_64__)
#define THIS_MACHINE QUENCH_MACHINE_X86_64
#elif defined(__aarch64__)
#define THIS_MACHINE QUENCH_MACHINE_AARCH64
#else
#define THIS_MACHINE QUENCH_MACHINE_ARMV7
#endif

static int32_t plan(quench_plan* plan) {
  plan->slots[SIZE] = 4 * plan->slots[N];
  plan->slots[OFFSET] = 64;
  plan->arena_bytes = 64 + 4 * (uint64_t)plan->slots[SIZE];
  plan->scratch_bytes = 64;
  plan->arena_lower_bound = plan->arena_bytes;
  return QUENCH_CODE_OK;
}

typedef struct task_arg {
  const float* x;
  float* y;
  char* scratch;
  int64_t size;
} task_arg;

static int32_t twice(void* arg, int64_t begin, int64_t end, uint32_t worker) {
  const task_arg* a = arg;
  float* mine = (float*)(a->scratch + 64 * worker); /* a worker that shared this would be seen */
  for (int64_t task = begin; task < end; ++task) {
    for (int64_t i = task; i < a->size; i += FAKE_TASKS) {
      mine[0] = a->x[i];
      a->y[i] = mine[0] + mine[0];
    }
  }
  return 0;
}

static int32_t fail(quench_run* run, int32_t node, const char* message) {
  run->error_node = node;
  run->error_message = message;
  return QUENCH_CODE_CHECK;
}

static int32_t run(quench_run* run) {
  const quench_host* host = run->host;
  const float* x = run->inputs[0];
  const int64_t* k = run->inputs[1];
  const int64_t size = run->slots[SIZE];
  float* copy = (float*)((char*)run->arena + run->slots[OFFSET]);
  task_arg arg = {x, run->outputs[0], run->scratch, size};
  if (host->on_node != NULL) host->on_node(host->host, 0);
  if (host->num_threads == 1) {
    twice(&arg, 0, FAKE_TASKS, 0);
  } else if (host->parallel_for(host->host, twice, &arg, FAKE_TASKS, 1) != 0) {
    return QUENCH_CODE_MEMORY;
  }
  if (host->on_tensor != NULL) host->on_tensor(host->host, 0, run->outputs[0]);
  if (host->on_node != NULL) host->on_node(host->host, 1);
  for (int64_t i = 0; i < run->slots[N]; ++i) {
    if (k[i] < 0) {
      (void)host->alloc(host->host, 16, -1); /* left behind on purpose: the host frees it */
      return fail(run, 1, "k is negative");
    }
    while (k[i] == 1000) {
      if (host->cancelled(host->host)) return QUENCH_CODE_CANCELLED;
    }
  }
  int64_t count = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (x[i] > 0) copy[count++] = x[i];
  }
  run->slots[COUNT] = count;
  float* positive = host->alloc(host->host, 4 * (uint64_t)count, 1);
  if (positive == NULL) return QUENCH_CODE_MEMORY;
  for (int64_t i = 0; i < count; ++i) positive[i] = copy[i];
  run->outputs[1] = positive;
  void* temporary = host->alloc(host->host, 100, -1);
  host->free(host->host, temporary);
  if (host->on_node != NULL) host->on_node(host->host, 2);
  return QUENCH_CODE_OK;
}

static const quench_dim kMatrix[] = {{-1, N, 0}, {4, -1, 0}};
static const quench_dim kVector[] = {{-1, N, 0}};
static const quench_dim kCounted[] = {{-1, COUNT, 0}};
static const quench_tensor_info kX = {sizeof kX, 1, 2, 0, "x", kMatrix, NULL};
static const quench_tensor_info kK = {sizeof kK, 7, 1, 0, "k", kVector, NULL};
static const quench_tensor_info kY = {sizeof kY, 1, 2, 0, "y", kMatrix, NULL};
static const quench_tensor_info kPositive = {sizeof kPositive, 1, 1, 0, "positive", kCounted, NULL};
static const quench_tensor_info* const kInputs[] = {&kX, &kK};
static const quench_tensor_info* const kOutputs[] = {&kY, &kPositive};
static const quench_tensor_info* const kTaps[] = {&kY};

static const quench_symbol_info kN = {sizeof kN, QUENCH_SYMBOL_INPUT, "n", 2, 6, 2, 0, 0};
static const quench_symbol_info kCount = {
    sizeof kCount, QUENCH_SYMBOL_RUNTIME, "count", 0, INT64_MAX, 1, -1, -1};
static const quench_symbol_info kSize = {
    sizeof kSize, QUENCH_SYMBOL_EXPRESSION, "4*n", 8, 24, 1, -1, -1};
static const quench_symbol_info* const kSymbols[] = {&kN, &kCount, &kSize};

static const quench_node_info kTwice = {sizeof kTwice, 0, "twice", "Mul", "by hand"};
static const quench_node_info kFilter = {sizeof kFilter, 0, "filter", "Compress", "by hand"};
static const quench_node_info* const kNodes[] = {&kTwice, &kFilter};

#define VARIANT(name, features) \
  {sizeof(quench_variant), SLOTS, features, name, 2, 1, kNodes, kTaps, plan, run, 0, 0, NULL, NULL}

static const quench_variant kPlain = VARIANT("plain", 0);
static const quench_variant kStrong = VARIANT("strong", UINT64_C(1) << 62);
quench_variant fake_needy = VARIANT("needy", 0);
static const quench_variant* const kVariants[] = {&kPlain, &kStrong};
static const quench_variant* const kOnlyStrong[] = {&kStrong};
static const quench_variant* const kNeedy[] = {&kPlain, &fake_needy};
static const quench_variant* const kOnlyNeedy[] = {&fake_needy};

#define FAKE(version, variants, num_variants)                          \
  {sizeof(quench_model),                                               \
   QUENCH_MODEL_MAGIC,                                                 \
   version,                                                            \
   THIS_MACHINE,                                                       \
   "fake",                                                             \
   "00000000-0000-8000-8000-000000000000",                             \
   "0000000000000000000000000000000000000000000000000000000000000000", \
   "by hand",                                                          \
   2,                                                                  \
   2,                                                                  \
   3,                                                                  \
   num_variants,                                                       \
   kInputs,                                                            \
   kOutputs,                                                           \
   kSymbols,                                                           \
   variants,                                                           \
   0,                                                                  \
   0,                                                                  \
   NULL,                                                               \
   NULL,                                                               \
   "llvm",                                                             \
   "",                                                                 \
   "",                                                                 \
   "{}",                                                               \
   0,                                                                  \
   0,                                                                  \
   NULL}

static const quench_model kModel = FAKE(QUENCH_ABI_VERSION, kVariants, 2);
static const quench_model kDemanding = FAKE(QUENCH_ABI_VERSION, kOnlyStrong, 1);
static const quench_model kNeedyModel = FAKE(QUENCH_ABI_VERSION, kNeedy, 2);
static const quench_model kOnlyNeedyModel = FAKE(QUENCH_ABI_VERSION, kOnlyNeedy, 1);

const quench_model* fake_model_query(uint32_t max_abi_version) {
  return max_abi_version >= 1 ? &kModel : NULL;
}
const quench_model* fake_new_model_query(uint32_t max_abi_version) {
  return max_abi_version >= 1000 ? &kModel : NULL;
}
const quench_model* fake_demanding_model_query(uint32_t max_abi_version) {
  return max_abi_version >= 1 ? &kDemanding : NULL;
}

const quench_model* fake_needy_model_query(uint32_t max_abi_version) {
  return max_abi_version >= 1 ? &kNeedyModel : NULL;
}
const quench_model* fake_only_needy_model_query(uint32_t max_abi_version) {
  return max_abi_version >= 1 ? &kOnlyNeedyModel : NULL;
}

/* ---- an accumulator ---- */

static int32_t plan_nothing(quench_plan* plan) {
  plan->arena_bytes = plan->scratch_bytes = plan->arena_lower_bound = 0;
  return QUENCH_CODE_OK;
}

static int32_t accumulate(quench_run* run) {
  const float *x = run->inputs[0], *total = run->inputs[1];
  float *y = run->outputs[0], *next = run->outputs[1];
  for (int i = 0; i < 2; ++i) {
    if (x[i] < 0) return fail(run, 0, "x is negative");
    y[i] = next[i] = total[i] + x[i];
  }
  return QUENCH_CODE_OK;
}

static const quench_dim kTwo[] = {{2, -1, 0}};
static const quench_tensor_info kAdded = {sizeof kAdded, 1, 1, 0, "x", kTwo, NULL};
static const quench_tensor_info kTotal = {sizeof kTotal, 1, 1, 0, "total", kTwo, NULL};
static const quench_tensor_info kSum = {sizeof kSum, 1, 1, 0, "y", kTwo, NULL};
static const quench_tensor_info kNext = {sizeof kNext, 1, 1, 0, "next", kTwo, NULL};
static const quench_tensor_info* const kAccumulated[] = {&kAdded, &kTotal};
static const quench_tensor_info* const kSums[] = {&kSum, &kNext};
static const quench_node_info kAdd = {sizeof kAdd, 0, "add", "Add", "by hand"};
static const quench_node_info* const kAdds[] = {&kAdd};
static const quench_variant kAccumulate = {
    sizeof kAccumulate, 0,          0, "plain", 1,    0,   kAdds, NULL,
    plan_nothing,       accumulate, 0, 0,       NULL, NULL};
static const quench_variant* const kAccumulateOnly[] = {&kAccumulate};
static const float kTen = 10;
static const quench_state_info kTotalState = {sizeof kTotalState, 1, 1, 0, &kTen};
static const quench_state_info* const kStates[] = {&kTotalState};
static const quench_model kAccumulator = {
    .size = sizeof(quench_model),
    .magic = QUENCH_MODEL_MAGIC,
    .abi_version = QUENCH_ABI_VERSION,
    .machine = THIS_MACHINE,
    .name = "accumulator",
    .uuid = "00000000-0000-8000-8000-000000000001",
    .fingerprint = "",
    .producer = "by hand",
    .num_inputs = 2,
    .num_outputs = 2,
    .num_variants = 1,
    .inputs = kAccumulated,
    .outputs = kSums,
    .variants = kAccumulateOnly,
    .num_states = 1,
    .states = kStates,
};
const quench_model* fake_accumulator_query(uint32_t max_abi_version) {
  return max_abi_version >= 1 ? &kAccumulator : NULL;
}

#ifdef FAKE_LIBRARY
const quench_model* quench_model_query(uint32_t max_abi_version);
const quench_model* quench_model_query(uint32_t max_abi_version) {
  return fake_model_query(max_abi_version);
}
#endif
