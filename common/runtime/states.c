/* What a session carries from an output of a run to an input of the next one. */
#include <stdlib.h>
#include <string.h>

#include "common/runtime/session.h"

int64_t quench_rt_tensor_bytes(int32_t dtype, const int64_t* dims, int32_t rank) {
  int64_t count = 1;
  for (int32_t i = 0; i < rank; ++i) {
    if (dims[i] < 0 || __builtin_mul_overflow(count, dims[i], &count)) return -1;
  }
  return quench_rt_dtype_bytes(dtype, count);
}

void quench_rt_read_carried(quench_rt_session* session, const carried_state* state) {
  input_state* input = &session->inputs[state->info->input];
  const quench_tensor_info* info = session->model->inputs[state->info->input];
  input->data = state->memory;
  input->on_device = 0;
  for (int32_t i = 0; i < info->rank; ++i) {
    if (input->dims[i] != info->dims[i].value) session->plan = NULL;
    input->dims[i] = info->dims[i].value;
  }
}

int quench_rt_allocate_states(quench_rt_session* session) {
  for (uint32_t i = 0; i < session->num_states; ++i) {
    carried_state* state = &session->states[i];
    int64_t dims[QUENCH_RT_MAX_RANK];
    state->info = session->model->states[i];
    const quench_tensor_info* info = session->model->inputs[state->info->input];
    for (int32_t axis = 0; axis < info->rank; ++axis) dims[axis] = info->dims[axis].value;
    const int64_t bytes = quench_rt_tensor_bytes(info->dtype, dims, info->rank);
    if (bytes < 0) return 0;
    state->bytes = (uint64_t)bytes;
    state->memory = quench_rt_aligned(state->bytes);
    if (state->memory == NULL) return 0;
    quench_rt_read_carried(session, state);
  }
  quench_rt_reset_states(session);
  return 1;
}

void quench_rt_reset_states(quench_rt_session* session) {
  for (uint32_t i = 0; i < session->num_states; ++i) {
    const carried_state* state = &session->states[i];
    const int32_t dtype = session->model->inputs[state->info->input]->dtype;
    const size_t step = (size_t)quench_rt_dtype_bytes(dtype, 1);
    if (state->info->initial == NULL) {
      memset(state->memory, 0, state->bytes);
      continue;
    }
    for (uint64_t at = 0; at + step <= state->bytes; at += step)
      memcpy((char*)state->memory + at, state->info->initial, step);
  }
}

/* Memory of the session's own changes places with what was read, so that nothing is copied. What the caller
 * has on a device is in the session's own too. */
void quench_rt_carry_states(quench_rt_session* session) {
  for (uint32_t i = 0; i < session->num_states; ++i) {
    carried_state* state = &session->states[i];
    output_state* output = &session->outputs[state->info->output];
    void* data = output->on_device ? output->owned : output->data;
    if (data == output->owned && output->owned_bytes == state->bytes) {
      output->owned = state->memory;
      state->memory = data;
    } else {
      memcpy(state->memory, data, state->bytes);
    }
    if (!state->bound) quench_rt_read_carried(session, state);
  }
}

int quench_rt_is_state_output(const quench_rt_session* session, uint32_t output) {
  for (uint32_t i = 0; i < session->num_states; ++i) {
    if (session->states[i].info->output == output) return 1;
  }
  return 0;
}

carried_state* quench_rt_state_of_input(quench_rt_session* session, uint32_t input) {
  for (uint32_t i = 0; i < session->num_states; ++i) {
    if (session->states[i].info->input == input) return &session->states[i];
  }
  return NULL;
}
