"""A module at a gateway, and what is done to it."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from quench._gateway import message
from quench._modules import module_bytes, upload_module
from quench._results import Results, output
from quench._steps import Path, Steps, fill_quantize_options, fill_sizes, fill_target, has_gpu, portable_target, real, whole
from quench._wording import near_names
from quench.errors import ArgumentError, InputError

if TYPE_CHECKING:
    from typing_extensions import Self

    from quench.client import Client

Tensor = np.ndarray[Any, Any]
Samples = Union[Path, Tensor, int, Iterable[Any]]


class IR(Results):
    """A module: a model that was read, and what has been done to it since. Methods change it, and return it.

    Names, types and nodes are those of `quench nodes --stage canonical`."""

    _KEPT: tuple[str, ...] = ()  # attributes of a class's own that a pickle has

    def __init__(self, client: Client, module: Any, name: str) -> None:
        super().__init__()
        self._client, self._module, self.name = client, module, name
        # Digest of what `calibrate` collected; the module that it is of, which went through the passes; the batch size set since.
        self._statistics: Any = None
        self._calibrated: Any = None
        self._batch = 0

    @property
    def is_calibrated(self) -> bool:
        return self._statistics is not None or super().is_calibrated

    def copy(self) -> Self:
        """A checkpoint: what is done to the one does not change the other."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._module = message("quench.step.v1.Module").FromString(self._module.SerializeToString())
        return other

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Weights and statistics travel; whoever unpickles it has it at its process's own gateway."""
        gateway = self._client.gateway
        statistics = None
        if self._statistics is not None:
            statistics = (gateway.read_bytes(self._statistics), module_bytes(gateway, self._calibrated), self._batch)
        kept = {name: self.__dict__[name] for name in ("name", *self._KEPT)}
        return _unpickled, (type(self), kept, module_bytes(gateway, self._module), statistics)

    # ---- what is done to it ----

    def _replace(self, module: Any) -> None:
        """Statistics are of the module that it was."""
        self._module.CopyFrom(module)
        self._forget()
        self._statistics = self._calibrated = None
        self._batch = 0

    def _become(self, field: str, fill: Callable[[Any], Any]) -> None:
        self._replace(self._run(field, fill)["module"].module)

    def _may_lose_statistics(self, force: bool) -> None:
        if self._statistics is not None and not force:
            raise InputError("the module is calibrated, and its statistics would not be those of what it becomes; "
                             "force=True gives them up, or quantize() first")

    def _at_batch(self, module: Any, size: int) -> Any:
        steps = Steps(f"transform {self.name}")
        request = steps.add("transform")
        request.module.CopyFrom(module)
        request.options.batch = size
        request.passes.append("set_batch_size")
        return self._client._outputs(steps.spec, "transform")["module"].module

    @near_names
    def set_batch_size(self, batch_size: int, force: bool = False) -> Self:
        """The first dim of every input. Statistics of a module that was calibrated still hold, since they are of values by name;
        where the passes made its old batch size part of the module, `force` gives them up."""
        whole("batch_size", batch_size, 1)
        module = self._at_batch(self._module, batch_size)
        if self._statistics is None or force:
            self._replace(module)
            return self
        try:
            self._at_batch(self._calibrated, batch_size)
        except ArgumentError as problem:
            raise InputError(f"the module is calibrated, and its statistics hold for its batch size alone ({problem}); "
                             "force=True gives them up, or quantize() first") from problem
        self._module.CopyFrom(module)
        self._forget()
        self._batch = batch_size
        return self

    @near_names
    def edit(self, script: str, files: Optional[Mapping[str, Tensor]] = None, *, force: bool = False) -> Self:
        """Statements of `quench edit`; `files` are the tensors that the script names. A module that was calibrated needs `force`: its
        statistics are given up."""
        self._may_lose_statistics(force)

        def fill(request: Any) -> None:
            request.script = script
            for name, tensor in (files or {}).items():
                request.files.add(file=name, tensor=self._client._upload_tensor(tensor))

        self._become("edit", fill)
        return self

    @near_names
    def partition(self, backend: str = "tensorrt", operators: Iterable[str] = (), *, min_nodes: int = 1, remove_stacks: bool = True,
                  simplify_batch_matmul: bool = True, simplify_scalar_add: bool = True, remove_no_mac_subgraphs: bool = True,
                  force: bool = False) -> Self:
        """Nodes that the backend runs become parts of the module. One that was calibrated needs `force`: its statistics are given up."""
        self._may_lose_statistics(force)

        def fill(request: Any) -> None:
            request.backend = backend
            request.operators.extend(operators)
            request.options.min_nodes = whole("min_nodes", min_nodes, 1)
            request.options.keep_stacks = not remove_stacks
            request.options.keep_batch_matmul = not simplify_batch_matmul
            request.options.keep_scalar_add = not simplify_scalar_add
            request.options.keep_no_mac_subgraphs = not remove_no_mac_subgraphs

        self._become("partition", fill)
        return self

    @near_names
    def partition_for_tensorrt(self, remove_stacks: bool = True, simplify_batch_matmul: bool = True, simplify_scalar_add: bool = True,
                               remove_no_mac_subgraphs: bool = True, *, force: bool = False) -> Self:
        """`partition` for TensorRT; a library that is made of the module runs the parts without TensorRT."""
        return self.partition("tensorrt", remove_stacks=remove_stacks, simplify_batch_matmul=simplify_batch_matmul,
                              simplify_scalar_add=simplify_scalar_add, remove_no_mac_subgraphs=remove_no_mac_subgraphs, force=force)

    @near_names
    def inline_partitions(self, *, force: bool = False) -> Self:
        """Parts are put back. A module that was calibrated needs `force`: its statistics are given up."""
        self._may_lose_statistics(force)

        def fill(request: Any) -> None:
            request.inline_parts = True

        self._become("partition", fill)
        return self

    @near_names
    def tile(self, m: int, n: int, k: int, samples: int = 20, *, force: bool = False) -> Self:
        """Products become products of matrices of at most these sizes. A module that was calibrated needs `force`: its statistics are
        given up."""
        self._may_lose_statistics(force)

        def fill(request: Any) -> None:
            limits = request.limits
            limits.m, limits.n, limits.k, request.samples = whole("m", m, 1), whole("n", n, 1), whole("k", k, 1), whole("samples", samples, 1)

        self._become("tile", fill)
        return self

    @near_names
    def split_tensors(self, force: bool = False, *, parts: int = 2, least_gain: Optional[float] = None) -> Self:
        """Convolutions whose channels have very uneven ranges are cut into `parts`; `least_gain`: bits that a channel must gain on
        average, 1 without it. Where none gains so much the module stays as it is, with a warning. A module that was calibrated needs
        `force`: its statistics are given up."""
        self._may_lose_statistics(force)
        whole("parts", parts, 2)
        steps = Steps(f"split {self.name}")
        steps.add("transform").module.CopyFrom(self._module)  # kernels have their final ranges after the passes
        request = steps.add("split_tensors", {"module": ("transform", "module")})
        request.parts = parts
        if least_gain is not None:
            request.least_gain = real("least_gain", least_gain)
        outputs = self._client._outputs(steps.spec, "split_tensors")
        result = message("quench.quantizer.v1.SplitTensorsResult").FromString(self._client.gateway.read_bytes(outputs["result"].digest))
        if not result.layers:
            bits = 1 if least_gain is None else least_gain
            gained = f"{bits:g} {'bit' if bits == 1 else 'bits'}"
            warnings.warn(f"no convolution was split: cut into {parts}, none gains {gained} a channel on average; "
                          "least_gain= says how many are worth it", stacklevel=3)
            return self
        self._replace(outputs["module"].module)
        return self

    @near_names
    def calibrate(self, data: Samples, reset: bool = True, use_cuda: Optional[bool] = None, *, images: str = "",
                  sizes: Optional[Mapping[str, int]] = None) -> Self:
        """Runs samples through the model and keeps the ranges of its values. `data`: a folder or file of samples, an array whose
        rows are samples, how many random ones, or samples one by one: an array, a list of arrays or a dict by the inputs' names.
        `sizes`, for random ones: what inputs decide. `reset=False` adds to earlier calls. Nothing else changes: the module computes
        what it did. `use_cuda`: samples run on a GPU of the gateway's quantizer; True warns where that has none, and a CPU runs them.
        None: if this machine has a GPU, without a warning."""
        if sizes and not isinstance(data, (int, np.integer)):
            raise InputError("sizes are those of random samples, and these have their own")
        adds = self._statistics is not None and not reset
        if adds and self._batch:
            raise InputError("the batch size changed since the module was calibrated; reset=True begins anew")
        steps = Steps(f"calibrate {self.name}")
        passes = steps.add("transform")
        passes.module.CopyFrom(self._module)
        build = steps.add("compile", {"module": ("transform", "module")})
        if has_gpu() if use_cuda is None else use_cuda:
            fill_target(build.target, "cuda", portable_target())
        else:
            build.target.name = portable_target()
        build.options.opt_level, build.options.taps = 2, True
        request = steps.add("calibrate", {"module": ("transform", "module"), "tap_library": ("compile", "library")})
        self._client._fill_samples(request.samples, data, images, [each["name"] for each in self.inputs])
        fill_sizes(request.samples.sizes, sizes)
        if adds:
            request.statistics.CopyFrom(self._statistics)
        if use_cuda is False:
            request.device = "cpu"
        done = self._client.gateway.run(steps.spec)
        self._statistics = output(done, "calibrate", "statistics").digest
        if use_cuda:
            result = message("quench.quantizer.v1.CalibrateResult").FromString(
                self._client.gateway.read_bytes(output(done, "calibrate", "result").digest))
            if not result.device.startswith("cuda"):
                warnings.warn("use_cuda: the gateway's quantizer has no GPU, a CPU ran the samples", stacklevel=3)
        self._calibrated = output(done, "transform", "module").module
        self._batch = 0
        return self

    @near_names
    def quantize(self, activation_dtype: str = "int8", kernel_dtype: Optional[str] = None, bias_dtype: Optional[str] = None,
                 per_channel: bool = True, calib_method: str = "", quant_type: str = "any", *, symmetric: bool = False,
                 power_of_two: bool = False, bias_correction: bool = False, percentile: Optional[float] = None,
                 include: Iterable[str] = (), exclude: Iterable[str] = (), block_size: Optional[int] = None) -> Self:
        """8-bit integers inside. `quant_type`: ranges are `static`, those of `calibrate`; `dynamic`, each run's own; `any`, those of
        `calibrate` where there are any; or only `weights` become integers. `calib_method`: how ranges are chosen, `average` without one.
        The rest is called as by `quench quantize`."""
        if self._statistics is None and quant_type == "static":
            raise InputError("the module is not calibrated: calibrate(data) first, or quant_type=\"dynamic\"")
        static = self._statistics is not None and quant_type in ("any", "static")
        steps = Steps(f"quantize {self.name}")
        if static:
            request = steps.add("quantize")
            request.module.CopyFrom(self._calibrated)
            request.statistics.CopyFrom(self._statistics)
        else:
            steps.add("transform").module.CopyFrom(self._module)
            request = steps.add("quantize", {"module": ("transform", "module")})
        fill_quantize_options(request.options, activation_dtype=activation_dtype, kernel_dtype=kernel_dtype, bias_dtype=bias_dtype,
                              per_channel=per_channel, calib_method=calib_method, quant_type=quant_type, symmetric=symmetric,
                              power_of_two=power_of_two, bias_correction=bias_correction, percentile=percentile, include=include,
                              exclude=exclude, block_size=block_size)
        last = "quantize"
        if static and self._batch:
            last = "transform"
            sized = steps.add(last, {"module": ("quantize", "module")})
            sized.options.batch = self._batch
            sized.passes.append("set_batch_size")
        self._replace(self._client._outputs(steps.spec, last)["module"].module)
        return self


def read_module(client: Client, path: pathlib.Path) -> IR:
    """Reads a module that `IR.save`, or a command, wrote."""
    steps = Steps(f"read {path.name}")
    request = steps.add("edit")
    request.module.CopyFrom(upload_module(client, path))
    request.script = "# as it is"
    name = path.name.removesuffix(".txt").removesuffix(".ir").removesuffix(".qir")
    return IR(client, client._outputs(steps.spec, "edit")["module"].module, name)


def _unpickled(kind: type[IR], kept: Mapping[str, Any], module: bytes, statistics: Optional[tuple[bytes, bytes, int]]) -> IR:
    from quench.loading import load

    read = load(module)
    ir = kind.__new__(kind)
    ir.__dict__.update(read.__dict__)
    ir.__dict__.update(kept)
    if statistics is not None:
        ir._statistics = ir._client._upload_bytes(statistics[0], "statistics")
        ir._calibrated, ir._batch = load(statistics[1], ir._client)._module, statistics[2]
    return ir
