#!/usr/bin/env python3
"""Our stubs and googleapis-common-protos in one process: their descriptors are equal, so neither refuses the other.

Run with the folder of our stubs and `ours` or `theirs`, whose modules are then loaded first. Exits 1 with what differs.
"""

import importlib
import importlib.metadata
import importlib.util
import pathlib
import sys

SHARED = ["google/api/annotations", "google/api/client", "google/api/field_behavior", "google/api/http", "google/api/launch_stage",
          "google/api/resource", "google/longrunning/operations", "google/rpc/code", "google/rpc/error_details", "google/rpc/status"]


def load(folder, name, alias):
    """The module of that very folder, under a name of its own, so that both can be there."""
    spec = importlib.util.spec_from_file_location(alias + name.replace("/", "_"), folder / f"{name}_pb2.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    theirs_folder = pathlib.Path(importlib.metadata.distribution("googleapis-common-protos").locate_file(""))
    folders = {"ours": pathlib.Path(sys.argv[1]).resolve(), "theirs": theirs_folder}
    first = sys.argv[2]
    second = "theirs" if first == "ours" else "ours"
    # The second's imports are found in the folder of the first, as in a program that mixes both.
    sys.path.insert(0, str(folders[second]))
    sys.path.insert(0, str(folders[first]))
    loaded = {first: {}, second: {}}
    for which in (first, second):
        for name in SHARED:
            try:
                loaded[which][name] = load(folders[which], name, which)
            except TypeError as error:
                print(f"{name}.proto of {which} does not fit the one loaded before: {error}")
                return 1
    for name in SHARED:
        if loaded[first][name].DESCRIPTOR.serialized_pb != loaded[second][name].DESCRIPTOR.serialized_pb:
            print(f"{name}.proto differs")
            return 1
    # Both are one type: a message of one is taken by the other.
    status = loaded["theirs"]["google/rpc/status"].Status(code=3, message="wrong")
    status.details.add().Pack(loaded["ours"]["google/rpc/error_details"].ErrorInfo(reason="INVALID_REQUEST"))
    back = loaded["ours"]["google/rpc/status"].Status.FromString(status.SerializeToString())
    info = loaded["theirs"]["google/rpc/error_details"].ErrorInfo()
    if not back.details[0].Unpack(info) or info.reason != "INVALID_REQUEST":
        print("a google.rpc.Status with ErrorInfo does not survive the way between both")
        return 1
    workflows = importlib.import_module("quench.gateway.v1.workflows_pb2")
    operation = loaded["theirs"]["google/longrunning/operations"].Operation(name="operations/1")
    operation.metadata.Pack(workflows.WorkflowMetadata(workflow="workflows/1"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
