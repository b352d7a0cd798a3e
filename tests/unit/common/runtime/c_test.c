/* The runtime from C, with nothing else: a program that prints nothing and exits 0 when all is
 * well. */
#include <stdio.h>
#include <string.h>

#include "common/runtime/quench_rt.h"
#include "tests/unit/common/runtime/fake_model.h"

#define EXPECT(condition)                                     \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      return 1;                                               \
    }                                                         \
  } while (0)

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  quench_rt_error error;
  quench_rt_model* model;
  quench_rt_session* session;
  EXPECT(quench_rt_open_file(argv[1], &model, &error) == QUENCH_RT_OK);
  EXPECT(strcmp(quench_rt_variant(model)->name, "plain") == 0);
  EXPECT(quench_rt_session_create(model, NULL, &session, &error) == QUENCH_RT_OK);
  float x[8] = {1, -2, 3, -4, 5, -6, 7, -8};
  int64_t k[2] = {0, 0};
  const int64_t x_dims[] = {2, 4}, k_dims[] = {2};
  const quench_rt_tensor x_tensor = {x, x_dims, 1, 2}, k_tensor = {k, k_dims, 7, 1};
  EXPECT(quench_rt_set_input(session, 0, &x_tensor, &error) == QUENCH_RT_OK);
  EXPECT(quench_rt_set_input(session, 1, &k_tensor, &error) == QUENCH_RT_OK);
  EXPECT(quench_rt_run(session, &error) == QUENCH_RT_OK);
  quench_rt_tensor y;
  EXPECT(quench_rt_get_output(session, 0, &y, &error) == QUENCH_RT_OK);
  EXPECT(y.rank == 2 && y.dims[0] == 2 && y.dims[1] == 4 && ((const float*)y.data)[3] == -8);
  EXPECT(quench_rt_get_output(session, 1, &y, &error) == QUENCH_RT_OK);
  EXPECT(y.rank == 1 && y.dims[0] == 4 && ((const float*)y.data)[2] == 5);
  EXPECT(quench_rt_get_output(session, 2, &y, &error) == QUENCH_RT_INVALID);
  quench_rt_session_free(session);
  quench_rt_close(model);
  EXPECT(quench_rt_open_file("/dev/null", &model, &error) == QUENCH_RT_NOT_A_MODEL);
  return 0;
}
