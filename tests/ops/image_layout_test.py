#!/usr/bin/env python3
"""docker/: the five images' layouts, each in namespaces as compose.yaml would run it, compile a model together and drain.

Usage: image_layout_test.py BUILD_DIR
Skipped where the kernel lets this user make no namespaces; images are built and started where there is an engine (docker/compose.yaml).
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import image_layout
import support

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else support.ROOT / "build/asan").resolve()
DIGITS = support.ROOT / "bench/models/digits.onnx"
PATIENCE = 120  # seconds: sanitizers and busy machines
INSIDE, NO_NAMESPACES = "--inside", 78
DOCKERFILE = (support.DOCKER / "Dockerfile").read_text()


def command_of(word):
    return json.loads(re.search(rf"^{word} .*?(\[.*\])$", re.sub(r"\\\n", " ", DOCKERFILE), re.M)[1])


ENTRYPOINT, HEALTHCHECK = command_of("ENTRYPOINT") + command_of("CMD"), command_of("HEALTHCHECK")
STOPSIGNAL = signal.Signals[re.search(r"^STOPSIGNAL (\w+)$", DOCKERFILE, re.M)[1]]


def volumes_of(service, folder):
    """As compose.yaml mounts them: `blobs` is one for all."""
    volumes = {}
    for line in support.yaml.safe_load((support.DOCKER / "compose.yaml").read_text())["services"][service]["volumes"]:
        name, path = line.split(":")[:2]
        if not name.startswith("."):
            volumes[path] = folder / "volumes" / name
            volumes[path].mkdir(parents=True, exist_ok=True)
    return volumes


def healthy(images, folder):
    """Waits until each says so, by the image's HEALTHCHECK."""
    end = time.monotonic() + PATIENCE
    for name, (image, process) in images.items():
        with open(folder / f"{name}.health", "wb") as output:
            while image.start(HEALTHCHECK, output).wait(PATIENCE) != 0:
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"{name} does not serve:\n{(folder / f'{name}.log').read_text()}\n{(folder / f'{name}.health').read_text()}")
                time.sleep(0.2)


def inside(folder):
    """In a machine of their own: starts all, compiles, stops all; `folder` has what they said, and the library."""
    try:
        image_layout.enter_machine()
    except OSError as error:
        print(f"no namespaces: {error}")
        sys.exit(NO_NAMESPACES)
    hosts = "127.0.0.1 localhost " + " ".join(support.SERVICES) + "\n"
    images = {}
    for name in reversed(support.SERVICES):  # the gateway last
        image = image_layout.Image(folder / "roots" / name, BUILD / f"bin/quench-{name}", support.DOCKER / f"config/{name}.txtpb",
                                   volumes_of(name, folder), hosts)
        with open(folder / f"{name}.log", "wb") as output:
            images[name] = image, image.start(ENTRYPOINT, output)
    healthy(images, folder)
    subprocess.run([BUILD / "bin/quench", "compile", DIGITS, "--gateway", f"127.0.0.1:{support.SERVICES['gateway']}", "--output", folder / "there"],
                   check=True, timeout=PATIENCE, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")})
    codes = {}
    for name, (_, process) in reversed(images.items()):
        process.send_signal(STOPSIGNAL)
        codes[name] = process.wait(PATIENCE)
    (folder / "codes").write_text(json.dumps(codes))


class ImageLayout(unittest.TestCase):
    @unittest.skipUnless(image_layout.PIVOT_ROOT, "this architecture's pivot_root is not known here")
    def test_five_layouts_compile_a_model_together_and_drain(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="q")))
        outcome = subprocess.run([sys.executable, __file__, BUILD, INSIDE, folder], capture_output=True, text=True, timeout=4 * PATIENCE)
        if outcome.returncode == NO_NAMESPACES:
            self.skipTest(outcome.stdout.strip())
        self.assertEqual(0, outcome.returncode, outcome.stdout + outcome.stderr)
        self.assertEqual(dict.fromkeys(support.SERVICES, 0), json.loads((folder / "codes").read_text()))
        subprocess.run([BUILD / "bin/quench", "compile", DIGITS, "--output", folder / "here"], check=True, timeout=PATIENCE, capture_output=True,
                       env={**os.environ, "XDG_CACHE_HOME": str(folder / "here-cache")})
        self.assertEqual((folder / "here/model.so").read_bytes(), (folder / "there/model.so").read_bytes())
        for name in support.SERVICES:
            log = (folder / f"{name}.log").read_text()
            self.assertIn(f"{name} serves on ", log)
            if name != "gateway":  # the walls that a container's kernel must have, and those that Docker's filter takes
                self.assertIn("sandbox of steps: Landlock on, seccomp on, namespaces missing", log)


if __name__ == "__main__":
    if INSIDE in sys.argv:
        inside(pathlib.Path(sys.argv[3]))
    else:
        support.main("ops_image_layout")
