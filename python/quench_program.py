"""The command `quench` of a wheel: becomes the program that the wheel brings, without loading the package first."""

import os
import pathlib
import sys


def main() -> None:
    program = str(pathlib.Path(__file__).resolve().parent / "quench/bin/quench")
    os.execv(program, [program, *sys.argv[1:]])
