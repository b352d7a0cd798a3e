"""A module at a gateway: what it is, what is done to it, what comes out."""

from __future__ import annotations

import io
import json
import pathlib
import re
import tempfile
import uuid as uuids
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from quench._arrays import as_array
from quench._gateway import message
from quench._library import Files
from quench._messages import messages
from quench._modules import module_bytes, upload_module, write_module, write_text
from quench._steps import (Path, Steps, Target, fill_compile_options, fill_quantize_options, fill_target, numpy_type, one_of,
                           parsed_type, portable_target, whole)
from quench.engine import Engine
from quench.errors import ArgumentError, InputError

if TYPE_CHECKING:
    from quench.client import Client

Tensor = np.ndarray[Any, Any]
LIBRARIES = {"so": "model.so", "obj": "model.o", "a": "model.a"}
MOST_PREFIX = 255  # bytes
EMITS = {"so": "SHARED_LIBRARY", "obj": "OBJECT", "a": "ARCHIVE"}


class IR:
    """A module: a model that was read, and what has been done to it since. Methods change it, and return it.

    Names, types and nodes are those of `quench nodes --stage canonical`."""

    def __init__(self, client: Client, module: Any, name: str) -> None:
        self._client, self._module, self.name = client, module, name
        # Digest of what `calibrate` collected; the module that it is of, which went through the passes; the batch size set since.
        self._statistics: Any = None
        self._calibrated: Any = None
        self._batch = 0
        self._facts: Optional[dict[str, Any]] = None

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
        """Hash without weights and names: that of equal networks, however they were trained."""
        return str(self.facts["structure_hash"])

    @property
    def stage(self) -> str:
        return str(self.facts["stage"])

    @property
    def operators(self) -> dict[str, int]:
        """Nodes of all graphs by operator."""
        return dict(self.facts["operators"])

    @property
    def inputs(self) -> list[dict[str, Any]]:
        return list(self.facts["inputs"])

    @property
    def outputs(self) -> list[dict[str, Any]]:
        return list(self.facts["outputs"])

    @property
    def input_count(self) -> int:
        return len(self.inputs)

    @property
    def output_count(self) -> int:
        return len(self.outputs)

    @property
    def input_shapes(self) -> list[Optional[tuple[Union[int, str], ...]]]:
        """A size that inputs decide has its name; None where not even the rank is known."""
        return [parsed_type(each["type"])[1] for each in self.inputs]

    @property
    def output_shapes(self) -> list[Optional[tuple[Union[int, str], ...]]]:
        return [parsed_type(each["type"])[1] for each in self.outputs]

    @property
    def input_dtypes(self) -> list[str]:
        """By NumPy's names."""
        return [parsed_type(each["type"])[0] for each in self.inputs]

    @property
    def output_dtypes(self) -> list[str]:
        return [parsed_type(each["type"])[0] for each in self.outputs]

    @property
    def params(self) -> list[str]:
        """Names of inputs that are parameters of the model which were not frozen."""
        return list(self.facts["unfrozen_parameters"])

    @property
    def graphs(self) -> dict[str, list[dict[str, Any]]]:
        """Nodes by their graph: `main`, bodies of control flow, parts of a partitioned module."""
        found: dict[str, list[dict[str, Any]]] = {"main": []}
        for node in self:
            found.setdefault(node["graph"], []).append(node)
        return found

    @property
    def main(self) -> list[dict[str, Any]]:
        return self.graphs["main"]

    @property
    def graph_count(self) -> int:
        return int(self.facts["graph_count"])

    @property
    def subgraph_count(self) -> int:
        """All graphs but `main`."""
        return int(self.facts["subgraph_count"])

    @property
    def partition_backends(self) -> list[str]:
        """The backends that parts of the module are for; empty: it is not partitioned."""
        return list(self.facts["partition_backends"])

    @property
    def is_tensorrt(self) -> bool:
        return "tensorrt" in self.partition_backends

    @property
    def is_calibrated(self) -> bool:
        return self._statistics is not None or bool(self.facts["is_calibrated"])

    @property
    def is_quantized(self) -> bool:
        return bool(self.facts["is_quantized"])

    @property
    def is_split_tensors(self) -> bool:
        return bool(self.facts["is_split_tensors"])

    @property
    def text(self) -> str:
        """The graph, a node a line, with the types of all values."""
        lines = [f"input {each['name']}: {each['type']}" for each in self.inputs]
        graph = "main"
        for node in self:
            if node["graph"] != graph:
                graph = node["graph"]
                lines.append(f"graph {graph}")
            made = ", ".join(f"{each['name']}: {each['type']}" for each in node["outputs"])
            taken = ", ".join(each["name"] or "_" for each in node["inputs"])
            attributes = "".join(f", {name}={value}" for name, value in sorted(node["attributes"].items()))
            lines.append(f"{made} = {node['op']}({taken}{attributes})")
        return "\n".join(lines + [f"output {each['name']}: {each['type']}" for each in self.outputs])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.facts["nodes"])

    def __len__(self) -> int:
        return len(self.facts["nodes"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IR) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        """Hash of the structure, the same in every process."""
        return int(self.structure_hash[:15], 16)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<quench.IR `{self.name}`, {self.stage}, {len(self)} nodes>"

    def copy(self) -> IR:
        """A checkpoint: what is done to the one does not change the other."""
        other = IR(self._client, message("quench.step.v1.Module").FromString(self._module.SerializeToString()), self.name)
        other._statistics, other._calibrated, other._batch, other._facts = self._statistics, self._calibrated, self._batch, self._facts
        return other

    def __copy__(self) -> IR:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> IR:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Weights and statistics travel; whoever unpickles it has it at its process's own gateway."""
        gateway = self._client.gateway
        statistics = None
        if self._statistics is not None:
            statistics = (gateway.read_bytes(self._statistics), module_bytes(gateway, self._calibrated), self._batch)
        return _unpickled, (self.name, module_bytes(gateway, self._module), statistics)

    # ---- what is done to it ----

    def _run(self, field: str, fill: Callable[[Any], Any]) -> dict[str, Any]:
        """Outputs by name, of one step on this module."""
        steps = Steps(f"{field} {self.name}")
        request = steps.add(field)
        request.module.CopyFrom(self._module)
        fill(request)
        return self._client._outputs(steps.spec, field)

    def _replace(self, module: Any) -> None:
        """Statistics are of the module that it was."""
        self._module.CopyFrom(module)
        self._facts = self._statistics = self._calibrated = None
        self._batch = 0

    def _become(self, field: str, fill: Callable[[Any], Any]) -> None:
        self._replace(self._run(field, fill)["module"].module)

    def _may_lose_statistics(self, force: bool) -> None:
        if self._statistics is not None and not force:
            raise InputError("the module is calibrated, and its statistics would not be those of what it becomes; "
                             "force=True gives them up, or quantize() first")

    def _at_batch(self, module: Any, size: int) -> Any:
        steps = Steps(f"transform {self.name}")
        request = steps.add("transform")
        request.module.CopyFrom(module)
        request.options.batch = size
        request.passes.append("set_batch_size")
        return self._client._outputs(steps.spec, "transform")["module"].module

    def set_batch_size(self, batch_size: int, force: bool = False) -> IR:
        """The first dim of every input. Statistics of a module that was calibrated still hold, since they are of values by name;
        where the passes made its old batch size part of the module, `force` gives them up."""
        whole("batch_size", batch_size, 1)
        module = self._at_batch(self._module, batch_size)
        if self._statistics is None or force:
            self._replace(module)
            return self
        try:
            self._at_batch(self._calibrated, batch_size)
        except ArgumentError as problem:
            raise InputError(f"the module is calibrated, and its statistics hold for its batch size alone ({problem}); "
                             "force=True gives them up, or quantize() first") from problem
        self._module.CopyFrom(module)
        self._facts, self._batch = None, batch_size
        return self

    def edit(self, script: str, files: Optional[Mapping[str, Tensor]] = None, *, force: bool = False) -> IR:
        """Statements of `quench edit`; `files` are the tensors that the script names. A module that was calibrated needs `force`: its
        statistics are given up."""
        self._may_lose_statistics(force)

        def fill(request: Any) -> None:
            request.script = script
            for name, tensor in (files or {}).items():
                request.files.add(file=name, tensor=self._client._upload_tensor(tensor))

        self._become("edit", fill)
        return self

    def partition(self, backend: str = "tensorrt", operators: Iterable[str] = (), *, min_nodes: int = 1, remove_stacks: bool = True,
                  simplify_batch_matmul: bool = True, simplify_scalar_add: bool = True, remove_no_mac_subgraphs: bool = True,
                  force: bool = False) -> IR:
        """Turns the nodes that the backend can run into parts of the module. A calibrated module needs `force`, which discards its statistics."""
        self._may_lose_statistics(force)

        def fill(request: Any) -> None:
            request.backend = backend
            request.operators.extend(operators)
            request.options.min_nodes = min_nodes
            request.options.keep_stacks = not remove_stacks
            request.options.keep_batch_matmul = not simplify_batch_matmul
            request.options.keep_scalar_add = not simplify_scalar_add
            request.options.keep_no_mac_subgraphs = not remove_no_mac_subgraphs

        self._become("partition", fill)
        return self

    def inline_partitions(self, *, force: bool = False) -> IR:
        """Parts are put back. A module that was calibrated needs `force`: its statistics are given up."""
        self._may_lose_statistics(force)

        def fill(request: Any) -> None:
            request.inline_parts = True

        self._become("partition", fill)
        return self

    def tile(self, m: int, n: int, k: int, samples: int = 20, *, force: bool = False) -> IR:
        """Products become products of matrices of at most these sizes. A module that was calibrated needs `force`: its statistics are
        given up."""
        self._may_lose_statistics(force)

        def fill(request: Any) -> None:
            request.limits.m, request.limits.n, request.limits.k, request.samples = m, n, k, samples

        self._become("tile", fill)
        return self

    def split_tensors(self, force: bool = False, *, parts: int = 2, least_gain: Optional[float] = None) -> IR:
        """Convolutions whose channels have very uneven ranges are cut into `parts`; `least_gain`: bits that a channel must gain on
        average, 1 without it. Where none gains so much the module stays as it is, with a warning. A module that was calibrated needs
        `force`: its statistics are given up."""
        self._may_lose_statistics(force)
        whole("parts", parts, 2)
        steps = Steps(f"split {self.name}")
        steps.add("transform").module.CopyFrom(self._module)  # kernels have their final ranges after the passes
        request = steps.add("split_tensors", {"module": ("transform", "module")})
        request.parts = parts
        if least_gain is not None:
            request.least_gain = least_gain
        outputs = self._client._outputs(steps.spec, "split_tensors")
        result = message("quench.quantizer.v1.SplitTensorsResult").FromString(self._client.gateway.read_bytes(outputs["result"].digest))
        if not result.layers:
            bits = 1 if least_gain is None else least_gain
            gained = f"{bits:g} {'bit' if bits == 1 else 'bits'}"
            warnings.warn(f"no convolution was split: cut into {parts}, none gains {gained} a channel on average; "
                          "least_gain= says how many are worth it", stacklevel=2)
            return self
        self._replace(outputs["module"].module)
        return self

    def calibrate(self, data: Union[Path, Tensor, int, Iterable[Any]], *, images: str = "", reset: bool = True) -> IR:
        """Runs samples through the model and keeps the ranges of its values. `data`: a folder or file of samples, an array whose
        rows are samples, how many random ones, or samples one by one: an array, a list of arrays or a dict by the inputs' names.
        `reset=False` adds to earlier calls. Nothing else changes: what the module computes is what it was."""
        adds = self._statistics is not None and not reset
        if adds and self._batch:
            raise InputError("the batch size changed since the module was calibrated; reset=True begins anew")
        steps = Steps(f"calibrate {self.name}")
        passes = steps.add("transform")
        passes.module.CopyFrom(self._module)
        build = steps.add("compile", {"module": ("transform", "module")})
        build.target.name = portable_target()
        build.options.opt_level, build.options.taps = 2, True
        request = steps.add("calibrate", {"module": ("transform", "module"), "tap_library": ("compile", "library")})
        self._client._fill_samples(request.samples, data, images, [each["name"] for each in self.inputs])
        if adds:
            request.statistics.CopyFrom(self._statistics)
        done = self._client.gateway.run(steps.spec)
        self._statistics = next(each.digest for each in done["calibrate"].outputs if each.name == "statistics")
        self._calibrated = next(each.module for each in done["transform"].outputs if each.name == "module")
        self._batch = 0
        return self

    def quantize(self, activation_dtype: str = "int8", kernel_dtype: Optional[str] = None, bias_dtype: Optional[str] = None,
                 per_channel: bool = True, calib_method: str = "", quant_type: str = "any", *, symmetric: bool = False,
                 power_of_two: bool = False, bias_correction: bool = False, percentile: Optional[float] = None,
                 include: Iterable[str] = (), exclude: Iterable[str] = (), block_size: Optional[int] = None) -> IR:
        """8-bit integers inside. `quant_type`: ranges are `static`, those of `calibrate`; `dynamic`, each run's own; `any`, those of
        `calibrate` where there are any; or only `weights` become integers. `calib_method`: how ranges are chosen, `average` without one.
        The rest is called as by `quench quantize`."""
        if self._statistics is None and quant_type == "static":
            raise InputError("the module is not calibrated: calibrate(data) first, or quant_type=\"dynamic\"")
        static = self._statistics is not None and quant_type in ("any", "static")
        steps = Steps(f"quantize {self.name}")
        if static:
            request = steps.add("quantize")
            request.module.CopyFrom(self._calibrated)
            request.statistics.CopyFrom(self._statistics)
        else:
            steps.add("transform").module.CopyFrom(self._module)
            request = steps.add("quantize", {"module": ("transform", "module")})
        fill_quantize_options(request.options, activation_dtype=activation_dtype, kernel_dtype=kernel_dtype, bias_dtype=bias_dtype,
                              per_channel=per_channel, calib_method=calib_method, quant_type=quant_type, symmetric=symmetric,
                              power_of_two=power_of_two, bias_correction=bias_correction, percentile=percentile, include=include,
                              exclude=exclude, block_size=block_size)
        last = "quantize"
        if static and self._batch:
            last = "transform"
            sized = steps.add(last, {"module": ("quantize", "module")})
            sized.options.batch = self._batch
            sized.passes.append("set_batch_size")
        self._replace(self._client._outputs(steps.spec, last)["module"].module)
        return self

    # ---- what comes out ----

    def compile(self, target: Target = "", host: Target = "", output_path: Path = "compile_output", opt_level: int = 3,
                set_float16: bool = False, set_bfloat16: bool = False, set_channel_layout: Optional[str] = None, export_metadata: bool = False,
                force_overwrite: bool = False, uuid: Optional[str] = None, encrypt_password: Optional[str] = None, *,
                recipient: Optional[str] = None, emit: str = "so", winograd: bool = True, float16_sums: bool = True,
                max_size: Optional[float] = None, class_names: Iterable[str] = (), preprocess: Optional[Mapping[str, Any]] = None,
                check: str = "auto", prefix: Optional[str] = None) -> pathlib.Path:
        """Writes model.so and model.h into the folder; the path of the library.

        target: a name of list_target_tags, a target string, or a dict of its keys; "host" is this machine's CPU, and without one the
        library runs on any machine of this one's kind.
        encrypt_password: the library is encrypted to a key of its own, which is written as modelKey.bin and opens with this password;
        recipient: to whoever has the identity of this age recipient.
        uuid: 32 hex digits, or "random"; default: derived from model and options.
        check: "auto", "full" or "no": how much of the library is compared with the interpreter before it is written. metadata.json
        lists what was compared; a library that computes something else is an error.
        prefix: prefix of names in model.h, in capitals; default: the module's name.
        Other options are named as in `quench compile`."""
        one_of("emit", emit, EMITS)
        if uuid is not None and uuid != "random" and not re.fullmatch("[0-9a-fA-F]{32}", str(uuid).replace("-", "")):
            raise InputError(f"uuid is `{uuid}`, must be 32 hex digits like 123e4567-e89b-12d3-a456-426614174000, or `random`")
        files = Files(pathlib.Path(output_path), LIBRARIES[emit], password=encrypt_password, recipient=recipient,
                      export_metadata=export_metadata, force_overwrite=force_overwrite)
        steps = Steps(f"compile {self.name}")
        passes = steps.add("transform")
        passes.module.CopyFrom(self._module)
        passes.options.float16 = set_float16
        passes.options.bfloat16 = set_bfloat16
        request = steps.add("compile", {"module": ("transform", "module")})
        fill_target(request.target, target, host)
        fill_compile_options(request.options, opt_level=opt_level, set_channel_layout=set_channel_layout, winograd=winograd,
                             float16_sums=float16_sums, max_size=max_size, class_names=class_names, preprocess=preprocess, check=check,
                             prefix=prefix)
        if prefix is None:
            # Behind " (" is how a module of PyTorch's was read; a module as a text has two endings.
            name = self.name.partition(" (")[0].removesuffix(".ir")
            request.options.header_prefix = name if len(name.encode()) <= MOST_PREFIX else ""
        if check != "no":
            request.reference.CopyFrom(self._module)
        request.options.passes.float16 = set_float16
        request.options.passes.bfloat16 = set_bfloat16
        request.options.emit = messages().enum("quench.codegen.v1.Emit", f"EMIT_{EMITS[emit]}")
        last = "compile"
        if uuid is not None:
            uuid = str(uuids.uuid4()) if uuid == "random" else str(uuid)
            last = "package_library"
            steps.add(last, {"library": ("compile", "library"), "header": ("compile", "header")}).uuid = uuid
        done = self._client.gateway.run(steps.spec)
        made = {output.name: output.digest for output in done[last].outputs}
        report = next(output.digest for output in done["compile"].outputs if output.name == "report")
        return files.write(self._client.gateway, made["library"], made["header"], report, self.name, uuid or "")

    def export(self, path: Path) -> pathlib.Path:
        """As an ONNX model. One above 1 GiB has files beside it."""
        outputs = self._run("export_model", lambda request: None)
        path = pathlib.Path(path)
        for name, output in outputs.items():
            if name.startswith("external_data/"):
                self._client.gateway.download(output.digest, path.with_name(name.removeprefix("external_data/")))
        self._client.gateway.download(outputs["file"].digest, path)
        return path

    def save(self, path: Path) -> pathlib.Path:
        """The module itself, with its weights: a binary file `NAME.qir`, or a text `NAME.ir.txt`. `load` reads it, and so does
        every command of `quench`. Statistics of `calibrate` stay behind."""
        path = pathlib.Path(path)
        if path.suffix == ".qir":
            write_module(self._client.gateway, self._module, path)
        elif path.name.endswith(".ir.txt"):

            def fill(request: Any) -> None:
                request.format = "text"

            write_text(self._client.gateway, self._run("export_model", fill)["file"].digest, self._module.blobs, path)
        else:
            raise InputError(f"`{path}`: modules are saved as `NAME.qir` or `NAME.ir.txt`; export() writes ONNX")
        return path

    def infer(self, inputs: Optional[Mapping[str, Tensor]] = None, *, seed: Optional[int] = None, operators: Iterable[str] = (),
              names: Iterable[str] = (), all: bool = False) -> dict[str, Tensor]:
        """Outputs by name, and values of nodes by patterns of operators or names; by the interpreter, slowly. Nested lists become arrays of the input's
        type."""
        types = {each["name"]: kind for each in self.inputs if (kind := numpy_type(each["type"])) is not None}

        def fill(request: Any) -> None:
            for name, tensor in (inputs or {}).items():
                array = as_array(name, types[name], tensor) if name in types else tensor
                request.inputs.add(name=name, tensor=self._client._upload_tensor(array))
            if seed is not None:
                request.seed = seed
            request.operators.extend(operators)
            request.names.extend(names)
            request.all, request.store_tensors = all, True

        outputs = self._run("infer", fill)
        result = message("quench.analyser.v1.InferResult").FromString(self._client.gateway.read_bytes(outputs["result"].digest))
        return {value.name: np.load(io.BytesIO(self._client.gateway.read_bytes(value.tensor))) for value in result.values}

    def get_inference_function(self, target: Optional[str] = None) -> Callable[..., dict[str, Tensor]]:
        """A function of the inputs, by name or in order, that gives a dict by the outputs' names. Without a target the interpreter
        computes it at the gateway; `target=""` compiles for this machine's kind, and runs here."""
        names = [each["name"] for each in self.inputs]

        def by_name(arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Tensor]:
            if len(arrays) > len(names):
                raise InputError(f"{len(arrays)} inputs, the model has {len(names)}")
            return {**dict(zip(names, arrays)), **named}

        if target is None:
            return lambda *arrays, **named: self.infer(by_name(arrays, named))
        folder = tempfile.TemporaryDirectory(prefix="quench-")
        engine = Engine(self.compile(target, output_path=folder.name))
        weakref.finalize(engine, folder.cleanup)

        def run(*arrays: Any, **named: Any) -> dict[str, Tensor]:
            return dict(engine.infer(by_name(arrays, named), named=True))

        return run

    def diff(self, other: IR) -> dict[str, Any]:
        """The differences between this and `other`, as `quench diff --format json` prints them."""
        steps = Steps(f"diff {self.name}")
        request = steps.add("diff")
        request.reference.CopyFrom(self._module)
        request.module.CopyFrom(other._module)
        outputs = self._client._outputs(steps.spec, "diff")
        return dict(json.loads(self._client.gateway.read_bytes(outputs["report_json"].digest)))

    def analyse(self) -> dict[str, Any]:
        """Layers, parameters, MACs and memory, as `quench analyse --format json` prints them; counted on this module."""
        steps = Steps(f"analyse {self.name}")
        request = steps.add("analyse")
        request.imported.CopyFrom(self._module)
        request.canonical.CopyFrom(self._module)
        outputs = self._client._outputs(steps.spec, "analyse")
        return dict(json.loads(self._client.gateway.read_bytes(outputs["report_json"].digest)))


def read_module(client: Client, path: pathlib.Path) -> IR:
    """Reads a module that `IR.save`, or a command, wrote."""
    steps = Steps(f"read {path.name}")
    request = steps.add("edit")
    request.module.CopyFrom(upload_module(client, path))
    request.script = "# as it is"
    name = path.name.removesuffix(".txt").removesuffix(".ir").removesuffix(".qir")
    return IR(client, client._outputs(steps.spec, "edit")["module"].module, name)


def _unpickled(name: str, module: bytes, statistics: Optional[tuple[bytes, bytes, int]]) -> IR:
    from quench.loading import load

    ir = load(module)
    ir.name = name
    if statistics is not None:
        ir._statistics = ir._client._upload_bytes(statistics[0], "statistics")
        ir._calibrated, ir._batch = load(statistics[1], ir._client)._module, statistics[2]
    return ir
