#!/usr/bin/env python3
"""Fits a row of services/codegen/targets/cores.def to measured tiles, on the CPU whose row it is.

Usage: build/release/bin/bench_kernels --tiles "llvm -mcpu=emeraldrapids" > tiles.json
       bench/kernels/fit_costs.py tiles.json...

Prints the row, how far its predictions are from the measurements, and how far those of the first row of cores.def are.
Medians of several files count: measure three times or more where other programs run. The last two numbers of the row,
the core's speeds, may be 0: then they are those of a common part.

The model is that of services/codegen/targets/core_costs.h. Multiply-adds a cycle and their latency are measured, the
number of loads is the one of a few that fits best, and the others are least squares of relative errors, none below 0.
Tiles of so few sums that multiply-adds wait for each other are left out: how much of their time overlaps with the next
tile depends on the length of the reduction, which the model does not know, and where there is a choice they are not
chosen. Needs numpy.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "services/codegen/targets/cores.def"
LOADS = (2, 1, 1.5, 2.5, 3, 4)  # a cycle; the first unless another one fits clearly better
CLEARLY = 0.97  # of the error
NAMES = ("multiply_adds", "latency", "loads", "pixel_load", "vector_load", "tile_start", "sum_end")


def default_row():
    text = re.search(r'QUENCH_CORE\("", ([^)]*)\)', TABLE.read_text()).group(1)
    return dict(zip(NAMES, map(float, text.split(","))))


def load(paths):
    """One measurement: medians over the files."""
    runs = []
    for path in paths:
        try:
            run = json.loads(pathlib.Path(path).read_text())
            for key in ("cpu", "fma", "multiply_by_lane", "multiply_adds", "latency", "gflops", "gbytes", "tiles"):
                run[key]
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"{path}: not what `bench_kernels --tiles` prints: {type(error).__name__}: {error}")
        runs.append(run)
    if len({run["cpu"] for run in runs}) > 1:
        sys.exit("the files are of different CPUs: " + ", ".join(sorted({run["cpu"] for run in runs})))
    merged = dict(runs[0])
    shapes = lambda run: [(tile["pixels"], tile["vectors"], tile["steps"]) for tile in run["tiles"]]
    if any(shapes(run) != shapes(merged) for run in runs):
        sys.exit("the files have different tiles: were they printed by one program?")
    for key in ("multiply_adds", "latency", "gflops", "gbytes"):
        merged[key] = statistics.median(run[key] for run in runs)
    merged["tiles"] = [same[0] | {"cycles": statistics.median(tile["cycles"] for tile in same)}
                       for same in zip(*(run["tiles"] for run in runs))]
    return merged


class Tiles:
    """Columns of the measured tiles, and what a row predicts for them."""

    def __init__(self, run):
        column = lambda key: np.array([tile[key] for tile in run["tiles"]], dtype=float)
        self.pixels, self.vectors, self.steps, self.cycles = map(column, ("pixels", "vectors", "steps", "cycles"))
        self.sums = self.pixels * self.vectors
        self.products = self.sums * (1 if run["fma"] else 2)
        self.full = self.products / rounded(run["multiply_adds"]) >= rounded(run["latency"])
        self.loaded = (self.pixels / 4 if run["multiply_by_lane"] else self.pixels) + self.vectors

    def bound(self, row):
        at_least = np.full(len(self.sums), row["latency"])
        return np.maximum.reduce([self.products / row["multiply_adds"], self.loaded / row["loads"], at_least])

    def predict(self, row):
        per_step = self.bound(row) + row["pixel_load"] * self.pixels + row["vector_load"] * self.vectors
        return self.steps * per_step + row["tile_start"] + row["sum_end"] * self.sums

    def errors(self, row):
        return (self.predict(row) / self.cycles - 1)[self.full]


def rounded(value):
    """A rate or latency that hardware has: a whole number, if the measurement is within 8 % of one."""
    return round(value) if round(value) > 0 and abs(value / round(value) - 1) < 0.08 else round(value, 2)


def least_squares(columns, wanted):
    """Weights of the columns, none below 0: those that would be are left out, the lowest first."""
    weights = np.zeros(columns.shape[1])
    kept = list(range(columns.shape[1]))
    while kept:
        solved = np.linalg.lstsq(columns[:, kept], wanted, rcond=None)[0]
        if solved.min() >= 0:
            weights[kept] = solved
            break
        del kept[int(solved.argmin())]
    return weights


def fit(run):
    tiles = Tiles(run)
    best = None
    for loads in LOADS:
        row = {"multiply_adds": rounded(run["multiply_adds"]), "latency": rounded(run["latency"]), "loads": loads}
        columns = [tiles.steps * tiles.pixels, tiles.steps * tiles.vectors, np.ones(len(tiles.sums)), tiles.sums]
        wanted = tiles.cycles - tiles.steps * tiles.bound(row)
        relative = (np.stack([*columns, wanted], 1) / tiles.cycles[:, None])[tiles.full]
        weights = least_squares(relative[:, :-1], relative[:, -1])
        row |= dict(zip(NAMES[3:], map(float, weights)))
        error = float(np.sqrt(np.mean(tiles.errors(row) ** 2)))
        if best is None or error < CLEARLY * best[0]:
            best = error, row
    return best[1]


def row_text(run, row):
    numbers = ", ".join(f"{row[name]:.3g}" for name in NAMES)
    return f'QUENCH_CORE("{run["cpu"]}", {numbers}, {run["gflops"]:.0f}, {run["gbytes"]:.0f})'


def error_text(name, errors):
    return (f"{name:12} errors: {100 * np.sqrt(np.mean(errors**2)):.1f} % root mean square, "
            f"{100 * np.median(np.abs(errors)):.1f} % median, {100 * errors.min():+.0f} to {100 * errors.max():+.0f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="tiles.json", help="what `bench_kernels --tiles` printed")
    parser.add_argument("--tiles", action="store_true", help="list measured and predicted cycles of each tile")
    args = parser.parse_args()
    run = load(args.files)
    if not Tiles(run).full.any():
        sys.exit("no tile has enough sums to fit costs to: was `bench_kernels --tiles` cut short?")
    tiles, row, default = Tiles(run), fit(run), default_row()
    if args.tiles:
        print("pixels x vectors, steps: measured cycles, predicted by the row, by the first row")
        for i in range(len(tiles.sums)):
            print(f"{tiles.pixels[i]:2.0f} x {tiles.vectors[i]:.0f}, {tiles.steps[i]:4.0f}: {tiles.cycles[i]:8.0f} "
                  f"{tiles.predict(row)[i]:8.0f} {tiles.predict(default)[i]:8.0f}")
    print(row_text(run, row))
    print(error_text("the row", tiles.errors(row)))
    print(error_text("first row", tiles.errors(default)))


if __name__ == "__main__":
    main()
