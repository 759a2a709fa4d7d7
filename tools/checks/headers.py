#!/usr/bin/env python3
"""Each header compiles alone: the public ones as C11, as C++17 and beside <cuda.h>, the internal ones as C11.

usage: headers.py CUDA_INCLUDE_DIR...
"""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from project import ROOT, finish, name, sources

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only"]
C, CPP = ["-std=c11", "-Wstrict-prototypes"], ["-std=c++17"]


def compile_text(compiler, language, flags, text):
    """The compiler's first complaint, or None."""
    command = [compiler, *flags, *WARNINGS, "-x", language, "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
    if result.returncode == 0:
        return None
    return next((line for line in result.stderr.splitlines() if "error:" in line), "failed")


def jobs(cuda_dirs):
    """(what, compiler, language, flags, text) of every compilation."""
    cuda = [word for folder in cuda_dirs for word in ("-isystem", folder)]
    compilers = [pair for pair in (("gcc", "g++"), ("clang", "clang++")) if shutil.which(pair[0])]
    for header in sources("include", suffixes=(".h",)):
        include = f"<{header.relative_to(ROOT / 'include')}>"
        for c, cpp in compilers:
            yield f"{name(header)} ({c}, C11)", c, "c", C + ["-Iinclude"], f"#include {include}\n"
            yield f"{name(header)} ({cpp}, C++17)", cpp, "c++", CPP + ["-Iinclude"], f"#include {include}\n"
            for order in (f"#include <cuda.h>\n#include {include}\n", f"#include {include}\n#include <cuda.h>\n"):
                yield f"{name(header)} ({c}, with <cuda.h>)", c, "c", C + ["-Iinclude", *cuda], order
    for header in sources("include", suffixes=(".hpp",)):
        include = f"#include <{header.relative_to(ROOT / 'include')}>\n"
        for _, cpp in compilers:
            for flags in (["-std=c++17"], ["-std=c++20"], ["-std=c++17", "-fno-exceptions"]):
                yield f"{name(header)} ({cpp}, {' '.join(flags)})", cpp, "c++", flags + ["-Iinclude"], include
    inside = C + ["-D_GNU_SOURCE", "-Iinclude", "-Isrc", "-Ikernel_src", *cuda]
    for header in sources("src", suffixes=(".h",)):
        yield f"{name(header)} (gcc, C11)", "gcc", "c", inside, f'#include "{header.relative_to(ROOT / "src")}"\n'


def main():
    work = list(jobs(sys.argv[1:]))
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda job: compile_text(*job[1:]), work))
    faults = [f"{job[0]}: {fault}" for job, fault in zip(work, results) if fault]
    finish(faults, f"headers, {len(work)} compilations")


if __name__ == "__main__":
    main()
