"""A gateway of one's own, on a socket that nobody else can reach."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from quench.errors import UnavailableError


def program() -> str:
    """QUENCH_BIN (the program `quench`, `quench-serve` beside it, or the folder that has both), or the one that a wheel brings, or
    `quench` in PATH."""
    named = os.environ.get("QUENCH_BIN")
    if named and pathlib.Path(named).is_dir():
        named = str(pathlib.Path(named) / "quench")
    if named and pathlib.Path(named).name == "quench-serve":  # which `quench serve` runs
        named = str(pathlib.Path(named).with_name("quench"))
    brought = pathlib.Path(__file__).resolve().with_name("bin") / "quench"
    if not named and brought.exists():
        return str(brought)
    found = shutil.which(named or "quench")
    if found is None:
        raise UnavailableError(
            f"there is no program `{named or 'quench'}`: set QUENCH_BIN to it, or give the address of a gateway" if named
            else "there is no program `quench` in PATH: set QUENCH_BIN to it, or give the address of a gateway", "UNAVAILABLE")
    return found


def users_socket() -> str:
    """Where this user's `quench serve` listens: what `--gateway local` is to the commands."""
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    if run.startswith("/"):
        return f"unix:{run}/quench/gateway.sock"
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = pathlib.Path(state) if state.startswith("/") else pathlib.Path.home() / ".local/state"
    return f"unix:{folder}/quench/run/gateway.sock"


class Server:
    """`quench serve` in a folder of its own; `close` stops it and removes what it kept, unless `state_dir` names a place for that."""

    def __init__(self, state_dir: str | os.PathLike[str] | None) -> None:
        self._folder = tempfile.mkdtemp(prefix="quench-")  # mode 0700
        self.address = f"unix:{self._folder}/socket"
        state = pathlib.Path(state_dir) if state_dir is not None else pathlib.Path(self._folder) / "state"
        self._log = open(pathlib.Path(self._folder) / "log", "w+b")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            # In a group of its own: a Ctrl-C at the terminal is for who waits, not for the server.
            self._process = subprocess.Popen([program(), "serve", "--listen", self.address, "--state-dir", str(state)],
                                             stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True)
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self, seconds: float = 60) -> None:
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while not pathlib.Path(f"{self._folder}/socket").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                said = self._log.read().decode(errors="replace").strip().splitlines()
                raise UnavailableError(f"`quench serve` did not start: {said[-1] if said else 'it says nothing'}", "UNAVAILABLE")
            time.sleep(0.02)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
