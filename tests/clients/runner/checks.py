"""Checks for every client, whatever its language."""

import hashlib
import os
import pathlib
import re
import signal
import subprocess
import time

from runner import models

CLIENT_SECONDS = 120
TARGET = "x86-64-v3"


class Failed(Exception):
    """A client that did something else."""


class Gateway:
    """`quench-serve` with a state folder of its own."""

    def __init__(self, binaries, folder, config=None):
        self.program, self.folder, self.config, self.port, self.starts = binaries / "quench-serve", folder, config, 0, 0
        folder.mkdir()
        self.start()

    def start(self):
        """Again on the port that it had."""
        self.starts += 1
        log = self.folder / f"log{self.starts}"
        words = [self.program, "--listen", f"127.0.0.1:{self.port}", "--state-dir", self.folder / "state"]
        if self.config is not None:
            words += ["--config", self.config]
        with open(log, "wb") as output:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        deadline = time.monotonic() + 60
        while not (found := re.search(r"gateway serves on 127\.0\.0\.1:(\d+),", log.read_text(errors="replace"))):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise Failed(f"the gateway did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        self.port = int(found.group(1))

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed("the gateway did not end within 60 s of SIGTERM") from None
        if code != 0:
            raise Failed(f"the gateway ended with {code}")


class Checks:
    def __init__(self, language, command, binaries, folder):
        self.language, self.command, self.binaries, self.folder = language, command, binaries, folder
        self.runs = 0
        # Nothing of the environment sends calls elsewhere.
        self.environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}

    def model(self, seed):
        path = self.folder / f"model{seed}.onnx"
        models.write_model(path, f"{self.language} {seed}")
        return path

    def start(self, gateway, *words):
        self.runs += 1
        self.log = self.folder / f"client{self.runs}.log"
        with open(self.log, "wb") as output:
            return subprocess.Popen([*self.command, "--gateway", gateway.address, *words], stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=output, env=self.environment)

    def finish(self, process, code):
        """Returns its output."""
        try:
            found = process.wait(CLIENT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed(f"the client was not done after {CLIENT_SECONDS} s:\n{self.printed()}") from None
        if found != code:
            raise Failed(f"exit code {found}, should be {code}:\n{self.printed()}")
        return self.printed()

    def printed(self):
        return self.log.read_text(errors="replace")

    def client(self, gateway, *words, code=0):
        return self.finish(self.start(gateway, *words), code)

    def expect(self, text, *parts):
        for part in parts:
            if part not in text:
                raise Failed(f"the client should have printed `{part}`:\n{text}")

    def expect_reference(self, model, output, *options):
        """Checks that the client wrote what one process gives with these options, byte for byte."""
        reference = self.folder / f"{model.stem}-reference{len(options)}"
        if not reference.exists():
            words = [self.binaries / "quench", "compile", model, "--target", TARGET, "--output", reference, *options]
            done = subprocess.run(words, capture_output=True, text=True, env={**self.environment, "XDG_CACHE_HOME": str(self.folder / "cache")})
            if done.returncode != 0:
                raise Failed(f"`quench compile` ended with {done.returncode}:\n{done.stderr[-2000:]}")
        for name in ("model.so", "model.h"):
            if (output / name).read_bytes() != (reference / name).read_bytes():
                raise Failed(f"{name} is not what `quench compile` gives")
        if left := sorted(path.name for path in output.iterdir() if path.name not in ("model.so", "model.h")):
            raise Failed(f"the client left files behind: {', '.join(left)}")


def check_compile(checks, gateway):
    model = checks.model(1)
    size = model.stat().st_size
    output = checks.folder / "first"
    began = time.monotonic()
    text = checks.client(gateway, "--break-upload", model, output)
    checks.expect(text, f"upload resumes at {size // 2} of {size} bytes", f"model/default/{TARGET}/compile: succeeded")
    checks.expect_reference(model, output)
    return f"first {time.monotonic() - began:.1f} s"


def check_cached(checks, gateway):
    output = checks.folder / "second"
    began = time.monotonic()
    text = checks.client(gateway, checks.folder / "model1.onnx", output)
    seconds = time.monotonic() - began
    for step in ("import", "default/transform", f"default/{TARGET}/compile"):
        checks.expect(text, f"model/{step}: succeeded, cached")
    checks.expect_reference(checks.folder / "model1.onnx", output)
    return f"cached {seconds:.1f} s"


def check_errors(checks, gateway):
    model, output = checks.folder / "model1.onnx", checks.folder / "none"
    claimed = hashlib.sha256(b"something else").hexdigest()
    text = checks.client(gateway, "--sha256", claimed, model, output, code=1)
    checks.expect(text, "client: INVALID_ARGUMENT: ", f"blob `{claimed}` have the digest", "  reason: INVALID_REQUEST")
    text = checks.client(gateway, "--target", "x86-65", model, output, code=1)
    checks.expect(text, "client: INVALID_ARGUMENT: ", "unknown target `x86-65`, similar ones are", "  reason: INVALID_REQUEST")
    text = checks.client(gateway, "--target", "x86 65", model, output, code=1)
    checks.expect(text, "  reason: INVALID_REQUEST", "  field: spec.compile.targets[0].name: is `x86 65`, must be a name of ListTargets")
    if output.exists():
        raise Failed("a client that failed made an output folder")
    return "errors"


def check_restart(checks, gateway):
    """The gateway dies while the client watches, and comes back: the same workflow goes on."""
    for attempt in range(3):
        model = checks.model(f"restart{attempt}")
        output = checks.folder / f"restart{attempt}"
        process = checks.start(gateway, model, output)
        deadline = time.monotonic() + CLIENT_SECONDS
        while "model/import: " not in checks.printed() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        gateway.kill()
        gateway.start()
        text = checks.finish(process, 0)
        checks.expect_reference(model, output)
        # Where the workflow was done before the kill, only the downloads went on: another try.
        if found := re.search(r"watching again after revision (\d+)", text):
            if len(re.findall("^workflows/", text, re.MULTILINE)) != 1:
                raise Failed(f"the client made another workflow:\n{text}")
            return f"restart at revision {found.group(1)}"
    raise Failed(f"the gateway was never killed while the client watched:\n{text}")


def check_tls_and_token(checks, gateway):
    """TLS with an authority of our own, and a bearer token."""
    folder = checks.folder / "secure"
    certificate, key, tokens, token = (checks.folder / name for name in ("server.pem", "server.key", "tokens", "token"))
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
             "/CN=quench-test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"`openssl req` ended with {done.returncode}:\n{done.stderr[-2000:]}")
    token.write_text("correct horse\n")
    tokens.write_text(f"team-a {hashlib.sha256(b'correct horse').hexdigest()}\n")
    config = checks.folder / "secure.txtpb"
    config.write_text(f'gateway {{ server {{ token_file: "{tokens}" tls {{ certificate_file: "{certificate}" key_file: "{key}" }} }} }}\n')
    model, output = checks.folder / "model1.onnx", checks.folder / "third"
    with Gateway(checks.binaries, folder, config) as secure:
        checks.client(secure, "--ca", certificate, "--token-file", token, model, output)
        checks.expect_reference(model, output)
        text = checks.client(secure, "--ca", certificate, model, output, code=1)
        checks.expect(text, "client: UNAUTHENTICATED: ", "  reason: TOKEN_MISSING")
        token.write_text("wrong\n")
        text = checks.client(secure, "--ca", certificate, "--token-file", token, model, output, code=1)
        checks.expect(text, "client: UNAUTHENTICATED: ", "  reason: TOKEN_INVALID")
    return "TLS and token"


def check_quantize(checks, gateway):
    """Python only: integers, calibrated by the gateway on samples that the client uploads, as a file and as tensors."""
    model, output, samples = checks.model(1), checks.folder / "integers", checks.folder / "samples.npy"
    models.write_samples(samples, 8)
    for how in ([], ["--stream"]):
        text = checks.client(gateway, "--quantize", samples, *how, model, output)
        checks.expect(text, "model/default/calibrate", "model/default/quantize")
        checks.expect_reference(model, output, "--quantize", "int8", "--per-channel", "--calibration-data", samples)
    return "8-bit integers"


def check_coexistence(checks, _):
    """Python only: googleapis' own packages in the same process, before and after ours."""
    python, client = checks.command
    test = pathlib.Path(__file__).resolve().parent.parent / "coexistence_test.py"
    for first in ("ours", "theirs"):
        words = [python, test, pathlib.Path(client).with_name("gen"), first]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"coexistence_test.py {first}:\n{done.stdout}{done.stderr}")
    return "googleapis beside it"


def run_all(language, command, binaries, folder):
    checks = Checks(language, command, binaries, folder)
    todo = [check_compile, check_cached, check_errors, check_tls_and_token, check_restart]
    if language == "python":
        todo += [check_quantize, check_coexistence]
    with Gateway(binaries, folder / "plain") as gateway:
        return [check(checks, gateway) for check in todo]
