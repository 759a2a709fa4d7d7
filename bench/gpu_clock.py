"""Times functions on the GPU beside each other: by events, in turns, the L2 cache flushed before each.

Two events around a call measure the GPU alone only if the host has enqueued the whole call before the GPU passes the
first of them. A call that costs more host time than GPU time would otherwise be timed as what it costs the host, and
peers differ in that by tens of microseconds. So the GPU spins between the flush and the first event: SPIN_MARGIN times
what the slowest of the calls costs the host, which is measured before, or longer. Where the GPU passed the first event
nevertheless before the call was enqueued, that is counted in Clock.late. What is left is the launch itself, which
make_empty() measures.
"""

from __future__ import annotations

import math
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

#: Seconds. The most is for a call that waits for the GPU itself: no spin helps there.
LEAST_SPIN, MOST_SPIN = 50e-6, 1e-3
#: A call's host time varies, and the GPU must be behind in nearly all rounds.
SPIN_MARGIN = 2
#: No multiprocessor's clock is faster, so that a spin is never shorter than it should be.
FASTEST_CLOCK_HZ = 3e9
#: Takes LEAST_SPIN or longer: no card writes 10 TB/s.
FILL_BYTES = 1 << 29

#: What empties L2. Zeros leave lines behind that have to be written back while the call loads; reads do not, and
#: cost more time themselves.
FLUSHES = ("zeros", "reads")
READ_BYTES = 1 << 29


def _make_spin(flush: bool) -> Callable[[float], None]:
    """spin(seconds) keeps the GPU busy at least so long.

    By torch.cuda._sleep, which is not documented. A PyTorch without it fills memory instead, which empties L2: it
    cannot be used where L2 is to be left as it is.
    """
    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is not None:
        return lambda seconds: sleep(math.ceil(seconds * FASTEST_CLOCK_HZ))
    if not flush:
        raise NotImplementedError("this PyTorch has no torch.cuda._sleep: L2 cannot be kept while the GPU waits")
    memory = torch.empty(FILL_BYTES, dtype=torch.uint8, device="cuda")

    def fill(seconds: float) -> None:
        for _ in range(math.ceil(seconds / LEAST_SPIN)):
            memory.zero_()

    return fill


def _make_flush(kind: str) -> Run:
    if kind == "zeros":
        size = 2 * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        return torch.empty(max(size, 64 << 20), dtype=torch.uint8, device="cuda").zero_
    memory, total = torch.ones(READ_BYTES // 4, device="cuda"), torch.zeros((), device="cuda")
    return lambda: torch.sum(memory, dim=0, out=total)


def _host_seconds(run: Run) -> float:
    """What it costs the host to enqueue a call and its events: the least of three, for what disturbs only adds."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    seconds = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        events[0].record()
        run()
        events[1].record()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


class Clock:
    """Each round runs every function once, in an order drawn anew. flush=False leaves L2 as it is; `by` is one of
    FLUSHES.

    `late` counts the calls that the GPU did not have to wait for: their times hold host time.
    """

    def __init__(self, flush: bool = True, by: str = FLUSHES[0]) -> None:
        self._flush = _make_flush(by) if flush else None
        self._spin, self._spin_seconds = _make_spin(flush), LEAST_SPIN
        self.late = 0

    def _stay_ahead_of(self, runs: Mapping[str, Run]) -> None:
        """The same spin in front of all of them: none begins on a GPU that has rested longer."""
        slowest = max(map(_host_seconds, runs.values()), default=0.0)
        self._spin_seconds = min(max(SPIN_MARGIN * slowest, LEAST_SPIN), MOST_SPIN)

    def _enqueue(self, run: Run) -> tuple[Any, Any]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if self._flush is not None:
            self._flush()
        self._spin(self._spin_seconds)
        begin.record()
        run()
        end.record()
        self.late += begin.query()
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
        self._stay_ahead_of(everything)
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


def make_empty() -> Run:
    """The least that can be measured: a launch that does next to nothing, an addition to one element."""
    one = torch.zeros(1, device="cuda")
    return lambda: one.add_(1)
