#!/usr/bin/python3
"""Modules on a GPU, for which an emulated one stands: gpu_test.py QUENCH."""

import os
import pathlib
import sys
import unittest
import warnings
from unittest import mock

import staged

DRIVER = pathlib.Path(staged.QUENCH).parent.parent / "common/runtime/device/emulated/libquench_emulated_cuda.so"
if not DRIVER.exists():
    print("skipped: the emulated driver is not built")
    sys.exit(77)
os.environ["QUENCH_CUDA_DRIVER"] = str(DRIVER)

import numpy as np  # noqa: E402
import quench  # noqa: E402
from quench._gateway import message  # noqa: E402
from quench._results import output  # noqa: E402
from quench.relay import RelayModule  # noqa: E402


class GpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = quench.Client()
        cls.samples = np.load(staged.SAMPLES)
        cls.digits = cls.client.load(staged.DIGITS)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def test_functions_run_there(self):
        expected = self.digits.get_inference_function()(self.samples)
        for ir in (self.digits, RelayModule(self.digits)):
            for device in (None, "cuda", "cpu"):
                found = ir.get_inference_function("cuda", device=device)(self.samples)
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
        library = self.digits.compile("cuda", output_path=staged.FOLDER / "gpu")
        with quench.Engine(library) as engine:
            self.assertEqual((engine.device, engine.variant), ("cuda:0", "cuda-emulated"))

    def test_samples_run_there(self):
        devices = {None: "cuda:0", True: "cuda:0", False: "cpu"}
        for use_cuda, device in devices.items():
            ir = self.digits.copy().set_batch_size(1)
            gateway, done = self.client.gateway, []
            with warnings.catch_warnings(), mock.patch.object(gateway, "run", lambda spec, run=gateway.run: done.append(run(spec)) or done[-1]):
                warnings.simplefilter("error")
                ir.calibrate(self.samples, use_cuda=use_cuda)
            result = message("quench.quantizer.v1.CalibrateResult").FromString(
                gateway.read_bytes(output(done[-1], "calibrate", "result").digest))
            self.assertEqual(result.device.partition(" ")[0], device)
            self.assertTrue(ir.quantize(quant_type="static").is_quantized)


if __name__ == "__main__":
    staged.main()
