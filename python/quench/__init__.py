"""Runs models that Quench has compiled into native libraries.

    import quench

    with quench.Engine("out/model.so") as engine:
        logits, = engine.infer(image)
"""

from quench.engine import Benchmark, Engine, Quantization, State, TensorInfo
from quench.errors import (
    BusyError,
    CheckError,
    ClosedError,
    EncryptedError,
    InputError,
    LibraryError,
    OutOfMemoryError,
    QuenchError,
)

__all__ = [
    "Benchmark",
    "BusyError",
    "CheckError",
    "ClosedError",
    "EncryptedError",
    "Engine",
    "InputError",
    "LibraryError",
    "OutOfMemoryError",
    "Quantization",
    "QuenchError",
    "State",
    "TensorInfo",
]
