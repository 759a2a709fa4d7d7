"""Programs that use kjit: by its CMake package, by pkg-config, as a subdirectory, and README's example.

usage: consumers_test.py BUILD_FOLDER C_COMPILER CUSTOM_KERNEL_EXAMPLE
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import harness

BUILD, COMPILER, EXAMPLE = sys.argv[1:4]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


class Consumer(harness.TemporaryFolder):
    """A case that builds something; the environment's search paths for packages are taken out."""

    ENVIRONMENT = {"CC": COMPILER, "PKG_CONFIG_PATH": None, "CMAKE_PREFIX_PATH": None}

    def done(self, *command, **environment):
        result = self.run_command(*command, environment={**self.ENVIRONMENT, **environment})
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}\n{result.stderr}")
        return result.stdout

    def configure_and_build(self, source, *options):
        self.done("cmake", "-G", "Ninja", "-S", source, "-B", self.folder / "build", *options)
        self.done("cmake", "--build", self.folder / "build")

    def check_version(self, program, **environment):
        environment.setdefault("LD_LIBRARY_PATH", None)
        self.assertRegex(self.done(program, **environment), r"^kjit \d+\.\d+\.\d+\n$")


class DecodeLoop(Consumer):
    def test_bundle__has_what_a_hopper_card_asks_for(self):
        """Attention is compiled for sm_90a there, new keys and the step for sm_90; nothing could be compiled later."""
        bundle = self.folder / "kernels.kjb"
        source = EXAMPLES / "decode_loop/step.cu"
        self.done(f"{BUILD}/examples/example_decode_loop", "build", bundle, DECODE_LOOP_SOURCE=source)
        listed = self.done(f"{BUILD}/tools/kjit/kjit", "bundle", "inspect", bundle)
        for wanted in ("sm_90a .* attention_serving_sm90 .*one_part=1", "sm_90a .* attention_serving_sm90 .*one_part=0",
                       "sm_90 .* attention_serving pass=append", "sm_90 .* custom step.cu"):  # fmt: skip
            self.assertRegex(listed, wanted)


class Installed(Consumer):
    """An installed tree that was moved afterwards: nothing in it may remember where it was made."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = tempfile.mkdtemp(prefix="kjit-install-")
        code = os.spawnlp(os.P_WAIT, "cmake", "cmake", "--install", BUILD, "--prefix", made + "/made")
        cls.prefix = Path(made, "moved")
        os.rename(made + "/made", cls.prefix)
        cls.library = next(cls.prefix.rglob("libkjit.so")).parent
        cls.addClassCleanup(shutil.rmtree, made)
        assert code == 0, "cmake --install failed"

    def test_install__find_package_gives_both_libraries(self):
        self.configure_and_build(EXAMPLES / "find_package", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.check_version(self.folder / "build/uses_kjit")
        self.check_version(self.folder / "build/uses_kjit_static")

    def test_install__pkg_config_gives_both_libraries(self):
        makefile = EXAMPLES / "pkg_config/Makefile"
        shutil.copytree(EXAMPLES / "pkg_config", self.folder / "pkg_config")
        shutil.copy(EXAMPLES / "version.c", self.folder)
        self.assertTrue(makefile.exists())
        self.done("make", "-C", self.folder / "pkg_config", f"CC={COMPILER}",
                  PKG_CONFIG_PATH=str(self.library / "pkgconfig"))
        self.check_version(self.folder / "pkg_config/uses_kjit", LD_LIBRARY_PATH=str(self.library))
        self.check_version(self.folder / "pkg_config/uses_kjit_static")

    def test_install__command_finds_the_library_beside_it(self):
        self.check_version_of_command(self.prefix / "bin/kjit")

    def check_version_of_command(self, command):
        self.assertRegex(self.done(command, "--version", LD_LIBRARY_PATH=None), r"^kjit \d")

    def test_install__no_file_knows_where_it_was_made(self):
        for path in self.prefix.rglob("*"):
            if path.suffix in (".cmake", ".pc"):
                self.assertNotIn(str(ROOT), path.read_text(), path)
                self.assertNotIn(str(self.prefix.parent), path.read_text(), path)


class Source(Consumer):
    def test_source__add_subdirectory_builds_the_library_alone(self):
        shutil.copytree(EXAMPLES / "add_subdirectory", self.folder / "add_subdirectory")
        shutil.copy(EXAMPLES / "version.c", self.folder)
        # With dev's very flags, so that tools/check's ccache has every object.
        flags = ("-DCMAKE_BUILD_TYPE=Debug", "-DKJIT_WERROR=ON")
        self.configure_and_build(self.folder / "add_subdirectory", f"-DKJIT_FOLDER={ROOT}", *flags)
        self.check_version(self.folder / "build/uses_kjit")
        self.assertEqual(list((self.folder / "build").rglob("*_test")), [])


class Examples(Consumer):
    def test_custom_kernel__is_built_once_for_each_constant(self):
        output = self.done(EXAMPLE, KJIT_CACHE_DIR=str(self.folder / "cache"))
        self.assertEqual(re.findall(r"PER_THREAD=(\d): (\w+),", output),
                         [("1", "built"), ("4", "built"), ("4", "memory")])
        output = self.done(EXAMPLE, KJIT_CACHE_DIR=str(self.folder / "cache"))
        self.assertEqual(re.findall(r"PER_THREAD=(\d): (\w+),", output),
                         [("1", "user"), ("4", "user"), ("4", "memory")])

    def test_readme__example_is_the_one_that_is_compiled(self):
        blocks = re.findall(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        self.assertIn((EXAMPLES / "attention.c").read_text(), blocks)


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
