#!/usr/bin/env python3
"""Seconds and memory that `quench import` takes for large Keras and TensorFlow files, which it writes first.

Usage: build/keras-venv/bin/python bench/import_cost.py --quench build/release/bin/quench [--megabytes N] [--rounds N] [--work DIR]
(needs h5py and tensorflow)

Two files of each format: many tensors of 4 MB, and one of half the file beside them. Seconds are the least of the rounds, each with an empty
cache, beside those of all processors together; memory is the most RssAnon of the program and its children, asked for 500 times a second.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
SIDE = 1024  # of the square matrices: 4 MB


def shapes(megabytes, one_large):
    """Matrices that follow one another; with `one_large` the first takes half of the file."""
    wide = megabytes * 128  # columns of SIDE floats that are half of the file
    chain = [(SIDE, wide), (wide, 1), (1, SIDE)] if one_large else []
    return chain + [(SIDE, SIDE)] * (megabytes // (8 if one_large else 4))


def write_h5(path, matrices, random):
    import h5py
    import numpy

    layers = [{"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, matrices[0][0]], "dtype": "float32"}}]
    with h5py.File(path, "w") as file:
        weights = file.create_group("model_weights")
        for i, shape in enumerate(matrices):
            layers.append({"class_name": "Dense", "config": {"name": f"dense{i}", "units": shape[1], "use_bias": False, "activation": "linear"}})
            group = weights.create_group(f"dense{i}")
            group.attrs["weight_names"] = numpy.array([f"dense{i}/kernel:0".encode()])
            group.create_dataset(f"dense{i}/kernel:0", data=random.standard_normal(shape, "float32"))
        file.attrs["keras_version"] = b"2.11.0"
        file.attrs["backend"] = b"tensorflow"
        weights.attrs["layer_names"] = numpy.array([layer["config"]["name"].encode() for layer in layers])
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"name": "wide", "layers": layers}}).encode()


def write_pb(path, matrices, random):
    import tensorflow

    with tensorflow.Graph().as_default() as graph:
        x = tensorflow.compat.v1.placeholder("float32", (None, matrices[0][0]), "x")
        for shape in matrices:
            x = tensorflow.matmul(x, tensorflow.constant(random.standard_normal(shape, "float32")))
        path.write_bytes(graph.as_graph_def().SerializeToString())


def rss_anon(pid):
    """Bytes of the process and its children."""
    pages = 0
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                pages = int(line.split()[1]) << 10
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return pages
    return pages + sum(rss_anon(child) for child in children)


def measure(quench, model):
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        start, most, before = time.monotonic(), 0, resource.getrusage(resource.RUSAGE_CHILDREN)
        program = subprocess.Popen([quench, "import", str(model)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while program.poll() is None:
            most = max(most, rss_anon(program.pid))
            time.sleep(0.002)
        if program.returncode != 0:
            sys.exit(f"{model}: exit {program.returncode}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.monotonic() - start, most, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build") / "import-cost")
    args = parser.parse_args()
    import numpy

    args.work.mkdir(parents=True, exist_ok=True)
    for kind, write in (("h5", write_h5), ("pb", write_pb)):
        for one_large in (False, True):
            path = args.work / f"{'one' if one_large else 'many'}.{kind}"
            matrices = shapes(args.megabytes, one_large)
            write(path, matrices, numpy.random.default_rng(1))
            largest = max(a * b * 4 for a, b in matrices)
            runs = [measure(args.quench, path) for _ in range(args.rounds)]
            seconds, memory, processor = min(r[0] for r in runs), max(r[1] for r in runs), min(r[2] for r in runs)
            print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB, largest tensor {largest / 1e6:.1f} MB: {seconds:.2f} s, "
                  f"{processor:.2f} s of processors, RssAnon {memory / 1e6:.0f} MB")
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
