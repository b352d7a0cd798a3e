#!/usr/bin/python3
"""The Python engine on libraries that `quench` compiles: engine_test.py QUENCH.

Ends with 77 (skipped) where numpy or cffi are missing.
"""

import importlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
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
SUMS = """quench.ir 1
module "sums" canonical {
  meta "state.total" = "next"
  meta "state_initial.total" = "10"
  input %x: f32[2]
  input %total: f32[2]
  %y = Add(%x, %total)
  %next = Add(%total, %x)
  output %y
  output %next
}
"""
GATHER = """quench.ir 1
module "gather" canonical {
  input %i: i64[2]
  const %table: f32[3] = [1.0, 2.0, 3.0]
  %y = Gather(%table, %i)
  output %y
}
"""
TWO = """quench.ir 1
module "two" canonical {
  symbol n = input(0, 0)
  symbol m = input(1, 0)
  input %a: f32[n]
  input %b: f32[m]
  %y = Relu(%a)
  %z = Relu(%b)
  output %y
  output %z
}
"""
PICKED = """quench.ir 1
module "picked" canonical {
  meta "state.total" = "next"
  input %i: i64[2]
  input %total: f32[2]
  const %table: f32[3] = [1.0, 2.0, 3.0]
  %y = Gather(%table, %i)
  %next = Add(%total, %y)
  output %y
  output %next
}
"""
TOTAL = """quench.ir 1
module "total" canonical {
  symbol n = input(0, 0)
  input %x: f32[n]
  %y = ReduceSum(%x) {keepdims = 0}
  output %y
}
"""
# A GPU that the CPU stands for, built beside QUENCH.
DRIVER = pathlib.Path(QUENCH).resolve().parent.parent / "common/runtime/device/emulated/libquench_emulated_cuda.so"
os.environ.setdefault("QUENCH_CUDA_DRIVER", str(DRIVER))
PASSWORD = "correct horse"


def build(name, model, *options):
    folder = FOLDER / name
    path = model
    if isinstance(model, str):
        path = FOLDER / f"{name}.ir.txt"
        path.write_text(model)
    subprocess.run([QUENCH, "compile", path, "--output", folder, *options], check=True, capture_output=True)
    return folder / "model.so"


class Foreign:
    """Memory of another device, as DLPack tells of it."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        raise AssertionError("it must not be asked for its memory")


class Mute:
    """An array whose library cannot say where it lies."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        raise RuntimeError("out of order")

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


class Lent:
    """Any other library's array."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


class Withheld(Lent):
    """An array whose library does not give it away, as torch's that need a gradient."""

    def __dlpack__(self, **_):
        raise RuntimeError("a gradient is needed")


class EngineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.digits = build("digits", ROOT / "bench/models/digits.onnx")
        cls.samples = np.load(ROOT / "bench/models/digits_sample.npy")

    def test_runs_at_any_batch_and_describes_itself(self):
        with quench.Engine(self.digits) as engine:
            self.assertEqual(engine.inputs[0].shape, ("batch", 1, 8, 8))
            self.assertEqual(engine.outputs[0].dtype, np.float32)
            self.assertEqual(engine.metadata["fingerprint"], engine.fingerprint)
            self.assertIn(engine.uuid, repr(engine))
            logits, = engine.infer(self.samples)
            for i in range(len(self.samples)):
                one = engine.infer({"image": self.samples[i:i + 1]}, named=True)
                np.testing.assert_allclose(one["logits"], logits[i:i + 1], rtol=1e-5, atol=1e-5)

    def test_arrays_that_were_returned_are_the_callers(self):
        engine = quench.Engine(self.digits)
        first, = engine.infer(self.samples)
        copy = first.copy()
        engine.infer(np.zeros_like(self.samples))
        engine.close()
        np.testing.assert_array_equal(first, copy)

    def test_any_layout_and_any_library_of_arrays(self):
        with quench.Engine(self.digits) as engine:
            expected, = engine.infer(self.samples)
            for array in (np.asfortranarray(self.samples), self.samples[::-1][::-1], Lent(self.samples),
                          self.samples.tolist()):
                np.testing.assert_array_equal(engine.infer(array)[0], expected)
            strided = np.zeros((8, 1, 8, 16), np.float32)
            strided[..., ::2] = self.samples
            np.testing.assert_array_equal(engine.infer(strided[..., ::2])[0], expected)
            self.assertEqual(len(np.from_dlpack(engine.infer(self.samples)[0])), 8)

    def test_wrong_inputs_are_named(self):
        with quench.Engine(self.digits) as engine:
            for wrong, words in ((self.samples.astype(np.float64), "dtype is float64, the model takes float32"),
                                 (self.samples.astype(">f4"), "order of another machine"),
                                 (self.samples[0], "shape is [1, 8, 8], the model takes [batch, 1, 8, 8]"),
                                 (self.samples[:, :, :4], "dim 2 is 4, the model takes 8"),
                                 ({"picture": self.samples}, "no input `picture`; input `image` is missing"),
                                 ({}, "input `image` is missing"),
                                 ("cat.png", "a str is not an array"),
                                 (Foreign(), "device 2:0, neither in this machine's memory"), (Mute(self.samples), "does not say where it lies: out of order")):
                with self.assertRaises(quench.InputError) as raised:
                    engine.infer(wrong)
                self.assertIn(words, str(raised.exception))
            with self.assertRaisesRegex(quench.InputError, "2 inputs are given, the model takes 1"):
                engine.infer(self.samples, self.samples)
            self.assertIsInstance(raised.exception, ValueError)
            self.assertEqual(engine.infer(self.samples)[0].shape, (8, 10))  # as if nothing had been

    def test_masks_are_not_forgotten(self):
        with quench.Engine(self.digits) as engine:
            expected, = engine.infer(self.samples)
            masked = np.ma.masked_array(self.samples, mask=False)
            np.testing.assert_array_equal(engine.infer(masked)[0], expected)
            masked[0, 0, 0, 0] = np.ma.masked
            with self.assertRaisesRegex(quench.InputError, "masked; array.filled"):
                engine.infer(masked)
            np.testing.assert_array_equal(engine.infer(masked.filled(self.samples[0, 0, 0, 0]))[0], expected)

    def test_threads_of_the_runs_to_come(self):
        with quench.Engine(self.digits) as engine:
            expected, = engine.infer(self.samples)
            self.assertEqual(engine.threads, 1)
            for threads in (4, 1, 2):
                engine.threads = threads
                self.assertEqual(engine.threads, threads)
                np.testing.assert_allclose(engine.infer(self.samples)[0], expected, atol=1e-5)
            with self.assertRaisesRegex(quench.InputError, "threads is 2000"):
                engine.threads = 2000

    def test_devices(self):
        for wrong in ("gpu", "cuda:", "cuda:x", "cpu\0", ""):
            with self.assertRaisesRegex(quench.InputError, "must be `cpu`, `cuda` or `cuda:N`"):
                quench.Engine(self.digits, device=wrong)
        with self.assertRaisesRegex(quench.LibraryError, "has no code for GPUs"):
            quench.Engine(self.digits, device="cuda")
        with quench.Engine(self.digits) as engine:
            self.assertEqual((engine.device, engine.device_name), ("cpu", ""))
        if not DRIVER.exists():
            self.skipTest("the emulated driver is not built")
        library = build("gpu", ROOT / "bench/models/digits.onnx", "--target", "cuda -arch=emulated -host=x86-64-v3")
        with self.assertRaisesRegex(quench.DeviceError, "there is no GPU 7"):
            quench.Engine(library, device="cuda:7")
        results = {}
        for device, expected in ((None, "cuda:0"), ("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cpu", "cpu")):
            with quench.Engine.from_bytes(library.read_bytes(), device=device) as engine:
                self.assertEqual(engine.device, expected)
                self.assertEqual(engine.device_name, "" if expected == "cpu" else "Quench emulated device")
                self.assertEqual(engine.variant, "x86-64-v3" if expected == "cpu" else "cuda-emulated")
                results[device], = engine.infer(self.samples)
        for found in results.values():
            np.testing.assert_allclose(found, results["cpu"], rtol=1e-5, atol=1e-4)

    def test_a_long_run_ends_at_an_interrupt(self):
        batch = np.zeros((100_000, 1, 8, 8), np.float32)
        with quench.Engine(self.digits) as engine:
            begun = threading.Event()
            signals = []

            def interrupt():
                begun.wait()
                while not signals:  # until one has come: the run may not have begun
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.05)

            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                with self.assertRaises(KeyboardInterrupt):
                    try:
                        begun.set()
                        for _ in range(1000):  # minutes
                            engine.infer(batch)
                    finally:
                        signals.append(1)
            finally:
                signals.append(1)
                thread.join()
            self.assertEqual(engine.infer(self.samples)[0].shape, (8, 10))  # as if nothing had been

    def test_closing_from_the_handler_of_a_signal(self):
        batch = np.zeros((20_000, 1, 8, 8), np.float32)
        engine = quench.Engine(self.digits)
        engine.infer(batch)
        before = signal.signal(signal.SIGALRM, lambda *_: engine.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(quench.ClosedError):
                for _ in range(10_000):
                    engine.infer(batch)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertFalse(engine._freed.alive)  # pylint: disable=protected-access

    def test_large_inputs_are_not_copied(self):
        script = """
import resource, sys
import numpy as np
import quench
engine = quench.Engine(sys.argv[1])
array = np.ones(25_000_000, np.float32)
engine.infer(array[:1000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert engine.infer(array)[0] == 25_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
        model = build("total", TOTAL)
        grown = int(subprocess.run([sys.executable, "-c", script, model], env={**os.environ, "PYTHONPATH": str(FOLDER / "site")},
                                   check=True, capture_output=True, text=True).stdout)
        self.assertLess(grown, 30_000)  # KB, of 97,656

    def test_states_go_from_run_to_run(self):
        ones = np.ones(2, np.float32)
        with quench.Engine(build("sums", SUMS)) as engine:
            self.assertEqual(engine.states, (quench.State("total", "next"),))
            self.assertEqual([engine.infer(ones)[0][0] for _ in range(3)], [11, 12, 13])
            given = engine.infer({"x": ones, "total": 100 * ones}, named=True, states=True)
            self.assertEqual(given["next"][0], 101)
            self.assertEqual(engine.infer(ones)[0][0], 102)
            engine.reset()
            self.assertEqual(engine.infer(ones)[0][0], 11)

    def test_names_in_any_order_have_their_own_shapes(self):
        with quench.Engine(build("two", TWO)) as engine:
            for a, b in ((2, 5), (5, 2)):
                for order in ("ab", "ba"):
                    arrays = {"a": np.ones(a, np.float32), "b": np.ones(b, np.float32)}
                    results = engine.infer({name: arrays[name] for name in order})
                    self.assertEqual([array.shape for array in results], [(a,), (b,)])

    def test_a_state_that_was_given_is_not_read_after_a_failed_run(self):
        ones = np.ones(2, np.float32)
        with quench.Engine(build("sums_failed", SUMS)) as engine:
            given = 1000 * ones
            with self.assertRaises(quench.InputError):
                engine.infer({"total": given, "x": np.ones(2)})
            given[:] = 7777
            self.assertEqual(engine.infer(ones)[0][0], 11)
        with quench.Engine(build("picked", PICKED)) as engine:
            given = 1000 * ones
            with self.assertRaises(quench.CheckError):
                engine.infer({"total": given, "i": np.array([0, 9])})
            given[:] = 7777
            self.assertEqual(engine.infer([0, 0], states=True)[1].tolist(), [1, 1])

    def test_nothing_becomes_another_number_silently(self):
        with quench.Engine(build("gather_lists", GATHER)) as engine:
            for wrong, words in (([1.7, 2.2], "float64 numbers"), (["a", "b"], "not an array"),
                                 ([[1, 2], [0]], "not an array"), ([2 ** 63, 0], "float64 numbers"),
                                 (Withheld(np.array([1, 2])), "a gradient is needed")):
                with self.assertRaises(quench.InputError) as raised:
                    engine.infer(wrong)
                self.assertIn(words, str(raised.exception))

    def test_data_that_break_a_rule_of_the_model(self):
        with quench.Engine(build("gather", GATHER)) as engine:
            self.assertEqual(engine.infer([2, 0])[0].tolist(), [3, 1])
            with self.assertRaises(quench.CheckError):
                engine.infer([0, 3])
            self.assertEqual(engine.infer([0, 1])[0].tolist(), [1, 2])

    def test_encrypted_libraries_need_their_key(self):
        (FOLDER / "password").write_text(PASSWORD)
        library = build("sealed", SUMS, "--encrypt", "--password-file", FOLDER / "password")
        key = library.parent / "modelKey.bin"
        with self.assertRaises(quench.EncryptedError):
            quench.Engine(library)
        with self.assertRaises(quench.EncryptedError):
            quench.Engine(library, key=key, password="battery staple")
        for nul in (PASSWORD + "\0x", "\0"):  # C's strings end there
            with self.assertRaisesRegex(quench.EncryptedError, "NUL"):
                quench.Engine(library, key=key, password=nul)
        with self.assertRaisesRegex(quench.EncryptedError, "`key`"):
            quench.Engine(library, password=PASSWORD)
        with quench.Engine(library, key=key, password=PASSWORD) as engine:
            self.assertEqual(engine.infer(np.ones(2, np.float32))[0][0], 11)

    def test_files_that_are_no_library_for_this_machine(self):
        for path, words in ((FOLDER / "absent.so", "absent.so"), (ROOT / "README.md", "README.md"),
                            (f"{self.digits}\0x", "NUL"),
                            (build("elsewhere", SUMS, "--target", "aarch64"), "aarch64")):
            with self.assertRaises(quench.LibraryError) as raised:
                quench.Engine(path)
            self.assertIn(words, str(raised.exception))
        with self.assertRaises(quench.LibraryError):
            quench.Engine.from_bytes(b"not a library")
        with quench.Engine.from_bytes(self.digits.read_bytes()) as engine:
            self.assertEqual(engine.infer(self.samples)[0].shape, (8, 10))

    def test_nothing_after_close(self):
        engine = quench.Engine(self.digits)
        engine.close()
        engine.close()
        for use in (lambda: engine.infer(self.samples), engine.reset, lambda: engine.name, engine.__enter__):
            with self.assertRaises(quench.ClosedError):
                use()
        self.assertIn("closed", repr(engine))

    def test_one_thread_at_a_time(self):
        batch = np.zeros((20000, 1, 8, 8), np.float32)
        with quench.Engine(self.digits) as engine:
            busy, resets, done = [], [], threading.Event()

            def run():
                while not done.is_set():
                    try:
                        engine.infer(batch)
                    except quench.BusyError:
                        busy.append(1)
                    try:
                        engine.reset()
                    except quench.BusyError:
                        resets.append(1)

            threads = [threading.Thread(target=run) for _ in range(2)]
            for thread in threads:
                thread.start()
            for _ in range(600):  # until both have met, 60 s at most
                if busy and resets:
                    break
                done.wait(0.1)
            done.set()
            for thread in threads:
                thread.join()
            self.assertTrue(busy, "the GIL is not released while a model runs")
            self.assertTrue(resets, "states are reset while a run reads them")
            self.assertEqual(engine.infer(batch[:1])[0].shape, (1, 10))

    def test_examples_of_the_page(self):
        page = (ROOT / "docs/python.md").read_text()
        examples = re.findall(r"^```python\n(.*?)^```", page, flags=re.S | re.M)
        self.assertGreater(len(examples), 2)
        work = FOLDER / "work"
        work.mkdir()
        (work / "out").symlink_to(self.digits.parent)
        here = os.getcwd()
        os.chdir(work)
        try:
            names = {}
            for example in examples:  # each goes on where the one before it ended
                exec(compile(example, "docs/python.md", "exec"), names)  # pylint: disable=exec-used
        finally:
            os.chdir(here)
        self.assertEqual(names["logits"].shape, (1, 10))

    def test_benchmark(self):
        with quench.Engine(self.digits, threads=1) as engine:
            found = engine.benchmark(seconds=0.05, sizes={"batch": 2})
            self.assertGreater(found.runs, 0)
            self.assertLessEqual(found.min_ms, found.median_ms)
            self.assertEqual(found.sizes, {"batch": 2})
            self.assertEqual(engine.benchmark(seconds=0.01).sizes, {"batch": 1})
            with self.assertRaisesRegex(quench.InputError, "`bacth`.*`batch`"):
                engine.benchmark(seconds=0.05, sizes={"bacth": 2})
        with self.assertRaises(quench.InputError):
            quench.Engine(self.digits, threads=0)

    def test_open_sizes_are_asked_for(self):
        choose = importlib.import_module("quench._sizes").choose_sizes
        bounds = {"batch": (1, 1 << 62), "height": (32, 1 << 62), "width": (8, 96), "2*n": (2, 64), "n": (1, 32)}
        with self.assertRaisesRegex(quench.InputError, r"`height`, `width` open.*sizes=\{'height': 224, 'width': 96\}"):
            choose([("batch", 3, "height", "width")], bounds, {})
        self.assertEqual(choose([("batch", 3, "height", "width")], bounds, {"height": 64, "width": 8}),
                         {"batch": 1, "height": 64, "width": 8})
        self.assertEqual(choose([("n", "2*n")], bounds, {}), {"n": 1, "2*n": 2})
        self.assertEqual(choose([("n", "2*n")], bounds, {"n": 5}), {"n": 5, "2*n": 10})
        half = {"n": (1, 32), "floordiv(n + 1, 2)": (1, 16)}
        self.assertEqual(choose([("floordiv(n + 1, 2)", "n")], half, {"n": 7}), {"n": 7, "floordiv(n + 1, 2)": 4})
        with self.assertRaisesRegex(quench.InputError, r"`k\*n` open"):
            choose([("n", "k*n")], {"n": (1, 32), "k*n": (1, 32)}, {"n": 5})
        with self.assertRaisesRegex(quench.InputError, "`height`"):
            choose([("height",)], bounds, {})

    def test_nothing_is_left_behind(self):
        def descriptors():
            return len(list(pathlib.Path("/proc/self/fd").iterdir()))

        before = descriptors()
        for _ in range(200):
            with quench.Engine(self.digits) as engine:
                engine.infer(self.samples[:1])
        self.assertEqual(descriptors(), before)


if __name__ == "__main__":
    try:
        subprocess.run([sys.executable, ROOT / "python/stage.py", FOLDER / "site"], check=True)
        sys.path.insert(0, str(FOLDER / "site"))
        import quench
        unittest.main(argv=sys.argv[:1] + [f"-k{pattern}" for pattern in os.environ.get("QUENCH_TEST_PATTERN", "").lower().split()], verbosity=2)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
