#!/usr/bin/env python3
"""scripts/serve_local: five processes that work together, are scraped by a real Prometheus, and end together.

Usage: serve_local_test.py BUILD_DIR
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import support
from support import yaml

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else support.ROOT / "build/asan").resolve()
SCRIPT = support.ROOT / "scripts/serve_local"
DIGITS = support.ROOT / "bench/models/digits.onnx"
PATIENCE = 120  # seconds: sanitizers and busy machines


def until(condition, what):
    """The value of `condition` once that is true; fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE} s: {what}")


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def children_of(pid):
    """Name of the service -> process id."""
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
            program = pathlib.Path((stat.parent / "cmdline").read_text().partition("\0")[0]).name
        except (OSError, IndexError):
            continue
        if parent == str(pid) and program.startswith("quench-"):
            found[program.removeprefix("quench-")] = int(stat.parent.name)
    return found


class Local:
    """A running serve_local."""

    def __init__(self, folder, *arguments):
        self.output = pathlib.Path(folder) / "output"
        environment = {**os.environ, "TMPDIR": str(folder)}
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen([SCRIPT, "--build-dir", BUILD, *arguments], stdout=output, stderr=subprocess.STDOUT, env=environment)

    def text(self):
        return self.output.read_text()

    def table(self):
        """Service -> (address, URL of its metrics), once all serve."""
        until(lambda: "Ctrl-C ends all" in self.text() or self.process.poll() is not None, "the table")
        rows = re.findall(r"^(\w+) +(127\.0\.0\.1:\d+) +(http\S+)$", self.text(), re.M)
        if len(rows) != len(support.SERVICES):
            raise AssertionError(self.text())
        return {name: (address, url) for name, address, url in rows}

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end(signal.SIGTERM)


class Working(unittest.TestCase):
    """The five processes while they run, one set of them for all these tests."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="q")))
        cls.local = cls.enterClassContext(Local(cls.folder, "--free-ports"))
        cls.table = cls.local.table()

    def test_a_model_is_compiled_as_in_one_process(self):
        for name, more in (("there", ["--gateway", self.table["gateway"][0]]), ("here", [])):
            subprocess.run([BUILD / "bin/quench", "compile", DIGITS, "--output", self.folder / name, *more], check=True, timeout=PATIENCE,
                           capture_output=True, env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")})
        self.assertEqual((self.folder / "here/model.so").read_bytes(), (self.folder / "there/model.so").read_bytes())

    def test_metrics_are_those_of_the_table(self):
        known = support.metrics_table()
        # Histograms appear when they first count.
        closed = {name for name, row in known.items() if row.kind != "Histogram" and all(values is not None for values in row.labels.values())}
        for name, (_, url) in self.table.items():
            series = {re.match(r"\w+", line)[0] for line in get(url).splitlines() if line and not line.startswith("#")}
            self.assertEqual(set(), series - set(known), name)
            self.assertEqual(set(), closed - series, name)
            self.assertIn("quench_build_info", series)

    def test_each_says_that_it_is_healthy(self):
        config = pathlib.Path(re.search(r"state and logs in ([^\s,]+)", self.local.text())[1]) / "config"
        for name, (address, _) in self.table.items():
            self.assertEqual(0, self.health(name, config, address), name)
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            self.assertEqual(1, self.health("codegen", config, f"127.0.0.1:{nobody.getsockname()[1]}"))

    def health(self, name, config, address):
        command = [BUILD / f"bin/quench-{name}", "--config", config / f"{name}.txtpb", "--listen", address, "--health"]
        return subprocess.run(command, capture_output=True, timeout=PATIENCE).returncode

    @unittest.skipUnless(shutil.which("prometheus"), "no Prometheus (Debian's package `prometheus`)")
    def test_prometheus_scrapes_all_and_evaluates_the_rules(self):
        address = prometheus_for(self, self.folder, self.table)
        targets = until(lambda: scraped(address), "five targets that are up")
        self.assertEqual({f"quench-{name}" for name in support.SERVICES}, {target["labels"]["job"] for target in targets})
        rules = until(lambda: evaluated(address), "rules that were evaluated")
        self.assertEqual([], [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"])
        self.assertEqual([], [rule["name"] for rule in rules if rule["type"] == "alerting" and rule["state"] == "firing"])
        trace = "0af7651916cd43dd8448eb211c80319c"
        subprocess.run([BUILD / "bin/quench", "workflow", "list", "--gateway", self.table["gateway"][0]], check=True, timeout=PATIENCE,
                       capture_output=True, env={**os.environ, "TRACEPARENT": f"00-{trace}-b7ad6b7169203331-01"})
        now = time.time()
        query = f"query_exemplars?query=grpc_server_handling_seconds_bucket&start={now - 600}&end={now + 600}"
        until(lambda: trace in {exemplar["labels"]["trace_id"] for series in asked(address, query) or [] for exemplar in series["exemplars"]},
              "the exemplar of a call")


class ServeLocal(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="q")))

    def test_all_end_together_and_leave_nothing(self):
        with Local(self.folder, "--free-ports") as local:
            local.table()
            pids = children_of(local.process.pid)
            self.assertEqual(set(support.SERVICES), set(pids))
            state = re.search(r"state and logs in (\S+), removed at the end", local.text())[1]
            self.assertTrue(pathlib.Path(state, "state").is_dir())
            self.assertEqual(0, local.end(), local.text())
            self.assertFalse(pathlib.Path(state).exists())
            self.assertEqual([], [pid for pid in pids.values() if pathlib.Path(f"/proc/{pid}").exists()])

    def test_one_that_dies_ends_all_with_an_error(self):
        with Local(self.folder, "--free-ports") as local:
            local.table()
            pids = children_of(local.process.pid)
            os.kill(pids["codegen"], signal.SIGKILL)
            self.assertEqual(1, local.process.wait(PATIENCE))
            self.assertIn("the codegen ended by itself", local.text())
            self.assertEqual([], [pid for pid in pids.values() if pathlib.Path(f"/proc/{pid}").exists()])

    def test_a_given_state_stays_and_belongs_to_one(self):
        state = self.folder / "state"
        with Local(self.folder, "--free-ports", "--state-dir", str(state)) as local:
            local.table()
            (self.folder / "second").mkdir()
            with Local(self.folder / "second", "--free-ports", "--state-dir", str(state)) as second:
                self.assertEqual(1, second.process.wait(PATIENCE))
                self.assertIn(f"{state} belongs to another serve_local that runs", second.text())
            self.assertEqual([], re.findall("error", (state / "log/gateway.log").read_text()))
            self.assertEqual(0, local.end(signal.SIGTERM), local.text())
        self.assertTrue((state / "state").is_dir())

    def test_a_state_folder_that_cannot_be_written_is_named(self):
        (self.folder / "file").touch()
        locked = self.folder / "locked"
        (locked / "lock").mkdir(parents=True)
        closed = self.folder / "closed"
        closed.mkdir(mode=0o555)
        # Permissions hold for users other than root.
        beside = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
        self.folder.chmod(0o755)
        cases = [(self.folder / "file", {}), (self.folder / "file/state", {}), (locked, {}), ("/proc/state", {})]
        if subprocess.run(["test", "-x", BUILD / "bin/quench-codegen"], **beside).returncode == 0:  # a checkout may be closed, too
            cases.append((closed, beside))
        for state, user in cases:
            with self.subTest(state):
                outcome = subprocess.run(["bash", SCRIPT, "--build-dir", BUILD, "--state-dir", state], capture_output=True, text=True,
                                         timeout=PATIENCE, cwd="/", **user)
                self.assertEqual(1, outcome.returncode, outcome.stderr)
                self.assertTrue(outcome.stderr.startswith(f"serve_local: --state-dir: cannot write to {state}: "), outcome.stderr)
                self.assertEqual(1, outcome.stderr.count("\n"), outcome.stderr)
        self.assertEqual([], list(closed.iterdir()))
        outcome = subprocess.run([SCRIPT, "--build-dir", BUILD], capture_output=True, text=True, timeout=PATIENCE,
                                 env={**os.environ, "TMPDIR": "/nowhere"})
        self.assertEqual((1, 1), (outcome.returncode, outcome.stderr.count("\n")), outcome.stderr)
        self.assertIn("TMPDIR: cannot make a folder in /nowhere", outcome.stderr)

    def test_ports_are_as_asked_for(self):
        first = next(port for port in range(20_000, 60_000, 10) if all(free(port + offset) for offset in (*range(5), *range(2000, 2005))))
        with Local(self.folder, "--ports-from", str(first)) as local:
            expected = {name: (f"127.0.0.1:{first + i}", f"http://127.0.0.1:{first + i + 2000}/metrics") for i, name in enumerate(support.SERVICES)}
            self.assertEqual(expected, local.table())

    def test_wrong_options_are_refused(self):
        for arguments in (["--port", "1"], ["--ports-from", "70000"], ["--ports-from"], ["--build-dir", "/nowhere"]):
            with self.subTest(arguments):
                outcome = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(2, outcome.returncode)
                self.assertIn("see scripts/serve_local --help", outcome.stderr)


def free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def prometheus_for(test, folder, table):
    """Starts Prometheus with docker/'s configuration, targets replaced by those of `table`; gives its address."""
    text = (support.DOCKER / "prometheus/prometheus.yml").read_text()
    for name, (_, url) in table.items():
        text = re.sub(rf"{name}:\d+", url.split("/")[2], text)
    config = yaml.safe_load(text)
    config["global"].update(scrape_interval="1s", scrape_timeout="1s", evaluation_interval="1s")
    for job in config["scrape_configs"]:
        job["scrape_timeout"] = "1s"
    config["rule_files"] = [str(support.DOCKER / "prometheus/rules/*.yml")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with open(folder / "prometheus.log", "wb") as log:
        process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/prometheus",
                                    f"--web.listen-address={address}", "--enable-feature=exemplar-storage"], stdout=log, stderr=log)
    test.addCleanup(process.wait, PATIENCE)
    test.addCleanup(process.terminate)
    return address


def asked(address, path):
    try:
        return json.loads(get(f"http://{address}/api/v1/{path}"))["data"]
    except OSError:
        return None


def scraped(address):
    targets = (asked(address, "targets") or {}).get("activeTargets", [])
    return targets if targets and all(target["health"] == "up" for target in targets) else None


def evaluated(address):
    rules = [rule for group in (asked(address, "rules") or {}).get("groups", []) if group["name"] != "quench-objective-long" for rule in group["rules"]]
    return rules if rules and all(rule["health"] != "unknown" for rule in rules) else None


if __name__ == "__main__":
    support.main("ops_serve_local")
