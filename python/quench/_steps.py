"""Requests of workflows, and the words that they share."""

from __future__ import annotations

import json
import operator
import os
import platform
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

import numpy as np

from quench._compile_options import ROWS
from quench._gateway import message
from quench._messages import messages
from quench.errors import InputError

Path = Union[str, "os.PathLike[str]"]
# Numbers of quench.ir.v1.ElementType, by NumPy's names.
ELEMENT_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
                 "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16, "uint4": 21, "int4": 22}
# How quantize chooses ranges from statistics; the first is the default.
METHODS = ("average", "minmax", "percentile", "entropy", "mse")
# As the graph's text has them.
_SHORT = {"f": "float", "i": "int", "u": "uint", "bf": "bfloat"}


def port(name: str) -> int:
    return messages().enum("quench.gateway.v1.Port", f"PORT_{name.upper()}")


def portable_target() -> str:
    """Code for any machine of this one's kind."""
    machine = platform.machine().lower()
    return {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"}.get(machine, machine)


def type_name(what: str, dtype: Any) -> str:
    """NumPy's; `what` is whose type it is, for the error."""
    name = str(dtype).removeprefix("torch.")
    if name not in ELEMENT_TYPES:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            pass
    if name not in ELEMENT_TYPES:
        raise InputError(f"{what}: unknown type `{name}`, known are {', '.join(ELEMENT_TYPES)}")
    return name


def element_type(what: str, dtype: Any) -> int:
    return ELEMENT_TYPES[type_name(what, dtype)]


def whole(what: str, value: Any, least: int, most: Optional[int] = None) -> int:
    """A whole number within these bounds."""
    try:
        found = operator.index(value)
    except TypeError:
        found = least - 1
    if isinstance(value, bool) or found < least or (most is not None and found > most):
        raise InputError(f"{what} is {value!r}, must be {f'at least {least}' if most is None else f'{least} to {most}'}")
    return found


def real(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{what} is {value!r:.100}, must be a number")
    return float(value)


def fill_sizes(field: Any, sizes: Optional[Mapping[str, int]]) -> None:
    """A repeated quench.step.v1.SymbolSize."""
    for name, size in (sizes or {}).items():
        field.add(symbol=name, size=whole(f"sizes: `{name}`", size, 0))


def one_of(what: str, value: str, known: Iterable[str]) -> str:
    known = list(known)
    if value not in known:
        raise InputError(f"{what} is `{value}`, must be {', '.join(f'`{each}`' for each in known)}")
    return value


def parsed_type(text: str) -> tuple[str, Optional[tuple[Union[int, str], ...]]]:
    """`f32[batch, 3]` as ("float32", ("batch", 3)); no shape where the rank is not known."""
    kind, bracket, dims = text.partition("[")
    letters = kind.rstrip("0123456789")
    dtype = _SHORT[letters] + kind[len(letters):] if letters in _SHORT and kind != letters else kind
    if not bracket:
        return dtype, None
    return dtype, tuple(int(part) if part.lstrip("-").isdigit() else part for part in _parts(dims.rpartition("]")[0]) if part)


def _parts(dims: str) -> list[str]:
    """Splits at commas outside of parentheses: sizes may be expressions such as `floordiv(height, 2)`."""
    found, depth = [""], 0
    for letter in dims:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found]


def numpy_type(text: str) -> Optional[np.dtype[Any]]:
    """The dtype for a type's text; None if NumPy has none."""
    try:
        return np.dtype(parsed_type(text)[0])
    except TypeError:
        return None


class Steps:
    """A workflow's steps, each bound to those before it."""

    def __init__(self, title: str) -> None:
        self.spec = message("quench.gateway.v1.WorkflowSpec")(title=title.encode()[:200].decode(errors="ignore"))

    def add(self, field: str, bindings: Optional[Mapping[str, tuple[str, str]]] = None) -> Any:
        """The request of a new step, called like its field. `bindings`: input port -> (step, its output port)."""
        step = self.spec.steps.steps.add(name=field)
        for taken, (source, given) in (bindings or {}).items():
            step.bindings.add(input=port(taken), step=source, output=port(given))
        request = getattr(step, field)
        request.SetInParent()
        return request


Target = Union[str, Mapping[str, Any]]


def _keys_of(target: str) -> dict[str, Any]:
    """Keys of a target string or JSON; none where it does not parse, which the service will say."""
    try:
        if target.lstrip().startswith("{"):
            return dict(json.loads(target))
        words = shlex.split(target)
    except (TypeError, ValueError):
        return {}
    if not words:
        return {}
    keys: dict[str, Any] = {"kind": words[0]}
    rest = iter(words[1:])
    for word in rest:
        name, equals, value = word.lstrip("-").partition("=")
        switch = name in ("system-lib", "emulate-matrices")
        keys[name] = value if equals or switch else next(rest, "")
    return keys


def _gpu_is_open(target: str) -> bool:
    """Whether a target is GPUs of an architecture that it does not say: the caller's is meant."""
    keys = _keys_of(target) if "cuda" in target else {}
    return keys.get("kind") == "cuda" and not keys.get("arch")


def _needs_cpu(name: str) -> bool:
    """Whether a target is about the machine of who asks: `host`, target strings without a triple, GPUs of no architecture."""
    string = any(each in name for each in " \t\n{") or name in ("llvm", "cuda", "opencl", "metal", "vulkan", "rocm", "hexagon", "c",
                                                                "nvptx", "webgpu")
    keys = _keys_of(name) if string else {"kind": ""}
    if not keys:
        return False
    if keys.get("kind") == "cuda":
        host = keys.get("host") or ""
        return _gpu_is_open(name) or _needs_cpu(host if isinstance(host, str) else json.dumps(host))
    return name == "host" or (string and "mtriple" not in name)


def _cache_bytes(name: str) -> int:
    """0 where the system does not say."""
    try:
        return max(os.sysconf(name), 0)
    except (ValueError, OSError):
        return 0


def _first_gpu() -> str:
    """The architecture of this machine's first GPU, "" without one."""
    from quench._runtime import ffi, lib, text

    gpu = ffi.new("quench_rt_gpu*")
    gpu.size = ffi.sizeof("quench_rt_gpu")
    return text(gpu.arch) if lib.quench_rt_find_gpu(0, gpu, ffi.NULL) == 0 else ""


def has_gpu() -> bool:
    """Whether this machine has one."""
    return bool(_first_gpu())


def fill_target(request: Any, target: Optional[Target], host: Optional[Target] = None) -> None:
    """A name, a target string, or a mapping of its keys; `host` is this machine's own CPU."""

    def text(given: Optional[Target]) -> str:
        return given if isinstance(given, str) else json.dumps(dict(given)) if given is not None else ""

    request.name = text(target) or portable_target()
    request.host_target = text(host)
    if _needs_cpu(request.name) or _needs_cpu(request.host_target):
        from quench._runtime import ffi, lib, text as decoded

        names = ffi.new("char[4096]")
        lib.quench_rt_cpu_names(names, 4096)
        machine = platform.machine().lower()
        request.host.machine = {"amd64": "x86_64", "arm64": "aarch64", "armv7l": "armv7"}.get(machine, machine)
        request.host.features.extend(sorted(name for name in decoded(names).split(", ") if name))
        request.host.l1_bytes = _cache_bytes("SC_LEVEL1_DCACHE_SIZE")
        request.host.l2_bytes = _cache_bytes("SC_LEVEL2_CACHE_SIZE")
        if _gpu_is_open(request.name):
            request.host.gpu = _first_gpu()


def _prefix(keyword: str, value: str) -> str:
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", value):
        raise InputError(f"{keyword} is `{value}`, must be letters, digits and `_`, a letter first")
    return value


def fill_compile_options(options: Any, given: Mapping[str, Any]) -> None:
    """Fills a quench.codegen.v1.CompileOptions from keywords of IR.compile; None is the default."""
    for keyword, value in given.items():
        row = ROWS[keyword]
        kind, field = row["kind"], row["field"]
        if kind == "int":
            setattr(options, field, whole(keyword, value, row["low"], row["high"]))
        elif value is None:
            continue
        elif kind == "switch":
            setattr(options, field, not value)
        elif kind == "consent":
            setattr(options, field, bool(value))
        elif kind == "double":
            setattr(options, field, real(keyword, value))
        elif kind == "choice":
            enumerator = row["choices"][one_of(keyword, value, row["choices"])]
            setattr(options, field, options.DESCRIPTOR.fields_by_name[field].enum_type.values_by_name[enumerator].number)
        elif kind == "names":
            getattr(options, field).extend(value)
        elif kind == "json":
            if not isinstance(value, Mapping):
                raise InputError(f"{keyword} is {value!r:.100}, must be a dict")
            setattr(options, field, json.dumps(dict(value)))
        else:
            setattr(options, field, _prefix(keyword, value) if keyword == "prefix" else value)


def fill_quantize_options(options: Any, *, activation_dtype: str = "int8", kernel_dtype: Optional[str] = None,
                          bias_dtype: Optional[str] = None, per_channel: bool = True, calib_method: str = "",
                          quant_type: str = "any", symmetric: bool = False, power_of_two: bool = False, bias_correction: bool = False,
                          percentile: Optional[float] = None, include: Iterable[str] = (), exclude: Iterable[str] = (),
                          block_size: Optional[int] = None) -> None:
    """Fills a quench.quantizer.v1.QuantizeOptions; options are named as in `quench quantize`."""
    sources = {"any": "UNSPECIFIED", "static": "STATIC", "dynamic": "DYNAMIC", "weights": "WEIGHTS_ONLY"}
    source = sources[one_of("quant_type", quant_type, sources)]
    options.source = messages().enum("quench.quantizer.v1.RangeSource", f"RANGE_SOURCE_{source}")
    options.activation_type = element_type("activation_dtype", activation_dtype)
    if kernel_dtype is not None:
        options.kernel_type = element_type("kernel_dtype", kernel_dtype)
    if bias_dtype is not None:
        options.bias_type = element_type("bias_dtype", bias_dtype)
    options.per_channel, options.symmetric, options.power_of_two = per_channel, symmetric, power_of_two
    options.bias_correction = bias_correction
    options.method = one_of("calib_method", calib_method, METHODS) if calib_method else ""
    if percentile is not None:
        options.percentile = real("percentile", percentile)
    options.include.extend(include)
    options.exclude.extend(exclude)
    if block_size is not None:
        options.block_size = whole("block_size", block_size, 1)
