/* Models with device code, written by hand against abi.h, for the emulated device.
 *
 *   line:  x, cache: f32[n], n in 1..1000   ->   y = 2 x + 1; next = cache + x, which may be in place of cache
 *          all on the device; x < 0 fails check 0 of node `scale`, x > 100 check 1 of node `shift`
 *   mixed: x: f32[n] on both sides, k: f32[n] on the host   ->   y = 2 x + 1 on the device; z = y + k on
 *          the host; copy = z on the device; positive: f32[count] the values > 0 of z, on the host
 *          x[0] < 0 and x[0] > 500 fail on the device, x[0] > 500 also on the host
 *   sum:   x, total: f32[4]   ->   next = total + x, a state */
#ifndef QUENCH_TESTS_DEVICE_MODEL_H_
#define QUENCH_TESTS_DEVICE_MODEL_H_

#include "common/runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `line`: variants `plain` for the CPU, `new` for GPUs of a later kind and `gpu`, in this order. */
const quench_model* device_line_query(uint32_t max_abi_version);
/* The same with `gpu` alone, `new` alone, and code that no driver takes. */
const quench_model* device_gpu_only_query(uint32_t max_abi_version);
const quench_model* device_new_only_query(uint32_t max_abi_version);
const quench_model* device_damaged_query(uint32_t max_abi_version);
const quench_model* device_mixed_query(uint32_t max_abi_version);
const quench_model* device_sum_query(uint32_t max_abi_version);

/* What runs of `line` do beside their work. */
enum {
  DEVICE_LINE_NOTHING,
  DEVICE_LINE_WAITS,    /* before `shift`: until they are cancelled */
  DEVICE_LINE_BREAKS,   /* `shift` reads behind its memory */
  DEVICE_LINE_MISUSES,  /* `shift` has more shared memory than there is */
  DEVICE_LINE_TRANSFERS /* a word of the arena goes to the host and back */
};
extern int device_line_does;
extern int device_line_runs; /* how many there were */

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_TESTS_DEVICE_MODEL_H_ */
