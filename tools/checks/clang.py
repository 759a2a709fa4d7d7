#!/usr/bin/env python3
"""clang's warnings, which are errors, on every C and C++ file of a configured build, without making objects.

usage: clang.py BUILD_FOLDER     such as build/clang, of the preset `clang`; nothing needs to have been built there
"""

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from project import ROOT, finish, name


def command_of(entry):
    """The compile of an entry as a check that writes nothing. It drops ccache, which only objects have a use for."""
    words = shlex.split(entry["command"])
    if Path(words[0]).name == "ccache":
        words = words[1:]
    at = words.index("-o")
    return tuple(word for word in words[:at] + words[at + 2:] if word != "-c") + ("-fsyntax-only",)


def check(task):
    folder, path, command = task
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    lines = [line for line in result.stderr.splitlines() if " error: " in line or " warning: " in line]
    if result.returncode != 0 and not lines:
        lines = [f"{name(path)}: clang ended with {result.returncode}: {result.stderr.strip()[:200]}"]
    return [line.replace(f"{ROOT}/", "") for line in lines]


def main():
    build = Path(sys.argv[1]).resolve()
    # The one header that a build makes.
    subprocess.run(["cmake", "--build", build, "--target", "tests/emulator/digest.h"], check=True, capture_output=True)
    entries = json.loads((build / "compile_commands.json").read_text())
    # A file that several programs are made of is looked at once for each set of options.
    tasks = {(entry["directory"], entry["file"], command_of(entry)) for entry in entries
             if Path(entry["file"]).is_relative_to(ROOT) and not Path(entry["file"]).is_relative_to(build)}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = sorted({line for lines in pool.map(check, sorted(tasks)) for line in lines})
    finish(faults, f"clang, {len({path for _, path, _ in tasks})} files")


if __name__ == "__main__":
    main()
