#!/usr/bin/env python3
"""scripts/test_summary: its closing line counts every test, and checks that are not tests, as what they are.
scripts/format --check: it fails where something is not formatted."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import support


class Summary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)
        (self.results / "asan").mkdir()

    def write(self, name, text):
        (self.results / name).write_text(text)

    def summary(self):
        done = subprocess.run([sys.executable, support.ROOT / "scripts/test_summary", self.results], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    def passing(self):
        self.write("asan/test_a.xml", '<testsuite><testcase name="x" status="run"/><testcase name="y" status="notrun"/></testsuite>')

    def test_all_passed(self):
        self.passing()
        self.assertEqual((0, ["1 passed, 0 failed, 0 skipped"]), self.summary())

    def test_failed_checks_are_failures(self):
        self.passing()
        self.write("failed_checks", "clang-tidy\nscripts/format --check\n")
        code, lines = self.summary()
        self.assertEqual(1, code)
        self.assertEqual(["failed: clang-tidy", "failed: scripts/format --check", "1 passed, 2 failed, 0 skipped"], lines)

    def test_skipped_checks_are_counted(self):
        self.passing()
        self.write("skipped_checks", "no ratios\n")
        self.assertEqual((0, ["skipped 1: no ratios", "1 passed, 0 failed, 1 skipped"]), self.summary())

    def test_a_binary_that_died(self):
        self.write("asan/test_a.xml", "<testsuite><testcase")
        code, lines = self.summary()
        self.assertEqual((1, "0 passed, 1 failed, 0 skipped"), (code, lines[-1]))

    def test_a_failure_and_a_skip_with_its_reason(self):
        self.write("asan/test_a.xml", '<testsuite><testcase name="x" status="run"><failure message="no"/></testcase>'
                                      '<testcase name="y" status="run"><skipped message="no corpus"/></testcase></testsuite>')
        self.assertEqual((1, ["skipped 1: no corpus", "0 passed, 1 failed, 1 skipped"]), self.summary())

    def test_nothing_ran(self):
        self.assertEqual(1, self.summary()[0])


class Format(unittest.TestCase):
    def test_the_check_fails_on_a_difference(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "scripts").mkdir()
            (root / "common").mkdir()
            shutil.copy(support.ROOT / "scripts/format", root / "scripts/format")
            shutil.copy(support.ROOT / ".clang-format", root / ".clang-format")
            source = root / "common/a.cc"
            source.write_text("int main() { return 0; }\n")
            for command in (["git", "init", "-q"], ["git", "add", "common"]):
                subprocess.run(command, cwd=root, check=True)
            check = [root / "scripts/format", "--check"]
            self.assertEqual(0, subprocess.run(check).returncode)
            source.write_text("int  main( ) {return 0;}\n")
            done = subprocess.run(check, capture_output=True, text=True)
            self.assertEqual(1, done.returncode)
            self.assertIn("common/a.cc", done.stdout)


if __name__ == "__main__":
    support.main("ops_test_summary")
