#!/usr/bin/env python3
"""What a machine can check of the prose: every .c file of src/ and tools/ opens with a comment.

The comment says what the file is, what its steps are and which threads use it. Whether it does say so, only a reader
can tell.
"""

import re

from project import finish, name, sources

OPENING = re.compile(r"/\*(?P<text>.*?)\*/", re.DOTALL)
LEAST_WORDS = 10  # fewer words cannot say what a file is and how it works


def has_opening(path):
    match = OPENING.match(path.read_text())
    return match is not None and len(match.group("text").split()) >= LEAST_WORDS


def faults_of_openings():
    for path in sources("src", "tools", suffixes=(".c",)):
        if not has_opening(path):
            yield f"{name(path)}:1: opens without a comment of {LEAST_WORDS} words or more that says what the file is"


def main():
    faults = list(faults_of_openings())
    finish(faults, "prose")


if __name__ == "__main__":
    main()
