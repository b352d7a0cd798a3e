/* A run that does again what the last one did, and nothing on the host, is one call of the driver: a graph. */
#include <stdlib.h>
#include <string.h>

#include "common/runtime/device/device_session.h"

#if QUENCH_RT_GPUS

/* Whether runs may do without their host code: what it computes goes nowhere but into launches, and depends
 * on nothing but the plan. */
static int is_possible(const quench_rt_session* session) {
  const quench_model* model = session->model;
  const quench_device_code* code = session->device->loaded->code;
  for (uint32_t i = 0; i < model->num_inputs; ++i) {
    if ((code->input_sides[i] & QUENCH_SIDE_HOST) != 0) return 0;
  }
  for (uint32_t i = 0; i < model->num_outputs; ++i) {
    if (code->output_sides[i] != QUENCH_SIDE_DEVICE) return 0;
  }
  for (uint32_t i = 0; i < model->num_symbols; ++i) {
    if (model->symbols[i]->kind == QUENCH_SYMBOL_RUNTIME) return 0;
  }
  return session->device->owns_stream;
}

int quench_device_start_graphs(quench_rt_session* session) {
  quench_device_session* device = session->device;
  device->uses_graphs = is_possible(session);
  for (int i = 0; device->uses_graphs && i < kPlans; ++i) {
    device_graph* graph = &device->graphs[i];
    graph->inputs = calloc(session->model->num_inputs + 1u, sizeof *graph->inputs);
    graph->outputs = calloc(session->model->num_outputs + 1u, sizeof *graph->outputs);
    if (graph->inputs == NULL || graph->outputs == NULL) return 0;
  }
  return 1;
}

static void drop(const quench_device_session* device, device_graph* graph) {
  if (graph->exec != NULL) (void)device->cuda->GraphExecDestroy(graph->exec);
  graph->exec = NULL;
  graph->repeats = 0;
}

void quench_device_drop_graphs(quench_device_session* device) {
  for (int i = 0; i < kPlans; ++i) drop(device, &device->graphs[i]);
}

static int is_same(const quench_rt_session* session, const device_graph* graph) {
  const quench_device_session* device = session->device;
  return graph->made == session->plan->made && graph->arena == device->arena.address &&
         graph->scratch == device->scratch.address &&
         memcmp(graph->inputs, device->device_inputs,
                session->model->num_inputs * sizeof *graph->inputs) == 0 &&
         memcmp(graph->outputs, device->device_outputs,
                session->model->num_outputs * sizeof *graph->outputs) == 0;
}

static void remember(const quench_rt_session* session, device_graph* graph) {
  const quench_device_session* device = session->device;
  graph->made = session->plan->made;
  graph->arena = device->arena.address;
  graph->scratch = device->scratch.address;
  memcpy(graph->inputs, device->device_inputs, session->model->num_inputs * sizeof *graph->inputs);
  memcpy(graph->outputs, device->device_outputs,
         session->model->num_outputs * sizeof *graph->outputs);
}

/* Makes the graph from one call of the run function, which asks as always, while nothing happens yet. A
 * failure of the driver, or of what cannot be in a graph, ends the session's use of them. */
static int32_t capture(quench_rt_session* session, quench_run* run, device_graph* graph) {
  quench_device_session* device = session->device;
  const quench_cuda* cuda = device->cuda;
  CUgraph captured = NULL;
  CUresult result = cuda->StreamBeginCapture(device->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  int32_t code = QUENCH_CODE_DEVICE;
  if (result == CUDA_SUCCESS) {
    device->captures = 1;
    code = session->variant->run(run);
    device->captures = 0;
    result = cuda->StreamEndCapture(device->stream, &captured);
  }
  if (code == QUENCH_CODE_OK && result == CUDA_SUCCESS)
    result = cuda->GraphInstantiate(&graph->exec, captured, 0);
  if (captured != NULL) (void)cuda->GraphDestroy(captured);
  if (code != QUENCH_CODE_OK && code != QUENCH_CODE_DEVICE) return code;
  if (code == QUENCH_CODE_OK && result == CUDA_SUCCESS) return code;
  graph->exec = NULL;
  device->failed = CUDA_SUCCESS;
  device->uses_graphs = 0;
  quench_device_drop_graphs(device);
  return QUENCH_CODE_OK;
}

int32_t quench_device_work(quench_rt_session* session, quench_run* run) {
  quench_device_session* device = session->device;
  device_graph* graph = &device->graphs[session->plan - session->plans];
  if (!device->uses_graphs || session->seconds != NULL || session->observer != NULL ||
      session->tap != NULL)
    return session->variant->run(run);
  if (!graph->repeats || !is_same(session, graph)) {
    drop(device, graph);
    remember(session, graph);
    device->only_launches = 1;
    const int32_t code = session->variant->run(run);
    graph->repeats = code == QUENCH_CODE_OK && device->only_launches;
    return code;
  }
  if (graph->exec == NULL) {
    const int32_t code = capture(session, run, graph);
    if (code != QUENCH_CODE_OK) return code;
    if (graph->exec == NULL) return session->variant->run(run);
  }
  if (run->host->cancelled(run->host->host)) return QUENCH_CODE_CANCELLED;
  return quench_device_result(device, device->cuda->GraphLaunch(graph->exec, device->stream));
}

#endif /* QUENCH_RT_GPUS */
