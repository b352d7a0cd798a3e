#!/usr/bin/env python3
"""quench.from_torch beside PyTorch: torch_test.py QUENCH.

For an interpreter that has PyTorch; ends with 77 (skipped) elsewhere.
"""

import os
import sys
import unittest
import warnings
from unittest import mock

os.environ.setdefault("TORCH_LOGS", "-all")
import staged

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import numpy as np
import quench


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x).relu()


class Counting(torch.nn.Module):
    """Goes round as often as a number of its input says."""

    def forward(self, x):
        y = x
        for _ in range(int(x[0, 0])):
            y = y + 1
        return y


class Unscripted(torch.nn.Module):
    def forward(self, x):
        if float(x.sum()) > 0:
            x = x + np.float32(1)
        return x


class Random(torch.nn.Module):
    def forward(self, x):
        return torch.bernoulli(x)


INFOS = [("x", (1, 3, 16, 16))]


class TorchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = quench.Client(progress=False)
        warnings.simplefilter("ignore", FutureWarning)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def read(self, module, infos=None, **options):
        return quench.from_torch(module, INFOS if infos is None else infos, client=self.client, **options)

    def refused(self, words, module, infos=None, **options):
        with self.assertRaisesRegex(quench.InputError, words) as refusal:
            self.read(module, infos, **options)
        return str(refusal.exception)

    def test_options_that_are_wrong_end_the_search(self):
        for words, options in (("is cut at `nothere`", {"outputs": ["nothere"]}), ("conversions: 1:1", {"conversions": ["some text"]})):
            said = self.refused(words, Small(), **options)
            self.assertNotIn("torch.onnx.export", said)

    def test_options_reach_every_way(self):
        self.assertEqual(self.read(Small(), batch=4).input_shapes, [(4, 3, 16, 16)])
        self.assertEqual(self.read(torch.jit.trace(Small(), torch.ones(1, 3, 16, 16)), batch=4).input_shapes, [(4, 3, 16, 16)])
        two = self.read(Small(), [("picture", (1, 3, 16, 16))], dtypes={"picture": "float32"}, shapes={"picture": (1, 3, 16, 16)})
        self.assertEqual([each["name"] for each in two.inputs], ["picture"])

        class Difference(torch.nn.Module):
            def forward(self, a, b):
                return a - b

        frozen = self.read(Difference(), [("p", (2,)), ("q", (2,))], freeze={"q": np.array([1, 2], np.float32)})
        np.testing.assert_array_equal(list(frozen.infer({"p": np.array([5, 5], np.float32)}).values())[0], [4, 3])
        self.assertEqual([each["name"] for each in frozen.inputs], ["p"])

    def test_default_type(self):
        trace = torch.jit.trace(Small().double(), torch.ones(1, 3, 16, 16, dtype=torch.float64))
        for dtype in ("float64", "double", torch.float64, np.float64):
            self.assertEqual(self.read(trace, default_type=dtype).input_dtypes, ["float64"])
        self.assertEqual(self.read(Small().double(), default_type="float64").input_dtypes, ["float64"])
        self.refused("unknown type `floaty`", trace, default_type="floaty")

    def test_operators_that_are_not_known_are_named(self):
        said = self.refused("`bernoulli`", Random())
        self.assertNotIn("run_decompositions", said)

    def test_control_flow_that_depends_on_data_is_scripted_or_refused(self):
        threes, fives = torch.full((2, 2), 3.0), torch.full((2, 2), 5.0)
        ir = self.read(Counting(), {"x": threes})
        self.assertTrue(ir.name.endswith("(torch.jit.script)"), ir.name)
        for x in (threes, fives):
            np.testing.assert_array_equal(list(ir.infer({"x": x.numpy()}).values())[0], Counting()(x).numpy())
        said = self.refused(r"decides by values of tensors \(.*torch_test.py:\d+\)", Unscripted(), {"x": threes})
        self.assertIn("torch.jit.trace(module, example)", said)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            meant = self.read(torch.jit.trace(Counting(), threes), {"x": threes})
        np.testing.assert_array_equal(list(meant.infer({"x": fives.numpy()}).values())[0], fives.numpy() + 3)

    def test_names_and_order_of_forge(self):
        trace = torch.jit.trace(Small(), torch.ones(1, 3, 16, 16))
        self.assertEqual(list(self.read(trace).weights), ["conv.weight", "conv.bias"])
        negative = 'quench.ir 1\nmodule "aten::relu" canonical {\n  input %x: f32[2]\n  %y = Neg(%x)\n  output %y\n}\n'
        for kind in (quench, quench.RelayModule):
            ir = kind.from_torch(trace, INFOS, {"aten::relu": negative}, "float32", True, False, client=self.client)
            self.assertEqual((ir.operators, list(ir.weights)), ({"Conv": 1, "Neg": 1}, ["conv_weight", "conv_bias"]))
        x = np.random.default_rng(1).random((1, 3, 16, 16), np.float32)
        there = self.read(trace, use_parser_friendly_name=True).get_inference_function()(x)
        np.testing.assert_allclose(there, trace(torch.from_numpy(x)).detach().numpy(), atol=1e-5)

    def test_control_flow_that_depends_on_sizes_is_traced(self):
        class Sized(torch.nn.Module):
            def forward(self, x):
                x = x.reshape(int(x.shape[0]), -1)
                return x + np.float32(1) if x.shape[1] > 1 else x

        with mock.patch("torch.export.export", side_effect=RuntimeError("not today")):
            ir = self.read(Sized(), {"x": torch.ones(2, 2)})
            self.refused("decides by values", Unscripted(), {"x": torch.ones(2, 2)})
        self.assertTrue(ir.name.endswith("(torch.jit.trace)"), ir.name)
        self.assertNotIn("item", vars(torch.Tensor))

    def test_nodes_are_named_after_their_modules(self):
        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.seq = torch.nn.Sequential(Small(), Small())
                self.seq[1] = torch.nn.ReLU()

            def forward(self, x):
                return self.seq(x)

        for module in (Outer(), torch.jit.trace(Outer().eval(), torch.ones(1, 3, 16, 16))):
            self.assertEqual([node["name"].rpartition("/")[0].rpartition("/")[0] for node in self.read(module)], ["seq/0/conv", "seq/0", "seq/1"])


if __name__ == "__main__":
    staged.main()
