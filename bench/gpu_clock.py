"""Times functions on the GPU beside each other: by events, in turns, the L2 cache flushed before each."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping
from typing import Any, Callable, Optional

import torch

Run = Callable[[], Any]

LEAST_ROUNDS = 5
PRODUCT_SIDE = 8192
COPY_BYTES = 1 << 30


class Clock:
    """Each round runs every function once, in an order drawn anew. flush=False leaves L2 as it is."""

    def __init__(self, flush: bool = True) -> None:
        size = 2 * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._flush = torch.empty(max(size, 64 << 20), dtype=torch.uint8, device="cuda") if flush else None

    def _enqueue(self, run: Run) -> tuple[Any, Any]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if self._flush is not None:
            self._flush.zero_()
        begin.record()
        run()
        end.record()
        return begin, end

    def round(self, runs: Mapping[str, Run]) -> dict[str, float]:
        """One time in milliseconds for each of {name: run}."""
        names = random.sample(list(runs), len(runs))
        events = {name: self._enqueue(runs[name]) for name in names}
        torch.cuda.synchronize()
        return {name: begin.elapsed_time(end) for name, (begin, end) in events.items()}

    def rounds(
        self,
        runs: Mapping[str, Run],
        count: int,
        *,
        until: float = float("inf"),
        warm_up: int = 1,
        seldom: Optional[Mapping[str, Run]] = None,
    ) -> dict[str, list[float]]:
        """`count` rounds after those to warm up; at least LEAST_ROUNDS, then none that begins after `until`.

        What is in `seldom` is part of every fourth round: enough for a median, and cheap.
        """
        everything = {**runs, **(seldom or {})}
        for _ in range(warm_up):
            self.round(everything)
        times: dict[str, list[float]] = {name: [] for name in everything}
        for index in range(count):
            if index >= LEAST_ROUNDS and time.monotonic() > until:
                break
            for name, milliseconds in self.round(runs if index % 4 else everything).items():
                times[name].append(milliseconds)
        return times


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in times.items() if each}


def make_product() -> Run:
    """The card's limit in arithmetic: a bf16 matrix product of PRODUCT_SIDE cubed, of random numbers."""
    a, b = (torch.randn(PRODUCT_SIDE, PRODUCT_SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def make_copy() -> Run:
    """The card's limit in memory: COPY_BYTES read and as many written."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return lambda: target.copy_(source)
