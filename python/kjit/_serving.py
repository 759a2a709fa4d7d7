"""Serving attention on PyTorch tensors: one prepared call for each signature, so that a call sets addresses and launches.

flash_attn.py and flash_attn_interface.py have the functions that people call; docs/serving.md what they mean.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, Optional, Union

import torch

from . import _abi, _cuda
from ._library import call, lib, raise_error, struct, untyped
from ._torch import _CALLS_MAX, _DTYPES, _elsewhere, _raw_stream, _view
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
_serving = untyped("kjit_attention_serving")


def _tensor(tensor: torch.Tensor) -> Any:
    view = _view(tensor)
    rank = len(view.shape)
    shape, strides = ((ctypes.c_int64 * 4)(*list(values)[:4]) for values in (view.shape, view.strides))
    return _abi.kjit_tensor(view.data, view.dtype, view.device, rank, 0, shape, strides)


def _require_int32(name: str, tensor: torch.Tensor, rank: int = 1) -> None:
    if tensor.dtype != torch.int32 or tensor.dim() != rank or (tensor.numel() > 1 and tensor.stride(-1) != 1):
        raise TypeError(
            f"{name} is {tensor.dtype}, {tensor.dim()} axes: must be int32, {rank}, and contiguous along the last"
        )


class Problem:
    """Arguments of one call: tensors by name (None: not given), and numbers by the library's names."""

    __slots__ = ("tensors", "numbers", "flags", "page_table", "sinks")

    def __init__(
        self,
        tensors: dict[str, Optional[torch.Tensor]],
        numbers: tuple[tuple[str, Any], ...],
        flags: int,
        page_table: Optional[torch.Tensor] = None,
        sinks: Optional[torch.Tensor] = None,
    ) -> None:
        self.tensors, self.numbers, self.flags, self.page_table, self.sinks = tensors, numbers, flags, page_table, sinks

    def fill(self, batch: int) -> Any:
        """A kjit_attention_serving_args; what is checked here the library cannot see."""
        args = struct(_abi.kjit_attention_serving_args, batch=batch, flags=self.flags)
        args.window_left = args.window_right = -1
        for name, value in self.numbers:
            setattr(args, name, value)
        for name, tensor in self.tensors.items():
            if tensor is None:
                continue
            if name in ARRAYS:
                _require_int32(name, tensor)
                setattr(args, name, ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_int32)))
            elif name in ("rotary_cos", "rotary_sin"):
                if not tensor.is_contiguous() or tensor.dim() != 2:
                    raise ValueError(f"{name} must be a contiguous (positions, columns / 2) tensor")
                setattr(args, name, tensor.data_ptr())
                args.rotary_rows, args.rotary_columns = tensor.shape[0], 2 * tensor.shape[1]
            else:
                setattr(args, name, _tensor(tensor))
        if self.page_table is not None:
            _require_int32("page_table", self.page_table, 2)
            args.page_table_stride, args.max_pages = self.page_table.stride(0), self.page_table.shape[1]
            args.page_table = ctypes.cast(self.page_table.data_ptr(), ctypes.POINTER(ctypes.c_int32))
        if self.sinks is not None:
            args.sinks_dtype = _DTYPES.get(self.sinks.dtype, _abi.KJIT_DTYPE_NONE)
        return args


def _address_setters(args: Any, problem: Problem) -> list[tuple[str, Callable[[int], None]]]:
    """For each tensor that is given, by name: how its address gets into the struct. Pointers are written as numbers."""
    base = ctypes.addressof(args)

    def slot(field: str, inner: int = 0) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(base + getattr(_abi.kjit_attention_serving_args, field).offset + inner)

    setters = []
    for name, tensor in problem.tensors.items():
        if tensor is not None:
            setters.append((name, slot(name)))  # a kjit_tensor begins with its address
    return setters


class _Call:
    """A call prepared for one signature, on one thread."""

    def __init__(self, problem: Problem, batch: int, out: torch.Tensor, lse: Optional[torch.Tensor]) -> None:
        q = problem.tensors["q"]
        assert q is not None
        problem.tensors["o"], problem.tensors["lse"] = out, lse
        self.args = problem.fill(batch)
        self.runtime = default_runtime()
        self.device = q.get_device()
        if q.is_cuda:
            _cuda.make_current(torch.cuda.current_device())
        self.slots = _address_setters(self.args, problem)
        fields = _abi.kjit_attention_serving_args
        base = ctypes.addressof(self.args)

        def number(field: str) -> ctypes.c_uint64:
            return ctypes.c_uint64.from_address(base + getattr(fields, field).offset)

        self.page_table, self.sinks = number("page_table"), number("sinks")
        self.schedule, self.workspace = number("schedule"), number("workspace")
        self.workspace_bytes: Optional[int] = None
        self.error, self.stream = _abi.kjit_error(), ctypes.c_void_p()
        self.arguments = (
            ctypes.c_void_p(self.runtime.handle),
            ctypes.byref(self.args),
            self.stream,
            ctypes.byref(self.error),
        )

    def sizes(self) -> tuple[int, int]:
        """Bytes of a schedule and of a workspace."""
        sizes = struct(_abi.kjit_attention_serving_sizes)
        call(lib.kjit_attention_serving_get_sizes, self.runtime.handle, ctypes.byref(self.args), ctypes.byref(sizes))
        return sizes.schedule_bytes, sizes.workspace_bytes

    def borrow(self) -> Optional[torch.Tensor]:
        """In a capture, memory that the graph owns: CUDA does not let a graph that allocates be a part of another."""
        if self.device < 0 or not torch.cuda.is_current_stream_capturing():
            self.workspace.value = 0
            return None
        if self.workspace_bytes is None:
            self.workspace_bytes = self.sizes()[1]
        memory = torch.zeros(self.workspace_bytes, dtype=torch.uint8, device=f"cuda:{self.device}")
        self.workspace.value, self.args.workspace_bytes = memory.data_ptr(), self.workspace_bytes
        return memory

    def run(self, problem: Problem, out: torch.Tensor, lse: Optional[torch.Tensor]) -> None:
        tensors = problem.tensors
        tensors["o"], tensors["lse"] = out, lse
        for name, slot in self.slots:
            slot.value = tensors[name].data_ptr()  # type: ignore[union-attr]
        self.page_table.value = 0 if problem.page_table is None else problem.page_table.data_ptr()
        self.sinks.value = 0 if problem.sinks is None else problem.sinks.data_ptr()
        memory = self.borrow()
        self.stream.value = _raw_stream(self.device) if self.device >= 0 else 0
        failed = _serving(*self.arguments)
        if failed and _elsewhere(self.device):
            with torch.cuda.device(self.device):
                failed = _serving(*self.arguments)
        if failed:
            raise_error(self.error)
        del memory  # the caching allocator keeps it from others until the stream, or the graph, has used it


def _kind(tensor: Optional[torch.Tensor]) -> Any:
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device())


def run(
    problem: Problem,
    batch: int,
    out: Optional[torch.Tensor],
    return_lse: bool,
    schedule: Optional[torch.Tensor] = None,
) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Launch on the current stream."""
    try:
        calls = _calls.known
    except AttributeError:
        calls = _calls.known = {}
    tensors = problem.tensors
    q, v = tensors["q"], tensors["v"]
    assert q is not None and v is not None
    if out is None:
        out = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))
    lse = None
    if return_lse:
        shape = (q.shape[1], q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2], q.shape[1])
        lse = q.new_empty(shape, dtype=torch.float32)
    signature = (
        tuple([_kind(tensor) for tensor in tensors.values()]),
        _kind(out),
        problem.numbers,
        problem.flags,
        _kind(problem.page_table),
        None if problem.sinks is None else problem.sinks.dtype,
        batch,
        return_lse,
    )
    prepared = calls.get(signature)
    if prepared is None:
        prepared = _Call(problem, batch, out, lse)
        if len(calls) >= _CALLS_MAX:
            calls.clear()
        calls[signature] = prepared
    prepared.schedule.value = 0 if schedule is None else schedule.data_ptr()
    prepared.args.schedule_bytes = 0 if schedule is None else schedule.numel() * schedule.element_size()
    prepared.run(problem, out, lse)
    return out if lse is None else (out, lse)


def write_schedule(problem: Problem, batch: int, out: Any, device: Any) -> torch.Tensor:
    """A schedule as an int32 tensor. The tensors of the problem are looked at by shape alone."""
    prepared = _Call(problem, batch, out, None)
    schedule = torch.empty((prepared.sizes()[0] + 3) // 4, dtype=torch.int32, device=device)
    prepared.schedule.value, prepared.args.schedule_bytes = schedule.data_ptr(), schedule.numel() * 4
    stream = _raw_stream(prepared.device) if prepared.device >= 0 else 0
    call(lib.kjit_attention_schedule, prepared.runtime.handle, ctypes.byref(prepared.args), stream)
    return schedule
