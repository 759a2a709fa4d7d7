"""A kjit_build_request made of Python values. The memory that it points to lives as long as the request."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional, Union

from . import _abi
from ._library import as_path, as_text, as_utf8, pairs_of, struct, text_or_none

#: A macro's value: text as it stands behind #define; None and True mean 1.
Defines = Mapping[str, object]
Paths = Iterable[Union[str, "os.PathLike[str]"]]


class Part(NamedTuple):
    """Compiled code as an input: kind is "cubin", "ptx", "ltoir" or "fatbin"."""

    kind: str
    data: bytes
    name: Optional[str] = None


PART_KINDS = {
    name.replace("KJIT_PART_", "", 1).lower(): value for name, value in _abi.ENUMS.get("kjit_part_kind", {}).items()
}


def _texts_given(**lists: Any) -> None:
    """One text in place of several is a mistake: its letters would be taken one by one."""
    for what, values in lists.items():
        if isinstance(values, (str, bytes)):
            raise TypeError(f"{what} is {values!r}: must be several texts, ({values!r},)")


def texts_of(what: str, values: Iterable[Any]) -> list[bytes]:
    """Several texts or paths as the library takes them."""
    _texts_given(**{what: values})
    return [as_path(f"{what}[{index}]", value) for index, value in enumerate(values)]


def _source(what: str, name: str, text: str) -> Any:
    """The library is told how long the text is, and says itself where a NUL is in it."""
    content = as_utf8(what, text)
    return _abi.kjit_source(as_text(f"the name of {what}", name), content, len(content))


def _macro_text(name: str, value: object) -> str:
    if value is None or value is True:
        return "1"
    if value is False:
        return "0"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"defines[{name!r}] is {value}: must be finite, or a text that C++ knows")
    if type(value).__str__ is object.__str__ and type(value).__repr__ is object.__repr__:
        raise TypeError(f"defines[{name!r}] is a {type(value).__name__}: must be a number, a bool or a text")
    return str(value)


def _macro(name: str, value: object) -> Any:
    text = _macro_text(name, value)
    return _abi.kjit_define(as_text("the name of a define", name), as_text(f"defines[{name!r}]", text))


def _part(part: Part) -> Any:
    if not isinstance(part, Part):
        raise TypeError(f"a part is {part!r}: must be a kjit.Part")
    if part.kind not in PART_KINDS:
        raise ValueError(f"part kind is {part.kind!r}: must be one of {', '.join(PART_KINDS)}")
    content = bytes(part.data)
    held = _abi.kjit_part(name=text_or_none("the name of a part", part.name), kind=PART_KINDS[part.kind])
    held.bytes = len(content)
    return held, ctypes.create_string_buffer(content, len(content) + 1)


def put_array(request: Any, member: str, count: str, values: list[Any]) -> None:
    if values:
        kind = type(values[0]) if isinstance(values[0], ctypes.Structure) else ctypes.c_char_p
        setattr(request, member, (kind * len(values))(*values))
        setattr(request, count, len(values))


def define_array(defines: Optional[Defines]) -> list[Any]:
    return [_macro(name, value) for name, value in pairs_of("defines", defines)]


#: Requests that were made of equal arguments before. The library only reads them, so that threads may share one.
_memo: dict[Any, Any] = {}
_MEMO_REQUESTS_MAX = 64
_MEMO_TEXT_MAX = 1 << 20


def request_for(
    text: Optional[str],
    *,
    entry: Optional[str] = None,
    arch: Optional[str] = None,
    name: str = "source.cu",
    defines: Optional[Defines] = None,
    headers: Optional[Mapping[str, str]] = None,
    include_dirs: Paths = (),
    options: Iterable[str] = (),
    names: Iterable[str] = (),
    parts: Iterable[Part] = (),
    no_compile: bool = False,
    strict_sources: bool = False,
    keep_unused: bool = False,
    timeout_ms: int = 0,
) -> Any:
    """build_request(), or the request that equal arguments made before. It must not be written to."""
    if isinstance(include_dirs, (str, bytes)) or isinstance(options, (str, bytes)) or isinstance(names, (str, bytes)):
        _texts_given(include_dirs=include_dirs, options=options, names=names)
    folders = (include_dirs,) if isinstance(include_dirs, os.PathLike) else tuple(include_dirs)
    wanted = tuple(options), tuple(names), tuple(parts)
    key = None
    if not wanted[2] and (text is None or (isinstance(text, str) and len(text) <= _MEMO_TEXT_MAX)):
        macros = tuple([(macro, _macro_text(macro, value)) for macro, value in pairs_of("defines", defines)])
        texts = tuple(pairs_of("headers", headers))
        flags = no_compile, strict_sources, keep_unused, timeout_ms
        key = (text, entry, arch, name, macros, texts, folders, wanted, flags)
        found = _memo.get(key)
        if found is not None:
            return found
    request = build_request(
        text,
        entry=entry,
        arch=arch,
        name=name,
        defines=defines,
        headers=headers,
        include_dirs=folders,
        options=wanted[0],
        names=wanted[1],
        parts=wanted[2],
        no_compile=no_compile,
        strict_sources=strict_sources,
        keep_unused=keep_unused,
        timeout_ms=timeout_ms,
    )
    if key is not None:
        if len(_memo) >= _MEMO_REQUESTS_MAX:
            _memo.clear()
        _memo[key] = request
    return request


def build_request(
    text: Optional[str],
    *,
    entry: Optional[str] = None,
    arch: Optional[str] = None,
    name: str = "source.cu",
    defines: Optional[Defines] = None,
    headers: Optional[Mapping[str, str]] = None,
    include_dirs: Paths = (),
    options: Iterable[str] = (),
    names: Iterable[str] = (),
    parts: Iterable[Part] = (),
    no_compile: bool = False,
    strict_sources: bool = False,
    keep_unused: bool = False,
    timeout_ms: int = 0,
) -> Any:
    flags = _abi.KJIT_BUILD_NO_COMPILE if no_compile else 0
    flags |= _abi.KJIT_BUILD_STRICT_SOURCES if strict_sources else 0
    flags |= _abi.KJIT_BUILD_KEEP_UNUSED if keep_unused else 0
    request = struct(
        _abi.kjit_build_request,
        arch=text_or_none("arch", arch),
        entry=text_or_none("entry", entry),
        flags=flags,
        timeout_ms=timeout_ms,
    )
    if text is not None:
        request.source = _source("text", name, text)
    put_array(request, "headers", "header_count", [_source("a header", *pair) for pair in pairs_of("headers", headers)])
    put_array(request, "defines", "define_count", define_array(defines))
    folders = [include_dirs] if isinstance(include_dirs, os.PathLike) else include_dirs
    put_array(request, "include_dirs", "include_dir_count", texts_of("include_dirs", folders))
    put_array(request, "options", "option_count", texts_of("options", options))
    put_array(request, "names", "name_count", texts_of("names", names))
    held = [_part(part) for part in parts]
    for row, memory in held:
        row.data = ctypes.addressof(memory)
    put_array(request, "parts", "part_count", [row for row, _ in held])
    request.held = [memory for _, memory in held]
    return request
