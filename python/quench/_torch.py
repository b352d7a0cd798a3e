"""Inputs of PyTorch's modules, and traces that hold for all values."""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

from quench._steps import type_name
from quench.errors import InputError

Inputs = Union[Mapping[str, Any], Sequence[Any]]
READS_VALUES = "`forward` decides by values of tensors"


def _parameters(module: Any, count: int) -> list[str]:
    """Names of `forward`'s first arguments."""
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


def _type(torch: Any, what: str, dtype: Any) -> Any:
    """PyTorch's, by its own names, C's or NumPy's."""
    name = str(dtype).replace("torch.", "")
    name = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64"}.get(name, name)
    if not isinstance(getattr(torch, name, None), torch.dtype):
        name = type_name(what, dtype)
    return getattr(torch, name)


def examples_of(torch: Any, module: Any, inputs: Inputs, dtypes: Mapping[str, Any], default_type: Any) -> dict[str, Any]:
    """Example tensors by name; of (name, shape) and (name, (shape, dtype)), ones. Without a dtype the input's of `dtypes`, else the
    default type, else float32."""
    found = {}
    for name, what in _named_inputs(torch, module, inputs):
        if not isinstance(what, torch.Tensor):
            typed = len(what) == 2 and isinstance(what[0], (tuple, list))
            shape, dtype = what if typed else (what, dtypes.get(name, default_type or "float32"))
            what = torch.ones(tuple(shape), dtype=_type(torch, f"input `{name}`", dtype))
        found[name] = what
    return found


def arguments(module: Any) -> list[str]:
    """Names of `forward`'s arguments, which PyTorch's files give to inputs."""
    schema = getattr(getattr(module, "forward", None), "schema", None)
    if schema is not None:
        return [argument.name for argument in schema.arguments][1:]
    return list(inspect.signature(module.forward).parameters)


# Methods that make Python's numbers of a tensor, and operators that tell a trace only its sizes.
_READERS = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy", "__array__")
_OF_SIZES = ("aten::size", "aten::dim", "aten::numel", "prim::shape")


def _of_inputs(torch: Any, tensor: Any) -> bool:
    """Whether the trace so far computes it from what inputs hold, not from their sizes, weights and constants alone."""
    values, seen = [torch._C._get_value_trace(tensor)], set()
    while values:
        value = values.pop()
        if value.unique() in seen or value.node().kind() in _OF_SIZES:
            continue
        if value.node().kind() == "prim::Param":
            return True
        seen.add(value.unique())
        values += list(value.node().inputs())
    return False


@contextlib.contextmanager
def _watched(torch: Any, places: list[str]) -> Iterator[None]:
    """Adds the lines of source that read values of inputs while torch.jit.trace runs."""

    def watching(read: Callable[..., Any]) -> Callable[..., Any]:
        def watched(tensor: Any, *rest: Any, **named: Any) -> Any:
            if torch.jit.is_tracing() and _of_inputs(torch, tensor):
                caller = sys._getframe(1)
                places.append(f"{caller.f_code.co_filename}:{caller.f_lineno}")
            return read(tensor, *rest, **named)

        return watched

    own = {name: vars(torch.Tensor)[name] for name in _READERS if name in vars(torch.Tensor)}
    for name in _READERS:
        setattr(torch.Tensor, name, watching(getattr(torch.Tensor, name)))
    try:
        yield
    finally:
        for name in _READERS:
            if name in own:
                setattr(torch.Tensor, name, own[name])
            else:
                delattr(torch.Tensor, name)


@contextlib.contextmanager
def whole_trace(torch: Any, by_jit: bool = False) -> Iterator[None]:
    """InputError where what is traced within made Python's numbers of what its inputs hold: those of the example became part of the
    trace. Numbers of sizes, too, where the tracer is not torch.jit.trace, which can be asked."""
    places: list[str] = []
    watches = by_jit and hasattr(getattr(torch, "_C", None), "_get_value_trace")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _watched(torch, places) if watches else contextlib.nullcontext():
            yield
    kind = getattr(torch.jit, "TracerWarning", ())
    for each in caught:
        if not issubclass(each.category, kind):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        elif not watches and str(each.message).startswith("Converting a tensor to"):
            places.append(f"{each.filename}:{each.lineno}")
    if places:
        raise InputError(f"{READS_VALUES} ({', '.join(dict.fromkeys(places))}), and a trace would know the example's alone; "
                         "torch.jit.trace(module, example) in place of the module says that this is meant")
