"""Finds libkjit.so, loads it, and gives its functions their types."""

from __future__ import annotations

import ctypes
import operator
import os
from pathlib import Path
from typing import Any

from . import _abi
from .errors import Error, error_class


def _candidates() -> list[str]:
    """$KJIT_LIBRARY alone; else the wheel's own library, then an installed one."""
    asked = os.environ.get("KJIT_LIBRARY")
    if asked:
        return [asked]
    return [str(Path(__file__).with_name("libkjit.so")), f"libkjit.so.{_abi.KJIT_VERSION_MAJOR}"]


def _load() -> ctypes.CDLL:
    reasons = []
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(f"libkjit could not be loaded: {'; '.join(reasons)}; $KJIT_LIBRARY may name it")


def _declare(library: ctypes.CDLL) -> None:
    """A function that is missing is an AttributeError of its callers, not of everybody."""
    for name, (result, parameters) in _abi.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is not None:
            function.restype, function.argtypes = result, parameters


def _check_version(library: ctypes.CDLL) -> str:
    """Before 1.0 a minor version may change anything."""
    version: str = library.kjit_version().decode()
    wanted = f"{_abi.KJIT_VERSION_MAJOR}.{_abi.KJIT_VERSION_MINOR}."
    if not version.startswith(wanted):
        raise ImportError(f"{library._name} is version {version}: this package was made for {wanted}x")
    return version


lib = _load()
_declare(lib)
version = _check_version(lib)


def failure(status: int, message: str, *, cause: int = 0, cause_domain: int = 0) -> Error:
    """The exception of a status."""
    name: str = lib.kjit_status_name(status).decode()
    return error_class(status)(message, status=status, status_name=name, cause=cause, cause_domain=cause_domain)


def raise_error(error: _abi.kjit_error) -> None:
    """The exception of a kjit_error, with the library's own sentence."""
    message = error.message.decode(errors="replace")
    raise failure(error.status, message, cause=error.cause, cause_domain=error.cause_domain)


def call(function: Any, *arguments: Any) -> None:
    """Call a function that returns a kjit_status and takes a kjit_error last; raise what went wrong."""
    error = _abi.kjit_error()
    if function(*arguments, ctypes.byref(error)) != _abi.KJIT_OK:
        raise_error(error)


def untyped(name: str) -> Any:
    """A function of its own without parameter types, so that pointers made beforehand pass as they are."""
    function = lib[name]
    function.restype = ctypes.c_int
    return function


def _without_nul(what: str, value: Any, encoded: bytes) -> bytes:
    """C would take a text up to its first NUL, and nobody would hear that the rest is missing."""
    if b"\0" in encoded:
        raise ValueError(f"{what} is {value!r}: must not contain a NUL")
    return encoded


def as_utf8(what: str, value: Any) -> bytes:
    """A str, NULs and all, as bytes. what: the argument's name, for messages."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}: must be a str")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} has {value[error.start]!r} at character {error.start}: must be UTF-8") from None


def as_text(what: str, value: Any) -> bytes:
    """A str as the library takes it."""
    return _without_nul(what, value, as_utf8(what, value))


def as_path(what: str, value: Any) -> bytes:
    """A str, bytes or path as the library takes it."""
    try:
        encoded = os.fsencode(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}: must be a str, bytes or a path") from None
    return _without_nul(what, value, encoded)


def pairs_of(what: str, mapping: Any) -> list[tuple[Any, Any]]:
    """The names and values of a mapping; none for None."""
    if mapping is None:
        return []
    if not hasattr(mapping, "items"):
        raise TypeError(f"{what} is {mapping!r}: must be a mapping of names to values")
    return list(mapping.items())


def text_or_none(what: str, value: Any) -> bytes | None:
    """as_text(); None stays NULL."""
    return None if value is None else as_text(what, value)


def path_or_none(what: str, value: Any) -> bytes | None:
    """as_path(); None stays NULL."""
    return None if value is None else as_path(what, value)


def _out_of_range(what: str, value: Any, kind: Any) -> OverflowError:
    bits = 8 * ctypes.sizeof(kind)
    least, bound = (-(1 << bits - 1), 1 << bits - 1) if kind(-1).value < 0 else (0, 1 << bits)
    return OverflowError(f"{what} is {value}: must be {least} to {bound - 1}")


def as_number(what: str, value: Any, kind: Any = ctypes.c_uint64) -> int:
    """A whole number that fits a type of ctypes, which would cut one that does not."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}: must be a whole number") from None
    if kind(number).value != number:
        raise _out_of_range(what, value, kind)
    return number


def assign(target: ctypes.Structure, **values: Any) -> None:
    """Write members of a struct. Numbers that do not fit theirs are errors, where ctypes would cut them."""
    for name, value in values.items():
        try:
            setattr(target, name, value)
        except TypeError as error:
            raise TypeError(f"{name} is {value!r}: {error}") from None
        held = getattr(target, name)
        if isinstance(held, int) and held != value:
            raise _out_of_range(name, value, dict(target._fields_)[name])  # type: ignore[arg-type]


def struct(kind: type[ctypes.Structure], **values: Any) -> Any:
    """A struct that begins with its size."""
    made = kind(struct_size=ctypes.sizeof(kind))
    if values:
        assign(made, **values)
    return made


def as_dict(value: ctypes.Structure) -> dict[str, Any]:
    """A struct's members by name, without struct_size; text decoded."""
    read = {}
    for name in (field[0] for field in value._fields_):
        member = getattr(value, name)
        read[name] = member.decode(errors="replace") if isinstance(member, bytes) else member
    read.pop("struct_size", None)
    return read
