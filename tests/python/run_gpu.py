#!/usr/bin/env python3
"""Every GPU test of the Python package: run_gpu.py [--alone NAME | PART OF A NAME]...

The cases of gpu_variants and gpu_serving compile many kernels, each on one core, so they run before the others in
processes of their own, as many at a time as there are cores and at most 16 (KJIT_TEST_JOBS=N). Cases that
say `needs_the_gpu_alone` run with the others. --alone: this case, in this process.

Looks for the package beside itself (../python, as in a gpu-bundle), in the project's build folders, then where Python
does. Ends with 1 if a case failed. A case that cannot run here is reported as skipped.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

for folder in (HERE, HERE.parent / "cli", HERE.parent / "python", *sorted((ROOT / "build").glob("*/python"))):
    is_package = (folder / "kjit" / "libkjit.so").exists()
    if is_package and any((Path(known) / "kjit" / "libkjit.so").exists() for known in sys.path):
        continue
    if is_package or (folder / "harness.py").exists() or folder == HERE:
        sys.path.insert(0, str(folder))

import concurrent.futures  # noqa: E402
import faulthandler  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
import unittest  # noqa: E402

import harness  # noqa: E402
import kjit  # noqa: E402


def gpu_count():
    import gpu_torch

    return gpu_torch.torch.cuda.device_count() if gpu_torch.HAS_GPU else 0


SHARED = ["gpu_variants", "gpu_serving"]


def is_shared(case):
    return case.id().partition(".")[0] in SHARED and not getattr(case, "needs_the_gpu_alone", False)


def run_alone(case):
    """Run a case in a process of its own and print its lines; how many passed, failed and were skipped."""
    command = [sys.executable, __file__, "--alone", case.id()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    lines = done.stdout.splitlines()
    found = re.match(r"(\d+) passed, (\d+) failed, (\d+) skipped", lines[-1] if lines else "")
    if found is None:  # it died
        print(*lines, f"[  FAILED  ] {case._testMethodName}\nended with {done.returncode}", sep="\n", flush=True)
        return 0, 1, 0
    print(*lines[1:-1], sep="\n", flush=True)
    return tuple(map(int, found.groups()))


def run_side_by_side(cases):
    jobs = int(os.environ.get("KJIT_TEST_JOBS", min(16, os.cpu_count() or 1)))
    with concurrent.futures.ThreadPoolExecutor(max(1, jobs)) as pool:
        return [sum(counts) for counts in zip((0, 0, 0), *pool.map(run_alone, cases))]


def main():
    started = time.monotonic()
    print(f"kjit {kjit.__version__} of {Path(kjit.__file__).parent}", flush=True)
    names = [*SHARED, "gpu_torch", "gpu_frameworks", "gpu_modules", "gpu_leaks", "gpu_training"]
    alone = sys.argv[1:2] == ["--alone"]
    faulthandler.enable()  # a process that aborts says in which threads Python was
    suite = unittest.defaultTestLoader.loadTestsFromNames(SHARED if alone else names)
    wanted = sys.argv[2:] if alone else sys.argv[1:]
    cases = [case for module in suite for group in module for case in group]
    if alone:
        cases = [case for case in cases if case.id() in wanted]
    cases = [case for case in cases if not wanted or any(part in case.id() for part in wanted)]
    if gpu_count() == 1:
        print("one GPU: the cases of two are left out", flush=True)
        cases = [case for case in cases if "SecondGpu" not in case.id()]
    shared = [case for case in cases if not alone and is_shared(case)]
    passed, failed, skipped = run_side_by_side(shared)
    result = harness.CaseResult()
    unittest.TestSuite(case for case in cases if case not in shared).run(result)
    failed += len(result.failures) + len(result.errors)
    skipped += len(result.skipped)
    passed += result.testsRun - len(result.failures) - len(result.errors) - len(result.skipped)
    seconds = time.monotonic() - started
    print(f"{passed} passed, {failed} failed, {skipped} skipped in {seconds:.1f} s", flush=True)
    sys.exit(1 if failed or not passed + skipped else 0)


if __name__ == "__main__":
    main()
