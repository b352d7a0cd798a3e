"""Libraries that a gateway compiled, as files."""

from __future__ import annotations

import json
import pathlib
import struct
from collections.abc import Sequence
from typing import Any, Optional

from quench._gateway import Gateway, message
from quench._modules import write_text
from quench._runtime import check, ffi, lib
from quench.errors import InputError, OutputExistsError


def section(library: bytes, wanted: str) -> bytes:
    """A section of text of an ELF file for any little-endian machine; b"" where it has none of that name."""
    if library[:4] != b"\x7fELF" or len(library) < 64:
        return b""
    wide = library[4] == 2
    table, = struct.unpack_from("<Q" if wide else "<I", library, 40 if wide else 32)
    entry, count, names = struct.unpack_from("<HHH", library, 58 if wide else 46)

    def header(index: int) -> tuple[int, int, int]:
        at = table + index * entry
        name, = struct.unpack_from("<I", library, at)
        offset, size = struct.unpack_from("<QQ", library, at + 24) if wide else struct.unpack_from("<II", library, at + 16)
        return name, offset, size

    _, text, _ = header(names)
    for index in range(count):
        name, offset, size = header(index)
        if library[text + name: library.index(b"\0", text + name)] == wanted.encode():
            return library[offset: offset + size].rstrip(b"\0")
    return b""


def encrypt(library: bytes, path: pathlib.Path, key: pathlib.Path, password: Optional[str], recipient: Optional[str]) -> None:
    error = ffi.new("quench_rt_error*")

    def text(value: Optional[str]) -> Any:
        if value is not None and "\0" in value:
            raise InputError("a password or recipient has a NUL character")
        return ffi.NULL if value is None else ffi.new("char[]", value.encode())

    check(lib.quench_rt_encrypt(ffi.from_buffer(library), len(library), str(path).encode(), str(key).encode(), text(password),
                                text(recipient), error), error)


def metadata(library: bytes, report: Any, model: str) -> dict[str, Any]:
    """As metadata.json of `quench compile --export-metadata` begins, without what only that command knows."""
    described: dict[str, Any] = json.loads(section(library, ".quench.description") or b"{}")
    described.update(
        model=model, uuid=report.uuid, target=report.target, target_string=report.target_string, arena_bytes=report.arena_bytes,
        arena_lower_bound=report.arena_lower_bound_bytes, weight_bytes=report.weight_bytes, code_bytes=report.code_bytes,
        rest_bytes=report.rest_bytes, variant_weights={each.variant: each.bytes for each in report.variant_weights},
        unused_features=list(report.unused_features),
        kernels=[{"node": each.node, "op": each.op, "kernel": each.kernel, "runner_up": each.runner_up, "reason": each.reason,
                  "cost": each.cost, "slow": each.slow, "multiplications": each.multiplications, "performed": each.performed,
                  "dtype": each.dtype, "bytes": each.bytes}
                 for each in report.kernels])
    if report.device_arena_bytes:
        described.update(device_arena_bytes=report.device_arena_bytes, device_arena_lower_bound=report.device_arena_lower_bound_bytes)
    if report.HasField("check"):
        check = report.check
        described["check"] = {
            "extent": {2: "whole", 3: "groups"}.get(check.extent, "none"), "reason": check.reason, "variant": check.variant,
            "groups": check.groups, "all_groups": check.all_groups, "kernels": check.kernels, "all_kernels": check.all_kernels,
            "nodes": list(check.nodes), "largest_error": check.largest_error, "undecided": check.undecided}
    return described


class Files:
    """The files that `compile` writes into a folder: refused before the work if one would replace something."""

    def __init__(self, folder: pathlib.Path, library: str, *, password: Optional[str], recipient: Optional[str],
                 export_ir: bool, export_metadata: bool, force_overwrite: bool) -> None:
        if password is not None and recipient is not None:
            raise InputError("a library is encrypted with a password or to a recipient, not both")
        if (password is not None or recipient is not None) and library != "model.so":
            raise InputError(f"shared libraries are encrypted, and this makes {library}")
        if password == "":
            raise InputError("the password is empty")
        self._password, self._recipient, self._metadata = password, recipient, export_metadata
        self._folder, self.library = folder, folder / library
        if folder.exists() and not folder.is_dir():
            raise OutputExistsError(f"`{folder}` exists and is no folder; output_path= names another one")
        names = [library, "model.h"] + ["modelKey.bin"] * (password is not None) + ["model.ir.txt"] * export_ir
        names += ["metadata.json"] * export_metadata
        taken = [folder / name for name in names if (folder / name).exists()]
        if taken and not force_overwrite:
            raise OutputExistsError(f"`{taken[0]}` exists; force_overwrite=True replaces it")
        self._replaces = self.library in taken and library == "model.so"

    def write(self, gateway: Gateway, library: Any, header: Any, report: Any, model: str, uuid: str = "",
              ir: Optional[tuple[Any, Sequence[Any]]] = None) -> pathlib.Path:
        """Digests of what was made, of a text and its weights too where it is asked for; the path of the library."""
        self._folder.mkdir(parents=True, exist_ok=True)
        encrypts = self._password is not None or self._recipient is not None
        plain = gateway.read_bytes(library) if encrypts or self._metadata else b""
        if encrypts:  # here: no gateway learns the password, and no file has the plain library
            encrypt(plain, self.library, self._folder / "modelKey.bin", self._password, self._recipient)
        else:
            gateway.download(library, self.library)
        if self._replaces and self._password is None:
            (self._folder / "modelKey.bin").unlink(missing_ok=True)  # of the library that was there
        gateway.download(header, self._folder / "model.h")
        if ir is not None:  # beside an encrypted library no weights lie in the open: the text names them by their digests
            write_text(gateway, ir[0], [] if encrypts else ir[1], self._folder / "model.ir.txt")
        if self._metadata:
            made = message("quench.codegen.v1.CompileReport").FromString(gateway.read_bytes(report))
            facts = metadata(plain, made, model)
            facts["uuid"] = uuid or facts["uuid"]
            (self._folder / "metadata.json").write_text(json.dumps(facts, indent=2) + "\n")
        return self.library
