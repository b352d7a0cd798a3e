"""A small builder of ONNX graphs with random weights, for networks.py."""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    # Settings of `--tiny`: channels are divided by `narrow`, images have `side` pixels.
    narrow, side, opset = 1, None, 17
    # Setting of `--repeat-weights`: after how many channels weights repeat. 48 is no multiple of a kernel's tiles.
    period = None

    def __init__(self, name, inputs):
        self.name, self.nodes, self.constants = name, [], []
        self.inputs = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]

    @classmethod
    def channels(cls, n):
        """How many channels a layer of `n` has; images keep their three."""
        return n if n <= 3 or cls.narrow == 1 else max(1, n // cls.narrow)

    def fresh(self, op):
        return f"{op.lower()}_{len(self.nodes)}"

    def constant(self, array, name=None):
        name = name or f"c_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def tensor(self, array):
        """A constant for an attribute."""
        return numpy_helper.from_array(np.asarray(array, order="C"))

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def weight(self, shape, fan_in, summed=None):
        """`summed`: the axis of input channels. Where weights repeat, channels do almost, and their sum is as much larger."""
        rng = np.random.default_rng(len(self.constants))
        block = self.block(shape)
        if summed is not None:
            fan_in *= shape[summed] / block[summed]
        values = rng.standard_normal(block, dtype=np.float32) * np.float32(math.sqrt(2.0 / fan_in))
        return self.constant(self.repeated(values, shape))

    def vector(self, n, low, high):
        """Numbers around zero (a bias) never repeat, so that no two channels are equal where weights do."""
        rng = np.random.default_rng(len(self.constants))
        if low < 0:
            return self.constant(rng.uniform(low, high, n).astype(np.float32))
        return self.constant(self.repeated(rng.uniform(low, high, self.block((n,))).astype(np.float32), (n,)))

    @classmethod
    def block(cls, shape):
        """The part of a weight that is random."""
        return shape if cls.period is None else tuple(min(n, cls.period) for n in shape)

    @staticmethod
    def repeated(block, shape):
        for axis, n in enumerate(shape):
            if n != block.shape[axis]:
                block = np.take(block, np.arange(n) % block.shape[axis], axis)
        return block

    def op(self, op, *inputs, **attributes):
        return self.ops(op, 1, *inputs, **attributes)[0]

    def ops(self, op, outputs, *inputs, **attributes):
        name = self.fresh(op)
        names = [name] + [f"{name}_{i}" for i in range(1, outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name, **attributes))
        return names

    def conv(self, x, c_in, c_out, k, s=1, p=None, g=1, bias=False, exact=False):
        """`exact`: c_out is not a number of channels that `--tiny` divides."""
        kh, kw = (k, k) if isinstance(k, int) else k
        p = ((kh - 1) // 2, (kw - 1) // 2) if p is None else ((p, p) if isinstance(p, int) else p)
        g = self.channels(g) if g == c_in else g
        c_in, c_out = self.channels(c_in), c_out if exact else self.channels(c_out)
        inputs = [x, self.weight((c_out, c_in // g, kh, kw), c_in // g * kh * kw, summed=1)]
        if bias:
            inputs.append(self.vector(c_out, -0.1, 0.1))
        return self.op("Conv", *inputs, kernel_shape=[kh, kw], strides=[s, s], pads=[p[0], p[1], p[0], p[1]], group=g)

    def bn(self, x, c):
        c = self.channels(c)
        return self.op("BatchNormalization", x, self.vector(c, 0.5, 1.0), self.vector(c, -0.1, 0.1), self.vector(c, -0.1, 0.1),
                       self.vector(c, 0.5, 1.5))

    def conv_bn(self, x, c_in, c_out, k, s=1, g=1, act="Relu", p=None):
        x = self.bn(self.conv(x, c_in, c_out, k, s, p, g), c_out)
        return self.act(x, act)

    def act(self, x, act):
        if act == "Relu6":
            return self.op("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))
        if act == "Silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if act == "LeakyRelu":
            return self.op(act, x, alpha=0.1)
        return self.op(act, x) if act else x

    def pool(self, x, k, s, p=0, ceil=0):
        return self.op("MaxPool", x, kernel_shape=[k, k], strides=[s, s], pads=[p] * 4, ceil_mode=ceil)

    def fc(self, x, c_in, c_out):
        c_in, c_out = self.channels(c_in), self.channels(c_out)
        return self.op("Gemm", x, self.weight((c_out, c_in), c_in, summed=1), self.vector(c_out, -0.1, 0.1), transB=1)

    def head(self, x, c, classes=1000):
        return self.fc(self.op("Flatten", self.op("GlobalAveragePool", x)), c, classes)

    def linear(self, x, c_in, c_out):
        y = self.op("MatMul", x, self.weight((c_in, c_out), 2 * c_in, summed=0))
        return self.op("Add", y, self.vector(c_out, -0.1, 0.1))

    def norm(self, x, c):
        return self.op("LayerNormalization", x, self.vector(c, 0.9, 1.1), self.vector(c, -0.1, 0.1), axis=-1, epsilon=1e-5)

    def model(self, *outputs):
        infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, infos, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], producer_name="quench-networks")
        model.ir_version = 8
        return onnx.shape_inference.infer_shapes(model)


def image_net(name, size=224):
    size = Net.side or size
    return Net(name, [("image", TensorProto.FLOAT, ["batch", 3, size, size])])
