"""The contents of a pack: graphs of operators and networks, in which types, for which GPUs, and which of them are timed."""

import dataclasses
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import helper

import graphs

MODELS = pathlib.Path(__file__).resolve().parent.parent / "models"
sys.path.insert(0, str(MODELS))
import networks  # noqa: E402

OPTIONS = {"f32": (), "f16": ("--float16",), "bf16": ("--bfloat16",),
           "int8": ("--quantize", "int8", "--per-channel", "--calibration-random", "4"),
           "int4": ("--quantize", "int4", "--type", "weights")}
# Errors that are always allowed, over the largest magnitude.
BOUNDS = {"f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}


@dataclasses.dataclass
class Case:
    name: str
    kind: str  # "operators", "small", "network"
    type: str
    arch: str
    model: pathlib.Path
    inputs: list
    options: tuple
    extra: dict = dataclasses.field(default_factory=dict)  # further keys of expectations.json


# ---- graphs of operators ----

@dataclasses.dataclass
class Row:
    types: tuple = ("f32",)
    old: tuple = ()  # types that are also compiled for older GPUs alone
    extra: dict = dataclasses.field(default_factory=dict)


GRAPHS = {
    "convolutions": Row(("f32", "f16", "bf16", "int8"), ("f32", "f16", "int8")),
    "transposed": Row(("f32", "f16")),
    "products": Row(("f32", "f16", "bf16", "int8"), ("f32", "f16", "int8")),
    "batched": Row(("f32", "f16"), ("f16",)),
    "attention": Row(("f32", "f16", "bf16"), ("f32", "f16"), {"also": ["stream", "refusals"]}),
    "norms": Row(("f32", "f16"), ("f16",)),
    "softmaxes": Row(("f32", "f16"), ("f16",)),
    "reductions": Row(("f32",), ("f32",)),
    "unary": Row(("f32", "f16"), ("f16",)),
    "binary": Row(("f32",), ("f32",)),
    "movements": Row(),
    "gathers": Row(),
    "index_error": Row(extra={"is_error": True}),
    "windows": Row(("f32", "f16")),
    "recurrent": Row(extra={"also": ["cancel"]}),
    "control": Row(),
    "run_sizes": Row(extra={"sizes": "run"}),
    "any_batch": Row(extra={"also": ["sizes"]}),
    "integers": Row(("f32",), ("f32",)),
    "weight_only": Row(("int4",)),
}


def small_cases(names, arch, old, folder):
    """Each library is for `arch`, or for one of `old` alone: a newer GPU then runs the instructions of the older one."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name in names:
        row, graph = GRAPHS[name], getattr(graphs, name)()
        path = folder / f"{name}.onnx"
        onnx.save(graph.model(name), path)
        for kind in row.types:
            found.append(Case(f"{name}-{kind}", "operators", kind, arch, path, graph.inputs, OPTIONS[kind], dict(row.extra)))
        for each in old:
            found += [Case(f"{name}-{kind}-{each}", "operators", kind, each, path, graph.inputs, OPTIONS[kind]) for kind in row.old]
    return found


# ---- networks ----

# Types of the networks in full size, at batch 1.
FULL = {"resnet50": ("f16", "f32", "bf16", "int8"), "mobilenet_v2": ("f16", "f32", "int8"), "bert_base": ("f16", "f32"),
        "vit_b16": ("f16", "f32")}
BATCHES = {"resnet50": (32,)}  # further ones, in f16
SMALL = networks.NETWORKS
SMALL_TYPES = ("f32", "f16", "bf16")
SMALL_SIZE = 9  # of symbolic dims other than a batch


def rows_of(graph, name):
    """How many rows the table has that an input of integers chooses from; 2 if none."""
    tables = {constant.name: constant.dims[0] for constant in graph.initializer if constant.dims}
    rows = [tables[node.input[0]] for node in graph.node if node.op_type == "Gather" and node.input[1] == name and node.input[0] in tables]
    return min(rows, default=2)


def inputs_of(path, batch):
    """Specifications for gpu_device.make_inputs."""
    graph = onnx.load(str(path), load_external_data=False).graph
    constants, found = {constant.name for constant in graph.initializer}, []
    for value in graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        dims = [dim.dim_value or SMALL_SIZE for dim in tensor.shape.dim]
        if not tensor.shape.dim[0].dim_value:
            dims[0] = batch
        if value.name.startswith(("h0", "c0")) and not tensor.shape.dim[1].dim_value:
            dims[1] = batch
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        spec = {"name": value.name, "dtype": dtype.name, "shape": dims, "low": -1.0, "high": 1.0}
        if dtype.kind == "i":
            spec.update(low=0, high=rows_of(graph, value.name))
            if value.name == "lengths":  # of sequences: at least one step
                spec.update(low=1, high=found[0]["shape"][1] + 1)
        found.append(spec)
    return found


def write_networks(names, folder, *options):
    if names:
        command = [sys.executable, MODELS / "networks.py", *options, folder, *names]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def network_cases(full, small, arch, folder):
    write_networks(full, folder / "full", "--repeat-weights")
    write_networks(small, folder / "small", "--tiny")
    found = []
    for name in full:
        path = folder / "full" / f"{name}.onnx"
        for kind, batch in [(kind, 1) for kind in FULL[name]] + [("f16", batch) for batch in BATCHES.get(name, ())]:
            found.append(network_case("network", name, kind, batch, arch, path))
    for number, name in enumerate(small):
        kind, path = SMALL_TYPES[number % len(SMALL_TYPES)], folder / "small" / f"{name}.onnx"
        found.append(network_case("small", name, kind, 1, arch, path))
    return found


def network_case(kind, name, dtype, batch, arch, path):
    label = f"{name}-{dtype}" + (f"-batch{batch}" if batch > 1 else "") + ("-small" if kind == "small" else "")
    extra = {"network": name, "batch": batch, "profile": kind == "network"}
    if name == "resnet50" and dtype == "f32":
        extra["also"] = ["cancel"]
    return Case(label, kind, dtype, arch, path, inputs_of(path, batch), (*OPTIONS[dtype], "--batch", str(batch)), extra)


def times_of(specs):
    """Networks that are timed: f16 beside PyTorch first. Without any in full size, the small ones."""
    rows = [spec for spec in specs if spec["kind"] == "network"] or [spec for spec in specs if spec["kind"] == "small"]
    rows = [{"case": spec["name"], "network": spec["network"], "batch": spec["batch"], "type": spec["type"],
             "torch": spec["kind"] == "network" and spec["type"] == "f16"} for spec in rows]
    return sorted(rows, key=lambda row: not row["torch"])
