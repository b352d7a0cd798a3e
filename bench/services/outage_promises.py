"""Scenarios of outages.py: troubles that once cost work, each as it was found."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import select
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import grpc

from outage_cluster import Cluster, batch, report

ONE = ["x86-64-v3"]


def ended(cluster, workflow, seconds):
    """How it ended."""
    end = time.time() + seconds
    while time.time() < end:
        found = cluster.state(workflow)
        if found["state"].endswith(("SUCCEEDED", "FAILED", "CANCELLED")):
            return found
        time.sleep(0.2)
    raise AssertionError(f"{workflow} has not ended: {cluster.metrics()}")


def database(folder):
    """Bytes of the gateway's record, with its journal."""
    return sum(path.stat().st_size for path in (folder / "state").glob("workflows.db*"))


def store(args, folder):
    blobs = folder / "blobs"
    blobs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "none", blobs], check=True)
    cluster = None
    try:
        cluster = Cluster(args.bin, folder, blobs=blobs / "store", gateway="blob_limits { high_bytes: 250000000 min_free_bytes: 1 }")
        spec = batch(cluster, ONE)
        cluster.wait([cluster.create(spec)], 120)
        fresh = {**spec, "salt": "fresh"}
        disk = os.statvfs(blobs)
        with (blobs / "others").open("wb") as others:
            others.truncate(0)
            os.posix_fallocate(others.fileno(), 0, disk.f_bavail * disk.f_frsize - 4096)
        workflows = [cluster.create(spec), cluster.create(fresh)]
        time.sleep(10)
        report("with a full disk", cluster)
        for workflow in workflows:
            state = cluster.state(workflow)
            assert not state["state"].endswith("FAILED"), json.dumps(state)[:2000]
        began = time.time()
        (blobs / "others").unlink()
        cluster.wait(workflows, 120)
        print(f"  ended {time.time() - began:.1f} s after there was room")
    finally:
        if cluster:
            cluster.end()
        subprocess.run(["umount", "-l", blobs], check=False)


def merge(args, folder):
    cluster = Cluster(args.bin, folder)
    try:
        patient = batch(cluster, ONE, levels=(1,), salt="merge")
        for hasty_first in (True, False):
            patient["salt"] = f"merge {hasty_first}"
            hasty = {**patient, "step_timeout": "2s"}
            holding = concurrent.futures.ThreadPoolExecutor().submit(cluster.hold, "codegen")
            first, second = (cluster.create(spec) for spec in ((hasty, patient) if hasty_first else (patient, hasty)))
            child = holding.result()
            time.sleep(5)
            states = [cluster.state(each) for each in (first, second)]
            in_time, at_ease = states if hasty_first else reversed(states)
            assert in_time["state"].endswith("FAILED"), json.dumps(in_time)[:2000]
            assert not at_ease["state"].endswith("FAILED"), json.dumps(at_ease)[:2000]
            try:
                os.kill(child, signal.SIGCONT)
            except ProcessLookupError:  # its leader's call is over, and so is it
                pass
            cluster.wait([second if hasty_first else first], 120)
    finally:
        cluster.end()


def oom(args, folder):
    cluster = Cluster(args.bin, folder)
    try:
        spec = batch(cluster, ONE, levels=(1,))
        for _ in range(2):
            killing = concurrent.futures.ThreadPoolExecutor().submit(cluster.child, "codegen", 60)
            if "workflow" not in locals():
                workflow = cluster.create(spec)
            child = killing.result()
            os.kill(child, signal.SIGKILL)
            while pathlib.Path(f"/proc/{child}").exists():
                time.sleep(0.01)
        report("after two kills", cluster)
        cluster.wait([workflow], 120)
    finally:
        cluster.end()


def quota(args, folder):
    cluster = Cluster(args.bin, folder, tenants="max_ended_bytes: 4000000")
    try:
        small = batch(cluster, ONE, levels=(1,))["compile"]["models"][0]["model"]
        for name in ("importer", "codegen"):
            cluster.stop(name)
        spec = {"compile": {"models": [{"name": f"m{i}", "model": small} for i in range(60)], "targets": [{"name": ONE[0]}],
                            "choices": [{"name": "o", "compile_options": {"class_names": [f"{i:0200}" for i in range(1000)]}}]}}
        workflows = []
        for _ in range(60):
            workflows.append(cluster.create(spec))
            cluster.quench("workflow", "cancel", workflows[-1])
        time.sleep(5)
        print(f"  the database has {database(folder) >> 20} MiB after 60 workflows")
        assert database(folder) < 100 << 20, "the database grows with what was cancelled"
        kept = cluster.quench("workflow", "list", "--limit", "100")
        assert workflows[-1] in kept and workflows[0] not in kept, "not those that ended first are forgotten"
        cluster.stop("gateway")
        began = time.time()
        cluster.start("gateway")
        print(f"  started in {time.time() - began:.1f} s, {database(folder) >> 20} MiB")
        assert time.time() - began < 5
        for name in ("importer", "codegen"):
            cluster.start(name)
        cluster.quench("workflow", "retry", workflows[-1])
        cluster.wait([workflows[-1]], 300)
    finally:
        cluster.end()


def while_held(args, folder, trouble):
    """The fate of a workflow after `trouble(cluster, child)`, which comes while the process of a step stands still."""
    cluster = Cluster(args.bin, folder)
    try:
        holding = concurrent.futures.ThreadPoolExecutor().submit(cluster.hold, "codegen")
        workflow = cluster.create(batch(cluster, ONE, levels=(1,)))
        child = holding.result()
        trouble(cluster, child)
        os.kill(child, signal.SIGCONT)
        cluster.wait([workflow], 60)
        return cluster.state(workflow)
    finally:
        cluster.end()


def pause(args, folder):
    def stop_twice(cluster, _):
        for _ in range(2):
            time.sleep(3)
            cluster.running["gateway"].send_signal(signal.SIGSTOP)
            time.sleep(35)
            cluster.running["gateway"].send_signal(signal.SIGCONT)
        time.sleep(3)

    for step in while_held(args, folder, stop_twice)["steps"]:
        assert step["attempt"] == 1, json.dumps(step)[:1000]


def log(args, folder):
    def look(_, child):
        time.sleep(0.2)
        where = os.readlink(f"/proc/{child}/fd/2")
        print(f"  its stderr is {where}")
        assert where.startswith("pipe:"), f"a step's process writes into {where}"

    while_held(args, folder, look)


class Proxy:
    """Passes connections on until they are cut."""

    def __init__(self, port):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.to, self.open = self.listener.getsockname()[1], port, []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.to))
            self.open += [client, server]
            threading.Thread(target=self.copy, args=(client, server), daemon=True).start()

    @staticmethod
    def copy(client, server):
        try:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        raise OSError("closed")
                    (server if ready is client else client).sendall(data)
        except (OSError, ValueError):
            for each in (client, server):
                each.close()

    def cut(self):
        for each in self.open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open = []


def cut(args, folder):
    cluster = Cluster(args.bin, folder)
    try:
        cluster.stop("codegen")
        workflow = cluster.create(batch(cluster, ONE, levels=(1,)))
        proxy = Proxy(cluster.ports["gateway"])
        watch = subprocess.Popen(cluster.command("workflow", "watch", workflow, port=proxy.port), stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        for pause_for in (10, 160, 160, 5):
            time.sleep(pause_for)
            assert watch.poll() is None, watch.communicate()
            proxy.cut()
        time.sleep(2)
        cluster.start("codegen")
        out, err = watch.communicate(timeout=60)
        assert watch.returncode == 0, (watch.returncode, out, err)
    finally:
        cluster.end()


def row(args, folder):
    cluster = Cluster(args.bin, folder)
    try:
        good, bad = (cluster.create(batch(cluster, ONE, levels=(level,))) for level in (1, 2))
        cluster.wait([good, bad], 60)
        cluster.stop("gateway")
        with sqlite3.connect(folder / "state/workflows.db") as db:
            assert db.execute("UPDATE workflows SET header = x'ff' WHERE id = ?", [bad]).rowcount == 1
        db.close()
        cluster.start("gateway")
        assert cluster.state(good)["state"].endswith("SUCCEEDED")
        told = subprocess.run(cluster.command("workflow", "get", bad), capture_output=True, text=True)
        assert told.returncode != 0 and bad in told.stderr, told
        print(f"  {told.stderr.strip()}")
        cluster.wait([cluster.create(batch(cluster, ONE, levels=(3,)))], 60)
    finally:
        cluster.end()


def lock(args, folder):
    cluster = Cluster(args.bin, folder)
    try:
        spec = batch(cluster, ONE, levels=(1,))
        cluster.wait([cluster.create(spec)], 60)
        db = sqlite3.connect(folder / "state/workflows.db", isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        creating = []
        for i in range(9):
            path = cluster.spec({**spec, "title": f"locked {i}"}, f"locked{i}")
            creating.append(subprocess.Popen(cluster.command("workflow", "create", path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        longest, end = 0, time.time() + 25
        with grpc.insecure_channel(f"127.0.0.1:{cluster.ports['gateway']}") as channel:
            listing = channel.unary_unary("/quench.gateway.v1.Workflows/ListWorkflows")
            while time.time() < end:
                longest = max(longest, timed(lambda: listing(b"", timeout=30)))
                time.sleep(0.5)
        db.execute("COMMIT")
        print(f"  the slowest list took {longest:.1f} s")
        assert longest < 5, "the store's stall stalls other calls"
        for each in creating:
            out, err = each.communicate(timeout=60)
            assert each.returncode == 0, (out, err)
        listed = json.loads(cluster.quench("workflow", "list", "--format", "json"))
        titles = sorted(each.get("title", "") for each in (listed if isinstance(listed, list) else listed["workflows"]))
        assert titles == sorted(["outage", *(f"locked {i}" for i in range(9))]), titles
        cluster.wait([row[0] for row in db.execute("SELECT id FROM workflows")], 60)
        db.close()
    finally:
        cluster.end()


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A field of a message, as protobuf encodes it: an integer, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def unknown(args, folder):
    cluster = Cluster(args.bin, folder)
    try:
        # CreateWorkflowRequest.spec.compile.choices.compile_options, with what a newer client may know.
        request = field(2, field(2, field(2, field(1, b"o") + field(3, field(4000, 1)))))
        with grpc.insecure_channel(f"127.0.0.1:{cluster.ports['gateway']}") as channel:
            call = channel.unary_unary("/quench.gateway.v1.Workflows/CreateWorkflow")
            try:
                call(request, timeout=10)
                raise AssertionError("the option was ignored")
            except grpc.RpcError as error:
                print(f"  {error.code().name}: {error.details()}")
                assert error.code() == grpc.StatusCode.UNIMPLEMENTED and "compile_options.4000" in error.details()
    finally:
        cluster.end()


def history(args, folder):
    """With blobs of their own, which is the most there may be; each workflow has the steps of a compilation."""
    count = 100_000
    cluster = Cluster(args.bin, folder)
    try:
        workflow = cluster.create(batch(cluster, ONE, levels=(1,)))
        cluster.wait([workflow], 60)
        cluster.stop("gateway")
        db = sqlite3.connect(folder / "state/workflows.db")
        db.execute("PRAGMA synchronous = OFF")
        db.row_factory = sqlite3.Row
        first = dict(db.execute("SELECT * FROM workflows").fetchone())
        steps = [(step["position"], step["step"]) for step in db.execute("SELECT position, step FROM steps")]
        kept = db.execute("SELECT * FROM kept").fetchone()
        names = ", ".join(first)
        for i in range(count):
            key, name = first["key"] + 1 + i, f"{i:032x}"
            copy = {**first, "key": key, "id": name, "request_id": None, "create_us": first["create_us"] - i,
                    "header": first["header"].replace(workflow.encode(), name.encode()), "state": 4 if i % 50 == 0 else 3}
            db.execute(f"INSERT INTO workflows({names}) VALUES({', '.join('?' * len(copy))})", list(copy.values()))
            db.executemany("INSERT INTO steps VALUES(?, ?, ?)", [(key, position, step) for position, step in steps])
            blobs = "".join(f"{hashlib.sha256(f'{i} {each}'.encode()).hexdigest()}/1\n" for each in range(kept["blobs"].count("\n")))
            db.execute("INSERT INTO kept VALUES(?, ?, ?, ?, ?)", (key, name, kept["tenant"], kept["until_us"], blobs))
        db.execute("UPDATE ended SET workflows = workflows + ?, bytes = bytes + ?", (count, count * first["bytes"]))
        db.commit()
        db.close()
        print(f"  {database(folder) >> 20} MiB of {count} workflows")
        for _ in range(2):
            began = time.time()
            cluster.start("gateway")
            started = time.time() - began
            print(f"  started in {started:.1f} s")
            with grpc.insecure_channel(f"127.0.0.1:{cluster.ports['gateway']}") as channel:
                call = channel.unary_unary("/quench.gateway.v1.Workflows/ListWorkflows")
                # ListWorkflowsRequest.states: failed ones; then running ones, of which there are none.
                seconds = [[timed(lambda: call(field(3, state), timeout=10)) for _ in range(5)] for state in (4, 2)]
            print(f"  100 that failed: {1000 * max(seconds[0]):.0f} ms at most, none that run: {1000 * max(seconds[1]):.0f} ms")
            assert started < 2.5 and max(sum(seconds, [])) < 0.1
            cluster.stop("gateway")
    finally:
        cluster.end()


def timed(work):
    began = time.time()
    work()
    return time.time() - began


def watchers(args, folder):
    cluster = Cluster(args.bin, folder, gateway="calls { max_watches: 1 }")
    try:
        cluster.stop("codegen")
        workflow = cluster.create(batch(cluster, ONE, levels=(1,)))
        watching = [subprocess.Popen(cluster.command("workflow", "watch", workflow), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    for _ in range(4)]
        time.sleep(8)
        cluster.start("codegen")
        for each in watching:
            out, err = each.communicate(timeout=60)
            assert each.returncode == 0, (out, err)
    finally:
        cluster.end()


SCENARIOS = {each.__name__: each for each in (store, merge, oom, quota, pause, log, cut, row, lock, unknown, history, watchers)}
