"""A wheel, built with build isolation and installed into a fresh virtual environment, as a user's pip does it."""

import re
import sys
import zipfile

import harness

ROOT = harness.Path(sys.argv[1])

USE = """
import kjit
from pathlib import Path
assert Path(kjit._library.lib._name) == Path(kjit.__file__).with_name("libkjit.so"), kjit._library.lib._name
assert len(kjit.config_set("prebuilt")) == 85
assert kjit._native_part.MISSING == "", kjit._native_part.MISSING
import os, subprocess
worker = Path(kjit.__file__).with_name("kjit-compile-worker")
assert os.access(worker, os.X_OK), worker
ran = subprocess.run([worker], capture_output=True, text=True)
assert ran.returncode != 127, ran.stderr
print(kjit.__version__)
"""


class Wheel(harness.TemporaryFolder):
    def setUp(self):
        super().setUp()
        self.python = self.folder / "venv" / "bin" / "python"
        made = self.run_command(sys.executable, "-m", "venv", self.folder / "venv")
        if made.returncode != 0:
            self.skipTest(f"no virtual environment: {(made.stderr or made.stdout).strip().splitlines()[0]}")
        download = ("download", "-q", "--no-deps", "-d", self.folder / "probe", "scikit-build-core", "auditwheel")
        if self.pip(*download).returncode != 0:
            self.skipTest("the package index cannot be reached, and a wheel needs scikit-build-core and auditwheel")

    def pip(self, *arguments):
        environment = {"PYTHONPATH": None, "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
        return self.run_command(self.python, "-m", "pip", *arguments, environment=environment)

    def build(self):
        # What is in the wheel does not depend on how well it is optimised. With dev's very flags tools/check's ccache
        # has every object.
        result = self.run_command(ROOT / "tools/make-wheel", self.folder / "wheels", sys.executable,
                                  environment={"SKBUILD_CMAKE_BUILD_TYPE": "Debug",
                                               "SKBUILD_CMAKE_DEFINE": "KJIT_WERROR=ON"})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        (wheel,) = (self.folder / "wheels").glob("kjit-*.whl")
        return wheel

    def test_wheel__holds_the_package_and_runs_where_it_is_installed(self):
        wheel = self.build()
        self.assertRegex(wheel.name, r"^kjit-\d+\.\d+\.\d+-py3-none-manylinux_2_\d+_\w+\.whl$")
        names = set(zipfile.ZipFile(wheel).namelist())
        needed = {f"kjit/{name}" for name in ("_native.abi3.so", "kjit-compile-worker", "libkjit.so", "_abi.py",
                                              "py.typed", "flash_config.pyi", "runtime.py")}
        self.assertEqual(needed - names, set())
        self.assertFalse({name for name in names if name.endswith((".in", ".h", ".a"))})
        self.assertEqual(self.pip("install", "-q", "--no-index", "--no-deps", wheel).returncode, 0)
        used = self.run_command(self.python, "-c", USE, environment={"PYTHONPATH": None}, cwd=self.folder)
        self.assertEqual(used.returncode, 0, used.stderr)
        self.assertEqual(used.stdout.strip(), wheel.name.split("-")[1])
        doctor = self.run_command(self.python, "-m", "kjit", "doctor", environment={"PYTHONPATH": None})
        self.assertEqual(doctor.returncode, 0, doctor.stderr)

    def test_wheel__extras_bring_a_compiler_and_headers_of_one_version(self):
        metadata = (ROOT / "pyproject.toml").read_text()
        for extra, package in (("cuda12", "nvidia-cuda-nvrtc-cu12"), ("cuda13", "nvidia-cuda-nvrtc")):
            line = re.search(rf"^{extra} = \[(.*)\]$", metadata, re.MULTILINE).group(1)
            self.assertIn(f'"{package}==', line)
            self.assertEqual(len(set(re.findall(r"==([\d.*]+)", line))), 1, line)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
