"""What an object that a function sees is told by (_recall.py).

An object of a class that Python code made is told by its class and by those of its attributes that some code names:
what it holds itself, what its class has, methods by their code, properties by their getter. Classes that look their
attributes up in their own way, and those with operators of their own, cannot be told. An nn.Module is told like another
object, with its parameters, buffers and modules; what a call of it would run, hooks among it, is not told, so a trace
that runs code of nn.Module's is not kept (_trace_torch.Watch). What stays what it is, such as a module of PyTorch or a
dtype, is told by being the same object.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any, NamedTuple

from . import _code
from ._recall import (
    KEPT_MAX,
    LENGTH_MAX,
    CannotTell,
    Walk,
    add_constant,
    attributes,
    is_module,
    is_of_modules,
    kinds,
    tell,
    tell_elements,
    was_met,
)  # fmt: skip

#: What a class may define with two underscores: nothing that an operator or an attribute of an object calls.
_DUNDERS = frozenset(
    "__init__ __post_init__ __repr__ __str__ __module__ __doc__ __dict__ __weakref__ __annotations__ __qualname__ "
    "__slots__ __match_args__ __dataclass_fields__ __dataclass_params__ __static_attributes__ __firstlineno__ "
    "__annotate__ __annotate_func__ __annotations_cache__ __replace__ __orig_bases__ __call__ __init_subclass__ "
    "__getstate__ __setstate__".split()
)
#: What @dataclass and NamedTuple write besides.
_DATACLASS = _DUNDERS | frozenset("__eq__ __hash__ __setattr__ __delattr__".split())
_NAMED_TUPLE = _DUNDERS | frozenset("__new__ __getnewargs__".split())


def _is_constant(value: Any, kind: type, torch: Any) -> bool:
    if kind is types.ModuleType:
        return is_module(value.__name__)
    if kind is types.BuiltinFunctionType:
        if type(value.__self__) is types.ModuleType:
            name = value.__self__.__name__
            return is_module(name) or (name == "builtins" and _code.is_known_builtin(value.__name__))
        return value.__self__ is None and is_of_modules(value)
    if kind is type:
        return value.__module__ == "builtins" and _code.is_known_builtin(value.__name__)
    return torch is not None and kind in (torch.dtype, torch.device, torch.layout)


def tell_object(value: Any, walk: Walk, depth: int) -> None:
    """Whatever is no value, no function, no tuple and no list."""
    kind = type(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        _tell_tensor(value, walk)
    elif _is_constant(value, kind, torch):
        add_constant(value)
        walk.key.append(value)
    elif kind is types.MethodType:
        walk.key.append(kind)
        tell(value.__func__, walk, depth + 1)
        tell(value.__self__, walk, depth + 1)
    elif not was_met(value, walk):
        if kind is dict:
            _tell_dict(value, walk, depth)
        elif kind is functools.partial:
            walk.key.append(kind)
            for each in (value.func, value.args, *sorted(value.keywords), *map(value.keywords.get, value.keywords)):
                tell(each, walk, depth + 1)
        elif kind is type:
            walk.key.append(kind)
            _tell_class(value, value, (), _DUNDERS, object, walk, depth)
        elif kind is types.ModuleType:
            _tell_module(value, walk, depth)
        elif torch is not None and isinstance(value, torch.nn.Module):
            _tell_neural(value, kind, walk, depth, torch.nn.Module)
        elif kind in (set, frozenset):
            tell_elements(value, kind, walk, depth)
        elif _is_numpy_number(value):
            walk.key.append(kind)
            walk.key.append(value.tobytes())
        elif isinstance(value, tuple):
            _tell_named_tuple(value, kind, walk, depth, torch)
        else:
            _tell_instance(value, kind, walk, depth)


def _tell_tensor(value: Any, walk: Walk) -> None:
    from . import _prepared

    if was_met(value, walk):
        return
    if value.__dict__:  # what somebody put there may change
        raise CannotTell
    walk.key.append(type(value))
    walk.key.append(_prepared.signature(value.device, (value,)))
    walk.tensors.append(value)


def _tell_dict(value: Any, walk: Walk, depth: int) -> None:
    if len(value) > LENGTH_MAX:
        raise CannotTell
    walk.key.append(dict)
    walk.key.append(len(value))
    for name, each in value.items():
        tell(name, walk, depth + 1)
        tell(each, walk, depth + 1)


def _tell_named(named: Any, walk: Walk, depth: int) -> None:
    """Of what an object holds, that which some code names."""
    for name in [name for name in named if name in attributes]:
        walk.key.append(name)
        tell(named[name], walk, depth + 1)


def _tell_module(value: Any, walk: Walk, depth: int) -> None:
    if "__getattr__" in value.__dict__:
        raise CannotTell
    walk.key.append(types.ModuleType)
    _tell_named(value.__dict__, walk, depth)


def _tell_neural(value: Any, kind: Any, walk: Walk, depth: int, base: Any) -> None:
    """An nn.Module: it looks for what its class and itself have not among its parameters, buffers and modules."""
    if kind.__new__ is not object.__new__ or kind.__getattr__ is not base.__getattr__ or kind.__mro__[-2] is not base:
        raise CannotTell
    walk.kept.append(base)  # by which is_of_neural() knows
    if kind is not base:
        _tell_class(value, kind, ("__init__",), _DUNDERS, base, walk, depth)
    walk.key.append(kind)
    held = value.__dict__
    for named in (held, held.get("_parameters"), held.get("_buffers"), held.get("_modules")):
        walk.key.append(None)  # where one ends
        _tell_named(named or (), walk, depth)


def is_of_neural(kept: list[Any]) -> bool:
    """Was an nn.Module met in the walk that kept these?"""
    torch = sys.modules.get("torch")
    return torch is not None and any(each is torch.nn.Module for each in kept)


def _is_numpy_number(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and type(value).__module__ == "numpy"


def _tell_named_tuple(value: Any, kind: Any, walk: Walk, depth: int, torch: Any) -> None:
    if torch is None or kind is not torch.Size:
        if not hasattr(kind, "_fields") or kind.__getitem__ is not tuple.__getitem__:
            raise CannotTell
        _tell_class(value, kind, kind._fields, _NAMED_TUPLE, tuple, walk, depth)
    walk.key.append(kind)
    for each in value:
        tell(each, walk, depth + 1)


def _tell_instance(value: Any, kind: Any, walk: Walk, depth: int) -> None:
    if kind is not types.SimpleNamespace:
        if kind.__new__ is not object.__new__ or not kind.__flags__ & _HEAP_TYPE:
            raise CannotTell
        allowed = _DATACLASS if hasattr(kind, "__dataclass_fields__") else _DUNDERS
        _tell_class(value, kind, ("__init__",), allowed, object, walk, depth)
        if hasattr(value, "__dict__"):
            _add_kind(kind)
    walk.key.append(kind)
    _tell_named(getattr(value, "__dict__", ()), walk, depth)


_HEAP_TYPE = 1 << 9


class _Shape(NamedTuple):
    """What a class of its own has: all its names in their order, and those of them that concern a walk."""

    kind: type  # alive, so that its id stays its own
    names: tuple[str, ...]
    attributes: int  # how many there were then
    found: tuple[str, ...]


_shapes: dict[int, _Shape] = {}


def _shape_of(kind: type, allowed: frozenset[str]) -> tuple[str, ...]:
    """The names in one class that code names or that calls use; CannotTell: it has operators that its author wrote."""
    names = tuple(kind.__dict__)
    shape = _shapes.get(id(kind))
    if shape is not None and shape.names == names and shape.attributes == len(attributes):
        return shape.found
    for name in names:
        if name.startswith("__") and name not in allowed and not name.startswith("__parameters"):
            raise CannotTell
    found = tuple([name for name in names if name in attributes or name in ("__call__", "__init__")])
    if len(_shapes) >= KEPT_MAX:
        _shapes.clear()
    _shapes[id(kind)] = _Shape(kind, names, len(attributes), found)
    return found


def _tell_class(
    value: Any, kind: type, without: tuple[str, ...], allowed: Any, base: type, walk: Walk, depth: int
) -> None:
    """What a class and those above it have under names that some code names, but for those in `without`.

    Attributes must be found as Python finds them, and no operators be there that the class's author wrote.
    """
    if type(kind) is not type or kind.__getattribute__ is not base.__getattribute__:
        raise CannotTell
    walk.kept.append(kind)
    walk.key.append(id(kind))
    for each in kind.__mro__:
        if each is base:
            return
        for name in _shape_of(each, allowed):
            if name not in without:
                walk.key.append(name)
                _tell_of_name(value, each.__dict__[name], name, walk, depth + 1)
    raise CannotTell


def _add_kind(kind: type) -> None:
    """From now on objects of this class, which were told here, may be told in C: it has functions and values alone."""
    shapes = [shape for shape in (_shapes.get(id(each)) for each in kind.__mro__[:-1]) if shape is not None]
    if len(shapes) != len(kind.__mro__) - 1:
        return  # the table was cleared meanwhile
    found = [shape.kind.__dict__[name] for shape in shapes for name in shape.found if name != "__init__"]
    if any(hasattr(type(each), "__get__") and type(each) is not types.FunctionType for each in found):
        return
    if len(kinds) >= KEPT_MAX:
        kinds.clear()
    rows = tuple([(s.kind, s.names, tuple([name for name in s.found if name != "__init__"])) for s in shapes])
    kinds[id(kind)] = kind, kind.__mro__, rows, len(attributes)


def _tell_of_name(value: Any, found: Any, name: str, walk: Walk, depth: int) -> None:
    """What a class has under a name: code, a slot of the object's, or a value."""
    kind = type(found)
    if kind is property:
        walk.key.append(kind)
        tell(found.fget, walk, depth)
    elif kind is staticmethod:
        walk.key.append(kind)
        tell(found.__func__, walk, depth)
    elif kind is types.MemberDescriptorType and hasattr(value, name):
        tell(getattr(value, name), walk, depth)
    elif kind is not types.FunctionType and hasattr(kind, "__get__"):
        raise CannotTell
    else:
        tell(found, walk, depth)
