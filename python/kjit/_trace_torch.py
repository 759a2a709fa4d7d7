"""What PyTorch's functions and tensors do while a score or mask function is traced."""

from __future__ import annotations

import sys
from operator import is_
from typing import Any, Optional

import torch
from torch.overrides import TorchFunctionMode

from ._native_part import native
from ._trace import INDEX, METHODS, Partial, Scalar, TraceError, Tracer, Vector, index_tensor, method, operate

_GETITEM = torch.Tensor.__getitem__

#: Operators of a tensor that stands beside a traced number: the dunder's name and the sign, and whether it is reversed.
_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


#: Attributes of a tensor by which two traces are told apart (_recall.py); whatever else is asked of one may change.
_FACTS = frozenset(("shape", "dtype", "device", "ndim", "is_cuda", "layout"))

_TRACED = (Scalar, Partial, Vector)


def _holds(value: Any) -> bool:
    for each in value:
        kind = type(each)
        if isinstance(each, _TRACED) or ((kind is tuple or kind is list) and _holds(each)):
            return True
    return False


def _tracer_of(values: Any) -> Optional[Tracer]:
    for value in values:
        if isinstance(value, (Scalar, Partial)):
            return value.tracer
        if isinstance(value, (tuple, list)):
            found = _tracer_of(value)
            if found is not None:
                return found
    return None


def _operand(tracer: Tracer, value: Any) -> Any:
    """A tensor without axes is read where it lies when a GPU has it, and is a number else."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.ndim:
        raise TraceError(f"a tensor of shape {tuple(value.shape)} beside a number: index each of its axes")
    if value.device.type == "cpu":
        tracer.is_pure = False
        return value.item()
    return tracer.value(tracer.tensor_name(value))


def apply(function: Any, arguments: Any, named: dict[str, Any]) -> Any:
    """A function of PyTorch of which an argument is traced."""
    tracer = _tracer_of(arguments) or _tracer_of(tuple(named.values()))
    name = getattr(function, "__name__", str(function)).rsplit(".", 1)[-1]
    if tracer is None:
        if isinstance(arguments[0], Vector) and name in ("any", "all"):
            return getattr(arguments[0], name)()
        raise TraceError(f"{name} is not computed by attention variants")
    if function is _GETITEM:
        index = arguments[1]
        return index_tensor(tracer, arguments[0], index if type(index) is tuple else (index,))
    if isinstance(arguments[0], (Partial, Vector)) and name in ("any", "all"):
        return getattr(arguments[0], name)()
    if name == "index_select" or name == "take":
        raise TraceError(f"{name}: write tensor[index]")
    operands = [_operand(tracer, value) for value in arguments]
    named = {key: _operand(tracer, value) for key, value in named.items() if key not in ("out", "device")}
    plain = name.strip("_")
    if name.startswith("__") and plain in _SIGNS:
        return operate(_SIGNS[plain], *operands)
    if name.startswith("__r") and plain[1:] in _SIGNS:
        return operate(_SIGNS[plain[1:]], operands[1], operands[0])
    if plain not in METHODS:
        raise TraceError(f"{plain} is not computed by attention variants; there are {', '.join(sorted(METHODS))}")
    return method(operands[0], plain, operands[1:], named)


class Watch:
    """Notes in a trace that code of nn.Module's own ran on this thread: what that runs in turn, nobody told."""

    _FILE = torch.nn.Module.__call__.__code__.co_filename

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def __enter__(self) -> None:
        self.before = sys.getprofile()
        sys.setprofile(self._note)

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(self.before)

    def _note(self, frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename == self._FILE and code.co_name != "__getattr__":
            self.tracer.is_pure = False


class Mode(TorchFunctionMode):
    """Lets tensor[object] and function(tensor, object) reach the trace; everything else is PyTorch's own."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def watch(self) -> Watch:
        return Watch(self.tracer)

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function is _GETITEM:
            tensor, index = arguments
            indices = index if type(index) is tuple else (index,)
            # What the last trace's step gave, where this is that step again. Written out here: most of a trace is
            # indices, and one more Python call for each would be measurable.
            tracer = self.tracer
            at = tracer.at
            if at < len(tracer.steps):
                does, number, known, result = tracer.steps[at]
                count = len(indices)
                if does is INDEX and count == len(known) == tensor.ndim and (
                    indices[0] is known[0] if count == 1 else all(map(is_, indices, known))
                ):
                    tensors = tracer.tensors
                    if tensors[number] is tensor if number < len(tensors) else tracer.tensor_number(tensor) == number:
                        tracer.at = at + 1
                        return result
        return self.go_on(function, types, arguments, named)

    def go_on(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        """What is no index of the last trace's step."""
        if function is _GETITEM:
            tensor, index = arguments
            indices = index if type(index) is tuple else (index,)
            if _holds(indices) or _holds(arguments[:1]):
                return index_tensor(self.tracer, tensor, indices)
        named = named or {}
        if _holds(arguments) or (named and _holds(tuple(named.values()))):
            return apply(function, arguments, named)
        if getattr(getattr(function, "__self__", None), "__name__", "") not in _FACTS:
            self.tracer.is_pure = False
        return function(*arguments, **named)


ModeInC = Mode

if native is not None:
    native.configure_mode(_GETITEM)

    class _ModeInC(native.Mode, Mode):  # type: ignore[misc]
        """A mode whose first look is C's: is this an index of the last trace's step?"""

    ModeInC = _ModeInC
