"""Arrays given by users, converted to numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quench.errors import InputError

Array = npt.NDArray[Any]
_READABLE = (1, 3)  # DLPack's device types of memory that this process can read: the CPU's, and what is pinned for a GPU


def as_array(name: str, dtype: np.dtype[Any], value: Any) -> Array:
    """An array of numpy, or of a library that speaks DLPack, where it lies; lists and numbers as `dtype`.

    Raises InputError, which says `name`. The dtype of what is an array already is not checked.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray) and np.any(value.mask):
        raise InputError(f"input `{name}`: some of its numbers are masked; array.filled(number) says what stands for them")
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if hasattr(value, "__dlpack_device__"):
        return _lent(name, value)
    if isinstance(value, (Sequence, int, float, bool)) and not isinstance(value, (str, bytes)):
        return _listed(name, dtype, value)
    raise InputError(f"input `{name}`: a {type(value).__name__} is not an array")


def _lent(name: str, value: Any) -> Array:
    try:
        kind, number = value.__dlpack_device__()
    except Exception as error:  # each library raises what it likes
        raise InputError(f"input `{name}`: its library does not say where it lies: {error}") from error
    if kind not in _READABLE:
        raise InputError(f"input `{name}`: it lies on device {kind}:{number}, neither in this machine's memory nor in that of "
                         f"the engine's GPU; copy it to the CPU first")
    try:
        imported: Array = np.from_dlpack(value)
    except Exception as error:
        raise InputError(f"input `{name}`: its library does not lend it by DLPack: {error}") from error
    return imported


def _listed(name: str, dtype: np.dtype[Any], value: Any) -> Array:
    try:
        found: Array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InputError(f"input `{name}`: the list is not an array: {error}") from error
    if found.dtype.kind not in "biuf":
        raise InputError(f"input `{name}`: the list is not an array of numbers")
    if dtype.kind == "f" or found.size == 0:
        return found.astype(dtype)
    if found.dtype.kind == "f":
        raise InputError(f"input `{name}`: the list has {found.dtype} numbers, the model takes {dtype}")
    made: Array = found.astype(dtype)
    if not np.array_equal(made, found):
        raise InputError(f"input `{name}`: the list has numbers that {dtype} cannot hold")
    return made
