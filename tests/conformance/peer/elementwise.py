"""Operators that work element by element."""

import numpy as np
from onnx import TensorProto

from .case import BOOL, F16, F32, F64, FLOATS, I32, I64, NUMBERS, SIGNED, UNSIGNED, element_type, generator

# Where each function is defined and not too steep.
RANGES = {"Acos": (-1, 1), "Acosh": (1, 9), "Asin": (-1, 1), "Atanh": (-0.95, 0.95), "Log": (0.01, 20), "Sqrt": (0, 20),
          "Reciprocal": (0.1, 4), "Tan": (-1.3, 1.3)}


@generator("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish",
           "Identity", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
           "Softsign", "Sqrt", "Tan", "Tanh")
def unary(c):
    parameter = {"Identity": "V" if c.at_least(14) else "T"}.get(c.op, "T")
    dtype = c.dtype(parameter, among=NUMBERS + (BOOL,))
    low, high = RANGES.get(c.op, c.pick((-3, 3), (-20, 20), (-0.1, 0.1)))
    array = c.values(dtype, c.shape(), low, high, special=c.op not in ("Sinh", "Cosh"))
    if c.op == "Round" and np.issubdtype(dtype, np.floating):
        array = np.asarray(np.round(array * 2) / 2, dtype)  # halves: to the even neighbour
    c.finish([c.input(array)])


@generator("IsInf", "IsNaN")
def classify(c):
    dtype = c.dtype("T1", among=FLOATS)
    shape = c.shape()
    odd = c.rng.choice([np.nan, np.inf, -np.inf, 0.0, 1.5], shape)
    attributes = {}
    if c.op == "IsInf":
        attributes = {"detect_negative": c.maybe(c.integer(0, 1)), "detect_positive": c.maybe(c.integer(0, 1))}
    c.finish([c.input(np.asarray(odd, dtype))], **attributes)


@generator("Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "Shrink", "Swish", "ThresholdedRelu")
def unary_with_parameters(c):
    names = {"HardSigmoid": ("alpha", "beta"), "Selu": ("alpha", "gamma"), "Shrink": ("bias", "lambd")}.get(c.op, ("alpha",))
    low = 0.1 if c.op in ("Celu", "Swish") else -0.5
    attributes = {n: c.maybe(c.real(low, 2)) for n in names}
    dtype = c.dtype("T", among=NUMBERS)
    c.finish([c.input(c.values(dtype, c.shape(), -3, 3))], **attributes)


@generator("Gelu")
def gelu(c):
    c.finish([c.input(c.values(c.dtype(), c.shape()))], approximate=c.maybe(c.pick("none", "tanh")))


def operands(c, count, make):
    """`count` inputs that broadcast with each other; a scalar or two constant."""
    shape = c.shape()
    shapes = [c.broadcast(shape) for _ in range(count)]
    shapes[c.integer(0, count - 1)] = shape
    if c.symbolic and c.chance(0.5):
        shapes = [shape] * count
    return [c.constant(make(i, s)) if i and c.chance(0.25) else c.input(make(i, s)) for i, s in enumerate(shapes)]


@generator("Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "BitwiseAnd", "BitwiseOr",
           "BitwiseXor")
def binary(c):
    dtype = c.dtype(among=NUMBERS + (BOOL,))
    c.finish(operands(c, 2, lambda i, s: c.values(dtype, s, -4, 4, special=dtype != BOOL)))


@generator("Div")
def div(c):
    dtype = c.dtype()
    if np.issubdtype(dtype, np.floating):
        c.finish(operands(c, 2, lambda i, s: c.values(dtype, s, -4, 4, special=True)))
        return

    def make(i, s):
        array = c.values(dtype, s, -40, 40)
        return np.where(array == 0, array.dtype.type(3), array) if i else array

    c.finish(operands(c, 2, make))


@generator("Mod")
def mod(c):
    dtype = c.dtype()
    floating = np.issubdtype(dtype, np.floating)

    def make(i, s):
        array = c.values(dtype, s, -9, 9)
        return np.asarray(np.where(np.abs(array) < 0.3, dtype.type(2), array), dtype) if i else array

    c.finish(operands(c, 2, make), fmod=1 if floating else c.maybe(c.integer(0, 1)))


@generator("Pow")
def power(c):
    base = c.dtype()
    exponent = c.dtype("T1") if c.at_least(12) else base

    def make(i, s):
        if i == 0:
            return c.values(base, s, *((0.1, 3) if np.issubdtype(exponent, np.floating) else (-3, 3)))
        if np.issubdtype(exponent, np.floating) and np.issubdtype(base, np.floating):
            return c.values(exponent, s, -2, 3)
        return np.asarray(c.values(I64, s, 0, 3), exponent)

    c.finish(operands(c, 2, make))


@generator("BitShift")
def bit_shift(c):
    dtype = c.dtype(among=UNSIGNED)
    bits = dtype.itemsize * 8
    c.finish(operands(c, 2, lambda i, s: c.values(dtype, s, 0, bits - 1 if i else 200)), direction=c.pick("LEFT", "RIGHT"))


@generator("Max", "Min", "Mean", "Sum")
def variadic(c):
    dtype = c.dtype()
    count = c.integer(1, 4)
    c.finish(operands(c, count, lambda i, s: c.values(dtype, s, -4, 4, special=True)))


@generator("PRelu")
def prelu(c):
    dtype, shape = c.dtype(), c.shape(1)
    slope = c.broadcast(shape)
    c.finish([c.input(c.values(dtype, shape)), c.parameter(c.values(dtype, slope))])


@generator("Where")
def where(c):
    dtype = c.dtype(among=NUMBERS + (BOOL,))
    c.finish(operands(c, 3, lambda i, s: c.values(dtype if i else BOOL, s)))


@generator("Clip")
def clip(c):
    dtype = c.dtype()
    x = c.input(c.values(dtype, c.shape(), -5, 5))
    low, high = c.maybe(c.values(dtype, [], -3, 0)), c.maybe(c.values(dtype, [], 1, 3))
    if not c.at_least(11):
        c.finish([x], min=None if low is None else float(low), max=None if high is None else float(high))
    else:
        c.finish([x] + [None if v is None else c.parameter(v) for v in (low, high)])


@generator("Dropout")
def dropout(c):
    """Without training it is an identity, and its mask is true."""
    x = c.input(c.values(c.dtype(among=FLOATS), c.shape(1)))
    outputs = c.integer(1, 2)
    if not c.at_least(12):
        if outputs == 2:
            c.exclude("old mask")
        c.finish([x], outputs, ratio=c.maybe(c.real(0.1, 0.9)))
        return
    training = c.chance(0.2)  # which drops nothing where the ratio is 0

    def given(array, probability):
        return (c.input(array) if c.chance(0.2) else c.constant(array)) if c.chance(probability) else None

    ratio = given(np.array(0 if training else c.real(0.1, 0.9), c.dtype("T1", among=(F32, F64, F16))), 1 if training else 0.7)
    c.finish([x, ratio, given(np.array(training), 1 if training else 0.3)], outputs, seed=c.maybe(7, 0.2))


NARROW = ((13, TensorProto.BFLOAT16), (19, TensorProto.FLOAT8E4M3FN), (19, TensorProto.FLOAT8E4M3FNUZ), (19, TensorProto.FLOAT8E5M2),
          (19, TensorProto.FLOAT8E5M2FNUZ), (21, TensorProto.INT4), (21, TensorProto.UINT4))


# Any number to any number, but for what C leaves open: a float outside of the integer's range.
@generator("Cast")
def cast(c):
    source, target = c.dtype("T1", NUMBERS + (BOOL,)), c.dtype("T2", NUMBERS + (BOOL,))
    narrow = [n for opset, n in NARROW if c.at_least(opset)]
    if narrow and c.chance(0.35):  # there and back, because NumPy lacks them
        kind = c.pick(*narrow)
        if kind in (TensorProto.INT4, TensorProto.UINT4):
            c.exclude("4-bit integers")
        x = c.input(c.values(c.pick(F32, F32, F16), c.shape(), -300, 300, special=True))
        c.outputs += c.node("Cast", c.node("Cast", [x], to=kind), to=TensorProto.FLOAT)
        return
    c.finish([c.input(cast_values(c, source, target))], to=element_type(target))


@generator("CastLike")
def cast_like(c):
    source, target = c.dtype("T1", NUMBERS + (BOOL,)), c.dtype("T2", NUMBERS + (BOOL,))
    c.finish([c.input(cast_values(c, source, target)), c.input(c.values(target, [1]))])


def cast_values(c, source, target):
    if np.issubdtype(source, np.floating) and not np.issubdtype(target, np.floating):
        low = 0 if target in UNSIGNED else -100
        return c.values(source, c.shape(), low, 100)
    if source in SIGNED + UNSIGNED:
        return c.values(source, c.shape(), -300, 300)
    return c.values(source, c.shape(), -300, 300, special=True)

