#!/usr/bin/env python3
"""Time to the first result of kernels compiled at run time: cold, from the disk cache, and resident.

usage: jit_peers.py [--seconds S] [--out DIR] [--repeats N] [--peers NAME,…]

Each time to the first result is of a fresh process: from a call on tensors that lie on the GPU, everything imported and
the GPU awake, to the result being there. Cold begins with empty cache folders, from disk with what the cold process left.
The resident column is host time for a further call on a tiny problem, not waiting for it. Peers that are
handed source (CuPy, cuda.core) compile and load what kjit's flash_forward compiles; they are not launched.

Writes jit_peers.csv, .md, .png and .svg into DIR (by default here).
"""

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
for folder in (ROOT / "python", ROOT / "build" / "release" / "python"):  # a bundle's, the project's
    if (folder / "kjit" / "libkjit.so").exists():
        sys.path.insert(0, str(folder))

SHAPE = (4, 2048, 16, 128)
TINY = (1, 16, 2, 128)
RESIDENT_CALLS = 3000
# What each framework keeps goes below one folder.
CACHES = {
    "KJIT_CACHE_DIR": "kjit",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUPY_CACHE_DIR": "cupy",
    "CUDA_CACHE_PATH": "driver",
    "XDG_CACHE_HOME": "xdg",
}


# In the child: PEER() -> attention(q, k, v), or, for peers that only compile, a function of no use twice.


def child_kjit():
    import kjit

    return kjit.attention


def flash_config():
    import kjit

    batch, seq, heads, head_dim = SHAPE
    runtime = kjit.default_runtime()
    return kjit.FlashForwardKernelConfig.choose("bf16", seq, seq, head_dim, runtime.device_arch())


def child_kjit_flash():
    import kjit

    config = flash_config()
    return lambda q, k, v: kjit.forward(config, q, k, v)


def child_plan():
    import kjit

    plans = {}

    def run(q, k, v):
        if q.shape not in plans:
            plans[q.shape] = kjit.plan(q, k, v)
        plans[q.shape].run()
        return plans[q.shape].out

    run.resident = lambda *tiny: kjit.plan(*tiny).run
    return run


def child_sdpa():
    from torch.nn.functional import scaled_dot_product_attention

    return lambda q, k, v: scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    ).transpose(1, 2)


def child_flex():
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)


def child_triton():
    import jit_peers_triton

    return jit_peers_triton.attention


def same_source():
    """What kjit compiles for SHAPE by flash_forward, its headers' folder, and the kernel's name."""
    import kjit

    headers = ROOT / "kernel_src"
    if not headers.is_dir():
        raise FileNotFoundError(f"{headers}: the headers of the same source are not here")
    runtime, config = kjit.default_runtime(), flash_config()
    return runtime.source(config), headers, "flash_forward"


def child_cupy():
    import cupy

    text, headers, name = same_source()
    options = ("--std=c++17", "--use_fast_math", f"-I{headers}")
    return lambda q, k, v: cupy.RawModule(code=text, backend="nvrtc", options=options).get_function(name)


def child_cuda_core():
    try:
        from cuda.core import Device, Program, ProgramOptions
    except ImportError:
        from cuda.core.experimental import Device, Program, ProgramOptions

    text, headers, name = same_source()
    device = Device()
    device.set_current()
    arch = "sm_{}{}".format(*device.compute_capability)

    def run(q, k, v):
        options = ProgramOptions(std="c++17", arch=arch, include_path=[str(headers)], use_fast_math=True)
        return Program(text, code_type="c++", options=options).compile("cubin").get_kernel(name)

    return run


# name: (what makes it, is it launched)
PEERS = {
    "kjit": (child_kjit, True),
    "kjit flash_forward": (child_kjit_flash, True),
    "kjit plan": (child_plan, True),
    "PyTorch sdpa (prebuilt)": (child_sdpa, True),
    "Triton": (child_triton, True),
    "FlexAttention": (child_flex, True),
    "CuPy RawModule": (child_cupy, False),
    "cuda.core": (child_cuda_core, False),
}


def check(out, q, k, v):
    """Beside fp32 on the GPU: far enough apart is wrong, whatever the cause."""
    import torch

    wide = [tensor.transpose(1, 2).float() for tensor in (q[:1], k[:1], v[:1])]
    scores = (wide[0] @ wide[1].transpose(-1, -2)) / q.shape[-1] ** 0.5
    error = (out[:1].transpose(1, 2).float() - scores.softmax(-1) @ wide[2]).abs().max().item()
    if not error < 0.02:
        raise AssertionError(f"wrong: differs by {error}")
    torch.cuda.synchronize()


def resident_us(attention, tiny):
    """Host microseconds of a call: the least of several averages, for what disturbs only adds."""
    import torch

    call = attention.resident(*tiny) if hasattr(attention, "resident") else lambda: attention(*tiny)
    for _ in range(100):
        call()
    averages = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(RESIDENT_CALLS // 7):
            call()
        averages.append((time.perf_counter() - begin) / (RESIDENT_CALLS // 7) * 1e6)
    return min(averages)


def run_child(name):
    """Measure one peer in this process; one JSON object on the output."""
    import torch

    make, launched = PEERS[name]
    torch.manual_seed(0)
    big, tiny = ([torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)] for shape in (SHAPE, TINY))
    (big[0] @ big[0].transpose(-1, -2)).sum().item()
    attention = make()
    torch.cuda.synchronize()
    with torch.no_grad():
        begin = time.perf_counter()
        out = attention(*big)
        torch.cuda.synchronize()
        found = {"first_ms": (time.perf_counter() - begin) * 1e3, "resident_us": None}
        if launched:
            check(out, *big)
            found["resident_us"] = resident_us(attention, tiny)
    print(json.dumps(found))


def spawn(name, caches, limit):
    """(measurement, "") of a fresh process, or (None, why there is none)."""
    environment = {**os.environ, **{variable: str(caches / folder) for variable, folder in CACHES.items()}}
    command = [sys.executable, __file__, "--child", name]
    try:
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, f"not done in {limit:.0f} s"
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()
        return None, lines[-1][:160] if lines else f"exit code {result.returncode}"
    return json.loads(result.stdout.strip().splitlines()[-1]), ""


def bytes_below(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(names, repeats, until):
    """{name: {cold, disk, resident, bytes: list}}, and the reasons of those that could not be measured."""
    kinds = ("cold", "disk", "resident", "bytes")
    found, reasons = {name: {kind: [] for kind in kinds} for name in names}, {}
    for turn in range(repeats):
        for name in random.sample(names, len(names)):
            left = until - time.monotonic()
            if name in reasons or (turn and left < 30):
                continue
            with tempfile.TemporaryDirectory(prefix="jit-peers-") as folder:
                cold, reason = spawn(name, Path(folder), max(left, 30))
                size = bytes_below(Path(folder))
                warm, reason = spawn(name, Path(folder), max(left, 30)) if cold else (None, reason)
            if not warm:
                reasons[name] = reason
                continue
            each = found[name]
            each["cold"].append(cold["first_ms"])
            each["disk"].append(warm["first_ms"])
            each["bytes"].append(size)
            each["resident"] += [run["resident_us"] for run in (cold, warm) if run["resident_us"] is not None]
            print(f"{name}: cold {cold['first_ms']:.1f} ms, from disk {warm['first_ms']:.1f} ms", file=sys.stderr, flush=True)
    return {name: {kind: statistics.median(v) if v else None for kind, v in each.items()} for name, each in found.items()}, reasons


def shown(value, digits=1):
    return "—" if value is None else f"{value:,.{digits}f}"


def table(found):
    lines = [
        "| | first result, cold, ms | first result, from disk, ms | resident call, host µs | on disk, KiB |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, each in found.items():
        note = "" if PEERS[name][1] else " (compile and load)"
        kib = None if each["bytes"] is None else each["bytes"] / 1024
        lines.append(
            f"| {name}{note} | {shown(each['cold'])} | {shown(each['disk'], 2)} | {shown(each['resident'], 2)} | {shown(kib, 0)} |"
        )
    return "\n".join(lines)


def plot(folder, found, title):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name, each in found.items() if each["cold"] is not None]
    if not names:
        return
    figure, axis = plt.subplots(figsize=(8.5, 0.62 * len(names) + 1.6))
    for offset, (kind, label) in enumerate((("cold", "cold"), ("disk", "from disk"))):
        places = [index + 0.38 * (offset - 0.5) for index in range(len(names))]
        bars = axis.barh(places, [found[name][kind] for name in names], height=0.36, label=label)
        axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel("milliseconds to the first result")
    axis.margins(x=0.12)
    axis.legend(frameon=False, fontsize=8)
    axis.set_title(title, fontsize=11)
    figure.tight_layout()
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"jit_peers.{suffix}", dpi=150)


def write_csv(path, found, reasons):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["peer", "launched", "cold_ms", "disk_ms", "resident_us", "bytes_on_disk", "note"])
        for name, each in found.items():
            values = [each[kind] for kind in ("cold", "disk", "resident", "bytes")]
            writer.writerow([name, int(PEERS[name][1]), *values, reasons.get(name, "")])


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=220, help="what the whole run may take, about (220)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the results")
    parser.add_argument("--repeats", type=int, default=3, help="cold processes of each peer, while there is time (3)")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--child", choices=PEERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.peers if name not in PEERS]
    if unknown:
        parser.error(f"--peers: {', '.join(unknown)}: there are {', '.join(PEERS)}")
    return arguments


def main():
    started, arguments = time.monotonic(), parse()
    if arguments.child:
        return run_child(arguments.child)
    import torch

    if not torch.cuda.is_available():
        print("jit_peers.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    arguments.out.mkdir(parents=True, exist_ok=True)
    found, reasons = measure(arguments.peers, arguments.repeats, started + arguments.seconds)
    where = torch.cuda.get_device_name()
    text = (
        f"{where}, bf16 {'x'.join(map(str, SHAPE))} (batch, seq, heads, head_dim); resident on {'x'.join(map(str, TINY))}; "
        f"PyTorch {torch.__version__}; medians of fresh processes. `bench/jit_peers.py {' '.join(sys.argv[1:])}`\n\n"
        f"{table(found)}\n"
    )
    print(text)
    for name, reason in reasons.items():
        print(f"not measured  {name}: {reason}", file=sys.stderr)
    (arguments.out / "jit_peers.md").write_text(text)
    write_csv(arguments.out / "jit_peers.csv", found, reasons)
    plot(arguments.out, found, f"Attention compiled at run time, {where}")
    return 1 if any(name.startswith("kjit") for name in reasons) else 0


if __name__ == "__main__":
    sys.exit(main())
