#!/usr/bin/env python3
"""Networks of the suite, at a sixteenth of their size, compute on the emulated GPU what the interpreter computes.

Usage: gpu_networks_test.py BUILD_DIR [NETWORK...]      all, unless some are named

`quench compile --check full` compares the whole library. Networks take turns with f32, f16 and bf16. They are written by
bench/models/networks.py with the Python of build/peer-venv (scripts/test makes it); without it the test is skipped.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import support

ROOT = support.ROOT
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
NAMES = sys.argv[2:]
PYTHON = ROOT / "build/peer-venv/bin/python"
DRIVER = BUILD / "common/runtime/device/emulated/libquench_emulated_cuda.so"
TYPES = ((), ("--float16",), ("--bfloat16",))

if not PYTHON.exists():
    print("skipped: no Python with the package that writes models (build/peer-venv)")
    sys.exit(support.SKIPPED)


class GpuNetworksTest(unittest.TestCase):
    def test_networks_are_right_on_the_emulated_gpu(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            command = [PYTHON, ROOT / "bench/models/networks.py", folder, "--tiny", *NAMES]
            subprocess.run(command, check=True, capture_output=True, timeout=300)
            models = sorted(folder.glob("*.onnx"))
            self.assertGreaterEqual(len(models), len(NAMES) or 30)
            for number, model in enumerate(models):
                with self.subTest(model=model.stem):
                    self.check(model, TYPES[number % len(TYPES)], folder / model.stem)

    def check(self, model, options, output):
        command = [BUILD / "bin/quench", "compile", model, *options, "--batch", "1", "--check", "full", "--target",
                   "cuda -arch=emulated -host=x86-64-v2", "--format", "json", "--progress", "none", "--output", output]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600,
                              env={**os.environ, "QUENCH_CUDA_DRIVER": str(DRIVER)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        check = json.loads(done.stdout)["check"]
        self.assertRegex(check, "^whole, variant cuda-emulated and x86-64-v2, ")
        print(f"{model.stem} {' '.join(options)}: {check}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
