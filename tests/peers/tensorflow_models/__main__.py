"""Compares TensorFlow's operators with TensorFlow itself, as small frozen graphs with random inputs.

Usage: python3 -m tensorflow_models --quench build/release/bin/quench [--only OP,OP] [--seed S] [--record]
(from tests/peers; needs tensorflow)

--record compares nothing, but writes the first graph of each operator to tests/cases/tensorflow, which the default run reads without TensorFlow.

Each graph is run by `quench run`. An operator of tensorflow_ops.def without a model is a failure. Failed cases stay in WORK.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
SKIPPED = 77  # what ctest takes for "skipped"
ROWS = pathlib.Path(__file__).resolve().parents[3] / "services" / "importer" / "tensorflow" / "tensorflow_ops.def"
TOLERANCE = 1e-5
# TensorFlow looks the coefficients up in a table of 1,024 steps.
TOLERANCES = {"ResizeBicubic": 1e-3}

try:
    import numpy
    import tensorflow
except ImportError as problem:
    print(f"skipped: no TensorFlow to compare with: {problem}")
    sys.exit(SKIPPED)

import recorded_models

from .operators import CASES, ELSEWHERE
from .saved import SAVED


def uncovered():
    names = re.findall(r"^QUENCH_TF_\w+\((\w+)", ROWS.read_text(), re.MULTILINE)
    return [name for name in names if name not in CASES and name not in ELSEWHERE]


def in_tensorflow(case):
    """The graph, the names of its outputs, and what they are."""
    v1 = tensorflow.compat.v1
    with tensorflow.Graph().as_default() as graph:
        given = [v1.placeholder(values.dtype, values.shape, name) for name, values in case.inputs.items()]
        built = case.build(*given)
        outputs = list(built) if isinstance(built, (list, tuple)) else [built]
        named = [tensorflow.identity(tensor, f"result_{i}") for i, tensor in enumerate(outputs)]
        with v1.Session() as session:
            wanted = session.run(named, dict(zip(given, case.inputs.values())))
        return graph.as_graph_def(), [tensor.op.name for tensor in named], wanted


def in_quench(quench, path, case, outputs, folder):
    command = [quench, "run", str(path), "--output", str(folder / "out"), "--outputs", ",".join(outputs)]
    for name, values in case.inputs.items():
        numpy.save(folder / f"{name}.npy", values)
        command += ["--input", f"{name}={folder / name}.npy"]
    (folder / "out").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        return None, " ".join(done.stderr.strip().splitlines()[-2:])
    return [numpy.load(folder / "out" / f"{name}.npy") for name in outputs], ""


def difference(ours, theirs, tolerance):
    """"" where they are the same, else how they are not."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, {theirs.shape} in TensorFlow"
    if ours.dtype != theirs.dtype:
        return f"type {ours.dtype}, {theirs.dtype} in TensorFlow"
    if ours.dtype.kind != "f":
        return "" if (ours == theirs).all() else "other numbers"
    scale = max(float(numpy.abs(theirs).max(initial=0)), 1.0)
    error = float(numpy.abs(ours - theirs).max(initial=0)) / scale
    same = error <= tolerance or numpy.array_equal(ours, theirs, equal_nan=True)
    return "" if same else f"differs by {error:.1e}"


def record(name, graph, case, outputs, wanted):
    files = {"model.pb": graph.SerializeToString(deterministic=True)}
    files |= {f"in.{given}.npy": recorded_models.npy(values) for given, values in case.inputs.items()}
    files |= {f"out.{output}.npy": recorded_models.npy(values) for output, values in zip(outputs, wanted)}
    recorded_models.write("tensorflow", name, {"graph": files})


def run(quench, work, name, number, case, recording):
    folder = work / f"{name}_{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        graph, outputs, wanted = in_tensorflow(case)
    except (tensorflow.errors.OpError, TypeError, ValueError) as error:
        return f"not in TensorFlow: {str(error).splitlines()[0]}"
    if recording:
        if number == 0 and name not in TOLERANCES:
            record(name, graph, case, outputs, wanted)
        return ""
    path = folder / "graph.pb"
    path.write_bytes(graph.SerializeToString())
    ours, problem = in_quench(quench, path, case, outputs, folder)
    if ours is not None:
        tolerance = TOLERANCES.get(name, TOLERANCE)
        problem = "; ".join(filter(None, (difference(a, numpy.asarray(b), tolerance) for a, b in zip(ours, wanted))))
    if not problem:
        shutil.rmtree(folder)
    return problem


def run_saved(quench, work, name, random, recording):
    """A folder with variables: its inputs and outputs have the signature's names."""
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    inputs, wanted = SAVED[name](folder / "model", random)
    if recording:
        files = {str(file.relative_to(folder)): file.read_bytes() for file in (folder / "model").rglob("*") if file.is_file()}
        files |= {f"in.{given}.npy": recorded_models.npy(values) for given, values in inputs.items()}
        files |= {f"out.{output}.npy": recorded_models.npy(values) for output, values in wanted.items()}
        recorded_models.write("tensorflow", name, {"folder": files})
        return ""
    words = [quench, "run", str(folder / "model"), "--output", str(folder / "out")]
    for given, values in inputs.items():
        numpy.save(folder / f"{given}.npy", values)
        words += ["--input", f"{given}={folder / given}.npy"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        return " ".join(done.stderr.strip().splitlines()[-2:])
    return "; ".join(filter(None, (difference(numpy.load(folder / "out" / f"{output}.npy"), values, TOLERANCE) for output, values in wanted.items())))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quench", required=True)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("peer-tensorflow"))
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    failed = [f"{name}: no model here" for name in uncovered()]
    chosen = args.only.split(",") if args.only else sorted(CASES) + sorted(SAVED)
    runs = 0
    for name in [n for n in chosen if n in SAVED]:
        runs += 1
        if problem := run_saved(args.quench, args.work, name, numpy.random.default_rng(args.seed), args.record):
            failed.append(f"{name}: {problem}")
    for name in [n for n in chosen if n in CASES]:
        for number, case in enumerate(CASES[name](numpy.random.default_rng(args.seed))):
            runs += 1
            if problem := run(args.quench, args.work, name, number, case, args.record):
                failed.append(f"{name} {number}: {problem}")
                print(failed[-1], flush=True)
    print(f"{len(chosen)} operators, {runs} graphs, {len(failed)} failed")
    for line in failed:
        print(f"  {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
