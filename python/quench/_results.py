"""Results of a module: libraries, files, values, reports."""

from __future__ import annotations

import copy
import functools
import io
import json
import pathlib
import re
import tempfile
import uuid as uuids
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from quench._arrays import Array, as_array
from quench._compile_options import ROWS, CompileOptions
from quench._facts import Facts
from quench._gateway import message
from quench._library import Files
from quench._modules import write_module, write_text
from quench._steps import Path, Steps, Target, fill_compile_options, fill_sizes, fill_target, numpy_type, one_of
from quench._wording import near_names
from quench.engine import Engine
from quench.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Unpack

LIBRARIES = {"so": "model.so", "obj": "model.o", "a": "model.a"}
MOST_PREFIX = 255  # bytes


def output(done: Mapping[str, Any], step: str, name: str) -> Any:
    return next(each for each in done[step].outputs if each.name == name)


class Results(Facts):
    """Methods that leave the module as it is."""

    @functools.partial(near_names, more=ROWS)
    def compile(self, target: Optional[Target] = None, host: Optional[Target] = None, output_path: Path = "compile_output",
                opt_level: int = 3, set_float16: bool = False, set_channel_layout: Optional[str] = None, export_ir: bool = False,
                export_metadata: bool = False, force_overwrite: bool = False, uuid: Optional[str] = None,
                encrypt_password: Optional[str] = None, *, set_bfloat16: bool = False, recipient: Optional[str] = None, emit: str = "so",
                **options: Unpack[CompileOptions]) -> pathlib.Path:
        """Writes model.so and model.h into the folder; the path of the library.

        target: a name of list_target_tags, a target string, or a dict of its keys; "host" is this machine's CPU, and without one the
        library runs on any machine of this one's kind.
        encrypt_password: the library is encrypted to a key of its own, which is written as modelKey.bin and opens with this password;
        recipient: to whoever has the identity of this age recipient.
        export_ir: also model.ir.txt, the module as the passes leave it, which `load` reads; beside an encrypted library
        it names weights above 4 KiB by their digests, and cannot be read.
        uuid: 32 hex digits, or "random"; one that derives from model and options without it.
        check: "auto", "full" or "no": how much of the library is run beside the interpreter before it is written. The outcome
        is in metadata.json; a library that computes something else is an error.
        prefix: what names in model.h begin with, in capitals; the module's name without it.
        options: winograd, float16_sums, max_size and others, as docs/compiler.md lists them; they are options of `quench compile`."""
        one_of("emit", emit, LIBRARIES)
        if uuid is not None and uuid != "random" and not re.fullmatch("[0-9a-fA-F]{32}", str(uuid).replace("-", "")):
            raise InputError(f"uuid is `{uuid}`, must be 32 hex digits like 123e4567-e89b-12d3-a456-426614174000, or `random`")
        files = Files(pathlib.Path(output_path), LIBRARIES[emit], password=encrypt_password, recipient=recipient,
                      export_ir=export_ir, export_metadata=export_metadata, force_overwrite=force_overwrite)
        steps = Steps(f"compile {self.name}")
        passes = steps.add("transform")
        passes.module.CopyFrom(self._module)
        passes.options.float16 = set_float16
        passes.options.bfloat16 = set_bfloat16
        request = steps.add("compile", {"module": ("transform", "module")})
        fill_target(request.target, target, host)
        fill_compile_options(request.options, {"opt_level": opt_level, "set_channel_layout": set_channel_layout, "emit": emit, **options})
        if options.get("prefix") is None:
            # Behind " (" is how a module of PyTorch's was read; a module as a text has two endings.
            name = self.name.partition(" (")[0].removesuffix(".ir")
            request.options.header_prefix = name if len(name.encode()) <= MOST_PREFIX else ""
        if options.get("check") != "no":
            request.reference.CopyFrom(self._module)
        request.options.passes.float16 = set_float16
        request.options.passes.bfloat16 = set_bfloat16
        last = "compile"
        if uuid is not None:
            uuid = str(uuids.uuid4()) if uuid == "random" else str(uuid)
            last = "package_library"
            steps.add(last, {"library": ("compile", "library"), "header": ("compile", "header")}).uuid = uuid
        if export_ir:
            steps.add("export_model", {"module": ("transform", "module")}).format = "text"
        done = self._client.gateway.run(steps.spec)
        text = None
        if export_ir:
            text = output(done, "export_model", "file").digest, output(done, "transform", "module").module.blobs
        return files.write(self._client.gateway, output(done, last, "library").digest, output(done, last, "header").digest,
                           output(done, "compile", "report").digest, self.name, uuid or "", text)

    def export(self, path: Path) -> pathlib.Path:
        """Writes an ONNX model; one above 1 GiB has files beside it. Parts of a partitioned module are put back into it, and each is
        also a model of its own: `m.parts/tensorrt_0.onnx` beside `m.onnx`."""
        outputs = self._run("export_model", lambda request: None)
        path = pathlib.Path(path)
        for name, output in outputs.items():
            if name.startswith("external_data/"):
                folder, _, file = name.removeprefix("external_data/").rpartition("/")
                target = path.with_suffix(".parts") / file if folder else path.with_name(file)
                target.parent.mkdir(exist_ok=True)
                self._client.gateway.download(output.digest, target)
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

    @near_names
    def infer(self, inputs: Optional[Mapping[str, Any]] = None, *, seed: Optional[int] = None, sizes: Optional[Mapping[str, int]] = None,
              operators: Iterable[str] = (), names: Iterable[str] = (), all: bool = False) -> dict[str, Array]:
        """Outputs by name, and values of nodes by patterns of operators or names; by the interpreter, slowly. Nested lists
        become arrays of the input's type. Inputs that are not given are random with a `seed`, at these sizes of what is open."""
        types = {each["name"]: kind for each in self.inputs if (kind := numpy_type(each["type"])) is not None}

        def fill(request: Any) -> None:
            for name, tensor in (inputs or {}).items():
                array = as_array(name, types[name], tensor) if name in types else tensor
                request.inputs.add(name=name, tensor=self._client._upload_tensor(array))
            if seed is not None:
                request.seed = seed
            fill_sizes(request.sizes, sizes)
            request.operators.extend(operators)
            request.names.extend(names)
            request.all, request.store_tensors = all, True

        outputs = self._run("infer", fill)
        result = message("quench.analyser.v1.InferResult").FromString(self._client.gateway.read_bytes(outputs["result"].digest))
        return {value.name: np.load(io.BytesIO(self._client.gateway.read_bytes(value.tensor))) for value in result.values}

    @near_names
    def get_inference_function(self, target: Optional[Target] = None, *, named: bool = False,
                               device: Optional[str] = None) -> Callable[..., Any]:
        """A function of the inputs, in order or by name, that gives an array, or a list of arrays where there are several outputs;
        with `named`, a dict by their names. It is of the module as it is now. Without a target the interpreter computes it at the
        gateway; `target=""` compiles for this machine's kind, and runs here; `device`: where, as Engine takes it."""
        if target is None and device is not None:
            raise InputError("device is of compiled modules: without a target the interpreter runs at the gateway")
        names = [each.name for each in self.inputs]

        def by_name(arrays: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
            if len(arrays) > len(names):
                raise InputError(f"{len(arrays)} inputs, the model has {len(names)}")
            return {**dict(zip(names, arrays)), **given}

        if target is None:
            module, outputs = copy.copy(self), [each.name for each in self.outputs]

            def compute(inputs: dict[str, Any]) -> dict[str, Array]:
                found = module.infer(inputs)
                return {name: found[name] for name in outputs}
        else:
            folder = tempfile.TemporaryDirectory(prefix="quench-")
            engine = Engine(self.compile(target, output_path=folder.name), device=device)
            weakref.finalize(engine, folder.cleanup)

            def compute(inputs: dict[str, Any]) -> dict[str, Array]:
                return engine.infer(inputs, named=True)

        def run(*arrays: Any, **given: Any) -> Any:
            found = compute(by_name(arrays, given))
            return found if named else list(found.values()) if len(found) != 1 else next(iter(found.values()))

        return run

    def diff(self, other: Facts) -> dict[str, Any]:
        """Differences between this module and `other`, both ways, as `quench diff --format json` prints them."""
        steps = Steps(f"diff {self.name}")
        request = steps.add("diff")
        request.reference.CopyFrom(self._module)
        request.module.CopyFrom(other._module)
        outputs = self._client._outputs(steps.spec, "diff")
        return dict(json.loads(self._client.gateway.read_bytes(outputs["report_json"].digest)))

    @near_names
    def analyse(self, *, sizes: Optional[Mapping[str, int]] = None) -> dict[str, Any]:
        """Layers, parameters, MACs and memory, as `quench analyse --format json` prints them; counted on this module, at these sizes
        of what inputs decide."""
        steps = Steps(f"analyse {self.name}")
        request = steps.add("analyse")
        request.imported.CopyFrom(self._module)
        request.canonical.CopyFrom(self._module)
        fill_sizes(request.sizes, sizes)
        outputs = self._client._outputs(steps.spec, "analyse")
        return dict(json.loads(self._client.gateway.read_bytes(outputs["report_json"].digest)))
