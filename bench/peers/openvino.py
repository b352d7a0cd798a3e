"""OpenVINO with hints for latency; in the precision that is given, or in the one that it chooses."""

import openvino as ov


def open(task, precision):
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": task.threads, "NUM_STREAMS": 1}
    if precision is not None:
        settings["INFERENCE_PRECISION_HINT"] = precision
    compiled = ov.Core().compile_model(str(task.model), "CPU", settings)
    request = compiled.create_infer_request()
    tensors = {name: ov.Tensor(array) for name, array in task.inputs.items()}
    for name, tensor in tensors.items():
        request.set_tensor(name, tensor)

    def run():
        request.infer()
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run
