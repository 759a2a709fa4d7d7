"""What bare NVRTC makes of public kernels, kjit makes of them: the same verdict, the same bytes.

Nine kernels over the toolkit's headers are always compared. KJIT_TEST_CORPUS=1 adds the rest of those;
KJIT_CORPUS_PYTHON, a Python with the packages of requirements.txt, adds theirs; KJIT_CORPUS_DIR, a folder filled by
repository_cases.py, adds what lies there. KJIT_CORPUS_DEFAULT=1 compares what kjit makes by default, without unused
variables: the same verdict and the same machine code. README.md says how, and what is known to differ.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import harness

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bare  # noqa: E402
import repository_cases  # noqa: E402
import toolkit_cases  # noqa: E402

# Of the kernels in a package; a case that its release lacks is not missed.
PACKAGED_LEAST = 45


def compare(case):
    """The verdict of compare.py, or what ended it."""
    with tempfile.TemporaryDirectory() as nowhere:
        done = subprocess.run([sys.executable, HERE / "compare.py"], input=json.dumps(case), capture_output=True,
                              text=True, cwd=nowhere, timeout=harness.HANGS_S)
    if done.returncode != 0:
        return {"name": case["name"], "equal": False, "ended": f"exit code {done.returncode}: {done.stderr[-400:]}"}
    return json.loads(done.stdout)


def line(verdict):
    if "ended" in verdict:
        return f"| {verdict['name']} | - | - | {verdict['ended']} | | | |"
    equal = "equal" if verdict["equal"] else f"**{verdict['differing']} bytes differ**"
    bytes_ = str(verdict["bytes"])
    if verdict["kjit_bytes"] != verdict["bytes"]:
        bytes_ += f" -> {verdict['kjit_bytes']}"
    return (f"| {verdict['name']} | {verdict['bare']} | {verdict['kjit']} | {equal} | {bytes_} "
            f"| {verdict['bare_ms']:.0f} | {verdict['kjit_ms']:.0f} |")


class Corpus(unittest.TestCase):
    def setUp(self):
        try:
            bare.find_nvrtc()
        except FileNotFoundError as missing:
            self.skipTest(str(missing))
        if not bare.find_toolkit():
            self.skipTest("the toolkit has no headers here")

    def check(self, cases):
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("KJIT_CORPUS_JOBS", "2"))) as pool:
            verdicts = list(pool.map(compare, cases))
        print("| kernel | bare NVRTC | kjit | cubins | bytes | bare, ms | kjit, ms |\n"
              "| --- | --- | --- | --- | ---: | ---: | ---: |")
        print("\n".join(map(line, verdicts)), flush=True)
        faults = [f"{line(each)} {each.get('bare_says', '')} / {each.get('kjit_says', '')}" for each in verdicts
                  if not each["equal"]]
        self.assertFalse(faults, "\n".join(faults))
        return verdicts

    def test_corpus__toolkit_headers_compile_to_the_same_bytes(self):
        whole = os.environ.get("KJIT_TEST_CORPUS") == "1"
        cases = toolkit_cases.cases() if whole else toolkit_cases.small_cases()
        verdicts = self.check(cases)
        compiled = [each["name"] for each in verdicts if each["bare"] == "compiles"]
        refused = [each["name"] for each in verdicts if each["bare"] == "refused"]
        self.assertGreaterEqual(len(compiled), 12 if whole else 7)
        self.assertGreaterEqual(len(refused), 2)

    def test_corpus__packages_kernels_compile_to_the_same_bytes(self):
        python = os.environ.get("KJIT_CORPUS_PYTHON")
        if not python:
            self.skipTest("KJIT_CORPUS_PYTHON names no Python with the packages of requirements.txt")
        with tempfile.TemporaryDirectory() as nowhere:
            made = subprocess.run([python, HERE / "package_cases.py"], capture_output=True, text=True, cwd=nowhere,
                                  timeout=harness.HANGS_S)
        self.assertEqual(made.returncode, 0, made.stderr)
        cases = json.loads(made.stdout)
        self.assertGreaterEqual(len(cases), PACKAGED_LEAST, made.stderr)
        self.check(cases)

    def test_corpus__repositories_kernels_compile_to_the_same_bytes(self):
        cases = repository_cases.cases(Path(os.environ.get("KJIT_CORPUS_DIR", "/nonexistent")))
        if not cases:
            self.skipTest("KJIT_CORPUS_DIR names no folder with the repositories of repository_cases.py")
        self.check(cases)


if __name__ == "__main__":
    # Without the opt-in the other two are no part of this run, so that they do not count as skipped.
    if os.environ.get("KJIT_TEST_CORPUS") != "1":
        del Corpus.test_corpus__packages_kernels_compile_to_the_same_bytes
        del Corpus.test_corpus__repositories_kernels_compile_to_the_same_bytes
    harness.main(sys.modules[__name__])
