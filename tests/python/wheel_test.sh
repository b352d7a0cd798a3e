#!/usr/bin/env bash
# Wheels as their users get them: wheel_test.sh QUENCH
#
# This machine's is installed into a clean environment, and the README's lines run there. That for aarch64 is unpacked, and its
# runtime opens a library and runs it under qemu: there is no Python for that machine here.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
quench=$(realpath "$1") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUENCH_BIN=$quench
cd "$work"
"$root/scripts/build_wheel" "$work/wheels"
python3 -m venv clean
if ! clean/bin/pip --quiet install --retries 1 --timeout 15 "$(ls wheels/*.whl)[client]"; then
  echo "skipped: packages cannot be installed"
  exit 77
fi
"$quench" compile "$root/bench/models/digits.onnx" -o out --target x86-64 --progress none
cp "$root/bench/models/digits.onnx" m.onnx
(cd "$root" && cat README.md) >README.md
sed -n '/^```python$/,/^```$/p' README.md | sed '/^```/d; s/(1, 3, 224, 224)/(1, 1, 8, 8)/; s/output_path="out"/output_path="new"/' >readme.py
clean/bin/python readme.py
test -s new/model.so

command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null || { echo "aarch64 was not tried: no qemu"; exit 0; }
"$root/scripts/build_wheel" --machine aarch64 --compiler aarch64-linux-gnu-gcc "$work/wheels"
python3 -m zipfile -e wheels/*_aarch64.whl arm
"$quench" compile m.onnx -o arm/out --target aarch64 --progress none
aarch64-linux-gnu-gcc -std=c11 -I"$root" "$root/examples/c/demo.c" arm/quench/libquench_rt.so -o arm/demo
said=$(LD_LIBRARY_PATH=$work/arm/quench qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$work/arm/quench" arm/demo arm/out/model.so)
echo "$said"
grep -q logits <<<"$said"
