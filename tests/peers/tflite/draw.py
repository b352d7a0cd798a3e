"""Draws the cases of an operator."""

import collections
import multiprocessing
import pathlib
import tempfile

from . import control, elementwise, litert, movement, nn, reductions  # noqa: F401: they register generators
from . import model as models
from .case import GENERATORS

DRAWS = 30  # for one accepted case, before the generator counts as broken


def draw_cases(operator, wanted, seed, count, flatc):
    """(cases, Counter of why LiteRT declined others)."""
    function, modes, measured = GENERATORS[operator]
    cases, declined = [], collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "model.tflite"

        def build(model):
            models.write_models(flatc, {file: model})
            return file.read_bytes()

        for mode in (m for m in modes if not wanted or m in wanted):
            for index in range(count):
                for attempt in range(DRAWS):
                    try:
                        cases.append(litert.draw(function, measured, operator, mode, f"{seed}/{operator}/{mode}/{index}/{attempt}",
                                                 f"{operator}_{mode}_{index}", build))
                        break
                    except (RuntimeError, ValueError) as reason:  # LiteRT's
                        declined[f"{mode}: " + " ".join(str(reason).split())[:300]] += 1
    return cases, declined


def work_of_child(connection, arguments):
    litert.quiet()
    connection.send(draw_cases(*arguments))
    connection.close()


def draw(*arguments):
    """draw_cases in a process of its own: LiteRT may end it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=work_of_child, args=(theirs, arguments))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        child.join()
        return [], collections.Counter({f"LiteRT ended with {child.exitcode}": 1})
    finally:
        child.join()
