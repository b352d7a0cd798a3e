"""The runtimes that bench/peers.py compares Quench with: a file each, and a row each in this table."""

import dataclasses
import importlib
import importlib.metadata
import pathlib


@dataclasses.dataclass(frozen=True)
class Task:
    """Work of a peer: an ONNX model of fixed shapes, its inputs, and how many threads."""
    model: pathlib.Path
    inputs: dict  # of arrays by name, in the model's order
    outputs: list  # names
    threads: int
    folder: pathlib.Path  # for what a converter writes
    tflite: pathlib.Path  # the same network for LiteRT, which may not exist


@dataclasses.dataclass(frozen=True)
class Peer:
    """`module` of this package has open(Task, **settings), which returns a function that runs the model once and returns its
    outputs in order. It raises where the peer cannot do it: the message's last line is the row's reason.
    """
    module: str
    packages: tuple  # to install; the first has the version
    settings: dict = dataclasses.field(default_factory=dict)

    def open(self, task):
        try:
            module = importlib.import_module("peers." + self.module)
        except ImportError as error:
            raise RuntimeError(f"not installed ({error}): pip install {' '.join(self.packages)}") from error
        return module.open(task, **self.settings)

    def version(self):
        return f"{self.packages[0]} {importlib.metadata.version(self.packages[0])}"


PEERS = {
    "ort": Peer("ort", ("onnxruntime",)),
    "openvino": Peer("openvino", ("openvino",), {"precision": "f32"}),
    "openvino-default": Peer("openvino", ("openvino",), {"precision": None}),  # bf16 where the CPU has AMX
    "mnn": Peer("mnn", ("MNN",)),
    "iree": Peer("iree", ("iree-base-compiler", "iree-base-runtime")),
    "ncnn": Peer("ncnn", ("ncnn", "pnnx")),
    "litert": Peer("litert", ("ai-edge-litert",)),
    "tract": Peer("tract", ("tract",)),
}
