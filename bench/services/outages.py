#!/usr/bin/env python3
"""A cluster in trouble: real processes, real outages, and every workflow has to succeed.

Usage: bench/services/outages.py --build-dir build/release [--minutes N] [SCENARIO...]      without names: all

  outage    codegen is away for N minutes (10) while a batch waits for it
  disk      one of two codegen servers has a full disk, and later room again (needs root: it mounts a small file system
            and gives two addresses one name in /etc/hosts)
  token     the services take another token for 20 s before the gateway learns it
  drains    five drains during one long step
  restart   the gateway is killed twice under 100 workflows of about 1,000 steps

and what each of these once broke, and may not again:

  store     the disk of the gateway's blobs is full while cached and new work runs (needs root)
  merge     two identical steps, one of which may take a second only
  oom       the process of a step is killed from outside, twice
  quota     60 large workflows are cancelled: the database stays small
  pause     the gateway is stopped for 35 s while a step runs, twice
  log       a step's process does not write into its service's log
  cut       a proxy cuts all connections of a watcher, again and again for more than five minutes
  row       a damaged row of an ended workflow
  lock      another process holds the database for 25 s
  unknown   an option that this gateway does not know
  history   a start with 100,000 ended workflows
  watchers  more watchers than places

Prints what /metrics said meanwhile: retries by reason, the queue, node faults. Exit code 1 if anything failed.
Needs Python's grpcio (Debian's python3-grpcio).
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import outage_promises
from outage_cluster import MODEL, PAIR, ROOT, Cluster, batch, report


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
        listed = json.loads(subprocess.run([args.bin / "quench", "targets", "--format", "json"], capture_output=True, check=True).stdout)
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


SCENARIOS = {"outage": outage, "disk": disk, "token": token, "drains": drains, "restart": restart, **outage_promises.SCENARIOS}


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
            except (Exception, SystemExit) as error:  # the other scenarios tell something too
                print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
