"""Sentences of the services, which speak of the command's options, in the words of this package; and near names."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def _shape(found: re.Match[str]) -> str:
    sizes = [] if found["sizes"] == "scalar" else found["sizes"].split(",")
    inner = ", ".join(sizes) + ("," if len(sizes) == 1 else "")
    return f'shapes={{"{found["input"]}": ({inner})}}'


def _sizes(found: re.Match[str]) -> str:
    pairs = [pair.split("=") for pair in found[0].split() if "=" in pair]
    return "sizes={" + ", ".join(f'"{name}": {size}' for name, size in pairs) + "}"


# Words of the services' messages, and what they are called here. The last row has all options whose names differ in dashes only.
_WORDS: list[tuple[re.Pattern[str], object]] = [
    (re.compile(r"--shape (?P<input>\S+?)=(?P<sizes>[A-Z0-9,-]*[A-Z0-9]|scalar)"), _shape),
    (re.compile(r"\(of a single number: \S+=scalar\)"), "(of a single number: `()`)"),
    (re.compile(r"--size [^\s=]+=\d+(?: --size [^\s=]+=\d+)*"), _sizes),
    (re.compile(r"`quench nodes` lists them"), "`ir.main` has them"),
    (re.compile(r"`quench ir` shows them"), "`ir.text` has them"),
    (re.compile(r"--target host"), '`"host"`'),
    (re.compile(r"`default_dtype`"), "`default_type`"),
    (re.compile(r"--architecture FILE\.json"), 'architecture="FILE.json"'),
    (re.compile(r"--batch (-?\d+)"), r"batch \1"),
    (re.compile(r"--([a-z][a-z-]*[a-z])"), lambda found: found[1].replace("-", "_")),
]


def in_python(text: str) -> str:
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)  # type: ignore[call-overload]
    return text


# Names that other tools have for options.
_ELSEWHERE = {
    "calib_data": "data", "custom_convert_map": "conversions", "export_relay": "export_ir", "default_dtype": "default_type", "dtype": "dtypes", "dtype_dict": "dtypes", "shape": "shapes",
    "freeze_params": "no_freeze", "shape_dict": "shapes", "use_parser_friendly_name": "", "export_node_renamed_model_path": ""}


def check_names(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """TypeError of the first name that is not known, with what may have been meant."""
    known = sorted(known)
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, 1)
        meant = _ELSEWHERE[name] if _ELSEWHERE.get(name, "") in known else near[0] if near else ""
        raise TypeError(f"{function}() has no option `{name}`; " + (f"did you mean `{meant}`? " if meant else "") +
                        f"it takes {', '.join(f'`{each}`' for each in known)}")


def near_names(function: Function, more: Iterable[str] = ()) -> Function:
    """The function, whose TypeError for a keyword that it does not have says which one is near. `more`: keywords that it takes
    beside its parameters."""
    keywords = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    owner, _, name = function.__qualname__.rpartition(".")
    name = owner if name == "__init__" else name
    known = {each.name for each in inspect.signature(function).parameters.values() if each.kind in keywords} - {"self"} | set(more)

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        if not named.keys() <= known:
            check_names(name, named, known)
        return function(*arguments, **named)

    return checked  # type: ignore[return-value]
