#!/usr/bin/env python3
"""What a cluster lives through: real processes, real trouble, and every workflow has to succeed.

Usage: bench/services/outages.py --build-dir build/release [--minutes N] [SCENARIO...]      without names: all

  outage    codegen is away for N minutes (10) while a batch waits for it
  disk      one of two codegen servers has a full disk, and later room again (needs root: it mounts a small file system
            and gives two addresses one name in /etc/hosts)
  token     the services take another token for 20 s before the gateway learns it
  drains    five drains during one long step
  restart   the gateway is killed twice under 100 workflows of about 1,000 steps

Prints what /metrics said meanwhile: retries by reason, the queue, node faults. Exit code 1 if anything failed.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
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

    def __init__(self, bin_dir, folder, token=False, second_codegen=None):
        self.bin, self.folder, self.running = bin_dir, folder, {}
        self.ports = {name: free_port() for name in ["gateway", *SERVICES, "metrics"]}
        self.tokens = {"services": folder / "services.tokens", "gateway": folder / "gateway.token"}
        store = f'blobs {{ folder: "{folder}/state/store" }}\n'
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
                               f'tenants {{ max_queued_steps: 200000 max_queued_bytes: 2147483648 }}\n')
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

    def quench(self, *words):
        done = subprocess.run([self.bin / "quench", *map(str, words), "--gateway", f"127.0.0.1:{self.ports['gateway']}", "--progress", "none"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"quench {' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def create(self, spec):
        path = self.folder / "spec.json"
        path.write_text(json.dumps(spec))
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


def outage(args, folder):
    cluster = Cluster(args.bin, folder)
    try:
        cluster.stop("codegen")
        workflow = cluster.create(batch(cluster, ["x86-64-v3", "aarch64"]))
        time.sleep(60 * args.minutes)
        report("meanwhile", cluster)
        state = cluster.state(workflow)["state"]
        assert state.endswith("RUNNING"), state
        cluster.start("codegen")
        began = time.time()
        cluster.wait([workflow], 180)
        print(f"  ended {time.time() - began:.1f} s after codegen was back")
    finally:
        cluster.end()


def disk(args, folder):
    scratch = folder / "small"
    scratch.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", scratch], check=True)
    cluster, hosts = None, pathlib.Path("/etc/hosts")
    before = hosts.read_text()
    hosts.write_text(f"{before}127.0.0.1 {PAIR}\n127.0.0.2 {PAIR}\n")
    try:
        cluster = Cluster(args.bin, folder, second_codegen=scratch)
        cluster.wait([cluster.create(batch(cluster, ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "armv7", "i686"]))], 240)
        report("with one disk full", cluster)
        log = (folder / "codegen2.log").read_text()
        assert "scratch" in log or "space" in log, log[-1000:]
        print("  its log: " + next(line for line in log.splitlines() if "space" in line or "scratch" in line)[:200])
        subprocess.run(["mount", "-o", "remount,size=512m", scratch], check=True)
        time.sleep(25)
        cluster.stop("codegen")  # the one that had room: the other has to do it all
        cluster.wait([cluster.create(batch(cluster, ["raspberry-pi/5", "x86-64-v2"], salt="again"))], 240)
    finally:
        hosts.write_text(before)
        if cluster:
            cluster.end()
        subprocess.run(["umount", scratch], check=False)


def token(args, folder):
    cluster = Cluster(args.bin, folder, token=True)
    try:
        cluster.wait([cluster.create(batch(cluster, ["x86-64-v3"]))], 120)
        cluster.rotate("second", ["services"])
        time.sleep(2)
        workflow = cluster.create(batch(cluster, ["x86-64-v3", "aarch64"], salt="rotated"))
        time.sleep(20)
        report("meanwhile", cluster)
        assert not cluster.state(workflow)["state"].endswith("SUCCEEDED"), "the old token was taken"
        cluster.rotate("second", ["gateway"])
        cluster.wait([workflow], 180)
    finally:
        cluster.end()


def drains(args, folder):
    cluster = Cluster(args.bin, folder)
    try:
        cluster.quench("compile", MODEL, "--target", "x86-64-v3", "-o", folder / "library")
        bench = subprocess.Popen([args.bin / "quench", "bench", folder / "library/model.so", "--seconds", "20", "--gateway",
                                  f"127.0.0.1:{cluster.ports['gateway']}", "--progress", "none"], stdout=subprocess.PIPE, text=True)
        for _ in range(5):
            time.sleep(8)
            assert bench.poll() is None, "the step ended between two drains"
            cluster.stop("analyser")
            cluster.start("analyser")
        out, _ = bench.communicate(timeout=120)
        assert bench.returncode == 0, out
        report("in all", cluster)
    finally:
        cluster.end()


def restart(args, folder):
    cluster = Cluster(args.bin, folder)
    try:
        listed = json.loads(subprocess.run([args.bin / "quench", "targets", "--json"], capture_output=True, check=True).stdout)
        targets = [each["name"] for each in listed if each["name"] != "host"][:83]
        spec = batch(cluster, targets, layouts=("UNSPECIFIED", "FIRST", "LAST"))
        workflows = [cluster.create(spec)]
        steps = len(cluster.state(workflows[0]).get("steps", []))
        print(f"  a workflow of {steps} steps")
        workflows += [cluster.create(spec) for _ in range(99)]
        for _ in range(2):
            time.sleep(15)
            report("before a kill", cluster)
            cluster.stop("gateway", signal.SIGKILL)
            began = time.time()
            cluster.start("gateway")
            print(f"  served again {time.time() - began:.1f} s after it was started")
        began = time.time()
        cluster.wait(workflows, 1500)
        print(f"  all ended {time.time() - began:.0f} s later")
        report("in all", cluster)
    finally:
        cluster.end()


SCENARIOS = {"outage": outage, "disk": disk, "token": token, "drains": drains, "restart": restart}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []])
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--minutes", type=float, default=10)
    args = parser.parse_args()
    args.bin = (args.build_dir / "bin").resolve()
    failed = 0
    for name in args.scenario or SCENARIOS:
        print(f"{name}", flush=True)
        began = time.time()
        with tempfile.TemporaryDirectory(prefix="outages") as folder:
            try:
                SCENARIOS[name](args, pathlib.Path(folder))
                print(f"  succeeded, {time.time() - began:.0f} s", flush=True)
            except (AssertionError, subprocess.SubprocessError) as error:
                print(f"  FAILED: {error}", flush=True)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
