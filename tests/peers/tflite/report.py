"""Results for scripts/test_summary: one test per operator, in the form of GoogleTest's results."""

import os
import pathlib
import xml.etree.ElementTree as ElementTree


def write(name, verdicts):
    """Writes [(operator, failures, reason to skip)], if the test was asked for results."""
    kind, _, folder = os.environ.get("GTEST_OUTPUT", "").partition(":")
    if kind != "xml":
        return
    suite = ElementTree.Element("testsuite", name=name)
    for operator, failures, skip in verdicts:
        test = ElementTree.SubElement(suite, "testcase", name=operator, status="run")
        if skip:
            ElementTree.SubElement(test, "skipped", message=f"{name} {operator}: {skip}")
        elif failures:
            ElementTree.SubElement(test, "failure", message="\n".join(failures))
    ElementTree.ElementTree(suite).write(pathlib.Path(folder) / f"{name}.xml")
