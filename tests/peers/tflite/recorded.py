"""Runs recorded cases: small models, their inputs, and what LiteRT's reference kernels gave for them.

Usage: python3 -m tflite.recorded --quench build/release/bin/quench [PATTERN]
(from tests/peers; needs flatc and the standard library)

The cases are in tests/cases/tflite, a file for each operator. With QUENCH_UPDATE_GOLDENS=1 those of PATTERN are drawn anew, which takes LiteRT: of
each operator and mode the shortest of a few cases, of those that quench passes. The others are shown by the label peer-formats.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import tempfile

from . import judge, report

HERE = pathlib.Path(__file__).resolve().parent
CASES = HERE.parents[1] / "cases" / "tflite"
SEED, DRAWN = "recorded", 6  # cases of a mode of which the shortest is kept
LEAST_VALUES = 4  # of an output: shorter ones say little
LEFT_OUT = ("i64", "i16", "i8", "u8", "u16", "u32", "f64", "bool")  # modes of which one is recorded where the operator has no other


def text_of(case):
    return json.dumps(case, separators=(",", ":"))


def record(quench, flatc, jobs, pattern):
    try:
        from . import draw
    except ImportError as problem:
        print(f"tests/cases/tflite stays as it is: no LiteRT to ask: {problem}")
        return
    operators = [o for o in sorted(draw.GENERATORS) if pattern.lower() in o.lower()]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        drawn = list(pool.map(lambda o: draw.draw(o, (), SEED, DRAWN, flatc)[0], operators))
    cases = [case for of_operator in drawn for case in of_operator]
    with tempfile.TemporaryDirectory() as folder:
        verdicts = judge.judge_all(quench, flatc, cases, pathlib.Path(folder) / "cases", jobs)
    CASES.mkdir(exist_ok=True)
    for operator, of_operator in zip(operators, drawn):
        passed = [c for c in of_operator if verdicts[c["name"]].kind == "pass"]
        kept = []
        modes = draw.GENERATORS[operator][1]
        for mode in [m for m in modes if m not in LEFT_OUT] or modes[:1]:
            mine = sorted((c for c in passed if c["mode"] == mode), key=lambda c: len(text_of(c)))
            telling = [c for c in mine if max(len(o["values"]) for o in c["expected"]) >= LEAST_VALUES]
            kept += (telling or mine)[:1]
        file = CASES / f"{operator}.json"
        if kept:
            file.write_text("[\n" + ",\n".join(text_of(c) for c in kept) + "\n]\n")
        else:
            file.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--flatc", default="flatc")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("pattern", nargs="?", default=os.environ.get("QUENCH_TEST_PATTERN", ""))
    args = parser.parse_args()
    if os.environ.get("QUENCH_UPDATE_GOLDENS") == "1":
        record(args.quench, args.flatc, args.jobs, args.pattern)
    files = [f for f in sorted(CASES.glob("*.json")) if args.pattern.lower() in f.stem.lower()]
    if not files:
        print(f"skipped: no operator matches `{args.pattern}`")
        return 77
    operators = {f.stem: json.loads(f.read_text()) for f in files}
    with tempfile.TemporaryDirectory() as folder:
        cases = [case for of_operator in operators.values() for case in of_operator]
        verdicts = judge.judge_all(args.quench, args.flatc, cases, pathlib.Path(folder) / "cases", args.jobs)
    failures = {}
    for operator, of_operator in operators.items():
        failures[operator] = [f"{c['name']}: {v.kind}: {v.reason}" for c in of_operator if (v := verdicts[c["name"]]).kind != "pass"]
        for line in failures[operator]:
            print(f"FAIL {line}")
    report.write("quench_tflite", [(operator, lines, "") for operator, lines in failures.items()])
    print(f"{len(cases)} cases of {len(operators)} operators: {sum(map(len, failures.values()))} fail")
    return 1 if any(failures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
