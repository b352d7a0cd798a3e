"""Targets that models can be compiled for: names of CPUs, boards and phones."""

from __future__ import annotations

import json
import subprocess
from typing import Literal, Union, overload

from quench._server import program
from quench.errors import QuenchError

Tags = Union[list[str], list[tuple[str, str]]]


def _listed(kind: str, verbose: bool) -> Tags:
    done = subprocess.run([program(), "targets", "--kind", kind, "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise QuenchError(done.stderr.strip())
    targets = json.loads(done.stdout)
    if not verbose:
        return [str(each["name"]) for each in targets]
    return [(str(each["name"]), "; ".join(each["strings"])) for each in targets]


@overload
def list_target_tags(verbose: Literal[False] = ...) -> list[str]: ...
@overload
def list_target_tags(verbose: Literal[True]) -> list[tuple[str, str]]: ...
def list_target_tags(verbose: bool = False) -> Tags:
    """Names that IR.compile takes as a target; with `verbose` pairs of each and the target strings that it stands for. The program
    `quench` lists them, which QUENCH_BIN names or PATH has."""
    return _listed("all", verbose)


def list_x86_tags(verbose: bool = False) -> Tags:
    """Targets that are x86 CPUs."""
    return _listed("x86", verbose)


def list_arm_tags(verbose: bool = False) -> Tags:
    """Targets that are Arm CPUs and boards."""
    return _listed("arm", verbose)


def list_android_tags(verbose: bool = False) -> Tags:
    """Targets that are phones."""
    return _listed("android", verbose)


def list_cuda_tags(verbose: bool = False) -> Tags:
    """Targets that are NVIDIA GPUs: `cuda`, its architectures, cards and boards."""
    return _listed("cuda", verbose)
