#!/usr/bin/env python3
"""README, "Operating Quench": tells of every port, configuration field, alert and metric there is, and of none that is not."""

import re
import textwrap
import unittest

import support
from support import yaml

README = (support.ROOT / "README.md").read_text()
PAGE = re.search(r"^## Operating Quench\n(.*?)^## ", README, re.M | re.S)[1]
CONFIG = (support.ROOT / "proto/quench/config/v1/config.proto").read_text()


def rows(first):
    """Cells of the table whose header begins with `first`."""
    table = re.search(rf"^\| {re.escape(first)} .*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.M)[1]
    return [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines()]


def messages():
    """Message -> {field: type}"""
    text = re.sub(r"//.*", "", CONFIG)
    return {found[1]: dict(reversed(field) for field in re.findall(r"([\w.]+) (\w+) = \d+;", found[2]))
            for found in re.finditer(r"^message (\w+) \{(.*?)^\}", text, re.M | re.S)}


class Page(unittest.TestCase):
    def test_ports(self):
        told = {row[0]: (row[1].strip("`"), int(row[2]), int(row[3])) for row in rows("service")}
        self.assertEqual({name: (f"quench-{name}", port, port + support.METRICS_PORT_OFFSET) for name, port in support.SERVICES.items()}, told)

    def test_every_configuration_field(self):
        fields = {field for message in messages().values() for field in message}
        self.assertLess({"server", "listen", "high_bytes"}, fields)
        self.assertEqual([], sorted(field for field in fields if not re.search(rf"`(\w+\.)*{field}[`.]", PAGE)))

    def test_no_configuration_field_that_is_not(self):
        known = messages()
        roots = {**known["GatewayConfig"], **known["ImporterConfig"]}
        for name, *_ in rows("field"):
            path = name.strip("`").split(".")
            self.assertIn(path[0], roots, name)
            kind = roots[path[0]]
            for part in path[1:]:
                self.assertIn(part, known[kind], name)
                kind = known[kind][part]

    def test_every_alert_with_its_severity(self):
        told = {row[0].strip("`"): row[1] for row in rows("alert")}
        rules = [rule for path in (support.DOCKER / "prometheus/rules").glob("*.yml")
                 for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
        self.assertEqual({rule["alert"]: rule["labels"]["severity"] for rule in rules if "alert" in rule}, told)

    def test_every_metric_with_its_labels(self):
        told = {row[0].strip("`"): (row[1], row[2]) for row in rows("metric")}
        expected = {}
        for name, row in support.metrics_table().items():
            if not name.endswith(("_bucket", "_sum")) or row.kind != "Histogram":
                family = name.removesuffix("_count") if row.kind == "Histogram" else name
                expected[family] = (row.kind.lower(), ", ".join(row.labels))
        self.assertEqual(expected, told)

    def test_files_it_names_exist(self):
        for path in re.findall(r"\b((?:docker|scripts|proto|tests)/[\w./-]*\w)", PAGE):
            self.assertTrue((support.ROOT / path).exists(), path)

    def test_the_certificate_goes_where_it_says(self):
        snippet = yaml.safe_load(textwrap.dedent(re.search(r"  ```\n(.*?filter_chains.*?)  ```", PAGE, re.S)[1]))
        chain = yaml.safe_load((support.DOCKER / "envoy/envoy.yaml").read_text())["static_resources"]["listeners"][0]["filter_chains"][0]
        self.assertEqual(set(snippet["filter_chains"][0]), set(chain) | {"transport_socket"})
        socket = snippet["filter_chains"][0]["transport_socket"]["typed_config"]["common_tls_context"]
        self.assertEqual(["h2"], socket["alpn_protocols"])


if __name__ == "__main__":
    support.main("ops_readme")
