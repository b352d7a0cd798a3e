"""Convolution, pooling, products, resampling and detection."""

import numpy as np

from .case import F16, F32, F64, FLOATS, I32, I64, I8, U8, generator


def window(c, rank, low=3, high=9):
    """Size, strides, dilations, padding and image dims that fit each other; attributes are left out now and then."""
    kernel = [c.integer(1, 3) for _ in range(rank)]
    dilations = [c.pick(1, 1, 2) for _ in range(rank)]
    space = [c.integer(max(low, (k - 1) * d + 1), high) for k, d in zip(kernel, dilations)]
    attributes = {}
    if c.chance(0.6):
        attributes["strides"] = [c.integer(1, 3) for _ in range(rank)]
    if any(d != 1 for d in dilations) or c.chance(0.3):
        attributes["dilations"] = dilations
    kind = c.pick("none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    if kind == "pads":
        reach = [(k - 1) * d for k, d in zip(kernel, dilations)]
        attributes["pads"] = [c.integer(0, min(2, r)) for r in reach + reach]
    elif kind != "none":
        attributes["auto_pad"] = kind
    return kernel, space, attributes


@generator("Conv")
def conv(c):
    rank, dtype = c.pick(1, 2, 2, 2, 3), c.dtype(among=FLOATS)
    kernel, space, attributes = window(c, rank)
    group = c.pick(1, 1, 1, 2, 4)
    inputs, outputs = group * c.integer(1, 4), group * c.integer(1, 5)
    if c.chance(0.2):
        group = inputs = c.integer(2, 9)
        outputs = inputs * c.pick(1, 1, 2)  # depthwise
    x = c.input(c.values(dtype, [c.integer(1, 3), inputs] + space))
    w = c.parameter(c.values(dtype, [outputs, inputs // group] + kernel))
    bias = c.maybe(c.parameter(c.values(dtype, [outputs])))
    c.finish([x, w, bias], group=group if group > 1 else c.maybe(1), kernel_shape=c.maybe(kernel), **attributes)


@generator("ConvTranspose")
def conv_transpose(c):
    rank, dtype = c.pick(1, 2, 2, 2, 3), c.dtype(among=(F32, F32, F16))
    kernel, space, attributes = window(c, rank, low=1, high=6)
    group = c.pick(1, 1, 2, 3)
    inputs, outputs = group * c.integer(1, 3), group * c.integer(1, 4)
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    if c.chance(0.3):
        attributes["output_padding"] = [c.integer(0, max(s, d) - 1) for s, d in zip(strides, dilations)]
    if "SAME" in attributes.get("auto_pad", "") and any(s > (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations)):
        c.exclude("SAME with strides beyond the kernel")
    x = c.input(c.values(dtype, [c.integer(1, 3), inputs] + space))
    w = c.parameter(c.values(dtype, [inputs, outputs // group] + kernel))
    bias = c.maybe(c.parameter(c.values(dtype, [outputs])))
    c.finish([x, w, bias], group=group if group > 1 else c.maybe(1), kernel_shape=c.maybe(kernel), **attributes)


@generator("MaxPool", "AveragePool", "LpPool")
def pool(c):
    rank = c.pick(1, 2, 2, 2, 3)
    dtype = c.dtype(among=(F32, F32, F32, F64, F16, I8, U8) if c.op == "MaxPool" else FLOATS)
    kernel, space, attributes = window(c, rank)
    dilated = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[c.op]
    ceil = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[c.op]
    if not c.at_least(dilated):
        attributes.pop("dilations", None)
    strides = attributes.get("strides", [1] * rank)
    if c.op == "LpPool" and "SAME" in attributes.get("auto_pad", "") and any(s > k for s, k in zip(strides, kernel)):
        c.exclude("SAME with strides beyond the kernel")
    if "SAME" in attributes.get("auto_pad", "") and any(d > 1 for d in attributes.get("dilations", [])):
        c.exclude("SAME with dilations")
    if "pads" in attributes:  # less than the kernel
        attributes["pads"] = [min(p, k - 1) for p, k in zip(attributes["pads"], kernel + kernel)]
    if c.at_least(ceil) and c.chance(0.4):
        attributes["ceil_mode"] = c.integer(0, 1)
    outputs = 1
    if c.op == "AveragePool":
        attributes["count_include_pad"] = c.maybe(c.integer(0, 1))
    elif c.op == "LpPool":
        attributes["p"] = c.maybe(c.integer(1, 3))
    elif c.at_least(8):
        outputs = c.pick(1, 1, 2)
        attributes["storage_order"] = c.maybe(c.integer(0, 1), 0.3) if outputs == 2 else None
    c.finish([c.input(c.values(dtype, [c.integer(1, 2), c.integer(1, 5)] + space))], outputs, kernel_shape=kernel, **attributes)


@generator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(c):
    shape = [c.integer(1, 3), c.integer(1, 9)] + [c.integer(1, 8) for _ in range(c.integer(1, 3))]
    c.finish([c.input(c.values(c.dtype(among=FLOATS), shape))], p=c.maybe(c.integer(1, 3)) if c.op == "GlobalLpPool" else None)


@generator("MaxUnpool")
def max_unpool(c):
    n, ch, h, w = c.integer(1, 2), c.integer(1, 3), c.integer(2, 4), c.integer(2, 4)
    kernel = [2, 2]
    size = n * ch * h * w * 4
    places = np.sort(c.rng.permutation(size)[:size // 4]).reshape(n, ch, h, w).astype(np.int64)
    x = c.input(c.values(F32, [n, ch, h, w]))
    if c.chance(0.2):
        c.exclude("output_shape")
    shape = c.maybe(c.constant(np.array([n, ch, 2 * h, 2 * w], np.int64)), 0.4)
    c.finish([x, c.input(places), shape], kernel_shape=kernel, strides=[2, 2])


@generator("Gemm")
def gemm(c):
    dtype, m, k, n = c.dtype(among=(F32, F32, F32, F64, F16)), c.integer(1, 20), c.integer(1, 20), c.integer(1, 20)
    ta, tb = c.integer(0, 1), c.integer(0, 1)
    a = c.input(c.values(dtype, [k, m] if ta else [m, k]))
    b = c.parameter(c.values(dtype, [n, k] if tb else [k, n]))
    third = c.parameter(c.values(dtype, c.pick([m, n], [n], [1, n], [m, 1], [1], [], [1, 1]))) if not c.at_least(11) or c.chance(0.7) else None
    c.finish([a, b, third], transA=ta if ta else c.maybe(0), transB=tb if tb else c.maybe(0), alpha=c.maybe(c.real(-2, 2), 0.4),
             beta=c.maybe(c.real(-2, 2), 0.4))


@generator("MatMul")
def matmul(c):
    dtype, m, k, n = c.dtype(among=FLOATS + (I32, I64)), c.integer(1, 20), c.integer(1, 20), c.integer(1, 20)
    batch = c.shape(0, 2, high=4)
    kind = c.pick("plain", "plain", "plain", "vector-left", "vector-right", "dot")
    left = ([] if kind == "dot" else c.broadcast(batch)) + [m, k] if kind not in ("vector-left", "dot") else [k]
    right = c.broadcast(batch) + [k, n] if kind not in ("vector-right", "dot") else [k]
    c.finish([c.input(c.values(dtype, left)), c.parameter(c.values(dtype, right))])


@generator("Einsum")
def einsum(c):
    dtype = c.dtype(among=(F32, F32, F64, I32, I64))
    sizes = {letter: c.integer(1, 5) for letter in "abcdij"}
    equation = c.pick("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij->", "ii->i", "i,i->", "i,j->ij", "bhid,bhjd->bhij", "abc,cd->abd",
                      "...ij,...jk->...ik", "ij,ij->ij", "bij,bij->b", "abc->cab", "ij,jk", "ij,jk,kl->il", "...i->...", "bii->bi", "ab,b->a")
    sizes = {letter: c.integer(1, 5) for letter in "abcdhijkl"}
    middle = [c.integer(1, 3) for _ in range(c.integer(0, 2))]
    terms = equation.split("->")[0].split(",")
    shapes = [[d for part in t.replace("...", ".") for d in (middle if part == "." else [sizes[part]])] for t in terms]
    c.finish([c.input(c.values(dtype, s)) for s in shapes], equation=equation)


@generator("Det")
def det(c):
    n = c.integer(1, 5)
    c.finish([c.input(c.values(c.dtype(among=(F32, F64)), c.shape(0, 2, high=4) + [n, n]))])


COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


@generator("Resize")
def resize(c):
    rank = c.pick(3, 4, 4, 4, 5, 2)
    dtype = c.dtype("T1" if c.at_least(11) else "T", (F32, F32, F32, U8, I8, I32))
    shape = [c.integer(1, 2), c.integer(1, 3)] + [c.integer(2, 6) for _ in range(rank - 2)]
    mode = c.pick("nearest", "linear", "cubic") if c.at_least(11) and rank == 4 else c.pick("nearest", "linear")
    if rank == 2:
        shape = [c.integer(2, 6), c.integer(2, 6)]
    moved = list(range(2 if rank > 2 else 0, rank))
    if mode == "linear" and rank == 5 and dtype != F32:
        mode = "nearest"
    factors = {a: c.pick(0.5, 2.0, 1.5, 3.0, 0.6, 1.0, 0.75) for a in moved}
    scales = np.array([factors.get(a, 1.0) for a in range(rank)], np.float32)
    sizes = [max(1, int(np.floor(d * s))) for d, s in zip(shape, scales)]
    values = c.values(dtype, shape, -20, 20)
    if not c.at_least(11):
        if mode != "nearest" and not np.issubdtype(dtype, np.floating):
            c.exclude("integers in between")
        c.finish([c.input(values), c.constant(scales)], mode=mode)
        return
    coordinates = c.pick(*COORDINATES, *(("half_pixel_symmetric",) if c.at_least(19) else ()), "tf_crop_and_resize" if mode != "cubic" else "half_pixel",
                         *(("tf_half_pixel_for_nn",) if not c.at_least(13) and mode == "nearest" else ()))
    attributes = {"mode": mode, "coordinate_transformation_mode": c.maybe(coordinates)}
    coordinates = attributes["coordinate_transformation_mode"]
    if mode == "nearest":
        attributes["nearest_mode"] = c.maybe(c.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes["cubic_coeff_a"] = c.maybe(c.pick(-0.5, -0.75))
        attributes["exclude_outside"] = c.maybe(c.integer(0, 1))
    if c.at_least(18) and mode != "nearest" and coordinates != "tf_crop_and_resize" and c.chance(0.3):
        attributes["antialias"] = 1
    if mode != "nearest" and not np.issubdtype(dtype, np.floating):
        c.exclude("integers in between")
    x = c.input(values, fixed=range(values.ndim) if "antialias" in attributes else ())
    known = c.constant if "antialias" in attributes else c.setting  # without its scale it is refused
    roi = c.constant(np.array([], np.float32)) if c.chance(0.5) or not c.at_least(13) else None
    if coordinates == "tf_crop_and_resize":
        starts, ends = [0.0] * rank, [1.0] * rank
        for a in moved:
            starts[a], ends[a] = c.real(0, 0.4), c.real(0.6, 1.2)
        roi = c.constant(np.array(starts + ends, np.float32))
        attributes["extrapolation_value"] = c.maybe(c.real(-5, 5))
        if any(factors[a] == 1.0 or sizes[a] == shape[a] for a in moved):
            c.exclude("tf_crop_and_resize at scale 1")
    if c.chance(0.5):
        if c.at_least(18) and c.chance(0.3) and coordinates != "tf_crop_and_resize":
            attributes["axes"] = moved
            scales = scales[moved]
        c.finish([x, roi, known(scales)], **attributes)
        return
    if c.at_least(18) and c.chance(0.3) and coordinates != "tf_crop_and_resize":
        attributes["axes"] = moved
        sizes = [sizes[a] for a in moved]
        if not c.symbolic and c.chance(0.4):  # refused where a size is open
            attributes["keep_aspect_ratio_policy"] = c.pick("not_larger", "not_smaller")
    none = c.constant(np.array([], np.float32)) if not c.at_least(13) else None
    c.finish([x, roi, none, known(np.array(sizes, np.int64))], **attributes)


@generator("Upsample")
def upsample(c):
    shape = [c.integer(1, 2), c.integer(1, 3), c.integer(2, 5), c.integer(2, 5)]
    scales = [1.0, 1.0, float(c.integer(1, 3)), float(c.integer(1, 3))]
    mode = c.maybe(c.pick("nearest", "linear"))
    x = c.input(c.values(c.dtype(among=(F32,) if mode == "linear" else (F32, I32, U8)), shape))
    if c.at_least(9):
        c.finish([x, c.constant(np.array(scales, np.float32))], mode=mode)
    else:
        c.finish([x], mode=mode, scales=scales)


@generator("GridSample")
def grid_sample(c):
    rank = c.pick(2, 2, 3) if c.at_least(20) else 2
    n, ch = c.integer(1, 2), c.integer(1, 3)
    x = c.input(c.values(c.dtype("T1", (F32, F32, F64)), [n, ch] + [c.integer(2, 5) for _ in range(rank)]))
    grid = c.input(c.values(F32, [n] + [c.integer(1, 5) for _ in range(rank)] + [rank], -1.4, 1.4))
    cubic, linear = ("cubic", "linear") if c.at_least(20) else ("bicubic", "bilinear")
    mode = c.pick("nearest", linear, *((cubic,) if rank == 2 else ()))
    c.finish([x, grid], mode=mode if mode != linear else c.maybe(mode), padding_mode=c.maybe(c.pick("zeros", "border", "reflection")),
             align_corners=c.maybe(c.integer(0, 1)))


@generator("AffineGrid")
def affine_grid(c):
    rank, n = c.pick(2, 3), c.integer(1, 3)
    dtype = c.dtype("T1", (F32, F64))
    size = [n, c.integer(1, 3)] + [c.integer(2, 5) for _ in range(rank)]
    c.finish([c.input(c.values(dtype, [n, rank, rank + 1])), c.ints(size)], align_corners=c.maybe(c.integer(0, 1)))


@generator("RoiAlign")
def roi_align(c):
    n, ch, h, w, count = c.integer(1, 2), c.integer(1, 3), c.integer(5, 9), c.integer(5, 9), c.integer(1, 4)
    dtype = c.dtype("T1", (F32, F32, F64))
    corners = c.values(dtype, [count, 2], 0, 4)
    boxes = np.concatenate([corners, corners + c.values(dtype, [count, 2], 0.5, 6)], 1)
    attributes = {"coordinate_transformation_mode": c.maybe(c.pick("half_pixel", "output_half_pixel"))} if c.at_least(16) else {}
    c.finish([c.input(c.values(dtype, [n, ch, h, w])), c.input(boxes), c.input(c.values(I64, [count], 0, n - 1))],
             mode=c.maybe(c.pick("avg", "max")), output_height=c.maybe(c.integer(1, 4)), output_width=c.maybe(c.integer(1, 4)),
             sampling_ratio=c.maybe(c.integer(0, 3)), spatial_scale=c.maybe(c.pick(1.0, 0.5, 0.25)), **attributes)


@generator("NonMaxSuppression")
def non_max_suppression(c):
    batch, classes, count = c.integer(1, 2), c.integer(1, 3), c.integer(1, 12)
    corners = c.values(F32, [batch, count, 2], 0, 3)
    center = c.chance(0.3)
    sizes = c.values(F32, [batch, count, 2], 0.5, 2)
    boxes = np.concatenate([corners, sizes if center else corners + sizes], 2)
    if not center and c.chance(0.3):
        boxes = boxes[:, :, [2, 3, 0, 1]]  # either diagonal
    scores = c.rng.permutation(batch * classes * count).reshape(batch, classes, count).astype(np.float32) / (batch * classes * count)
    most = np.array(c.integer(0, 5), np.int64)
    c.finish([c.input(boxes), c.input(scores), c.maybe(c.setting(most)), c.maybe(c.setting(np.array(c.real(0.1, 0.9), np.float32))),
              c.maybe(c.setting(np.array(c.real(0.05, 0.6), np.float32)))], center_point_box=1 if center else c.maybe(0))


@generator("Col2Im")
def col2im(c):
    rank, n, ch = c.pick(1, 2, 2, 3), c.integer(1, 2), c.integer(1, 3)
    block = [c.integer(1, 3) for _ in range(rank)]
    dilations = [c.pick(1, 1, 2) for _ in range(rank)]
    if rank != 2 and max(dilations) > 1:
        c.exclude("dilations outside of 2-D")
    strides = [c.integer(1, 2) for _ in range(rank)]
    pads = [c.integer(0, 1) for _ in range(2 * rank)]
    sizes = [c.integer((b - 1) * d + 1, 7) for b, d in zip(block, dilations)]
    steps = [(sizes[i] + pads[i] + pads[i + rank] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    x = c.input(c.values(c.dtype(among=(F32, F32, F64)), [n, ch * int(np.prod(block)), int(np.prod(steps))]))
    c.finish([x, c.ints(sizes), c.ints(block)], dilations=dilations, strides=strides, pads=pads)


@generator("Attention")
def attention(c):
    batch, heads, q_len, kv_len, head, value_head = (c.integer(1, 2), c.pick(1, 2, 4), c.integer(1, 6), c.integer(1, 6), c.pick(2, 4, 8),
                                                     c.pick(2, 4, 8))
    kv_heads = heads // c.pick(1, 1, 2) or 1
    if heads % kv_heads:
        kv_heads = heads
    flat = c.chance(0.4)

    def operand(h, length, width):
        if flat:
            return c.input(c.values(F32, [batch, length, h * width]), fixed=[-1])
        return c.input(c.values(F32, [batch, h, length, width]), fixed=[1, -1])

    inputs = [operand(heads, q_len, head), operand(kv_heads, kv_len, head), operand(kv_heads, kv_len, value_head)]
    past = c.integer(1, 4) if c.chance(0.25) else 0
    total = kv_len + past
    mask = None
    if c.chance(0.5):
        kind = c.pick(F32, np.dtype(bool))
        array = c.values(kind, c.pick([q_len, total], [1, 1, q_len, total], [batch, heads, q_len, total], [batch, 1, q_len, total]))
        if kind == np.dtype(bool):
            array[..., 0] = True  # a row that sees nothing has no defined result
        mask = c.input(array)
    inputs.append(mask)
    outputs = 1
    if past:
        inputs += [c.input(c.values(F32, [batch, kv_heads, past, head])), c.input(c.values(F32, [batch, kv_heads, past, value_head]))]
        outputs = 3
    c.finish(inputs, outputs, is_causal=c.maybe(c.integer(0, 1), 0.5), scale=c.maybe(c.real(0.1, 1), 0.4),
             softcap=c.maybe(c.real(1, 5), 0.2), q_num_heads=heads if flat else None, kv_num_heads=kv_heads if flat else None)


@generator("TensorScatter")
def tensor_scatter(c):
    batch, room, width = c.integer(1, 3), c.integer(3, 9), c.integer(1, 9)
    steps, circular, axis = c.integer(1, 3), c.chance(0.4), c.pick(1, 2, 2)
    dims, fresh = [batch, 2, room, width], [batch, 2, steps, width]
    if axis == 1:
        dims, fresh = [batch, room, width], [batch, steps, width]
    dtype = c.dtype(among=(F32, F32, F16))
    places = c.input(c.values(I64, [batch], 0, room - 1 if circular else room - steps)) if c.chance(0.7) else None
    c.finish([c.input(c.values(dtype, dims)), c.input(c.values(dtype, fresh)), places],
             axis=c.maybe(axis - len(dims)) if axis == len(dims) - 2 else axis, mode="circular" if circular else None)


@generator("RotaryEmbedding")
def rotary_embedding(c):
    batch, length, heads, head = c.integer(1, 2), c.integer(1, 5), c.integer(1, 3), c.pick(4, 8, 16)
    rotated = c.pick(0, 0, head // 2)
    width = (rotated or head) // 2
    flat = c.chance(0.5)
    dtype = c.dtype(among=(F32, F32, F16))
    x = c.input(c.values(dtype, [batch, length, heads * head] if flat else [batch, heads, length, head]), fixed=[-1] if flat else [1, -1])
    if c.chance(0.7):
        most = length + c.integer(0, 4)
        caches, places = [most, width], c.input(c.values(I64, [batch, length], 0, most - 1))
    else:
        caches, places = [batch, length, width], None
    c.finish([x, c.parameter(c.values(dtype, caches, -1, 1)), c.parameter(c.values(dtype, caches, -1, 1)), places],
             interleaved=c.maybe(c.integer(0, 1)), num_heads=heads if flat or rotated else None, rotary_embedding_dim=rotated or None)
