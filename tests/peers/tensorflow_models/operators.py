"""One generator for each operator of tensorflow_ops.def: CASES[name](random) -> Case."""

import dataclasses
from typing import Any, Callable

import numpy
import tensorflow

raw = tensorflow.raw_ops


@dataclasses.dataclass
class Case:
    """`build` gets a placeholder for each input, in order, and gives tensors; constants are its own."""

    inputs: dict[str, Any]
    build: Callable[..., Any]
    shapes: dict[str, str] = dataclasses.field(default_factory=dict)


CASES: dict[str, Callable[[numpy.random.Generator], list[Case]]] = {}


def f32(random, *shape, low=-1.0, high=1.0):
    return numpy.round(random.uniform(low, high, shape), 3).astype("float32")


def i32(random, *shape, low=-9, high=9):
    return random.integers(low, high, shape).astype("int32")


def case(*names):
    def add(make):
        for name in names:
            CASES[name] = lambda random, name=name: make(name, random)
        return make

    return add


def op(name, *args, **attributes):
    """raw_ops.NAME with positional inputs."""
    function = getattr(raw, name)
    keys = [key for key in function.__signature__.parameters if key != "name" and key not in attributes]
    return function(**dict(zip(keys, args)), **attributes)


UNARY = "Abs Acos Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor IsFinite IsInf IsNan L2Loss LogSoftmax Neg OnesLike "
UNARY += "Rank Relu Relu6 Rint Round Selu Shape Sigmoid Sign Sin Sinh Size Softmax Softplus Softsign Square Tan Tanh ZerosLike Identity "
UNARY += "StopGradient Snapshot PreventGradient Where"


@case(*UNARY.split())
def unary(name, random):
    return [Case({"x": f32(random, 3, 4)}, lambda x: op(name, x))]


@case("Log", "Sqrt", "Rsqrt", "Acosh", "Log1p", "Reciprocal", "Inv")
def unary_positive(name, random):
    return [Case({"x": f32(random, 3, 4, low=1.0, high=3.0)}, lambda x: op(name, x))]


BINARY = "Add AddV2 Sub Mul Maximum Minimum SquaredDifference Equal NotEqual Greater GreaterEqual Less LessEqual"
BINARY += " DivNoNan MulNoNan Xdivy FloorDiv FloorMod Atan2 Div RealDiv Mod TruncateMod"


@case(*BINARY.split())
def binary(name, random):
    y = f32(random, 4, low=0.5, high=2.0) * numpy.array([1, -1, 1, 1], "float32")
    return [Case({"x": f32(random, 3, 4), "y": y}, lambda x, y: op(name, x, y))]


@case("Pow", "Xlogy", "Xlog1py")
def binary_positive(name, random):
    return [Case({"x": f32(random, 3, 4, low=0.5), "y": f32(random, 4, low=0.5)}, lambda x, y: op(name, x, y))]


@case("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift", "TruncateDiv")
def binary_integer(name, random):
    return [Case({"x": i32(random, 5), "y": i32(random, 5, low=1, high=6)}, lambda x, y: op(name, x, y))]


@case("LogicalAnd", "LogicalOr")
def binary_bool(name, random):
    return [Case({"x": f32(random, 6), "y": f32(random, 6)}, lambda x, y: op(name, x > 0, y > 0))]


@case("LogicalNot", "Invert", "Select", "SelectV2", "Cast", "ClipByValue", "LeakyRelu", "AddN", "ApproximateEqual", "Bucketize")
def other_pointwise(name, random):
    x = {"x": f32(random, 3, 4)}
    builds = {
        "LogicalNot": lambda x: raw.LogicalNot(x=x > 0),
        "Invert": lambda x: raw.Invert(x=tensorflow.cast(x * 20, "int32")),
        "Select": lambda x: op("Select", x > 0, x, x * 2),
        "SelectV2": lambda x: raw.SelectV2(condition=x > 0, t=x, e=1.5),
        "Cast": lambda x: raw.Cast(x=x * 9, DstT=tensorflow.int32),
        "ClipByValue": lambda x: raw.ClipByValue(t=x, clip_value_min=-0.5, clip_value_max=0.25),
        "LeakyRelu": lambda x: raw.LeakyRelu(features=x, alpha=0.3),
        "AddN": lambda x: raw.AddN(inputs=[x, x * 2, x]),
        "ApproximateEqual": lambda x: raw.ApproximateEqual(x=x, y=x + 1e-3, tolerance=0.01),
        "Bucketize": lambda x: raw.Bucketize(input=x, boundaries=[-0.5, 0.0, 0.5]),
    }
    return [Case(x, builds[name])]


@case("Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm")
def reduction(name, random):
    return [
        Case({"x": f32(random, 2, 3, 4)}, lambda x, axes=axes, keep=keep: op(name, x, axes, keep_dims=keep))
        for axes, keep in (([1], False), ([0, -1], True))
    ]


@case("All", "Any")
def reduction_bool(name, random):
    return [Case({"x": f32(random, 3, 4)}, lambda x: op(name, x > -0.5, [1]))]


@case("ArgMax", "ArgMin")
def arg(name, random):
    return [Case({"x": f32(random, 3, 4)}, lambda x: op(name, x, 1))]


@case("Cumsum", "Cumprod")
def cumulative(name, random):
    return [Case({"x": f32(random, 3, 4)}, lambda x, e=e: op(name, x, 1, exclusive=e, reverse=e)) for e in (False, True)]


@case("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "BiasAdd", "BiasAddV1")
def products(name, random):
    a, b = f32(random, 3, 4), f32(random, 5, 4)
    batch, other = f32(random, 2, 3, 4), f32(random, 2, 5, 4)
    builds = {
        "MatMul": (a, lambda x: raw.MatMul(a=x, b=b, transpose_b=True)),
        "BatchMatMul": (batch, lambda x: raw.BatchMatMul(x=x, y=other, adj_y=True)),
        "BatchMatMulV2": (batch, lambda x: raw.BatchMatMulV2(x=x, y=other, adj_y=True)),
        "BatchMatMulV3": (batch, lambda x: raw.BatchMatMulV3(x=x, y=other, Tout=tensorflow.float32, adj_y=True)),
        "Einsum": (batch, lambda x: raw.Einsum(inputs=[x, other], equation="bij,bkj->bik")),
        "BiasAdd": (batch, lambda x: raw.BiasAdd(value=x, bias=b[0])),
        "BiasAddV1": (batch, lambda x: raw.BiasAddV1(value=x, bias=b[0])),
    }
    given, build = builds[name]
    return [Case({"x": given}, build)]


@case("Conv2D", "DepthwiseConv2dNative")
def convolution(name, random):
    w = f32(random, 3, 2, 3, 4)
    return [
        Case({"x": f32(random, 2, 7, 6, 3)}, lambda x, s=s, p=p, d=d: op(name, x, w, strides=[1, s, s, 1], padding=p, dilations=[1, d, d, 1]))
        for s, p, d in ((1, "SAME", 1), (2, "SAME", 1), (2, "VALID", 1), (1, "VALID", 2))
        if d == 1 or name == "Conv2D"  # TensorFlow itself has no dilated depthwise kernel for CPUs
    ]


@case("Conv3D")
def convolution_3d(name, random):
    w = f32(random, 2, 3, 2, 3, 4)
    return [Case({"x": f32(random, 1, 4, 5, 6, 3)}, lambda x: op(name, x, w, strides=[1, 2, 1, 2, 1], padding="SAME"))]


@case("Conv2DBackpropInput")
def transposed(name, random):
    w = f32(random, 3, 3, 4, 2)
    return [
        Case({"x": f32(random, 1, 3, 4, 2)}, lambda x, p=p, h=h, v=v: op(name, [1, h, v, 4], w, x, strides=[1, 2, 2, 1], padding=p))
        for p, h, v in (("SAME", 6, 8), ("SAME", 5, 7), ("VALID", 7, 9), ("VALID", 8, 10))
    ]


@case("Conv3DBackpropInputV2")
def transposed_3d(name, random):
    w = f32(random, 2, 2, 2, 3, 2)
    return [Case({"x": f32(random, 1, 2, 3, 2, 2)}, lambda x: op(name, [1, 4, 6, 4, 3], w, x, strides=[1, 2, 2, 2, 1], padding="SAME"))]


@case("MaxPool", "AvgPool", "MaxPoolV2", "MaxPool3D", "AvgPool3D")
def pool(name, random):
    third = [2] if name.endswith("3D") else []
    shape = [1, 5, 6] + [4] * len(third) + [3]
    attributes = [] if name == "MaxPoolV2" else [("ksize", [1, 3, 2, *third, 1]), ("strides", [1, 2, 2, *third, 1])]
    more = [[1, 3, 2, 1], [1, 2, 2, 1]] if name == "MaxPoolV2" else []
    return [
        Case({"x": f32(random, *shape)}, lambda x, p=p: op(name, x, *more, padding=p, **dict(attributes))) for p in ("SAME", "VALID")
    ]


@case("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm(name, random):
    s, b, m, v = f32(random, 3), f32(random, 3), f32(random, 3), f32(random, 3, low=0.5)
    empty = numpy.zeros(0, "float32")
    given = {"x": f32(random, 2, 4, 5, 3)}
    return [
        Case(given, lambda x: op(name, x, s, b, m, v, epsilon=1e-3, is_training=False)[0]),
        Case(given, lambda x: op(name, x, s, b, empty, empty, epsilon=1e-3, is_training=True)[0]),
    ]


@case("LRN", "SpaceToDepth", "ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "SpaceToBatchND", "SpaceToBatch", "MirrorPad")
def images(name, random):
    given = {"x": f32(random, 1, 4, 6, 2)}
    sizes = ([8, 9], [3, 4], [2, 3])
    if name.startswith("Resize"):
        flags = [(False, True)] if name == "ResizeBicubic" else [(False, False), (True, False), (False, True)]
        return [
            Case(given, lambda x, s=s, a=a, h=h: op(name, x, s, align_corners=a, half_pixel_centers=h)) for s in sizes for a, h in flags
        ]
    if name == "MirrorPad":
        pads = [[0, 0], [1, 2], [2, 1], [0, 0]]
        return [Case(given, lambda x, m=m: op(name, x, pads, mode=m)) for m in ("REFLECT", "SYMMETRIC")]
    builds = {
        "LRN": lambda x: raw.LRN(input=x, depth_radius=1, bias=1.5, alpha=0.3, beta=0.6),
        "SpaceToDepth": lambda x: raw.SpaceToDepth(input=x, block_size=2),
        "SpaceToBatchND": lambda x: raw.SpaceToBatchND(input=x, block_shape=[2, 3], paddings=[[1, 1], [0, 0]]),
        "SpaceToBatch": lambda x: raw.SpaceToBatch(input=x, paddings=[[0, 0], [1, 1]], block_size=2),
    }
    return [Case(given, builds[name])]


@case("DepthToSpace", "BatchToSpaceND", "BatchToSpace")
def images_back(name, random):
    builds = {
        "DepthToSpace": lambda x: raw.DepthToSpace(input=x, block_size=2),
        "BatchToSpaceND": lambda x: raw.BatchToSpaceND(input=x, block_shape=[2, 2], crops=[[0, 1], [1, 0]]),
        "BatchToSpace": lambda x: raw.BatchToSpace(input=x, crops=[[0, 1], [1, 0]], block_size=2),
    }
    return [Case({"x": f32(random, 4, 2, 3, 8)}, builds[name])]


MOVES = {
    "Reshape": lambda x: raw.Reshape(tensor=x, shape=[4, -1]),
    "Transpose": lambda x: raw.Transpose(x=x, perm=[2, 0, 1]),
    "Tile": lambda x: raw.Tile(input=x, multiples=[1, 2, 3]),
    "ExpandDims": lambda x: raw.ExpandDims(input=x, axis=-2),
    "Squeeze": lambda x: raw.Squeeze(input=raw.ExpandDims(input=x, axis=1), axis=[1]),
    "Slice": lambda x: raw.Slice(input=x, begin=[0, 1, 1], size=[-1, 2, 2]),
    "StridedSlice": lambda x: x[1, ..., ::-2, tensorflow.newaxis],
    "Pad": lambda x: raw.Pad(input=x, paddings=[[1, 0], [0, 2], [1, 1]]),
    "PadV2": lambda x: raw.PadV2(input=x, paddings=[[1, 0], [0, 2], [1, 1]], constant_values=2.5),
    "ReverseV2": lambda x: raw.ReverseV2(tensor=x, axis=[0, 2]),
    "ReverseSequence": lambda x: raw.ReverseSequence(input=x, seq_lengths=[2, 3], seq_dim=1, batch_dim=0),
    "Pack": lambda x: raw.Pack(values=[x, x * 2], axis=1),
    "Unpack": lambda x: raw.Unpack(value=x, num=3, axis=1)[2],
    "Concat": lambda x: raw.Concat(concat_dim=1, values=[x, x]),
    "ConcatV2": lambda x: raw.ConcatV2(values=[x, x * 2], axis=-1),
    "Split": lambda x: raw.Split(axis=2, value=x, num_split=2)[1],
    "SplitV": lambda x: raw.SplitV(value=x, size_splits=[1, -1], axis=1, num_split=2)[1],
    "Gather": lambda x: raw.Gather(params=x, indices=[1, 0, 1]),
    "GatherV2": lambda x: raw.GatherV2(params=x, indices=[2, 0], axis=1),
    "GatherNd": lambda x: raw.GatherNd(params=x, indices=[[1, 2], [0, 0]]),
    "BroadcastTo": lambda x: raw.BroadcastTo(input=x, shape=[2, 2, 3, 4]),
    "Fill": lambda x: raw.Fill(dims=raw.Shape(input=x), value=2.5) + x,
    "Range": lambda x: raw.Range(start=0.0, limit=x[0, 0, 0] * 0 + 3.0, delta=0.5),
    "LinSpace": lambda x: raw.LinSpace(start=x[0, 0, 0], stop=3.0, num=5),
    "TopKV2": lambda x: raw.TopKV2(input=x, k=2),
    "MatrixBandPart": lambda x: raw.MatrixBandPart(input=x, num_lower=1, num_upper=0),
    "MatrixDiag": lambda x: raw.MatrixDiag(diagonal=x),
    "MatrixSetDiag": lambda x: raw.MatrixSetDiag(input=x, diagonal=x[:, :, 0]),
    "Roll": lambda x: raw.Roll(input=x, shift=[1, -1], axis=[1, 2]),
    "ShapeN": lambda x: raw.ShapeN(input=[x, x[0]])[1],
    "IdentityN": lambda x: raw.IdentityN(input=[x, x * 2])[1],
    "EnsureShape": lambda x: raw.EnsureShape(input=x, shape=[2, 3, 4]),
    "CheckNumerics": lambda x: raw.CheckNumerics(tensor=x, message="bad"),
    "OneHot": lambda x: raw.OneHot(indices=tensorflow.cast(x * 3, "int32"), depth=3, on_value=2.0, off_value=-1.0),
    "BroadcastArgs": lambda x: raw.BroadcastArgs(s0=raw.Shape(input=x), s1=[5, 1, 1, 4]),
    "InvertPermutation": lambda x: raw.InvertPermutation(x=tensorflow.cast(x[0, 0, :3] * 0, "int32") + [2, 0, 1]),
    "TensorScatterUpdate": lambda x: raw.TensorScatterUpdate(tensor=x, indices=[[1, 2]], updates=[[1.0, 2, 3, 4]]),
    "TensorScatterAdd": lambda x: raw.TensorScatterAdd(tensor=x, indices=[[1, 2], [1, 2]], updates=[[1.0, 2, 3, 4]] * 2),
    "ScatterNd": lambda x: raw.ScatterNd(indices=[[1], [3], [1]], updates=x[0], shape=[4, 4]),
    "SparseToDense": lambda x: raw.SparseToDense(sparse_indices=[1, 3], output_shape=[5], sparse_values=x[0, 0, :2], default_value=-1.0),
    "SegmentSum": lambda x: raw.SegmentSum(data=x[0], segment_ids=[0, 0, 2]),
    "Unique": lambda x: raw.Unique(x=tensorflow.cast(x[0, 0] * 2, "int32")),
    "PlaceholderWithDefault": lambda x: raw.PlaceholderWithDefault(input=x, shape=[2, 3, 4]) * 2,
    "FakeQuantWithMinMaxArgs": lambda x: raw.FakeQuantWithMinMaxArgs(inputs=x, min=-0.7, max=0.9),
    "FakeQuantWithMinMaxVars": lambda x: raw.FakeQuantWithMinMaxVars(inputs=x, min=-0.7, max=0.9, narrow_range=True),
    "FakeQuantWithMinMaxVarsPerChannel": lambda x: raw.FakeQuantWithMinMaxVarsPerChannel(
        inputs=x, min=[-0.7, -0.5, -1.0, -0.2], max=[0.9, 0.3, 1.0, 0.8]
    ),
    "QuantizeAndDequantizeV2": lambda x: raw.QuantizeAndDequantizeV2(input=x, input_min=-0.8, input_max=0.9, range_given=True),
    "QuantizeAndDequantizeV3": lambda x: raw.QuantizeAndDequantizeV3(
        input=x, input_min=-0.8, input_max=0.9, num_bits=6, range_given=True, narrow_range=True
    ),
    "QuantizeAndDequantizeV4": lambda x: raw.QuantizeAndDequantizeV4(
        input=x, input_min=-0.8, input_max=0.9, range_given=True, round_mode="HALF_UP"
    ),
}


@case(*MOVES)
def moves(name, random):
    return [Case({"x": f32(random, 2, 3, 4)}, MOVES[name])]


@case("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd")
def segments(name, random):
    return [Case({"x": f32(random, 4, 3)}, lambda x: op(name, x, [2, 0, 2, -1], 3))]


@case("NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5")
def suppression(name, random):
    corners = f32(random, 6, 2, low=0.0, high=0.5)
    boxes = numpy.concatenate([corners, corners + f32(random, 6, 2, low=0.2, high=0.5)], 1)
    more = {"V2": [0.3], "V3": [0.3, 0.1], "V4": [0.3, 0.1], "V5": [0.3, 0.1, 0.0]}[name[-2:]]
    padded = {"pad_to_max_output_size": True} if name[-2:] in ("V4", "V5") else {}
    return [Case({"boxes": boxes, "scores": f32(random, 6, low=0.0)}, lambda b, s: op(name, b, s, 4, *more, **padded))]


@case("LSTMBlockCell", "GRUBlockCell", "BlockLSTM", "BlockLSTMV2")
def cells(name, random):
    units = 3
    w, b, p = f32(random, 2 + units, 4 * units), f32(random, 4 * units), [f32(random, units) for _ in range(3)]
    state, hidden = f32(random, 2, units), f32(random, 2, units)
    if name == "GRUBlockCell":
        wru, wc = f32(random, 5, 6), f32(random, 5, 3)
        return [Case({"x": f32(random, 2, 2)}, lambda x: op(name, x, hidden, wru, wc, f32(random, 6), f32(random, 3)))]
    if name == "LSTMBlockCell":
        return [
            Case(
                {"x": f32(random, 2, 2)},
                lambda x, u=u: op(name, x, state, hidden, w, *p, b, forget_bias=0.5, cell_clip=-1, use_peephole=u),
            )
            for u in (False, True)
        ]
    steps = numpy.array(4, "int64")
    return [Case({"x": f32(random, 4, 2, 2)}, lambda x: op(name, steps, x, state, hidden, w, *p, b, use_peephole=True))]


@case("AudioSpectrogram", "Mfcc")
def audio(name, random):
    def build(x):
        spectra = raw.AudioSpectrogram(input=x, window_size=400, stride=160, magnitude_squared=True)
        return spectra if name == "AudioSpectrogram" else raw.Mfcc(spectrogram=spectra, sample_rate=16000)

    return [Case({"x": f32(random, 1600, 1)}, build)]


@case("While", "StatelessWhile", "If", "StatelessIf", "PartitionedCall", "StatefulPartitionedCall")
def functional(name, random):
    twice = tensorflow.function(lambda v: v * 2).get_concrete_function(tensorflow.TensorSpec([3], "float32"))
    less = tensorflow.function(lambda v: v - 1).get_concrete_function(tensorflow.TensorSpec([3], "float32"))
    small = tensorflow.function(lambda v: tensorflow.reduce_sum(tensorflow.abs(v)) < 50.0).get_concrete_function(
        tensorflow.TensorSpec([3], "float32")
    )

    def build(x):
        for function in (twice, less, small):
            function.add_to_graph()
        if name.endswith("While"):
            return op(name, [x], cond=small, body=twice)
        if name.endswith("If"):
            return op(name, x[0] > 0, [x], Tout=[tensorflow.float32], then_branch=twice, else_branch=less)
        return op(name, [x], Tout=[tensorflow.float32], f=twice)

    return [Case({"x": f32(random, 3)}, build), Case({"x": -f32(random, 3)}, build)]


# Operators that write those of version 1, for all of them at once.
FLOW_V1 = "Switch Merge Enter Exit NextIteration LoopCond TensorArrayV3 TensorArrayScatterV3 TensorArrayReadV3 TensorArrayWriteV3 "
FLOW_V1 += "TensorArrayGatherV3 TensorArraySizeV3"


@case(*FLOW_V1.split())
def flow_v1(_name, random):
    v1 = tensorflow.compat.v1

    def scan(x):
        v1.disable_control_flow_v2()
        taken = tensorflow.TensorArray("float32", size=4).unstack(x)
        given = tensorflow.TensorArray("float32", size=taken.size())

        def step(i, total, array):
            total = total + taken.read(i)
            return i + 1, total, array.write(i, total * 2)

        _, total, given = v1.while_loop(lambda i, *_: i < 4, step, [0, x[0] * 0, given])
        return v1.cond(total[0] > 0, lambda: total * 2, lambda: total - 1), given.stack()

    return [Case({"x": f32(random, 4, 3)}, scan), Case({"x": numpy.abs(f32(random, 4, 3))}, scan)]


# Without a model here: read in every graph, of training, or tested elsewhere.
ELSEWHERE = {
    "Const": "in every graph",
    "Placeholder": "in every graph",
    "PlaceholderV2": "as Placeholder",
    "NoOp": "computes nothing",
    "Assert": "computes nothing",
    "RandomUniform": "a dropout drops nothing",
    "DecodeWav": "takes bytes and not a string: tests/unit",
    "VarHandleOp": "saved models: saved.py",
    "VariableV2": "saved models",
    "Variable": "saved models",
    "ReadVariableOp": "saved models",
    "ResourceGather": "saved models",
    "TensorListReserve": "saved models",
    "TensorListFromTensor": "saved models",
    "TensorListGetItem": "saved models",
    "TensorListSetItem": "saved models",
    "TensorListStack": "saved models",
    "TensorListLength": "saved models",
    "RefSwitch": "as Switch",
    "RefMerge": "as Merge",
    "RefEnter": "as Enter",
    "RefExit": "as Exit",
    "RefNextIteration": "as NextIteration",
    "Print": "as Identity",
    "CheckNumericsV2": "as Identity",
    "DebugIdentity": "as Identity",
    "DebugIdentityV2": "as Identity",
    "OptimizationBarrier": "as Identity",
    "ParallelConcat": "as Concat",
    "BatchNormWithGlobalNormalization": "TensorFlow runs it no more",
}
