"""ONNX Runtime with all graph optimisations."""

import onnxruntime as ort


def open(task):
    options = ort.SessionOptions()
    options.intra_op_num_threads = task.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(task.model), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, task.inputs)
