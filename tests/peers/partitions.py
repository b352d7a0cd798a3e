"""Parts that `quench partition --export` writes run in ONNX Runtime, the rest of the model here: the same values come out.

Usage: partitions.py --quench PROGRAM [MODEL...]      models of one's own instead of the tiny networks of bench/models
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# Operators that an accelerator might run: convolutions and products, and their usual neighbours.
LIST = ["Conv", "Gemm", "MatMul", "Relu", "Clip", "Add", "BatchNormalization", "MaxPool", "Reshape"]
NETWORKS = ["resnet50", "mobilenet_v2", "yolov5n", "bert_base", "googlenet"]
KEEP = ["--keep-batch-matmul", "--keep-scalar-add", "--keep-stacks"]  # values keep the model's names
LIMIT = 1e-5


def quench(program, *words):
    done = subprocess.run([program, *map(str, words), "--progress", "none"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"quench {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def inputs_of(model, folder):
    """--input options of numbers that are the same each time."""
    numbers = np.random.default_rng(7)
    options = []
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        dims = [dim.dim_value or 2 for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        data = numbers.uniform(-1, 1, dims) if dtype.kind == "f" else numbers.integers(0, 2, dims)
        np.save(folder / f"in_{len(options)}.npy", data.astype(dtype))
        options += ["--input", f"{value.name}={folder / f'in_{len(options)}.npy'}"]
    return options


def values_of(program, model, inputs, names, folder):
    """Values of the model by the interpreter."""
    folder.mkdir()
    outputs = ["--outputs", ",".join(sorted(names))] if names else []
    quench(program, "run", model, *inputs, *outputs, "--output", folder)
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


def stem(name):
    return name.replace("/", "_")


def check(program, path, backend, folder):
    """Parts of one model; raises where something differs."""
    model = onnx.load(path)
    inputs = inputs_of(model, folder)
    report = json.loads(quench(program, "partition", path, "--backend", backend, *KEEP, "--export", folder / "parts", "-o",
                               folder / "parts.qir", "--format", "json"))
    names = {name for part in report["parts"] for name in part["inputs"] + part["outputs"]}
    names -= {value.name for value in model.graph.input}
    values = values_of(program, path, inputs, names, folder / "values")
    for option in inputs[1::2]:
        name, _, file = option.partition("=")
        values[stem(name)] = np.load(file)
    worst = 0
    for part in report["parts"]:
        session = onnxruntime.InferenceSession(folder / "parts" / f"{part['name']}.onnx", providers=["CPUExecutionProvider"])
        actual = session.run(part["outputs"], {name: values[stem(name)] for name in part["inputs"]})
        for name, array in zip(part["outputs"], actual, strict=True):
            expected = values[stem(name)]
            assert array.shape == expected.shape, f"{path.name}, {part['name']}, {name}: {array.shape}, {expected.shape}"
            scale = np.abs(expected).max(initial=1e-30)
            worst = max(worst, float(np.abs(array.astype(np.float64) - expected).max(initial=0) / scale))
    whole = values_of(program, path, inputs, [], folder / "whole")
    parts = values_of(program, folder / "parts.qir", inputs, [], folder / "again")
    for name, expected in whole.items():
        assert np.array_equal(parts[name], expected), f"{path.name}: {name} differs once the model has parts"
    print(f"{path.stem} for {pathlib.Path(backend).stem}: {len(report['parts'])} parts, {len(report['left'])} nodes stay, largest error {worst:.1e}")
    assert report["parts"] and worst <= LIMIT, f"{path.name}: largest error {worst}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", type=pathlib.Path, required=True)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = args.models
        if not models:
            subprocess.run([sys.executable, ROOT / "bench/models/networks.py", "--tiny", folder, *NETWORKS], check=True)
            models = [folder / f"{network}.onnx" for network in NETWORKS]
        (folder / "npu.txt").write_text("\n".join(LIST))
        for number, model in enumerate(models):
            for backend in (folder / "npu.txt", "tensorrt"):
                work = folder / f"{number}-{pathlib.Path(backend).stem}"
                work.mkdir()
                check(args.quench, model, str(backend), work)


if __name__ == "__main__":
    main()
