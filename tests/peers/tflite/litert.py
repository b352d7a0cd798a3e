"""LiteRT's reference kernels: what they give for a case, and the shapes that they find for a model's tensors."""

import os

import numpy as np

from . import model as models
from .case import HYBRID, NUMPY, Case, numbers

KINDS = {np.dtype(numpy): kind for kind, numpy in NUMPY.items()}
QUANTIZED = ("INT8", "UINT8", "INT16")
ASTRAY = 0.15  # of the range: how far a quantized kernel may be from the float one before it counts as broken


# The reference kernel leaves out the last channel of each window; the one that everybody runs does not.
USUAL_KERNELS = ("LOCAL_RESPONSE_NORMALIZATION",)


def interpreter(content, operator=""):
    """An interpreter with reference kernels, or, for the few operators that have none, with the usual ones; without delegates."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # a failed import is the caller's to report

    if operator not in USUAL_KERNELS:
        try:
            return Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1)
        except ValueError as reason:
            if "Didn't find op" not in str(reason):
                raise
    return Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, num_threads=1)


def set_inputs(machine, feeds):
    """Feeds by names, after the inputs got their shapes."""
    details = {d["name"]: d for d in machine.get_input_details()}
    for name, array in feeds.items():
        if tuple(details[name]["shape"]) != array.shape:
            machine.resize_tensor_input(details[name]["index"], array.shape)
    machine.allocate_tensors()
    for name, array in feeds.items():
        machine.set_tensor(details[name]["index"], array)


def shapes(machine):
    return {d["name"]: [int(n) for n in d["shape"]] for d in machine.get_tensor_details()}


def complete(case, content, feeds):
    """Runs the model and writes the shapes of what its operators give into it; the outputs."""
    machine = interpreter(content, case.operator)
    machine.allocate_tensors()
    as_written = shapes(machine)
    set_inputs(machine, feeds)
    allocated = shapes(machine)
    machine.invoke()
    outputs = [machine.get_tensor(d["index"]) for d in machine.get_output_details()]
    if case.operator == "TFLite_Detection_PostProcess":  # rows behind those that it counts are whatever memory held
        for rows in outputs[:3]:
            rows[:, int(outputs[3][0]):] = 0
    names = [d["name"] for d in machine.get_output_details()]
    final = shapes(machine)
    given = {place for operator in case.operators for place in operator["outputs"]}
    for place in given:
        tensor = case.tensors[place]
        name = tensor["name"]
        if name not in final or tensor["type"] == "RESOURCE":
            continue
        tensor["shape"] = as_written[name]
        known = allocated[name] == final[name] and (as_written[name] == allocated[name])
        if not known:  # -1 where it is not the same in each of the three
            signature = [a if a == b == c else -1 for a, b, c in zip(as_written[name], allocated[name], final[name])]
            if not len(as_written[name]) == len(allocated[name]) == len(final[name]):
                signature = [-1] * len(final[name])
            tensor |= {"shape": [1 if s < 0 else s for s in signature], "signature": signature}
    return dict(zip(names, outputs))


def record(array, **fields):
    return fields | {"type": KINDS[array.dtype], "shape": list(array.shape), "values": numbers(array)}


def fill(function, measured, operator, mode, seed, build):
    """A filled case, and what a float model of it gives: quantized ones are measured so. `build` makes bytes of a model."""
    case = Case(operator, mode, seed, None if measured else [])
    function(case)
    if not case.measuring:
        return case, {}
    machine = interpreter(build(case.model()), operator)
    set_inputs(machine, case.feeds)
    machine.invoke()
    results = {d["name"]: machine.get_tensor(d["index"]) for d in machine.get_output_details()}
    names = [case.tensors[place]["name"] for place in case.outputs]
    ranges = [(float(results[n].min(initial=0)), float(results[n].max(initial=0))) for n in names]
    case = Case(operator, mode, seed, ranges)
    function(case)
    return case, results


def check_beside_float(tensor, given, real):
    """Some quantized kernels of LiteRT are wrong for some types: a ValueError where this one is far from the float one."""
    least, most = np.iinfo(given.dtype).min, np.iinfo(given.dtype).max
    scale, zero_point = tensor["scale"][0], tensor["zero_point"][0]
    wanted = np.clip(real / scale + zero_point, least, most)
    if given.shape == real.shape and np.any(np.abs(given - wanted) > ASTRAY * (most - least)):
        raise ValueError("LiteRT's quantized kernel contradicts its float kernel")


def without_rounding(function, operator, mode, seed, build, rounded):
    """Outputs of the float kernel with the weights of a hybrid case; `rounded` are those of the hybrid kernel."""
    case = Case(operator, mode, seed, exact=True)
    function(case)
    outputs = complete(case, build(case.model()), case.feeds)
    for name, exact in outputs.items():
        if not np.all(np.abs(rounded[name] - exact) <= ASTRAY * np.abs(exact).max(initial=0)):
            raise ValueError("LiteRT's hybrid kernel contradicts its float kernel")
    return outputs


def draw(function, measured, operator, mode, seed, name, build):
    """One case as judge.py takes it; raises what LiteRT raises."""
    case, real = fill(function, measured, operator, mode, seed, build)
    outputs = complete(case, build(case.model()), case.feeds)
    if mode in HYBRID:
        outputs = without_rounding(function, operator, mode, seed, build, outputs)
    expected = []
    for place in case.outputs:
        tensor = case.tensors[place]
        if tensor["type"] in QUANTIZED and "scale" in tensor and tensor["name"] in real:
            check_beside_float(tensor, np.asarray(outputs[tensor["name"]]), np.asarray(real[tensor["name"]]))
        step = {"step": 1} if tensor["type"] in QUANTIZED and "scale" in tensor else {}
        expected.append(record(np.asarray(outputs[tensor["name"]]), name=tensor["name"], **step))
    return {"name": name, "operator": operator, "mode": mode, "model": case.model(),
            "feeds": [record(array, name=n) for n, array in case.feeds.items()], "expected": expected} | (
                {"state": [record(array, name=n) for n, array in case.state]} if case.state else {})


def quiet():
    """LiteRT's own messages go nowhere: it reports every operator that it declines."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
