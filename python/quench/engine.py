"""A compiled model, ready to run."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import statistics
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Optional, Union, overload

import numpy as np

from quench._arrays import Array, as_array
from quench._device_arrays import borrow, is_on_gpu
from quench._runtime import check, ffi, has, lib, text
from quench._sizes import choose_sizes
from quench._wording import near_names
from quench.errors import BusyError, ClosedError, EncryptedError, InputError, LibraryError

# Objects that each call needs, found once.
_from_buffer, _empty = ffi.from_buffer, np.empty
_set_input, _set_output, _run = lib.quench_rt_set_input, lib.quench_rt_set_output, lib.quench_rt_run

BUSY = "the engine is running in another thread: each thread needs one of its own"
# Shorter runs are not watched for Ctrl-C, which acts after them.
QUICK_SECONDS = 0.02

# By ONNX's numbers. numpy has no bfloat16: its bits are uint16.
_DTYPES: dict[int, Any] = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64,
    9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64, 16: np.uint16,
}


@dataclass(frozen=True)
class Quantization:
    """real = (stored - zero_point) * scale: one pair, or one for each index of `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: Optional[int]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output as the model declares it. A size that inputs decide has its name."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Union[int, str], ...]
    quantization: Optional[Quantization]


@dataclass(frozen=True)
class State:
    """Output `output` of a run is input `input` of the next, which the engine carries."""

    input: str
    output: str


@dataclass(frozen=True)
class Benchmark:
    """Milliseconds of a run."""

    median_ms: float
    min_ms: float
    p99_ms: float
    runs: int
    sizes: Mapping[str, int]  # of symbolic dims, those that were chosen too


class _Plan:
    """The plan for inputs of these shapes: outputs, whose shapes are None where only a run knows them, and states."""

    def __init__(self, shapes: list[tuple[int, ...]], elements: int,
                 outputs: list[tuple[int, Optional[tuple[int, ...]], np.dtype[Any]]]) -> None:
        self.shapes, self.elements = shapes, elements
        self.outputs = [(i, shape, dtype, math.prod(shape or ()) * dtype.itemsize) for i, shape, dtype in outputs]
        self.copies = any(shape is None for _, shape, _ in outputs)


def _dtype_of(number: int, name: str) -> np.dtype[Any]:
    if number not in _DTYPES:
        raise InputError(f"`{name}` is {text(lib.quench_rt_dtype_name(number))}, which numpy has no type for")
    dtype: np.dtype[Any] = np.dtype(_DTYPES[number])
    return dtype


def _describe(model: Any, info: Any) -> TensorInfo:
    name = text(info.name)
    shape: list[Union[int, str]] = []
    for i in range(info.rank):
        dim = info.dims[i]
        shape.append(dim.value if dim.value >= 0 else text(model.symbols[dim.symbol].name))
    quantization = None
    if info.quantization != ffi.NULL:
        pairs = info.quantization
        quantization = Quantization(tuple(pairs.scales[i] for i in range(pairs.count)),
                                    tuple(pairs.zero_points[i] for i in range(pairs.count)),
                                    pairs.axis if pairs.axis >= 0 else None)
    return TensorInfo(name, _dtype_of(info.dtype, name), tuple(shape), quantization)


def _path(path: Union[str, os.PathLike[str]]) -> bytes:
    found = os.fsencode(path)
    if b"\0" in found:
        raise LibraryError(f"the path {path!r} has a NUL character")
    return found


def _check_threads(count: int) -> None:
    if not 1 <= count <= 1024:
        raise InputError(f"threads is {count}, must be 1 to 1024")


def _device(name: str) -> bytes:
    if name not in ("cpu", "cuda") and not re.fullmatch("cuda:[0-9]+", name):
        raise InputError(f"device is {name!r}, must be `cpu`, `cuda` or `cuda:N`")
    return name.encode()


def _handle(stream: int) -> int:
    if not isinstance(stream, int) or isinstance(stream, bool) or not 0 <= stream < 1 << 64:
        raise InputError(f"stream is {stream!r}, must be the address of a CUstream, an int")
    return stream


def _free(session: Any, model: Any) -> None:
    lib.quench_rt_session_free(session)
    lib.quench_rt_close(model)


class Engine:
    """A compiled library, opened for one thread at a time.

    library: path of a shared library that `quench compile` made.
    key: for an encrypted one: its modelKey.bin, which `password` opens, or a file with an age identity.
    threads: of a run; None: as many as the library's target says, or one.
    device: where to run: "cpu", "cuda", or "cuda:1" for the second GPU. None: a GPU if the library has code for it and there is
    one, else the CPU.
    stream: a CUDA stream of the caller (a CUstream, as `torch.cuda.Stream().cuda_stream` is), to which runs add their work.

    Raises LibraryError, EncryptedError where a key is missing or wrong, and DeviceError where there is no such device.
    """

    @near_names
    def __init__(self, library: Union[str, os.PathLike[str]], key: Union[str, os.PathLike[str], None] = None,
                 password: Optional[str] = None, *, threads: Optional[int] = None, device: Optional[str] = None,
                 stream: Optional[int] = None) -> None:
        error = ffi.new("quench_rt_error*")
        out = ffi.new("quench_rt_model**")
        path = _path(library)
        if key is None:
            if password is not None:
                raise EncryptedError("a password opens a modelKey.bin, which `key` names: there is no `key`")
            check(lib.quench_rt_open_file(path, out, error), error)
        else:
            if password is not None and "\0" in password:
                raise EncryptedError("the password has a NUL character")
            secret = ffi.NULL if password is None else ffi.from_buffer(password.encode() + b"\0")
            check(lib.quench_rt_open_encrypted(path, _path(key), secret, out, error), error)
        self._start(out[0], threads, device, stream)

    @classmethod
    def from_bytes(cls, library: bytes, *, threads: Optional[int] = None, device: Optional[str] = None,
                   stream: Optional[int] = None) -> Engine:
        """The same from memory, which is not needed afterwards."""
        error = ffi.new("quench_rt_error*")
        out = ffi.new("quench_rt_model**")
        check(lib.quench_rt_open_memory(ffi.from_buffer(library), len(library), out, error), error)
        engine = cls.__new__(cls)
        engine._start(out[0], threads, device, stream)
        return engine

    def _start(self, model: Any, threads: Optional[int], device: Optional[str], stream: Optional[int]) -> None:
        self._model: Any = model
        self._session: Any = ffi.NULL
        self._about: Any = None
        self._freed: Any = weakref.finalize(self, _free, ffi.NULL, model)
        self._error = ffi.new("quench_rt_error*")
        self._lock = threading.Lock()
        self._quick = -1  # elements of inputs, up to which runs are known to be short
        about = lib.quench_rt_describe(model)
        self.inputs: tuple[TensorInfo, ...] = tuple(
            _describe(about, about.inputs[i]) for i in range(about.num_inputs))
        self.outputs: tuple[TensorInfo, ...] = tuple(
            _describe(about, about.outputs[i]) for i in range(about.num_outputs))
        count = about.num_states if has(about, "quench_model", "states") else 0
        pairs = [(about.states[i].input, about.states[i].output) for i in range(count)]
        self.states: tuple[State, ...] = tuple(
            State(self.inputs[i].name, self.outputs[o].name) for i, o in pairs)
        self._state_inputs = {i for i, _ in pairs}
        self._state_outputs = {o for _, o in pairs}
        self._index = {info.name: i for i, info in enumerate(self.inputs)}
        self._names = [(i, info.name) for i, info in enumerate(self.inputs) if i not in self._state_inputs]
        self._wanted = [i for i in range(len(self.inputs)) if i not in self._state_inputs]
        options = ffi.new("quench_rt_options*")
        options.size = ffi.sizeof("quench_rt_options")
        if threads is not None:
            _check_threads(threads)
            options.num_threads = threads
        wanted = ffi.NULL if device is None else ffi.new("char[]", _device(device))
        options.device = wanted
        options.stream = ffi.NULL if stream is None else ffi.cast("void*", _handle(stream))
        cores = int(about.num_cores) if has(about, "quench_model", "num_cores") else 0
        self._threads = threads or max(1, min(cores, lib.quench_rt_cpus()))
        out = ffi.new("quench_rt_session**")
        check(lib.quench_rt_session_create(model, options, out, self._error), self._error)
        self._freed.detach()
        self._session = out[0]
        self._freed = weakref.finalize(self, _free, out[0], model)  # before the interpreter goes, too
        self._about = about
        self._on_gpu = self.device != "cpu"
        # C API structures of each input and output, made once.
        self._tensors = [ffi.new("quench_rt_tensor*") for _ in range(max(len(self.inputs), 1))]
        self._dims = [ffi.new("int64_t[]", max(len(info.shape), 1)) for info in self.inputs]
        for i, info in enumerate(self.inputs):
            self._tensors[i].dims = self._dims[i]
            self._tensors[i].dtype = about.inputs[i].dtype
            self._tensors[i].rank = len(info.shape)
        self._output = ffi.new("quench_rt_tensor*")
        self._shapes: list[Optional[tuple[int, ...]]] = [None] * len(self.inputs)  # that `_dims` hold
        self._planned: Optional[_Plan] = None

    # ---- what it is ----

    @property
    def name(self) -> str:
        return text(self._open().name)

    @property
    def uuid(self) -> str:
        return text(self._open().uuid)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the graph with its weights: 64 hex digits."""
        return text(self._open().fingerprint)

    @property
    def variant(self) -> str:
        """The machine code that was chosen for this CPU, or GPU."""
        self._open()
        return text(lib.quench_rt_session_variant(self._session).name)

    @property
    def device(self) -> str:
        """Where it runs: "cpu", or "cuda:0"."""
        self._open()
        return text(lib.quench_rt_device(self._session)).partition(" ")[0]

    @property
    def device_name(self) -> str:
        """The GPU's name, or "" on the CPU."""
        self._open()
        return text(lib.quench_rt_device(self._session)).partition(" ")[2]

    @property
    def threads(self) -> int:
        """Number of threads for later runs, which may be set: 1 to 1024."""
        self._open()
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        _check_threads(count)
        with self._idle():
            check(lib.quench_rt_set_threads(self._session, count, self._error), self._error)
            self._threads = count

    @property
    def metadata(self) -> dict[str, Any]:
        """The library's description, as `quench inspect` prints it."""
        about = self._open()
        if not has(about, "quench_model", "description"):
            return {}
        found: dict[str, Any] = json.loads(text(about.description))
        return found

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of classes that were given to the compiler."""
        about = self._open()
        return tuple(text(about.labels[i]) for i in range(about.num_labels))

    # ---- running ----

    @overload
    def infer(self, *arrays: Any, named: Literal[False] = ..., states: bool = ..., out: Optional[Mapping[str, Any]] = ...) -> list[Array]: ...
    @overload
    def infer(self, *arrays: Any, named: Literal[True], states: bool = ..., out: Optional[Mapping[str, Any]] = ...) -> dict[str, Array]: ...
    def infer(self, *arrays: Any, named: bool = False, states: bool = False,
              out: Optional[Mapping[str, Any]] = None) -> Union[list[Array], dict[str, Array]]:
        """Runs the model once.

        arrays: one for each input in their order, states left out; or one mapping of names to arrays, in
        which states may be given. Arrays of numpy and of anything that speaks DLPack are used where they
        lie, unless they are not contiguous: those are copied. Lists and numbers become arrays. Where the engine
        is on a GPU, arrays in its memory (torch's, CuPy's) are read there.
        out: arrays by name of output, which the run writes: of numpy, or in the GPU's memory. They are contiguous and have
        the output's type and shape.

        Returns a list of arrays in the order of outputs, or with `named` a dict. Outputs that are states
        are left out unless `states` is set. The arrays are the caller's; those of `out` are the very objects.

        Raises InputError for what the model does not take, CheckError where the data broke a rule of the
        model, BusyError while another thread runs the engine.
        """
        try:
            if self._lock.locked():
                raise BusyError(BUSY)
            with self._lock:  # which no signal can come between
                self._open()
                results = self._infer(self._given(arrays), self._targets(out))
        finally:
            if self._about is None:  # closed meanwhile, or before
                self._finish()
        if not named and not self._state_outputs:
            return results
        shown = [i for i in range(len(results)) if states or i not in self._state_outputs]
        if named:
            return {self.outputs[i].name: results[i] for i in shown}
        return [results[i] for i in shown]

    def reset(self) -> None:
        """The next run begins with the model's initial states, as the first one did."""
        with self._idle():
            lib.quench_rt_reset_states(self._session)

    def benchmark(self, *, seconds: float = 1.0, sizes: Optional[Mapping[str, int]] = None,
                  seed: int = 1) -> Benchmark:
        """Times runs on random numbers. sizes: of symbolic dims by name; only that of a batch may be left out."""
        about = self._open()
        generator = np.random.default_rng(seed)
        bounds = {text(about.symbols[i].name): (int(about.symbols[i].min), int(about.symbols[i].max))
                  for i in range(about.num_symbols)}
        chosen = choose_sizes([self.inputs[i].shape for i in self._wanted], bounds, sizes or {})
        inputs = {}
        for i in self._wanted:
            info = self.inputs[i]
            shape = tuple(size if isinstance(size, int) else chosen[size] for size in info.shape)
            if info.dtype.kind == "f":
                inputs[info.name] = generator.standard_normal(shape).astype(info.dtype)
            else:
                inputs[info.name] = generator.integers(0, 2, shape).astype(info.dtype)
        times: list[float] = []
        self.infer(inputs)
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            self.infer(inputs)
            times.append(1e3 * (time.perf_counter() - start))
        times.sort()
        return Benchmark(statistics.median(times), times[0], times[int(0.99 * (len(times) - 1))], len(times), chosen)

    def close(self) -> None:
        """Frees the library and its memory, at the end of the run where one is in progress; arrays that were returned stay."""
        self._about = None
        self._finish()

    def _finish(self) -> None:
        """Frees what was closed, without waiting: a signal's handler closes in the middle of a run. The thread that holds the lock
        comes here after it."""
        if self._lock.acquire(blocking=False):
            try:
                self._freed()
            finally:
                self._lock.release()

    def __enter__(self) -> Engine:
        self._open()
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._about is None:
            return "<quench.Engine, closed>"
        return f"<quench.Engine {self.name} {self.uuid}, {self.variant}>"

    # ---- inside ----

    @contextlib.contextmanager
    def _idle(self) -> Iterator[None]:
        """The engine, open and with nobody running it."""
        if self._lock.locked():
            raise BusyError(BUSY)
        try:
            with self._lock:
                self._open()
                yield
        finally:
            if self._about is None:
                self._finish()

    def _open(self) -> Any:
        if self._about is None:
            raise ClosedError("the engine was closed")
        return self._about

    def _given(self, arrays: tuple[Any, ...]) -> list[tuple[int, Any]]:
        """Indices of inputs and their values, in order; all that are missing or unknown in one error."""
        if len(arrays) == 1 and type(arrays[0]) is dict and len(arrays[0]) == len(self._wanted):
            with contextlib.suppress(KeyError):
                return [(i, arrays[0][name]) for i, name in self._names]
        elif len(arrays) == len(self._wanted) and not isinstance(arrays[0] if arrays else None, Mapping):
            return list(zip(self._wanted, arrays))
        names = [self.inputs[i].name for i in self._wanted]
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            found = arrays[0]
            problems = [f"the model has no input `{name}`" for name in found if name not in self._index]
            problems += [f"input `{name}` is missing" for name in names if name not in found]
            if problems:
                raise InputError("; ".join(problems) + f"; it takes {', '.join(f'`{n}`' for n in names)}")
            return sorted(((self._index[name], value) for name, value in found.items()), key=lambda pair: pair[0])
        raise InputError(f"{len(arrays)} inputs are given, the model takes {len(names)}: "
                         f"{', '.join(f'`{n}`' for n in names)}")

    def _targets(self, out: Optional[Mapping[str, Any]]) -> dict[int, Any]:
        """Arrays for outputs by index; all names that are unknown in one error."""
        if out is None:
            return {}
        if not isinstance(out, Mapping):
            raise InputError(f"out is a {type(out).__name__}, must be a mapping of outputs' names to arrays")
        index = {info.name: i for i, info in enumerate(self.outputs)}
        unknown = [f"the model has no output `{name}`" for name in out if name not in index]
        if unknown:
            raise InputError("; ".join(unknown) + f"; it has {', '.join(f'`{name}`' for name in index)}")
        return {index[name]: value for name, value in out.items()}

    def _bind(self, index: int, value: Any) -> Any:
        """Hands an array to the session; what is returned must live until the run is over."""
        info = self.inputs[index]
        if self._on_gpu and type(value) is not np.ndarray and is_on_gpu(value):
            lent = borrow(f"input `{info.name}`", self._about.inputs[index].dtype, value, self._stream())
            self._shape(index, lent.shape)
            self._tensors[index].data = lent.data
            check(lib.quench_rt_set_device_input(self._session, index, self._tensors[index], self._error), self._error)
            return lent
        array = value if type(value) is np.ndarray else as_array(info.name, info.dtype, value)
        if array.dtype is not info.dtype and array.dtype != info.dtype:
            if array.dtype == info.dtype.newbyteorder():
                raise InputError(f"input `{info.name}`: the bytes of its numbers are in the order of another "
                                 f"machine ({array.dtype.str}); array.astype('{info.dtype.name}') turns them")
            raise InputError(f"input `{info.name}`: dtype is {array.dtype}, the model takes {info.dtype}")
        self._shape(index, array.shape)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        tensor = self._tensors[index]
        tensor.data = _from_buffer(array) if array.size else ffi.NULL
        code = _set_input(self._session, index, tensor, self._error)
        if code:
            check(code, self._error)
        return array

    def _shape(self, index: int, shape: tuple[int, ...]) -> None:
        """Writes the shape into the input's structure of the C API."""
        if shape == self._shapes[index]:
            return
        info = self.inputs[index]
        if len(shape) != len(info.shape):
            raise InputError(f"input `{info.name}`: shape is {list(shape)}, the model takes {self._shape_text(info)}")
        self._shapes[index] = None
        self._dims[index][0:len(shape)] = shape
        self._shapes[index] = shape

    def _stream(self) -> int:
        return int(ffi.cast("uintptr_t", lib.quench_rt_stream(self._session)))

    def _write_to(self, index: int, shape: Optional[tuple[int, ...]], nbytes: int, value: Any) -> Any:
        """Binds the caller's array to an output; what is returned must live until the run is over."""
        info = self.outputs[index]
        what = f"output `{info.name}`"
        if shape is None:
            raise InputError(f"{what}: only a run knows its size, or it is a state: it cannot be written to an array that is given")
        if self._on_gpu and is_on_gpu(value):
            lent = borrow(what, self._about.outputs[index].dtype, value, self._stream())
            if lent.shape != shape:
                raise InputError(f"{what}: shape is {list(lent.shape)}, the run makes {list(shape)}")
            check(lib.quench_rt_set_device_output(self._session, index, lent.data, nbytes, self._error), self._error)
            return lent
        if not isinstance(value, np.ndarray):
            raise InputError(f"{what}: a {type(value).__name__} is no array of numpy, and none in the memory of the engine's GPU")
        if value.dtype != info.dtype or value.shape != shape:
            raise InputError(f"{what}: it is {value.dtype}{list(value.shape)}, the run makes {info.dtype}{list(shape)}")
        if not value.flags.c_contiguous or not value.flags.writeable:
            raise InputError(f"{what}: the array must be contiguous and writable")
        check(lib.quench_rt_set_output(self._session, index, _from_buffer(value) if nbytes else ffi.NULL, nbytes, self._error), self._error)
        return value

    @staticmethod
    def _shape_text(info: TensorInfo) -> str:
        return f"[{', '.join(str(size) for size in info.shape)}]"

    def _infer(self, given: list[tuple[int, Any]], out: dict[int, Any]) -> list[Any]:
        if not self._state_inputs:
            return self._run([self._bind(i, value) for i, value in given], out)
        try:
            return self._run([self._bind(i, value) for i, value in given], out)
        finally:  # what was given was for this run, and may go with it
            for i in self._state_inputs.intersection(i for i, _ in given):
                lib.quench_rt_set_input(self._session, i, ffi.NULL, ffi.NULL)

    def _plan(self, shapes: list[tuple[int, ...]], elements: int) -> _Plan:
        session, error, output = self._session, self._error, self._output
        check(lib.quench_rt_plan(session, error), error)
        found: list[Optional[tuple[int, ...]]] = []
        for i in range(len(self.outputs)):
            check(lib.quench_rt_get_output(session, i, output, error), error)
            shape = tuple(output.dims[axis] for axis in range(output.rank))
            own = i in self._state_outputs or any(size < 0 for size in shape)
            if own:
                check(lib.quench_rt_set_output(session, i, ffi.NULL, 0, error), error)
            found.append(None if own else shape)
        self._planned = _Plan(shapes, elements, [(i, shape, self.outputs[i].dtype) for i, shape in enumerate(found)])
        return self._planned

    def _run(self, arrays: list[Any], out: dict[int, Any]) -> list[Any]:
        session, error = self._session, self._error
        plan = self._planned
        shapes = [array.shape for array in arrays]
        if plan is None or plan.shapes != shapes:
            plan = self._plan(shapes, sum(array.size for array in arrays))
        results: list[Any] = []
        lent: list[Any] = []
        for i, shape, dtype, nbytes in plan.outputs:
            if i in out:
                lent.append(self._write_to(i, shape, nbytes, out[i]))
                results.append(out[i])
                continue
            if shape is None:
                results.append(None)
                continue
            array = _empty(shape, dtype)
            results.append(array)
            code = _set_output(session, i, _from_buffer(array) if nbytes else ffi.NULL, nbytes, error)
            if code:
                check(code, error)
        # cffi releases the GIL meanwhile.
        code = _run(session, error) if plan.elements <= self._quick else self._run_watched(plan.elements)
        if code:
            check(code, error)
        if plan.copies:
            return [self._copied(i) if array is None else array for i, array in enumerate(results)]
        return results

    def _run_watched(self, elements: int) -> int:
        """A run that may be long: Ctrl-C, which the main thread gets, ends it between two nodes."""
        session, error = self._session, self._error
        if threading.current_thread() is not threading.main_thread():
            return int(lib.quench_rt_run(session, error))
        codes: list[int] = []
        abandoned: list[bool] = []
        gate = threading.Lock()
        start = time.monotonic()

        def run() -> None:
            with gate:
                if not abandoned:
                    codes.append(_run(session, error))

        thread = threading.Thread(target=run, name="quench run", daemon=True)
        try:
            thread.start()
            thread.join()
        finally:  # an interrupt may come before the thread has begun, and another one while the first waits here
            abandoned.append(True)
            idle = False
            while not idle:
                with contextlib.suppress(KeyboardInterrupt):
                    lib.quench_rt_cancel(session)
                    idle = gate.acquire(timeout=0.01)
        if time.monotonic() - start < QUICK_SECONDS:
            self._quick = max(self._quick, elements)
        return codes[0]

    def _copied(self, index: int) -> Array:
        check(lib.quench_rt_get_output(self._session, index, self._output, self._error), self._error)
        output = self._output
        shape = tuple(output.dims[axis] for axis in range(output.rank))
        array = np.empty(shape, self.outputs[index].dtype)
        if array.size:
            ffi.memmove(ffi.from_buffer(array, require_writable=True), output.data, array.nbytes)
        return array


if sys.byteorder != "little":  # as the libraries are
    raise ImportError("quench runs on little-endian machines")
