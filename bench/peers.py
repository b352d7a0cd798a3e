#!/usr/bin/env python3
"""Quench beside ONNX Runtime, OpenVINO and MNN on the same models, inputs and cores, in one interleaved run.

Usage: bench/peers.py --quench build/release/bin/quench [--peers ort,openvino,mnn] [--threads N] [--json] MODEL.onnx...
       bench/peers.py --quench build/release/bin/quench --suite alexnet,vgg16,resnet50
       bench/peers.py --quench build/release/bin/quench --variant direct="--no-winograd" MODEL.onnx

Each round times a burst of every competitor in turn; the report has the median of the rounds' ratios, peer time over ours, and
the quartiles, because machines are noisy and milliseconds of different runs are not comparable. Outputs are compared with those
of ONNX Runtime: the largest difference over the largest magnitude. Each peer has its best documented settings: ONNX Runtime all
graph optimisations, OpenVINO latency hints and f32, MNN its converter and precision `high`. --variant compiles the model once
more with other options; it counts as one more peer.

Needs numpy, onnx, onnxruntime, and of the others what --peers names: openvino, MNN.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

from bench_models import QuenchModel, build_runtime, peer_session, quench, random_inputs, timed


def fixed(model, folder, batch=1):
    """The model with its first dims fixed: converters and shape inference of the peers do best so."""
    proto = onnx.load(str(model))
    initializers = {i.name for i in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name in initializers:
            continue
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.Clear()
                dim.dim_value = batch
    path = folder / model.name
    onnx.save(proto, str(path))
    return path


def open_ort(args, model, inputs, folder):
    session = peer_session(args, model)
    return lambda: session.run(None, inputs)


def open_openvino(args, model, inputs, folder):
    import openvino as ov

    compiled = ov.Core().compile_model(
        str(model), "CPU",
        {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": args.threads, "NUM_STREAMS": 1})
    request = compiled.create_infer_request()
    tensors = {name: ov.Tensor(array) for name, array in inputs.items()}
    for name, tensor in tensors.items():
        request.set_tensor(name, tensor)

    def run():
        request.infer()
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run


def open_mnn(args, model, inputs, folder):
    import MNN

    converted = folder / (model.stem + ".mnn")
    command = [sys.executable, "-m", "MNN.tools.mnnconvert", "-f", "ONNX", "--modelFile", str(model), "--MNNModel", str(converted),
               "--bizCode", "bench"]
    done = subprocess.run(command, capture_output=True, text=True)
    if not converted.exists():
        raise RuntimeError("MNN's converter: " + (done.stderr or done.stdout)[-200:])
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    runtime = MNN.nn.create_runtime_manager(({"backend": 0, "numThread": args.threads, "precision": 1, "memory": 0, "power": 1},))
    module = MNN.nn.load_module_from_file(str(converted), list(inputs), [o.name for o in session.get_outputs()],
                                          runtime_manager=runtime)
    variables = []
    for array in inputs.values():
        kind = {np.dtype(np.float32): MNN.expr.float, np.dtype(np.int32): MNN.expr.int, np.dtype(np.int64): MNN.expr.int}[array.dtype]
        variable = MNN.expr.placeholder(list(array.shape), MNN.expr.NCHW, kind)
        variable.write(np.ascontiguousarray(array, np.int32 if kind == MNN.expr.int else array.dtype))
        variables.append(variable)

    def run():
        return [v.read() for v in module.forward(variables)]

    return run


PEERS = {"ort": open_ort, "openvino": open_openvino, "mnn": open_mnn}


def difference(ours, theirs):
    """The largest absolute difference over the largest magnitude, of all outputs."""
    worst = 0.0
    for a, b in zip(ours, theirs):
        a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
        if a.size != b.size:
            return float("nan")
        worst = max(worst, float(np.abs(a - b).max() / (np.abs(b).max() or 1)) if a.size else 0.0)
    return worst


def compare(args, runtime, model):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = fixed(model, folder)
        session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        inputs = random_inputs(session, {})
        reference = session.run(None, inputs)
        names = [i.name for i in session.get_inputs()]
        del session
        competitors, differences, problems = {}, {}, {}

        def ours(key, options):
            quench(args, "compile", model, *options, "--output", folder / key)
            library = QuenchModel(runtime, folder / key / "model.so", inputs, names, args.threads)
            library.run()
            differences[key] = difference([library.output(i) for i in range(len(reference))], reference)
            competitors[key] = library.run

        ours("quench", [])
        for variant in args.variant:
            key, _, options = variant.partition("=")
            ours(key, shlex.split(options))
        for key in args.peers:
            try:
                run = PEERS[key](args, model, inputs, folder)
                differences[key] = difference(run(), reference)
                competitors[key] = run
            except Exception as error:  # a peer that cannot do it is reported, and the others go on
                problems[key] = str(error).strip().splitlines()[-1][:200]
        rounds = [{key: timed(run, args.seconds) for key, run in competitors.items()} for _ in range(args.rounds)]
        row = {"model": model.stem, "ratios": {}, "quartiles": {}, "min_ms": {}, "differences": differences, "problems": problems}
        for key in competitors:
            row["min_ms"][key] = min(r[key][1] for r in rounds) * 1e3
            if key != "quench":
                low, middle, high = statistics.quantiles((r[key][0] / r["quench"][0] for r in rounds), n=4)
                row["ratios"][key], row["quartiles"][key] = middle, [low, high]
        return row


def table(rows, keys):
    lines = ["| model | " + " | ".join(f"{k} / Quench" for k in keys) + " | ours ms | difference |",
             "|" + "---|" * (len(keys) + 3)]
    for row in rows:
        cells = [f"{row['ratios'][k]:.2f} ({row['quartiles'][k][0]:.2f}-{row['quartiles'][k][1]:.2f})" if k in row["ratios"]
                 else row["problems"].get(k, "-") for k in keys]
        lines.append(f"| {row['model']} | " + " | ".join(cells) +
                     f" | {row['min_ms']['quench']:.2f} | {row['differences']['quench']:.1e} |")
    means = [[r["ratios"][k] for r in rows if k in r["ratios"]] for k in keys]
    lines.append("| geometric mean | " + " | ".join(f"{statistics.geometric_mean(m):.2f}" if m else "-" for m in means) + " | | |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--suite", metavar="NAME,...", help="networks of bench/models/networks.py instead of MODEL.onnx...; all: every one")
    parser.add_argument("--peers", default="ort,openvino,mnn", metavar="NAME,...", help="default: ort,openvino,mnn")
    parser.add_argument("--variant", action="append", default=[], metavar='NAME="OPTIONS"', help="Quench once more, with other options")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a burst")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.peers = [p for p in args.peers.split(",") if p]
    unknown = [p for p in args.peers if p not in PEERS]
    if unknown:
        parser.error(f"unknown peers {', '.join(unknown)}; known: {', '.join(PEERS)}")
    if not args.models and not args.suite:
        parser.error("no models: name files, or --suite")
    keys = [v.partition("=")[0] for v in args.variant] + args.peers
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
            print(json.dumps(rows[-1]) if args.json else table(rows[-1:], keys).splitlines()[2], file=sys.stderr, flush=True)
    print(json.dumps(rows, indent=1) if args.json else table(rows, keys))
    return 0


if __name__ == "__main__":
    sys.exit(main())
