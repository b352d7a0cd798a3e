"""Operators that move, pick, make and order elements."""

import numpy as np
from onnx import helper

from .case import BOOL, F16, F32, F64, FLOATS, I32, I64, NUMBERS, SIGNED, U8, element_type, generator

ANY = NUMBERS + (BOOL,)


@generator("Concat")
def concat(c):
    dtype, shape = c.dtype(among=ANY), c.shape(1)
    axis = c.axis(len(shape))
    inputs = []
    for i in range(c.integer(1, 4)):
        part = list(shape)
        part[axis] = c.integer(0 if c.chance(0.1) else 1, 5)
        array = c.values(dtype, part)
        inputs.append(c.constant(array) if i and c.chance(0.2) else c.input(array))
    c.finish(inputs, axis=axis)


@generator("Split")
def split(c):
    dtype, shape = c.dtype(among=ANY), c.shape(1)
    axis, count = c.axis(len(shape)), c.integer(1, 4)
    sizes = [c.integer(1, 4) for _ in range(count)]
    kind = c.pick("sizes", "equal", "num_outputs") if c.at_least(18) else c.pick("sizes", "equal")
    if kind == "equal":
        sizes = sizes[:1] * count
    shape[axis] = sum(sizes)
    if kind == "num_outputs":
        count = min(count, shape[axis])
        shape[axis] = max(shape[axis], 1)
        part = -(-shape[axis] // count)
        count = -(-shape[axis] // part)
    x = c.input(c.values(dtype, shape))
    if kind == "sizes" and not c.at_least(13):
        c.finish([x], count, axis=axis, split=sizes)
    elif kind == "sizes":
        c.finish([x, c.ints(sizes)], count, axis=axis)
    else:
        c.finish([x], count, axis=axis, num_outputs=count if c.at_least(18) else None)


@generator("Slice")
def slices(c):
    dtype, shape = c.dtype(among=ANY), c.shape(1, 4)
    axes = c.axes(len(shape))
    steps = [c.pick(1, 1, 2, 3, -1, -2) if c.at_least(10) else 1 for _ in axes]
    starts, ends = [], []
    for axis, step in zip(axes, steps):
        n = shape[axis]
        low, high = sorted((c.integer(-n - 2, n + 2), c.integer(-n - 2, n + 2)))
        if low < 0 <= high:
            low, high = c.integer(0, n), c.pick(n, n + 5, np.iinfo(np.int64).max)
        if step < 0:
            low, high = high, c.pick(low, -n - 1, np.iinfo(np.int64).min + 1)
        starts.append(min(low, n + 3))
        ends.append(high)
    x = c.input(c.values(dtype, shape))
    if not c.at_least(10):
        c.finish([x], starts=starts, ends=[int(e) for e in ends], axes=axes)
        return
    whole = list(range(len(axes))) == axes and all(s == 1 for s in steps) and c.chance(0.5)
    ends = [int(e) for e in ends]
    c.finish([x, c.ints(starts), c.ints(ends)] + ([] if whole else [c.ints(axes), c.maybe(c.ints(steps), 0.9 if steps != [1] * len(axes) else 0.5)
                                                                    if steps == [1] * len(axes) else c.ints(steps)]))


@generator("Pad")
def pad(c):
    dtype, shape = c.dtype(among=ANY), c.shape(1, 4, low=2)
    rank = len(shape)
    mode = c.pick("constant", "constant", "reflect", "edge") if not c.at_least(19) else c.pick("constant", "constant", "reflect", "edge", "wrap")
    low = -1 if mode == "constant" and c.chance(0.3) else 0
    axes = c.axes(rank) if c.at_least(18) and c.chance(0.4) else list(range(rank))
    pads = [c.integer(low, 1 if mode in ("reflect", "wrap") else 3) for _ in range(2 * len(axes))]
    x = c.input(c.values(dtype, shape))
    given_mode = mode if mode != "constant" or c.chance(0.5) else None
    if not c.at_least(11):
        c.finish([x], mode=given_mode, pads=pads, value=c.maybe(c.real(-2, 2)))
        return
    value = c.maybe(c.parameter(c.values(dtype, []))) if mode == "constant" else None
    c.finish([x, c.ints(pads), value, c.ints(axes) if axes != list(range(rank)) else None], mode=given_mode)


@generator("Transpose")
def transpose(c):
    shape = c.shape(0, 5)
    perm = [int(p) for p in c.rng.permutation(len(shape))]
    c.finish([c.input(c.values(c.dtype(among=ANY), shape))], perm=c.maybe(perm, 0.85))


@generator("Reshape")
def reshape(c):
    shape = c.shape(1, 4)
    x = c.input(c.values(c.dtype(among=ANY), shape))
    target = list(shape)
    c.rng.shuffle(target)
    target = [int(d) for d in target]
    if len(target) > 1 and c.chance(0.5):
        target[0:2] = [target[0] * target[1]]
    if c.chance(0.3):
        target.insert(c.integer(0, len(target)), 1)
    allow = None
    if 0 in shape:
        allow = 1 if c.at_least(14) else None
        if allow is None:
            target = [d for d in shape]
    else:
        for i, d in enumerate(target):
            if i < len(shape) and d == shape[i] and c.chance(0.4):
                target[i] = 0
        if c.chance(0.5):
            target[c.integer(0, len(target) - 1)] = -1
    c.finish([x, c.ints(target)], allowzero=allow)


@generator("Flatten")
def flatten(c):
    shape = c.shape(1, 5)
    axis = c.integer(-len(shape) if c.at_least(11) else 0, len(shape))
    c.finish([c.input(c.values(c.dtype(among=ANY), shape))], axis=c.maybe(axis))


@generator("Squeeze", "Unsqueeze")
def squeeze(c):
    shape = c.shape(0, 3)
    dtype, extra = c.dtype(among=ANY), c.integer(1, 2)
    rank = len(shape) + extra
    places = sorted(int(p) for p in c.rng.permutation(rank)[:extra])
    longer = list(shape)
    for p in places:
        longer.insert(p, 1)
    axes = [p - rank if c.at_least(11) and c.chance(0.3) else p for p in places]
    if c.op == "Squeeze":
        c.symbolic = False  # of a dim whose size is open it is not known whether it can go
        every = [i for i, d in enumerate(longer) if d == 1]
        inputs = [c.input(c.values(dtype, longer))]
        if every == places and c.chance(0.3):
            c.finish(inputs)
            return
    else:
        inputs = [c.input(c.values(dtype, shape))]
        if c.at_least(13):
            c.rng.shuffle(axes)
    axes = [int(a) for a in axes]
    if c.at_least(13):
        c.finish(inputs + [c.ints(axes)])
    else:
        c.finish(inputs, axes=axes)


@generator("Expand")
def expand(c):
    shape = c.shape(0, 4)
    source = c.broadcast(shape)
    target = [1 if c.chance(0.2) and len(source) == len(shape) and source[i] == shape[i] else d for i, d in enumerate(shape)]
    c.finish([c.input(c.values(c.dtype(among=ANY), source)), c.ints(target)])


@generator("Tile")
def tile(c):
    shape = c.shape(1, 4)
    c.finish([c.input(c.values(c.dtype(among=ANY), shape)), c.ints([c.integer(0 if c.chance(0.05) else 1, 3) for _ in shape])])


def indices(c, shape, size, dtype=None):
    dtype = dtype or c.pick(I32, I64)
    return c.parameter(np.asarray(c.rng.integers(-size if c.at_least(11) else 0, size, shape), dtype))


@generator("Gather")
def gather(c):
    shape = c.shape(1, 4)
    axis = c.axis(len(shape))
    shape[axis] = max(shape[axis], 1)
    c.finish([c.input(c.values(c.dtype(among=ANY), shape)), indices(c, c.shape(0, 2), shape[axis])], axis=axis if axis else c.maybe(0))


@generator("GatherElements")
def gather_elements(c):
    shape = [max(d, 1) for d in c.shape(1, 4)]
    axis = c.axis(len(shape))
    picked = [c.integer(1, d) for d in shape]
    picked[axis] = c.integer(1, 6)
    c.finish([c.input(c.values(c.dtype(among=ANY), shape)), indices(c, picked, shape[axis])], axis=c.maybe(axis) if axis == 0 else axis)


def nd_indices(c, shape, batch, depth, outer):
    """Tuples of `depth` indices, each in its dim."""
    tuples = [c.rng.integers(-d if c.at_least(11) else 0, d, outer) for d in shape[batch:batch + depth]]
    return np.stack(tuples, -1).astype(np.int64)


@generator("GatherND")
def gather_nd(c):
    shape = [max(d, 1) for d in c.shape(1, 4)]
    batch = c.integer(0, min(2, len(shape) - 1)) if c.at_least(12) else 0
    depth = c.integer(1, len(shape) - batch)
    outer = shape[:batch] + [c.integer(1, 4) for _ in range(c.integer(0 if batch else 1, 2))]
    c.finish([c.input(c.values(c.dtype(among=ANY), shape)), c.parameter(nd_indices(c, shape, batch, depth, outer))],
             batch_dims=batch if batch else None)


@generator("Scatter", "ScatterElements")
def scatter_elements(c):
    dtype = c.dtype(among=ANY)
    shape = [max(d, 1) for d in c.shape(1, 4)]
    axis = c.axis(len(shape))
    picked = [c.integer(1, d) for d in shape]
    reductions = ["none"] + (["add", "mul"] if c.at_least(16) else []) + (["min", "max"] if c.at_least(18) else [])
    reduction = c.pick(*reductions) if c.op != "Scatter" else "none"
    if dtype == BOOL:
        reduction = "none"
    n, m = shape[axis], picked[axis]
    low = -n if c.at_least(11) else 0
    if reduction == "none":  # which of two writes to one place wins is left open
        columns = np.argsort(c.rng.random(picked[:axis % len(shape)] + [n] + picked[axis % len(shape) + 1:]), axis=axis)
        where = np.take(columns, range(m), axis=axis)
        where = np.where(c.rng.random(where.shape) < 0.3, where + low, where)
    else:
        where = c.rng.integers(low, n, picked)
    c.finish([c.input(c.values(dtype, shape)), c.parameter(np.asarray(where, c.pick(I32, I64))), c.input(c.values(dtype, picked))],
             axis=axis if axis else c.maybe(0), reduction=reduction if reduction != "none" else None)


@generator("ScatterND")
def scatter_nd(c):
    dtype = c.dtype(among=ANY)
    shape = [max(d, 1) for d in c.shape(1, 4)]
    depth = c.integer(1, len(shape))
    reductions = ["none"] + (["add", "mul"] if c.at_least(16) else []) + (["min", "max"] if c.at_least(18) else [])
    reduction = "none" if dtype == BOOL else c.pick(*reductions)
    places = int(np.prod(shape[:depth]))
    if reduction == "none":
        flat = c.rng.permutation(places)[:c.integer(1, min(places, 6))]
        where = np.stack(np.unravel_index(flat, shape[:depth]), -1)
    else:
        where = nd_indices(c, shape, 0, depth, [c.integer(1, 6)])
    c.finish([c.input(c.values(dtype, shape)), c.parameter(np.asarray(where, np.int64)), c.input(c.values(dtype, [len(where)] + shape[depth:]))],
             reduction=reduction if reduction != "none" else None)


@generator("Compress")
def compress(c):
    shape = c.shape(1, 4)
    axis = c.axis(len(shape)) if c.chance(0.7) else None
    if axis is not None and not c.at_least(11):
        axis %= len(shape)
    size = int(np.prod(shape)) if axis is None else shape[axis]
    c.finish([c.input(c.values(c.dtype(among=ANY), shape)), c.input(c.values(BOOL, [c.integer(min(1, size), size)]))], axis=axis)


@generator("NonZero")
def non_zero(c):
    shape = c.shape(0 if c.at_least(13) else 1, 4)
    if not shape:
        c.exclude("scalar")
    c.finish([c.input(c.values(c.dtype(among=ANY), shape, -1, 1))])


@generator("OneHot")
def one_hot(c):
    index, depth_type, value = c.dtype("T1", (I32, I64, F32)), c.dtype("T2", (I32, I64, F32)), c.dtype("T3", (F32, I32, I64))
    shape, depth = c.shape(0 if c.at_least(11) else 1, 3), c.integer(1, 6)
    low = -depth - 2 if c.at_least(11) else 0
    depth_shape = [] if c.chance(0.5) else [1]
    c.finish([c.input(c.values(I64, shape, low, depth + 1).astype(index)), c.setting(np.full(depth_shape, depth, depth_type)),
              c.parameter(c.values(value, [2], -5, 5))], axis=c.maybe(c.integer(-len(shape) - 1, len(shape))))


@generator("Unique")
def unique(c):
    shape = [max(d, 1) for d in c.shape(1, 3)]
    axis = c.axis(len(shape)) if c.chance(0.6) else None
    c.finish([c.input(c.values(c.dtype(among=(F32, I64, F64, I32)), shape, 0, 2).round())], c.integer(1, 4), axis=axis,
             sorted=c.maybe(c.integer(0, 1)))


@generator("TopK")
def top_k(c):
    shape = [max(d, 1) for d in c.shape(1, 4)]
    axis, dtype = c.axis(len(shape)), c.dtype(among=(F32, F64, I64, I32))
    if not c.at_least(10):
        dtype = F32
    k = c.integer(0 if c.chance(0.05) and c.at_least(11) else 1, shape[axis])
    array = np.asarray(c.rng.permutation(int(np.prod(shape))).reshape(shape), dtype)  # no ties: their order is open when unsorted
    if c.chance(0.3):
        array = np.asarray(array // 3, dtype)  # ties: the lower index first
    x = c.input(array)
    if not c.at_least(10):
        c.finish([x], 2, axis=axis % len(shape), k=k)
        return
    attributes = {"largest": c.maybe(c.integer(0, 1))} if c.at_least(11) else {}
    c.finish([x, c.ints([k])], 2, axis=axis, **attributes)


@generator("DepthToSpace", "SpaceToDepth")
def depth_space(c):
    block = c.integer(1, 3)
    n, ch, h, w = c.integer(1, 3), c.integer(1, 4), c.integer(1, 4), c.integer(1, 4)
    shape = [n, ch * block * block, h, w] if c.op == "DepthToSpace" else [n, ch, h * block, w * block]
    attributes = {"mode": c.maybe(c.pick("DCR", "CRD"))} if c.op == "DepthToSpace" and c.at_least(11) else {}
    c.finish([c.input(c.values(c.dtype(among=(F32, F64, F16)), shape))], blocksize=block, **attributes)


@generator("Trilu")
def trilu(c):
    k = c.maybe(c.setting(np.array(c.integer(-4, 4), np.int64)))
    c.finish([c.input(c.values(c.dtype(among=ANY), c.shape(2, 4))), k], upper=c.maybe(c.integer(0, 1)))


@generator("EyeLike")
def eye_like(c):
    dtype = c.dtype("T1", (F32, F64, I32, I64, BOOL, U8))
    target = c.maybe(c.dtype("T2", (F32, F64, I32, I64)))
    c.finish([c.input(c.values(dtype, c.shape(2, 2)))], dtype=None if target is None else element_type(target), k=c.maybe(c.integer(-4, 4)))


@generator("ConstantOfShape")
def constant_of_shape(c):
    value = c.maybe(c.values(c.dtype("T2", ANY), [1]))
    shape = c.shape(0, 4)
    c.finish([c.ints(shape)], value=None if value is None else helper.make_tensor("v", element_type(value.dtype), [1], value.tolist()))


@generator("Constant")
def constant(c):
    """A model needs something else beside: the constant is added to what comes in."""
    kinds = ["value"] + (["value_float", "value_floats", "value_int", "value_ints"] if c.at_least(12) else [])
    kind = c.pick(*kinds)
    if kind == "value":
        array = c.values(c.dtype("T", NUMBERS), c.shape(0, 3))
        attributes = {"value": helper.make_tensor("v", element_type(array.dtype), array.shape, array.flatten().tolist())}
        dtype, shape = array.dtype, array.shape
    else:
        dtype = F32 if "float" in kind else I64
        array = c.values(dtype, [c.integer(1, 5)] if kind.endswith("s") else [])
        attributes, shape = {kind: array.tolist()}, array.shape
    made = c.node("Constant", [], **attributes)
    c.outputs = c.node("Concat", [made[0] if array.ndim else c.node("Unsqueeze", [made[0], c.ints([0])])[0] if c.at_least(13) else
                                  c.node("Unsqueeze", made, axes=[0])[0], c.input(c.values(dtype, shape or [1]))], axis=0)


@generator("Range")
def ranges(c):
    dtype = c.dtype("T", (F32, F64, I32, I64, np.dtype(np.int16)))
    start, delta = c.values(dtype, [], -5, 5), c.values(dtype, [], 1, 3)
    limit = np.asarray(start + delta * c.integer(0, 9) + (0.5 * delta if dtype in (F32, F64) else 0), dtype)
    if c.chance(0.3):
        start, limit, delta = limit, start, np.asarray(-delta, dtype)
    wrap = c.input if c.chance(0.5) else c.setting
    c.finish([wrap(start), wrap(limit), wrap(delta)])


@generator("Shape")
def shape_of(c):
    shape = c.shape(0, 4)
    attributes = {}
    if c.at_least(15):
        rank = len(shape)
        attributes = {"start": c.maybe(c.integer(-rank - 1, rank)), "end": c.maybe(c.integer(-rank - 1, rank + 1))}
    c.finish([c.input(c.values(c.dtype("T", ANY), shape))], **attributes)


@generator("Size")
def size(c):
    c.finish([c.input(c.values(c.dtype("T", ANY), c.shape()))])


@generator("ReverseSequence")
def reverse_sequence(c):
    shape = [max(d, 1) for d in c.shape(2, 4)]
    batch = c.integer(0, 1)
    lengths = c.values(I64, [shape[batch]], 1, shape[1 - batch])
    c.finish([c.input(c.values(c.dtype(among=ANY), shape)), c.parameter(lengths)], batch_axis=batch, time_axis=1 - batch)


@generator("CenterCropPad")
def center_crop_pad(c):
    shape = [max(d, 1) for d in c.shape(1, 4)]
    axes = c.axes(len(shape)) if c.chance(0.6) else None
    sizes = [c.integer(1, 8) for _ in (axes or shape)]
    c.finish([c.input(c.values(c.dtype(among=(F32, F64, I32, I64)), shape)), c.ints(sizes)], axes=axes)


@generator("ArgMax", "ArgMin")
def arg_extreme(c):
    shape = [max(d, 1) for d in c.shape(1, 4)]
    axis = c.axis(len(shape)) if c.at_least(11) else c.integer(0, len(shape) - 1)
    array = np.asarray(np.round(c.values(F32, shape, -3, 3)), c.dtype(among=(F32, F64, I32, I64) + SIGNED)) if c.chance(0.5) else \
        c.values(c.dtype(among=(F32, F64)), shape)
    attributes = {"select_last_index": c.maybe(c.integer(0, 1))} if c.at_least(12) else {}
    c.finish([c.input(array)], axis=c.maybe(axis, 0.8), keepdims=c.maybe(c.integer(0, 1)), **attributes)


@generator("CumSum", "CumProd")
def cumulative(c):
    shape = c.shape(1, 4)
    axis = np.array(c.axis(len(shape)), c.pick(I32, I64))
    c.finish([c.input(c.values(c.dtype("T", (F32, F64, I32, I64)), shape)), c.setting(axis)], exclusive=c.maybe(c.integer(0, 1)),
             reverse=c.maybe(c.integer(0, 1)))
