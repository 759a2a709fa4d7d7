#!/usr/bin/env python3
"""Includes go down the layers, never up; only one file opens libraries; no layer prints; threads meet in few ways.

The layers are those of ARCHITECTURE.md: attention -> family -> runtime -> jit -> base.
"""

import re

from project import ROOT, finish, name, sources, without_comments

LAYERS = ("base", "jit", "runtime", "family", "attention")  # each may use itself and those before it
# The folders of a layer, likewise from the lowest on; "." is what lies in the layer's own folder. In a layer that is
# not named here any folder may include any other.
FOLDERS = {
    "base": (".", "files", "threads"),
    "jit": ("source", "request", "key", "toolkit", "cubin", "compile", "server", "cache", "record", "bundle", "remote",
            ".", "admin"),
    "runtime": (".", "api"),
    "family": (".", "expression", "definition", "file", "tune"),
}
# A folder that is below the rest of its layer, and may use these layers alone: the language of variants, which needs no
# GPU.
LOW_FOLDERS = {"attention/variant": ("base", "family")}
PUBLIC_ONLY = ("tools", "bench", "examples", "tests/api")
# What these measure, or are measured against, the API does not show.
MEASURE_INSIDE = ("bench/cache/folder.h", "bench/cold_compile.c", "bench/launch.c", "bench/lookup.c",
                  "bench/start_time.c", "bench/tuned_lookup.c")
PUBLIC_HEADERS = re.compile(r"<kjit/[a-z0-9_]+\.h>$")
C_HEADERS = {f"<{header}.h>" for header in ("stddef", "stdint")}
PRINTING = re.compile(r"\b(printf|vprintf|fprintf|vfprintf|puts|putchar|fputs|fputc|perror|exit|abort|_exit)\s*\(")
# The body of a program of kjit's own, which forks: its processes end where a program's main() would return.
ENDS_ITS_PROCESS = "src/jit/server/worker.c"
OPENING = re.compile(r"\b(dlopen|dlsym|dlclose)\s*\(")

# Threads meet in the ways of src/base/threads, which ARCHITECTURE.md lists. A file that needs another one is
# named here, with the reason.
MEETING = (
    (re.compile(r"\batomic_compare_exchange\w*"), {
        "src/jit/remote/remote_tier.c": "of the callers of a store that failed, one sets the time of the next try",
    }),
    (re.compile(r"\bpthread_once\b"), {
        "src/base/nvtx.c": "the profiler's interface belongs to the process, so there is no keeper of a gate",
        "src/base/threads/fork_guard.c": "libc starts it again in a child that was forked in its middle",
    }),
    (re.compile(r"\bpthread_cond_t\b"), {
        "src/attention/attention_tier.c": "a thread of its own waits for work",
        "src/jit/remote/remote_internal.h": "a thread of its own waits for work",
        "src/jit/resident.c": "waits have deadlines, and what is waited for can be refused, not only done",
    }),
    (re.compile(r"\b(pthread_rwlock\w*|pthread_spin\w*|pthread_barrier\w*|pthread_key\w*|sem_\w+)\b"), {}),
)


def includes(path):
    """(line number, "<name>" or "\"name\"") of each include."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+(<[^>]+>|"[^"]+")', line)
        if match:
            yield number, match.group(1)


def fault_of_layer(layer, include):
    match = re.match(r'"([a-z0-9_]+)/', include)
    if match is None:
        return None if include.startswith("<") else "an include names its layer: \"base/text.h\""
    used = match.group(1)
    if used in LAYERS:
        above = LAYERS.index(used) > LAYERS.index(layer)
        return f"{layer} is below {used}" if above else None
    if (ROOT / "kernel_src" / include.strip('"')).exists():
        return None  # a struct that both compilers read
    return f"{used} is no layer"


def folder_of(parts):
    """The folder of a file, by its path inside its layer."""
    return parts[0] if len(parts) > 1 else "."


def fault_of_folder(path, include):
    """Inside a layer, includes go down from folder to folder too."""
    layer, *inside = path.relative_to(ROOT / "src").parts
    used_layer, *used_inside = include.strip('"').split("/")
    low = f"{layer}/{inside[0]}"
    if low in LOW_FOLDERS and used_layer in LAYERS and used_layer not in LOW_FOLDERS[low]:
        allowed = f"{low} uses {', '.join(LOW_FOLDERS[low])} and itself"
        return None if f"{used_layer}/{used_inside[0]}" == low else allowed
    if used_layer != layer or layer not in FOLDERS:
        return None
    here, used = folder_of(inside), folder_of(used_inside)
    for folder in (here, used):
        if folder not in FOLDERS[layer]:
            return f"{layer}/{folder} is no folder of tools/checks/layers.py"
    above = FOLDERS[layer].index(used) > FOLDERS[layer].index(here)
    return f"{layer}/{here} is below {layer}/{used}" if above else None


def fault_of_public_header(include):
    fine = include in C_HEADERS or PUBLIC_HEADERS.match(include)
    return None if fine else "a public header uses C's headers and kjit's alone"


# Generated for a request: the functions of an attention variant.
GENERATED_HEADER = '"attention_variant.cuh"'


def fault_of_kernel(path, include):
    """<kjit/...> is the library that users' kernels have too; what is quoted belongs to a family."""
    library = include.startswith("<kjit/")
    family = include.startswith('"') and not include.startswith('"kjit/')
    if include == GENERATED_HEADER:
        return None
    if not (library or family) or not (ROOT / "kernel_src" / include.strip('"<>')).exists():
        return "a kernel source includes <kjit/...> and kernel sources, by their name under kernel_src"
    if path.is_relative_to(ROOT / "kernel_src" / "kjit") and not library:
        return "kernel_src/kjit includes <kjit/...> alone"
    return None


def fault_of_user(path, include):
    """tools, bench, examples and the API's tests see what a user sees."""
    if include.startswith("<"):
        return None
    here = (path.parent / include.strip('"')).exists()
    folders = ("tests", "tests/gpu", "tools", "tools/kjit", "bench")
    shared = any((ROOT / folder / include.strip('"')).exists() for folder in folders)
    return None if here or shared else "only <kjit/...> and neighbours"


def fault_of_include(path, include):
    parts = path.relative_to(ROOT).parts
    if parts[0] == "include":
        return fault_of_public_header(include)
    if parts[0] == "src":
        return fault_of_layer(parts[1], include) or fault_of_folder(path, include)
    if parts[0] == "kernel_src":
        return fault_of_kernel(path, include)
    if name(path) not in MEASURE_INSIDE and any(name(path).startswith(folder + "/") for folder in PUBLIC_ONLY):
        return fault_of_user(path, include)
    return None


def faults_of_calls(path):
    """Only tools/ prints; only base/dynlib.c opens libraries."""
    for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1):
        call = PRINTING.search(line)
        if call and not (call.group(1) == "_exit" and name(path) == ENDS_ITS_PROCESS):
            yield f"{name(path)}:{number}: the library does not call {call.group(1)}"
        call = OPENING.search(line)
        if call and name(path) != "src/base/dynlib.c":
            yield f"{name(path)}:{number}: {call.group(1)} belongs to src/base/dynlib.c"


def faults_of_meeting(path):
    """Threads meet in the ways that there are."""
    if path.is_relative_to(ROOT / "src/base/threads") and name(path) != "src/base/threads/fork_guard.c":
        return
    for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1):
        for pattern, exceptions in MEETING:
            found = pattern.search(line)
            if found and name(path) not in exceptions:
                yield f"{name(path)}:{number}: {found.group(0)} belongs to src/base/threads (ARCHITECTURE.md)"


def main():
    files = sources()
    faults = []
    for path in files:
        for number, include in includes(path):
            fault = fault_of_include(path, include)
            if fault:
                faults.append(f"{name(path)}:{number}: #include {include}: {fault}")
    for path in sources("src", suffixes=(".c", ".h")):
        faults += faults_of_calls(path)
        faults += faults_of_meeting(path)
    finish(faults, f"layers, {len(files)} files")


if __name__ == "__main__":
    main()
