#!/usr/bin/env python3
"""Time from the start of a process to the end of its first launch of attention: by hand (the floor), from a bundle with
NVRTC hidden, from a warm cache, and cold. Each round starts one process of each kind; medians and ratios.

usage: start_time.py KJIT START_TIME [ROUNDS]      (START_TIME: bench_start_time of a build folder; needs a GPU)
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax"
NOWHERE = "/nonexistent/libnvrtc.so"


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KJIT_") or name == "KJIT_NVRTC"}
    return {**kept, **{name: str(value) for name, value in more.items()}}


def seconds(command, env):
    """From just before the process is made to the time that it prints: both of the same steady clock."""
    started = time.clock_gettime(time.CLOCK_MONOTONIC)
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr.strip(), file=sys.stderr)
        sys.exit(done.returncode)
    return float(done.stdout) - started


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    kjit, program = (str(Path(word).resolve()) for word in sys.argv[1:3])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 15
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        filling = environment(KJIT_CACHE_DIR=folder / "cache")
        doctor = subprocess.run([kjit, "doctor", "--json"], env=filling, capture_output=True, text=True)
        devices = json.loads(doctor.stdout)["driver"]["devices"]
        arch = devices[0]["arch"] if devices else "sm_90"
        manifest = folder / "m"
        manifest.write_text(f"flash_forward {arch} {CONFIG}\n")
        for command in (["bundle", "create", folder / "b.kjb", "--manifest", manifest],
                        ["compile", "--flash", CONFIG, "--arch", arch, "-o", folder / "k.cubin"]):
            subprocess.run([kjit, *map(str, command)], env=filling, check=True, stdout=subprocess.DEVNULL)
        kinds = {
            "floor": ([program, "floor", str(folder / "k.cubin")], environment()),
            "bundle": ([program, "kjit"], environment(KJIT_BUNDLE=folder / "b.kjb", KJIT_CACHE_MODE="off",
                                                      KJIT_NVRTC=NOWHERE)),
            "cache": ([program, "kjit"], filling),
            "cold": ([program, "kjit"], environment(KJIT_CACHE_MODE="off")),
        }
        times = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, (command, env) in kinds.items():
                times[kind].append(seconds(command, env))
    floor = statistics.median(times["floor"])
    for kind, values in times.items():
        median = statistics.median(values)
        goal = "   goal 1.10" if kind == "bundle" else ""
        print(f"{kind:8} {1e3 * median:9.1f} ms   {median / floor:5.2f} x floor   "
              f"({1e3 * min(values):.1f} to {1e3 * max(values):.1f}, {rounds} rounds){goal}")


if __name__ == "__main__":
    main()
