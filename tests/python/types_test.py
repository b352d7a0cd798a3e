#!/usr/bin/env python3
"""The package and the examples of its pages, as `mypy --strict` and pyright see them: types_test.py

For an interpreter that has mypy and pyright, as scripts/test --full makes one in build/notebook-venv; ends with 77 (skipped) elsewhere.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

if any(importlib.util.find_spec(name) is None for name in ("mypy", "pyright", "numpy", "grpc", "cffi")):
    print("skipped: no mypy or no pyright")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="quench-types-"))


class TypesTest(unittest.TestCase):
    def check_with(self, *words):
        done = subprocess.run([sys.executable, "-m", *words, "quench", "examples.py", "readme.py"], cwd=FOLDER, capture_output=True, text=True,
                              check=False, env={**os.environ, "MYPYPATH": str(FOLDER)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_mypy(self):
        self.check_with("mypy", "--strict", "--no-incremental")

    def test_pyright(self):
        self.check_with("pyright", "--pythonpath", sys.executable)


if __name__ == "__main__":
    subprocess.run([sys.executable, str(ROOT / "python/stage.py"), str(FOLDER)], check=True, stdout=subprocess.DEVNULL)
    for page, name in (("docs/python.md", "examples.py"), ("README.md", "readme.py")):
        code = re.findall(r"^```python.*?\n(.*?)^```", (ROOT / page).read_text(), flags=re.S | re.M)
        (FOLDER / name).write_text("\n".join(code))
    unittest.main(argv=sys.argv[:1], verbosity=2)
