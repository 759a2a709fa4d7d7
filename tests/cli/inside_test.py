"""Looking inside: dumps, PTX, times and line tables of compiled kernels, by the command. No GPU."""

import json
import shutil
import subprocess
import sys

import harness

SOURCE = """#include "inc/twice.cuh"
#include <cuda_fp16.h>
extern "C" __global__ void k(float *x, __half *y) {
  x[0] = twice(x[1]);
  y[0] = __hmax(y[1], y[2]);
}
"""
HEADER = """#pragma once
__device__ __noinline__ float twice(float x) {
  return x * 2.f + 1.f;
}
"""


class Inside(harness.KjitCase):
    profiler = ""  # tests/support/fake_nvtx_library.c

    def setUp(self):
        super().setUp()
        if not self.has_nvrtc():
            self.skipTest("NVRTC is not installed")
        (self.folder / "src" / "inc").mkdir(parents=True)
        self.source = self.write("src/k.cu", SOURCE)
        self.header = self.write("src/inc/twice.cuh", HEADER)
        self.dump = self.folder / "dump"

    def run_kjit(self, *words, environment=None):
        return self.run_command(self.program, *words, environment={**self.environment, **(environment or {})})

    def has_nvrtc(self):
        probe = self.write("probe.cu", 'extern "C" __global__ void k() {}')
        return self.run_kjit("compile", probe, "--entry", "k", "--arch", "sm_90").returncode != harness.NO_NVRTC

    def compile(self, *options, environment=None):
        words = ("compile", self.source, "--entry", "k", "--arch", "sm_90", *options)
        return self.run_kjit(*words, environment={"KJIT_DUMP": self.dump, **(environment or {})})

    def dumped(self):
        (folder,) = self.dump.iterdir()
        return folder

    def test_dump__has_what_the_compiler_got_and_gave(self):
        self.assertEqual(self.compile("-D", "N=4", "--", "-lineinfo").returncode, 0)
        folder = self.dumped()
        self.assertRegex(folder.name, r"^k\.cu\.sm_90\.[0-9a-f]{12}$")
        self.assertLess({"source.cu", "key.txt", "options.txt", "kernel.cubin", "kernel.ptx", "times.txt"},
                        {path.name for path in folder.iterdir()} | {"log.txt"})  # fmt: skip
        self.assertTrue((folder / "source.cu").read_text().startswith("#define N 4\n"))
        self.assertIn("--generate-line-info", (folder / "options.txt").read_text())
        self.assertEqual((folder / "kernel.cubin").read_bytes()[:4], b"\x7fELF")
        self.assertIn(".target sm_90", (folder / "kernel.ptx").read_text())
        self.assertRegex((folder / "times.txt").read_text(), r"^compile [\d.]+ ms: front end \d+")

    def test_dump__of_a_rejected_source_has_its_log_and_no_code(self):
        self.source.write_text("extern \"C\" __global__ void k() { oops; }\n")
        self.assertNotEqual(self.compile().returncode, 0)
        names = {path.name for path in self.dumped().iterdir()}
        self.assertIn("oops", (self.dumped() / "log.txt").read_text() + (self.dumped() / "error.txt").read_text())
        self.assertFalse(names & {"kernel.cubin", "kernel.ptx"})

    def test_dump__is_made_once_and_leaves_nothing_behind(self):
        for _ in range(2):
            self.assertEqual(self.compile(environment={"KJIT_CACHE_MODE": "off"}).returncode, 0)
        self.assertEqual(len(list(self.dump.iterdir())), 1)

    def test_dump__into_what_is_no_folder_does_not_fail_the_compile(self):
        self.dump.write_text("")
        self.assertEqual(self.compile().returncode, 0)

    def test_dump__of_a_relative_path_is_refused(self):
        result = self.compile(environment={"KJIT_DUMP": "here"})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("KJIT_DUMP", result.stderr)

    def test_ptx__is_what_was_kept(self):
        key = json.loads(self.compile("--json").stdout)["key"]
        shown = self.run_kjit("cache", "show", key[:16], "--ptx", environment={"KJIT_DUMP": self.dump})
        self.assertEqual(shown.stdout, (self.dumped() / "kernel.ptx").read_text())
        without = self.run_kjit("cache", "show", key[:16], "--ptx")
        self.assertNotEqual(without.returncode, 0)
        self.assertIn("was not kept", without.stderr)

    def test_time__has_the_phases_of_a_compile_and_none_of_a_hit(self):
        times = json.loads(self.compile("--time", "--json").stdout)["times"]
        names = ("includes_ms", "compile_ms", "front_end_ms", "ptxas_ms", "publish_ms")
        for name in names:
            self.assertGreater(times[name], 0, name)
        inner = times["front_end_ms"] + times["optimizer_ms"] + times["ptxas_ms"]
        self.assertLess(inner, times["compile_ms"] * 1.1 + 5)  # NVRTC rounds to whole milliseconds
        again = json.loads(self.compile("--time", "--json").stdout)["times"]
        self.assertEqual(set(again.values()), {0.0})
        self.assertRegex(self.compile("--time").stdout, r"(?m)^  ptxas +0\.0 ms$")

    def test_line_table__names_files_that_exist(self):
        if shutil.which("readelf") is None:
            self.skipTest("readelf is not installed")
        for server in ("off", "on"):
            with self.subTest(server):
                output = self.folder / f"{server}.cubin"
                environment = {"KJIT_COMPILE_SERVER": server, "KJIT_CACHE_MODE": "off", "KJIT_DUMP": None}
                made = self.compile("-o", output, "--", "-lineinfo", environment=environment)
                self.assertEqual(made.returncode, 0, made.stderr)
                dumped = subprocess.run(["readelf", "--debug-dump=rawline", output], capture_output=True, text=True)
                table = dumped.stdout
                lines = [line for line in table.splitlines() if line.startswith("  ") and "\t/" in line]
                folders = [line.split("\t")[1] for line in lines]
                self.assertIn(str(self.source.parent), folders)
                self.assertIn(str(self.header.parent), folders)
                self.assertIn("k.cu", table)
                self.assertIn("twice.cuh", table)

    def test_line_info__leaves_the_key_without_paths(self):
        made = self.compile("--show-key", "--", "-lineinfo")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertNotIn(str(self.folder), made.stdout)  # the key is the same on every machine

    def test_ranges__of_a_link_stand_within_those_of_its_compile(self):
        told = self.folder / "told"
        profiler = {"KJIT_NVTX": "on", "NVTX_INJECTION64_PATH": self.profiler, "FAKE_NVTX_FILE": told}
        made = self.compile("--", "-dlto", environment=profiler)
        self.assertEqual(made.returncode, 0, made.stderr)
        ranges = ["domain kjit", "push compile k.cu sm_90", "push link k.cu sm_90", "pop", "pop"]
        self.assertEqual(told.read_text().splitlines(), ranges)


if __name__ == "__main__":
    Inside.profiler = sys.argv[2]
    harness.KjitCase.program = sys.argv[1]
    harness.main(sys.modules["__main__"])
