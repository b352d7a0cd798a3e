/* Runs a model on tensors from files and writes all that comes out:
 *
 *   run_files model.so threads folder [bare]      bare: loaded by bare_loader.c
 *
 * A file is a tensor's rank and dims, as 64-bit integers, and its bytes. Input i is folder/input_i,
 * output i becomes folder/output_i.
 *
 * Linked with --wrap=getauxval on 32-bit Arm: qemu 7.2 runs dot products there and does not announce them. */
#include <stdio.h>
#include <stdlib.h>

#include "common/runtime/quench_rt.h"
#include "tests/unit/services/codegen/bare_loader.h"

#ifdef __arm__
#include <sys/auxv.h>

unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type) {
  const unsigned long asimddp = 1ul << 24;
  return __real_getauxval(type) | (type == AT_HWCAP ? asimddp : 0);
}
#endif

enum { kMaxRank = 16, kMaxInputs = 256 };

static FILE* open_file(const char* folder, const char* kind, uint32_t index, const char* mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s_%u", folder, kind, (unsigned)index);
  return fopen(path, mode);
}

static int64_t count_of(const int64_t* dims, int64_t rank) {
  int64_t count = 1;
  for (int64_t i = 0; i < rank; ++i) count *= dims[i];
  return count;
}

/* The input's memory, which must live until the run is over; NULL on a failure. */
static void* bind_input(quench_rt_session* session, const char* folder, uint32_t index,
                        int32_t dtype, quench_rt_error* error) {
  FILE* file = open_file(folder, "input", index, "rb");
  if (file == NULL) return NULL;
  int64_t rank = -1, dims[kMaxRank];
  void* data = NULL;
  if (fread(&rank, sizeof rank, 1, file) == 1 && rank >= 0 && rank <= kMaxRank &&
      fread(dims, sizeof *dims, (size_t)rank, file) == (size_t)rank) {
    const size_t bytes = (size_t)quench_rt_dtype_bytes(dtype, count_of(dims, rank));
    data = malloc(bytes + 1);
    const quench_rt_tensor tensor = {data, dims, dtype, (int32_t)rank};
    if (data != NULL && (fread(data, 1, bytes, file) != bytes ||
                         quench_rt_set_input(session, index, &tensor, error) != QUENCH_RT_OK)) {
      free(data);
      data = NULL;
    }
  }
  fclose(file);
  return data;
}

static int write_output(quench_rt_session* session, const char* folder, uint32_t index,
                        quench_rt_error* error) {
  quench_rt_tensor tensor;
  if (quench_rt_get_output(session, index, &tensor, error) != QUENCH_RT_OK) return 1;
  FILE* file = open_file(folder, "output", index, "wb");
  if (file == NULL) return 1;
  const int64_t rank = tensor.rank;
  const size_t bytes =
      (size_t)quench_rt_dtype_bytes(tensor.dtype, count_of(tensor.dims, tensor.rank));
  fwrite(&rank, sizeof rank, 1, file);
  fwrite(tensor.dims, sizeof *tensor.dims, (size_t)rank, file);
  fwrite(tensor.data, 1, bytes, file);
  return fclose(file);
}

static int open_model(const char* path, int bare, quench_rt_model** model,
                      quench_rt_error* error) {
  if (!bare) return quench_rt_open_file(path, model, error);
  const quench_model_query_fn query = bare_load(path, error->text);
  return query == NULL ? QUENCH_RT_NOT_A_MODEL : quench_rt_open_linked(query, model, error);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  quench_rt_error error = {"an input is missing"};
  quench_rt_model* model = NULL;
  quench_rt_session* session = NULL;
  void* memory[kMaxInputs] = {NULL};
  const quench_rt_options options = {.size = sizeof options,
                                     .num_threads = (uint32_t)atoi(argv[2])};
  int failed = open_model(argv[1], argc > 4, &model, &error) != QUENCH_RT_OK ||
               quench_rt_session_create(model, &options, &session, &error) != QUENCH_RT_OK;
  const quench_model* about = failed ? NULL : quench_rt_describe(model);
  const uint32_t inputs = failed ? 0 : about->num_inputs;
  failed = failed || inputs > kMaxInputs;
  for (uint32_t i = 0; !failed && i < inputs; ++i) {
    memory[i] = bind_input(session, argv[3], i, about->inputs[i]->dtype, &error);
    failed = memory[i] == NULL;
  }
  failed = failed || quench_rt_run(session, &error) != QUENCH_RT_OK;
  for (uint32_t i = 0; !failed && i < about->num_outputs; ++i)
    failed = write_output(session, argv[3], i, &error);
  if (failed) fprintf(stderr, "%s\n", error.text);
  quench_rt_session_free(session);
  for (uint32_t i = 0; i < kMaxInputs; ++i) free(memory[i]);
  quench_rt_close(model);
  return failed;
}
