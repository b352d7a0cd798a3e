"""Random graphs (tests/fuzz/graphs) in ONNX Runtime, whose optimisations are off: the values of the interpreter here. Graphs that
ONNX Runtime does not take are counted."""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

BYTE_PRODUCTS = {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
SATURATED = "ONNX Runtime's products of u8 and s8 saturate on this CPU, which lacks VNNI"


def session(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def saturates():
    """Whether ONNX Runtime adds pairs of u8 * s8 in 16 bits here: on x86 without VNNI, whatever its option of precision says."""
    left = onnx.helper.make_tensor_value_info("left", onnx.TensorProto.UINT8, [4, 8])
    right = onnx.helper.make_tensor_value_info("right", onnx.TensorProto.INT8, [8, 16])
    product = onnx.helper.make_tensor_value_info("product", onnx.TensorProto.INT32, [4, 16])
    node = onnx.helper.make_node("MatMulInteger", ["left", "right"], ["product"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "probe", [left, right], [product]),
                                   opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    found = session(model.SerializeToString()).run(None, {"left": np.full((4, 8), 255, np.uint8), "right": np.full((8, 16), 127, np.int8)})[0]
    return bool((found != 8 * 255 * 127).any())


def has_byte_products(folder):
    return any(node.op_type in BYTE_PRODUCTS for node in onnx.load(folder / "model.onnx", load_external_data=False).graph.node)


def distance(actual, expected):
    """By the largest magnitude; equal NaNs and infinities are equal."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return float("inf")
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if same.all():
        return 0.0
    off = np.abs(actual - expected)[~same].max()
    if off <= 1e-6:  # what ONNX Runtime's approximations of sigmoid and tanh are off by
        return 0.0
    finite = expected[np.isfinite(expected)]
    return float(off / max(np.abs(finite).max(initial=0), 1e-30)) if np.isfinite(off) else float("inf")


def is_of_one_kind(actual, expected):
    """Checks what remains certain of a value that rounding may change altogether: type, rank, and numbers where there are numbers."""
    if actual.dtype != expected.dtype or actual.ndim != expected.ndim:
        return False
    return bool(np.isfinite(actual.astype(np.float64)).all() or not np.isfinite(expected.astype(np.float64)).all())


def check(folder, outputs_compared):
    """The error, or the reason why it is not compared. Outputs are counted by how they are compared."""
    about = json.loads((folder / "about.json").read_text())
    try:
        run = session(folder / "model.onnx")
        inputs = {name: np.load(folder / f"in_{i}.npy") for i, name in enumerate(about["inputs"])}
        taken = {each.name for each in run.get_inputs()}
        outputs = run.run(about["outputs"], {name: value for name, value in inputs.items() if name in taken})
    except Exception as error:  # of any kind: ONNX Runtime's own
        return None, str(error).splitlines()[0]
    for each, output in zip(run.get_outputs(), outputs, strict=True):
        if any(isinstance(size, int) and size != found for size, found in zip(each.shape, np.shape(output), strict=False)) or len(each.shape) != np.ndim(output):
            return None, "ONNX Runtime gives an output other sizes than it says"
    for i, (name, output, tolerance) in enumerate(zip(about["outputs"], outputs, about["tolerances"], strict=True)):
        expected, output = np.load(folder / f"out_{i}.npy"), np.asarray(output)
        outputs_compared["by kind" if tolerance is None else "by value"] += 1
        if tolerance is None:  # rounding may change its size or its values
            if not is_of_one_kind(output, expected):
                return f"{folder.name}: output {i} `{name}`: {output.dtype}{list(output.shape)} where {expected.dtype}{list(expected.shape)} is expected", None
            continue
        off = distance(output, expected)
        if off > max(tolerance, 1e-4):
            return f"{folder.name}: output {i} `{name}`: off by {off:.2g} ({output.dtype}{list(output.shape)}), {tolerance:.2g} would do", None
    return "", None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", required=True, help="the program fuzz_graphs")
    parser.add_argument("--seed", default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--work", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or pathlib.Path(scratch)
        subprocess.run([args.graphs, "--dump", work, "--seed", str(args.seed), "--count", str(args.count)], check=True)
        declined, compared, wrong, same, inexact = collections.Counter(), collections.Counter(), [], 0, saturates()
        for folder in sorted(work.iterdir(), key=lambda each: int(each.name)):
            problem, reason = check(folder, compared)
            if problem and inexact and has_byte_products(folder):
                problem, reason = None, SATURATED
            if reason:
                declined[reason[:90]] += 1
            elif problem:
                wrong.append(problem)
            else:
                same += 1
        for reason, count in declined.most_common(8):
            print(f"{count} not compared: {reason}")
        print("\n".join(wrong))
        print(f"{compared['by value']} outputs were compared by value, {compared['by kind']} by type, rank and finiteness alone")
        print(f"{same} graphs have the same values in ONNX Runtime {onnxruntime.__version__}, {len(wrong)} others, {sum(declined.values())} were not compared")
        if wrong or same == 0:
            sys.exit(1)


if __name__ == "__main__":
    main()
