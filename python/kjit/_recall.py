"""Traces of functions that came before.

A function is told by everything that its trace can depend on: its code, and what it reaches by closures, defaults and
the globals that its code names. Of that, functions are told by the same, numbers and texts by their value, tuples,
lists and dicts by what they hold, objects by the attributes that some code names (_recall_objects.py). A tensor is told
by shape, strides, type and device, and by where else it is reached: another tensor of the same kind in its place is
found too, and read where it lies. Code that may do more than that (_code.py), and whatever else a function can see, may
change without a sign: such a function is traced at each call.

The walk through a function is done in C where there is such a part (python/native/walk.c), by the same steps.
"""

from __future__ import annotations

import types
from typing import Any, Callable, NamedTuple, Optional

from . import _code
from ._native_part import native

Function = Callable[..., Any]

KEPT_MAX = 1024

#: How deep functions and containers lie in each other, and how much is in a container, at most.
DEPTH_MAX, LENGTH_MAX = 8, 64

#: Values that are told by what they are.
VALUES = frozenset((int, float, bool, str, bytes, type(None)))


class CannotTell(Exception):
    """A function may change without a sign."""


class Walk:
    """What functions are told by so far, the tensors met, and what must live for the ids in the key to stay theirs."""

    __slots__ = ("key", "tensors", "kept", "met", "alive")

    def __init__(self, key: Any, tensors: Any, kept: Any, met: Any, alive: Any) -> None:
        self.key: list[Any] = key
        self.tensors: list[Any] = tensors
        self.kept: list[Any] = kept
        self.met: dict[int, int] = met  # where each tensor, list, dict and object was met first, by its id
        self.alive: list[Any] = alive  # those, so that no other object gets such an id during the walk


Outlined = tuple[types.CodeType, Optional[tuple[str, ...]], tuple[bool, ...]]

#: By the id of code: the code, so that the id stays its own, the globals that it names, None where it has no outline,
#: and of each of them whether it may be a builtin.
outlines: dict[int, Outlined] = {}

#: The attributes that all code of outlines names: an object is told by those of them that it has.
attributes: set[str] = set()


#: By the id of a class whose objects C may tell: the class, it and those above it, of each of these (class, names,
#: those that are told), and how many attributes there were then.
kinds: dict[int, tuple[type, tuple[type, ...], tuple[Any, ...], int]] = {}


def outline_of(code: types.CodeType) -> Outlined:
    found = outlines.get(id(code))
    if found is None:
        outline = _code.outline(code)
        if outline is not None:
            attributes.update(outline.attributes)
        if len(outlines) >= KEPT_MAX:
            outlines.clear()
        names = None if outline is None else outline.globals
        found = outlines[id(code)] = code, names, tuple([_code.is_known_builtin(name) for name in names or ()])
    return found


#: Modules whose functions do not change.
_MODULES = frozenset(("torch", "math", "operator", "functools", "_functools", "itertools"))


def is_of_modules(value: Any) -> bool:
    return is_module(getattr(value, "__module__", None))


def is_module(name: Optional[str]) -> bool:
    return str(name).partition(".")[0] in _MODULES


#: Objects that stay what they are, by their id.
constants: dict[int, Any] = {}


def add_constant(value: Any) -> None:
    if len(constants) >= KEPT_MAX:
        constants.clear()
    constants[id(value)] = value


def look(function: Any) -> bool:
    """Puts the outline of a function's code into the table; False: it is one of PyTorch's, and stays what it is."""
    if function.__closure__ is None and is_of_modules(function):
        add_constant(function)
        return False
    outline_of(function.__code__)
    return True


def was_met(value: Any, walk: Walk) -> bool:
    """Tells a thing that is the same one as before by its number."""
    count = len(walk.met)
    before = walk.met.setdefault(id(value), count)
    walk.key.append(before)
    if before == count:
        walk.alive.append(value)
    return before != count


def tell(value: Any, walk: Walk, depth: int) -> None:
    kind = type(value)
    key = walk.key
    if kind in VALUES:
        key.append(kind)
        key.append(repr(value) if kind is float else value)  # 0.0 and -0.0 are equal, and nan is no nan
    elif id(value) in constants:
        key.append(value)
    elif depth >= DEPTH_MAX:
        raise CannotTell
    elif kind is types.FunctionType:
        tell_function(value, walk, depth)
    elif kind is tuple:
        if len(value) > LENGTH_MAX:
            raise CannotTell
        key.append(kind)
        key.append(len(value))
        for each in value:
            tell(each, walk, depth + 1)
    elif kind is list:
        tell_list(value, walk, depth)
    else:
        tell_other(value, walk, depth)


def tell_list(value: Any, walk: Walk, depth: int) -> None:
    if not was_met(value, walk):
        tell_elements(value, list, walk, depth)


def tell_elements(value: Any, kind: Any, walk: Walk, depth: int) -> None:
    """The kind of a list or set, its length, and its elements in the order in which code would see them."""
    if len(value) > LENGTH_MAX:
        raise CannotTell
    walk.key.append(kind)
    walk.key.append(len(value))
    for each in value:
        tell(each, walk, depth + 1)


def tell_other(value: Any, walk: Walk, depth: int) -> None:
    """Tensors and objects."""
    from . import _recall_objects

    _recall_objects.tell_object(value, walk, depth)


def tell_function(function: Any, walk: Walk, depth: int) -> None:
    """Its code, and what that reaches. A function's own attributes may be anything."""
    code = function.__code__
    if id(code) not in outlines and not look(function):
        walk.key.append(function)
        return
    _, names, builtins = outline_of(code)
    if names is None or function.__dict__:
        raise CannotTell
    walk.key.append(id(code))
    walk.kept.append(code)
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # an empty cell
            raise CannotTell from None
        tell(value, walk, depth + 1)
    tell(function.__defaults__, walk, depth + 1)
    if function.__kwdefaults__:
        tell_other(function.__kwdefaults__, walk, depth + 1)
    known = function.__globals__
    for name, may_be_builtin in zip(names, builtins):
        if name in known:
            tell(known[name], walk, depth + 1)
        elif may_be_builtin:
            walk.key.append(name)
        else:
            raise CannotTell


class Place(NamedTuple):
    """What functions are told by, the tensors that they see, and what the ids in the key are of."""

    key: tuple[Any, ...]
    tensors: list[Any]
    kept: list[Any]


class _Entry(NamedTuple):
    variant: Any
    values: tuple[Any, ...]
    read: tuple[int, ...]  # which of the tensors that the functions see the variant reads
    kept: list[Any]  # alive, so that their ids stay theirs


def walk_in_python(functions: tuple[Any, ...]) -> Optional[tuple[Any, Any, Any]]:
    """(key, tensors, what must live) of functions; None: they may change without a sign."""
    walk = Walk([], [], [], {}, [])
    try:
        for function in functions:
            tell(function, walk, 0)
    except CannotTell:
        return None
    return tuple(walk.key), walk.tensors, walk.kept


Found = tuple[Any, tuple[Any, ...], tuple[Any, ...]]


def recall_in_python(
    entries: dict[Any, _Entry], functions: tuple[Any, ...]
) -> tuple[Optional[Found], Optional[tuple[Any, Any, Any]]]:
    """(variant, values, tensors) that keep() was given for functions that are told by the same, with the tensors that
    these see now; else what they are told by, a Place or a tuple like one. Both None: they may change without a sign.
    """
    told = walk_in_python(functions)
    entry = None if told is None else entries.get(told[0])
    if told is None or entry is None:
        return None, told
    return (entry.variant, entry.values, tuple([told[1][i] for i in entry.read])), None


if native is None:
    recall = recall_in_python
else:

    def _tell_for_c(value: Any, key: Any, tensors: Any, kept: Any, met: Any, alive: Any, depth: int) -> None:
        """What is not told in C, with the parts of the walk."""
        tell(value, Walk(key, tensors, kept, met, alive), depth)

    recall = native.recall
    native.configure_walk(
        outlines, constants, kinds, attributes, look, _tell_for_c, CannotTell, types.FunctionType, types.MethodType,
        DEPTH_MAX, LENGTH_MAX,
    )  # fmt: skip


_entries: dict[Any, _Entry] = {}

#: Code of functions that could not be told, by its id, and how often it came since; kept, so that the id stays its own.
_untold: dict[int, list[Any]] = {}

#: A function of such code is looked at again the so manyth time, because others of the same code may be told.
_RETRIED = 32


def recalled(functions: tuple[Optional[Function], ...]) -> tuple[Optional[Found], Optional[tuple[Any, Any, Any]]]:
    """recall() of the entries that keep() made.

    A function of the same code as one that could not be told is looked at seldom: most see the same kinds of things.
    """
    if _untold and _is_untold(functions):
        return None, None
    found: tuple[Optional[Found], Optional[tuple[Any, Any, Any]]] = recall(_entries, functions)
    if found[0] is None and found[1] is None:
        _note_untold(functions)
    return found


def _is_untold(functions: tuple[Optional[Function], ...]) -> bool:
    for function in functions:
        known = _untold.get(id(getattr(function, "__code__", None)))
        if known is not None:
            known[1] += 1
            if known[1] % _RETRIED:
                return True
    return False


def _note_untold(functions: tuple[Optional[Function], ...]) -> None:
    if len(_untold) >= KEPT_MAX:
        _untold.clear()
    for function in functions:
        code = getattr(function, "__code__", None)
        if code is not None:
            _untold[id(code)] = [code, 0]


def is_watched(kept: list[Any]) -> bool:
    """Must a trace of functions whose walk kept these tell whether it calls an nn.Module?"""
    from . import _recall_objects

    return _recall_objects.is_of_neural(kept)


def keep(place: Place, variant: Any, values: tuple[Any, ...], tensors: tuple[Any, ...]) -> None:
    at = {id(tensor): i for i, tensor in enumerate(place.tensors)}
    if not all(id(tensor) in at for tensor in tensors):
        return  # a tensor was made while the function ran
    if len(_entries) >= KEPT_MAX:
        _entries.clear()
    _entries[place.key] = _Entry(variant, values, tuple([at[id(tensor)] for tensor in tensors]), place.kept)
