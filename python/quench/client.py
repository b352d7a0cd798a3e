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

from quench._gateway import MAX_MESSAGE_BYTES, Gateway
from quench._server import Server, users_socket
from quench._steps import Path, Steps, element_type
from quench.errors import InputError
from quench.ir import IR
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

    def load(self, model: Union[Path, bytes, Any], *, format: str = "", shapes: Optional[Mapping[str, Iterable[int]]] = None,
             dims: Optional[Mapping[str, tuple[int, int]]] = None, dtypes: Optional[Mapping[str, Any]] = None, batch: int = 0,
             inputs: Iterable[str] = (), outputs: Iterable[str] = (), opset: int = 0, freeze: Optional[Mapping[str, Any]] = None,
             no_freeze: Iterable[str] = (), convert_config: Optional[Mapping[str, bool]] = None,
             conversions: Iterable[str] = (), layout: str = "", signature: str = "", architecture: Optional[Path] = None,
             default_type: Any = None, keep_quantized_weight: bool = False, external_data: Iterable[Path] = ()) -> IR:
        """A model file of any format, its bytes, or an object with SerializeToString (an ONNX ModelProto, a GraphDef).

        shapes, dtypes: of inputs, by their names; dims: least and greatest size of those that inputs decide; freeze: arrays that
        inputs become constants of; no_freeze: parameters that stay inputs, or "all"; conversions: texts of functions that operators
        of their names become; external_data: files that the model names, where they are not beside it.
        The rest is called as by `quench import`; a format refuses what it has no use for."""
        if not isinstance(model, (str, os.PathLike)):
            with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
                path = pathlib.Path(folder) / "model"
                path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
                return self.load(path, format=format, shapes=shapes, dims=dims, dtypes=dtypes, batch=batch, inputs=inputs,
                                 outputs=outputs, opset=opset, freeze=freeze, no_freeze=no_freeze, convert_config=convert_config,
                                 conversions=conversions, layout=layout, signature=signature, architecture=architecture,
                                 default_type=default_type, keep_quantized_weight=keep_quantized_weight, external_data=external_data)
        path = pathlib.Path(model)
        steps = Steps(f"import {path.name}")
        request = steps.add("import_model")
        self._fill_model(request.model, path, external_data)
        options = request.options
        options.format, options.opset, options.signature = format, opset, signature
        options.inputs.extend(inputs)
        options.outputs.extend(outputs)
        options.no_freeze.extend([no_freeze] if isinstance(no_freeze, str) else no_freeze)
        options.keep_quantized_weight = keep_quantized_weight
        for name, shape in (shapes or {}).items():
            options.shapes.add(input=name, dims=list(shape))
        for name, (least, most) in (dims or {}).items():
            options.dims.add(symbol=name, min=least, max=most)
        for name, dtype in (dtypes or {}).items():
            options.types.add(input=name, element_type=element_type(f"input `{name}`", dtype))
        for name, tensor in (freeze or {}).items():
            options.freeze.add(input=name, tensor=self._upload_tensor(tensor))
        for key, value in (convert_config or {}).items():
            options.convert_config[key] = value
        for text in conversions:
            options.conversions.append(self._upload_bytes(text.encode(), "conversions"))
        if layout:
            layouts = {"NCHW": 1, "NHWC": 2}
            if layout not in layouts:
                raise InputError(f"layout is `{layout}`, must be `NCHW` or `NHWC`")
            options.layout = layouts[layout]
        if architecture is not None:
            options.architecture.CopyFrom(self.gateway.upload(architecture))
        if default_type is not None:
            options.default_type = element_type("default_type", default_type)
        made = self._outputs(steps.spec, "import_model")
        ir = IR(self, made["canonical"].module, path.stem)
        return ir.set_batch_size(batch) if batch else ir
