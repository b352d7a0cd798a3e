"""libquench_rt and the CUDA driver by their C interfaces, with numpy only: no other package need be there."""

import ctypes
import hashlib
import os

import numpy as np

# By ONNX's numbers. numpy has no bfloat16: its bits are uint16.
DTYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
          10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64, 16: np.uint16}
NUMBERS = {np.dtype(dtype).name: number for number, dtype in DTYPES.items() if number != 16}
INVALID, CHECK, CANCELLED, DEVICE = 5, 7, 8, 13  # QUENCH_RT_*
DRIVER = os.environ.get("QUENCH_CUDA_DRIVER") or "libcuda.so.1"
Pointer = ctypes.c_void_p


class Failure(Exception):
    """A code of the runtime, with its sentence."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


# ---- inputs, the same on every machine ----

def make_inputs(case, variation=0):
    """Arrays for a case's inputs. RandomState's stream is frozen, and nothing else is computed than sums and products."""
    random = np.random.RandomState(case["seed"] + variation)
    arrays = []
    for spec in case["inputs"]:
        if "values" in spec:
            arrays.append(np.array(spec["values"], spec["dtype"]).reshape(spec["shape"]))
            continue
        scaled = random.random_sample(spec["shape"]) * (spec["high"] - spec["low"]) + spec["low"]
        whole = np.dtype(spec["dtype"]).kind in "iub"
        arrays.append(np.asarray(np.floor(scaled) if whole else scaled).astype(spec["dtype"]))
    return arrays


def digest(arrays):
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def difference(result, reference):
    """The largest absolute difference over the largest magnitude; infinite where shapes, NaNs or infinities differ."""
    if result.shape != reference.shape:
        return float("inf")
    a, b = result.astype(np.float64).ravel(), reference.astype(np.float64).ravel()
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(a - b)[finite].max() / (np.abs(b[finite]).max() or 1))


def unequal(result, reference):
    """How many values have other bits; all of them where dtypes or shapes differ."""
    if same_bits(result, reference):
        return 0
    if result.shape != reference.shape or result.dtype != reference.dtype:
        return max(reference.size, 1)
    bits = [np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, -1) for array in (result, reference)]
    return int((bits[0] != bits[1]).any(axis=1).sum())


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


# ---- libquench_rt ----

class Tensor(ctypes.Structure):
    _fields_ = [("data", Pointer), ("dims", ctypes.POINTER(ctypes.c_int64)), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("num_threads", ctypes.c_uint32), ("parallel_for", Pointer), ("user", Pointer),
                ("arena", Pointer), ("arena_bytes", ctypes.c_uint64), ("rng_seed", ctypes.c_uint64), ("device", ctypes.c_char_p),
                ("stream", Pointer)]


class Gpu(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("multiprocessors", ctypes.c_uint32), ("name", ctypes.c_char * 128),
                ("arch", ctypes.c_char * 16), ("memory", ctypes.c_uint64), ("features", ctypes.c_uint64),
                ("driver", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


class Node(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("name", ctypes.c_char_p), ("op", ctypes.c_char_p),
                ("kernel", ctypes.c_char_p)]


class Variant(ctypes.Structure):
    """As far as it is read here."""
    _fields_ = [("size", ctypes.c_uint32), ("num_slots", ctypes.c_uint32), ("cpu_features", ctypes.c_uint64),
                ("name", ctypes.c_char_p), ("num_nodes", ctypes.c_uint32), ("num_taps", ctypes.c_uint32),
                ("nodes", ctypes.POINTER(ctypes.POINTER(Node)))]


class Runtime:
    FUNCTIONS = {
        "open_file": (ctypes.c_char_p, Pointer), "close": (Pointer,), "find_gpu": (ctypes.c_uint32, Pointer),
        "session_create": (Pointer, Pointer, Pointer), "session_free": (Pointer,), "device": (Pointer,),
        "session_variant": (Pointer,), "set_input": (Pointer, ctypes.c_uint32, Pointer),
        "set_device_input": (Pointer, ctypes.c_uint32, Pointer),
        "set_device_output": (Pointer, ctypes.c_uint32, Pointer, ctypes.c_uint64), "plan": (Pointer,), "run": (Pointer,),
        "get_output": (Pointer, ctypes.c_uint32, Pointer), "cancel": (Pointer,), "profile": (Pointer, Pointer),
    }
    RESULTS = {"device": ctypes.c_char_p, "session_variant": ctypes.POINTER(Variant), "close": None, "session_free": None,
               "cancel": None}

    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))
        self._error = ctypes.create_string_buffer(1024)
        for name, arguments in self.FUNCTIONS.items():
            function = getattr(self._library, "quench_rt_" + name)
            fails = name not in self.RESULTS
            function.argtypes = (*arguments, Pointer) if fails else arguments
            function.restype = self.RESULTS.get(name, ctypes.c_int)
            setattr(self, name, self._checked(function) if fails else function)

    def _checked(self, function):
        def call(*arguments):
            code = function(*arguments, self._error)
            if code:
                raise Failure(code, self._error.value.decode("utf-8", "replace"))
        return call

    def gpu(self, index):
        """Facts about a GPU. Raises Failure if there is none."""
        found = Gpu(size=ctypes.sizeof(Gpu))
        self.find_gpu(index, ctypes.byref(found))
        return {"name": found.name.decode(), "arch": found.arch.decode(), "memory": found.memory,
                "multiprocessors": found.multiprocessors, "cuda": f"{found.driver // 1000}.{found.driver % 1000 // 10}"}


class Library:
    """A model library that is open; its sessions end before it does."""

    def __init__(self, runtime, path):
        self._runtime, self._model = runtime, Pointer()
        runtime.open_file(os.fsencode(path), ctypes.byref(self._model))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._runtime.close(self._model)

    def session(self, device, stream=None):
        return Session(self._runtime, self._model, device, stream)


class Session:
    def __init__(self, runtime, model, device, stream):
        self._runtime, self._kept, self._session = runtime, {}, Pointer()
        options = Options(size=ctypes.sizeof(Options), device=device.encode(), stream=stream)
        runtime.session_create(model, ctypes.byref(options), ctypes.byref(self._session))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._runtime.session_free(self._session)

    def _variant(self):
        return self._runtime.session_variant(self._session).contents

    @property
    def variant(self):
        return self._variant().name.decode()

    def _tensor(self, index, array, address):
        dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        tensor = Tensor(address, dims, NUMBERS[array.dtype.name], array.ndim)
        self._kept[index] = (array, dims)
        return ctypes.byref(tensor)

    def set_inputs(self, arrays):
        for index, array in enumerate(arrays):
            array = np.asarray(array, order="C")
            self._runtime.set_input(self._session, index, self._tensor(index, array, array.ctypes.data))

    def set_device_input(self, index, array, address):
        """`array` says dtype and shape."""
        self._runtime.set_device_input(self._session, index, self._tensor(index, array, address))

    def set_device_output(self, index, address, nbytes):
        self._runtime.set_device_output(self._session, index, address, nbytes)

    def run(self):
        self._runtime.run(self._session)

    def cancel(self):
        self._runtime.cancel(self._session)

    def output(self, index):
        """A copy."""
        tensor = Tensor()
        self._runtime.get_output(self._session, index, ctypes.byref(tensor))
        dtype, shape = np.dtype(DTYPES[tensor.dtype]), [tensor.dims[i] for i in range(tensor.rank)]
        count = int(np.prod(shape, dtype=np.int64))
        data = ctypes.string_at(tensor.data, count * dtype.itemsize) if count else b""
        return np.frombuffer(data, dtype).reshape(shape)

    def infer(self, arrays, num_outputs):
        self.set_inputs(arrays)
        self.run()
        return [self.output(index) for index in range(num_outputs)]

    def profile(self):
        """[(seconds, node, operator, kernel)] of one run, the longest first."""
        variant = self._variant()
        seconds = (ctypes.c_double * max(variant.num_nodes, 1))()
        self._runtime.profile(self._session, seconds)
        nodes = [variant.nodes[i].contents for i in range(variant.num_nodes)]
        found = [(seconds[i], n.name.decode(), n.op.decode(), n.kernel.decode()) for i, n in enumerate(nodes)]
        return sorted(found, reverse=True)


# ---- the driver ----

class Driver:
    """Memory and streams in the primary context of one device, which becomes current in the calling thread."""

    def __init__(self, index):
        self._cuda = ctypes.CDLL(DRIVER)
        device, self._context = ctypes.c_int(), Pointer()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), index)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._call("cuCtxPushCurrent_v2", self._context)

    def _call(self, name, *arguments):
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise Failure(DEVICE, f"{name}: the driver's error {code}")

    def allocate(self, nbytes):
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        return address.value

    def free(self, address):
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def stream(self):
        made = Pointer()
        self._call("cuStreamCreate", ctypes.byref(made), 1)  # CU_STREAM_NON_BLOCKING
        return made

    def end_stream(self, stream):
        self._call("cuStreamDestroy_v2", stream)

    def upload(self, address, array, stream=None):
        array = np.asarray(array, order="C")
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), Pointer(array.ctypes.data), ctypes.c_size_t(array.nbytes), stream)
        self._call("cuStreamSynchronize", stream)

    def download(self, address, like):
        array = np.empty_like(like)
        self._call("cuMemcpyDtoHAsync_v2", Pointer(array.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes), None)
        self._call("cuStreamSynchronize", None)
        return array


def count_gpus():
    """How many GPUs the driver knows; 0 without one."""
    try:
        cuda, count = ctypes.CDLL(DRIVER), ctypes.c_int()
    except OSError:
        return 0
    return count.value if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0
