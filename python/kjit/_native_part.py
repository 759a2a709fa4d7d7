"""The extension module _native, which does in C what is done most often: launches (_launcher.py) and repeated requests.

Where it is missing, because this Python has another ABI or there was no compiler, or where $KJIT_NATIVE is 0, the same
is done in Python, in some microseconds more. MISSING says why, and `python -m kjit doctor` shows it.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

native: Any = None
#: Why the module is not used; "" when it is.
MISSING = ""

try:
    if os.environ.get("KJIT_NATIVE") == "0":
        raise ImportError("$KJIT_NATIVE is 0")
    from . import _native as native  # type: ignore[attr-defined,no-redef]
except ImportError as _fault:
    MISSING = str(_fault)


def address_of(function: Any) -> int:
    """Where a function of a library is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
