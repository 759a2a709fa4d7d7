#!/usr/bin/env python3
"""Times attention forward of kjit beside its peers, interleaved in one run, and checks every result.

usage: attention_peers.py [--seconds S] [--out DIR] [--dtype bf16] [--head-dims 64,128,256] [--seqs 512,…]
                          [--masks full,causal] [--peers NAME,…] [--no-odd] [--rounds N]

The grid: 16k tokens, heads * head_dim = 2048; then odd sizes. Before anything is timed each peer's output is checked
beside float64 on sampled rows; a peer that is wrong is not timed. Each round times every peer once in a new random
order, the L2 cache flushed before each; the median of the rounds counts. FLOPs are 4 * batch * heads * seq_q * seq_kv *
head_dim, halved for causal. The matrix product is 8192^3 in the same run.

Writes attention_peers.csv, .md, .png and .svg into DIR (by default here).
"""

import argparse
import csv
import importlib
import math
import random
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent / "python", HERE.parent / "build" / "release" / "python"):  # a bundle's, the project's
    if (folder / "kjit" / "libkjit.so").exists():
        sys.path.insert(0, str(folder))

import torch  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import kjit  # noqa: E402

TOKENS = 16384
MODEL_WIDTH = 2048
# (batch, heads, seq_q, seq_kv, head_dim): what nobody tunes for.
ODD = [(3, 12, 1000, 1000, 80), (2, 16, 2047, 2047, 128), (1, 24, 4095, 4097, 64), (4, 8, 777, 3001, 96), (2, 10, 3000, 3000, 192)]
ROWS_CHECKED = 64
LEAST_ROUNDS = 5


class Cell:
    """One problem: sizes, inputs in (batch, seq, heads, head_dim), and float64 rows to check beside."""

    def __init__(self, batch, heads, seq_q, seq_kv, head_dim, causal, dtype):
        self.batch, self.heads, self.seq_q, self.seq_kv, self.head_dim = batch, heads, seq_q, seq_kv, head_dim
        self.causal, self.dtype = causal, dtype
        self.flops = 4 * batch * heads * seq_q * seq_kv * head_dim / (2 if causal else 1)

    def __str__(self):
        lengths = f"{self.seq_q}" if self.seq_q == self.seq_kv else f"{self.seq_q}x{self.seq_kv}"
        mask = "causal" if self.causal else "full"
        return f"hd{self.head_dim} {mask} {self.batch}x{self.heads}x{lengths}"

    def fill(self):
        torch.manual_seed(self.seq_q + self.head_dim)
        shape = {"device": "cuda", "dtype": self.dtype}
        self.q = torch.randn(self.batch, self.seq_q, self.heads, self.head_dim, **shape)
        self.k, self.v = (torch.randn(self.batch, self.seq_kv, self.heads, self.head_dim, **shape) for _ in range(2))
        self.bhsd = [tensor.transpose(1, 2) for tensor in (self.q, self.k, self.v)]
        self.rows = torch.randint(self.seq_q, (ROWS_CHECKED,), device="cuda")
        self.exact, rounded = self._rows_of(torch.float64), self._rows_of(self.dtype)
        scale = self.exact.abs().max() * torch.finfo(self.dtype).eps
        self.allowed = (2 * (rounded.double() - self.exact).abs().max() + scale).item()

    def _rows_of(self, dtype):
        """The sampled rows by plain arithmetic in a type; (batch, heads, rows, head_dim)."""
        q, k, v = (tensor.to(dtype) for tensor in self.bhsd)
        scores = (q[:, :, self.rows] @ k.transpose(-1, -2)) / math.sqrt(self.head_dim)
        if self.causal:
            last = self.rows[:, None] + self.seq_kv - self.seq_q
            scores = scores.masked_fill(torch.arange(self.seq_kv, device="cuda") > last, -torch.inf)
        wide = scores if dtype == torch.float64 else scores.float()
        return wide.softmax(-1).to(dtype) @ v

    def error(self, out):
        """The largest difference on the sampled rows; out is (batch, seq, heads, head_dim)."""
        return (out.transpose(1, 2)[:, :, self.rows].double() - self.exact).abs().max().item()


# Peers: NAME(cell) -> a function without arguments that returns the output as (batch, seq, heads, head_dim).


def peer_kjit(cell):
    out = torch.empty_like(cell.q)
    return lambda: kjit.attention(cell.q, cell.k, cell.v, causal=cell.causal, out=out)


def _sdpa(backend):
    def make(cell):
        if cell.causal and cell.seq_q != cell.seq_kv:
            raise NotImplementedError("its causal mask is aligned top left")

        def run():
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(*cell.bhsd, is_causal=cell.causal).transpose(1, 2)

        return run

    return make


_flex = None


def peer_flex(cell):
    """FlexAttention through torch.compile: one compilation per cell."""
    global _flex
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.config.recompile_limit = 1000
    _flex = _flex or torch.compile(flex_attention, dynamic=False)
    mask = None
    if cell.causal:
        offset = cell.seq_kv - cell.seq_q
        mask = create_block_mask(lambda b, h, i, j: j <= i + offset, None, None, cell.seq_q, cell.seq_kv, device="cuda")
    return lambda: _flex(*cell.bhsd, block_mask=mask).transpose(1, 2)


def peer_fa3(cell):
    function = importlib.import_module("flash_attn_interface").flash_attn_func
    return lambda: _first(function(cell.q, cell.k, cell.v, causal=cell.causal))


def peer_fa4(cell):
    function = importlib.import_module("flash_attn.cute").flash_attn_func
    return lambda: _first(function(cell.q, cell.k, cell.v, causal=cell.causal))


def peer_flashinfer(cell):
    prefill = importlib.import_module("flashinfer.prefill")
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    wrapper = prefill.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
    starts = [torch.arange(cell.batch + 1, dtype=torch.int32, device="cuda") * seq for seq in (cell.seq_q, cell.seq_kv)]
    heads = (cell.heads, cell.heads, cell.head_dim)
    wrapper.plan(*starts, *heads, causal=cell.causal, q_data_type=cell.dtype, kv_data_type=cell.dtype)
    q, k, v = (tensor.flatten(0, 1) for tensor in (cell.q, cell.k, cell.v))
    return lambda: wrapper.run(q, k, v).view(cell.q.shape)


def _first(result):
    return result[0] if isinstance(result, tuple) else result


PEERS = {
    "kjit": peer_kjit,
    "FA2": _sdpa(SDPBackend.FLASH_ATTENTION),
    "cuDNN": _sdpa(SDPBackend.CUDNN_ATTENTION),
    "efficient": _sdpa(SDPBackend.EFFICIENT_ATTENTION),
    "Flex": peer_flex,
    "FA3": peer_fa3,
    "FA4": peer_fa4,
    "FlashInfer": peer_flashinfer,
}


class Clock:
    """Times functions on the GPU by events, each run behind a flush of the L2 cache."""

    def __init__(self):
        size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
        self.flush = torch.empty(max(size, 1 << 20), dtype=torch.uint8, device="cuda")

    def enqueue(self, run):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flush.zero_()
        begin.record()
        run()
        end.record()
        return begin, end

    def round(self, runs):
        """One time in milliseconds for each of {name: run}, in random order."""
        names = random.sample(list(runs), len(runs))
        events = {name: self.enqueue(runs[name]) for name in names}
        torch.cuda.synchronize()
        return {name: begin.elapsed_time(end) for name, (begin, end) in events.items()}


def make_product():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def prepare(cell, names):
    """The peers that compute this cell rightly, and why the others do not."""
    runs, reasons = {}, {}
    for name in names:
        try:
            run = PEERS[name](cell)
            error = cell.error(run())
            if not error <= cell.allowed:  # so that NaN is wrong
                reasons[name] = f"WRONG: error {error:.3g}, allowed {cell.allowed:.3g}"
                continue
            run()
            runs[name] = run
        except torch.OutOfMemoryError:
            reasons[name] = "out of memory"
            torch.cuda.empty_cache()
        except Exception as error:  # noqa: BLE001: whatever a peer raises is why it is not in the table
            reasons[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error) else ''}"
    torch.cuda.synchronize()
    return runs, reasons


def measure(cell, names, clock, product, rounds, until):
    """{peer: median milliseconds}, the product's under "product", and the reasons of those without."""
    cell.fill()
    runs, reasons = prepare(cell, names)
    times = {name: [] for name in (*runs, "product")}
    clock.round({**runs, "product": product})
    for index in range(rounds):
        if index >= LEAST_ROUNDS and time.monotonic() > until:
            break
        for name, milliseconds in clock.round({**runs, "product": product} if index % 4 == 0 else runs).items():
            times[name].append(milliseconds)
    for tensor in ("q", "k", "v", "bhsd", "exact"):
        delattr(cell, tensor)
    return {name: statistics.median(each) for name, each in times.items() if each}, reasons


def cells_of(arguments):
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[arguments.dtype]
    cells = []
    for head_dim in arguments.head_dims:
        for mask in arguments.masks:
            for seq in arguments.seqs:
                batch = max(TOKENS // seq, 1)
                cells.append(Cell(batch, MODEL_WIDTH // head_dim, seq, seq, head_dim, mask == "causal", dtype))
    if arguments.odd:
        for sizes in ODD:
            cells += [Cell(*sizes, mask == "causal", dtype) for mask in arguments.masks]
    return cells


class Row:
    """What was measured of a cell, in TFLOP/s."""

    def __init__(self, cell, times, reasons):
        self.cell, self.reasons = cell, reasons
        self.product = 2 * 8192**3 / times.pop("product") / 1e9
        self.rates = {name: cell.flops / milliseconds / 1e9 for name, milliseconds in times.items()}
        others = {name: rate for name, rate in self.rates.items() if name != "kjit"}
        self.best = max(others, key=others.get, default=None)
        own = self.rates.get("kjit")
        self.ratio = own / others[self.best] if own and self.best else None
        self.fraction = own / self.product if own else None


def number(value, digits=0):
    return "—" if value is None else f"{value:.{digits}f}"


def table(rows, names):
    lines = [
        f"| problem (batch x heads x seq) | {' | '.join(names)} | kjit / best peer | of a matrix product |",
        f"| --- |{' ---: |' * (len(names) + 2)}",
    ]
    for row in rows:
        rates = (number(row.rates.get(name)) for name in names)
        beside = f"{number(row.ratio, 2)} ({row.best})" if row.ratio else "—"
        fraction = "—" if row.fraction is None else f"{100 * row.fraction:.0f} %"
        lines.append(f"| {row.cell} | {' | '.join(rates)} | {beside} | {fraction} |")
    return "\n".join(lines)


def summary(rows):
    ratios = [row.ratio for row in rows if row.ratio]
    if not ratios:
        return "kjit computed nothing that a peer computed too."
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    ahead = sum(ratio > 1 for ratio in ratios)
    return f"kjit over the best peer: geometric mean {mean:.3f}, ahead in {ahead} of {len(ratios)} problems."


def conditions(arguments):
    device = torch.cuda.get_device_properties(0)
    return (
        f"{device.name}, {arguments.dtype}, randn; PyTorch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"cuDNN {torch.backends.cudnn.version()}, kjit {kjit.__version__}. TFLOP/s, medians of interleaved rounds, L2 "
        f"flushed. `bench/attention_peers.py {' '.join(sys.argv[1:])}`"
    )


def write_csv(path, rows, names):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        head = ["batch", "heads", "seq_q", "seq_kv", "head_dim", "causal", "peer", "tflops", "matrix_product_tflops", "note"]
        writer.writerow(head)
        for row in rows:
            cell = row.cell
            sizes = [cell.batch, cell.heads, cell.seq_q, cell.seq_kv, cell.head_dim, int(cell.causal)]
            for name in names:
                rate = row.rates.get(name)
                shown = "" if rate is None else f"{rate:.1f}"
                writer.writerow([*sizes, name, shown, f"{row.product:.1f}", row.reasons.get(name, "")])


def plot(folder, rows, names, title):
    """One panel for each head size and mask: TFLOP/s over the sequence length."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    grid = [row for row in rows if row.cell.batch * row.cell.seq_q == TOKENS and row.cell.seq_q == row.cell.seq_kv]
    head_dims = sorted({row.cell.head_dim for row in grid})
    masks = sorted({row.cell.causal for row in grid})
    if not grid:
        return
    figure, axes = plt.subplots(
        len(masks), len(head_dims), figsize=(4.6 * len(head_dims), 3.6 * len(masks)), squeeze=False, sharey=True
    )
    colours = {name: f"C{index}" for index, name in enumerate(PEERS)}
    for line, causal in enumerate(masks):
        for column, head_dim in enumerate(head_dims):
            axis = axes[line][column]
            panel = [row for row in grid if row.cell.head_dim == head_dim and row.cell.causal == causal]
            for name in names:
                points = [(row.cell.seq_q, row.rates[name]) for row in panel if name in row.rates]
                if points:
                    style = {"linewidth": 2.4, "marker": "o"} if name == "kjit" else {"linewidth": 1.3, "marker": "."}
                    axis.plot(*zip(*points), label=name, color=colours[name], **style)
            axis.axhline(statistics.median(row.product for row in panel), color="0.7", linestyle="--", linewidth=1)
            axis.set_title(f"head dim {head_dim}, {'causal' if causal else 'full'}", fontsize=10)
            axis.set_xscale("log", base=2)
            axis.set_xticks([row.cell.seq_q for row in panel], [f"{row.cell.seq_q / 1024:g}k" for row in panel])
            axis.minorticks_off()
            axis.set_ylim(bottom=0)
            axis.grid(alpha=0.25)
            if column == 0:
                axis.set_ylabel("TFLOP/s")
            if line == len(masks) - 1:
                axis.set_xlabel("sequence length, 16k tokens")
    axes[0][0].legend(fontsize=8, frameon=False)
    figure.suptitle(f"{title}; dashed: 8192³ matrix product", fontsize=11)
    figure.tight_layout()
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"attention_peers.{suffix}", dpi=150)


def numbers(text):
    return [int(part) for part in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=220, help="what the whole run may take, about (220)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the results")
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--head-dims", type=numbers, default=[64, 128, 256])
    parser.add_argument("--seqs", type=numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--masks", type=lambda text: text.split(","), default=["full", "causal"])
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--no-odd", dest="odd", action="store_false", help="the grid alone")
    parser.add_argument("--rounds", type=int, default=30, help="at most, for each problem (30)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.peers if name not in PEERS]
    if unknown:
        parser.error(f"--peers: {', '.join(unknown)}: there are {', '.join(PEERS)}")
    return arguments


def main():
    started, arguments = time.monotonic(), parse()
    if not torch.cuda.is_available():
        print("attention_peers.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    arguments.out.mkdir(parents=True, exist_ok=True)
    clock, product, rows, left_out = Clock(), make_product(), [], 0
    cells = cells_of(arguments)
    for index, cell in enumerate(cells):
        now, end = time.monotonic(), started + arguments.seconds
        if now > end:
            left_out = len(cells) - index
            break
        times, reasons = measure(
            cell, arguments.peers, clock, product, arguments.rounds, now + (end - now) / (len(cells) - index)
        )
        rows.append(Row(cell, times, reasons))
        shown = ", ".join(f"{name} {rate:.0f}" for name, rate in rows[-1].rates.items())
        print(f"{time.monotonic() - started:5.0f} s  {cell}: {shown}", file=sys.stderr, flush=True)
    names = [name for name in arguments.peers if any(name in row.rates for row in rows)]
    reasons = {f"{name}: {reason}" for row in rows for name, reason in row.reasons.items()}
    text = "\n\n".join([conditions(arguments), table(rows, names), summary(rows)])
    if left_out:
        text += f"\n\n{left_out} problems were left out: the time was up."
    print(text)
    for reason in sorted(reasons):
        print(f"not measured  {reason}", file=sys.stderr)
    (arguments.out / "attention_peers.md").write_text(text + "\n")
    write_csv(arguments.out / "attention_peers.csv", rows, arguments.peers)
    plot(arguments.out, rows, names, f"Attention forward, {torch.cuda.get_device_name()}, {arguments.dtype}")
    return 1 if any("WRONG" in reason for reason in reasons if reason.startswith("kjit")) else 0


if __name__ == "__main__":
    sys.exit(main())
