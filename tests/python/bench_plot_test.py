"""The benchmarks' plots, from results that were made up."""

import contextlib
import importlib.util
import io
import sys
import unittest

import attention_report
import harness
import jit_peers
import variant_peers
from bench_test import BENCH, JIT_FOUND, made_up_rows


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
class Plots(harness.TemporaryFolder):
    def test_command__tells_a_file_again_with_plots(self):
        attention_report.write(self.folder / "a.csv", made_up_rows())
        command = (sys.executable, BENCH / "attention_peers.py", "--from", self.folder / "a.csv", "--out", self.folder)
        result = self.run_command(*command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("geometric mean", result.stdout)
        self.assertIn("not measured  Flex: out of memory", result.stderr)
        for name in ("attention_peers", "attention_odd", "attention_small", "attention_decode"):
            self.assertEqual((self.folder / f"{name}.png").read_bytes()[:4], b"\x89PNG", name)
        self.assertIn("## Odd sizes", (self.folder / "attention_peers.md").read_text())

    def test_command__draws_a_file_again(self):
        jit_peers.write(self.folder / "j.csv", JIT_FOUND, {})
        command = (sys.executable, BENCH / "jit_peers.py", "--from", self.folder / "j.csv", "--out", self.folder)
        self.assertEqual(self.run_command(*command).returncode, 0)
        self.assertEqual((self.folder / "jit_peers.png").read_bytes()[:4], b"\x89PNG")

    def test_variants__of_which_none_was_measured_have_a_table_and_no_plot(self):
        with contextlib.redirect_stdout(io.StringIO()):
            variant_peers.finish([], self.folder, "Nothing.", "nothing")
        self.assertTrue((self.folder / "variant_peers.md").exists())
        self.assertFalse((self.folder / "variant_peers.png").exists())


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
