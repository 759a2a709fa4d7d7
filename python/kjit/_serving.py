"""Serving attention on PyTorch tensors: one prepared call for each signature; each call sets addresses and launches.

flash_attn.py and flash_attn_interface.py have the functions that people call; docs/serving.md what they mean.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, NamedTuple, Optional, Union

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


class Problem(NamedTuple):
    """Arguments of one call: tensors in the order of `names` (None: not given), and numbers by the library's names."""

    names: tuple[str, ...]
    tensors: tuple[Any, ...]
    numbers: tuple[tuple[str, Any], ...]
    flags: int
    batch: int
    page_table: Any = None
    sinks: Any = None

    def fill(self) -> Any:
        """A kjit_attention_serving_args; what is checked here the library cannot see."""
        args = struct(_abi.kjit_attention_serving_args, batch=self.batch, flags=self.flags)
        args.window_left = args.window_right = -1
        for name, value in self.numbers:
            setattr(args, name, value)
        for name, tensor in zip(self.names, self.tensors):
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


class _Call:
    """A call prepared for one signature, on one thread. Addresses are written as numbers into the struct."""

    def __init__(self, problem: Problem, out: Any, lse: Optional[torch.Tensor]) -> None:
        q = problem.tensors[0]
        self.args = problem.fill()
        self.args.o = _tensor(out)
        if lse is not None:
            self.args.lse = _tensor(lse)
        self.runtime = default_runtime()
        self.device = q.get_device()
        if q.is_cuda:
            _cuda.make_current(torch.cuda.current_device())
        fields, base = _abi.kjit_attention_serving_args, ctypes.addressof(self.args)

        def number(field: str) -> ctypes.c_uint64:
            return ctypes.c_uint64.from_address(base + getattr(fields, field).offset)

        # A kjit_tensor begins with its address.
        self.slots = [
            (index, number(name)) for index, name in enumerate(problem.names) if problem.tensors[index] is not None
        ]
        self.out, self.lse = number("o"), number("lse")
        self.page_table, self.sinks = number("page_table"), number("sinks")
        self.schedule, self.workspace = number("schedule"), number("workspace")
        self.workspace_bytes: Optional[int] = None
        self.lse_shape = None if lse is None else (lse.shape, lse.stride())
        self.out_is_like_q = tuple(out.shape) == tuple(q.shape)
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

    def borrow(self) -> torch.Tensor:
        """Memory that a graph under capture owns: CUDA does not let a graph that allocates be a part of another."""
        if self.workspace_bytes is None:
            self.workspace_bytes = self.sizes()[1]
        memory = torch.zeros(self.workspace_bytes, dtype=torch.uint8, device=f"cuda:{self.device}")
        self.workspace.value, self.args.workspace_bytes = memory.data_ptr(), self.workspace_bytes
        return memory

    def run(self, problem: Problem, out: torch.Tensor, lse: Optional[torch.Tensor]) -> None:
        tensors = problem.tensors
        for index, slot in self.slots:
            slot.value = tensors[index].data_ptr()
        self.out.value = out.data_ptr()
        if lse is not None:
            self.lse.value = lse.data_ptr()
        if problem.page_table is not None:
            self.page_table.value = problem.page_table.data_ptr()
        if problem.sinks is not None:
            self.sinks.value = problem.sinks.data_ptr()
        device = self.device
        memory = self.borrow() if device >= 0 and _is_capturing() else None
        if memory is None:
            self.workspace.value = 0
        self.stream.value = _raw_stream(device) if device >= 0 else 0
        failed = _serving(*self.arguments)
        if failed and _elsewhere(device):
            with torch.cuda.device(device):
                failed = _serving(*self.arguments)
        if failed:
            raise_error(self.error)
        del memory  # the caching allocator keeps it from others until the graph has used it


_is_capturing = torch.cuda.is_current_stream_capturing


def run(
    problem: Problem, out: Optional[torch.Tensor], return_lse: bool, schedule: Optional[torch.Tensor] = None
) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Launch on the current stream."""
    try:
        calls = _calls.known
    except AttributeError:
        calls = _calls.known = {}
    names, tensors, numbers, flags, batch, page_table, sinks = problem
    q = tensors[0]
    key = (
        names,
        tuple([None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors]),
        q.get_device(),
        tensors[1].get_device(),
        tensors[2].get_device(),
        None if out is None else (out.shape, out.stride(), out.dtype, out.get_device()),
        numbers,
        flags,
        batch,
        None if page_table is None else (page_table.shape, page_table.stride(), page_table.dtype),
        None if sinks is None else sinks.dtype,
        return_lse,
    )
    prepared = calls.get(key)
    lse = None
    if prepared is None:
        v = tensors[2]
        if out is None:
            out = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))
        if return_lse:
            shape = (q.shape[1], q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2], q.shape[1])
            lse = q.new_empty(shape, dtype=torch.float32)
        prepared = _Call(problem, out, lse)
        if len(calls) >= _CALLS_MAX:
            calls.clear()
        calls[key] = prepared
    else:
        if out is None:
            v = tensors[2]
            out = torch.empty_like(q) if prepared.out_is_like_q else q.new_empty((*q.shape[:-1], v.shape[-1]))
        if return_lse:
            lse = q.new_empty(prepared.lse_shape[0], dtype=torch.float32)
    if schedule is None:
        prepared.schedule.value = 0
    else:
        prepared.schedule.value = schedule.data_ptr()
        prepared.args.schedule_bytes = schedule.numel() * schedule.element_size()
    prepared.run(problem, out, lse)
    return out if lse is None else (out, lse)


def write_schedule(problem: Problem, out: Any, device: Any) -> torch.Tensor:
    """A schedule as an int32 tensor. The tensors of the problem are looked at by shape alone."""
    prepared = _Call(problem, out, None)
    schedule = torch.empty((prepared.sizes()[0] + 3) // 4, dtype=torch.int32, device=device)
    prepared.schedule.value, prepared.args.schedule_bytes = schedule.data_ptr(), schedule.numel() * 4
    stream = _raw_stream(prepared.device) if prepared.device >= 0 else 0
    call(lib.kjit_attention_schedule, prepared.runtime.handle, ctypes.byref(prepared.args), stream)
    return schedule
