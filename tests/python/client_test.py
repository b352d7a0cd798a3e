#!/usr/bin/python3
"""The Python client and the modelling API, on gateways of their own: client_test.py QUENCH.

Ends with 77 (skipped) where numpy, cffi or grpcio are missing.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

from staged import DIGITS, FOLDER, QUENCH, ROOT, SAMPLES, main  # before the others, which may be missing

import grpc
import numpy as np
import quench
from quench import _server, _steps
from quench._gateway import message


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


def split_weights(source, path):
    """An ONNX model whose weights lie in `weights.bin` beside it."""
    from quench._gateway import message

    model = message("quench.onnx.v1.ModelProto").FromString(pathlib.Path(source).read_bytes())
    weights = b""
    for tensor in model.graph.initializer:
        if not tensor.raw_data:
            continue
        for key, value in (("location", "weights.bin"), ("offset", len(weights)), ("length", len(tensor.raw_data))):
            tensor.external_data.add(key=key, value=str(value))
        weights += tensor.raw_data
        tensor.data_location = 1
        tensor.ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    (path.parent / "weights.bin").write_bytes(weights)


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
        self.assertEqual(hash(ir), int(ir.structure_hash[:15], 16))
        self.assertEqual((ir.input_count, ir.input_shapes, ir.input_dtypes), (1, [("batch", 1, 8, 8)], ["float32"]))
        self.assertEqual((ir.output_count, ir.output_shapes, ir.output_dtypes), (1, [("batch", 10)], ["float32"]))
        self.assertEqual((ir.graph_count, ir.subgraph_count, len(ir.main), list(ir.graphs)), (1, 0, len(ir), ["main"]))
        self.assertEqual((ir.params, ir.partition_backends, ir.is_tensorrt, ir.is_split_tensors), ([], [], False, False))
        self.assertIn("input image: f32[batch, 1, 8, 8]\n", ir.text)
        self.assertIn(" = Relu(", str(ir))
        self.assertEqual(ir.fingerprint, again.fingerprint)
        four = ir.copy().set_batch_size(4)
        self.assertNotEqual(ir, four)
        self.assertEqual(four.inputs[0]["type"], "f32[4, 1, 8, 8]")
        self.assertGreater(ir.analyse()["macs"]["total"], 0)

    def test_functions_compute_what_the_model_does(self):
        ir = self.client.load(DIGITS)
        here = ir.get_inference_function(target="")
        there = ir.get_inference_function()
        np.testing.assert_allclose(here(self.samples), there(image=self.samples), atol=1e-4)
        named = ir.get_inference_function(named=True)(self.samples)
        np.testing.assert_array_equal(named["logits"], there(self.samples))
        values = ir.infer({"image": self.samples[:1]}, operators=["Re*"])
        self.assertEqual(values["relu1"].shape, (1, 16, 8, 8))
        with self.assertRaisesRegex(quench.InputError, "2 inputs, the model has 1"):
            here(self.samples, self.samples)
        with self.assertRaisesRegex(quench.GatewayError, "no input `picture`"):
            ir.infer({"picture": self.samples})

    def test_compiled_as_the_program_does(self):
        out = FOLDER / "here"
        self.client.load(DIGITS).compile("x86-64-v3", output_path=out)
        subprocess.run([QUENCH, "compile", DIGITS, "--target", "x86-64-v3", "-o", FOLDER / "there", "--progress", "none"], check=True,
                       stdout=subprocess.DEVNULL)
        for name in ("model.so", "model.h"):
            self.assertEqual((out / name).read_bytes(), (FOLDER / "there" / name).read_bytes(), name)
        with self.assertRaisesRegex(FileExistsError, "force_overwrite"):
            self.client.load(DIGITS).compile(output_path=out)
        with self.assertRaisesRegex(quench.GatewayError, "target") as refused:
            self.client.load(DIGITS).compile("z80", output_path=FOLDER / "no")
        self.assertEqual(refused.exception.code, "INVALID_ARGUMENT")
        self.assertFalse((FOLDER / "no").exists())

    def test_calibrated_and_quantized(self):
        ir = self.client.load(DIGITS, batch=1)
        with self.assertRaisesRegex(quench.InputError, "calibrate"):
            ir.quantize(quant_type="static")
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
        with quench.Engine(ir.compile(output_path=FOLDER / "int8")) as engine:
            exact = self.client.load(DIGITS).get_inference_function(target="")(self.samples)
            for row, logits in zip(self.samples, exact):
                self.assertEqual(np.argmax(engine.infer(row[None])[0]), np.argmax(logits))
        self.assertTrue(self.client.load(DIGITS, batch=1).quantize(quant_type="dynamic").is_quantized)
        with self.assertRaisesRegex(quench.InputError, "no samples"):
            self.client.load(DIGITS).calibrate(FOLDER / "here-is-nothing")

    def test_modules_are_changed(self):
        ir = self.client.load(DIGITS)
        edited = ir.copy().edit('remove relu3 constant %fc.bias = file "b.npy"', {"b.npy": np.ones(10, np.float32)})
        self.assertEqual(edited.operators["Relu"], 2)
        self.assertTrue(ir.copy().partition("tensorrt", remove_no_mac_subgraphs=False).is_tensorrt)
        uneven = np.random.default_rng(1).standard_normal((16, 1, 3, 3)) * 4.0 ** np.arange(-8, 8)[:, None, None, None]
        cut = self.client.load(DIGITS, batch=1).edit('constant %conv1.weight = file "w.npy"', {"w.npy": uneven.astype(np.float32)})
        self.assertTrue(cut.split_tensors().is_split_tensors)
        self.assertGreater(cut.operators["Conv"], 3)
        self.assertFalse(ir.diff(edited)["equal"])
        parts = ir.copy().partition("onnxruntime")
        self.assertGreater(parts.subgraph_count, 0)
        self.assertIn("q.partition", parts.operators)
        parts.export(FOLDER / "cut.onnx")
        names = sorted(file.name for file in (FOLDER / "cut.parts").iterdir())
        self.assertEqual(names, [f"onnxruntime_{each}.onnx" for each in range(len(names))])
        self.assertIn("Conv", self.client.load(FOLDER / "cut.parts" / names[0]).operators)
        self.assertNotIn("q.partition", self.client.load(FOLDER / "cut.onnx").operators)
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
        first = "torch.export" if hasattr(torch, "export") else "torch.jit.trace"
        for infos in ({"x": x}, {"input": x}, [("x", (2, 5))], [("x", ((2, 5), "float32"))]):
            ir = quench.from_torch(module, infos, client=self.client)
            self.assertTrue(ir.name.endswith(f"({first})"), ir.name)
            self.assertEqual([each["name"] for each in ir.inputs], list(dict(infos)))
            there = ir.get_inference_function()(x.numpy())
            np.testing.assert_allclose(there, module(x).detach().numpy(), atol=1e-5)
        before = quench.from_torch(torch.jit.trace(module, x), {"x": x}, client=self.client)
        self.assertTrue(before.name.endswith("(torch.jit.trace)"), before.name)

        class Difference(torch.nn.Module):
            def forward(self, a, b):
                return a - b

        swapped = quench.from_torch(Difference(), {"b": x, "a": 2 * x}, client=self.client)  # each other's names
        there, = swapped.infer({"b": x.numpy(), "a": 2 * x.numpy()}).values()
        np.testing.assert_allclose(there, -x.numpy(), atol=1e-5)

        for infos in (x, [x]):
            self.assertEqual([each["name"] for each in quench.from_torch(module, infos, client=self.client).inputs], ["input"])
        for infos in ([(2, 5)], [1.0], ["x"]):
            with self.assertRaisesRegex(quench.InputError, "input_infos: "):
                quench.from_torch(module, infos, client=self.client)

        class Broken(torch.nn.Module):
            def forward(self, _):
                raise ValueError("out of order")

        with self.assertRaisesRegex(quench.InputError, "torch.jit.trace: .*out of order"):
            quench.from_torch(Broken(), {"x": x}, client=self.client)

    def test_programs_with_unknown_operators_are_decomposed(self):
        class Program:
            contents = "as it was"

            def run_decompositions(self):
                again = Program()
                again.contents = "of few operators"
                return again

        class Net:
            def eval(self):
                return self

            def forward(self, x):
                return x

        stand_in = types.ModuleType("torch")
        stand_in.Tensor = type("Tensor", (), {})
        stand_in.jit = types.SimpleNamespace(ScriptModule=type("ScriptModule", (), {}))
        stand_in.export = types.SimpleNamespace(export=lambda module, tensors: Program(),
                                                save=lambda program, path: pathlib.Path(path).write_text(program.contents))

        def load(path, client=None, **options):
            if path.read_text() == Program.contents:
                raise quench.GatewayError("an operator is not supported; torch.export.load(...).run_decompositions()")
            return types.SimpleNamespace(inputs=[{"name": "x"}], name="Net")

        with mock.patch.dict(sys.modules, {"torch": stand_in}), mock.patch("quench.loading.load", load):
            ir = quench.from_torch(Net(), {"x": stand_in.Tensor()})
        self.assertEqual(ir.name, "Net (torch.export, decomposed)")

    def test_samples_one_by_one(self):
        rows = [row[None] for row in self.samples]
        as_folder = self.client.load(DIGITS, batch=1).calibrate(np.asarray(self.samples)).quantize()
        for samples in (rows, ([row] for row in rows), ({"image": row} for row in rows)):
            self.assertEqual(self.client.load(DIGITS, batch=1).calibrate(samples).quantize(), as_folder)
        with self.assertRaisesRegex(quench.InputError, "2 arrays, the model takes 1: `image`"):
            self.client.load(DIGITS, batch=1).calibrate([(rows[0], rows[0])])
        with self.assertRaisesRegex(quench.InputError, "no samples"):
            self.client.load(DIGITS, batch=1).calibrate([])

    def test_options_of_quantization(self):
        ir = self.client.load(DIGITS, batch=1).calibrate(8)
        made = {ir.copy().quantize(**options).fingerprint for options in (
            {}, {"activation_dtype": "uint8"}, {"per_channel": False}, {"calib_method": "minmax"}, {"symmetric": True},
            {"quant_type": "weights", "kernel_dtype": "int4"}, {"exclude": ["op:Conv"]}, {"calib_method": "percentile", "percentile": 90})}
        self.assertEqual(len(made), 8)
        with self.assertRaisesRegex(quench.InputError, "quant_type is `some`, must be `any`"):
            ir.quantize(quant_type="some")
        with self.assertRaisesRegex(quench.InputError, "activation_dtype: unknown type `complex64`"):
            ir.quantize("complex64")
        with self.assertRaisesRegex(quench.InputError, "calib_method is `guess`"):
            ir.quantize(calib_method="guess")

    def test_options_of_compilation(self):
        ir = self.client.load(DIGITS)
        out = FOLDER / "options"
        library = ir.compile("host", host="host", output_path=out, opt_level=2, set_channel_layout="last", winograd=False,
                             uuid="123e4567-e89b-12d3-a456-426614174000", export_metadata=True, class_names=list("0123456789"),
                             preprocess={"scale": 0.5}, prefix="net")
        self.assertIn("#define NET_INPUT_IMAGE 0\n", (out / "model.h").read_text())
        facts = json.loads((out / "metadata.json").read_text())
        self.assertEqual(facts["uuid"], "123e4567-e89b-12d3-a456-426614174000")
        self.assertGreater(len(facts["kernels"]), 3)
        with quench.Engine(library) as engine:
            self.assertEqual(engine.uuid, facts["uuid"])
            self.assertEqual(engine.labels, tuple("0123456789"))
            self.assertIn("scale", json.dumps(engine.metadata["preprocessing"]))
        self.assertEqual(ir.compile({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76"}, emit="obj",
                                    output_path=FOLDER / "pi").name, "model.o")
        half = ir.compile(set_float16=True, output_path=FOLDER / "half")
        with quench.Engine(half) as engine:
            self.assertEqual(engine.infer(self.samples)[0].shape, (8, 10))
        sums = [ir.compile("x86-64-v4-fp16", emit="obj", set_float16=True, float16_sums=each, output_path=FOLDER / f"sums_{each}",
                           uuid="123e4567-e89b-12d3-a456-426614174000").read_bytes() for each in (True, False)]
        self.assertNotEqual(*sums)
        for wrong, words in (({"set_channel_layout": "middle"}, "set_channel_layout is `middle`"), ({"emit": "exe"}, "emit is `exe`"),
                             ({"emit": "a", "encrypt_password": "x"}, "shared libraries are encrypted"),
                             ({"encrypt_password": ""}, "password is empty"), ({"prefix": "9"}, "prefix is `9`"),
                             ({"encrypt_password": "x", "recipient": "age1"}, "not both")):
            with self.assertRaisesRegex(quench.InputError, words):
                ir.compile(output_path=FOLDER / "wrong", **wrong)
        with self.assertRaisesRegex(quench.GatewayError, "opt level 4"):
            ir.compile(output_path=FOLDER / "wrong", opt_level=4)
        self.assertFalse((FOLDER / "wrong").exists())

    def test_encrypted_libraries(self):
        out = FOLDER / "sealed"
        library = self.client.load(DIGITS).compile(output_path=out, encrypt_password="correct horse")
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["model.h", "model.so", "modelKey.bin"])
        with self.assertRaisesRegex(quench.EncryptedError, "encrypted"):
            quench.Engine(library)
        with self.assertRaises(quench.EncryptedError):
            quench.Engine(library, key=out / "modelKey.bin", password="wrong")
        with quench.Engine(library, key=out / "modelKey.bin", password="correct horse") as engine:
            self.assertEqual(engine.infer(self.samples)[0].shape, (8, 10))
        with self.assertRaisesRegex(FileExistsError, "force_overwrite"):
            self.client.load(DIGITS).compile(output_path=out, encrypt_password="another")
        with self.assertRaisesRegex(quench.InputError, "`age1x` is none of age's"):
            self.client.load(DIGITS).compile(output_path=FOLDER / "to", recipient="age1x")

    def test_names_of_targets(self):
        every = quench.list_target_tags()
        for name in quench.list_x86_tags() + quench.list_arm_tags() + quench.list_android_tags():
            self.assertIn(name, every)
        self.assertIn("raspberry-pi/5", quench.list_arm_tags())
        self.assertIn("-mcpu=cortex-a76", dict(quench.list_target_tags(verbose=True))["raspberry-pi/5"])
        self.assertIn("cuda", quench.list_cuda_tags())
        self.assertEqual(dict(quench.list_cuda_tags(verbose=True))["nvidia/geforce-rtx-3090"], "cuda -arch=sm_86")

    def test_targets_that_are_about_this_machine(self):
        for target, cpu, gpu in (("host", True, False), ("llvm", True, False), ("x86-64", False, False), ("cuda", True, True),
                                 ("cuda -arch=sm_86", False, False), ("cuda --arch sm_86 -num-cores 4", False, False),
                                 ("cuda -arch=sm_86 -host=x86-64-v3", False, False), ("cuda -arch=sm_86 -host=host", True, False),
                                 ("cuda -arch=sm_86 -host='llvm -mcpu=skylake'", True, False),
                                 ("cuda -host 'llvm -mtriple=x86_64-linux-gnu'", True, True), ("cuda -arch='sm_86", False, False),
                                 ("cuda -emulate-matrices -arch=sm_86", False, False), ({"kind": "cuda"}, True, True), ({"kind": "cuda", "arch": "sm_86"}, False, False),
                                 ({"kind": "cuda", "arch": "sm_86", "host": {"kind": "llvm"}}, True, False),
                                 ("nvidia/geforce-rtx-3090", False, False)):
            with self.subTest(target), mock.patch("quench._steps._first_gpu", return_value="sm_89"):
                filled = message("quench.codegen.v1.Target")()
                _steps.fill_target(filled, target)
                self.assertEqual((filled.HasField("host"), filled.host.gpu), (cpu, "sm_89" if gpu else ""))

    def test_weights_in_files_beside_a_model(self):
        folder = FOLDER / "beside"
        folder.mkdir()
        split_weights(DIGITS, folder / "digits.onnx")
        self.assertLess((folder / "digits.onnx").stat().st_size, 8000)
        self.assertEqual(self.client.load(folder / "digits.onnx"), self.client.load(DIGITS))
        (folder / "weights.bin").unlink()
        with self.assertRaisesRegex(quench.GatewayError, "weights.bin"):
            self.client.load(folder / "digits.onnx")

    def test_batches(self):
        work = self.client.compile_batch(
            {"plain": DIGITS, "again": self.client.load(DIGITS)}, ["x86-64", "aarch64"],
            {"float": {}, "int8": {"batch": 1, "opt_level": 2, "quantize": {"data": SAMPLES, "per_channel": True}}})
        self.assertEqual(work.watch().state, "succeeded")
        self.assertEqual(work.steps["plain/int8/quantize"], "succeeded")
        made = work.download(FOLDER / "batch")
        self.assertEqual(len(made), 8)
        with quench.Engine(FOLDER / "batch/plain/int8/x86-64/model.so") as engine:
            self.assertEqual(engine.infer(self.samples[:1])[0].shape, (1, 10))
        with self.assertRaisesRegex(FileExistsError, "force_overwrite"):
            work.download(FOLDER / "batch")
        report, = self.client.analyse_batch([DIGITS]).watch().download(FOLDER / "reports")
        self.assertGreater(json.loads(report.read_text())["macs"]["total"], 0)
        self.assertIn(work.name, [each.name for each in self.client.workflows("succeeded")])
        again = self.client.workflow(work.name.removeprefix("workflows/"))
        self.assertEqual(again.state, "succeeded")
        again.delete()
        with self.assertRaises(quench.GatewayError) as gone:
            _ = again.state
        self.assertEqual(gone.exception.code, "NOT_FOUND")
        with self.assertRaisesRegex(quench.InputError, "no state `done`"):
            list(self.client.workflows("done"))
        with self.assertRaisesRegex(TypeError, "speed"):
            self.client.compile_batch([DIGITS], options={"fast": {"speed": 3}})

    def test_fleets(self):
        (FOLDER / "fleet").mkdir()
        (FOLDER / "fleet/bad.onnx").write_bytes(b"this is not a model")
        models = {"a": DIGITS, "bad": FOLDER / "fleet/bad.onnx", "c": DIGITS}
        fleet = self.client.compile_fleet(models, ["x86-64", "raspberry-pi/5"], {"plain": {"batch": 1}}, request_id="py-1", labels={"team": "x"})
        with self.assertRaisesRegex(quench.GatewayError, "fleet `py-1` has failed cells, the first: bad/plain/x86-64: step `bad/import`"):
            fleet.watch()
        self.assertEqual(fleet.state, "failed")
        self.assertEqual([(cell.model, cell.target, cell.state) for cell in fleet.cells()][:3],
                         [("a", "x86-64", "succeeded"), ("a", "raspberry-pi/5", "succeeded"), ("bad", "x86-64", "failed")])
        made = fleet.download(FOLDER / "fleet/out")
        self.assertEqual(len(made), 4)
        times = [path.stat().st_mtime_ns for path in made]
        again = self.client.compile_fleet(models, ["x86-64", "raspberry-pi/5"], {"plain": {"batch": 1}}, request_id="py-1", labels={"team": "x"})
        with self.assertRaises(quench.GatewayError):
            again.watch()
        self.assertEqual([path.stat().st_mtime_ns for path in again.download(FOLDER / "fleet/out")], times)
        self.assertEqual(len(list(self.client.workflows(filter="fleet = py-1 AND labels.team = x"))), 1)
        self.assertEqual(list(self.client.workflows(filter="fleet = py-2")), [])
        with self.assertRaisesRegex(quench.GatewayError, "filter"):
            list(self.client.workflows(filter="colour = red"))
        self.assertFalse(self.client.fleet("nobody").exists)
        with self.assertRaisesRegex(quench.InputError, "several models are called `digits`"):
            self.client.compile_fleet([DIGITS, FOLDER / "other/digits.onnx"], request_id="twice")
        self.assertEqual(fleet.cancel(), 0)
        # The same request is the same workflow.
        names = {self.client.analyse_batch([DIGITS], request_id="once").name for _ in range(2)}
        self.assertEqual(len(names), 1)

    def test_workflows_fail_are_cancelled_and_run_again(self):
        (FOLDER / "no_model.onnx").write_bytes(b"this is not a model")
        work = self.client.compile_batch([FOLDER / "no_model.onnx", DIGITS])
        with self.assertRaisesRegex(quench.GatewayError, "no_model/import"):
            work.watch()
        self.assertEqual(work.state, "failed")
        self.assertIn("no_model/import", work.errors)
        self.assertEqual([path.parent.parent.parent.name for path in work.download(FOLDER / "half_made")], ["digits"])
        with self.assertRaises(quench.GatewayError):
            work.retry().watch()
        slow = self.client.compile_batch([DIGITS], options={"int8": {"batch": 1, "quantize": {"data": 100_000}}})  # minutes
        slow.cancel()
        with self.assertRaises(quench.CancelledError):
            slow.watch()
        self.assertEqual(slow.state, "cancelled")
        with self.assertRaisesRegex(quench.InputError, "not a quench.gateway.v1.WorkflowSpec"):
            self.client.submit({"colour": "red"})

    def test_progress_is_bars(self):
        try:
            import tqdm  # noqa: F401
        except ImportError:
            self.skipTest("no tqdm")
        script = ("import quench\n"
                  "with quench.Client(progress=True) as client:\n"
                  f"    client.load({str(DIGITS)!r}, batch=1).calibrate(3000)\n")
        self.assertRegex(self.errors_of(script), r"workflow: .*step")

    def test_without_tqdm_progress_is_a_line_each_second(self):
        script = ("import sys\n"
                  "sys.modules['tqdm'] = sys.modules['tqdm.auto'] = None\n"
                  "from quench import _progress\n"
                  "now = 0.0\n"
                  "_progress.time.monotonic = lambda: now\n"
                  "with _progress.Progress('workflow', 10, 'step', True) as progress:\n"
                  "    for done in range(5):\n"
                  "        now += 0.6\n"
                  "        progress.update(done, 'calibrate')\n")
        self.assertEqual(self.errors_of(script), "workflow: 1 of 10 step, calibrate\nworkflow: 3 of 10 step, calibrate\n")

    def errors_of(self, script):
        return subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(FOLDER)}, capture_output=True,
                              text=True, check=True).stderr

    def test_unknown_models(self):
        with self.assertRaisesRegex(quench.GatewayError, "format"):
            self.client.load(b"this is not a model")
        with self.assertRaises(FileNotFoundError):
            self.client.load(FOLDER / "missing.onnx")

    def examples(self, kind):
        found = re.findall(rf"^```python {kind}\n(.*?)^```", (ROOT / "docs/python.md").read_text(), flags=re.S | re.M)
        work = FOLDER / kind
        work.mkdir()
        (work / "digits.onnx").symlink_to(DIGITS)
        (work / "samples").mkdir()
        for i, row in enumerate(self.samples[:4]):
            np.save(work / "samples" / f"{i}.npy", row[None])
        here = os.getcwd()
        os.chdir(work)
        try:
            names = {"np": np}
            for example in found:  # each goes on where the one before it ended
                exec(compile(example, "docs/python.md", "exec"), names)  # pylint: disable=exec-used
        finally:
            os.chdir(here)
        return len(found)

    def test_examples_of_the_page(self):
        self.assertGreater(self.examples("client"), 3)

    def test_examples_of_forge(self):
        self.assertEqual(self.examples("forge"), 1)

    def test_examples_that_compile_for_gpus(self):
        lines = re.findall(r"^```python gpu\n(.*?)^```", (ROOT / "docs/python.md").read_text(), flags=re.S | re.M)[0].splitlines()
        ir = self.client.load(DIGITS)
        here = pathlib.Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                for line in lines:
                    with self.subTest(line):
                        exec(compile(line, "docs/python.md", "exec"), {"ir": ir, "quench": quench})  # pylint: disable=exec-used
            finally:
                os.chdir(here)


class Broken(grpc.RpcError):
    """The error that gRPC raises when a connection is cut."""

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "the connection was cut"

    def trailing_metadata(self):
        return ()


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
            work = next(client.workflows())
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and work.state != "cancelled":
                time.sleep(0.1)
            self.assertEqual(work.state, "cancelled")
            self.assertEqual(ir.operators["Conv"], 3)  # the client goes on, and the module is as it was

    def test_gateways_that_are_not_there_or_go_away(self):
        with quench.Client("unix:/nowhere/socket", patience=0.5) as client:
            with self.assertRaises(quench.UnavailableError):
                client.load(DIGITS)
        with served() as (address, process), quench.Client(address) as client:
            ir = client.load(DIGITS)
            self.assertEqual(ir.operators["Conv"], 3)
            process.kill()
            process.wait()
            client.gateway._patience = 1
            with self.assertRaises(quench.UnavailableError) as refused:
                ir.compile(output_path=FOLDER / "gone")
            self.assertEqual(refused.exception.code, "UNAVAILABLE")

    def test_hosts_that_cannot_be_resolved_are_named_alone(self):
        from quench._gateway import status_of

        error = mock.Mock()
        error.trailing_metadata.return_value = ()
        error.code.return_value = mock.Mock(value=(14, "unavailable"))
        for said in ("DNS resolution failed for farm.invalid:7450: C-ares status is not ARES_SUCCESS qtype=AAAA name=farm.invalid",
                     "DNS resolution failed for farm.invalid"):
            error.details.return_value = said
            self.assertEqual(status_of(error).message, "cannot resolve host `farm.invalid`")
        error.details.return_value = "connection refused"
        self.assertEqual(status_of(error).message, "connection refused")

    def test_a_gateway_without_places_for_watchers_is_asked(self):
        with served("gateway { calls { max_watches: 1 } } steps { slots: 4 }") as (address, _), \
                quench.Client(address) as busy, quench.Client(address, patience=1) as other, \
                mock.patch("quench._gateway.POLL_SECONDS", 0.2):
            ir = busy.load(DIGITS, batch=1)

            def work():
                with contextlib.suppress(quench.GatewayError):
                    ir.calibrate(100_000)  # minutes

            threading.Thread(target=work, daemon=True).start()
            deadline = time.monotonic() + 30
            while next(other.workflows()).state != "running" and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertEqual(other.load(DIGITS, batch=3).operators["Conv"], 3)

    def test_a_fleet_waits_for_its_tenants_limit(self):
        with quench.Client() as client:
            steps = len(client.compile_batch({"a": DIGITS}, ["x86-64"]).watch().steps)
        with served(f"gateway {{ tenants {{ max_queued_steps: {steps} }} }}") as (address, _), quench.Client(address) as client, \
                mock.patch("quench.workflow.CELLS_OF_A_SHARD", 1), mock.patch("quench.workflow.ASK_AGAIN_SECONDS", 0.1):
            fleet = client.compile_fleet({name: DIGITS for name in "abc"}, ["x86-64"], request_id="limited")  # one model at a time
            self.assertEqual([cell.state for cell in fleet.watch().cells()], ["succeeded"] * 3)
            with self.assertRaisesRegex(quench.GatewayError, "the limit of") as refused:
                client.compile_fleet({"all": DIGITS}, ["x86-64", "aarch64"], request_id="too-large")
            self.assertEqual(refused.exception.reason, "QUOTA_EXCEEDED")

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
            with self.assertRaisesRegex(quench.UnavailableError, "no program `/nowhere/quench`"):
                quench.list_target_tags()
            with self.assertRaisesRegex(quench.UnavailableError, "no program `/nowhere/quench`: set QUENCH_BIN"):
                quench.Client()
        finally:
            os.environ["QUENCH_BIN"] = QUENCH
        for named in (os.path.dirname(QUENCH), QUENCH + "-serve"):
            os.environ["QUENCH_BIN"] = named
            try:
                self.assertEqual(QUENCH, _server.program())
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
            digest = client.upload(path)
            self.assertEqual(len(broken), 1)
            self.assertEqual(client.download(digest, FOLDER / "back").read_bytes(), path.read_bytes())
            # Another run goes on where one was that ended.
            path.write_bytes(os.urandom(9 << 20))
            begun = []

            def ends(file, name, offset, size, bar):
                for request in whole(file, name, offset, size, bar):
                    if request.write_offset >= 4 << 20:
                        raise OSError("this run ends here")
                    yield request

            def goes_on(file, name, offset, size, bar):
                begun.append(offset)
                return whole(file, name, offset, size, bar)

            client.gateway._writes = ends
            with self.assertRaises(quench.GatewayError):
                client.gateway.upload(path)
            client.gateway._writes = goes_on
            digest = client.upload(path)
            self.assertGreater(begun[0], 0)
            self.assertEqual(client.download(digest, FOLDER / "back").read_bytes(), path.read_bytes())
            with self.assertRaisesRegex(quench.InputError, "`x` is not a digest"):
                client.download("x", FOLDER / "back")

    def test_a_download_goes_on_where_it_broke_off(self):
        with quench.Client() as client:
            path = FOLDER / "down"
            path.write_bytes(os.urandom(9 << 20))
            digest = client.upload(path)
            whole = client.gateway._method
            offsets = []

            def cut(kind, service, name, reply):
                method = whole(kind, service, name, reply)

                def read(request, metadata):
                    offsets.append(request.read_offset)
                    got = 0
                    for response in method(request, metadata=metadata):
                        got += len(response.data)
                        yield response
                        if len(offsets) < 3 and got >= 2 << 20:
                            raise Broken()

                return read if name == "Read" else method

            client.gateway._method = cut
            self.assertEqual(client.download(digest, FOLDER / "back").read_bytes(), path.read_bytes())
            self.assertEqual(len(offsets), 3)
            self.assertTrue(0 == offsets[0] < offsets[1] < offsets[2])

    def test_an_interrupt_ends_an_upload(self):
        with quench.Client() as client:
            path = FOLDER / "interrupted"
            path.write_bytes(os.urandom(9 << 20))
            whole = client.gateway._writes

            def slow(file, name, offset, size, bar):
                for request in whole(file, name, offset, size, bar):
                    yield request
                    if request.write_offset == 2 << 20:
                        os.kill(os.getpid(), signal.SIGINT)
                        time.sleep(0.5)

            client.gateway._writes = slow
            with self.assertRaises(KeyboardInterrupt):
                client.upload(path)
            client.gateway._writes = whole
            self.assertEqual(client.gateway.read_bytes(client.gateway.upload(path)), path.read_bytes())


if __name__ == "__main__":
    main()
