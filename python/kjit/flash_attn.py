"""FlashAttention's functions, by its signatures: `from kjit.flash_attn import flash_attn_func`.

What the library computes means what it means there; an argument that it does not compute is a NotImplementedError that
names it. `deterministic` concerns gradients: with it, or after torch.use_deterministic_algorithms(True), equal inputs
give equal bits.

The functions of ragged batches and caches read no length on the host, so that they can be captured into a CUDA graph.
docs/serving.md has their details.
"""

from __future__ import annotations

from typing import Any, Optional

from .attention import attention

_module: Any = None


def _serving() -> Any:
    """PyTorch is imported by whoever made a tensor of it, never by this package."""
    global _module
    if _module is None:
        from . import _serving as module

        _module = module
    return _module


def _not_computed(name: str, value: object) -> NotImplementedError:
    """value: what was given, of which a tensor is not shown."""
    given = name if hasattr(value, "shape") else f"{name}={value!r}"
    return NotImplementedError(f"{given}: kjit does not compute this yet")


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
    deterministic: bool,
    return_attn_probs: bool,
) -> Any:
    if dropout_p != 0.0:
        raise _not_computed("dropout_p", dropout_p)
    options: dict[str, Any] = {
        "deterministic": deterministic,
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
    return _forward(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    )


def _require_packed(name: str, tensor: Any, axes: int, count: int) -> None:
    """A tensor that has q, k and v, or k and v, along its third axis from the end."""
    shape = getattr(tensor, "shape", None)
    if shape is None:
        raise TypeError(f"{name} is a {type(tensor).__name__}: must be a tensor")
    if len(shape) != axes or shape[-3] != count:
        raise ValueError(f"{name} has shape {tuple(shape)}: must have {axes} axes, and {count} along axis {axes - 3}")


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
    _require_packed("kv", kv, 5, 2)
    k, v = kv[:, :, 0], kv[:, :, 1]
    return _forward(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    )


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
    _require_packed("qkv", qkv, 5, 3)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    return _forward(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    )


def _ragged(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: Optional[float],
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    alibi_slopes: Any,
    return_attn_probs: bool,
    block_table: Any = None,
) -> Any:
    if dropout_p != 0.0:
        raise _not_computed("dropout_p", dropout_p)
    if alibi_slopes is not None:
        raise _not_computed("alibi_slopes", alibi_slopes)
    serving = _module or _serving()
    found = serving.run(
        serving.VARLEN, (q, k, v, cu_seqlens_q, cu_seqlens_k, None, None),
        (softmax_scale, causal, tuple(window_size), 0, softcap, 0, 0, max_seqlen_q, False),
        block_table, None, None, return_attn_probs, None,
    )  # fmt: skip
    found = serving.without_gradients(found, q, k, v)
    return (*found, None) if return_attn_probs else found


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
) -> Any:
    """q: (total_q, heads_q, head_dim); k, v: (total_k, heads_kv, head_dim), or with block_table (blocks, block size,
    heads_kv, head_dim). cu_seqlens_q, cu_seqlens_k: (batch + 1), int32, on the device.

    Returns out, or (out, lse, None) with return_attn_probs; lse is (heads_q, total_q).
    """
    return _ragged(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, window_size,
        softcap, alibi_slopes, return_attn_probs, block_table,
    )  # fmt: skip


def flash_attn_varlen_kvpacked_func(
    q: Any,
    kv: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """kv: (total_k, 2, heads_kv, head_dim), read where it lies."""
    _require_packed("kv", kv, 4, 2)
    return _ragged(
        q, kv[:, 0], kv[:, 1], cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
        window_size, softcap, alibi_slopes, return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: Any,
    cu_seqlens: Any,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """qkv: (total, 3, heads, head_dim), read where it lies."""
    _require_packed("qkv", qkv, 4, 3)
    return _ragged(
        qkv[:, 0], qkv[:, 1], qkv[:, 2], cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale,
        causal, window_size, softcap, alibi_slopes, return_attn_probs,
    )  # fmt: skip


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Any = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """q: (batch, seq_q, heads_q, head_dim); k_cache, v_cache: (batch_c, positions, heads_kv, head_dim), or with
    block_table (blocks, block size, heads_kv, head_dim). k, v: appended at cache_seqlens first.

    Returns out, or (out, lse) with return_softmax_lse; lse is (batch, heads_q, seq_q).
    """
    if alibi_slopes is not None:
        raise _not_computed("alibi_slopes", alibi_slopes)
    serving = _module or _serving()
    return serving.run_cache(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, block_table,
        None, None, None, serving.NO_DESCALES,
        (softmax_scale, causal, tuple(window_size), 0, softcap, num_splits, 0, 0, rotary_interleaved),
        None, None, return_softmax_lse, None,
    )  # fmt: skip


def get_scheduler_metadata(*args: Any, **options: Any) -> Any:
    """flash_attn_interface.get_scheduler_metadata()."""
    from . import flash_attn_interface

    return flash_attn_interface.get_scheduler_metadata(*args, **options)


def flash_attn_combine(*args: Any, **options: Any) -> Any:
    """flash_attn_interface.flash_attn_combine()."""
    from . import flash_attn_interface

    return flash_attn_interface.flash_attn_combine(*args, **options)
