#!/usr/bin/python3
"""Arrays in a GPU's memory, and those that outputs are written to: device_arrays_test.py QUENCH.

The GPU is the emulated one, whose driver lends its memory through an object that speaks DLPack, as PyTorch's tensors do.
Ends with 77 (skipped) where numpy or cffi are missing.
"""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import cffi  # noqa: F401
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
QUENCH = sys.argv[1] if len(sys.argv) > 1 else "quench"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="quench-python-"))
DRIVER = pathlib.Path(QUENCH).resolve().parent.parent / "common/runtime/device/emulated/libquench_emulated_cuda.so"
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLPack's, by numpy's kind

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


class Tensor:
    """A copy of an array in the emulated GPU's memory, `offset` bytes into an allocation."""

    def __init__(self, array, offset=0, strides=None):
        self.driver = ctypes.CDLL(str(DRIVER))
        self.dtype, self.shape, self.strides, self.offset, self.streams = array.dtype, array.shape, strides, offset, []
        self.address = ctypes.c_uint64()
        context = ctypes.c_void_p()
        self.driver.cuInit(0)
        self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.driver.cuCtxPushCurrent_v2(context)
        assert self.driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(array.nbytes + offset)) == 0
        assert self.driver.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(self.address.value + offset), np.ascontiguousarray(array).ctypes.data_as(
            ctypes.c_void_p), ctypes.c_size_t(array.nbytes), None) == 0
        assert self.driver.cuStreamSynchronize(None) == 0

    def read(self):
        found = np.empty(self.shape, self.dtype)
        assert self.driver.cuMemcpyDtoHAsync_v2(found.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(self.address.value + self.offset),
                                                ctypes.c_size_t(found.nbytes), None) == 0
        assert self.driver.cuStreamSynchronize(None) == 0
        return found

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        sizes = ctypes.c_int64 * max(len(self.shape), 1)
        self.sizes = sizes(*self.shape)
        self.steps = sizes(*self.strides) if self.strides else None
        self.tensor = DLTensor(self.address.value, 2, 0, len(self.shape), CODES[self.dtype.kind], 8 * self.dtype.itemsize, 1, self.sizes,
                               self.steps, self.offset, None, None)
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


class DeviceArrays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([QUENCH, "compile", ROOT / "bench/models/digits.onnx", "--output", FOLDER / "gpu", "--target",
                        "cuda -arch=emulated -host=x86-64-v3"], check=True, capture_output=True)
        cls.library = FOLDER / "gpu/model.so"
        cls.samples = np.random.default_rng(1).standard_normal((8, 1, 8, 8)).astype(np.float32)
        with quench.Engine(cls.library, device="cpu") as engine:
            cls.expected, = engine.infer(cls.samples)
            cls.name = engine.outputs[0].name

    def close(self, found, expected):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)

    def test_arrays_are_read_and_written_where_they_lie(self):
        with quench.Engine(self.library, device="cuda") as engine:
            image, logits = Tensor(self.samples), Tensor(np.zeros((8, 10), np.float32), offset=256)
            found = engine.infer(image, out={self.name: logits})
            self.assertIs(found[0], logits)
            self.close(logits.read(), self.expected)
            self.assertEqual(image.streams, logits.streams)  # its library orders what it does before the engine's stream
            self.assertNotIn(image.streams[0], (None, 0, 1, 2))
            self.close(engine.infer(image)[0], self.expected)  # an array of numpy again
            self.close(engine.infer(self.samples[:3])[0], self.expected[:3])
            own = np.zeros((8, 10), np.float32)
            self.assertIs(engine.infer({"image": image}, named=True, out={self.name: own})[self.name], own)
            self.close(own, self.expected)

    def test_the_stream_is_the_callers(self):
        driver = ctypes.CDLL(str(DRIVER))
        image, stream = Tensor(self.samples), ctypes.c_void_p()
        self.assertEqual(driver.cuStreamCreate(ctypes.byref(stream), 1), 0)
        with quench.Engine(self.library, device="cuda", stream=stream.value) as engine:
            self.close(engine.infer(image)[0], self.expected)
        self.assertEqual(image.streams, [stream.value])
        for wrong in ("stream", -1, 1 << 64, 1.0):
            with self.assertRaisesRegex(quench.InputError, "must be the address of a CUstream"):
                quench.Engine(self.library, device="cuda", stream=wrong)
        with self.assertRaises(quench.QuenchError):
            quench.Engine(self.library, device="cpu", stream=stream.value)

    def test_wrong_arrays_are_named(self):
        good = np.zeros((8, 10), np.float32)
        frozen = np.zeros((8, 10), np.float32)
        frozen.flags.writeable = False
        with quench.Engine(self.library, device="cuda") as engine:
            for value, out, words in (
                    (Tensor(self.samples.astype(np.float64)), None, "input `image`: dtype is float64, the model has float32"),
                    (Tensor(self.samples[0]), None, "shape is [1, 8, 8], the model takes [batch, 1, 8, 8]"),
                    (Tensor(self.samples[:, :, :4]), None, "dim 2 is 4, the model takes 8"),
                    (Tensor(self.samples, strides=(64, 64, 1, 8)), None, "not contiguous"),
                    (Tensor(self.samples, offset=4), None, "16"),
                    (self.samples, [good], "out is a list, must be a mapping"),
                    (self.samples, {"nothing": good}, f"no output `nothing`; it has `{self.name}`"),
                    (self.samples, {self.name: Tensor(good[:7])}, "shape is [7, 10], the run makes [8, 10]"),
                    (self.samples, {self.name: Tensor(good.astype(np.int32))}, "dtype is int32, the model has float32"),
                    (self.samples, {self.name: good[:7]}, "it is float32[7, 10], the run makes float32[8, 10]"),
                    (self.samples, {self.name: np.zeros((10, 8), np.float32).T}, "contiguous and writable"),
                    (self.samples, {self.name: frozen}, "contiguous and writable"),
                    (self.samples, {self.name: good.tolist()}, "a list is no array")):
                with self.assertRaises(quench.InputError, msg=words) as raised:
                    engine.infer(value, out=out)
                self.assertIn(words, str(raised.exception))
            self.close(engine.infer(self.samples)[0], self.expected)  # as if nothing had been
        with quench.Engine(self.library, device="cpu") as engine:
            with self.assertRaisesRegex(quench.InputError, "device 2:0, neither in this machine's memory"):
                engine.infer(Tensor(self.samples))
            with self.assertRaisesRegex(quench.InputError, "a Tensor is no array of numpy"):
                engine.infer(self.samples, out={self.name: Tensor(good)})
            self.assertIs(engine.infer(self.samples, out={self.name: good})[0], good)
            np.testing.assert_array_equal(good, self.expected)


if __name__ == "__main__":
    os.environ["QUENCH_CUDA_DRIVER"] = str(DRIVER)
    try:
        subprocess.run([sys.executable, ROOT / "python/stage.py", FOLDER / "site"], check=True)
        sys.path.insert(0, str(FOLDER / "site"))
        import quench
        unittest.main(argv=sys.argv[:1] + [f"-k{pattern}" for pattern in os.environ.get("QUENCH_TEST_PATTERN", "").lower().split()], verbosity=2)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
