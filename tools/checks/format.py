#!/usr/bin/env python3
"""Every C file is as clang-format writes it; every text file has lines of at most 120 columns, ends in a newline and
has no trailing blanks or tabs.

A text file is each file of the project that is UTF-8 without a null byte, whatever its name. Data is left out, because
a program wrote it and a program reads it: corpora, golden files, tables.
"""

import os
import shutil
import subprocess
import sys
import unicodedata

from project import ROOT, finish, name, sources

MOST_COLUMNS = 120
NOT_OURS = ("build", "gpu-bundle", "__pycache__", "node_modules")  # what .gitignore names, by the first part
DATA_FOLDERS = ("tests/fuzz/corpus/", "tests/golden/")
DATA_SUFFIXES = (".csv", ".kjit-tuned", ".manifest")  # of a manifest, a line is a kernel
WITH_TABS = ("Makefile",)  # make asks for them


def is_ours(folder, part):
    """Whether a folder or file of this name belongs to the project: not what builds, editors and tools left there."""
    if part.startswith("."):
        return part.startswith((".ci", ".clang", ".editor", ".git")) and part != ".git"
    return part not in NOT_OURS and not (folder == ROOT and part.startswith("build-"))


def files_of_project():
    for folder, folders, files in os.walk(ROOT):
        here = type(ROOT)(folder)
        folders[:] = sorted(part for part in folders if is_ours(here, part))
        yield from (here / part for part in sorted(files) if is_ours(here, part))


def is_data(path):
    return path.suffix in DATA_SUFFIXES or name(path).startswith(DATA_FOLDERS)


def texts():
    """(path, text) of every text file of the project that people read."""
    for path in files_of_project():
        if path.is_symlink() or is_data(path):
            continue
        content = path.read_bytes()
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        if text and "\0" not in text:
            yield path, text


def columns(line):
    """How wide a line is on a terminal: combining characters take no column, so no line is wider than it is long."""
    if len(line) <= MOST_COLUMNS:
        return len(line)
    return sum(unicodedata.combining(character) == 0 for character in line)


def faults_of_text(path, text):
    file = name(path)  # once, because finding it asks the file system
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{file}:{number}"
        if line != line.rstrip():
            yield f"{where}: blanks at the end of the line"
        if "\t" in line and path.name not in WITH_TABS:
            yield f"{where}: a tab"
        if columns(line) > MOST_COLUMNS:
            yield f"{where}: {columns(line)} columns; {MOST_COLUMNS} is the most"
    if not text.endswith("\n"):
        yield f"{file}: no newline at the end"


def main():
    formatter = shutil.which("clang-format")
    if formatter is None:
        sys.exit("clang-format is not installed: on Debian, apt-get install clang-format")
    files = sources(suffixes=(".c", ".h", ".hpp", ".cu", ".cuh", ".cc", ".cpp"))
    result = subprocess.run([formatter, "--dry-run", "--ferror-limit=1", *map(str, files)],
                            capture_output=True, text=True)
    faults = [line for line in result.stderr.splitlines() if "warning:" in line or "error:" in line]
    count = 0
    for count, (path, text) in enumerate(texts(), 1):
        faults += faults_of_text(path, text)
    finish(faults, f"format, {len(files)} C files, {count} text files")


if __name__ == "__main__":
    main()
