#!/usr/bin/python3
"""Effects and refusals of a module's methods: module_test.py QUENCH."""

import copy
import math
import pickle
import re
import subprocess
import unittest
from unittest import mock

import staged

import numpy as np
import quench
from quench._steps import METHODS, parsed_type


class ModuleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = quench.Client()
        cls.samples = np.load(staged.SAMPLES)
        cls.symbolic = cls.client.load(staged.DIGITS)
        cls.single = cls.client.load(staged.DIGITS, batch=1)
        cls.calibrated = cls.single.copy().calibrate(cls.samples)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def refused(self, words, method, *arguments, **named):
        with self.assertRaisesRegex(ValueError, words):
            method(*arguments, **named)

    # ---- statistics ----

    def test_calibrating_changes_nothing_else(self):
        ir = self.calibrated
        self.assertTrue(ir.is_calibrated)
        self.assertEqual((ir.fingerprint, hash(ir), ir.operators, ir.text),
                         (self.single.fingerprint, hash(self.single), self.single.operators, self.single.text))
        self.assertIn("BatchNormalization", ir.operators)
        more = ir.copy().calibrate(self.samples[:2], reset=False)
        self.assertNotEqual(more.copy().quantize(), ir.copy().quantize())

    def test_statistics_survive_another_batch_size(self):
        four = self.calibrated.copy().set_batch_size(4)
        self.assertTrue(four.is_calibrated)
        self.assertEqual(four.input_shapes, [(4, 1, 8, 8)])
        four.quantize(quant_type="static")
        self.assertEqual(four.input_shapes, [(4, 1, 8, 8)])
        self.assertTrue(four.is_quantized)
        self.assertNotIn("DynamicQuantizeLinear", four.operators)
        self.assertEqual(four, self.calibrated.copy().quantize().set_batch_size(4))
        again = self.calibrated.copy().set_batch_size(4)
        self.refused("batch size changed", again.calibrate, 4, reset=False)
        self.assertTrue(again.calibrate(4).is_calibrated)
        self.assertFalse(self.calibrated.copy().set_batch_size(4, force=True).is_calibrated)

    def test_statistics_that_a_change_would_cost_are_asked_about(self):
        for change in (lambda ir, **force: ir.partition("onnxruntime", **force), lambda ir, **force: ir.inline_partitions(**force),
                       lambda ir, **force: ir.edit("remove relu3", **force), lambda ir, **force: ir.tile(8, 8, 8, 1, **force),
                       lambda ir, **force: ir.split_tensors(**force)):
            ir = self.calibrated.copy()
            self.refused("calibrated.*force=True", change, ir)
            self.assertTrue(ir.is_calibrated)
        self.assertFalse(self.calibrated.copy().edit("remove relu3", force=True).is_calibrated)

    def test_a_split_that_splits_nothing_says_so(self):
        ir = self.single.copy()
        with self.assertWarnsRegex(UserWarning, "no convolution was split.*least_gain="):
            self.assertFalse(ir.split_tensors().is_split_tensors)
        self.assertEqual(ir, self.single)
        self.assertTrue(ir.split_tensors(least_gain=0).is_split_tensors)

    # ---- arguments ----

    def test_wrong_arguments_are_value_errors(self):
        ir, out = self.calibrated.copy(), staged.FOLDER / "wrong"
        for level in (-1, 5, 2.5, "3", True, None):
            self.refused(f"opt_level is {level!r}, must be 0 to 4", ir.compile, output_path=out, opt_level=level)
        self.refused("uuid is `nope`, must be 32 hex digits", ir.compile, output_path=out, uuid="nope")
        for words, target in (("target.name: .*`kind`", {"mcpu": "haswell"}), ("target.name: .*`kind`", {}), ("target.name: .*JSON", "{bad json"),
                              ("target.name: .*`mcp`", {"kind": "llvm", "mcp": "x"}), ("target.name: .*`mcp`", "llvm -mcp=x"),
                              ("z80", "z80")):
            self.refused(words, ir.compile, target, output_path=out)
        self.refused("target.host_target: .*`kind`", ir.compile, "x86-64", {"mcpu": "haswell"}, output_path=out)
        self.assertFalse(out.exists())
        for words, more in (("max_size is 'a', must be a number", {"max_size": "a"}), ("preprocess is 'a', must be a dict", {"preprocess": "a"})):
            self.refused(words, ir.compile, output_path=out, **more)
        self.refused("percentile is 'a'", ir.quantize, calib_method="percentile", percentile="a")
        self.refused("least_gain is 'a'", self.single.copy().split_tensors, least_gain="a")
        self.refused("min_nodes is 0", self.single.copy().partition, min_nodes=0)
        self.refused("k is 0, must be at least 1", self.single.copy().tile, 8, 8, 0)
        self.refused("calib_method is `foo`, must be `average`", ir.quantize, calib_method="foo")
        self.refused("batch_size is 0", ir.set_batch_size, 0)
        self.refused("batch_size is 2.5", ir.set_batch_size, 2.5)
        self.refused("batch_size is 'a'", ir.set_batch_size, "a")
        self.refused("no input `picture`", ir.infer, {"picture": self.samples})
        self.refused("no node is named `nothing`", self.single.copy().edit, "remove nothing")
        rows = (staged.ROOT / "services/quantizer/methods/methods.def").read_text()
        self.assertEqual(list(METHODS), re.findall(r"^QUENCH_METHOD\((\w+)", rows, re.MULTILINE))

    def test_wrong_samples_are_value_errors(self):
        ir = self.single.copy()
        for words, data in (("number of random samples is 0", 0), ("is -3", -3), ("no samples", []), ("NoneType cannot be used as samples", None),
                            ("sample 0: input `image`: 64 NaN", [np.full((1, 1, 8, 8), np.nan)]), ("not numbers", [["a"]]),
                            ("no samples in it", np.zeros((0, 1, 8, 8), np.float32)), ("has no samples", staged.FOLDER / "nothing"),
                            ("f32\\[1, 1, 8, 9\\]", [np.zeros((1, 1, 8, 9), np.float32)])):
            self.refused(words, ir.calibrate, data)
        self.assertFalse(ir.is_calibrated)

    def test_sizes_that_are_open_are_asked_for_and_given(self):
        ir = self.client.load(b'quench.ir 1\nmodule "m" canonical {\nsymbol len = input(0, 1) in 1..\ninput %x: f32[1, len]\n'
                              b"%y = Tanh(%x)\noutput %y\n}\n")
        for method, arguments in ((ir.infer, {"seed": 1}), (ir.analyse, {}), (ir.calibrate, {"data": 2})):
            self.refused(r'`len` .* like `sizes=\{"len": 64\}`', method, **arguments)
            self.refused("sizes: `len` is 2.5", method, sizes={"len": 2.5}, **arguments)
        self.assertEqual(ir.infer(seed=1, sizes={"len": 5})["y"].shape, (1, 5))
        self.assertNotEqual(ir.analyse(sizes={"len": 5}), ir.analyse(sizes={"len": 10}))
        self.assertTrue(ir.copy().calibrate(2, sizes={"len": 5}).is_calibrated)
        self.refused("sizes are those of random samples", ir.calibrate, [np.ones((1, 5), np.float32)], sizes={"len": 5})

    # ---- files ----

    def test_modules_are_saved_and_read(self):
        for module in (self.symbolic, self.single.copy().quantize(quant_type="weights"), self.symbolic.copy().partition("onnxruntime")):
            for name in ("m.qir", "m.ir.txt"):
                again = self.client.load(module.save(staged.FOLDER / name))
                self.assertEqual((again, again.text, again.stage, again.name), (module, module.text, module.stage, "m"))
        self.assertEqual(self.client.load((staged.FOLDER / "m.ir.txt").read_bytes()), module)
        binary = self.symbolic.save(staged.FOLDER / "d.qir")
        self.assertEqual(self.client.load(binary, batch=4).input_shapes, [(4, 1, 8, 8)])
        self.assertEqual(self.client.compile_batch([binary], ["x86-64"], {"plain": {"check": "no", "opt_level": 0}}).watch().state, "succeeded")
        self.refused("read as it is; it takes no `opset`", self.client.load, binary, opset=17)
        self.refused("NAME.qir", self.symbolic.save, staged.FOLDER / "m.onnx")
        self.assertFalse(list(staged.FOLDER.glob(".*.part")))

    def test_modules_of_the_program_are_read(self):
        for name in ("program.qir", "program.ir.txt"):
            path = staged.FOLDER / name
            for more in ((), ("--external-weights",)):
                path.unlink(missing_ok=True)
                subprocess.run([staged.QUENCH, "import", staged.DIGITS, "-o", path, *more], check=True, capture_output=True)
                again = self.client.load(path)
                self.assertEqual((again, again.text), (self.symbolic, self.symbolic.text))
                self.assertEqual(again.copy().set_batch_size(1), self.single)

    def test_damaged_modules_are_refused(self):
        binary, text = self.symbolic.save(staged.FOLDER / "b.qir"), self.symbolic.save(staged.FOLDER / "b.ir.txt")
        whole, lines = binary.read_bytes(), text.read_text()
        broken = staged.FOLDER / "broken"
        for words, data in (("cut off", whole[:40]), ("cut off", whole[:-1]), ("cut off", whole[:16] + b"\xff" * 16 + whole[32:]),
                            ("newer version", whole[:40] + b"\1" + whole[41:]), ("weights are damaged", whole[:-1] + b"\x7f"),
                            ("beside it, and there is no", b"quench.ir 1\nweights file \"other\"\n"),
                            ("must be a file beside", b"quench.ir 1\nweights file \"../other\"\n"),
                            ("cut off or damaged", lines[:-20].encode()), ("1:1", b"quench.ir 77\n")):
            broken.write_bytes(data)
            self.refused(words, self.client.load, broken)

    def test_one_product_is_a_module(self):
        path = staged.FOLDER / "gemm.onnx"
        subprocess.run([staged.QUENCH, "tile", "--gemm", "32,64,128", "--limits", "64,64,64", "--samples", "2", "-o", path],
                       check=True, capture_output=True)
        tiled = quench.gemm(32, 64, 128, client=self.client).tile(64, 64, 64, 2)
        self.assertEqual(tiled, self.client.load(path))
        self.assertEqual((tiled.name, tiled.input_shapes), ("gemm_32x64x128", [(32, 64), (64, 128), (32, 128)]))
        self.refused("k is 0, must be at least 1", quench.gemm, 32, 0, 128)

    # ---- what else it is ----

    def test_copies(self):
        other = copy.deepcopy({"ir": self.calibrated})["ir"]
        self.assertTrue(other.is_calibrated)
        other.set_batch_size(2)
        self.assertEqual(self.calibrated.input_shapes, [(1, 1, 8, 8)])
        with mock.patch("quench.loading._own", self.client):  # where a process has its own gateway
            elsewhere = pickle.loads(pickle.dumps(self.calibrated.copy().set_batch_size(4)))
        self.assertEqual((elsewhere.name, elsewhere.input_shapes, elsewhere.is_calibrated), ("digits", [(4, 1, 8, 8)], True))
        self.assertEqual(elsewhere.quantize(), self.calibrated.copy().set_batch_size(4).quantize())

    def test_sizes_may_be_expressions(self):
        self.assertEqual(parsed_type("f32[batch, floordiv(height + 1, 32)*floordiv(width + 1, 32), 1]"),
                         ("float32", ("batch", "floordiv(height + 1, 32)*floordiv(width + 1, 32)", 1)))
        self.assertEqual(parsed_type("i64[max(min(a, b), 2), -1]"), ("int64", ("max(min(a, b), 2)", -1)))
        self.assertEqual((parsed_type("f32[]"), parsed_type("f16"), parsed_type("bool[2]")), (("float32", ()), ("float16", None), ("bool", (2,))))

    def test_the_interpreter_takes_nested_lists(self):
        run = self.single.get_inference_function()
        there = run(self.samples[:1].tolist())
        np.testing.assert_array_equal(there, run(image=self.samples[:1]))
        self.refused("not an array of numbers", run, [["a"]])
        self.assertEqual(math.prod(there.shape), 10)

    def test_a_plain_library_takes_the_key_of_the_sealed_one_along(self):
        out = staged.FOLDER / "sealed"
        self.single.compile(output_path=out, encrypt_password="secret", check="no", opt_level=0)
        self.assertTrue((out / "modelKey.bin").exists())
        self.single.compile(output_path=out, force_overwrite=True, check="no", opt_level=0)
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["model.h", "model.so"])


if __name__ == "__main__":
    staged.main()
