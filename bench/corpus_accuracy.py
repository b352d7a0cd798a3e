#!/usr/bin/env python3
"""Compiles every ONNX model of a folder and compares its outputs with references beside it and with ONNX Runtime.

Usage: bench/corpus_accuracy.py --quench build/release/bin/quench FOLDER [--only TEXT] [--truth] [--markdown FILE]

A reference is MODEL.onnx.ref.npz: in0, in1, ... and out0, out1, ..., or io.npz beside it: arrays by name. The error of an output is max |ours - theirs| / max |theirs|; up to 1e-4
passes (2e-3 where the output is f16). Where ONNX Runtime differs by more, or does not know the model, the model evaluated in float64
(float64_truth.py) decides: ours passes when it is within the tolerance of that, or nearer to it than ONNX Runtime is. A model that
ends by naming classes (ZipMap) is compared at the tensors before that. One line a model:

  pass      all comparisons are within the tolerance
  FAIL      one is not, or the compiled model did not run
  refused   does not compile, with the reason
  invalid   does not compile, and ONNX Runtime does not run it either
  no peer   compiles, but nothing else computes it
"""

import argparse
import fnmatch
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

from bench_models import DTYPES, QuenchModel, build_runtime
from float64_truth import Truth

TOLERANCE = 1e-4
F16_TOLERANCE = 2e-3

# Ranges that a user would feed where N(0, 1) is not right: (pattern of the path, lowest and highest value).
RANGES = [("*candy.onnx", 0, 255), ("*yunet_s*", 0, 255), ("*yolox_nano.onnx", 0, 255), ("*squeezenet_tensor_input*", 0, 255),
          ("*silero*", -0.5, 0.5), ("*mnist.onnx", 0, 1), ("*super*resolution*", 0, 1)]
# Sizes of symbolic dims, by what their name contains. A model with symbolic dims runs at the first two, and where those do not
# suit it at the others.
SIZES = [("sample", 16000, 4000, 1, 64), ("height", 320, 192, 1, 64), ("width", 320, 256, 1, 64), ("seq", 16, 7, 1, 64),
         ("batch", 1, 3, 1, 1), ("", 1, 3, 1, 64)]


# Operators that give classes their names, as the last thing in a model: where numbers enter.
LABELLERS = {"ZipMap": 0, "ArrayFeatureExtractor": 1}


class Row:
    def __init__(self, model):
        self.model, self.verdict, self.remark = model, "?", ""
        self.errors = {}  # kind -> worst error

    def add(self, kind, error):
        self.errors[kind] = max(error, self.errors.get(kind, 0))

    def line(self):
        errors = ", ".join(f"{kind} {error:.1e}" for kind, error in self.errors.items())
        return f"{self.verdict:<8} {self.model}  {errors}{'; ' if errors and self.remark else ''}{self.remark}"

    def markdown(self):
        cells = [f"{self.errors[k]:.1e}" if k in self.errors else "" for k in ("ref", "ort", "f64", "ort/f64")]
        remark = self.remark.replace("|", "\\|")
        return f"| {self.model} | {self.verdict} | {' | '.join(cells)} | {remark} |"


MARKDOWN_HEAD = """| model | outcome | vs reference | vs ONNX Runtime | vs float64 | ONNX Runtime vs float64 | remark |
|---|---|---|---|---|---|---|"""


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


def worst(ours, theirs):
    return max([error_of(a, np.asarray(b)) for a, b in zip(ours, theirs)] or [0.0])


def reference_order(arrays, names):
    """Index of each model output among the reference's: they name their own order ("... order: a,b") or keep the model's."""
    producer = str(arrays["producer"]) if "producer" in arrays else ""
    listed = producer.split("order: ")[1].split(",") if "order: " in producer else names
    listed = [n.strip() for n in listed]
    order = [listed.index(n) for n in names] if set(names) == set(listed) else range(len(names))
    return [k for k in order if f"out{k}" in arrays]


def picture(rng, shape, low, high):
    """Smooth, with a little noise: what cameras and microphones give. Noise alone drives some networks where no digit is certain."""
    x = np.zeros(shape)
    for axis, size in enumerate(shape):
        for _ in range(2):
            wave = np.sin(np.arange(size) * rng.uniform(1, 12) / max(size, 2) * 2 + rng.uniform(0, 6))
            x = x + wave.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    x = x + 0.1 * rng.standard_normal(shape)
    return low + (high - low) * (x - x.min()) / max(x.max() - x.min(), 1e-9)


def make_inputs(session, path, variant):
    rng = np.random.default_rng(variant + 1)
    limits = next(((low, high) for pattern, low, high in RANGES if fnmatch.fnmatch(str(path), pattern)), None)
    bound, inputs = {}, {}
    for i in session.get_inputs():
        if i.type not in DTYPES:
            raise NotImplementedError(f"input `{i.name}` is {i.type}")
        shape = []
        for axis, d in enumerate(i.shape):
            if not isinstance(d, int) or d < 0:
                symbol = d if isinstance(d, str) else f"{i.name}:{axis}"
                d = bound.setdefault(symbol, next(sizes for part, *sizes in SIZES if part in str(d).lower())[variant])
            shape.append(d)
        dtype = DTYPES[i.type]
        if not np.issubdtype(dtype, np.floating):
            inputs[i.name] = rng.integers(0, 2, shape).astype(dtype)
        elif limits:
            inputs[i.name] = picture(rng, shape, *limits).astype(dtype)
        else:
            inputs[i.name] = rng.standard_normal(shape).astype(dtype)
    return inputs, bool(bound)


def without_labels(path, folder):
    """(the model, or a copy of it that ends before it names classes; the outputs to cut at, none when nothing changed)."""
    model = onnx.load(str(path))
    maps = {n.output[0]: n.input[LABELLERS[n.op_type]] for n in model.graph.node if n.op_type in LABELLERS}
    if not maps or not any(o.name in maps for o in model.graph.output):
        return path, []
    names = [maps.get(o.name, o.name) for o in model.graph.output]
    known = {v.name: v for v in [*model.graph.output, *model.graph.value_info]}
    values = [known.get(n) or onnx.ValueInfoProto(name=n) for n in names]
    kept = [n for n in model.graph.node if n.op_type not in LABELLERS]
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(kept)
    model.graph.output.extend(values)
    cut = pathlib.Path(folder) / "cut.onnx"
    onnx.save(model, str(cut))
    return cut, names


class Peers:
    """ONNX Runtime's session, None where it does not load the model, and why it failed last."""

    def __init__(self, path):
        self.session, self.problem = None, ""
        options = ort.SessionOptions()
        options.log_severity_level = 4
        # As written: ONNX Runtime 1.31's optimiser, for one, makes a Pad of zeros before a MaxPool part of the pool, which pads with -inf.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as problem:
            self.problem = str(problem)

    def run(self, inputs):
        if self.session is None:
            return None
        try:
            return self.session.run(None, inputs)
        except Exception as problem:
            self.problem = str(problem)
            return None

    def short_problem(self):
        text = " ".join(self.problem.split())
        return text.split("Status Message: ")[-1].split("failed:")[-1][:150]


class Described:
    """Names, types and shapes of a model's inputs and outputs in ONNX Runtime's words, where it does not load the model itself."""

    class Value:
        def __init__(self, info):
            tensor = info.type.tensor_type
            names = {onnx.TensorProto.FLOAT: "float", onnx.TensorProto.DOUBLE: "double"}
            self.name = info.name
            self.type = f"tensor({names.get(tensor.elem_type, onnx.TensorProto.DataType.Name(tensor.elem_type).lower())})"
            self.shape = [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim]

    def __init__(self, path):
        graph = onnx.load(str(path)).graph
        fixed = {i.name for i in graph.initializer}
        self.inputs = [self.Value(i) for i in graph.input if i.name not in fixed]
        self.outputs = [self.Value(o) for o in graph.output]

    def get_inputs(self):
        return self.inputs

    def get_outputs(self):
        return self.outputs


def compare(args, runtime, model, row):
    with tempfile.TemporaryDirectory() as folder:
        path, cut = without_labels(model, folder)
        if cut:
            row.remark = f"cut before its labels, at {', '.join(cut)}"
        peers = Peers(path)
        out = pathlib.Path(folder) / "out"
        command = [args.quench, "compile", str(model), "--output", str(out), "--progress", "none"]
        done = subprocess.run(command + (["--outputs", ",".join(cut)] if cut else []), capture_output=True, text=True, timeout=args.timeout)
        if done.returncode:
            lines = done.stderr.strip().removeprefix("quench: error: ").splitlines() or ["?"]
            row.verdict, row.remark = "refused", " ".join(line.strip() for line in lines)[:220]
            try:
                runs = peers.session and peers.run(make_inputs(peers.session, model, 0)[0])
            except NotImplementedError:
                runs = True
            if runs is None:
                row.verdict = "refused" if "not supported" in row.remark else "invalid"
                row.remark = f"{row.remark}; ONNX Runtime: {peers.short_problem()}"
            return
        described = peers.session or Described(path)
        names = [i.name for i in described.get_inputs()]

        def ours_on(inputs, count):
            compiled = QuenchModel(runtime, out / "model.so", inputs, names, 1)
            compiled.run()
            return [compiled.output(k) for k in range(count)]

        failed = False
        outputs = [o.name for o in described.get_outputs()]
        by_name = model.with_name("io.npz")
        if by_name.exists() and set(names + outputs) <= set(arrays := np.load(by_name)):
            ours = ours_on({n: arrays[n] for n in names}, len(outputs))
            if [a.size for a in ours] == [arrays[n].size for n in outputs]:  # its makers drop dims of 1
                row.add("ref", worst(ours, [arrays[n].reshape(a.shape) for n, a in zip(outputs, ours)]))
                failed = row.errors["ref"] > TOLERANCE
            else:
                row.remark = "io.npz has outputs of other sizes"
        reference = model.with_name(model.name + ".ref.npz")
        if reference.exists():
            arrays = np.load(reference)
            inputs = {n: arrays[f"in{k}"] for k, n in enumerate(names) if f"in{k}" in arrays}
            expected = [arrays[f"out{k}"] for k in reference_order(arrays, outputs)]
            row.add("ref", worst(ours_on(inputs, len(expected)), expected))
            failed = row.errors["ref"] > TOLERANCE
        for variant in range(4):
            inputs, symbolic = make_inputs(described, model, variant)
            if variant == 1 and not symbolic or variant >= 2 and row.errors:
                break
            failed |= not compare_live(args, row, path, peers, inputs, ours_on, len(outputs))
        row.verdict = "FAIL" if failed else "pass" if row.errors else "no peer"


def compare_live(args, row, path, peers, inputs, ours_on, count):
    """Compares on `inputs` with ONNX Runtime and, where that does not settle it, with float64. False: ours is off."""
    theirs = peers.run(inputs)
    try:
        ours = ours_on(inputs, count)
    except RuntimeError as problem:
        if theirs is None:  # both refuse the input
            row.remark = row.remark or f"both refuse the input: {problem}"
            return True
        try:
            Truth(path).run(inputs)
        except Exception:  # ONNX Runtime has optimised the error away
            row.remark = f"onnx's evaluator refuses the input too: {problem}"
            return True
        raise
    if row.remark.startswith("both refuse"):  # other sizes than these
        row.remark = ""
    tolerance = F16_TOLERANCE if any(o.dtype == np.float16 for o in ours) else TOLERANCE
    error = None
    if theirs is not None:
        error = worst(ours, theirs)
        row.add("ort", error)
        if error <= tolerance and not args.truth:
            return True
    try:
        truth = Truth(path).run(inputs)
    except Exception as problem:
        if error is None:
            row.remark = f"ONNX Runtime: {peers.short_problem()}; float64: {str(problem)[:80]}"
        return error is None or error <= tolerance
    mine = worst(ours, truth)
    row.add("f64", mine)
    if theirs is None:
        row.remark = f"not in ONNX Runtime: {peers.short_problem()}"
        return mine <= tolerance
    yours = worst(theirs, truth)
    row.add("ort/f64", yours)
    if error > tolerance:
        row.remark = "ONNX Runtime is farther from float64 than Quench" if mine < yours else "Quench is farther from float64"
    return error <= tolerance or mine <= max(tolerance, yours)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--only", default="", help="models whose path contains this text")
    parser.add_argument("--skip", action="append", default=["backend-test-data"], help="not those whose path contains this text")
    parser.add_argument("--min-bytes", type=int, default=0, help="skip smaller files (single-operator tests)")
    parser.add_argument("--truth", action="store_true", help="compare with float64 even where ONNX Runtime agrees")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a compilation may take")
    parser.add_argument("--markdown", type=pathlib.Path, help="also write the table to this file")
    args = parser.parse_args()
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is no folder")
    counts, rows = {}, []
    ort.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as folder:
        runtime = build_runtime(folder)
        for model in sorted(args.folder.rglob("*.onnx")):
            name = str(model.relative_to(args.folder))
            if args.only not in name or model.stat().st_size < args.min_bytes or any(part in name for part in args.skip):
                continue
            row = Row(name)
            try:
                compare(args, runtime, model, row)
            except NotImplementedError as problem:
                row.verdict, row.remark = "no peer", str(problem)
            except Exception as problem:
                row.verdict, row.remark = "FAIL", f"{type(problem).__name__}: {problem}"[:200]
            counts[row.verdict] = counts.get(row.verdict, 0) + 1
            rows.append(row)
            print(row.line(), flush=True)
            if args.markdown:
                args.markdown.write_text("\n".join([MARKDOWN_HEAD, *(r.markdown() for r in rows)]) + "\n")
    print(", ".join(f"{n} {v}" for v, n in sorted(counts.items())))
    return 1 if counts.get("FAIL") else 0


if __name__ == "__main__":
    sys.exit(main())
