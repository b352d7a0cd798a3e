"""LiteRT, with its kernels of XNNPACK; of the .tflite file that is given for the same network."""

from ai_edge_litert.interpreter import Interpreter

import numpy as np


def placed(array, shape):
    """The array in the model's shape: as it is, or with the channels last, as TensorFlow has images."""
    if array.shape == shape:
        return array
    last = np.moveaxis(array, 1, -1) if array.ndim > 2 else array
    if last.shape != shape:
        raise RuntimeError(f"the .tflite has an input of shape {list(shape)}, the model one of {list(array.shape)}")
    return last


def open(task):
    if not task.tflite.exists():
        raise RuntimeError(f"needs {task.tflite.name}: beside the model, or in the folder of --tflite")
    interpreter = Interpreter(model_path=str(task.tflite), num_threads=task.threads)
    interpreter.allocate_tensors()
    wanted, given = interpreter.get_input_details(), list(task.inputs.values())
    if len(wanted) != len(given):
        raise RuntimeError(f"the .tflite has {len(wanted)} inputs, the model {len(given)}")
    for detail, array in zip(wanted, given):
        array = placed(array, tuple(detail["shape"]))
        interpreter.set_tensor(detail["index"], np.ascontiguousarray(array, detail["dtype"]))
    indices = [detail["index"] for detail in interpreter.get_output_details()]

    def run():
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in indices]

    return run
