"""An application ships kernels that use CUB, and neither headers nor compiler nor source.

usage: sealed_test.py KJIT SEALED_APP LIBKJIT_A FAKE_DRIVER C_COMPILER CUDA_INCLUDE
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
import harness  # noqa: E402
from harness import DONE, FAILED, NO_NVRTC, NOWHERE, USAGE  # noqa: E402

KJIT, APP, ARCHIVE, DRIVER = (Path(word).resolve() for word in sys.argv[1:5])
COMPILER, CUDA = sys.argv[5:7]
# One parameter of 16 bytes, which is what the fake driver says of every kernel.
SOURCE = """#include <value.h>
#include <cub/block/block_reduce.cuh>
struct pointers { const int *in; int *out; };
extern "C" __global__ void sum(pointers p) {
  using Reduce = cub::BlockReduce<int, 128>;
  __shared__ typename Reduce::TempStorage storage;
  const int total = Reduce(storage).Sum(p.in[threadIdx.x] + ADDED);
  if (threadIdx.x == 0) *p.out = total + STORED;
}
"""
PLAIN = '#include <value.h>\nextern "C" __global__ void store(int *out) { *out = STORED; }\n'


class Sealed(harness.KjitCase):
    program = KJIT

    def setUp(self):
        super().setUp()
        (self.folder / "include").mkdir()
        self.write("include/value.h", "#pragma once\n#define STORED 42\n")

    def pack(self, text=PLAIN, entry="store", *more, archs="sm_90", out="app.kprog"):
        source = self.write("k.cu", text)
        self.kjit("pack", source, "--entry", entry, "--arch", archs, "-D", "ADDED=3", "-I", self.folder / "include",
                  "-o", self.folder / out, *more)
        return self.folder / out

    def bundle(self, program):
        path = self.folder / "app.kjb"
        self.kjit("bundle", "create", path, "--program", program)
        return path

    def remove_everything_else(self):
        """Sources, headers and cache."""
        shutil.rmtree(self.cache)
        shutil.rmtree(self.folder / "include")
        (self.folder / "k.cu").unlink()

    def run_app(self, app, program, bundle, entry):
        environment = {**self.environment, "KJIT_NVRTC": NOWHERE, "KJIT_CACHE_MODE": "off", "KJIT_LIBCUDA": DRIVER,
                       "CUDA_HOME": NOWHERE, "CUDA_PATH": NOWHERE, "KJIT_IGNORE_SYSTEM_CUDA": "1"}
        return self.run_command(app, program, bundle, entry, environment=environment)

    def test_sealed__a_cub_kernel_runs_without_headers_compiler_or_source(self):
        program = self.pack(SOURCE, "sum")
        bundle = self.bundle(program)
        self.remove_everything_else()
        result = self.run_app(APP, program, bundle, "sum")
        self.assertEqual((result.returncode, result.stdout), (DONE, "sum for sm_90 from bundle\n"), result.stderr)

    def test_sealed__without_texts_it_runs_the_same_and_has_no_source_in_it(self):
        program, whole = self.pack(PLAIN, "store", "--without-texts"), self.pack(out="whole.kprog")
        bundle = self.bundle(program)
        self.remove_everything_else()
        result = self.run_app(APP, program, bundle, "store")
        self.assertIn(result.returncode, (DONE, FAILED))  # the fake driver's idea of the parameters is another
        self.assertNotIn("no bundle", result.stderr)
        self.assertLess(program.stat().st_size, whole.stat().st_size)
        missed = self.kjit("bundle", "create", self.folder / "x.kjb", "--program", program, exit_code=FAILED)
        self.assertIn("without its texts", missed.stderr)

    def test_sealed__linked_into_an_application(self):
        source = self.pack(SOURCE, "sum", "--c-source", out="program.c")
        bundle = self.bundle(self.pack(SOURCE, "sum"))
        self.remove_everything_else()
        app = self.folder / "linked"
        built = self.run_command(COMPILER, "-std=c11", "-DLINKED", f"-I{ROOT / 'include'}", "-isystem", CUDA, "-o", app,
                                 ROOT / "tests/ship/sealed_app.c", source, ARCHIVE, "-lm", "-ldl", "-pthread")
        self.assertEqual(built.returncode, 0, built.stderr)
        result = self.run_app(app, "none", bundle, "sum")
        self.assertEqual((result.returncode, result.stdout), (DONE, "sum for sm_90 from bundle\n"), result.stderr)

    def test_sealed__compiles_from_its_own_texts_to_the_same_bundle(self):
        program = self.pack()
        first = self.bundle(program).read_bytes()
        self.remove_everything_else()
        self.assertEqual(first, self.bundle(program).read_bytes())

    def test_sealed__the_source_and_the_program_share_the_cache(self):
        program = self.pack()
        found = self.json("compile", self.folder / "k.cu", "--entry", "store", "--arch", "sm_90", "-D", "ADDED=3", "-I",
                          self.folder / "include")
        self.assertEqual(found["source"], "user")
        self.kjit("bundle", "create", self.folder / "x.kjb", "--program", program, KJIT_CACHE_MODE="ro")

    def test_sealed__packing_again_gives_the_same_bytes(self):
        self.assertEqual(self.pack().read_bytes(), self.pack(out="again.kprog").read_bytes())

    def test_sealed__a_miss_without_nvrtc_names_kernel_architecture_and_remedy(self):
        program = self.pack()
        shutil.rmtree(self.cache)
        missed = self.kjit("bundle", "create", self.folder / "x.kjb", "--program", program, exit_code=NO_NVRTC,
                           KJIT_NVRTC=NOWHERE)
        for word in ("store", "sm_90", "k.cu", "kjit bundle create"):
            self.assertIn(word, missed.stderr)

    def test_sealed__lists_what_is_in_it(self):
        program = self.pack(archs="sm_80,sm_90")
        listed = self.json("pack", "--list", program)["kernels"]
        self.assertEqual([(kernel["arch"], kernel["entry"], kernel["defines"], kernel["files"]) for kernel in listed],
                         [(arch, "store", [["ADDED", "3"]], 2) for arch in ("sm_80", "sm_90")])

    def test_sealed__a_template_by_its_name_expression(self):
        program = self.pack('template <int N> __global__ void fill(int *out) { *out = N; }\n', "fill<7>")
        bundle = self.bundle(program)
        self.remove_everything_else()
        result = self.run_app(APP, program, bundle, "fill<7>")
        self.assertNotIn("no bundle", result.stderr)
        self.assertNotIn("no kernel", result.stderr)
        listed = self.json("pack", "--list", program)["kernels"]
        self.assertEqual([kernel["entry"] for kernel in listed], ["fill<7>"])

    def test_sealed__several_sources_with_kernels_of_their_own(self):
        first, second = self.write("a.cu", 'extern "C" __global__ void a() {}\n'), self.write(
            "b.cu", 'extern "C" __global__ void b() {}\n')
        out = self.folder / "two.kprog"
        self.kjit("pack", first, second, "--entry", f"{first}:a", "--entry", f"{second}:b", "--arch", "sm_90",
                  "-o", out)
        listed = self.json("pack", "--list", out)["kernels"]
        self.assertEqual([(kernel["source"], kernel["entry"]) for kernel in listed], [("a.cu", "a"), ("b.cu", "b")])

    def test_sealed__a_signed_one_is_taken_by_its_key_alone(self):
        for name in ("ours", "theirs"):
            self.kjit("bundle", "keygen", self.folder / name)
        unsigned, signed = self.pack(), self.pack(PLAIN, "store", "--key", self.folder / "ours.key", out="signed.kprog")
        self.assertEqual(len(signed.read_bytes()), len(unsigned.read_bytes()) + 104)
        self.kjit("pack", "--list", signed)
        data = bytearray(signed.read_bytes())
        data[len(data) // 2] ^= 1
        signed.write_bytes(data)
        refused = self.kjit("pack", "--list", signed, exit_code=FAILED)
        self.assertEqual(refused.stderr.count("\n"), 1)

    def test_pack__usage_errors_are_named(self):
        cases = (
            (("pack",), "FILE.cu"),
            (("pack", "k.cu"), "--entry"),
            (("pack", "k.cu", "--entry", "k"), "--arch"),
            (("pack", "k.cu", "--entry", "k", "--arch", "sm_90"), "-o"),
            (("pack", "a.cu", "b.cu", "--entry", "k", "--arch", "sm_90", "-o", "x"), "FILE.cu:NAME"),
            (("bundle", "create", "x", "--program", "p", "--set", "prebuilt"), "--program"),
        )
        for arguments, naming in cases:
            self.assertIn(naming, self.kjit(*arguments, exit_code=USAGE).stderr)


if __name__ == "__main__":
    harness.main(sys.modules[__name__], shares_compiles_of=KJIT)
