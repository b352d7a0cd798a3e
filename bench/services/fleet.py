#!/usr/bin/env python3
"""A fleet on this machine, measured: small models of our own, many targets, real processes.

Usage: bench/services/fleet.py --build-dir build/release [--models N] [--targets N] [--kills] [--keep DIR]

Makes N small convolution networks with weights of their own (default 300), asks for each with so many targets (default 4)
by `quench fleet compile`, and prints how long it took, cells a second, the largest resident sizes of gateway and client, and
how long the same command takes again. --kills ends the gateway by SIGKILL twice on the way, and codegen once, and compares
every library with those of a second cluster that nobody disturbs. Exit code 1 if a cell is
missing, bytes differ, or the rerun starts a step. --asleep asks for all of it while no service is there, and prints what
gateway and client need for that, and how long the gateway takes to start again. Needs onnx and numpy (scripts/test makes an environment with them,
build/peer-venv).
"""

import argparse
import csv
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from outage_cluster import SERVICES, Cluster

TARGETS = ["x86-64-v3", "x86-64-v2", "raspberry-pi/5", "aarch64", "x86-64-v4", "raspberry-pi/4b", "armv7", "x86-64"]


def write_model(path, seed):
    random = numpy.random.default_rng(seed)
    channels = 8 + seed % 5

    def weights(name, *shape, scale=0.1):
        return numpy_helper.from_array((random.standard_normal(shape) * scale).astype(numpy.float32), name)

    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1] * 4, strides=[2, 2]), helper.make_node("Relu", ["c"], ["d"]),
             helper.make_node("Flatten", ["d"], ["e"]), helper.make_node("MatMul", ["e", "w3"], ["f"]),
             helper.make_node("Softmax", ["f"], ["y"])]
    constants = [weights("w1", channels, 1, 3, 3, scale=0.3), weights("w2", 16, channels, 3, 3), weights("w3", 256, 10)]
    graph = helper.make_graph(nodes, f"m{seed}", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def peak_of(pid):
    """Largest resident size so far, in MiB."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)


class Peaks(threading.Thread):
    """The largest sizes of the gateway, whichever process it is at the time, and of the client."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.client, self.gateway_mib, self.client_mib, self.stopped = cluster, None, 0, 0, False

    def run(self):
        while not self.stopped:
            self.gateway_mib = max(self.gateway_mib, peak_of(self.cluster.running["gateway"].pid))
            if self.client:
                self.client_mib = max(self.client_mib, peak_of(self.client.pid))
            time.sleep(0.1)


def fleet(cluster, args, models, folder):
    words = ["fleet", "compile", models / "*.onnx", "--request-id", "bench", "--output", folder / "out", "--table", folder / "table.csv"]
    for target in TARGETS[: args.targets]:
        words += ["--target", target]
    return subprocess.Popen(cluster.command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def share_done(cluster):
    try:
        shown = json.loads(cluster.quench("fleet", "get", "bench", "--format", "json"))
    except AssertionError:  # the first workflow is still to come
        return 0
    steps = shown.get("steps", {})
    every = sum(steps.get(state, 0) for state in ("queued", "running", "succeeded", "failed", "cancelled"))
    return steps.get("succeeded", 0) / max(every, 1) * shown.get("created_shards", 0) / shown["shards"]


def disturb(cluster, client):
    """Two deaths of the gateway and one of codegen, at a quarter, a half and three quarters of the steps."""
    for share, victim in ((0.25, "gateway"), (0.5, "codegen"), (0.75, "gateway")):
        while client.poll() is None and share_done(cluster) < share:
            time.sleep(0.5)
        if client.poll() is not None:
            raise SystemExit(f"the fleet ended before {victim} was killed at {share:.0%}")
        cluster.stop(victim, signal.SIGKILL)
        print(f"  {victim} was killed at {share:.0%}", flush=True)
        cluster.start(victim)


def measure(args, models, folder, kills):
    """Whether all went well."""
    folder.mkdir()
    cluster = Cluster((args.build_dir / "bin").resolve(), folder)
    peaks = Peaks(cluster)
    peaks.start()
    try:
        began = time.time()
        peaks.client = client = fleet(cluster, args, models, folder)
        if kills:
            disturb(cluster, client)
        said = client.communicate()[0]
        seconds = time.time() - began
        table = folder / "table.csv"
        rows = list(csv.DictReader(table.open(newline=""))) if table.exists() else []
        print(f"{folder.name}: {len(rows)} cells in {seconds:.1f} s, {len(rows) / seconds:.2f} a second, exit code {client.returncode}; "
              f"largest resident: gateway {peaks.gateway_mib} MiB, client {peaks.client_mib} MiB", flush=True)
        bad = [row for row in rows if row["state"] != "succeeded"]
        right = client.returncode == 0 and len(rows) == args.models * args.targets and not bad
        if not right:
            print(said[-2000:], bad[:3])
        before = cluster.quench("workflow", "list", "--limit", "100000")
        began = time.time()
        again = fleet(cluster, args, models, folder)
        again.communicate()
        same = [line.split()[:4] for line in cluster.quench("workflow", "list", "--limit", "100000").splitlines()]
        started = same != [line.split()[:4] for line in before.splitlines()]
        print(f"again: {time.time() - began:.1f} s, exit code {again.returncode}{', and it started something' if started else ''}", flush=True)
        return right and again.returncode == 0 and not started
    finally:
        peaks.stopped = True
        cluster.end()


def asleep(args, models, folder):
    folder.mkdir()
    cluster = Cluster((args.build_dir / "bin").resolve(), folder)
    peaks = Peaks(cluster)
    peaks.start()
    try:
        for name in SERVICES:
            cluster.stop(name)
        words = ["fleet", "compile", models / "*.onnx", "--request-id", "bench", "--detach"]
        for target in TARGETS[: args.targets]:
            words += ["--target", target]
        began = time.time()
        peaks.client = client = subprocess.Popen(cluster.command(*words), stdout=subprocess.DEVNULL)
        code = client.wait()
        print(f"asked for {args.models * args.targets} cells in {time.time() - began:.1f} s, exit code {code}; "
              f"largest resident: gateway {peaks.gateway_mib} MiB, client {peaks.client_mib} MiB", flush=True)
        cluster.stop("gateway", signal.SIGKILL)
        peaks.gateway_mib, began = 0, time.time()
        cluster.start("gateway")
        print(f"the gateway serves {time.time() - began:.1f} s after its start, database {(folder / 'state/workflows.db').stat().st_size >> 20} MiB")
        began = time.time()
        cluster.quench("fleet", "get", "bench")
        print(f"fleet get: {time.time() - began:.2f} s")
        began = time.time()
        cluster.quench("fleet", "cancel", "bench")
        print(f"fleet cancel: {time.time() - began:.1f} s; largest resident since the start: gateway {peaks.gateway_mib} MiB")
        return code == 0
    finally:
        peaks.stopped = True
        cluster.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--targets", type=int, default=4, choices=range(1, len(TARGETS) + 1))
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--asleep", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    folder = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="quench-fleet-"))
    (folder / "models").mkdir(parents=True, exist_ok=True)
    for seed in range(args.models):
        write_model(folder / f"models/m{seed:05}.onnx", seed)
    if args.asleep:
        sys.exit(0 if asleep(args, folder / "models", folder / "asleep") else 1)
    right = measure(args, folder / "models", folder / "disturbed", kills=True) if args.kills else True
    right = measure(args, folder / "models", folder / "quiet", kills=False) and right
    if args.kills:
        libraries = sorted((folder / "quiet").rglob("model.so"))
        differing = sum(path.read_bytes() != (folder / "disturbed" / path.relative_to(folder / "quiet")).read_bytes() for path in libraries)
        print(f"{differing} of {len(libraries)} libraries differ between the two fleets")
        right = right and differing == 0 and len(libraries) == args.models * args.targets
    if not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
