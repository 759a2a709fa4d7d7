"""Finds libkjit.so, loads it, and gives its functions their types."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from . import _abi
from .errors import error_class


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


def raise_error(error: _abi.kjit_error) -> None:
    """The exception of a kjit_error, with the library's own sentence."""
    raise error_class(error.status)(
        error.message.decode(errors="replace"),
        status=error.status,
        status_name=lib.kjit_status_name(error.status).decode(),
        cause=error.cause,
        cause_domain=error.cause_domain,
    )


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


def text_or_none(value: Any) -> bytes | None:
    """A str or path as the library takes it; None stays NULL."""
    return None if value is None else os.fsencode(value)


def struct(kind: type[ctypes.Structure], **values: Any) -> Any:
    """A struct that begins with its size."""
    return kind(struct_size=ctypes.sizeof(kind), **values)


def as_dict(value: ctypes.Structure) -> dict[str, Any]:
    """A struct's members by name, without struct_size; text decoded."""
    read = {}
    for name in (field[0] for field in value._fields_):
        member = getattr(value, name)
        read[name] = member.decode(errors="replace") if isinstance(member, bytes) else member
    read.pop("struct_size", None)
    return read
