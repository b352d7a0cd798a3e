#!/usr/bin/env python3
"""Puts the package `quench` together as a wheel has it: stage.py FOLDER [--compiler CC] [--programs DIR]

FOLDER/quench then has the modules, the project's version, the declarations of the runtime's headers as cffi takes them,
the descriptors of the wire contract, and the runtime, built from its sources: C11 that needs libc and threads alone.
`_compile_options.py` has the options of a compilation, from the rows of options.def.
With --programs, FOLDER/quench/bin has the compiler and the gateway of that folder, and FOLDER/quench_program.py is what the
command `quench` starts.
"""

import argparse
import ast
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


# Rows of options.def as Python's tuples, once the preprocessor has seen them.
OPTION_ROWS = r"""
#define kUsual False
#define kRare True
#define kNoLimit None
#define QUENCH_SWITCH(member, field, flag, keyword, group, rarity, uuid, help) \
  @ ("switch", #field, flag, keyword, help, uuid, None, None, None)
#define QUENCH_CONSENT(member, flag, keyword, group, rarity, uuid, help) \
  @ ("consent", #member, flag, keyword, help, uuid, None, None, None)
#define QUENCH_NUMBER(type, member, default, low, high, field, flag, value, keyword, group, rarity, uuid, help) \
  @ (#type, #field, flag, keyword, help, uuid, low, high, default)
#define QUENCH_CHOICE(type, member, default, flag, note, keyword, group, rarity, uuid, help) \
  @ ("choice", #member, flag, keyword, help, uuid, None, None, None)
#define QUENCH_CHOICE_VALUE(member, value, name, enumerator, uuid) @ (#member, name, #enumerator)
#define QUENCH_TEXT(member, field, flag, value, keyword, group, rarity, uuid, help) \
  @ ("text", #field, flag, keyword, help, uuid, None, None, None)
#define QUENCH_JSON(member, field, flag, value, keyword, group, rarity, uuid, help) \
  @ ("json", #field, flag, keyword, help, uuid, None, None, None)
#define QUENCH_NAMES(member, field, flag, value, keyword, group, rarity, uuid, help) \
  @ ("names", #field, flag, keyword, help, uuid, None, None, None)
#include "services/codegen/options/options.def"
"""
# Types of keywords; those of choices are texts.
TYPES = {"switch": "bool", "consent": "bool", "int": "int", "double": "Optional[float]", "json": "Optional[Mapping[str, Any]]", "names": "Iterable[str]"}
# Parameters of IR.compile itself.
PARAMETERS = ("opt_level", "set_channel_layout", "emit")


def compile_options(compiler: str) -> list[dict[str, object]]:
    """The rows of options.def: kind, field, flag, keyword, help, uuid, low, high, default, and choices: enumerators by name."""
    text = subprocess.run([compiler, "-E", "-P", "-xc", f"-I{ROOT}", "-"], input=OPTION_ROWS, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    rows: list[dict[str, object]] = []
    choices: dict[str, dict[str, str]] = {}
    for cells in (ast.literal_eval(part.strip()) for part in text.split("@")[1:]):
        if len(cells) == 3:
            choices.setdefault(cells[0], {}).update({cells[1]: cells[2]} if cells[1] else {})
        else:
            rows.append(dict(zip(("kind", "field", "flag", "keyword", "help", "uuid", "low", "high", "default"), cells)))
    for row in rows:
        row["choices"] = choices.get(str(row["field"]), {})
    return rows


def compile_options_module(compiler: str) -> str:
    rows = compile_options(compiler)
    lines = ['"""Options of IR.compile, from services/codegen/options/options.def: written by stage.py."""', "",
             "from __future__ import annotations", "", "from collections.abc import Iterable, Mapping",
             "from typing import Any, Optional, TypedDict", "", "",
             "class CompileOptions(TypedDict, total=False):",
             '    """Keywords of IR.compile beside its parameters; each with the option of `quench compile` that it is."""', ""]
    for row in rows:
        if row["keyword"] not in PARAMETERS:
            lines += [f"    # {row['flag']}: {row['help']}",
                      f"    {row['keyword']}: {TYPES.get(str(row['kind']), 'Optional[str]')}"]
    lines += ["", "", "# By keyword.", "ROWS: dict[str, dict[str, Any]] = {"]
    lines += [f"    {row['keyword']!r}: {({key: row[key] for key in ('kind', 'field', 'low', 'high', 'choices')})!r}," for row in rows]
    return "\n".join([*lines, "}", ""])


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
    (package / "_compile_options.py").write_text(compile_options_module(compiler))
    # Sets of descriptors, one behind the other, are one set.
    contracts = [ROOT / "tests/cases/proto" / name for name in ("upstream.binpb", "contracts.binpb")]
    (package / "_contracts.binpb").write_bytes(b"".join(path.read_bytes() for path in contracts))
    sources = sorted([*RUNTIME.glob("*.c"), *RUNTIME.glob("device/*.c")])
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
