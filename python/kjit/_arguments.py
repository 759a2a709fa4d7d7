"""A call's arguments as the library takes them, from any framework's tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from . import _abi

#: Memory layouts of (batch, seq, heads, head_dim): where each axis stands in the caller's tensors.
LAYOUTS = {"bshd": (0, 1, 2, 3), "bhsd": (0, 2, 1, 3)}


class View(NamedTuple):
    """A tensor, whoever owns it. dtype is a kjit_dtype, device a CUDA ordinal or KJIT_DEVICE_HOST."""

    data: int
    dtype: int
    device: int
    shape: Sequence[int]
    strides: Sequence[int]


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


def _scaled(kind: Any, scale: Optional[float], causal: bool, layout: str) -> Any:
    """A struct of arguments with everything but its tensors."""
    require_layout(layout)
    if scale is not None and scale == 0:
        raise ValueError("scale is 0: must be positive, or None for 1/sqrt(head_dim)")
    flags = _abi.KJIT_ATTENTION_CAUSAL if causal else 0
    try:
        return kind(struct_size=ctypes.sizeof(kind), scale=scale or 0.0, flags=flags)
    except TypeError:
        raise TypeError(f"scale is {scale!r}: must be a number, or None for 1/sqrt(head_dim)") from None


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
    args = _scaled(_abi.kjit_attention_args, scale, causal, layout)
    axes = LAYOUTS[layout]
    args.q, args.k, args.v, args.o = (_tensor(view, axes) for view in (q, k, v, o))
    if lse is not None:
        args.lse = _tensor(lse, (0, 1, 2))
    return args


#: The tensors of a backward call that have q's axes; the others have lse's.
WIDE = ("q", "k", "v", "o", "dout", "dq", "dk", "dv")


def build_backward(
    views: dict[str, Optional[View]], *, scale: Optional[float], causal: bool, layout: str
) -> Any:
    """A kjit_attention_backward_args of tensors by their names in it; None: not given, or not wanted."""
    args = _scaled(_abi.kjit_attention_backward_args, scale, causal, layout)
    for name, view in views.items():
        if view is not None:
            setattr(args, name, _tensor(view, LAYOUTS[layout] if name in WIDE else (0, 1, 2)))
    return args
