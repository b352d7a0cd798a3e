"""Sizes that a model leaves open, as `quench bench` chooses them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from quench.errors import InputError

PICTURE_SIDE, LENGTH = 224, 64


@dataclass
class Open:
    """A symbolic dim of inputs."""

    least: int
    most: int
    first: bool = True  # the first axis of all inputs that have it, with others behind it
    picture: bool = False  # of an input of rank 4

    def example(self) -> int:
        """A size to try, for whoever does not know the model."""
        return min(max(PICTURE_SIDE if self.picture else LENGTH, self.least, 1), max(self.most, self.least, 1))


_OPERATIONS: dict[type, Callable[[int, int], int]] = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b}
_FUNCTIONS: dict[str, Callable[..., int]] = {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max}


def _value(expression: ast.expr, sizes: Mapping[str, int]) -> int:
    """A dim's expression at these sizes. KeyError where it has another name, or what is not an expression of dims."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, int):
        return expression.value
    if isinstance(expression, ast.Name):
        return sizes[expression.id]
    if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub):
        return -_value(expression.operand, sizes)
    if isinstance(expression, ast.BinOp):
        return _OPERATIONS[type(expression.op)](_value(expression.left, sizes), _value(expression.right, sizes))
    if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name):
        return _FUNCTIONS[expression.func.id](*(_value(each, sizes) for each in expression.args))
    raise KeyError(ast.unparse(expression))


def _follows(name: str, sizes: Mapping[str, int]) -> Optional[int]:
    """The size that others determine; None where they do not."""
    try:
        return _value(ast.parse(name, mode="eval").body, sizes)
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError):
        return None


def is_called_batch(name: str) -> bool:
    return name.lower() in ("n", "b") or "batch" in name.lower()


def choose_sizes(shapes: Sequence[Sequence[Union[int, str]]], bounds: Mapping[str, tuple[int, int]],
                 given: Mapping[str, int]) -> dict[str, int]:
    """A size for each symbolic dim of `shapes`: the given one, and for a batch without one the least. Results depend on all
    others, so that an InputError asks for those that are left."""
    found: dict[str, Open] = {}
    for shape in shapes:
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                continue
            dim = found.setdefault(size, Open(*bounds[size]))
            dim.first = dim.first and axis == 0 and len(shape) > 1
            dim.picture = dim.picture or len(shape) == 4
    unknown = [f"`{name}`" for name in given if name not in found]
    if unknown:
        raise InputError(f"the model has no size {', '.join(unknown)}; it has "
                         f"{', '.join(f'`{name}`' for name in found) or 'none'}")
    named = any(is_called_batch(name) for name in found)
    chosen: dict[str, int] = {}
    asked: dict[str, int] = {}
    for name, dim in found.items():
        if name in given:
            chosen[name] = given[name]
        elif not name.isidentifier():
            continue  # an expression of other dims
        elif is_called_batch(name) or (dim.first and not named):
            chosen[name] = max(dim.least, 1)
        else:
            asked[name] = dim.example()
    for name, dim in found.items():
        if name in chosen or name in asked or asked:
            continue
        follows = _follows(name, chosen)
        if follows is None:
            asked[name] = dim.example()
        else:
            chosen[name] = follows
    if asked:
        raise InputError(f"the model leaves {', '.join(f'`{name}`' for name in asked)} open, and the result depends on "
                         f"{'it' if len(asked) == 1 else 'them'}: say at which, like `sizes={asked}`")
    return chosen
