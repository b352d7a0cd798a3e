#!/usr/bin/env python3
"""Quench beside ONNX Runtime on the same models, inputs and core, in one interleaved run.

Usage: bench/bench_models.py --quench build/release/bin/quench [--quantize] [--seconds S] [--threads N] MODEL.onnx...
       bench/bench_models.py --quench build/release/bin/quench --suite --json > now.json

--suite writes and runs the networks whose ratios are committed (bench/ratios); scripts/bench_compare holds two such files
against each other.

Each round times a burst of one, then of the other; the report is the median of the ratios of round medians, because
machines are noisy and absolute milliseconds are not comparable between runs. Symbolic dims are bound with --size NAME=N.
With --quantize four take turns: each side in f32 and in 8-bit integers (static ranges, a scale for each output channel).
Needs onnxruntime and numpy; Quench is driven through its C ABI (ctypes), so both run in this process.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_,
          "tensor(uint8)": np.uint8, "tensor(float16)": np.float16, "tensor(double)": np.float64, "tensor(int8)": np.int8,
          "tensor(int16)": np.int16, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64}


def random_inputs(session, sizes, seed=1):
    rng = np.random.default_rng(seed)
    inputs = {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) and d > 0 else sizes.get(d, 1) for d in i.shape]
        dtype = DTYPES[i.type]
        if np.issubdtype(dtype, np.floating):
            inputs[i.name] = rng.standard_normal(shape).astype(dtype)
        elif i.name == "lengths":  # of sequences: at least one step, and those of networks.py have as many as x
            inputs[i.name] = rng.integers(1, session.get_inputs()[0].shape[1] + 1, shape).astype(dtype)
        else:
            inputs[i.name] = rng.integers(0, 2, shape).astype(dtype)
    return inputs


class RtTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dims", ctypes.POINTER(ctypes.c_int64)), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32)]


class RtOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("num_threads", ctypes.c_uint32), ("parallel_for", ctypes.c_void_p),
                ("user", ctypes.c_void_p), ("arena", ctypes.c_void_p), ("arena_bytes", ctypes.c_uint64), ("rng_seed", ctypes.c_uint64)]


ONNX_DTYPES = {np.dtype(np.float32): 1, np.dtype(np.uint8): 2, np.dtype(np.int8): 3, np.dtype(np.uint16): 4, np.dtype(np.int16): 5,
               np.dtype(np.int32): 6, np.dtype(np.int64): 7, np.dtype(np.bool_): 9, np.dtype(np.float16): 10, np.dtype(np.float64): 11,
               np.dtype(np.uint32): 12, np.dtype(np.uint64): 13}


class QuenchModel:
    """A compiled library through libquench_rt's C interface (common/runtime/quench_rt.h)."""

    def __init__(self, runtime, path, inputs, names, threads):
        self.runtime, self.error = runtime, ctypes.create_string_buffer(1024)
        self.model, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(runtime.quench_rt_open_file(str(path).encode(), ctypes.byref(self.model), self.error))
        options = RtOptions(size=ctypes.sizeof(RtOptions), num_threads=threads)
        self.check(runtime.quench_rt_session_create(self.model, ctypes.byref(options), ctypes.byref(self.session), self.error))
        self.inputs = [np.ascontiguousarray(inputs[name]) for name in names]
        for index, array in enumerate(self.inputs):
            dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
            tensor = RtTensor(array.ctypes.data, dims, ONNX_DTYPES[array.dtype], array.ndim)
            self.check(runtime.quench_rt_set_input(self.session, ctypes.c_uint32(index), ctypes.byref(tensor), self.error))

    def check(self, code):
        if code:
            raise RuntimeError(self.error.value.decode())

    def run(self):
        self.check(self.runtime.quench_rt_run(self.session, self.error))

    def output(self, index):
        tensor = RtTensor()
        self.check(self.runtime.quench_rt_get_output(self.session, ctypes.c_uint32(index), ctypes.byref(tensor), self.error))
        dtype = next(d for d, code in ONNX_DTYPES.items() if code == tensor.dtype)
        shape = [tensor.dims[i] for i in range(tensor.rank)]
        count = int(np.prod(shape)) if shape else 1
        data = ctypes.string_at(tensor.data, count * dtype.itemsize) if count else b""
        return np.frombuffer(data, dtype).reshape(shape)


def build_runtime(folder):
    """libquench_rt as a shared library for ctypes."""
    root = pathlib.Path(__file__).resolve().parent.parent
    sources = [str(p) for p in sorted([*(root / "common/runtime").glob("*.c"), *(root / "common/runtime/device").glob("*.c")])]
    library = pathlib.Path(folder) / "libquench_rt.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{root}", *sources, "-o", str(library), "-lpthread", "-ldl"], check=True)
    return ctypes.CDLL(str(library))


def timed(run, seconds):
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times), min(times)


def peer_session(args, model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def quench(args, command, model, *options):
    done = subprocess.run([args.quench, command, str(model), *map(str, options), "--progress", "none"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"quench {command} {model}: {done.stderr}")


def sizes_of(args):
    """Options that bind symbolic dims while compiling, the same for floats and integers."""
    return [word for size in args.size for word in ("--dim", size)] or ["--batch", 1]


def quantized(args, model, folder):
    """The model in 8-bit integers, as the module that Quench compiles and as the QDQ model that ONNX Runtime takes.

    Ranges come from random samples: they decide how exact the results are, not how fast they come.
    """
    statistics_file, module, exported = folder / "ranges.stats", folder / "int8.qir", folder / f"{model.stem}.int8.onnx"
    shape = sizes_of(args)
    quench(args, "calibrate", model, *shape, "--random", 2, "-o", statistics_file)
    for target, activations in ((module, "int8"), (exported, args.peer_activations)):
        quench(args, "quantize", model, *shape, "-c", statistics_file, "--type", "static", "--method", "minmax", "--per-channel",
               "--activation-dtype", activations, "--kernel-dtype", "int8", "-o", target)
    return module, exported


def compare(args, runtime, model, sizes, quantize):
    sessions = {"ort": peer_session(args, model)}
    inputs = random_inputs(sessions["ort"], sizes)
    names = [i.name for i in sessions["ort"].get_inputs()]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = {"quench": model}
        if quantize:
            models["quench_int8"], exported = quantized(args, model, folder)
            sessions["ort_int8"] = peer_session(args, exported)
        before = sum(os.times()[2:4])
        quench(args, "compile", model, *(sizes_of(args) if quantize else []), "--output", folder / "quench")
        compile_cpu = sum(os.times()[2:4]) - before
        if quantize:
            quench(args, "compile", models["quench_int8"], "--output", folder / "quench_int8")
        competitors = {}
        for key in models:
            competitors[key] = QuenchModel(runtime, folder / key / "model.so", inputs, names, args.threads).run
        for key, session in sessions.items():
            competitors[key] = lambda session=session: session.run(None, inputs)
        for run in competitors.values():
            run()
        rounds = []
        for _ in range(args.rounds):
            rounds.append({key: timed(run, args.seconds) for key, run in competitors.items()})

    def ratio(name, slow, fast):
        """The median of the rounds' ratios, and the quartiles that say how far one run may be trusted."""
        low, middle, high = statistics.quantiles((r[slow][0] / r[fast][0] for r in rounds), n=4)
        return {f"{name}_median": middle, f"{name}_quartiles": [low, high]}

    row = {"model": model.stem, "compile_cpu_s": compile_cpu} | ratio("speedup", "ort", "quench")
    if quantize:
        row |= ratio("int8_speedup", "ort_int8", "quench_int8") | ratio("int8_over_f32", "quench", "quench_int8")
        row |= ratio("ort_int8_over_f32", "ort", "ort_int8")
    return row | {f"{key}_min_ms": min(r[key][1] for r in rounds) * 1e3 for key in competitors}


COLUMNS = [("speedup_median", "ORT/Quench"), ("int8_speedup_median", "the same int8"), ("int8_over_f32_median", "f32/int8"),
           ("ort_int8_over_f32_median", "f32/int8 of ORT"), ("quench_min_ms", "ours ms"), ("ort_min_ms", "ORT ms"),
           ("quench_int8_min_ms", "ours int8 ms"), ("ort_int8_min_ms", "ORT int8 ms"), ("compile_cpu_s", "compile CPU s")]


# The speed gate's networks, and which of them are run in 8-bit integers too.
SUITE = {"resnet50": True, "mobilenet_v2": True, "squeezenet1_0": False, "densenet121": False, "bert_base": False, "lstm_net": False}


def suite(folder):
    """Writes the suite's networks; returns their (path, whether to quantize)."""
    script = pathlib.Path(__file__).resolve().parent / "models/networks.py"
    subprocess.run([sys.executable, str(script), folder, *SUITE], check=True, stdout=subprocess.DEVNULL)
    return [(pathlib.Path(folder) / f"{name}.onnx", quantize) for name, quantize in SUITE.items()]


def machine(args):
    """Facts that ratios depend on beside the code: they are compared only between equal variants, peers and threads."""
    listed = subprocess.run([args.quench, "targets", "--format", "json"], capture_output=True, text=True, check=True).stdout
    host = next(target for target in json.loads(listed) if target["name"] == "host")
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return {"variant": host["variants"][-1].split(":")[0], "cpu": cpu, "threads": args.threads, "peer": f"onnxruntime {ort.__version__}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--suite", action="store_true", help="the networks of bench/ratios instead of MODEL.onnx...")
    parser.add_argument("--quench", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N")
    parser.add_argument("--quantize", action="store_true", help="beside the models, the same in 8-bit integers, both sides")
    parser.add_argument("--peer-activations", choices=["int8", "uint8"], default="uint8",
                        help="dtype of activations in the model that ONNX Runtime is given (its kernels for x86 prefer uint8)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.suite == bool(args.models):
        parser.error("give either --suite or models")
    if args.rounds < 2:
        parser.error("--rounds must be at least 2: quartiles need as many")
    sizes = {k: int(v) for k, v in (s.split("=") for s in args.size)}
    with tempfile.TemporaryDirectory() as folder:
        runtime = build_runtime(folder)
        work = suite(folder) if args.suite else [(model, args.quantize) for model in args.models]
        rows = []
        for done, (model, quantize) in enumerate(work):
            print(f"bench: {model.stem}, {done + 1} of {len(work)}", file=sys.stderr)
            rows.append(compare(args, runtime, model, sizes, quantize))
    if args.json:
        print(json.dumps(machine(args) | {"rows": rows}, indent=2))
        return
    columns = [(key, title) for key, title in COLUMNS if any(key in row for row in rows)]
    print(f"{'model':<28}" + "".join(f"  {title}" for _, title in columns))
    for row in rows:
        print(f"{row['model']:<28}" + "".join(cell(row, key, title) for key, title in columns))


def cell(row, key, title):
    return f"  {row[key]:>{len(title)}.{2 if 'ms' not in title else 3}f}" if key in row else f"  {'-':>{len(title)}}"


if __name__ == "__main__":
    sys.exit(main())
