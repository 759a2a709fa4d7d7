"""Looking after the cache folder, as methods of kjit.Runtime."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple, Optional, Union

from . import _abi
from ._library import as_dict, as_number, as_path, as_text, call, lib, struct, text_or_none

Path = Union[str, "os.PathLike[str]"]


class Difference(NamedTuple):
    """A field in which two keys differ: "target", "compiler", "option", "source value.h", …"""

    field: str
    #: In the key that was asked about; "" if it lacks the field.
    wanted: str
    #: In the nearest entry; "" if that lacks it.
    found: str
    #: Of a source: the first line that differs, from 1; 0 for other fields, and when a text is not kept.
    line: int = 0
    #: That line in either source, shortened; None if the file ends before it, and when line is 0.
    wanted_line: Optional[str] = None
    found_line: Optional[str] = None


class Why(NamedTuple):
    """The entry whose key is nearest to one that was asked about, and all in which they differ."""

    nearest: str
    differences: list[Difference]


def _entry(entry: Any) -> dict[str, Any]:
    read = as_dict(entry)
    read["origin"] = lib.kjit_origin_name(read["origin"]).decode()
    read["cubin"] = ctypes.string_at(entry.cubin, entry.cubin_bytes) if entry.cubin else b""
    return read


class CacheUpkeep:
    """What a runtime can do with its user folder. Thread-safe, also while other processes use the folder."""

    handle: int

    def _report(self, function: Any, *arguments: Any) -> dict[str, int]:
        report = struct(_abi.kjit_cache_report)
        call(function, self.handle, *arguments, ctypes.byref(report))
        return as_dict(report)

    def _visit(self, function: Any, *arguments: Any) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []

        def visit(user: Any, entry: Any) -> int:
            entries.append(_entry(entry.contents))
            return 0

        call(function, self.handle, *arguments, _abi.kjit_cache_visit(visit), None)
        return entries

    def cache_stats(self) -> dict[str, int]:
        """The cache folder's counters, over all processes."""
        stats = struct(_abi.kjit_cache_stats)
        call(lib.kjit_cache_get_stats, self.handle, ctypes.byref(stats))
        return as_dict(stats)

    def cache_path(self) -> Optional[str]:
        """The user cache folder; None when the runtime keeps to memory."""
        path = lib.kjit_cache_path(self.handle)
        return os.fsdecode(path) if path else None

    def cache_entries(self) -> list[dict[str, Any]]:
        """Every entry of the user folder: key, label, arch, cubin, …; a damaged one says so in `damage`."""
        return self._visit(lib.kjit_cache_list)

    def cache_show(self, prefix: str) -> dict[str, Any]:
        """The one entry whose key begins with these hex digits, 4 at least. NotFound: there is none."""
        return self._visit(lib.kjit_cache_show, as_text("prefix", prefix))[0]

    def cache_why(self, key: str) -> Why:
        """Why a key is a miss: the entry nearest to it, and what differs.

        key: an artifact's key_text, or at least 4 hex digits of an entry's key.
        """
        differences: list[Difference] = []

        def visit(user: Any, difference: Any) -> int:
            row = difference.contents
            field, wanted, found = (text.decode(errors="replace") for text in (row.field, row.wanted, row.found))
            lines = (text and text.decode() for text in (row.wanted_line, row.found_line))
            differences.append(Difference(field, wanted, found, row.line, *lines))
            return 0

        nearest = ctypes.create_string_buffer(65)
        call(
            lib.kjit_cache_why,
            self.handle,
            as_text("key", key),
            nearest,
            _abi.kjit_cache_difference_visit(visit),
            None,
        )
        return Why(nearest.value.decode(), differences)

    def cache_verify(self, *, repair: bool = False) -> dict[str, int]:
        """Read and check every entry. repair: remove damaged ones. What was found: entries, damaged, removed, …"""
        return self._report(lib.kjit_cache_verify, _abi.KJIT_CACHE_REPAIR if repair else 0)

    def cache_prune(self, max_bytes: int) -> dict[str, int]:
        """Remove the least recently used entries until at most so many bytes remain; what was removed."""
        return self._report(lib.kjit_cache_prune, as_number("max_bytes", max_bytes))

    def cache_clear(self) -> dict[str, int]:
        """Remove every entry of the user folder; what was removed."""
        return self._report(lib.kjit_cache_clear)

    def cache_export(self, path: Path, filter: Optional[str] = None) -> dict[str, int]:
        """Write the sound entries to one file, a bundle without compression; what was written.

        filter: "name=value,name=value", all of which hold: name is family, arch, entry, label or key.
        """
        return self._report(lib.kjit_cache_export, as_path("path", path), text_or_none("filter", filter))

    def cache_import(self, path: Path) -> dict[str, int]:
        """Publish a bundle's kernels in the user folder; what was published. Only of files whose code you would run."""
        return self._report(lib.kjit_cache_import, as_path("path", path))
