#include "tests/unit/common/runtime/device_model.h"

#include <stddef.h>
#include <string.h>

#include "common/runtime/device/emulated.h"

#if defined(__x86_64__)
#define THIS_MACHINE QUENCH_MACHINE_X86_64
#else
#define THIS_MACHINE QUENCH_MACHINE_AARCH64
#endif

int device_line_does = DEVICE_LINE_NOTHING;
int device_line_runs = 0;

/* ---- kernels: one thread for each element ---- */

enum { THREADS = 32, SHIFT_AT = 256 /* where the second weight is on the device */ };

static int64_t element(const quench_emulated_thread* thread) {
  return (int64_t)thread->block * thread->threads + thread->thread;
}

static float load(quench_emulated_thread* thread, const void* memory, int64_t index) {
  const float* address = (const float*)memory + index;
  thread->ops->access(thread, address, sizeof *address, 0);
  return *address;
}

static void store(quench_emulated_thread* thread, void* memory, int64_t index, float value) {
  float* address = (float*)memory + index;
  thread->ops->access(thread, address, sizeof *address, 1);
  *address = value;
}

static void* pointer(void* argument) { return *(void**)argument; }
static int64_t number(const void* argument) { return *(const int64_t*)argument; }

/* x, weights, scaled, status, n */
static void scale(quench_emulated_thread* thread, void* const* arguments) {
  const int64_t i = element(thread);
  if (i >= number(arguments[4])) return;
  const float x = load(thread, pointer(arguments[0]), i);
  if (x < 0) thread->ops->atomic_min(thread, pointer(arguments[3]), 0);
  if (x > 100) thread->ops->atomic_min(thread, pointer(arguments[3]), 1);
  store(thread, pointer(arguments[2]), i, load(thread, pointer(arguments[1]), 0) * x);
}

/* scaled, weights, y, n, how far behind to read */
static void shift(quench_emulated_thread* thread, void* const* arguments) {
  const int64_t i = element(thread);
  if (i >= number(arguments[3])) return;
  const float scaled = load(thread, pointer(arguments[0]), i + number(arguments[4]));
  store(thread, pointer(arguments[2]), i,
        scaled + load(thread, (char*)pointer(arguments[1]) + SHIFT_AT, 0));
}

/* a, b, sum, n */
static void add(quench_emulated_thread* thread, void* const* arguments) {
  const int64_t i = element(thread);
  if (i >= number(arguments[3])) return;
  store(thread, pointer(arguments[2]), i,
        load(thread, pointer(arguments[0]), i) + load(thread, pointer(arguments[1]), i));
}

enum { SCALE, SHIFT, ADD, LARGE, KERNELS };
static const uint64_t kWords[] = {8, 8, 8, 8, 8};
static const quench_emulated_entry kEntries[] = {
    {"scale", scale, kWords, 5, 0}, {"shift", shift, kWords, 5, 0}, {"add", add, kWords, 4, 0}};
static const quench_emulated_image kImage = {QUENCH_EMULATED_MAGIC, 3, kEntries};

/* `add` with more shared memory than a block has unless its kernel asks for it. */
static const quench_device_kernel kKernels[] = {
    {"scale", THREADS, 0}, {"shift", THREADS, 0}, {"add", THREADS, 0}, {"add", THREADS, 64 << 10}};

/* ---- device code ---- */

static const float kWeights[] = {-1, 2, -1, 1};
static const quench_device_range kRanges[] = {{4, 4, 0}, {12, 4, SHIFT_AT}};
static const quench_device_check kChecks[] = {{"x is negative", 0, 0}, {"x is too large", 1, 0}};
static const uint32_t kLineInputs[] = {QUENCH_SIDE_DEVICE, QUENCH_SIDE_DEVICE};
static const uint32_t kLineOutputs[] = {QUENCH_SIDE_DEVICE, QUENCH_SIDE_DEVICE};
static const uint32_t kMixedInputs[] = {QUENCH_SIDE_DEVICE | QUENCH_SIDE_HOST, QUENCH_SIDE_HOST};
static const uint32_t kMixedOutputs[] = {QUENCH_SIDE_DEVICE, QUENCH_SIDE_HOST, QUENCH_SIDE_DEVICE,
                                         QUENCH_SIDE_HOST};
static const char kText[] = "this is no code";

#define CODE(image_, arch_, inputs_, outputs_) \
  {.size = sizeof(quench_device_code),         \
   .num_kernels = KERNELS,                     \
   .num_ranges = 2,                            \
   .num_checks = 2,                            \
   .arch = arch_,                              \
   .image = image_,                            \
   .image_bytes = sizeof *image_,              \
   .kernels = kKernels,                        \
   .weights = kWeights,                        \
   .ranges = kRanges,                          \
   .weight_bytes = SHIFT_AT + 4,               \
   .checks = kChecks,                          \
   .input_sides = inputs_,                     \
   .output_sides = outputs_}
static const quench_device_code kLineCode = CODE(&kImage, "emulated", kLineInputs, kLineOutputs);
static const quench_device_code kNewCode = CODE(&kImage, "sm_90", kLineInputs, kLineOutputs);
static const quench_device_code kDamaged = CODE(kText, "emulated", kLineInputs, kLineOutputs);
static const quench_device_code kMixedCode = CODE(&kImage, "emulated", kMixedInputs, kMixedOutputs);

/* ---- runs ---- */

enum { N, COUNT, SLOTS };

static int32_t plan(quench_plan* plan) {
  plan->arena_bytes = plan->arena_lower_bound = 8 * (uint64_t)plan->slots[N];
  plan->scratch_bytes = 0;
  plan->device_arena_bytes = plan->device_arena_lower_bound = 4 * (uint64_t)plan->slots[N];
  plan->device_scratch_bytes = 64;
  return QUENCH_CODE_OK;
}

static int32_t plan_host(quench_plan* plan) {
  plan->arena_bytes = plan->scratch_bytes = plan->arena_lower_bound = 0;
  return QUENCH_CODE_OK;
}

static int32_t launch(const quench_run* run, uint32_t kernel, int64_t n, void** arguments) {
  return run->host->launch(run->host->host, kernel, (uint32_t)((n + THREADS - 1) / THREADS),
                           arguments);
}

static int32_t transfer(const quench_run* run, void* to, const void* from, int64_t n,
                        uint32_t direction) {
  return run->host->transfer(run->host->host, to, from, 4 * (uint64_t)n, direction);
}

static void begin(const quench_run* run, int32_t node) {
  if (run->host->on_node != NULL) run->host->on_node(run->host->host, node);
}

static int32_t run_scale(const quench_run* run, int64_t n) {
  const void* x = run->device_inputs[0];
  void* arguments[] = {&x, (void*)&run->device_weights, (void*)&run->device_arena,
                       (void*)&run->device_status, &n};
  return launch(run, SCALE, n, arguments);
}

static int32_t run_shift(const quench_run* run, int64_t n, int64_t behind) {
  void* y = run->device_outputs[0];
  void* arguments[] = {(void*)&run->device_arena, (void*)&run->device_weights, &y, &n, &behind};
  return launch(run, SHIFT, n, arguments);
}

static int32_t run_add(const quench_run* run, uint32_t kernel, const void* a, const void* b,
                       void* sum, int64_t n) {
  void* arguments[] = {&a, &b, &sum, &n};
  return launch(run, kernel, n, arguments);
}

static int32_t do_more(const quench_run* run) {
  float word = 0;
  switch (device_line_does) {
    case DEVICE_LINE_WAITS:
      while (!run->host->cancelled(run->host->host)) {
      }
      return QUENCH_CODE_CANCELLED;
    case DEVICE_LINE_MISUSES:
      return run_add(run, LARGE, NULL, NULL, NULL, INT64_C(32) << 31);
    case DEVICE_LINE_TRANSFERS: {
      const int32_t code = transfer(run, &word, run->device_arena, 1, QUENCH_TRANSFER_TO_HOST);
      if (code != QUENCH_CODE_OK) return code;
      return transfer(run, run->device_arena, &word, 1, QUENCH_TRANSFER_TO_DEVICE);
    }
    default:
      return QUENCH_CODE_OK;
  }
}

static int32_t run_line(quench_run* run) {
  const int64_t n = run->slots[N];
  ++device_line_runs;
  begin(run, 0);
  int32_t code = run_scale(run, n);
  if (code != QUENCH_CODE_OK) return code;
  begin(run, 1);
  code = do_more(run);
  if (code != QUENCH_CODE_OK) return code;
  code = run_shift(run, n, device_line_does == DEVICE_LINE_BREAKS ? 100000 : 0);
  if (code != QUENCH_CODE_OK) return code;
  begin(run, 2);
  code =
      run_add(run, LARGE, run->device_inputs[1], run->device_inputs[0], run->device_outputs[1], n);
  begin(run, 3);
  return code;
}

static int32_t run_line_on_cpu(quench_run* run) {
  const float *x = run->inputs[0], *cache = run->inputs[1];
  float *y = run->outputs[0], *next = run->outputs[1];
  for (int64_t i = 0; i < run->slots[N]; ++i) {
    y[i] = 2 * x[i] + 1;
    next[i] = cache[i] + x[i];
  }
  return QUENCH_CODE_OK;
}

static int32_t run_mixed(quench_run* run) {
  const int64_t n = run->slots[N];
  const float *x = run->inputs[0], *k = run->inputs[1];
  float *y = run->arena, *z = run->outputs[1];
  begin(run, 0);
  int32_t code = run_scale(run, n);
  if (code == QUENCH_CODE_OK) code = run_shift(run, n, 0);
  if (code != QUENCH_CODE_OK) return code;
  begin(run, 1);
  if (x[0] > 500) {
    run->error_node = 1;
    run->error_message = "x is large";
    return QUENCH_CODE_CHECK;
  }
  code = transfer(run, y, run->device_outputs[0], n, QUENCH_TRANSFER_TO_HOST);
  if (code != QUENCH_CODE_OK) return code;
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    z[i] = y[i] + k[i];
    count += z[i] > 0;
  }
  begin(run, 2);
  code = transfer(run, run->device_arena, z, n, QUENCH_TRANSFER_TO_DEVICE);
  if (code == QUENCH_CODE_OK)
    code =
        transfer(run, run->device_outputs[2], run->device_arena, n, QUENCH_TRANSFER_WITHIN_DEVICE);
  if (code != QUENCH_CODE_OK) return code;
  run->slots[COUNT] = count;
  float* positive = run->host->alloc(run->host->host, 4 * (uint64_t)count, 3);
  if (positive == NULL) return QUENCH_CODE_MEMORY;
  run->outputs[3] = positive;
  for (int64_t i = 0; i < n; ++i) {
    if (z[i] > 0) *positive++ = z[i];
  }
  begin(run, 3);
  return QUENCH_CODE_OK;
}

static int32_t plan_sum(quench_plan* plan) {
  plan->arena_bytes = plan->scratch_bytes = plan->arena_lower_bound = 0;
  return QUENCH_CODE_OK;
}

static int32_t run_sum(quench_run* run) {
  return run_add(run, ADD, run->device_inputs[1], run->device_inputs[0], run->device_outputs[0], 4);
}

/* ---- descriptions ---- */

static const quench_dim kVector[] = {{-1, N, 0}}, kCounted[] = {{-1, COUNT, 0}};
static const quench_dim kFour[] = {{4, -1, 0}};
#define TENSOR(name_, dims_, place_) {sizeof(quench_tensor_info), 1, 1, place_, name_, dims_, NULL}
static const quench_tensor_info kX = TENSOR("x", kVector, 0), kCache = TENSOR("cache", kVector, 0);
static const quench_tensor_info kY = TENSOR("y", kVector, 0), kNext = TENSOR("next", kVector, 2);
static const quench_tensor_info kK = TENSOR("k", kVector, 0), kZ = TENSOR("z", kVector, 0);
static const quench_tensor_info kCopy = TENSOR("copy", kVector, 0);
static const quench_tensor_info kPositive = TENSOR("positive", kCounted, 0);
static const quench_tensor_info kX4 = TENSOR("x", kFour, 0), kTotal = TENSOR("total", kFour, 0);
static const quench_tensor_info kNext4 = TENSOR("next", kFour, 0);
static const quench_tensor_info* const kLineIn[] = {&kX, &kCache};
static const quench_tensor_info* const kLineOut[] = {&kY, &kNext};
static const quench_tensor_info* const kMixedIn[] = {&kX, &kK};
static const quench_tensor_info* const kMixedOut[] = {&kY, &kZ, &kCopy, &kPositive};
static const quench_tensor_info* const kSumIn[] = {&kX4, &kTotal};
static const quench_tensor_info* const kSumOut[] = {&kNext4};

static const quench_symbol_info kN = {sizeof kN, QUENCH_SYMBOL_INPUT, "n", 1, 1000, 1, 0, 0};
static const quench_symbol_info kCount = {
    sizeof kCount, QUENCH_SYMBOL_RUNTIME, "count", 0, INT64_MAX, 1, -1, -1};
static const quench_symbol_info* const kSymbols[] = {&kN, &kCount};

static const quench_node_info kScaleNode = {sizeof kScaleNode, 0, "scale", "Mul", "by hand"};
static const quench_node_info kShiftNode = {sizeof kShiftNode, 0, "shift", "Add", "by hand"};
static const quench_node_info kLastNode = {sizeof kLastNode, 0, "last", "Add", "by hand"};
static const quench_node_info* const kNodes[] = {&kScaleNode, &kShiftNode, &kLastNode};

static const quench_cpu_features kEmulated[] = {{QUENCH_GPU_FAMILY_CUDA, 0, QUENCH_CUDA_EMULATED}};
static const quench_cpu_features kSm90[] = {{QUENCH_GPU_FAMILY_CUDA, 0, QUENCH_CUDA_SM_90}};
#define GPU_VARIANT(name_, plan_, run_, features_, code_) \
  {.size = sizeof(quench_variant),                        \
   .num_slots = SLOTS,                                    \
   .cpu_features = QUENCH_CPU_OTHERS,                     \
   .name = name_,                                         \
   .num_nodes = 3,                                        \
   .nodes = kNodes,                                       \
   .plan = plan_,                                         \
   .run = run_,                                           \
   .num_features = 1,                                     \
   .features = features_,                                 \
   .device = code_}
static const quench_variant kPlain = {.size = sizeof(quench_variant),
                                      .num_slots = SLOTS,
                                      .name = "plain",
                                      .num_nodes = 3,
                                      .nodes = kNodes,
                                      .plan = plan_host,
                                      .run = run_line_on_cpu};
static const quench_variant kGpu = GPU_VARIANT("gpu", plan, run_line, kEmulated, &kLineCode);
static const quench_variant kNew = GPU_VARIANT("new", plan, run_line, kSm90, &kNewCode);
static const quench_variant kBroken = GPU_VARIANT("broken", plan, run_line, kEmulated, &kDamaged);
static const quench_variant kMixedGpu = GPU_VARIANT("gpu", plan, run_mixed, kEmulated, &kMixedCode);
static const quench_variant kSumGpu = GPU_VARIANT("gpu", plan_sum, run_sum, kEmulated, &kLineCode);
static const quench_variant* const kAll[] = {&kPlain, &kNew, &kGpu};
static const quench_variant *const kGpuOnly[] = {&kGpu}, *const kNewOnly[] = {&kNew};
static const quench_variant *const kBrokenOnly[] = {&kBroken}, *const kMixed[] = {&kMixedGpu};
static const quench_variant* const kSum[] = {&kSumGpu};
static const quench_state_info kTotalState = {sizeof kTotalState, 1, 0, 0, NULL};
static const quench_state_info* const kStates[] = {&kTotalState};

#define MODEL(name_, variants_, inputs_, outputs_, symbols_, states_) \
  {.size = sizeof(quench_model),                                      \
   .magic = QUENCH_MODEL_MAGIC,                                       \
   .abi_version = QUENCH_ABI_VERSION,                                 \
   .machine = THIS_MACHINE,                                           \
   .name = name_,                                                     \
   .uuid = "00000000-0000-8000-8000-000000000002",                    \
   .fingerprint = "",                                                 \
   .producer = "by hand",                                             \
   .num_inputs = 2,                                                   \
   .num_outputs = sizeof outputs_ / sizeof outputs_[0],               \
   .num_symbols = symbols_,                                           \
   .num_variants = sizeof variants_ / sizeof variants_[0],            \
   .inputs = inputs_,                                                 \
   .outputs = outputs_,                                               \
   .symbols = kSymbols,                                               \
   .variants = variants_,                                             \
   .num_states = states_,                                             \
   .states = kStates}
static const quench_model kLineModel = MODEL("line", kAll, kLineIn, kLineOut, 1, 0);
static const quench_model kGpuModel = MODEL("line", kGpuOnly, kLineIn, kLineOut, 1, 0);
static const quench_model kNewModel = MODEL("line", kNewOnly, kLineIn, kLineOut, 1, 0);
static const quench_model kDamagedModel = MODEL("line", kBrokenOnly, kLineIn, kLineOut, 1, 0);
static const quench_model kMixedModel = MODEL("mixed", kMixed, kMixedIn, kMixedOut, 2, 0);
static const quench_model kSumModel = MODEL("sum", kSum, kSumIn, kSumOut, 0, 1);

#define QUERY(name, model)                                        \
  const quench_model* name(uint32_t max_abi_version) {            \
    return max_abi_version >= QUENCH_ABI_VERSION ? &model : NULL; \
  }
QUERY(device_line_query, kLineModel)
QUERY(device_gpu_only_query, kGpuModel)
QUERY(device_new_only_query, kNewModel)
QUERY(device_damaged_query, kDamagedModel)
QUERY(device_mixed_query, kMixedModel)
QUERY(device_sum_query, kSumModel)
