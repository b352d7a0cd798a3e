#!/usr/bin/env python3
"""The same compilation through five processes, through one server, and without any: CPU seconds, wall seconds, and what a
cached answer takes.

Usage: bench/services/bench_services.py --build-dir build/release [--rounds N] [--json] MODEL.onnx

Each round compiles one variant of the model that nobody has seen (a weight's byte differs): by `quench compile`; as the same
workflow through a server that does everything in its one process (`quench serve --all-in-one`, steps not isolated); and
through a gateway and its services, which share a folder and run steps in children. The CPU seconds of every process and its
children are summed, the client's included. The report is the median of the rounds' ratios, because machines are noisy. Then
the last variant is compiled again through the five, where every step is cached.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

SERVICES = ["importer", "analyser", "codegen"]
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid):
    """User and system seconds of a process and of its children that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(x) for x in fields[11:15]) / TICKS


def start(command, log, environment):
    process = subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT, env=environment)
    for _ in range(1000):
        found = re.search(r" serves on (\S+?)[,\s]", log.read_text())
        if found:
            return process, found.group(1)
        time.sleep(0.01)
    raise SystemExit(f"{command[0]} did not start: {log.read_text()}")


class Servers:
    """Processes that together serve workflows at `address`."""

    def __init__(self):
        self.processes = {}
        self.address = None

    def cpu(self):
        return sum(cpu_of(p.pid) for p in self.processes.values())

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()


class AllInOne(Servers):
    def __init__(self, bin_dir, folder):
        super().__init__()
        config = folder / "all-in-one.txtpb"
        config.write_text(f'gateway {{ state_dir: "{folder}/one" server {{ listen: "127.0.0.1:0" }} }}\nsteps {{ isolation: ISOLATION_NONE }}\n')
        self.processes["serve"], self.address = start([bin_dir / "quench", "serve", "--config", config], folder / "one.log", None)


class Cluster(Servers):
    def __init__(self, bin_dir, folder):
        super().__init__()
        state = folder / "state"
        gateway = f'state_dir: "{state}"\nserver {{ listen: "127.0.0.1:0" metrics_listen: "127.0.0.1:0" }}\nservices {{\n'
        for name in SERVICES:
            config = folder / f"{name}.txtpb"
            config.write_text(f'server {{ listen: "127.0.0.1:0" }}\nblobs {{ folder: "{state}/store" }}\n')
            self.processes[name], address = start([bin_dir / f"quench-{name}", "--config", config], folder / f"{name}.log", None)
            gateway += f'  {name} {{ address: "{address}" }}\n'
        config = folder / "gateway.txtpb"
        config.write_text(gateway + "}\n")
        log = folder / "gateway.log"
        self.processes["gateway"], self.address = start([bin_dir / "quench-gateway", "--config", config], log, None)
        self.metrics = "127.0.0.1:" + re.search(r"metrics on port (\d+)", log.read_text()).group(1)


def timed(command, cache):
    environment = dict(os.environ, XDG_CACHE_HOME=str(cache))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_time = time.monotonic()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.monotonic() - start_time
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def compiled(command, output):
    """Wall and CPU seconds of a compilation into `output`, with nothing cached on the client's side."""
    cache = output.with_name(output.name + "-cache")
    shutil.rmtree(cache, ignore_errors=True)
    return timed(command + ["--output", output], cache)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--build-dir", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    bin_dir = (args.build_dir / "bin").resolve()
    quench = bin_dir / "quench"
    contents = bytearray(args.model.read_bytes())
    # A weight's byte: the longest run of bytes that are no text lies in the middle of any model worth measuring.
    place = len(contents) // 2
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        servers = {"one": AllInOne(bin_dir, folder), "five": Cluster(bin_dir, folder)}
        try:
            for i in range(args.rounds):
                model = folder / "model.onnx"
                contents[place] = (contents[place] + 1) % 256
                model.write_bytes(contents)
                base = [quench, "compile", model, "--target", "x86-64-v3", "--force", "--progress", "none"]
                row = {}
                row["wall"], row["cpu"] = compiled(base, folder / "here")
                # The first server finds the disk less busy: they take turns.
                for name in sorted(servers, reverse=i % 2 == 1):
                    before = servers[name].cpu()
                    there = base + ["--gateway", servers[name].address]
                    row[f"{name}_wall"], row[f"{name}_client_cpu"] = compiled(there, folder / name)
                    row[f"{name}_cpu"] = row[f"{name}_client_cpu"] + servers[name].cpu() - before
                    if (folder / "here/model.so").read_bytes() != (folder / name / "model.so").read_bytes():
                        raise SystemExit("the libraries differ")
                rows.append(row)
            there = base + ["--gateway", servers["five"].address, "--output", folder / "five"]
            cached = [timed(there, folder / "five-cache")[0] for _ in range(args.rounds)]
        finally:
            for server in servers.values():
                server.stop()
    median = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    result = {"rounds": args.rounds, "median": median, "cached_seconds": statistics.median(cached)}
    for over in ("one", "command"):
        ratios = sorted(row["five_cpu"] / row["one_cpu" if over == "one" else "cpu"] for row in rows)
        result[f"cpu_over_{over}"] = {"median": statistics.median(ratios), "range": [ratios[0], ratios[-1]]}
    if args.json:
        print(json.dumps(result, indent=2))
        return
    print(f"command alone     {median['cpu']:7.2f} CPU s  {median['wall']:7.2f} s")
    for name, title in (("one", "one server"), ("five", "five processes")):
        print(f"{title:17s} {median[name + '_cpu']:7.2f} CPU s  {median[name + '_wall']:7.2f} s   "
              f"({median[name + '_client_cpu']:.2f} CPU s of them the client's)")
    for over, title in (("one", "one server"), ("command", "command alone")):
        ratio = result[f"cpu_over_{over}"]
        print(f"five over {title:14s} {ratio['median']:6.3f}  ({ratio['range'][0]:.3f} to {ratio['range'][1]:.3f})")
    print(f"cached            {result['cached_seconds'] * 1e3:7.1f} ms for the whole command")


if __name__ == "__main__":
    main()
