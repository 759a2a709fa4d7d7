"""Choosing and tuning configs: what Family.choose(), Family.tune() and kjit.tune_attention() share."""

from __future__ import annotations

import ctypes
import functools
import traceback
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _abi
from ._library import as_text, assign, call, lib, struct
from .flash_config import DType
from .runtime import Runtime, runtime_or_default

#: Microseconds of one run of a config, whose cubin is given.
Timer = Callable[[Any, bytes], float]
#: Whether the result of a config is right.
Checker = Callable[[Any, bytes], bool]


class Choice(NamedTuple):
    """What was chosen for a problem."""

    config: Any
    #: "table": a tuned table's row; "rules": the family's `choose`, or its defaults.
    decided_by: str


class Tuned(NamedTuple):
    """What tuning found for a problem."""

    #: The fastest; what the rules choose if nothing was faster by the margin, twice.
    config: Any
    #: "table" or "rules".
    decided_by: str
    microseconds: float
    rules_microseconds: float
    #: Configs that were timed, refused by rules or the compiler's report, and dropped by a failure.
    candidates: int
    refused: int
    failed: int
    #: Why the first of the failed was dropped, its config in front; "".
    first_failure: str


_DECIDED = {_abi.KJIT_DECIDED_BY_RULES: "rules", _abi.KJIT_DECIDED_BY_TABLE: "table"}
_MESSAGE_BYTES = 400


def place(runtime: Runtime, arch: Optional[str]) -> tuple[Any, Optional[bytes]]:
    """A device and an architecture as the library takes them: the current GPU, or an architecture without a card."""
    if arch is not None:
        return None, as_text("arch", arch)
    device = struct(_abi.kjit_device_info)
    call(lib.kjit_device_get_info, runtime.handle, -1, ctypes.byref(device))
    return ctypes.byref(device), None


def problem_of(handle: Any, problem: Union[str, dict[str, Any]]) -> Any:
    """A kjit_family_problem of text or of names and values."""
    if not isinstance(problem, str):
        problem = ",".join(f"{name}={_word(value)}" for name, value in problem.items())
    made = _abi.kjit_family_problem()
    call(lib.kjit_family_problem_parse, handle, as_text("problem", problem), ctypes.byref(made))
    return made


def _word(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def choose(family: Any, problem: Any, arch: Optional[str], runtime: Optional[Runtime]) -> Choice:
    runtime = runtime_or_default(runtime)
    config, decided = _abi.kjit_config(), ctypes.c_uint32()
    device, name = place(runtime, arch)
    call(
        lib.kjit_family_choose,
        runtime.handle,
        ctypes.byref(problem_of(family._handle, problem)),
        device,
        name,
        ctypes.byref(config),
        ctypes.byref(decided),
    )
    return Choice(family.Config._of(config), _DECIDED[decided.value])


class Calls:
    """The options of a tuning with Python functions in them. An exception of time() drops the candidate; of
    KeyboardInterrupt and SystemExit it ends the tuning, and is raised again."""

    def __init__(self, time: Timer, check: Optional[Checker], config_of: Callable[[Any], Any]) -> None:
        self._time, self._check, self._config_of = time, check, config_of
        self.raised: Optional[BaseException] = None
        self.options = struct(_abi.kjit_tune_options)
        self.options.contest = struct(
            _abi.kjit_contest_settings, warmup=1, first_runs=3, final_runs=25, finalists=4, margin=0.01
        )
        kinds = {name: kind for name, kind, *_ in _abi.kjit_tune_options._fields_}
        self.options.time = kinds["time"](self._call_time)
        self.options.over = kinds["over"](lambda user: int(self.raised is not None))
        if check is not None:
            self.options.check = kinds["check"](self._call_check)

    def _arguments(self, trial: Any) -> tuple[Any, bytes]:
        info = struct(_abi.kjit_artifact_info)
        call(lib.kjit_artifact_get_info, trial.contents.artifact, ctypes.byref(info))
        return self._config_of(trial.contents.config.contents), ctypes.string_at(info.cubin, info.cubin_bytes)

    def _guard(self, error: Any, action: Callable[[], None]) -> int:
        try:
            action()
            return int(_abi.KJIT_OK)
        except Exception as fault:
            message = traceback.format_exception_only(type(fault), fault)[-1].strip().splitlines()[0]
            error.contents.message = message.encode()[:_MESSAGE_BYTES]
        except BaseException as fault:
            self.raised = fault
            error.contents.message = b"interrupted"
        error.contents.status = _abi.KJIT_ERR_CANCELLED if self.raised else _abi.KJIT_ERR_DRIVER
        return int(error.contents.status)

    def _call_time(self, user: Any, trial: Any, microseconds: Any, error: Any) -> int:
        def run() -> None:
            microseconds[0] = float(self._time(*self._arguments(trial)))

        return self._guard(error, run)

    def _call_check(self, user: Any, trial: Any, right: Any, error: Any) -> int:
        def run() -> None:
            assert self._check is not None
            right[0] = int(bool(self._check(*self._arguments(trial))))

        return self._guard(error, run)


def run(calls: Calls, where: tuple[Any, ...], *, most: int, runs: int, margin: float, publish: bool) -> Tuned:
    """Call kjit_tune_run() for a problem in its place, with these options."""
    assign(calls.options, most=most, flags=0 if publish else _abi.KJIT_TUNE_NO_PUBLISH)
    assign(calls.options.contest, final_runs=runs, margin=margin)
    outcome = struct(_abi.kjit_tune_outcome)
    try:
        call(lib.kjit_tune_run, *where, ctypes.byref(calls.options), ctypes.byref(outcome))
    finally:
        if calls.raised is not None:
            raise calls.raised
    return Tuned(
        calls._config_of(outcome.config),
        _DECIDED[outcome.decided_by],
        outcome.microseconds,
        outcome.rules_microseconds,
        outcome.candidates,
        outcome.refused,
        outcome.failed,
        outcome.first_failure.decode(errors="replace"),
    )


def tune_attention(
    time: Timer,
    *,
    dtype: str = "bf16",
    causal: bool = False,
    batch: int = 1,
    heads_q: int = 1,
    heads_kv: int = 0,
    seq_q: int,
    seq_kv: int = 0,
    head_dim: int,
    head_dim_v: int = 0,
    check: Optional[Checker] = None,
    most: int = 0,
    runs: int = 25,
    margin: float = 0.01,
    publish: bool = True,
    runtime: Optional[Runtime] = None,
) -> Tuned:
    """Tune a problem of attention on the current GPU: candidates around what the rules choose, timed by the caller.

    time(config, cubin): microseconds of one run; config is the text of kjit.Family.find(...).Config. The outcome goes
    into the GPU's table, which attention() of later processes asks first. `kjit tune` does the same by itself.
    """
    from .family import Family

    runtime = runtime_or_default(runtime)
    find = functools.lru_cache(None)(Family.find)  # whichever families the planner takes

    def config_of(config: Any) -> Any:
        return find(lib.kjit_family_name(config.family).decode()).Config._of_copy(config)

    problem = struct(
        _abi.kjit_attention_problem,
        dtype=int(DType.from_string(dtype)),
        flags=_abi.KJIT_ATTENTION_CAUSAL if causal else 0,
        batch=batch,
        heads_q=heads_q,
        heads_kv=heads_kv or heads_q,
        seq_q=seq_q,
        seq_kv=seq_kv or seq_q,
        head_dim=head_dim,
        head_dim_v=head_dim_v or head_dim,
    )
    device, _ = place(runtime, None)
    calls = Calls(time, check, config_of)
    asked = _abi.kjit_tune_problem(attention=problem)
    where = (runtime.handle, ctypes.byref(asked), device, None)
    return run(calls, where, most=most, runs=runs, margin=margin, publish=publish)
