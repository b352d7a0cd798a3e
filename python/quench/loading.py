"""Models of other frameworks, read by a client of this process's own unless another is given."""

from __future__ import annotations

import atexit
import inspect
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

from quench._steps import Path
from quench.client import Client
from quench.errors import InputError, UnavailableError
from quench.ir import IR

_own: Optional[Client] = None


def load(model: Union[Path, bytes, Any], client: Optional[Client] = None, **options: Any) -> IR:
    """`Client.load`; without a client one of this process's own, which ends with it."""
    global _own
    if client is None:
        if _own is None:
            _own = Client()
            atexit.register(_own.close)
        client = _own
    return client.load(model, **options)


def from_onnx(model: Union[Path, bytes, Any], **options: Any) -> IR:
    """A file, its bytes, or a ModelProto."""
    return load(model, format="onnx", **options)


def from_tflite(model: Union[Path, bytes, Any], **options: Any) -> IR:
    """A file, its bytes, or a `tflite.Model`, which the flatbuffers' package reads."""
    table = getattr(model, "_tab", None)
    return load(bytes(table.Bytes) if table is not None else model, format="tflite", **options)


def from_keras(model: Union[Path, Any], **options: Any) -> IR:
    """A file of any version of Keras, or a `keras.Model`, which is saved."""
    if isinstance(model, (str, os.PathLike)):
        return load(model, format="keras", **options)
    with tempfile.TemporaryDirectory(prefix="quench-") as folder:
        path = pathlib.Path(folder) / f"{getattr(model, 'name', 'model')}.keras"
        model.save(str(path))
        return load(path, format="keras", **options)


def from_tensorflow(model: Union[Path, bytes, Any], **options: Any) -> IR:
    """A frozen graph, the folder of a saved model, or a GraphDef."""
    if isinstance(model, bytes) or hasattr(model, "SerializeToString"):
        return load(model, format="tensorflow", **options)
    path = pathlib.Path(model)
    if path.is_dir():
        options.setdefault("external_data", sorted(file for file in path.rglob("*") if file.is_file() and file.name != "saved_model.pb"))
        path = path / "saved_model.pb"
    return load(path, format="tensorflow", **options)


Inputs = Union[Mapping[str, Any], Sequence[Any]]


def _parameters(module: Any, count: int) -> list[str]:
    """What `forward` calls its first arguments."""
    try:
        names = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        names = []
    return [names[i] if i < len(names) else f"input{i}" for i in range(count)]


def _named_inputs(torch: Any, module: Any, inputs: Inputs) -> list[tuple[str, Any]]:
    if isinstance(inputs, Mapping):
        return list(inputs.items())
    if isinstance(inputs, torch.Tensor):
        inputs = [inputs]
    if all(isinstance(item, torch.Tensor) for item in inputs):
        return list(zip(_parameters(module, len(inputs)), inputs))
    if not all(isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str) for item in inputs):
        raise InputError(f"input_infos: {inputs!r:.200}; give a dict or pairs of name and tensor, shape, or (shape, dtype), or a list of tensors")
    return [(name, what) for name, what in inputs]


def _examples(torch: Any, module: Any, inputs: Inputs) -> dict[str, Any]:
    """Example tensors by name; of (name, shape) and (name, (shape, dtype)), ones."""
    found = {}
    for name, what in _named_inputs(torch, module, inputs):
        if not isinstance(what, torch.Tensor):
            shape, dtype = what if len(what) == 2 and isinstance(what[0], (tuple, list)) else (what, "float32")
            kind = {"float": "float32", "int": "int32", "double": "float64", "long": "int64"}.get(str(dtype), str(dtype))
            what = torch.ones(tuple(shape), dtype=getattr(torch, kind.replace("torch.", "")))
        found[name] = what
    return found


def from_torch(module: Any, input_infos: Inputs, *, client: Optional[Client] = None, opset: int = 17, **options: Any) -> IR:
    """A torch.nn.Module, or one that was traced. `input_infos`: by the names that the inputs get, example tensors, or shapes, or
    (shape, dtype) pairs. Tensors alone get the names of `forward`'s parameters.

    It is saved by torch.export, else traced, else exported as ONNX, whatever can be read first; `ir.name` ends in which that was.
    A program of torch.export with operators that Quench does not know is saved once more, behind `run_decompositions()`."""
    import importlib

    torch: Any = importlib.import_module("torch")
    examples = _examples(torch, module, input_infos)
    tensors = tuple(examples.values())
    module = module.eval()
    traced_before = isinstance(module, torch.jit.ScriptModule)

    def exported(path: pathlib.Path) -> None:
        torch.export.save(torch.export.export(module, tensors), str(path))

    def decomposed(path: pathlib.Path) -> None:
        torch.export.save(torch.export.export(module, tensors).run_decompositions(), str(path))

    def traced(path: pathlib.Path) -> None:
        (module if traced_before else torch.jit.trace(module, tensors)).save(str(path))

    def onnx(path: pathlib.Path) -> None:
        torch.onnx.export(module, tensors, str(path), input_names=list(examples), opset_version=opset)

    ways: list[tuple[str, str, Callable[[pathlib.Path], None]]] = [
        ("torch.export", ".pt2", exported), ("torch.export, decomposed", ".pt2", decomposed), ("torch.jit.trace", ".pt", traced),
        ("torch.onnx.export", ".onnx", onnx)]
    problems: list[str] = []
    decomposing_helps = False
    with tempfile.TemporaryDirectory(prefix="quench-") as folder:
        for how, suffix, save in ways[2 if traced_before else 0:]:
            if save is decomposed and not decomposing_helps:
                continue
            path = pathlib.Path(folder) / f"{type(module).__name__}{suffix}"
            try:
                save(path)
                asked = {} if suffix == ".onnx" else options
                if suffix == ".pt":  # says nothing of shapes and types
                    asked = {"shapes": _by_argument(module, examples, lambda tensor: list(tensor.shape)),
                             "dtypes": _by_argument(module, examples, lambda tensor: str(tensor.dtype).replace("torch.", "")), **options}
                ir = _named(load(path, client, **asked), list(examples))
            except UnavailableError:
                raise
            except Exception as problem:  # of PyTorch, of any kind, or the gateway's
                decomposing_helps = save is exported and "run_decompositions" in str(problem)
                lines = str(problem).strip().splitlines()
                problems.append(f"{how}: {lines[0] if lines else type(problem).__name__}")
                continue
            ir.name = f"{ir.name} ({how})"
            return ir
    raise InputError("the module could not be read; " + "; ".join(problems))


def _arguments(module: Any) -> list[str]:
    """Of `forward`, whose names files of PyTorch give their inputs."""
    schema = getattr(getattr(module, "forward", None), "schema", None)
    if schema is not None:
        return [argument.name for argument in schema.arguments][1:]
    import inspect

    return list(inspect.signature(module.forward).parameters)


def _by_argument(module: Any, examples: Mapping[str, Any], of: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: of(tensor) for name, tensor in zip(_arguments(module), examples.values())}


def _named(ir: IR, names: list[str]) -> IR:
    """The same with these names of its inputs, in their order."""
    found = [each["name"] for each in ir.inputs]
    if len(found) != len(names):
        raise InputError(f"the model has {len(found)} inputs, {len(names)} are named")
    changed = [(old, new) for old, new in zip(found, names) if old != new]
    if changed:  # by way of names that nothing has: two may change places
        steps = [(old, f"quench.renamed.{i}") for i, (old, _) in enumerate(changed)]
        steps += [(f"quench.renamed.{i}", new) for i, (_, new) in enumerate(changed)]
        ir.edit("\n".join(f"rename %{_quoted(old)} to %{_quoted(new)}" for old, new in steps))
    return ir


def _quoted(name: str) -> str:
    plain = name.replace("_", "a").replace(".", "a")
    return name if plain.isalnum() and not name[0].isdigit() else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
