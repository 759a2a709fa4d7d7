#!/usr/bin/env python3
"""transformers_test.py with releases of transformers that pip brings: transformers_releases.py [RELEASE]...

Without a release: 4.57.6, 5.12.1, 5.14.1 (T5 computes its attention itself), 5.15.1, 5.17.0 (T5's parts keep their
implementation) and the newest. Each is installed into an environment of its own that is removed afterwards; PyTorch
and all else comes from the Python that runs this. Run by hand, since it needs a network and a minute a release:
PYTHONPATH=build/dev/python tests/python/transformers_releases.py. Ends with 1 if a release fails.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASES = ["4.57.6", "5.12.1", "5.14.1", "5.15.1", "5.17.0", ""]


def environment(folder, release):
    """A Python with that release; PyTorch is found behind what is installed there."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    wanted = f"transformers=={release}" if release else "transformers"
    subprocess.run([python, "-m", "pip", "install", "-q", wanted], check=True)
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    Path(found.stdout.strip(), "torch_of_the_caller.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run(release):
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder), release)
        paths = [str(HERE.parent / "cli"), os.environ.get("PYTHONPATH", "")]
        test = subprocess.run(
            [python, HERE / "transformers_test.py"], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
    passed = len(re.findall(r"^\[ +OK \]", test.stdout, re.MULTILINE))
    is_right = test.returncode == 0 and passed > 0 and "[  SKIPPED ]" not in test.stdout
    print(f"transformers {release or '(newest)'}: {passed} passed{'' if is_right else ', FAILED'}", flush=True)
    if not is_right:
        print(test.stdout)
    return is_right


def main():
    results = [run(release) for release in sys.argv[1:] or RELEASES]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
