"""Attention forward: o = softmax(scale · q kᵀ) v for each (batch, head), in fp32, rounded once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Callable, Optional, Union

from . import variant as variants
from .runtime import Config

_torch: Any = None
_attention_variant: Any = None
_tensor: Any = None  # torch.Tensor, once PyTorch is there


def _is_torch(tensor: Any) -> bool:
    """PyTorch is imported by whoever made a tensor of it, never by this package."""
    global _torch, _attention_variant, _tensor
    if _torch is None and "torch" in sys.modules:
        from . import _backward  # noqa: F401 - registers the gradients of what _torch registers
        from . import _torch as module
        from . import _torch_variant

        _torch, _attention_variant, _tensor = module, _torch_variant.attention_variant, sys.modules["torch"].Tensor
    return _torch is not None and isinstance(tensor, _torch.torch.Tensor)


def _pair(window: Any) -> tuple[int, int]:
    if not hasattr(window, "__len__") or len(window) != 2:
        raise TypeError(f"window is {window!r}: must be (left, right)")
    left, right = window
    return left, right


def _require_tensors(**members: Any) -> None:
    for name, member in members.items():
        if member is not None and type(member) is not _tensor and not _is_torch(member):
            raise TypeError(f"{name} is a {type(member).__name__}: must be a PyTorch tensor")


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
    score_mod: Optional[Callable[..., Any]] = None,
    mask_mod: Optional[Callable[..., Any]] = None,
    score: Optional[str] = None,
    mask: Optional[str] = None,
    params: Optional[Mapping[str, Union[bool, int, float]]] = None,
    tensors: Optional[Mapping[str, Any]] = None,
    blocks: Any = None,
    sinks: Any = None,
    window: Optional[tuple[int, int]] = None,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    bias: Any = None,
    attention_chunk: int = 0,
    deterministic: bool = False,
) -> Any:
    """Attention on the current stream; asynchronous.

    q: (batch, seq_q, heads_q, head_dim), k: (batch, seq_kv, heads_kv, head_dim), v: (batch, seq_kv, heads_kv,
    head_dim_v), fp16 or bf16, taken by their strides: the last axis contiguous, the others multiples of 16 bytes. With
    layout="bhsd" heads and seq change places, in all of them and in the output.
    scale: softmax scale, None for 1/sqrt(head_dim). causal: row i sees keys up to i + seq_kv - seq_q. out: written in
    place of a new tensor. config: one of flash_forward's to use instead of the library's choice, or its short form.

    A variant of attention (docs/variants.md) is given by functions, score_mod(score, b, h, q, k) and
    mask_mod(b, h, q, k), or by texts, score="cap * tanh(score / cap)", mask="q - k <= window and q >= k", with the
    values of their names in params and tensors. blocks: a FlexAttention BlockMask whose lists say which blocks are
    visited. sinks: (heads_q) logits that take part in each row's sum and have no value.

    Plain members say the same without functions, and not beside them. window=(left, right): row i sees keys from
    i + seq_kv - seq_q - left to i + seq_kv - seq_q + right, -1 for no bound. attention_chunk: keys of the same multiple
    of this many. softcap: scores become softcap tanh(score / softcap). alibi_slopes: (heads_q) or (batch, heads_q).
    bias: added to the scaled scores, (batch, heads_q, seq_q, seq_kv), strides of 0 where it is broadcast.

    Returns the output, or with return_lse (output, lse): lse is ln sum exp(scale q k), fp32, (batch, heads_q, seq_q).
    PyTorch computes gradients of q, k and v, of output and lse, where one of them requires them. With deterministic, or
    after torch.use_deterministic_algorithms(True), equal inputs give gradients of equal bits; without it the last bits
    of q's may differ from run to run. A second derivative is a NotImplementedError.
    Unsupported, which is a NotImplementedError, says what cannot be computed on this GPU.
    PyTorch tensors, CuPy and JAX arrays, and any array with __dlpack__ where `out` is given.
    """
    functions = score_mod is not None or mask_mod is not None
    texts = score is not None or mask is not None or params is not None or tensors is not None
    if window is not None and (type(window) is not tuple or len(window) != 2):
        window = _pair(window)
    bounds: Optional[tuple[int, int]] = window
    if bounds == (-1, -1):
        bounds = None
    others = blocks is not None or sinks is not None or bounds is not None or alibi_slopes is not None
    has_members = others or bias is not None or softcap or attention_chunk
    if functions or texts or has_members:
        members: Optional[tuple[Any, ...]] = None
        said: Optional[tuple[Any, ...]] = None
        if has_members:
            members = blocks, sinks, bounds, softcap, alibi_slopes, bias, attention_chunk
        if functions or texts:
            variants.require_one_kind(score, mask, functions, params, tensors)
            said = (score, mask, score_mod, mask_mod, params, tensors)
        if type(q) is not _tensor and not _is_torch(q):
            given = "score and mask" if said is not None else variants.Members(*members or ()).names()
            raise NotImplementedError(f"{given}: kjit takes this with PyTorch tensors")
        if sinks is not None or alibi_slopes is not None or bias is not None:
            _require_tensors(sinks=sinks, alibi_slopes=alibi_slopes, bias=bias)
        return _attention_variant(q, k, v, scale, causal, layout, out, return_lse, config, said, members)
    if type(q) is _tensor or _is_torch(q):
        return _torch.attention(q, k, v, scale, causal, layout, out, return_lse, config, deterministic)
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
