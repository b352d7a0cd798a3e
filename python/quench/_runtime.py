"""libquench_rt, by its C interface."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import cffi

from quench.errors import BY_CODE, LibraryError, QuenchError

ffi: Any = cffi.FFI()  # what is behind it has the types of C
_HERE = pathlib.Path(__file__).resolve().parent


def _load() -> Any:
    # The declarations are those of the headers that the library was built with: stage.py writes them.
    ffi.cdef((_HERE / "_cdef.h").read_text())
    path = os.environ.get("QUENCH_RT") or str(_HERE / "libquench_rt.so")
    try:
        return ffi.dlopen(path)
    except OSError as error:
        raise LibraryError(f"cannot load the runtime `{path}`: {error}") from error


lib: Any = _load()


def text(pointer: Any) -> str:
    """A C string; "" for NULL."""
    return "" if pointer == ffi.NULL else bytes(ffi.string(pointer)).decode("utf-8", "replace")


def check(code: int, error: Any) -> None:
    """Raises what `code` says, with the sentence in `error`."""
    if code != 0:
        raise BY_CODE.get(code, QuenchError)(text(error.text))


def has(struct: Any, type_name: str, field: str) -> bool:
    """Whether the producer of a sized struct knew this field."""
    field_type = dict(ffi.typeof(type_name).fields)[field]
    return bool(struct.size >= field_type.offset + ffi.sizeof(field_type.type))
