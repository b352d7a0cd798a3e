"""Operators that move elements, and those that make tensors."""

import numpy as np

from .case import generator, numbers

MOVED = "f32 i32 i64 q8 qu8 q16"


@generator("RESHAPE", modes=MOVED + " bool")
def reshape(c):
    shape = c.shape(1, 4)
    new = list(c.rng.permutation(shape)) if c.chance(0.5) else [int(np.prod(shape))]
    if c.chance(0.4):
        new[c.integer(0, len(new) - 1)] = -1
    x = c.input(shape)
    new = [int(d) for d in new]
    if c.chance(0.3):
        c.finish([x], ("ReshapeOptions", {"new_shape": new}), like=x)
    else:
        c.finish([x, c.ints(new)], ("ReshapeOptions", {"new_shape": new}), like=x)


@generator("TRANSPOSE", modes=MOVED + " bool")
def transpose(c):
    shape = c.shape(1, 5, 4)
    x = c.input(shape)
    c.finish([x, c.ints(c.rng.permutation(len(shape)), constant=1)], ("TransposeOptions", {}), like=x)


@generator("SQUEEZE", modes=MOVED)
def squeeze(c):
    shape = [1 if c.chance(0.5) else d for d in c.shape(2, 4)]
    ones = [i for i, d in enumerate(shape) if d == 1]
    chosen = [i - (len(shape) if c.chance(0.3) else 0) for i in ones if c.chance(0.6)]
    x = c.input(shape)
    c.finish([x], ("SqueezeOptions", {"squeeze_dims": chosen}), like=x)


@generator("EXPAND_DIMS", modes=MOVED)
def expand_dims(c):
    shape = c.shape(1, 3)
    x = c.input(shape, batch=c.chance(0.5))
    c.finish([x, c.ints([c.integer(-len(shape) - 1, len(shape))], constant=1)], ("ExpandDimsOptions", {}), like=x)


@generator("CONCATENATION", modes=MOVED)
def concatenation(c):
    shape = c.shape(1, 4)
    axis = c.axis(len(shape))
    inputs = []
    common = None if c.mode in ("qu8",) and c.chance(0.5) else c.activation_scale(-3, 3) if c.quantized else None
    for _ in range(c.integer(1, 4)):
        dims = list(shape)
        dims[axis] = c.integer(1, 4)
        inputs.append(c.input(dims, scale=common))
    c.finish(inputs, ("ConcatenationOptions", {"axis": axis}), like=inputs[0] if common else None)


@generator("SPLIT", modes=MOVED)
def split(c):
    shape, parts = c.shape(1, 4), c.integer(1, 3)
    axis = c.axis(len(shape))
    shape[axis] = parts * c.integer(1, 3)
    place = c.ints(axis, constant=1)
    x = c.input(shape)
    c.finish([place, x], ("SplitOptions", {"num_splits": parts}), outputs=parts, like=x)


@generator("SPLIT_V", modes=MOVED)
def split_v(c):
    shape = c.shape(1, 4)
    axis = c.axis(len(shape))
    sizes = [c.integer(1, 3) for _ in range(c.integer(1, 3))]
    shape[axis] = sum(sizes)
    if c.chance(0.3):
        sizes[c.integer(0, len(sizes) - 1)] = -1
    x = c.input(shape)
    c.finish([x, c.ints(sizes, constant=1), c.ints(axis, constant=1)], ("SplitVOptions", {"num_splits": len(sizes)}), outputs=len(sizes), like=x)


@generator("PACK", modes=MOVED)
def pack(c):
    shape, count = c.shape(0, 3), c.integer(1, 4)
    scale = c.activation_scale(-3, 3) if c.quantized else None
    inputs = [c.input(shape, scale=scale) for _ in range(count)]
    c.finish(inputs, ("PackOptions", {"values_count": count, "axis": c.integer(-len(shape) - 1, len(shape))}), like=inputs[0])


@generator("UNPACK", modes="f32 i32 q8 qu8 q16 bool")
def unpack(c):
    shape = c.shape(1, 4)
    axis = c.axis(len(shape))
    x = c.input(shape)
    c.finish([x], ("UnpackOptions", {"num": shape[axis], "axis": axis}), outputs=shape[axis], like=x)


@generator("SLICE", modes=MOVED + " bool")
def slice_(c):
    shape = c.shape(1, 5)
    begin = [c.integer(0, d - 1) for d in shape]
    size = [-1 if c.chance(0.3) else c.integer(1, d - b) for b, d in zip(begin, shape)]
    kind = c.pick("INT32", "INT64")
    x = c.input(shape)
    c.finish([x, c.ints(begin, kind), c.ints(size, kind)], ("SliceOptions", {}), like=x)


@generator("STRIDED_SLICE", modes=MOVED + " bool")
def strided_slice(c):
    shape = c.shape(1, 4)
    rank = len(shape)
    strides = [c.pick(1, 1, 1, 2, -1, -2) for _ in shape]
    begin = [c.integer(0, d - 1) if s > 0 else c.integer(0, d - 1) for s, d in zip(strides, shape)]
    end = [c.integer(b + 1, d) if s > 0 else c.integer(-1, b - 1) for b, s, d in zip(begin, strides, shape)]
    # An end before the first element can only be said by the mask.
    end_mask = sum(1 << i for i, e in enumerate(end) if e < 0 or c.chance(0.15))
    begin_mask = sum(1 << i for i in range(rank) if c.chance(0.15))
    masks = {"begin_mask": begin_mask, "end_mask": end_mask}
    if c.chance(0.3):
        axis = c.integer(0, rank - 1)
        masks["shrink_axis_mask"] = 1 << axis
        strides[axis], end[axis] = 1, begin[axis] + 1
        masks["begin_mask"] &= ~(1 << axis)
        masks["end_mask"] &= ~(1 << axis)
    elif c.chance(0.2) and rank < 4:
        axis = c.integer(0, rank)
        masks = {k: (v & ((1 << axis) - 1)) | (v >> axis << (axis + 1)) for k, v in masks.items()} | {"new_axis_mask": 1 << axis}
        for row, value in ((begin, 0), (end, 1), (strides, 1)):
            row.insert(axis, value)
    elif c.chance(0.2) and rank > 1:
        keep = c.integer(1, rank - 1)  # an ellipsis for the dims behind
        masks = {k: v & ((1 << keep) - 1) for k, v in masks.items()} | {"ellipsis_mask": 1 << keep}
        begin, end, strides = (row[:keep] + [0 if row is not strides else 1] for row in (begin, end, strides))
    x = c.input(shape)
    # `end` of a shrunk or negative-stride axis is not read from the end of the dim: it stays what it was drawn.
    c.finish([x, c.ints(begin), c.ints(end), c.ints(strides, constant=1)], ("StridedSliceOptions", masks), like=x)


@generator("PAD", modes="f32 i32 i64 q8 qu8 q16")
def pad(c):
    shape = c.shape(1, 4)
    x = c.input(shape)
    pads = [[c.integer(0, 2), c.integer(0, 2)] for _ in shape]
    c.finish([x, c.ints(pads, c.pick("INT32", "INT64"))], ("PadOptions", {}), like=x)


@generator("PADV2", modes="f32 i32 i64 q8 qu8")
def pad_v2(c):
    shape = c.shape(1, 4)
    x = c.input(shape)
    pads = c.ints([[c.integer(0, 2), c.integer(0, 2)] for _ in shape])
    value = c.plain_constant(3, c.kind)
    if c.quantized:
        c.tensors[value] |= {k: c.tensors[x][k] for k in ("scale", "zero_point")}
    c.finish([x, pads, value], ("PadV2Options", {}), like=x)


@generator("MIRROR_PAD", modes="f32 i32 i64 q8 qu8 q16")
def mirror_pad(c):
    shape = [d + 1 for d in c.shape(1, 4)]
    reflect = c.chance(0.5)
    most = [d - 1 if reflect else d for d in shape]
    pads = [[c.integer(0, min(m, 3)), c.integer(0, min(m, 3))] for m in most]
    x = c.input(shape)
    c.finish([x, c.ints(pads, constant=1)], ("MirrorPadOptions", {"mode": "REFLECT" if reflect else "SYMMETRIC"}), like=x)


@generator("TILE", modes="f32 i32 i64 bool q8 qu8")
def tile(c):
    shape = c.shape(1, 3)
    x = c.input(shape)
    c.finish([x, c.ints([c.integer(1, 3) for _ in shape], c.pick("INT32", "INT64"))], ("TileOptions", {}), like=x)


@generator("GATHER", modes=MOVED + " bool")
def gather(c):
    shape = c.shape(1, 4)
    axis = c.integer(0, len(shape) - 1)
    x = c.input(shape)
    batch = c.integer(0, axis) if c.chance(0.3) else 0
    dims = shape[:batch] + c.shape(0, 2, 3)
    kind = c.pick("INT32", "INT64")
    indices = c.integers(dims, 0, shape[axis] - 1)
    indices = c.plain_input(indices, kind) if c.chance(0.5) else c.plain_constant(indices, kind)
    c.finish([x, indices], ("GatherOptions", {"axis": axis - (len(shape) if c.chance(0.2) else 0), "batch_dims": batch}), like=x)


@generator("GATHER_ND", modes="f32 i32 i64 q8 qu8 q16")
def gather_nd(c):
    shape = c.shape(1, 4)
    depth = c.integer(1, len(shape))
    indices = np.stack([c.integers(c_shape, 0, d - 1) for c_shape, d in zip([[3, 2]] * depth, shape)], -1)
    kind = c.pick("INT32", "INT64")
    x = c.input(shape)
    c.finish([x, c.plain_input(indices, kind) if c.chance(0.5) else c.plain_constant(indices, kind)], ("GatherNdOptions", {}), like=x)


@generator("SCATTER_ND", modes="f32 i32 i64 i8 bool")
def scatter_nd(c):
    """Places may come twice: their updates are added."""
    shape = c.shape(1, 3)
    depth = c.integer(1, len(shape))
    count = c.integer(1, 6)
    if c.mode == "bool":
        depth, count = 1, min(count, shape[0])
        indices = c.rng.permutation(shape[0])[:count, None]
    else:
        indices = np.stack([c.integers([count], 0, d - 1) for d in shape[:depth]], -1)
    places = c.plain_input(indices, "INT32") if c.chance(0.5) else c.plain_constant(indices, "INT32")
    c.finish([places, c.input([count, *shape[depth:]]), c.ints(shape)], ("ScatterNdOptions", {}))


@generator("REVERSE_V2", modes="f32 i32 i64 u8 i16 bool")
def reverse(c):
    shape = c.shape(1, 4)
    first = c.integer(0, len(shape) - 1)
    axes = list(range(first, c.integer(first, len(shape) - 1) + 1))
    c.finish([c.input(shape), c.ints(axes, constant=1)], ("ReverseV2Options", {}))


@generator("REVERSE_SEQUENCE", modes="f32 i32 i64 i16 u8")
def reverse_sequence(c):
    shape = c.shape(2, 4)
    along, batch = (int(a) for a in c.rng.permutation(len(shape))[:2])
    kind = c.pick("INT32", "INT64")
    lengths = c.plain_input(c.integers([shape[batch]], 1, shape[along]), kind)
    c.finish([c.input(shape), lengths], ("ReverseSequenceOptions", {"seq_dim": along, "batch_dim": batch}))


@generator("BROADCAST_TO", modes="f32 i32 i64 q8 qu8 bool")
def broadcast_to(c):
    shape = c.shape(1, 5)
    x = c.input(c.broadcast(shape))
    c.finish([x, c.ints(shape, c.pick("INT32", "INT64"))], ("BroadcastToOptions", {}), like=x, version=2)


@generator("BROADCAST_ARGS", modes="i32 i64")
def broadcast_args(c):
    shape = c.shape(1, 4)
    other = c.broadcast(shape)
    make = c.plain_input if c.chance(0.5) else c.plain_constant
    c.finish([c.plain_input(shape, c.kind), make(np.array(other, np.int64), c.kind)])


@generator("FILL", modes="f32 i32 i64 i8 bool")
def fill(c):
    c.finish([c.ints(c.shape(), c.pick("INT32", "INT64")), c.input([])], ("FillOptions", {}))


@generator("RANGE", modes="f32 i32 i64")
def range_(c):
    begin, step = c.integer(-3, 3), c.pick(1, 2, 3)
    end = begin + c.integer(1, 12)
    c.finish([c.ints(v, c.kind) for v in (begin, end, step)], ("RangeOptions", {}))


@generator("ONE_HOT", modes="f32 i32 i64 bool i8 u8")
def one_hot(c):
    shape, depth = c.shape(1, 3), c.integer(1, 6)
    indices = c.plain_input(c.integers(shape, 0, depth), c.pick("INT32", "INT64"))
    axis = c.pick(-1, c.integer(0, len(shape)))
    c.finish([indices, c.ints(depth, constant=1), c.plain_constant(1, c.kind), c.plain_constant(0, c.kind)], ("OneHotOptions", {"axis": axis}))


@generator("SPACE_TO_DEPTH", modes="f32 i32 i64 q8 qu8")
def space_to_depth(c):
    block = c.integer(1, 3)
    x = c.input([c.integer(1, 2), block * c.integer(1, 3), block * c.integer(1, 3), c.integer(1, 4)], batch=True)
    c.finish([x], ("SpaceToDepthOptions", {"block_size": block}), like=x)


@generator("DEPTH_TO_SPACE", modes="f32 i32 i64 q8 qu8")
def depth_to_space(c):
    block = c.integer(1, 3)
    x = c.input([c.integer(1, 2), c.integer(1, 3), c.integer(1, 3), block * block * c.integer(1, 3)], batch=True)
    c.finish([x], ("DepthToSpaceOptions", {"block_size": block}), like=x)


@generator("SPACE_TO_BATCH_ND", modes="f32 i32 i64 q8 qu8")
def space_to_batch(c):
    spatial = c.pick(1, 2)
    blocks = [c.integer(1, 3) for _ in range(spatial)]
    dims, pads = [], []
    for block in blocks:
        low, high = c.integer(0, 2), c.integer(0, 2)
        size = c.integer(1, 5)
        size += -(low + high + size) % block
        dims.append(size)
        pads.append([low, high])
    x = c.input([c.integer(1, 2), *dims, c.integer(1, 3)])
    c.finish([x, c.ints(blocks, constant=1), c.ints(pads, constant=1)], ("SpaceToBatchNDOptions", {}), like=x)


@generator("BATCH_TO_SPACE_ND", modes="f32 i32 i64 q8 qu8")
def batch_to_space(c):
    spatial = c.pick(1, 2)
    blocks = [c.integer(1, 3) for _ in range(spatial)]
    dims = [c.integer(1, 4) for _ in blocks]
    crops = [[c.integer(0, (b * d - 1) // 2), c.integer(0, (b * d - 1) // 2)] for b, d in zip(blocks, dims)]
    x = c.input([int(np.prod(blocks)) * c.integer(1, 2), *dims, c.integer(1, 3)])
    c.finish([x, c.ints(blocks, constant=1), c.ints(crops, constant=1)], ("BatchToSpaceNDOptions", {}), like=x)


@generator("SPARSE_TO_DENSE", modes="f32 i32 i64 i8 u8")
def sparse_to_dense(c):
    shape = c.shape(1, 3)
    count = c.integer(1, min(4, int(np.prod(shape))))
    flat = np.sort(c.rng.permutation(int(np.prod(shape)))[:count])
    indices = np.stack(np.unravel_index(flat, shape), -1)
    if len(shape) == 1:
        indices = indices[:, 0]
    values = c.input([count]) if c.chance(0.7) else c.input([])
    c.finish([c.plain_input(indices, "INT32"), c.ints(shape, constant=1), values, c.plain_constant(0, c.kind)],
             ("SparseToDenseOptions", {"validate_indices": False}))


@generator("MATRIX_DIAG", modes="f32 i32 i64 i8 u8")
def matrix_diag(c):
    c.finish([c.input(c.shape(1, 3))], ("MatrixDiagOptions", {}))


@generator("MATRIX_SET_DIAG", modes="f32 i32 i64 i8 u8")
def matrix_set_diag(c):
    shape = c.shape(2, 4)
    c.finish([c.input(shape), c.input([*shape[:-2], min(shape[-2:])])], ("MatrixSetDiagOptions", {}))


@generator("DYNAMIC_UPDATE_SLICE", modes="f32 i32 i64 i8 bool")
def dynamic_update_slice(c):
    shape = c.shape(1, 4)
    update = [c.integer(1, d) for d in shape]
    starts = c.ints([c.integer(-1, d) for d in shape], c.pick("INT32", "INT64"), constant=0.4)  # the operator moves them inside
    c.finish([c.input(shape), c.input(update), starts], ("DynamicUpdateSliceOptions", {}))


@generator("EMBEDDING_LOOKUP", modes="f32 q8 hybrid")
def embedding_lookup(c):
    rows = c.integer(2, 6)
    table = c.weights([rows, *c.shape(1, 2)], per_channel=False) if c.mode == "hybrid" else c.constant([rows, *c.shape(1, 2)])
    ids = c.plain_input(c.integers([c.integer(1, 5)], 0, rows - 1), "INT32")
    c.finish([ids, table], like=table)


@generator("EMBEDDING_LOOKUP_SPARSE")
def embedding_lookup_sparse(c):
    rows, width, bags = c.integer(2, 6), c.integer(1, 4), 3
    of_bag = np.sort(np.concatenate([np.arange(bags), c.integers([c.integer(0, 3)], 0, bags - 1)]))
    place = np.array([int((of_bag[:i] == b).sum()) for i, b in enumerate(of_bag)])
    ids = c.plain_input(c.integers([len(of_bag)], 0, rows - 1), "INT32")
    indices = c.plain_input(np.stack([of_bag, place], -1), "INT32")
    dense = c.plain_input([bags, int(place.max()) + 1], "INT32")
    weights = c.plain_input(c.values([len(of_bag)], 0.1, 1), "FLOAT32")
    c.finish([ids, indices, dense, weights, c.plain_input(c.values([rows, width]), "FLOAT32")],
             ("EmbeddingLookupSparseOptions", {"combiner": c.pick("SUM", "MEAN", "SQRTN")}))


@generator("SHAPE", modes="f32 i32")
def shape_(c):
    kind = c.pick("INT32", "INT64")
    c.finish([c.input(c.shape(), batch=True)], ("ShapeOptions", {"out_type": kind}), kinds=[kind])


@generator("RANK", modes="f32 i32")
def rank(c):
    c.finish([c.input(c.shape())], ("RankOptions", {}), kinds=["INT32"])


@generator("DENSIFY", modes="f32")
def densify(c):
    """A matrix whose columns are stored as CSR, added to an input."""
    rows, columns = c.integer(2, 4), c.integer(2, 6)
    dense = c.values([rows, columns], -2, 2) * c.rng.integers(0, 2, [rows, columns])
    segments = np.concatenate([[0], np.cumsum((dense != 0).sum(1))]).tolist()
    indices = np.nonzero(dense)[1].tolist()
    rank_two = [{"format": "DENSE", "dense_size": rows},
                {"format": "SPARSE_CSR", "array_segments_type": "Uint8Vector", "array_segments": {"values": segments},
                 "array_indices_type": "Uint8Vector", "array_indices": {"values": indices}}]
    place = c.tensor("c", "FLOAT32", [rows, columns], values=numbers(np.float32(dense[dense != 0])) or [0.0],
                     sparsity={"traversal_order": [0, 1], "block_map": [], "dim_metadata": rank_two})
    given = c.add("DENSIFY", [place], ["FLOAT32"], ("DensifyOptions", {}))
    total = c.add("ADD", [c.input([rows, columns]), *given], ["FLOAT32"], ("AddOptions", {}))
    c.give(total[0], "FLOAT32")


@generator("DILATE", modes="f32 i32 i8")
def dilate(c):
    shape = c.shape(1, 4)
    steps = c.plain_constant([c.integer(1, 3) for _ in shape], "INT32")
    c.finish([c.input(shape), steps, c.plain_constant(0, c.kind)], options_2=["DilateOptions", {}])


RESIZED = "f32 q8 qu8 q16"


@generator("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", modes=RESIZED)
def resize(c):
    size = [c.integer(1, 7), c.integer(1, 7)]
    align = c.chance(0.4)
    fields = {"align_corners": align, "half_pixel_centers": not align and c.chance(0.6)}
    table = "ResizeBilinearOptions" if c.operator == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    x = c.input([c.integer(1, 2), c.integer(1, 5), c.integer(1, 5), c.integer(1, 3)])
    c.finish([x, c.ints(size)], (table, fields), like=x)
