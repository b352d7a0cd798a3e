"""The package `quench` for tests, put together in a folder of its own; import it before `quench`.

`quench` is the program that the first argument of the test names, else that of PATH. Ends with 77 (skipped) where numpy, cffi or
grpcio are missing.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import cffi  # noqa: F401
    import grpc  # noqa: F401
    import numpy  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
QUENCH = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "quench").resolve())
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="quench-py-"))
DIGITS = ROOT / "bench/models/digits.onnx"
SAMPLES = ROOT / "bench/models/digits_sample.npy"

subprocess.run([sys.executable, str(ROOT / "python/stage.py"), str(FOLDER)], check=True, stdout=subprocess.DEVNULL)
sys.path.insert(0, str(FOLDER))
os.environ["QUENCH_BIN"] = QUENCH
os.environ.pop("QUENCH_TOKEN_FILE", None)


def main():
    """Runs the tests, or those that QUENCH_TEST_PATTERN names."""
    patterns = os.environ.get("QUENCH_TEST_PATTERN", "").lower().split()
    unittest.main(argv=sys.argv[:1] + [f"-k{pattern}" for pattern in patterns], verbosity=2 if patterns else 1)
