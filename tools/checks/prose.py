#!/usr/bin/env python3
"""What a machine can check of the prose: .c files open with a comment, and Markdown lines fit the editor.

1. Every .c file of src/ and tools/ opens with a comment that says what the file is, what its steps are and which
   threads use it. Whether it does say so, only a reader can tell.
2. Lines of Markdown have at most 120 columns, as .editorconfig asks, rows of tables too.
"""

import re
import unicodedata

from project import ROOT, finish, name, sources

MOST_COLUMNS = 120
OPENING = re.compile(r"/\*(?P<text>.*?)\*/", re.DOTALL)
LEAST_WORDS = 10  # fewer words cannot say what a file is and how it works


def has_opening(path):
    match = OPENING.match(path.read_text())
    return match is not None and len(match.group("text").split()) >= LEAST_WORDS


def faults_of_openings():
    for path in sources("src", "tools", suffixes=(".c",)):
        if not has_opening(path):
            yield f"{name(path)}:1: opens without a comment of {LEAST_WORDS} words or more that says what the file is"


def columns(line):
    """How wide a line is on a terminal: combining characters take no column."""
    return sum(unicodedata.combining(character) == 0 for character in line)


def markdown_files():
    for path in sorted(ROOT.rglob("*.md")):
        inside = path.relative_to(ROOT).parts
        if not any(part in ("build", "node_modules") or (part.startswith(".") and part != ".ci") for part in inside):
            yield path


def faults_of_markdown(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        width = columns(line)
        if width > MOST_COLUMNS:
            yield f"{name(path)}:{number}: {width} columns; {MOST_COLUMNS} is the most"


def main():
    files = list(markdown_files())
    faults = list(faults_of_openings())
    for path in files:
        faults += faults_of_markdown(path)
    finish(faults, f"prose, {len(files)} Markdown files")


if __name__ == "__main__":
    main()
