"""A gateway and its services as real processes, for outages.py."""

import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "bench/models/digits.onnx"
PAIR = "quench-outages-pair"  # a name with two addresses
SERVICES = ["importer", "analyser", "quantizer", "codegen"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """A gateway and its services, each of which can be ended and started again at its address."""

    def __init__(self, bin_dir, folder, token=False, second_codegen=None, blobs=None, gateway="", tenants=""):
        """`blobs`: where they lie, else in the gateway's folder. `gateway`, `tenants`: more of its configuration."""
        self.bin, self.folder, self.running = bin_dir, folder, {}
        self.ports = {name: free_port() for name in ["gateway", *SERVICES, "metrics"]}
        self.tokens = {"services": folder / "services.tokens", "gateway": folder / "gateway.token"}
        store = f'blobs {{ folder: "{blobs or folder / "state/store"}" }}\n'
        needs = f'token_file: "{self.tokens["services"]}"' if token else ""
        brings = f'token_file: "{self.tokens["gateway"]}"' if token else ""
        if token:
            self.rotate("first")
        for name in SERVICES:
            self.config(name, f'server {{ listen: "127.0.0.1:{self.ports[name]}" grace {{ seconds: 5 }} {needs} }}\n{store}'
                              f'steps {{ slots: 2 }}\n')
        addresses = {name: f"127.0.0.1:{self.ports[name]}" for name in SERVICES}
        if second_codegen:
            self.config("codegen2", f'server {{ listen: "127.0.0.2:{self.ports["codegen"]}" grace {{ seconds: 5 }} }}\n{store}'
                                    f'steps {{ slots: 2 scratch_dir: "{second_codegen}" }}\n')
            addresses["codegen"] = f"dns:///{PAIR}:{self.ports['codegen']}"
        services = "".join(f'  {name} {{ address: "{address}" {brings} }}\n' for name, address in addresses.items())
        self.config("gateway", f'state_dir: "{folder}/state"\nserver {{ listen: "127.0.0.1:{self.ports["gateway"]}" '
                               f'metrics_listen: "127.0.0.1:{self.ports["metrics"]}" }}\nservices {{\n{services}}}\n'
                               f'tenants {{ max_queued_steps: 200000 max_queued_bytes: 2147483648 {tenants} }}\n{store if blobs else ""}{gateway}')
        self.names = [*SERVICES, *(["codegen2"] if second_codegen else []), "gateway"]
        for name in self.names:
            self.start(name)

    def config(self, name, text):
        (self.folder / f"{name}.txtpb").write_text(text)

    def rotate(self, token, whose=("services", "gateway")):
        if "services" in whose:
            self.tokens["services"].write_text(f"gateway {hashlib.sha256(token.encode()).hexdigest()}\n")
        if "gateway" in whose:
            self.tokens["gateway"].write_text(token)

    def start(self, name):
        log = (self.folder / f"{name}.log").open("a")
        log.write("---- start\n")
        log.flush()
        self.running[name] = subprocess.Popen([self.bin / f"quench-{name.rstrip('2')}", "--config", self.folder / f"{name}.txtpb"],
                                              stdout=log, stderr=subprocess.STDOUT)
        for _ in range(1000):
            if " serves on " in (self.folder / f"{name}.log").read_text().split("---- start\n")[-1]:
                return
            if self.running[name].poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"{name} did not start: {(self.folder / f'{name}.log').read_text()[-2000:]}")

    def stop(self, name, how=signal.SIGTERM):
        self.running[name].send_signal(how)
        self.running[name].wait()

    def end(self):
        for process in self.running.values():
            process.kill()
            process.wait()

    def command(self, *words, port=None):
        return [self.bin / "quench", *map(str, words), "--gateway", f"127.0.0.1:{port or self.ports['gateway']}", "--progress", "none"]

    def quench(self, *words):
        done = subprocess.run(self.command(*words), capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"quench {' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def spec(self, spec, name="spec"):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(spec))
        return path

    def create(self, spec):
        path = self.spec(spec)
        return re.search(r"[0-9a-f]{8}[-0-9a-f]*", self.quench("workflow", "create", path))[0]

    def state(self, workflow):
        return json.loads(self.quench("workflow", "get", workflow, "--format", "json"))

    def metrics(self):
        """Series that tell about trouble, summed without their labels but `reason`."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.ports['metrics']}/metrics").read().decode()
        found = {}
        for name, labels, value in re.findall(r"^(quench_\w+)(\{[^}]*\})? ([0-9.e+]+)$", text, re.M):
            if not re.search(r"retries|retried|queue|faults", name) or "bucket" in name:
                continue
            reason = re.search(r'reason="(\w+)"', labels or "")
            key = f"{name}{{{reason[1]}}}" if reason else name
            found[key] = found.get(key, 0) + float(value)
        return {key: value for key, value in found.items() if value}

    def child(self, service, seconds=30):
        """The id of a process that does a step of the service, as soon as there is one."""
        end = time.time() + seconds
        parent = pathlib.Path(f"/proc/{self.running[service].pid}")
        while time.time() < end:
            for path in (parent / "task").glob("*/children"):
                try:
                    for child in path.read_text().split():
                        # Before it runs the program anew, it is its parent still.
                        if pathlib.Path(f"/proc/{child}/cmdline").read_bytes() not in (b"", (parent / "cmdline").read_bytes()):
                            return int(child)
                except OSError:  # a thread or a process that has ended
                    continue
        raise AssertionError(f"{service} runs no step")

    def hold(self, service):
        """The same, and the process stands still until it gets SIGCONT."""
        child = self.child(service)
        os.kill(child, signal.SIGSTOP)
        return child

    def wait(self, workflows, seconds):
        end = time.time() + seconds
        left = list(workflows)
        while left:
            state = self.state(left[0])["state"]
            if state.endswith("SUCCEEDED"):
                left.pop(0)
                continue
            if state.endswith(("FAILED", "CANCELLED")):
                raise AssertionError(f"{left[0]}: {json.dumps(self.state(left[0]))[:3000]}")
            if time.time() > end:
                raise AssertionError(f"{len(left)} of {len(workflows)} workflows have not ended: {self.metrics()}")
            time.sleep(0.5)


def batch(cluster, targets, levels=(0, 1, 2, 3), layouts=("UNSPECIFIED",), salt=""):
    digest = re.search(r"[0-9a-f]{64}(/\d+)?", cluster.quench("blobs", "put", MODEL))[0].split("/")[0]
    choices = [{"name": f"o{level}{layout}", "compile_options": {"opt_level": level, "channel_layout": f"CHANNEL_LAYOUT_{layout}"}}
               for level in levels for layout in layouts]
    model = {"name": "digits", "model": {"file": {"hash": digest, "size_bytes": MODEL.stat().st_size}}}
    return {"title": "outage", "salt": salt,
            "compile": {"models": [model], "choices": choices, "targets": [{"name": name} for name in targets]}}


def report(what, cluster):
    print(f"  {what}: {json.dumps(cluster.metrics())}", flush=True)
