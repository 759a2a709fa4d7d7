"""What a function's code can reach: the globals and attributes that it names, and whether that is all.

Two runs of code give the same when all that it reaches is the same, unless it writes to what outlives it, catches
errors, imports, or calls something that finds values by other ways. Code that does so has no outline. It is asked once
for each code object, by what `dis` says.
"""

from __future__ import annotations

import builtins
import dis
import types
from typing import NamedTuple, Optional

#: Builtins that give the same for the same, and change nothing.
_BUILTINS = frozenset(
    "abs all any bool complex dict divmod enumerate filter float frozenset int isinstance issubclass len list map max "
    "min pow range reversed round set slice sorted str sum tuple zip Ellipsis NotImplemented True False None "
    "ValueError TypeError AssertionError IndexError KeyError RuntimeError NotImplementedError".split()
)

#: Methods that change a list or a dict.
_CHANGES = frozenset("append extend insert pop remove clear sort reverse update setdefault popitem".split())

#: Operations that write to what may outlive the call, or find values by other ways than names.
_REFUSED = frozenset(
    "STORE_GLOBAL DELETE_GLOBAL STORE_ATTR DELETE_ATTR STORE_SUBSCR DELETE_SUBSCR STORE_SLICE STORE_NAME DELETE_NAME "
    "DELETE_DEREF IMPORT_NAME IMPORT_FROM IMPORT_STAR LOAD_BUILD_CLASS LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF "
    "LOAD_FROM_DICT_OR_GLOBALS LOAD_LOCALS LOAD_SUPER_ATTR LOAD_SUPER_METHOD POP_EXCEPT SETUP_FINALLY SETUP_WITH "
    "BEFORE_WITH LOAD_SPECIAL GET_AWAITABLE ASYNC_GEN_WRAP GET_ANEXT MATCH_CLASS LOAD_TEMPLATE BUILD_TEMPLATE".split()
)
_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))


class Outline(NamedTuple):
    """The globals that code names, builtins among them, and its attributes; of the code objects inside it too."""

    globals: tuple[str, ...]
    attributes: frozenset[str]


def _read(code: types.CodeType, outer: frozenset[str], named: dict[str, None], attributes: set[str]) -> bool:
    """Adds the names of code; `outer` are the variables of functions around it. False: there is no outline."""
    for step in dis.get_instructions(code):
        name = step.opname
        if name in _REFUSED or (name == "STORE_DEREF" and step.argval in outer):
            return False
        if name in _GLOBALS:
            named[step.argval] = None
        elif name in _ATTRIBUTES:
            if step.argval in _CHANGES or (step.argval.startswith("__") and step.argval.endswith("__")):
                return False
            attributes.add(step.argval)
    return all(_read(each, outer, named, attributes) for each in code.co_consts if isinstance(each, types.CodeType))


def outline(code: types.CodeType) -> Optional[Outline]:
    named: dict[str, None] = {}
    attributes: set[str] = set()
    if not _read(code, frozenset(code.co_freevars), named, attributes):
        return None
    return Outline(tuple(named), frozenset(attributes))


def is_known_builtin(name: str) -> bool:
    """May code name this where no global has the name? One that is nowhere is an error of the code."""
    return name in _BUILTINS or not hasattr(builtins, name)
