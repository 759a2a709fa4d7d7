"""Serving attention on PyTorch tensors: one prepared call for each signature; each call sets addresses and launches.

flash_attn.py and flash_attn_interface.py have the functions that people call; docs/serving.md what they mean.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, NamedTuple, Optional, Union

import torch

from . import _abi, _cuda, _prepared
from ._library import assign, call, lib, struct
from ._torch import _DTYPES, _view, keep
from .runtime import default_runtime

#: Arguments that are int32 arrays on the device, by the library's names.
ARRAYS = (
    "cu_seqlens_q",
    "cu_seqlens_k",
    "cu_seqlens_k_new",
    "seqused_q",
    "seqused_k",
    "cache_batch_idx",
    "leftpad_k",
    "rotary_seqlens",
)

_calls = threading.local()
_raw_stream = _prepared.raw_stream
_launch = _prepared.launch


def _tensor(tensor: torch.Tensor) -> Any:
    view = _view(tensor)
    rank = len(view.shape)
    shape, strides = ((ctypes.c_int64 * 4)(*list(values)[:4]) for values in (view.shape, view.strides))
    return _abi.kjit_tensor(view.data, view.dtype, view.device, rank, 0, shape, strides)


def _require_device(name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device}: must be on q's device, {q.device}")


def _require_length(name: str, tensor: torch.Tensor, least: int, why: str) -> None:
    if tensor.shape[0] < least:
        raise ValueError(f"{name}.shape[0] is {tensor.shape[0]}: must be at least {least}, {why}")


def _require_int32(name: str, tensor: torch.Tensor, rank: int = 1) -> None:
    if tensor.dtype != torch.int32 or tensor.dim() != rank or (tensor.numel() > 1 and tensor.stride(-1) != 1):
        raise TypeError(
            f"{name} is {tensor.dtype}, {tensor.dim()} axes: must be int32, {rank}, and contiguous along the last"
        )


#: Names of the tensors that a kind of call takes, in the order in which `run` gets them.
VARLEN = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")
DENSE = VARLEN[:3]
CACHE = ("q", "k", "v", "seqused_k", "k_new", "v_new", "cache_batch_idx", "leftpad_k", "cu_seqlens_q",
         "cu_seqlens_k_new", "rotary_cos", "rotary_sin", "rotary_seqlens", "k_descale", "v_descale")  # fmt: skip
DECODE = CACHE[:4]
#: The same of an 8-bit cache.
_DESCALES = ("k_descale", "v_descale")
NARROW_VARLEN, NARROW_DECODE = VARLEN + _DESCALES, DECODE + _DESCALES

#: Of these the tensors that are copied when their columns are no neighbours, as FlashAttention does. A cache is not.
_COPIED = {DENSE: (0, 1, 2), VARLEN: (0, 1, 2), NARROW_VARLEN: (0,), CACHE: (0, 4, 5), DECODE: (0,),
           NARROW_DECODE: (0,)}  # fmt: skip


class Options(NamedTuple):
    """What a call has besides tensors, by FlashAttention's names."""

    softmax_scale: Optional[float] = None
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    attention_chunk: int = 0
    softcap: float = 0.0
    num_splits: int = 0
    sm_margin: int = 0
    max_seqlen_q: int = 0
    rotary_interleaved: bool = False

    def fill(self, args: Any) -> None:
        if self.softmax_scale is not None and self.softmax_scale == 0:
            raise ValueError("softmax_scale is 0: must be positive, or None for 1/sqrt(head_dim)")
        left, right = self.window_size
        assign(
            args,
            scale=self.softmax_scale or 0.0,
            window_left=max(left, -1),
            window_right=max(right, -1),
            attention_chunk=self.attention_chunk,
            softcap=self.softcap,
            num_splits=self.num_splits,
            sm_margin=self.sm_margin,
            max_seqlen_q=self.max_seqlen_q,
            flags=_abi.KJIT_ATTENTION_CAUSAL if self.causal else 0,
        )
        if self.rotary_interleaved:
            args.flags |= _abi.KJIT_SERVING_ROTARY_INTERLEAVED


class Problem(NamedTuple):
    """Arguments of one call: tensors in the order of `names` (None: not given), and an Options or a tuple like one."""

    names: tuple[str, ...]
    tensors: tuple[Any, ...]
    options: tuple[Any, ...]
    batch: int
    page_table: Any = None
    sinks: Any = None

    def fill(self) -> Any:
        """A kjit_attention_serving_args; what is checked here the library cannot see."""
        args = struct(_abi.kjit_attention_serving_args, batch=self.batch)
        Options(*self.options).fill(args)
        q = self.tensors[0]
        for name, tensor in zip(self.names, self.tensors):
            if tensor is None:
                continue
            _require_device(name, tensor, q)
            if name in ARRAYS:
                _require_int32(name, tensor)
                has_end = name.startswith("cu_")
                why = f"{'one more than ' if has_end else ''}the {self.batch} sequences"
                _require_length(name, tensor, self.batch + has_end, why)
                setattr(args, name, ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_int32)))
            elif name in ("rotary_cos", "rotary_sin"):
                self._fill_rotary(args, name, tensor)
            else:
                setattr(args, name, _tensor(tensor))
        if self.page_table is not None:
            _require_device("page_table", self.page_table, q)
            _require_int32("page_table", self.page_table, 2)
            if "cache_batch_idx" not in self.names or self.tensors[self.names.index("cache_batch_idx")] is None:
                _require_length("page_table", self.page_table, self.batch, f"the {self.batch} sequences")
            args.page_table_stride, args.max_pages = self.page_table.stride(0), self.page_table.shape[1]
            args.page_table = ctypes.cast(self.page_table.data_ptr(), ctypes.POINTER(ctypes.c_int32))
        if self.sinks is not None:
            _require_device("sinks", self.sinks, q)
            if self.sinks.shape != q.shape[-2:-1] or not self.sinks.is_contiguous():
                raise ValueError(
                    f"sinks.shape is {tuple(self.sinks.shape)}: must be ({q.shape[-2]},), q's heads, and contiguous"
                )
            args.sinks_dtype = _DTYPES.get(self.sinks.dtype, _abi.KJIT_DTYPE_NONE)
        return args

    def _fill_rotary(self, args: Any, name: str, table: torch.Tensor) -> None:
        q, first = self.tensors[0], self.tensors[self.names.index("rotary_cos")]
        if not table.is_contiguous() or table.dim() != 2:
            raise ValueError(f"{name} must be a contiguous (positions, columns / 2) tensor")
        if table.dtype != q.dtype:
            raise ValueError(f"{name} is {table.dtype}: must be q's type, {q.dtype}")
        if first is not None and table.shape != first.shape:
            raise ValueError(f"{name}.shape is {tuple(table.shape)}: must be rotary_cos', {tuple(first.shape)}")
        setattr(args, name, table.data_ptr())
        args.rotary_rows, args.rotary_columns = table.shape[0], 2 * table.shape[1]


#: Of a call, what its tensors are followed by: those that every kind may have.
_FURTHER = ("page_table", "sinks", "schedule", "o")


class _Call:
    """A call's arguments for one signature, on one thread. Addresses are written as numbers into the struct."""

    def __init__(self, problem: Problem, out: Any, lse: Optional[torch.Tensor]) -> None:
        q = problem.tensors[0]
        self.args = problem.fill()
        self.args.o = _tensor(out)
        if lse is not None:
            self.args.lse = _tensor(lse)
        self.names = (*problem.names, *_FURTHER)
        self.runtime = default_runtime()
        self.device = q.get_device()
        if q.is_cuda:
            _cuda.make_current(torch.cuda.current_device())
        self.schedule, self.workspace = self._number("schedule"), self._number("workspace")
        self.workspace_bytes: Optional[int] = None

    def _place(self, field: str) -> int:
        return int(ctypes.addressof(self.args) + getattr(_abi.kjit_attention_serving_args, field).offset)

    def _number(self, field: str) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self._place(field))

    def prepare(self, given: tuple[Any, ...], out: Any, lse: Optional[torch.Tensor]) -> Any:
        """The call of _prepared.py, which launch() gives what `given` is: the tensors, those of _FURTHER, out last.

        out, lse: as they are made for this call, where they are."""
        *_, schedule, own = given
        if schedule is not None:
            _require_device("scheduler_metadata", schedule, given[0])
            if not schedule.is_contiguous():
                raise ValueError("scheduler_metadata must be contiguous")
            self.args.schedule_bytes = schedule.numel() * schedule.element_size()
        # A kjit_tensor begins with its address.
        places = tuple([0 if tensor is None else self._place(name) for name, tensor in zip(self.names, given)])
        shared = _prepared.Shared(
            "kjit_attention_serving", (self.runtime.handle, ctypes.addressof(self.args)), self.device, _raw_stream,
            self, None, _is_capturing if self.device >= 0 else None,
        )  # fmt: skip
        at = -1 if own is None else len(given) - 1
        return _prepared.make_call(shared, places, at, (self._place("o"), out), (self._place("lse"), lse))

    def sizes(self) -> tuple[int, int]:
        """Bytes of a schedule and of a workspace."""
        sizes = struct(_abi.kjit_attention_serving_sizes)
        call(lib.kjit_attention_serving_get_sizes, self.runtime.handle, ctypes.byref(self.args), ctypes.byref(sizes))
        return sizes.schedule_bytes, sizes.workspace_bytes

    def borrow(self) -> torch.Tensor:
        """Memory that a graph under capture owns: CUDA does not let a graph that allocates be a part of another."""
        if self.workspace_bytes is None:
            self.workspace_bytes = self.sizes()[1]
        memory = torch.zeros(self.workspace_bytes, dtype=torch.uint8, device=f"cuda:{self.device}")
        self.workspace.value, self.args.workspace_bytes = memory.data_ptr(), self.workspace_bytes
        return memory

    def run(self, prepared: Any, given: tuple[Any, ...]) -> Any:
        """What launch() leaves: while a graph is captured, and on another device than the current one."""
        memory = self.borrow() if self.device >= 0 and _is_capturing() else None
        try:
            return _prepared.launch_slowly(prepared, given, ())
        finally:
            if memory is not None:
                self.workspace.value = 0  # the caching allocator keeps it from others until the graph has used it


_is_capturing: Callable[[], bool] = getattr(
    torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
)


def _batch_of(names: tuple[str, ...], tensors: tuple[Any, ...]) -> int:
    """Sequences of a call."""
    offsets = tensors[names.index("cu_seqlens_q")] if "cu_seqlens_q" in names else None
    return int(tensors[0].shape[0] if offsets is None else offsets.shape[0] - 1)


def _prepare(problem: Problem, given: tuple[Any, ...], return_lse: bool) -> Any:
    """The call of a signature; a tuple where tensors must be copied before: which of them."""
    tensors, out = problem.tensors, given[-1]
    copied = tuple(i for i in _COPIED[problem.names] if tensors[i] is not None and tensors[i].stride(-1) != 1)
    if copied:
        return copied
    q, v = tensors[0], tensors[2]
    if out is None:
        out = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))
    lse = None
    if return_lse:
        shape = (q.shape[1], q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2], q.shape[1])
        lse = q.new_empty(shape, dtype=torch.float32)
    return _Call(problem, out, lse).prepare(given, out, lse)


def _run_otherwise(head: tuple[Any, ...], given: tuple[Any, ...]) -> Any:
    """A call that launch() left: of a new signature, with tensors to copy, or for _Call.run()."""
    names, options, return_lse = head
    tensors, (page_table, sinks, schedule, out) = given[: len(names)], given[len(names) :]
    signature = _prepared.signature(head, given)
    found = _calls.known.get(signature)
    if found is None:
        problem = Problem(names, tensors, options, _batch_of(names, tensors), page_table, sinks)
        found = _prepare(problem, given, return_lse)
        keep(_calls.known, signature, tensors, found)
    if isinstance(found, tuple):
        dense = [tensor.contiguous() if i in found else tensor for i, tensor in enumerate(tensors)]
        return run(names, tuple(dense), options, page_table, sinks, out, return_lse, schedule)
    return found.kept.shared.kept.run(found, given)


def run(
    names: tuple[str, ...],
    tensors: tuple[Any, ...],
    options: tuple[Any, ...],
    page_table: Any,
    sinks: Any,
    out: Optional[torch.Tensor],
    return_lse: bool,
    schedule: Optional[torch.Tensor],
) -> Any:
    """Launch on the current stream. A call of a signature that was there before sets addresses and launches.

    The output, or (output, lse) with return_lse.
    """
    try:
        calls = _calls.known
    except AttributeError:
        calls = _calls.known = {}
    head, given = (names, options, return_lse), (*tensors, page_table, sinks, schedule, out)
    try:
        found = _launch(calls, head, given, ())
        return _run_otherwise(head, given) if found is None else found
    except AttributeError:
        _require_tensors((*names, *_FURTHER), given)  # looked at only now, since each look costs each call
        raise


class _WithoutGradients(torch.autograd.Function):
    """Results as they are, of which a gradient is asked for in vain."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> Any:
        return tuple([tensor.view_as(tensor) for tensor in tensors[:count]])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("gradients over ragged batches: kjit does not compute this yet")


def without_gradients(result: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    """A result of run() for functions of which FlashAttention's have gradients: a backward pass says that there are
    none."""
    if not (q.requires_grad or k.requires_grad or v.requires_grad) or not torch.is_grad_enabled():
        return result
    results = result if isinstance(result, tuple) else (result,)
    refusing = _WithoutGradients.apply(len(results), *results, q, k, v)
    return refusing if isinstance(result, tuple) else refusing[0]


def _require_tensors(names: tuple[str, ...], given: tuple[Any, ...]) -> None:
    for index, (name, value) in enumerate(zip(names, given)):
        if not isinstance(value, torch.Tensor) and (value is not None or index < 3):
            raise TypeError(f"{name} is a {type(value).__name__}: must be a tensor of PyTorch")


#: Of a 16-bit cache: what run_cache() is given then.
NO_DESCALES = (None, None)


def widened(q: torch.Tensor, q_descale: Any, k_descale: Any, batch: int, heads: int) -> tuple[torch.Tensor, Any]:
    """An 8-bit q in bfloat16, which has each of its values, and k_descale times q_descale, (batch, heads)."""
    if q_descale is not None:
        k_descale = q_descale if k_descale is None else q_descale * k_descale
        k_descale = k_descale.expand(batch, heads)
    return q.to(torch.bfloat16), k_descale


def run_cache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: Optional[torch.Tensor],
    v: Optional[torch.Tensor],
    rotary_cos: Optional[torch.Tensor],
    rotary_sin: Optional[torch.Tensor],
    cache_seqlens: Union[None, int, torch.Tensor],
    cache_batch_idx: Optional[torch.Tensor],
    cache_leftpad: Optional[torch.Tensor],
    page_table: Optional[torch.Tensor],
    cu_seqlens_q: Optional[torch.Tensor],
    cu_seqlens_k_new: Optional[torch.Tensor],
    rotary_seqlens: Optional[torch.Tensor],
    descales: tuple[Any, Any],
    options: tuple[Any, ...],
    sinks: Optional[torch.Tensor],
    out: Optional[torch.Tensor],
    return_lse: bool,
    schedule: Optional[torch.Tensor],
) -> Any:
    """Attention over a cache, by FlashAttention's names."""
    if isinstance(cache_seqlens, int):
        _require_tensors(("q",), (q,))
        batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
        cache_seqlens = torch.full((batch,), cache_seqlens, dtype=torch.int32, device=q.device)
    names: tuple[str, ...] = DECODE
    tensors: tuple[Any, ...] = (q, k_cache, v_cache, cache_seqlens)
    is_plain = k is None and v is None and rotary_cos is None and rotary_sin is None
    if is_plain and cache_batch_idx is None and cache_leftpad is None and cu_seqlens_q is None:
        if descales is not NO_DESCALES:
            names, tensors = NARROW_DECODE, tensors + descales
    else:
        names = CACHE
        tensors = (q, k_cache, v_cache, cache_seqlens, k, v, cache_batch_idx, cache_leftpad, cu_seqlens_q,
                   cu_seqlens_k_new, rotary_cos, rotary_sin, rotary_seqlens, *descales)  # fmt: skip
    return run(names, tensors, options, page_table, sinks, out, return_lse, schedule)


def write_schedule(problem: Problem, out: Any, device: Any) -> torch.Tensor:
    """A schedule as an int32 tensor. The tensors of the problem are looked at by shape alone."""
    prepared = _Call(problem, out, None)
    schedule = torch.empty((prepared.sizes()[0] + 3) // 4, dtype=torch.int32, device=device)
    prepared.schedule.value, prepared.args.schedule_bytes = schedule.data_ptr(), schedule.numel() * 4
    stream = _raw_stream(prepared.device) if prepared.device >= 0 else 0
    call(lib.kjit_attention_schedule, prepared.runtime.handle, ctypes.byref(prepared.args), stream)
    return schedule
