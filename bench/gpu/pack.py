#!/usr/bin/env python3
"""Packs what checks Quench on a machine with a GPU: libraries, the runtime, what they have to compute, and the programs that compare.

Usage: bench/gpu/pack.py --quench build/release/bin/quench --runtime libquench_rt.so OUT      OUT: a folder, or a file .tar.xz
  --arch A,B        what networks are compiled for (default: sm_80,sm_90)
  --old A,B         small graphs are also compiled for each of these alone, which newer GPUs run too (default: sm_75)
  --full NAMES      networks in full size, of these four (default: resnet50,mobilenet_v2,bert_base,vit_b16)
  --small NAMES     networks at a sixteenth of their size (default: all of bench/models/networks.py)
  --graphs NAMES    graphs of operators (default: all of cases.py). For the three lists, `none` leaves them out
  --limit-mb N      a larger archive is an error (default: 45)

Floats are compared with ONNX Runtime's in f32. The bound is four times the error that the CPU's code of the same library has here,
and at least that of cases.BOUNDS. 8-bit integers have to be equal, to the bit, to the CPU's.
"""

import argparse
import concurrent.futures
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

import cases
import gpu_device
from gpu_device import Failure, Library, Runtime, make_inputs

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = ("gpu_check.py", "gpu_device.py", "gpu_report.py", "gpu_torch.py", "gpu_worker.py")
FOLDER = "quench-gpu"  # in the archive
WRAPPER = '#!/bin/sh\nexec "${PYTHON:-python3}" "$(dirname "$0")/gpu_check.py" "$@"\n'
MOST_ERROR = 0.1  # of the CPU's code: more says that the library, or the reference, is wrong


class Refused(Exception):
    """A sentence for the user."""


def execute(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"`{' '.join(map(str, command))}` failed: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def names_of(text, known, what):
    names = [] if text == "none" else list(known) if text is None else text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Refused(f"unknown {what} {', '.join(unknown)}; known: {', '.join(known)}")
    return names


def compile_case(case, args, folder):
    """The library, with the programs for the host's CPU of one kind only: its results are the same on all machines."""
    out = folder / "compiled" / case.name
    target = f"cuda -arch={case.arch} -host=x86-64-v2"
    execute([args.quench, "compile", case.model, *case.options, "--target", target, "--check", "no", "--export-metadata",
             "--progress", "none", "--force", "--output", out])
    library = folder / "pack" / "libraries" / f"{case.name}.so"
    shutil.move(out / "model.so", library)
    kernels = json.loads((out / "metadata.json").read_text())["kernels"]
    shutil.rmtree(out)
    on_host = [kernel["node"] for kernel in kernels if kernel["reason"].endswith("on the host")]
    return {"name": case.name, "kind": case.kind, "type": case.type, "library": f"libraries/{case.name}.so", "seed": 1,
            "inputs": case.inputs, "kernels": len(kernels), "on_host": on_host, **case.extra}


def reference_of(case, arrays):
    """Results of ONNX Runtime in f32: (names, arrays)."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(case.model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return names, session.run(names, {spec["name"]: array for spec, array in zip(case.inputs, arrays)})


def output_of(case, name, cpu, reference):
    """The bound that an output has, and the array that it is compared with."""
    if case.type == "int8" or reference.dtype.kind != "f":
        if case.type != "int8" and not gpu_device.same_bits(cpu, reference):
            raise Refused(f"{case.name}: the CPU's code does not compute `{name}` as ONNX Runtime does")
        return {"name": name, "bound": 0}, cpu
    if case.type == "int4":  # the weights are no longer those of the model
        return {"name": name, "bound": cases.BOUNDS["f32"], "cpu_error": 0.0}, cpu
    error = gpu_device.difference(cpu, reference)
    if not error <= MOST_ERROR:
        raise Refused(f"{case.name}: the CPU's code is off by {error:.2g} in `{name}`")
    return {"name": name, "bound": max(cases.BOUNDS[case.type], 4 * error), "cpu_error": error}, reference


def add_expectations(case, spec, runtime, pack):
    arrays = make_inputs(spec)
    spec["inputs_sha256"] = gpu_device.digest(arrays)
    with Library(runtime, pack / spec["library"]) as library, library.session("cpu") as session:
        if spec.pop("is_error", False):
            try:
                session.infer(arrays, 1)
            except Failure as failure:
                spec.update(fails=str(failure), outputs=[{"name": "y", "bound": 0}])
                return
            raise Refused(f"{case.name}: the CPU's code takes what it should refuse")
        names, references = reference_of(case, arrays)
        results = session.infer(arrays, len(names))
    kept, spec["outputs"] = {}, []
    for index, (name, result, reference) in enumerate(zip(names, results, references)):
        output, kept[f"output_{index}"] = output_of(case, name, result, reference)
        spec["outputs"].append(output)
    spec["reference"] = f"references/{case.name}.npz"
    np.savez(pack / spec["reference"], **kept)


def revision():
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def make_pack(args, folder):
    """Fills FOLDER/pack; what it holds."""
    pack, started = folder / "pack", time.monotonic()
    for name in ("libraries", "references"):
        (pack / name).mkdir(parents=True)
    todo = cases.small_cases(args.graphs, args.arch, args.old, folder / "graphs")
    todo += cases.network_cases(args.full, args.small, args.arch, folder / "networks")
    runtime, specs = Runtime(args.runtime), []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, (case, spec) in enumerate(zip(todo, pool.map(lambda case: compile_case(case, args, folder), todo)), 1):
            add_expectations(case, spec, runtime, pack)
            specs.append(spec)
            print(f"[{number}/{len(todo)}] {case.name}, {time.monotonic() - started:.0f} s", flush=True)
    expectations = {"revision": revision(), "arch": args.arch, "old": args.old, "cases": specs, "times": cases.times_of(specs)}
    (pack / "expectations.json").write_text(json.dumps(expectations, indent=1) + "\n")
    shutil.copy(args.runtime, pack / "libquench_rt.so")
    for name in PROGRAMS:
        shutil.copy(HERE / name, pack / name)
    (pack / "run").write_text(WRAPPER)
    (pack / "run").chmod(0o755)
    return pack


def archive(pack, path):
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        os.rename(pack, pathlib.Path(folder) / FOLDER)
        execute(["tar", "-C", folder, "--sort=name", "--owner=0", "--group=0", "-I", "xz -T0 -3", "-cf", path, FOLDER])
        os.rename(pathlib.Path(folder) / FOLDER, pack)


def check_size(pack, path, limit_mb):
    """Raises Refused with what each part needs by itself if the archive is too large."""
    size = path.stat().st_size
    if size <= limit_mb * 1e6:
        return size
    path.unlink()
    parts = sorted(((len(lzma.compress(file.read_bytes(), preset=1)), file) for file in pack.rglob("*") if file.is_file()), reverse=True)
    lines = [f"  {part / 1e6:8.2f} MB  {file.relative_to(pack)}" for part, file in parts]
    raise Refused(f"the archive has {size / 1e6:.1f} MB, {limit_mb:g} are allowed; compressed one by one:\n" + "\n".join(lines))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--runtime", required=True, type=pathlib.Path)
    parser.add_argument("--arch", default="sm_80,sm_90")
    parser.add_argument("--old", default="sm_75", type=lambda text: [] if text == "none" else text.split(","))
    for name in ("full", "small", "graphs"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--limit-mb", type=float, default=45)
    args = parser.parse_args()
    args.full = names_of(args.full, cases.FULL, "networks in full size")
    args.small = names_of(args.small, cases.SMALL, "networks")
    args.graphs = names_of(args.graphs, cases.GRAPHS, "graphs")
    output = args.output.resolve()
    is_archive = output.name.endswith(".tar.xz")
    if not is_archive and output.exists():
        raise Refused(f"`{output}` exists")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        work = tempfile.TemporaryDirectory(dir=output.parent)
    except OSError as error:
        raise Refused(f"`{output}` cannot be written: {error.strerror}") from error
    with work as name:
        pack = make_pack(args, pathlib.Path(name))
        plain = sum(file.stat().st_size for file in pack.rglob("*"))
        if not is_archive:
            os.rename(pack, output)
            print(f"{output}: {plain / 1e6:.1f} MB")
            return
        archive(pack, output)
        size = check_size(pack, output, args.limit_mb)
    print(f"{output}: {size / 1e6:.1f} MB, {plain / 1e6:.1f} MB unpacked")


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        print(f"test_gpu: {refused}", file=sys.stderr)
        sys.exit(1)
