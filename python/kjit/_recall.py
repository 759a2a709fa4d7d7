"""Traces of functions that came before.

A function is told by everything that its trace can depend on: its code, what its closure and its defaults hold, and the
globals that its code names; functions among these by the same, numbers and texts by their value, tensors by being the
same object. Whatever else a function can see (an object with attributes, a list) may change without a sign: such a
function is traced at each call.

Nothing is kept alive: an entry holds weak references to the tensors that it saw, and is of no use when one is gone.
"""

from __future__ import annotations

import sys
import types
import weakref
from typing import Any, Callable, NamedTuple, Optional

Function = Callable[..., Any]

_KEPT_MAX = 1024

#: Values that are told by what they are.
_VALUES = frozenset((int, float, bool, str, bytes, complex, type(None)))

#: Modules whose functions do not change.
_MODULES = frozenset(("torch", "math", "operator"))

_DEPTH_MAX = 8


class Place(NamedTuple):
    """What a function is told by, and the tensors and code objects in it, which the key names by their ids."""

    key: list[Any]
    tensors: list[Any]
    codes: list[types.CodeType]


class _Entry(NamedTuple):
    variant: Any
    values: tuple[Any, ...]
    read: tuple[Any, ...]  # weak references to the tensors that the variant reads
    seen: tuple[Any, ...]  # and to all that the function sees
    codes: list[types.CodeType]  # alive, so that their ids stay theirs


_entries: dict[Any, _Entry] = {}

#: Names in a code object and in those inside it, by its id; it is kept, because its hash is that of all it holds.
_names: dict[int, tuple[types.CodeType, tuple[str, ...]]] = {}


#: Code of functions that could not be told, by its id, and how often it came since; kept, so that the id stays its own.
_untold: dict[int, list[Any]] = {}

#: A function of such code is looked at again the so manyth time, because others of the same code may be told.
_RETRIED = 32


class _CannotTell(Exception):
    pass


def _names_of(code: types.CodeType) -> tuple[str, ...]:
    found = _names.get(id(code))
    if found is None:
        inner = [name for each in code.co_consts if isinstance(each, types.CodeType) for name in _names_of(each)]
        found = code, tuple(dict.fromkeys((*code.co_names, *inner)))
        if len(_names) >= _KEPT_MAX:
            _names.clear()
        _names[id(code)] = found
    return found[1]


def _is_of_modules(value: Any) -> bool:
    return str(getattr(value, "__module__", None)).partition(".")[0] in _MODULES


def _tell(value: Any, place: Place, depth: int) -> None:
    kind = type(value)
    if kind in _VALUES:
        place.key.append(kind)
        place.key.append(value)
    elif kind is types.FunctionType:
        if value.__closure__ is None and _is_of_modules(value):
            place.key.append(value)
        else:
            _tell_function(value, place, depth + 1)
    elif kind is tuple:
        place.key.append(len(value))
        for each in value:
            _tell(each, place, depth)
    else:
        _tell_object(value, kind, place)


def _tell_object(value: Any, kind: type, place: Place) -> None:
    torch = sys.modules.get("torch")
    key = place.key
    if torch is not None and isinstance(value, torch.Tensor):
        if value.__dict__:  # what somebody put there may change
            raise _CannotTell
        key.append(id(value))
        key.append(value.shape)
        place.tensors.append(value)
    elif kind is types.ModuleType and value.__name__.partition(".")[0] in _MODULES:
        key.append(value.__name__)
    elif kind is types.BuiltinFunctionType and (value.__self__ is None or type(value.__self__) is types.ModuleType):
        key.append(value)
    elif kind is type and value.__module__ == "builtins":
        key.append(value)
    elif torch is not None and kind in (torch.dtype, torch.device):
        key.append(value)
    else:
        raise _CannotTell


def _tell_function(function: Any, place: Place, depth: int) -> None:
    if depth > _DEPTH_MAX or function.__kwdefaults__:
        raise _CannotTell
    code = function.__code__
    place.key.append(id(code))
    place.codes.append(code)
    for cell in function.__closure__ or ():
        try:
            _tell(cell.cell_contents, place, depth)
        except ValueError:  # an empty cell
            raise _CannotTell from None
    if function.__defaults__:
        _tell(function.__defaults__, place, depth)
    names = function.__globals__
    for name in _names_of(code):
        if name in names:
            place.key.append(name)
            _tell(names[name], place, depth)


def place_of(*functions: Optional[Function]) -> Optional[Place]:
    """What these functions are told by; None: they may change without a sign.

    A function of the same code as one that could not be told is looked at seldom: most see the same kinds of things.
    """
    if _untold:
        for function in functions:
            known = _untold.get(id(getattr(function, "__code__", None)))
            if known is not None:
                known[1] += 1
                if known[1] % _RETRIED:
                    return None
    place = Place([], [], [])
    try:
        for function in functions:
            if function is None:
                place.key.append(None)
            elif type(function) is types.FunctionType:
                _tell_function(function, place, 0)
            else:
                return None
    except _CannotTell:
        if len(_untold) >= _KEPT_MAX:
            _untold.clear()
        for function in functions:
            if function is not None:
                _untold[id(function.__code__)] = [function.__code__, 0]
        return None
    return place


def find(place: Place) -> Optional[tuple[Any, tuple[Any, ...], tuple[Any, ...]]]:
    """The variant, values and tensors that keep() was given for functions that are told by the same; None: nothing."""
    entry = _entries.get(tuple(place.key))
    if entry is None:
        return None
    for reference in entry.seen:
        if reference() is None:
            return None
    return entry.variant, entry.values, tuple([reference() for reference in entry.read])


def keep(place: Place, variant: Any, values: tuple[Any, ...], tensors: tuple[Any, ...]) -> None:
    seen = {id(tensor) for tensor in place.tensors}
    if not all(id(tensor) in seen for tensor in tensors):
        return  # a tensor was made while the function ran
    if len(_entries) >= _KEPT_MAX:
        _entries.clear()
    read = tuple([weakref.ref(tensor) for tensor in tensors])
    alive = tuple([weakref.ref(tensor) for tensor in place.tensors])
    _entries[tuple(place.key)] = _Entry(variant, values, read, alive, place.codes)
