#!/usr/bin/env python3
"""Decoding and ragged prefill beside PyTorch's scaled_dot_product_attention, where that computes the same.

usage: serving_peers.py [--out FOLDER] [--seconds N]

Keys and values rotate through buffers larger than the L2 cache. Times are medians between events around one call on a
busy stream. Bandwidth counts keys and values once.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

from kjit import flash_attn, flash_attn_interface

FLUSH_BYTES = 192 << 20


def measure(calls, repeats=30):
    """Median microseconds of one call; `calls` are tried in turn, each on tensors of its own."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    torch.cuda._sleep(20_000_000)
    for i, (start, end) in enumerate(events):
        start.record()
        calls[i % len(calls)]()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events) * 1000


def captured(calls, repeats=20):
    """Microseconds a call in a graph of all calls, one after the other."""
    for call in calls:
        call()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1000 / repeats / len(calls)


def copies_of(bytes_each):
    return max(1, min(64, -(-FLUSH_BYTES // max(bytes_each, 1)) + 1))


def decode_cell(batch, heads, heads_kv, keys, size=128, page=None, rows=1, ragged=False):
    lengths = [keys] * batch
    if ragged:
        torch.manual_seed(0)
        lengths = torch.randint(200, keys, (batch,)).tolist()
    used = sum(lengths) * heads_kv * size * 4
    most = max(lengths)
    seqused = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    q = torch.randn(batch, rows, heads, size, dtype=torch.bfloat16, device="cuda")
    calls, peers = [], []
    for _ in range(copies_of(used)):
        if page is None:
            k, v = (torch.randn(batch, most, heads_kv, size, dtype=torch.bfloat16, device="cuda") for _ in range(2))
            table = None
        else:
            counts = [-(-n // page) for n in lengths]
            k, v = (torch.randn(sum(counts), page, heads_kv, size, dtype=torch.bfloat16, device="cuda") for _ in "kv")
            order = torch.randperm(sum(counts), device="cuda").int()
            table = torch.full((batch, max(counts)), -1, dtype=torch.int32, device="cuda")
            at = 0
            for b, count in enumerate(counts):
                table[b, :count] = order[at : at + count]
                at += count
        calls.append(
            lambda k=k, v=v, table=table: flash_attn_interface.flash_attn_with_kvcache(
                q, k, v, cache_seqlens=seqused, page_table=table, causal=rows > 1
            )
        )
        if page is None and not ragged and rows == 1:
            views = [t.transpose(1, 2) for t in (q, k, v)]
            peers.append(
                lambda views=views: torch.nn.functional.scaled_dot_product_attention(*views, enable_gqa=True)
            )
    ours, graph = measure(calls), captured(calls)
    theirs = "-"
    if peers:
        try:
            theirs = f"{measure(peers):.1f}"
        except RuntimeError as error:
            theirs = type(error).__name__
    return ours, graph, theirs, used / ours / 1e6


def varlen_cell(lengths, heads, heads_kv, size):
    total = sum(lengths)
    cu = torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0)).int().cuda()
    q = torch.randn(total, heads, size, dtype=torch.bfloat16, device="cuda")
    k, v = (torch.randn(total, heads_kv, size, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    most = max(lengths)
    ours = measure([lambda: flash_attn.flash_attn_varlen_func(q, k, v, cu, cu, most, most, causal=True)], 12)
    flops = sum(2 * n * n * heads * size for n in lengths)  # two products, half of each masked
    return ours, flops / ours / 1e6


def host_cell():
    """Microseconds of the host for one call."""
    q = torch.randn(4, 1, 32, 128, dtype=torch.bfloat16, device="cuda")
    k, v = (torch.randn(64, 16, 8, 128, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    table = torch.arange(64, dtype=torch.int32, device="cuda").view(4, 16)
    lengths = torch.full((4,), 100, dtype=torch.int32, device="cuda")
    found = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(50):
            flash_attn_interface.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=table)
        found.append((time.perf_counter() - start) / 50)
    return statistics.median(found) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=90)
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    lines = []

    def say(line):
        print(line, flush=True)
        lines.append(line)

    say(f"host: {host_cell():.1f} us a call")
    say("decode: batch heads keys page      us  graph   sdpa    TB/s")
    cells = [
        (1, 32, 8, 1024, 128, None, 1, False), (1, 32, 8, 8192, 128, None, 1, False),
        (1, 64, 8, 8192, 128, None, 1, False), (8, 64, 8, 8192, 128, None, 1, False),
        (1, 32, 1, 8192, 128, None, 1, False), (8, 32, 8, 4096, 128, None, 1, False),
        (20, 64, 8, 8192, 128, None, 1, False),
        (32, 32, 8, 4096, 128, None, 1, False), (8, 64, 8, 65536, 128, None, 1, False),
        (1, 64, 8, 65536, 128, None, 1, False), (1, 32, 1, 65536, 128, None, 1, False),
        (24, 64, 8, 8192, 128, 16, 1, False), (16, 32, 8, 16000, 128, 16, 1, True),
        (32, 16, 1, 8192, 128, 16, 1, False), (64, 32, 8, 8192, 128, 1, 1, False),
        (64, 32, 8, 8192, 128, 64, 1, False), (64, 32, 8, 8192, 128, 256, 1, True),
        (32, 32, 32, 4096, 128, 16, 1, False), (32, 64, 8, 8192, 64, 16, 1, False),
        (16, 16, 8, 8192, 256, 16, 1, False), (16, 32, 8, 8192, 128, 16, 4, False),
        (256, 32, 8, 2048, 128, 16, 1, True),
    ]  # fmt: skip
    for cell in cells:
        if time.monotonic() > deadline:
            say("no time left")
            break
        try:
            ours, graph, theirs, bandwidth = decode_cell(*cell)
        except Exception as error:  # one cell must not end the others
            say(f"{cell}: {type(error).__name__}: {str(error)[:100]}")
            continue
        batch, heads, heads_kv, keys, size, page, rows, ragged = cell
        say(
            f"{batch:4d} {heads}/{heads_kv} hd{size} {'<' if ragged else ''}{keys} page {page or '-'} rows {rows}: "
            f"{ours:8.1f} {graph:7.1f} {theirs:>7} {bandwidth:6.2f}"
        )
    torch.manual_seed(0)
    lognormal = [min(max(int(x), 16), 16384) for x in torch.empty(64).log_normal_(6.5, 1.0).tolist()]
    for name, lengths in (("lognormal", lognormal), ("256 x 128", [128] * 256), ("one 16384", [16384])):
        for heads, heads_kv, size in ((32, 8, 128), (32, 8, 64)):
            if time.monotonic() > deadline:
                break
            ours, tflops = varlen_cell(lengths, heads, heads_kv, size)
            say(f"varlen causal {name} {heads}/{heads_kv} hd{size}: {ours:9.1f} us {tflops:6.0f} TFLOP/s")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "serving.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
