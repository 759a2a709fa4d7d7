"""FlashAttention's functions, by its signatures: `from kjit.flash_attn import flash_attn_func`.

What the library computes means what it means there; an argument that it does not compute is a NotImplementedError that
names it. `deterministic` concerns the backward pass and changes nothing here.
"""

from __future__ import annotations

from typing import Any, Optional

from .attention import attention


def _not_computed(name: str, value: object) -> NotImplementedError:
    return NotImplementedError(f"{name}={value!r}: kjit does not compute this yet")


def _forward(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float,
    softmax_scale: Optional[float],
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    alibi_slopes: Any,
    return_attn_probs: bool,
) -> Any:
    if dropout_p != 0.0:
        raise _not_computed("dropout_p", dropout_p)
    options: dict[str, Any] = {
        "window": None if tuple(window_size) == (-1, -1) else window_size,
        "softcap": softcap,
        "alibi_slopes": alibi_slopes,
    }
    if not return_attn_probs:
        return attention(q, k, v, scale=softmax_scale, causal=causal, **options)
    out, lse = attention(q, k, v, scale=softmax_scale, causal=causal, return_lse=True, **options)
    return out, lse, None  # the probabilities exist only where there is dropout


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """q: (batch, seq_q, heads_q, head_dim); k, v: (batch, seq_kv, heads_kv, head_dim). causal is aligned bottom right.

    Returns out, or (out, lse, None) with return_attn_probs.
    """
    return _forward(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)


def flash_attn_kvpacked_func(
    q: Any,
    kv: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """kv: (batch, seq_kv, 2, heads, head_dim), read where it lies."""
    k, v = kv[:, :, 0], kv[:, :, 1]
    return _forward(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """qkv: (batch, seq, 3, heads, head_dim), read where it lies."""
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    return _forward(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)
