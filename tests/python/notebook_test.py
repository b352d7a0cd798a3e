#!/usr/bin/env python3
"""The README's lines in a notebook, with bars; and its interrupts: notebook_test.py QUENCH.

For an interpreter that has nbclient and ipykernel besides what the client needs, as scripts/test --full makes one in
build/notebook-venv; ends with 77 (skipped) elsewhere. A kernel gets SIGINT, as the button for it in a notebook does.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

try:
    import cffi  # noqa: F401
    import grpc  # noqa: F401
    import ipykernel  # noqa: F401
    import nbclient
    import nbformat
    import numpy as np  # noqa: F401
    import PIL  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
QUENCH = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "quench").resolve())
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="quench-nb-"))
DIGITS = ROOT / "bench/models/digits.onnx"


def readme_lines():
    """Python's part of the README, for the model that the tests have."""
    code = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.S | re.M).group(1)
    return code.replace("(1, 3, 224, 224)", "(1, 1, 8, 8)").replace("m.onnx", str(DIGITS)).replace('output_path="out"', 'output_path="new"')


class Notebook:
    """One whose cells run one after the other."""

    def __init__(self):
        self.client = nbclient.NotebookClient(nbformat.v4.new_notebook(), timeout=300, kernel_name="python3",
                                              resources={"metadata": {"path": str(FOLDER)}}, allow_errors=True)

    def __enter__(self):
        self.context = self.client.setup_kernel()
        self.context.__enter__()
        return self

    def __exit__(self, *error):
        self.context.__exit__(*error)

    def run(self, code, interrupt_when=None):
        """Outputs of a cell. `interrupt_when`: a file; the kernel is interrupted once it is there."""
        cell = nbformat.v4.new_code_cell(code)
        self.client.nb.cells.append(cell)
        done = threading.Event()

        def interrupt():
            while not done.is_set() and not (FOLDER / interrupt_when).exists():
                time.sleep(0.05)
            time.sleep(0.3)
            if not done.is_set():
                os.kill(self.client.km.provisioner.pid, 2)

        thread = threading.Thread(target=interrupt)
        if interrupt_when:
            thread.start()
        try:
            return self.client.execute_cell(cell, len(self.client.nb.cells) - 1).outputs
        finally:
            done.set()
            if interrupt_when:
                thread.join()


def text_of(outputs):
    return "".join(str(each.get("text", "")) + str(each.get("data", "")) + str(each.get("ename", "")) for each in outputs)


class NotebookTest(unittest.TestCase):
    def test_lines_of_the_readme(self):
        with Notebook() as notebook:
            outputs = notebook.run(readme_lines())
            self.assertNotIn("error", [each.output_type for each in outputs], outputs)
            self.assertIn("workflow", text_of(outputs))  # the bars
            self.assertTrue((FOLDER / "new/model.so").exists())
            self.assertIn("(1, 10)", text_of(notebook.run("print(logits.shape)")))

    def test_modules_show_themselves(self):
        with Notebook() as notebook:
            notebook.run(f"import quench as forge\nir = forge.RelayModule.from_onnx({str(DIGITS)!r})")
            shown = notebook.run("ir.mod")[-1]
            self.assertEqual(shown.data["text/plain"].splitlines()[0], "input image")
            self.assertIn("output logits: f32[batch, 10]", notebook.run("ir.typed_mod")[-1].data["text/plain"].splitlines())
            for cell in ("ir", "ir.main", "ir.main[0]", "ir.input_nodes[0]"):
                self.assertIn("<table>", notebook.run(cell)[-1].data["text/html"], cell)

    def test_interrupts(self):
        with Notebook() as notebook:
            begun = "import pathlib\ndef begin(name): pathlib.Path(name).touch()\n"
            notebook.run(begun + "import numpy as np, quench\nclient = quench.Client()\n"
                         f"ir = client.load({str(DIGITS)!r}, batch=1)\nengine = quench.Engine('out/model.so')")
            for name, code in (
                    ("compile", "begin('compile')\nir.copy().calibrate(100_000)\n"),
                    ("upload", "open('large', 'wb').truncate(4 << 30)\nbegin('upload')\nclient.upload('large')\n"),
                    ("inference", "x = np.zeros((2_000_000, 1, 8, 8), np.float32)\nbegin('inference')\nwhile True: engine.infer(x)\n")):
                with self.subTest(name):
                    self.assertIn("KeyboardInterrupt", text_of(notebook.run(code, interrupt_when=name)))
            said = text_of(notebook.run(
                "print(ir.operators['Conv'], engine.infer(np.zeros((1, 1, 8, 8), np.float32))[0].shape, next(client.workflows()).state)"))
            self.assertIn("3 (1, 10) ", said)  # client and engine go on
            notebook.run("client.close()")


if __name__ == "__main__":
    subprocess.run([sys.executable, str(ROOT / "python/stage.py"), str(FOLDER / "site")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([QUENCH, "compile", DIGITS, "--target", "x86-64", "-o", FOLDER / "out", "--progress", "none"], check=True,
                   stdout=subprocess.DEVNULL)
    os.environ.update(PYTHONPATH=str(FOLDER / "site"), QUENCH_BIN=QUENCH)
    unittest.main(argv=sys.argv[:1], verbosity=2)
