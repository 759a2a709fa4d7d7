"""Times candidates for `kjit tune --family gemm.yaml --runner "python3 tune_runner.py"`, on a GPU with PyTorch.

Reads a line for each run, "time problem=... config=... cubin=PATH", and answers the microseconds of one product, or
"wrong" or "error" and a sentence. A candidate's first run checks it against float64. The timing is that of bench.py: a
CUDA graph of several calls that rotate among input sets larger than the L2; each line is one replay of it.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import torch

import bench
import gemm

WORDS = {
    "instruction": ["mma", "wgmma"],
    "a_layout": ["row", "column"],
    "b_layout": ["row", "column"],
    "epilogue": list(gemm.EPILOGUES),
    "dtype": gemm.DTYPES,
}


def pairs(text: str) -> dict[str, str]:
    return dict(item.split("=") for item in text.split(",") if item)


def read_config(text: str) -> gemm.Config:
    """The family's text as the example's own struct."""
    values: dict[str, Any] = {}
    for name, value in pairs(text).items():
        words = WORDS.get(name)
        if words is None:
            values[name] = int(value)
        else:
            values[name] = words[value] if isinstance(words, dict) else words.index(value)
    values["instruction"] = gemm.WGMMA if "instruction=wgmma" in text else gemm.MMA
    for name in ("a_layout", "b_layout"):
        values[name] = gemm.COLUMN if values[name] == 1 else gemm.ROW
    return gemm.Config(**values)


class Cubin(gemm.Kernel):
    """A kernel that was compiled by `kjit tune`."""

    def __init__(self, config: gemm.Config, path: str, driver: gemm.Driver) -> None:
        self.config = config
        self.artifact = types.SimpleNamespace(cubin=Path(path).read_bytes(), spill_bytes=0)
        self.load(driver)


class Candidate:
    """A config on a problem: checked, and a graph of several calls."""

    def __init__(self, setting: bench.Bench, config: gemm.Config, path: str, sets: list[Any], sizes: Any) -> None:
        m, n, k = sizes
        setting.kernels[config] = Cubin(config, path, setting.driver)
        one = sets[0]
        one.c.fill_(float("nan"))
        calls = bench.our_calls(setting, config, sets, m, n, k)
        calls[0]()
        torch.cuda.synchronize()
        self.error = bench.error_of(one, config.epilogue, 1.0) if m * n * k < 2**36 else 0.0
        self.right = self.error < bench.LIMIT[config.dtype]
        self.stream = torch.cuda.Stream()
        microseconds = max(1.0, m * n * k / 3.5e8)  # about what a product takes, so that a replay takes 2 ms
        count = max(1, min(64, int(2000 / microseconds)) // len(calls)) * len(calls)
        self.graph, self.count = torch.cuda.CUDAGraph(), count
        with torch.cuda.graph(self.graph, stream=self.stream):
            for i in range(count):
                calls[i % len(calls)]()

    def time(self) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.stream):
            start.record()
            self.graph.replay()
            end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1000 / self.count


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    setting = bench.Bench()
    known: dict[tuple[str, str], Candidate] = {}
    problem, sets, sizes = "", [], (0, 0, 0)
    for line in sys.stdin:
        words = dict(word.split("=", 1) for word in line.split()[1:])
        try:
            config = read_config(words["config"])
            if words["problem"] != problem:
                known.clear()
                given = pairs(words["problem"])
                problem, sizes = words["problem"], tuple(int(given[name]) for name in "mnk")
                sets = bench.input_sets(*sizes, config.dtype, config.a_layout, config.b_layout)
            candidate = known.get((problem, words["config"]))
            if candidate is None:
                candidate = known[problem, words["config"]] = Candidate(setting, config, words["cubin"], sets, sizes)
            answer = f"{candidate.time():.4f}" if candidate.right else f"wrong relative error {candidate.error:.1e}"
        except Exception as error:
            answer = "error " + " ".join(f"{type(error).__name__}: {error}".split())
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    main()
