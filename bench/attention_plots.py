"""Plots of an attention report: lines over the sequence length for the grid, bars for the other sets. Needs no GPU."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attention_problems import is_cell
from attention_report import TITLES, Report, Row
from tables import pyplot, save_figure


def _colours(names: Sequence[str]) -> dict[str, str]:
    return {name: f"C{index}" for index, name in enumerate(names)}


def _draw_panel(axis: Any, panel: Sequence[Row], report: Report) -> None:
    colours = _colours(report.names)
    for name in report.names:
        points = [(row.problem.seq_q, row.rate(name)) for row in panel if name in row.milliseconds]
        if points:
            style = {"linewidth": 2.4, "marker": "o"} if name == "kjit" else {"linewidth": 1.3, "marker": "."}
            axis.plot(*zip(*points), label=name, color=colours[name], **style)
    estimates = [(row.problem.seq_q, report.fa3_estimate(row)) for row in panel if report.fa3_estimate(row)]
    if estimates:
        axis.plot(*zip(*estimates), label="FA3~", color="0.4", linewidth=1.3, linestyle=":")
    axis.axhline(statistics.median(row.product_tflops for row in panel), color="0.7", linestyle="--", linewidth=1)
    axis.set_xscale("log", base=2)
    seqs = sorted({row.problem.seq_q for row in panel})
    axis.set_xticks(seqs, [f"{seq / 1024:g}k" for seq in seqs])
    axis.minorticks_off()
    axis.grid(alpha=0.25)


def draw_cells(rows: Sequence[Row], report: Report, title: str) -> Any:
    """One panel for each head size and mask: TFLOP/s over the sequence length."""
    head_dims = sorted({row.problem.head_dim for row in rows})
    masks = sorted({row.problem.causal for row in rows})
    size = (4.6 * len(head_dims), 3.6 * len(masks))
    figure, axes = pyplot().subplots(len(masks), len(head_dims), figsize=size, squeeze=False, sharey=True)
    for line, causal in enumerate(masks):
        for column, head_dim in enumerate(head_dims):
            axis = axes[line][column]
            panel = [row for row in rows if (row.problem.head_dim, row.problem.causal) == (head_dim, causal)]
            if panel:
                _draw_panel(axis, panel, report)
            axis.set_title(f"head dim {head_dim}, {'causal' if causal else 'full'}", fontsize=10)
            if column == 0:
                axis.set_ylabel("TFLOP/s")
            if line == len(masks) - 1:
                axis.set_xlabel("sequence length, 16k tokens")
    axes[0][0].set_ylim(bottom=0)  # of all panels, now that all are drawn
    axes[0][0].legend(fontsize=8, frameon=False)
    figure.suptitle(f"{title}; dashed: 8192³ matrix product", fontsize=11)
    return figure


def draw_bars(rows: Sequence[Row], names: Sequence[str], title: str) -> Any:
    """A group of bars for each problem, a line of them for each mask: TFLOP/s of every peer."""
    masks = sorted({row.problem.causal for row in rows})
    lines = [[row for row in rows if row.problem.causal == causal] for causal in masks]
    width = 0.42 * max(map(len, lines)) + 2
    figure, axes = pyplot().subplots(len(lines), 1, figsize=(width, 3.6 * len(lines)), squeeze=False)
    for axis, line in zip(axes[:, 0], lines):
        _draw_groups(axis, line, names)
    style = {"fontsize": 8, "frameon": False, "ncols": len(names), "loc": "lower right"}
    figure.legend(*axes[0][0].get_legend_handles_labels(), **style)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_groups(axis: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    colours, width = _colours(names), 0.8 / len(names)
    for index, name in enumerate(names):
        places = [place + width * (index + 0.5) - 0.4 for place in range(len(rows))]
        heights = [row.rate(name) or 0 for row in rows]
        axis.bar(places, heights, width=width, label=name, color=colours[name])
    axis.set_xticks(range(len(rows)), [str(row.problem) for row in rows], rotation=40, ha="right", fontsize=7)
    axis.set_xlim(-0.6, len(rows) - 0.4)
    axis.set_ylabel("TFLOP/s")
    axis.grid(axis="y", alpha=0.25)


def save(report: Report, folder: Path, machine: str) -> None:
    """attention_peers.png for the grid, attention_SET.png for each other set."""
    for name, rows in report.sections().items():
        if name == "cells":
            dtype = statistics.mode(row.problem.dtype for row in rows)
            grid = [row for row in rows if is_cell(row.problem) and row.problem.dtype == dtype]
            title = f"Attention forward, {machine}, {dtype}"
            save_figure(draw_cells(grid, report, title), folder, "attention_peers")
        else:
            title = f"{TITLES[name]}: attention forward, {machine}"
            save_figure(draw_bars(rows, report.names, title), folder, f"attention_{name}")
