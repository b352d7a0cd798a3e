#!/usr/bin/env python3
"""The version that CMakeLists.txt names is what the program, its libraries, the runtime's files and the Python package show.

Usage: version_test.py BUILD_DIR
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import support

ROOT = support.ROOT
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
VERSION = re.search(r"^project\(quench VERSION (\d+\.\d+\.\d+) ", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]


def said(*words, **options):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True, timeout=300, **options).stdout


class VersionTest(unittest.TestCase):
    def test_of_the_program(self):
        self.assertEqual(VERSION, said(BUILD / "bin/quench", "--version").strip())

    def test_of_a_library(self):
        with tempfile.TemporaryDirectory() as folder:
            said(BUILD / "bin/quench", "compile", ROOT / "bench/models/digits.onnx", "--check", "no", "--output", folder)
            described = said(BUILD / "bin/quench", "inspect", f"{folder}/model.so")
        self.assertRegex(described, rf"(?m)^ *producer +quench {re.escape(VERSION)}(,|$)")

    def test_of_the_runtime(self):
        installed = BUILD / "common/runtime/installed"
        self.assertIn(f"Version: {VERSION}\n", (installed / "quench_rt.pc").read_text())
        self.assertIn(f'set(PACKAGE_VERSION "{VERSION}")', (installed / "quench_rt-config-version.cmake").read_text())

    def test_of_the_python_package(self):
        with tempfile.TemporaryDirectory() as folder:
            said(sys.executable, ROOT / "python/stage.py", folder)
            # The interpreter that Debian's numpy and cffi belong to.
            shown = said("/usr/bin/python3", "-c", "import quench; print(quench.__version__)", env={**os.environ, "PYTHONPATH": folder})
        self.assertEqual(VERSION, shown.strip())
        self.assertNotRegex((ROOT / "python/pyproject.toml").read_text(), r'(?m)^version = "')

    def test_of_the_changelog(self):
        newest = re.search(r"^## \[(\S+)\] - (unreleased|\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
        self.assertEqual(VERSION, newest[1])


if __name__ == "__main__":
    support.main("ops_version")
