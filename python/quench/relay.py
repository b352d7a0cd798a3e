"""Forge's RelayModule: its names, with their meanings there. docs/python.md says where `quench.IR` differs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

from quench import loading
from quench._arrays import Array, as_array
from quench._facts import Facts
from quench._nodes import Text
from quench._steps import Path, Steps, Target, numpy_type, one_of
from quench._wording import near_names
from quench.errors import InputError
from quench.ir import IR, Samples

if TYPE_CHECKING:
    from typing_extensions import Self

    from quench.client import Client

# Forge's names of layouts, and those of compile().
LAYOUTS = {"NCHW": "first", "NHWC": "last"}


class RelayModule(IR):
    """An IR whose methods have Forge's defaults and order of arguments; each returns what IR's does, where Forge's returns None.

    mod: an IR, the text `ir.mod`, or what `quench.load` reads.
    params: arrays by the names of inputs that they are the weights for.
    inline_partitions: parts of a partitioned module are put back.
    fold_constants, fold_batch_norms: what depends on constants alone is computed now, not by `compile`; batch norms become part of
    the weights before them."""

    _KEPT = ("_layout", "_unfrozen")

    @near_names
    def __init__(self, mod: Union[IR, Text, Path, bytes, Any], params: Optional[Mapping[str, Any]] = None, inline_partitions: bool = False,
                 fold_constants: bool = True, fold_batch_norms: bool = True, *, client: Optional[Client] = None) -> None:
        ir = mod.module if isinstance(mod, Text) else mod
        if not isinstance(ir, IR):
            ir = loading.load(ir, client)
        elif client not in (None, ir._client):
            raise InputError("client is for models that are read, and this module is at a gateway already")
        super().__init__(ir._client, ir._module, ir.name)
        self._layout: Optional[str] = None  # the computation's, by compile()'s name
        self._unfrozen: tuple[str, ...] = ()
        self.__dict__.update(ir.copy().__dict__)
        if params:
            self._bind(params)
        if inline_partitions and self.partition_backends:
            self.inline_partitions()
        folds = {"fold_constants": fold_constants, "fold_batch_norms": fold_batch_norms}
        if any(folds.values()):
            self._fold([name for name, wanted in folds.items() if wanted])

    def _bind(self, params: Mapping[str, Any]) -> None:
        """Inputs become constants of these arrays."""
        types = {each.name: each.type for each in self.inputs}
        unknown = [name for name in params if name not in types]
        if unknown:
            raise InputError(f"params: there is no input `{unknown[0]}`, there are {', '.join(f'`{name}`' for name in types)}")
        files, lines = {}, []
        for i, (name, given) in enumerate(params.items()):
            dtype = numpy_type(types[name])
            files[f"{i}.npy"] = given if dtype is None else as_array(name, dtype, given)
            lines.append(f'constant %{loading.quoted(name)} = file "{i}.npy"')
        self.edit("\n".join(lines), files)
        self._unfrozen = tuple(params)

    def _fold(self, passes: Iterable[str]) -> None:
        if self.stage != "canonical":
            return
        steps = Steps(f"fold {self.name}")
        request = steps.add("transform")
        request.module.CopyFrom(self._module)
        request.passes.extend(passes)
        module = self._client._outputs(steps.spec, "transform")["module"].module
        if module.digest == self._module.digest:
            return
        if self._statistics is not None:
            raise InputError("the module is calibrated, and its statistics would not be those of what folding makes of it; "
                             "fold_constants=False, fold_batch_norms=False leaves it as it is")
        self._replace(module)
        self._unfrozen = ()

    # ---- models of other frameworks ----

    @classmethod
    def _of(cls, ir: IR, layout: Optional[str] = None) -> Self:
        made = cls(ir)
        made._layout = LAYOUTS[one_of("layout", layout, LAYOUTS)] if layout else None
        return made

    @classmethod
    def from_onnx(cls, model: Union[Path, bytes, Any], shape: Optional[Mapping[str, Any]] = None, dtype: Any = None,
                  opset: Optional[int] = None, freeze_params: bool = True, convert_config: Optional[Mapping[str, bool]] = None,
                  export_node_renamed_model_path: Optional[Path] = None, **options: Any) -> Self:
        """quench.from_onnx, folded. With freeze_params=False nothing is folded, and `params` has the weights."""
        ir = loading.from_onnx(model, shape, dtype, opset, True, convert_config, export_node_renamed_model_path, **options)
        if freeze_params:
            return cls._of(ir)
        made = cls(ir, fold_constants=False, fold_batch_norms=False)
        made._unfrozen = tuple(ir.weights)
        return made

    @classmethod
    def from_torch(cls, script_module: Any, input_infos: Any, custom_convert_map: Optional[Mapping[str, str]] = None,
                   default_type: Any = "float32", use_parser_friendly_name: bool = False, keep_quantized_weight: bool = False,
                   **options: Any) -> Self:
        """quench.from_torch, folded."""
        return cls._of(loading.from_torch(script_module, input_infos, custom_convert_map, default_type, use_parser_friendly_name,
                                          keep_quantized_weight, **options))

    @classmethod
    def from_tensorflow(cls, graph: Union[Path, bytes, Any], layout: Optional[str] = None, shape: Optional[Mapping[str, Any]] = None,
                        outputs: Iterable[str] = (), convert_config: Optional[Mapping[str, bool]] = None, **options: Any) -> Self:
        """quench.from_tensorflow, folded. layout: that of the computation, `compile`'s set_channel_layout where it is given none.
        Inputs and outputs stay as the model has them."""
        return cls._of(loading.from_tensorflow(graph, "", shape, outputs, convert_config, **options), layout)

    @classmethod
    def from_keras(cls, model: Union[Path, Any], shape: Optional[Mapping[str, Any]] = None, layout: str = "NCHW", **options: Any) -> Self:
        """quench.from_keras, folded. layout: the same as from_tensorflow's."""
        return cls._of(loading.from_keras(model, shape, **options), layout)

    @classmethod
    def from_tflite(cls, model: Union[Path, bytes, Any], shape_dict: Optional[Mapping[str, Any]] = None,
                    dtype_dict: Optional[Mapping[str, Any]] = None, **options: Any) -> Self:
        """quench.from_tflite, folded."""
        return cls._of(loading.from_tflite(model, shape_dict, dtype_dict, **options))

    # ---- what it is ----

    @property
    def params(self) -> dict[str, Array]:  # type: ignore[override]
        """Weights that are not frozen: those that freeze_params=False, or `params` without folding, left apart. `compile` freezes
        them."""
        weights = self.weights
        return {name: weights[name] for name in self._unfrozen if name in weights}

    def __eq__(self, other: object) -> bool:
        """Equal structures, whatever the weights."""
        return isinstance(other, Facts) and self.structure_hash == other.structure_hash

    __hash__ = IR.__hash__

    # ---- what is done to it ----

    @near_names
    def split_tensors(self, force: bool = False, *, parts: int = 2, least_gain: Optional[float] = 0) -> Self:
        """Every convolution that can be split is."""
        return super().split_tensors(force, parts=parts, least_gain=least_gain)

    @near_names
    def calibrate(self, calib_data: Samples, reset: bool = True, use_cuda: Optional[bool] = True, *,  # pyright: ignore
                  images: str = "", sizes: Optional[Mapping[str, int]] = None) -> Self:
        """`use_cuda` falls back to CPUs: True is IR.calibrate's None."""
        return super().calibrate(calib_data, reset, None if use_cuda else False, images=images, sizes=sizes)

    def quantize(self, activation_dtype: str = "int8", kernel_dtype: Optional[str] = None,
                 bias_dtype: Optional[str] = None, per_channel: bool = False, calib_method: str = "average", quant_type: str = "any",
                 **options: Any) -> Self:
        """Kernels and biases have the type of activations where they are given none; biases of 8 bits are int8 always, around 0.
        `options` are IR.quantize's."""
        if quant_type == "weights":
            calib_method = "" if calib_method == "average" else calib_method
        else:
            kernel_dtype, bias_dtype = kernel_dtype or activation_dtype, bias_dtype or activation_dtype
            bias_dtype = "int8" if bias_dtype == "uint8" else bias_dtype
        return super().quantize(activation_dtype, kernel_dtype, bias_dtype, per_channel, calib_method, quant_type, **options)

    # ---- what comes out ----

    def compile(self, target: Optional[Target] = "llvm", host: Optional[Target] = None,  # type: ignore[override]
                output_path: Optional[Path] = "./compile_output", opt_level: int = 3, set_float16: bool = False,
                set_channel_layout: Optional[str] = None, export_relay: bool = False, export_metadata: bool = False,
                force_overwrite: bool = False, uuid: Optional[str] = None, encrypt_password: Optional[str] = None,
                **options: Any) -> pathlib.Path:
        """Without a uuid the library gets a random one. export_relay is IR.compile's export_ir; `options` are IR.compile's."""
        return super().compile(target, host, "./compile_output" if output_path is None else output_path, opt_level, set_float16,
                               set_channel_layout or self._layout, options.pop("export_ir", False) or export_relay, export_metadata,
                               force_overwrite, uuid or "random", encrypt_password, **options)

    @near_names
    def get_inference_function(self, target: Optional[Target] = "llvm", *, named: bool = False,
                               device: Optional[str] = None) -> Callable[..., Any]:
        """Compiled, unless the target is None; runs here, on `device` as Engine takes it."""
        return super().get_inference_function(target, named=named, device=device)


IRModule = RelayModule
