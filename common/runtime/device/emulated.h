/* Device code for the emulated device: kernels compiled for this CPU, and what stands for a GPU's own
 * instructions. Generated code reads and calls the structs below (services/codegen/emit); the emulated
 * driver (emulated/) provides them. */
#ifndef QUENCH_COMMON_RUNTIME_DEVICE_EMULATED_H_
#define QUENCH_COMMON_RUNTIME_DEVICE_EMULATED_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUENCH_EMULATED_MAGIC 0x314d4551u /* "QEM1", little endian */

typedef struct quench_emulated_thread quench_emulated_thread;

/* Numbers of a factor of a product of matrices, and the number that products are added in. */
#define QUENCH_MMA_F16 0u  /* f16 x f16 + f32, 16x8x16 */
#define QUENCH_MMA_BF16 1u /* bf16 x bf16 + f32, 16x8x16 */
#define QUENCH_MMA_TF32 2u /* tf32 x tf32 + f32, 16x8x8 */
#define QUENCH_MMA_I8 3u   /* i8 x i8 + i32, 16x8x32 */
#define QUENCH_MMA_U8 4u   /* u8 x i8 + i32, 16x8x32 */

/* The instructions. "All of a block" and "all of a warp" (32 threads in order): each of these threads must
 * make the call, as a GPU demands. */
typedef struct quench_emulated_ops {
  uint32_t size;
  uint32_t reserved;
  /* All of a block: what its threads have written to shared and global memory is seen by all. */
  void (*barrier)(quench_emulated_thread* thread);
  /* All of a warp: the `value` of lane `lane ^ mask`, and that of lane `lane`. */
  uint32_t (*shuffle_xor)(quench_emulated_thread* thread, uint32_t value, uint32_t mask);
  uint32_t (*shuffle)(quench_emulated_thread* thread, uint32_t value, uint32_t lane);
  /* *address = min(*address, value), at once; returns what was there. */
  uint32_t (*atomic_min)(quench_emulated_thread* thread, uint32_t* address, uint32_t value);
  /* 16 bytes of shared memory: the first `bytes` (0 to 16) are those at `from`, the others 0. They are there
   * when a wait of this thread, and a barrier, are over. */
  void (*copy_async)(quench_emulated_thread* thread, void* to, const void* from, uint32_t bytes);
  /* The copies since the last commit are a group. wait returns when all but the last `pending` groups are
   * there. */
  void (*commit)(quench_emulated_thread* thread);
  void (*wait)(quench_emulated_thread* thread, uint32_t pending);
  /* All of a warp. Lane 8 m + r gives the address of row r, of 16 bytes of shared memory, of matrix m of
   * four; matrix m's word of lane l becomes out[m]: the numbers 2 l % 8 and 2 l % 8 + 1 (of 16 bits) of row l / 4,
   * or, transposed, of column l / 4 (PTX ISA: ldmatrix.x4). */
  void (*load_matrices)(quench_emulated_thread* thread, const void* row, uint32_t transposed,
                        uint32_t* out);
  /* All of a warp: sums += a x b, with `a`, `b` and the four sums spread over lanes and registers as PTX ISA
   * has it for mma.sync.m16n8k*, row.col. `kind` is QUENCH_MMA_*. `sums` are f32 or i32 by their bits. */
  void (*mma)(quench_emulated_thread* thread, uint32_t kind, uint32_t* sums, const uint32_t* a,
              const uint32_t* b);
  /* Before device code reads (write 0) or writes (1) memory, of any kind but the thread's own stack. */
  void (*access)(quench_emulated_thread* thread, const void* address, uint64_t bytes,
                 uint32_t write);
  /* As copy_async, of `bytes` (1, 2, 4 or 8) aligned to as many, all zeros unless `present`. Those of 1 and 2 are
   * there at once, for this thread. */
  void (*copy_part)(quench_emulated_thread* thread, void* to, const void* from, uint32_t bytes,
                    uint32_t present);
} quench_emulated_ops;

/* One thread of a launch. */
struct quench_emulated_thread {
  uint32_t thread, block;   /* its index in the block, and the block's */
  uint32_t threads, blocks; /* of a block, and of the launch */
  void* shared;             /* of the block: quench_device_kernel.shared_bytes */
  const quench_emulated_ops* ops;
};

/* A kernel: arguments[i] is the address of its argument i, as of cuLaunchKernel. */
typedef void (*quench_emulated_kernel)(quench_emulated_thread* thread, void* const* arguments);

typedef struct quench_emulated_entry {
  const char* name;
  quench_emulated_kernel kernel;
  const uint64_t* argument_bytes; /* of each argument */
  uint32_t num_arguments;
  uint32_t cooperates; /* 1: it uses barriers or what all of a warp must call */
} quench_emulated_entry;

/* What stands for PTX as the image of a module. */
typedef struct quench_emulated_image {
  uint32_t magic;
  uint32_t num_entries;
  const quench_emulated_entry* entries;
} quench_emulated_image;

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_COMMON_RUNTIME_DEVICE_EMULATED_H_ */
