"""Attention forward: o = softmax(scale · q kᵀ) v for each (batch, head), in fp32, rounded once."""

from __future__ import annotations

import sys
from typing import Any, Optional

from .runtime import Config

_torch: Any = None


def _is_torch(tensor: Any) -> bool:
    """PyTorch is imported by whoever made a tensor of it, never by this package."""
    global _torch
    if _torch is None and "torch" in sys.modules:
        from . import _backward  # noqa: F401 - registers the gradients of what _torch registers
        from . import _torch as module

        _torch = module
    return _torch is not None and isinstance(tensor, _torch.torch.Tensor)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: Optional[float] = None,
    causal: bool = False,
    layout: str = "bshd",
    out: Any = None,
    return_lse: bool = False,
    config: Optional[Config] = None,
) -> Any:
    """Attention on the current stream; asynchronous.

    q: (batch, seq_q, heads_q, head_dim), k: (batch, seq_kv, heads_kv, head_dim), v: (batch, seq_kv, heads_kv,
    head_dim_v), fp16 or bf16, taken by their strides: the last axis contiguous, the others multiples of 16 bytes. With
    layout="bhsd" heads and seq change places, in all of them and in the output.
    scale: softmax scale, None for 1/sqrt(head_dim). causal: row i sees keys up to i + seq_kv - seq_q. out: written in
    place of a new tensor. config: one of flash_forward's to use instead of the library's choice, or its short form.

    Returns the output, or with return_lse (output, lse): lse is ln sum exp(scale q k), fp32, (batch, heads_q, seq_q).
    PyTorch computes gradients of q, k and v, of output and lse, where one of them requires them; equal inputs give
    equal bits. A second derivative is a NotImplementedError.
    Unsupported, which is a NotImplementedError, says what cannot be computed on this GPU.
    PyTorch tensors, CuPy and JAX arrays, and any array with __dlpack__ where `out` is given.
    """
    if _is_torch(q):
        return _torch.attention(q, k, v, scale, causal, layout, out, return_lse, config)
    from . import _dlpack

    return _dlpack.attention(q, k, v, scale, causal, layout, out, return_lse, config)


def forward(kernel_cfg: Config, q: Any, k: Any, v: Any, o: Any = None) -> Any:
    """(batch, seq, heads, d_head) tensors, computed by exactly this config."""
    return attention(q, k, v, out=o, config=kernel_cfg)


def forward_timed(kernel_cfg: Optional[Config], q: Any, k: Any, v: Any, o: Any = None) -> tuple[Any, float]:
    """The same, timed: waits, and returns (output, milliseconds between two events around the kernel)."""
    if not _is_torch(q):
        raise TypeError(f"q is a {type(q).__name__}: forward_timed takes PyTorch tensors")
    result: tuple[Any, float] = _torch.forward_timed(q, k, v, o, kernel_cfg)
    return result


def plan(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """A call on these PyTorch tensors with everything looked up; options as of attention().

    plan.run() launches on the current stream and writes plan.out, and plan.lse with return_lse.
    """
    if not _is_torch(q):
        raise TypeError(f"q is a {type(q).__name__}: plan takes PyTorch tensors")
    return _torch.Plan(q, k, v, **options)
