#!/usr/bin/env python3
"""A model of many gigabytes through every step of a workflow: who takes how much memory, and what crosses sockets.

Usage: bench/services/bench_large_model.py --build-dir build/release [--gigabytes N] [--folder DIR] [--json]

The model is a chain of MatMul and Relu whose weights (256 MiB each) lie in one external file. It is uploaded to a gateway
whose services share its folder; one workflow imports, transforms, exports, analyses, compiles (twice: the verification
compares with a reference build), packages, verifies and benchmarks it; the library is downloaded. The folder needs about
eight times the model. Peak RssAnon (memory that is not of
files) is read from /proc every 20 ms, for each service and for its steps' processes; bytes are those of the gateway's
quench_cas_bytes_total.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import tempfile
import threading
import time
import urllib.request

import numpy as np
from onnx import TensorProto, helper

from bench_services import Cluster

WIDTH = 8192
LAYER_BYTES = WIDTH * WIDTH * 4


def build_model(folder, layers):
    weights = folder / "weights.bin"
    nodes, tensors, value = [], [], "x"
    random = np.random.default_rng(1)
    with weights.open("wb") as file:
        for i in range(layers):
            for _ in range(16):
                block = random.standard_normal((WIDTH // 16, WIDTH), dtype=np.float32)
                file.write((block * np.float32((2 / WIDTH) ** 0.5)).tobytes())
            tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH],
                                 data_location=TensorProto.EXTERNAL)
            for key, text in (("location", "weights.bin"), ("offset", str(i * LAYER_BYTES)), ("length", str(LAYER_BYTES))):
                tensor.external_data.add(key=key, value=text)
            tensors.append(tensor)
            nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"], f"matmul{i}"))
            nodes.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}"], f"relu{i}"))
            value = f"r{i}"
    shape = [1, WIDTH]
    graph = helper.make_graph(nodes, "large", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "large.onnx"
    path.write_bytes(model.SerializeToString())
    return path, weights


def spec_of(digests):
    def step(name, kind, request, **bindings):
        return {"name": name, kind: request, "bindings": [
            {"input": f"PORT_{port.upper()}", "step": source.split(".")[0], "output": f"PORT_{source.split('.')[1].upper()}"}
            for port, source in bindings.items()]}

    target = {"name": "x86-64-v3"}
    model = {"file": digests["large.onnx"], "name": "large.onnx",
             "external_data": [{"path": "weights.bin", "digest": digests["weights.bin"]}]}
    return {"steps": {"steps": [
        step("import", "import_model", {"model": model}),
        step("transform", "transform", {}, module="import.canonical"),
        step("export", "export_model", {}, module="import.canonical"),
        step("analyse", "analyse", {}, imported="import.imported", canonical="import.canonical"),
        step("compile", "compile", {"target": target}, module="transform.module"),
        step("reference", "compile", {"target": target, "options": {"opt_level": 0, "taps": True, "tap_values": "TAP_VALUES_RUNNING_CODE"}}, module="transform.module"),
        step("package", "package_library", {"uuid": "00000000000000000000000000000001"}, library="compile.library",
             header="compile.header"),
        step("verify", "verify", {"options": {"samples": 1, "oracle": "ORACLE_REFERENCE"}}, canonical="import.canonical",
             library="compile.library", reference_library="reference.library"),
        step("benchmark", "benchmark", {"options": {"time": "1s"}}, library="compile.library"),
    ]}}


class MemoryWatch:
    """Peak RssAnon by service, for the server and for the processes of its steps."""

    def __init__(self, pids):
        self.pids, self.peaks, self.stopped = pids, collections.Counter(), threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stopped.wait(0.02):
            for name, pid in self.pids.items():
                self.look(name, pid)
                try:
                    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
                    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                        children += " " + (task / "children").read_text()
                except OSError:
                    continue
                for child in set(children.split()):
                    self.look(f"{name} step", child)

    def look(self, name, pid):
        try:
            found = re.search(r"RssAnon:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
        except OSError:
            return
        if found:
            self.peaks[name] = max(self.peaks[name], int(found.group(1)) * 1024)

    def stop(self):
        self.stopped.set()
        self.thread.join()


def cas_bytes(metrics):
    text = urllib.request.urlopen(f"http://{metrics}/metrics").read().decode()
    return {op: float(re.search(rf'quench_cas_bytes_total{{op="{op}"}} (\S+)', text).group(1)) for op in ("read", "written")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--folder", type=pathlib.Path, help="where to work (default: $TMPDIR)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    bin_dir = (args.build_dir / "bin").resolve()
    quench = bin_dir / "quench"
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        files = build_model(folder, max(1, round(args.gigabytes * 1e9 / LAYER_BYTES)))
        size = sum(file.stat().st_size for file in files)
        cluster = Cluster(bin_dir, folder)
        watch = MemoryWatch({name: process.pid for name, process in cluster.processes.items()})
        gateway = ["--gateway", cluster.address]
        begin = time.monotonic()
        try:
            put = subprocess.run([quench, "blobs", "put", *files, "--format", "json", *gateway], check=True, capture_output=True,
                                 env={"XDG_CACHE_HOME": str(folder / "cache")})
            uploaded = time.monotonic()
            for file in files:
                file.unlink()
            digests = {pathlib.Path(each["file"]).name: {"hash": each["hash"], "size_bytes": each["size_bytes"]}
                       for each in json.loads(put.stdout)}
            spec = folder / "spec.json"
            spec.write_text(json.dumps(spec_of(digests)))
            result = subprocess.run([quench, "workflow", "create", spec, "--watch", "--format", "json", *gateway],
                                    capture_output=True, text=True)
            if result.returncode != 0:
                raise SystemExit(result.stderr)
            done = time.monotonic()
            workflow = json.loads(result.stdout)
            package = next(step for step in workflow["steps"] if step["name"] == "package")
            library = next(output["digest"] for output in package["outputs"] if output["name"] == "library")
            subprocess.run([quench, "blobs", "get", f"{library['hash']}/{library['size_bytes']}", "--output", folder / "model.so",
                            *gateway], check=True, capture_output=True, env={"XDG_CACHE_HOME": str(folder / "cache")})
            downloaded = time.monotonic()
            moved = cas_bytes(cluster.metrics)
        finally:
            watch.stop()
            cluster.stop()
    bound = 200e6 + 2 * LAYER_BYTES
    report = {"model_bytes": size, "upload_seconds": uploaded - begin, "workflow_seconds": done - uploaded,
              "download_seconds": downloaded - done, "library_bytes": int(library["size_bytes"]),
              "bytes_written": moved["written"], "bytes_read": moved["read"], "bound_bytes": bound,
              "peak_rss_anon": dict(watch.peaks), "steps": len(workflow.get("steps", []))}
    if args.json:
        print(json.dumps(report, indent=2))
        return
    print(f"model      {size / 1e9:.2f} GB, uploaded in {report['upload_seconds']:.1f} s, all steps in {report['workflow_seconds']:.1f} s")
    print(f"sockets    {moved['written'] / size:.3f} of the model's bytes came in, {moved['read'] / report['library_bytes']:.3f} of the library's "
          f"went out, in {report['download_seconds']:.1f} s")
    for who, peak in sorted(watch.peaks.items()):
        print(f"{who:<16} {peak / 1e6:8.0f} MB RssAnon at most, {peak / bound:.2f} of the bound")


if __name__ == "__main__":
    main()
