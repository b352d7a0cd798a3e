/* A model written by hand against abi.h: what the runtime is tested with, without code generation.
 *
 *   x: f32[n, 4], n in 2..6 and even; k: i64[n]   ->   y: f32[n, 4] = 2 * x; positive: f32[count] =
 * the values > 0 of x
 *
 * A value of k that is negative fails the check of node 1; one of 1000 makes the run look for
 * cancellation until it comes. */
#ifndef QUENCH_TESTS_FAKE_MODEL_H_
#define QUENCH_TESTS_FAKE_MODEL_H_

#include "common/runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_TASKS = 64 };
const quench_model* fake_model_query(uint32_t max_abi_version);
/* The same with an ABI version of its own (too new for anybody), and with variants that need CPU
 * features nobody has. */
const quench_model* fake_new_model_query(uint32_t max_abi_version);
const quench_model* fake_demanding_model_query(uint32_t max_abi_version);
/* The same with a variant `needy`, which tests give needs, behind `plain` or alone. */
extern quench_variant fake_needy;
const quench_model* fake_needy_model_query(uint32_t max_abi_version);
const quench_model* fake_only_needy_model_query(uint32_t max_abi_version);
/* y = next = total + x, all f32[2]: next is total of the next run, which begins with 10. A negative x
 * fails. */
const quench_model* fake_accumulator_query(uint32_t max_abi_version);

#ifdef __cplusplus
}
#endif
#endif
