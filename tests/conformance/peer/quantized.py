"""Quantization, integer products, and ONNX Runtime's own operators that the importer reads."""

import numpy as np
from onnx import TensorProto

from .case import BOOL, F16, F32, F64, I16, I32, I64, I8, U16, U8, generator
from .elementwise import NARROW
from .nn import window


def scale(c, shape=(), low=0.01, high=0.2, dtype=F32):
    return c.constant(c.values(dtype, list(shape), low, high))


def zero_point(c, dtype, shape=()):
    info = np.iinfo(dtype)
    return c.values(dtype, list(shape), max(info.min, -20) if dtype != U8 else 100, min(info.max, 20) if dtype != U8 else 150)


def weights(c, dtype, shape):
    """Signed weights keep to 7 bits: without VNNI, ONNX Runtime adds pairs of u8 x s8 products in 16 bits, which saturate."""
    return c.values(dtype, shape, -60, 60) if dtype == I8 else c.values(dtype, shape, 0, 255)


def blocked(c, shape):
    """Where scales lie: one, one a slice of an axis, or one a block. (axis, block size, shape of the scales)"""
    kind = c.pick("tensor", "axis") if not c.at_least(21) else c.pick("tensor", "axis", "block")
    if kind == "tensor" or not shape or not c.at_least(13):
        return None, None, []
    axis = c.axis(len(shape))
    if kind == "axis":
        return axis, None, [shape[axis]]
    block = c.integer(1, max(1, shape[axis]))
    scales = list(shape)
    scales[axis] = -(-shape[axis] // block)
    return axis, block, scales


@generator("QuantizeLinear")
def quantize(c):
    shape = [max(d, 1) for d in c.shape(0, 4)]
    axis, block, scales = blocked(c, shape)
    narrow = [n for opset, n in NARROW if opset > 13 and c.at_least(opset)]
    if narrow and c.chance(0.3):  # there and back, because NumPy lacks them
        kind = c.pick(*narrow)
        if kind in (TensorProto.INT4, TensorProto.UINT4):
            c.exclude("4-bit integers")
        zero = c.node("Cast", [c.constant(np.zeros(scales, F32))], to=kind)
        x, step = c.input(c.values(F32, shape, -30, 30)), scale(c, scales)
        quantized = c.node("QuantizeLinear", [x, step, *zero], axis=axis, block_size=block)
        c.outputs += c.node("DequantizeLinear", [*quantized, step, *zero], axis=axis, block_size=block)
        return
    target = c.pick(U8, I8, *((U16, I16) if c.at_least(21) else ()))
    zero = c.parameter(zero_point(c, target, scales)) if c.chance(0.8) else None
    if zero is None and target != U8:
        zero = c.constant(np.zeros(scales, target))
    c.finish([c.input(c.values(F32, shape, -30, 30)), scale(c, scales), zero], axis=axis if axis is not None else None, block_size=block)


@generator("DequantizeLinear")
def dequantize(c):
    shape = [max(d, 1) for d in c.shape(0, 4)]
    axis, block, scales = blocked(c, shape)
    source = c.pick(U8, I8, I32, *((U16, I16) if c.at_least(21) else ()))
    zero = c.parameter(np.zeros(scales, source) if source == I32 else zero_point(c, source, scales)) if c.chance(0.8) else None
    c.finish([c.input(c.values(source, shape, -120, 120)), scale(c, scales), zero], axis=axis, block_size=block)


@generator("DynamicQuantizeLinear")
def dynamic_quantize(c):
    c.finish([c.input(c.values(F32, [max(d, 1) for d in c.shape(1, 4)], *c.pick((-3, 3), (0, 9), (-9, -1))))], 3)


@generator("MatMulInteger")
def matmul_integer(c):
    m, k, n = c.integer(1, 9), c.integer(1, 9), c.integer(1, 9)
    a_type, b_type = c.pick((U8, U8), (U8, I8), (I8, I8), (I8, U8))
    batch = c.shape(0, 1, high=3)
    a, b = c.input(c.values(a_type, batch + [m, k], -100, 200)), c.parameter(weights(c, b_type, c.pick([], batch) + [k, n]))
    az = c.constant(zero_point(c, a_type)) if c.chance(0.7) else None
    bz = c.constant(zero_point(c, b_type, c.pick([], [n]))) if c.chance(0.5) else None
    c.finish([a, b, az, bz])


@generator("ConvInteger")
def conv_integer(c):
    kernel, space, attributes = window(c, 2)
    group = c.pick(1, 1, 2)
    inputs, outputs = group * c.integer(1, 3), group * c.integer(1, 3)
    w_type = c.pick(U8, I8)
    x, w = c.input(c.values(U8, [c.integer(1, 2), inputs] + space, 0, 255)), c.parameter(weights(c, w_type, [outputs, inputs // group] + kernel))
    xz = c.maybe(c.constant(zero_point(c, U8)))
    wz = c.constant(zero_point(c, w_type)) if xz and c.chance(0.5) else None
    c.finish([x, w, xz, wz], group=group, kernel_shape=c.maybe(kernel), **attributes)


@generator("QLinearMatMul")
def qlinear_matmul(c):
    m, k, n = c.integer(1, 9), c.integer(1, 9), c.integer(1, 9)
    a_type, b_type, y_type = c.pick((U8, U8, U8), (U8, I8, U8), (I8, I8, I8))
    columns = c.pick([], [n])
    c.finish([c.input(c.values(a_type, [m, k], -100, 200)), scale(c), c.constant(zero_point(c, a_type)), c.parameter(weights(c, b_type, [k, n])),
              scale(c, columns), c.constant(zero_point(c, b_type, columns)), scale(c, [], 0.5, 3), c.constant(zero_point(c, y_type))])


@generator("QLinearConv")
def qlinear_conv(c):
    kernel, space, attributes = window(c, 2)
    group = c.pick(1, 1, 2)
    inputs, outputs = group * c.integer(1, 3), group * c.integer(1, 3)
    x_type, w_type = c.pick((U8, U8), (U8, I8), (I8, I8))
    channels = c.pick([], [outputs]) if w_type == I8 else []
    wz = np.zeros(channels, I8) if channels else zero_point(c, w_type)
    bias = c.constant(c.values(I32, [outputs], -500, 500)) if c.chance(0.6) else None
    c.finish([c.input(c.values(x_type, [c.integer(1, 2), inputs] + space, -120, 250)), scale(c), c.constant(zero_point(c, x_type)),
              c.constant(weights(c, w_type, [outputs, inputs // group] + kernel)), scale(c, channels), c.constant(wz), scale(c, [], 0.5, 3),
              c.constant(zero_point(c, x_type)), bias], group=group, kernel_shape=c.maybe(kernel), **attributes)


MS = "com.microsoft"


@generator("BiasGelu", "FastGelu", domain=MS)
def bias_gelu(c):
    shape = c.shape(1, 3)
    bias = c.parameter(c.values(F32, shape[-1:])) if c.op == "BiasGelu" or c.chance(0.6) else None
    c.finish([c.input(c.values(F32, shape)), bias])


@generator("Gelu", "QuickGelu", domain=MS)
def ms_gelu(c):
    c.finish([c.input(c.values(F32, c.shape(1)))], alpha=c.maybe(c.real(0.5, 2)) if c.op == "QuickGelu" else None)


@generator("SkipLayerNormalization", domain=MS)
def skip_layer_normalization(c):
    shape = [c.integer(1, 3), c.integer(1, 5), c.integer(2, 9)]
    n = shape[-1:]
    beta, bias = (c.parameter(c.values(F32, n)) if c.chance(0.7) else None for _ in range(2))
    c.finish([c.input(c.values(F32, shape)), c.input(c.values(F32, shape)), c.parameter(c.values(F32, n)), beta, bias], epsilon=c.maybe(c.real(1e-5, 1e-2)))


@generator("FusedMatMul", domain=MS)
def fused_matmul(c):
    m, k, n, batch = c.integer(1, 9), c.integer(1, 9), c.integer(1, 9), c.shape(0, 2, high=3)
    ta, tb = c.integer(0, 1), c.integer(0, 1)
    c.finish([c.input(c.values(F32, batch + ([k, m] if ta else [m, k]))), c.parameter(c.values(F32, batch + ([n, k] if tb else [k, n])))],
             transA=ta, transB=tb, alpha=c.maybe(c.real(0.1, 2)))


@generator("FusedGemm", domain=MS)
def fused_gemm(c):
    m, k, n = c.integer(1, 9), c.integer(1, 9), c.integer(1, 9)
    tb = c.integer(0, 1)
    c.finish([c.input(c.values(F32, [m, k])), c.parameter(c.values(F32, [n, k] if tb else [k, n])), c.parameter(c.values(F32, [n]))],
             transB=tb, alpha=c.real(0.5, 2), beta=c.real(0.5, 2), activation=c.pick("Relu", "Sigmoid", "Tanh"))


@generator("FusedConv", domain=MS)
def fused_conv(c):
    kernel, space, attributes = window(c, 2)
    inputs, outputs = c.integer(1, 4), c.integer(1, 5)
    activation = c.pick("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
    params = {"LeakyRelu": [0.2], "Clip": [-0.5, 3.0], "HardSigmoid": [0.2, 0.5]}.get(activation)
    c.finish([c.input(c.values(F32, [c.integer(1, 2), inputs] + space)), c.parameter(c.values(F32, [outputs, inputs] + kernel)),
              c.parameter(c.values(F32, [outputs]))], activation=activation, activation_params=params, kernel_shape=kernel, **attributes)


@generator("QLinearAdd", "QLinearMul", domain=MS)
def qlinear_binary(c):
    dtype, shape = c.pick(U8, I8), c.shape(1, 3)
    parts = []
    for s in (shape, c.broadcast(shape)):
        parts += [c.input(c.values(dtype, s, -120, 250)), scale(c), c.constant(zero_point(c, dtype))]
    c.finish(parts + [scale(c, [], 0.1, 0.5), c.constant(zero_point(c, dtype))])


@generator("QLinearSigmoid", "QLinearLeakyRelu", domain=MS)
def qlinear_unary(c):
    dtype = c.pick(U8, I8)
    alpha = c.maybe(c.real(0.01, 0.5)) if c.op == "QLinearLeakyRelu" else None
    c.finish([c.input(c.values(dtype, c.shape(1, 3), -120, 250)), scale(c), c.constant(zero_point(c, dtype)), scale(c, [], 0.004, 0.1),
              c.constant(zero_point(c, dtype))], alpha=alpha)


@generator("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MS)
def qlinear_pool(c):
    dtype = c.pick(U8, I8)
    shape = [c.integer(1, 2), c.integer(1, 4), c.integer(3, 7), c.integer(3, 7)]
    attributes = {}
    if c.op == "QLinearAveragePool":
        attributes = {"kernel_shape": [c.integer(1, 3), c.integer(1, 3)], "strides": [c.integer(1, 2), c.integer(1, 2)],
                      "count_include_pad": c.maybe(c.integer(0, 1)), "ceil_mode": c.maybe(c.integer(0, 1), 0.3)}
        if attributes["count_include_pad"] and attributes["ceil_mode"]:
            c.exclude("ceil_mode with count_include_pad")
        if c.chance(0.4):
            attributes["pads"] = [min(1, k - 1) for k in attributes["kernel_shape"]] * 2
    c.finish([c.input(c.values(dtype, shape, -120, 250)), scale(c), c.constant(zero_point(c, dtype)), scale(c, [], 0.01, 0.2),
              c.constant(zero_point(c, dtype))], **attributes)


@generator("QLinearConcat", domain=MS)
def qlinear_concat(c):
    dtype, shape = c.pick(U8, I8), c.shape(1, 3)
    axis = c.axis(len(shape))
    inputs = [scale(c, [], 0.05, 0.3), c.constant(zero_point(c, dtype))]
    for _ in range(c.integer(1, 3)):
        shape[axis] = c.integer(1, 4)
        inputs += [c.input(c.values(dtype, shape, -120, 250)), scale(c), c.constant(zero_point(c, dtype))]
    c.finish(inputs, axis=axis)


@generator("QuantizeLinear", "DequantizeLinear", domain=MS)
def ms_quantize(c):
    shape = [max(d, 1) for d in c.shape(1, 3)]
    dtype = c.pick(U8, I8, U16, I16)
    axis = c.integer(0, len(shape) - 1) if c.chance(0.5) else None
    scales = [] if axis is None else [shape[axis]]
    x = c.values(F32, shape, -30, 30) if c.op == "QuantizeLinear" else c.values(dtype, shape, -120, 120)
    c.finish([c.input(x), scale(c, scales), c.parameter(zero_point(c, dtype, scales))], axis=axis)


@generator("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(c):
    m, k, n = c.integer(1, 9), c.integer(1, 9), c.integer(1, 9)
    a_type, b_type = c.pick((U8, U8), (U8, I8), (I8, I8))
    columns = c.pick([], [n])
    bias = c.parameter(c.values(F32, [n])) if c.chance(0.6) else None
    c.finish([c.input(c.values(a_type, [m, k], -100, 200)), c.parameter(weights(c, b_type, [k, n])), scale(c), scale(c, columns),
              c.constant(zero_point(c, a_type)), c.constant(zero_point(c, b_type, columns)), bias])


@generator("MatMulNBits", domain=MS)
def matmul_n_bits(c):
    m, k, n = c.integer(1, 5), c.integer(1, 200), c.integer(1, 40)
    bits, block = c.pick(4, 8), c.pick(16, 32, 64)
    blocks = -(-k // block)
    b = c.constant(c.values(U8, [n, blocks, block * bits // 8], 0, 255))
    zero = c.constant(c.values(U8, [n * -(-blocks * bits // 8)], 0, 255)) if c.chance(0.5) else None
    lead = c.pick([m], [2, m])
    c.finish([c.input(c.values(F32, [*lead, k])), b, c.constant(c.values(F32, [n * blocks], 0.001, 0.02)), zero],
             K=k, N=n, bits=bits, block_size=block)


@generator("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(c):
    m, k, n, b_type = c.integer(1, 9), c.integer(1, 9), c.integer(1, 9), c.pick(U8, I8)
    columns = c.pick([], [n])
    zero = c.constant(zero_point(c, b_type, columns)) if c.chance(0.7) else None
    c.finish([c.input(c.values(F32, [m, k])), c.parameter(weights(c, b_type, [k, n])), scale(c, columns), zero,
              c.parameter(c.values(F32, [n])) if c.chance(0.6) else None])
