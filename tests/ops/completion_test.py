#!/usr/bin/env python3
"""Completion of `quench` in shells, and its manual pages, as shells and man read them.

Usage: completion_test.py BUILD_DIR
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else support.ROOT / "build/release").resolve()
QUENCH = BUILD / "bin/quench"
PATIENCE = 120


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=PATIENCE, **options)


def script(shell):
    done = run(QUENCH, "completion", shell)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Bash(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def complete(self, *words):
        """The words that bash offers for the last one."""
        with open(pathlib.Path(self.folder.name, "script"), "w") as file:
            file.write(script("bash"))
        listed = " ".join(f"'{word}'" for word in words)
        done = run("bash", "-c", f"source ./script; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _quench; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                   cwd=self.folder.name)
        self.assertEqual("", done.stderr)
        return done.stdout.split()

    def test_commands(self):
        self.assertEqual(["compile", "compare", "completion"], self.complete("quench", "comp"))

    def test_subcommands(self):
        self.assertLessEqual({"create", "list", "watch"}, set(self.complete("quench", "workflow", "")))
        self.assertIn("--limit", self.complete("quench", "workflow", "list", "--li"))

    def test_options_of_the_command(self):
        self.assertEqual(["--export-metadata", "--export-ir"], self.complete("quench", "compile", "--exp"))

    def test_values(self):
        self.assertEqual(["int8", "int4"], self.complete("quench", "compile", "m.onnx", "--quantize", "int"))

    def test_files(self):
        pathlib.Path(self.folder.name, "net.onnx").touch()
        self.assertEqual(["net.onnx"], self.complete("quench", "compile", "net"))


class OtherShells(unittest.TestCase):
    def check(self, shell):
        if shutil.which(shell) is None:
            self.skipTest(f"there is no {shell} here")
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(script(shell))
            file.flush()
            done = run(shell, "-n", file.name)
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_zsh_reads_the_script(self):
        self.check("zsh")

    def test_fish_reads_the_script(self):
        self.check("fish")


class Manual(unittest.TestCase):
    def test_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(QUENCH, "man", "--output", folder)
            self.assertEqual(0, done.returncode, done.stderr)
            pages = sorted(path.name for path in pathlib.Path(folder).iterdir())
            self.assertLessEqual({"quench.1", "quench-compile.1", "quench-workflow.1"}, set(pages))
            if shutil.which("man") is None:
                self.skipTest("there is no man here")
            for page in pages:
                shown = run("man", "--warnings", "-l", pathlib.Path(folder, page), env={"MANWIDTH": "100", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
                self.assertEqual((0, ""), (shown.returncode, shown.stderr), page)
                self.assertIn("OPTIONS", shown.stdout, page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
