/* Memory that the caller gives for inputs and outputs, and what of it may overlap. */
#include "common/runtime/device/device.h"
#include "common/runtime/session.h"

enum { kDeviceAlignment = 16 };

/* Bytes an element must be aligned to: its size, at most 8. */
static uintptr_t alignment_of(int32_t dtype) {
  const int64_t bytes = quench_rt_dtype_bytes(dtype, 1);
  return bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;
}

/* `what` is "input" or "output"; `data` is memory of the device if `on_device`. */
static int check_address(const quench_rt_session* session, const char* what,
                         const quench_tensor_info* info, const void* data, int on_device,
                         quench_rt_error* error) {
  const uintptr_t alignment = on_device ? kDeviceAlignment : alignment_of(info->dtype);
  if (((uintptr_t)data & (alignment - 1)) != 0) {
    return quench_rt_fail(error, QUENCH_RT_INVALID,
                          on_device ? "%s `%s`: data is not aligned to 16 bytes"
                                    : "%s `%s`: data is not aligned to its elements",
                          what, info->name);
  }
  if (!on_device || data == NULL) return QUENCH_RT_OK;
  return quench_device_owns(session, what, info->name, data, error);
}

static int check_device(const quench_rt_session* session, quench_rt_error* error) {
  if (session->device != NULL) return QUENCH_RT_OK;
  return quench_rt_fail(error, QUENCH_RT_INVALID,
                        "memory of a device is for sessions on one, this one is on the CPU");
}

static int check_tensor(const quench_tensor_info* info, const quench_rt_tensor* tensor,
                        quench_rt_error* error) {
  if (tensor->dtype != info->dtype) {
    return quench_rt_fail(error, QUENCH_RT_INVALID, "input `%s`: dtype is %s, the model takes %s",
                          info->name, quench_rt_dtype_name(tensor->dtype),
                          quench_rt_dtype_name(info->dtype));
  }
  if (tensor->rank != info->rank) {
    return quench_rt_fail(error, QUENCH_RT_INVALID, "input `%s`: rank is %d, the model takes %d",
                          info->name, tensor->rank, info->rank);
  }
  const int64_t bytes = quench_rt_tensor_bytes(tensor->dtype, tensor->dims, tensor->rank);
  if (bytes < 0)
    return quench_rt_fail(error, QUENCH_RT_INVALID, "input `%s`: a size is negative or too large",
                          info->name);
  if (tensor->data == NULL && bytes > 0)
    return quench_rt_fail(error, QUENCH_RT_INVALID, "input `%s`: data is NULL", info->name);
  return QUENCH_RT_OK;
}

static int bind_input(quench_rt_session* session, uint32_t index, const quench_rt_tensor* tensor,
                      int on_device, quench_rt_error* error) {
  const quench_model* model = session->model;
  if (index >= model->num_inputs) {
    return quench_rt_fail(error, QUENCH_RT_INVALID, "there is no input %u, the model has %u", index,
                          model->num_inputs);
  }
  const quench_tensor_info* info = model->inputs[index];
  carried_state* state = quench_rt_state_of_input(session, index);
  if (tensor == NULL) {
    if (state == NULL) {
      return quench_rt_fail(error, QUENCH_RT_INVALID,
                            "input `%s`: there is no tensor, and no state to carry", info->name);
    }
    state->bound = 0;
    quench_rt_read_carried(session, state);
    return QUENCH_RT_OK;
  }
  int code = check_tensor(info, tensor, error);
  if (code == QUENCH_RT_OK)
    code = check_address(session, "input", info, tensor->data, on_device, error);
  if (code != QUENCH_RT_OK) return code;
  input_state* input = &session->inputs[index];
  /* An input without elements may have no memory; the pointer also says that the input was set. */
  input->data = tensor->data != NULL ? tensor->data : (const void*)session;
  input->on_device = on_device;
  for (int i = 0; i < tensor->rank; ++i) {
    if (input->dims[i] != tensor->dims[i]) session->plan = NULL;
    input->dims[i] = tensor->dims[i];
  }
  if (state != NULL) state->bound = 1;
  return QUENCH_RT_OK;
}

static int bind_output(quench_rt_session* session, uint32_t index, void* data, uint64_t bytes,
                       int on_device, quench_rt_error* error) {
  const quench_model* model = session->model;
  if (index >= model->num_outputs) {
    return quench_rt_fail(error, QUENCH_RT_INVALID, "there is no output %u, the model has %u",
                          index, model->num_outputs);
  }
  const int code = check_address(session, "output", model->outputs[index], data, on_device, error);
  if (code != QUENCH_RT_OK) return code;
  output_state* output = &session->outputs[index];
  output->bound = data;
  output->bound_bytes = bytes;
  output->on_device = on_device && data != NULL;
  return QUENCH_RT_OK;
}

int quench_rt_set_input(quench_rt_session* session, uint32_t index, const quench_rt_tensor* tensor,
                        quench_rt_error* error) {
  return bind_input(session, index, tensor, 0, error);
}

int quench_rt_set_output(quench_rt_session* session, uint32_t index, void* data, uint64_t bytes,
                         quench_rt_error* error) {
  return bind_output(session, index, data, bytes, 0, error);
}

int quench_rt_set_device_input(quench_rt_session* session, uint32_t index,
                               const quench_rt_tensor* tensor, quench_rt_error* error) {
  const int code = check_device(session, error);
  return code == QUENCH_RT_OK ? bind_input(session, index, tensor, 1, error) : code;
}

int quench_rt_set_device_output(quench_rt_session* session, uint32_t index, void* data,
                                uint64_t bytes, quench_rt_error* error) {
  const int code = check_device(session, error);
  return code == QUENCH_RT_OK ? bind_output(session, index, data, bytes, 1, error) : code;
}

static int overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return x < y + b_bytes && y < x + a_bytes;
}

/* Memory that an output will be written to: the caller's, or what the session has for it. */
static const void* memory_of(const quench_rt_session* session, uint32_t index, uint64_t* bytes) {
  const output_state* output = &session->outputs[index];
  const quench_tensor_info* info = session->model->outputs[index];
  const int64_t needed = quench_rt_tensor_bytes(info->dtype, output->dims, info->rank);
  *bytes = output->bound == NULL ? output->owned_bytes : needed < 0 ? 0 : (uint64_t)needed;
  return output->bound != NULL ? output->bound : output->owned;
}

/* Addresses of a device and of the host are never the same: they share one space. */
int quench_rt_check_overlaps(const quench_rt_session* session, uint32_t index,
                             quench_rt_error* error) {
  const quench_model* model = session->model;
  const quench_tensor_info* info = model->outputs[index];
  uint64_t bytes, other_bytes;
  const void* memory = memory_of(session, index, &bytes);
  if (memory == NULL) return QUENCH_RT_OK;
  const char* whose = session->outputs[index].bound != NULL ? "is bound to" : "would be written to";
  for (uint32_t i = 0; i < model->num_inputs; ++i) {
    const quench_tensor_info* other = model->inputs[i];
    const void* data = session->input_pointers[i];
    const int64_t size = quench_rt_tensor_bytes(other->dtype, session->inputs[i].dims, other->rank);
    if (size <= 0 || !overlap(memory, bytes, data, (uint64_t)size)) continue;
    if (info->in_place_of == i + 1 && data == memory) continue;
    return quench_rt_fail(error, QUENCH_RT_INVALID, "output `%s` %s memory of input `%s`: %s",
                          info->name, whose, other->name,
                          info->in_place_of == i + 1
                              ? "it may take its place, but from the same address on"
                              : "the model does not write it in place");
  }
  for (uint32_t i = 0; i < index; ++i) {
    const void* other = memory_of(session, i, &other_bytes);
    if (other == NULL || !overlap(memory, bytes, other, other_bytes)) continue;
    return quench_rt_fail(error, QUENCH_RT_INVALID,
                          "outputs `%s` and `%s` are bound to the same memory",
                          model->outputs[i]->name, info->name);
  }
  return QUENCH_RT_OK;
}
