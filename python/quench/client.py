"""Modules at a gateway: models in, libraries out.

    with quench.Client() as client:                    # a gateway of one's own; or Client("host:7450")
        ir = client.load("model.onnx", batch=1)
        ir.calibrate("samples").quantize(per_channel=True)
        ir.compile("out", target="x86-64")
"""

from __future__ import annotations

import copy
import io
import json
import os
import pathlib
import platform
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import grpc
import numpy as np

from quench._gateway import MAX_MESSAGE_BYTES, Gateway, message
from quench._messages import messages
from quench._server import Server, users_socket
from quench.engine import Engine
from quench.errors import GatewayError, InputError

Path = str | os.PathLike[str]
STEP = "quench.gateway.v1.StepSpec"
SAMPLE_FILES = {".npy", ".npz", ".png", ".jpg", ".jpeg", ".pb"}


def port(name: str) -> int:
    return messages().enum("quench.gateway.v1.Port", f"PORT_{name.upper()}")


def portable_target() -> str:
    """Code for any machine of this one's kind."""
    machine = platform.machine().lower()
    return {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"}.get(machine, machine)


class _Steps:
    """A workflow's steps, each bound to those before it."""

    def __init__(self, title: str) -> None:
        self.spec = message("quench.gateway.v1.WorkflowSpec")(title=title[:200])

    def add(self, field: str, bindings: Mapping[str, tuple[str, str]] | None = None) -> Any:
        """The request of a new step, called like its field. `bindings`: input port -> (step, its output port)."""
        step = self.spec.steps.steps.add(name=field)
        for taken, (source, given) in (bindings or {}).items():
            step.bindings.add(input=port(taken), step=source, output=port(given))
        request = getattr(step, field)
        request.SetInParent()
        return request


class IR:
    """A module: a model that was read, and what has been done to it since. Methods change it, and return it.

    Names, types and nodes are those of `quench nodes --stage canonical`."""

    def __init__(self, client: Client, module: Any, name: str) -> None:
        self._client, self._module, self.name = client, module, name
        self._statistics: Any = None
        self._facts: dict[str, Any] | None = None

    # ---- what it is ----

    @property
    def facts(self) -> dict[str, Any]:
        """All that `quench nodes --format json` prints."""
        if self._facts is None:
            outputs = self._run("introspect", lambda request: None)
            facts: dict[str, Any] = json.loads(self._client.gateway.read_bytes(outputs["report_json"].digest))
            self._facts = facts
        return self._facts

    @property
    def fingerprint(self) -> str:
        """Hash of structure and weights."""
        return str(self.facts["fingerprint"])

    @property
    def structure_hash(self) -> str:
        return str(self.facts["structure_hash"])

    @property
    def stage(self) -> str:
        return str(self.facts["stage"])

    @property
    def operators(self) -> dict[str, int]:
        return dict(self.facts["operators"])

    @property
    def inputs(self) -> list[dict[str, Any]]:
        return list(self.facts["inputs"])

    @property
    def outputs(self) -> list[dict[str, Any]]:
        return list(self.facts["outputs"])

    @property
    def is_calibrated(self) -> bool:
        return self._statistics is not None or bool(self.facts["is_calibrated"])

    @property
    def is_quantized(self) -> bool:
        return bool(self.facts["is_quantized"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.facts["nodes"])

    def __len__(self) -> int:
        return len(self.facts["nodes"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IR) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<quench.IR `{self.name}`, {self.stage}, {len(self)} nodes>"

    def copy(self) -> IR:
        """A checkpoint: what is done to the one does not change the other."""
        other = copy.copy(self)
        other._module = message("quench.step.v1.Module").FromString(self._module.SerializeToString())
        return other

    # ---- what is done to it ----

    def _run(self, field: str, fill: Callable[[Any], Any]) -> dict[str, Any]:
        """Outputs by name, of one step on this module."""
        steps = _Steps(f"{field} {self.name}")
        request = steps.add(field)
        request.module.CopyFrom(self._module)
        fill(request)
        return self._client._outputs(steps, field)

    def _become(self, field: str, fill: Callable[[Any], Any]) -> dict[str, Any]:
        outputs = self._run(field, fill)
        self._module.CopyFrom(outputs["module"].module)
        self._facts = self._statistics = None
        return outputs

    def set_batch_size(self, size: int) -> IR:
        """The first dim of every input."""

        def fill(request: Any) -> None:
            request.options.batch = size
            request.passes.append("set_batch_size")

        self._become("transform", fill)
        return self

    def edit(self, script: str, files: Mapping[str, np.ndarray[Any, Any]] | None = None) -> IR:
        """Statements of `quench edit`; `files` are the tensors that the script names."""

        def fill(request: Any) -> None:
            request.script = script
            for name, tensor in (files or {}).items():
                request.files.add(file=name, tensor=self._client._upload_tensor(tensor))

        self._become("edit", fill)
        return self

    def partition(self, backend: str = "tensorrt", operators: Iterable[str] = (), min_nodes: int = 1) -> IR:
        """What the backend runs becomes parts of the module."""

        def fill(request: Any) -> None:
            request.backend = backend
            request.operators.extend(operators)
            request.options.min_nodes = min_nodes

        self._become("partition", fill)
        return self

    def inline_partitions(self) -> IR:
        def fill(request: Any) -> None:
            request.inline_parts = True

        self._become("partition", fill)
        return self

    def tile(self, m: int, n: int, k: int, samples: int = 20) -> IR:
        """Products become products of matrices of at most these sizes."""

        def fill(request: Any) -> None:
            request.limits.m, request.limits.n, request.limits.k, request.samples = m, n, k, samples

        self._become("tile", fill)
        return self

    def split_tensors(self, parts: int = 2, force: bool = False) -> IR:
        """Weights of wide range are cut. A module that was calibrated needs `force`: its statistics are given up."""
        if self._statistics is not None and not force:
            raise InputError("the module is calibrated; force=True gives its statistics up")

        def fill(request: Any) -> None:
            request.parts = parts

        self._become("split_tensors", fill)
        return self

    def calibrate(self, data: Path | np.ndarray[Any, Any] | int, images: str = "", reset: bool = True) -> IR:
        """Runs samples through the model and keeps the ranges of its values. `data`: a folder or file of samples, an array whose
        rows are samples, or how many random ones. `reset=False` adds to earlier calls."""
        steps = _Steps(f"calibrate {self.name}")
        passes = steps.add("transform")
        passes.module.CopyFrom(self._module)
        build = steps.add("compile", {"module": ("transform", "module")})
        build.target.name = portable_target()
        build.options.opt_level, build.options.taps = 2, True
        request = steps.add("calibrate", {"module": ("transform", "module"), "tap_library": ("compile", "library")})
        if isinstance(data, int):
            request.samples.random = data
        else:
            request.samples.manifest.CopyFrom(self._client._upload_samples(data))
        request.samples.images = images
        if self._statistics is not None and not reset:
            request.statistics.CopyFrom(self._statistics)
        done = self._client.gateway.run(steps.spec)
        statistics = next(each.digest for each in done["calibrate"].outputs if each.name == "statistics")
        self._module.CopyFrom(next(each.module for each in done["transform"].outputs if each.name == "module"))
        self._statistics, self._facts = statistics, None
        return self

    def quantize(self, per_channel: bool = True, dynamic: bool = False, method: str = "", exclude: Iterable[str] = ()) -> IR:
        """8-bit integers inside; ranges are those of `calibrate`, or with `dynamic` of each run."""
        if self._statistics is None and not dynamic:
            raise InputError("the module is not calibrated: calibrate(data) first, or dynamic=True")

        def fill(request: Any) -> None:
            request.options.per_channel, request.options.method = per_channel, method
            request.options.exclude.extend(exclude)
            if dynamic:
                request.options.source = messages().enum("quench.quantizer.v1.RangeSource", "RANGE_SOURCE_DYNAMIC")
            else:
                request.statistics.CopyFrom(self._statistics)

        self._become("quantize", fill)
        return self

    # ---- what comes out ----

    def compile(self, output: Path, target: str = "", opt_level: int = 3, float16: bool = False, force_overwrite: bool = False) -> pathlib.Path:
        """Writes model.so and model.h into the folder; the path of the library. `target`: as of `quench targets`, without one for
        any machine of this one's kind."""
        folder = pathlib.Path(output)
        library, header = folder / "model.so", folder / "model.h"
        taken = [path for path in (library, header) if path.exists()]
        if taken and not force_overwrite:
            raise FileExistsError(f"`{taken[0]}` exists; force_overwrite=True replaces it")
        steps = _Steps(f"compile {self.name}")
        passes = steps.add("transform")
        passes.module.CopyFrom(self._module)
        passes.options.float16 = float16
        request = steps.add("compile", {"module": ("transform", "module")})
        request.target.name = target or portable_target()
        request.options.opt_level = opt_level
        request.options.passes.float16 = float16
        outputs = self._client._outputs(steps, "compile")
        folder.mkdir(parents=True, exist_ok=True)
        self._client.gateway.download(outputs["library"].digest, library)
        self._client.gateway.download(outputs["header"].digest, header)
        return library

    def export(self, path: Path) -> pathlib.Path:
        """As an ONNX model. One above 1 GiB has files beside it."""
        outputs = self._run("export_model", lambda request: None)
        path = pathlib.Path(path)
        for name, output in outputs.items():
            if name.startswith("external_data/"):
                self._client.gateway.download(output.digest, path.with_name(name.removeprefix("external_data/")))
        self._client.gateway.download(outputs["file"].digest, path)
        return path

    def infer(self, inputs: Mapping[str, np.ndarray[Any, Any]] | None = None, *, seed: int | None = None, operators: Iterable[str] = (),
              names: Iterable[str] = (), all: bool = False) -> dict[str, np.ndarray[Any, Any]]:
        """Outputs by name, and values of nodes by patterns of operators or names; by the interpreter, slowly."""

        def fill(request: Any) -> None:
            for name, tensor in (inputs or {}).items():
                request.inputs.add(name=name, tensor=self._client._upload_tensor(tensor))
            if seed is not None:
                request.seed = seed
            request.operators.extend(operators)
            request.names.extend(names)
            request.all, request.store_tensors = all, True

        outputs = self._run("infer", fill)
        result = message("quench.analyser.v1.InferResult").FromString(self._client.gateway.read_bytes(outputs["result"].digest))
        return {value.name: np.load(io.BytesIO(self._client.gateway.read_bytes(value.tensor))) for value in result.values}

    def get_inference_function(self, target: str | None = None) -> Callable[..., dict[str, np.ndarray[Any, Any]]]:
        """A function of the inputs, by name or in order, that gives a dict by the outputs' names. Without a target the interpreter
        computes it at the gateway; `target=""` compiles for this machine's kind, and runs here."""
        names = [each["name"] for each in self.inputs]

        def by_name(arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
            if len(arrays) > len(names):
                raise InputError(f"{len(arrays)} inputs, the model has {len(names)}")
            return {**{name: np.asarray(array) for name, array in zip(names, arrays)}, **named}

        if target is None:
            return lambda *arrays, **named: self.infer(by_name(arrays, named))
        folder = tempfile.TemporaryDirectory(prefix="quench-")
        engine = Engine(self.compile(folder.name, target))
        weakref.finalize(engine, folder.cleanup)

        def run(*arrays: Any, **named: Any) -> dict[str, np.ndarray[Any, Any]]:
            return dict(engine.infer(by_name(arrays, named), named=True))

        return run

    def analyse(self) -> dict[str, Any]:
        """Layers, parameters, MACs and memory, as `quench analyse --format json` prints them; counted on this module."""

        def fill(request: Any) -> None:
            request.imported.CopyFrom(self._module)
            request.canonical.CopyFrom(self._module)

        steps = _Steps(f"analyse {self.name}")
        fill(steps.add("analyse"))
        outputs = self._client._outputs(steps, "analyse")
        return dict(json.loads(self._client.gateway.read_bytes(outputs["report_json"].digest)))


class Client:
    """A gateway: HOST:PORT, unix:PATH, or `local` for what `quench serve` of this user listens on. Without an address `quench serve` is started on a private socket (from QUENCH_BIN or PATH), and stopped by `close`.

    `ca`, `certificate`, `key`: PEM files, for TLS; `tls=True` alone believes the system's authorities. `token`, or a file with it
    (default: QUENCH_TOKEN_FILE). `progress`: True, False, or None for terminals and notebooks. `patience`: seconds without progress
    after which a gateway that does not answer is given up."""

    def __init__(self, address: str | None = None, *, tls: bool = False, ca: Path | None = None, certificate: Path | None = None,
                 key: Path | None = None, token: str | None = None, token_file: Path | None = None, progress: bool | None = None,
                 patience: float = 60, state_dir: Path | None = None) -> None:
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _outputs(self, steps: _Steps, step: str) -> dict[str, Any]:
        return {output.name: output for output in self.gateway.run(steps.spec)[step].outputs}

    def _upload_tensor(self, tensor: Any) -> Any:
        path = pathlib.Path(self._folder.name) / "tensor.npy"
        np.save(path, np.asarray(tensor))
        return self.gateway.upload(path)

    def _upload_samples(self, data: Any) -> Any:
        manifest = message("quench.step.v1.SampleManifest")()
        if isinstance(data, (str, os.PathLike)):
            root = pathlib.Path(data)
            files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.suffix.lower() in SAMPLE_FILES)
            if not files:
                raise InputError(f"`{root}` has no samples: {', '.join(sorted(SAMPLE_FILES))} files")
            for path in files:
                manifest.files.add(path=path.name if root.is_file() else str(path.relative_to(root)), digest=self.gateway.upload(path))
        else:
            manifest.files.add(path="samples.npy", digest=self._upload_tensor(data))
        path = pathlib.Path(self._folder.name) / "manifest"
        path.write_bytes(manifest.SerializeToString(deterministic=True))
        return self.gateway.upload(path)

    def load(self, model: Path | bytes | Any, *, format: str = "", shapes: Mapping[str, Iterable[int]] | None = None,
             dims: Mapping[str, tuple[int, int]] | None = None, dtypes: Mapping[str, str] | None = None, batch: int = 0,
             outputs: Iterable[str] = (), opset: int = 0, external_data: Iterable[Path] = ()) -> IR:
        """A model file of any format, its bytes, or an object with SerializeToString (an ONNX ModelProto). `external_data`: files
        that the model names. `dtypes`: element types of inputs, by NumPy's names."""
        if isinstance(model, (str, os.PathLike)):
            path = pathlib.Path(model)
        else:
            path = pathlib.Path(self._folder.name) / "model"
            path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        steps = _Steps(f"import {path.name}")
        request = steps.add("import_model")
        request.model.file.CopyFrom(self.gateway.upload(path))
        request.model.name = path.name
        for file in external_data:
            file = pathlib.Path(file)
            request.model.external_data.add(path=os.path.relpath(file, path.parent), digest=self.gateway.upload(file))
        request.options.format, request.options.opset = format, opset
        request.options.outputs.extend(outputs)
        for name, shape in (shapes or {}).items():
            request.options.shapes.add(input=name, dims=list(shape))
        for name, (least, most) in (dims or {}).items():
            request.options.dims.add(symbol=name, min=least, max=most)
        for name, dtype in (dtypes or {}).items():
            if dtype not in _ELEMENT_TYPES:
                raise InputError(f"input `{name}`: unknown type `{dtype}`, known are {', '.join(_ELEMENT_TYPES)}")
            request.options.types.add(input=name, element_type=_ELEMENT_TYPES[dtype])
        made = self._outputs(steps, "import_model")
        ir = IR(self, made["canonical"].module, path.stem)
        return ir.set_batch_size(batch) if batch else ir


# Of quench.ir.v1.ElementType.
_ELEMENT_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
                  "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16}
_own: Client | None = None


def load(model: Path | bytes | Any, client: Client | None = None, **options: Any) -> IR:
    """`Client.load`; without a client one of this process's own, which ends with it."""
    global _own
    if client is None:
        if _own is None:
            import atexit

            _own = Client()
            atexit.register(_own.close)
        client = _own
    return client.load(model, **options)


def from_onnx(model: Path | bytes | Any, **options: Any) -> IR:
    return load(model, format="onnx", **options)


def from_tflite(model: Path | bytes, **options: Any) -> IR:
    return load(model, format="tflite", **options)


def from_keras(model: Path, **options: Any) -> IR:
    return load(model, format="keras", **options)


def from_tensorflow(model: Path, **options: Any) -> IR:
    """A frozen graph, or the folder of a saved model."""
    path = pathlib.Path(model)
    if path.is_dir():
        options.setdefault("external_data", sorted(path.glob("variables/variables.*")))
        path = path / "saved_model.pb"
    return load(path, format="tensorflow", **options)


def from_torch(module: Any, inputs: Mapping[str, Any], *, client: Client | None = None, opset: int = 17) -> IR:
    """A torch.nn.Module. `inputs`: example tensors by the names that the inputs get. Where these are the arguments of `forward` it is
    saved by torch.export, else traced, else (and under other names) exported as ONNX, whatever works first; `ir.name` ends in which
    that was."""
    import importlib
    import inspect

    torch: Any = importlib.import_module("torch")
    tensors = tuple(inputs.values())
    module = module.eval()

    def exported(path: pathlib.Path) -> None:
        torch.export.save(torch.export.export(module, tensors), str(path))

    def traced(path: pathlib.Path) -> None:
        torch.jit.trace(module, tensors).save(str(path))

    def onnx(path: pathlib.Path) -> None:
        torch.onnx.export(module, tensors, str(path), input_names=list(inputs), opset_version=opset)

    # Files of PyTorch name their inputs after the arguments; a traced one says nothing of shapes and types.
    own_names = list(inspect.signature(module.forward).parameters)[: len(inputs)] == list(inputs)
    shapes = {name: list(tensor.shape) for name, tensor in inputs.items()}
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in inputs.items()}
    ways: list[tuple[str, str, Callable[[pathlib.Path], None], dict[str, Any]]] = [("torch.onnx.export", ".onnx", onnx, {})]
    if own_names:
        ways = [("torch.export", ".pt2", exported, {}), ("torch.jit.trace", ".pt", traced, {"shapes": shapes, "dtypes": dtypes}), *ways]
    problems = []
    with tempfile.TemporaryDirectory(prefix="quench-") as folder:
        for how, suffix, save, options in ways:
            path = pathlib.Path(folder) / f"{type(module).__name__}{suffix}"
            try:
                save(path)
                ir = load(path, client, **options)
            except Exception as problem:  # of PyTorch, of any kind, or the gateway's
                problems.append(f"{how}: {str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__}")
                continue
            ir.name = f"{ir.name} ({how})"
            return ir
    raise InputError("the module could not be read; " + "; ".join(problems))
