#!/usr/bin/env python3
"""The cost of quantization: every method, per tensor and per channel, static and dynamic, beside ONNX Runtime's quantizer.

Usage: bench/quantization_accuracy.py --quench build/release/bin/quench MODEL.onnx --data SAMPLES [--labels LABELS.npy]
                                      [--calibrate N] [--equalize] [--split-outliers PERCENT] [--split-tensors N]
                                      [--bias-correction] [--adaptive-rounding] [--import-option OPTION ...] [--no-peer] [--json]

SAMPLES is a .npy file with one sample a row (batch 1 each), or, for a model of several inputs, a .npz file with such an array
for each, by name. The first N samples (default 200) calibrate, all are measured. Rows: top-1 with labels, else agreement
with the float model; and the signal-to-quantization-noise ratio of the first output over all samples. ONNX Runtime quantizes to the same format (QDQ, 8-bit activations and weights, 32-bit biases) and its models run
in ONNX Runtime. Needs numpy, onnx and onnxruntime.
"""

import argparse
import contextlib
import io
import itertools
import json
import logging
import pathlib
import subprocess
import tempfile

import numpy as np

# Names of the rows, and the options of quench for each. ONNX Runtime's percentile is 99.999.
KINDS = {"average": ["--method", "average"], "minmax": ["--method", "minmax"], "percentile 99": ["--method", "percentile"],
         "percentile 99.999": ["--method", "percentile", "--percentile", "99.999"], "entropy": ["--method", "entropy"],
         "mse": ["--method", "mse"]}


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(str(word) for word in command)}\n{done.stderr}")
    return done.stdout


def score(reference, outputs, labels):
    noise = float(((reference - outputs) ** 2).sum())
    sqnr = 10 * np.log10(float((reference**2).sum()) / noise) if noise else float("inf")
    best, ours = reference.argmax(-1).ravel(), outputs.argmax(-1).ravel()
    return {"sqnr_db": sqnr, "agreement": float((best == ours).mean()),
            "top1": float((ours == labels).mean()) if labels is not None else None}


def read_samples(path):
    """Arrays by the input's name; the only input's is None."""
    loaded = np.load(path)
    return dict(loaded) if path.suffix == ".npz" else {None: loaded}


def write_samples(samples, count, path):
    """As quench takes them: a file, or a folder with a folder for each sample."""
    if None in samples:
        np.save(path.with_suffix(".npy"), samples[None][:count])
        return path.with_suffix(".npy")
    for i in range(min(count, len(next(iter(samples.values()))))):
        (path / f"{i:06}").mkdir(parents=True)
        for name, array in samples.items():
            np.save(path / f"{i:06}" / f"{name}.npy", array[i : i + 1])
    return path


class Quench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.options = ["--batch", "1"] + args.import_option
        self.prepare = ["--equalize"] * args.equalize
        if args.split_outliers:
            self.prepare += ["--split-outliers", args.split_outliers]
        if args.split_tensors:
            self.prepare += ["--split-tensors", args.split_tensors]
        self.how = ["--bias-correction"] * args.bias_correction
        samples = read_samples(args.data)
        count = len(next(iter(samples.values())))
        self.data = write_samples(samples, count, folder / "samples")
        calibration = write_samples(samples, args.calibrate, folder / "calibration")
        if args.adaptive_rounding:
            self.how += ["--rounding", "adaptive", "--rounding-data", calibration]
        run([args.quench, "calibrate", args.model, *self.options, *self.prepare, "--data", calibration, "-o", folder / "stats",
             "--progress", "none"])

    def measure(self, options):
        module = self.folder / "q.qir"
        report = json.loads(run([self.args.quench, "quantize", self.args.model, *self.options, *self.prepare, *self.how, "-c",
                                 self.folder / "stats", *options,
                                 "-o", module, "--force", "--format", "json", "--progress", "none"]))
        compare = [self.args.quench, "compare", self.args.model, module, *self.options, "--data", self.data, "--format", "json",
                   "--progress", "none"]
        if self.args.labels:
            compare += ["--labels", self.args.labels]
        compared = json.loads(run(compare))
        accuracy = compared.get("accuracy", {})
        return {"sqnr_db": compared["outputs"][0]["sqnr_db"], "agreement": accuracy.get("agreement"),
                "top1": accuracy.get("other_top1"), "float_top1": accuracy.get("reference_top1"),
                "float_layers": sum(not layer["quantized"] for layer in report["layers"])}


class Peer:
    """ONNX Runtime's static and dynamic quantizers."""

    NAMES = {"minmax": "MinMax", "percentile 99.999": "Percentile", "entropy": "Entropy"}
    OLDEST_OPSET = 13  # that has a scale for each channel

    def __init__(self, args, folder):
        import onnxruntime
        from onnxruntime.quantization.shape_inference import quant_pre_process
        self.args, self.folder, self.ort = args, folder, onnxruntime
        logging.getLogger().setLevel(logging.ERROR)
        self.samples = read_samples(args.data)
        self.labels = np.load(args.labels) if args.labels else None
        self.model = folder / "preprocessed.onnx"
        quant_pre_process(str(self.upgraded(args.model)), str(self.model), skip_symbolic_shape=True)
        self.reference = self.outputs(args.model)

    def upgraded(self, path):
        import onnx
        model = onnx.load(path)
        if all(o.version >= self.OLDEST_OPSET for o in model.opset_import if not o.domain):
            return path
        known = {i.name for i in model.graph.input}  # the converter wants constants to be inputs as well, in old files
        for constant in model.graph.initializer:
            if model.ir_version < 4 and constant.name not in known:
                model.graph.input.append(onnx.helper.make_tensor_value_info(constant.name, constant.data_type, constant.dims))
        converted = onnx.version_converter.convert_version(model, self.OLDEST_OPSET)
        onnx.save(converted, self.folder / "upgraded.onnx")
        return self.folder / "upgraded.onnx"

    def outputs(self, model):
        options = self.ort.SessionOptions()
        options.log_severity_level = 3
        session = self.ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        return np.concatenate([session.run(None, row)[0] for row in self.rows(session)])

    def rows(self, session):
        first = session.get_inputs()[0].name
        for i in range(len(next(iter(self.samples.values())))):
            yield {name or first: array[i : i + 1] for name, array in self.samples.items()}

    def measured(self, method, per_channel):
        try:
            return {"peer": self.measure(method, per_channel)}
        except Exception as error:  # whatever it raises for what it cannot do
            return {"peer_error": f"{type(error).__name__}: {error}".split("\n")[0][:200]}

    def measure(self, method, per_channel):
        from onnxruntime.quantization import (CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_dynamic,
                                              quantize_static)
        target = self.folder / "peer.onnx"
        if method == "dynamic":
            quantize_dynamic(str(self.model), str(target), per_channel=per_channel, weight_type=QuantType.QInt8)
        else:
            rows = itertools.islice(self.rows(self.ort.InferenceSession(str(self.model))), self.args.calibrate)

            class Reader(CalibrationDataReader):
                def get_next(self):
                    return next(rows, None)

            with contextlib.redirect_stdout(io.StringIO()):  # it prints its histograms
                quantize_static(str(self.model), str(target), Reader(), quant_format=QuantFormat.QDQ, per_channel=per_channel,
                                activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
                                calibrate_method=CalibrationMethod[self.NAMES[method]])
        return score(self.reference, self.outputs(target), self.labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--quench", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--labels", type=pathlib.Path)
    parser.add_argument("--calibrate", type=int, default=200)
    parser.add_argument("--import-option", action="append", default=[], help="for quench, as --import-option=--shape=x=1,3,32,32")
    parser.add_argument("--equalize", action="store_true")
    parser.add_argument("--split-tensors", type=int, metavar="N")
    parser.add_argument("--split-outliers", type=float, metavar="PERCENT")
    parser.add_argument("--bias-correction", action="store_true")
    parser.add_argument("--adaptive-rounding", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        quench = Quench(args, folder)
        peer = None if args.no_peer else Peer(args, folder)
        for kind in [*KINDS, "dynamic"]:
            for per_channel in (False, True):
                options = ["--type", "dynamic"] if kind == "dynamic" else ["--type", "static", *KINDS[kind]]
                row = {"kind": kind, "per_channel": per_channel, "quench": quench.measure(options + ["--per-channel"] * per_channel)}
                if peer and (kind in Peer.NAMES or kind == "dynamic"):
                    row |= peer.measured(kind, per_channel)
                rows.append(row)
                if not args.json:
                    show(row, header=len(rows) == 1)
    if args.json:
        print(json.dumps(rows, indent=2))


def percent(value):
    return "" if value is None else f"{100 * value:.1f}"


def show(row, header):
    if header:
        print(f"float top-1 {percent(row['quench']['float_top1']) or '-'} %")
        print(f"{'ranges':<18} {'kernels':<12} {'SQNR dB':>8} {'agree %':>8} {'top-1 %':>8}   ONNX Runtime: SQNR, agree, top-1", flush=True)
    ours, theirs = row["quench"], row.get("peer")
    line = (f"{row['kind']:<18} {'per channel' if row['per_channel'] else 'per tensor':<12} {ours['sqnr_db']:>8.2f} "
            f"{percent(ours['agreement']):>8} {percent(ours['top1']):>8}")
    if theirs:
        line += f"   {theirs['sqnr_db']:>21.2f} {percent(theirs['agreement']):>6} {percent(theirs['top1']):>6}"
    elif "peer_error" in row:
        line += f"   {row['peer_error'][:60]}"
    print(line, flush=True)


if __name__ == "__main__":
    main()
