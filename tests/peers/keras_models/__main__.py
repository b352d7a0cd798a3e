"""Compares Keras' layers with Keras itself, on small models with random weights and inputs.

Usage: python3 -m keras_models --quench build/release/bin/quench [--only LAYER,LAYER] [--seed S] [--record]
(from tests/peers; needs tensorflow, keras and tf_keras)

--record compares nothing, but writes the first model of each layer and library to tests/cases/keras, which the default run reads without Keras.

Each model is saved as Keras 3 writes it (.keras and .h5) and as TensorFlow's Keras 2 does (.h5), and run by `quench run`. A layer of
keras_layers.def without a model is a failure. Failed cases stay in WORK.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
SKIPPED = 77  # what ctest takes for "skipped"
HERE = pathlib.Path(__file__).resolve().parent
ROWS = HERE.parents[2] / "services" / "importer" / "keras" / "keras_layers.def"
TOLERANCE = 1e-5

try:
    import keras
    import numpy
    import tensorflow
    import tf_keras
except ImportError as problem:
    print(f"skipped: no Keras to compare with: {problem}")
    sys.exit(SKIPPED)

import recorded_models

from .layers import CASES


def uncovered():
    """Layers of the table without a model here."""
    return [name for name in re.findall(r"^QUENCH_KERAS_LAYER\((\w+)", ROWS.read_text(), re.MULTILINE) if name not in CASES]


def with_numbers(model, random):
    """Random weights, such that no variance is negative."""
    for weight in model.weights:
        name = getattr(weight, "path", weight.name)
        if "seed" in name or "count" in name:
            continue
        low = 0.5 if "variance" in name else -1.0
        values = random.uniform(low, 1.0, weight.shape).astype("float32")
        weight.assign(numpy.round(values, 3))
    return model


def history_of(tensor):
    """(layer, call, output)"""
    return tensor._keras_history  # what both Keras call it


def inputs_of(model, random):
    given = {}
    for tensor in model.inputs:
        shape = [2 if size is None else size for size in tensor.shape]
        dtype = getattr(tensor.dtype, "name", tensor.dtype)
        values = random.integers(0, 7, shape) if dtype.startswith("int") else numpy.round(random.uniform(-1, 1, shape), 3)
        given[history_of(tensor)[0].name] = values.astype(dtype)
    return given


def run_quench(quench, path, given, folder):
    folder.mkdir(parents=True)
    command = [quench, "run", str(path), "--output", str(folder / "out")]
    for name, values in given.items():
        numpy.save(folder / f"{name}.npy", values)
        command += ["--input", f"{name}={folder / name}.npy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
    return [numpy.load(file) for file in sorted((folder / "out").glob("*.npy"))], []


def files_of(path, given, expected):
    files = {f"model{path.suffix}": path.read_bytes()}
    files |= {f"in.{name}.npy": recorded_models.npy(values) for name, values in given.items()}
    return files | {f"out.{i}.npy": recorded_models.npy(values) for i, values in enumerate(expected)}


def problems(expected, found):
    """Outputs have names of layers here: each expected one is held against those of its shape."""
    for values in expected:
        values = numpy.asarray(values)
        scale = max(1.0, float(numpy.abs(values).max(initial=0)))
        fitting = [other for other in found if other.shape == values.shape]
        off = min((float(numpy.abs(other.astype("float64") - values).max(initial=0)) / scale for other in fitting), default=None)
        if off is None:
            return f"has outputs {[f.shape for f in found]}, expected {values.shape}"
        if not off <= TOLERANCE:
            return f"is off by {off:.2g} in an output of {values.shape}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--only", default="", help="layers, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parents[2] / "build" / "peer-keras")
    args = parser.parse_args()
    wanted, pattern = set(filter(None, args.only.split(","))), os.environ.get("QUENCH_TEST_PATTERN", "").lower()
    names = [name for name in CASES if (not wanted or name in wanted) and pattern in name.lower()]
    if not names:
        print(f"skipped: no layer matches `{args.only or pattern}`")
        return SKIPPED
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    start, ran, failures = time.monotonic(), 0, [f"{name}: a layer without a model here" for name in uncovered()]
    for name in names:
        recorded = {}
        for number, build in enumerate(CASES[name]):
            built = 0
            for library, endings in ((keras, (".keras", ".h5")), (tf_keras, (".h5",))):
                random = numpy.random.default_rng([args.seed, number])
                library.backend.clear_session()
                try:
                    model = build(library)
                except (AttributeError, TypeError, ValueError, NotImplementedError, tensorflow.errors.OpError) as problem:
                    why = problem
                    continue
                built += 1
                if args.record and number > 0:
                    continue
                with_numbers(model, random)
                given = inputs_of(model, random)
                expected = tensorflow.nest.flatten(model(list(given.values()) if len(given) > 1 else next(iter(given.values())), training=False))
                for ending in endings:
                    stem = f"{name}_{number}_{library.__name__}"
                    path = args.work / (stem + ending)
                    try:
                        model.save(path)
                    except TypeError:  # slices, in Keras 3's own .h5
                        continue
                    if args.record:
                        if library is tf_keras or ending == ".keras":  # Keras 3's own .h5 says what .keras says
                            recorded[f"{library.__name__}{ending}"] = files_of(path, given, expected)
                        continue
                    found, errors = run_quench(args.quench, path, given, args.work / (stem + ending[1:]))
                    problem = errors[0] if errors else problems(expected, found)
                    ran += 1
                    if problem:
                        failures.append(f"{path.name}: {problem}")
            if not built:
                failures.append(f"{name}_{number}: no Keras builds it: {why}")
        # Integers of Discretization are of another width here.
        if args.record and name != "Discretization" and not recorded_models.write("keras", name, recorded):
            print(f"{name}: too large to keep")
    for line in failures:
        print("FAIL", line)
    print(f"{ran} files of {len(names)} layers against Keras {keras.__version__} and {tf_keras.__version__}, seed {args.seed}: "
          f"{len(failures)} failures, {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
