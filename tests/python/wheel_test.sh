#!/usr/bin/env bash
# Wheels as their users get them: wheel_test.sh PROGRAMS
#
# This machine's, with the compiler, is installed into a clean environment, where the README's lines run and nothing but the wheel has
# a program. That for aarch64 is unpacked, and its runtime opens a library and runs it under qemu: there is no Python for that
# machine here.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$(realpath "$1") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset QUENCH_BIN QUENCH_GATEWAY
cd "$work"
wheel=$("$root/scripts/build_wheel" --programs "$programs" "$work/wheels")
bytes=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $((bytes / 1000000)) MB"
[[ $bytes -le 120000000 ]] || { echo "a wheel is at most 120 MB"; exit 1; }
python3 -m venv clean
if ! clean/bin/pip --quiet install --retries 1 --timeout 15 "$wheel[client]"; then
  echo "skipped: packages cannot be installed"
  exit 77
fi
cp "$root/bench/models/digits.onnx" m.onnx
[[ $(clean/bin/quench --version) == $(clean/bin/python -c "import quench; print(quench.__version__)") ]]
clean/bin/quench compile m.onnx -o out --target x86-64 --progress none
clean/bin/python -m quench compile m.onnx -o again --target x86-64 --progress none
cmp out/model.so again/model.so
code=0
clean/bin/quench compile none.onnx 2>error || code=$?
[[ $code -eq 1 ]] && grep -q 'none.onnx' error
(cd "$root" && cat README.md) >README.md
sed -n '/^```python$/,/^```$/p' README.md | sed '/^```/d; s/(1, 3, 224, 224)/(1, 1, 8, 8)/; s/output_path="out"/output_path="new"/' >readme.py
clean/bin/python readme.py
test -s new/model.so

command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null || { echo "aarch64 was not tried: no qemu"; exit 0; }
"$root/scripts/build_wheel" --runtime-only --machine aarch64 --compiler aarch64-linux-gnu-gcc "$work/wheels"
python3 -m zipfile -e wheels/*_aarch64.whl arm
if compgen -G "arm/*.dist-info/entry_points.txt" >/dev/null; then echo "a wheel without programs has a command"; exit 1; fi
clean/bin/quench compile m.onnx -o arm/out --target aarch64 --progress none
aarch64-linux-gnu-gcc -std=c11 -I"$root" -I"$root/common/runtime" "$root/examples/c/demo.c" arm/quench/libquench_rt.so -o arm/demo
said=$(LD_LIBRARY_PATH=$work/arm/quench qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$work/arm/quench" arm/demo arm/out/model.so)
echo "$said"
grep -q logits <<<"$said"
