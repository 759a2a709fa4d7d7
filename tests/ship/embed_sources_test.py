"""A library without its kernel sources: the same keys, so that what was compiled elsewhere answers.

usage: embed_sources_test.py KJIT C_COMPILER
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
import harness  # noqa: E402
from harness import FAILED  # noqa: E402

KJIT, COMPILER = Path(sys.argv[1]).resolve(), sys.argv[2]
FORM = "(FP16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"


class WithoutSources(harness.KjitCase):
    """Two kjits: with its sources, and `without`."""

    program = KJIT

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = harness.tempfile.mkdtemp(prefix="kjit-build-")
        cls.addClassCleanup(harness.shutil.rmtree, folder)
        for command in (["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, f"-DCMAKE_C_COMPILER={COMPILER}",
                         "-DCMAKE_BUILD_TYPE=Debug", "-DKJIT_EMBED_SOURCES=OFF", "-DKJIT_BUILD_TESTS=OFF",
                         # Compiled with dev's very flags, so that tools/check's ccache has every object.
                         "-DKJIT_WERROR=ON", "-DKJIT_BUILD_BENCH=OFF", "-DKJIT_BUILD_EXAMPLES=OFF"],
                        ["cmake", "--build", folder, "--target", "kjit_command"]):
            done = harness.subprocess.run([str(word) for word in command], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        cls.without = next(Path(folder).glob("tools/kjit/kjit"))
        cls.library = next(Path(folder).glob("libkjit.so.?.?.?"))

    def compile(self, **environment):
        return self.json("compile", "--flash", FORM, "--arch", "sm_90", **environment)

    def test_without_sources__the_cache_answers_with_the_same_key(self):
        built = self.compile()
        self.program = self.without
        found = self.compile()
        self.assertEqual((built["source"], found["source"]), ("built", "user"))
        self.assertEqual(built["key"], found["key"])

    def test_without_sources__a_bundle_answers(self):
        bundle, manifest = self.folder / "b.kjb", self.write("m", f"flash_forward sm_90 {FORM}\n")
        self.kjit("bundle", "create", bundle, "--manifest", manifest)
        self.program = self.without
        found = self.compile(KJIT_BUNDLE=bundle, KJIT_CACHE_MODE="off")
        self.assertEqual(found["source"], "bundle")

    def test_without_sources__a_sealed_program_answers_from_its_bundle(self):
        source = self.write("k.cu", '#include <kjit/types.cuh>\nextern "C" __global__ void k() {}\n')
        program, bundle, again = (self.folder / name for name in ("p.kprog", "p.kjb", "again.kjb"))
        self.kjit("pack", source, "--entry", "k", "--arch", "sm_90", "-o", program)
        self.kjit("bundle", "create", bundle, "--program", program)
        self.program = self.without
        self.kjit("bundle", "create", again, "--program", program, KJIT_BUNDLE=bundle, KJIT_CACHE_MODE="off",
                  KJIT_NVRTC=harness.NOWHERE)
        self.assertEqual(bundle.read_bytes(), again.read_bytes())

    def test_without_sources__a_miss_says_why_it_cannot_be_compiled(self):
        self.program = self.without
        result = self.kjit("compile", "--flash", FORM, "--arch", "sm_90", exit_code=FAILED)
        for word in ("flash_forward", "sm_90", "KJIT_EMBED_SOURCES=OFF", "kjit bundle create"):
            self.assertIn(word, result.stderr)

    def test_without_sources__the_source_is_not_shown_in_part(self):
        self.program = self.without
        result = self.kjit("compile", "--flash", FORM, "--arch", "sm_90", "--show-source", exit_code=FAILED)
        self.assertIn("KJIT_EMBED_SOURCES=OFF", result.stderr)

    def test_without_sources__a_users_include_of_kjits_headers_says_so(self):
        source = self.write("k.cu", '#include <kjit/types.cuh>\nextern "C" __global__ void k() {}\n')
        self.program = self.without
        result = self.kjit("compile", source, "--entry", "k", "--arch", "sm_90", exit_code=FAILED)
        for word in ("k.cu:1", "kjit/types.cuh", "KJIT_EMBED_SOURCES=OFF"):
            self.assertIn(word, result.stderr)
        self.kjit("compile", source, "--entry", "k", "--arch", "sm_90", "-I", ROOT / "kernel_src")

    def test_without_sources__none_is_in_the_library(self):
        self.assertFalse(b"KJIT_DEVICE" in self.library.read_bytes())


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
