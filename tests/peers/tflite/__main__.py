"""Compares TensorFlow Lite's operators with LiteRT's reference kernels, on random options, shapes and types.

Usage: python3 -m tflite --quench build/release/bin/quench [--cases N] [--seed S] [--only OP,OP] [--modes f32,q8]
(from tests/peers; needs ai-edge-litert, numpy and flatc)

Each case is a small model, run interpreted and compiled. Failed cases stay in WORK/cases, and the same seed draws the same
cases. A builtin operator with neither a generator nor a row in exclusions.tsv is a failure.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import sys
import time

SKIPPED = 77  # what ctest takes for "skipped"
HERE = pathlib.Path(__file__).resolve().parent
LISTED = "STABLEHLO_"  # operators that are listed as unsupported as a whole; the composite has a generator

try:
    import ai_edge_litert
    import numpy  # noqa: F401: generators need it
except ImportError as problem:
    print(f"skipped: no LiteRT to compare with: {problem}")
    sys.exit(SKIPPED)

from . import draw, judge, report
from . import model as models
from .case import GENERATORS


def read_exclusions():
    rows = [line.split("\t") for line in (HERE / "exclusions.tsv").read_text().splitlines() if line and not line.startswith("#")]
    return dict(rows)


def uncovered(exclusions):
    return [op for op in sorted(models.builtins()) if op not in GENERATORS and op not in exclusions and not op.startswith(LISTED)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--flatc", default="flatc")
    parser.add_argument("--cases", type=int, default=3, help="per operator and mode")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="", help="operators, separated by commas")
    parser.add_argument("--modes", default="", help="of f32, q8, qu8, q16, hybrid, i32 ...")
    parser.add_argument("--interpret-only", action="store_true", help="compile nothing")
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parents[2] / "build" / "peer-tflite")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="also why LiteRT declined what it declined")
    return parser.parse_args()


def main():
    args = parse_arguments()
    start = time.monotonic()
    wanted, modes = set(filter(None, args.only.split(","))), set(filter(None, args.modes.split(",")))
    exclusions, pattern = read_exclusions(), os.environ.get("QUENCH_TEST_PATTERN", "").lower()
    operators = [o for o in sorted(GENERATORS) if (not wanted or o in wanted) and pattern in o.lower()]
    if not operators:
        print(f"skipped: no operator matches `{args.only or pattern}`")
        return SKIPPED
    shutil.rmtree(args.work, ignore_errors=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        drawn = dict(zip(operators, pool.map(lambda o: draw.draw(o, modes, args.seed, args.cases, args.flatc), operators)))
    drawn_seconds = time.monotonic() - start
    cases = [case for of_operator, _ in drawn.values() for case in of_operator]
    results = judge.judge_all(args.quench, args.flatc, cases, args.work / "cases", args.jobs, not args.interpret_only)
    verdicts = []
    if not wanted and not pattern:
        missing = uncovered(exclusions)
        verdicts += [(op, ["a builtin operator with neither generator nor exclusion"], "") for op in missing]
        verdicts += [(op, [], reason) for op, reason in exclusions.items() if ":" not in op]
    totals, excluded, steps = collections.Counter(), collections.Counter(), collections.Counter()
    print(f"{'operator':<32} " + " ".join(f"{kind:>13}" for kind in judge.KINDS))
    for operator in operators:
        of_operator, declined = drawn[operator]
        failures, counts, offs = [], collections.Counter(), collections.Counter()
        for case in of_operator:
            verdict = results[case["name"]]
            counts[verdict.kind] += 1
            if verdict.steps:
                offs[case["mode"]] += 1
            row = next((r for r in (operator, f"{operator}:{case['mode']}") if r in exclusions), None)
            if verdict.kind != "pass" and row:
                excluded[row] += 1
            elif verdict.kind != "pass":
                failures.append(f"{case['name']}: {verdict.kind}: {verdict.reason}")
                (args.work / "cases" / f"{case['name']}.json").write_text(json.dumps(case))
        drawn_modes = {case["mode"] for case in of_operator}
        failures += [f"LiteRT takes no case of {mode}: " + next((r for r in declined if r.startswith(mode + ":")), str(dict(declined)))
                     for mode in GENERATORS[operator][1] if mode not in drawn_modes and (not modes or mode in modes)]
        totals.update(counts)
        steps.update({f"{operator}:{mode}": n for mode, n in offs.items()})
        print(f"{operator:<32} " + " ".join(f"{counts[kind] or '':>13}" for kind in judge.KINDS))
        if args.verbose:
            for reason, count in declined.most_common(4):
                print(f"    declined {count}: {reason}")
        verdicts.append((operator, failures, ""))
    for row, count in sorted(excluded.items()):
        print(f"excluded {count}: {row}: {exclusions[row]}")
    if steps:
        print("one step off in cases of: " + ", ".join(f"{k} {n}" for k, n in sorted(steps.items())))
    for op, failures, _ in verdicts:
        for line in failures:
            print(f"FAIL {op}: {line}")
    failed = sum(1 for _, failures, _ in verdicts if failures)
    report.write("quench_peer_tflite", verdicts)
    version = getattr(ai_edge_litert, "__version__", "")
    print(f"{len(cases)} cases of {len(operators)} operators against LiteRT {version}, seed {args.seed}: "
          + ", ".join(f"{totals[k]} {k}" for k in judge.KINDS if totals[k])
          + f"; {failed} operators fail; drawn in {drawn_seconds:.0f} s, run in {time.monotonic() - start - drawn_seconds:.0f} s")
    if failed:
        print(f"the failing cases are in {args.work / 'cases'}; --seed {args.seed} draws them again")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
