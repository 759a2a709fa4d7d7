#!/usr/bin/env python3
"""Every mistake that the emulator's tests make in a kernel replaces text that is there, exactly once.

The tables of tests/emulator hold {name, file below kernel_src/, text, replacement}. The tests make a sample of them by
default, because each is a compile and a run, so a text that a change of the kernel took away would be told months
later. This check compares all of them with the kernels, and runs nothing.
"""

import re

from project import ROOT, finish, sources

STRING = r'"(?:[^"\\]|\\.)*"'
TEXT = rf"({STRING}(?:\s*{STRING})*)"
MACRO = re.compile(rf"^#define (\w+) ({STRING})$", re.MULTILINE)
#: What the mistake is, in some tables what it is made in, then the file and the text.
ENTRY = re.compile(rf'\{{\s*{TEXT},\s*(?:{STRING},\s*)?("[\w/]+\.(?:cuh|cu|h)"),\s*{TEXT},\s*{TEXT}')
#: Fewer would mean that the tables are written in another form, which this check does not read.
LEAST_ENTRIES = 100


def value(literals):
    """What C makes of neighbouring literals, and the emulator of the \\n in them."""
    text = "".join(literal[1:-1] for literal in re.findall(STRING, literals))
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text.replace("\\\\n", "\\n"))


def main():
    faults, count = [], 0
    for path in sources("tests/emulator", suffixes=(".c",)):
        text = path.read_text()
        for macro in MACRO.finditer(text):
            text = re.sub(rf"(?<=, ){macro[1]}(?=,)", macro[2], text)
        for entry in ENTRY.finditer(text):
            name, file, before = value(entry[1]), value(entry[2]), value(entry[3])
            count += 1
            kernel = ROOT / "kernel_src" / file
            found = kernel.read_text().count(before) if kernel.exists() else 0
            if found != 1:
                line = text.count("\n", 0, entry.start()) + 1
                faults.append(f'{path.relative_to(ROOT)}:{line}: "{name}": its text occurs {found} times in {file}')
    if count < LEAST_ENTRIES:
        faults.append(f"tests/emulator: {count} mistakes found, at least {LEAST_ENTRIES} expected")
    finish(faults, f"{count} mistakes made in kernels")


if __name__ == "__main__":
    main()
