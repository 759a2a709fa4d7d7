#!/usr/bin/env python3
"""Times what else could compute the problems that a race lost: many configs of each Hopper family beside the peers.

Problems come from a CSV of bench/attention_race.py, those where kjit has less than --below of the best peer's speed,
and from --problem "use batch heads_q heads_kv seq_q seq_kv head_dim causal dtype layout". For each problem every
config of the lists below that its family accepts is compiled, checked beside float64 rows and timed in turns beside
the peers and the config that the rules choose; the fastest are timed once more with more rounds.

Prints a table for each problem, the fastest first, and writes every time into DIR/attention_candidates.csv. The
planner's rules are made of such tables (docs/lab-notes/races.md).
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from attention_calls import PEERS, prepare
from attention_race import PEERS_OF_A_RACE, Drawn
from tables import find_package, words, write_csv

if TYPE_CHECKING:
    from attention_calls import Maker
    from attention_inputs import Inputs

#: Rounds of all candidates, then of the fastest.
FEW_ROUNDS, MORE_ROUNDS, FINALISTS = 5, 13, 7
MOST_SHORT_KEYS, MOST_DECODE_ROWS = 256, 64


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _head(problem: Drawn) -> str:
    return f"dtype={problem.dtype},head_dim={problem.head_dim},head_dim_v={problem.head_dim_v}"


def _group(problem: Drawn) -> int:
    return problem.heads_q // problem.heads_kv


def _decode(problem: Drawn) -> Iterator[str]:
    rows = problem.seq_q * _group(problem)
    if rows > MOST_DECODE_ROWS:
        return
    causal = int(problem.causal and problem.seq_q > 1)
    for keys, stages, blocks in itertools.product((32, 48, 64, 96, 128), (2, 3, 4), (1, 2, 3, 4)):
        yield (
            f"attention_decode_sm90 {_head(problem)},causal={causal},rows={_up(rows, 16)},"
            f"tile_n={keys},stages={stages},blocks_per_sm={blocks}"
        )


def _one_part(problem: Drawn) -> Iterator[str]:
    rows = problem.seq_q * _group(problem)
    if rows > MOST_DECODE_ROWS or problem.causal:
        return
    fields = "rows=64,softcap=0,one_part=1,gathered=0,runs=0,grouped=0,apart=0"
    for keys, stages, blocks in itertools.product((64, 128), (2, 3, 4), (1, 2)):
        yield (
            f"attention_serving_sm90 {_head(problem)},cache={problem.dtype},keys={keys},stages={stages},"
            f"blocks_per_sm={blocks},{fields}"
        )


def _short(problem: Drawn) -> Iterator[str]:
    if problem.seq_kv > MOST_SHORT_KEYS:
        return
    lists = (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 4), (1, 2, 3)
    for consumers, stages, queries, blocks in itertools.product(*lists):
        yield (
            f"attention_short_sm90 {_head(problem)},causal={int(problem.causal)},tile_n={_up(problem.seq_kv, 16)},"
            f"consumers={consumers},stages={stages},q_buffers={queries},blocks_per_sm={blocks}"
        )


def _most_packed(problem: Drawn) -> int:
    """All query heads of a key head in one tile, where that is a power of two."""
    group = _group(problem)
    return group if group & (group - 1) == 0 else group & -group


def _sm90(problem: Drawn) -> Iterator[str]:
    """Decoding has one consumer; else two and three take turns, as all measured configs of theirs do."""
    chunks, is_few = _up(problem.head_dim_v, 64) // 64, problem.seq_q * _group(problem) <= MOST_DECODE_ROWS
    keys = [n for n in ((64, 96, 128) if is_few else (32, 48, 64, 80, 96, 112, 128, 160)) if n < problem.seq_kv + 32]
    buffers = ((1, 0), (2, 0)) if is_few else ((1, 0), (1, chunks), (2, 0), (2, chunks))
    splits = (0, 1) if problem.seq_q * _group(problem) <= 2048 and problem.seq_kv >= 512 else (0,)
    packed = {1, _most_packed(problem)} if problem.seq_q >= 64 else {_most_packed(problem)}
    lists = (1,) if is_few else (1, 2, 3), keys, (2, 3), buffers, sorted(packed), splits
    for consumers, tile_n, stages, (queries, own), heads, split in itertools.product(*lists):
        if own and split:
            continue
        yield (
            f"attention_sm90 {_head(problem)},causal={int(problem.causal)},consumers={consumers},tile_n={tile_n},"
            f"stages={stages},q_buffers={queries},o_chunks={own},ping_pong={int(consumers > 1)},rescale_slack=15,"
            f"packed={heads},split={split}"
        )


FAMILIES = {"decode": _decode, "one_part": _one_part, "short": _short, "sm90": _sm90}


class Library:
    """The few functions of the C API that a config of one's own needs."""

    def __init__(self) -> None:
        import kjit
        from kjit import _abi, _arguments, _torch
        from kjit._library import call, lib

        self.abi, self.lib, self.call = _abi, lib, call
        self.build, self.view = _arguments.build, _torch._view
        self.runtime = kjit.default_runtime()
        self.arch = self.runtime.device_arch(specific=True).encode()

    def read(self, text: str) -> Optional[Any]:
        """The config, or None where its family refuses it."""
        family, fields = text.split(" ", 1)
        config = self.abi.kjit_config()
        try:
            handle = self.lib.kjit_family_find(family.encode())
            self.call(self.lib.kjit_config_parse, handle, fields.encode(), ctypes.byref(config))
            self.call(self.lib.kjit_config_check, ctypes.byref(config), None)
        except Exception:
            return None
        return config

    def compile(self, config: Any) -> None:
        handle = ctypes.c_void_p()
        runtime = self.runtime.handle
        self.call(self.lib.kjit_config_build, runtime, ctypes.byref(config), self.arch, 0, ctypes.byref(handle))
        self.lib.kjit_artifact_release(handle)

    def maker(self, config: Any) -> Maker:
        """As the peers of attention_calls.py."""
        return lambda inputs: Planned(self, config, inputs)


class Planned:
    """A call by one config: its plan and its output, which live as long as it does."""

    def __init__(self, library: Library, config: Any, inputs: Inputs) -> None:
        import torch

        self.library, self.plan = library, ctypes.c_void_p()
        self.out = inputs.empty_out()
        self.stream = torch.cuda.current_stream().cuda_stream
        views = (library.view(each) for each in (inputs.q, inputs.k, inputs.v, self.out))
        args = library.build(*views, None, scale=None, causal=inputs.problem.causal, layout="bshd")
        create, runtime = library.lib.kjit_attention_plan_create, library.runtime.handle
        library.call(create, ctypes.byref(self.plan), runtime, ctypes.byref(config), ctypes.byref(args))

    def __call__(self) -> Any:
        self.library.call(self.library.lib.kjit_attention_plan_run, self.plan, self.stream)
        return self.out

    def __del__(self) -> None:
        self.library.lib.kjit_attention_plan_destroy(self.plan)


@dataclasses.dataclass
class Sweep:
    """The candidates of the problems, which are compiled in the background in the problems' order."""

    library: Library
    pool: ThreadPoolExecutor
    rounds: int
    peers: list[str]
    futures: dict[str, Future[None]] = dataclasses.field(default_factory=dict)
    configs: dict[str, Any] = dataclasses.field(default_factory=dict)

    def candidates(self, problem: Drawn, families: Iterable[str]) -> list[str]:
        found = []
        for text in itertools.chain.from_iterable(FAMILIES[name](problem) for name in families):
            if text not in self.configs:
                self.configs[text] = self.library.read(text)
            if self.configs[text] is not None:
                found.append(text)
        return found

    def compile_ahead(self, texts: Iterable[str]) -> None:
        for text in texts:
            if text not in self.futures:
                self.futures[text] = self.pool.submit(self.library.compile, self.configs[text])

    def measure(self, problem: Drawn, texts: list[str], clock: Any) -> dict[str, float]:
        """Milliseconds by config or peer; the finalists' are of the second run."""
        from attention_inputs import Inputs
        from gpu_clock import medians

        good = [text for text in texts if self.futures[text].exception() is None]
        makers = {name: PEERS[name] for name in self.peers}
        makers.update({text: self.library.maker(self.configs[text]) for text in good})
        runs, reasons = prepare(Inputs(problem), makers)
        for name, reason in reasons.items():
            if "WRONG" in reason or name == "kjit":
                print(f"{problem}: {name}: {reason}")
        first = medians(clock.rounds(runs, FEW_ROUNDS))
        best = sorted((name for name in first if name not in self.peers), key=lambda name: first[name])[:FINALISTS]
        names = [*best, *(name for name in self.peers if name in runs)]
        second = medians(clock.rounds({name: runs[name] for name in names}, self.rounds))
        return {**first, **second}


def short_name(text: str) -> str:
    """A config without what every candidate of a problem has."""
    left_out = ("dtype", "cache", "head_dim", "head_dim_v", "causal", "rescale_slack", "softcap", "one_part")
    family, _, fields = text.partition(" ")
    kept = [field for field in fields.split(",") if field.split("=")[0] not in left_out]
    return " ".join([family.removeprefix("attention_"), *kept]) if fields else text


def show(problem: Drawn, times: dict[str, float], most: int = 9) -> None:
    peers = {name: time for name, time in times.items() if name in PEERS and name != "kjit"}
    best = min(peers.values(), default=float("nan"))
    told = ", ".join(f"{name} {1e3 * time:.1f}" for name, time in sorted(peers.items()))
    chosen = times.get("kjit", float("nan"))
    print(f"{problem}: kjit {1e3 * chosen:.1f} ({best / chosen:.2f}); {told}")
    others = sorted((time, name) for name, time in times.items() if name not in PEERS)
    for milliseconds, name in others[:most]:
        print(f"    {1e3 * milliseconds:8.1f} ({best / milliseconds:.2f}) {short_name(name)}")


def of_race(path: Path, below: float) -> Iterator[Drawn]:
    """The problems of a race where kjit has less than `below` of the best peer's speed, the worst first."""
    found = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            times = {name: _number(row.get(name)) for name in PEERS}
            ours, others = times.pop("kjit"), [time for time in times.values() if time]
            if ours and others and min(others) / ours < below:
                found.append((min(others) / ours, _problem(row)))
    return (problem for _, problem in sorted(found, key=lambda each: each[0]))


def _number(text: Optional[str]) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _problem(row: dict[str, str]) -> Drawn:
    sizes = ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim")
    numbers = {name: int(row[name]) for name in sizes}
    causal = row["causal"] in ("True", "1", "causal")
    rest = {name: row[name] for name in ("dtype", "layout", "use")}
    return Drawn(**numbers, head_dim_v=numbers["head_dim"], causal=causal, **rest)  # type: ignore[arg-type]


def of_text(text: str) -> Drawn:
    names = "use", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "causal", "dtype", "layout"
    values = text.split()
    if len(values) != len(names):
        raise argparse.ArgumentTypeError(f"{text!r}: {len(names)} words are expected: {' '.join(names)}")
    return _problem(dict(zip(names, values)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--race", type=Path, action="append", default=[], help="an attention_race.csv")
    parser.add_argument("--below", type=float, default=1.0, help="of a race: those below this (1.0)")
    parser.add_argument("--problem", type=of_text, action="append", default=[], help="ten words, see above")
    parser.add_argument("--problems", type=Path, help="a file of such lines")
    parser.add_argument("--families", type=words(FAMILIES), default=list(FAMILIES), help=",".join(FAMILIES))
    parser.add_argument("--peers", type=words(PEERS), default=list(PEERS_OF_A_RACE), help=",".join(PEERS_OF_A_RACE))
    parser.add_argument("--rounds", type=int, default=MORE_ROUNDS, help=f"of the fastest ({MORE_ROUNDS})")
    parser.add_argument("--seconds", type=float, default=240, help="begin no problem after this (240)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of attention_candidates.csv")
    return parser.parse_args()


def main() -> int:
    started, arguments = time.monotonic(), parse()
    find_package()
    import torch

    if not torch.cuda.is_available():
        print("attention_candidates.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    import gpu_clock

    arguments.out.mkdir(parents=True, exist_ok=True)
    problems = [*arguments.problem, *itertools.chain.from_iterable(of_race(p, arguments.below) for p in arguments.race)]
    if arguments.problems:
        problems += [of_text(line) for line in arguments.problems.read_text().splitlines() if line.strip()]
    torch.zeros(1, device="cuda")
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    sweep = Sweep(Library(), pool, arguments.rounds, arguments.peers)
    texts = {problem: sweep.candidates(problem, arguments.families) for problem in problems}
    for each in texts.values():
        sweep.compile_ahead(each)
    clock, rows = gpu_clock.Clock(), []
    for index, (problem, each) in enumerate(texts.items()):
        if time.monotonic() - started > arguments.seconds:
            print(f"{len(texts) - index} problems left out: time was up")
            break
        times = sweep.measure(problem, each, clock)
        show(problem, times)
        print(f"    {time.monotonic() - started:.0f} s, {len(each)} candidates", flush=True)
        rows += [[str(problem), name, f"{1e3 * milliseconds:.2f}"] for name, milliseconds in times.items()]
    pool.shutdown(cancel_futures=True)
    write_csv(arguments.out / "attention_candidates.csv", ["problem", "config", "us"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
