"""A call's arguments as the library takes them, from any framework's tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from . import _abi
from ._library import struct

#: Memory layouts of (batch, seq, heads, head_dim): where each axis stands in the caller's tensors.
LAYOUTS = {"bshd": (0, 1, 2, 3), "bhsd": (0, 2, 1, 3)}

#: What the library computes beyond o = softmax(scale q kT) v with as many key heads as query heads.
CAUSAL = any(field[0] == "causal" for field in _abi.kjit_attention_args._fields_)
GROUPED_HEADS = False


class View(NamedTuple):
    """A tensor, whoever owns it. dtype is a kjit_dtype, device a CUDA ordinal or KJIT_DEVICE_HOST."""

    data: int
    dtype: int
    device: int
    shape: Sequence[int]
    strides: Sequence[int]


def not_computed(name: str, value: object, why: str = "") -> NotImplementedError:
    return NotImplementedError(f"{name}={value!r}: the library does not compute this yet{why}")


def require_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}: must be one of {', '.join(LAYOUTS)}")


def _tensor(view: View, axes: Sequence[int]) -> Any:
    """A kjit_tensor. The library judges it; what cannot even be written down is cut to the rank alone."""
    rank = len(view.shape)
    order = axes[:rank] if rank == len(axes) else range(min(rank, 4))
    return _abi.kjit_tensor(
        view.data,
        view.dtype,
        view.device,
        rank,
        0,
        (ctypes.c_int64 * 4)(*(view.shape[axis] for axis in order)),
        (ctypes.c_int64 * 4)(*(view.strides[axis] for axis in order)),
    )


def _require_computed(q: View, k: View, causal: bool, layout: str) -> None:
    if causal and not CAUSAL:
        raise not_computed("causal", causal)
    if GROUPED_HEADS or len(q.shape) != 4 or len(k.shape) != 4:
        return
    heads = LAYOUTS[layout][2]
    if k.shape[heads] != q.shape[heads] and k.shape[heads] and q.shape[heads] % k.shape[heads] == 0:
        raise not_computed(
            "heads of k and v", k.shape[heads], f" for {q.shape[heads]} query heads: repeat k and v for each group"
        )


def build(
    q: View,
    k: View,
    v: View,
    o: View,
    lse: Optional[View],
    *,
    scale: Optional[float],
    causal: bool,
    layout: str,
) -> Any:
    """A kjit_attention_args of these tensors, all in one layout; lse is (batch, heads, seq) in both."""
    require_layout(layout)
    _require_computed(q, k, causal, layout)
    if scale is not None and scale == 0:
        raise ValueError("scale is 0: must be positive, or None for 1/sqrt(head_dim)")
    axes = LAYOUTS[layout]
    args = struct(_abi.kjit_attention_args, scale=scale or 0.0)
    args.q, args.k, args.v, args.o = (_tensor(view, axes) for view in (q, k, v, o))
    if lse is not None:
        args.lse = _tensor(lse, (0, 1, 2))
    if causal:
        args.causal = 1
    return args
