"""Random tensors of a problem on the GPU, and float64 rows to check an output beside."""

from __future__ import annotations

import torch

from attention_problems import Problem

DEVICE = "cuda"
ROWS_CHECKED = 64
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Inputs:
    """q, k, v as (batch, seq, heads, head_dim), and `bhsd`, views of them for those who want heads first."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.dtype = DTYPES[problem.dtype]
        torch.manual_seed(problem.seq_q + problem.head_dim)
        keys = (problem.batch, problem.seq_kv, problem.heads_kv)
        self.q = self._randn(problem.batch, problem.seq_q, problem.heads_q, problem.head_dim)
        self.k = self._randn(*keys, problem.head_dim)
        self.v = self._randn(*keys, problem.head_dim_v)
        self.bhsd = [tensor.transpose(1, 2) for tensor in (self.q, self.k, self.v)]
        self._rows = torch.randperm(problem.seq_q, device=DEVICE)[:ROWS_CHECKED]
        self._exact, rounded = self._attention_of_rows(torch.float64), self._attention_of_rows(self.dtype)
        scale = self._exact.abs().max() * torch.finfo(self.dtype).eps
        #: How far an output may be from float64: twice as far as 16-bit arithmetic, and one rounding.
        self.allowed: float = (2 * (rounded.double() - self._exact).abs().max() + scale).item()

    def _randn(self, batch: int, seq: int, heads: int, columns: int) -> torch.Tensor:
        """(batch, seq, heads, columns), in memory as the problem's layout says, if it has one."""
        if getattr(self.problem, "layout", "bshd") == "bshd":
            return torch.randn((batch, seq, heads, columns), device=DEVICE, dtype=self.dtype)
        return torch.randn((batch, heads, seq, columns), device=DEVICE, dtype=self.dtype).transpose(1, 2)

    def empty_out(self) -> torch.Tensor:
        problem = self.problem
        return self.q.new_empty(problem.batch, problem.seq_q, problem.heads_q, problem.head_dim_v)

    def _attention_of_rows(self, dtype: torch.dtype) -> torch.Tensor:
        """The sampled rows by plain arithmetic in a type; (batch, heads_q, rows, head_dim_v)."""
        p = self.problem
        q, k, v = (tensor.to(dtype) for tensor in (self.bhsd[0][:, :, self._rows], *self.bhsd[1:]))
        grouped = q.reshape(p.batch, p.heads_kv, -1, p.head_dim)  # the query heads of a key head, one after another
        scores = (grouped @ k.transpose(-1, -2)) / p.head_dim**0.5
        if p.causal:
            last = (self._rows + p.seq_kv - p.seq_q).repeat(p.heads_q // p.heads_kv)
            scores = scores.masked_fill(torch.arange(p.seq_kv, device=DEVICE) > last[:, None], -torch.inf)
        wide = scores if dtype == torch.float64 else scores.float()
        rows = wide.softmax(-1).to(dtype) @ v
        return rows.reshape(p.batch, p.heads_q, -1, p.head_dim_v)

    def error(self, out: torch.Tensor) -> float:
        """The largest difference on the sampled rows; out is (batch, seq, heads, head_dim)."""
        return (out.transpose(1, 2)[:, :, self._rows].double() - self._exact).abs().max().item()

    def is_right(self, error: float) -> bool:
        return error <= self.allowed  # not so for NaN
