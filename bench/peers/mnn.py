"""MNN: its converter, and precision `high`, which is f32."""

import subprocess
import sys

import MNN
import numpy as np


def open(task):
    converted = task.folder / (task.model.stem + ".mnn")
    command = [sys.executable, "-m", "MNN.tools.mnnconvert", "-f", "ONNX", "--modelFile", str(task.model),
               "--MNNModel", str(converted), "--bizCode", "bench"]
    done = subprocess.run(command, capture_output=True, text=True)
    if not converted.exists():
        raise RuntimeError("MNN's converter: " + (done.stderr or done.stdout)[-200:])
    runtime = MNN.nn.create_runtime_manager(({"backend": 0, "numThread": task.threads, "precision": 1, "memory": 0, "power": 1},))
    module = MNN.nn.load_module_from_file(str(converted), list(task.inputs), task.outputs, runtime_manager=runtime)
    variables = []
    for array in task.inputs.values():
        kind = {np.dtype(np.float32): MNN.expr.float, np.dtype(np.int32): MNN.expr.int, np.dtype(np.int64): MNN.expr.int}[array.dtype]
        variable = MNN.expr.placeholder(list(array.shape), MNN.expr.NCHW, kind)
        variable.write(np.ascontiguousarray(array, np.int32 if kind == MNN.expr.int else array.dtype))
        variables.append(variable)
    return lambda: [v.read() for v in module.forward(variables)]
