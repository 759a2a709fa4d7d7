"""The tracer of calls: that of _trace.py, whose steps are compared with those of the last trace in C.

The types of the extension module (python/native/replay.c) hold what a step is compared by, and come first among the
bases here. So their operators see whether a step is that of last time, and call the tracer's own functions where it is
another. torch.compile, which follows Python alone, is given _trace.py's tracer (variant.read()), as is a Python without
the module.
"""

from __future__ import annotations

from typing import Any

from . import _trace
from ._native_part import native

Tracer: type[_trace.Tracer] = _trace.Tracer

if native is not None:
    _SIGNS = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "<", "<=", "==", "!=", ">", ">=")
    native.configure_replay(
        tuple([_trace.OPERATORS[sign] for sign in _SIGNS]), _trace.FREE_NUMBERS[int], _trace.FREE_NUMBERS[float],
        _trace.INDEX,
    )  # fmt: skip

    class _Number(native.Number, _trace.Scalar):  # type: ignore[misc]
        """A number of a trace, with the operators of C."""

        __slots__ = ()
        __hash__ = None  # type: ignore[assignment]

    class _Tracer(native.Trace, _trace.Tracer):  # type: ignore[misc]
        """A trace whose steps C can see."""

        def number(self, name: str) -> _trace.Scalar:
            return _Number(self, name)

        def new_mode(self) -> Any:
            from . import _trace_torch

            return _trace_torch.ModeInC(self)

    Tracer = _Tracer
