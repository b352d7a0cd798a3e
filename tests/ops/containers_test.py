#!/usr/bin/env python3
"""docker/: what a linter and an engine would say of images, compose.yaml, Envoy and the services' configuration, as far as files tell.

Usage: containers_test.py BUILD_DIR
"""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import support
from support import yaml

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else support.ROOT / "build/asan").resolve()
COMPOSE = yaml.safe_load((support.DOCKER / "compose.yaml").read_text())
CONTAINERS = COMPOSE["services"]
ENVOY = yaml.safe_load((support.DOCKER / "envoy/envoy.yaml").read_text())
CONFIG_IN_IMAGE = "/etc/quench/service.txtpb"


def config_of(service):
    return (support.DOCKER / f"config/{service}.txtpb").read_text()


def seconds(text):
    return float(re.fullmatch(r"([\d.]+)s", text)[1])


def instructions(dockerfile):
    """(instruction, arguments), without comments, continued lines joined."""
    text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.M))
    return [tuple(line.strip().split(None, 1)) for line in text.splitlines() if line.strip()]


def dockerfile_problems(dockerfile):
    """Violations of the rules that this project has for its images."""
    problems, user, stages, validated = [], "root", set(), False
    has = {"HEALTHCHECK": False, "ENTRYPOINT": False, "STOPSIGNAL": False}
    for word, rest in instructions(dockerfile):
        if word in has:
            has[word] = True
        if word == "FROM":
            base = rest.split()[0]
            user = "root"
            if base not in stages and (":" not in base or base.endswith(":latest")):
                problems.append(f"`{base}` names no version")
            if " AS " in rest:
                stages.add(rest.split(" AS ")[1])
        if word == "ADD":
            problems.append("ADD: COPY does all that is needed, and never fetches or unpacks")
        if word == "USER":
            user = rest.split(":")[0]
        if word == "RUN":
            if "apt-get install" in rest:
                for needed in ("apt-get update", "--no-install-recommends", "rm -rf /var/lib/apt/lists/*", " -y "):
                    if needed not in rest:
                        problems.append(f"apt-get install without `{needed.strip()}`")
            if re.search(r"\b(curl|wget|sudo)\b", rest):
                problems.append("RUN fetches from the network, or uses sudo")
            accepted = re.search(r'case "\$\{SERVICE:-\}" in\s+([\w |]+)\) ;; .*exit 1', rest)
            validated |= accepted is not None and set(accepted[1].split(" | ")) == set(support.SERVICES)
        if word in ("CMD", "ENTRYPOINT") and not rest.startswith("["):
            problems.append(f"{word} in a shell does not get SIGTERM")
    if user in ("root", "0"):
        problems.append("the last USER is root")
    if not validated:
        problems.append("SERVICE is taken unseen")
    return problems + [f"no {word}" for word, seen in has.items() if not seen]


class Dockerfile(unittest.TestCase):
    TEXT = (support.DOCKER / "Dockerfile").read_text()

    def test_has_no_problem(self):
        self.assertEqual([], dockerfile_problems(self.TEXT))

    def test_problems_are_found(self):
        for good, bad in (("FROM debian:12-slim\n", "FROM debian\n"), ("--no-install-recommends ca", "ca"), ("USER 10001:10001", "USER root"),
                          ("USER 10001:10001\n", ""), ("COPY scripts scripts", "ADD https://example.com/x /"), ("exit 1 ;;", ";;"),
                          ("STOPSIGNAL SIGTERM\n", ""), ('ENTRYPOINT ["/usr/local/bin/quench-service"]', "ENTRYPOINT quench-service"),
                          ("| quantizer |", "|"), ("FROM debian:12-slim AS build", "FROM debian:latest AS build")):
            with self.subTest(bad):
                self.assertIn(good, self.TEXT)
                self.assertNotEqual([], dockerfile_problems(self.TEXT.replace(good, bad)))

    def test_sources_exist_and_are_in_the_context(self):
        ignored = (support.DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
        self.assertEqual("*", ignored[0])
        kept = {line[1:] for line in ignored if line.startswith("!")}
        for source in self.copied():
            for service in support.SERVICES:
                path = source.replace("${SERVICE}", service)
                self.assertTrue((support.ROOT / path).exists(), path)
                self.assertTrue(any(path == each or path.startswith(each + "/") for each in kept), path)
        self.assertEqual([], [each for each in kept if not (support.ROOT / each).exists()])

    def test_the_programs_have_the_options_that_it_names(self):
        named = {option for word, rest in instructions(self.TEXT) if word in ("CMD", "HEALTHCHECK") for option in re.findall(r'"(--[\w-]+)"', rest)}
        self.assertEqual({"--config", "--health"}, named)
        for service in support.SERVICES:
            told = subprocess.run([BUILD / f"bin/quench-{service}", "--help"], capture_output=True, text=True, check=True).stdout
            self.assertEqual(set(), {option for option in named if f"  {option} " not in told}, service)

    def copied(self):
        return [source for word, rest in instructions(self.TEXT) if word == "COPY" and "--from" not in rest for source in shlex.split(rest)[:-1]]

    def test_what_is_copied_is_enough_to_build(self):
        with tempfile.TemporaryDirectory() as folder:
            for source in self.copied():
                target = pathlib.Path(folder) / source
                if (support.ROOT / source).is_dir():
                    shutil.copytree(support.ROOT / source, target, dirs_exist_ok=True)
                elif "$" not in source:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(support.ROOT / source, target)
            build = next(rest for word, rest in instructions(self.TEXT) if word == "RUN" and "cmake" in rest)
            configure, compile_ = build[build.index("cmake"):].split("&&")
            for command in (shlex.split(configure), shlex.split(compile_) + ["-n"]):
                outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                self.assertEqual(0, outcome.returncode, outcome.stdout[-2000:] + outcome.stderr[-2000:])

    @unittest.skipUnless(shutil.which("dpkg-query"), "not Debian: packages cannot be looked up")
    def test_packages_are_those_that_the_programs_load(self):
        for service in support.SERVICES:
            outcome = subprocess.run([support.DOCKER / "runtime_packages", BUILD / f"bin/quench-{service}"], capture_output=True, text=True)
            self.assertEqual(0, outcome.returncode, outcome.stderr)
            packages = set(outcome.stdout.split())
            self.assertLessEqual({"libc6", "libgrpc++1.51", "libprotobuf32", "libstdc++6"}, packages)
            self.assertEqual(service == "codegen", "libllvm19" in packages)
            self.assertEqual([], [name for name in packages if name.endswith("-dev") or "-cross" in name])
        wrong = subprocess.run([support.DOCKER / "runtime_packages", "/nowhere"], capture_output=True, text=True)
        self.assertEqual(2, wrong.returncode)


class Compose(unittest.TestCase):
    def test_no_container_may_more_than_it_must(self):
        for name, container in CONTAINERS.items():
            with self.subTest(name):
                self.assertIs(True, container["read_only"])
                self.assertEqual(["ALL"], container["cap_drop"])
                self.assertIn("no-new-privileges:true", container["security_opt"])
                self.assertGreater(container["pids_limit"], 0)
                self.assertRegex(container["mem_limit"], r"^\$\{\w+:-\d+[mg]\}$")
                self.assertGreater(container["cpu_shares"], 0)
                self.assertEqual(set(), {"privileged", "cap_add", "pid", "ipc", "network_mode", "devices"} & set(container))
                if name in support.SERVICES:
                    self.assertNotIn("user", container)  # the image's
                else:
                    self.assertRegex(container["user"], r"^[1-9]\d*:[1-9]\d*$")
                    self.assertRegex(container["image"], r":v?\d+\.\d+\.\d+$")
                    self.assertIn("test", container["healthcheck"])

    def test_ports_are_for_this_machine_only(self):
        published = {name: container["ports"] for name, container in CONTAINERS.items() if "ports" in container}
        self.assertEqual({"envoy", "prometheus", "grafana"}, set(published))
        for port in (port for ports in published.values() for port in ports):
            self.assertTrue(port.startswith("127.0.0.1:"), port)
        self.assertTrue(COMPOSE["networks"]["inner"]["internal"])
        for name in support.SERVICES:
            self.assertEqual(["inner"], CONTAINERS[name]["networks"])

    def test_every_service_is_built_from_the_one_dockerfile(self):
        for name in support.SERVICES:
            build = CONTAINERS[name]["build"]
            self.assertEqual({"SERVICE": name}, build["args"])
            self.assertTrue((support.DOCKER / build["context"] / build["dockerfile"]).is_file())

    def test_what_is_mounted_and_waited_for_exists(self):
        used = set()
        for name, container in CONTAINERS.items():
            for source, target, mode in (volume.split(":") + ["rw"] * (3 - len(volume.split(":"))) for volume in container["volumes"]):
                if source.startswith("./"):
                    self.assertTrue((support.DOCKER / source).exists(), source)
                    self.assertEqual("ro", mode, f"{name}: {source}")
                else:
                    used.add(source)
            for other, how in container.get("depends_on", {}).items():
                self.assertIn(other, CONTAINERS)
                self.assertEqual("service_healthy", how["condition"])
        self.assertEqual(set(COMPOSE["volumes"]), used)

    def test_what_a_service_writes_is_a_volume(self):
        for name in support.SERVICES:
            volumes = dict(reversed(volume.split(":")[:2]) for volume in CONTAINERS[name]["volumes"])
            self.assertEqual(f"./config/{name}.txtpb", volumes.pop(CONFIG_IN_IMAGE))
            written = set(re.findall(r'"(/var/lib/quench/\w+)"', config_of(name)))
            self.assertEqual(written, set(volumes), name)
            self.assertEqual("blobs", volumes["/var/lib/quench/blobs"])
            declared = next(rest for word, rest in instructions(Dockerfile.TEXT) if word == "VOLUME")
            self.assertLessEqual(written, set(re.findall(r'"([^"]+)"', declared)))
        scratch = [volume for name in support.SERVICES for volume in CONTAINERS[name]["volumes"] if volume.endswith("/scratch")]
        self.assertEqual(len(scratch), len(set(scratch)))

    def test_a_drain_has_the_time_it_takes(self):
        for name in support.SERVICES:
            grace = sum(int(number) for number in re.findall(r"(?:grace|drain_delay) \{ seconds: (\d+) \}", config_of(name)))
            self.assertGreaterEqual(grace, 30)
            self.assertGreater(seconds(CONTAINERS[name]["stop_grace_period"]), grace)


class Addresses(unittest.TestCase):
    def test_services_listen_where_they_are_looked_for(self):
        scraped = yaml.safe_load((support.DOCKER / "prometheus/prometheus.yml").read_text())["scrape_configs"]
        for name, port in support.SERVICES.items():
            config = config_of(name)
            self.assertIn(f'listen: "0.0.0.0:{port}"', config)
            self.assertIn(f'metrics_listen: "0.0.0.0:{port + support.METRICS_PORT_OFFSET}"', config)
            self.assertIn(f"# proto-message: {name.capitalize()}Config\n", config)
            self.assertIn([f"{name}:{port + support.METRICS_PORT_OFFSET}"], [job["static_configs"][0]["targets"] for job in scraped])
            if name != "gateway":
                self.assertIn(f'{name} {{ address: "dns:///{name}:{port}" }}', config_of("gateway"))

    def test_grafana_finds_prometheus_and_the_dashboard(self):
        provisioning = support.DOCKER / "grafana/provisioning"
        source = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"][0]
        self.assertEqual("http://prometheus:9090", source["url"])
        folder = yaml.safe_load((provisioning / "dashboards/quench.yml").read_text())["providers"][0]["options"]["path"]
        self.assertIn(f"./grafana/dashboards:{folder}:ro", CONTAINERS["grafana"]["volumes"])
        self.assertEqual(f"{folder}/quench.json", CONTAINERS["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])


class Envoy(unittest.TestCase):
    listener = ENVOY["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    cluster = ENVOY["static_resources"]["clusters"][0]

    def test_streams_may_take_their_time(self):
        for route in self.routes:
            if "route" in route:
                self.assertEqual("0s", route["route"]["timeout"])
        self.assertEqual("0s", self.manager["request_timeout"])
        # Three missed signs of life, and more.
        self.assertGreater(seconds(self.manager["stream_idle_timeout"]), 30)
        self.assertNotIn("max_stream_duration", self.manager["common_http_protocol_options"])

    def test_only_the_gateways_services_are_reached(self):
        prefixes = {route["match"]["prefix"] for route in self.routes if "route" in route}
        for prefix in prefixes:
            self.assertRegex(prefix, r"^/[a-z0-9.A-Z]+[./]$")
        self.assertEqual({"status": 404}, self.routes[-1]["direct_response"])
        self.assertFalse(any(prefix.startswith("/grpc.reflection") for prefix in prefixes))
        served = set()
        for path in ("quench/gateway/v1", "google/longrunning", "google/bytestream", "build/bazel/remote/execution/v2", "grpc/health/v1"):
            for proto in (support.ROOT / "proto" / path).glob("*.proto"):
                text = proto.read_text()
                package = re.search(r"^package ([\w.]+);", text, re.M)[1]
                served |= {f"/{package}.{service}/" for service in re.findall(r"^service (\w+)", text, re.M)}
        self.assertEqual(set(), {service for service in served if not any(service.startswith(prefix) for prefix in prefixes)})
        self.assertEqual(set(), {prefix for prefix in prefixes if not any(service.startswith(prefix) for service in served)})

    def answer_to(self, path):
        """The action of the first route that matches, as in Envoy."""
        for route in self.routes:
            match = route["match"]
            if match["path"] == path if "path" in match else path.startswith(match["prefix"]):
                return route
        return None

    def test_nobody_writes_the_action_cache_through_it(self):
        cache = "/build.bazel.remote.execution.v2.ActionCache/"
        self.assertEqual({"status": 403}, self.answer_to(cache + "UpdateActionResult").get("direct_response"))
        self.assertEqual("gateway", self.answer_to(cache + "GetActionResult")["route"]["cluster"])

    def test_both_sides_speak_http2_and_ask_whether_the_other_lives(self):
        upstream = self.cluster["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
        upstream = upstream["explicit_http_config"]["http2_protocol_options"]
        self.assertEqual("HTTP2", self.manager["codec_type"])
        for side in (self.manager["http2_protocol_options"], upstream):
            # Our servers take pings that come more often than every 10 s for an attack.
            self.assertGreaterEqual(seconds(side["connection_keepalive"]["interval"]), 10)
            self.assertGreaterEqual(side["initial_stream_window_size"], 1 << 20)
        self.assertLess(upstream["max_concurrent_streams"], 1000)
        self.assertLessEqual(self.manager["http2_protocol_options"]["max_concurrent_streams"], 100)

    def test_it_leads_to_the_gateway(self):
        endpoint = self.cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
        self.assertEqual({"address": "gateway", "port_value": support.SERVICES["gateway"]}, endpoint)
        port = self.listener["address"]["socket_address"]["port_value"]
        self.assertEqual([f"127.0.0.1:{support.SERVICES['gateway']}:{port}"], CONTAINERS["envoy"]["ports"])
        self.assertEqual("quench.gateway.v1.Workflows", self.cluster["health_checks"][0]["grpc_health_check"]["service_name"])
        delay = int(re.search(r"drain_delay \{ seconds: (\d+) \}", config_of("gateway"))[1])
        check = self.cluster["health_checks"][0]
        self.assertGreater(delay, seconds(check["interval"]) * check["unhealthy_threshold"])

    def test_its_memory_is_bounded_and_its_administration_is_its_own(self):
        self.assertEqual("127.0.0.1", ENVOY["admin"]["address"]["socket_address"]["address"])
        self.assertIn("envoy.overload_actions.stop_accepting_requests", [action["name"] for action in ENVOY["overload_manager"]["actions"]])


if __name__ == "__main__":
    support.main("ops_containers")
