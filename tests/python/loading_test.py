#!/usr/bin/python3
"""Models and options that loading refuses, and its messages: loading_test.py QUENCH. PyTorch is torch_test.py's."""

import unittest

import staged

import numpy as np
import quench
from quench._gateway import message
from quench._wording import in_python


def unknown_shape():
    """The bytes of an ONNX model whose input `keep` has no shape."""
    model = message("quench.onnx.v1.ModelProto")(ir_version=8)
    model.opset_import.add(version=17)
    graph = model.graph
    graph.name = "g"
    graph.node.add(op_type="Relu", input=["keep"], output=["y"])
    graph.input.add(name="keep").type.tensor_type.elem_type = 1
    graph.output.add(name="y").type.tensor_type.elem_type = 1
    return model.SerializeToString()


class LoadingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = quench.Client()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def test_options_that_no_function_has_are_refused_by_its_name(self):
        for function, option, words in (
                (quench.from_torch, "nonsense", r"^from_torch\(\) has no option `nonsense`; it takes `batch`"),
                (quench.from_torch, "custom_convert_mop", r"^from_torch\(\) .*did you mean `custom_convert_map`"),
                (quench.from_onnx, "freeze_param", r"^from_onnx\(\) .*did you mean `freeze_params`"),
                (quench.from_onnx, "layuot", r"^from_onnx\(\) .*did you mean `layout`"),
                (quench.from_tflite, "dtypes_dict", r"^from_tflite\(\) .*did you mean `dtype_dict`"),
                (quench.from_keras, "shape_dict", r"^from_keras\(\) .*did you mean `shapes`"),
                (quench.from_tensorflow, "sahpe", r"^from_tensorflow\(\) .*did you mean `shape`"),
                (quench.load, "custom_convert_map", r"^load\(\) .*did you mean `conversions`"),
                (quench.load, "batch_size", r"^load\(\) has no option `batch_size`")):
            with self.assertRaisesRegex(TypeError, words):
                function(*["nothing.file", []][:1 + (function is quench.from_torch)], **{option: 1})

    def test_values_of_options_are_checked_before_the_model_is_looked_at(self):
        for words, options in (("shapes: that of `x` is 3,", {"shapes": {"x": 3}}), ("shapes: a size of `x` is 1.5", {"shapes": {"x": [1.5]}}),
                               ("shapes: a size of `x` is nan", {"shapes": {"x": [float("nan")]}}), ("shapes: .*not a dict", {"shapes": [1, 2]}),
                               ("dims: the greatest size of `n` is 1, must be at least 2", {"dims": {"n": (2, 1)}}),
                               ("batch is 'a', must be at least 1", {"batch": "a"}), ("batch is -1", {"batch": -1}),
                               ("opset is '17'", {"opset": "17"}), ("outputs: 3 is not a string", {"outputs": [3]}),
                               ("layout is `NCWH`", {"layout": "NCWH"}), ("unknown type `float7`", {"dtypes": {"x": "float7"}})):
            with self.assertRaisesRegex(ValueError, words):
                self.client.load("there is no such file", **options)

    def test_what_is_no_model_is_a_type_error(self):
        for wrong in (None, 3, {}):
            with self.assertRaisesRegex(TypeError, f"a {type(wrong).__name__} is no model: a path"):
                self.client.load(wrong)

    def test_refusals_speak_of_python(self):
        with self.assertRaisesRegex(ValueError, r'give one, such as shapes=\{"keep": \(1, 3, 224, 224\)\} \(of a single number: `\(\)`\)$'):
            self.client.load(unknown_shape())
        self.assertEqual(self.client.load(unknown_shape(), shapes={"keep": ()}).input_shapes, [()])
        self.assertEqual(in_python("with `--architecture FILE.json`; --batch 4: no; --shape x=5"),
                         'with `architecture="FILE.json"`; batch 4: no; shapes={"x": (5,)}')
        self.assertEqual(in_python("like `--size a=1 --size b_c=64`; no node (`quench nodes` lists them), no value (`quench ir` shows them)"),
                         'like `sizes={"a": 1, "b_c": 64}`; no node (`ir.main` has them), no value (`ir.text` has them)')
        with self.assertRaisesRegex(ValueError, "`default_type` is an option for models of format torch"):
            self.client.load(staged.DIGITS, default_type="float64")


if __name__ == "__main__":
    staged.main()
