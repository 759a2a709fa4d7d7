"""What the Python test programs share: cases reported as cmocka reports them, so that one tool counts all."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path


class CaseResult(unittest.TestResult):
    """One line a case: `[       OK ] name`, `[  FAILED  ] name`, `[  SKIPPED ] name`."""

    def addSuccess(self, test):
        super().addSuccess(test)
        print(f"[       OK ] {test._testMethodName}", flush=True)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print(f"[  FAILED  ] {test._testMethodName}\n{self.failures[-1][1]}", flush=True)

    def addError(self, test, err):
        super().addError(test, err)
        name = getattr(test, "_testMethodName", str(test))
        print(f"[  FAILED  ] {name}\n{self.errors[-1][1]}", flush=True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"[  SKIPPED ] {test._testMethodName}\n    {reason}", flush=True)


def main(module):
    """Run every case of a module; leave with 0 when none failed."""
    # A shell's background job ignores it, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    result = CaseResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    print(f"{result.testsRun} cases in {time.monotonic() - started:.1f} s", flush=True)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)


# Ends what hangs: no measure of how fast anything is, for the machine may be busy.
HANGS_S = 900


class TemporaryFolder(unittest.TestCase):
    """A case with a folder of its own, gone afterwards."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="kjit-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_command(self, *command, environment=None, **keywords):
        """A finished process; `environment` is laid over this one's, None taking a variable out."""
        merged = {**os.environ, **(environment or {})}
        merged = {name: str(value) for name, value in merged.items() if value is not None}
        return subprocess.run([str(word) for word in command], env=merged, capture_output=True, text=True,
                              errors="replace", timeout=HANGS_S, **keywords)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path
