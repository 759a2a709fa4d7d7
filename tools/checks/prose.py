#!/usr/bin/env python3
"""What a machine can check of the prose: files that open with a comment, and public functions that are documented.

Every .c file of src/ and tools/ opens with a comment that says what the file is, what its steps are and which threads
use it. The comment above each function of include/kjit names its parameters in their order, what threads may call it
and, of a function that can fail, its statuses. The error is the last parameter of all that can fail, so it need not be
named. Whether what the comments say is so, only a reader can tell.
"""

import re

from project import finish, name, sources

OPENING = re.compile(r"/\*(?P<text>.*?)\*/", re.DOTALL)
PARAMETER = re.compile(r"@param(?:\[[\w,]+\])?\s+((?:\w+,\s*)*\w+)")
FUNCTION = re.compile(
    r"(?:/\*\*(?P<comment>(?:(?!\*/).)*)\*/\s*)?^(?P<prototype>KJIT_API\b[^;]*\([^;]*\));", re.DOTALL | re.MULTILINE
)
LEAST_FUNCTIONS = 130  # fewer would mean that prototypes are written in another form, which this check does not read
LEAST_WORDS = 10  # fewer words cannot say what a file is and how it works


def has_opening(path):
    match = OPENING.match(path.read_text())
    return match is not None and len(match.group("text").split()) >= LEAST_WORDS


def faults_of_openings():
    for path in sources("src", "tools", suffixes=(".c",)):
        if not has_opening(path):
            yield f"{name(path)}:1: opens without a comment of {LEAST_WORDS} words or more that says what the file is"


def parameters_of(prototype):
    """The names of a prototype's parameters, which are neither functions nor pointers to them."""
    between = prototype[prototype.index("(") + 1 : prototype.rindex(")")].strip()
    parts = [] if between in ("", "void") else between.split(",")
    return [re.search(r"(\w+)\s*(?:\[\w*\])?$", part.strip())[1] for part in parts]


def faults_of_function(comment, prototype):
    """What the comment above a public function lacks."""
    documented = [word.strip() for names in PARAMETER.findall(comment) for word in names.split(",")]
    wanted = [word for word in parameters_of(prototype) if word != "error" or "error" in documented]
    if documented != wanted:
        yield f"@param {', '.join(documented) or 'of none'}; its parameters are {', '.join(wanted) or 'none'}"
    if "@par Thread safety" not in comment:
        yield "lacks @par Thread safety"
    if "KJIT_NODISCARD kjit_status" in prototype and "@retval" not in comment:
        yield "lacks @retval"


def faults_of_functions():
    count = 0
    for path in sources("include", suffixes=(".h",)):
        text = path.read_text()
        for match in FUNCTION.finditer(text):
            count += 1
            called = re.search(r"(\w+)\(", match["prototype"])[1]
            line = text.count("\n", 0, match.start("prototype")) + 1
            for fault in faults_of_function(match["comment"] or "", match["prototype"]):
                yield f"{name(path)}:{line}: {called}: {fault}"
    if count < LEAST_FUNCTIONS:
        yield f"include/kjit: {count} functions found, at least {LEAST_FUNCTIONS} expected"


def main():
    faults = [*faults_of_openings(), *faults_of_functions()]
    finish(faults, "prose")


if __name__ == "__main__":
    main()
