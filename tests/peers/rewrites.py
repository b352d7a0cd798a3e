"""ONNX files from `quench tile` and `quench edit` run in ONNX Runtime: tiled models give the values of the model, edited ones those of
the interpreter here."""

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

try:
    import numpy as np
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LIMIT = 1e-5  # of the largest value
DIGITS = ROOT / "bench/models/digits.onnx"
EDITS = ["replace relu1 { %r = HardSwish(%bn1) }", "insert %conv2 for bn2 { const %two: f32[] = [2.0] %d = Mul(%conv2, %two) }",
         "remove relu3", "set pool { kernel_shape = [4, 4] }", "outputs %logits, %features"]


def quench(program, *words):
    done = subprocess.run([program, *map(str, words), "--progress", "none"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"quench {' '.join(map(str, words))}: {done.stderr}")


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def worst(before, after):
    return max(float(np.abs(x - y).max() / np.abs(x).max()) for x, y in zip(before, after, strict=True))


def gemm(program, folder, sizes):
    m, k, n = sizes
    path = folder / f"gemm_{m}_{k}_{n}.onnx"
    quench(program, "tile", "--gemm", f"{m},{k},{n}", "--limits", "64,64,64", "--samples", 1, "-o", path)
    runs, numbers, error = session(path), np.random.default_rng(1), 0
    names = [each.name for each in runs.get_inputs()]
    for _ in range(1000):
        inputs = [numbers.uniform(-1, 1, each.shape).astype(np.float32) for each in runs.get_inputs()]
        a, b, bias = inputs
        error = max(error, worst([a.astype(np.float64) @ b + bias], runs.run(None, dict(zip(names, inputs)))))
    return error


def model(program, folder, path, limits):
    tiled = folder / f"{path.stem}_tiled.onnx"
    quench(program, "tile", path, "--batch", 1, "--limits", limits, "--samples", 1, "-o", tiled)
    before, after, numbers, error = session(path), session(tiled), np.random.default_rng(1), 0
    value = before.get_inputs()[0]
    for _ in range(20):
        x = numbers.uniform(-1, 1, [1, *value.shape[1:]]).astype(np.float32)
        error = max(error, worst(before.run(None, {value.name: x}), after.run(None, {value.name: x})))
    return error


def edited(program, folder):
    path, numbers = folder / "edited.onnx", np.random.default_rng(1)
    quench(program, "edit", DIGITS, *(word for edit in EDITS for word in ("-e", edit)), "-o", path)
    x = numbers.uniform(-1, 1, (3, 1, 8, 8)).astype(np.float32)
    np.save(folder / "x.npy", x)
    quench(program, "edit", DIGITS, *(word for edit in EDITS for word in ("-e", edit)), "-o", folder / "edited.qir")
    quench(program, "run", folder / "edited.qir", "--input", f"image={folder / 'x.npy'}", "--output", folder / "here")
    here = [np.load(folder / "here" / f"{name}.npy") for name in ("logits", "features")]
    return worst(here, session(path).run(None, {"image": x}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quench", required=True)
    parser.add_argument("models", nargs="*", help="tiled too, with limits of 64")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        errors = {"32x64x128": gemm(args.quench, folder, (32, 64, 128)), "128x128x128": gemm(args.quench, folder, (128, 128, 128)),
                  "digits": model(args.quench, folder, DIGITS, "8,8,8"), "edited": edited(args.quench, folder)}
        errors |= {path: model(args.quench, folder, pathlib.Path(path), "64,64,64") for path in args.models}
    for what, error in errors.items():
        print(f"{what:<14}{error:.2e}{'' if error <= LIMIT else '  ABOVE ' + str(LIMIT)}")
    return int(any(error > LIMIT for error in errors.values()))


if __name__ == "__main__":
    sys.exit(main())
