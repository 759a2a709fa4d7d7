#!/usr/bin/env python3
"""Every GPU test of the Python package: run_gpu.py [PART OF A NAME]...

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

import time  # noqa: E402
import unittest  # noqa: E402

import harness  # noqa: E402
import kjit  # noqa: E402


def gpu_count():
    import gpu_torch

    return gpu_torch.torch.cuda.device_count() if gpu_torch.HAS_GPU else 0


def main():
    started = time.monotonic()
    print(f"kjit {kjit.__version__} of {Path(kjit.__file__).parent}", flush=True)
    names = ["gpu_torch", "gpu_serving", "gpu_frameworks", "gpu_modules", "gpu_leaks", "gpu_variants", "gpu_training"]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    wanted = sys.argv[1:]
    cases = [case for module in suite for group in module for case in group]
    cases = [case for case in cases if not wanted or any(part in case.id() for part in wanted)]
    if gpu_count() == 1:
        print("one GPU: the cases of two are left out", flush=True)
        cases = [case for case in cases if "SecondGpu" not in case.id()]
    result = harness.CaseResult()
    unittest.TestSuite(cases).run(result)
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    passed = result.testsRun - failed - skipped
    seconds = time.monotonic() - started
    print(f"{passed} passed, {failed} failed, {skipped} skipped in {seconds:.1f} s", flush=True)
    sys.exit(1 if failed or not result.testsRun else 0)


if __name__ == "__main__":
    main()
