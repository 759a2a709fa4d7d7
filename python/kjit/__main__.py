"""python -m kjit doctor [--json]: what this machine and this Python have, what works, what to do."""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
from importlib import metadata
from typing import Any

from . import __version__, _library, _native_part
from .runtime import CACHE_MODES, default_runtime

#: What arrays may come from, and the distribution that says its version.
FRAMEWORKS = {"torch": ("torch",), "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "jax": ("jax",)}


def _framework_version(module: str) -> str:
    """The version of a framework without importing it; "" if it is not installed."""
    if importlib.util.find_spec(module) is None:
        return ""
    for name in FRAMEWORKS[module]:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "installed"


def collect() -> dict[str, Any]:
    runtime = default_runtime()
    report = runtime.doctor()
    modes = {value: name for name, value in CACHE_MODES.items()}
    return {
        "version": __version__,
        "library": _library.lib._name,
        "python": platform.python_version(),
        "native_missing": _native_part.MISSING,
        "frameworks": {module: _framework_version(module) for module in FRAMEWORKS},
        **report,
        "cache_mode": modes.get(report["cache_mode"]) or "default",
        "devices": [runtime.device_info(ordinal) for ordinal in range(report["device_count"])],
    }


def show(found: dict[str, Any]) -> None:
    rows = [("kjit", f"{found['version']}, {found['library']}"), ("Python", found["python"])]
    rows.append(("launches", f"in Python: {found['native_missing']}" if found["native_missing"] else "in C"))
    rows += [(name, version or "not installed") for name, version in found["frameworks"].items()]
    if found["nvrtc_status"] == 0:
        rows.append(("NVRTC", f"{found['nvrtc_major']}.{found['nvrtc_minor']}, {found['nvrtc_path']}"))
    else:
        rows.append(("NVRTC", f"not found: {found['nvrtc_message']}"))
    if found["driver_status"] == 0:
        driver = found["driver_version"]
        rows.append(("driver", f"CUDA {driver // 1000}.{driver % 1000 // 10}, {found['driver_path']}"))
    else:
        rows.append(("driver", f"not usable: {found['driver_message']}"))
    for device in found["devices"]:
        size = device["memory_bytes"] / 2**30
        rows.append((f"GPU {device['ordinal']}", f"{device['name']}, {device['arch_specific']}, {size:.1f} GiB"))
    cache = found["cache_message"] or f"{found['cache_path']} ({found['cache_mode']})"
    rows.append(("cache", cache))
    for name, text in rows:
        print(f"{name:<9} {text}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kjit", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor", help="what this machine and this Python have; exit code 0 whatever is missing"
    )
    doctor.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    found = collect()
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
