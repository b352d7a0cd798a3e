"""Compares every operator with ONNX Runtime on random attributes, shapes, types and opsets, and the networks of bench/models, made tiny.

Usage: python3 -m peer --harness build/release/bin/quench_conformance --quench build/release/bin/quench [--cases N] [--seed S] [--only OP,OP]
(from tests/conformance; needs onnx, onnxruntime and numpy)

Each case is a small model; ONNX Runtime, unoptimised, says what is right; the harness runs it interpreted and compiled at levels 0 and 3.
Failed cases stay in WORK/cases/OPERATOR_NUMBER, and the same seed draws the same cases. An operator of `quench ops` with neither a
generator nor a row in exclusions.tsv is a failure.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

SKIPPED = 77  # what ctest takes for "skipped"
HERE = pathlib.Path(__file__).resolve().parent

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
except ImportError as problem:
    print(f"skipped: no ONNX Runtime to compare with: {problem}")
    sys.exit(SKIPPED)

from . import control, elementwise, movement, networks, nn, quantized, reductions, spectral  # noqa: F401: they register generators
from .case import GENERATORS, Case, Excluded

NEWEST_OPSET = 26  # that ONNX Runtime 1.23 and later read
NETWORK = "network"  # stands where operators have their domain
DRAWS = 40  # for one accepted case, before the generator counts as broken


def read_exclusions():
    rows = [line.split("\t") for line in (HERE / "exclusions.tsv").read_text().splitlines() if line and not line.startswith("#")]
    return dict(rows)


def newest_opset():
    """The newest opset that both the installed onnx and the installed ONNX Runtime know."""
    options = quiet()
    for opset in range(min(NEWEST_OPSET, onnx.defs.onnx_opset_version()), 16, -1):
        try:
            ort.InferenceSession(trivial_model(opset), options, providers=["CPUExecutionProvider"])
            return opset
        except Exception:  # an older release
            continue
    raise SystemExit("peer: this ONNX Runtime reads no opset from 17 on")


def trivial_model(opset):
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [1])], [value("y", 1, [1])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model.SerializeToString()


def quiet():
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def known_dims(shape, array):
    """The shape that ONNX Runtime infers; what it does not know stays open."""
    if len(shape) != array.ndim:
        return None if array.ndim else []
    return [d if isinstance(d, int) and d == array.shape[i] else None for i, d in enumerate(shape)]


def run_peer(case):
    """[(name, dims, array)] of every output; raises what ONNX Runtime raises."""
    session = ort.InferenceSession(case.model().SerializeToString(), quiet(), providers=["CPUExecutionProvider"])
    arrays = session.run(case.outputs, {name: array for name, array, _ in case.inputs})
    shapes = {o.name: o.shape for o in session.get_outputs()}
    return [(n, None if case.chance(0.3) else known_dims(shapes[n], np.asarray(a)), np.asarray(a)) for n, a in zip(case.outputs, arrays)]


def label(key):
    """The name of this operator's cases."""
    domain, op = key
    return f"{domain}.{op}" if domain else op


def draw(key, folder, seed, count, newest, exclusions):
    """Writes `count` cases of one operator; (written, Counter of what was excluded, Counter of what ONNX Runtime declined)."""
    ort.set_default_logger_severity(4)
    domain, op = key
    excluded, declined, written = collections.Counter(), collections.Counter(), 0
    for index in range(count):
        for attempt in range(DRAWS):
            case = None
            try:
                case = Case(domain, op, f"{seed}/{label(key)}/{index}/{attempt}", newest, exclusions)
                GENERATORS[key](case)
                results = run_peer(case)
            except Excluded as reason:
                excluded[str(reason)] += 1
            except (KeyError, AttributeError, TypeError, IndexError, NameError, AssertionError):
                raise
            except Exception as reason:
                declined[f"opset {case.opset if case else '?'}: " + " ".join(str(reason).split())[:300]] += 1
            else:
                case.save(folder / f"{label(key)}_{index:04d}", results)
                written += 1
                break
    return written, excluded, declined


def draw_network(name, folder):
    ort.set_default_logger_severity(4)
    networks.draw(name, folder / f"{label((NETWORK, name))}_0000", quiet())
    return 1, collections.Counter(), collections.Counter()


def uncovered(quench, exclusions):
    listed = json.loads(subprocess.run([quench, "ops", "--format", "json"], check=True, capture_output=True, text=True).stdout)
    drawn = {op for _, op in GENERATORS}
    catalogue = sorted({o["operator"] for o in listed} - {""})
    return [op for op in catalogue if op not in drawn and op not in exclusions]


def judge(harness, folder, results, jobs):
    subprocess.run([harness, "--data", folder, "--manifest", results, "--update", "--jobs", str(jobs), "--of-largest", "1e-5"], check=False,
                   stdout=subprocess.DEVNULL)
    if not results.exists():
        raise SystemExit(f"peer: {harness} wrote no results")
    rows = [line.split("\t") for line in results.read_text().splitlines() if not line.startswith("#")]
    return {name: (interpreted, compiled) for name, interpreted, compiled in rows}


def write_report(verdicts):
    """One test per operator where scripts/test looks for GoogleTest's results: (operator, failures, reason to skip)."""
    kind, _, folder = os.environ.get("GTEST_OUTPUT", "").partition(":")
    if kind != "xml":
        return
    suite = ElementTree.Element("testsuite", name="quench_peer")
    for op, failures, skip in verdicts:
        test = ElementTree.SubElement(suite, "testcase", name=op, status="run")
        if skip:
            ElementTree.SubElement(test, "skipped", message=f"quench_peer {op}: {skip}")
        elif failures:
            ElementTree.SubElement(test, "failure", message="\n".join(failures))
    ElementTree.ElementTree(suite).write(pathlib.Path(folder) / "quench_peer.xml")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--harness", required=True)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--cases", type=int, default=4 if os.environ.get("QUENCH_FULL") else 2, help="per operator")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="", help="operators and networks, separated by commas")
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parents[2] / "build" / "peer")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="also why ONNX Runtime declined what it declined")
    args = parser.parse_args()
    start = time.monotonic()
    exclusions, newest = read_exclusions(), newest_opset()
    wanted, pattern = set(filter(None, args.only.split(","))), os.environ.get("QUENCH_TEST_PATTERN", "").lower()
    known = sorted(GENERATORS, key=lambda k: (k[1], k[0])) + [(NETWORK, name) for name in networks.names()]
    keys = [k for k in known if (not wanted or k[1] in wanted) and pattern in k[1].lower()]
    if not keys:
        print(f"skipped: no operator matches `{args.only or pattern}`")
        return SKIPPED
    cases = args.work / "cases"
    shutil.rmtree(args.work, ignore_errors=True)
    cases.mkdir(parents=True)
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        futures = [pool.submit(draw_network, k[1], cases) if k[0] == NETWORK else
                   pool.submit(draw, k, cases, args.seed, args.cases, newest, exclusions) for k in keys]
        drawn = {k: f.result() for k, f in zip(keys, futures)}
    drawn_seconds = time.monotonic() - start
    results = judge(args.harness, cases, args.work / "results.tsv", args.jobs)
    verdicts, excluded = [], collections.Counter()
    if not wanted and not pattern:
        missing = uncovered(args.quench, exclusions)
        verdicts += [(op, ["in `quench ops`, but with neither generator nor exclusion"], "") for op in missing]
        verdicts += [(op, [], reason) for op, reason in exclusions.items() if ":" not in op]
    print(f"{'operator':<40} {'cases':>5} {'failed':>6}")
    for key in keys:
        op, (written, left_out, declined) = label(key), drawn[key]
        excluded.update(left_out)
        mine = {n: v for n, v in results.items() if n.rsplit("_", 1)[0] == op}
        failures = []
        if written < args.cases and key[0] != NETWORK:
            reason = (declined.most_common(1) or [("nothing but exclusions", 0)])[0][0]
            failures.append(f"{written} of {args.cases} cases could be drawn; ONNX Runtime: {reason}")
        if len(mine) != written:
            failures.append(f"{len(mine)} of {written} cases were run")
        for name, (interpreted, compiled) in sorted(mine.items()):
            if (interpreted, compiled) == ("pass", "pass"):
                shutil.rmtree(cases / name)
            else:
                failures.append(f"{name}: " + (f"interpreted: {interpreted}" if interpreted != "pass" else f"compiled: {compiled}"))
        print(f"{op:<40} {written:>5} {len(failures):>6}")
        if args.verbose:
            for reason, count in declined.most_common(4):
                print(f"    declined {count}: {reason}")
        verdicts.append((op, failures, ""))
    for row, count in sorted(excluded.items()):
        if row in exclusions:
            print(f"excluded {count}: {row}: {exclusions[row]}")
    for op, failures, _ in verdicts:
        for line in failures:
            print(f"FAIL {op}: {line}")
    failed = sum(1 for _, failures, _ in verdicts if failures)
    if failed:
        print(f"the failing cases are in {cases}; --seed {args.seed} draws them again")
    write_report(verdicts)
    print(f"{sum(w for w, _, _ in drawn.values())} cases of {len(keys)} operators and networks against ONNX Runtime {ort.__version__} up to opset {newest}, "
          f"seed {args.seed}: {failed} of them fail; drawn in {drawn_seconds:.0f} s, run in {time.monotonic() - start - drawn_seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
