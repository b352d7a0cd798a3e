"""Runs cases through `quench` and says what came of each. Needs the standard library alone.

A case is {"name", "operator", "mode", "model" (see model.py), "feeds", "expected"}; feeds and expected outputs are lists of
{"name", "type", "shape", "values"}. Outputs with a "step" are quantized: they may be one step off.
"""

import concurrent.futures
import dataclasses
import json
import math
import pathlib
import shutil
import subprocess

from . import model as models

OF_LARGEST = 1e-5  # floats differ by at most so much of the output's largest value
SECONDS = 120  # that one run may take
KINDS = ("pass", "unsupported", "refused", "wrong numbers", "crash", "hang")


@dataclasses.dataclass
class Verdict:
    """The outcome of a case: one of KINDS, the first line that says why, and how many integers were one step off."""
    kind: str
    reason: str = ""
    steps: int = 0


class Failed(Exception):
    """Carries the verdict of a run that gave no outputs."""

    def __init__(self, kind, reason):
        super().__init__(reason)
        self.verdict = Verdict(kind, reason)


def command(arguments):
    """Standard output of a command of quench; Failed where it does not end well."""
    try:
        done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Failed("hang", f"`{arguments[1]}` took more than {SECONDS} s") from None
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    reason = " ".join(lines)[:400].removeprefix("quench: error: ")
    if done.returncode < 0 or "Sanitizer" in done.stderr or "CHECK failed" in done.stderr:
        raise Failed("crash", f"`{arguments[1]}` ended with {done.returncode}: {reason[-300:]}")
    raise Failed("unsupported" if "not supported" in reason or "unsupported" in reason else "refused", reason)


def describe_inputs(quench, file):
    """[{"name", "type"}] of the model as quench sees it."""
    return json.loads(command([quench, "import", file, "--format", "json"]))["inputs"]


def run(quench, program, feeds, folder):
    """Runs a model or a library on {name: .npy file}; the .npy files of its outputs, in their order."""
    shutil.rmtree(folder, ignore_errors=True)
    pairs = [part for name, file in feeds.items() for part in ("--input", f"{name}={file}")]
    printed = command([quench, "run", program, *pairs, "--output", folder])
    return [pathlib.Path(line.rsplit(" -> ", 1)[1]) for line in printed.splitlines() if " -> " in line]


def compile_model(quench, file, folder, level=3):
    command([quench, "compile", file, "--output", folder, "--force", "--opt-level", level])
    return folder / "model.so"


def compare(expected, file, of_largest=OF_LARGEST):
    """(what is wrong or "", how many integers are one step off)."""
    name = expected["name"]
    values, shape, kind = models.read_npy(file.read_bytes())
    wanted = expected["values"]
    if kind != expected["type"]:
        return f"`{name}` is {kind} instead of {expected['type']}", 0
    if shape != expected["shape"]:
        return f"`{name}` has shape {shape} instead of {expected['shape']}", 0
    if kind not in models.FLOATS:
        away = [abs(a - b) for a, b in zip(values, wanted)]
        allowed = expected.get("step", 0)
        bad = [i for i, d in enumerate(away) if d > allowed]
        return (f"`{name}`[{bad[0]}] is {values[bad[0]]} instead of {wanted[bad[0]]}; {len(bad)} of {len(away)} differ" if bad else "",
                sum(1 for d in away if d == 1) if allowed else 0)
    finite = [abs(v) for v in wanted if math.isfinite(v)]
    margin = of_largest * max(finite, default=0.0)
    bad = [i for i, (a, b) in enumerate(zip(values, wanted)) if not near(a, b, margin)]
    return (f"`{name}`[{bad[0]}] is {values[bad[0]]} instead of {wanted[bad[0]]}; {len(bad)} of {len(wanted)} differ" if bad else ""), 0


def near(a, b, margin):
    return (math.isnan(a) and math.isnan(b)) or a == b or abs(a - b) <= margin


def feed_files(quench, case, file, folder):
    """{name: .npy file} of a case's inputs; state, which quench makes inputs of, begins with zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    feeds = {}
    for i, feed in enumerate(case["feeds"]):
        feeds[feed["name"]] = folder / f"input_{i}.npy"
        models.write_npy(feeds[feed["name"]], feed["values"], feed["shape"], feed["type"])
    for state in case.get("state", []):
        if state["name"] in {i["name"] for i in describe_inputs(quench, file)}:
            feeds[state["name"]] = folder / f"{state['name']}.npy"
            models.write_npy(feeds[state["name"]], state["values"], state["shape"], state["type"])
    return feeds


def compare_all(case, files):
    """The verdict on a run's outputs, of which those of the case come first."""
    expected, steps = case["expected"], 0
    if len(files) < len(expected):
        return Verdict("wrong numbers", f"{len(files)} outputs instead of {len(expected)}")
    by_name = {f.stem: f for f in files}
    for output, file in zip(expected, files):
        wrong, off = compare(output, by_name.get(output["name"], file))
        if wrong:
            return Verdict("wrong numbers", wrong)
        steps += off
    return Verdict("pass", "", steps)


def judge(quench, case, file, folder, compiled=True):
    """Runs one case interpreted, then compiled."""
    try:
        feeds = feed_files(quench, case, file, folder)
        verdict = compare_all(case, run(quench, file, feeds, folder / "interpreted"))
        if verdict.kind != "pass" or not compiled:
            return dataclasses.replace(verdict, reason=f"interpreted: {verdict.reason}") if verdict.reason else verdict
        library = compile_model(quench, file, folder / "compiled")
        again = compare_all(case, run(quench, library, feeds, folder / "result"))
        return dataclasses.replace(again, reason=f"compiled: {again.reason}") if again.reason else again
    except Failed as failed:
        return failed.verdict


def judge_all(quench, flatc, cases, folder, jobs=2, compiled=True):
    """{name of a case: Verdict}. Passed cases leave no files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {case["name"]: folder / f"{case['name']}.tflite" for case in cases}
    models.write_models(flatc, {files[case["name"]]: case["model"] for case in cases})

    def one(case):
        place = folder / case["name"]
        verdict = judge(quench, case, files[case["name"]], place, compiled)
        if verdict.kind == "pass":
            shutil.rmtree(place, ignore_errors=True)
            files[case["name"]].unlink()
        return case["name"], verdict

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(one, cases))
