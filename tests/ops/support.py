"""Helpers for the tests of docker/ and scripts/serve_local: metrics.def as a table, PromQL's names, results as scripts/test counts them."""

import os
import pathlib
import re
import sys
import time
import unittest
import xml.etree.ElementTree as ElementTree

SKIPPED = 77  # what ctest takes for "skipped"

try:
    import yaml  # noqa: F401, for those who import this
except ImportError:
    print("skipped: no PyYAML (Debian's package `python3-yaml`)")
    sys.exit(SKIPPED)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCKER = ROOT / "docker"
SERVICES = {"gateway": 7450, "importer": 7451, "analyser": 7452, "quantizer": 7453, "codegen": 7454}
METRICS_PORT_OFFSET = 2000

# Series and labels that Prometheus makes itself.
BUILT_IN_METRICS = {"up": {}}
BUILT_IN_LABELS = {"job", "instance"}


class Metric:
    """A row of metrics.def. `labels`: name -> its values, or None where they are open."""

    def __init__(self, kind, labels):
        self.kind, self.labels = kind, labels


def metrics_table():
    """Name of a series -> Metric, for every series that metrics.def makes; histograms have three."""
    text = re.sub(r"^//.*$", "", (ROOT / "common/metrics/metrics.def").read_text(), flags=re.M)
    labels = {}
    for row in re.finditer(r'QUENCH_LABEL\((\w+), "(\w+)",((?:\s*QUENCH_VALUE\(\w+, "\w+"\))+)\)', text):
        labels[row[1]] = (row[2], re.findall(r'QUENCH_VALUE\(\w+, "(\w+)"\)', row[3]))
    for row in re.finditer(r'QUENCH_OPEN_LABEL\((\w+), "(\w+)", \d+\)', text):
        labels[row[1]] = (row[2], None)
    table = {}
    for row in re.finditer(r'QUENCH_METRIC\(\w+, (\w+), "(\w+)", \(([\w, ]*)\), ', text):
        own = dict(labels[label.strip()] for label in row[3].split(",") if label.strip())
        if row[1] == "Histogram":
            table[row[2] + "_sum"] = table[row[2] + "_count"] = Metric("Histogram", own)
            table[row[2] + "_bucket"] = Metric("Histogram", {**own, "le": None})
        else:
            table[row[2]] = Metric(row[1], own)
    for row in re.finditer(r'QUENCH_PROCESS_METRIC\(\w+, (\w+), "(\w+)", ', text):
        table[row[2]] = Metric(row[1], {})
    return table


SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
WORDS = {"and", "or", "unless", "bool", "offset", "group_left", "group_right", "inf", "nan"}


def selectors(expression):
    """The (metric, {label: (operator, value)}) of a PromQL expression, and the labels that it groups by."""
    grouped = {label.strip() for match in GROUPING.finditer(expression) for label in match[2].split(",") if label.strip()}
    bare = re.sub(r"\[[^\]]*\]", "", GROUPING.sub(" ", expression))
    found = []
    for match in SELECTOR.finditer(re.sub(r'"[^"]*"', lambda text: text[0].replace(" ", "\0"), bare)):
        name, after = match[1], bare[match.end():].lstrip()
        before = bare[: match.start()]
        if name in WORDS or (not match[2] and after.startswith("(")):
            continue
        if before.count("{") > before.count("}") or before.count('"') % 2 or (before and before[-1].isdigit()):
            continue
        found.append((name, {label: (operator, value) for label, operator, value in MATCHER.findall(match[2] or "")}))
    return found, grouped


def problems_of(expression, table, recorded=()):
    """Series in an expression that no service has. `recorded`: series of recording rules -> their labels."""
    problems = []
    found, grouped = selectors(expression)
    known_labels = set(BUILT_IN_LABELS)
    for name, matchers in found:
        if name in recorded:
            own = {label: None for label in recorded[name]}
        elif name in table:
            own = table[name].labels
        elif name in BUILT_IN_METRICS:
            own = BUILT_IN_METRICS[name]
        else:
            problems.append(f"`{name}` is not a metric")
            continue
        known_labels |= set(own)
        for label, (operator, value) in matchers.items():
            if label in BUILT_IN_LABELS or value.startswith("$"):
                continue
            if label not in own:
                problems.append(f"`{name}` has no label `{label}`")
            elif own[label] is not None:
                wanted = value.split("|") if "~" in operator else [value]
                problems += [f"`{label}` of `{name}` is never `{each}`" for each in wanted if each not in own[label]]
    if not found:
        problems.append("no metric is asked for")
    problems += [f"none of its metrics has the label `{label}`" for label in sorted(grouped - known_labels)]
    return [f"{problem}: {' '.join(expression.split())}" for problem in problems]


class Results(unittest.TextTestResult):
    """Keeps what GoogleTest's XML would say, so that scripts/test_summary counts test by test."""

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        case = ElementTree.SubElement(self.suite, "testcase", name=test.id().split(".")[-1], status="run",
                                      time=f"{time.monotonic() - self.started:.3f}")
        for outcome, records in (("failure", self.failures), ("failure", self.errors), ("skipped", self.skipped)):
            for failed, why in records:
                if getattr(failed, "test_case", failed) is test and case.find(outcome) is None:
                    ElementTree.SubElement(case, outcome, message=why)


def main(name):
    """Runs the tests of the calling program. $QUENCH_TEST_PATTERN selects some; $GTEST_OUTPUT says where results go."""
    pattern = os.environ.get("QUENCH_TEST_PATTERN", "").lower()
    suite = unittest.TestSuite()
    for test in (test for group in unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]) for test in group):
        if pattern in f"{name}.{test.id()}".lower():
            suite.addTest(test)
    Results.suite = ElementTree.Element("testsuite", name=name)
    outcome = unittest.TextTestRunner(resultclass=Results, verbosity=2).run(suite)
    output = os.environ.get("GTEST_OUTPUT", "")
    if output.startswith("xml:"):
        ElementTree.ElementTree(Results.suite).write(pathlib.Path(output[len("xml:"):]) / f"{name}.xml")
    sys.exit(0 if outcome.wasSuccessful() else 1)
