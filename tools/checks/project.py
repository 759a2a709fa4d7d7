"""What the checks share: the project's files, and how a check says what it found."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = ("include", "src", "kernel_src", "tools", "tests", "bench", "examples", "python")
SOURCE_SUFFIXES = (".c", ".h", ".def", ".cu", ".cuh", ".cc", ".cpp")


def sources(*folders, suffixes=SOURCE_SUFFIXES):
    """The project's source files under these folders (all of them by default), sorted."""
    found = []
    for folder in folders or SOURCE_FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes and path.is_file()]
    return sorted(found)


def name(path):
    return str(Path(path).resolve().relative_to(ROOT))


def without_comments(text):
    """C text with comments, strings and character constants blanked; line numbers stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''

    def blank(match):
        token = match.group(0)
        kept = token[0] + token[-1] if token[0] in "\"'" else " "
        return kept + "\n" * token.count("\n")

    return re.sub(pattern, blank, text, flags=re.DOTALL)


def output_of(*command):
    """A command's standard output; the check ends with its message if the command fails."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT)
    if result.returncode != 0:
        sys.exit(f"{command[0]}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


def finish(faults, summary):
    """Print each fault on a line; leave with 1 if there is one."""
    for fault in faults:
        print(fault)
    print(f"{summary}: {len(faults)} faults" if faults else f"{summary}: clean")
    sys.exit(1 if faults else 0)
