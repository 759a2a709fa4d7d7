#!/usr/bin/env python3
"""Races attention forward over problems that nobody chose: kjit beside its peers, interleaved in one run, checked.

Problems are drawn by --seed from distributions that look like use: self-attention of training and prefill, cross
attention, decoding, chunks of a prefill, and many short sequences; batch 1 to 1,024, heads 1 to 128 with groups,
lengths log-uniform from 16 to 64k, head sizes 32 to 256 in eights, both masks, both types, both layouts. What would
take longer than a few milliseconds or more than a few GiB is made smaller, batch first. The same seed and count give
the same problems.

Every peer that computes a problem is timed as bench/attention_peers.py times them, after its output was checked beside
float64. As many problems as fit into --seconds. The result is the share won, the geometric mean of kjit over the best
peer, and the worst twenty with the config that was chosen.

--dry-run lists the problems with the configs that the rules choose on --card; it needs no GPU and no PyTorch.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

from attention_calls import PEERS
from attention_peers import Bench, run
from attention_problems import DTYPES, Problem
from attention_report import Row
from tables import find_package, markdown, words, write_csv

#: Bounds of a problem: work, elements of a tensor, and scores of the rows that are checked in float64.
MOST_FLOPS = 4e12
MOST_ELEMENTS = 1 << 27
MOST_CHECKED = 1 << 27
ROWS_CHECKED = 64

LEAST_LENGTH, MOST_LENGTH = 16, 1 << 16
MOST_BATCH = 1024
COMMON_HEAD_DIMS = (64, 128)
KNOWN_HEAD_DIMS = (32, 72, 80, 96, 112, 160, 192, 256)
HEADS = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128)
GROUPS = (1, 1, 1, 2, 4, 8, 16)
LAYOUTS = ("bshd", "bhsd")
SIZES = ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim_v")
#: A race is won where kjit is not slower; below this it is lost clearly.
CLEAR_LOSS = 0.90
WORST = 20
PEERS_OF_A_RACE = ("kjit", "cuDNN", "FA2", "FA3")


@dataclasses.dataclass(frozen=True)
class Drawn(Problem):
    """A problem with its layout in memory and the use that it was drawn for."""

    layout: str = "bshd"
    use: str = "self"

    def __str__(self) -> str:
        return f"{super().__str__()} {self.layout} {self.use}"


def log_uniform(pick: random.Random, least: int, most: int) -> int:
    return round(math.exp(pick.uniform(math.log(least), math.log(most))))


def _lengths(pick: random.Random, use: str) -> tuple[int, int, bool]:
    """Queries, keys, mask."""
    length = log_uniform(pick, LEAST_LENGTH, MOST_LENGTH)
    if use == "cross":
        return length, log_uniform(pick, LEAST_LENGTH, MOST_LENGTH), False
    if use == "decode":
        return pick.choice((1, 1, 1, 2, 4, 8, 16)), log_uniform(pick, 64, MOST_LENGTH), False
    if use == "chunk":
        return max(LEAST_LENGTH, length // pick.choice((2, 4, 8, 16))), length, True
    if use == "short":
        short = log_uniform(pick, LEAST_LENGTH, 256)
        return short, short, False
    return length, length, pick.random() < 0.5


def _draw_one(pick: random.Random) -> Drawn:
    use = pick.choices(("self", "cross", "decode", "chunk", "short"), (45, 15, 20, 8, 12))[0]
    seq_q, seq_kv, causal = _lengths(pick, use)
    sizes = pick.choices((COMMON_HEAD_DIMS, KNOWN_HEAD_DIMS, range(32, 257, 8)), (60, 20, 20))[0]
    head_dim = pick.choice(sizes)
    heads = pick.choice(HEADS)
    group = pick.choice([group for group in GROUPS if heads % group == 0])
    batch = log_uniform(pick, 64, MOST_BATCH) if use == "short" else log_uniform(pick, 1, MOST_BATCH)
    dtype, layout = pick.choice(DTYPES), pick.choice(LAYOUTS)
    return Drawn(batch, heads, heads // group, seq_q, seq_kv, head_dim, head_dim, causal, dtype, layout, use)


def is_small_enough(problem: Problem) -> bool:
    rows = problem.batch * problem.heads_q
    elements = rows * problem.seq_q, problem.batch * problem.heads_kv * problem.seq_kv
    checked = rows * min(ROWS_CHECKED, problem.seq_q) * problem.seq_kv
    return (
        problem.flops <= MOST_FLOPS
        and max(elements) * problem.head_dim <= MOST_ELEMENTS
        and checked <= MOST_CHECKED
    )


def _shrink(problem: Drawn) -> Drawn:
    """The problem with its batch, then its lengths, halved until it is small enough."""
    while not is_small_enough(problem):
        if problem.batch > 1:
            problem = dataclasses.replace(problem, batch=problem.batch // 2)
        else:
            halves = {"seq_q": max(1, problem.seq_q // 2), "seq_kv": max(1, problem.seq_kv // 2)}
            problem = dataclasses.replace(problem, **halves)
    return problem


def draw(seed: int, count: int) -> list[Drawn]:
    """Different problems; the first ones of a seed are the same whatever the count."""
    pick, found = random.Random(seed), {}
    while len(found) < count:
        found[_shrink(_draw_one(pick))] = None
    return list(found)


def config_of(runtime: Any, problem: Problem, card: Optional[str]) -> str:
    """What is chosen for a problem: on a card by the rules, or here."""
    sizes = {name: getattr(problem, name) for name in SIZES}
    where = {"card": card} if card else {}
    text: str = runtime.describe_attention(problem.dtype, problem.head_dim, causal=problem.causal, **where, **sizes)
    return text


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


@dataclasses.dataclass
class Result:
    """What a race came to."""

    rows: list[Row]

    @property
    def raced(self) -> list[Row]:
        """The problems that a peer computes too, the worst first."""
        return sorted((row for row in self.rows if row.ratio is not None), key=lambda row: row.ratio or 0)

    def lines(self) -> Iterator[str]:
        ratios = [row.ratio for row in self.raced if row.ratio is not None]
        wrong = [row for row in self.rows if "WRONG" in row.reasons.get("kjit", "")]
        failed = [row for row in self.rows if "kjit" in row.reasons]
        alone = len(self.rows) - len(ratios) - len(failed)
        if ratios:
            won = sum(ratio >= 1 for ratio in ratios)
            lost = sum(ratio < CLEAR_LOSS for ratio in ratios)
            yield (
                f"{len(ratios)} raced: won {won / len(ratios):.1%}, geometric mean {geometric_mean(ratios):.3f}, "
                f"worst {min(ratios):.2f}, below {CLEAR_LOSS}: {lost}"
            )
        yield f"{alone} that no peer computes, {len(failed)} that kjit does not, {len(wrong)} wrong"
        for row in failed:
            yield f"kjit: {row.problem}: {row.reasons['kjit']}"

    def worst(self, configs: dict[Problem, str]) -> str:
        head = ["problem", "kjit us", "best", "us", "x", "config"]
        body = [
            [
                str(row.problem),
                f"{row.microseconds('kjit'):.1f}",
                row.best_peer or "",
                f"{row.microseconds(row.best_peer):.1f}",
                f"{row.ratio:.2f}",
                configs.get(row.problem, ""),
            ]
            for row in self.raced[:WORST]
        ]
        return markdown(head, body)


def save(path: Path, rows: list[Row], configs: dict[Problem, str]) -> None:
    """Every problem, its members, the peers' milliseconds and the config, as CSV."""
    members = [field.name for field in dataclasses.fields(Drawn)]
    peers = sorted({name for row in rows for name in (*row.milliseconds, *row.reasons)})
    body = [
        [*(getattr(row.problem, name) for name in members),
         *(row.milliseconds.get(name, row.reasons.get(name, "")) for name in peers),
         configs.get(row.problem, "")]
        for row in rows
    ]  # fmt: skip
    write_csv(path, [*members, *peers, "config"], body)


def parse(given: Optional[list[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300, help="problems (300)")
    parser.add_argument("--seconds", type=float, default=220, help="what the whole run may take, about (220)")
    parser.add_argument("--rounds", type=int, default=15, help="at most, for each problem (15)")
    parser.add_argument("--peers", type=words(PEERS), default=list(PEERS_OF_A_RACE), help=",".join(PEERS_OF_A_RACE))
    parser.add_argument("--out", type=Path, default=Path(), help="folder of attention_race.csv")
    parser.add_argument("--dry-run", action="store_true", help="list problems and configs; no GPU")
    parser.add_argument("--card", default="H200", help="whose configs --dry-run lists (H200)")
    return parser.parse_args(given)


def build_ahead(runtime: Any, problems: list[Drawn]) -> ThreadPoolExecutor:
    """Compile the problems' kernels in the background, in their order: what is timed is the GPU alone."""
    pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1))
    for problem in problems:
        sizes = {name: getattr(problem, name) for name in SIZES}
        pool.submit(runtime.compile_attention, problem.dtype, problem.head_dim, causal=problem.causal, **sizes)
    return pool


def list_problems(arguments: argparse.Namespace) -> int:
    import kjit

    with kjit.Runtime(cache_mode="off") as runtime:
        for problem in draw(arguments.seed, arguments.count):
            print(f"{problem}: {config_of(runtime, problem, arguments.card)}")
    return 0


def main() -> int:
    started, arguments = time.monotonic(), parse()
    find_package()
    if arguments.dry_run:
        return list_problems(arguments)
    import kjit
    import torch

    if not torch.cuda.is_available():
        print("attention_race.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    arguments.out.mkdir(parents=True, exist_ok=True)
    runtime, problems = kjit.default_runtime(), draw(arguments.seed, arguments.count)
    pool = build_ahead(runtime, problems)
    rows, left_out = run(Bench(arguments.peers, arguments.rounds), problems, arguments.seconds, started)
    pool.shutdown(cancel_futures=True)
    result = Result(rows)
    configs = {row.problem: config_of(runtime, row.problem, None) for row in rows if "kjit" in row.milliseconds}
    save(arguments.out / "attention_race.csv", rows, configs)
    rest = f"{left_out} of {arguments.count} left out: time was up"
    print(f"{torch.cuda.get_device_name()}, seed {arguments.seed}, {rest}")
    print(result.worst(configs))
    for line in result.lines():
        print(line)
    return 1 if not rows or any("WRONG" in row.reasons.get("kjit", "") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
