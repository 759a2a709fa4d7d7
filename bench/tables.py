"""What the benchmarks in Python share: where the package lies, numbers in tables, and files of results."""

from __future__ import annotations

import argparse
import csv
import textwrap
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def find_package() -> None:
    """Make `import kjit` find a bundle's package, or the project's build; else what is installed counts."""
    for folder in (ROOT / "python", ROOT / "build" / "release" / "python"):
        if (folder / "kjit" / "libkjit.so").exists():
            sys.path.insert(0, str(folder))


def number(value: Optional[float], digits: int = 0, unit: str = "") -> str:
    return "—" if value is None else f"{value:,.{digits}f}{unit}"


def percent(fraction: Optional[float]) -> str:
    return "—" if fraction is None else f"{100 * fraction:.0f} %"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table: the first column is text, the others are numbers."""
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def wrapped(text: str) -> str:
    """Markdown with its sentences in lines of at most 120 columns; titles and tables stay as they are."""
    filler = textwrap.TextWrapper(width=118, break_on_hyphens=False, break_long_words=False)
    parts = text.split("\n\n")
    return "\n\n".join(part if part.startswith(("|", "#")) else filler.fill(part) for part in parts)


def pyplot() -> Any:
    """Matplotlib for files; imported when something is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def save_figure(figure: Any, folder: Path, name: str) -> None:
    """As NAME.png. One format is enough, and a page shows a PNG everywhere."""
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=150)
    pyplot().close(figure)


def words(known: Iterable[str]) -> Any:
    """For argparse: some of these, with commas between."""
    names = list(known)

    def read(text: str) -> list[str]:
        wanted = text.split(",")
        unknown = [word for word in wanted if word not in names]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(names)}")
        return wanted

    return read
