#!/usr/bin/env python3
"""Quench beside other runtimes on the same models, inputs and cores, in one interleaved run.

Usage: bench/peers.py --quench build/release/bin/quench [--peers ort,openvino,mnn] [--threads N] [--json] MODEL.onnx...
       bench/peers.py --quench build/release/bin/quench --suite alexnet,vgg16,resnet50
       bench/peers.py --quench build/release/bin/quench --variant direct="--no-winograd" MODEL.onnx
       bench/peers.py --quench build/release/bin/quench --ours-options="--bfloat16" --peers openvino-default MODEL.onnx

Each round times a burst of every competitor in turn; the report has a row for each with the median of the rounds' ratios, its
time over ours (above 1: Quench is faster), and the quartiles, because machines are noisy and milliseconds of different runs
are not comparable. With one thread, the default, times are CPU time of the process, which other work on the machine changes
little, and the ratio of wall time stands beside; with more, both are wall time. Outputs are compared with those of ONNX
Runtime: the largest difference over the largest magnitude.

Peers (bench/peers/ has a file each), with their best documented settings: ONNX Runtime with all graph optimisations; OpenVINO
pinned to f32, and openvino-default as installed, which multiplies in bf16 on CPUs with AMX; MNN in precision `high`; IREE with
its code for this CPU; ncnn in f32, converted by pnnx; LiteRT with MODEL.tflite beside MODEL.onnx or in the folder of --tflite;
tract. A peer that is not installed or cannot take the model has its reason in the report, and the others go on. --variant
compiles the model once more with other options; it counts as one more peer. --ours-options are those of Quench itself.

Needs numpy, onnx, onnxruntime, and of the peers those that shall run: openvino, MNN, iree-base-compiler with iree-base-runtime,
ncnn with pnnx (pip install --no-deps pnnx: its PyTorch is not needed), ai-edge-litert, tract.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort

from bench_models import QuenchModel, build_runtime, quench, random_inputs
from peers import PEERS, Task


def fixed(model, folder, batch=1):
    """The model with its first dims fixed, and what follows from them: converters and shape inference of the peers do best so."""
    proto = onnx.load(str(model))
    initializers = {i.name for i in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name in initializers:
            continue
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.Clear()
                dim.dim_value = batch
    for value in proto.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.Clear()
    del proto.graph.value_info[:]  # shapes in the dims that there were: peers take them for contradictions
    path = folder / model.name
    onnx.save(onnx.shape_inference.infer_shapes(proto), str(path))
    return path


def difference(ours, theirs):
    """The largest absolute difference over the largest magnitude, of all outputs."""
    worst = 0.0
    for a, b in zip(ours, theirs):
        a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
        if a.size != b.size:
            return float("nan")
        worst = max(worst, float(np.abs(a - b).max() / (np.abs(b).max() or 1)) if a.size else 0.0)
    return worst


def burst(run, seconds):
    """Seconds that one run takes, by either clock: their medians and the least."""
    walls, cpus = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(walls) < 3:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        cpus.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - wall)
    return {clock: (statistics.median(times), min(times)) for clock, times in (("wall", walls), ("cpu", cpus))}


def open_ours(args, runtime, task, options, key):
    """The model that Quench compiled, as a function like those of peers."""
    quench(args, "compile", task.model, *options, "--output", task.folder / key)
    library = QuenchModel(runtime, task.folder / key / "model.so", task.inputs, list(task.inputs), task.threads)

    def run():
        library.run()

    run()
    return run, [library.output(i) for i in range(len(task.outputs))]


def open_all(args, runtime, task, reference):
    """Functions that run the model, how far each is from the reference, and why the others do not run: all by name."""
    competitors, differences, problems = {}, {}, {}
    ours = {"quench": args.ours_options} | {key: options for key, options in args.variant}
    for key, options in ours.items():
        competitors[key], outputs = open_ours(args, runtime, task, options, key)
        differences[key] = difference(outputs, reference)
    for key in args.peers:
        try:
            run = PEERS[key].open(task)
            differences[key] = difference(run(), reference)
            competitors[key] = run
        except Exception as error:  # a peer that cannot do it is reported, and the others go on
            lines = str(error).strip().splitlines() or [type(error).__name__]
            problems[key] = lines[-1][:200]
    return competitors, differences, problems


def compare(args, runtime, model):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tflite = (args.tflite or model.parent) / (model.stem + ".tflite")
        model = fixed(model, folder)
        session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        inputs = random_inputs(session, {})
        reference = session.run(None, inputs)
        task = Task(model, inputs, [o.name for o in session.get_outputs()], args.threads, folder, tflite)
        del session
        competitors, differences, problems = open_all(args, runtime, task, reference)
        rounds = [{key: burst(run, args.seconds) for key, run in competitors.items()} for _ in range(args.rounds)]
    clock = "cpu" if args.threads == 1 else "wall"
    row = {"model": model.stem, "clock": clock, "ratios": {}, "quartiles": {}, "wall_ratios": {}, "min_ms": {}, "min_wall_ms": {},
           "differences": differences, "problems": problems, "versions": {k: PEERS[k].version() for k in competitors if k in PEERS}}
    for key in competitors:
        row["min_ms"][key] = min(r[key][clock][1] for r in rounds) * 1e3
        row["min_wall_ms"][key] = min(r[key]["wall"][1] for r in rounds) * 1e3
        if key != "quench":
            low, middle, high = statistics.quantiles((r[key][clock][0] / r["quench"][clock][0] for r in rounds), n=4)
            row["ratios"][key], row["quartiles"][key] = middle, [low, high]
            row["wall_ratios"][key] = statistics.median(r[key]["wall"][0] / r["quench"]["wall"][0] for r in rounds)
    return row


COLUMNS = ["model", "competitor", "its time / ours", "quartiles", "wall / ours", "min ms", "min wall ms", "difference"]


def lines_of(row, keys):
    """A line for each competitor, ours first."""
    for key in ["quench", *keys]:
        if key in row["problems"]:
            cells = [row["problems"][key].replace("|", "/")] + ["-"] * 5
        else:
            ratio = ["1", "-", "1"] if key == "quench" else [
                f"{row['ratios'][key]:.2f}", "{:.2f}-{:.2f}".format(*row["quartiles"][key]), f"{row['wall_ratios'][key]:.2f}"]
            cells = ratio + [f"{row['min_ms'][key]:.3f}", f"{row['min_wall_ms'][key]:.3f}", f"{row['differences'][key]:.1e}"]
        yield "| " + " | ".join([row["model"], key, *cells]) + " |"


def table(rows, keys):
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += [line for row in rows for line in lines_of(row, keys)]
    for key in keys:
        ratios = [[row[kind][key] for row in rows if key in row[kind]] for kind in ("ratios", "wall_ratios")]
        mean, wall = (f"{statistics.geometric_mean(r):.2f}" if r else "-" for r in ratios)
        lines.append(f"| geometric mean of {len(ratios[0])} | {key} | {mean} | - | {wall} | - | - | - |")
    return "\n".join(lines)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--suite", metavar="NAME,...", help="networks of bench/models/networks.py instead of MODEL.onnx...; all: every one")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAME,...", help="default: %(default)s")
    parser.add_argument("--ours-options", default="", metavar='"OPTIONS"', help="how Quench compiles what ratios refer to")
    parser.add_argument("--variant", action="append", default=[], metavar='NAME="OPTIONS"', help="Quench once more, with other options")
    parser.add_argument("--tflite", type=pathlib.Path, metavar="FOLDER", help="has NAME.tflite for NAME.onnx; default: beside it")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a burst")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.peers = [p for p in args.peers.split(",") if p]
    args.ours_options = shlex.split(args.ours_options)
    args.variant = [(name, shlex.split(options)) for name, _, options in (v.partition("=") for v in args.variant)]
    unknown = [p for p in args.peers if p not in PEERS]
    if unknown:
        parser.error(f"unknown peers {', '.join(unknown)}; known: {', '.join(PEERS)}")
    if not args.models and not args.suite:
        parser.error("no models: name files, or --suite")
    if args.rounds < 2:
        parser.error("--rounds must be at least 2: quartiles need as many")
    names = ["quench", *(name for name, _ in args.variant), *args.peers]
    if len(set(names)) < len(names):
        parser.error("competitors must have names of their own, and be named once")
    return args


def main():
    args = parsed()
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # peers print to the file descriptor, and the report must stay JSON
    keys = [name for name, _ in args.variant] + args.peers
    with tempfile.TemporaryDirectory() as folder:
        models = list(args.models)
        if args.suite:
            script = pathlib.Path(__file__).resolve().parent / "models/networks.py"
            names = [] if args.suite == "all" else args.suite.split(",")
            done = subprocess.run([sys.executable, str(script), folder, *names], check=True, capture_output=True, text=True)
            models += [pathlib.Path(line) for line in done.stdout.split()]
        runtime = build_runtime(folder)
        rows = []
        for model in models:
            rows.append(compare(args, runtime, model))
            print(json.dumps(rows[-1]) if args.json else "\n".join(lines_of(rows[-1], keys)), file=sys.stderr, flush=True)
    print(json.dumps(rows, indent=1) if args.json else table(rows, keys), file=report, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
