/* Runs a model on zeros (or on the same bytes repeated) and prints what comes out:
 *
 *   demo model.so [threads [byte]]
 *
 * Symbolic sizes are taken at their minimum, at least 1. Shows the whole of quench_rt.h in one page
 * of C. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quench_rt.h>

static void print_values(const quench_rt_tensor* tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->rank; ++i) count *= tensor->dims[i];
  for (int64_t i = 0; i < count && i < 8; ++i) {
    switch (tensor->dtype) {
      case 1:
        printf(" %g", (double)((const float*)tensor->data)[i]);
        break;
      case 11:
        printf(" %g", ((const double*)tensor->data)[i]);
        break;
      case 6:
        printf(" %" PRId32, ((const int32_t*)tensor->data)[i]);
        break;
      case 7:
        printf(" %" PRId64, ((const int64_t*)tensor->data)[i]);
        break;
      default:
        printf(" %02x", ((const unsigned char*)tensor->data)[i]);
        break;
    }
  }
  printf(count > 8 ? " ...\n" : "\n");
}

static void print_type(const char* name, int32_t dtype, int32_t rank, const int64_t* dims) {
  printf("%s: %s[", name, quench_rt_dtype_name(dtype));
  for (int32_t i = 0; i < rank; ++i) printf(i ? ", %" PRId64 : "%" PRId64, dims[i]);
  printf("]");
}

static int bind_inputs(const quench_model* model, quench_rt_session* session, void** memory,
                       int byte, quench_rt_error* error) {
  for (uint32_t i = 0; i < model->num_inputs; ++i) {
    const quench_tensor_info* info = model->inputs[i];
    int64_t dims[32], count = 1;
    for (int32_t axis = 0; axis < info->rank; ++axis) {
      dims[axis] = info->dims[axis].value;
      if (dims[axis] < 0) dims[axis] = model->symbols[info->dims[axis].symbol]->min;
      if (dims[axis] < 1 && info->dims[axis].value < 0) dims[axis] = 1;
      count *= dims[axis];
    }
    const int64_t bytes = quench_rt_dtype_bytes(info->dtype, count);
    memory[i] = bytes < 0 ? NULL : malloc((size_t)bytes + 1);
    if (memory[i] == NULL) {
      snprintf(error->text, sizeof error->text, "cannot make input `%s`", info->name);
      return QUENCH_RT_MEMORY;
    }
    memset(memory[i], byte, (size_t)bytes);
    const quench_rt_tensor tensor = {memory[i], dims, info->dtype, info->rank};
    print_type(info->name, info->dtype, info->rank, dims);
    printf("\n");
    const int code = quench_rt_set_input(session, i, &tensor, error);
    if (code != QUENCH_RT_OK) return code;
  }
  return QUENCH_RT_OK;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: demo model.so [threads [byte]]\n");
    return 2;
  }
  quench_rt_error error;
  quench_rt_model* model = NULL;
  quench_rt_session* session = NULL;
  if (quench_rt_open_file(argv[1], &model, &error) != QUENCH_RT_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  const quench_model* about = quench_rt_describe(model);
  printf("%s %s, variant %s\n", about->name, about->uuid, quench_rt_variant(model)->name);
  quench_rt_options options = {.size = sizeof options,
                               .num_threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 1};
  void** memory = calloc(about->num_inputs + 1u, sizeof *memory);
  int code = quench_rt_session_create(model, &options, &session, &error);
  if (code == QUENCH_RT_OK)
    code = bind_inputs(about, session, memory, argc > 3 ? atoi(argv[3]) : 0, &error);
  if (code == QUENCH_RT_OK) code = quench_rt_run(session, &error);
  for (uint32_t i = 0; code == QUENCH_RT_OK && i < about->num_outputs; ++i) {
    quench_rt_tensor output;
    code = quench_rt_get_output(session, i, &output, &error);
    if (code != QUENCH_RT_OK) break;
    print_type(about->outputs[i]->name, output.dtype, output.rank, output.dims);
    printf(" =");
    print_values(&output);
  }
  if (code != QUENCH_RT_OK) fprintf(stderr, "%s\n", error.text);
  quench_rt_session_free(session);
  for (uint32_t i = 0; i < about->num_inputs; ++i) free(memory[i]);
  free(memory);
  quench_rt_close(model);
  return code == QUENCH_RT_OK ? 0 : 1;
}
