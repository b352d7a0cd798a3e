#!/usr/bin/env python3
"""One model, every kind of CPU: libraries that `quench compile --target` makes compute the same, under emulation.

Usage: boards_test.py BUILD_DIR [MODEL...]      models with one or more inputs, besides the digits network

Floats agree within 1e-5 of the largest value, models of integers bit for bit. Libraries for Android are loaded by
tests/unit/services/codegen/bare_loader.c, the others by the C library. metadata.json and `quench inspect` are held to
docs/metadata.schema.json.
"""

import array
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import support

try:
    import jsonschema
except ImportError:
    print("skipped: no jsonschema (Debian's package `python3-jsonschema`)")
    sys.exit(support.SKIPPED)

ROOT = support.ROOT
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
MODELS = [ROOT / "bench/models/digits.onnx", *map(pathlib.Path, sys.argv[2:])]
PATIENCE = 600  # seconds: sanitizers and busy machines
SCHEMA = json.loads((ROOT / "docs/metadata.schema.json").read_text())
CODES = {"f32": ("f", 4), "i8": ("b", 1), "u8": ("B", 1), "i32": ("i", 4), "i64": ("q", 8)}

SOFT = "arm-linux-gnueabi-gcc -march=armv7-a -mfpu=neon-vfpv4 -mfloat-abi=softfp"
# target -> compiler, emulator, its system's files
BOARDS = {
    "x86-64-v2": ("gcc", "qemu-x86_64", "/"),
    "i686": ("i686-linux-gnu-gcc", "qemu-i386", "/usr/i686-linux-gnu"),
    "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64", "/usr/aarch64-linux-gnu"),
    "raspberry-pi/5": ("aarch64-linux-gnu-gcc", "qemu-aarch64", "/usr/aarch64-linux-gnu"),
    "armv7": ("arm-linux-gnueabihf-gcc", "qemu-arm", "/usr/arm-linux-gnueabihf"),
    "armv7-softfp": (SOFT, "qemu-arm", "/usr/arm-linux-gnueabi"),
    "android/cpu": ("aarch64-linux-gnu-gcc", "qemu-aarch64", "/usr/aarch64-linux-gnu"),
    "android/armv7": (SOFT, "qemu-arm", "/usr/arm-linux-gnueabi"),
    "android/x86_64": ("gcc", "qemu-x86_64", "/"),
}


def execute(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def runner(compiler, folder):
    """The program that runs a library on tensors from files, built once for each compiler."""
    program = folder / ("run-" + compiler.split()[0])
    if not program.exists():
        sources = sorted([*(ROOT / "common/runtime").glob("*.c"), *(ROOT / "common/runtime/device").glob("*.c")])
        here = ROOT / "tests/unit/services/codegen"
        wrap = ["-Wl,--wrap=getauxval"] if compiler.startswith("arm") else []
        execute(*compiler.split(), "-std=c11", "-O1", f"-I{ROOT}", *sources, here / "run_files.c", here / "bare_loader.c",
                "-o", program, "-ldl", "-lpthread", *wrap)
    return program


def compile_for(model, target, output, *options):
    execute(BUILD / "bin/quench", "compile", model, "--target", target, "--output", output, "--force",
            "--export-metadata", *options)
    for text in ((output / "metadata.json").read_text(),
                 execute(BUILD / "bin/quench", "inspect", output / "model.so", "--format", "json")):
        jsonschema.validate(json.loads(text), SCHEMA)
    return json.loads(text)


def write_inputs(description, folder):
    """Numbers of which no two runs are alike but by the seed."""
    numbers = random.Random(7)
    for index, tensor in enumerate(description["inputs"]):
        dims = [dim if isinstance(dim, int) else 2 for dim in tensor["dims"]]
        code, _ = CODES[tensor["dtype"]]
        count = 1
        for dim in dims:
            count *= dim
        values = ([numbers.uniform(-1, 1) for _ in range(count)] if code == "f" else
                  [numbers.randrange(0, 100) for _ in range(count)])
        (folder / f"input_{index}").write_bytes(struct.pack(f"<{len(dims) + 1}q", len(dims), *dims) +
                                                array.array(code, values).tobytes())


def outputs(description, folder):
    """The bytes of each output, behind its dims."""
    result = []
    for index, tensor in enumerate(description["outputs"]):
        data = (folder / f"output_{index}").read_bytes()
        (rank,) = struct.unpack_from("<q", data)
        result.append((tensor["dtype"], data[8 * (rank + 1):]))
    return result


class BoardsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="boards"))
        self.addCleanup(shutil.rmtree, self.folder)
        # qemu-i386 7.2 never returns from atomic additions of 64 bits in two threads.
        self.threads = {"i686": 1}

    def run_on(self, target, description, library):
        compiler, emulator, system = BOARDS[target]
        program = runner(compiler, self.folder)
        bare = ["bare"] if target.startswith("android/") else []
        execute(emulator, "-L", system, program, library, self.threads.get(target, 2), self.folder, *bare)
        return outputs(description, self.folder)

    def compare(self, model, exact, *options):
        expected = None
        for target in BOARDS:
            description = compile_for(model, target, self.folder / "library", *options)
            if expected is None:
                write_inputs(description, self.folder)
            actual = self.run_on(target, description, self.folder / "library/model.so")
            expected = expected or actual
            for (dtype, left), (_, right) in zip(expected, actual, strict=True):
                with self.subTest(model=model.name, target=target, options=options):
                    if exact or dtype != "f32":
                        self.assertEqual(left, right)
                        continue
                    wanted, got = array.array("f", left), array.array("f", right)
                    self.assertGreater(len(wanted), 0)
                    limit = 1e-5 * max(abs(value) for value in wanted)
                    self.assertLessEqual(max(abs(a - b) for a, b in zip(wanted, got, strict=True)), limit)

    def test_floats_agree(self):
        for model in MODELS:
            self.compare(model, exact=False)

    def test_integers_are_equal_to_the_bit(self):
        for model in MODELS:
            self.compare(model, True, "--quantize", "int8", "--calibration-random", "4", "--type", "static")


if __name__ == "__main__":
    support.main("ops_boards")
