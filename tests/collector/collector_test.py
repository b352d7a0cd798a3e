#!/usr/bin/env python3
"""Traces in OpenTelemetry's own collector: what a command, the gateway, the services and their steps' processes send arrives as one tree.

Usage: collector_test.py BIN_DIR     with quench, quench-remote and quench-serve
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin").resolve()
WORK = ROOT / "build/collector"
SKIPPED = 77
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"collector_test: {what}: not within {seconds} s")
        time.sleep(0.1)


def build():
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        skip("no Go to build a collector with")
    WORK.mkdir(parents=True, exist_ok=True)
    outcome = subprocess.run([go, "build", "-mod=readonly", "-o", WORK / "collector", "."], cwd=pathlib.Path(__file__).parent,
                             capture_output=True, text=True, timeout=1500)
    if outcome.returncode != 0:
        skip(f"the collector cannot be built: {outcome.stderr.strip().splitlines()[-1:]}")
    return WORK / "collector"


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def spans(log):
    """Each as a dictionary: its name, ids, status and attributes."""
    found = []
    for text in re.split(r"Span #\d+\n", log)[1:]:
        span = {key: value.strip() for key, value in re.findall(r"^ {4}(Trace ID|Parent ID|ID|Name|Status code) *: ?(.*)$", text, re.M)}
        span["attributes"] = dict(re.findall(r"-> ([\w.]+): \w+\((.*)\)$", text, re.M))
        found.append(span)
    return found


def main():
    collector = build()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        port, serve_port = free_port(), free_port()
        (folder / "collector.yaml").write_text(f"""
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{debug: {{verbosity: detailed, sampling_initial: 100000}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [debug]}}}}
""")
        (folder / "serve.txtpb").write_text(f"""
gateway {{
  server {{ listen: "127.0.0.1:{serve_port}" tracing {{ collector {{ address: "127.0.0.1:{port}" }} }} }}
  state_dir: "{folder}/state"
}}
steps {{ scratch_dir: "{folder}" }}
""")
        log = folder / "collector.log"
        environment = {**os.environ, "TRACEPARENT": f"00-{TRACE}-{CALLER}-01", "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
                       "XDG_CACHE_HOME": str(folder / "cache")}
        with open(log, "w") as out, open(folder / "serve.log", "w") as serve_log:
            collecting = subprocess.Popen([collector, "--config", f"file:{folder}/collector.yaml"], stderr=out, stdout=out)
            serving = subprocess.Popen([BIN / "quench-serve", "--config", folder / "serve.txtpb"], stderr=serve_log)
            try:
                wait_for(lambda: is_open(port) or collecting.poll() is not None, "the collector starts")
                wait_for(lambda: is_open(serve_port) or serving.poll() is not None, "the gateway starts")
                outcome = subprocess.run([BIN / "quench", "compile", ROOT / "bench/models/digits.onnx", "--check", "no", "--output", folder / "out",
                                          "--gateway", f"127.0.0.1:{serve_port}"], env=environment, capture_output=True, text=True, timeout=600)
                if outcome.returncode != 0:
                    sys.exit(f"collector_test: quench: {outcome.stderr}\n{(folder / 'serve.log').read_text()}")
                serving.terminate()
                serving.wait(60)  # it exports what is left
                time.sleep(1)  # the collector passes on what it took
            finally:
                for process in (serving, collecting):
                    process.terminate()
                    process.wait(60)
        check([span for span in spans(log.read_text()) if span["Trace ID"] == TRACE])


def check(trace):
    by_id = {span["ID"]: span for span in trace}

    def path(span):
        names = []
        while span is not None:
            names.append(span["Name"])
            if span["Parent ID"] == CALLER:
                names.append("the caller")
            span = by_id.get(span["Parent ID"])
        return list(reversed(names))

    paths = sorted({" > ".join(path(span)) for span in trace})
    orphans = [each for each in paths if not each.startswith("the caller > quench")]
    if orphans:
        sys.exit("collector_test: without their parents: " + "; ".join(orphans))
    create = "the caller > quench > quench.gateway.v1.Workflows/CreateWorkflow > workflow"
    for step, service in (("import", "quench.importer.v1.Importer/Import"), ("compile", "quench.codegen.v1.Codegen/Compile")):
        method = service.split("/")[1]
        wanted = rf"{re.escape(create)} > step [^>]*{step} > {re.escape(service)} > step {method} > (fetch|work|store)"
        phases = {match[1] for match in (re.fullmatch(wanted, each) for each in paths) if match}
        if phases != {"fetch", "work", "store"}:
            sys.exit(f"collector_test: of the phases of {service} there are {sorted(phases)} in:\n" + "\n".join(paths))
    print(f"{len(trace)} spans in one tree, {len(paths)} places:")
    print("\n".join(paths))


if __name__ == "__main__":
    main()
