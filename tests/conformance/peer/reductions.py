"""Reductions, softmax and normalisation."""

import numpy as np

from .case import BOOL, F16, F32, F64, FLOATS, I32, I64, NUMBERS, element_type, generator


@generator("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
           "ReduceSumSquare")
def reduce(c):
    dtype = c.dtype(among=NUMBERS + ((BOOL,) if c.at_least(20) else ()))
    if "Log" in c.op and not np.issubdtype(dtype, np.floating):
        c.exclude("integers")
    shape = c.shape(0, 4)
    if 0 in shape:
        c.exclude("empty input")
    low, high = (0.1, 3) if c.op == "ReduceLogSum" else (-2, 2)
    x = c.input(c.values(dtype, shape, low, high))
    axes = c.axes(len(shape)) if c.at_least(11) else sorted(a % len(shape) for a in c.axes(len(shape))) if shape else []
    if not axes or c.chance(0.2):
        axes = None
    as_input = c.at_least(13 if c.op == "ReduceSum" else 18)
    attributes = {"keepdims": c.maybe(c.integer(0, 1))}
    if not as_input:
        c.finish([x], axes=axes, **attributes)
        return
    if axes is None and c.chance(0.3):
        attributes["noop_with_empty_axes"] = c.integer(0, 1)
    c.finish([x, None if axes is None else c.ints(axes)], **attributes)


@generator("Softmax", "LogSoftmax", "Hardmax")
def softmax(c):
    shape = [max(d, 1) for d in c.shape(1, 4)]
    axis = c.axis(len(shape)) if c.at_least(11) else c.integer(0, len(shape) - 1)
    if not c.at_least(13) and c.chance(0.3) and len(shape) > 1:
        axis = None
    c.finish([c.input(c.values(c.dtype(among=FLOATS), shape, *c.pick((-3, 3), (-80, 80))))], axis=axis if axis != -1 else c.maybe(-1))


def vector(c, dtype, n, low=-1.0, high=1.0):
    return c.parameter(c.values(dtype, [n], low, high))


def image(c, dtype, channels, low_rank=1, high_rank=3, symbolic=True):
    shape = [c.integer(1, 3), channels] + [c.integer(1, 8) for _ in range(c.integer(low_rank, high_rank))]
    return c.input(c.values(dtype, shape))


@generator("BatchNormalization")
def batch_normalization(c):
    dtype, channels = c.dtype(among=FLOATS), c.integer(1, 9)
    parts = [vector(c, dtype, channels) for _ in range(3)] + [vector(c, dtype, channels, 0.2, 2)]
    c.finish([image(c, dtype, channels, 0)] + parts, epsilon=c.maybe(c.real(1e-5, 1e-2)), momentum=c.maybe(0.9))


@generator("InstanceNormalization")
def instance_normalization(c):
    channels = c.integer(1, 9)
    x = c.input(c.values(F32, [c.integer(1, 3), channels] + [c.integer(2, 8) for _ in range(c.integer(1, 3))]))
    c.finish([x, vector(c, F32, channels), vector(c, F32, channels)], epsilon=c.maybe(c.real(1e-4, 1e-2)))


@generator("GroupNormalization")
def group_normalization(c):
    groups, dtype = c.integer(1, 4), c.dtype(among=(F32, F32, F64, F16))
    channels = groups * c.integer(1, 4)
    x = c.input(c.values(dtype, [c.integer(1, 3), channels] + [c.integer(2, 6) for _ in range(c.integer(1, 3))]))
    n = channels if c.at_least(21) else groups
    c.finish([x, vector(c, dtype, n), vector(c, dtype, n)], epsilon=c.maybe(c.real(1e-4, 1e-2)), num_groups=groups)


@generator("LayerNormalization", "RMSNormalization")
def layer_normalization(c):
    dtype = c.dtype(among=(F32, F32, F64, F16))
    shape = [c.integer(2, 6) for _ in range(c.integer(1, 4))]
    axis = c.axis(len(shape))
    inner = shape[axis:]
    scale = c.parameter(c.values(dtype, inner))
    if c.op == "RMSNormalization":
        c.finish([c.input(c.values(dtype, shape)), scale], axis=axis if axis != -1 else c.maybe(-1), epsilon=c.maybe(c.real(1e-4, 1e-2)))
        return
    bias = c.maybe(c.parameter(c.values(dtype, inner)))
    c.finish([c.input(c.values(dtype, shape)), scale, bias], c.pick(1, 1, 3), axis=axis if axis != -1 else c.maybe(-1),
             epsilon=c.maybe(c.real(1e-4, 1e-2)))


@generator("LRN")
def lrn(c):
    shape = [c.integer(1, 2), c.integer(1, 9)] + [c.integer(1, 5) for _ in range(2)]
    c.finish([c.input(c.values(F32, shape))], size=c.pick(1, 3, 5), alpha=c.maybe(c.real(1e-4, 0.5)), beta=c.maybe(c.real(0.3, 1)),
             bias=c.maybe(c.real(0.5, 2)))


@generator("LpNormalization")
def lp_normalization(c):
    shape = [max(d, 1) for d in c.shape(1, 4)]
    c.finish([c.input(c.values(c.dtype(among=(F32, F64)), shape))], axis=c.maybe(c.axis(len(shape))), p=c.maybe(c.integer(1, 2)))


@generator("MeanVarianceNormalization")
def mean_variance_normalization(c):
    shape = [c.integer(2, 5) for _ in range(4)]
    axes = c.maybe(c.pick([0, 2, 3], [0, 1, 2, 3], [2, 3], [1]))
    c.finish([c.input(c.values(F32, shape))], axes=axes)


@generator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(c):
    dtype = c.dtype("T", (F32, F32, F64, F16))
    classes, n = c.integer(2, 6), c.integer(1, 5)
    space = [c.integer(1, 4) for _ in range(c.integer(0, 2))]
    ignored = c.maybe(c.pick(0, 1, -1, 7), 0.4)
    labels = np.asarray(c.rng.integers(0, classes, [n] + space), c.pick(I32, I64))
    labels.flat[0] = classes - 1
    if ignored is not None and labels.size > 1:
        labels.flat[-1] = ignored
        labels.flat[0] = classes - 1 if ignored != classes - 1 else 0
    inputs = [c.input(c.values(dtype, [n, classes] + space)), c.input(labels), c.maybe(vector(c, dtype, classes, 0.2, 2), 0.5)]
    outputs = 2 if c.op == "SoftmaxCrossEntropyLoss" and c.chance(0.5) else 1
    c.finish(inputs, outputs, reduction=c.maybe(c.pick("mean", "sum", "none")), ignore_index=ignored)
