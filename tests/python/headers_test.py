"""NVRTC and its headers where nothing names them: an environment that is not active, and an NVRTC that carries them.

The layouts are pip's and conda's; the libraries in them are a fake NVRTC, whose file names say a version that no
machine has, so that it is taken for the best there is.
"""

import os
import shutil
import sys
from pathlib import Path

import harness
import kjit

SHOW = "import kjit; print(kjit.doctor()['nvrtc_path'])"
VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "KJIT_NVRTC", "LD_LIBRARY_PATH", "KJIT_LIBRARY")


class Layouts(harness.TemporaryFolder):
    def setUp(self):
        super().setUp()
        found = kjit.doctor()
        if found["nvrtc_status"] != 0:
            self.skipTest("NVRTC is not installed")
        self.nvrtc, self.major = Path(found["nvrtc_path"]).resolve(), found["nvrtc_major"]
        self.fake = Path(sys.argv[1])
        self.without = {name: None for name in VARIABLES}

    def lay_out(self, folder, version="9"):
        """NVRTC in a folder, as a package has it."""
        folder.mkdir(parents=True)
        shutil.copy(self.fake, folder / f"libnvrtc.so.{self.major}")
        shutil.copy(self.fake, folder / f"libnvrtc-builtins.so.{self.major}.{version}")
        return folder / f"libnvrtc.so.{self.major}"

    def lay_out_real(self, folder, version):
        """The machine's own NVRTC under the file name of another version."""
        folder.mkdir(parents=True)
        builtins = max(self.nvrtc.parent.glob("libnvrtc-builtins.so.*"))
        shutil.copy(self.nvrtc, folder / f"libnvrtc.so.{self.major}")
        shutil.copy(builtins, folder / f"libnvrtc-builtins.so.{version}")
        return folder / f"libnvrtc.so.{self.major}"

    def copy_package(self, site):
        package = Path(kjit.__file__).parent
        site.mkdir(parents=True, exist_ok=True)
        self.assertEqual(self.run_command("cp", "-rL", package, site / "kjit").returncode, 0)

    def shown(self, python, **environment):
        ran = self.run_command(python, "-c", SHOW, environment={**self.without, **environment})
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout.strip()

    def test_package__finds_nvrtc_in_its_own_site_packages(self):
        site = self.folder / "any" / "site-packages"
        self.copy_package(site)
        for index, parts in enumerate((("nvidia", "cuda_nvrtc", "lib"), ("nvidia", f"cu{self.major}", "lib"))):
            if parts[1] == "cu12":
                continue
            expected = self.lay_out(site.joinpath(*parts), version=str(8 + index))
            self.assertEqual(self.shown(sys.executable, PYTHONPATH=str(site)), str(expected))

    def test_program__in_an_environment_that_is_not_active_finds_its_nvrtc(self):
        marks = {"venv": ("pyvenv.cfg", "lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib"),
                 "conda": ("conda-meta", "lib")}
        for name, (mark, below) in marks.items():
            with self.subTest(name):
                folder = self.folder / name
                expected = self.lay_out(folder / below)
                (folder / "bin").mkdir()
                python = folder / "bin" / "python"
                python.symlink_to(os.path.realpath(sys.executable))
                self.assertNotEqual(self.shown(python, PYTHONHOME=sys.base_prefix), str(expected))
                (folder / mark).write_text("" if mark == "conda-meta" else f"home = {sys.base_prefix}/bin\n")
                path = os.environ["PYTHONPATH"]
                self.assertEqual(self.shown(python, PYTHONPATH=path, PYTHONHOME=sys.base_prefix), str(expected))
                by_name = self.run_command(
                    "env", f"PATH={folder}/bin:{os.environ['PATH']}", "python", "-c", SHOW,
                    environment={**self.without, "PYTHONHOME": sys.base_prefix},
                )  # fmt: skip
                self.assertEqual(by_name.stdout.strip(), str(expected), by_name.stderr)

    def test_headers__that_nvrtc_put_into_the_cache_are_found(self):
        """NVRTC from 13.3 on puts them there; here they lie there already, and the file names say that it is such."""
        if self.major < 13:
            self.skipTest("NVRTC has carried its headers since 13.3")
        nvrtc = self.lay_out_real(self.folder / "nvrtc" / "lib", "13.3")
        cache = self.folder / "cache"
        headers = cache / "nvrtc-headers-13.3"
        headers.mkdir(parents=True, mode=0o700)
        cache.chmod(0o700)
        (headers / "cuda_fp16.h").write_text("#define FROM_NVRTC 7\n")
        code = (
            "import kjit, sys\n"
            "text = '#include <cuda_fp16.h>\\nextern \"C\" __global__ void k(int *x) { *x = FROM_NVRTC; }'\n"
            "try: print(kjit.compile_source(text, 'k', 'sm_90').entry)\n"
            "except kjit.Error as error: print('refused', error)"
        )
        environment = {**self.without, "KJIT_NVRTC": str(nvrtc), "KJIT_CACHE_DIR": str(cache)}
        ran = self.run_command(sys.executable, "-c", code, environment=environment)
        self.assertTrue(ran.stdout.startswith("refused"), ran.stdout + ran.stderr)  # no marker: not complete
        (headers / ".nvrtc_headers_version").write_text("13.3\n")
        ran = self.run_command(sys.executable, "-c", code, environment=environment)
        self.assertEqual(ran.stdout.strip(), "k", ran.stderr)

    def test_headers__of_another_cuda_are_named_when_the_compile_fails(self):
        headers = self.folder / "include"
        headers.mkdir()
        (headers / "cuda.h").write_text(f"#define CUDA_VERSION {(self.major - 1) * 1000}\n")
        (headers / "own.h").write_text("int broken(\n")
        with self.assertRaises(kjit.CompileError) as caught:
            kjit.compile_source('#include "own.h"\n__global__ void k() {}', None, "sm_90", include_dirs=[headers])
        self.assertIn(f"are of CUDA {self.major - 1}.0 and the compiler is NVRTC {self.major}", str(caught.exception))


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
