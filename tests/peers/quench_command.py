"""quench as a command, for the scripts that compare what it compiles: its output, a run of a library, and speeds in turns."""

import json
import statistics
import subprocess


class Refused(Exception):
    """The output of quench when it exited with an error."""


def command(*words, timeout=900):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise Refused(f"{' '.join(map(str, words[:3]))}: {' '.join(done.stderr.split())[:600] or f'exit {done.returncode}'}")
    return done.stdout


def interface(quench, library):
    """(names of inputs, names of outputs) of a library."""
    told = json.loads(command(quench, "inspect", library, "--format", "json"))
    return [i["name"] for i in told["inputs"]], [o["name"] for o in told["outputs"]]


def run(quench, library, values, folder):
    """Outputs in their order, of arrays for the inputs in theirs; files go to `folder`."""
    import numpy

    inputs, outputs = interface(quench, library)
    words = []
    for i, (name, value) in enumerate(zip(inputs, values, strict=True)):
        numpy.save(folder / f"in{i}.npy", value)
        words += ["--input", f"{name}={folder / f'in{i}.npy'}"]
    command(quench, "run", library, *words, "--output", folder / "results")
    return [numpy.load(folder / "results" / f"{name}.npy") for name in outputs]


def kernels(quench, library, metadata):
    """The kernel of each step, as `bench --profile` has them."""
    told = command(quench, "bench", library, "--profile", "--format", "json", "--seconds", 0.1, "--metadata", metadata)
    return [step["kernel"] for step in json.loads(told)["kernels"]]


def speeds(quench, libraries, rounds, seconds):
    """Median milliseconds of a run of each {name: library}, taken in turns."""
    times = {name: [] for name in libraries}
    for _ in range(rounds):
        for name, library in libraries.items():
            times[name].append(json.loads(command(quench, "bench", library, "--seconds", seconds, "--format", "json"))["median_ms"])
    return {name: round(statistics.median(values), 3) for name, values in times.items()}
