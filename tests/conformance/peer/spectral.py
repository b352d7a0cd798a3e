"""Fourier transforms and windows."""

import numpy as np

from .case import F32, F64, I32, I64, element_type, generator


@generator("BlackmanWindow", "HammingWindow", "HannWindow")
def windows(c):
    target = c.maybe(c.dtype("T2", (F32, F64, F32)), 0.4)
    size, periodic = np.array(c.integer(1, 20), c.pick(I32, I64)), c.maybe(c.integer(0, 1))
    if size == 1 and periodic == 0:
        c.exclude("one symmetric value")
    c.finish([c.setting(size)], periodic=periodic, output_datatype=None if target is None else element_type(target))


@generator("DFT")
def dft(c):
    dtype = c.dtype("T1", (F32, F32, F64))
    inner = [c.integer(1, 12) for _ in range(c.integer(1, 2))]
    parts, onesided, inverse = c.integer(1, 2), 0, c.integer(0, 1)
    if parts == 1:
        inverse, onesided = 0, c.integer(0, 1)
    shape = [c.integer(1, 2)] + inner + [parts]
    axis = c.integer(1, len(inner))
    if c.chance(0.3):
        axis -= len(shape)
    length = c.maybe(c.setting(np.array(c.integer(1, 14), c.pick(I32, I64))), 0.3)
    inputs = [c.input(c.values(dtype, shape), fixed=[-1]), length]
    attributes = {"inverse": inverse if inverse else c.maybe(0), "onesided": onesided if onesided else c.maybe(0)}
    if c.at_least(20):
        c.finish(inputs + [c.setting(np.array(axis, np.int64))], **attributes)
    else:
        c.finish(inputs, axis=axis, **attributes)


@generator("STFT")
def stft(c):
    dtype = c.dtype("T1", (F32, F32, F64))
    frame, step = c.integer(4, 9), c.integer(1, 4)
    signal = c.input(c.values(dtype, [c.integer(1, 2), frame + c.integer(0, 12), 1]), fixed=[-1])
    integer = c.pick(I32, I64)
    shape = c.setting(np.array(frame, integer))
    given = c.parameter(c.values(dtype, [frame], 0, 1)) if c.chance(0.6) else None
    c.finish([signal, c.setting(np.array(step, integer)), given, None if given and c.chance(0.5) else shape], onesided=c.maybe(c.integer(0, 1)))
