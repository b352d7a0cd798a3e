"""Quench's own modules as files, with their weights: .qir and .ir.txt (docs/modules.md)."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import pathlib
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from quench._gateway import Gateway, message
from quench._uploads import Uploads
from quench.errors import InputError

# A .qir file: the magic; sizes of the module, the index and a name; 0; of each blob its digest, offset and size; the name of the
# file that has the blobs instead; the module, a quench.ir.v1.Module; the blobs, at multiples of 64 bytes.
MAGIC = b"\x89quench.qir\r\n\x1a\n\x01"
HEADER, ENTRY = struct.Struct("<16s4Q"), struct.Struct("<32s2Q")
ALIGNMENT = 64
# How a message without its weights begins: the version and the stage.
MESSAGE = b"\x08\x01\x10"
TEXT = b"quench.ir "
LINE = 72  # bytes in a line of base64


def is_module(path: pathlib.Path) -> bool:
    """By its content."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except OSError:  # whoever reads it says so
        return False
    lines = [line for line in head.splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    return head.startswith((MAGIC, MESSAGE)) or bool(lines and lines[0].lstrip().startswith(TEXT))


def upload_module(client: Uploads, path: pathlib.Path) -> Any:
    """A quench.step.v1.Module, whose message or text and whose weights are at the gateway then."""
    with open(path, "rb") as file:
        head = file.read(len(MAGIC))
    if head == MAGIC:
        body, name, blobs = _read_container(client, path)
        if not body:
            raise InputError(f"`{path}` has the weights of a module, and no module")
    elif head.startswith(MESSAGE):
        body, name, blobs = path.read_bytes(), "", []
    else:
        body, name, blobs = _read_text(client, path)
    if name:
        if "/" in name or "\0" in name or name in (".", ".."):
            raise InputError(f"`{path}`: its weights lie in `{name}`, which must be a file beside it")
        if not (path.parent / name).is_file():
            raise InputError(f"`{path}`: its weights lie in `{name}` beside it, and there is no such file")
        blobs = _read_container(client, path.parent / name)[2]
    return message("quench.step.v1.Module")(digest=client._upload_bytes(body, "module"), blobs=blobs)


def _read_container(client: Uploads, path: pathlib.Path) -> tuple[bytes, str, list[Any]]:
    cut = InputError(f"`{path}` is cut off or damaged: what it lists lies beyond its end")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            raise cut
        magic, module, count, name, zero = HEADER.unpack(head)
        if magic != MAGIC:
            raise InputError(f"`{path}` is not a file with weights")
        if zero != 0:
            raise InputError(f"`{path}` was written by a newer version, or is damaged")
        if HEADER.size + count * ENTRY.size + name + module > size:
            raise cut
        entries = list(ENTRY.iter_unpack(file.read(count * ENTRY.size)))
        beside, body = file.read(name).decode(errors="replace"), file.read(module)
        blobs = []
        for digest, offset, length in entries:
            if offset + length > size:
                raise cut
            file.seek(offset)
            blobs.append(_upload(client, path, file.read(length), digest.hex()))
    return body, beside, blobs


def _upload(client: Uploads, path: pathlib.Path, data: bytes, digest: str) -> Any:
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(f"`{path}`: the weights are damaged: blob `{digest}` has other bytes")
    return client._upload_bytes(data, "weights")


def _read_text(client: Uploads, path: pathlib.Path) -> tuple[bytes, str, list[Any]]:
    """The text ends where its weights begin: `weights "DIGEST" SIZE` and lines of base64, or `weights file "NAME"`."""
    body, *sections = path.read_bytes().replace(b"\r\n", b"\n").split(b"\nweights ")
    blobs = []
    for section in sections:
        head, _, lines = section.partition(b"\n")
        words = head.split()
        if len(words) >= 2 and words[0] == b"file":
            return body + b"\n", head.partition(b" ")[2].strip().strip(b'"').decode(errors="replace"), []
        try:
            data = b"".join(base64.b64decode(line, validate=True) for line in lines.split(b"\n"))
            length = int(words[1])
        except (ValueError, IndexError) as problem:
            raise InputError(f"`{path}`: its weights are cut off or damaged: {problem}") from problem
        if length != len(data):
            raise InputError(f"`{path}`: its weights are cut off or damaged: {len(data)} bytes of {length}")
        blobs.append(_upload(client, path, data, words[0].strip(b'"').decode(errors="replace")))
    return body + b"\n", "", blobs


def write_module(gateway: Gateway, module: Any, path: pathlib.Path) -> None:
    """A .qir file."""
    _write_whole(path, lambda file: _write_container(gateway, module, file))


def module_bytes(gateway: Gateway, module: Any) -> bytes:
    """The bytes of a .qir file."""
    file = io.BytesIO()
    _write_container(gateway, module, file)
    return file.getvalue()


def _write_container(gateway: Gateway, module: Any, file: BinaryIO) -> None:
    body = gateway.read_bytes(module.digest)
    blobs = sorted(module.blobs, key=lambda blob: str(blob.hash))
    end = HEADER.size + len(blobs) * ENTRY.size + len(body)
    head = HEADER.pack(MAGIC, len(body), len(blobs), 0, 0)
    for blob in blobs:
        start = _aligned(end)
        head += ENTRY.pack(bytes.fromhex(blob.hash), start, blob.size_bytes)
        end = start + blob.size_bytes
    file.write(head + body)
    for blob in blobs:
        file.write(bytes(_aligned(file.tell()) - file.tell()))
        gateway.read(blob, file.write)


def write_text(gateway: Gateway, text: Any, blobs: Sequence[Any], path: pathlib.Path) -> None:
    """A .ir.txt file; `text`: the digest of the module's."""

    def write(file: BinaryIO) -> None:
        body = gateway.read_bytes(text)
        file.write(body if body.endswith(b"\n") else body + b"\n")
        for blob in sorted(blobs, key=lambda blob: str(blob.hash)):
            data = gateway.read_bytes(blob)
            file.write(f'weights "{blob.hash}" {blob.size_bytes}\n'.encode())
            file.writelines(_lines(data))

    _write_whole(path, write)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _lines(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), LINE):
        yield base64.b64encode(data[start: start + LINE]) + b"\n"


def _write_whole(path: pathlib.Path, write: Callable[[BinaryIO], None]) -> None:
    """The file appears whole or not at all."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(part, "wb") as file:
            write(file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
