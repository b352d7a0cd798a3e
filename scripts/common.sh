# Shared by scripts/quickstart and scripts/test: packages, builds, stages, elapsed time. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

build_packages=(
  build-essential clang-19 cmake ninja-build ccache lld-19 pkg-config
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev libssl-dev
  libspdlog-dev libfmt-dev prometheus-cpp-dev libcpp-httplib-dev nlohmann-json3-dev libcli11-dev libonnx-dev libseccomp-dev libzip-dev libeigen3-dev
  libflatbuffers-dev flatbuffers-compiler libhdf5-dev
  libboost-context-dev libpng-dev libturbojpeg0-dev libsqlite3-dev llvm-19-dev liblld-19-dev libpolly-19-dev zlib1g-dev libzstd-dev libxml2-dev)
# The C library of the other 64-bit machine: `quench compile --with-runtime` has a runtime for both.
if [ "$(uname -m)" = aarch64 ]; then build_packages+=(libc6-dev-amd64-cross); else build_packages+=(libc6-dev-arm64-cross); fi
test_packages=(
  libgtest-dev libonnx-testdata openssl python3 python3-venv python3-yaml python3-jsonschema python3-numpy python3-cffi python3-grpcio python3-pil prometheus
  libclang-rt-19-dev clang-format-19 clang-tidy-22
  qemu-user gcc-aarch64-linux-gnu gcc-arm-linux-gnueabihf libc6-dev-armhf-cross
  gcc-arm-linux-gnueabi libc6-dev-armel-cross gcc-i686-linux-gnu libc6-dev-i386-cross age zsh fish)

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' || echo "$package"
  done
}

# need_packages INSTALL PACKAGE...: installs what is missing (INSTALL=1), or prints the exact line and exits 2.
need_packages() {
  local install=$1
  shift
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "$0: this script knows Debian's packages; elsewhere install what they stand for: $*" >&2
    return 0
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] && return 0
  local line="apt-get install -y --no-install-recommends ${missing[*]}"
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then sudo=(sudo -n); else install=0; fi
  fi
  if [ "$install" -ne 1 ]; then
    echo "missing packages; as root, run:" >&2
    echo "  $line" >&2
    exit 2
  fi
  echo "installing ${#missing[@]} packages: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive $line; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    echo "installation failed; the line was: $line" >&2
    exit 2
  fi
  rm -f "$log"
}

# have_packages INSTALL PACKAGE...: whether these are there, or could be installed (INSTALL=1).
have_packages() {
  local missing
  (need_packages "$@") || true
  mapfile -t missing < <(missing_packages "${@:2}")
  [ ${#missing[@]} -eq 0 ]
}

# configure PRESET LOG CMAKE_ARGUMENT...: on failure shows what went wrong and returns 1.
configure() {
  local preset=$1 log=$2
  shift 2
  cmake --preset "$preset" "$@" >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    return 1
  }
}

# build PRESET LOG CMAKE_ARGUMENT... -- TARGET...: configures and builds, with a line that says how far it is and, from
# the pace so far, how long is left. On failure shows what went wrong and returns 1; LOG has everything.
build() {
  local preset=$1 log=$2 arguments=()
  shift 2
  while [ "$1" != -- ]; do
    arguments+=("$1")
    shift
  done
  shift
  configure "$preset" "$log" "${arguments[@]}" || return 1
  local started=$SECONDS
  NINJA_STATUS='[%f/%t] ' ninja -C "build/$preset" -j"$(nproc)" "$@" 2>&1 | tee -a "$log" | while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      local finished=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
      local left=$(((SECONDS - started) * (all - finished) / (finished > 0 ? finished : 1)))
      if [ -t 1 ]; then
        printf '\r\033[Kbuilding: %d of %d, about %d s left' "$finished" "$all" "$left"
      elif ((finished > 0 && (finished % 25 == 0 || finished == all))); then
        printf 'building: %d of %d, about %d s left\n' "$finished" "$all" "$left"
      fi
    fi
  done
  local status=${PIPESTATUS[0]}
  [ -t 1 ] && echo
  if [ "$status" -ne 0 ]; then
    grep -E 'error|FAILED' "$log" | head -n 40 >&2
    echo "the build of $preset failed; all of it is in $log" >&2
    return 1
  fi
}

# peer_python: prints the Python that has ONNX Runtime, build/peer-venv's or the system's; 1 if there is none.
peer_python() {
  local python
  for python in "$root/build/peer-venv/bin/python" python3; do
    "$python" -c "import ml_dtypes, numpy, onnx, onnxruntime" 2>/dev/null && echo "$python" && return 0
  done
  return 1
}

# make_venv INSTALL NAME ABSENT FOUND... -- [VENV_OPTION...] -- PIP_ARGUMENT...: a virtual environment build/NAME-venv with packages of
# Python's registry, unless the command FOUND succeeds. ABSENT says what is missing where they cannot be had: tests that need them
# skip and say so. INSTALL=0 installs nothing.
make_venv() {
  local install=$1 venv=$root/build/$2-venv absent=$3 found=() options=() log
  shift 3
  while [ "$1" != -- ]; do
    found+=("$1")
    shift
  done
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  "${found[@]}" >/dev/null 2>&1 && return 0
  [ "$install" -eq 1 ] || return 0
  rm -rf "$venv"
  log=$(mktemp)
  if ! { python3 -m venv "${options[@]}" "$venv" &&
    timeout 1200 "$venv/bin/pip" install --disable-pip-version-check --retries 1 --timeout 15 "$@"; } >"$log" 2>&1; then
    echo "$absent: $(grep -i error "$log" | tail -n 1)"
    rm -rf "$venv"
  fi
  rm -f "$log"
}

# imports NAME MODULES: whether Python of build/NAME-venv has these modules.
imports() { "$root/build/$1-venv/bin/python" -c "import $2"; }

# need_peer INSTALL: a Python with ONNX Runtime for tests/conformance/run_peer: the system's, or one of our own in build/peer-venv.
# The versions are those that exclusions.tsv was written for.
need_peer() {
  make_venv "$1" peer "no ONNX Runtime to compare with" peer_python -- -- ml_dtypes numpy 'onnx==1.23.*' 'onnxruntime==1.31.*'
}

# need_litert INSTALL: a Python with LiteRT for tests/peers, in build/litert-venv. The version is the one that exclusions.tsv was
# written for.
need_litert() {
  make_venv "$1" litert "no LiteRT to compare with" imports litert "ai_edge_litert, numpy" -- -- numpy 'ai-edge-litert==2.3.0'
}

have_ptxas() { ls "$root"/build/ptxas-venv/lib/python*/site-packages/nvidia/*/bin/ptxas; }

# need_ptxas INSTALL: NVIDIA's assembler for tests/ops/ptxas_test.py, in build/ptxas-venv. The version is the one that its table was
# written for.
need_ptxas() {
  make_venv "$1" ptxas "no assembler for GPUs" have_ptxas -- -- 'nvidia-cuda-nvcc-cu12==12.9.86'
}

# need_notebook INSTALL: a Python with a notebook's kernel and with checkers of types, in build/notebook-venv, for tests/python.
need_notebook() {
  make_venv "$1" notebook "no notebook to try the Python package in" \
    imports notebook "nbclient, ipykernel, mypy, pyright, tqdm, grpc, cffi, numpy, PIL" -- -- \
    numpy cffi grpcio protobuf tqdm pillow ipywidgets nbclient ipykernel mypy pyright grpc-stubs types-protobuf types-cffi types-tqdm
}

# need_counters INSTALL: a Python with PyTorch (Debian's, which is small) and the tools that tests/peers/tool_counts.py compares
# counts with, in build/counters-venv. The versions are those that the report names.
need_counters() {
  imports counters "torch, torchinfo, ptflops, fvcore.nn, onnx_tool" 2>/dev/null && return 0
  need_packages "$1" python3-torch python3-venv
  make_venv "$1" counters "no tools to compare counts with" false -- --system-site-packages -- --no-deps \
    'onnx==1.14.1' protobuf 'onnx-tool==1.0.1' 'torchinfo==1.8.0' 'ptflops==0.7.5' 'fvcore==0.1.5.*' \
    iopath portalocker tabulate termcolor tqdm typing_extensions yacs
}

# need_torch INSTALL: a Python with the PyTorch that tests/peers/torch_models.py and torch_three_ways.py compare with, in
# build/torch-venv, the networks and the exporter that the second takes, and what quench.from_torch needs
# (tests/python/torch_test.py). It brings libraries for GPUs, 5 GB in all. Where it cannot be had, the first takes Debian's
# PyTorch (need_counters), which has no torch.export, and the others are skipped.
need_torch() {
  make_venv "$1" torch "no PyTorch to compare with" \
    imports torch "numpy, torch, torch.export, torchvision, transformers, onnxscript, grpc, cffi" -- -- \
    numpy cffi grpcio protobuf 'torch==2.15.0' torchvision transformers onnxscript
}

# need_keras INSTALL: a Python with Keras 3 and TensorFlow's Keras 2 for tests/peers, in build/keras-venv.
need_keras() {
  make_venv "$1" keras "no Keras to compare with" imports keras "keras, tf_keras" -- -- \
    numpy h5py 'tensorflow-cpu==2.21.0' 'keras==3.15.1' tf_keras
}

# need_buildgrid INSTALL: a server of the Remote Execution API that is not ours, for tests/service, in build/buildgrid-venv.
need_buildgrid() {
  make_venv "$1" buildgrid "no BuildGrid to store blobs in" test -x "$root/build/buildgrid-venv/bin/bgd" -- -- 'buildgrid==0.4.4'
}

stage_names=()
stage_seconds=()
stage_start=0

begin_stage() {
  stage_names+=("$1")
  stage_start=$SECONDS
  echo "== $1"
}

end_stage() { stage_seconds+=($((SECONDS - stage_start))); }

# print_stages BUDGET_MINUTES
print_stages() {
  local i total=0
  echo "minutes per stage:"
  for i in "${!stage_names[@]}"; do
    awk -v s="${stage_seconds[$i]:-0}" -v n="${stage_names[$i]}" 'BEGIN { printf "  %6.1f  %s\n", s / 60, n }'
    total=$((total + ${stage_seconds[$i]:-0}))
  done
  awk -v s="$total" -v b="$1" 'BEGIN { printf "  %6.1f  of %d\n", s / 60, b }'
}
