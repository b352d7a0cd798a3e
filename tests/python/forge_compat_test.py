#!/usr/bin/python3
"""Programs that were written for Forge, line by line with `import quench as forge`, and what its pages say of each name:
forge_compat_test.py QUENCH. PyTorch is torch_test.py's, damaged modules and statistics are module_test.py's."""

import copy
import io
import json
import os
import pathlib
import pickle
import re
import unittest
import warnings
import zipfile
from contextlib import redirect_stdout
from unittest import mock

import staged

import numpy as np
import quench as forge
from quench._gateway import message

UUID = "123e4567-e89b-12d3-a456-426614174000"

INTROSPECTION = """
onnx_model = onnx.load("digits.onnx")
ir = forge.from_onnx(onnx_model)
ir.mod
ir.typed_mod
print(ir.mod)
ir.operators
ir.input_count
ir.input_shapes
ir.input_dtypes
ir.output_count
ir.output_shapes
ir.output_dtypes
ir.fingerprint
hash(ir)
func = ir.get_inference_function()
func(input_data)
ir.graph_count
ir.partition_for_tensorrt()
ir.mod
ir.is_tensorrt
ir.subgraph_count
ir.inline_partitions()
ir.mod
"""

COMPILATION = """
onnx_model = onnx.load("digits.onnx")
ir = forge.RelayModule.from_onnx(onnx_model)
ir.compile()
ir.compile(set_channel_layout="first", export_relay=True, force_overwrite=True)
ir.compile(target="raspberry-pi/5", force_overwrite=True)
ir.compile(target="android/cpu", force_overwrite=True)
ir.compile(set_float16=True, force_overwrite=True)
ir.compile(uuid="123e4567-e89b-12d3-a456-426614174000", output_path="named")
ir.compile(output_path=output_path, force_overwrite=True, encrypt_password="test_password")
lre = LatentRuntimeEngine(f"{output_path}/model.so", f"{output_path}/modelKey.bin", "test_password")
forge.list_cuda_tags(verbose=True)
forge.list_x86_tags(verbose=True)
forge.list_arm_tags(verbose=True)
forge.list_android_tags(verbose=True)
forge.list_target_tags(verbose=True)
"""

GPUS = """
ir.compile(target="cuda", force_overwrite=True)
ir.compile(target="cuda -arch=sm_86", host="llvm -mcpu=skylake", force_overwrite=True)
ir.compile(target="cuda", host="llvm -mcpu=skylake", force_overwrite=True)
ir.compile(target="cuda", uuid="123e4567-e89b-12d3-a456-426614174000", force_overwrite=True)
ir.compile(target="cuda", output_path=output_path, force_overwrite=True, encrypt_password="test_password")
ir.compile(target={"kind": "cuda"}, force_overwrite=True)
ir.get_inference_function("cuda")
"""


class Onnx:
    """Stands for the package `onnx`, of whose models the SerializeToString is what matters."""

    @staticmethod
    def load(_):
        return message("quench.onnx.v1.ModelProto").FromString(staged.DIGITS.read_bytes())


def sums(dtype=1, weight=False):
    """A ModelProto of x + y, and of its negative; `weight`: y is a parameter."""
    model = message("quench.onnx.v1.ModelProto")(ir_version=8)
    model.opset_import.add(version=17)
    graph = model.graph
    graph.name = "g"
    graph.node.add(op_type="Add", input=["x", "y"], output=["sum"])
    graph.node.add(op_type="Neg", input=["sum"], output=["minus"])
    for values, names in ((graph.input, ["x"] if weight else ["x", "y"]), (graph.output, ["sum", "minus"])):
        for name in names:
            kind = values.add(name=name).type.tensor_type
            kind.elem_type = dtype
            kind.shape.dim.add(dim_value=2)
    if weight:
        graph.initializer.add(name="y", dims=[2], data_type=1, raw_data=np.array([1, 2], np.float32).tobytes())
    return model


def run_lines(lines, names):
    """Their values by line."""
    found = {}
    for line in lines.strip().splitlines():
        try:
            found[line] = eval(compile(line, line, "eval"), names)  # pylint: disable=eval-used
        except SyntaxError:
            exec(compile(line, line, "exec"), names)  # pylint: disable=exec-used
    return found


class ForgeCompatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.samples = np.load(staged.SAMPLES)
        cls.work = staged.FOLDER / "forge"
        cls.work.mkdir()
        cls.plain = forge.from_onnx(Onnx.load(""))
        cls.relay = forge.RelayModule.from_onnx(Onnx.load(""))
        cls.single = cls.relay.copy().set_batch_size(1)
        cls.calibrated = cls.single.copy().calibrate(cls.samples)

    def out(self, name):
        return self.work / name

    def names(self, **more):
        return {"forge": forge, "onnx": Onnx, "LatentRuntimeEngine": forge.LatentRuntimeEngine, **more}

    def refused(self, words, method, *arguments, error=ValueError, **named):
        with self.assertRaisesRegex(error, words):
            method(*arguments, **named)

    # ---- the pages' examples ----

    def test_introspection(self):
        names, said = self.names(input_data=self.samples), io.StringIO()
        with redirect_stdout(said):
            found = run_lines(INTROSPECTION, names)
        self.assertTrue(said.getvalue().startswith("input image\nconv1 = Conv(image, conv1.weight, conv1.bias, "))
        self.assertEqual(found["ir.operators"]["Conv"], 3)
        self.assertEqual((found["ir.input_count"], found["ir.input_shapes"], found["ir.input_dtypes"]), (1, [("batch", 1, 8, 8)], ["float32"]))
        self.assertEqual((found["ir.output_count"], found["ir.output_shapes"], found["ir.output_dtypes"]), (1, [("batch", 10)], ["float32"]))
        self.assertEqual((found["ir.fingerprint"], found["hash(ir)"]), (self.plain.fingerprint, hash(self.plain)))
        self.assertEqual(found["func(input_data)"].shape, (8, 10))
        self.assertEqual((found["ir.graph_count"], found["ir.is_tensorrt"], found["ir.subgraph_count"]), (1, True, 1))
        self.assertEqual(names["ir"], self.plain)

    def test_compilation(self):
        names = self.names(output_path="sealed")
        here = pathlib.Path.cwd()
        os.chdir(self.work)
        try:
            found = run_lines(COMPILATION, names)
            self.assertEqual(sorted(path.name for path in pathlib.Path("compile_output").iterdir()), ["model.h", "model.ir.txt", "model.so"])
            self.assertEqual(forge.Engine("named/model.so").uuid, UUID)
            with names["lre"] as lre:
                self.assertEqual(lre.infer(self.samples)[0].shape, (8, 10))
            tags = dict(found["forge.list_target_tags(verbose=True)"])
            for kind, name in (("x86", "x86-64"), ("arm", "raspberry-pi/5"), ("android", "android/cpu"), ("cuda", "nvidia/geforce-rtx-3090")):
                self.assertIn((name, tags[name]), found[f"forge.list_{kind}_tags(verbose=True)"])
            for line in GPUS.strip().splitlines():
                with self.subTest(line):
                    run_lines(line, names)
            self.refused("`nvidia/geforce-rtx-3070`", names["ir"].compile, "nvidia/geforce-rtx-307", force_overwrite=True)
            self.assertTrue(names["ir"].compile("nvidia/geforce-rtx-3070", force_overwrite=True).exists())
            func = names["ir"].get_inference_function("cuda", device="cpu")
            self.assertEqual(func(self.samples).shape, (8, 10))
        finally:
            os.chdir(here)

    # ---- properties ----

    def test_texts_are_shown_as_they_are(self):
        for text in (self.plain.mod, self.plain.typed_mod, self.plain.main.text):
            self.assertEqual(repr(text), str(text))
            self.assertGreater(len(repr(text).splitlines()), 10)
            self.assertLess(len(pickle.dumps(text)), 2 * len(text))  # without the module
        self.assertNotIn("f32", self.plain.mod)
        self.assertIn(" = Conv(image, conv1.weight: f32[16, 1, 3, 3], conv1.bias: f32[16], ", self.plain.typed_mod)
        self.assertEqual(self.plain.typed_mod, self.plain.text)
        page = self.plain._repr_html_() + self.plain.main._repr_html_() + self.plain.main[0]._repr_html_()
        for cell in ("<th>operators</th><td>BatchNormalization 2, Conv 3", "<td>image: f32[batch, 1, 8, 8]</td>", "<th>outputs</th>"):
            self.assertIn(cell, page)
        odd = self.plain.copy()
        odd.name = "<b>"
        self.assertIn("&lt;b&gt;", odd._repr_html_())

    def test_a_damaged_module_has_no_typed_text(self):
        broken = self.plain.copy()
        broken._module.digest.CopyFrom(broken._client._upload_bytes(b"quench.ir 1\nnonsense", "module"))
        broken._forget()
        with self.assertRaises(forge.QuenchError):
            _ = broken.typed_mod

    def test_nodes_and_graphs(self):
        node = self.plain.main[0]
        self.assertEqual((node.name, node.op, node.domain, node.origin, node.graph), ("conv1", "Conv", "", "conv1", "main"))
        self.assertEqual((node.attributes["kernel_shape"], node["op"]), ([3, 3], "Conv"))
        self.assertEqual([(each.name, each.constant, each.shape, each.dtype) for each in node.inputs[1:]],
                         [("conv1.weight", True, (16, 1, 3, 3), "float32"), ("conv1.bias", True, (16,), "float32")])
        self.assertEqual((node.outputs[0].type, node.outputs[0].bytes), ("f32[batch, 16, 8, 8]", 4096))
        self.assertEqual(json.loads(json.dumps(node)), node)
        self.assertEqual([(each.name, each.op, each.outputs[0].shape) for each in self.plain.input_nodes], [("image", "input", ("batch", 1, 8, 8))])
        self.assertEqual((self.plain.output_node.op, [each.name for each in self.plain.output_node.inputs]), ("output", ["logits"]))
        self.assertEqual(list(self.plain.graphs), ["main"])
        self.assertEqual([each.name for each in self.plain], [each.name for each in self.plain.main])
        self.assertEqual(self.plain.main.operators, self.plain.operators)
        parts = self.plain.copy().partition_for_tensorrt()
        self.assertEqual(list(parts.graphs), ["main", "main/tensorrt_0.body"])
        body = parts.graphs["main/tensorrt_0.body"]
        self.assertEqual(([each.name for each in body.input_nodes], [each.name for each in body.output_node.inputs]), (["image"], ["logits"]))
        self.assertEqual((len(body), parts.graph_count, parts.subgraph_count, len(parts.main)), (12, 2, 1, 1))
        self.assertIn("graph main/tensorrt_0.body\ninput image: f32[batch, 1, 8, 8]\nconv1: ", parts.typed_mod)

    def test_weights_are_arrays(self):
        weights = self.plain.weights
        given = {each.name: np.frombuffer(each.raw_data, np.float32).reshape(each.dims) for each in Onnx.load("").graph.initializer}
        self.assertEqual(set(weights), set(given))
        for name, array in given.items():
            np.testing.assert_array_equal(weights[name], array)
        self.assertNotIn("nothing", weights)
        before = self.plain.copy().weights
        self.assertEqual(self.plain.copy().edit("outputs %relu3").weights.get("fc.bias"), None)
        self.assertEqual(before["fc.bias"].shape, (10,))
        for kind, text, array in (
                ("i4[3]", "[-8, 7, -1]", np.array([-8, 7, -1], np.int8)), ("u4[3]", "[15, 0, 7]", np.array([15, 0, 7], np.uint8)),
                ("i2[5]", "[-2, 1, 0, -1, 1]", np.array([-2, 1, 0, -1, 1], np.int8)), ("u2[2]", "[3, 1]", np.array([3, 1], np.uint8)),
                ("bf16[2]", "[1, -2]", np.array([0x3f80, 0xc000], np.uint16)), ("f16[2, 1]", "[1, -2]", np.array([[1], [-2]], np.float16)),
                ("bool[2]", "[true, false]", np.array([True, False])), ("i64[]", "[-5]", np.array(-5)),
                ("str[1]", '["a"]', np.array(["a"], object)), ("f64[0]", "[]", np.empty(0))):
            text = f'quench.ir 1\nmodule "m" canonical {{\ninput %x: f32[1]\nconst %c: {kind} = {text}\n%y = Identity(%c)\noutput %x\noutput %y\n}}\n'
            found = forge.load(text.encode()).weights["c"]
            self.assertEqual((found.dtype, found.shape), (array.dtype, array.shape), kind)
            np.testing.assert_array_equal(found, array)

    def test_equality_is_of_structures(self):
        other = self.relay.copy().edit('constant %fc.bias = file "b.npy"', {"b.npy": np.ones(10, np.float32)})
        self.assertEqual((other, hash(other)), (self.relay, hash(self.relay)))
        self.assertNotEqual(other.fingerprint, self.relay.fingerprint)
        self.assertNotEqual(self.relay, self.single)
        ours = self.plain.copy().edit('constant %fc.bias = file "b.npy"', {"b.npy": np.ones(10, np.float32)})
        self.assertNotEqual(ours, self.plain)

    # ---- RelayModule ----

    def test_modules_are_made_of_modules(self):
        self.assertIs(forge.IRModule, forge.RelayModule)
        self.assertEqual(self.plain.operators["BatchNormalization"], 2)
        made = forge.RelayModule(self.plain)
        self.assertNotIn("BatchNormalization", made.operators)
        self.assertEqual((made, made.fingerprint), (self.relay, self.relay.fingerprint))
        kept = forge.RelayModule(self.plain.mod, fold_batch_norms=False)
        self.assertEqual(kept.operators["BatchNormalization"], 2)
        self.assertEqual(forge.RelayModule(staged.DIGITS, None, False, False, False).fingerprint, self.plain.fingerprint)
        constants = forge.load(b'quench.ir 1\nmodule "m" canonical {\ninput %x: f32[1]\nconst %c: f32[1] = [1]\n'
                               b"%two = Add(%c, %c)\n%y = Mul(%x, %two)\noutput %y\n}\n")
        self.assertEqual(forge.RelayModule(constants).operators, {"Mul": 1})
        self.assertEqual(forge.RelayModule(constants, fold_constants=False).operators, {"Add": 1, "Mul": 1})
        parts = self.plain.copy().partition_for_tensorrt()
        self.assertTrue(forge.RelayModule(parts).is_tensorrt)
        flat = forge.RelayModule(parts, inline_partitions=True)
        self.assertEqual((flat.is_tensorrt, flat.fingerprint), (False, self.relay.fingerprint))
        self.refused("calibrated.*fold_batch_norms=False", forge.RelayModule, self.plain.copy().calibrate(2))
        self.assertTrue(forge.RelayModule(self.calibrated).is_calibrated)
        with forge.Client() as client:
            self.refused("client is for models that are read", forge.RelayModule, self.plain, client=client)
            self.assertIs(forge.RelayModule(staged.DIGITS, client=client)._client, client)

    def test_parameters_that_are_not_frozen(self):
        self.assertEqual(self.relay.params, {})
        loose = forge.RelayModule.from_onnx(sums(weight=True), freeze_params=False)
        self.assertEqual((list(loose.params), loose.input_shapes), (["y"], [(2,)]))
        np.testing.assert_array_equal(loose.params["y"], [1, 2])
        inputs = forge.from_onnx(sums(weight=True), freeze_params=False)
        self.assertEqual((inputs.params, inputs.input_count), (["y"], 2))
        bound = forge.RelayModule(inputs, {"y": [3.0, 4.0]}, fold_constants=False, fold_batch_norms=False)
        np.testing.assert_array_equal(bound.params["y"], [3, 4])
        self.assertEqual(bound.input_count, 1)
        np.testing.assert_array_equal(bound.get_inference_function()(np.ones(2, np.float32))[0], [4, 5])
        self.refused("params: there is no input `z`, there are `x`, `y`", forge.RelayModule, inputs, {"z": [1.0, 2.0]})
        self.assertEqual(list(pickle.loads(pickle.dumps(bound)).params), ["y"])

    def test_copies_and_checkpoints_are_of_the_same_kind(self):
        for other in (self.calibrated.copy(), copy.copy(self.calibrated), copy.deepcopy(self.calibrated), pickle.loads(pickle.dumps(self.calibrated))):
            self.assertIs(type(other), forge.RelayModule)
            self.assertEqual((other, other.fingerprint, other.is_calibrated), (self.calibrated, self.calibrated.fingerprint, True))
        saved = self.relay.save(self.out("checkpoint.qir"))
        self.assertEqual(forge.RelayModule(forge.load(saved)).fingerprint, self.relay.fingerprint)

    # ---- functions ----

    def test_functions_give_arrays(self):
        func = self.relay.get_inference_function()
        logits = func(self.samples)
        self.assertIsInstance(logits, np.ndarray)
        np.testing.assert_allclose(logits, self.plain.get_inference_function()(self.samples), atol=1e-4)
        two = forge.from_onnx(sums())
        for func in (two.get_inference_function(), two.get_inference_function("llvm")):
            results = func([1.0, 2.0], np.array([3, 4], np.float32))
            self.assertIsInstance(results, list)
            np.testing.assert_array_equal(results, [[4, 6], [-4, -6]])
            np.testing.assert_array_equal(func(y=[3.0, 4.0], x=[1.0, 2.0]), results)
        named = two.get_inference_function(named=True)([1.0, 2.0], [3.0, 4.0])
        self.assertEqual(list(named), ["sum", "minus"])
        self.refused("3 inputs, the model has 2", func, 1, 2, 3)
        func = two.get_inference_function()
        two.edit("outputs %sum")
        self.assertEqual(len(func([1.0, 2.0], [3.0, 4.0])), 2)  # of the module as it was

    # ---- methods ----

    def test_batch_sizes(self):
        ir = self.calibrated.copy()
        self.assertEqual(ir.set_batch_size(batch_size=4).input_shapes, [(4, 1, 8, 8)])
        self.assertTrue(ir.is_calibrated)
        for wrong in (0, -1, 2.5, "a"):
            self.refused("batch_size is ", ir.set_batch_size, wrong)

    def test_partitions(self):
        ir = self.relay.copy()
        self.assertIs(ir.partition_for_tensorrt(True, True, True, True), ir)
        self.assertEqual((ir.is_tensorrt, ir.subgraph_count), (True, 1))
        before = self.relay.get_inference_function()(self.samples)
        np.testing.assert_allclose(ir.get_inference_function()(self.samples), before, atol=1e-5)
        self.assertEqual(ir.inline_partitions().fingerprint, self.relay.fingerprint)
        self.refused("calibrated.*force=True", self.calibrated.copy().partition_for_tensorrt)
        self.assertTrue(self.calibrated.copy().partition_for_tensorrt(force=True).is_tensorrt)

    def test_tensors_are_split(self):
        self.refused("calibrated.*force=True", self.calibrated.copy().split_tensors)
        ir = self.calibrated.copy().split_tensors(True)
        self.assertEqual((ir.is_split_tensors, ir.is_calibrated), (True, False))
        self.assertGreater(ir.operators["Conv"], 3)

    def test_calibration(self):
        ir = self.single.copy()
        before = (ir.fingerprint, hash(ir), ir.operators)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ir.calibrate(list(self.samples[:, None]), True, True)
            ir.calibrate(calib_data=self.samples, reset=False, use_cuda=True)
            self.plain.copy().set_batch_size(1).calibrate(self.samples)
            self.plain.copy().set_batch_size(1).calibrate(self.samples, use_cuda=False)
        self.assertEqual((ir.fingerprint, hash(ir), ir.operators), before)
        self.assertTrue(ir.is_calibrated)
        with self.assertWarnsRegex(UserWarning, "the gateway's quantizer has no GPU, a CPU ran the samples"):
            self.assertTrue(self.plain.copy().set_batch_size(1).calibrate(self.samples, use_cuda=True).is_calibrated)

    def types(self, ir):
        """Types and scales' shapes of the first convolution's weights and biases."""
        made = {each.name: node for node in ir for each in node.outputs}
        convolution = next(node for node in ir if node.op == "Conv")
        sources = [made.get(each.name) for each in convolution.inputs]
        return [source and (source.inputs[0].dtype, source.inputs[1].shape) for source in sources[1:]]

    def test_quantization_has_the_defaults_of_the_page(self):
        for more, weights, biases in (((), "int8", "int8"), (("uint8",), "uint8", "int8"), (("int8", "uint8"), "uint8", "int8"),
                                      (("int8", None, "int32"), "int8", "int32"), (("uint8", "uint8", "uint8"), "uint8", "int8")):
            ir = self.calibrated.copy().quantize(*more)
            self.assertTrue(ir.is_quantized)
            self.assertEqual(self.types(ir), [(weights, ()), (biases, ())], more)
        each = self.calibrated.copy().quantize("int8", None, None, True, "minmax", "static")
        self.assertEqual(self.types(each)[0], ("int8", (16,)))
        ours = self.plain.copy().set_batch_size(1).calibrate(self.samples).quantize()
        self.assertNotEqual(self.types(ours)[0], ("int8", ()))
        self.assertIn("DynamicQuantizeLinear", self.calibrated.copy().quantize(quant_type="dynamic").operators)
        self.assertTrue(self.single.copy().quantize(quant_type="weights").is_quantized)
        self.refused("not calibrated", self.single.copy().quantize, quant_type="static")

    # ---- compile ----

    def test_libraries_have_random_uuids(self):
        quick = {"check": "no", "opt_level": 0}
        found = {forge.Engine(self.relay.compile(output_path=self.out(f"uuid{i}"), **quick)).uuid for i in range(2)}
        found |= {forge.Engine(self.plain.compile(output_path=self.out(f"own{i}"), **quick)).uuid for i in range(2)}
        self.assertEqual(len(found), 3)

    def test_what_exists_is_a_value_error(self):
        self.relay.compile(output_path=self.out("there"), check="no", opt_level=0, export_relay=True)
        for error in (ValueError, FileExistsError, forge.OutputExistsError):
            self.refused("model.so` exists; force_overwrite=True", self.relay.compile, output_path=self.out("there"), error=error)
        (self.out("there") / "model.so").unlink()
        self.refused("model.h` exists", self.relay.compile, output_path=self.out("there"))
        (self.out("there") / "model.h").unlink()
        self.refused("model.ir.txt` exists", self.relay.compile, output_path=self.out("there"), export_relay=True)
        self.refused("digits.onnx` exists and is no folder", self.relay.compile, output_path=staged.DIGITS, force_overwrite=True)
        self.assertFalse((self.out("there") / "model.so").exists())

    def test_texts_are_exported(self):
        out = self.out("texts")
        self.relay.compile(output_path=out, export_relay=True, export_metadata=True)
        self.assertEqual(forge.load(out / "model.ir.txt").get_inference_function("llvm")(self.samples).shape, (8, 10))
        self.assertIn("kernels", json.loads((out / "metadata.json").read_text()))
        self.relay.compile(None, None, out, 3, False, None, True, force_overwrite=True, encrypt_password="test_password")
        self.refused("blob|weights|missing", forge.load, out / "model.ir.txt", error=forge.QuenchError)

    def test_keys_of_targets(self):
        for target in ({"kind": "llvm", "mcpu": "skylake", "keys": ["cpu"], "device": "desk", "model": "m", "num-cores": 2},
                       '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"]}', "llvm -mcpu=skylake"):
            self.relay.compile(target, check="no", opt_level=0, output_path=self.out("target"), force_overwrite=True)
        self.relay.compile("x86-64", "llvm -mcpu=skylake", check="no", opt_level=0, output_path=self.out("target"), force_overwrite=True)
        for words, target in (("cblas", {"kind": "llvm", "libs": ["cblas"]}), ("`kind`", {"mcpu": "haswell"}), ("JSON", "{bad json")):
            self.refused(words, self.relay.compile, target, output_path=self.out("target"), force_overwrite=True, error=forge.QuenchError)

    # ---- loading ----

    def test_options_of_from_onnx(self):
        given = {"image": (4, 1, 8, 8)}
        for ir in (forge.from_onnx(Onnx.load(""), given), forge.from_onnx(model=Onnx.load(""), shape=given),
                   forge.from_onnx(staged.DIGITS, shapes=given)):
            self.assertEqual(ir.input_shapes, [(4, 1, 8, 8)])
        self.assertEqual(forge.from_onnx(sums(), None, {"x": "float64", "y": "float64"}).input_dtypes, ["float64"] * 2)
        self.assertEqual(forge.from_onnx(sums(), dtype="float64").input_dtypes, ["float64"] * 2)
        self.assertEqual(forge.from_onnx(sums(7), dtype="int32").output_dtypes, ["int32"] * 2)
        self.refused("dtype is float32, and no input is of its kind: the model takes int64, int64", forge.from_onnx, sums(7), dtype="float32")
        self.refused("dtype: unknown type `complex7`", forge.from_onnx, sums(), dtype="complex7")
        self.assertEqual(forge.from_onnx(sums(), None, None, 13), forge.from_onnx(sums()))
        self.refused("opset", forge.from_onnx, sums(), opset=9999)
        flat = forge.from_onnx(staged.DIGITS, None, None, None, True, {"use_nt_batch_matmul": False})
        self.assertEqual(flat.operators["Gemm"], 1)
        path = self.out("renamed.onnx")
        forge.from_onnx(sums(), export_node_renamed_model_path=path)
        self.assertTrue(all(node.name for node in message("quench.onnx.v1.ModelProto").FromString(path.read_bytes()).graph.node))
        for wrong in ({"shape": {}, "shapes": {}}, {"freeze_params": False, "no_freeze": ["y"]}, {"dtype": "int8", "dtypes": {}}):
            self.refused("are one option", forge.from_onnx, sums(), error=TypeError, **wrong)

    def models(self, kind, name):
        """Files of a recorded case, by the endings of their names."""
        with zipfile.ZipFile(staged.ROOT / f"tests/cases/{kind}/{name}.zip") as archive:
            archive.extractall(self.out(kind))
            return {pathlib.Path(each).suffix: self.out(kind) / each for each in archive.namelist() if "model" in each}

    def test_options_of_from_keras(self):
        path = self.models("keras", "Conv2D")[".keras"]
        expected = np.load(path.parent / "out.0.npy")
        image = np.load(path.parent / "in.input_layer.npy")
        made = {}
        for layout in ("NCHW", "NHWC"):
            ir = forge.RelayModule.from_keras(path, {"input_layer": image.shape}, layout)
            self.assertEqual(ir.input_shapes, [image.shape])  # images go in as they did
            with mock.patch("quench._results.fill_compile_options", wraps=forge._results.fill_compile_options) as filled:
                made[layout] = ir.compile(output_path=self.out(layout), uuid=UUID)
            self.assertEqual(filled.call_args.args[1]["set_channel_layout"], {"NCHW": "first", "NHWC": "last"}[layout])
            np.testing.assert_allclose(forge.Engine(made[layout]).infer(image)[0], expected, atol=1e-5)
        self.assertEqual(forge.RelayModule.from_keras(path)._layout, "first")
        self.assertEqual(pickle.loads(pickle.dumps(ir))._layout, "last")
        self.refused("layout is `NCWH`", forge.RelayModule.from_keras, path, layout="NCWH")
        batch, height, width, channels = image.shape
        self.assertEqual(forge.from_keras(path, {"input_layer": (batch, channels, height, width)}, "NCHW").input_shapes,
                         [(batch, channels, height, width)])

    def test_options_of_from_tensorflow(self):
        path = self.models("tensorflow", "Conv2D")[".pb"]
        expected = np.load(path.parent / "out.result_0.npy")
        image = np.load(path.parent / "in.x.npy")
        graph = message("quench.tensorflow.v1.GraphDef").FromString(path.read_bytes())
        for ir in (forge.from_tensorflow(graph), forge.RelayModule.from_tensorflow(graph, "NCHW", {"x": image.shape}, ["result_0"], {"use_dense": True})):
            self.assertEqual(ir.input_shapes, [image.shape])
            np.testing.assert_allclose(ir.get_inference_function("llvm")(image), expected, atol=1e-5)
        self.assertEqual(ir._layout, "first")
        self.refused("use_nothing", forge.from_tensorflow, graph, convert_config={"use_nothing": True})

    def test_options_of_from_tflite(self):
        with mock.patch("quench.loading.load") as load:
            forge.from_tflite("m.tflite", {"x": (1, 2)}, {"x": "int8"})
        load.assert_called_once_with("m.tflite", format="tflite", shapes={"x": (1, 2)}, dtypes={"x": "int8"})
        self.refused("schema version 0", forge.from_tflite, b"\x1c\0\0\0TFL3" + bytes(64), {"x": (1, 2)}, error=forge.QuenchError)

    def test_maps_of_conversions_are_texts(self):
        for words, error, given in (("`aten::relu` is a builtin_function_or_method, must be the text", TypeError, {"aten::relu": max}),
                                    ("must be a dict by names of operators", TypeError, ["some text"]),
                                    ("has no `module \"aten::relu\"`", ValueError, {"aten::relu": 'quench.ir 1\nmodule "aten::sin" canonical {}'})):
            self.refused(words, forge.from_torch, None, [], given, error=error)

    # ---- words ----

    def test_near_names(self):
        for words, method, wrong in ((r"^calibrate\(\) has no option `use_cuds`; did you mean `use_cuda`", self.relay.calibrate, "use_cuds"),
                                     (r"^calibrate\(\) .*did you mean `data`", self.plain.calibrate, "calib_data"),
                                     (r"^compile\(\) .*did you mean `export_ir`", self.plain.compile, "export_relay"),
                                     (r"^quantize\(\) .*did you mean `per_channel`", self.relay.quantize, "per_chanel"),
                                     (r"^set_batch_size\(\) .*did you mean `batch_size`", self.relay.set_batch_size, "batchsize"),
                                     (r"^partition_for_tensorrt\(\) .*did you mean `remove_stacks`", self.relay.partition_for_tensorrt, "remove_stack"),
                                     (r"^RelayModule\(\) .*did you mean `fold_constants`", lambda **named: forge.RelayModule("m", **named), "fold_constant"),
                                     (r"^Engine\(\) .*did you mean `password`", lambda **named: forge.LatentRuntimeEngine("m", **named), "pasword"),
                                     (r"^get_inference_function\(\) .*did you mean `target`", self.relay.get_inference_function, "tagret")):
            self.refused(words, method, error=TypeError, **{wrong: 1})

    def test_refusals_are_about_python(self):
        with self.assertRaises(ValueError) as refusal:
            self.relay.quantize(calib_method="percentile", percentile=0, quant_type="dynamic")
        self.assertNotRegex(str(refusal.exception), r"(^|[ `])--[a-z]")
        self.assertTrue(re.search("percentile", str(refusal.exception)))


if __name__ == "__main__":
    staged.main()
