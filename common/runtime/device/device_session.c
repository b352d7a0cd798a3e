/* A session on a GPU: its stream, and memory of the device beside the caller's. */
#include "common/runtime/device/device_session.h"

#if QUENCH_RT_GPUS
#include <stdlib.h>
#include <string.h>

uint64_t quench_device_input_bytes(const quench_rt_session* session, uint32_t index) {
  const quench_tensor_info* info = session->model->inputs[index];
  const int64_t bytes =
      quench_rt_tensor_bytes(info->dtype, session->inputs[index].dims, info->rank);
  return bytes < 0 ? 0 : (uint64_t)bytes;
}

uint64_t quench_device_output_bytes(const quench_rt_session* session, uint32_t index) {
  const quench_tensor_info* info = session->model->outputs[index];
  const int64_t bytes =
      quench_rt_tensor_bytes(info->dtype, session->outputs[index].dims, info->rank);
  return bytes < 0 ? 0 : (uint64_t)bytes;
}

static int fail_of(const quench_device_session* device, const char* what, CUresult result,
                   quench_rt_error* error) {
  const quench_gpu* gpu = &device->loaded->gpu;
  return quench_rt_fail(error, QUENCH_RT_DEVICE, "GPU %u (%s) %s: %s", gpu->index, gpu->about.name,
                        what, quench_driver_text(gpu->driver, result));
}

/* ---- beginning and end ---- */

static int take_stream(quench_device_session* device, void* given, quench_rt_error* error) {
  const quench_gpu* gpu = &device->loaded->gpu;
  if (given == NULL) {
    const CUresult result = device->cuda->StreamCreate(&device->stream, CU_STREAM_NON_BLOCKING);
    device->owns_stream = result == CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? QUENCH_RT_OK : fail_of(device, "has no stream", result, error);
  }
  CUcontext context = NULL;
  const CUresult result = device->cuda->StreamGetContext(given, &context);
  if (result != CUDA_SUCCESS || context != device->loaded->context) {
    return quench_rt_fail(error, QUENCH_RT_INVALID,
                          "the stream is not one of the primary context of GPU %u (%s)", gpu->index,
                          gpu->about.name);
  }
  device->stream = given;
  return QUENCH_RT_OK;
}

static int allocate_tables(quench_device_session* device, const quench_model* model) {
  device->inputs = calloc(model->num_inputs + 1u, sizeof *device->inputs);
  device->outputs = calloc(model->num_outputs + 1u, sizeof *device->outputs);
  device->device_inputs = calloc(model->num_inputs + 1u, sizeof *device->device_inputs);
  device->device_outputs = calloc(model->num_outputs + 1u, sizeof *device->device_outputs);
  return device->inputs && device->outputs && device->device_inputs && device->device_outputs;
}

/* Within the GPU's context. */
static int grow(quench_device_session* device, device_buffer* buffer, uint64_t bytes,
                const char* what, quench_rt_error* error) {
  if (buffer->bytes >= bytes) return QUENCH_RT_OK;
  if (buffer->address != 0) (void)device->cuda->MemFree(buffer->address);
  memset(buffer, 0, sizeof *buffer);
  const CUresult result = device->cuda->MemAlloc(&buffer->address, (size_t)bytes);
  if (result == CUDA_SUCCESS) {
    buffer->bytes = bytes;
    return QUENCH_RT_OK;
  }
  buffer->address = 0;
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return quench_code_fail_memory(device->loaded, what, bytes, error);
  return fail_of(device, "gives no memory", result, error);
}

int quench_device_start(quench_rt_session* session, quench_rt_model* model, uint32_t gpu,
                        quench_rt_error* error) {
  if (quench_rt_device_code(session->variant) == NULL) {
    if (session->options.stream == NULL) return QUENCH_RT_OK;
    return quench_rt_fail(error, QUENCH_RT_INVALID,
                          "a stream is for sessions on a GPU, this one is on the CPU");
  }
  quench_device_session* device = calloc(1, sizeof *device);
  if (device == NULL) return quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  session->device = device; /* freed with the session, whatever fails */
  if (!allocate_tables(device, model->model))
    return quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  int code = quench_code_acquire(model, session->variant, gpu, &device->loaded, error);
  if (code != QUENCH_RT_OK) return code;
  device->cuda = device->loaded->cuda;
  const CUresult result = quench_code_enter(device->loaded);
  if (result != CUDA_SUCCESS) return fail_of(device, "cannot be used", result, error);
  code = take_stream(device, session->options.stream, error);
  if (code == QUENCH_RT_OK && !quench_device_start_graphs(session))
    code = quench_rt_fail(error, QUENCH_RT_MEMORY, "out of memory");
  if (code == QUENCH_RT_OK)
    code = grow(device, &device->status, sizeof(uint32_t), "a session needs", error);
  quench_code_leave(device->loaded);
  return code;
}

static void free_buffer(const quench_device_session* device, device_buffer* buffer) {
  if (buffer->address != 0) (void)device->cuda->MemFree(buffer->address);
}

/* Within the GPU's context. */
static void free_on_device(quench_device_session* device, const quench_model* model) {
  const quench_cuda* cuda = device->cuda;
  for (uint32_t i = 0; i < model->num_inputs; ++i) free_buffer(device, &device->inputs[i].device);
  for (uint32_t i = 0; i < model->num_outputs; ++i) free_buffer(device, &device->outputs[i].device);
  free_buffer(device, &device->arena);
  free_buffer(device, &device->scratch);
  free_buffer(device, &device->status);
  quench_device_drop_graphs(device);
  for (uint32_t i = 0; i < device->num_marks; ++i) (void)cuda->EventDestroy(device->marks[i].event);
  if (device->owns_stream) (void)cuda->StreamDestroy(device->stream);
}

void quench_device_free(quench_rt_session* session) {
  quench_device_session* device = session->device;
  if (device == NULL) return;
  if (device->loaded != NULL) {
    if (quench_code_enter(device->loaded) == CUDA_SUCCESS) {
      free_on_device(device, session->model);
      quench_code_leave(device->loaded);
    }
    quench_code_release(device->loaded);
  }
  for (uint32_t i = 0; device->inputs != NULL && i < session->model->num_inputs; ++i)
    free(device->inputs[i].host);
  for (int i = 0; i < kPlans; ++i) {
    free(device->graphs[i].inputs);
    free(device->graphs[i].outputs);
  }
  free(device->inputs);
  free(device->outputs);
  free(device->device_inputs);
  free(device->device_outputs);
  free(device->marks);
  free(device);
  session->device = NULL;
}

const char* quench_device_name(const quench_rt_session* session) {
  return session->device->loaded->device;
}

void* quench_device_stream(const quench_rt_session* session) { return session->device->stream; }

/* ---- memory of a run ---- */

/* Memory of pools has no context, but a number of its GPU, which old drivers do not tell. */
int quench_device_owns(const quench_rt_session* session, const char* what, const char* name,
                       const void* address, quench_rt_error* error) {
  const quench_loaded_code* loaded = session->device->loaded;
  const quench_cuda* cuda = loaded->cuda;
  const CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
  unsigned type = 0;
  int ordinal = -1;
  CUcontext context = NULL;
  CUresult result = quench_code_enter(loaded);
  if (result != CUDA_SUCCESS) return fail_of(session->device, "cannot be used", result, error);
  const int on_device =
      cuda->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) == CUDA_SUCCESS &&
      type == CU_MEMORYTYPE_DEVICE;
  int ours = 0;
  if (on_device) {
    ours =
        cuda->PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) == CUDA_SUCCESS
            ? ordinal == (int)loaded->gpu.index
            : cuda->PointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at) ==
                      CUDA_SUCCESS &&
                  context == loaded->context;
  }
  quench_code_leave(loaded);
  if (ours) return QUENCH_RT_OK;
  return quench_rt_fail(error, QUENCH_RT_INVALID,
                        on_device ? "%s `%s`: data is memory of another GPU than %u (%s)"
                                  : "%s `%s`: data is not memory of GPU %u (%s)",
                        what, name, loaded->gpu.index, loaded->gpu.about.name);
}

int quench_device_needs_host(const quench_rt_session* session, uint32_t index) {
  const uint32_t side = session->device->loaded->code->output_sides[index];
  return (side & QUENCH_SIDE_HOST) != 0 || quench_rt_is_state_output(session, index);
}

/* An address for what has no bytes: nothing is read or written there. */
static void* address_of(const quench_device_session* device, const device_buffer* buffer) {
  const CUdeviceptr address = buffer->address != 0 ? buffer->address : device->status.address;
  return (void*)(uintptr_t)address;
}

static int prepare_input(quench_rt_session* session, uint32_t index, quench_rt_error* error) {
  quench_device_session* device = session->device;
  device_copy* copy = &device->inputs[index];
  const input_state* input = &session->inputs[index];
  const uint32_t sides = device->loaded->code->input_sides[index];
  const uint64_t bytes = quench_device_input_bytes(session, index);
  device->device_inputs[index] = NULL;
  if (input->on_device) {
    if (bytes > 0) device->device_inputs[index] = input->data;
    session->input_pointers[index] = NULL;
    if ((sides & QUENCH_SIDE_HOST) != 0) {
      if (copy->host == NULL || copy->host_bytes < bytes) {
        free(copy->host);
        copy->host_bytes = 0;
        copy->host = quench_rt_aligned(bytes);
        if (copy->host == NULL)
          return quench_rt_fail(error, QUENCH_RT_MEMORY, "no memory for input `%s`",
                                session->model->inputs[index]->name);
        copy->host_bytes = bytes;
      }
      session->input_pointers[index] = copy->host;
    }
  } else if ((sides & QUENCH_SIDE_DEVICE) != 0) {
    const int code = grow(device, &copy->device, bytes, "an input needs", error);
    if (code != QUENCH_RT_OK) return code;
  }
  if (device->device_inputs[index] == NULL)
    device->device_inputs[index] = address_of(device, &copy->device);
  return QUENCH_RT_OK;
}

static int prepare_output(quench_rt_session* session, uint32_t index, quench_rt_error* error) {
  quench_device_session* device = session->device;
  const output_state* output = &session->outputs[index];
  device_copy* copy = &device->outputs[index];
  device->device_outputs[index] = NULL;
  if ((device->loaded->code->output_sides[index] & QUENCH_SIDE_DEVICE) == 0) return QUENCH_RT_OK;
  if (output->on_device) {
    device->device_outputs[index] = output->bound;
    return QUENCH_RT_OK;
  }
  const int code = grow(device, &copy->device, quench_device_output_bytes(session, index),
                        "an output needs", error);
  device->device_outputs[index] = address_of(device, &copy->device);
  return code;
}

int quench_device_prepare(quench_rt_session* session, quench_rt_error* error) {
  quench_device_session* device = session->device;
  if (device == NULL) return QUENCH_RT_OK;
  const CUresult result = quench_code_enter(device->loaded);
  if (result != CUDA_SUCCESS) return fail_of(device, "cannot be used", result, error);
  int code =
      grow(device, &device->arena, session->plan->device_arena_bytes, "this run needs", error);
  if (code == QUENCH_RT_OK)
    code = grow(device, &device->scratch, session->plan->device_scratch_bytes,
                "scratch memory of this run needs", error);
  for (uint32_t i = 0; code == QUENCH_RT_OK && i < session->model->num_inputs; ++i)
    code = prepare_input(session, i, error);
  for (uint32_t i = 0; code == QUENCH_RT_OK && i < session->model->num_outputs; ++i)
    code = prepare_output(session, i, error);
  quench_code_leave(device->loaded);
  return code;
}

#endif /* QUENCH_RT_GPUS */
