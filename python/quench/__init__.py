"""Runs models that Quench has compiled into native libraries, and has them compiled by a gateway.

    import quench

    with quench.Engine("out/model.so") as engine:
        logits, = engine.infer(image)

    with quench.Client() as client:
        client.load("model.onnx").compile("out")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quench.engine import Benchmark, Engine, Quantization, State, TensorInfo
from quench.errors import (
    AuthenticationError,
    BusyError,
    CancelledError,
    CheckError,
    ClosedError,
    EncryptedError,
    GatewayError,
    InputError,
    LibraryError,
    OutOfMemoryError,
    QuenchError,
    UnavailableError,
)

if TYPE_CHECKING:
    from quench.client import IR, Client, load

# Of quench[client], whose packages an engine does without.
_CLIENT = {"Client", "IR", "from_keras", "from_onnx", "from_tensorflow", "from_tflite", "from_torch", "load"}


def __getattr__(name: str) -> Any:
    if name not in _CLIENT:
        raise AttributeError(f"module 'quench' has no attribute '{name}'")
    try:
        from quench import client
    except ImportError as missing:
        if (missing.name or "").split(".")[0] not in ("grpc", "google"):
            raise
        raise ImportError("the client needs grpcio and protobuf: pip install 'quench[client]'") from missing
    return getattr(client, name)


__all__ = [
    "IR",
    "AuthenticationError",
    "Benchmark",
    "BusyError",
    "CancelledError",
    "CheckError",
    "Client",
    "ClosedError",
    "EncryptedError",
    "Engine",
    "GatewayError",
    "InputError",
    "LibraryError",
    "OutOfMemoryError",
    "Quantization",
    "QuenchError",
    "State",
    "TensorInfo",
    "UnavailableError",
    "load",
]
