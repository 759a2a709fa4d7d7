#!/usr/bin/env python3
"""clang-tidy over every C file of a build, the most recently changed first, until a time budget is spent.

usage: tidy.py BUILD_FOLDER [--seconds N]
Files that the budget did not reach are counted, not hidden.
"""

import argparse
import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from project import ROOT, finish, name


def git_lines(*arguments):
    """Lines of a git command; none where there is no repository or git will not read it."""
    result = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT)
    return result.stdout.splitlines() if result.returncode == 0 else []


def newest_first():
    """File -> rank: uncommitted changes first, then by the last commit."""
    changed = [line[3:] for line in git_lines("status", "--porcelain")]
    order = {}
    for path in changed + git_lines("log", "--format=", "--name-only", "-n", "500"):
        if path:
            order.setdefault(path, len(order))
    return order


def check(path, build, deadline):
    """(path, complaints), complaints None when the budget was spent before."""
    if time.monotonic() > deadline:
        return path, None
    result = subprocess.run(["clang-tidy", "--quiet", "-p", build, path], capture_output=True, text=True, cwd=ROOT)
    lines = [line for line in result.stdout.splitlines() if " error: " in line or " warning: " in line]
    if result.returncode != 0 and not lines:
        lines = [f"{name(path)}: clang-tidy ended with {result.returncode}: {result.stderr.strip()[:200]}"]
    return path, [line.replace(f"{ROOT}/", "") for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=120)
    arguments = parser.parse_args()
    commands = json.loads((Path(arguments.build) / "compile_commands.json").read_text())
    order = newest_first()
    inside = [entry["file"] for entry in commands if Path(entry["file"]).is_relative_to(ROOT)
              and not Path(entry["file"]).is_relative_to(ROOT / "build")]
    files = sorted(set(inside), key=lambda path: order.get(name(path), len(order)))
    deadline = time.monotonic() + arguments.seconds
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda path: check(path, arguments.build, deadline), files))
    missed = sum(complaints is None for _, complaints in results)
    faults = sorted({line for _, complaints in results for line in complaints or []})
    budget = f", {missed} not reached in {arguments.seconds} s" if missed else ""
    finish(faults, f"clang-tidy, {len(files) - missed} files{budget}")


if __name__ == "__main__":
    main()
