#!/usr/bin/env python3
"""House rule 2: functions under 60 lines and few over 40, files under 400 lines, one exit label `done:`."""

import re
import statistics
import sys

from project import finish, name, sources, without_comments

MOST_LINES_OF_FUNCTION = 60
LONG_FUNCTION = 40
MOST_LONG_PERCENT = 3  # what "few" means here
MOST_LINES_OF_FILE = 400
CONTROL = {"if", "for", "while", "switch", "return", "sizeof", "do", "else"}
HEAD = re.compile(r"([A-Za-z_]\w*)\s*\([^;{}]*\)\s*(?:const|noexcept)?\s*$")
MACRO = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)


def functions(text):
    """(name, first line, last line) of each function body; nested braces belong to the outermost function."""
    text = MACRO.sub(lambda match: "\n" * match.group(0).count("\n"), without_comments(text))
    start, depth, opened = 0, 0, None
    for match in re.finditer(r"[{};]", text):
        token = match.group(0)
        if token == "{":
            depth += 1
            head = HEAD.search(text, start, match.start())
            if opened is None and head and head.group(1) not in CONTROL:
                first = text.count("\n", 0, start + len(text[start:]) - len(text[start:].lstrip())) + 1
                opened = (depth, head.group(1), first)
        elif token == "}":
            if opened and opened[0] == depth:
                yield opened[1], opened[2], text.count("\n", 0, match.start()) + 1
                opened = None
            depth -= 1
        start = match.end()


def labels(text):
    """(line, name) of each goto label other than `done`."""
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        match = re.match(r"^\s*([a-z_]\w*):\s*$", line)
        if match and match.group(1) not in ("done", "default", "public", "protected", "private"):
            yield number, match.group(1)


def main():
    faults, lengths, files = [], [], sources()
    for path in files:
        text = path.read_text()
        lines = text.count("\n")
        if lines > MOST_LINES_OF_FILE:
            faults.append(f"{name(path)}: {lines} lines; {MOST_LINES_OF_FILE} is the most")
        for function, first, last in functions(text):
            length = last - first + 1
            lengths.append((length, f"{name(path)}:{first}: {function}"))
            if length > MOST_LINES_OF_FUNCTION:
                faults.append(f"{name(path)}:{first}: {function} has {length} lines; "
                              f"{MOST_LINES_OF_FUNCTION} is the most")
        faults += [f"{name(path)}:{number}: label '{label}'; the one exit label is 'done'"
                   for number, label in labels(text)]
    over = sorted((entry for entry in lengths if entry[0] > LONG_FUNCTION), reverse=True)
    if len(over) * 100 > MOST_LONG_PERCENT * len(lengths):
        faults.append(f"{len(over)} of {len(lengths)} functions have more than {LONG_FUNCTION} lines; "
                      f"{MOST_LONG_PERCENT} % is the most")
    if "--list" in sys.argv:
        for length, where in over:
            print(f"{length:4}  {where}")
    median = statistics.median(length for length, _ in lengths) if lengths else 0
    finish(faults, f"functions: {len(lengths)} in {len(files)} files, median {median:.0f} lines, "
                   f"{len(over)} over {LONG_FUNCTION}")


if __name__ == "__main__":
    main()
