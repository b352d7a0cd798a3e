"""Whole networks of bench/models, with few channels and small images."""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "models"))
import networks  # noqa: E402

SIZES = {"batch": 2, "unk__0": 2, "seq": 9}  # of symbolic dims
SAME_WHEN_TINY = {"gpt2"}


def names():
    return sorted(set(networks.NETWORKS) - SAME_WHEN_TINY)


def draw(name, folder, options):
    """Writes the case of one network to `folder`."""
    networks.make_tiny()
    model = networks.NETWORKS[name]()
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng, data = np.random.default_rng(1), folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    inputs = {}
    for i, info in enumerate(session.get_inputs()):
        shape = [d if isinstance(d, int) else SIZES[d] for d in info.shape]
        if info.type == "tensor(float)":
            array = rng.standard_normal(shape).astype(np.float32)
        else:  # ids, or the lengths of sequences
            array = rng.integers(1, 7, shape).astype(np.int32 if info.type == "tensor(int32)" else np.int64)
            if info.name == "types":
                array %= 2
        inputs[info.name] = array
        (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(array, info.name).SerializeToString())
    for i, array in enumerate(session.run(None, inputs)):
        (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(array, model.graph.output[i].name).SerializeToString())
