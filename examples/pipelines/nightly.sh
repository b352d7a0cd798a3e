#!/usr/bin/env bash
# Compiles all models of a folder at a gateway, for a pipeline: nightly.sh RUN_ID MODELS OUTPUT
#
# RUN_ID names the run: a repetition of the same run, after a lost machine or a cancelled job, starts nothing that is done.
# QUENCH_GATEWAY names the gateway, QUENCH_TOKEN_FILE a file with the token. The exit code is 0 if every library is there, else 1:
# the others are there then, and OUTPUT/table.csv says why.
set -euo pipefail
run=${1:?usage: nightly.sh RUN_ID MODELS OUTPUT} models=$2 output=$3
exec quench fleet compile "$models/**/*.onnx" --target x86-64-v3 --target raspberry-pi/5 --batch 1 \
  --request-id "nightly-$run" --label pipeline=nightly --output "$output" --table "$output/table.csv" --progress plain
