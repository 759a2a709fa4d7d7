"""What the Python test programs share: runs of kjit, and cases reported as cmocka reports them, so that one tool counts
both."""

import json
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

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            faults = self.failures if issubclass(err[0], test.failureException) else self.errors
            print(f"[  FAILED  ] {test._testMethodName}\n{subtest}\n{faults[-1][1]}", flush=True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"[  SKIPPED ] {test._testMethodName}\n    {reason}", flush=True)


def share_compiles(kjit):
    """Compiles of this program are those of all that share a tools/check run: what was compiled before is taken from
    the folder that TEST_REMEMBERED_COMPILES names (tests/support/remembering_nvrtc.c). Without it nothing changes."""
    library = os.environ.get("TEST_REMEMBERING_NVRTC")
    if not library or not os.environ.get("TEST_REMEMBERED_COMPILES"):
        return
    report = json.loads(subprocess.run([kjit, "doctor", "--json"], capture_output=True, timeout=HANGS_S).stdout)
    if report["nvrtc"]["found"]:
        real = Path(report["nvrtc"]["path"]).resolve()
        builtins = sorted(real.parent.glob("libnvrtc-builtins.so*"))
        os.environ.update(TEST_REAL_NVRTC=str(real), KJIT_NVRTC=library)
        os.environ.update({"TEST_REAL_NVRTC_BUILTINS": str(path) for path in builtins[:1]})


def main(module, shares_compiles_of=None):
    """Run every case of a module; leave with 0 when none failed. `shares_compiles_of`: a kjit command, for programs
    that need kernels and ask nothing about how they are compiled."""
    if shares_compiles_of:
        share_compiles(shares_compiles_of)
    # A shell's background job ignores it, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    result = CaseResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    print(f"{result.testsRun} cases in {time.monotonic() - started:.1f} s", flush=True)
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)
    if result.skipped:
        print(f" {len(result.skipped)} SKIPPED TEST(S)", flush=True)


# Ends what hangs: no measure of how fast anything is, for the machine may be busy.
HANGS_S = 900

# What the kjit command ends with.
DONE, FAILED, USAGE, NO_GPU, NO_NVRTC = range(5)
NOWHERE = "/nonexistent/library.so"
# For a run that a test interrupts: its compiles are not shared (share_compiles()), as they have to take their time.
REALLY_COMPILES = {"TEST_REMEMBERED_COMPILES": None}


def full_environment(changes):
    """This process's environment with others laid over it, None taking a variable out."""
    return {name: str(value) for name, value in {**os.environ, **changes}.items() if value is not None}


class TemporaryFolder(unittest.TestCase):
    """A case with a folder of its own, gone afterwards."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="kjit-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_command(self, *command, environment=None, **keywords):
        """A finished process; `environment` is laid over this one's, as full_environment() does it."""
        return subprocess.run([str(word) for word in command], env=full_environment(environment or {}),
                              capture_output=True, text=True, errors="replace", timeout=HANGS_S, **keywords)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


class KjitCase(TemporaryFolder):
    """Runs kjit with a cache of its own; of kjit's variables in the environment only NVRTC's path counts."""

    program = None  # kjit's path, which a test program is told

    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.environment = {name: None for name in os.environ if name.startswith("KJIT_") and name != "KJIT_NVRTC"}
        self.environment["KJIT_CACHE_DIR"] = self.cache

    def kjit(self, *arguments, exit_code=DONE, **environment):
        result = self.run_command(self.program, *arguments, environment={**self.environment, **environment})
        self.assertEqual(result.returncode, exit_code, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result

    def json(self, *arguments, exit_code=DONE, **environment):
        return json.loads(self.kjit(*arguments, "--json", exit_code=exit_code, **environment).stdout)

    def refused(self, *arguments, naming, exit_code=USAGE, **environment):
        """The command says no, on one line that names what is wrong, and prints nothing else."""
        result = self.kjit(*arguments, exit_code=exit_code, **environment)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(naming, result.stderr)
