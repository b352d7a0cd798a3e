#!/usr/bin/env bash
# Projects elsewhere use the installed files: install_test.sh BUILD MODEL
#
# A program of ten lines finds the runtime by CMake and by pkg-config, and runs MODEL.
set -euo pipefail
build=$1 model=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --component quench_rt --prefix "$work/prefix" >/dev/null
mkdir "$work/project"
cat >"$work/project/main.cc" <<'CODE'
#include <quench.hpp>

#include <cstdio>

int main(int, char** argv) {
  const auto model = quench::Model::Open(argv[1]);
  if (!model) return std::puts(model.error().message.c_str()), 1;
  std::printf("%s has %zu inputs\n", model->name().c_str(), model->inputs().size());
}
CODE
cat >"$work/project/CMakeLists.txt" <<'CODE'
cmake_minimum_required(VERSION 3.16)
project(elsewhere CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(quench_rt 0.1 REQUIRED)
foreach(kind quench_rt static)
  add_executable(with_${kind} main.cc)
  target_link_libraries(with_${kind} quench_rt::${kind})
endforeach()
CODE
cmake -S "$work/project" -B "$work/out" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/out" >/dev/null
pc=$(dirname "$(find "$work/prefix" -name quench_rt.pc)")
# shellcheck disable=SC2046,SC2086 # words
c++ -std=c++17 "$work/project/main.cc" -o "$work/out/with_pc" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs quench_rt)
for program in with_quench_rt with_static with_pc; do
  LD_LIBRARY_PATH=$(dirname "$pc") "$work/out/$program" "$model" | tee "$work/said"
  grep -q 'fake has 2 inputs' "$work/said"
  ! "$work/out/$program" /nowhere >"$work/said" 2>&1 || { echo "$program opened what is not there"; exit 1; }
done
