"""The attention problems that are measured: sizes, work, traffic, and the sets that they come in. Needs no GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Optional

TOKENS = 16384
MODEL_WIDTH = 2048
SEQS = (512, 1024, 2048, 4096, 8192, 16384)
HEAD_DIMS = (64, 128, 256)
DTYPES = ("bf16", "fp16")

#: Between which sizes the straight line of an odd one is drawn.
ROUND_HEAD_DIMS = (32, 64, 128, 256)
ROUND_SEQS = SEQS

ODD_SEQ = 4096
ODD_HEAD_DIMS = ((40, 40), (72, 72), (80, 80), (96, 96), (112, 112), (160, 160), (192, 192), (192, 128))
ODD_SEQS = (1000, 4097, 8190)
GROUPED_HEADS = ((64, 8), (32, 1))
SPOT_CHECKS = ((64, 4096, False), (128, 2048, True), (128, 16384, False), (256, 8192, True))


@dataclasses.dataclass(frozen=True)
class Problem:
    """One attention forward. dtype is one of DTYPES."""

    batch: int
    heads_q: int
    heads_kv: int
    seq_q: int
    seq_kv: int
    head_dim: int
    head_dim_v: int
    causal: bool = False
    dtype: str = "bf16"

    @property
    def flops(self) -> float:
        """Two products over the keys that a row sees in the mean (causal: aligned bottom right)."""
        seen = (max(0, self.seq_kv - self.seq_q) + self.seq_kv) / 2 if self.causal else self.seq_kv
        return 2.0 * self.batch * self.heads_q * self.seq_q * seen * (self.head_dim + self.head_dim_v)

    @property
    def bytes_moved(self) -> int:
        """q, k, v and the output once each, 16-bit elements."""
        query = self.heads_q * self.seq_q * (self.head_dim + self.head_dim_v)
        keys = self.heads_kv * self.seq_kv * (self.head_dim + self.head_dim_v)
        return 2 * self.batch * (query + keys)

    @property
    def mean_head_dim(self) -> float:
        """What the work of a key is proportional to."""
        return (self.head_dim + self.head_dim_v) / 2

    @property
    def is_decoding(self) -> bool:
        """One query a head: bound by the memory that its keys come from."""
        return self.seq_q == 1

    def __str__(self) -> str:
        """Batch x heads x length; what q and k, or k and v, do not share as "q/k"."""
        size = f"{self.head_dim}" if self.head_dim == self.head_dim_v else f"{self.head_dim}/{self.head_dim_v}"
        heads = f"{self.heads_q}" if self.heads_q == self.heads_kv else f"{self.heads_q}/{self.heads_kv}"
        lengths = f"{self.seq_q}" if self.seq_q == self.seq_kv else f"{self.seq_q}/{self.seq_kv}"
        kind = "" if self.dtype == "bf16" else f" {self.dtype}"
        return f"hd{size} {'causal' if self.causal else 'full'} {self.batch}x{heads}x{lengths}{kind}"


def cell(head_dim: int, seq: int, causal: bool, dtype: str = "bf16", head_dim_v: Optional[int] = None) -> Problem:
    """About 16k tokens and heads * head_dim of about 2048: the grid of the papers, at any size."""
    batch, heads = max(round(TOKENS / seq), 1), MODEL_WIDTH // head_dim
    return Problem(batch, heads, heads, seq, seq, head_dim, head_dim_v or head_dim, causal, dtype)


def is_cell(problem: Problem) -> bool:
    """Whether it stands in the papers' grid."""
    sizes = problem.head_dim in HEAD_DIMS and problem.seq_q in SEQS
    return sizes and problem == cell(problem.head_dim, problem.seq_q, problem.causal, problem.dtype)


def cells(dtype: str) -> list[Problem]:
    """36 problems; beside them a few in the other type."""
    grid = [cell(size, seq, causal, dtype) for size in HEAD_DIMS for causal in (False, True) for seq in SEQS]
    other = next(name for name in DTYPES if name != dtype)
    return grid + [cell(size, seq, causal, other) for size, seq, causal in SPOT_CHECKS]


def odd(dtype: str) -> list[Problem]:
    """Sizes that nobody tunes for, with the round ones between which they stand."""
    problems = []
    for causal in (False, True):
        problems += [cell(size, ODD_SEQ, causal, dtype, size_v) for size, size_v in ODD_HEAD_DIMS]
        problems += [cell(size, seq, causal, dtype) for size in HEAD_DIMS for seq in ODD_SEQS]
    return with_neighbours(problems)


def small(dtype: str) -> list[Problem]:
    """Few tiles for many multiprocessors; grouped heads."""
    problems = []
    for causal in (False, True):
        for seq in (1024, 2048, 4096):
            problems += [Problem(1, 8, 8, seq, seq, size, size, causal, dtype) for size in HEAD_DIMS]
        for heads_q, heads_kv in GROUPED_HEADS:
            problems.append(Problem(1, heads_q, heads_kv, 4096, 4096, 128, 128, causal, dtype))
    return problems


def decode(dtype: str) -> list[Problem]:
    """Few queries against many keys."""
    problems = []
    for heads_q, heads_kv in GROUPED_HEADS:
        heads = (heads_q, heads_kv)
        problems += [Problem(8, *heads, 1, seq, 128, 128, False, dtype) for seq in (8192, 16384, 32768, 65536)]
        for seq_q in (1, 4, 16, 64, 128):
            problems += [Problem(1, *heads, seq_q, seq, 128, 128, False, dtype) for seq in (8192, 65536)]
    return problems


SETS = {"cells": cells, "odd": odd, "small": small, "decode": decode}


def select(names: Iterable[str], dtype: str) -> list[Problem]:
    """The problems of these sets, each once; "all" is every set."""
    chosen = [name for wanted in names for name in (SETS if wanted == "all" else [wanted])]
    return list(dict.fromkeys(problem for name in chosen for problem in SETS[name](dtype)))


def neighbours(problem: Problem) -> Optional[tuple[Problem, Problem, float]]:
    """The round problems below and above an odd one and where between them it stands, 0 to 1; None for others."""
    if problem.seq_q != problem.seq_kv or problem.heads_q != problem.heads_kv:
        return None
    if problem != cell(problem.head_dim, problem.seq_q, problem.causal, problem.dtype, problem.head_dim_v):
        return None
    size, seq = problem.mean_head_dim, problem.seq_q
    if (size not in ROUND_HEAD_DIMS or problem.head_dim != size) and seq in ROUND_SEQS:
        low, high = _between(size, ROUND_HEAD_DIMS)
        pair = [cell(end, seq, problem.causal, problem.dtype) for end in (low, high)]
        return pair[0], pair[1], (size - low) / (high - low)
    if seq not in ROUND_SEQS and size in ROUND_HEAD_DIMS:
        low, high = _between(seq, ROUND_SEQS)
        pair = [cell(problem.head_dim, end, problem.causal, problem.dtype) for end in (low, high)]
        return pair[0], pair[1], (seq - low) / (high - low)
    return None


def _between(value: float, ends: tuple[int, ...]) -> tuple[int, int]:
    low = max(end for end in ends if end < value)
    return low, min(end for end in ends if end > value)


def with_neighbours(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, in front of it what its straight line needs."""
    found: dict[Problem, None] = {}
    for problem in problems:
        line = neighbours(problem)
        for each in (*(line[:2] if line else ()), problem):
            found.setdefault(each)
    return list(found)
