"""The examples of docs/python.md about users' kernels, run to a driver that only counts. No GPU."""

import os
import re
import struct
import sys
import unittest

import harness
import kjit
from arrays import InterfaceArray

ROOT = harness.Path(__file__).resolve().parents[2]


def examples(section):
    """The Python blocks under a heading."""
    text = (ROOT / "docs" / "python.md").read_text()
    body = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", body, re.DOTALL)


class Examples(unittest.TestCase):
    def setUp(self):
        if kjit.doctor()["nvrtc_status"] != 0:
            self.skipTest("NVRTC is not installed")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(ROOT)

    def run_section(self, section, least, **names):
        blocks = examples(section)
        self.assertGreaterEqual(len(blocks), least)
        names.update(kjit=kjit, struct=struct)
        for block in blocks:
            exec(compile(block, f"docs/python.md, {section}", "exec"), names)
        return names

    def test_own_kernel__runs(self):
        found = self.run_section("A kernel of your own", 3, x=InterfaceArray(1000), y=InterfaceArray(1000))
        self.assertEqual(found["values"], (1, 2, 3, 4))

    def test_own_family__runs(self):
        arrays = [InterfaceArray(1000 * 4096, "float16", 2) for _ in range(2)]
        found = self.run_section("A family of your own", 1, out=arrays[0], matrix=arrays[1])
        self.assertEqual(found["artifact"].arch, "sm_80")

    def test_bundle__runs(self):
        block = next(each for each in examples("Compiling, warming, looking") if "bundle_keygen" in each)
        names = {"kjit": kjit}
        exec(block, names)
        found = names["shipped"].compile_source('extern "C" __global__ void k() {}', "k", "sm_80", no_compile=True)
        self.assertEqual(found.origin, "bundle")


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
