"""Launchers: a kernel with grid, block, shared memory and stream, to be called with the kernel's arguments.

The extension module _native does a launch in C; without it (_native_part.py), Launcher does the same in Python.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from . import _abi, _cuda
from ._arrays import _CuPy, _Interface, _Torch, arrays_of, stream_number
from ._library import lib, raise_error
from ._native_part import address_of
from ._native_part import native as _native


class Launcher:
    """A kernel with grid, block, shared memory and stream: call it with the kernel's arguments."""

    __slots__ = ("_kernel", "_shape", "_stream")

    def __init__(self, kernel: Any, shape: Any, stream: Any) -> None:
        self._kernel, self._shape, self._stream = kernel, shape, stream

    def __call__(self, *args: Any) -> None:
        """Launch; asynchronous."""
        self._kernel._enqueue(self._shape, self._stream, args)

    def on(self, stream: Any, args: tuple[Any, ...]) -> None:
        """The same with the arguments as one tuple, on a stream; None: the launcher's own."""
        self._kernel._enqueue(self._shape, self._stream if stream is None else stream, args)


def make_launcher(kernel: Any, shape: Any, stream: Any) -> Any:
    """The launcher in C, or in Python where there is no C. The stream's number is read now."""
    if _native is None:
        return Launcher(kernel, shape, stream)
    how = _abi.kjit_launch(struct_size=ctypes.sizeof(_abi.kjit_launch))
    shape.write(how)
    return _native.Launcher(
        kernel,
        ctypes.addressof(kernel._handle),
        kernel.parameters,
        shape,
        bytes(how),
        stream,
        None if stream is None else stream_number(stream),
        address_of(lib.kjit_kernel_launch),
        address_of(_cuda.driver().cuCtxGetDevice),
    )


#: How the values of a type are read: _native's numbers.
_kinds: dict[type, int] = {}


def _kind_of(value: Any) -> int:
    """The kind of a value's type, from now on in the table. OTHER is left to Kernel._enqueue()."""
    arrays = arrays_of(value)
    found: int = _native.OTHER
    if type(arrays) is _Torch:
        found = _native.TORCH
        _native.set_stream(found, arrays.raw_stream)
    elif type(arrays) is _CuPy and hasattr(value.data, "device_id"):
        found = _native.CUPY
        _native.set_stream(found, arrays.number)
    elif type(arrays) is _Interface:
        found = _native.INTERFACE
    elif arrays is None:
        found = _kind_of_value(value)
    _kinds[type(value)] = found
    return found


def _kind_of_value(value: Any) -> int:
    numpy = sys.modules.get("numpy")
    buffers = (bytes, bytearray, memoryview, ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)
    if numpy is not None and isinstance(value, numpy.generic):
        kind = _native.TOBYTES
    elif isinstance(value, buffers):
        kind = _native.BUFFER
    elif hasattr(type(value), "kjit_bytes"):
        kind = _native.KJIT_BYTES
    else:
        kind = _native.OTHER
    return int(kind)


def _failed(content: bytes) -> None:
    raise_error(_abi.kjit_error.from_buffer_copy(content))


if _native is not None:
    _native.configure(_kinds, _kind_of, _failed, stream_number)
