"""Attention on PyTorch tensors: called directly where it can be, as an operator where PyTorch has to see it."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any, Callable, NamedTuple, Optional, Union

import torch

from . import _abi, _cuda, _prepared
from ._arguments import LAYOUTS, View, build, require_layout
from ._library import call, failure, lib
from ._native_part import address_of, native
from .flash_config import FlashForwardKernelConfig
from .runtime import Config, as_config, default_runtime

Result = Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]

_DTYPES = {
    torch.float16: _abi.KJIT_FP16,
    torch.bfloat16: _abi.KJIT_BF16,
    torch.float32: _abi.KJIT_FP32,
    torch.float8_e4m3fn: _abi.KJIT_FP8_E4M3,
}

_calls = threading.local()
_raw_stream = _prepared.raw_stream
_launch = _prepared.launch

# Under torch.compile these are what PyTorch says of its own functions, under whatever name they are called.
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled

_Tensor = torch.Tensor
_fp32 = torch.float32


class Asked(NamedTuple):
    """What a call asks for besides its tensors. Calls that repeat give a plain tuple, which is made faster."""

    scale: Optional[float]
    causal: bool
    layout: str
    return_lse: bool
    config: Optional[Config]


def _view(tensor: torch.Tensor) -> View:
    return View(
        tensor.data_ptr(),
        _DTYPES.get(tensor.dtype, _abi.KJIT_DTYPE_NONE),
        tensor.get_device() if tensor.is_cuda else _abi.KJIT_DEVICE_HOST,
        tensor.shape,
        tensor.stride(),
    )


def _empty_out(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As q, with the columns of v."""
    return torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))


def _empty_lse(q: torch.Tensor, layout: str) -> torch.Tensor:
    """(batch, heads, seq_q) for q in this layout."""
    require_layout(layout)
    if q.dim() != 4:
        return q.new_empty((), dtype=torch.float32)  # the library says what is wrong with q
    batch, seq, heads = (q.shape[axis] for axis in LAYOUTS[layout][:3])
    return q.new_empty((batch, heads, seq), dtype=torch.float32)


class More(NamedTuple):
    """What a call has besides q, k, v and out: where the addresses of further tensors are written, and numbers."""

    places: tuple[int, ...] = ()
    numbers: Optional[_prepared.Numbers] = None
    kept: Any = None


NO_MORE = More()


class _Call:
    """A call's arguments for tensors of one signature, on one thread.

    The library reads `args` while other threads run, hence one of these for each thread.
    """

    def __init__(self, tensors: tuple[Any, ...], asked: Asked) -> None:
        q, k, v, out, lse = tensors
        views = (_view(q), _view(k), _view(v), _view(out), None if lse is None else _view(lse))
        self.args = build(*views, scale=asked.scale, causal=asked.causal, layout=asked.layout)
        self.config = None if asked.config is None else as_config(asked.config)
        self.runtime = default_runtime()
        self.device = q.get_device()
        if q.is_cuda or torch.cuda.is_available():
            _cuda.make_current(torch.cuda.current_device())

    def prepare(self, given: tuple[Any, ...], out: Any, lse: Any, more: More = NO_MORE) -> Any:
        """The call of _prepared.py, to which launch() gives what `given` is: q, k, v, out (None: it is made), and the
        tensors of `more`. out, lse: as they are for this call."""
        config = 0 if self.config is None else ctypes.addressof(self.config._kernel)
        base, fields = ctypes.addressof(self.args), type(self.args)
        # A kjit_tensor begins with its address.
        q, k, v, o, of_lse = (base + getattr(fields, name).offset for name in ("q", "k", "v", "o", "lse"))
        shared = _prepared.Shared(
            "kjit_attention_forward", (self.runtime.handle, config, base), self.device, _raw_stream,
            (self, more.kept), more.numbers,
        )  # fmt: skip
        own = -1 if given[3] is None else 3
        return _prepared.make_call(shared, (q, k, v, o, *more.places), own, (o, out), (of_lse, lse))

    def kernel(self) -> Any:
        """The config as the library takes it; None: it chooses."""
        return None if self.config is None else ctypes.byref(self.config._kernel)

    def plan(self) -> ctypes.c_void_p:
        """A plan, which the caller destroys."""
        handle = ctypes.c_void_p()
        call(
            lib.kjit_attention_plan_create,
            ctypes.byref(handle),
            self.runtime.handle,
            self.kernel(),
            ctypes.byref(self.args),
        )
        return handle

    def stream(self) -> int:
        return _raw_stream(self.device) if self.device >= 0 else 0


#: Head sizes of the kernels are multiples of _COLUMN_STEP columns, because they copy 16 bytes at a time, and at most
#: _COLUMNS_MAX.
_COLUMN_STEP, _COLUMNS_MAX = _abi.KJIT_HEAD_DIM_STEP, _abi.KJIT_HEAD_DIM_MAX


def is_ragged(q: torch.Tensor, v: torch.Tensor) -> bool:
    """Is a head size none that a kernel takes?"""
    return q.dim() == 4 and v.dim() == 4 and bool(q.shape[-1] % _COLUMN_STEP or v.shape[-1] % _COLUMN_STEP)


def pad_columns(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with columns of zeros behind its own, which change no score and are cut off the output.

    Raises Unsupported for a head size above _COLUMNS_MAX. The library would see only the padded copy and name its size.
    """
    columns = tensor.shape[-1]
    if columns > _COLUMNS_MAX:
        reason = f"a head size of {columns}: kjit has kernels for up to {_COLUMNS_MAX}"
        raise failure(_abi.KJIT_ERR_UNSUPPORTED, reason)
    missing = -columns % _COLUMN_STEP
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def scale_of(q: torch.Tensor, scale: Optional[float]) -> Optional[float]:
    """The scale by the head size as it was before it was padded."""
    return float(q.shape[-1]) ** -0.5 if scale is None and q.shape[-1] else scale


def padded(
    compute: Callable[[Any, Asked, None], Result], tensors: tuple[Any, ...], asked: Asked, out: Optional[torch.Tensor]
) -> Result:
    """A call whose head sizes are no multiples of 8: `compute` on padded copies, whose output is cut."""
    q, _, v = tensors
    asked = asked._replace(scale=scale_of(q, asked.scale))
    result = compute(tuple(map(pad_columns, tensors)), asked, None)
    found, lse = result if isinstance(result, tuple) else (result, None)
    found = (_empty_out(q, v) if out is None else out).copy_(found[..., : v.shape[-1]])
    return found if lse is None else (found, lse)


def keep(calls: dict[Any, Any], signature: Any, tensors: tuple[Any, ...], prepared: Any) -> None:
    """Keep a call; but not one of fp32, which autocast may make another."""
    if any(tensor.dtype is _fp32 for tensor in tensors[:3]):
        return
    if len(calls) >= _prepared.CALLS_MAX:
        calls.clear()
    calls[signature] = prepared


def first_outputs(
    tensors: tuple[Any, ...], asked: Asked, out: Optional[torch.Tensor]
) -> tuple[torch.Tensor, Optional[torch.Tensor], bool]:
    """The output and lse of a call that is not prepared yet, and whether there is something to compute."""
    q, k, v = tensors
    if out is None:
        out = _empty_out(q, v)
    lse = _empty_lse(q, asked.layout) if asked.return_lse else None
    return out, lse, bool(out.numel() or q.dim() != 4 or not k.numel())  # else there is no grid to launch


def _first(tensors: tuple[Any, ...], asked: Asked, out: Optional[torch.Tensor]) -> Result:
    """A call that launch() left."""
    calls, given = _calls.known, (*tensors, out)
    signature = _prepared.signature(asked, given)
    if signature in calls:
        return _prepared.launch_slowly(calls[signature], given, ())  # type: ignore[no-any-return]
    cast = _autocast(tensors)
    if cast is not tensors:
        return _direct(cast, asked, out)
    if is_ragged(tensors[0], tensors[2]):
        return padded(_direct, tensors, asked, out)
    made, lse, computes = first_outputs(tensors, asked, out)
    if not computes:
        return made if lse is None else (made, lse)
    prepared = _Call((*tensors, made, lse), asked).prepare(given, made, lse)
    del made, lse  # the call makes its own
    keep(calls, signature, tensors, prepared)
    return _prepared.launch_slowly(prepared, given, ())  # type: ignore[no-any-return]


def _direct(tensors: tuple[Any, ...], asked: tuple[Any, ...], out: Optional[torch.Tensor]) -> Result:
    """Launch on these tensors, past PyTorch's dispatcher. asked: an Asked or a tuple like one."""
    try:
        calls = _calls.known
    except AttributeError:
        calls = _calls.known = {}
    result: Any = _launch(calls, asked, (*tensors, out), ())
    return _first(tensors, Asked(*asked), out) if result is None else result


# The same as operators: what torch.compile, autograd, and tensors that are not plain ones go through.

_ARGUMENTS = "Tensor q, Tensor k, Tensor v, float? scale, bool causal, str layout, str config"
torch.library.define("kjit::attention", f"({_ARGUMENTS}) -> Tensor", tags=torch.Tag.needs_fixed_stride_order)
torch.library.define(
    "kjit::attention_lse",
    f"({_ARGUMENTS}, bool deterministic=False) -> (Tensor, Tensor)",  # of the gradients; the results always are
    tags=torch.Tag.needs_fixed_stride_order,
)


@torch.library.impl("kjit::attention", "default")
def _attention(q: Any, k: Any, v: Any, scale: Any, causal: bool, layout: str, config: str) -> Any:
    return _direct((q, k, v), (scale, causal, layout, False, config or None), None)


@torch.library.impl("kjit::attention_lse", "default")
def _attention_lse(
    q: Any, k: Any, v: Any, scale: Any, causal: bool, layout: str, config: str, deterministic: bool = False
) -> Any:
    return _direct((q, k, v), (scale, causal, layout, True, config or None), None)


def _attention_fake(q: Any, k: Any, v: Any, scale: Any, causal: bool, layout: str, config: str) -> Any:
    return _empty_out(q, v)


def _attention_lse_fake(
    q: Any, k: Any, v: Any, scale: Any, causal: bool, layout: str, config: str, deterministic: bool = False
) -> Any:
    return _empty_out(q, v), _empty_lse(q, layout)


def _no_backward(context: Any, *gradients: Any) -> Any:
    raise NotImplementedError(
        "the operator kjit::attention keeps no log-sum-exp for gradients: call kjit.attention(), or the operator "
        "kjit::attention_lse"
    )


torch.library.register_fake("kjit::attention", _attention_fake)
torch.library.register_fake("kjit::attention_lse", _attention_lse_fake)
torch.library.register_autograd("kjit::attention", _no_backward)


def one_line(text: str) -> str:
    """An operator's text without line ends: Inductor writes it into comments of its program, where a second line would
    be code, before the library has looked at it."""
    return " ".join(text.splitlines())


def config_text(config: Optional[Config]) -> str:
    """A config as an operator is given it; "": kjit chooses."""
    return one_line(config or "" if isinstance(config, str) or config is None else config._text)


def _as_operator(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: Optional[float],
    causal: bool,
    layout: str,
    out: Optional[torch.Tensor],
    return_lse: bool,
    config: Optional[Config],
    wants_gradient: bool,
    deterministic: bool,
) -> Any:
    text = config_text(config)
    if wants_gradient and out is not None:
        raise ValueError("out is given while gradients are wanted: they need an output that nobody writes over")
    if not return_lse and not wants_gradient:
        result = torch.ops.kjit.attention(q, k, v, scale, causal, layout, text)
        return result if out is None else out.copy_(result)  # an operator's output is its own
    result, lse = torch.ops.kjit.attention_lse(q, k, v, scale, causal, layout, text, deterministic)
    if out is not None:
        result = out.copy_(result)
    return (result, lse) if return_lse else result


def _autocast(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """fp32 tensors in autocast's 16-bit type, where it is on: attention is one of the operations that it casts.

    The same tuple where nothing is to be cast.
    """
    for name, tensor in zip("qkv", tensors):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: must be a tensor of PyTorch, as the others are")
    if any(tensor.dtype is _fp32 for tensor in tensors) and torch.is_autocast_enabled("cuda"):
        kind = torch.get_autocast_dtype("cuda")
        if kind is not _fp32:
            return tuple([tensor.to(kind) for tensor in tensors])
    return tensors


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: Optional[float],
    causal: bool,
    layout: str,
    out: Optional[torch.Tensor],
    return_lse: bool,
    config: Optional[Config],
    deterministic: bool = False,
) -> Any:
    if type(q) is _Tensor and type(k) is _Tensor and type(v) is _Tensor and not _is_compiling():
        if not _is_grad_enabled() or not (q.requires_grad or k.requires_grad or v.requires_grad):
            return _direct((q, k, v), (scale, causal, layout, return_lse, config), out)
    q, k, v = _autocast((q, k, v))
    wants_gradient = _is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    return _as_operator(q, k, v, scale, causal, layout, out, return_lse, config, wants_gradient, deterministic)


def forward_timed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: Optional[torch.Tensor], config: Optional[Config]
) -> tuple[torch.Tensor, float]:
    """The output, and the milliseconds between two events around the kernel. Waits."""
    if out is None:
        out = _empty_out(q, v)
    prepared = _Call((q, k, v, out, None), Asked(None, False, "bshd", False, config))
    milliseconds = ctypes.c_float()
    with torch.cuda.device(prepared.device):
        plan = prepared.plan()
        try:
            call(lib.kjit_attention_plan_time, plan, prepared.stream(), ctypes.byref(milliseconds))
        finally:
            lib.kjit_attention_plan_destroy(plan)
    return out, milliseconds.value


class Plan:
    """A call on tensors that stay where they are, with everything looked up: run() is one launch.

    It holds its tensors; write new values into them and run again. The device that it was made on must be current.
    """

    __slots__ = ("q", "k", "v", "out", "lse", "run", "_runtime", "__weakref__")

    #: Launch on the current stream, or on the stream of this number.
    run: Callable[..., None]

    def __init__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        scale: Optional[float] = None,
        causal: bool = False,
        layout: str = "bshd",
        out: Optional[torch.Tensor] = None,
        return_lse: bool = False,
        config: Optional[Config] = None,
    ) -> None:
        self.q, self.k, self.v = q, k, v
        self.out = _empty_out(q, v) if out is None else out
        self.lse = _empty_lse(q, layout) if return_lse else None
        prepared = _Call((q, k, v, self.out, self.lse), Asked(scale, causal, layout, return_lse, config))
        self._runtime = prepared.runtime
        with torch.cuda.device(prepared.device):
            handle = prepared.plan()
        owner = _PlanOwner(handle, (q, k, v, self.out, self.lse, prepared.runtime))
        # Finalizers run in the reverse order of their making at exit: a plan's before its runtime's.
        weakref.finalize(owner, lib.kjit_attention_plan_destroy, handle)
        self.run = _plan_runner(owner, prepared.device)


class _PlanOwner:
    """What a launch needs to be alive. run() holds it, so that it may outlive its Plan."""

    __slots__ = ("handle", "kept", "__weakref__")

    def __init__(self, handle: ctypes.c_void_p, kept: tuple[Any, ...]) -> None:
        self.handle = handle
        self.kept = kept


def _plan_runner(owner: _PlanOwner, device: int) -> Callable[..., None]:
    """run(stream), which threads may call at once: it is without an error to fill, which a second try is asked for."""
    launch, handle, stream_of = lib.kjit_attention_plan_run, owner.handle, _raw_stream

    def again(_: Any, stream: Optional[int]) -> None:
        call(launch, handle, stream_of(device) if stream is None else stream)

    if native is not None:
        start: Callable[..., None] = native.Call(
            address_of(launch), (handle.value,), (), stream_of, device, 0, owner, (), -1, None, 0, again, None
        ).start
        return start

    def run(stream: Optional[int] = None) -> None:
        if launch(owner.handle, stream_of(device) if stream is None else stream, None):
            again(None, stream)

    return run


__all__ = ["FlashForwardKernelConfig", "Plan", "attention", "forward_timed"]
