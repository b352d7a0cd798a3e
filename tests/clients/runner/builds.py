"""Builds the clients as README.md says, in copies of their folders: WORK/LANGUAGE. An unchanged client is not built again."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

LANGUAGES = ("python", "go", "node", "java")
# One download at its slowest; a build is part of it where a tool does both.
STEP_SECONDS = 600
UNREACHABLE = re.compile(
    r"Could not transfer|UnknownHost|Unknown host|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ECONNRESET|no such host|i/o timeout"
    r"|dial tcp|name resolution|Failed to establish a new connection|Network is unreachable|Read timed out|network timeout|ReadTimeout")


# Files that README.md's commands leave in a client's own folder.
MADE = shutil.ignore_patterns("gen", "venv", "bin", "client", "node_modules", "target", "__pycache__")


class Skipped(Exception):
    """The reason is that of this machine, not of the client."""


class Failed(Exception):
    """A build that should have gone well."""


def build(language, root, work):
    """The words that start the client. Its folder lies as deep as the original: `../../../proto` is there from both."""
    source = root / "examples" / "clients" / language
    folder = work / language
    command = globals()[f"needs_{language}"](source)
    stamp = stamp_of(command, source, root / "proto")
    stamp_file = folder / ".built"
    if not stamp_file.exists() or stamp_file.read_text() != stamp:
        stamp_file.unlink(missing_ok=True)
        shutil.copytree(source, folder, ignore=MADE, dirs_exist_ok=True)
        globals()[f"build_{language}"](folder, root / "proto")
        stamp_file.write_text(stamp)
    return [word.replace("{}", str(folder)) for word in command]


def stamp_of(command, *folders):
    sha256 = hashlib.sha256(repr(command).encode())
    for folder in folders:
        for at, folders_in, files in os.walk(folder):
            made = MADE(at, folders_in + files)
            folders_in[:] = sorted(set(folders_in) - made)
            for path in sorted(pathlib.Path(at, name) for name in set(files) - made):
                sha256.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode())
                sha256.update(path.read_bytes())
    return sha256.hexdigest()


def step(words, folder):
    """Runs a tool; what registries that cannot be reached bring about is a skip."""
    what = " ".join(pathlib.Path(str(word)).name for word in words[:3])
    try:
        done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STEP_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"`{what}` was not done after {STEP_SECONDS} s") from None
    output = done.stdout + done.stderr
    if done.returncode == 0:
        return output
    if found := UNREACHABLE.search(output):
        raise Skipped(f"`{what}` could not reach its registry: {found.group(0)}")
    raise Failed(f"`{what}` ended with {done.returncode}:\n{output[-4000:]}")


def need_tool(name, version_words, least, pattern=r"(\d+)\.(\d+)"):
    """`least`: (major, minor)."""
    if shutil.which(name) is None:
        raise Skipped(f"{name} is not installed")
    found = re.search(pattern, step([name, *version_words], None))
    version = tuple(int(number) for number in found.groups())
    if version < least:
        raise Skipped(f"{name} is version {version[0]}.{version[1]}, the client needs {least[0]}.{least[1]}")


def protos_of(proto, but=()):
    """The protos that a client needs; paths as they are imported."""
    names = sorted(str(path.relative_to(proto)) for path in proto.rglob("*.proto"))
    inside = ("grpc/", "quench/child/", "quench/config/", "quench/onnx/", *but)
    return [name for name in names if not name.startswith(inside)]


# Python: packages in an environment of their own.

def needs_python(_):
    if sys.version_info < (3, 11):
        raise Skipped(f"python3 is version {sys.version_info[0]}.{sys.version_info[1]}, the client needs 3.11")
    return ["{}/venv/bin/python", "{}/client.py"]


def build_python(folder, proto):
    pins = (folder / "requirements.txt").read_text()
    installed = folder / "venv" / "requirements.txt"
    if not installed.exists() or installed.read_text() != pins:
        step([sys.executable, "-m", "venv", "--clear", "venv"], folder)
        step(["venv/bin/pip", "install", "--disable-pip-version-check", "--retries", "1", "-r", "requirements.txt"], folder)
        installed.write_text(pins)
    shutil.rmtree(folder / "gen", ignore_errors=True)
    (folder / "gen").mkdir()
    step(["venv/bin/python", "-m", "grpc_tools.protoc", "-I", proto, "--python_out=gen", "--grpc_python_out=gen", *protos_of(proto)],
         folder)


# Go: google's packages come as modules, the rest is generated.

GO_MODULE = "example.com/quench-client"


def needs_go(source):
    need_tool("go", ["version"], (1, 24), r"go(\d+)\.(\d+)")
    if shutil.which("protoc") is None:
        raise Skipped("protoc is not installed")
    return ["{}/client"]


def build_go(folder, proto):
    for tool in ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc"):
        step(["go", "build", "-o", "bin/", tool], folder)
    names = protos_of(proto, but=("google/",))
    packages = [f"M{name}={GO_MODULE}/gen/{name.rpartition('/')[0]}" for name in names]
    options = [f"--go{kind}_opt=module={GO_MODULE},{','.join(packages)}" for kind in ("", "-grpc")]
    shutil.rmtree(folder / "gen", ignore_errors=True)
    step(["protoc", "-I", proto, "--plugin=bin/protoc-gen-go", "--plugin=bin/protoc-gen-go-grpc", "--go_out=.", "--go-grpc_out=.",
          *options, *names], folder)
    step(["go", "build", "-buildvcs=false", "-o", "client", "."], folder)


# Node: the contracts are read when the client starts.

def needs_node(_):
    need_tool("node", ["--version"], (18, 0))
    need_tool("npm", ["--version"], (8, 0))
    return ["node", "{}/client.js"]


def build_node(folder, _):
    step(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)


# Java: Maven generates everything.

def needs_java(_):
    need_tool("javac", ["-version"], (17, 0))
    need_tool("mvn", ["-version"], (3, 6), r"Maven (\d+)\.(\d+)")
    return ["java", "-jar", "{}/target/client.jar"]


def build_java(folder, _):
    step(["mvn", "-B", "-q", "package"], folder)
