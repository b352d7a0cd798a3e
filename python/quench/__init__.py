"""Runs models that Quench has compiled into native libraries, and has them compiled by a gateway.

    import quench

    with quench.Engine("out/model.so") as engine:
        logits, = engine.infer(image)

    with quench.Client() as client:
        client.load("model.onnx").compile("x86-64", output_path="out")
"""

from __future__ import annotations

import importlib
import pathlib
from typing import TYPE_CHECKING, Any

from quench.engine import Benchmark, Engine, Quantization, State, TensorInfo
from quench.errors import (
    ArgumentError,
    AuthenticationError,
    BusyError,
    CancelledError,
    CheckError,
    ClosedError,
    DeviceError,
    EncryptedError,
    GatewayError,
    InputError,
    LibraryError,
    OutOfMemoryError,
    OutputExistsError,
    QuenchError,
    UnavailableError,
)
from quench.targets import list_android_tags, list_arm_tags, list_cuda_tags, list_target_tags, list_x86_tags

if TYPE_CHECKING:
    from quench.client import Client
    from quench.ir import IR
    from quench.loading import from_keras, from_onnx, from_tensorflow, from_tflite, from_torch, gemm, load
    from quench.relay import IRModule, RelayModule
    from quench.workflow import Cell, Fleet, Workflow

LatentRuntimeEngine = Engine  # as Forge calls it

# Names of quench[client], whose packages an engine does without.
_CLIENT = {"Client": "client", "IR": "ir", "IRModule": "relay", "RelayModule": "relay", "Cell": "workflow", "Fleet": "workflow", "Workflow": "workflow",
           **{name: "loading" for name in ("from_keras", "from_onnx", "from_tensorflow", "from_tflite", "from_torch", "gemm", "load")}}


# stage.py writes it: the version of the whole project.
__version__: str = pathlib.Path(__file__).with_name("_version").read_text().strip()


def __getattr__(name: str) -> Any:
    if name not in _CLIENT:
        raise AttributeError(f"module 'quench' has no attribute '{name}'")
    try:
        module = importlib.import_module(f"quench.{_CLIENT[name]}")
    except ImportError as missing:
        if (missing.name or "").split(".")[0] not in ("grpc", "google"):
            raise
        raise ImportError("the client needs grpcio and protobuf: pip install 'quench[client]'") from missing
    return getattr(module, name)


__all__ = [
    "IR",
    "ArgumentError",
    "AuthenticationError",
    "Benchmark",
    "BusyError",
    "CancelledError",
    "Cell",
    "CheckError",
    "Client",
    "ClosedError",
    "DeviceError",
    "EncryptedError",
    "Engine",
    "Fleet",
    "GatewayError",
    "IRModule",
    "InputError",
    "LatentRuntimeEngine",
    "LibraryError",
    "OutOfMemoryError",
    "OutputExistsError",
    "Quantization",
    "QuenchError",
    "RelayModule",
    "State",
    "TensorInfo",
    "UnavailableError",
    "Workflow",
    "from_keras",
    "from_onnx",
    "from_tensorflow",
    "from_tflite",
    "from_torch",
    "gemm",
    "list_android_tags",
    "list_arm_tags",
    "list_cuda_tags",
    "list_target_tags",
    "list_x86_tags",
    "load",
]
