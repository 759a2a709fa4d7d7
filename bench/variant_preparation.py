#!/usr/bin/env python3
"""What finding blocks costs beside attention itself.

Masks whose blocks are found before the attention kernel, at lengths from 8k on: those that are not row intervals, and
lists of a BlockMask, which are turned into kjit's own. Times are the GPU's, of each kernel of a call, by CUPTI
(torch.profiler), medians of the calls, L2 not flushed. The attention kernel begins while those in front of it run and
waits for them, so that its own time holds some of theirs; what counts is the time of a call of many in a row. What a
variant's call costs the host is in variant_host.py.

usage: variant_preparation.py [--lengths 8192,16384] [--head-dims 128] [--calls N] [--warm]
--warm compiles what the table needs, side by side, and times nothing.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from tables import find_package, markdown

ATTENTION = ("attention_sm90", "flash_forward")
WIDTH, DOCUMENTS, BLOCK, SPARSITY = 2048, 12, 128, 4


def masks(length: int, heads: int) -> dict[str, dict[str, Any]]:
    """What kjit.attention is given, by name. All of them have their blocks found before the attention kernel runs."""
    import torch
    from torch.nn.attention.flex_attention import BlockMask

    card: dict[str, Any] = {"device": "cuda"}
    doc = (torch.arange(length, **card) * DOCUMENTS // length).to(torch.int32)
    flag = torch.rand(length, **card) < 8 / length
    count = length // BLOCK
    allowed = (torch.rand((count, count), **card) < 1 / SPARSITY) | torch.eye(count, **card).bool()
    order = allowed.to(torch.int8).argsort(dim=1, descending=True, stable=True).to(torch.int32)[None, None]
    counts = allowed.sum(1, dtype=torch.int32)[None, None]
    lists = BlockMask.from_kv_blocks(torch.zeros_like(counts), torch.zeros_like(order), counts, order.contiguous())
    per_head = counts.expand(1, heads, -1).contiguous(), order.expand(1, heads, -1, -1).contiguous()
    by_head = BlockMask.from_kv_blocks(
        torch.zeros_like(per_head[0]), torch.zeros_like(per_head[1]), *per_head, BLOCK_SIZE=BLOCK
    )
    side = length // 128
    return {
        "documents": {"mask": "doc[q] == doc[k]", "tensors": {"doc": doc}},
        "documents, causal": {"mask": "doc[q] == doc[k] and q >= k", "tensors": {"doc": doc}},
        "window and global tokens": {"mask": "abs(q - k) <= 512 or g[q] or g[k]", "tensors": {"g": flag}},
        "neighbourhood": {
            "mask": f"let r = clamp(q // {side}, 6, 121); let c = clamp(q % {side}, 6, {side - 7}); "
            f"abs(r - k // {side}) <= 6 and abs(c - k % {side}) <= 6"
        },
        "by head": {"mask": "(doc[q] + h) % 3 == (doc[k] + h) % 3 and q >= k", "tensors": {"doc": doc}},
        "BlockMask": {"blocks": lists},
        "BlockMask by head": {"blocks": by_head},
    }


def kernel_times(run: Callable[[], Any], calls: int) -> dict[str, float]:
    """Microseconds of a call's kernels by name, medians of the calls."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(calls):
            run()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in found.events():
        if "CUDA" in str(event.device_type) and not event.name.startswith(("Memcpy", "Memset")):
            times.setdefault(event.name, []).append(event.time_range.elapsed_us())
    return {name: statistics.median(each) * len(each) / calls for name, each in times.items()}


def in_a_row(run: Callable[[], Any], calls: int, rounds: int = 7) -> float:
    """Microseconds of a call, of so many behind each other. The GPU sleeps until the host has enqueued some."""
    import torch

    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def cells(head_dims: list[int], lengths: list[int]) -> list[tuple[str, Callable[[], Any]]]:
    import torch

    import kjit

    found = []
    for head_dim in head_dims:
        for length in lengths:
            heads = WIDTH // head_dim
            q, k, v = (torch.randn((1, length, heads, head_dim), dtype=torch.bfloat16, device="cuda") for _ in range(3))
            out = torch.empty_like(q)
            for name, options in masks(length, heads).items():
                run = functools.partial(kjit.attention, q, k, v, out=out, **options)
                found.append((f"{head_dim} {length} {name}", run))
    return found


def warm(runs: list[Callable[[], Any]]) -> None:
    import torch

    def first_call(run: Callable[[], Any]) -> None:
        torch.cuda.set_device(0)
        run()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(first_call, runs))
    torch.cuda.synchronize()


def preparation(head_dims: list[int], lengths: list[int], calls: int) -> str:
    body = []
    for name, run in cells(head_dims, lengths):
        try:
            times = kernel_times(run, calls)
        except Exception as fault:  # the others are of use without it
            body.append([name, str(fault).strip()[:80], "", ""])
            continue
        attention = sum(us for kernel, us in times.items() if any(each in kernel for each in ATTENTION))
        before = sum(times.values()) - attention
        body.append([name, f"{before:.1f}", f"{attention:.1f}", f"{in_a_row(run, 4 * calls):.1f}"])
    return markdown(["hd, length, mask", "in front us", "attention us", "a call us"], body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="8192,16384,32768")
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--warm", action="store_true", help="compile and end")
    asked = parser.parse_args()
    find_package()
    import torch

    if not torch.cuda.is_available():
        print("variant_preparation.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    numbers = [[int(each) for each in text.split(",")] for text in (asked.head_dims, asked.lengths)]
    if asked.warm:
        warm([run for _, run in cells(*numbers)])
        return 0
    print(preparation(*numbers, asked.calls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
