/* A run on a GPU: copies to it, what the variant asks for, copies from it, all in one stream. */
#include <stdlib.h>

#include "common/runtime/device/device_session.h"

#if QUENCH_RT_GPUS

static CUdeviceptr address_of(const void* memory) { return (CUdeviceptr)(uintptr_t)memory; }
static void* pointer_of(const device_buffer* buffer) { return (void*)(uintptr_t)buffer->address; }

/* ---- failures ---- */

int32_t quench_device_result(quench_device_session* device, CUresult result) {
  if (result == CUDA_SUCCESS) return QUENCH_CODE_OK;
  if (device->failed == CUDA_SUCCESS) {
    device->failed = result;
    device->failed_node = device->node;
  }
  return QUENCH_CODE_DEVICE;
}

/* A kernel fails after the call that has launched it: what a later call tells may be of an earlier node. */
int quench_device_fail(const quench_rt_session* session, quench_rt_error* error) {
  const quench_device_session* device = session->device;
  if (device == NULL) return quench_rt_fail(error, QUENCH_RT_DEVICE, "the GPU failed");
  const char* text = quench_driver_text(device->loaded->gpu.driver, device->failed);
  const int code = device->failed == CUDA_ERROR_OUT_OF_MEMORY ? QUENCH_RT_MEMORY : QUENCH_RT_DEVICE;
  if (device->failed_node < 0 || (uint32_t)device->failed_node >= session->variant->num_nodes)
    return quench_rt_fail(error, code, "the GPU failed: %s", text);
  const quench_node_info* node = session->variant->nodes[device->failed_node];
  return quench_rt_fail(error, code,
                        device->failed >= CUDA_ERROR_ILLEGAL_ADDRESS
                            ? "node `%s` (%s) or one before it: the GPU failed: %s"
                            : "node `%s` (%s): the GPU failed: %s",
                        node->name, node->op, text);
}

/* ---- callbacks ---- */

int32_t quench_device_launch(void* host, uint32_t kernel, uint32_t blocks, void** arguments) {
  quench_device_session* device = ((quench_rt_session*)host)->device;
  const quench_device_kernel* info = &device->loaded->code->kernels[kernel];
  if (blocks == 0) return QUENCH_CODE_OK;
  return quench_device_result(
      device, device->cuda->Launch(device->loaded->functions[kernel], blocks, 1, 1, info->threads,
                                   1, 1, info->shared_bytes, device->stream, arguments, NULL));
}

/* The host's memory may be pinned, in the caller's arena, and is then read or written behind our back:
 * the stream is waited for in both directions. */
int32_t quench_device_transfer(void* host, void* to, const void* from, uint64_t bytes,
                               uint32_t direction) {
  quench_device_session* device = ((quench_rt_session*)host)->device;
  const quench_cuda* cuda = device->cuda;
  const size_t size = (size_t)bytes;
  if (bytes == 0) return QUENCH_CODE_OK;
  if (direction == QUENCH_TRANSFER_WITHIN_DEVICE) {
    return quench_device_result(
        device, cuda->CopyWithin(address_of(to), address_of(from), size, device->stream));
  }
  device->only_launches = 0;
  if (device->captures) return QUENCH_CODE_DEVICE; /* it cannot be in a graph */
  CUresult result = direction == QUENCH_TRANSFER_TO_DEVICE
                        ? cuda->CopyToDevice(address_of(to), from, size, device->stream)
                        : cuda->CopyToHost(to, address_of(from), size, device->stream);
  if (result == CUDA_SUCCESS) result = cuda->StreamSynchronize(device->stream);
  return quench_device_result(device, result);
}

static CUresult mark_node(quench_device_session* device, int32_t node) {
  if (device->used_marks == device->num_marks) {
    const uint32_t more = device->num_marks == 0 ? 64 : 2 * device->num_marks;
    device_mark* marks = realloc(device->marks, more * sizeof *marks);
    if (marks == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    device->marks = marks;
    while (device->num_marks < more) {
      const CUresult result =
          device->cuda->EventCreate(&marks[device->num_marks].event, CU_EVENT_DEFAULT);
      if (result != CUDA_SUCCESS) return result;
      ++device->num_marks;
    }
  }
  device_mark* mark = &device->marks[device->used_marks];
  const CUresult result = device->cuda->EventRecord(mark->event, device->stream);
  mark->node = node;
  if (result == CUDA_SUCCESS) ++device->used_marks;
  return result;
}

void quench_device_on_node(quench_rt_session* session, int32_t node) {
  quench_device_session* device = session->device;
  if (device == NULL) return;
  device->node = node;
  if (session->seconds != NULL) (void)quench_device_result(device, mark_node(device, node));
}

static CUresult add_times(const quench_rt_session* session) {
  const quench_device_session* device = session->device;
  for (uint32_t i = 0; i + 1 < device->used_marks; ++i) {
    const device_mark* mark = &device->marks[i];
    float milliseconds = 0;
    const CUresult result =
        device->cuda->EventElapsedTime(&milliseconds, mark->event, mark[1].event);
    if (result != CUDA_SUCCESS) return result;
    if (mark->node >= 0 && (uint32_t)mark->node < session->variant->num_nodes)
      session->seconds[mark->node] += 1e-3 * (double)milliseconds;
  }
  return CUDA_SUCCESS;
}

void quench_device_show(quench_rt_session* session, quench_rt_memory* memory) {
  quench_device_session* device = session->device;
  if (device == NULL) return;
  (void)quench_device_result(device, device->cuda->StreamSynchronize(device->stream));
  memory->device_arena = pointer_of(&device->arena);
  memory->device_inputs = device->device_inputs;
  memory->device_outputs = device->device_outputs;
}

int quench_rt_read_device(const quench_rt_session* session, void* to, const void* from,
                          uint64_t bytes) {
  const quench_device_session* device = session->device;
  if (device == NULL) return QUENCH_RT_INVALID;
  if (bytes == 0) return QUENCH_RT_OK;
  if (quench_code_enter(device->loaded) != CUDA_SUCCESS) return QUENCH_RT_DEVICE;
  CUresult result = device->cuda->CopyToHost(to, address_of(from), (size_t)bytes, device->stream);
  if (result == CUDA_SUCCESS) result = device->cuda->StreamSynchronize(device->stream);
  quench_code_leave(device->loaded);
  return result == CUDA_SUCCESS ? QUENCH_RT_OK : QUENCH_RT_DEVICE;
}

/* ---- runs ---- */

/* Inputs to the side where the run reads them. */
static CUresult copy_inputs(quench_rt_session* session) {
  quench_device_session* device = session->device;
  const quench_cuda* cuda = device->cuda;
  const quench_device_code* code = device->loaded->code;
  CUresult result = CUDA_SUCCESS;
  int waits = 0;
  if (code->num_checks > 0)
    result = cuda->SetWords(device->status.address, UINT32_MAX, 1, device->stream);
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < session->model->num_inputs; ++i) {
    const input_state* input = &session->inputs[i];
    const uint64_t bytes = quench_device_input_bytes(session, i);
    if (bytes == 0) continue;
    if (!input->on_device && (code->input_sides[i] & QUENCH_SIDE_DEVICE) != 0) {
      result = cuda->CopyToDevice(device->inputs[i].device.address, input->data, (size_t)bytes,
                                  device->stream);
    } else if (input->on_device && (code->input_sides[i] & QUENCH_SIDE_HOST) != 0) {
      result = cuda->CopyToHost(device->inputs[i].host, address_of(input->data), (size_t)bytes,
                                device->stream);
      waits = 1;
    }
  }
  return result == CUDA_SUCCESS && waits ? cuda->StreamSynchronize(device->stream) : result;
}

/* Outputs to the side where the caller, or a state, wants them. */
static CUresult copy_outputs(quench_rt_session* session) {
  quench_device_session* device = session->device;
  const quench_cuda* cuda = device->cuda;
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < session->model->num_outputs; ++i) {
    const output_state* output = &session->outputs[i];
    const uint64_t bytes = quench_device_output_bytes(session, i);
    if (bytes == 0) continue;
    if ((device->loaded->code->output_sides[i] & QUENCH_SIDE_DEVICE) == 0) {
      if (output->on_device)
        result = cuda->CopyToDevice(address_of(output->bound), session->output_pointers[i],
                                    (size_t)bytes, device->stream);
    } else if (!output->on_device || quench_device_needs_host(session, i)) {
      result = cuda->CopyToHost(session->output_pointers[i], address_of(device->device_outputs[i]),
                                (size_t)bytes, device->stream);
    }
  }
  return result;
}

/* Waits for the GPU. `code` is what the run returned: a check that failed on the host comes after those on
 * the device. */
static int32_t finish(quench_rt_session* session, quench_run* run, int32_t code) {
  quench_device_session* device = session->device;
  const quench_device_code* info = device->loaded->code;
  uint32_t status = UINT32_MAX;
  CUresult result = CUDA_SUCCESS;
  const int counts = code == QUENCH_CODE_OK || code == QUENCH_CODE_CHECK;
  if (counts && info->num_checks > 0)
    result =
        device->cuda->CopyToHost(&status, device->status.address, sizeof status, device->stream);
  if (code == QUENCH_CODE_OK && result == CUDA_SUCCESS) result = copy_outputs(session);
  const CUresult waited = device->cuda->StreamSynchronize(device->stream);
  if (!counts) return code;
  if (result == CUDA_SUCCESS) result = waited;
  if (result == CUDA_SUCCESS && code == QUENCH_CODE_OK && session->seconds != NULL)
    result = add_times(session);
  if (result != CUDA_SUCCESS) return quench_device_result(device, result);
  if (status == UINT32_MAX) return code;
  const quench_device_check* check = status < info->num_checks ? &info->checks[status] : NULL;
  run->error_node = check != NULL ? check->node : -1;
  run->error_message = check != NULL ? check->message : NULL;
  return QUENCH_CODE_CHECK;
}

int32_t quench_device_run(quench_rt_session* session, quench_run* run) {
  quench_device_session* device = session->device;
  device->node = -1;
  device->failed = CUDA_SUCCESS;
  device->used_marks = 0;
  CUresult result = quench_code_enter(device->loaded);
  if (result != CUDA_SUCCESS) return quench_device_result(device, result);
  run->device_inputs = device->device_inputs;
  run->device_outputs = device->device_outputs;
  run->device_arena = pointer_of(&device->arena);
  run->device_scratch = pointer_of(&device->scratch);
  run->device_weights = (const void*)(uintptr_t)device->loaded->weights;
  run->device_status = pointer_of(&device->status);
  int32_t code = quench_device_result(device, copy_inputs(session));
  if (code == QUENCH_CODE_OK) code = quench_device_work(session, run);
  if (code == QUENCH_CODE_OK && device->failed != CUDA_SUCCESS) code = QUENCH_CODE_DEVICE;
  code = finish(session, run, code);
  quench_code_leave(device->loaded);
  return code;
}

#endif /* QUENCH_RT_GPUS */
