"""Constants of a module as arrays, and the inputs and outputs of its graphs: only the module's message has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from quench._arrays import Array
from quench._gateway import Gateway, message

# By ONNX's numbers. numpy has no bfloat16 and no floats of 8 bits: their bits are integers.
_DTYPES = {1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8", 12: "<u4", 13: "<u8",
           14: "<c8", 15: "<c16", 16: "<u2", 17: "u1", 18: "u1", 19: "u1", 20: "u1", 24: "u1"}
# Types whose elements share a byte, the lowest bits first: bits, and whether they are signed.
_PACKED = {21: (4, False), 22: (4, True), 23: (4, False), 25: (2, False), 26: (2, True)}
_STRING = 8


def _unpacked(data: bytes, count: int, bits: int, signed: bool) -> Array:
    each = np.frombuffer(data, np.uint8)
    found = np.stack([each >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], axis=-1).reshape(-1)[:count]
    if not signed:
        return found
    return ((found ^ 1 << bits - 1).astype(np.int8) - np.int8(1 << bits - 1)).astype(np.int8)


class Weights(Mapping[str, Array]):
    """Constants by their names, of bodies too. Each is fetched when it is asked for."""

    def __init__(self, gateway: Gateway, module: Any) -> None:
        self._gateway = gateway
        self._digests = {each.hash: type(each).FromString(each.SerializeToString()) for each in module.blobs}
        self._graphs: dict[str, Any] = {}
        self._tensors: dict[str, Any] = {}
        self._blob: tuple[str, bytes] = ("", b"")  # the last one: weights lie one behind the other
        self._add("main", message("quench.ir.v1.Module").FromString(gateway.read_bytes(module.digest)).graph)

    def _add(self, where: str, graph: Any) -> None:
        """The graph and those inside it, called as `quench nodes` calls them."""
        self._graphs[where] = graph
        for value in graph.values:
            if value.HasField("constant"):
                self._tensors.setdefault(value.name, value.constant)
        for node in graph.nodes:
            for attribute in node.attributes:
                if attribute.HasField("graph_value"):
                    self._add(f"{where}/{node.name}.{attribute.name}", attribute.graph_value)

    def edges(self, graph: str) -> tuple[list[str], list[str]]:
        """Names of the graph's inputs and outputs."""
        found = self._graphs[graph]
        return [found.values[i].name for i in found.inputs], [found.values[i].name for i in found.outputs]

    def __getitem__(self, name: str) -> Array:
        tensor = self._tensors[name]
        shape = tuple(tensor.dims)
        if tensor.element_type == _STRING:
            texts = np.empty(len(tensor.strings), object)
            texts[:] = [each.decode(errors="replace") for each in tensor.strings]
            return texts.reshape(shape)
        data = b"".join(self._range(each) for each in tensor.location) if tensor.location else tensor.data
        if tensor.element_type in _PACKED:
            return _unpacked(data, int(np.prod(shape, dtype=np.int64)), *_PACKED[tensor.element_type]).reshape(shape)
        return np.frombuffer(data, _DTYPES[tensor.element_type]).reshape(shape).copy()

    def _range(self, where: Any) -> bytes:
        if self._blob[0] != where.blob:
            self._blob = (where.blob, self._gateway.read_bytes(self._digests[where.blob]))
        return self._blob[1][where.offset: where.offset + where.size]

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"<quench weights: {', '.join(f'`{name}`' for name in self)}>"
