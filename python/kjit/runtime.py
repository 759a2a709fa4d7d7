"""The runtime: caches, compiler and driver connections, loaded kernels. One per process, unless more are made."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator, NamedTuple, Optional, Union

from . import _abi, _cuda
from ._cache import CacheUpkeep
from ._library import (
    as_dict,
    as_number,
    as_path,
    as_text,
    call,
    failure,
    lib,
    path_or_none,
    raise_error,
    struct,
    text_or_none,
)
from ._native_part import native
from ._request import Defines, Part, Paths, build_request, put_array, request_for, texts_of
from .artifact import Artifact, read_artifact
from .errors import Error
from .flash_config import DType, FlashForwardKernelConfig, config_set

CACHE_MODES = {
    None: _abi.KJIT_CACHE_DEFAULT,
    "rw": _abi.KJIT_CACHE_RW,
    "ro": _abi.KJIT_CACHE_RO,
    "off": _abi.KJIT_CACHE_OFF,
}

COMPILE_SERVER = {
    None: _abi.KJIT_COMPILE_SERVER_DEFAULT,
    False: _abi.KJIT_COMPILE_SERVER_OFF,
    True: _abi.KJIT_COMPILE_SERVER_ON,
}
PCH_MODES = {
    None: _abi.KJIT_PCH_DEFAULT,
    "off": _abi.KJIT_PCH_OFF,
    "auto": _abi.KJIT_PCH_AUTO,
    "always": _abi.KJIT_PCH_ALWAYS,
}

Config = Union[FlashForwardKernelConfig, str]
Path = Union[str, "os.PathLike[str]"]


def as_config(config: Config) -> FlashForwardKernelConfig:
    """A config, or its short form."""
    made = FlashForwardKernelConfig.parse(config) if isinstance(config, str) else config
    if not isinstance(made, FlashForwardKernelConfig):
        raise TypeError(f"config is {config!r}: must be a FlashForwardKernelConfig or its short form")
    return made


class Key(NamedTuple):
    """What a request is known by: 64 hex digits each."""

    #: As Artifact.key; "" where there is no NVRTC, which it names.
    key: str
    #: Without the compiler: equal on every machine. Bundles are searched by it.
    request: str


#: Held while a handle is given back, so that a runtime does not end while another thread, in which its object went, is
#: still inside the library. A thread that collects garbage while it holds the lock may come here again.
_giving_back = threading.RLock()


class _Hold(weakref.ref):  # type: ignore[type-arg]
    """A handle of the library that belongs to an object: given back when the object goes, or before the runtime ends.

    A weakref.finalize does the same, in three microseconds more.
    """

    __slots__ = ("owned", "release", "handle", "process")

    owned: dict[int, _Hold]
    release: Callable[[Any], None]
    handle: ctypes.c_void_p
    process: int

    def let_go(self) -> None:
        """Give the handle back once, and make it NULL, which the library refuses with a sentence."""
        with _giving_back:
            self.owned.pop(id(self.handle), None)
            if self.handle and os.getpid() == self.process:
                self.release(self.handle)
            self.handle.value = None


#: How long the process's end waits for a compile that was cancelled, at most: front ends take some seconds.
_LONGEST_WAIT_MS = 60_000


def _end(handle: int, process: int, owned: dict[int, _Hold]) -> None:
    """Ends a runtime that nobody closed: at exit, or when its object goes.

    A forked child must not touch its parent's GPU, and daemon threads may still be inside the library at exit; then
    the operating system cleans up instead. But a thread must not be inside NVRTC when the process ends, because NVRTC
    takes itself down then, and the thread crashes.
    """
    if os.getpid() != process:
        return
    if any(thread.daemon for thread in threading.enumerate() if thread is not threading.current_thread()):
        lib.kjit_runtime_cancel(handle)
        lib.kjit_runtime_wait_compiles(handle, _LONGEST_WAIT_MS, None)
        return
    _cuda.wait_for_all()
    with _giving_back:
        for hold in list(owned.values()):
            hold.let_go()
    lib.kjit_runtime_destroy(handle)


def _tiered(wanted: Union[None, bool, int]) -> int:
    if wanted is None:
        return int(_abi.KJIT_TIERED_DEFAULT)
    if not isinstance(wanted, bool) and not 1 <= as_number("tiered", wanted) < 1 << 32:
        raise ValueError(f"tiered is {wanted}: must be True, False, or a number of calls from 1")
    return int(_abi.KJIT_TIERED_ON if wanted else _abi.KJIT_TIERED_OFF)


class Runtime(CacheUpkeep):
    """Caches, compiler and driver connections, loaded kernels. Thread-safe.

    An argument that is None or 0 has its default from the environment or the library. cache_dir: the user's cache
    folder; site_dir: a read-only one asked before it; cache_max_bytes, cache_max_entries: bounds on the former.
    cache_mode: "rw", "ro" or "off". nvrtc_path, libcuda_path: files. log: called with (level, line); level 0 is an
    error, 1 a warning. bundles: paths of bundles, or their bytes, asked before every folder. trusted_keys: public keys
    as hex digits; with any, only bundles that one of them signed are opened. record: a file that gets a manifest line
    for each request. memory_max_bytes, memory_max_entries: bounds on the compiled kernels in this process's memory.
    modules_max_idle: how many modules stay loaded though nobody holds them. compile_server: compile in child processes,
    by the program worker_path, each with at most compile_memory_max_bytes; pch: "off", "auto" or "always" hold headers
    precompiled there. ignore_environment: no KJIT_* variable counts. ignore_tuned: kernels are chosen by the rules,
    whatever was measured. dump_dir: a folder in which each compile leaves its source, PTX, machine code and log;
    time_phases: Artifact.phases says where a compile's time went. tiered: while the kernel of an attention call is
    built, another that is quick to compile serves the calls; a number: exactly so many calls.
    nvtx: a profiler is shown compiles, links and loads. source_max_bytes: bound on the texts of your sources that the
    cache folder keeps for cache_why(); 0 keeps none.
    """

    def __init__(
        self,
        *,
        cache_dir: Optional[Path] = None,
        site_dir: Optional[Path] = None,
        cache_max_bytes: int = 0,
        cache_max_entries: int = 0,
        cache_mode: Optional[str] = None,
        nvrtc_path: Optional[Path] = None,
        libcuda_path: Optional[Path] = None,
        log: Optional[Callable[[int, str], None]] = None,
        bundles: Iterable[Union[Path, bytes]] = (),
        trusted_keys: Iterable[str] = (),
        record: Optional[Path] = None,
        memory_max_bytes: int = 0,
        memory_max_entries: int = 0,
        modules_max_idle: int = 0,
        compile_server: Optional[bool] = None,
        pch: Optional[str] = None,
        worker_path: Optional[Path] = None,
        compile_memory_max_bytes: int = 0,
        ignore_environment: bool = False,
        ignore_tuned: bool = False,
        dump_dir: Optional[Path] = None,
        time_phases: bool = False,
        tiered: Union[None, bool, int] = None,
        nvtx: bool = False,
        source_max_bytes: Optional[int] = None,
    ) -> None:
        _require("cache_mode", cache_mode, CACHE_MODES)
        _require("pch", pch, PCH_MODES)
        _require("compile_server", compile_server, COMPILE_SERVER)
        options = struct(
            _abi.kjit_runtime_options,
            cache_dir=path_or_none("cache_dir", cache_dir),
            site_dir=path_or_none("site_dir", site_dir),
            cache_max_bytes=cache_max_bytes,
            cache_max_entries=cache_max_entries,
            cache_mode=CACHE_MODES[cache_mode],
            nvrtc_path=path_or_none("nvrtc_path", nvrtc_path),
            libcuda_path=path_or_none("libcuda_path", libcuda_path),
            flags=(_abi.KJIT_RUNTIME_IGNORE_ENVIRONMENT if ignore_environment else 0)
            | (_abi.KJIT_RUNTIME_IGNORE_TUNED if ignore_tuned else 0)
            | (_abi.KJIT_RUNTIME_TIME_PHASES if time_phases else 0)
            | (_abi.KJIT_RUNTIME_NVTX if nvtx else 0),
            dump_dir=path_or_none("dump_dir", dump_dir),
            record_path=path_or_none("record", record),
            memory_max_bytes=memory_max_bytes,
            memory_max_entries=memory_max_entries,
            modules_max_idle=modules_max_idle,
            compile_server=COMPILE_SERVER[compile_server],
            pch=PCH_MODES[pch],
            worker_path=path_or_none("worker_path", worker_path),
            compile_memory_max_bytes=compile_memory_max_bytes,
            tiered=_tiered(tiered),
            tier_calls=0 if tiered is None or isinstance(tiered, bool) else tiered,
            source_max_bytes=0 if source_max_bytes is None else source_max_bytes or _abi.KJIT_KEEP_NO_SOURCES,
        )
        self._blobs = _put_bundles(options, bundles)  # the library reads them as long as the runtime lives
        put_array(options, "trusted_keys", "trusted_key_count", texts_of("trusted_keys", trusted_keys))
        if log is not None:
            options.log = _abi.kjit_log_fn(lambda user, level, line: log(level, line.decode(errors="replace")))
        handle = ctypes.c_void_p()
        call(lib.kjit_runtime_create, ctypes.byref(handle), ctypes.byref(options))
        self._log = options.log  # called as long as the runtime lives
        self.handle: int = handle.value or 0
        self._owned: dict[int, _Hold] = {}
        self._finalizer = weakref.finalize(self, _end, self.handle, os.getpid(), self._owned)

    def _own(self, owner: Any, release: Callable[[Any], None], handle: ctypes.c_void_p) -> None:
        """Release a handle when its owner goes, or before the runtime ends."""
        hold = _Hold(owner, _Hold.let_go)
        hold.owned, hold.release, hold.handle, hold.process = self._owned, release, handle, os.getpid()
        self._owned[id(handle)] = hold

    def close(self) -> None:
        """End the runtime now. Its plans must be gone and its launches over; its kernels and modules end with it."""
        with _giving_back:
            for hold in list(self._owned.values()):
                hold.let_go()
        if self._finalizer.detach():
            lib.kjit_runtime_destroy(self.handle)
            del self.handle

    def __getattr__(self, name: str) -> Any:
        """What the object does not have: of a runtime that was closed, its handle."""
        if name == "handle":
            raise failure(_abi.KJIT_ERR_INVALID_ARG, "the runtime was closed")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Compiling: no GPU needed.

    def compile(self, config: Config, arch: Optional[str] = None, *, no_compile: bool = False) -> Artifact:
        """The kernel of a config: from memory, the cache or the compiler.

        arch: "sm_90", …; by default that of the current GPU. no_compile: a miss is NotFound.
        """
        flags = _abi.KJIT_BUILD_NO_COMPILE if no_compile else 0
        where = as_text("arch", arch or self.device_arch())
        return self._take(lib.kjit_config_build, as_config(config)._kernel, where, flags)

    def compile_attention(
        self,
        dtype: Union[DType, int, str],
        head_dim: int,
        arch: Optional[str] = None,
        *,
        causal: bool = False,
        **sizes: int,
    ) -> Artifact:
        """The kernel that kjit.attention() uses for a problem.

        sizes: batch, heads_q, heads_kv, seq_q, seq_kv, head_dim_v. Without an arch it is that of the GPU here, by its
        own figures and tuned table; with one, that of an architecture's usual card.
        """
        kernel = self._choose(_problem(dtype, head_dim, causal, sizes), arch)
        where = as_text("arch", arch or self.device_arch(specific=True))
        return self._take(lib.kjit_config_build, ctypes.byref(kernel), where, 0)

    def describe_attention(
        self,
        dtype: Union[DType, int, str],
        head_dim: int,
        arch: Optional[str] = None,
        *,
        causal: bool = False,
        card: Optional[str] = None,
        **sizes: int,
    ) -> str:
        """Which kernel compile_attention() builds: the family's name, a blank, and its config.

        card: a name of kjit.known_cards(), for what the rules choose on a card that is not here. Where calls on it
        launch another kernel in front, " behind " and that one's family follow.
        """
        if arch is not None and card is not None:
            raise TypeError(f"give arch ({arch!r}) or card ({card!r}), which has an architecture of its own, not both")
        front = _abi.kjit_config()
        text = ctypes.create_string_buffer(_abi.KJIT_CONFIG_TEXT_MAX)
        problem = _problem(dtype, head_dim, causal, sizes)
        if card is not None:
            kernel = _abi.kjit_config()
            call(
                lib.kjit_attention_choose_for,
                ctypes.byref(problem),
                ctypes.byref(_known_card(card)),
                ctypes.byref(kernel),
            )
            call(
                lib.kjit_attention_front,
                ctypes.byref(kernel),
                ctypes.byref(problem),
                ctypes.byref(_known_card(card)),
                ctypes.byref(front),
            )
        else:
            kernel = self._choose(problem, arch)
        call(lib.kjit_config_print, ctypes.byref(kernel), 0, text, len(text))
        behind = f" behind {lib.kjit_family_name(front.family).decode()}" if front.family else ""
        return f"{lib.kjit_family_name(kernel.family).decode()} {text.value.decode()}{behind}"

    def _choose(self, problem: Any, arch: Optional[str]) -> Any:
        kernel = _abi.kjit_config()
        if not arch:
            _cuda.ensure_current()  # a thread of its own has no context yet
        where = as_text("arch", arch) if arch else None
        call(lib.kjit_attention_choose, self.handle, ctypes.byref(problem), where, ctypes.byref(kernel), None)
        return kernel

    def compile_source(
        self,
        text: Optional[str],
        entry: Optional[str],
        arch: Optional[str] = None,
        *,
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
    ) -> Artifact:
        """Compile a kernel of your own; no GPU needed. The arguments are those of kjit.Module.

        entry: an extern "C" kernel or a name expression; None for whatever the source has. On CompileError, `log` has
        what the compiler said.
        """
        request = request_for(
            text,
            entry=entry,
            arch=arch or self.device_arch(),
            name=name,
            defines=defines,
            headers=headers,
            include_dirs=include_dirs,
            options=options,
            names=names,
            parts=parts,
            no_compile=no_compile,
            strict_sources=strict_sources,
            keep_unused=keep_unused,
            timeout_ms=timeout_ms,
        )
        return self._build(request)

    def source_of_request(
        self, text: str, entry: Optional[str] = None, arch: Optional[str] = None, **options: Any
    ) -> str:
        """The text that compile_source() would compile: the defines, a #line, the source. Headers are not read."""
        request = request_for(text, entry=entry, arch=arch or "sm_90", **options)
        made = ctypes.c_void_p()
        call(lib.kjit_build_source, self.handle, ctypes.byref(request), ctypes.byref(made))
        return self._text(made)

    def key_of_request(self, text: Optional[str], entry: Optional[str], arch: str, **options: Any) -> Key:
        """The key that compile_source() would use; nothing is looked up or compiled. Headers are read."""
        request = build_request(text, entry=entry, arch=arch, **options)
        request.flags |= _abi.KJIT_BUILD_KEY_ONLY
        found = struct(_abi.kjit_key)
        self._take(
            lib.kjit_build,
            ctypes.byref(request),
            visit=lambda handle: call(lib.kjit_artifact_get_key, handle, ctypes.byref(found)),
        )
        return Key(found.key.decode(), found.request.decode())

    def compile_recorded(self, path: Path, arch: Optional[str] = None, *, no_compile: bool = False) -> Artifact:
        """A request that was recorded with its sources: the ".request" file beside a manifest that names it in a line.

        arch: refused unless it is the recorded one.
        """
        flags = _abi.KJIT_BUILD_NO_COMPILE if no_compile else 0
        where = text_or_none("arch", arch)
        return self._take(lib.kjit_recorded_build, as_path("path", path), where, flags)

    def cancel(self) -> None:
        """Give up every compile that is under way, in whatever thread; from then on this runtime compiles nothing.

        What memory and cache hold is still found.
        """
        lib.kjit_runtime_cancel(self.handle)

    def wait_compiles(self, timeout_ms: int) -> None:
        """Wait until no thread is inside the compiler in this process; TimeoutError: one still is. 0: only look."""
        call(lib.kjit_runtime_wait_compiles, self.handle, as_number("timeout_ms", timeout_ms, ctypes.c_uint32))

    def record(self, path: Optional[Path]) -> None:
        """From now on append a manifest line for each distinct request to a file; None: stop."""
        call(lib.kjit_runtime_record, self.handle, path_or_none("path", path))

    def source(self, config: Config, arch: Optional[str] = None) -> str:
        """The source that is compiled for a config, its constants first."""
        text = ctypes.c_void_p()
        kernel = as_config(config)._kernel
        call(lib.kjit_config_check, ctypes.byref(kernel), as_text("arch", arch or self.device_arch()))
        call(lib.kjit_config_source, self.handle, ctypes.byref(kernel), ctypes.byref(text))
        return self._text(text)

    def _text(self, text: Any) -> str:
        """A text of the library's, which is given back."""
        try:
            return ctypes.string_at(text.value or 0).decode()
        finally:
            lib.kjit_text_free(self.handle, text)

    def _take(self, build: Any, *request: Any, visit: Optional[Callable[[Any], None]] = None) -> Artifact:
        """Build, copy what is known, give the artifact back. A failed compile has an artifact too: its log.

        visit: called with the artifact's handle before it is given back.
        """
        handle, error = ctypes.c_void_p(), _abi.kjit_error()
        status = build(self.handle, *request, ctypes.byref(handle), ctypes.byref(error))
        return _taken(status, handle, error, visit)

    def _build(self, request: Any) -> Artifact:
        """kjit_build(); what was read of an artifact in memory before is not copied again."""
        if native is None:
            return self._take(lib.kjit_build, ctypes.byref(request))
        found = native.build(self.handle, ctypes.addressof(request))
        if type(found) is Artifact:
            return found
        status, handle, error = found
        return _taken(status, ctypes.c_void_p(handle), _abi.kjit_error.from_buffer_copy(error), None)

    def warm(
        self,
        configs: Union[str, Config, Iterable[Config]] = "prebuilt",
        arch: Union[None, str, Iterable[str]] = None,
        *,
        jobs: Optional[int] = None,
        progress: Optional[Callable[[int, int], None]] = None,
    ) -> dict[str, Any]:
        """Fill the cache: every config for every architecture.

        configs: the name of a set, a config, or many. progress is called with (done, requested) after each. Returns
        requested, distinct, built, cached, failed, not_kept (built, but not written into the cache folder because that
        failed; other threads' builds of that time count too), seconds and, for what failed, errors: {(short form,
        arch): words}.
        """
        started = time.monotonic()
        not_kept = self.stats()["not_kept"]
        wanted = [(config, target) for target in self._archs(arch) for config in _listed(configs)]
        keys: set[str] = set()
        errors: dict[tuple[str, str], str] = {}
        built = done = 0

        def build(job: tuple[FlashForwardKernelConfig, str]) -> Union[Artifact, Error]:
            try:
                return self.compile(*job)
            except Error as error:
                return error

        with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
            for job, result in zip(wanted, pool.map(build, wanted)):
                done += 1
                if isinstance(result, Error):
                    errors[str(job[0]), job[1]] = str(result)
                else:
                    built += result.origin == "built"
                    keys.add(result.key)
                if progress:
                    progress(done, len(wanted))
        return {
            "requested": len(wanted),
            "distinct": len(keys),
            "built": built,
            "cached": len(keys) - built,
            "failed": len(errors),
            "not_kept": self.stats()["not_kept"] - not_kept,
            "seconds": time.monotonic() - started,
            "errors": errors,
        }

    def _archs(self, arch: Union[None, str, Iterable[str]]) -> list[str]:
        if arch is None:
            return [self.device_arch()]
        return [arch] if isinstance(arch, str) else list(arch)

    # Looking.

    def device_info(self, ordinal: int = -1) -> dict[str, Any]:
        """What a GPU is; -1 is the current context's."""
        info = struct(_abi.kjit_device_info)
        call(lib.kjit_device_get_info, self.handle, ordinal, ctypes.byref(info))
        return as_dict(info)

    def device_count(self) -> int:
        count = ctypes.c_uint32()
        call(lib.kjit_device_count, self.handle, ctypes.byref(count))
        return count.value

    def device_arch(self, ordinal: Optional[int] = None, *, specific: bool = False) -> str:
        """ "sm_90" of a GPU, or "sm_90a" when specific; by default the one that PyTorch has current, else GPU 0."""
        chosen = _cuda.current_ordinal() if ordinal is None else ordinal
        arch: str = self.device_info(chosen)["arch_specific" if specific else "arch"]
        return arch

    def stats(self) -> dict[str, int]:
        """This process's counters: hits, misses, builds, waits, launches, …"""
        stats = struct(_abi.kjit_runtime_stats)
        call(lib.kjit_runtime_get_stats, self.handle, ctypes.byref(stats))
        return as_dict(stats)

    def doctor(self) -> dict[str, Any]:
        """What this machine has.

        Opens NVRTC and libcuda, and with cache_mode "rw" writes 4 KiB into the cache folder and removes them; compiles
        nothing.
        """
        report = struct(_abi.kjit_doctor_report)
        call(lib.kjit_doctor, self.handle, ctypes.byref(report))
        return as_dict(report)


def _taken(status: int, handle: Any, error: Any, visit: Optional[Callable[[Any], None]]) -> Artifact:
    """The artifact of a build, which is given back; or the build's error, with the compiler's log."""
    artifact = None
    try:
        if handle:
            artifact = read_artifact(handle)
            if visit is not None:
                visit(handle)
    finally:
        lib.kjit_artifact_release(handle)
    if status == _abi.KJIT_OK and artifact is not None:
        return artifact
    with _with_log(artifact.log if artifact else ""):
        raise_error(error)
    raise AssertionError("raise_error returned")


@contextlib.contextmanager
def _with_log(log: str) -> Iterator[None]:
    try:
        yield
    except Error as error:
        error.log = log
        raise


def _known_card(name: str) -> Any:
    info = struct(_abi.kjit_device_info)
    call(lib.kjit_device_find, as_text("name", name), ctypes.byref(info))
    return info


def known_cards() -> dict[str, dict[str, Any]]:
    """The published figures of the cards that are known by name, as Runtime.device_info() would give them."""
    names: list[str] = []
    while (name := lib.kjit_device_known(len(names))) is not None:
        names.append(name.decode())
    return {name: as_dict(_known_card(name)) for name in names}


def _problem(dtype: Union[DType, int, str], head_dim: int, causal: bool, sizes: dict[str, int]) -> Any:
    own = {"struct_size", "dtype", "flags", "head_dim"}
    members = {field[0] for field in _abi.kjit_attention_problem._fields_} - own
    unknown = sizes.keys() - members
    if unknown:
        raise TypeError(f"{', '.join(sorted(unknown))}: an attention problem has {', '.join(sorted(members))}")
    return struct(
        _abi.kjit_attention_problem,
        dtype=int(DType.from_string(dtype) if isinstance(dtype, str) else dtype),
        flags=_abi.KJIT_ATTENTION_CAUSAL if causal else 0,
        head_dim=head_dim,
        **{"seq_q": 1, **sizes},
    )


def _require(what: str, value: Any, known: Mapping[Any, int]) -> None:
    if value not in list(known):  # a list is searched by ==, so that what cannot be hashed is refused in words too
        names = ", ".join(str(each) for each in known if each is not None)
        raise ValueError(f"{what} is {value!r}: must be one of {names}")


def _put_bundles(options: Any, bundles: Iterable[Union[Path, bytes]]) -> list[Any]:
    """Paths and blobs into the options; returns the memory that the blobs are in."""
    if isinstance(bundles, (str, bytes, os.PathLike)):
        raise TypeError("bundles must be several paths or bytes: (path,)")
    paths: list[bytes] = []
    memory: list[Any] = []
    for bundle in bundles:
        if isinstance(bundle, bytes):
            memory.append(ctypes.create_string_buffer(bundle, len(bundle)))
        else:
            paths.append(as_path("a bundle", bundle))
    put_array(options, "bundle_paths", "bundle_count", paths)
    blobs = [_abi.kjit_bundle_blob(ctypes.addressof(each), len(each)) for each in memory]
    put_array(options, "bundle_blobs", "bundle_blob_count", blobs)
    return memory


def _listed(configs: Union[str, Config, Iterable[Config]]) -> list[FlashForwardKernelConfig]:
    if isinstance(configs, str) and "(" not in configs:
        return config_set(configs)
    if isinstance(configs, (str, FlashForwardKernelConfig)):
        return [as_config(configs)]
    return [as_config(config) for config in configs]


_default: Optional[Runtime] = None
_default_lock = threading.Lock()


def default_runtime() -> Runtime:
    """The process's runtime, set up by the environment when it is first needed."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Runtime()
        return _default


def runtime_or_default(runtime: Optional[Runtime]) -> Runtime:
    """The runtime that a caller gave, or else the process's."""
    if runtime is None:
        return default_runtime()
    if not isinstance(runtime, Runtime):
        raise TypeError(f"runtime is {runtime!r}: must be a kjit.Runtime")
    return runtime


def _forget_default() -> None:
    """In a forked child the parent's runtime is of no use: its GPU connection is the parent's."""
    global _default, _default_lock, _giving_back
    _default, _default_lock, _giving_back = None, threading.Lock(), threading.RLock()


os.register_at_fork(after_in_child=_forget_default)
