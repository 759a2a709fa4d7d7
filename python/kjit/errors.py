"""The library's status codes as exceptions. The message is the library's own sentence: what, where, and the rule."""

from __future__ import annotations

from typing import Any

from . import _abi


class Error(RuntimeError):
    """Any failure that the library reports."""

    def __init__(
        self, message: str, *, status: int, status_name: str = "", cause: int = 0, cause_domain: int = 0, log: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.status_name = status_name
        #: The lower layer's own number (errno, CUresult, nvrtcResult), 0 if none; cause_domain says whose.
        self.cause = cause
        self.cause_domain = cause_domain
        #: What the compiler said, if it was asked.
        self.log = log

    def __reduce__(self) -> Any:
        return _restore, (type(self), self.args[0], self.__dict__)


def _restore(kind: type[Error], message: str, attributes: dict[str, Any]) -> Error:
    return kind(message, **attributes)


class InvalidArgument(Error, ValueError):
    """A tensor's rank, shape, stride, alignment, device or dtype, or another argument."""


class InvalidConfig(Error, ValueError):
    """A config breaks a rule of its family, or does not fit the tensors."""


class ParseError(Error, ValueError):
    """Text could not be read: the message has the column."""


class Unsupported(Error, NotImplementedError):
    """Not computed by this library on this architecture or device: the message says what."""


class NoMemory(Error, MemoryError):
    """Out of host memory."""


class NoNvrtc(Error):
    """A compile is needed and NVRTC is missing or unusable."""


class CompileError(Error):
    """The compiler rejected the source: see `log`."""


class NoDriver(Error):
    """The CUDA driver or a GPU is missing, or no context is current."""


class DriverError(Error):
    """A CUDA driver call failed: `cause` is its CUresult."""


class NotFound(Error, LookupError):
    """No such set, entry, header."""


class DeadlinePassed(Error, TimeoutError):
    """Not done in the time given."""


# A status that is not here is an Error: there is nothing that a caller would do about it.
_CLASSES: dict[int, type[Error]] = {
    _abi.KJIT_ERR_INVALID_ARG: InvalidArgument,
    _abi.KJIT_ERR_INVALID_CONFIG: InvalidConfig,
    _abi.KJIT_ERR_PARSE: ParseError,
    _abi.KJIT_ERR_UNSUPPORTED: Unsupported,
    _abi.KJIT_ERR_NO_MEMORY: NoMemory,
    _abi.KJIT_ERR_NO_NVRTC: NoNvrtc,
    _abi.KJIT_ERR_COMPILE: CompileError,
    _abi.KJIT_ERR_NO_DRIVER: NoDriver,
    _abi.KJIT_ERR_DRIVER: DriverError,
    _abi.KJIT_ERR_NOT_FOUND: NotFound,
    _abi.KJIT_ERR_TIMEOUT: DeadlinePassed,
}


def error_class(status: int) -> type[Error]:
    return _CLASSES.get(status, Error)
