"""Imports, compiles and runs every TensorFlow Lite file of a corpus, and compares with what is known of their outputs.

Usage: python3 -m tflite.corpus --quench build/release/bin/quench [--corpus DIR] [--litert] [PATTERN]
(from tests/peers; needs the standard library, with --litert also ai-edge-litert and numpy)

Known outputs: FILE.tflite.ref.npz (in0, in1 ... out0, out1 ... in the model's order), and NAME_input0_TYPE.csv, NAME_golden_TYPE.csv
beside NAME.tflite. With --litert, files that have neither are compared with LiteRT on random inputs. Floats differ by at most 1e-4 of
the largest; a quantized network has the same winner and is at most two steps off, a file of one operator one step.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import math
import os
import pathlib
import sys
import tempfile
import zipfile

from . import judge
from . import model as models

SKIPPED = 77
OF_LARGEST = 1e-4
STEPS = {True: 1, False: 2}  # whether the file has one operator -> how far integers may be off
CLASSES = 2000  # an output of more numbers has no winner
TELLING = 16  # zeros in so many outputs come from a kernel that does nothing
HERE = pathlib.Path(__file__).resolve().parent
LETTERS = {"f32": "FLOAT32", "f64": "FLOAT64", "f16": "FLOAT16", "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64",
           "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "bool": "BOOL"}


def read_npz(file):
    """{name: (values, shape, type)} of the arrays in0, in1 ..., out0, out1 ..."""
    with zipfile.ZipFile(file) as archive:
        names = [n for n in archive.namelist() if n.startswith(("in", "out"))]
        return {n.removesuffix(".npy"): models.read_npy(archive.read(n)) for n in names}


def in_order(arrays, stem):
    names = sorted((n for n in arrays if n.startswith(stem)), key=lambda n: int(n.removeprefix(stem)))
    return [arrays[n] for n in names]


def from_npz(file):
    arrays = read_npz(file)
    return in_order(arrays, "in"), in_order(arrays, "out")


def from_csv(file):
    """Flat arrays: only the model knows their shapes."""

    def read(csv):
        return [int(v) for v in csv.read_text().replace("\n", ",").split(",") if v.strip()], None, csv.stem.rsplit("_", 1)[1].upper()

    inputs = sorted(file.parent.glob(f"{file.stem}_input*_*.csv"))
    return [read(csv) for csv in inputs], [read(csv) for csv in file.parent.glob(f"{file.stem}_golden_*.csv")]


def from_litert(file, given=None):
    """LiteRT's outputs for the inputs `given`, or for random ones."""
    import numpy as np

    from . import litert

    machine = litert.interpreter(file.read_bytes())
    machine.allocate_tensors()
    rng = np.random.default_rng(7)
    inputs = []
    for i, d in enumerate(machine.get_input_details()):
        kind = np.dtype(d["dtype"])
        if given:
            array = np.reshape(given[i][0], d["shape"])
        elif kind.kind == "f":
            array = rng.uniform(-1, 1, d["shape"])
        elif kind.kind == "b":
            array = rng.integers(0, 2, d["shape"])
        elif kind.itemsize <= 2:
            array = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, d["shape"])
        else:
            array = rng.integers(0, 3, d["shape"])
        array = np.asarray(array).astype(kind)
        machine.set_tensor(d["index"], array)
        inputs.append((array.ravel().tolist(), list(array.shape), litert.KINDS[kind]))
    machine.invoke()
    outputs = [machine.get_tensor(d["index"]) for d in machine.get_output_details()]
    if not any(np.any(o) for o in outputs) and sum(o.size for o in outputs) >= TELLING:
        raise ValueError("nothing but zeros")
    return inputs, [(a.ravel().tolist(), list(a.shape), litert.KINDS[a.dtype]) for a in outputs]


def known(file, with_litert):
    """(where it is from, inputs, outputs), or None."""
    npz = file.with_name(file.name + ".ref.npz")
    if npz.exists():
        return ("npz", *from_npz(npz))
    if list(file.parent.glob(f"{file.stem}_golden_*.csv")):
        return ("csv", *from_csv(file))
    if with_litert:
        try:
            return ("litert", *from_litert(file))
        except (RuntimeError, ValueError, KeyError) as reason:
            return ("litert declines: " + " ".join(str(reason).split())[:100], [], [])
    return None


def dims_of(described):
    """The fixed dims of `f32[1, 8]`."""
    return [int(d) for d in described.partition("[")[2].rstrip("]").split(",") if d.strip().lstrip("-").isdigit()]


def compare(wanted, file, steps):
    """("" or what is wrong, how many integers are off)."""
    values, _, kind = models.read_npy(file.read_bytes())
    expected, _, expected_kind = wanted
    if kind != expected_kind or len(values) != len(expected):
        return f"{file.stem}: {len(values)} values of {kind} instead of {len(expected)} of {expected_kind}", 0
    if kind in models.FLOATS:
        margin = OF_LARGEST * max((abs(v) for v in expected), default=0)
        worst = max((abs(a - b) for a, b in zip(values, expected)), default=0)
        return ("" if worst <= margin else f"{file.stem}: {worst:.3g} off, the largest value is {margin / OF_LARGEST:.3g}"), 0
    worst = max((abs(a - b) for a, b in zip(values, expected)), default=0)
    off = sum(1 for a, b in zip(values, expected) if a != b)
    if worst > steps:
        return f"{file.stem}: {worst} steps off, {off} of {len(expected)} differ", off
    if steps > 1 and expected and expected[values.index(max(values))] != max(expected) and len(expected) <= CLASSES:
        return f"{file.stem}: another winner", off
    return "", off


def visit(quench, file, with_litert):
    """A row: {"import", "compile", "match"}, each "ok" or what was said."""
    row = {"import": "", "compile": "", "match": "", "nodes": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            summary = json.loads(judge.command([quench, "import", file, "--format", "json"]))
            row |= {"import": "ok", "nodes": summary["nodes"], "state": sum("state" in k for k in summary.get("metadata", {}))}
            library = judge.compile_model(quench, file, folder / "compiled")
            row["compile"] = "ok"
            reference = known(file, with_litert)
            if reference is None or not reference[2]:
                row["match"] = "no reference" if reference is None else reference[0]
                return row
            source, inputs, outputs = reference
            row["source"] = source
            feeds = {}
            for i, described in enumerate(summary["inputs"]):
                if i < len(inputs):
                    values, shape, kind = inputs[i]
                else:  # state, behind the model's own inputs
                    shape, kind = dims_of(described["type"]), LETTERS[described["type"].partition("[")[0]]
                    begin = float(summary["metadata"].get(f"state_initial.{described['name']}", 0))
                    values = [begin if kind in models.FLOATS else int(begin)] * math.prod(shape)
                feeds[described["name"]] = folder / f"in{i}.npy"
                shape = dims_of(described["type"]) if shape is None else shape
                models.write_npy(feeds[described["name"]], values, shape, kind)
            files = judge.run(quench, library, feeds, folder / "result")
            steps = STEPS[summary["nodes"] <= 3]
            results = [compare(o, f, steps) for o, f in zip(outputs, files)]
            if source == "npz" and with_litert and any(w for w, _ in results):  # another runtime said so: LiteRT decides
                row["source"] = "litert on npz"
                results = [compare(o, f, steps) for o, f in zip(from_litert(file, inputs)[1], files)]
            wrong = [w for w, _ in results if w]
            row["match"] = wrong[0] if wrong else "ok" if len(files) >= len(outputs) else f"{len(files)} outputs instead of {len(outputs)}"
            row["off"] = sum(off for _, off in results)
        except judge.Failed as failed:
            stage = next(s for s in ("import", "compile", "match") if not row[s])
            row[stage] = f"{failed.verdict.kind}: {failed.verdict.reason}"
        except (ValueError, KeyError, zipfile.BadZipFile) as problem:
            row["match"] = f"unreadable reference: {problem!r}"
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--corpus", type=pathlib.Path, default=os.environ.get("QUENCH_CORPUS", HERE.parents[2].parent / "shared" / "corpus"))
    parser.add_argument("--litert", action="store_true", help="compare files without a reference with LiteRT")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quiet", action="store_true", help="only rows of files where something is wrong")
    parser.add_argument("pattern", nargs="?", default="*")
    args = parser.parse_args()
    files = sorted(f for f in args.corpus.glob("**/*.tflite") if fnmatch.fnmatch(str(f), f"*{args.pattern}*"))
    if not files:
        print(f"skipped: no TensorFlow Lite files in {args.corpus}")
        return SKIPPED
    totals = collections.Counter()
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    for file, row in zip(files, pool.map(lambda f: visit(args.quench, f, args.litert), files)):
        state = next((s for s in ("import", "compile", "match") if row[s] != "ok"), "match")
        fine = row["import"] == row["compile"] == "ok" and (row["match"] in ("ok", "no reference") or row["match"].startswith("litert declines"))
        for stage in ("import", "compile", "match"):
            totals[stage] += row[stage] == "ok"
        totals["wrong"] += row["compile"] == "ok" and not fine
        if not fine or not args.quiet:
            said = f"ok {row.get('source', '')} {row.get('off') or ''}" if row[state] == "ok" else f"{state}: {row[state]}"
            print(f"{file.relative_to(args.corpus)}\t{said}", flush=True)
    print(f"{len(files)} files: {totals['import']} import, {totals['compile']} compile, {totals['match']} match what is known of them, "
          f"{totals['wrong']} do not")
    return 1 if totals["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
