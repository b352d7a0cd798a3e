#!/usr/bin/python3
"""Fleets at a gateway that is played here: fleet_test.py.

Ends with 77 (skipped) where numpy, cffi or grpcio are missing.
"""

import hashlib
import pathlib
import tempfile
import unittest
from unittest import mock

import staged

from quench import GatewayError
from quench._gateway import message
from quench._messages import messages
from quench._progress import Progress
from quench.workflow import Batches, Fleet


def state(name):
    return messages().enum("quench.gateway.v1.State", f"STATE_{name}")


def fleet_of(state_name, shards=1, created=1, **workflows):
    fleet = message("quench.gateway.v1.Fleet")(id="f", state=state(state_name), shards=shards, created_shards=created)
    for name, count in workflows.items():
        setattr(fleet.workflows, name, count)
    return fleet


def quota():
    return GatewayError("of tenant `t` 9 steps wait or run", "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")


def cell_of(model):
    cell = message("quench.gateway.v1.FleetCell")(model=model, options="o", target="t", state=state("SUCCEEDED"))
    for name in ("library", "header"):
        data = f"{name} of {model}".encode()
        cell.outputs.add(name=name).digest.hash = hashlib.sha256(data).hexdigest()
        cell.outputs[-1].digest.size_bytes = len(data)
    return cell


class PlayedGateway:
    """`fleets` are what GetFleet answers in turn, the last of them for ever; `refusals` meet what changes something, in turn too."""

    def __init__(self, *fleets, refusals=(), cells=()):
        self.fleets, self.refusals, self.cells = list(fleets), list(refusals), cells
        self.changes, self.gone = [], {}

    def change(self, what):
        self.changes.append(what)
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal

    def call(self, _, name, __, reply):
        answer = message(reply)()
        if name == "GetFleet":
            if not self.fleets:
                raise GatewayError("there is no such fleet", "NOT_FOUND")
            answer.fleet.CopyFrom(self.fleets.pop(0) if len(self.fleets) > 1 else self.fleets[0])
        elif name == "ListFleetCells":
            answer.cells.extend(self.cells)
        else:
            self.change(name)
        return answer

    def create(self, _, request_id):
        self.change(request_id)

    def download(self, digest, path):
        if digest.hash in self.gone:
            raise self.gone[digest.hash]
        path.write_bytes(digest.hash.encode())

    @staticmethod
    def progress(what):
        return Progress(what, 0, "step", False)


class FleetTest(unittest.TestCase):
    def setUp(self):
        self.naps = []
        for name, value in (("time.sleep", self.naps.append), ("CELLS_OF_A_SHARD", 1), ("_fill_models", lambda *_: None)):
            patch = mock.patch(f"quench.workflow.{name}", value)
            patch.start()
            self.addCleanup(patch.stop)

    def compile(self, gateway, models="abc"):
        batches = Batches()
        batches.gateway = gateway
        return batches.compile_fleet({name: f"{name}.onnx" for name in models}, ["x86-64"], request_id="f")

    @mock.patch("quench.workflow.STRANDED_SECONDS", 0)
    def test_a_fleet_whose_caller_has_gone_is_given_up(self):
        gateway = PlayedGateway(fleet_of("RUNNING", 3, 2, running=1, succeeded=1), fleet_of("RUNNING", 3, 2, succeeded=2))
        with self.assertRaisesRegex(GatewayError, "2 of 3 parts of fleet `f` were asked for, .* request_id='f' ") as stranded:
            Fleet(gateway, "f").watch()
        self.assertEqual(stranded.exception.code, "FAILED_PRECONDITION")
        self.assertGreater(len(self.naps), 0)

    @mock.patch("quench.workflow.STRANDED_SECONDS", 0)
    def test_a_fleet_that_works_or_waits_is_watched_to_its_end(self):
        gateway = PlayedGateway(fleet_of("RUNNING", 2, 1, running=1), fleet_of("RUNNING", 2, 1, queued=1),
                                fleet_of("SUCCEEDED", 2, 2, succeeded=2))
        self.assertEqual(Fleet(gateway, "f").watch().state, "succeeded")
        self.assertEqual(len(self.naps), 2)

    def test_a_fleet_waits_a_while_for_its_other_parts(self):
        gateway = PlayedGateway(fleet_of("RUNNING", 2, 1, succeeded=1), fleet_of("SUCCEEDED", 2, 2, succeeded=2))
        self.assertEqual(Fleet(gateway, "f").watch().state, "succeeded")

    def test_parts_wait_for_the_tenants_limit(self):
        gateway = PlayedGateway(refusals=[None, quota(), quota()])
        gateway.create = lambda _, name: (gateway.fleets.append(fleet_of("RUNNING", 3, 1, running=1)), gateway.change(name))
        self.compile(gateway)
        self.assertEqual(gateway.changes, ["f/0", "f/1", "f/1", "f/1", "f/2"])
        self.assertEqual(self.naps, [5, 5])

    def test_a_part_whose_others_end_meanwhile_is_asked_for_again_at_once(self):
        gateway = PlayedGateway(fleet_of("RUNNING", 3, 1, succeeded=1), refusals=[None, quota()])
        self.compile(gateway)
        self.assertEqual(gateway.changes, ["f/0", "f/1", "f/1", "f/2", "RetryFleet"])
        self.assertEqual(self.naps, [])

    def test_a_limit_that_others_have_reached_is_an_error(self):
        gateway = PlayedGateway(refusals=[quota()] * 9)
        with self.assertRaisesRegex(GatewayError, "of tenant `t`") as refused:
            self.compile(gateway)
        self.assertEqual(refused.exception.reason, "QUOTA_EXCEEDED")
        self.assertEqual(gateway.changes, ["f/0", "f/0"])
        gateway = PlayedGateway(fleet_of("RUNNING", 3, 1, running=1), refusals=[GatewayError("no", "INVALID_ARGUMENT", "INVALID_REQUEST")])
        with self.assertRaisesRegex(GatewayError, "no"):
            self.compile(gateway)
        self.assertEqual(gateway.changes, ["f/0"])

    def test_what_runs_again_waits_for_the_tenants_limit(self):
        gateway = PlayedGateway(fleet_of("FAILED", 1, 1, failed=1), fleet_of("RUNNING", 1, 1, running=1), refusals=[None, quota(), quota()])
        self.compile(gateway, "a")
        self.assertEqual(gateway.changes, ["f/0", "RetryFleet", "RetryFleet", "RetryFleet"])
        self.assertEqual(self.naps, [5, 5])

    def test_libraries_that_are_gone_hold_up_no_others(self):
        gateway = PlayedGateway(fleet_of("SUCCEEDED"), cells=[cell_of(model) for model in "abcd"])
        gateway.gone[gateway.cells[0].outputs[0].digest.hash] = GatewayError("blob `x` is not in the store", "NOT_FOUND")
        gateway.gone[gateway.cells[2].outputs[1].digest.hash] = GatewayError("kept no longer", "FAILED_PRECONDITION")
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(GatewayError, r"of fleet `f` cannot be fetched: `a/o/t`, `c/o/t`; the first: blob `x`") as lost:
                Fleet(gateway, "f").download(folder)
            self.assertEqual(lost.exception.code, "NOT_FOUND")
            for model in "bd":
                self.assertTrue(pathlib.Path(folder, model, "o/t/model.so").exists())
                self.assertTrue(pathlib.Path(folder, model, "o/t/model.h").exists())
            with mock.patch("quench.workflow.SHOWN_CELLS", 1), self.assertRaisesRegex(GatewayError, "`a/o/t` and 1 more; "):
                Fleet(gateway, "f").download(folder)
            gateway.gone.clear()
            self.assertEqual(len(Fleet(gateway, "f").download(folder)), 4)

    def test_other_errors_of_a_download_are_raised_at_once(self):
        gateway = PlayedGateway(fleet_of("SUCCEEDED"), cells=[cell_of(model) for model in "ab"])
        gateway.gone[gateway.cells[0].outputs[0].digest.hash] = GatewayError("away", "UNAVAILABLE")
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(GatewayError, "^away$"):
                Fleet(gateway, "f").download(folder)
            self.assertFalse(pathlib.Path(folder, "b").exists())


if __name__ == "__main__":
    staged.main()
