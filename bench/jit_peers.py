#!/usr/bin/env python3
"""Time to the first result of kernels compiled at run time: cold, from the disk cache, and resident.

Each time to the first result is of a fresh process: from a call on tensors that lie on the GPU, everything imported
and the GPU awake, to the result being there. Cold begins with empty cache folders, from disk with what the cold process
left. The resident column is host time for a further call on a tiny problem, not waiting for it. Peers that are
handed source (CuPy, cuda.core) compile and load what kjit's flash_forward compiles; they are not launched.

"kjit tiered" has KJIT_TIERED=on. After its first result it is called again and again until the chosen kernel has taken
over, and its line tells the host time of the longest of these calls, how many there were, and when that was. All
results of one kernel must be the same bits, and those of the two as exact as any.

Writes jit_peers.csv, .md and .png into DIR (by default here); --from draws the plots again of a CSV file, without
a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Optional

from tables import ROOT, find_package, markdown, number, pyplot, read_csv, save_figure, words, wrapped, write_csv

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
Attention = Callable[[Any, Any, Any], Any]


def child_kjit() -> Attention:
    import kjit

    return kjit.attention


def flash_config() -> Any:
    import kjit

    batch, seq, heads, head_dim = SHAPE
    runtime = kjit.default_runtime()
    return kjit.FlashForwardKernelConfig.choose("bf16", seq, seq, head_dim, runtime.device_arch())


def child_kjit_flash() -> Attention:
    import kjit

    config = flash_config()
    return lambda q, k, v: kjit.forward(config, q, k, v)


def child_plan() -> Attention:
    import kjit

    def run(q: Any, k: Any, v: Any) -> Any:
        plan = kjit.plan(q, k, v)
        plan.run()
        return plan.out

    return run


def child_sdpa() -> Attention:
    from torch.nn.functional import scaled_dot_product_attention

    return lambda q, k, v: scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    ).transpose(1, 2)


def child_flex() -> Attention:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)


def child_triton() -> Attention:
    import jit_peers_triton

    return jit_peers_triton.attention


def same_source() -> tuple[str, Path, str]:
    """What kjit compiles for SHAPE by flash_forward, its headers' folder, and the kernel's name."""
    import kjit

    headers = ROOT / "kernel_src"
    if not headers.is_dir():
        raise FileNotFoundError(f"{headers}: the headers of the same source are not here")
    runtime, config = kjit.default_runtime(), flash_config()
    return runtime.source(config), headers, "flash_forward"


def child_cupy() -> Attention:
    import cupy

    text, headers, name = same_source()
    options = ("--std=c++17", "--use_fast_math", f"-I{headers}")
    return lambda q, k, v: cupy.RawModule(code=text, backend="nvrtc", options=options).get_function(name)


def child_cuda_core() -> Attention:
    try:
        from cuda.core import Device, Program, ProgramOptions
    except ImportError:
        from cuda.core.experimental import Device, Program, ProgramOptions

    text, headers, name = same_source()
    device = Device()
    device.set_current()
    arch = "sm_{}{}".format(*device.compute_capability)

    def run(q: Any, k: Any, v: Any) -> Any:
        options = ProgramOptions(std="c++17", arch=arch, include_path=[str(headers)], use_fast_math=True)
        return Program(text, code_type="c++", options=options).compile("cubin").get_kernel(name)

    return run


PLAN, TIERED = "kjit plan", "kjit tiered"
# name: (what makes it, is it launched)
PEERS: dict[str, tuple[Callable[[], Attention], bool]] = {
    "kjit": (child_kjit, True),
    "kjit flash_forward": (child_kjit_flash, True),
    TIERED: (child_kjit, True),
    PLAN: (child_plan, True),
    "PyTorch sdpa (prebuilt)": (child_sdpa, True),
    "Triton": (child_triton, True),
    "FlexAttention": (child_flex, True),
    "CuPy RawModule": (child_cupy, False),
    "cuda.core": (child_cuda_core, False),
}


def check(out: Any, q: Any, k: Any, v: Any) -> None:
    """Beside fp32 on the GPU: far enough apart is wrong, whatever the cause."""
    import torch

    wide = [tensor.transpose(1, 2).float() for tensor in (q[:1], k[:1], v[:1])]
    scores = (wide[0] @ wide[1].transpose(-1, -2)) / q.shape[-1] ** 0.5
    error = (out[:1].transpose(1, 2).float() - scores.softmax(-1) @ wide[2]).abs().max().item()
    if not error < 0.02:
        raise AssertionError(f"wrong: differs by {error}")
    torch.cuda.synchronize()


def resident_call(name: str, attention: Attention, tiny: list[Any]) -> Callable[[], Any]:
    """A further call on tensors that are known. A plan is made before and run again."""
    if name == PLAN:
        import kjit

        return kjit.plan(*tiny).run
    return lambda: attention(*tiny)


def resident_us(call: Callable[[], Any]) -> float:
    """Host microseconds of a call: the least of several averages, for what disturbs only adds."""
    import torch

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


#: Calls after the swap, and seconds after which a chosen kernel that has not taken over is a failure.
CALLS_AFTER_SWAP, LONGEST_SWAP = 100, 20


def swap(attention: Attention, big: list[Any]) -> dict[str, float]:
    """Call until the chosen kernel has taken over, and some times more: the longest call, and when that was.

    Nothing is told where the first call found the chosen kernel in the cache.
    """
    import kjit
    import torch

    runtime, begin, longest, swapped = kjit.default_runtime(), time.perf_counter(), 0.0, 0.0
    if runtime.stats()["first_tier_calls"] == 0:
        return {}
    first: dict[int, Any] = {}  # of each kernel, by the number of swaps before it
    calls = {0: 0, 1: 0}
    while calls[1] < CALLS_AFTER_SWAP:
        started = time.perf_counter()
        out = attention(*big)
        ended = time.perf_counter()
        torch.cuda.synchronize()
        kernel = runtime.stats()["tier_swaps"]
        calls[kernel] += 1
        longest = max(longest, ended - started)
        swapped = ended - begin if kernel == 0 else swapped
        if kernel == 0 and runtime.stats()["first_tier_calls"] != calls[0] + 1:
            raise AssertionError(f"call {calls[0] + 1} was not served by the first tier, and no swap was counted")
        if not torch.equal(first.setdefault(kernel, out), out):
            raise AssertionError(f"after {calls} calls: other bits than the calls before")
        if ended - begin > LONGEST_SWAP:
            served = runtime.stats()["first_tier_calls"]
            raise AssertionError(f"no swap in {calls[0]} calls, {served} of the first tier")
    check(first[1], *big)
    return {"longest_call_ms": longest * 1e3, "calls_of_the_first_tier": calls[0], "swapped_after_s": swapped}


def run_child(name: str) -> None:
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
        found: dict[str, Any] = {"first_ms": (time.perf_counter() - begin) * 1e3, "resident_us": None}
        if launched:
            if name == TIERED:  # before the check, which takes as long as the chosen kernel's compile
                found.update(swap(attention, big))
            check(out, *big)
            found["resident_us"] = resident_us(resident_call(name, attention, tiny))
    print(json.dumps(found))


def spawn(name: str, caches: Path, limit: float) -> tuple[Optional[dict[str, Any]], str]:
    """(measurement, "") of a fresh process, or (None, why there is none)."""
    environment = {**os.environ, **{variable: str(caches / folder) for variable, folder in CACHES.items()}}
    environment.update({"KJIT_TIERED": "on"} if name == TIERED else {})
    command = [sys.executable, __file__, "--child", name]
    try:
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, f"not done in {limit:.0f} s"
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()
        return None, lines[-1][:160] if lines else f"exit code {result.returncode}"
    return json.loads(result.stdout.strip().splitlines()[-1]), ""


def reason_of_cold(name: str, cold: dict[str, Any]) -> str:
    """Tell what the tiered build's cold process saw; why it is no measurement, if it is none."""
    if name != TIERED:
        return ""
    told = {key: cold[key] for key in ("longest_call_ms", "calls_of_the_first_tier", "swapped_after_s") if key in cold}
    if not told:
        return "the first call was not served by the first tier"
    print(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in told.items()), file=sys.stderr)
    return ""


def bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


#: What is measured of a peer, by the names of the CSV file's columns.
KINDS = ("cold_ms", "disk_ms", "resident_us", "bytes_on_disk")
Found = dict[str, dict[str, Optional[float]]]


def measure(names: list[str], repeats: int, until: float) -> tuple[Found, dict[str, str]]:
    """The medians of each kind for each peer, and the reasons of those that could not be measured."""
    found: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in KINDS} for name in names}
    reasons: dict[str, str] = {}
    for turn in range(repeats):
        for name in random.sample(names, len(names)):
            left = until - time.monotonic()
            if name in reasons or (turn and left < 30):
                continue
            with tempfile.TemporaryDirectory(prefix="jit-peers-") as folder:
                cold, reason = spawn(name, Path(folder), max(left, 30))
                size = bytes_below(Path(folder))
                reason = reason_of_cold(name, cold) if cold else reason
                warm, reason = (None, reason) if reason else spawn(name, Path(folder), max(left, 30))
            if not cold or not warm:
                reasons[name] = reason
                continue
            resident = [run["resident_us"] for run in (cold, warm) if run["resident_us"] is not None]
            for kind, values in zip(KINDS, ([cold["first_ms"]], [warm["first_ms"]], resident, [size])):
                found[name][kind] += values
            said = f"{name}: cold {cold['first_ms']:.1f} ms, from disk {warm['first_ms']:.1f} ms"
            print(said, file=sys.stderr, flush=True)
    return {name: _medians(each) for name, each in found.items()}, reasons


def _medians(each: dict[str, list[float]]) -> dict[str, Optional[float]]:
    return {kind: statistics.median(values) if values else None for kind, values in each.items()}


def table(found: Found) -> str:
    head = ["", "first result, cold, ms", "first result, from disk, ms", "resident call, host µs", "on disk, KiB"]
    rows = []
    for name, each in found.items():
        cold, disk, resident, size = (each[kind] for kind in KINDS)
        note = "" if PEERS[name][1] else " (compile and load)"
        kib = None if size is None else size / 1024
        rows.append([name + note, number(cold, 1), number(disk, 2), number(resident, 2), number(kib)])
    return markdown(head, rows)


def draw(found: Found, title: str) -> Any:
    names = [name for name, each in found.items() if each["cold_ms"] is not None]
    figure, axis = pyplot().subplots(figsize=(8.5, 0.62 * len(names) + 1.6))
    for offset, (kind, label) in enumerate((("cold_ms", "cold"), ("disk_ms", "from disk"))):
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
    return figure


def write(path: Path, found: Found, reasons: dict[str, str]) -> None:
    rows = [[name, int(PEERS[name][1]), *each.values(), reasons.get(name, "")] for name, each in found.items()]
    write_csv(path, ["peer", "launched", *KINDS, "note"], rows)


def read(path: Path) -> Found:
    """What write() wrote, but for the reasons."""
    lines = read_csv(path)
    return {line["peer"]: {kind: float(line[kind]) if line[kind] else None for kind in KINDS} for line in lines}


def save_plots(folder: Path, found: Found, title: str) -> None:
    if all(each["cold_ms"] is None for each in found.values()):
        return
    try:
        save_figure(draw(found, title), folder, "jit_peers")
    except ImportError as missing:
        print(f"jit_peers.py: no plots: {missing}", file=sys.stderr)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=220, help="what the whole run may take, about (220)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the results")
    parser.add_argument("--repeats", type=int, default=3, help="cold processes of each peer, while there is time (3)")
    parser.add_argument("--peers", type=words(PEERS), default=list(PEERS), help=",".join(PEERS))
    parser.add_argument("--from", dest="source", type=Path, metavar="CSV", help="results to draw again")
    parser.add_argument("--title", default="Attention compiled at run time", help="of the plot")
    parser.add_argument("--child", choices=PEERS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    started, arguments = time.monotonic(), parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.source:
        save_plots(arguments.out, read(arguments.source), arguments.title)
        return 0
    find_package()
    if arguments.child:
        run_child(arguments.child)
        return 0
    import torch

    if not torch.cuda.is_available():
        print("jit_peers.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    found, reasons = measure(arguments.peers, arguments.repeats, started + arguments.seconds)
    where = torch.cuda.get_device_name()
    text = (
        f"{where}, bf16 {'x'.join(map(str, SHAPE))} (batch, seq, heads, head_dim); resident on "
        f"{'x'.join(map(str, TINY))}; PyTorch {torch.__version__}; medians of fresh processes. "
        f"`bench/jit_peers.py {' '.join(sys.argv[1:])}`\n\n{table(found)}\n"
    )
    text = wrapped(text)
    print(text)
    for name, reason in reasons.items():
        print(f"not measured  {name}: {reason}", file=sys.stderr)
    (arguments.out / "jit_peers.md").write_text(text, encoding="utf-8")
    write(arguments.out / "jit_peers.csv", found, reasons)
    save_plots(arguments.out, found, f"{arguments.title}, {where}")
    return 1 if any(name.startswith("kjit") for name in reasons) else 0


if __name__ == "__main__":
    sys.exit(main())
