/* The binary interface between a compiled model and whatever runs it.
 *
 * A model library exports one symbol, quench_model_query. Everything it points at is constant,
 * lives as long as the library is loaded, and may be read from any thread. This header needs
 * nothing but a C11 or C++11 compiler.
 *
 * Every described struct starts with its size in the producer's version: a reader uses a field only
 * if it lies within that size, so fields can be appended without a new ABI version. Data types are
 * ONNX TensorProto numbers (1 f32, 2 u8, 3 i8, 6 i32, 7 i64, 9 bool, 10 f16, 11 f64, ...). Tensors
 * are dense and row-major.
 *
 * Most users want quench_rt.h, which does all of this.
 */
#ifndef QUENCH_COMMON_RUNTIME_ABI_H_
#define QUENCH_COMMON_RUNTIME_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUENCH_ABI_VERSION 1u
#define QUENCH_MODEL_MAGIC 0x31484351u /* "QCH1", little endian */

/* CPU features that a variant may require, in families of up to 64. The first family is
 * quench_variant.cpu_features: bits 0..31 are x86's, 32..62 the Arms'. It gets no more members: features
 * that code uses later are in families of their own, which quench_variant.features lists. */
#define QUENCH_CPU_FAMILY_FIRST 0u
#define QUENCH_CPU_FAMILY_X86 1u /* QUENCH_X86_* */
#define QUENCH_CPU_FAMILIES 2u   /* how many this header knows */
/* A family as well, but of a GPU: quench_variant.features lists what a variant with device code needs. */
#define QUENCH_GPU_FAMILY_CUDA 64u /* QUENCH_CUDA_* */

#define QUENCH_CPU_SSE42 (UINT64_C(1) << 0)
#define QUENCH_CPU_AVX (UINT64_C(1) << 1)
#define QUENCH_CPU_AVX2 (UINT64_C(1) << 2)
#define QUENCH_CPU_FMA (UINT64_C(1) << 3)
#define QUENCH_CPU_F16C (UINT64_C(1) << 4)
#define QUENCH_CPU_BMI2 (UINT64_C(1) << 5)
#define QUENCH_CPU_AVX512F (UINT64_C(1) << 6)
#define QUENCH_CPU_AVX512BW (UINT64_C(1) << 7)
#define QUENCH_CPU_AVX512DQ (UINT64_C(1) << 8)
#define QUENCH_CPU_AVX512VL (UINT64_C(1) << 9)
#define QUENCH_CPU_AVX512CD (UINT64_C(1) << 10)
#define QUENCH_CPU_AVX512VNNI (UINT64_C(1) << 11)
#define QUENCH_CPU_SSE2 (UINT64_C(1) << 12)
#define QUENCH_CPU_SSE3 (UINT64_C(1) << 13)
#define QUENCH_CPU_SSSE3 (UINT64_C(1) << 14)
#define QUENCH_CPU_SSE41 (UINT64_C(1) << 15)
#define QUENCH_CPU_POPCNT (UINT64_C(1) << 16)
#define QUENCH_CPU_LZCNT (UINT64_C(1) << 17)
#define QUENCH_CPU_BMI (UINT64_C(1) << 18)
#define QUENCH_CPU_AVXVNNI (UINT64_C(1) << 19)
#define QUENCH_CPU_AVX512BF16 (UINT64_C(1) << 20)
#define QUENCH_CPU_AVX512FP16 (UINT64_C(1) << 21)
#define QUENCH_CPU_NEON (UINT64_C(1) << 32)
#define QUENCH_CPU_VFPV4 (UINT64_C(1) << 33)
#define QUENCH_CPU_DOTPROD (UINT64_C(1) << 34)
#define QUENCH_CPU_FP16 (UINT64_C(1) << 35)
#define QUENCH_CPU_I8MM (UINT64_C(1) << 36)
#define QUENCH_CPU_SVE (UINT64_C(1) << 37)
#define QUENCH_CPU_HWDIV_ARM (UINT64_C(1) << 38)
#define QUENCH_CPU_BF16 (UINT64_C(1) << 39)
/* Not a feature: quench_variant.features lists others that are required too. No CPU reports it, so
 * readers that do not know that list pass over the variant. */
#define QUENCH_CPU_OTHERS (UINT64_C(1) << 63)

/* Products of matrices in tile registers, which the system gives to processes that ask. */
#define QUENCH_X86_AMX_TILE (UINT64_C(1) << 0)
#define QUENCH_X86_AMX_INT8 (UINT64_C(1) << 1)
#define QUENCH_X86_AMX_BF16 (UINT64_C(1) << 2)
#define QUENCH_X86_AMX_FP16 (UINT64_C(1) << 3)

/* Compute capabilities of a GPU: its own and all that came before it, whose code it runs. */
#define QUENCH_CUDA_SM_60 (UINT64_C(1) << 0)
#define QUENCH_CUDA_SM_61 (UINT64_C(1) << 1)
#define QUENCH_CUDA_SM_62 (UINT64_C(1) << 2)
#define QUENCH_CUDA_SM_70 (UINT64_C(1) << 3)
#define QUENCH_CUDA_SM_72 (UINT64_C(1) << 4)
#define QUENCH_CUDA_SM_75 (UINT64_C(1) << 5)
#define QUENCH_CUDA_SM_80 (UINT64_C(1) << 6)
#define QUENCH_CUDA_SM_86 (UINT64_C(1) << 7)
#define QUENCH_CUDA_SM_87 (UINT64_C(1) << 8)
#define QUENCH_CUDA_SM_89 (UINT64_C(1) << 9)
#define QUENCH_CUDA_SM_90 (UINT64_C(1) << 10)
/* The driver is an emulation (device/emulated.h), which runs device code that is compiled for this CPU. */
#define QUENCH_CUDA_EMULATED (UINT64_C(1) << 62)

/* Codes of plan and run. */
#define QUENCH_CODE_OK 0
#define QUENCH_CODE_CHECK 1 /* a check on the data failed: `error_message` of node `error_node` */
#define QUENCH_CODE_CANCELLED 2 /* the cancelled callback said so */
#define QUENCH_CODE_MEMORY 3    /* the alloc callback returned NULL */
#define QUENCH_CODE_DEVICE 4    /* a callback of the device failed; the host knows why */

/* One dimension. value >= 0: fixed. value < 0: the value of slot `symbol`. */
typedef struct quench_dim {
  int64_t value;
  int32_t symbol;
  int32_t reserved;
} quench_dim;

/* real = (stored - zero_point) * scale. One pair, or one per index of `axis`. */
typedef struct quench_quantization {
  uint32_t size;
  int32_t axis; /* -1: one pair for the whole tensor */
  uint64_t count;
  const float* scales;
  const int32_t* zero_points;
} quench_quantization;

typedef struct quench_tensor_info {
  uint32_t size;
  int32_t dtype;
  int32_t rank;
  /* Of outputs: 1 + the index of an input of this dtype and these dims whose memory may be the
   * output's too. The run then writes what changes of it, and nothing else. 0: none. */
  uint32_t in_place_of;
  const char* name;
  const quench_dim* dims;                  /* `rank` of them */
  const quench_quantization* quantization; /* NULL: not quantized */
} quench_tensor_info;

#define QUENCH_SYMBOL_INPUT 0      /* size of dim `axis` of input `input` */
#define QUENCH_SYMBOL_EXPRESSION 1 /* computed by plan from other symbols */
#define QUENCH_SYMBOL_RUNTIME 2    /* known after the node that computes it has run; -1 before */

typedef struct quench_symbol_info {
  uint32_t size;
  uint32_t kind;
  const char* name;
  int64_t min, max, multiple_of; /* inclusive; max is INT64_MAX when unbounded */
  int32_t input, axis;           /* QUENCH_SYMBOL_INPUT only */
} quench_symbol_info;

typedef struct quench_node_info {
  uint32_t size;
  uint32_t reserved;
  const char* name; /* in the source model */
  const char* op;
  const char* kernel;
} quench_node_info;

typedef struct quench_plan {
  uint32_t size;
  int32_t error_node;        /* set with code QUENCH_CODE_CHECK; -1: no node in particular */
  const char* error_message; /* constant of the library */
  /* In: `num_slots` values, those of input symbols set and the rest -1. Out: all symbols but
   * runtime ones, and the placement of buffers. */
  int64_t* slots;
  /* Out. Bytes of the arena, bytes of scratch per thread, and what no placement could go below. */
  uint64_t arena_bytes;
  uint64_t scratch_bytes;
  uint64_t arena_lower_bound;
  /* Out, of variants with device code: memory of the device. Scratch is for all of its threads. */
  uint64_t device_arena_bytes;
  uint64_t device_scratch_bytes;
  uint64_t device_arena_lower_bound;
} quench_plan;

typedef struct quench_run quench_run;

/* Does tasks [begin, end); `worker` < num_threads tells concurrent callers apart. Returns 0 to go
 * on. */
typedef int32_t (*quench_task)(void* arg, int64_t begin, int64_t end, uint32_t worker);

/* What the host gives a run. `host` is the first argument of every callback. Callbacks may be NULL
 * where it says so. */
typedef struct quench_host {
  uint32_t size;
  uint32_t num_threads; /* at least 1; 1 means that parallel_for is never called */
  void* host;
  /* Calls task over a partition of [0, count) into ranges of at least `grain` (the last may be
   * shorter), from any threads, and returns when all are done: the first non-zero result, or 0. */
  int32_t (*parallel_for)(void* host, quench_task task, void* arg, int64_t count, int64_t grain);
  /* 64-byte aligned memory for a tensor whose size only the run knows; NULL fails the run. output
   * >= 0: it becomes that output's data and belongs to the host; else the run frees it, and the
   * host frees what a failed run left. */
  void* (*alloc)(void* host, uint64_t bytes, int32_t output);
  void (*free)(void* host, void* memory);
  /* Tap builds: value `tap` of the variant's taps has been computed. The slots give its dims. May
   * be NULL. */
  void (*on_tensor)(void* host, int32_t tap, const void* data);
  /* Node `node` is about to run, or to go on: nodes may run in parts, in turn with others. num_nodes
   * after the last one. May be NULL. */
  void (*on_node)(void* host, int32_t node);
  /* Non-zero ends the run between two nodes. May be NULL. */
  int32_t (*cancelled)(void* host);
  /* Variants with device code only. What they ask for happens in the order in which they ask; they return
   * 0, or a QUENCH_CODE_* that ends the run.
   * Starts `blocks` blocks of kernel `kernel` of the variant's device code. arguments[i] is the address of
   * its argument i, which may change once the call is over. */
  int32_t (*launch)(void* host, uint32_t kernel, uint32_t blocks, void** arguments);
  /* Copies bytes between memories; `direction` is QUENCH_TRANSFER_*. When the call is over, host memory may
   * be read, or changed. */
  int32_t (*transfer)(void* host, void* to, const void* from, uint64_t bytes, uint32_t direction);
} quench_host;

#define QUENCH_TRANSFER_TO_DEVICE 0u
#define QUENCH_TRANSFER_TO_HOST 1u
#define QUENCH_TRANSFER_WITHIN_DEVICE 2u

struct quench_run {
  uint32_t size;
  int32_t error_node;
  const char* error_message;
  const quench_host* host;
  const void* const* inputs; /* one per input: aligned to the element */
  /* One per output: aligned to the element, large enough. Entries whose size depends on runtime
   * symbols are set by the run to what `alloc` gave. Outputs overlap neither one another nor
   * inputs, but for those that are in place (quench_tensor_info.in_place_of). */
  void** outputs;
  int64_t* slots; /* as plan left them; runtime symbols are set by the run */
  void* arena;    /* arena_bytes, 64-byte aligned, contents arbitrary */
  void* scratch;  /* num_threads * scratch_bytes, 64-byte aligned */
  uint64_t rng_seed;
  /* Variants with device code only: memory of the device, aligned to 256 bytes but for that of inputs and
   * outputs, which is aligned to 16. */
  const void* const*
      device_inputs;           /* one per input; those with QUENCH_SIDE_DEVICE have their values */
  void* const* device_outputs; /* one per output; the run fills those with QUENCH_SIDE_DEVICE */
  void* device_arena;          /* device_arena_bytes, contents arbitrary */
  void* device_scratch;        /* device_scratch_bytes */
  const void* device_weights;  /* quench_device_code.weight_bytes, as its ranges say */
  /* One uint32_t. Before the run: UINT32_MAX. After it: the least number of the checks that failed
   * (quench_device_code.checks), or UINT32_MAX. */
  void* device_status;
};

#define QUENCH_SIDE_HOST 1u
#define QUENCH_SIDE_DEVICE 2u

typedef struct quench_device_kernel {
  const char* name;      /* in the image */
  uint32_t threads;      /* of a block */
  uint32_t shared_bytes; /* of a block, given when it is launched */
} quench_device_kernel;

/* A part of the library's weights that device code reads. */
typedef struct quench_device_range {
  uint64_t offset; /* behind quench_device_code.weights */
  uint64_t bytes;
  uint64_t device_offset; /* behind quench_run.device_weights */
} quench_device_range;

typedef struct quench_device_check {
  const char* message;
  int32_t node;
  uint32_t reserved;
} quench_device_check;

/* Device code of a variant, and what it needs beside the run's memory. */
typedef struct quench_device_code {
  uint32_t size;
  uint32_t num_kernels, num_ranges, num_checks;
  const char* arch;     /* "sm_80", "emulated" */
  const void* image;    /* PTX, which ends with a zero; of "emulated": a quench_emulated_image */
  uint64_t image_bytes; /* with the zero */
  const quench_device_kernel* kernels;
  const void* weights; /* of the library */
  const quench_device_range* ranges;
  uint64_t weight_bytes; /* of the device's copy */
  const quench_device_check* checks;
  /* One per input and per output: QUENCH_SIDE_*. Of an input: where the run reads it, perhaps on both sides,
   * or neither. Of an output: where the run leaves it, on one side. Outputs whose size only the run knows
   * are on the host's. */
  const uint32_t* input_sides;
  const uint32_t* output_sides;
} quench_device_code;

/* Features of one family. The CPU lacks those of families that its reader does not know. */
typedef struct quench_cpu_features {
  uint32_t family; /* QUENCH_CPU_FAMILY_* */
  uint32_t reserved;
  uint64_t bits;
} quench_cpu_features;

typedef struct quench_variant {
  uint32_t size;
  uint32_t num_slots;    /* symbols first, by id */
  uint64_t cpu_features; /* all of these QUENCH_CPU_* are needed, and perhaps QUENCH_CPU_OTHERS */
  const char* name;      /* "x86-64-v3" */
  uint32_t num_nodes, num_taps;
  const quench_node_info* const* nodes;
  const quench_tensor_info* const* taps;
  /* Both return a QUENCH_CODE_*; both may run on any number of threads at once with different
   * arguments. */
  int32_t (*plan)(quench_plan* plan);
  int32_t (*run)(quench_run* run);
  /* Variants with QUENCH_CPU_OTHERS have what follows; the others end here. */
  uint32_t num_features;
  uint32_t reserved;
  const quench_cpu_features* features; /* all of these are needed too */
  const quench_device_code* device;    /* NULL: all of the variant runs on the CPU */
} quench_variant;

/* A state: what a run gives as `output` is `input` of the next run. Both have the same dtype and the
 * same fixed dims. */
typedef struct quench_state_info {
  uint32_t size;
  uint32_t input, output; /* indices */
  uint32_t reserved;
  const void* initial; /* one element, which fills the input of the first run; NULL: zeros */
} quench_state_info;

#define QUENCH_MACHINE_X86_64 1u
#define QUENCH_MACHINE_AARCH64 2u
#define QUENCH_MACHINE_ARMV7 3u
#define QUENCH_MACHINE_X86 4u /* of 32 bits */

typedef struct quench_model {
  uint32_t size;
  uint32_t magic;
  uint32_t abi_version;
  uint32_t machine;
  const char* name;
  const char* uuid;        /* 8-4-4-4-12 lower-case hex */
  const char* fingerprint; /* of the graph: 64 hex digits */
  const char* producer;    /* "quench VERSION" */
  uint32_t num_inputs, num_outputs, num_symbols, num_variants;
  const quench_tensor_info* const* inputs;
  const quench_tensor_info* const* outputs;
  const quench_symbol_info* const* symbols;
  const quench_variant* const* variants; /* weakest first */
  /* Readers check `size` before they use what follows. */
  uint32_t num_cores; /* threads of a session that asks for no number; 0: one */
  uint32_t num_labels;
  const char* const* labels;     /* names of classes, by index; NULL: none given */
  const char* preprocessing;     /* JSON that was given to the compiler; NULL: none */
  const char* target;            /* as --target takes it; of the strongest variant */
  const char* producer_revision; /* of the producer's source; "" unknown */
  const char* source_digest;     /* sha256 of the model file: 64 hex digits; "" unknown */
  const char* description;       /* all of this but the UUID, as JSON; also in the file's section
                                    .quench.description, as the UUID is in .quench.uuid */
  uint32_t num_states;
  uint32_t reserved;
  const quench_state_info* const* states;
} quench_model;

/* One model of those that register themselves: archives for targets with `system-lib`. */
typedef struct quench_registration {
  const quench_model* model;
  struct quench_registration* next; /* the registry's */
} quench_registration;

/* NULL when the library's ABI version is above max_abi_version. */
typedef const quench_model* (*quench_model_query_fn)(uint32_t max_abi_version);
#define QUENCH_MODEL_QUERY_NAME "quench_model_query"

/* Of libquench_rt, called by such an archive before main. The entry is the archive's own. */
void quench_rt_register(quench_registration* entry);

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_COMMON_RUNTIME_ABI_H_ */
