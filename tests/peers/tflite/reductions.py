"""Reductions, searches and segments."""

import numpy as np

from .case import generator


def axes_of(c, rank):
    """Distinct axes, some counted from the end; one alone may be a scalar."""
    chosen = [int(a) - (rank if c.chance(0.3) else 0) for a in c.rng.permutation(rank)[:c.integer(1, rank)]]
    return c.ints(chosen[0] if len(chosen) == 1 and c.chance(0.3) else chosen, constant=0.95)


@generator("SUM", modes="f32 i32 i64 q8 qu8")
@generator("MEAN", modes="f32 i32 i64 q8 qu8 q16")
@generator("REDUCE_MAX", "REDUCE_MIN", modes="f32 i32 i64 q8 qu8 q16")
def reduce(c):
    shape = c.shape(1, 4)
    x = c.input(shape, batch=c.chance(0.3))
    same = x if c.operator in ("REDUCE_MAX", "REDUCE_MIN") else None
    c.finish([x, axes_of(c, len(shape))], ("ReducerOptions", {"keep_dims": c.chance(0.5)}), like=same)


@generator("REDUCE_PROD", modes="f32 i32 i64")
def reduce_prod(c):
    shape = c.shape(1, 3)
    x = c.input(shape, -1.5, 1.5)
    c.finish([x, axes_of(c, len(shape))], ("ReducerOptions", {"keep_dims": c.chance(0.5)}))


@generator("REDUCE_ANY", "REDUCE_ALL", modes="bool")
def reduce_bool(c):
    shape = c.shape(1, 4)
    c.finish([c.input(shape), axes_of(c, len(shape))], ("ReducerOptions", {"keep_dims": c.chance(0.5)}))


@generator("ARG_MAX", "ARG_MIN", modes="f32 i32 q8 qu8")
def arg(c):
    shape = c.shape(1, 4)
    kind = c.pick("INT32", "INT64")
    table = "ArgMaxOptions" if c.operator == "ARG_MAX" else "ArgMinOptions"
    c.finish([c.input(shape, batch=len(shape) > 1), c.ints(c.axis(len(shape)), c.pick("INT32", "INT64"), constant=1)],
             (table, {"output_type": kind}), kinds=[kind])


@generator("CUMSUM", modes="f32 i32 i64")
def cumsum(c):
    shape = c.shape(1, 4)
    fields = {"exclusive": c.chance(0.4), "reverse": c.chance(0.4)}
    c.finish([c.input(shape), c.ints(c.axis(len(shape)), constant=1)], ("CumsumOptions", fields))


@generator("TOPK_V2", modes="f32 i32 i64 q8 qu8")
def top_k(c):
    shape = c.shape(1, 3)
    if c.float and c.mode == "f32":
        x = c.input(shape)
    else:
        x = c.input(shape, -20, 20)
    c.finish([x, c.ints(c.integer(1, shape[-1]), constant=0.9)], ("TopKV2Options", {}), kinds=[c.kind, "INT32"], like=x)


@generator("UNIQUE", modes="f32 i32 i64 i8 u8")
def unique(c):
    kind = c.pick("INT32", "INT64")
    values = c.integers([c.integer(1, 12)], 0, 5)
    c.finish([c.plain_input(values, c.kind)], ("UniqueOptions", {"idx_out_type": kind}), kinds=[c.kind, kind])


@generator("SEGMENT_SUM", modes="f32 i32")
def segment_sum(c):
    shape = c.shape(1, 3)
    ids = np.minimum(np.sort(c.integers([shape[0]], 0, 3)), np.arange(shape[0]))
    c.finish([c.input(shape), c.ints(ids, constant=0.5)], ("SegmentSumOptions", {}))


SEGMENTS = {"UNSORTED_SEGMENT_SUM": "UnsortedSegmentSumOptions", "UNSORTED_SEGMENT_PROD": "UnsortedSegmentProdOptions",
            "UNSORTED_SEGMENT_MAX": "UnsortedSegmentMaxOptions", "UNSORTED_SEGMENT_MIN": "UnsortedSegmentMinOptions"}


@generator(*SEGMENTS, modes="f32 i32")
def unsorted_segment(c):
    shape, segments = c.shape(1, 3), c.integer(1, 5)
    depth = c.integer(1, len(shape))
    ids = c.ints(c.integers(shape[:depth], -1 if c.chance(0.3) else 0, segments - 1), constant=0.5)
    c.finish([c.input(shape), ids, c.ints(segments, constant=1)], (SEGMENTS[c.operator], {}))
