#!/usr/bin/env python3
"""What a call of attention with a variant costs the host, in microseconds.

usage: variant_host.py [--rounds N] [--calls N]

The calls are of one small problem: functions that are traced at each call, functions that come again, texts, plain
members, no variant. "traced alone" is what reading the functions takes, without the call. Ways take turns, round by
round; the figures are the median and the least of the rounds' means.

Without a GPU give it a driver that only counts, and tensors of the processor's memory are said to be device 0's:
  KJIT_LIBCUDA=build/dev/tests/python/libkjit_fake_libcuda.so bench/variant_host.py
Then a call has no launch in it, which a card's driver takes 2.5 to 2.8 us for. The library compiles nothing new after
the first round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable

from tables import find_package, markdown

HEADS, LENGTH, SIZE = 8, 128, 64


def say_device_0() -> None:
    """Let the library take tensors of the processor's memory for a GPU's. No kernel reads them."""
    import kjit._torch as dense
    import kjit._torch_variant as variants

    view, tensor_view = dense._view, variants.tensor_view

    def moved(tensor: Any) -> Any:
        found = tensor_view(tensor)
        found.device = 0
        return found

    dense._view = lambda tensor: view(tensor)._replace(device=0)
    variants.tensor_view = moved


def traced(kjit: Any, make: Callable[..., Any], call: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """Functions that are read at each call."""
    doc, row = make((1, LENGTH), "int32"), make((LENGTH,), "int32")
    slope, table = make((HEADS,), "float32"), make((HEADS, 2 * LENGTH), "float32")
    number, count = [0], [0]

    def never_seen() -> Any:
        number[0] += 1
        step = number[0] / 3
        return call(score_mod=lambda s, b, h, i, j: s + step * (j - i))

    # What a function writes to may be anything, so that these are not recalled.

    def window(b: Any, h: Any, i: Any, j: Any) -> Any:
        count[0] += 1
        return (i - j <= 16) & (i >= j)

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        count[0] += 1
        return (doc[b, i] == doc[b, j]) & (row[i] >= row[j])

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        count[0] += 1
        return s + slope[h] * (j - i) + table[h, j - i + LENGTH]

    def sides(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        count[0] += 1
        return s + slope[h] * (j - i)

    from_functions = kjit.variant.from_functions
    return {
        "a number that was never seen": never_seen,
        "a window that cannot be recalled": lambda: call(mask_mod=window),
        "two functions of three tensors that cannot be recalled": lambda: call(score_mod=sides, mask_mod=mask),
        "the same, traced alone": lambda: from_functions(sides, mask),
        "two of four tensors, traced alone": lambda: from_functions(score, mask),
    }


def ways(kjit: Any, torch: Any, device: str) -> dict[str, Callable[[], Any]]:
    def make(shape: tuple[int, ...], dtype: str) -> Any:
        return torch.zeros(shape, dtype=getattr(torch, dtype), device=device)

    q, k, v, out = (make((1, LENGTH, HEADS, SIZE), "bfloat16") for _ in range(4))
    doc = make((LENGTH,), "int32")

    def call(**options: Any) -> Any:
        return kjit.attention(q, k, v, out=out, **options)

    def same(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (doc[i] == doc[j]) & (i >= j)

    def alike() -> Any:
        return call(mask_mod=lambda b, h, i, j: (i - j <= 16) & (i >= j))

    return {
        "no variant": lambda: call(causal=True),
        "window=(16, 0)": lambda: call(causal=True, window=(16, 0)),
        "text with a number": lambda: call(mask="q - k <= w and q >= k", params={"w": 16}),
        "documents, the same function": lambda: call(mask_mod=same),
        "a window, a function made alike": alike,
        **traced(kjit, make, call),
    }


def measure(found: dict[str, Callable[[], Any]], rounds: int, calls: int, between: Callable[[], Any]) -> str:
    times: dict[str, list[float]] = {name: [] for name in found}
    for run in found.values():
        for _ in range(20):
            run()
    for _ in range(rounds):
        for name, run in found.items():
            between()
            begin = time.perf_counter()
            for _ in range(calls):
                run()
            times[name].append((time.perf_counter() - begin) / calls * 1e6)
    body = [[name, f"{statistics.median(each):.1f}", f"{min(each):.1f}"] for name, each in times.items()]
    return markdown(["a call from Python", "median us", "least us"], body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--calls", type=int, default=200)
    asked = parser.parse_args()
    find_package()
    import torch

    import kjit

    has_gpu = torch.cuda.is_available()
    if not has_gpu:
        say_device_0()
    found = ways(kjit, torch, "cuda" if has_gpu else "cpu")
    print(measure(found, asked.rounds, asked.calls, torch.cuda.synchronize if has_gpu else lambda: None))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
