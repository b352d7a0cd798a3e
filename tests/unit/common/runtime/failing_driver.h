/* A CUDA driver whose calls fail when a test says so. */
#ifndef QUENCH_TESTS_FAILING_DRIVER_H_
#define QUENCH_TESTS_FAILING_DRIVER_H_

#include "common/runtime/device/cuda_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From now on, the call number `call` (1: the next one; -1: none) of this name (NULL: any) returns `result`. */
void failing_driver_arm(const char* name, int call, CUresult result);
/* Whether it has come to that. */
int failing_driver_fired(void);
/* How many contexts, modules, streams, graphs, events and allocations there are, and contexts in use. */
int failing_driver_objects(void);

#ifdef __cplusplus
}
#endif
#endif /* QUENCH_TESTS_FAILING_DRIVER_H_ */
