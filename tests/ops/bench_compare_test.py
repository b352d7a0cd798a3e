#!/usr/bin/env python3
"""scripts/bench_compare: what got slower is said, noise is not, and runs that cannot be compared are refused."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import support

SCRIPT = support.ROOT / "scripts/bench_compare"
RATIOS = support.ROOT / "bench/ratios"


def run_of(ratios, spread=0.02, **conditions):
    """A run in which each network has the median ratio given, with quartiles `spread` around it."""
    rows = [{"model": model, "speedup_median": ratio, "speedup_quartiles": [ratio * (1 - spread), ratio * (1 + spread)]}
            for model, ratio in ratios.items()]
    return {"variant": "x86-64-v3", "cpu": "any", "threads": 1, "peer": "onnxruntime 1.31.0", "rows": rows} | conditions


class BenchCompare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compare(self, before, after, *options):
        paths = []
        for name, content in (("before", before), ("after", after)):
            paths.append(self.folder / f"{name}.json")
            paths[-1].write_text(content if isinstance(content, str) else json.dumps(content))
        return self.call(*paths, *options)

    def call(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)

    def test_equal_runs(self):
        run = run_of({"resnet50": 1.2, "bert_base": 1.1})
        done = self.compare(run, run)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("nothing got slower", done.stdout)

    def test_a_slower_network_is_named(self):
        done = self.compare(run_of({"resnet50": 1.2, "bert_base": 1.1}), run_of({"resnet50": 1.0, "bert_base": 1.1}))
        self.assertEqual(1, done.returncode, done.stderr)
        marked = [line for line in done.stdout.splitlines() if line.endswith("SLOWER")]
        self.assertEqual(["resnet50"], [line.split()[0] for line in marked])

    def test_within_the_tolerance(self):
        self.assertEqual(0, self.compare(run_of({"resnet50": 1.2}), run_of({"resnet50": 1.12})).returncode)
        self.assertEqual(1, self.compare(run_of({"resnet50": 1.2}), run_of({"resnet50": 1.12}), "--tolerance", "5").returncode)

    def test_a_noisy_run_does_not_count(self):
        self.assertEqual(0, self.compare(run_of({"resnet50": 1.2}), run_of({"resnet50": 1.0}, spread=0.3)).returncode)

    def test_a_missing_network(self):
        done = self.compare(run_of({"resnet50": 1.2, "bert_base": 1.1}), run_of({"resnet50": 1.2}))
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stdout, "bert_base .* missing")

    def test_other_conditions_are_refused(self):
        for key, value in (("variant", "aarch64"), ("threads", 2), ("peer", "onnxruntime 1.30.0")):
            done = self.compare(run_of({"resnet50": 1.2}), run_of({"resnet50": 1.2}, **{key: value}))
            self.assertEqual(2, done.returncode, key)
            self.assertIn(f"{key} ", done.stderr)

    def test_unusable_files(self):
        run = run_of({"resnet50": 1.2})
        for broken in ("", "[]", "{}", "{\"rows\": []}"):
            self.assertEqual(2, self.compare(run, broken).returncode, broken)
        self.assertEqual(2, self.call(self.folder / "absent.json", self.folder / "absent.json").returncode)
        self.assertEqual(2, self.compare(run, run, "--tolerance", "-1").returncode)

    def test_committed_ratios_are_readable(self):
        committed = sorted(RATIOS.glob("*.json"))
        self.assertTrue(committed)
        for path in committed:
            self.assertEqual(path.stem, json.loads(path.read_text())["variant"])
            self.assertEqual(0, self.call(RATIOS, path).returncode, path)

    def test_a_cpu_without_committed_ratios_is_skipped(self):
        after = self.folder / "after.json"
        after.write_text(json.dumps(run_of({"resnet50": 1.2}, variant="never-seen")))
        done = self.call(self.folder, after)
        self.assertEqual(support.SKIPPED, done.returncode, done.stderr)
        self.assertTrue(done.stdout.startswith("skipped: "))


if __name__ == "__main__":
    support.main("ops_bench_compare")
