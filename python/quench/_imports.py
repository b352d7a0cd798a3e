"""Options of reading a model, as messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional

from quench._steps import Path, element_type, one_of, whole
from quench._uploads import Uploads
from quench.errors import InputError

LAYOUTS = {"NCHW": 1, "NHWC": 2}


def _texts(what: str, given: Any) -> list[str]:
    """A list of words; a word alone is none of letters."""
    found = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    wrong = [each for each in found if not isinstance(each, str)]
    if wrong:
        raise InputError(f"{what}: {wrong[0]!r:.100} is not a string")
    return found


def _items(what: str, given: Any) -> list[tuple[str, Any]]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise InputError(f"{what}: {given!r:.100} is not a dict by names")
    return list(given.items())


def _dims(name: str, shape: Any) -> list[int]:
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise InputError(f"shapes: that of `{name}` is {shape!r:.100}, must be a list or tuple of sizes")
    return [whole(f"shapes: a size of `{name}`", size, -1) for size in shape]


def _bounds(name: str, given: Any) -> tuple[int, int]:
    if isinstance(given, str) or not isinstance(given, Iterable) or len(bounds := list(given)) != 2:
        raise InputError(f"dims: `{name}` is {given!r:.100}, must be the least and the greatest size")
    least = whole(f"dims: the least size of `{name}`", bounds[0], 0)
    return least, whole(f"dims: the greatest size of `{name}`", bounds[1], least)


def fill_import_options(client: Uploads, options: Any, *, format: str = "", shapes: Optional[Mapping[str, Iterable[int]]] = None,
                        dims: Optional[Mapping[str, tuple[int, int]]] = None, dtypes: Optional[Mapping[str, Any]] = None,
                        inputs: Iterable[str] = (), outputs: Iterable[str] = (), opset: int = 0,
                        freeze: Optional[Mapping[str, Any]] = None, no_freeze: Iterable[str] = (),
                        convert_config: Optional[Mapping[str, bool]] = None, conversions: Iterable[str] = (), layout: str = "",
                        signature: str = "", architecture: Optional[Path] = None, default_type: Any = None,
                        keep_quantized_weight: bool = False) -> None:
    """Fills a quench.importer.v1.ImportOptions. Everything that can be checked without the model is checked before anything is uploaded."""
    options.format, options.signature = _texts("format", format)[0], _texts("signature", signature)[0]
    options.opset = whole("opset", opset, 0)
    options.inputs.extend(_texts("inputs", inputs))
    options.outputs.extend(_texts("outputs", outputs))
    options.no_freeze.extend(_texts("no_freeze", no_freeze))
    options.keep_quantized_weight = bool(keep_quantized_weight)
    for name, shape in _items("shapes", shapes):
        options.shapes.add(input=name, dims=_dims(name, shape))
    for name, bounds in _items("dims", dims):
        least, most = _bounds(name, bounds)
        options.dims.add(symbol=name, min=least, max=most)
    for name, dtype in _items("dtypes", dtypes):
        options.types.add(input=name, element_type=element_type(f"input `{name}`", dtype))
    for key, value in _items("convert_config", convert_config):
        options.convert_config[key] = bool(value)
    if layout:
        options.layout = LAYOUTS[one_of("layout", layout, LAYOUTS)]
    if default_type is not None:
        options.default_type = element_type("default_type", default_type)
    texts = _texts("conversions", conversions)
    for name, tensor in _items("freeze", freeze):
        options.freeze.add(input=name, tensor=client._upload_tensor(tensor))
    for text in texts:
        options.conversions.append(client._upload_bytes(text.encode(), "conversions"))
    if architecture is not None:
        options.architecture.CopyFrom(client.gateway.upload(architecture))
