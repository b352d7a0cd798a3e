"""Models of other frameworks, read by a client of this process's own unless another is given."""

from __future__ import annotations

import atexit
import importlib
import inspect
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

from quench._gateway import message
from quench._imports import fill_import_options
from quench._steps import Path, type_name, whole
from quench._torch import READS_VALUES, Inputs, arguments, examples_of, whole_trace
from quench._wording import check_names
from quench.client import Client
from quench.errors import ArgumentError, AuthenticationError, CancelledError, InputError, QuenchError, UnavailableError
from quench.ir import IR

_own: Optional[Client] = None


# Options of `Client.load` beside the model, and options that from_torch sets itself.
_OPTIONS = frozenset(each.name for each in inspect.signature(Client.load).parameters.values() if each.kind is each.KEYWORD_ONLY)
_TORCH_KNOWS = {"format", "opset", "architecture", "external_data", "inputs"}


def _client() -> Client:
    """This process's own, which ends with it."""
    global _own
    if _own is None:
        _own = Client()
        atexit.register(_own.close)
    return _own


def load(model: Union[Path, bytes, Any], client: Optional[Client] = None, **options: Any) -> IR:
    """`Client.load`; without a client one of this process's own, which ends with it."""
    check_names("load", options, _OPTIONS)
    return (client or _client()).load(model, **options)


def gemm(m: int, k: int, n: int, client: Optional[Client] = None) -> IR:
    """A module of one product: A [m, k] times B [k, n] plus bias [m, n], of float32, to `tile` or to measure."""
    m, k, n = whole("m", m, 1), whole("k", k, 1), whole("n", n, 1)
    text = (f'quench.ir 1\nmodule "gemm_{m}x{k}x{n}" canonical {{\ninput %A: f32[{m}, {k}]\ninput %B: f32[{k}, {n}]\n'
            f"input %bias: f32[{m}, {n}]\n%C = Gemm(%A, %B, %bias)\noutput %C\n}}\n")
    ir = load(text.encode(), client)
    ir.name = f"gemm_{m}x{k}x{n}"
    return ir


def _check(function: Callable[..., Any], options: Mapping[str, Any], unused: Iterable[str] = ("format",)) -> None:
    """TypeError for an option that neither the function nor `Client.load` has; `unused` has none of the latter's."""
    own = {each.name for each in inspect.signature(function).parameters.values() if each.default is not each.empty}
    check_names(function.__name__, options, _OPTIONS - set(unused) | own | {"client"})


def _also(options: dict[str, Any], name: str, other: str, value: Any) -> None:
    """The option of this name, by the name that another tool gave it."""
    if value is None:
        return
    if name in options:
        raise TypeError(f"`{other}` and `{name}` are one option: give one of them")
    options[name] = value


def from_onnx(model: Union[Path, bytes, Any], shape: Optional[Mapping[str, Any]] = None, dtype: Any = None, opset: Optional[int] = None,
              freeze_params: bool = True, convert_config: Optional[Mapping[str, bool]] = None,
              export_node_renamed_model_path: Optional[Path] = None, **options: Any) -> IR:
    """A file, its bytes, or a ModelProto. `options` are those of `Client.load`.

    shape, dtype: the same as `shapes` and `dtypes`; one type alone is that of all inputs of its kind, whole numbers or not.
    freeze_params=False: the same as no_freeze="all".
    export_node_renamed_model_path: where the module is written as ONNX, in which all nodes have names."""
    _check(from_onnx, options)
    options.update(format="onnx", opset=opset or 0, convert_config=convert_config)
    _also(options, "shapes", "shape", shape)
    _also(options, "no_freeze", "freeze_params", None if freeze_params else "all")
    _also(options, "dtypes", "dtype", dtype)
    if dtype is None or isinstance(dtype, Mapping):
        ir = load(model, **options)
    else:
        del options["dtypes"]
        ir = load(model, **options)
        dtypes = _of_its_kind(ir, dtype)
        ir = load(model, dtypes=dtypes, **options) if dtypes else ir
    if export_node_renamed_model_path is not None:
        ir.export(export_node_renamed_model_path)
    return ir


def _of_its_kind(ir: IR, dtype: Any) -> dict[str, Any]:
    """The type for all inputs of its kind that are of another."""

    def kind(name: str) -> str:
        return name.rstrip("0123456789").removeprefix("b" if name.startswith("bf") else "u")

    wanted = type_name("dtype", dtype)
    found = {each.name: each.dtype for each in ir.inputs if kind(each.dtype) == kind(wanted)}
    if not found:
        raise InputError(f"dtype is {wanted}, and no input is of its kind: the model takes {', '.join(ir.input_dtypes)}")
    return {name: wanted for name, had in found.items() if had != wanted}


def from_tflite(model: Union[Path, bytes, Any], shape_dict: Optional[Mapping[str, Any]] = None,
                dtype_dict: Optional[Mapping[str, Any]] = None, **options: Any) -> IR:
    """A file, its bytes, or a `tflite.Model`, which the flatbuffers' package reads. `options` are those of `Client.load`, whose
    `shapes` and `dtypes` are the same as `shape_dict` and `dtype_dict`."""
    _check(from_tflite, options)
    _also(options, "shapes", "shape_dict", shape_dict)
    _also(options, "dtypes", "dtype_dict", dtype_dict)
    table = getattr(model, "_tab", None)
    return load(bytes(table.Bytes) if table is not None else model, format="tflite", **options)


def from_keras(model: Union[Path, Any], shape: Optional[Mapping[str, Any]] = None, layout: str = "", **options: Any) -> IR:
    """A file of any version of Keras, or a `keras.Model`, which is saved. `options` are those of `Client.load`, whose `shapes` is
    the same as `shape`. layout: where inputs and outputs have their channels."""
    _check(from_keras, options)
    _also(options, "shapes", "shape", shape)
    options.update(format="keras", layout=layout)
    if isinstance(model, (str, os.PathLike)):
        return load(model, **options)
    with tempfile.TemporaryDirectory(prefix="quench-") as folder:
        path = pathlib.Path(folder) / f"{getattr(model, 'name', 'model')}.keras"
        model.save(str(path))
        return load(path, **options)


def from_tensorflow(graph: Union[Path, bytes, Any], layout: str = "", shape: Optional[Mapping[str, Any]] = None,
                    outputs: Iterable[str] = (), convert_config: Optional[Mapping[str, bool]] = None, **options: Any) -> IR:
    """A frozen graph, the folder of a saved model, or a GraphDef. `options` are those of `Client.load`, whose `shapes` is the same
    as `shape`. layout: where inputs and outputs have their channels."""
    _check(from_tensorflow, options)
    _also(options, "shapes", "shape", shape)
    options.update(format="tensorflow", layout=layout, outputs=outputs, convert_config=convert_config)
    if isinstance(graph, bytes) or hasattr(graph, "SerializeToString"):
        return load(graph, **options)
    path = pathlib.Path(graph)
    if path.is_dir():
        options.setdefault("external_data", sorted(file for file in path.rglob("*") if file.is_file() and file.name != "saved_model.pb"))
        path = path / "saved_model.pb"
    return load(path, **options)


Way = tuple[str, str, Callable[[pathlib.Path], list[str]]]


def from_torch(script_module: Any, input_infos: Inputs, custom_convert_map: Optional[Mapping[str, str]] = None, default_type: Any = None,
               use_parser_friendly_name: bool = False, keep_quantized_weight: bool = False, *, client: Optional[Client] = None,
               opset: int = 17, **options: Any) -> IR:
    """A torch.nn.Module, or one that was traced. `input_infos`: by the names that the inputs get, example tensors, or shapes, or
    (shape, dtype) pairs. Tensors alone get the names of `forward`'s parameters. `options` are those of `Client.load`.

    custom_convert_map: by names of operators (`aten::relu`), texts of the functions that they become, as `conversions` has them.
    default_type: of inputs that nothing gives a type. use_parser_friendly_name: names of weights have `_` in place of `.`.

    It is saved by torch.export, else traced, else exported as ONNX, whatever can be read first; `ir.name` ends in which that was.
    A program of torch.export with operators that Quench does not know is saved once more, behind `run_decompositions()`. Where
    `forward` decides by values of tensors, a trace would know those of the example alone: the module is scripted then."""
    _check(from_torch, options, _TORCH_KNOWS - {"opset"})
    whole("opset", opset, 1)
    _also(options, "conversions", "custom_convert_map", _conversions(custom_convert_map))
    if default_type is not None:
        options["default_type"] = default_type
    if keep_quantized_weight:
        options["keep_quantized_weight"] = True
    torch: Any = importlib.import_module("torch")
    examples = examples_of(torch, script_module, input_infos, options.get("dtypes") or {}, default_type)
    _check_options(client, options, list(examples))
    module = script_module.eval()
    problems: list[tuple[str, Exception]] = []
    with tempfile.TemporaryDirectory(prefix="quench-") as folder:
        for how, suffix, save in _ways(torch, module, examples, opset, problems):
            path = pathlib.Path(folder) / f"{type(module).__name__}{suffix}"
            try:
                names = save(path)
            except Exception as problem:  # of PyTorch, of any kind
                problems.append((how, problem))
                continue
            known = _known(names, examples) if suffix == ".pt" else {}
            asked = _asked(options, dict(zip(examples, names)), suffix)
            try:
                read = load(path, client, **_merged(known, asked))
                ir = _named(read, [name for name in examples if name not in (options.get("freeze") or {})])
            except (UnavailableError, AuthenticationError, CancelledError):
                raise
            except QuenchError as problem:
                problems.append((how, problem))
                if asked and isinstance(problem, ArgumentError) and _is_read(path, client, known):
                    break  # it is the options that are wrong
                continue
            ir.name = f"{ir.name} ({how})"
            return _with_friendly_names(ir) if use_parser_friendly_name else ir
    raise InputError("the module could not be read; " + "; ".join(f"{how}: {_said(problem)}" for how, problem in problems))


def _said(problem: Exception) -> str:
    """The whole of what Quench says, but for what was tried already; the first line of PyTorch's pages."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in str(problem).strip().splitlines()]
    if isinstance(problem, QuenchError):
        return "; ".join(line for line in lines if "run_decompositions" not in line)
    return lines[0] if lines else type(problem).__name__


def _check_options(client: Optional[Client], options: Mapping[str, Any], names: list[str]) -> None:
    """Before anything is exported: whatever can be told without the model."""
    for option in ("shapes", "dtypes", "freeze"):
        unknown = [name for name in options.get(option) or {} if name not in names]
        if unknown:
            raise InputError(f"{option}: there is no input `{unknown[0]}`, there are {', '.join(f'`{name}`' for name in names)}")
    if options.get("batch"):
        whole("batch", options["batch"], 1)
    rest = {name: value for name, value in options.items() if name != "batch"}
    if rest:
        fill_import_options(client or _client(), message("quench.importer.v1.ImportOptions")(), **rest)


def _ways(torch: Any, module: Any, examples: Mapping[str, Any], opset: int, problems: list[tuple[str, Exception]]) -> Iterator[Way]:
    """How, the ending of the file, and what writes it and gives the inputs' names there; each asked for once those before it are
    among the problems."""
    tensors = tuple(examples.values())

    def exported(path: pathlib.Path) -> list[str]:
        program = torch.export.export(module, tensors)
        torch.export.save(program, str(path))
        return _program_inputs(program, module, examples)

    def decomposed(path: pathlib.Path) -> list[str]:
        program = torch.export.export(module, tensors).run_decompositions()
        torch.export.save(program, str(path))
        return _program_inputs(program, module, examples)

    def traced(path: pathlib.Path) -> list[str]:
        with whole_trace(torch, by_jit=True):
            made = torch.jit.trace(module, tensors)
        made.save(str(path))
        return arguments(module)[:len(examples)]

    def saved(path: pathlib.Path) -> list[str]:
        module.save(str(path))
        return arguments(module)[:len(examples)]

    def scripted(path: pathlib.Path) -> list[str]:
        made = torch.jit.script(module)
        made.save(str(path))
        return arguments(made)[:len(examples)]

    def onnx(path: pathlib.Path) -> list[str]:
        with whole_trace(torch):
            torch.onnx.export(module, tensors, str(path), input_names=list(examples), opset_version=opset, verbose=False)
        return list(examples)

    if isinstance(module, torch.jit.ScriptModule):
        yield "torch.jit.trace", ".pt", saved
    else:
        yield "torch.export", ".pt2", exported
        if "run_decompositions" in str(problems[-1][1]):
            yield "torch.export, decomposed", ".pt2", decomposed
        yield "torch.jit.trace", ".pt", traced
        if READS_VALUES in str(problems[-1][1]):
            yield "torch.jit.script", ".pt", scripted
    yield "torch.onnx.export", ".onnx", onnx


def _program_inputs(program: Any, module: Any, examples: Mapping[str, Any]) -> list[str]:
    signature = getattr(program, "graph_signature", None)
    return list(signature.user_inputs) if signature is not None else arguments(module)[:len(examples)]


def _known(names: list[str], examples: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about inputs that TorchScript's files do not contain."""
    tensors = dict(zip(names, examples.values()))
    return {"shapes": {name: list(tensor.shape) for name, tensor in tensors.items()},
            "dtypes": {name: str(tensor.dtype).replace("torch.", "") for name, tensor in tensors.items()}}


def _asked(options: Mapping[str, Any], names: Mapping[str, str], suffix: str) -> dict[str, Any]:
    """The options, with the names that the file has for inputs."""
    found = {name: value for name, value in options.items() if value}
    for option in ("shapes", "dtypes", "freeze"):
        if option in found:
            found[option] = {names.get(name, name): value for name, value in found[option].items()}
    if suffix == ".onnx":
        found.pop("default_type", None)  # the examples have it
    return found


def _merged(known: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs' shapes and types one by one: what is asked goes first."""
    return {**asked, **{option: {**values, **asked.get(option, {})} for option, values in known.items()}}


def _is_read(path: pathlib.Path, client: Optional[Client], known: Mapping[str, Any]) -> bool:
    try:
        load(path, client, **known)
    except QuenchError:
        return False
    return True


def _named(ir: IR, names: list[str]) -> IR:
    """The same with these names of its inputs, in their order; parameters that stayed inputs keep theirs."""
    found = [each["name"] for each in ir.inputs if each["name"] not in getattr(ir, "params", ())]
    if len(found) != len(names):
        raise InputError(f"the model has {len(found)} inputs, {len(names)} are named")
    return _renamed(ir, [(old, new) for old, new in zip(found, names) if old != new])


def _renamed(ir: IR, changed: Sequence[tuple[str, str]]) -> IR:
    if changed:  # by way of names that nothing has: two may change places
        steps = [(old, f"quench.renamed.{i}") for i, (old, _) in enumerate(changed)]
        steps += [(f"quench.renamed.{i}", new) for i, (_, new) in enumerate(changed)]
        ir.edit("\n".join(f"rename %{quoted(old)} to %{quoted(new)}" for old, new in steps))
    return ir


def _with_friendly_names(ir: IR) -> IR:
    """Weights without `.` in their names; `_1` is added to one that something has already."""
    taken = {each.name for node in ir.main for each in node.inputs + node.outputs}
    changed = []
    for old in ir.weights:
        if "." not in old or old not in taken:
            continue
        new = old.replace(".", "_")
        while new in taken:
            new += "_1"
        taken.add(new)
        changed.append((old, new))
    return _renamed(ir, changed)


def _conversions(given: Any) -> Optional[list[str]]:
    """Texts of a custom_convert_map."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise TypeError(f"custom_convert_map is a {type(given).__name__}, must be a dict by names of operators such as `aten::relu`")
    for name, text in given.items():
        if not isinstance(text, str):
            raise TypeError(f"custom_convert_map: `{name}` is a {type(text).__name__}, must be the text of a function, which begins "
                            f"with `quench.ir 1` and `module \"{name}\" canonical {{`")
        if f'module "{name}"' not in text:
            raise InputError(f"custom_convert_map: the text of `{name}` has no `module \"{name}\"`")
    return list(given.values())


def quoted(name: str) -> str:
    plain = name.replace("_", "a").replace(".", "a")
    return name if plain.isalnum() and not name[0].isdigit() else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
