"""Imports, compiles and runs every TorchScript file of a corpus, and compares with PyTorch and recorded outputs.

Usage: python3 torch_corpus.py --quench build/release/bin/quench [--corpus DIR] [--only TEXT]
(needs torch)

A file that is not compiled must be in REFUSED with what is said of it.
"""

import argparse
import pathlib
import sys
import tempfile
import warnings

from quench_command import Refused, command, run

SKIPPED = 77
try:
    import numpy
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)

TOLERANCE = 1e-4  # of the largest number
# End of the path -> shapes of the inputs, which a TorchScript file does not say.
SHAPES = {
    "tests/foo.pt": {"x": (3, 4), "y": (3, 4)},
    "tests/foo1.pt": {"x": (3, 4), "y": (3, 4)},
    "tests/foo2.pt": {"x": (3, 4), "y": (3, 4)},
    "tests/foo3.pt": {"x": (5, 3)},
    "tests/foo4.pt": {},
    "tests/foo6.pt": {"x": (3, 4)},
    "DemoNet.pt": {"input": (1, 3, 32, 32)},
    "resnet20_cifar10_trace.pt": {"x": (4, 3, 32, 32)},
    "pytorch_lenet5.pt": {"val": (1, 28, 28, 1)},
    "sample_3x4_two_input_two_output.pt": {"x": (3, 4), "h": (3, 4)},
    "sample_4x4x4x4x4_two_input_one_output.pt": {"x": (4, 4, 4, 4, 4), "y": (4, 4, 4, 4, 4)},
    "central.pt": {"pos": (7, 3)},
    "forces.pt": {"pos": (7, 3)},
    "global.pt": {"pos": (7, 3), "k": ()},
    "periodic.pt": {"pos": (7, 3), "box": (3, 3)},
    "asl.ptl": {"x": (1, 3, 200, 200)},
    "mobile_model.pt": {"x": (1, 3, 360, 480)},
    "model_micro.jit": {"x": (1, 16000)},
    "model_mini.jit": {"x": (1, 16000)},
}
# The reasons are the files' own.
REFUSED = {
    "tests/foo5.pt": "`List`",  # takes a list of strings
    "tests/foo7.pt": "no method `forward`",
    "tests/foo8.pt": "no method `forward`",
    "mnist.pt": "state dict",
}
# Arguments that are not tensors, and the values of our inputs for them.
ARGUMENTS = {"tests/foo4.pt": ([(0.5, 1.5, 3)], [numpy.float32(0.5), numpy.float32(1.5), numpy.int64(3)])}
# Results of a class of the file, which Python cannot have; quench gives their attributes, here the input.
KNOWN = {"tests/foo6.pt": lambda inputs: inputs}
# Files that this PyTorch does not run (a backend of phones, calls of older versions): recorded outputs alone are compared.
NOT_RUN = ("asl.ptl", "model_micro.jit", "model_mini.jit")

def entry(table, model):
    return next((value for end, value in table.items() if str(model).endswith(end)), None)


def error(ours, theirs):
    """Largest difference as a part of the largest number."""
    theirs = numpy.asarray(theirs)
    if ours.shape != theirs.shape:
        return float("inf")
    off = numpy.abs(ours.astype("float64") - theirs.astype("float64")).max(initial=0)
    return float(off / max(float(numpy.abs(theirs.astype("float64")).max(initial=0)), 1e-30))


def flattened(values):
    if isinstance(values, (tuple, list)):
        return [each for value in values for each in flattened(value)]
    return [numpy.asarray(values)]


def of_torch(model, arguments):
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return flattened(torch.jit.load(str(model))(*arguments))


def visit(quench, model, folder):
    """The outcome for the file, and whether that is a failure."""
    shapes = entry(SHAPES, model)
    expected = entry(REFUSED, model)
    words = []
    for name, shape in (shapes or {}).items():
        words += ["--shape", f"{name}={','.join(map(str, shape)) or 'scalar'}"]
    try:
        command(quench, "compile", model, "--output", folder, "--force", *words)
    except Refused as why:
        return str(why), expected is None or expected not in str(why)
    if expected is not None:
        return f"compiles, though `{expected}` was expected", True
    random = numpy.random.default_rng(5)
    drawn = [random.uniform(0, 1, shape).astype("float32") for shape in shapes.values()]
    arguments, inputs = entry(ARGUMENTS, model) or (list(map(torch.from_numpy, map(numpy.asarray, drawn))), drawn)
    told, worst = [], 0.0
    if not str(model).endswith(NOT_RUN):
        found = run(quench, folder / "model.so", inputs, folder)
        known = entry(KNOWN, model)
        worst = max(map(error, found, known(inputs) if known else of_torch(model, arguments)))
        told.append(f"{worst:.1e} from PyTorch")
    recorded = model.with_name(model.name + ".ref.npz")
    if recorded.exists():
        arrays = numpy.load(recorded)
        off = error(run(quench, folder / "model.so", [arrays["in0"]], folder)[0], arrays["out0"])
        told.append(f"{off:.1e} from the recorded outputs")
        worst = max(worst, off)
    return ", ".join(told), not worst <= TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--corpus", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[3] / "shared" / "corpus")
    parser.add_argument("--only", default="", metavar="TEXT", help="files whose path has this text")
    args = parser.parse_args()
    files = [f for f in sorted(args.corpus.rglob("*")) if f.suffix in (".pt", ".ptl", ".jit", ".pt2") and args.only in str(f)]
    if not files:
        print(f"skipped: no TorchScript files in {args.corpus}")
        return SKIPPED
    failures = 0
    for model in files:
        with tempfile.TemporaryDirectory() as folder:
            told, failed = visit(args.quench, model, pathlib.Path(folder) / "out")
        failures += failed
        print(f"{'FAIL ' if failed else ''}{model.relative_to(args.corpus)}: {told}", flush=True)
    print(f"{len(files)} files, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
