"""Compiles every model for every target at a gateway, in one workflow: batch.py FOLDER MODEL...

The libraries appear as FOLDER/MODEL/float/TARGET/model.so. QUENCH_GATEWAY names the gateway, as `quench serve` runs it
(`local` is this user's); without it one is started for as long as this takes. Needs the package quench[client].
"""

import os
import sys

import quench

TARGETS = ["x86-64", "aarch64", "raspberry-pi/5"]

if len(sys.argv) < 3:
    sys.exit("usage: batch.py FOLDER MODEL...")
with quench.Client(os.environ.get("QUENCH_GATEWAY")) as client:
    work = client.compile_batch(sys.argv[2:], TARGETS, {"float": {}})
    work.watch()
    for path in work.download(sys.argv[1]):
        print(path)
