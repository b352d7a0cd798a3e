#!/usr/bin/env python3
"""packaging/systemd: systemd takes the unit, and its walls leave room for the sandbox of steps, for a drain and for what a step may do."""

import re
import shutil
import subprocess
import tempfile
import pathlib
import unittest

import support

UNIT = support.ROOT / "packaging/systemd/quench-serve.service"
# Letters of namespaces: the kernel's, and systemd's.
NAMESPACES = {"CLONE_NEWUSER": "user", "CLONE_NEWPID": "pid", "CLONE_NEWNET": "net", "CLONE_NEWIPC": "ipc", "CLONE_NEWNS": "mnt",
              "CLONE_NEWUTS": "uts", "CLONE_NEWCGROUP": "cgroup"}


def settings():
    """key -> its values, in order"""
    found = {}
    for line in UNIT.read_text().splitlines():
        if re.match(r"[A-Z]\w*=", line):
            key, value = line.split("=", 1)
            found.setdefault(key, []).append(value)
    return found


def source(path):
    return (support.ROOT / path).read_text()


class Systemd(unittest.TestCase):
    def setUp(self):
        self.unit = settings()

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze (Debian's package `systemd`)")
    def test_systemd_takes_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / UNIT.name
            path.write_text(UNIT.read_text().replace("/usr/bin/quench ", "/bin/true "))  # it must be there
            outcome = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
            self.assertEqual((0, ""), (outcome.returncode, outcome.stderr))
            # A setting that it does not know is a warning only where nothing else is wrong.
            path.write_text(path.read_text().replace("KillMode=mixed", "KillMode=mixxed"))
            outcome = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
            self.assertIn("mixxed", outcome.stderr)

    def test_a_drain_is_the_servers_alone_and_has_time(self):
        self.assertEqual(["mixed"], self.unit["KillMode"])
        grace = int(re.search(r"kDefaultGrace\{([\d']+)\}", source("common/steps/config.cc"))[1].replace("'", "")) / 1000
        self.assertGreaterEqual(int(self.unit["TimeoutStopSec"][0].rstrip("s")), 2 * grace)

    def test_steps_may_make_their_namespaces(self):
        wanted = {NAMESPACES[name] for name in re.findall(r"CLONE_NEW\w+", source("common/steps/namespaces.cc"))}
        self.assertEqual(wanted, set(self.unit["RestrictNamespaces"][0].split()))
        self.assertNotIn("PrivateUsers", self.unit)

    def test_steps_may_raise_their_walls(self):
        calls = self.unit["SystemCallFilter"][0].split()
        for call in ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp"):
            self.assertIn(call, calls)
        self.assertEqual(["yes"], self.unit["NoNewPrivileges"])
        # Compilers write code and run it; GPUs' drivers do.
        self.assertNotIn("MemoryDenyWriteExecute", self.unit)

    def test_one_step_does_not_end_the_server(self):
        self.assertEqual(["continue"], self.unit["OOMPolicy"])
        self.assertEqual(["on-failure"], self.unit["Restart"])
        self.assertIn("2 usage or configuration", source("common/steps/main.cc"))
        self.assertEqual(["2"], self.unit["RestartPreventExitStatus"])

    def test_its_options_are_the_programs(self):
        known = set(re.findall(r'\.Add\("(--[\w-]+)"', source("services/cli/commands/serve.cc")))
        used = set(re.findall(r"--[\w-]+", " ".join(self.unit["ExecStart"] + self.unit["Environment"])))
        self.assertLessEqual(used, known)
        self.assertLess({"--state-dir"}, used)

    def test_the_package_has_it(self):
        self.assertIn("packaging/systemd", source("scripts/build_deb"))


if __name__ == "__main__":
    support.main("ops_systemd")
