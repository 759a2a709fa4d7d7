"""What is needed of the CUDA driver itself: a current context on this thread, and waiting."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from typing import Any, Iterator, Optional

from . import _abi
from ._library import failure

_lock = threading.Lock()
_driver: Optional[ctypes.CDLL] = None
_contexts: dict[int, ctypes.c_void_p] = {}


def driver() -> ctypes.CDLL:
    """The library's own choice of a driver: $KJIT_LIBCUDA, or the system's."""
    global _driver
    if _driver is None:
        try:
            _driver = ctypes.CDLL(os.environ.get("KJIT_LIBCUDA") or "libcuda.so.1")
        except OSError as error:
            raise failure(_abi.KJIT_ERR_NO_DRIVER, f"the CUDA driver could not be loaded: {error}") from None
    return _driver


def _do(name: str, *arguments: Any) -> None:
    result = getattr(driver(), name)(*arguments)
    if result != 0:
        text = ctypes.c_char_p()
        driver().cuGetErrorName(result, ctypes.byref(text))
        words = f"{name}: {(text.value or b'unknown error').decode()} ({result})"
        raise failure(_abi.KJIT_ERR_DRIVER, words, cause=result, cause_domain=_abi.KJIT_CAUSE_CUDA)


def _primary_context(ordinal: int) -> ctypes.c_void_p:
    """The context that PyTorch, CuPy and JAX use. Retained once per process, and kept."""
    with _lock:
        context = _contexts.get(ordinal)
        if context is None:
            device, context = ctypes.c_int(), ctypes.c_void_p()
            _do("cuInit", 0)
            _do("cuDeviceGet", ctypes.byref(device), ordinal)
            _do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            _contexts[ordinal] = context
        return context


def make_current(ordinal: int) -> None:
    """Give this thread the device's primary context if it has none: frameworks set it only when they need it."""
    context, current = _primary_context(ordinal), ctypes.c_void_p()
    _do("cuCtxGetCurrent", ctypes.byref(current))
    if not current:
        _do("cuCtxSetCurrent", context)


def ensure_current() -> None:
    """Give this thread a context if it has none: that of PyTorch's current device, or of device 0."""
    current = ctypes.c_void_p()
    if driver().cuCtxGetCurrent(ctypes.byref(current)) != 0 or not current:
        make_current(current_ordinal())


@contextlib.contextmanager
def device(ordinal: int) -> Iterator[None]:
    """The device's primary context is current inside, and what was before is afterwards."""
    context, before = _primary_context(ordinal), ctypes.c_void_p()
    _do("cuCtxGetCurrent", ctypes.byref(before))
    _do("cuCtxSetCurrent", context)
    try:
        yield
    finally:
        driver().cuCtxSetCurrent(before)


def wait_for_stream(stream: int) -> None:
    _do("cuStreamSynchronize", ctypes.c_void_p(stream))


def wait_for_all() -> None:
    """Everything launched on any device that was used here. Errors are not ours to report: this is the end."""
    for ordinal in list(_contexts):
        with contextlib.suppress(RuntimeError), device(ordinal):
            driver().cuCtxSynchronize()


def current_ordinal() -> int:
    """The device that PyTorch has current, if it runs; else 0."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    return 0
