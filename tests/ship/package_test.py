"""The packages that cpack makes: a Debian package and a tarball, which work wherever they are unpacked.

usage: package_test.py BUILD_FOLDER C_COMPILER
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
import harness  # noqa: E402

BUILD, COMPILER = sys.argv[1:3]
HAS_DPKG = shutil.which("dpkg-deb") is not None and shutil.which("dpkg-shlibdeps") is not None


class Package(harness.TemporaryFolder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = Path(tempfile.mkdtemp(prefix="kjit-packages-"))
        cls.addClassCleanup(shutil.rmtree, cls.made)
        generators = "DEB;TGZ" if HAS_DPKG else "TGZ"
        done = subprocess.run(["cpack", "-G", generators, "-B", cls.made], cwd=BUILD, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def done(self, *command, **environment):
        result = self.run_command(*command, environment=environment)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}\n{result.stderr}")
        return result.stdout

    def unpacked(self):
        archive = next(self.made.glob("*.tar.gz"))
        self.done("tar", "-xzf", archive, "-C", self.folder, "--strip-components=1")
        return self.folder

    def test_tarball__command_runs_where_it_is_unpacked(self):
        prefix = self.unpacked()
        self.assertRegex(self.done(prefix / "bin/kjit", "--version", LD_LIBRARY_PATH=None), r"^kjit \d+\.\d+\.\d+\n$")

    def test_tarball__pkg_config_finds_header_and_library_where_it_is_unpacked(self):
        prefix = self.unpacked()
        source = self.write("version.c", '#include <kjit/kjit.h>\n#include <stdio.h>\n'
                            'int main(void) { return puts(kjit_version()) < 0; }\n')
        folder = next(prefix.rglob("kjit.pc")).parent
        flags = self.done("pkg-config", "--cflags", "--libs", "kjit", PKG_CONFIG_PATH=folder).split()
        self.done(COMPILER, source, "-o", self.folder / "version", *flags)
        library = next(prefix.rglob("libkjit.so")).parent
        self.assertRegex(self.done(self.folder / "version", LD_LIBRARY_PATH=library), r"^\d+\.\d+\.\d+\n$")

    def test_tarball__family_file_is_checked_compiled_and_warmed_where_it_is_unpacked(self):
        prefix = self.unpacked()
        work = self.folder / "work"
        shutil.copytree(ROOT / "examples/family_softmax", work)
        kjit, alone = prefix / "bin/kjit", {"LD_LIBRARY_PATH": None, "KJIT_CACHE_DIR": self.folder / "cache",
                                            "KJIT_RECORD": None}
        self.assertIn("one of 1, 2, 4, 8", self.done(kjit, "family", "show", work / "softmax.yaml", **alone))
        if self.run_command(kjit, "doctor", environment=alone).returncode not in (0, 3):
            self.skipTest("there is no NVRTC")
        family = ("--family", work / "softmax.yaml", "--arch", "sm_90")
        self.assertIn("softmax", self.done(kjit, "compile", *family, "vec=8", **alone))
        warmed = self.done(kjit, "warm", *family, "--set", "small", **alone)
        self.assertIn("2 requested, 2 distinct: 1 built, 1 from the cache, 0 failed", warmed)

    def test_tarball__manual_page_names_every_command(self):
        prefix = self.unpacked()
        page = next(prefix.rglob("kjit.1")).read_text()
        for command in self.done(prefix / "bin/kjit", "completion", "words").split():
            self.assertIn(f"\n.SS kjit {command}\n", page)
        self.assertNotRegex(page, re.compile(r"^\.(?!TH|SH|SS|EX|EE)", re.MULTILINE))

    @unittest.skipUnless(HAS_DPKG, "dpkg-deb is not here")
    def test_deb__needs_libc_and_jansson_alone(self):
        depends = self.done("dpkg-deb", "-f", next(self.made.glob("*.deb")), "Depends")
        self.assertEqual({word.split()[0] for word in depends.split(",")}, {"libc6", "libjansson4"})

    @unittest.skipUnless(HAS_DPKG, "dpkg-deb is not here")
    def test_deb__holds_command_library_headers_pages_and_licence(self):
        listed = self.done("dpkg-deb", "-c", next(self.made.glob("*.deb")))
        for name in ("/bin/kjit", "/include/kjit/kjit.h", "libkjit.so.0", "libkjit.a", "kjitConfig.cmake", "kjit.pc",
                     "man1/kjit.1", "bash-completion/completions/kjit", "site-functions/_kjit",
                     "vendor_completions.d/kjit.fish", "doc/kjit/copyright"):
            self.assertIn(name, listed)


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
