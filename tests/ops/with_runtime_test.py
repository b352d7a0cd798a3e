#!/usr/bin/env python3
"""The output of `quench compile --with-runtime` is all that a C program needs: one is built by CMake and run, here and for aarch64.

Usage: with_runtime_test.py BUILD_DIR
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

ROOT = support.ROOT
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
DIGITS = ROOT / "bench/models/digits.onnx"
FILES = ["abi.h", "libquench_rt.a", "libquench_rt.so", "model.h", "model.so", "quench.hpp", "quench_rt-config.cmake", "quench_rt.h"]
PATIENCE = 300  # seconds

PROGRAM = r"""
#include <quench_rt.h>
#include <stdio.h>
#include "model.h"
int main(int count, char** words) {
  quench_rt_error error;
  quench_rt_model* model;
  quench_rt_session* session;
  float pixels[64];
  const int64_t dims[] = {1, 1, 8, 8};
  quench_rt_tensor image = {pixels, dims, 1, 4}, logits;
  if (count < 2) return 9;
  for (int i = 0; i < 64; ++i) pixels[i] = (float)(i % 7) / 7;
  if (quench_rt_open_file(words[1], &model, &error)) return puts(error.text), 1;
  if (quench_rt_session_create(model, NULL, &session, &error)) return 2;
  if (quench_rt_set_input(session, DIGITS_INPUT_IMAGE, &image, &error)) return puts(error.text), 3;
  if (quench_rt_run(session, &error)) return puts(error.text), 4;
  if (quench_rt_get_output(session, DIGITS_OUTPUT_LOGITS, &logits, &error)) return puts(error.text), 5;
  printf("%s", DIGITS_NAME);
  for (int i = 0; i < 10; ++i) printf(" %.2f", ((const float*)logits.data)[i]);
  puts("");
  quench_rt_session_free(session);
  quench_rt_close(model);
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(elsewhere C)
find_package(quench_rt REQUIRED PATHS ${FOLDER} NO_DEFAULT_PATH)
foreach(kind quench_rt static)
  add_executable(with_${kind} main.c)
  target_compile_options(with_${kind} PRIVATE -Wall -Werror)
  target_link_libraries(with_${kind} quench_rt::${kind} quench_model::digits)
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/model ${quench_model_digits})
"""

# Opens an encrypted library, and prints the libraries that the program then has.
ENCRYPTED = r"""
#include <quench_rt.h>
#include <stdio.h>
int main(int count, char** words) {
  quench_rt_error error;
  quench_rt_model* model;
  char line[4096];
  if (count < 3) return 9;
  if (quench_rt_open_encrypted(words[1], words[2], "correct horse", &model, &error)) return puts(error.text), 1;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps) != NULL) fputs(line, stdout);
  return 0;
}
"""


def execute(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


class WithRuntimeTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="with_runtime"))
        self.addCleanup(shutil.rmtree, self.folder)

    def said(self, target, *options, emulator=()):
        """What the program prints, linked with either library, from a folder made for `target`."""
        out, project = self.folder / target, self.folder / f"{target}-project"
        execute(BUILD / "bin/quench", "compile", DIGITS, "--batch", 1, "--target", target, "--with-runtime", "--output", out)
        self.assertEqual(FILES, sorted(path.name for path in out.iterdir()))
        project.mkdir()
        (project / "main.c").write_text(PROGRAM)
        (project / "CMakeLists.txt").write_text(PROJECT)
        execute("cmake", "-S", project, "-B", project / "build", f"-DFOLDER={out}", *options)
        execute("cmake", "--build", project / "build")
        self.assertEqual(str(out / "model.so"), (project / "build/model").read_text())
        shared, static = (execute(*emulator, project / "build" / f"with_{kind}", out / "model.so") for kind in ("quench_rt", "static"))
        self.assertEqual(shared, static)
        return shared

    def test_a_program_here(self):
        self.assertRegex(self.said("host"), r"^\S+( -?\d+\.\d\d){10}\n$")

    def test_a_program_for_another_machine(self):
        compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
        if compiler is None or emulator is None:
            self.skipTest("no aarch64-linux-gnu-gcc, or no qemu-aarch64")
        there = self.said("aarch64", "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_C_COMPILER={compiler}",
                          emulator=(emulator, "-L", "/usr/aarch64-linux-gnu"))
        self.assertEqual(self.said("host"), there)

    def test_a_libcrypto_that_is_linked_under_another_name_is_the_only_one(self):
        """As in wheels: a second one, of another release, would call into the first."""
        listed = execute("/sbin/ldconfig", "-p")
        system = re.search(r"libcrypto\.so\.3 .*x86-64.* => (\S+)", listed)
        if system is None:
            self.skipTest("no libcrypto to give another name to")
        (self.folder / "password").write_text("correct horse")
        out = self.folder / "sealed"
        execute(BUILD / "bin/quench", "compile", DIGITS, "--with-runtime", "--output", out, "--encrypt", "--password-file",
                self.folder / "password")
        (self.folder / "main.c").write_text(ENCRYPTED)
        program = self.folder / "program"
        execute("cc", f"-I{out}", self.folder / "main.c", out / "libquench_rt.a", "-lpthread", "-ldl", "-o", program)
        renamed = self.folder / "libother.so"
        renamed.write_bytes(pathlib.Path(system[1]).read_bytes().replace(b"libcrypto.so.3", b"libcryptz.so.3"))
        words = (program, out / "model.so", out / "modelKey.bin")
        self.assertIn("libcrypto.so.3", execute(*words))
        printed = execute(*words, env={**os.environ, "LD_PRELOAD": str(renamed)})
        self.assertIn("libother.so", printed)
        self.assertNotIn("libcrypto.so", printed)

    def test_what_there_is_no_runtime_for_is_refused_at_once(self):
        out = self.folder / "out"
        done = subprocess.run([BUILD / "bin/quench", "compile", DIGITS, "--target", "android/cpu", "--with-runtime", "--output", out],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertRegex(done.stderr, r"no runtime for `aarch64-linux-android.*` \(it has those for .*`x86_64-linux-gnu`|has none")
        self.assertEqual([], list(self.folder.iterdir()))


if __name__ == "__main__":
    support.main("ops_with_runtime")
