#!/usr/bin/env python3
"""docker/grafana: the dashboard asks for series that exist, in PromQL that parses, and shows every metric that there is."""

import itertools
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import support
from support import yaml

GRAFANA = support.DOCKER / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards/quench.json").read_text())
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Values that Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$window": "15m", "$job": "quench.*"}


def panels():
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries():
    """(title, expression, legend)"""
    return [(panel["title"], target["expr"], target.get("legendFormat", "")) for panel in panels() for target in panel["targets"]]


def recorded():
    """Series of recording rules, and their labels."""
    found = {}
    for path in (support.DOCKER / "prometheus/rules").glob("*.yml"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                if "record" in rule:
                    found[rule["record"]] = {"job", *rule.get("labels", {})}
    return found


class Dashboard(unittest.TestCase):
    def test_every_metric_and_label_exists(self):
        known = {**recorded(), "ALERTS": {"alertname", "alertstate", "severity"}}
        table = support.metrics_table()
        annotations = [(each["name"], each["expr"], "") for each in DASHBOARD["annotations"]["list"]]
        problems = [f"{title}: {problem}" for title, expression, _ in queries() + annotations
                    for problem in support.problems_of(expression, table, known)]
        self.assertEqual([], problems)

    def test_legends_name_labels_that_are_left(self):
        table = support.metrics_table()
        for title, expression, legend in queries():
            found, grouped = support.selectors(expression)
            labels = grouped or support.BUILT_IN_LABELS.union(*(table[name].labels for name, _ in found if name in table))
            labels |= {"job"} if any(name in recorded() for name, _ in found) else set()
            for label in re.findall(r"{{(\w+)}}", legend):
                self.assertIn(label, labels, f"{title}: {expression}")

    def test_every_metric_is_shown(self):
        asked = {name for _, expression, _ in queries() for name, _ in support.selectors(expression)[0]}
        families = {re.sub(r"_(sum|count|bucket)$", "", name) if row.kind == "Histogram" else name for name, row in support.metrics_table().items()}
        shown = {family for family in families if asked & {family, family + "_bucket", family + "_count"}}
        self.assertEqual(set(), families - shown)

    def test_the_datasource_is_a_variable(self):
        variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
        self.assertEqual(("datasource", "prometheus"), (variables["datasource"]["type"], variables["datasource"]["query"]))
        for panel in panels():
            for where in [panel, *panel["targets"]]:
                self.assertEqual(SOURCE, where["datasource"], panel["title"])
        used = set(re.findall(r"\$(\w+)", " ".join(expression for _, expression, _ in queries())))
        self.assertLessEqual(used, set(variables) | {"__rate_interval"})

    def test_panels_stand_beside_each_other(self):
        identities = [panel["id"] for panel in DASHBOARD["panels"]]
        self.assertEqual(len(identities), len(set(identities)))
        titles = [panel["title"] for panel in DASHBOARD["panels"]]
        self.assertEqual(len(titles), len(set(titles)))
        boxes = [(p["title"], p["gridPos"]) for p in DASHBOARD["panels"]]
        for title, box in boxes:
            self.assertTrue(box["x"] >= 0 and box["x"] + box["w"] <= 24, title)
        for (one, a), (two, b) in itertools.combinations(boxes, 2):
            apart = (a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"])
            self.assertTrue(apart, f"`{one}` covers `{two}`")

    @unittest.skipUnless(shutil.which("promtool"), "no promtool (Debian's package `prometheus`)")
    def test_every_query_parses(self):
        rules = []
        for number, (_, expression, _) in enumerate(queries()):
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            rules.append({"record": f"query_{number}", "expr": expression})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "queries.yml"
            path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
            outcome = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
        self.assertEqual(0, outcome.returncode, outcome.stdout + outcome.stderr)


class Provisioning(unittest.TestCase):
    def test_grafana_finds_prometheus_and_knows_its_pace(self):
        source = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
        prometheus = yaml.safe_load((support.DOCKER / "prometheus/prometheus.yml").read_text())
        self.assertEqual(prometheus["global"]["scrape_interval"], source["jsonData"]["timeInterval"])
        self.assertEqual("prometheus", source["type"])
        self.assertTrue(source["isDefault"])


if __name__ == "__main__":
    support.main("ops_dashboard")
