"""What was measured of attention problems: table, summary and CSV. Needs no GPU."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Optional

import fa3_table
from attention_problems import SETS, Problem, neighbours
from tables import markdown, number, percent, read_csv, wrapped, write_csv

#: Of the straight line between round sizes: what an odd one must keep so that there is no cliff.
NO_CLIFF = 0.90
#: Of the copy's bandwidth: what one query should reach.
NEAR_COPY = 0.85

TITLES = {
    "cells": "16k tokens, heads x head size 2048",
    "odd": "Odd sizes, and the round ones beside them",
    "small": "Small grids, grouped heads",
    "decode": "Few queries against many keys",
}
#: The sets whose problems are so short that microseconds say more than TFLOP/s.
SHORT = ("small", "decode")

WORDS = (
    'A problem is head size, mask, batch x query heads (/ key heads) x queries (/ keys). "x best peer" is kjit over '
    'the fastest other; "of a product" is the fraction of the rate of an 8192³ matrix product.'
)


@dataclasses.dataclass
class Row:
    """One problem: medians of each peer in milliseconds, the card's limits in the same rounds, why a peer has none.

    empty_milliseconds: an empty launch, which every peer's time includes; None where it was not measured.
    """

    problem: Problem
    milliseconds: dict[str, float]
    product_tflops: float
    copy_gb_per_s: float
    rounds: int
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    empty_milliseconds: Optional[float] = None

    def rate(self, name: str) -> Optional[float]:
        """TFLOP/s."""
        time = self.milliseconds.get(name)
        return None if time is None else self.problem.flops / time / 1e9

    def microseconds(self, name: Optional[str]) -> Optional[float]:
        time = self.milliseconds.get(name) if name else None
        return None if time is None else 1e3 * time

    @property
    def best_peer(self) -> Optional[str]:
        others = {name: time for name, time in self.milliseconds.items() if name != "kjit"}
        return min(others, key=others.__getitem__, default=None)

    @property
    def ratio(self) -> Optional[float]:
        """kjit over the best peer."""
        own, best = self.milliseconds.get("kjit"), self.best_peer
        return self.milliseconds[best] / own if own and best else None

    @property
    def of_product(self) -> Optional[float]:
        own = self.rate("kjit")
        return own / self.product_tflops if own else None

    @property
    def of_copy(self) -> Optional[float]:
        """Of the copy's bandwidth, where memory is the limit."""
        own = self.milliseconds.get("kjit")
        if not own or not self.problem.is_decoding:
            return None
        return self.problem.bytes_moved / own / 1e6 / self.copy_gb_per_s


def is_of(peer: str, name: str) -> bool:
    """Whether a name is a peer's or that of another build of it: "FA3 BUILD"."""
    return name == peer or name.startswith(f"{peer} ")


class Report:
    """The rows of a run; `names` are the peers that were asked for."""

    def __init__(self, rows: Sequence[Row], names: Sequence[str]) -> None:
        self.rows = list(rows)
        self.names = [name for name in names if any(name in row.milliseconds for row in rows)]
        self._rates = {row.problem: row.rate("kjit") for row in rows}
        self._has_fa3 = any(is_of("FA3", name) for row in rows for name in row.milliseconds)

    def fa3_estimate(self, row: Row) -> Optional[float]:
        """TFLOP/s that FA3 would have; None where nothing is known, and in a run that measured it anywhere."""
        cudnn, ratio = row.rate("cuDNN"), fa3_table.ratio_to_cudnn(row.problem)
        return cudnn * ratio if cudnn and ratio and not self._has_fa3 else None

    def over_fa3_estimate(self, row: Row) -> Optional[float]:
        own, estimate = row.rate("kjit"), self.fa3_estimate(row)
        return own / estimate if own and estimate else None

    def of_line(self, row: Row) -> Optional[float]:
        """TFLOP/s of an odd size over the straight line between its round neighbours; None for others."""
        found = neighbours(row.problem)
        own = row.rate("kjit")
        if found is None or own is None:
            return None
        low, high = (self._rates.get(end) for end in found[:2])
        return own / (low + found[2] * (high - low)) if low and high else None

    def sections(self) -> dict[str, list[Row]]:
        """The rows of each set that has some; a problem stands in the first that holds it."""
        found: dict[str, list[Row]] = {}
        members = {(name, dtype): set(SETS[name](dtype)) for name in SETS for dtype in ("bf16", "fp16")}
        for row in self.rows:
            section = next((name for (name, _), problems in members.items() if row.problem in problems), "odd")
            found.setdefault(section, []).append(row)
        return {name: found[name] for name in SETS if name in found}

    def table(self, rows: Sequence[Row], short: bool = False) -> str:
        """TFLOP/s of every peer, then the columns that say something of at least one of these rows.

        Of short problems also the microseconds of kjit and of the best peer.
        """
        times: list[tuple[str, Callable[[Row], str]]] = [
            ("kjit µs", lambda row: number(row.microseconds("kjit"), 1)),
            ("best peer µs", lambda row: number(row.microseconds(row.best_peer), 1)),
        ]
        columns: list[tuple[str, Callable[[Row], str]]] = [
            ("FA3~", lambda row: number(self.fa3_estimate(row))),
            *(times if short else []),
            ("x best peer", lambda row: f"{row.ratio:.2f} ({row.best_peer})" if row.ratio else "—"),
            ("kjit / FA3~", lambda row: number(self.over_fa3_estimate(row), 2)),
            ("of a product", lambda row: percent(row.of_product)),
            ("of the line", lambda row: percent(self.of_line(row))),
            ("of a copy", lambda row: percent(row.of_copy)),
        ]
        kept = [column for column in columns if any(column[1](row) != "—" for row in rows)]
        head = ["problem", *self.names, *(title for title, _ in kept)]
        lines = []
        for row in rows:
            rates = (number(row.rate(name)) for name in self.names)
            lines.append([str(row.problem), *rates, *(text(row) for _, text in kept)])
        return markdown(head, lines)

    def summary(self) -> str:
        sentences = [
            _over("the best peer", {row.problem: row.ratio for row in self.rows}),
            _over("FA3~", {row.problem: self.over_fa3_estimate(row) for row in self.rows}),
            _least("Odd sizes beside the line", {row.problem: self.of_line(row) for row in self.rows}, NO_CLIFF),
            _least("One query beside a copy", {row.problem: row.of_copy for row in self.rows}, NEAR_COPY),
        ]
        if any(map(self.fa3_estimate, self.rows)):
            sentences.append(fa3_table.WORDS)
        return "\n\n".join(filter(None, sentences)) or "kjit computed nothing."

    def section(self, name: str, rows: Sequence[Row]) -> str:
        """A set's title, where it stands beside the best peer if the summary is of more sets, and its one table."""
        short = name in SHORT
        parts = [
            f"## {TITLES[name]}",
            _over("the best peer", {row.problem: row.ratio for row in rows}) if len(rows) < len(self.rows) else "",
            _empty_launch(rows) if short else "",
            self.table(rows, short),
        ]
        return "\n\n".join(filter(None, parts))

    def text(self, conditions: str, notes: Iterable[str] = ()) -> str:
        sections = [self.section(name, rows) for name, rows in self.sections().items()]
        parts = [conditions, WORDS, self.summary(), *notes, *sections]
        return "\n\n".join(map(wrapped, parts)) + "\n"


def _empty_launch(rows: Sequence[Row]) -> str:
    times = [row.empty_milliseconds for row in rows if row.empty_milliseconds is not None]
    return f"An empty launch takes {1e3 * statistics.median(times):.1f} µs here, included." if times else ""


def _known(values: dict[Problem, Optional[float]]) -> dict[Problem, float]:
    return {problem: value for problem, value in values.items() if value is not None}


def _over(what: str, values: dict[Problem, Optional[float]]) -> str:
    ratios = _known(values)
    if not ratios:
        return ""
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    ahead, least = sum(ratio >= 1 for ratio in ratios.values()), min(ratios, key=ratios.__getitem__)
    return (
        f"kjit over {what}: geometric mean {mean:.3f}, not behind in {ahead} of {len(ratios)} problems, "
        f"least {ratios[least]:.2f} ({least})."
    )


def _least(what: str, values: dict[Problem, Optional[float]], goal: float) -> str:
    fractions = _known(values)
    if not fractions:
        return ""
    kept, least = sum(value >= goal for value in fractions.values()), min(fractions, key=fractions.__getitem__)
    return (
        f"{what}: {kept} of {len(fractions)} problems at {percent(goal)} or more, "
        f"least {percent(fractions[least])} ({least})."
    )


_SIZES = dataclasses.fields(Problem)
_HEAD = [
    *(field.name for field in _SIZES),
    *("peer", "milliseconds", "tflops", "matrix_product_tflops", "copy_gb_per_s", "rounds", "note"),
    "empty_launch_milliseconds",
]


def write(path: Path, rows: Iterable[Row]) -> None:
    """A line for each problem and peer, measured or not."""
    lines = []
    for row in rows:
        sizes = [int(value) if isinstance(value, bool) else value for value in dataclasses.astuple(row.problem)]
        limits = [f"{row.product_tflops:.1f}", f"{row.copy_gb_per_s:.0f}", row.rounds]
        empty = "" if row.empty_milliseconds is None else f"{row.empty_milliseconds:.5f}"
        for name in dict.fromkeys([*row.milliseconds, *row.reasons]):
            time = row.milliseconds.get(name)
            shown = ["", ""] if time is None else [f"{time:.5f}", f"{row.rate(name):.1f}"]
            lines.append([*sizes, name, *shown, *limits, row.reasons.get(name, ""), empty])
    write_csv(path, _HEAD, lines)


def read(path: Path) -> list[Row]:
    """What write() wrote."""
    rows: dict[Problem, Row] = {}
    for line in read_csv(path):
        values = (line[field.name] if field.name == "dtype" else int(line[field.name]) for field in _SIZES)
        problem = Problem(*values)  # type: ignore[arg-type]
        limits = float(line["matrix_product_tflops"]), float(line["copy_gb_per_s"]), int(line["rounds"])
        empty = line.get("empty_launch_milliseconds")  # files from before it was measured have no such column
        row = rows.setdefault(problem, Row(problem, {}, *limits, empty_milliseconds=float(empty) if empty else None))
        if line["milliseconds"]:
            row.milliseconds[line["peer"]] = float(line["milliseconds"])
        if line["note"]:
            row.reasons[line["peer"]] = line["note"]
    return list(rows.values())
