#!/usr/bin/env python3
"""Every C file is as clang-format writes it; every text file ends in a newline and has no trailing blanks or tabs."""

import shutil
import subprocess
import sys

from project import ROOT, SOURCE_FOLDERS, finish, name, sources

TOP_FOLDERS = ("", ".ci", "cache", "cmake", "docs", *SOURCE_FOLDERS)
TEXT_SUFFIXES = {".md", ".py", ".cmake", ".txt", ".sh", ".c", ".h", ".cu", ".cuh", ".def", ".json", ".in"}


def text_files():
    """Every file of the project that people read; scripts without a suffix too. Golden files are as they are."""
    for folder in TOP_FOLDERS:
        for path in (ROOT / folder).rglob("*") if folder else ROOT.glob("*"):
            text = path.suffix in TEXT_SUFFIXES or (path.suffix == "" and path.parent == ROOT / "tools")
            if text and path.is_file() and path.stat().st_size > 0 and "golden" not in path.parts:
                yield path


def faults_of_text(path):
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if line != line.rstrip():
            yield f"{name(path)}:{number}: blanks at the end of the line"
        if "\t" in line:
            yield f"{name(path)}:{number}: a tab"
    if not path.read_text().endswith("\n"):
        yield f"{name(path)}: no newline at the end"


def main():
    formatter = shutil.which("clang-format")
    if formatter is None:
        sys.exit("clang-format is not installed: on Debian, apt-get install clang-format")
    files = sources(suffixes=(".c", ".h", ".cu", ".cuh", ".cpp"))
    result = subprocess.run([formatter, "--dry-run", "--ferror-limit=1", *map(str, files)],
                            capture_output=True, text=True)
    faults = [line for line in result.stderr.splitlines() if "warning:" in line or "error:" in line]
    texts = sorted(text_files())
    for path in texts:
        faults += faults_of_text(path)
    finish(faults, f"format, {len(files)} C files, {len(texts)} text files")


if __name__ == "__main__":
    main()
