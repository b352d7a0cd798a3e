#!/usr/bin/python3
"""The Python client and the modelling API, on gateways of their own: client_test.py QUENCH.

Ends with 77 (skipped) where numpy, cffi or grpcio are missing.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

try:
    import cffi  # noqa: F401
    import grpc  # noqa: F401
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
QUENCH = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "quench").resolve())
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="quench-py-"))
DIGITS = ROOT / "bench/models/digits.onnx"
SAMPLES = ROOT / "bench/models/digits_sample.npy"

subprocess.run(["/usr/bin/python3", str(ROOT / "python/stage.py"), str(FOLDER)], check=True, stdout=subprocess.DEVNULL)
sys.path.insert(0, str(FOLDER))
os.environ["QUENCH_BIN"] = QUENCH
os.environ.pop("QUENCH_TOKEN_FILE", None)

import quench  # noqa: E402


@contextlib.contextmanager
def served(config=None):
    """The address of a `quench serve`, and its process."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quench-s-"))
    words = [QUENCH, "serve", "--listen", f"unix:{folder}/socket", "--state-dir", str(folder / "state")]
    if config is not None:
        (folder / "config.txtpb").write_text(config)
        words += ["--config", str(folder / "config.txtpb")]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not (folder / "socket").exists():
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.02)
        yield f"unix:{folder}/socket", process
    finally:
        process.kill()
        process.wait()


class ModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = quench.Client()
        cls.samples = np.load(SAMPLES)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def test_what_a_module_is(self):
        ir = self.client.load(DIGITS)
        self.assertEqual(ir.operators["Conv"], 3)
        self.assertEqual(sum(1 for node in ir if node["op"] == "Relu"), 3)
        self.assertEqual([each["name"] for each in ir.outputs], ["logits"])
        self.assertIn("batch", ir.inputs[0]["type"])
        again = self.client.load(DIGITS.read_bytes())
        self.assertEqual(ir, again)
        self.assertEqual(ir.fingerprint, again.fingerprint)
        four = ir.copy().set_batch_size(4)
        self.assertNotEqual(ir, four)
        self.assertEqual(four.inputs[0]["type"], "f32[4, 1, 8, 8]")
        self.assertGreater(ir.analyse()["macs"]["total"], 0)

    def test_functions_compute_what_the_model_does(self):
        ir = self.client.load(DIGITS)
        here = ir.get_inference_function(target="")
        there = ir.get_inference_function()
        np.testing.assert_allclose(here(self.samples)["logits"], there(image=self.samples)["logits"], atol=1e-4)
        values = ir.infer({"image": self.samples[:1]}, operators=["Re*"])
        self.assertEqual(values["relu1"].shape, (1, 16, 8, 8))
        with self.assertRaisesRegex(quench.InputError, "2 inputs, the model has 1"):
            here(self.samples, self.samples)
        with self.assertRaisesRegex(quench.GatewayError, "no input `picture`"):
            ir.infer({"picture": self.samples})

    def test_compiled_as_the_program_does(self):
        out = FOLDER / "here"
        self.client.load(DIGITS).compile(out, target="x86-64-v3")
        subprocess.run([QUENCH, "compile", DIGITS, "--target", "x86-64-v3", "-o", FOLDER / "there", "--progress", "none"], check=True,
                       stdout=subprocess.DEVNULL)
        for name in ("model.so", "model.h"):
            self.assertEqual((out / name).read_bytes(), (FOLDER / "there" / name).read_bytes(), name)
        with self.assertRaisesRegex(FileExistsError, "force_overwrite"):
            self.client.load(DIGITS).compile(out)
        with self.assertRaisesRegex(quench.GatewayError, "target") as refused:
            self.client.load(DIGITS).compile(FOLDER / "no", target="z80")
        self.assertEqual(refused.exception.code, "INVALID_ARGUMENT")
        self.assertFalse((FOLDER / "no").exists())

    def test_calibrated_and_quantized(self):
        ir = self.client.load(DIGITS, batch=1)
        with self.assertRaisesRegex(quench.InputError, "calibrate"):
            ir.quantize()
        folder = FOLDER / "samples"
        folder.mkdir()
        for i, row in enumerate(self.samples):
            np.save(folder / f"{i}.npy", row[None])
        ir.calibrate(folder)
        self.assertTrue(ir.is_calibrated)
        with self.assertRaisesRegex(quench.InputError, "force"):
            ir.split_tensors()
        ir.calibrate(np.asarray(self.samples), reset=False).quantize()
        self.assertTrue(ir.is_quantized)
        with quench.Engine(ir.compile(FOLDER / "int8")) as engine:
            exact = self.client.load(DIGITS).get_inference_function(target="")(self.samples)["logits"]
            for row, logits in zip(self.samples, exact):
                self.assertEqual(np.argmax(engine.infer(row[None])[0]), np.argmax(logits))
        self.assertTrue(self.client.load(DIGITS, batch=1).quantize(dynamic=True).is_quantized)
        with self.assertRaisesRegex(quench.InputError, "no samples"):
            self.client.load(DIGITS).calibrate(FOLDER / "here-is-nothing")

    def test_modules_are_changed(self):
        ir = self.client.load(DIGITS)
        edited = ir.copy().edit('remove relu3 constant %fc.bias = file "b.npy"', {"b.npy": np.ones(10, np.float32)})
        self.assertEqual(edited.operators["Relu"], 2)
        parts = ir.copy().partition("onnxruntime")
        self.assertIn("q.partition", parts.operators)
        self.assertEqual(parts.inline_partitions().operators.get("q.partition"), None)
        tiled = self.client.load(DIGITS, batch=1).tile(8, 8, 8, samples=1)
        self.assertGreater(tiled.operators["MatMul"], 1)
        self.assertEqual(self.client.load(ir.export(FOLDER / "again.onnx")), ir)
        with self.assertRaisesRegex(quench.GatewayError, "no node is named `nothing`") as refused:
            ir.edit("remove nothing")
        self.assertIn("script", refused.exception.fields)

    def test_modules_of_pytorch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU())
        x = torch.randn(2, 5)
        ir = quench.from_torch(module, {"x": x}, client=self.client)
        self.assertTrue(ir.name.endswith("(torch.onnx.export)"), ir.name)
        own = quench.from_torch(module, {"input": x}, client=self.client)
        self.assertTrue(own.name.endswith("(torch.export)"), own.name)
        there, = ir.get_inference_function()(x=x.numpy()).values()
        np.testing.assert_allclose(there, module(x).detach().numpy(), atol=1e-5)

        class Broken(torch.nn.Module):
            def forward(self, _):
                raise ValueError("out of order")

        with self.assertRaisesRegex(quench.InputError, "torch.jit.trace: .*out of order"):
            quench.from_torch(Broken(), {"x": x}, client=self.client)

    def test_unknown_models(self):
        with self.assertRaisesRegex(quench.GatewayError, "format"):
            self.client.load(b"this is no model")
        with self.assertRaises(FileNotFoundError):
            self.client.load(FOLDER / "missing.onnx")

    def test_examples_of_the_page(self):
        examples = re.findall(r"^```python client\n(.*?)^```", (ROOT / "docs/python.md").read_text(), flags=re.S | re.M)
        self.assertGreater(len(examples), 2)
        work = FOLDER / "page"
        work.mkdir()
        (work / "digits.onnx").symlink_to(DIGITS)
        (work / "samples").mkdir()
        for i, row in enumerate(self.samples[:4]):
            np.save(work / "samples" / f"{i}.npy", row[None])
        here = os.getcwd()
        os.chdir(work)
        try:
            names = {}
            for example in examples:  # each goes on where the one before it ended
                exec(compile(example, "docs/python.md", "exec"), names)  # pylint: disable=exec-used
        finally:
            os.chdir(here)


class GatewayTest(unittest.TestCase):
    def test_interrupts_cancel_the_work(self):
        with quench.Client() as client:
            ir = client.load(DIGITS, batch=1)
            timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            begun = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                ir.calibrate(100_000)  # minutes
            timer.join()
            self.assertLess(time.monotonic() - begun, 30)
            listed = client.gateway.call(
                "quench.gateway.v1.Workflows", "ListWorkflows",
                quench.client.message("quench.gateway.v1.ListWorkflowsRequest")(), "quench.gateway.v1.ListWorkflowsResponse")
            cancelled = quench.client.messages().enum("quench.gateway.v1.State", "STATE_CANCELLED")
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and listed.workflows[0].state != cancelled:
                time.sleep(0.1)
                listed = client.gateway.call(
                    "quench.gateway.v1.Workflows", "ListWorkflows",
                    quench.client.message("quench.gateway.v1.ListWorkflowsRequest")(), "quench.gateway.v1.ListWorkflowsResponse")
            self.assertEqual(listed.workflows[0].state, cancelled)
            self.assertEqual(ir.operators["Conv"], 3)  # the client goes on, and the module is as it was

    def test_gateways_that_are_not_there_or_go_away(self):
        with quench.Client("unix:/nowhere/socket", patience=0.5) as client:
            with self.assertRaises(quench.UnavailableError):
                client.load(DIGITS)
        with served() as (address, process), quench.Client(address, patience=1) as client:
            ir = client.load(DIGITS)
            self.assertEqual(ir.operators["Conv"], 3)
            process.kill()
            process.wait()
            with self.assertRaises(quench.UnavailableError) as refused:
                ir.compile(FOLDER / "gone")
            self.assertEqual(refused.exception.code, "UNAVAILABLE")

    def test_tokens(self):
        tokens = FOLDER / "tokens"
        tokens.write_text(f"team-a {hashlib.sha256(b'correct horse').hexdigest()}\n")
        with served(f'gateway {{ server {{ token_file: "{tokens}" }} }}') as (address, _):
            for token in (None, "wrong"):
                with quench.Client(address, token=token) as client, self.assertRaises(quench.AuthenticationError):
                    client.load(DIGITS)
            (FOLDER / "token").write_text("correct horse\n")
            with quench.Client(address, token_file=FOLDER / "token") as client:
                self.assertEqual(client.load(DIGITS).operators["Conv"], 3)

    def test_without_the_program(self):
        os.environ["QUENCH_BIN"] = "/nowhere/quench"
        try:
            with self.assertRaisesRegex(quench.UnavailableError, "no program `/nowhere/quench`: set QUENCH_BIN"):
                quench.Client()
        finally:
            os.environ["QUENCH_BIN"] = QUENCH

    def test_without_grpc_engines_work_and_clients_say_what_is_missing(self):
        script = ("import sys; sys.modules['grpc'] = None; import quench; print(quench.Engine.__name__)\n"
                  "try:\n    quench.Client\nexcept ImportError as error:\n    print(error)")
        said = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(FOLDER)}, capture_output=True,
                              text=True, check=True).stdout
        self.assertEqual(said, "Engine\nthe client needs grpcio and protobuf: pip install 'quench[client]'\n")

    def test_large_files_resume(self):
        with quench.Client() as client:
            path = FOLDER / "large"
            path.write_bytes(os.urandom(9 << 20))
            digest = client.gateway.upload(path)
            self.assertEqual(client.gateway.upload(path), digest)
            client.gateway.download(digest, FOLDER / "back")
            self.assertEqual((FOLDER / "back").read_bytes(), path.read_bytes())
            # The second half goes up after the first has been there alone.
            path.write_bytes(os.urandom(9 << 20))
            whole = client.gateway._writes
            broken = []

            def half(file, name, offset, size, bar):
                for request in whole(file, name, offset, size, bar):
                    if not broken and request.write_offset >= 4 << 20:
                        broken.append(request.write_offset)
                        return
                    yield request

            client.gateway._writes = half
            digest = client.gateway.upload(path)
            self.assertEqual(len(broken), 1)
            self.assertEqual(client.gateway.read_bytes(digest), path.read_bytes())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
