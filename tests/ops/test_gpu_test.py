#!/usr/bin/env python3
"""scripts/test_gpu on the emulated GPU: a pack is made and passes, wrong results and missing devices are told, sizes are kept.

Usage: test_gpu_test.py BUILD_DIR

Packing needs the Python of build/peer-venv (scripts/test makes it); without it the test is skipped. PyTorch plays no part.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import support

ROOT = support.ROOT
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
PYTHON = ROOT / "build/peer-venv/bin/python"
DRIVER = BUILD / "common/runtime/device/emulated/libquench_emulated_cuda.so"
SCRIPT = ROOT / "scripts/test_gpu"
NETWORKS = "gru_net,bert_base"
GRAPHS = "attention,gathers,index_error,any_batch,run_sizes,recurrent,transposed,integers"

if not PYTHON.exists():
    print("skipped: no Python with the packages that write models and run them (build/peer-venv)")
    sys.exit(support.SKIPPED)


def execute(*command, driver=DRIVER):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300,
                          env={**os.environ, "QUENCH_CUDA_DRIVER": str(driver)})


def pack(output, *options):
    return execute(SCRIPT, "--build", BUILD, "pack", "--arch", "emulated", "--old", "none", "--full", "none", *options, output)


# In the place of gpu_torch.py: PyTorch's process, without it.
TORCH = """
from gpu_device import Failure
from gpu_worker import serve

class Worker:
    def prepare(self, network, batch):
        self.network = network
        return {"torch": "0.0"}

    def compile(self):
        if self.network == "gru_net":
            raise Failure(0, "cannot compile gru_net")
        return {"compile_s": 7}

    def burst(self, how, seconds):
        return {"median_ms": 4 if how == "eager" else 2, "min_ms": 1, "runs": 3}

print("{}", flush=True)
serve(Worker())
"""


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def corrupt(path):
    """Changes the last byte of the first array."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    first = "output_0.npy"
    members[first] = members[first][:-1] + bytes([members[first][-1] ^ 0x41])
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)


class TestGpuTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.archive = cls.folder / "pack.tar.xz"
        done = pack(cls.archive, "--small", NETWORKS, "--graphs", GRAPHS)
        assert done.returncode == 0, done.stdout + done.stderr

    def unpack(self, name):
        subprocess.run(["tar", "-C", self.folder, "-xf", self.archive], check=True)
        os.rename(self.folder / "quench-gpu", self.folder / name)
        return self.folder / name

    def run_pack(self, path, *options, **environment):
        """Exit code, what was printed, and the JSON."""
        found = self.folder / "found.json"
        found.unlink(missing_ok=True)
        done = execute(SCRIPT, "run", "--quick", "--jobs", "2", "--json", found, *options, path,
                       **environment)
        return done.returncode, done.stdout + done.stderr, json.loads(found.read_text()) if found.exists() else None

    def test_all_results_are_right_and_networks_are_timed(self):
        code, text, found = self.run_pack(self.archive)
        self.assertEqual(code, 0, text)
        self.assertEqual(len(found["results"]), 13, text)
        self.assertEqual([result["problems"] for result in found["results"]], [[]] * 13)
        self.assertEqual({result["variant"] for result in found["results"]}, {"cuda-emulated"})
        self.assertEqual([row["network"] for row in found["times"]], NETWORKS.split(","))
        for row in found["times"]:
            self.assertGreater(row["quench_ms"], 0)
        table = (self.folder / "found.json").with_suffix(".md").read_text()
        self.assertIn("Quench emulated device", table)
        self.assertIn("13 right, 0 wrong, 0 not run", table)
        print(text)

    def test_wrong_results_and_spent_budgets_are_told(self):
        folder = self.unpack("corrupted")
        path = folder / "expectations.json"
        expected = json.loads(path.read_text())
        cases = {case["name"]: case for case in expected["cases"]}
        for name in ("transposed-f32", "integers-f32"):
            corrupt(folder / cases[name]["reference"])
        cases["index_error-f32"]["fails"] = "another sentence"
        (folder / cases["attention-f16"]["library"]).write_bytes(b"no library")
        expected["cases"] = [case for case in expected["cases"] if case["kind"] == "operators"]
        path.write_text(json.dumps(expected))
        code, text, found = self.run_pack(folder)
        self.assertEqual(code, 1, text)
        problems = {result["case"]: "; ".join(result["problems"]) for result in found["results"] if result["problems"]}
        self.assertEqual(set(problems), {"transposed-f32", "integers-f32", "index_error-f32", "attention-f16"}, text)
        self.assertIn("`stride_2` is off by", problems["transposed-f32"])
        self.assertIn("`conv_3x3`: 1 of 9408 values do not have the bits that are due", problems["integers-f32"])
        self.assertIn("instead of 7 `another sentence`", problems["index_error-f32"])
        code, text, found = self.run_pack(folder, "--only", "gathers", "--budget", "0")
        self.assertEqual(code, 3, text)
        self.assertIn("1 not run", text)

    def test_faults_end_one_case_and_hanging_cases_are_given_up(self):
        folder = self.unpack("faulty")
        replace(folder / "gpu_worker.py", "        case = self._cases[case]\n", """        case = self._cases[case]
        if case["name"] == "transposed-f16":
            import os
            os.abort()
        if case["name"] == "gathers-f32":
            raise Failure(DEVICE, "the GPU failed")
        if case["name"] == "recurrent-f32":
            time.sleep(1000)
""")
        replace(folder / "gpu_check.py", "CASE_SECONDS = 60", "CASE_SECONDS = 5")
        path = folder / "expectations.json"
        expected = json.loads(path.read_text())
        names = ("index_error-f32", "transposed-f16", "gathers-f32", "recurrent-f32", "run_sizes-f32")
        expected["cases"] = [case for case in expected["cases"] if case["name"] in names]
        path.write_text(json.dumps(expected))
        code, text, found = self.run_pack(folder)
        self.assertEqual(code, 1, text)
        problems = {result["case"]: result["problems"] for result in found["results"] if result["problems"]}
        self.assertEqual(problems, {
            "transposed-f16": ["the process ended with -6; one launch at a time: the process ended with -6"],
            "gathers-f32": ["error 13: the GPU failed; one launch at a time: the GPU failed"],
            "recurrent-f32": ["no answer within 5 s"]}, text)

    def test_pytorch_takes_turns_with_the_networks_that_it_has(self):
        folder = self.unpack("with_torch")
        (folder / "torch.py").write_text("")
        (folder / "gpu_torch.py").write_text(TORCH)
        path = folder / "expectations.json"
        expected = json.loads(path.read_text())
        expected["cases"] = [case for case in expected["cases"] if case["kind"] == "small"]
        for row in expected["times"]:
            row["torch"] = True
        path.write_text(json.dumps(expected))
        replace(folder / "gpu_check.py", "else 0.3", "else 0.02")
        found = folder / "found.json"
        done = execute("env", f"PYTHON={PYTHON}", folder / "run", "--json", found)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        facts = json.loads(found.read_text())
        self.assertEqual(facts["torch"], "0.0")
        without, compiled = facts["times"]
        self.assertEqual(without["torch_problem"], "compiling: cannot compile gru_net")
        self.assertNotIn("eager_ms", without)
        self.assertEqual((compiled["eager_ms"], compiled["compiled_ms"], compiled["compile_s"]), (4, 2, 7))

    def test_machines_without_a_gpu_are_told(self):
        nowhere = self.folder / "libnowhere.so"
        code, text, _ = self.run_pack(self.archive, driver=nowhere)
        self.assertEqual(code, 2, text)
        self.assertIn("no GPU: there is no CUDA driver", text)
        done = execute(SCRIPT, driver=nowhere)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("no NVIDIA GPU with a driver here", done.stderr)

    def test_bad_words_are_errors(self):
        junk = self.folder / "junk.tar.xz"
        junk.write_bytes(self.archive.read_bytes()[:1000])
        for words, problem in ((("run", self.folder / "nothing"), "is no file or folder that can be read"),
                               (("run", junk), "is no whole pack"),
                               (("run", "--jobs", "0", self.archive), "--jobs is 0, must be 1 or more"),
                               (("run", "--json", "/nothing/x.json", self.archive), "`/nothing/x.json` cannot be written"),
                               (("packs",), "unknown word `packs`")):
            done = execute(SCRIPT, *words)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(problem, done.stderr)
        done = pack("/proc/nothing/pack.tar.xz", "--small", "none", "--graphs", "index_error")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("cannot be written", done.stderr)

    def test_a_pack_that_is_too_large_is_an_error(self):
        output = self.folder / "large.tar.xz"
        done = pack(output, "--small", "none", "--graphs", "index_error", "--limit-mb", "0.01")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"the archive has 0\.\d MB, 0\.01 are allowed")
        self.assertIn("MB  libraries/index_error-f32.so", done.stderr)
        self.assertFalse(output.exists())

    def test_names_that_are_not_known_are_refused(self):
        done = pack(self.folder / "unknown", "--graphs", "convolution")
        self.assertEqual(done.returncode, 1)
        self.assertIn("unknown graphs convolution; known: convolutions,", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
