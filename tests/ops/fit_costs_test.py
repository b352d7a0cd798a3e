#!/usr/bin/env python3
"""bench/kernels/fit_costs.py: from tiles whose cycles follow a row, that row; refusals of what no program printed."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import support



def python_with_numpy():
    """scripts/test's own environment has it, and maybe the system."""
    for python in (support.ROOT / "build/peer-venv/bin/python", pathlib.Path(sys.executable)):
        if python.exists() and subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
            return str(python)
    print("skipped: no numpy (Debian's package `python3-numpy`)")
    sys.exit(support.SKIPPED)


PYTHON = python_with_numpy()
SCRIPT = support.ROOT / "bench/kernels/fit_costs.py"
SHAPES = [(pixels, vectors) for vectors in (1, 2, 3, 4) for pixels in (1, 2, 4, 6, 8, 12, 14, 28)
          if pixels * vectors <= 28]
STEPS = (16, 64, 256, 1024)
EXACT = (2, 4, 2, 0.05, 0.25, 10, 0.5)


def cycles(row, pixels, vectors, steps):
    multiply_adds, latency, loads, pixel, vector, start, end = row
    bound = max(pixels * vectors / multiply_adds, (pixels + vectors) / loads, latency)
    return steps * (bound + pixel * pixels + vector * vectors) + start + end * pixels * vectors


def measured(row, factor=1.0, **others):
    """The output of bench_kernels on a core with this row, its cycles times `factor`."""
    tiles = [{"pixels": pixels, "vectors": vectors, "steps": steps,
              "cycles": factor * cycles(row, pixels, vectors, steps)} for pixels, vectors in SHAPES for steps in STEPS]
    return {"cpu": "any", "fma": True, "multiply_by_lane": False, "multiply_adds": 1.03 * row[0],
            "latency": 0.97 * row[1], "gflops": 231.4, "gbytes": 12.6, "tiles": tiles} | others


class FitCosts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def fit(self, *runs):
        paths = []
        for i, run in enumerate(runs):
            paths.append(self.folder / f"{i}.json")
            paths[-1].write_text(run if isinstance(run, str) else json.dumps(run))
        return subprocess.run([PYTHON, SCRIPT, *paths], capture_output=True, text=True)

    def row(self, *runs):
        done = self.fit(*runs)
        self.assertEqual(0, done.returncode, done.stderr)
        name, numbers = re.match(r'QUENCH_CORE\("(\w+)", (.*)\)', done.stdout).groups()
        self.assertEqual("any", name)
        return [float(number) for number in numbers.split(", ")]

    def test_the_row_that_the_cycles_follow(self):
        self.assertEqual([*EXACT, 231, 13], self.row(measured(EXACT)))

    def test_the_number_of_loads(self):
        core = (1, 4, 1, 0.02, 0.1, 20, 1)
        tiles = self.row(measured(core))
        self.assertEqual([1, 4, 1], tiles[:3])

    def test_costs_are_never_negative(self):
        self.assertTrue(all(number >= 0 for number in self.row(measured((2, 4, 2, -0.05, -0.1, -20, -1)))))

    def test_medians_of_several_runs(self):
        self.assertEqual([*EXACT, 231, 13], self.row(measured(EXACT), measured(EXACT, 3), measured(EXACT, 0.9)))

    def test_errors_are_said(self):
        lines = self.fit(measured(EXACT)).stdout.splitlines()
        self.assertRegex(lines[1], r"^the row +errors: 0\.\d % root mean square")
        self.assertRegex(lines[2], r"^first row +errors: \d+\.\d % root mean square")

    def test_refusals(self):
        other = measured(EXACT, cpu="other")
        short = measured(EXACT)
        del short["tiles"][3:]
        for runs, message in (
            (["{"], "not what `bench_kernels --tiles` prints"),
            (["{}"], "not what `bench_kernels --tiles` prints: KeyError: 'cpu'"),
            ([measured(EXACT), other], "the files are of different CPUs: any, other"),
            ([measured(EXACT), short], "the files have different tiles"),
            ([short], "no tile has enough sums"),
        ):
            done = self.fit(*runs)
            self.assertEqual(1, done.returncode, done.stdout)
            self.assertIn(message, done.stderr)

    def test_help(self):
        done = subprocess.run([PYTHON, SCRIPT, "--help"], capture_output=True, text=True)
        self.assertEqual(0, done.returncode)
        self.assertIn("cores.def", done.stdout)


if __name__ == "__main__":
    support.main("ops_fit_costs")
