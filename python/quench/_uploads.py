"""Transfers to and from a gateway: files, tensors, samples, models."""

from __future__ import annotations

import io
import os
import pathlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from quench._gateway import Gateway, message
from quench._steps import Path, whole
from quench.errors import InputError

SAMPLE_FILES = {".npy", ".npz", ".png", ".jpg", ".jpeg", ".pb"}
# Models above this size are not searched for names of files beside them: those that have such files are small.
SEARCHED_BYTES = 64 << 20


class Uploads:
    """`_folder`: for what has no file yet."""

    gateway: Gateway
    _folder: tempfile.TemporaryDirectory[str]

    def upload(self, path: Path) -> str:
        """Uploads a file and returns its digest for `download`. An interrupted upload continues where it stopped."""
        digest = self.gateway.upload(path)
        return f"{digest.hash}/{digest.size_bytes}"

    def download(self, digest: str, path: Path) -> pathlib.Path:
        """The file appears when it is whole and right."""
        name, _, size = digest.partition("/")
        if len(name) != 64 or not size.isdigit():
            raise InputError(f"`{digest}` is not a digest: 64 hex digits, `/` and the size in bytes")
        self.gateway.download(message("build.bazel.remote.execution.v2.Digest")(hash=name, size_bytes=int(size)), path)
        return pathlib.Path(path)

    def _upload_tensor(self, tensor: Any) -> Any:
        file = io.BytesIO()
        np.save(file, np.asarray(tensor))
        return self._upload_bytes(file.getbuffer(), "tensor.npy")

    def _upload_bytes(self, data: Union[bytes, memoryview], name: str) -> Any:
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:  # of this call's own: others may run beside it
            path = pathlib.Path(folder) / name
            path.write_bytes(data)
            return self.gateway.upload(path)

    def _fill_samples(self, samples: Any, data: Any, images: str, names: Sequence[str] = ()) -> None:
        """Fills a quench.step.v1.Samples; samples may give inputs in the order of `names`, the inputs' names."""
        samples.images = images
        if isinstance(data, (int, np.integer)) and not isinstance(data, bool):
            samples.random = whole("the number of random samples", data, 1, 100_000)
            return
        manifest = message("quench.step.v1.SampleManifest")()
        if isinstance(data, (str, os.PathLike)):
            root = pathlib.Path(data)
            files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.suffix.lower() in SAMPLE_FILES)
            if not files:
                raise InputError(f"`{root}` has no samples: {', '.join(sorted(SAMPLE_FILES))} files")
            for path in files:
                manifest.files.add(path=path.name if root.is_file() else str(path.relative_to(root)), digest=self.gateway.upload(path))
        elif isinstance(data, np.ndarray):
            manifest.files.add(path="samples.npy", digest=self._upload_tensor(_numbers("the samples", data)))
        elif isinstance(data, Iterable):
            for number, sample in enumerate(data):
                for name, array in _by_name(sample, names).items():
                    checked = _numbers(f"sample {number}: input `{name}`", array)
                    manifest.files.add(path=f"{number:06}/{name}.npy", digest=self._upload_tensor(checked))
            if not manifest.files:
                raise InputError("there are no samples")
        else:
            raise InputError(f"a {type(data).__name__} cannot be used as samples: expected a folder, a file, an array, arrays one by one, or a number of random samples")
        samples.manifest.CopyFrom(self._upload_bytes(manifest.SerializeToString(deterministic=True), "manifest"))

    def _fill_model(self, model: Any, path: pathlib.Path, external_data: Iterable[Path]) -> None:
        """Fills a quench.importer.v1.Model; uploads the files that it names."""
        model.file.CopyFrom(self.gateway.upload(path))
        model.name = path.name
        beside = {os.path.relpath(file, path.parent): pathlib.Path(file) for file in external_data}
        beside.update({name: path.parent / name for name in _files_beside(path) if name not in beside})
        for name, file in sorted(beside.items()):
            model.external_data.add(path=name, digest=self.gateway.upload(file))


def _numbers(what: str, given: Any) -> np.ndarray[Any, Any]:
    """An array of finite numbers."""
    try:
        array = np.asarray(given)
    except ValueError as problem:
        raise InputError(f"{what}: it is not an array: {problem}") from problem
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what}: it is of {array.dtype}, which are not numbers")
    if array.size == 0:
        raise InputError(f"{what}: it has the shape {array.shape}, there are no samples in it")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{what}: {np.isnan(array).sum()} NaN and {np.isinf(array).sum()} infinite of {array.size} elements")
    return array


def _by_name(sample: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """The arrays of a sample by the inputs' names."""
    if isinstance(sample, Mapping):
        return sample
    arrays = list(sample) if isinstance(sample, (list, tuple)) else [sample]
    if not names:
        raise InputError("samples one by one are dicts by the names of inputs here")
    if len(arrays) != len(names):
        raise InputError(f"a sample has {len(arrays)} arrays, the model takes {len(names)}: {', '.join(f'`{name}`' for name in names)}")
    return dict(zip(names, arrays))


def _files_beside(path: pathlib.Path) -> set[str]:
    """Files beside an ONNX model that hold its weights; missing ones are left to the importer's error."""
    if path.suffix != ".onnx" or path.stat().st_size > SEARCHED_BYTES:
        return set()
    found: set[str] = set()
    try:
        graphs = [message("quench.onnx.v1.ModelProto").FromString(path.read_bytes()).graph]
    except Exception:  # no model, which the importer says better
        return set()
    while graphs:
        graph = graphs.pop()
        tensors = list(graph.initializer)
        for node in graph.node:
            for attribute in node.attribute:
                tensors += [attribute.t, *attribute.tensors]
                graphs += [each for each in (attribute.g, *attribute.graphs) if each.ByteSize()]
        found.update(entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location")
    return {name for name in found if (path.parent / name).is_file()}
