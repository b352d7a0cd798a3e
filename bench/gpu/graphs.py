"""Small ONNX graphs of related operators, which the pack has beside the networks: each output is named for its operator."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LARGE = [64, 128]
LARGE_WEIGHTS, PERIOD = 40000, 48  # as of bench/models/networks.py --repeat-weights


class Graph:
    """Collects nodes. Inputs have the ranges from which gpu_device.make_inputs draws.

    The compiler leaves on the host what is too small to be worth a transfer. So each input of an operator has a zero added
    to it that the GPU computes, of an input which is large enough: what follows is then cheaper there.
    """

    def __init__(self, opset=21):
        self.opset, self.inputs, self.outputs = opset, [], []
        self._nodes, self._constants, self._infos, self._count, self._zeros = [], [], [], 0, {}

    def _fresh(self, prefix):
        self._count += 1
        return f"{prefix}_{self._count}"

    def x(self, *shape, low=-1.0, high=1.0, dtype="float32", values=None, symbolic=()):
        """An input. `symbolic`: names of its first dims, instead of sizes."""
        name = self._fresh("x")
        spec = {"name": name, "dtype": dtype, "shape": list(shape)}
        self.inputs.append({**spec, "values": values} if values is not None else {**spec, "low": low, "high": high})
        dims = [*symbolic, *shape[len(symbolic):]]
        self._infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims))
        return self.op("Or" if dtype == "bool" else "Add", name, self._zero(dtype))

    def _zero(self, dtype):
        if not self._zeros:
            self._infos.append(helper.make_tensor_value_info("large", TensorProto.FLOAT, LARGE))
            self.inputs.append({"name": "large", "dtype": "float32", "shape": LARGE, "low": -1.0, "high": 1.0})
            rows = self.op("ReduceMax", self.op("Tanh", "large"), self.ints(1), keepdims=0)
            self._zeros["float32"] = self.op("Mul", self.op("ReduceMax", rows, keepdims=0), self.c(0, np.float32))
        if dtype not in self._zeros:
            to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            self._zeros[dtype] = self.op("Cast", self._zeros["float32"], to=to)
        return self._zeros[dtype]

    def c(self, values, dtype=None):
        """A constant."""
        name = self._fresh("c")
        self._constants.append(numpy_helper.from_array(np.asarray(values, dtype, order="C"), name))
        return name

    def ints(self, *values):
        return self.c(values, np.int64)

    def w(self, *shape, fan_in=None):
        """A random constant, for weights divided by the root of what is summed. Large ones repeat a block, to compress well."""
        block = [min(n, PERIOD) if np.prod(shape) > LARGE_WEIGHTS else n for n in shape]
        values = np.random.default_rng(self._count).standard_normal(block) / np.sqrt(fan_in or 1)
        return self.c(values[np.ix_(*[np.arange(n) % kept for n, kept in zip(shape, block)])], np.float32)

    def op(self, kind, *inputs, outputs=1, domain="", **attributes):
        names = [self._fresh(kind.lower()) for _ in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, names[0], domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def out(self, label, kind, *inputs, **attributes):
        """An operator whose only result is the output `label`."""
        self._nodes.append(helper.make_node(kind, list(inputs), [label], label, **attributes))
        self.outputs.append(label)

    def model(self, name):
        infos = [onnx.ValueInfoProto(name=label) for label in self.outputs]
        graph = helper.make_graph(self._nodes, name, self._infos, infos, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], producer_name="quench-gpu")
        model.ir_version = 10
        return onnx.shape_inference.infer_shapes(model)


def subgraph(nodes, inputs, outputs, constants=()):
    """A body: [(name, element type, shape)] of its ends."""
    ends = [[helper.make_tensor_value_info(*end) for end in side] for side in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *ends, list(constants))


# ---- products ----

def convolutions():
    g = Graph()

    def conv(label, c_in, c_out, size, k, group=1, **attributes):
        x = g.x(1, c_in, *size)
        fan_in = c_in // group * int(np.prod(k))
        g.out(label, "Conv", x, g.w(c_out, c_in // group, *k, fan_in=fan_in), g.w(c_out), group=group, **attributes)

    conv("plain_3x3", 32, 48, (14, 14), (3, 3), pads=[1] * 4)
    conv("pointwise", 64, 96, (14, 14), (1, 1))
    conv("odd_channels", 37, 53, (9, 11), (3, 3), pads=[1] * 4)
    conv("stride_2", 32, 64, (15, 15), (3, 3), pads=[1] * 4, strides=[2, 2])
    conv("image_7x7", 3, 64, (32, 32), (7, 7), pads=[3] * 4, strides=[2, 2])
    conv("dilated", 16, 24, (13, 13), (3, 3), pads=[2] * 4, dilations=[2, 2])
    conv("grouped", 32, 64, (9, 9), (3, 3), group=4, pads=[1] * 4)
    conv("depthwise", 48, 48, (14, 14), (3, 3), group=48, pads=[1] * 4)
    conv("depthwise_stride_2", 40, 40, (15, 13), (5, 5), group=40, pads=[2] * 4, strides=[2, 2])
    conv("uneven_pads", 16, 32, (9, 12), (3, 5), pads=[0, 2, 1, 1])
    conv("one_axis", 16, 24, (50,), (3,), pads=[1, 1])
    conv("three_axes", 8, 12, (5, 6, 7), (3, 3, 3), pads=[1] * 6)
    x = g.x(1, 64, 10, 10)
    y = g.op("Conv", x, g.w(64, 64, 3, 3, fan_in=576), pads=[1] * 4)
    scale, shift, mean, variance = g.w(64), g.w(64), g.w(64), g.c(np.linspace(0.5, 1.5, 64), np.float32)
    y = g.op("BatchNormalization", y, scale, shift, mean, variance)
    g.out("residual", "Relu", g.op("Add", y, x))
    return g


def transposed():
    g = Graph()
    g.out("stride_2", "ConvTranspose", g.x(1, 16, 7, 9), g.w(16, 24, 3, 3, fan_in=144), strides=[2, 2], pads=[1] * 4)
    g.out("wider", "ConvTranspose", g.x(1, 8, 5, 5), g.w(8, 6, 4, 4, fan_in=64), strides=[2, 2], output_padding=[1, 1])
    g.out("grouped", "ConvTranspose", g.x(1, 8, 5, 5), g.w(8, 3, 3, 3, fan_in=36), group=2)
    return g


def products():
    g = Graph()

    def linear(label, m, k, n, then):
        y = g.op("Add", g.op("MatMul", g.x(m, k), g.w(k, n, fan_in=k)), g.w(n))
        then(label, y)

    linear("odd", 5, 37, 19, lambda label, y: g.out(label, "Relu", y))
    linear("aligned_gelu", 128, 256, 192, lambda label, y: g.out(label, "Gelu", y))
    linear("one_row", 1, 1024, 1000, lambda label, y: g.out(label, "Tanh", y))
    linear("deep", 3, 4096, 64, lambda label, y: g.out(label, "Identity", y))
    linear("tall_silu", 500, 64, 40, lambda label, y: g.out(label, "Mul", y, g.op("Sigmoid", y)))
    g.out("scaled", "Gemm", g.x(33, 70), g.w(50, 70, fan_in=70), g.w(50), transB=1, alpha=0.5, beta=2.0)
    g.out("three_axes", "MatMul", g.x(2, 17, 64), g.w(64, 48, fan_in=64))
    return g


def batched():
    g = Graph()
    g.out("batched", "MatMul", g.x(2, 3, 17, 33), g.x(2, 3, 33, 29))
    g.out("broadcast", "MatMul", g.x(2, 3, 16, 64), g.x(1, 1, 64, 32))
    g.out("swapped", "MatMul", g.x(4, 40, 24), g.op("Transpose", g.x(4, 56, 24), perm=[0, 2, 1]))
    g.out("einsum", "Einsum", g.x(2, 5, 7), g.x(2, 7, 6), equation="bij,bjk->bki")
    return g


def attention():
    g = Graph(opset=23)
    for label, heads, queries, keys, width, masked in (("plain", 4, 37, 37, 32, False), ("masked", 2, 50, 70, 64, True)):
        q, k, v = g.x(1, heads, queries, width), g.x(1, heads, keys, width), g.x(1, heads, keys, width)
        scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.c(width ** -0.5, np.float32))
        if masked:
            scores = g.op("Add", scores, g.x(1, 1, queries, keys, low=-8, high=0))
        g.out(label, "MatMul", g.op("Softmax", scores, axis=-1), v)
    g.out("operator", "Attention", g.x(1, 2, 9, 16), g.x(1, 2, 11, 16), g.x(1, 2, 11, 16))
    return g


# ---- rows ----

def norms():
    g = Graph(opset=23)
    for n in (37, 768, 5000):
        g.out(f"layer_norm_{n}", "LayerNormalization", g.x(5, n), g.w(n), g.w(n))
    g.out("rms_norm", "RMSNormalization", g.x(5, 96), g.w(96))
    g.out("instance_norm", "InstanceNormalization", g.x(2, 8, 9, 9), g.w(8), g.w(8))
    g.out("group_norm", "GroupNormalization", g.x(2, 8, 9, 9), g.w(8), g.w(8), num_groups=4)
    variance = g.c(np.linspace(0.5, 1.5, 8), np.float32)
    g.out("batch_norm", "BatchNormalization", g.x(2, 8, 5, 5), g.w(8), g.w(8), g.w(8), variance)
    g.out("lrn", "LRN", g.x(1, 8, 5, 5), size=3)
    g.out("lp_norm", "LpNormalization", g.x(5, 37), axis=1, p=2)
    return g


def softmaxes():
    g = Graph()
    g.out("rows_37", "Softmax", g.x(5, 37, low=-4, high=4), axis=-1)
    g.out("rows_2000", "Softmax", g.x(20, 2000, low=-4, high=4), axis=-1)
    g.out("columns", "Softmax", g.x(2, 19, 6, low=-4, high=4), axis=1)
    g.out("log_softmax", "LogSoftmax", g.x(5, 37, low=-4, high=4), axis=-1)
    return g


def reductions():
    g = Graph()
    for kind in ("Sum", "Mean", "Max", "Min", "L1", "L2", "LogSumExp", "SumSquare"):
        g.out(f"{kind}_rows", f"Reduce{kind}", g.x(6, 130), g.ints(1), keepdims=0)
    g.out("Prod_rows", "ReduceProd", g.x(6, 20, low=0.8, high=1.2), g.ints(1))
    g.out("Sum_columns", "ReduceSum", g.x(130, 6), g.ints(0), keepdims=0)
    g.out("Mean_middle", "ReduceMean", g.x(3, 20, 9, 4), g.ints(1, 2))
    g.out("Sum_long", "ReduceSum", g.x(100000), keepdims=0)
    g.out("Max_all", "ReduceMax", g.x(33, 77), keepdims=0)
    g.out("ArgMax", "ArgMax", g.x(6, 130), axis=1)
    g.out("ArgMin", "ArgMin", g.x(9, 5), axis=0, keepdims=0)
    g.out("CumSum", "CumSum", g.x(5, 37), g.c(1, np.int64))
    values, places = g.op("TopK", g.x(5, 90), g.ints(7), outputs=2)
    g.out("TopK_values", "Identity", values)
    g.out("TopK_places", "Identity", places)
    return g


# ---- elements ----

def unary():
    g = Graph()
    for kind in ("Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg",
                 "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tanh", "Atan", "Sinh"):
        g.out(kind, kind, g.x(5, 37, low=-4, high=4))
    for kind in ("Log", "Reciprocal", "Sqrt"):
        g.out(kind, kind, g.x(5, 37, low=0.1, high=4))
    g.out("Clip", "Clip", g.x(37), g.c(-0.5, np.float32), g.c(0.25, np.float32))
    return g


def binary():
    g = Graph()
    for kind in ("Add", "Sub", "Mul", "Max", "Min", "PRelu", "Less", "GreaterOrEqual"):
        g.out(kind, kind, g.x(5, 37), g.x(37))
    g.out("Div", "Div", g.x(5, 37), g.x(5, 1, low=0.5, high=2))
    g.out("Pow", "Pow", g.x(5, 37, low=0.1, high=2), g.x(37, low=-2, high=2))
    g.out("broadcast_both", "Add", g.x(4, 1, 6), g.x(5, 1))
    g.out("Where", "Where", g.x(37, low=0, high=2, dtype="bool"), g.x(5, 37), g.x(37))
    for kind in ("Add", "Mul", "BitwiseXor"):
        g.out(f"{kind}_i32", kind, g.x(5, 37, low=-1000, high=1000, dtype="int32"), g.x(37, low=-1000, high=1000, dtype="int32"))
    for kind in ("Div", "Mod"):
        g.out(f"{kind}_i64", kind, g.x(5, 37, low=-1000, high=1000, dtype="int64"), g.x(37, low=1, high=50, dtype="int64"))
    g.out("And", "And", g.x(37, low=0, high=2, dtype="bool"), g.x(37, low=0, high=2, dtype="bool"))
    g.out("shift", "BitShift", g.x(37, low=0, high=256, dtype="uint8"), g.x(37, low=0, high=8, dtype="uint8"), direction="LEFT")
    for name, to in (("i32", TensorProto.INT32), ("i64", TensorProto.INT64), ("u8", TensorProto.UINT8), ("bool", TensorProto.BOOL)):
        g.out(f"to_{name}", "Cast", g.x(5, 37, low=0, high=200), to=to)
    g.out("through_f16", "Cast", g.op("Cast", g.x(5, 37), to=TensorProto.FLOAT16), to=TensorProto.FLOAT)
    g.out("from_i64", "Cast", g.x(37, low=-1000, high=1000, dtype="int64"), to=TensorProto.FLOAT)
    return g


# ---- places ----

def movements():
    g = Graph()
    for perm in ((1, 0, 2), (2, 1, 0), (0, 2, 1)):
        g.out("transpose_" + "".join(map(str, perm)), "Transpose", g.x(5, 33, 70), perm=perm)
    g.out("slice", "Slice", g.x(5, 37), g.ints(30), g.ints(1), g.ints(1), g.ints(-3))
    for mode in ("constant", "reflect", "edge"):
        g.out(f"pad_{mode}", "Pad", g.x(5, 37), g.ints(1, 0, 2, 3), mode=mode)
    g.out("concat", "Concat", g.x(5, 3), g.x(5, 4), g.x(5, 30), axis=1)
    for i, part in enumerate(g.op("Split", g.x(5, 36), outputs=3, axis=1, num_outputs=3)):
        g.out(f"split_{i}", "Neg", part)
    g.out("tile", "Tile", g.x(5, 37), g.ints(2, 3))
    g.out("expand", "Expand", g.x(5, 1), g.ints(3, 5, 37))
    g.out("depth_to_space", "DepthToSpace", g.x(1, 8, 5, 6), blocksize=2)
    g.out("space_to_depth", "SpaceToDepth", g.x(1, 2, 6, 8), blocksize=2)
    g.out("trilu", "Trilu", g.x(7, 9), upper=0)
    return g


def gathers():
    g = Graph()
    g.out("rows", "Gather", g.x(50, 37), g.x(3, 4, low=0, high=50, dtype="int64"))
    g.out("columns", "Gather", g.x(5, 37), g.x(6, low=-37, high=37, dtype="int64"), axis=1)
    g.out("elements", "GatherElements", g.x(5, 37), g.x(2, 37, low=0, high=5, dtype="int64"))
    g.out("points", "GatherND", g.x(5, 6, 7), g.x(4, 2, low=0, high=5, dtype="int64"))
    g.out("scatter_elements", "ScatterElements", g.x(5, 37), g.x(1, 37, low=0, high=5, dtype="int64"), g.x(1, 37))
    g.out("scatter_add", "ScatterElements", g.x(5, 37), g.x(3, 37, low=0, high=5, dtype="int64"), g.x(3, 37), reduction="add")
    g.out("scatter_points", "ScatterND", g.x(5, 37), g.x(2, 1, dtype="int64", values=[4, 1]), g.x(2, 37))
    g.out("one_hot", "OneHot", g.x(5, low=0, high=7, dtype="int64"), g.c(7, np.int64), g.c([0, 1], np.float32))
    return g


def index_error():
    g = Graph()
    g.out("y", "Gather", g.x(5, 37), g.x(3, dtype="int64", values=[1, 9, 4]))
    return g


def windows():
    g = Graph()
    square = {"kernel_shape": [3, 3], "pads": [1] * 4}
    g.out("max", "MaxPool", g.x(1, 20, 9, 11), **square)
    g.out("max_stride", "MaxPool", g.x(1, 20, 10, 11), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    g.out("average", "AveragePool", g.x(1, 20, 9, 11), **square)
    g.out("average_padded", "AveragePool", g.x(1, 20, 9, 11), count_include_pad=1, **square)
    g.out("global_average", "GlobalAveragePool", g.x(2, 20, 9, 11))
    g.out("global_max", "GlobalMaxPool", g.x(2, 20, 9, 11))
    scales = g.c([1, 1, 1.5, 2], np.float32)
    for mode in ("nearest", "linear", "cubic"):
        g.out(f"resize_{mode}", "Resize", g.x(1, 3, 5, 7), "", scales, mode=mode)
    g.out("resize_corners", "Resize", g.x(1, 3, 5, 7), "", scales, mode="linear", coordinate_transformation_mode="align_corners")
    g.out("grid_sample", "GridSample", g.x(1, 3, 5, 7), g.x(1, 4, 6, 2), mode="linear")
    return g


# ---- steps ----

def recurrent():
    g = Graph()
    for kind, gates in (("LSTM", 4), ("GRU", 3)):
        weights = [g.w(2, gates * 12, 9, fan_in=9), g.w(2, gates * 12, 12, fan_in=12), g.w(2, 2 * gates * 12)]
        y = g.op(kind, g.x(6, 3, 9), *weights, hidden_size=12, direction="bidirectional")
        g.out(kind, "Identity", y)
    return g


def control():
    g = Graph()
    f32, boolean, i64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
    x, go = g.x(37), g.x(low=0, high=2, dtype="bool")
    branches = [subgraph([helper.make_node(kind, [x], ["b"])], [], [("b", f32, [37])]) for kind in ("Exp", "Relu")]
    g.out("if", "If", go, then_branch=branches[0], else_branch=branches[1])
    body = subgraph([helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Add", ["state", "state"], ["next"]),
                     helper.make_node("Exp", ["next"], ["row"])],
                    [("i", i64, []), ("go", boolean, []), ("state", f32, [37])],
                    [("go_on", boolean, []), ("next", f32, [37]), ("row", f32, [37])])
    last, rows = g.op("Loop", g.c(3, np.int64), "", g.x(37), outputs=2, body=body)
    g.out("loop", "Identity", last)
    g.out("loop_rows", "Identity", rows)
    return g


def run_sizes():
    g = Graph()
    g.out("non_zero", "NonZero", g.x(5, 37, low=0, high=2, dtype="int32"))
    g.out("compress", "Compress", g.x(5, 37), g.x(37, low=0, high=2, dtype="bool"), axis=1)
    boxes = g.op("Concat", g.x(1, 20, 2, low=0, high=0.5), g.x(1, 20, 2, low=0.5, high=1), axis=2)
    g.out("suppressed", "NonMaxSuppression", boxes, g.x(1, 2, 20, low=0), g.c(5, np.int64), g.c(0.4, np.float32), g.c(0.1, np.float32))
    return g


def any_batch():
    """An image network whose batch the run tells."""
    g = Graph()
    y = g.op("Relu", g.op("Conv", g.x(3, 3, 12, 12, symbolic=["batch"]), g.w(16, 3, 3, 3, fan_in=27), pads=[1] * 4))
    y = g.op("Flatten", g.op("GlobalAveragePool", y))
    g.out("y", "Gemm", y, g.w(16, 10, fan_in=16), g.w(10))
    return g


# ---- 8-bit integers ----

def integers():
    g = Graph()
    random = np.random.default_rng(1)

    # On x86 without VNNI, ONNX Runtime adds pairs of products in 16 bits: 2 * 255 * 63 fits.
    def weights(*shape):
        return g.c(random.integers(-63, 64, shape), np.int8)

    def scale(value):
        return g.c(value, np.float32)

    def byte(*shape):
        return g.x(*shape, low=0, high=256, dtype="uint8")

    def conv(label, c_in, c_out, size, k, group=1, **attributes):
        scales = g.c(random.uniform(0.001, 0.003, c_out), np.float32)
        g.out(label, "QLinearConv", byte(1, c_in, *size), scale(0.02), g.c(120, np.uint8), weights(c_out, c_in // group, *k), scales,
              g.c(np.zeros(c_out), np.int8), scale(0.05), g.c(128, np.uint8), g.c(random.integers(-900, 900, c_out), np.int32), group=group,
              **attributes)

    conv("conv_3x3", 32, 48, (14, 14), (3, 3), pads=[1] * 4)
    conv("conv_1x1", 64, 96, (7, 7), (1, 1))
    conv("conv_stride_2", 16, 40, (15, 15), (3, 3), pads=[1] * 4, strides=[2, 2])
    conv("conv_image", 3, 32, (20, 20), (3, 3), pads=[1] * 4, strides=[2, 2])
    conv("conv_depthwise", 32, 32, (9, 9), (3, 3), group=32, pads=[1] * 4)
    zero, matrix = g.c(0, np.int8), (g.c(3, np.uint8), scale(0.05), g.c(128, np.uint8))
    g.out("product", "QLinearMatMul", byte(33, 70), scale(0.02), matrix[0], weights(70, 50), scale(0.002), zero, *matrix[1:])
    g.out("product_i32", "MatMulInteger", byte(64, 128), weights(128, 64), g.c(7, np.uint8))
    g.out("conv_i32", "ConvInteger", byte(1, 8, 9, 9), weights(12, 8, 3, 3), g.c(7, np.uint8))
    g.out("real", "DequantizeLinear", byte(5, 37), scale(0.02), g.c(7, np.uint8))
    g.out("rounded", "QuantizeLinear", g.x(5, 37), scale(0.01), g.c(128, np.uint8))
    return g


def weight_only():
    g = Graph()
    g.out("y", "MatMul", g.x(3, 256), g.w(256, 192, fan_in=256))
    return g
