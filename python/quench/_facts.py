"""Properties of a module at a gateway; `quench.ir` has what is done to it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Optional, Union

from quench._nodes import Graph, Node, Text, Value, html_table
from quench._steps import Steps
from quench._weights import Weights

if TYPE_CHECKING:
    from quench.client import Client

Shape = Optional[tuple[Union[int, str], ...]]


class Facts:
    """Names, types and nodes are those of `quench nodes --stage canonical`."""

    _client: Client
    _module: Any  # a quench.step.v1.Module
    name: str

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Drops facts, which were those of another module."""
        self._facts: Optional[dict[str, Any]] = None
        self._graphs: Optional[dict[str, Graph]] = None
        self._weights: Optional[Weights] = None

    def _run(self, field: str, fill: Callable[[Any], Any]) -> dict[str, Any]:
        """Outputs by name, of one step on this module."""
        steps = Steps(f"{field} {self.name}")
        request = steps.add(field)
        request.module.CopyFrom(self._module)
        fill(request)
        return self._client._outputs(steps.spec, field)

    @property
    def facts(self) -> dict[str, Any]:
        """All that `quench nodes --format json` prints."""
        if self._facts is None:
            outputs = self._run("introspect", lambda request: None)
            facts: dict[str, Any] = json.loads(self._client.gateway.read_bytes(outputs["report_json"].digest))
            facts.update(nodes=[Node.of(each) for each in facts["nodes"]], inputs=[Value(each) for each in facts["inputs"]],
                         outputs=[Value(each) for each in facts["outputs"]])
            self._facts = facts
        return self._facts

    @property
    def fingerprint(self) -> str:
        """Hash of structure and weights."""
        return str(self.facts["fingerprint"])

    @property
    def structure_hash(self) -> str:
        """Hash without weights and names: that of equal networks, however they were trained."""
        return str(self.facts["structure_hash"])

    @property
    def stage(self) -> str:
        return str(self.facts["stage"])

    @property
    def operators(self) -> dict[str, int]:
        """Nodes of all graphs by operator."""
        return dict(self.facts["operators"])

    # ---- inputs and outputs ----

    @property
    def inputs(self) -> list[Value]:
        return list(self.facts["inputs"])

    @property
    def outputs(self) -> list[Value]:
        return list(self.facts["outputs"])

    @property
    def input_nodes(self) -> list[Node]:
        """A node of the operator `input` for each input."""
        return self.main.input_nodes

    @property
    def output_node(self) -> Node:
        """A node of the operator `output`, which takes all outputs."""
        return self.main.output_node

    @property
    def input_count(self) -> int:
        return len(self.inputs)

    @property
    def output_count(self) -> int:
        return len(self.outputs)

    @property
    def input_shapes(self) -> list[Shape]:
        """A size that inputs decide has its name; None where not even the rank is known."""
        return [each.shape for each in self.inputs]

    @property
    def output_shapes(self) -> list[Shape]:
        return [each.shape for each in self.outputs]

    @property
    def input_dtypes(self) -> list[str]:
        """By NumPy's names."""
        return [each.dtype for each in self.inputs]

    @property
    def output_dtypes(self) -> list[str]:
        return [each.dtype for each in self.outputs]

    @property
    def params(self) -> list[str]:
        """Names of inputs that are parameters of the model which were not frozen."""
        return list(self.facts["unfrozen_parameters"])

    @property
    def weights(self) -> Weights:
        """Constants by their names, as arrays. Each is fetched when it is asked for; bfloat16 as the bits, in uint16."""
        if self._weights is None:
            self._weights = Weights(self._client.gateway, self._module)
        return self._weights

    # ---- graphs ----

    @property
    def graphs(self) -> dict[str, Graph]:
        """By name: `main`, bodies of control flow, parts of a partitioned module."""
        if self._graphs is None:
            nodes: dict[str, list[Node]] = {"main": []}
            for node in self:
                nodes.setdefault(node.graph, []).append(node)
            self._graphs = {name: self._graph(name, found) for name, found in nodes.items()}
        return dict(self._graphs)

    def _graph(self, name: str, nodes: list[Node]) -> Graph:
        if name == "main":
            return Graph(name, nodes, self.inputs, self.outputs)
        known = {each.name: each for node in nodes for each in node.inputs + node.outputs}

        def values(names: Iterable[str]) -> list[Value]:
            return [known.get(each, Value(name=each, type="?", bytes=None, constant=False)) for each in names]

        inputs, outputs = self.weights.edges(name)
        return Graph(name, nodes, values(inputs), values(outputs))

    @property
    def main(self) -> Graph:
        return self.graphs["main"]

    @property
    def graph_count(self) -> int:
        return int(self.facts["graph_count"])

    @property
    def subgraph_count(self) -> int:
        """All graphs but `main`."""
        return int(self.facts["subgraph_count"])

    # ---- what has been done to it ----

    @property
    def partition_backends(self) -> list[str]:
        """Backends that parts of the module are for; empty: it is not partitioned."""
        return list(self.facts["partition_backends"])

    @property
    def is_tensorrt(self) -> bool:
        return "tensorrt" in self.partition_backends

    @property
    def is_calibrated(self) -> bool:
        return bool(self.facts["is_calibrated"])

    @property
    def is_quantized(self) -> bool:
        return bool(self.facts["is_quantized"])

    @property
    def is_split_tensors(self) -> bool:
        return bool(self.facts["is_split_tensors"])

    # ---- as a text ----

    def _text(self, typed: bool) -> Text:
        lines: list[str] = []
        for name, graph in self.graphs.items():
            lines += ([] if name == "main" else [f"graph {name}"]) + graph.lines(typed)
        text = Text("\n".join(lines))
        text.module = copy.copy(self)  # the module itself may change
        return text

    @property
    def text(self) -> Text:
        """Graphs, a node a line. A value has its type where it first appears."""
        return self._text(typed=True)

    @property
    def typed_mod(self) -> Text:
        """The same as `text`."""
        return self._text(typed=True)

    @property
    def mod(self) -> Text:
        """The text without types."""
        return self._text(typed=False)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.facts["nodes"])

    def __len__(self) -> int:
        return len(self.facts["nodes"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        """Hash of the structure, the same in every process."""
        return int(self.structure_hash[:15], 16)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<quench.{type(self).__name__} `{self.name}`, {self.stage}, {len(self)} nodes>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        done = [word for word in ("calibrated", "quantized", "split_tensors") if getattr(self, f"is_{word}")]
        rows = [("name", self.name), ("stage", ", ".join([self.stage, *done])), ("fingerprint", self.fingerprint)]
        rows += [("input", f"{each.name}: {each.type}") for each in self.inputs]
        rows += [("output", f"{each.name}: {each.type}") for each in self.outputs]
        rows += [("nodes", str(len(self))), ("operators", ", ".join(f"{op} {count}" for op, count in self.operators.items()))]
        if self.subgraph_count:
            rows.append(("graphs", ", ".join(self.graphs)))
        return html_table(rows)
