"""kjit behind PyTorch's own names, for programs that are not changed.

    kjit.enable()                # scaled_dot_product_attention
    kjit.enable(flex=True)       # and flex_attention
    kjit.enable(transformers=True)  # and T5 of releases of transformers that compute its attention themselves
    kjit.disable()

PyTorch's attention chooses among its kernels, and flash attention and the memory-efficient kernel (which takes masks)
are operators whose CUDA kernels may be replaced, as other libraries do it. What kjit does not compute goes on to the
kernel that was there, and is counted.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from typing import Any, Callable, Optional

from .errors import Error

#: How many calls went where since enable(): "sdpa", "flex" and "transformers" by kjit, or the reason for which PyTorch
#: computed.
enabled_counts: Counter[str] = Counter()

_FORWARD = "_scaled_dot_product_flash_attention"
_BACKWARD = "_scaled_dot_product_flash_attention_backward"
_MASKED = "_scaled_dot_product_efficient_attention"

#: Where PyTorch keeps the kernels that are replaced.
_KEY = "CUDA"

_NAME = "kjit"


class _Refused(Exception):
    """A call that is for PyTorch, and why."""


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise _Refused(reason)


def _with_fallback(original: Optional[Any], compute: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that asks kjit first. It is given the dispatch keys, with which the original is called."""

    def kernel(keys: Any, *given: Any, **named: Any) -> Any:
        import torch

        try:
            with torch.no_grad():  # this is below autograd, but the tensors still say that they require gradients
                result = compute(*given, **named)
        except (_Refused, Error, NotImplementedError) as error:
            enabled_counts[str(error)] += 1
            if original is None:
                raise
            return original.call_boxed(keys, *given, **named)
        enabled_counts["sdpa"] += 1
        return result

    return kernel


def _causal_keys(query: Any, key: Any, value: Any, is_causal: bool) -> tuple[Any, Any]:
    """PyTorch's causal mask begins at the upper left: the keys behind the last query are seen by nobody."""
    if not is_causal or query.shape[2] == key.shape[2]:
        return key, value
    _require(query.shape[2] < key.shape[2], "causal attention with more queries than keys")
    return key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]


def _empty_as_sdpa(query: Any, value: Any) -> Any:
    """(batch, heads, seq, columns) in the memory order of the query, which is what the traced program expects."""
    import torch

    return torch.empty_like(query) if query.shape[-1] == value.shape[-1] else None


def _flash(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: Optional[float] = None,
) -> Any:
    import torch

    from . import _torch

    _require(dropout_p == 0.0, "dropout")
    _require(not return_debug_mask, "return_debug_mask")
    keys, values = _causal_keys(query, key, value, is_causal)
    out = _empty_as_sdpa(query, value)
    result, lse = _torch.attention(query, keys, values, scale, is_causal, "bhsd", out, True, None)
    state = torch.zeros(2, dtype=torch.uint64, device=query.device)
    nothing = query.new_empty((0,))
    return result, lse, None, None, query.shape[2], key.shape[2], state, state.new_empty(()), nothing


def _flash_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Any,
    philox_offset: Any,
    *,
    scale: Optional[float] = None,
) -> Any:
    from . import _backward

    _require(dropout_p == 0.0, "dropout")
    keys, values = _causal_keys(query, key, value, is_causal)
    wanted = [True, True, True]
    dq, dk, dv = _backward.backward(
        grad_out, None, query, keys, values, out, logsumexp, scale, is_causal, "bhsd", wanted
    )
    if keys is not key:
        dk, dv = (_padded(gradient, key.shape[2]) for gradient in (dk, dv))
    return dq, dk, dv


def _padded(gradient: Any, length: int) -> Any:
    """With zeros for the keys that no query sees."""
    import torch

    return torch.nn.functional.pad(gradient, (0, 0, 0, length - gradient.shape[2]))


def _masked(
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Optional[float] = None,
) -> Any:
    import torch

    from . import _torch_variant
    from .variant import NO_MEMBERS, Members

    _require(dropout_p == 0.0, "dropout")
    _require(not compute_log_sumexp, "gradients beside a mask")
    keys, values = _causal_keys(query, key, value, is_causal)
    members = NO_MEMBERS if attn_bias is None else Members(bias=attn_bias)
    out = _empty_as_sdpa(query, value)
    if attn_bias is None:
        from . import _torch

        result = _torch.attention(query, keys, values, scale, is_causal, "bhsd", out, False, None)
    else:
        result = _torch_variant.attention_variant(
            query, keys, values, scale, is_causal, "bhsd", out, False, None, None, members
        )
    nothing = query.new_empty((query.shape[0], query.shape[1], 0), dtype=torch.float32)
    state = torch.zeros((), dtype=torch.int64)
    return result, nothing, state, state.clone()


class _Doors:
    """The kernels that were put in the place of PyTorch's. remove() is what its registry of implementations calls."""

    def __init__(self) -> None:
        import torch

        from . import _backward, _torch_variant  # noqa: F401 - not during a first call, which may be captured

        if not hasattr(torch.library, "get_kernel"):
            raise NotImplementedError(f"PyTorch {torch.__version__} does not give its kernels away: 2.10 and later do")
        library: Any = torch.library.Library  # untyped in some releases
        self.library: Optional[Any] = library("aten", "IMPL")
        for name, compute in ((_FORWARD, _flash), (_BACKWARD, _flash_backward), (_MASKED, _masked)):
            try:
                original = torch.library.get_kernel(f"aten::{name}", _KEY)
            except RuntimeError:  # this PyTorch was built without it
                original = None
            self._put(name, _with_fallback(original, compute))

    def _put(self, name: str, kernel: Callable[..., Any]) -> None:
        """PyTorch warns of every kernel that replaces another, which is what enable() is asked for."""
        assert self.library is not None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"(?s).*Overriding a previously registered kernel", UserWarning)
            self.library.impl(name, kernel, _KEY, with_keyset=True, allow_override=True)

    def remove(self) -> None:
        if self.library is not None:
            self.library._destroy()
            self.library = None


# ---- FlexAttention's name ----

_replaced: list[tuple[Any, str, Any]] = []


def _flex_with_fallback(original: Callable[..., Any]) -> Callable[..., Any]:
    def flex_attention(query: Any, key: Any, value: Any, *given: Any, **named: Any) -> Any:
        from ._trace import TraceError
        from .flex import flex_attention as ours

        try:
            _require(query.is_cuda, "tensors that are not on a GPU")
            result = ours(query, key, value, *given, **named)
        except (_Refused, Error, NotImplementedError, TraceError) as error:
            enabled_counts[str(error)] += 1
            return original(query, key, value, *given, **named)
        enabled_counts["flex"] += 1
        return result

    return flex_attention


def _replace_flex() -> None:
    """Wherever the function was imported by its name."""
    from torch.nn.attention import flex_attention as module

    original = module.flex_attention
    ours = _flex_with_fallback(original)
    modules: list[tuple[str, Any]] = list(sys.modules.items())
    for name, user in modules:
        if name.partition(".")[0] != _NAME and getattr(user, "__dict__", {}).get("flex_attention") is original:
            _replaced.append((user, "flex_attention", original))
            user.flex_attention = ours


# ---- The two functions ----

_doors: Optional[_Doors] = None


def _open() -> _Doors:
    global _doors
    _doors = _Doors()
    return _doors


def enable(*, flex: bool = False, transformers: bool = False) -> None:
    """Compute PyTorch's attention by kjit in this process, until disable().

    scaled_dot_product_attention with fp16 and bf16 tensors of a GPU, also with a mask, and its gradients without one;
    with flex=True also torch.nn.attention.flex_attention.flex_attention, in every module that has imported it by now;
    with transformers=True also the attention of T5, MT5, UMT5, LongT5's decoder, Switch Transformers, UDOP and
    Pop2Piano where it is a part of the models' own forward(), as it is before transformers 5.15.
    What kjit does not compute goes on to PyTorch; kjit.enabled_counts says how often and why. Calling it again changes
    nothing but what `flex` and `transformers` add. Not thread-safe: call it before other threads compute attention.
    Raises NotImplementedError where PyTorch is too old to hand its kernels over (2.10 and later do).
    """
    import torch.nn.attention as place

    if _doors is None:
        enabled_counts.clear()
        if hasattr(place, "register_flash_attention_impl"):
            place.register_flash_attention_impl(_NAME, register_fn=_open)
            place.activate_flash_attention_impl(_NAME)
        else:
            _open()
    if flex and not _replaced:
        _replace_flex()
    if transformers:
        from . import transformers_inline

        transformers_inline.enable(enabled_counts)


def disable() -> None:
    """Give PyTorch its kernels and names back. Nothing happens where enable() was not called."""
    global _doors
    if _doors is not None:
        import torch.nn.attention as place

        restore = getattr(place, "restore_flash_attention_impl", None)
        current = getattr(place, "current_flash_attention_impl", None)
        if restore is not None and current is not None and current() == _NAME:
            restore()
        _doors.remove()
        _doors = None
    while _replaced:
        module, name, original = _replaced.pop()
        setattr(module, name, original)
    inline = sys.modules.get(f"{__package__}.transformers_inline")
    if inline is not None:
        inline.disable()


__all__ = ["disable", "enable", "enabled_counts"]
