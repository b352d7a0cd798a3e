#!/usr/bin/env python3
"""Puts the package `quench` together as a wheel has it: stage.py FOLDER [--compiler CC] [--programs DIR]

FOLDER/quench then has the modules, the project's version, the declarations of the runtime's headers as cffi takes them,
the descriptors of the wire contract, and the runtime, built from its sources: C11 that needs libc and threads alone.
With --programs, FOLDER/quench/bin has the compiler and the gateway of that folder, and FOLDER/quench_program.py is what the
command `quench` starts.
"""

import argparse
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "common/runtime"
HEADERS = ("abi.h", "quench_rt.h")


def version() -> str:
    """The project's, whose only place is CMakeLists.txt."""
    found = re.search(r"^project\(quench VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), flags=re.M)
    if found is None:
        raise SystemExit("stage.py: CMakeLists.txt has no line `project(quench VERSION ...`")
    return found[1]


def declarations() -> str:
    lines = []
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", (RUNTIME / header).read_text(), flags=re.S)
        text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.S)
        lines += [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(lines) + "\n"


# Names in a wheel and in the build, where `quench-remote` is `quench` with the calls to gateways in it.
PROGRAMS = {"quench": "quench-remote", "quench-serve": "quench-serve"}


def stage(folder: pathlib.Path, compiler: str = "cc", programs: pathlib.Path | None = None) -> pathlib.Path:
    package = folder / "quench"
    shutil.copytree(ROOT / "python/quench", package, ignore=shutil.ignore_patterns("__pycache__"))
    # Clients are generated from the contracts, which are not part of the package, and this build is not either.
    shutil.copytree(ROOT / "examples", package / "_examples", ignore=shutil.ignore_patterns("clients", "__pycache__"))
    (package / "_examples/CMakeLists.txt").unlink()
    (package / "_version").write_text(version() + "\n")
    (package / "_cdef.h").write_text(declarations())
    # Sets of descriptors, one behind the other, are one set.
    contracts = [ROOT / "tests/cases/proto" / name for name in ("upstream.binpb", "contracts.binpb")]
    (package / "_contracts.binpb").write_bytes(b"".join(path.read_bytes() for path in contracts))
    sources = sorted(RUNTIME.glob("*.c"))
    subprocess.run([compiler, "-std=c11", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-pthread", f"-I{ROOT}",
                    "-Wl,--strip-all", "-o", package / "libquench_rt.so", *sources, "-ldl"], check=True)
    if programs is not None:
        shutil.copy(ROOT / "python/quench_program.py", folder)
        (package / "bin").mkdir()
        for name, built in PROGRAMS.items():
            subprocess.run(["install", "-m", "755", "-s", programs / built, package / "bin" / name], check=True)
    return package


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=version())
    parser.add_argument("folder", type=pathlib.Path, help="where quench/ appears; it must not have one")
    parser.add_argument("--compiler", default="cc", help="a C compiler, of another machine too (default: cc)")
    parser.add_argument("--programs", type=pathlib.Path, help="has quench-remote and quench-serve (default: no programs)")
    arguments = parser.parse_args()
    print(stage(arguments.folder, arguments.compiler, arguments.programs))
