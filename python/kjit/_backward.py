"""Attention's gradients on PyTorch tensors: the backward call, its operator, and what autograd does with it."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

import torch

from . import _abi, _cuda, _prepared, _torch
from ._arguments import View, build_backward
from ._library import raise_error, untyped
from .runtime import default_runtime

_backward = untyped("kjit_attention_backward")

# The library's rules for a 16-bit tensor: strides in elements and addresses in bytes are multiples of these.
_STRIDE_MULTIPLE, _ALIGNMENT = 8, 16

# Most batch entries of a backward call: they are an axis of its kernels' grids.
_BATCH_MAX = 65535


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a contiguous copy where the library cannot take its strides.

    Autograd makes gradients of any strides: those of a sum are all 0.
    """
    outer = (stride for stride, size in zip(tensor.stride()[:-1], tensor.shape[:-1]) if size > 1)
    last = tensor.shape[-1] == 1 or tensor.stride(-1) == 1
    if last and tensor.data_ptr() % _ALIGNMENT == 0 and all(stride % _STRIDE_MULTIPLE == 0 for stride in outer):
        return tensor
    return tensor.contiguous()


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _empty(tensor: torch.Tensor, wanted: bool) -> torch.Tensor:
    return torch.empty_like(tensor) if wanted else tensor.new_empty((0,))


def backward(
    dout: torch.Tensor,
    dlse: Optional[torch.Tensor],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    scale: Optional[float],
    causal: bool,
    layout: str,
    wanted: list[bool],
    deterministic: bool = False,
    set_variant: Optional[Callable[[Any], Any]] = None,
    reads: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk and dv on the current stream, new tensors; those that are not wanted are empty, and not computed.

    deterministic: equal inputs give equal bits, which torch.use_deterministic_algorithms() asks for too.
    set_variant puts a variant into the arguments and returns what must stay alive during the call; `reads` says that
    gradients of what its score function reads are among them.
    """
    gradients = tuple(_empty(tensor, want) for tensor, want in zip((q, k, v), wanted))
    if not any(wanted) and not reads:
        return gradients[0], gradients[1], gradients[2]
    if lse.numel() == 0 or k.numel() == 0:  # no pair of a query and a key
        for gradient in gradients:
            gradient.zero_()
        return gradients[0], gradients[1], gradients[2]
    if _torch.is_ragged(q, v):
        scale = _torch.scale_of(q, scale)
        pad = _torch.pad_columns
        found = backward(
            pad(dout), dlse, pad(q), pad(k), pad(v), pad(out), lse, scale, causal, layout, wanted, deterministic,
            set_variant, reads,
        )  # fmt: skip
        for gradient, padded, want in zip(gradients, found, wanted):
            if want:
                gradient.copy_(padded[..., : gradient.shape[-1]])
        return gradients[0], gradients[1], gradients[2]
    if q.shape[0] > _BATCH_MAX and set_variant is None:  # a variant's functions count batch entries from the first
        for first in range(0, q.shape[0], _BATCH_MAX):
            part = slice(first, first + _BATCH_MAX)
            pieces = backward(
                dout[part], None if dlse is None else dlse[part], q[part], k[part], v[part], out[part], lse[part],
                scale, causal, layout, wanted, deterministic,
            )  # fmt: skip
            for whole, piece, want in zip(gradients, pieces, wanted):
                if want:
                    whole[part] = piece
        return gradients[0], gradients[1], gradients[2]
    dout, delta = _readable(dout), torch.empty_like(lse)
    views: dict[str, Optional[View]] = {
        name: _torch._view(tensor) for name, tensor in zip(("q", "k", "v", "o", "dout"), (q, k, v, out, dout))
    }
    views |= {"lse": _torch._view(lse), "delta": _torch._view(delta), "dlse": None}
    if dlse is not None:
        dlse = _rows(dlse)
        views["dlse"] = _torch._view(dlse)
    for name, gradient, want in zip(("dq", "dk", "dv"), gradients, wanted):
        views[name] = _torch._view(gradient) if want else None
    args = build_backward(views, scale=scale, causal=causal, layout=layout)
    if deterministic or torch.are_deterministic_algorithms_enabled():
        args.flags |= _abi.KJIT_ATTENTION_DETERMINISTIC
    kept = None if set_variant is None else set_variant(args)
    _launch(args, q)
    del kept
    return gradients[0], gradients[1], gradients[2]


def _launch(args: Any, q: torch.Tensor) -> None:
    runtime, error, device = default_runtime(), _abi.kjit_error(), q.get_device()
    if q.is_cuda or torch.cuda.is_available():
        _cuda.make_current(torch.cuda.current_device())
    stream = ctypes.c_void_p(_torch._raw_stream(device) if device >= 0 else 0)
    rest = (None, ctypes.c_size_t(0), ctypes.byref(args), stream, ctypes.byref(error))
    handle = ctypes.c_void_p(runtime.handle)
    if _backward(handle, *rest):
        if _prepared.elsewhere(device):
            with torch.cuda.device(device):
                if not _backward(handle, *rest):
                    return
        raise_error(error)


# The operator. It is functional: its gradients are new tensors.

torch.library.define(
    "kjit::attention_backward",
    "(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, float? scale, bool causal, "
    "str layout, bool[3] wanted, bool deterministic=False) -> (Tensor, Tensor, Tensor)",
    tags=torch.Tag.needs_fixed_stride_order,
)


@torch.library.impl("kjit::attention_backward", "default")
def _attention_backward(*arguments: Any) -> Any:
    return backward(*arguments)


def _attention_backward_fake(
    dout: Any, dlse: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, scale: Any, causal: Any, layout: Any, wanted: Any,
    deterministic: bool = False,
) -> Any:
    return tuple(_empty(tensor, want) for tensor, want in zip((q, k, v), wanted))


def _no_second_derivative(context: Any, *gradients: Any) -> Any:
    raise NotImplementedError("kjit computes no second derivative of attention: its gradients have no gradients")


torch.library.register_fake("kjit::attention_backward", _attention_backward_fake)
torch.library.register_autograd("kjit::attention_backward", _no_second_derivative)


# What autograd keeps of kjit::attention_lse, and what it does with it.

def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, ctx.scale, ctx.causal, ctx.layout, _, ctx.deterministic = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)  # a loss that does not read lse costs nothing


def _attention_lse_backward(context: Any, dout: Any, dlse: Any) -> Any:
    q, k, v, out, lse = context.saved_tensors
    wanted = list(context.needs_input_grad[:3])
    if (dout is None and dlse is None) or not any(wanted):
        return (None,) * 8
    if dout is None:
        dout = torch.zeros_like(out)
    gradients = torch.ops.kjit.attention_backward(
        dout, dlse, q, k, v, out, lse, context.scale, context.causal, context.layout, wanted,
        context.deterministic,
    )
    return (*(gradient if want else None for gradient, want in zip(gradients, wanted)), *(None,) * 5)


torch.library.register_autograd("kjit::attention_lse", _attention_lse_backward, setup_context=_setup_context)
