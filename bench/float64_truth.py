"""Evaluates an ONNX model in float64: what two float32 evaluations that differ can both be held against.

Every float tensor of the model (initializers, constants, casts) becomes float64, and onnx's reference evaluator runs it. Its
convolutions and pools are written for clarity and take minutes for a network, so those are replaced here: one matrix product or one
maximum per kernel tap.
"""

import itertools

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_resize import Resize as SlowResize

NARROW = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}


class Truth:
    """The model at float64; `run(inputs)` gives its outputs in order. Raises where onnx's evaluator does not know an operator."""

    def __init__(self, path):
        model = onnx.load(str(path))
        opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
        widen_graph(model.graph)
        for function in model.functions:
            widen_nodes(function.node)
        fixed = {i.name for i in model.graph.initializer}
        self.dtypes = {i.name: i.type.tensor_type.elem_type for i in model.graph.input if i.name not in fixed}
        for node in model.graph.node:
            if node.domain == "ai.onnx":
                node.domain = ""
        for node in nodes_under(model.graph):
            # onnx fills in the newest default, which was 1 before.
            if node.op_type in ("Softmax", "LogSoftmax") and not node.attribute:
                node.attribute.append(onnx.helper.make_attribute("axis", 1 if opset < 13 else -1))
        self.evaluator = ReferenceEvaluator(model, new_ops=ALWAYS + (BEFORE_OPSET_13 if opset < 13 else []))

    def run(self, inputs):
        widened = {n: a.astype(np.float64) if a.dtype in (np.float16, np.float32) else a for n, a in inputs.items()}
        with np.errstate(all="ignore"):
            return self.evaluator.run(None, widened)


def nodes_under(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_under(attribute.g)


def widen_tensor(tensor):
    if tensor.data_type in NARROW:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def widen_nodes(nodes):
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                widen_tensor(attribute.t)
            if attribute.HasField("g"):
                widen_graph(attribute.g)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in NARROW:
                attribute.i = TensorProto.DOUBLE
        for attribute in list(node.attribute):
            if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                value = np.array(attribute.f if attribute.name == "value_float" else list(attribute.floats), np.float64)
                node.attribute.remove(attribute)
                node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(value)))
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))


def widen_graph(graph):
    for tensor in graph.initializer:
        widen_tensor(tensor)
    for value in itertools.chain(graph.input, graph.output, graph.value_info):
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    widen_nodes(graph.node)


def window(spatial, kernel, strides, dilations, pads, auto_pad, ceil_mode=0):
    """(pads before and after, output sizes) of a sliding window; more padding after where ceil_mode needs it."""
    rank = len(spatial)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = list(pads or [0] * 2 * rank)
    sizes = []
    for k in range(rank):
        span = (kernel[k] - 1) * dilations[k] + 1
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = max(0, (-(-spatial[k] // strides[k]) - 1) * strides[k] + span - spatial[k])
            small, large = total // 2, total - total // 2
            pads[k], pads[k + rank] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        free = spatial[k] + pads[k] + pads[k + rank] - span
        size = (-(-free // strides[k]) if ceil_mode else free // strides[k]) + 1
        if ceil_mode and (size - 1) * strides[k] >= spatial[k] + pads[k]:
            size -= 1  # a window must not start in the padding after
        sizes.append(size)
    return strides, dilations, pads, sizes


def taps(x, kernel, strides, dilations, pads, sizes, fill):
    """Yields (kernel position, the input element each output sees there)."""
    rank = len(kernel)
    after = [max(pads[k + rank], (sizes[k] - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1 - x.shape[2 + k] - pads[k]) for k in range(rank)]
    padded = np.pad(x, [(0, 0), (0, 0)] + [(pads[k], after[k]) for k in range(rank)], constant_values=fill)
    for position in itertools.product(*map(range, kernel)):
        cut = [slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(position, dilations, sizes, strides)]
        yield position, padded[(slice(None), slice(None), *cut)]


class Conv(OpRun):
    op_domain = ""

    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, pads=None, strides=None):
        strides, dilations, pads, sizes = window(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
        weights = w.reshape(group, w.shape[0] // group, *w.shape[1:])
        y = 0
        for position, seen in taps(x, w.shape[2:], strides, dilations, pads, sizes, 0):
            y = y + weights[(slice(None),) * 3 + position] @ seen.reshape(x.shape[0], group, x.shape[1] // group, -1)
        y = y.reshape(x.shape[0], w.shape[0], *sizes)
        return (y if b is None else y + b.reshape(-1, *[1] * len(sizes)),)


class ConvTranspose(OpRun):
    op_domain = ""

    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, output_padding=None, output_shape=None,
             pads=None, strides=None):
        rank, kernel = x.ndim - 2, w.shape[2:]
        strides, dilations = strides or [1] * rank, dilations or [1] * rank
        extra, pads = output_padding or [0] * rank, list(pads or [0] * 2 * rank)
        full = [(n - 1) * s + (k - 1) * d + 1 + e for n, s, k, d, e in zip(x.shape[2:], strides, kernel, dilations, extra)]
        if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            wanted = output_shape[-rank:] if output_shape is not None else [n * s for n, s in zip(x.shape[2:], strides)]
            for k in range(rank):
                full[k] = max(full[k], wanted[k])  # no tap reaches what lies beyond: it is the bias
                total = full[k] - wanted[k]
                pads[k] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
                pads[k + rank] = total - pads[k]
        y = np.zeros((x.shape[0], w.shape[1] * group, *full), x.dtype)
        weights = w.reshape(group, w.shape[0] // group, *w.shape[1:])
        columns = x.reshape(x.shape[0], group, x.shape[1] // group, -1)
        for position in itertools.product(*map(range, kernel)):
            cut = [slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(position, dilations, x.shape[2:], strides)]
            part = weights[(slice(None),) * 3 + position].swapaxes(-1, -2) @ columns
            y[(slice(None), slice(None), *cut)] += part.reshape(x.shape[0], -1, *x.shape[2:])
        y = y[(slice(None), slice(None), *[slice(pads[k], full[k] - pads[k + rank]) for k in range(rank)])]
        return (y if b is None else y + b.reshape(-1, *[1] * rank),)


class MaxPool(OpRun):
    op_domain = ""

    def _run(self, x, auto_pad=None, ceil_mode=None, dilations=None, kernel_shape=None, pads=None, storage_order=None, strides=None):
        if len(self.onnx_node.output) > 1:
            raise NotImplementedError("MaxPool with indices")
        strides, dilations, pads, sizes = window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        y = -np.inf
        for _, seen in taps(x, kernel_shape, strides, dilations, pads, sizes, -np.inf):
            y = np.maximum(y, seen)
        return (y,)


class AveragePool(OpRun):
    op_domain = ""

    def _run(self, x, auto_pad=None, ceil_mode=None, count_include_pad=None, dilations=None, kernel_shape=None, pads=None, strides=None):
        strides, dilations, pads, sizes = window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        total, count = 0, 0
        ones = np.ones_like(x)
        if count_include_pad:
            rank = len(kernel_shape)
            ones = np.pad(ones, [(0, 0), (0, 0)] + [(pads[k], pads[k + rank]) for k in range(rank)], constant_values=1)
        for _, seen in taps(x, kernel_shape, strides, dilations, pads, sizes, 0):
            total = total + seen
        for _, seen in taps(ones, kernel_shape, strides, dilations, [0] * len(pads) if count_include_pad else pads, sizes, 0):
            count = count + seen
        return (total / count,)


class BatchNormalization(OpRun):
    """Inference at every opset; onnx's own trains where an old model states a momentum."""

    op_domain = ""

    def _run(self, x, scale, bias, mean, var, epsilon=1e-5, momentum=None, training_mode=None, spatial=None, is_test=None):
        shape = [-1 if k == 1 else 1 for k in range(x.ndim)]
        scale, bias, mean, var = (v.reshape(shape) for v in (scale, bias, mean, var))
        return (scale * (x - mean) / np.sqrt(var + epsilon) + bias,)


def flattened_softmax(x, axis):
    """Softmax before opset 13: over all axes from `axis` on."""
    rows = x.reshape(int(np.prod(x.shape[:axis % max(x.ndim, 1)])), -1)
    rows = np.exp(rows - rows.max(axis=1, keepdims=True))
    return (rows / rows.sum(axis=1, keepdims=True)).reshape(x.shape)


class Softmax(OpRun):
    op_domain = ""

    def _run(self, x, axis=None):
        return (flattened_softmax(x, axis),)


class LogSoftmax(OpRun):
    op_domain = ""

    def _run(self, x, axis=None):
        return (np.log(flattened_softmax(x, axis)),)


class Gemm(OpRun):
    """With the `broadcast` of opset 6, without which that states shapes that do not fit."""

    op_domain = ""

    def _run(self, a, b, c=None, alpha=1.0, beta=1.0, transA=0, transB=0, broadcast=None):
        y = alpha * ((a.T if transA else a) @ (b.T if transB else b))
        return (y if c is None else y + beta * c,)


class Resize(OpRun):
    """Nearest with whole factors, as detectors upsample; onnx's own code does the rest."""

    op_domain = ""

    def _run(self, x, roi=None, scales=None, sizes=None, **attributes):
        factors = sizes / np.array(x.shape) if sizes is not None else scales
        whole = factors is not None and len(factors) == x.ndim and (factors == np.round(factors)).all() and (factors >= 1).all()
        # Up by a whole number, these pick the source pixel each output pixel lies in.
        inside = (attributes.get("coordinate_transformation_mode"), attributes.get("nearest_mode")) in (
            ("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"))
        if whole and inside and attributes.get("mode") == "nearest":
            for axis, factor in enumerate(factors):
                x = np.repeat(x, int(factor), axis)
            return (x,)
        return SlowResize._run(self, x, roi, scales, sizes, **attributes)


# Operators that left ONNX before onnx's evaluator came: their definition is in onnx's old changelog.
class ImageScaler(OpRun):
    op_domain = ""

    def _run(self, x, bias=None, scale=1.0):
        return (x * scale + np.reshape(bias, (-1, 1, 1)),)


class Affine(OpRun):
    op_domain = ""

    def _run(self, x, alpha=1.0, beta=0.0):
        return (x * alpha + beta,)


class Crop(OpRun):
    op_domain = ""

    def _run(self, x, border=None, scale=None):
        left, top, right, bottom = border
        if scale:
            return (x[:, :, top:top + scale[0], left:left + scale[1]],)
        return (x[:, :, top:x.shape[2] - bottom, left:x.shape[3] - right],)


ALWAYS = [Conv, ConvTranspose, MaxPool, AveragePool, BatchNormalization, Gemm, Resize, ImageScaler, Affine, Crop]
BEFORE_OPSET_13 = [Softmax, LogSoftmax]
