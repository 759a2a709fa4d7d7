#!/usr/bin/env python3
"""Times attention variants of kjit beside its own causal attention, FlexAttention and FlashAttention-3, in one run.

A row is a variant at one head size and length, 16k tokens, heads * head_dim = 2048. Each peer's output is checked
beside float64 on sampled rows before anything is timed; a peer that is wrong is not timed. All variants and peers of a
head size and length are timed interleaved, in new random orders, L2 flushed before each call, medians count. It is the
GPU's time alone, as in attention_peers.py, and holds what kjit runs before the attention kernel to find blocks.
FlexAttention goes through torch.compile, and its block masks are made beforehand and not timed.

Compiling is most of a run. Each head size and length has a process of its own, and all processes compile side by side;
then they time one after the other, while nobody else uses the GPU. --serial does all in this process. What
FlexAttention has not compiled when the timing has to begin is left out and named; kjit is timed all the same.

TFLOP/s count attended pairs. "per block" is the time of a visited block of 128 by 128 scores beside that of dense
causal attention, 1 where they are equal, above 1 where the variant is faster: it says what a variant's functions cost,
whatever share of its blocks' scores is attended.

Writes variant_peers.csv, .md and .png into DIR; --from makes the last two again of a CSV file, without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Optional

from tables import find_package, markdown, number, pyplot, read_csv, save_figure, wrapped, words, write_csv

TOKENS, WIDTH, BLOCK = 16384, 2048, 128
WINDOW, CAP, DOCUMENTS, ROWS_CHECKED, BATCHES_CHECKED = 1024, 30.0, 12, 48, 1
CELLS = [(head_dim, length) for head_dim in (64, 128, 256) for length in (4096, 16384)]
SECONDS_OF_A_TURN = 1.5  # least, kept free for the timing of a size
SECONDS_OF_CHECKS = 3.0  # kept free behind FlexAttention's compiles, for kjit's first calls
SPARSITY = 4  # one block of keys of so many is seen, and the diagonal
PEERS = ("kjit", "Flex", "FA3")


class Inputs:
    """q, k, v as (batch, seq, heads, head_dim), and what the variants capture."""

    def __init__(self, head_dim: int, length: int) -> None:
        import torch

        torch.manual_seed(length + head_dim)
        heads, batch = WIDTH // head_dim, max(1, TOKENS // length)
        shape, card = (batch, length, heads, head_dim), {"device": "cuda"}
        self.q, self.k, self.v = (torch.randn(shape, dtype=torch.bfloat16, **card) for _ in range(3))
        self.bhsd = [tensor.transpose(1, 2) for tensor in (self.q, self.k, self.v)]
        self.head_dim, self.length, self.heads, self.batch = head_dim, length, heads, batch
        self.slopes = torch.exp2(-(torch.arange(heads, **card) + 1.0) * 8 / heads)
        self.document = (torch.arange(length, **card) * DOCUMENTS // length).to(torch.int32)
        first = torch.searchsorted(self.document, torch.arange(DOCUMENTS, dtype=torch.int32, **card))
        self.start = first.to(torch.int32)
        self.bias = torch.randn((1, 1, length, length), dtype=torch.bfloat16, **card)
        count = length // BLOCK
        self.allowed = (torch.rand((count, count), **card) < 1 / SPARSITY) | torch.eye(count, **card).bool()
        self.rows = torch.randperm(length, **card)[:ROWS_CHECKED]

    def empty_out(self) -> Any:
        import torch

        return torch.empty_like(self.q)

    def block_mask(self) -> Any:
        """FlexAttention's lists of the blocks that are allowed, all of them full."""
        import torch
        from torch.nn.attention.flex_attention import BlockMask

        counts = self.allowed.sum(1, dtype=torch.int32)[None, None]
        order = self.allowed.to(torch.int8).argsort(dim=1, descending=True, stable=True).to(torch.int32)[None, None]
        none = torch.zeros_like(counts), torch.zeros_like(order)
        return BlockMask.from_kv_blocks(*none, counts, order.contiguous(), BLOCK_SIZE=BLOCK)


@dataclasses.dataclass(frozen=True)
class Variant:
    """One variant: what kjit is given, the mask and the score function as torch computes them, and peers' options."""

    name: str
    kjit: Callable[[Inputs], dict[str, Any]]
    mask: Optional[Callable[..., Any]] = None  # (inputs, q, k) -> bool tensor
    score: Optional[Callable[..., Any]] = None  # (inputs, score, h, q, k) -> tensor
    fa3: Optional[dict[str, Any]] = None
    tolerance: int = 2
    flex: bool = True
    lists: bool = False  # FlexAttention's mask is Inputs.block_mask(), not made of `mask`


def _seen_causal(inputs: Inputs, q: Any, k: Any) -> Any:
    return q >= k


def _seen_window(inputs: Inputs, q: Any, k: Any) -> Any:
    return (q - k < WINDOW) & (q >= k)


def _seen_prefix(inputs: Inputs, q: Any, k: Any) -> Any:
    return (k < inputs.length // 4) | (q >= k)


def _seen_document(inputs: Inputs, q: Any, k: Any) -> Any:
    return inputs.document[q] == inputs.document[k]


def _seen_causal_document(inputs: Inputs, q: Any, k: Any) -> Any:
    return (inputs.document[q] == inputs.document[k]) & (q >= k)


def _seen_chunk(inputs: Inputs, q: Any, k: Any) -> Any:
    return (q // WINDOW == k // WINDOW) & (q >= k)


def _seen_blocks(inputs: Inputs, q: Any, k: Any) -> Any:
    return inputs.allowed[q // BLOCK, k // BLOCK]


def _alibi(inputs: Inputs, score: Any, h: Any, q: Any, k: Any) -> Any:
    return score + inputs.slopes[h] * (k - q)


def _softcap(inputs: Inputs, score: Any, h: Any, q: Any, k: Any) -> Any:
    return CAP * (score / CAP).tanh()


def _bias(inputs: Inputs, score: Any, h: Any, q: Any, k: Any) -> Any:
    return score + inputs.bias[0, 0][q, k]


DOCUMENT_BOUNDS = "k >= start[doc[q]] and q >= k"
VARIANTS = (
    Variant("causal, dense", lambda i: {"causal": True}, _seen_causal, fa3={"causal": True}),
    Variant("window", lambda i: {"mask": "q - k < window and q >= k", "params": {"window": WINDOW}}, _seen_window,
            fa3={"causal": True, "window_size": (WINDOW - 1, 0)}),
    Variant("window, member", lambda i: {"causal": True, "window": (WINDOW - 1, 0)}, _seen_window, flex=False),
    Variant("prefix", lambda i: {"mask": "k < prompt or q >= k", "params": {"prompt": i.length // 4}}, _seen_prefix),
    Variant("documents, causal", lambda i: {"mask": DOCUMENT_BOUNDS, "tensors": {"doc": i.document, "start": i.start}},
            _seen_causal_document),
    Variant("documents, lists", lambda i: {"mask": "doc[q] == doc[k]", "tensors": {"doc": i.document}}, _seen_document),
    Variant("chunk", lambda i: {"causal": True, "attention_chunk": WINDOW}, _seen_chunk,
            fa3={"causal": True, "attention_chunk": WINDOW}),
    Variant("ALiBi", lambda i: {"score": "score + slope[h] * (k - q)", "tensors": {"slope": i.slopes}, "causal": True},
            _seen_causal, _alibi),
    Variant("ALiBi, member", lambda i: {"alibi_slopes": i.slopes, "causal": True}, _seen_causal, _alibi, flex=False),
    Variant("softcap", lambda i: {"softcap": CAP, "causal": True}, _seen_causal, _softcap, tolerance=3,
            fa3={"causal": True, "softcap": CAP}),
    Variant("bias", lambda i: {"bias": i.bias, "causal": True}, _seen_causal, _bias),
    Variant("block-sparse", lambda i: {"blocks": i.block_mask()}, _seen_blocks, lists=True),
)  # fmt: skip


def rows_of(inputs: Inputs, variant: Variant, dtype: Any) -> Any:
    """The sampled rows of the first batch entries by plain arithmetic; (batch, heads, rows, head_dim)."""
    import torch

    q, k, v = (tensor[:BATCHES_CHECKED].to(dtype) for tensor in inputs.bhsd)
    rows, keys = inputs.rows[:, None], torch.arange(inputs.length, device=inputs.rows.device)[None]
    scores = (q[:, :, inputs.rows] @ k.transpose(-1, -2)) / inputs.head_dim**0.5
    wide = scores if dtype == torch.float64 else scores.float()
    if variant.score is not None:
        heads = torch.arange(inputs.heads, device=rows.device)[:, None, None]
        wide = variant.score(inputs, wide, heads, rows, keys)
    if variant.mask is not None:
        wide = wide.masked_fill(~variant.mask(inputs, rows, keys), -torch.inf)
    return wide.softmax(-1).to(dtype) @ v


def check(inputs: Inputs, variant: Variant, out: Any, exact: Any, allowed: float) -> None:
    error = (out[:BATCHES_CHECKED].transpose(1, 2)[:, :, inputs.rows].double() - exact).abs().max().item()
    if not error <= allowed:
        raise ValueError(f"WRONG: error {error:.3g}, allowed {allowed:.3g}")


def count_pairs(inputs: Inputs, variant: Variant) -> tuple[int, int]:
    """Attended pairs of one head, and pairs in blocks of 128 by 128 of which some pair is attended."""
    import torch

    attended, visited = 0, 0
    keys = torch.arange(inputs.length, device=inputs.rows.device)[None]
    for first in range(0, inputs.length, 2048):
        rows = torch.arange(first, min(first + 2048, inputs.length), device=keys.device)[:, None]
        seen = variant.mask(inputs, rows, keys) if variant.mask else torch.ones_like(rows * keys, dtype=torch.bool)
        attended += int(seen.sum())
        blocks = seen.view(-1, BLOCK, inputs.length // BLOCK, BLOCK).any(3).any(1)
        visited += int(blocks.sum()) * BLOCK * BLOCK
    return attended, visited


def make_kjit(inputs: Inputs, variant: Variant) -> Callable[[], Any]:
    import kjit

    out, options = inputs.empty_out(), variant.kjit(inputs)
    return lambda: kjit.attention(inputs.q, inputs.k, inputs.v, out=out, **options)


_flex_compiled: Any = None


def make_flex(inputs: Inputs, variant: Variant) -> Callable[[], Any]:
    """Through torch.compile; its mask is made beforehand and not timed."""
    global _flex_compiled
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if not variant.flex:
        raise NotImplementedError("left out")
    torch._dynamo.config.recompile_limit = 1000
    _flex_compiled = _flex_compiled or torch.compile(flex_attention, dynamic=False)
    if variant.lists:
        mask = inputs.block_mask()
    else:
        mask = create_block_mask(lambda b, h, q, k: variant.mask(inputs, q, k), None, None, inputs.length,
                                 inputs.length, device="cuda")  # fmt: skip
    change = None if variant.score is None else lambda s, b, h, q, k: variant.score(inputs, s, h, q, k)
    return lambda: _flex_compiled(*inputs.bhsd, score_mod=change, block_mask=mask).transpose(1, 2)


def make_fa3(inputs: Inputs, variant: Variant) -> Callable[[], Any]:
    if variant.fa3 is None:
        raise NotImplementedError("left out")
    import importlib

    for module in ("fa3ref_interface", "flash_attn_interface"):
        try:
            function = importlib.import_module(module).flash_attn_func
            break
        except ImportError:
            continue
    else:
        raise NotImplementedError("there is no FlashAttention-3")

    def run() -> Any:
        result = function(inputs.q, inputs.k, inputs.v, **(variant.fa3 or {}))
        return result[0] if isinstance(result, tuple) else result

    return run


MAKERS = {"kjit": make_kjit, "Flex": make_flex, "FA3": make_fa3}


@dataclasses.dataclass
class Row:
    head_dim: int
    length: int
    variant: str
    attended: int  # pairs of all heads
    visited: int
    milliseconds: dict[str, float]

    def rate(self, peer: str) -> Optional[float]:
        time_ms = self.milliseconds.get(peer)
        return 4e-9 * self.head_dim * self.attended / time_ms if time_ms else None


@dataclasses.dataclass
class Prepared:
    """A head size and length: rows without times, functions that are right, and why others are missing."""

    rows: list[Row]
    runs: dict[tuple[str, str], Callable[[], Any]]
    reasons: dict[str, str]

    def time(self, rounds: int, until: float) -> list[Row]:
        import gpu_clock

        clock = gpu_clock.Clock()
        times = gpu_clock.medians(clock.rounds(self.runs, rounds, until=until))
        for row in self.rows:
            row.milliseconds = {peer: times[row.variant, peer] for peer in PEERS if (row.variant, peer) in times}
        return self.rows


def _compile_ahead(inputs: Inputs, variants: list[Variant]) -> None:
    """kjit's kernels, while this process's interpreter is busy with FlexAttention. Faults show again at the check."""
    import torch

    def first_call(variant: Variant) -> None:
        torch.cuda.set_device(0)
        try:
            make_kjit(inputs, variant)()
        except Exception:  # noqa: S110
            pass

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(first_call, variants))


@contextlib.contextmanager
def within(until: float) -> Iterator[None]:
    """Raises TimeoutError in what is done inside, at `until` of time.monotonic(). The main thread."""

    def stop(signal_number: int, frame: Any) -> None:
        raise TimeoutError("it was not ready when the timing had to begin")

    left = until - time.monotonic()
    if left <= 0:
        stop(0, None)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        # Again and again, because compilers swallow exceptions in places.
        signal.setitimer(signal.ITIMER_REAL, left if left < math.inf else 0, 0.5)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _prepare_variant(inputs: Inputs, variant: Variant, peers: list[str], until: float, prepared: Prepared) -> None:
    import torch

    exact = rows_of(inputs, variant, torch.float64)
    rounded = rows_of(inputs, variant, torch.bfloat16).double()
    allowed = (variant.tolerance * (rounded - exact).abs().max() + exact.abs().max() * 2**-7).item()
    for peer in peers:
        try:
            with within(until) if peer == "Flex" else contextlib.nullcontext():
                run = MAKERS[peer](inputs, variant)
                check(inputs, variant, run(), exact, allowed)
            prepared.runs[variant.name, peer] = run
        except Exception as error:  # whatever a peer raises is why it is not in the table
            if "left out" not in str(error):
                where = f"{peer}, {variant.name}, hd{inputs.head_dim} {inputs.length}"
                prepared.reasons[where] = str(error).strip()[:160]
    attended, visited = count_pairs(inputs, variant)
    heads = inputs.heads * inputs.batch
    prepared.rows.append(Row(inputs.head_dim, inputs.length, variant.name, attended * heads, visited * heads, {}))


def prepare(cell: tuple[int, int], names: list[str], peers: list[str], until: float) -> Prepared:
    """until: by when FlexAttention has to be compiled, in time.monotonic()."""
    inputs, prepared = Inputs(*cell), Prepared([], {}, {})
    variants = [variant for variant in VARIANTS if variant.name in names]
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(_compile_ahead, inputs, variants if "kjit" in peers else [])
        for variant in variants:
            _prepare_variant(inputs, variant, sorted(peers, key="kjit".__eq__), until, prepared)
        ahead.result()
    return prepared


def _child(pipe: Any, cell: tuple[int, int], names: list[str], peers: list[str], rounds: int, until: float) -> None:
    """A process of one head size and length: prepares, says so, waits for its turn, times, tells."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    find_package()
    prepared = prepare(cell, names, peers, until)
    pipe.send("ready")
    pipe.send((prepared.time(rounds, pipe.recv()), prepared.reasons))
    os._exit(0)  # without the seconds that the interpreter takes to give everything back


def measure_in_processes(cells: list[Any], names: list[str], peers: list[str], rounds: int, end: float,
                         reasons: dict[str, str]) -> list[Row]:  # fmt: skip
    context, children, rows = multiprocessing.get_context("spawn"), [], []
    started = time.monotonic()
    ready_by = end - SECONDS_OF_A_TURN * len(cells)
    until = ready_by - SECONDS_OF_CHECKS
    for cell in cells:
        ours, theirs = context.Pipe()
        process = context.Process(target=_child, args=(theirs, cell, names, peers, rounds, until), daemon=True)
        process.start()
        theirs.close()
        children.append((cell, process, ours))
    ready = []
    for cell, process, pipe in children:
        try:
            if not pipe.poll(max(0.0, ready_by - time.monotonic())):
                raise EOFError
            pipe.recv()
            ready.append((cell, pipe))
        except EOFError:
            reasons[f"kjit, hd{cell[0]} {cell[1]}"] = "its process ended, or was not ready in time"
            process.kill()
    print(f"{time.monotonic() - started:5.0f} s  {len(ready)} sizes prepared", file=sys.stderr, flush=True)
    for index, (cell, pipe) in enumerate(ready):
        now = time.monotonic()
        pipe.send(now + max(1.0, end - now) / (len(ready) - index))
        try:
            found, why = pipe.recv()
            rows += found
            reasons.update(why)
        except EOFError:
            reasons[f"kjit, hd{cell[0]} {cell[1]}"] = "its process ended"
    return rows


def per_block(row: Row, rows: list[Row]) -> Optional[float]:
    """A visited block's speed beside that of dense causal attention of the same size."""
    size = (row.head_dim, row.length)
    dense = next((r for r in rows if (r.head_dim, r.length) == size and r.variant == VARIANTS[0].name), None)
    if dense is None or "kjit" not in dense.milliseconds or "kjit" not in row.milliseconds:
        return None
    return dense.milliseconds["kjit"] / dense.visited * row.visited / row.milliseconds["kjit"]


def _over(row: Row, peer: str) -> str:
    if peer not in row.milliseconds or "kjit" not in row.milliseconds:
        return "—"
    return f"{row.milliseconds[peer] / row.milliseconds['kjit']:.2f}"


def table(rows: list[Row]) -> str:
    head = ["hd, length, variant", "kjit ms", "TFLOP/s", "per block", "Flex", "FA3", "kjit / Flex", "kjit / FA3"]
    body = [
        [
            f"{row.head_dim} {row.length} {row.variant}",
            number(row.milliseconds.get("kjit"), 3),
            number(row.rate("kjit")),
            number(per_block(row, rows), 2),
            number(row.rate("Flex")),
            number(row.rate("FA3")),
            _over(row, "Flex"),
            _over(row, "FA3"),
        ]
        for row in rows
    ]
    return markdown(head, body)


def draw(rows: list[Row], folder: Path, title: str) -> None:
    """A panel for each head size and length: what a visited block's speed is beside dense causal attention's.

    Nothing was measured: no plot.
    """
    if not rows:
        return
    sizes = sorted({(row.head_dim, row.length) for row in rows})
    figure, axes = pyplot().subplots(1, len(sizes), figsize=(3.2 * len(sizes), 4.2), squeeze=False, sharey=True)
    for axis, size in zip(axes[0], sizes):
        shown = [row for row in rows if (row.head_dim, row.length) == size][::-1]
        axis.barh([row.variant for row in shown], [per_block(row, rows) or 0 for row in shown])
        axis.axvline(0.97, color="0.4", linestyle="--", linewidth=1)
        axis.set_title(f"head dim {size[0]}, {size[1] // 1024}k", fontsize=10)
        axis.set_xlabel("speed of a visited block,\ncausal = 1", fontsize=8)
    figure.suptitle(title, fontsize=11)
    save_figure(figure, folder, "variant_peers")


MEMBERS = ("head_dim", "length", "variant", "attended", "visited")


def write(path: Path, rows: list[Row]) -> None:
    body = [[*(getattr(row, name) for name in MEMBERS), *(row.milliseconds.get(peer, "") for peer in PEERS)]
            for row in rows]  # fmt: skip
    write_csv(path, [*MEMBERS, *PEERS], body)


def read(path: Path) -> list[Row]:
    return [
        Row(int(line["head_dim"]), int(line["length"]), line["variant"], int(line["attended"]), int(line["visited"]),
            {peer: float(line[peer]) for peer in PEERS if line[peer]})
        for line in read_csv(path)
    ]  # fmt: skip


def finish(rows: list[Row], folder: Path, head: str, title: str) -> None:
    text = f"{wrapped(head)}\n\n{table(rows)}\n"
    print(text)
    (folder / "variant_peers.md").write_text(text, encoding="utf-8")
    try:
        draw(rows, folder, title)
    except ImportError as missing:
        print(f"variant_peers.py: no plot: {missing}", file=sys.stderr)


def parse(given: Optional[list[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cells = [f"{head_dim}x{length}" for head_dim, length in CELLS]
    parser.add_argument("--cells", type=words(cells), default=cells, help=",".join(cells))
    parser.add_argument("--variants", help="names of variants, with semicolons between (all)")
    parser.add_argument("--peers", type=words(PEERS), default=list(PEERS), help=",".join(PEERS))
    parser.add_argument("--seconds", type=float, default=90, help="what the whole run may take, about (90)")
    parser.add_argument("--rounds", type=int, default=20, help="at most (20)")
    parser.add_argument("--serial", action="store_true", help="one size after the other, in one process")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the results")
    parser.add_argument("--from", dest="source", type=Path, metavar="CSV", help="results to tell again")
    return parser.parse_args(given)


def run(arguments: argparse.Namespace, started: float) -> tuple[list[Row], dict[str, str]]:
    rows: list[Row] = []
    reasons: dict[str, str] = {}
    names = arguments.variants.split(";") if arguments.variants else [variant.name for variant in VARIANTS]
    cells = [tuple(map(int, cell.split("x"))) for cell in arguments.cells]
    end = started + arguments.seconds
    if not arguments.serial:
        return measure_in_processes(cells, names, arguments.peers, arguments.rounds, end, reasons), reasons
    for index, cell in enumerate(cells):
        now = time.monotonic()
        if now > end:
            reasons["time"] = f"{len(cells) - index} sizes were left out"
            break
        share = (end - now) / (len(cells) - index)
        prepared = prepare(cell, names, arguments.peers, now + share - SECONDS_OF_A_TURN - SECONDS_OF_CHECKS)
        rows += prepared.time(arguments.rounds, now + share)
        reasons.update(prepared.reasons)
        print(f"{time.monotonic() - started:5.0f} s  hd{cell[0]} {cell[1]}", file=sys.stderr, flush=True)
    return rows, reasons


def main() -> int:
    started, arguments = time.monotonic(), parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.source:
        finish(read(arguments.source), arguments.out, f"From {arguments.source.name}.", "from a file")
        return 0
    find_package()
    import torch

    import kjit

    if not torch.cuda.is_available():
        print("variant_peers.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    rows, reasons = run(arguments, started)
    write(arguments.out / "variant_peers.csv", rows)
    card = torch.cuda.get_device_name()
    head = f"{card}, bf16; PyTorch {torch.__version__}, kjit {kjit.__version__}. `bench/variant_peers.py`"
    finish(rows, arguments.out, head, card)
    for name, reason in sorted(reasons.items()):
        print(f"not measured  {name}: {reason}", file=sys.stderr)
    return 1 if not rows or any("kjit," in name for name in reasons) else 0


if __name__ == "__main__":
    sys.exit(main())
