"""tools/sass_compare over two builds of which one lacks a field. Run with the path of kjit, which is both. No GPU."""

import subprocess
import sys
from pathlib import Path

import harness

COMPARE = Path(__file__).resolve().parents[2] / "tools/sass_compare"
CONFIG = "dtype=bf16,head_dim=64,head_dim_v=64,causal=0,rows=16,tile_n=64,stages=2,blocks_per_sm=1"


class SassCompare(harness.KjitCase):
    program = sys.argv.pop(1)

    def compare(self, text):
        command = [COMPARE, self.program, self.program, "--manifest", "/dev/null"]
        command += ["--config", "attention_decode_sm90", text, "sm_90a"]
        return subprocess.run(command, capture_output=True, text=True)

    def test_field__that_is_0_may_be_missing_or_unknown(self):
        for text in (CONFIG.replace("causal=0,", ""), CONFIG + ",newer=0"):
            done = self.compare(text)
            self.assertEqual((done.returncode, done.stdout), (0, "1 kernels, 0 differ\n"), done.stderr)

    def test_field__that_is_not_0_and_unknown_is_named(self):
        done = self.compare(CONFIG + ",newer=3")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("not compiled: newer=3: one of both builds has no such field", done.stdout)


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
