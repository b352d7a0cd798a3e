#!/usr/bin/env python3
"""Wheel and Debian package in bare Debian roots: the first hour of docs/installing.md, typed as it stands there.

Usage: install_test.py BUILD_DIR
BUILD_DIR has bin/quench-remote, bin/quench-serve and the runtime. Roots are made by debootstrap as this machine's user root, from the
archive that its apt uses, and kept in build/install-roots: each test has a copy. Ends with 77 (skipped) where that is not possible.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
ROOTS = ROOT / "build/install-roots"
PAGE = ROOT / "docs/installing.md"
MAX_WHEEL_BYTES = 120_000_000
# In a folder of examples. Wheel and package bring a libcrypto of their own, beside that of Debian.
ENCRYPTED = ("echo word >word; quench compile digits.onnx --output sealed --encrypt --password-file word;"
             "quench run sealed/model.so --random 1 --key sealed/modelKey.bin --password-file word --output sealed; ls sealed")
PATIENCE = 1200  # seconds, for each command
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def said(*words, **options):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=PATIENCE, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def archive():
    """Where this machine's apt has Debian's main archive from."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(RELEASE) $(ORIGIN) $(REPO_URI)"], capture_output=True, text=True)
    found = [line.split()[-1] for line in listed.stdout.splitlines() if line.split()[0] in ("bookworm", "trixie") and " Debian " in line]
    return found[0] if found else None


def make_root(suite):
    """The folder of a root with Python's venv and nothing else, or why there is none."""
    root = ROOTS / suite
    if (root / ".made").exists():
        return root, ""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", "--include=python3-venv,ca-certificates", suite, str(root), archive()],
                          capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        return None, (done.stdout + done.stderr).strip().splitlines()[-1]
    # Settings by which this machine reaches registries.
    for file in (pathlib.Path("/etc/resolv.conf"), pathlib.Path("/etc/pip.conf"), CERTIFICATES):
        if file.exists():
            shutil.copy(file, root / file.relative_to("/"))
    (root / "etc/apt/apt.conf.d/99of-the-host").write_text(said("apt-config", "dump", "--format", "%F \"%v\";%n", "Acquire"))
    (root / ".made").touch()
    return root, ""


class Root:
    """A copy of a bare root, in which scripts run as root with a network, /proc and /dev."""

    def __init__(self, test, suite):
        made, reason = make_root(suite)
        if made is None:
            test.skipTest(f"no {suite} root can be made: {reason}")
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"quench-{suite}-"))
        test.addCleanup(shutil.rmtree, folder)
        self.path = folder / "root"
        said("cp", "-a", "--reflink=auto", made, self.path)
        self.home = self.path / "root"

    def run(self, script):
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-ec",
                 'mount --rbind /dev "$1/dev"; mount -t proc proc "$1/proc"; exec chroot "$1" bash -euc "cd /root; $2"', "_", self.path, script]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
        return said(*words, env=environment)


def first_hour():
    return "".join(re.findall(r"^```sh hour\n(.*?)^```$", PAGE.read_text(), re.M | re.S))


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = pathlib.Path(tempfile.mkdtemp(prefix="quench-install-"))
        cls.addClassCleanup(shutil.rmtree, work)
        cls.wheel = pathlib.Path(said(ROOT / "scripts/build_wheel", "--programs", BUILD / "bin", work).split()[-1])
        cls.deb = pathlib.Path(said(ROOT / "scripts/build_deb", "--wheel", cls.wheel, "--build", BUILD, work).split()[-1])

    def test_sizes(self):
        self.assertLessEqual(self.wheel.stat().st_size, MAX_WHEEL_BYTES)
        print(f"{self.wheel.name}: {self.wheel.stat().st_size / 1e6:.1f} MB; {self.deb.name}: {self.deb.stat().st_size / 1e6:.1f} MB")

    def hour(self, suite):
        root = Root(self, suite)
        shutil.copy(self.wheel, root.home)
        printed = root.run(f"apt-get update -q >/dev/null; {first_hour()}")
        version = re.search(r"^project\(quench VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
        self.assertIn(f"\n{version}\n", printed)
        self.assertRegex(printed, r"best of logits\n +\S+ +class 9\n")
        self.assertIn("samples/0_is_9.png: this is a 9", printed)
        self.assertIn("logits: f32[1, 10] = ", printed)  # from qemu
        examples = root.home / "examples"
        self.assertIn("<html", (examples / "report.html").read_text()[:1000].lower())
        self.assertLess((examples / "small/model.so").stat().st_size, (examples / "out/model.so").stat().st_size)
        made = sorted(str(path.relative_to(examples / "libraries")) for path in (examples / "libraries").rglob("model.so"))
        self.assertEqual(sorted(f"{model}/plain/{target}/model.so" for model in ("digits", "features", "int8")
                                for target in ("x86-64", "aarch64", "raspberry-pi/5")), made)
        again = root.run(". venv/bin/activate; cd examples; python -m quench compile digits.onnx --images unit --output again;"
                         f"cmp out/model.so again/model.so; {ENCRYPTED}; python python/batch.py batch digits.onnx")
        self.assertIn("logits.npy", again)
        self.assertIn("batch/digits/float/raspberry-pi/5/model.so", again)

    def test_first_hour_on_debian_12(self):
        self.hour("bookworm")

    def test_first_hour_on_debian_13(self):
        self.hour("trixie")

    def package(self, suite):
        root = Root(self, suite)
        shutil.copy(self.deb, root.home)
        shutil.copytree(ROOT / "examples", root.home / "examples", ignore=shutil.ignore_patterns("clients"))
        before = root.run("find /usr /etc -xdev -path '*quench*'")
        self.assertEqual("", before)
        printed = root.run(
            "apt-get update -q >/dev/null; apt-get install -y --no-install-recommends ./quench_*.deb gcc libc6-dev pkg-config >/dev/null;"
            "quench --version; cd examples; quench compile digits.onnx --output out; quench run out/model.so --random 1 --output out;"
            f"{ENCRYPTED}; gcc c/demo.c $(pkg-config --cflags --libs quench_rt) -o demo; ./demo out/model.so;"
            "quench serve & until quench serve --health; do sleep 0.2; done; workflow/run libraries; kill $!;"
            "apt-get purge -y quench >/dev/null; find /usr /etc -xdev -path '*quench*'; echo purged")
        self.assertIn("logits: f32[1, 10] = ", printed)
        self.assertIn("logits.npy", printed)
        self.assertIn("int8/plain/aarch64/model.so", printed)
        self.assertNotRegex(printed, r"(?m)^/(usr|etc)/.*quench")

    def test_package_on_debian_12(self):
        self.package("bookworm")

    def test_package_on_debian_13(self):
        self.package("trixie")


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("only root makes roots")
    if shutil.which("debootstrap") is None:
        skip("debootstrap is not installed")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        skip("this machine makes no namespaces")
    if archive() is None:
        skip("apt knows no archive of Debian")
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
