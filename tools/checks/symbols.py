#!/usr/bin/env python3
"""The libraries show kjit_* alone, all that the headers declare, and need nothing but libc.

usage: symbols.py LIBKJIT.SO LIBKJIT.A
"""

import re
import sys

from project import finish, name, output_of, sources, without_comments

ALLOWED_NEEDED = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2",
                  "ld-linux-aarch64.so.1"}


def defined(path, *options):
    """Names of the global symbols that a library defines."""
    lines = output_of("nm", "--defined-only", "--extern-only", "--format=posix", *options, path).splitlines()
    return {fields[0] for fields in map(str.split, lines) if len(fields) > 2 and fields[1] != "A"}


def declared():
    """Name -> header of each function that the public headers promise."""
    found = {}
    for header in sources("include", suffixes=(".h",)):
        text = without_comments(header.read_text())
        for match in re.finditer(r"KJIT_API\b[^;{]*?\b(kjit_\w+)\s*\(", text):
            found[match.group(1)] = name(header)
    return found


def faults_of_names(label, names, promised):
    for symbol in sorted(names):
        if not symbol.startswith("kjit_"):
            yield f"{label}: shows {symbol}, which is not kjit_*"
        elif symbol not in promised:
            yield f"{label}: shows {symbol}, which no public header declares"
    for symbol in sorted(promised.keys() - names):
        yield f"{label}: lacks {symbol}, declared in {promised[symbol]}"


def main():
    shared, archive = sys.argv[1:3]
    promised = declared()
    faults = list(faults_of_names("libkjit.so", defined(shared, "--dynamic"), promised))
    faults += faults_of_names("libkjit.a", defined(archive), promised)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "--dynamic", "--wide", shared))
    faults += [f"libkjit.so: needs {library}" for library in needed if library not in ALLOWED_NEEDED]
    finish(faults, f"symbols, {len(promised)} functions declared")


if __name__ == "__main__":
    main()
