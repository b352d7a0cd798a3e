#!/usr/bin/env python3
"""scripts/test_selection: a pattern selects the programs that hold a matching test, and what they need is built."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import support


class Selection(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.rows = []

    def add(self, name, label, this, release="", file="", text=""):
        path = ""
        if file:
            path = self.folder / file
            path.write_text(text)
        self.rows.append(f"{name}\t{label}\t{this}\t{release}\t{path}\n")

    def select(self, *words, names=""):
        (self.folder / "tests.tsv").write_text("".join(self.rows))
        (self.folder / "names.tsv").write_text(names)
        done = subprocess.run([sys.executable, support.ROOT / "scripts/test_selection", self.folder / "tests.tsv", self.folder / "names.tsv", *words],
                              capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.returncode, {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}

    def test_names_in_sources(self):
        self.add("test_ops", "unit", "test_ops", "", "a_test.cc", "TEST(ReduceTest, Sums) {\n}\nTEST_F(PadTest, Shifts) {\n")
        self.add("test_ir", "unit", "test_ir;step_program", "", "b_test.cc", "TEST_F(TextTest, Parses) {\n")
        self.assertEqual((0, {"this": ["test_ops"], "release": [], "whole": [], "part": ["test_ops"]}), self.select("reduce"))
        self.assertEqual((0, {"this": ["test_ir", "step_program"], "release": [], "whole": [], "part": ["test_ir"]}), self.select("texttest.p"))

    def test_parameterised_names(self):
        self.add("test_ops", "unit", "test_ops", "", "a_test.cc", "INSTANTIATE_TEST_SUITE_P(All, CaseTest, x);\n")
        self.assertEqual(["test_ops"], self.select("anything")[1]["part"])
        self.assertEqual(1, self.select("anything", names="test_ops\tAll/CaseTest.Runs/Abs\n")[0])
        self.assertEqual(["test_ops"], self.select("abs", names="test_ops\tAll/CaseTest.Runs/Abs\n")[1]["part"])

    def test_own_names_select_all_of_a_program(self):
        self.add("quench_conformance", "conformance", "quench_conformance", "", "manifest.tsv", "# test_comment\ntest_abs\tpass\n")
        self.assertEqual(["quench_conformance"], self.select("conform")[1]["whole"])
        self.assertEqual(["quench_conformance"], self.select("ABS")[1]["part"])
        self.assertEqual(1, self.select("comment")[0])

    def test_programs_of_the_release(self):
        self.add("quench_peer", "peer", "", "quench;quench_conformance", "nn.py", '@generator("Conv")\n')
        self.add("ops_docs", "case", "", "", "docs_test.py", "class Pages(x):\n    def test_links(self):\n")
        self.assertEqual({"this": [], "release": ["quench", "quench_conformance"], "whole": [], "part": ["quench_peer"]}, self.select("conv")[1])
        self.assertEqual(["ops_docs"], self.select("links")[1]["part"])

    def test_labels(self):
        self.add("a", "unit", "a")
        self.add("b", "soak", "b")
        self.assertEqual(["a"], self.select("--without", "soak,browser")[1]["whole"])
        self.assertEqual(["b"], self.select("--label", "soak")[1]["whole"])
        self.assertEqual(1, self.select("--label", "qemu")[0])

    def test_every_row_of_this_build(self):
        for table in support.ROOT.glob("build/*/tests.tsv"):
            for line in table.read_text().splitlines():
                self.assertEqual(5, len(line.split("\t")), line)


if __name__ == "__main__":
    support.main("ops_test_selection")
