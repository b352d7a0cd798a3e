"""Arrays in a GPU's memory, borrowed from whatever library has them: PyTorch, CuPy, or anything else that speaks DLPack."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from quench._runtime import ffi
from quench.errors import InputError

# DLPack's numbers of devices: memory of a CUDA GPU, and managed memory, which a GPU reads too.
_CUDA, _CUDA_MANAGED = 2, 13

# As dlpack.h of version 0.8 has them: what a capsule named "dltensor" points to begins with a tensor.
ffi.cdef("""
typedef struct { int32_t device_type, device_id; } quench_dl_device;
typedef struct { uint8_t code, bits; uint16_t lanes; } quench_dl_type;
typedef struct {
  void* data; quench_dl_device device; int32_t ndim; quench_dl_type dtype; int64_t* shape; int64_t* strides; uint64_t byte_offset;
} quench_dl_tensor;
""")

# DLPack's code and bits of a type, by ONNX's number.
_KINDS = {1: (2, 32), 2: (1, 8), 3: (0, 8), 4: (1, 16), 5: (0, 16), 6: (0, 32), 7: (0, 64), 9: (6, 8), 10: (2, 16), 11: (2, 64),
          12: (1, 32), 13: (1, 64), 16: (4, 16)}
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class DeviceArray:
    """Memory that another library lends as long as this object lives."""

    def __init__(self, owner: Any, capsule: Any) -> None:
        self._owner, self._capsule = owner, capsule
        tensor = ffi.cast("quench_dl_tensor*", _pointer_of(capsule, b"dltensor"))
        self.kind = (int(tensor.dtype.code), int(tensor.dtype.bits) * int(tensor.dtype.lanes))
        self.shape = tuple(int(tensor.shape[i]) for i in range(tensor.ndim))
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.kind[1] // 8
        self.data: Any = ffi.NULL if self.size == 0 else ffi.cast("char*", tensor.data) + tensor.byte_offset
        strides = self.shape if tensor.strides == ffi.NULL else tuple(int(tensor.strides[i]) for i in range(tensor.ndim))
        self.is_contiguous = tensor.strides == ffi.NULL or self.size == 0 or all(
            size == 1 or stride == math.prod(self.shape[axis + 1:])
            for axis, (size, stride) in enumerate(zip(self.shape, strides)))

    @property
    def kind_name(self) -> str:
        code, bits = self.kind
        return "bool" if code == 6 else f"{_CODES.get(code, f'type {code} of ')}{bits}"


def is_on_gpu(value: Any) -> bool:
    """Whether it says that it lies in a GPU's memory. False for what does not say where it lies."""
    try:
        kind, _ = value.__dlpack_device__()
    except Exception:  # it is no array, or its library is out of order: as_array says which
        return False
    return kind in (_CUDA, _CUDA_MANAGED)


def borrow(what: str, number: int, value: Any, stream: int) -> DeviceArray:
    """The memory of `value`, an array of type `number` (ONNX's), once what its library does with it is ordered before `stream`.

    Raises InputError, which begins with `what`: "input `image`".
    """
    try:
        capsule = value.__dlpack__(stream=stream)
        array = DeviceArray(value, capsule)
    except Exception as error:  # each library raises what it likes
        raise InputError(f"{what}: its library does not lend it by DLPack: {error}") from error
    if array.kind != _KINDS[number]:
        code, bits = _KINDS[number]
        wanted = "bool" if code == 6 else f"{_CODES[code]}{bits}"
        raise InputError(f"{what}: dtype is {array.kind_name}, the model has {wanted}")
    if not array.is_contiguous:
        raise InputError(f"{what}: it is not contiguous in the GPU's memory; a contiguous copy can be taken")
    return array
