"""The wire contract's messages, from its descriptors, in a pool of their own: no generated code, and nothing that could clash with other packages' google.rpc."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

CONTRACTS = pathlib.Path(__file__).parent / "_contracts.binpb"


class Messages:
    """Classes by full name: `messages("quench.gateway.v1.WorkflowSpec")`."""

    def __init__(self) -> None:
        files = descriptor_pb2.FileDescriptorSet.FromString(CONTRACTS.read_bytes())
        by_name = {file.name: file for file in files.file}
        self._pool = descriptor_pool.DescriptorPool()
        self._classes: dict[str, Any] = {}
        added: set[str] = set()

        def add(name: str) -> None:
            if name in added:
                return
            added.add(name)
            file = by_name.get(name)
            if file is None:  # google.protobuf's own
                module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
                file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
            for dependency in file.dependency:
                add(dependency)
            self._pool.AddSerializedFile(file.SerializeToString())

        for name in by_name:
            add(name)

    def __call__(self, name: str) -> Any:
        if name not in self._classes:
            descriptor = self._pool.FindMessageTypeByName(name)
            factory: Any = message_factory
            if hasattr(factory, "GetMessageClass"):
                self._classes[name] = factory.GetMessageClass(descriptor)
            else:  # before 4.22
                self._classes[name] = factory.MessageFactory(self._pool).GetPrototype(descriptor)
        return self._classes[name]

    def enum(self, name: str, value: str) -> int:
        """The number of an enum's value, `messages.enum("quench.gateway.v1.Port", "PORT_MODULE")`."""
        return int(self._pool.FindEnumTypeByName(name).values_by_name[value].number)


_messages: Messages | None = None


def messages() -> Messages:
    global _messages
    if _messages is None:
        _messages = Messages()
    return _messages
