#!/usr/bin/env python3
"""Commands in README, docs/ and --help: every option exists, and every console listing is what the program prints.

Usage: docs_commands_test.py BUILD_DIR
"""

import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import support

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else support.ROOT / "build/release").resolve()
QUENCH = BUILD / "bin/quench"
ROOT = support.ROOT
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PATIENCE = 300  # seconds: sanitizers and busy machines
QUOTED = re.compile(r'"[^"]*"|\'[^\']*\'')  # a value: target strings have options of their own
OPTION = re.compile(r"(?<![\w-])(--?[a-z][\w-]*)")


@functools.cache
def help_of(*words):
    done = subprocess.run([QUENCH, *words, "--help-all"], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise AssertionError(f"quench {' '.join(words)} --help-all: {done.stderr}")
    return done.stdout


def subcommands(text):
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
    return re.findall(r"^  ([\w-]+)", listed[1], re.M) if listed else []


def options(text):
    """Options that a help text declares: those of its lists, not those of its examples."""
    declared = text.partition("\nExamples:")[0]
    return {name for line in re.findall(r"^  +(-\w, --[\w-]+|--[\w-]+)", declared, re.M) for name in line.split(", ")}


def invocations(text):
    """(words of the command, options) of each `quench COMMAND ...` in a text; "" and unknown words are somebody else's."""
    commands = subcommands(help_of())
    for found in re.finditer(r"\bquench ((?:(?! quench |[`\n]).)+)", text):
        words = found[1].split()
        if words[0] not in commands:
            continue
        path = [words[0]]
        if len(words) > 1 and words[1] in subcommands(help_of(words[0])):
            path.append(words[1])
        yield tuple(path), OPTION.findall(QUOTED.sub("", found[1]))


def problems_of(text, where):
    problems = []
    for path, used in invocations(text):
        known = options(help_of(*path)) | {"--help", "--version"}
        problems += [f"{where}: `quench {' '.join(path)}` has no option `{option}`" for option in used
                     if option not in known and option != "--no-PASS"]
    return problems


def every_command():
    for command in subcommands(help_of()):
        yield (command,)
        for each in subcommands(help_of(command)):
            yield (command, each)


def listings(path):
    """(line, commands and what they print) of each console block of a page."""
    text = path.read_text()
    for block in re.finditer(r"^```console\n(.*?)^```$", text, re.M | re.S):
        yield text[:block.start()].count("\n") + 1, block[1]


def missing_part(shown, printed):
    """The first part of `shown` that `printed` does not have where it should; "" if it has all. `...` stands for anything
    in a line, and, alone on a line, for any number of lines."""
    parts = [[]]
    for line in shown.splitlines():
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(re.compile(re.escape(line).replace(re.escape("..."), ".*")))
    lines, at = printed.splitlines(), 0
    for number, part in enumerate(parts):
        first, last = number == 0, number == len(parts) - 1
        starts = [0] if first else [len(lines) - len(part)] if last and part else range(at, len(lines) - len(part) + 1)
        start = next((start for start in starts if start >= at and len(lines) - start >= len(part)
                      and all(each.fullmatch(line) for each, line in zip(part, lines[start:]))), None)
        if start is None or (first and last and len(part) != len(lines)):
            return "\n".join(each.pattern for each in part) or "the end"
        at = start + len(part)
    return ""


class Options(unittest.TestCase):
    maxDiff = None

    def test_of_commands_in_pages(self):
        found = [problem for path in PAGES for problem in problems_of(path.read_text(), path.name)]
        self.assertEqual([], found)

    def test_of_commands_in_examples(self):
        found = [problem for command in every_command()
                 for problem in problems_of(help_of(*command).partition("\nExamples:")[2], f"quench {' '.join(command)} --help")]
        self.assertEqual([], found)

    def test_of_prose(self):
        """Options in backticks belong to some command or script."""
        known = {"--no-PASS", "--version"}.union(*(options(help_of(*command)) for command in every_command()))
        for script in (ROOT / "scripts").iterdir():
            if script.is_file():
                known |= set(OPTION.findall(script.read_text()))
        found = [f"{path.name}: {option}" for path in PAGES
                 for span in re.findall(r"`(--[^`]+)`", path.read_text()) for option in OPTION.findall(span) if option not in known]
        self.assertEqual([], found)

    def test_pages_name_every_command(self):
        readme = (ROOT / "README.md").read_text()
        self.assertEqual([], [name for name in subcommands(help_of()) if not re.search(rf"\bquench {name}\b", readme)])


class Listings(unittest.TestCase):
    maxDiff = None

    def check(self, listing, folder, where):
        environment = {**os.environ, "PATH": f"{QUENCH.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": f"{folder}/cache"}
        for shown in re.split(r"^\$ ", listing, flags=re.M)[1:]:
            command, _, expected = shown.partition("\n")
            done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(0, done.returncode, f"{where}: {command}\n{done.stderr}")
            missing = missing_part(expected, done.stdout)
            self.assertEqual("", missing, f"{where}: `{command}` does not print this there, but\n{done.stdout[:4000]}")

    def test_print_what_they_show(self):
        """Listings of a page follow one another in one folder."""
        for path in PAGES:
            found = list(listings(path))
            with tempfile.TemporaryDirectory() as folder:
                for model in (ROOT / "bench/models").glob("*.onnx"):
                    (pathlib.Path(folder) / model.name).symlink_to(model)
                for line, listing in found:
                    with self.subTest(page=path.name, line=line):
                        self.check(listing, folder, f"{path.name}:{line}")

    def test_there_are_some(self):
        self.assertGreater(len(list(listings(ROOT / "docs/compiler.md"))), 3)

    def test_matching(self):
        printed = "a\nb 1\nc\nd\n"
        for shown in ("a\nb 1\nc\nd\n", "...\nd\n", "a\n...\n", "...\nb ...\n...\nd\n", "...\n"):
            self.assertEqual("", missing_part(shown, printed), shown)
        for shown in ("a\n", "b 1\n...\n", "...\nc\n", "...\nb 2\n...\n", "...\nc\n...\nb 1\n...\n", "a\nb 1\nc\nd\ne\n", ""):
            self.assertNotEqual("", missing_part(shown, printed), shown)


class CPrograms(unittest.TestCase):
    """C and C++ that people copy compiles, and README's program runs."""

    NAMES = {"c": "float* pixels, float* cache, const int64_t* dims, uint64_t bytes, quench_rt_model* model, quench_rt_session* session",
             "cpp": "std::vector<float>& pixels"}

    def compile(self, text, language, where):
        """Statements may use NAMES and `error`, and declare their own in their place."""
        includes = "".join(f"#include <{header}>\n" for header in ("stdio.h", "stdint.h"))
        if language == "c":
            includes += '#include "common/runtime/quench_rt.h"\n'
        else:
            includes += '#include <cstdio>\n#include "common/runtime/quench.hpp"\n'
        program = f"{includes}quench_rt_error error;\nint shown({self.NAMES[language]}) {{\n{{\n{text}}}\nreturn 0;\n}}\n"
        compiler = ["gcc", "-std=c11"] if language == "c" else ["g++", "-std=c++17"]
        done = subprocess.run([*compiler, "-Werror", "-fsyntax-only", f"-I{ROOT}", "-x", "c" if language == "c" else "c++", "-"],
                              input=program, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual("", done.stderr, f"{where}:\n{program}")

    def test_pages(self):
        found = 0
        for path in PAGES:
            text = path.read_text()
            for block in re.finditer(r"^```(c|cpp)\n(.*?)^```$", text, re.M | re.S):
                line = text[:block.start()].count("\n") + 1
                with self.subTest(page=path.name, line=line):
                    self.compile(block[2], block[1], f"{path.name}:{line}")
                found += 1
        self.assertGreaterEqual(found, 4)

    def test_headers(self):
        for name, mark, language in (("quench_rt.h", " *   ", "c"), ("quench.hpp", "//   ", "cpp")):
            text = (ROOT / "common/runtime" / name).read_text().partition("#ifndef")[0]
            example = "".join(line[len(mark):] + "\n" for line in text.splitlines() if line.startswith(mark))
            self.assertIn("Output" if language == "cpp" else "get_output", example)
            with self.subTest(header=name):
                self.compile(example, language, name)

    def test_readme(self):
        section = (ROOT / "README.md").read_text().partition("## Using a compiled model from C\n")[2]
        commands = section.partition("```\n")[2].partition("```")[0]
        self.assertIn("examples/c/demo.c", commands)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("bench", "common", "examples"):
                (pathlib.Path(folder) / name).symlink_to(ROOT / name)
            environment = {**os.environ, "PATH": f"{QUENCH.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": f"{folder}/cache"}
            done = subprocess.run(["bash", "-ec", commands], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertIn("logits: f32[1, 10]", done.stdout)


if __name__ == "__main__":
    support.main("ops_docs_commands")
