#!/usr/bin/env python3
"""Compiles every ONNX model of a folder and compares its outputs with references beside it and with ONNX Runtime.

Usage: bench/corpus_accuracy.py --quench build/release/bin/quench FOLDER [--only TEXT]

A reference is MODEL.onnx.ref.npz: in0, in1, ... and out0, out1, ... The error of an output is max |ours - theirs| / max |theirs|; up to 1e-4
passes. One line a model: pass, fail with the error, or the reason why it does not compile or run.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort

from bench_models import QuenchModel, build_runtime, random_inputs

TOLERANCE = 1e-4


def error_of(ours, theirs):
    if ours.shape != theirs.shape:
        return float("inf")
    if theirs.size == 0:
        return 0.0
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        return float("inf")
    finite = np.isfinite(theirs)
    if not finite.any():
        return 0.0
    return float(np.abs(ours[finite] - theirs[finite]).max() / max(np.abs(theirs[finite]).max(), 1e-30))


def reference_order(arrays, names):
    """Index of each model output among the reference's: they name their own order ("... order: a,b") or keep the model's."""
    producer = str(arrays["producer"]) if "producer" in arrays else ""
    listed = producer.split("order: ")[1].split(",") if "order: " in producer else names
    listed = [n.strip() for n in listed]
    order = [listed.index(n) for n in names] if set(names) == set(listed) else range(len(names))
    return [k for k in order if f"out{k}" in arrays]


def compare(args, runtime, model):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        done = subprocess.run([args.quench, "compile", str(model), "--output", str(out), "--progress", "none"], capture_output=True,
                              text=True, timeout=300)
        if done.returncode:
            return "no compile", (done.stderr.strip().splitlines() or ["?"])[-1][:150]
        session = None
        try:
            options = ort.SessionOptions()
            options.log_severity_level = 4
            session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        except Exception as problem:  # the peer may not know the model; a reference can still decide
            peer_problem = str(problem)[:80]
        reference = model.with_name(model.name + ".ref.npz")
        results = []
        if reference.exists() and session:
            arrays = np.load(reference)
            names = [i.name for i in session.get_inputs()]
            inputs = {n: arrays[f"in{k}"] for k, n in enumerate(names) if f"in{k}" in arrays}
            expected = [arrays[f"out{k}"] for k in reference_order(arrays, [o.name for o in session.get_outputs()])]
            results.append(("ref", names, inputs, expected))
        if session:
            inputs = random_inputs(session, {})
            names = [i.name for i in session.get_inputs()]
            try:
                results.append(("ort", names, inputs, session.run(None, inputs)))
            except Exception as problem:
                peer_problem = str(problem)[:80]
        if not results:
            return "no peer", peer_problem
        texts, worst = [], 0.0
        for kind, names, inputs, expected in results:
            ours = QuenchModel(runtime, out / "model.so", inputs, names, 1)
            ours.run()
            error = max([error_of(ours.output(k), np.asarray(e)) for k, e in enumerate(expected)] or [0.0])
            worst = max(worst, error)
            texts.append(f"{kind} {error:.1e}")
        return ("pass" if worst <= TOLERANCE else "FAIL"), ", ".join(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--min-bytes", type=int, default=0, help="skip smaller files (single-operator tests)")
    args = parser.parse_args()
    counts = {}
    ort.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as folder:
        runtime = build_runtime(folder)
        for model in sorted(args.folder.rglob("*.onnx")):
            if args.only not in str(model) or model.stat().st_size < args.min_bytes or "backend-test-data" in str(model):
                continue
            try:
                verdict, text = compare(args, runtime, model)
            except Exception as problem:
                verdict, text = "FAIL", str(problem)[:150]
            counts[verdict] = counts.get(verdict, 0) + 1
            print(f"{verdict:<10} {model.relative_to(args.folder)}  {text}", flush=True)
    print(", ".join(f"{n} {v}" for v, n in sorted(counts.items())))
    return 1 if counts.get("FAIL") else 0


if __name__ == "__main__":
    sys.exit(main())
