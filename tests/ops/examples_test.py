#!/usr/bin/env python3
"""The examples as their README.md says to run them, in the folder that `python -m quench.examples` writes. Their clients in other
languages are run by tests/clients/run_clients, the notebook also in Jupyter's kernel by tests/python/notebook_test.py.

Usage: examples_test.py BUILD_DIR
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

ROOT = support.ROOT
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/asan").resolve()
PYTHON = "/usr/bin/python3"  # Debian's packages are for it
PATIENCE = 600  # seconds: sanitizers and busy machines
NOTEBOOK = ROOT / "examples/notebook/digits.ipynb"


class ExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="quench-examples-"))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        package, binaries = cls.work / "package", cls.work / "bin"
        binaries.mkdir()
        (binaries / "python").symlink_to(PYTHON)
        (cls.work / "run").mkdir(mode=0o700)
        cls.environment = {name: value for name, value in os.environ.items() if name not in ("QUENCH_GATEWAY", "QUENCH_TOKEN_FILE")} | {
            "PATH": f"{binaries}:{BUILD}/bin:{os.environ['PATH']}", "PYTHONPATH": str(package), "QUENCH_BIN": f"{BUILD}/bin",
            "XDG_RUNTIME_DIR": f"{cls.work}/run", "XDG_STATE_HOME": f"{cls.work}/state", "XDG_CACHE_HOME": f"{cls.work}/cache"}
        cls.run_command(f"python {ROOT}/python/stage.py {package} && python -m quench.examples {cls.work}/examples", cls.work)
        cls.text = (cls.work / "examples/README.md").read_text()
        first = re.search(r"^```\n(.*?)^```$", cls.text, re.M | re.S)[1]
        cls.run_command(first, cls.work / "examples")

    @classmethod
    def run_command(cls, command, folder):
        done = subprocess.run(["bash", "-euc", command], cwd=folder, env=cls.environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=PATIENCE)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def section(self, name):
        """Output of the commands in the section that begins with `name`."""
        found = re.search(rf"^\*\*{re.escape(name)}\*\*.*?^```\n(.*?)^```$", self.text, re.M | re.S)
        self.assertIsNotNone(found, f"README.md has no commands for {name}")
        return self.run_command(found[1], self.work / "examples")

    def need(self, *modules):
        for module in modules:
            if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode != 0:
                self.skipTest(f"{PYTHON} has no {module}")

    def test_c(self):
        self.assertIn("logits: f32[1, 10] =", self.section("C"))

    def test_cpp(self):
        self.assertRegex(self.section("C++"), r"(?m)^this is a 9$")

    def test_python(self):
        self.need("PIL", "grpc", "google.protobuf")
        said = self.section("Python")
        digits = re.findall(r"^samples/\d_is_(\d)\.png: this is a (\d)$", said, re.M)
        self.assertEqual(8, len(digits))
        self.assertGreaterEqual(sum(shown == named for shown, named in digits), 7)
        libraries = re.findall(r"^batch/digits/float/\S+/model\.so$", said, re.M)
        self.assertEqual(3, len(libraries))
        for path in libraries:
            self.assertTrue((self.work / "examples" / path).is_file(), path)

    def test_workflow(self):
        made = self.section("A workflow").split()
        libraries = [f"{model}/plain/{target}/model.so" for model in ("digits", "features", "int8")
                     for target in ("x86-64", "aarch64", "raspberry-pi/5")]
        self.assertEqual([], [path for path in libraries if path not in made])
        inspected = self.run_command("quench inspect libraries/int8/plain/aarch64/model.so", self.work / "examples")
        self.assertIn("shared library for aarch64", inspected)

    def test_pipelines(self):
        self.need("grpc", "google.protobuf")
        said = self.section("Pipelines")
        self.assertEqual(2, said.count("cells: 2, 0 without a library"), said)
        libraries = [f"{target}/model.so" for target in ("x86-64-v3", "raspberry-pi/5")]
        self.assertEqual([f"airflow/digits/float/{library}" for library in libraries], said.split()[-2:])
        for library in libraries:
            self.assertTrue((self.work / "examples/nightly/digits/default" / library).is_file(), library)
        self.assertEqual(3, len((self.work / "examples/nightly/table.csv").read_text().splitlines()))

    def test_a_pipeline_that_is_ended_goes_on(self):
        """By SIGTERM while the fleet runs; a retry of the same run starts nothing twice."""
        listed = self.run_command("""
            quench serve &
            server=$!
            trap 'kill $server' EXIT
            until quench serve --health >/dev/null; do sleep 0.2; done
            export QUENCH_GATEWAY=local
            mkdir -p many && for i in 1 2 3 4 5 6; do cp digits.onnx many/m$i.onnx; done
            pipelines/nightly.sh 7 many late 2>log &
            job=$!
            until grep -q "fleet [0-9]*/" log; do sleep 0.05; done
            kill -TERM $job
            wait $job && exit 9
            pipelines/nightly.sh 7 many late >&2
            quench workflow list --format json --filter 'fleet = nightly-7'
            """, self.work / "examples")
        self.assertEqual(1, len(json.loads(listed)["workflows"]))
        self.assertEqual(12, len(list((self.work / "examples/late").rglob("model.so"))))

    def test_notebook(self):
        """Its cells one after the other, without a kernel."""
        self.need("PIL", "grpc", "google.protobuf")
        script = self.work / "examples/notebook/digits.py"
        script.write_text("\n".join("".join(cell["source"]) for cell in self.cells()))
        self.assertIn("the same digits", self.run_command("python digits.py", script.parent))

    def test_notebook_has_no_outputs(self):
        for cell in self.cells():
            self.assertEqual(([], None), (cell["outputs"], cell["execution_count"]))

    @staticmethod
    def cells():
        return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


if __name__ == "__main__":
    support.main("ops_examples")
