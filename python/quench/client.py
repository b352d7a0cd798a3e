"""A gateway: models in, modules and libraries out.

    with quench.Client() as client:                    # a gateway of one's own; or Client("host:7450")
        ir = client.load("model.onnx", batch=1)
        ir.calibrate("samples").quantize()
        ir.compile("x86-64", output_path="out")
"""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Optional, Union

import grpc

from quench._gateway import MAX_MESSAGE_BYTES, Gateway, message
from quench._imports import fill_import_options
from quench._modules import is_module
from quench._server import Server, users_socket
from quench._steps import Path, Steps, whole
from quench._wording import near_names
from quench.errors import InputError
from quench.ir import IR, read_module
from quench.workflow import Batches


class Client(Batches):
    """A gateway: HOST:PORT, unix:PATH, or `local` for what `quench serve` of this user listens on. Without an address `quench serve` is started on a private socket (from QUENCH_BIN or PATH), and stopped by `close`.

    `ca`, `certificate`, `key`: PEM files, for TLS; `tls=True` alone believes the system's authorities. `token`, or a file with it
    (default: QUENCH_TOKEN_FILE). `progress`: True, False, or None for terminals and notebooks. `patience`: seconds without progress
    after which a gateway that does not answer is given up."""

    def __init__(self, address: Optional[str] = None, *, tls: bool = False, ca: Optional[Path] = None, certificate: Optional[Path] = None,
                 key: Optional[Path] = None, token: Optional[str] = None, token_file: Optional[Path] = None, progress: Optional[bool] = None,
                 patience: float = 60, state_dir: Optional[Path] = None) -> None:
        self._server = Server(state_dir) if address is None else None
        address = self._server.address if self._server is not None else address
        if address == "local":
            address = users_socket()
        assert address is not None
        token_file = token_file or os.environ.get("QUENCH_TOKEN_FILE")
        if token is None and token_file:
            token = pathlib.Path(token_file).read_text().strip()
        options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.keepalive_time_ms", 60_000)]
        if tls or ca or certificate:
            pem = [pathlib.Path(path).read_bytes() if path else None for path in (ca, key, certificate)]
            channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(*pem), options)
        else:
            channel = grpc.insecure_channel(address, options)
        self.gateway = Gateway(channel, token, progress, patience)
        self._folder = tempfile.TemporaryDirectory(prefix="quench-")

    def close(self) -> None:
        self.gateway.close()
        self._folder.cleanup()
        if self._server is not None:
            self._server.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def _outputs(self, spec: Any, step: str) -> dict[str, Any]:
        return {output.name: output for output in self.gateway.run(spec)[step].outputs}

    @near_names
    def load(self, model: Union[Path, bytes, Any], *, format: str = "", shapes: Optional[Mapping[str, Iterable[int]]] = None,
             dims: Optional[Mapping[str, tuple[int, int]]] = None, dtypes: Optional[Mapping[str, Any]] = None, batch: int = 0,
             inputs: Iterable[str] = (), outputs: Iterable[str] = (), opset: int = 0, freeze: Optional[Mapping[str, Any]] = None,
             no_freeze: Iterable[str] = (), convert_config: Optional[Mapping[str, bool]] = None,
             conversions: Iterable[str] = (), layout: str = "", signature: str = "", architecture: Optional[Path] = None,
             default_type: Any = None, keep_quantized_weight: bool = False, external_data: Iterable[Path] = ()) -> IR:
        """A model file of any format, a module (.qir, .ir.txt), the bytes of one, or an object with SerializeToString (an ONNX ModelProto, a GraphDef).

        shapes, dtypes: of inputs, by their names; dims: least and greatest size of those that inputs decide; freeze: arrays that
        inputs become constants of; no_freeze: parameters that stay inputs, or "all"; conversions: texts of functions that operators
        of their names become; external_data: files that the model names, where they are not beside it.
        The rest is called as by `quench import`; a format refuses what it has no use for."""
        options = message("quench.importer.v1.ImportOptions")()
        fill_import_options(self, options, format=format, shapes=shapes, dims=dims, dtypes=dtypes, inputs=inputs, outputs=outputs,
                            opset=opset, freeze=freeze, no_freeze=no_freeze, convert_config=convert_config, conversions=conversions,
                            layout=layout, signature=signature, architecture=architecture, default_type=default_type,
                            keep_quantized_weight=keep_quantized_weight)
        if batch:
            whole("batch", batch, 1)
        if isinstance(model, (str, os.PathLike)):
            return self._load(pathlib.Path(model), options, batch, external_data)
        if not isinstance(model, bytes) and not hasattr(model, "SerializeToString"):
            raise TypeError(f"a {type(model).__name__} is no model: a path, the bytes of a file, or an object with SerializeToString")
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            path = pathlib.Path(folder) / "model"
            path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
            return self._load(path, options, batch, external_data)

    def _load(self, path: pathlib.Path, options: Any, batch: int, external_data: Iterable[Path]) -> IR:
        if not options.format and is_module(path):
            asked = [field.name for field, _ in options.ListFields()]
            if asked:
                raise InputError(f"`{path}` is a module of Quench's, which is read as it is; it takes no `{asked[0]}`")
            ir = read_module(self, path)
            return ir.set_batch_size(batch) if batch else ir
        steps = Steps(f"import {path.name}")
        request = steps.add("import_model")
        self._fill_model(request.model, path, external_data)
        request.options.CopyFrom(options)
        made = self._outputs(steps.spec, "import_model")
        ir = IR(self, made["canonical"].module, path.stem)
        return ir.set_batch_size(batch) if batch else ir
