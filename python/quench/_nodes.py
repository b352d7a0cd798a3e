"""Nodes, graphs and texts of a module, as Python and notebooks show them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from quench._steps import parsed_type

SHOWN_ROWS = 200  # of a table in a notebook


class Text(str):
    """A text that a notebook, or a Python prompt, shows as it is, and not as the literal of a string."""

    module: Any = None  # whose text it is

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Text, (str(self),)


class Value(dict[str, Any]):
    """A value that a node takes or makes, as `quench nodes --format json` prints it; its keys are attributes too."""

    @property
    def name(self) -> str:
        return str(self["name"])

    @property
    def type(self) -> str:
        """The type as the graph's text has it: `f32[batch, 3]`."""
        return str(self["type"])

    @property
    def dtype(self) -> str:
        """By NumPy's names."""
        return parsed_type(self.type)[0]

    @property
    def shape(self) -> Optional[tuple[Union[int, str], ...]]:
        """A size that inputs decide has its name; None where not even the rank is known."""
        return parsed_type(self.type)[1]

    @property
    def bytes(self) -> Optional[int]:
        """None where a size is open that nothing tells."""
        found = self.get("bytes")
        return None if found is None else int(found)

    @property
    def constant(self) -> bool:
        return bool(self.get("constant"))


class Node(dict[str, Any]):
    """A node, as `quench nodes --format json` prints it; its keys are attributes too. A graph's own inputs are nodes of the operator
    `input`, its outputs one of the operator `output`."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Node:
        return cls(facts, inputs=[Value(each) for each in facts["inputs"]], outputs=[Value(each) for each in facts["outputs"]])

    @property
    def name(self) -> str:
        return str(self["name"])

    @property
    def op(self) -> str:
        return str(self["op"])

    @property
    def domain(self) -> str:
        """Empty for ONNX's own operators."""
        return str(self.get("domain", ""))

    @property
    def origin(self) -> str:
        """The node's name in the source model."""
        return str(self.get("origin", ""))

    @property
    def graph(self) -> str:
        return str(self["graph"])

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self["attributes"])

    @property
    def inputs(self) -> list[Value]:
        return list(self["inputs"])

    @property
    def outputs(self) -> list[Value]:
        return list(self["outputs"])

    def _repr_html_(self) -> str:
        return html_table([(name, _shown(value)) for name, value in self.items()])


class Graph(list[Node]):
    """The nodes of a graph in their order: of `main`, of a body of control flow, or of a part of a partitioned module."""

    def __init__(self, name: str, nodes: Iterable[Node], inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        super().__init__(nodes)
        self.name = name
        self.input_nodes = [_edge(name, each.name, "input", [], [each]) for each in inputs]
        self.output_node = _edge(name, "output", "output", outputs, [])

    @property
    def operators(self) -> dict[str, int]:
        """How many nodes each operator has here; bodies are graphs of their own."""
        found: dict[str, int] = {}
        for node in self:
            found[node.op] = found.get(node.op, 0) + 1
        return dict(sorted(found.items()))

    def lines(self, typed: bool = True) -> list[str]:
        """A node a line. With `typed`, a value has its type where it first appears."""
        seen: set[str] = set()

        def text(value: Value) -> str:
            if not typed or not value.name or value.name in seen:
                return value.name or "_"
            seen.add(value.name)
            return f"{value.name}: {value.type}"

        found = [f"input {text(node.outputs[0])}" for node in self.input_nodes]
        for node in self:
            taken = ", ".join(text(each) for each in node.inputs)
            attributes = "".join(f", {name}={value}" for name, value in sorted(node.attributes.items()))
            made = ", ".join(text(each) for each in node.outputs)
            found.append(f"{made} = {node.op}({taken}{attributes})")
        seen.clear()
        return found + [f"output {text(each)}" for each in self.output_node.inputs]

    @property
    def text(self) -> Text:
        return Text("\n".join(self.lines()))

    def __repr__(self) -> str:
        return f"<quench graph `{self.name}`, {len(self)} nodes>"

    def _repr_html_(self) -> str:
        rows = [(node.op, node.name, _shown(node.inputs), _shown(node.outputs), _shown(node.attributes)) for node in self]
        return html_table(rows, ("operator", "name", "inputs", "outputs", "attributes"))


def _edge(graph: str, name: str, op: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> Node:
    return Node(graph=graph, name=name, op=op, domain="", origin="", attributes={}, inputs=list(inputs), outputs=list(outputs))


def _shown(value: Any) -> str:
    if isinstance(value, Value):
        return f"{value.name}: {value.type}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return ", ".join(_shown(each) for each in value)
    return str(value)


def html_table(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Cells are texts, not HTML. Without a head the first cell of a row is its head; of many rows the first are shown."""

    def line(cells: Sequence[str], heads: int) -> str:
        kinds = ["th"] * heads + ["td"] * (len(cells) - heads)
        return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for kind, cell in zip(kinds, cells)) + "</tr>"

    lines = [line(head, len(head))] if head else []
    lines += [line(row, 0 if head else 1) for row in rows[:SHOWN_ROWS]]
    if len(rows) > SHOWN_ROWS:
        lines.append(f"<tr><td>… {len(rows) - SHOWN_ROWS} more</td></tr>")
    return f"<table>{''.join(lines)}</table>"

