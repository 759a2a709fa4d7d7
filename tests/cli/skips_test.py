"""What ctest makes of a test program that skips cases: the property that all tests of this build have, tried on
programs that print what cmocka and harness.py print.

usage: skips_test.py BUILD_FOLDER
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import harness

BUILD = Path(sys.argv.pop(1))

SKIPPED = "[  PASSED  ] 1 test(s).\n[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] test_b\n\n 1 SKIPPED TEST(S)\n"
FAILED = "[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] test_c\n\n 1 FAILED TEST(S)\n"


class Skips(unittest.TestCase):
    def result_of(self, output, code):
        """The word that ctest says of a program with this output and exit code."""
        text = (BUILD / "tests/unit/CTestTestfile.cmake").read_text()
        expression = re.search(r'SKIP_REGULAR_EXPRESSION ("(?:[^"\\]|\\.)*")', text)[1]
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "program.py")
            script.write_text(f"import sys\nsys.stderr.write({output!r})\nsys.exit({code})\n")
            Path(folder, "CTestTestfile.cmake").write_text(
                f'add_test(program "{sys.executable}" "{script}")\n'
                f"set_tests_properties(program PROPERTIES SKIP_REGULAR_EXPRESSION {expression})\n")
            said = subprocess.run(["ctest"], cwd=folder, capture_output=True, text=True, timeout=harness.HANGS_S).stdout
        return re.search(r"Test +#1: program \.+ *\**(\w+)", said)[1]

    def test_ctest__program_that_skips_a_case_is_skipped(self):
        self.assertEqual(self.result_of(SKIPPED, 0), "Skipped")

    def test_ctest__program_that_skips_one_case_and_fails_another_has_failed(self):
        self.assertEqual(self.result_of(SKIPPED + FAILED, 1), "Failed")

    def test_ctest__program_that_skips_a_case_and_leaks_has_failed(self):
        leak = "==1==ERROR: LeakSanitizer: detected memory leaks\n"
        self.assertEqual(self.result_of(SKIPPED + leak, 23), "Failed")

    def test_ctest__program_that_ends_after_a_skipped_case_has_failed(self):
        self.assertEqual(self.result_of("[ RUN      ] test_b\n[  SKIPPED ] test_b\n", 1), "Failed")

    def test_harness__tells_of_skips_where_nothing_failed(self):
        for failing, code, result in ("", 0, "Skipped"), ("    def test_b(self): self.fail()\n", 1, "Failed"):
            program = ("import sys, unittest, harness\nclass Cases(unittest.TestCase):\n"
                       f"    def test_a(self): self.skipTest('why')\n{failing}"
                       "harness.main(sys.modules['__main__'])\n")
            ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                                 cwd=Path(harness.__file__).parent, timeout=harness.HANGS_S)
            self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
            self.assertEqual(self.result_of(ran.stdout, code), result)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
