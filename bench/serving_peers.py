#!/usr/bin/env python3
"""Serving attention beside FlashAttention-3, and beside PyTorch's cuDNN where that computes the same.

usage: serving_peers.py [--sets dense,paged,prefill] [--part I/N] [--rounds N] [--seconds N] [--fa3 MODULE]
                        [--flush zeros,reads] [--out FOLDER]
       serving_peers.py --draw FILE.csv --out FOLDER

All peers take turns in one run, the L2 cache flushed before each call (gpu_clock.py): by zeros, which have to be
written back while the call loads, or by reads, or one after the other by both. FlashAttention-3 gets its
schedule (get_scheduler_metadata) beforehand, as a step of many layers has it. Bandwidth counts keys and values once;
TFLOP/s the products that the mask leaves.

FOLDER receives serving_peers.csv, .md and .png.
"""

from __future__ import annotations

import argparse
import importlib
import math
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from tables import find_package, markdown, number, pyplot, read_csv, save_figure, wrapped, words, write_csv

find_package()

HEAD = ("set", "problem", "peer", "microseconds", "gigabytes", "gigaflops", "copy_tb_s", "flush")
FLUSHES = ("zeros", "reads")  # gpu_clock.FLUSHES, which needs PyTorch
SETS = ("dense", "paged", "prefill")
HEADS = ((32, 8), (64, 8), (16, 1), (32, 32))
MOST_BYTES = 24 << 30


class Problem(NamedTuple):
    set: str
    name: str
    rows: tuple[int, ...]  # of each sequence
    keys: tuple[int, ...]
    heads: int
    heads_kv: int
    size: int = 128
    page: Optional[int] = None

    def __str__(self) -> str:
        page = "" if self.page is None else f" page {self.page}"
        return f"{self.name} {self.heads}/{self.heads_kv} hd{self.size}{page}"

    @property
    def bytes(self) -> int:
        return sum(self.keys) * self.heads_kv * self.size * 4

    @property
    def flops(self) -> float:
        pairs = sum(q * (k - q) + q * (q + 1) / 2 for q, k in zip(self.rows, self.keys))
        return 4 * pairs * self.heads * self.size


def ragged(batch: int, least: int, most: int) -> tuple[int, ...]:
    generator = random.Random(batch)
    return tuple(generator.randint(least, most) for _ in range(batch))


def decode_problems(kind: str, pages: tuple[Optional[int], ...], batches: tuple[int, ...]) -> list[Problem]:
    found = []
    for batch in batches:
        for heads, heads_kv in HEADS:
            for page in pages:
                lengths = (("8192", (8192,) * batch), ("200-16000", ragged(batch, 200, 16000)))
                for name, keys in lengths[: 1 if page is None else 2]:
                    problem = Problem(kind, f"{batch} x {name}", (1,) * batch, keys, heads, heads_kv, 128, page)
                    if problem.bytes <= MOST_BYTES:
                        found.append(problem)
    return found


def dense_problems() -> list[Problem]:
    """The cells of the decode set, and shorter and longer ones."""
    table = ((8, 64, 8, 1, 65536), (1, 64, 8, 1, 65536), (1, 64, 8, 1, 8192), (1, 32, 1, 1, 65536), (1, 32, 1, 1, 8192),
             (1, 32, 1, 4, 65536), (1, 32, 1, 16, 65536), (1, 32, 8, 1, 1024), (8, 32, 8, 1, 4096),
             (32, 32, 8, 1, 4096), (20, 64, 8, 1, 8192))  # fmt: skip
    cells = [Problem("dense", f"{b} x {k}" + (f" rows {s}" if s > 1 else ""), (s,) * b, (k,) * b, h, hk)
             for b, h, hk, s, k in table]  # fmt: skip
    return cells + decode_problems("dense", (None,), (8, 64))


def prefill_problems() -> list[Problem]:
    generator = random.Random(0)
    lognormal = tuple(min(max(int(generator.lognormvariate(6.5, 1.0)), 16), 16384) for _ in range(64))
    short = tuple(generator.randint(16, 256) for _ in range(256))
    lengths = {"lognormal": lognormal, "256 x 128": (128,) * 256, "512 x 64": (64,) * 512, "128 x 256": (256,) * 128,
               "256 x 16-256": short, "1 x 16384": (16384,), "8 x 2048": (2048,) * 8}  # fmt: skip
    found = [Problem("prefill", name, n, n, 32, 8, size) for size in (128, 64) for name, n in lengths.items()]
    chunk, cached = (512,) * 8, (8704,) * 8
    mixed = (2048,) + (1,) * 31, (4096,) + ragged(31, 1000, 16000)
    found += [Problem("prefill", "lognormal", lognormal, lognormal, 32, 8, 128, page) for page in (1, 16, 64, 256)]
    found.append(Problem("prefill", "lognormal", lognormal, lognormal, 32, 8, 64, 16))
    found += [Problem("prefill", "8 x 512 on 8192", chunk, cached, 32, 8, 128, page) for page in (1, 16, 256)]
    found.append(Problem("prefill", "2048 beside 31 decoded", *mixed, 32, 8, 128, 16))
    one, chunks = (2048,) + (1,) * 31, (256,) * 8 + (1,) * 120
    found.append(Problem("prefill", "2048 beside 31 on 4096", one, (2048,) + (4096,) * 31, 32, 8, 128, 16))
    found.append(Problem("prefill", "8 x 256 beside 120 on 2048", chunks, (2048,) * 128, 32, 8, 128, 16))
    found.append(Problem("prefill", "2048 beside 1 x 131072", (2048, 1), (2048, 131072), 32, 8, 128, 16))
    return found


def problems(kinds: list[str]) -> list[Problem]:
    found = dense_problems() if "dense" in kinds else []
    if "paged" in kinds:
        found += decode_problems("paged", (16, 256, 64, 1), (1, 8, 24, 64, 256))
    return found + (prefill_problems() if "prefill" in kinds else [])


class Tensors:
    """A problem's tensors on the GPU."""

    def __init__(self, torch: Any, problem: Problem) -> None:
        self.torch, self.problem = torch, problem
        rows, keys, page = problem.rows, problem.keys, problem.page
        kind = {"dtype": torch.bfloat16, "device": "cuda"}
        self.cu_q, self.cu_k = (
            torch.nn.functional.pad(torch.tensor(n).cumsum(0), (1, 0)).to("cuda", torch.int32) for n in (rows, keys)
        )
        self.lengths = torch.tensor(keys, dtype=torch.int32, device="cuda")
        self.table = None
        self.q = torch.randn(sum(rows), problem.heads, problem.size, **kind)
        if page is not None:
            counts = [-(-n // page) for n in keys]
            shape: tuple[int, ...] = (sum(counts), page)
            order = torch.randperm(sum(counts), device="cuda").int()
            self.table = torch.zeros(len(keys), max(counts), dtype=torch.int32, device="cuda")
            for b, part in enumerate(order.split(counts)):
                self.table[b, : counts[b]] = part
        elif problem.set == "dense":
            shape = (len(keys), keys[0])
        else:
            shape = (sum(keys),)
        self.k, self.v = (torch.empty(*shape, problem.heads_kv, problem.size, **kind).normal_() for _ in "kv")

    def call(self, module: Any, schedule: bool) -> Callable[[], Any]:
        """The problem by a module with FlashAttention-3's functions."""
        rows, keys, page = self.problem.rows, self.problem.keys, self.problem.page
        longest = max(rows), max(keys)
        if page is None and self.problem.set == "prefill":
            given = self.q, self.k, self.v, self.cu_q, self.cu_k, *longest
            return lambda: module.flash_attn_varlen_func(*given, causal=True)
        equal = min(rows) == longest[0]
        q = self.q.unflatten(0, (len(rows), longest[0])) if equal else self.q
        options = {"cache_seqlens": self.lengths, "page_table": self.table, "causal": longest[0] > 1}
        if not equal:
            options.update(cu_seqlens_q=self.cu_q, max_seqlen_q=longest[0])
        if schedule and equal:
            options["scheduler_metadata"] = module.get_scheduler_metadata(
                len(rows), longest[0], page * self.table.shape[1] if page else keys[0], self.problem.heads,
                self.problem.heads_kv, self.problem.size, self.lengths, self.torch.bfloat16, page_size=page,
                causal=options["causal"],
            )  # fmt: skip
        return lambda: module.flash_attn_with_kvcache(q, self.k, self.v, **options)

    def cudnn(self) -> Callable[[], Any]:
        """PyTorch's own, where all sequences are alike and nothing is masked."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        views = [t.transpose(1, 2) for t in (self.q.unflatten(0, (len(self.problem.rows), 1)), self.k, self.v)]
        function = self.torch.nn.functional.scaled_dot_product_attention

        def run() -> Any:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return function(*views, enable_gqa=True)

        return run


def peers_of(tensors: Tensors, kjit: Any, fa3: Any) -> dict[str, Callable[[], Any]]:
    """What computes the problem, checked to give what kjit gives; who does not is left out, and said."""
    found = {"kjit": tensors.call(kjit, False)}
    first = found["kjit"]()
    candidates = {}
    if fa3 is not None:
        candidates["FA3"] = lambda: tensors.call(fa3, True)
    if tensors.problem.set == "dense" and max(tensors.problem.rows) == 1:
        candidates["cuDNN"] = tensors.cudnn
    for name, make in candidates.items():
        try:
            run = make()
            other = run()
            other = (other.transpose(1, 2) if name == "cuDNN" else other).reshape(first.shape)
            apart = (first.float() - other.float()).abs().max().item()
            if not apart < 0.1:
                print(f"{tensors.problem}: {name} differs by {apart:.3f}", flush=True)
            found[name] = run
        except Exception as error:  # a peer without this problem must not end the run
            print(f"{tensors.problem}: {name}: {str(error).splitlines()[0][:90]}", flush=True)
    return found


def measure(options: argparse.Namespace) -> list[tuple[Any, ...]]:
    import torch
    from gpu_clock import Clock, make_copy, medians

    from kjit import flash_attn_interface as kjit

    fa3 = None
    try:
        fa3 = importlib.import_module(options.fa3)
    except ImportError as error:
        print(f"no FlashAttention-3: {error}", flush=True)
    torch.manual_seed(0)
    clocks, deadline = {by: Clock(by=by) for by in options.flush}, time.monotonic() + options.seconds
    copy = medians(clocks[options.flush[0]].rounds({"copy": make_copy()}, 9))["copy"]
    copied = 2 * (1 << 30) / copy / 1e9
    print(f"copy: {copied:.2f} TB/s", flush=True)
    part, parts = map(int, options.part.split("/"))
    results: list[tuple[Any, ...]] = []
    for problem in problems(options.sets)[part - 1 :: parts]:
        if time.monotonic() > deadline:
            print("no time left", flush=True)
            break
        try:
            peers = peers_of(Tensors(torch, problem), kjit, fa3)
            times = {by: medians(clock.rounds(peers, options.rounds, until=deadline)) for by, clock in clocks.items()}
        except Exception as error:  # one problem must not end the others
            print(f"{problem}: {type(error).__name__}: {str(error)[:100]}", flush=True)
            continue
        facts = round(problem.bytes / 1e9, 4), round(problem.flops / 1e9, 2), round(copied, 3)
        for by, of_flush in times.items():
            text = ", ".join(f"{name} {ms * 1000:.1f}" for name, ms in of_flush.items())
            print(f"{problem}, flushed by {by}: {text}", flush=True)
            results += [(problem.set, str(problem), name, round(ms * 1000, 2), *facts, by)
                        for name, ms in of_flush.items()]  # fmt: skip
    late = sum(clock.late for clock in clocks.values())
    if late:
        print(f"{late} calls were enqueued late: their times hold host time", flush=True)
    return results


class Row:
    """One problem's figures by peer, behind one kind of flush."""

    def __init__(self, lines: list[dict[str, str]]) -> None:
        first = lines[0]
        self.set, self.problem, self.copy = first["set"], first["problem"], float(first["copy_tb_s"])
        self.flush = first.get("flush", FLUSHES[0])
        self.gigabytes, self.gigaflops = float(first["gigabytes"]), float(first["gigaflops"])
        self.microseconds = {line["peer"]: float(line["microseconds"]) for line in lines}

    @property
    def factor(self) -> Optional[float]:
        """How much faster kjit is than the best of the others."""
        others = [us for name, us in self.microseconds.items() if name != "kjit"]
        return min(others) / self.microseconds["kjit"] if others and "kjit" in self.microseconds else None

    def rate(self, peer: str) -> float:
        """TB/s, or for prefill TFLOP/s."""
        amount = self.gigaflops if self.set == "prefill" else self.gigabytes
        return amount / self.microseconds[peer] * 1e3


def summary_of(rows: list[Row]) -> str:
    factors = [row.factor for row in rows if row.factor]
    if not factors:
        return ""
    mean = math.exp(statistics.mean(map(math.log, factors)))
    return f", × {number(mean, 3)} in the geometric mean, least {number(min(factors), 2)}"


def table_of(all_rows: list[Row]) -> str:
    """One set's problems. Columns behind a second kind of flush follow those behind the first. `× best` is how much
    faster kjit is than the best of the others."""
    flush = all_rows[0].flush
    rows = [row for row in all_rows if row.flush == flush]
    second = {row.problem: row for row in all_rows if row.flush != flush}
    unit = "TFLOP/s" if rows[0].set == "prefill" else "TB/s"
    names = [name for name in ("kjit", "FA3", "cuDNN") if any(name in row.microseconds for row in rows)]
    head = ["problem", *(f"{name} µs" for name in names), f"kjit {unit}", "of the copy", "× best"]
    if second:
        head += [f"{next(iter(second.values())).flush}: {names[0]}", *names[1:], "× best"]
    lines = []
    for row in rows:
        share = None if unit == "TFLOP/s" else row.rate("kjit") / row.copy
        digits = 0 if unit == "TFLOP/s" else 2
        lines.append([row.problem, *(number(row.microseconds.get(name), 1) for name in names),
                      number(row.rate("kjit"), digits), number(share, 2), number(row.factor, 2)])  # fmt: skip
        if second:
            other = second.get(row.problem)
            lines[-1] += [number(other.microseconds.get(name) if other else None, 1) for name in names]
            lines[-1].append(number(other.factor if other else None, 2))
    title = f"{rows[0].set}: {len(rows)} problems, L2 flushed by {flush}{summary_of(rows)}"
    if second:
        title += f"; flushed by {next(iter(second.values())).flush}{summary_of(list(second.values()))}"
    return f"{wrapped(title + '.')}\n\n{markdown(head, lines)}"


def read_rows(path: Path) -> list[Row]:
    found: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for line in read_csv(path):
        found.setdefault((line["set"], line["problem"], line.get("flush", FLUSHES[0])), []).append(line)
    return [row for row in map(Row, found.values()) if "kjit" in row.microseconds]


def draw(rows: list[Row], folder: Path) -> None:
    """For each set a point a problem: how much faster kjit is than the best other, over the bytes or products."""
    kinds = [kind for kind in SETS if any(row.set == kind and row.factor for row in rows)]
    figure, axes = pyplot().subplots(1, len(kinds), figsize=(4.8 * len(kinds), 3.6), squeeze=False)
    for axis, kind in zip(axes[0], kinds):
        chosen = [row for row in rows if row.set == kind and row.factor and row.flush == rows[0].flush]
        amounts = [row.gigaflops / 1e3 if kind == "prefill" else row.gigabytes for row in chosen]
        axis.scatter(amounts, [row.factor for row in chosen], s=14)
        axis.axhline(1, color="0.5", linewidth=1)
        axis.set_xscale("log")
        axis.set_title(kind, fontsize=10)
        axis.set_xlabel("TFLOP" if kind == "prefill" else "GB of keys and values")
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("kjit × best other")
    save_figure(figure, folder, "serving_peers")


def write_report(path: Path, folder: Path) -> None:
    rows = read_rows(path)
    tables = [table_of([row for row in rows if row.set == kind]) for kind in SETS if any(r.set == kind for r in rows)]
    text = "# Serving attention beside its peers\n\n" + wrapped(__doc__.split("\n\n")[2].replace("\n", " "))
    (folder / "serving_peers.md").write_text(text + "\n\n" + "\n\n".join(tables) + "\n")
    try:
        draw(rows, folder)
    except ImportError:
        print("no plot: matplotlib is not installed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=words(SETS), default=list(SETS))
    parser.add_argument("--part", default="1/1", help="I/N: every N-th problem from the I-th on")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--fa3", default="flash_attn_interface", help="module with FlashAttention-3's functions")
    parser.add_argument("--flush", type=words(FLUSHES), default=list(FLUSHES[:1]))
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.draw
    if path is None:
        path = options.out / "serving_peers.csv"
        write_csv(path, HEAD, measure(options))
    write_report(path, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
