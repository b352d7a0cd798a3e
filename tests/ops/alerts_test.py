#!/usr/bin/env python3
"""docker/prometheus: rules are valid, ask for metrics that exist, fire when they should and not when they should not."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import support
from support import yaml

RULES = sorted((support.DOCKER / "prometheus/rules").glob("*.yml"))
CASES = sorted((support.ROOT / "tests/cases/alerts").glob("*.yml"))


def rules():
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def alerts():
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)


def complete(case, folder):
    """A case with all that the rules annotate, which promtool wants to see: cases state summaries only."""
    content = yaml.safe_load(case.read_text())
    content["rule_files"] = [str(path) for path in RULES]
    for test in content["tests"]:
        for check in test["alert_rule_test"]:
            for alert in check["exp_alerts"]:
                alert["exp_annotations"] = {**alerts()[check["alertname"]]["annotations"], **alert["exp_annotations"]}
    path = folder / case.name
    path.write_text(yaml.safe_dump(content))
    return path


class Alerts(unittest.TestCase):
    def test_every_metric_and_label_exists(self):
        table = support.metrics_table()
        self.assertIn("quench_step_seconds_bucket", table)
        recorded = {rule["record"]: {"job", *rule.get("labels", {})} for rule in rules() if "record" in rule}
        problems = [problem for rule in rules() for problem in support.problems_of(rule["expr"], table, recorded)]
        self.assertEqual([], problems)

    def test_every_stage_belongs_to_one_service(self):
        mapped = {}
        for rule in rules():
            if rule.get("record") == "service:quench_queue_oldest_age_seconds:max":
                for stage in re.search(r'stage=~"([^"]+)"', rule["expr"])[1].split("|"):
                    self.assertNotIn(stage, mapped)
                    mapped[stage] = rule["labels"]["service"]
        table = support.metrics_table()
        self.assertEqual(sorted(table["quench_queue_depth"].labels["stage"]), sorted(mapped))
        self.assertLessEqual(set(mapped.values()), set(table["quench_slots"].labels["service"]))

    def test_every_alert_says_how_bad_it_is_and_what_to_do(self):
        for name, rule in alerts().items():
            with self.subTest(name):
                self.assertRegex(name, r"^Quench[A-Z]\w+$")
                self.assertIn(rule["labels"].get("severity"), ("page", "ticket"))
                self.assertEqual({"summary", "description", "runbook_url"}, set(rule["annotations"]))
                self.assertNotIn("{{", rule["annotations"]["description"])

    def test_every_alert_leads_to_its_section(self):
        for name, rule in alerts().items():
            with self.subTest(name):
                path, _, fragment = rule["annotations"].get("runbook_url", "").partition("#")
                self.assertTrue(path and (support.ROOT / path).is_file(), path)
                self.assertEqual(name.lower(), fragment)
                self.assertRegex((support.ROOT / path).read_text(), rf"(?m)^### {name}$")

    def test_every_alert_has_a_case_that_fires_and_one_that_does_not(self):
        fires, silent = set(), set()
        for path in CASES:
            for test in yaml.safe_load(path.read_text())["tests"]:
                for check in test["alert_rule_test"]:
                    (fires if check["exp_alerts"] else silent).add(check["alertname"])
        self.assertEqual(set(alerts()), fires)
        self.assertEqual(set(alerts()), silent)

    def test_a_metric_that_is_not_there_is_found(self):
        table = support.metrics_table()
        for expression in ("sum(rate(quench_step_second_count[5m]))", 'quench_queue_depth{stages="import"}', "sum by (stage) (quench_cas_size_bytes)",
                           'quench_slots{state="idle"}', 'quench_slots{state=~"busy|idle"}', "1 > 0"):
            with self.subTest(expression):
                self.assertNotEqual([], support.problems_of(expression, table))


@unittest.skipUnless(shutil.which("promtool"), "no promtool (Debian's package `prometheus`)")
class Promtool(unittest.TestCase):
    def test_configuration_is_valid(self):
        outcome = promtool("check", "config", support.DOCKER / "prometheus/prometheus.yml")
        self.assertEqual(0, outcome.returncode, outcome.stdout + outcome.stderr)
        self.assertIn(f"{len(RULES)} rule files found", outcome.stdout)

    def test_rules_are_valid(self):
        outcome = promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)
        self.assertEqual(0, outcome.returncode, outcome.stdout + outcome.stderr)

    def test_alerts_fire_when_they_should(self):
        with tempfile.TemporaryDirectory() as folder:
            for case in CASES:
                with self.subTest(case.stem):
                    outcome = promtool("test", "rules", complete(case, pathlib.Path(folder)))
                    self.assertEqual(0, outcome.returncode, outcome.stdout + outcome.stderr)

    def test_a_case_that_expects_something_else_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            path = complete(CASES[0], pathlib.Path(folder))
            content = yaml.safe_load(path.read_text())
            next(check for check in content["tests"][0]["alert_rule_test"] if check["exp_alerts"])["exp_alerts"] = []
            path.write_text(yaml.safe_dump(content))
            self.assertNotEqual(0, promtool("test", "rules", path).returncode)


class Configuration(unittest.TestCase):
    def test_all_services_are_scraped(self):
        config = yaml.safe_load((support.DOCKER / "prometheus/prometheus.yml").read_text())
        scraped = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
        self.assertEqual({f"quench-{name}": [f"{name}:{port + support.METRICS_PORT_OFFSET}"] for name, port in support.SERVICES.items()}, scraped)


if __name__ == "__main__":
    support.main("ops_alerts")
