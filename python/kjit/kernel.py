"""Kernels that are loaded, and their launches.

A launch is done by a launcher in C (_launcher.py), which leaves what it does not know to Kernel._enqueue(). That writes
the arguments into a frame: memory that was laid out for this kernel when it was loaded, so that a launch makes no
ctypes object. A frame belongs to one launch at a time; threads take theirs from a list.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _abi, _cuda
from ._arrays import HOST, UNKNOWN_DEVICE, _known, arrays_of, stream_number
from ._launcher import make_launcher
from ._library import as_dict, assign, call, lib, raise_error, untyped
from ._library import struct as make_struct
from ._values import FLOATS, INTEGERS, POINTER, put
from .artifact import Artifact, KernelInfo, kernel_infos, read_artifact

Dim = Union[int, tuple[int, ...], list[int]]

_launch = untyped("kjit_kernel_launch")

# grid, block and cluster, three numbers each, and the shared memory behind them: written at once.
_pack_shape = struct.Struct("=10I").pack_into
_SHAPE_OFFSET = _abi.kjit_launch.grid.offset

#: Shapes of launches that a kernel remembers.
_LAUNCHERS_MAX = 256

_CLUSTER_POLICIES = {None: 0, "spread": 1, "load_balancing": 2}
_SYNC_DOMAINS = {None: 0, "default": 1, "remote": 2}


class Occupancy(NamedTuple):
    """What of a launch is resident at a time, as the driver says."""

    #: On one SM at a time; 0: a block does not fit.
    blocks: int
    #: On the device at a time; 0 also for a launch without clusters.
    clusters: int
    #: Threads of a block that fill an SM best, with the launch's dynamic shared memory.
    block_threads: int
    #: Blocks of so many threads that fill the device.
    grid_blocks: int


class Handles(NamedTuple):
    """The driver's own names: CUlibrary, CUkernel, CUfunction and CUmodule of the current context, as numbers."""

    library: int
    kernel: int
    function: int
    module: int


class _Frame:
    """The memory of one launch: the values of the arguments and what the library reads of them."""

    __slots__ = ("raw", "slots", "launch", "stream", "error", "device", "device_ref", "arguments", "_args")

    def __init__(self, handle: ctypes.c_void_p, sizes: tuple[int, ...]) -> None:
        offsets, total = [], 0
        for size in sizes:
            offsets.append(total)
            total += (size + 15) // 16 * 16
        self.raw = (ctypes.c_char * (total + 16))()
        start = -ctypes.addressof(self.raw) % 16
        self.slots = [(start + offset, size) for offset, size in zip(offsets, sizes)]
        self._args = (_abi.kjit_arg * max(1, len(sizes)))()
        for row, (offset, size) in zip(self._args, self.slots):
            row.value, row.bytes = ctypes.addressof(self.raw) + offset, size
        self.launch = make_struct(_abi.kjit_launch)
        self.stream = ctypes.c_void_p()
        self.error = _abi.kjit_error()
        self.device = ctypes.c_int()
        self.device_ref = ctypes.byref(self.device)
        self.arguments = (
            handle,
            ctypes.byref(self.launch),
            self._args,
            ctypes.c_size_t(len(sizes)),
            self.stream,
            ctypes.byref(self.error),
        )


def _refuse_array(value: Any, size: int) -> str:
    if size != 8:
        return f"{type(value).__name__} for a parameter of {size} bytes: an array is given for a pointer, of 8 bytes"
    return f"{type(value).__name__} in host memory: must be an array on the GPU"


def as_dim(what: str, value: Dim) -> tuple[int, int, int]:
    """One to three numbers; those that are left out are 1."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(numbers) <= 3:
        raise ValueError(f"{what} is {value!r}: must be a number, or a tuple of one to three")
    x, y, z = (*(int(number) for number in numbers), 1, 1)[:3]
    if not (0 <= x < 1 << 32 and 0 <= y < 1 << 32 and 0 <= z < 1 << 32):
        raise ValueError(f"{what} is {value!r}: each number must be 0 to 4294967295")
    return x, y, z


class Shape:
    """Grid, block and what else a launch has, checked and ready to be written."""

    __slots__ = ("numbers", "extras")

    def __init__(
        self,
        grid: Dim,
        block: Dim,
        shared: int = 0,
        cluster: Optional[Dim] = None,
        cooperative: bool = False,
        programmatic: bool = False,
        priority: Optional[int] = None,
        carveout: Optional[int] = None,
        cluster_policy: Optional[str] = None,
        sync_domain: Optional[str] = None,
    ) -> None:
        if not 0 <= shared < 1 << 32:
            raise ValueError(f"shared is {shared}: must be 0 to 4294967295 bytes")
        clusters = (0, 0, 0) if cluster is None else as_dim("cluster", cluster)
        self.numbers = (*as_dim("grid", grid), *as_dim("block", block), *clusters, shared)
        flags = (_abi.KJIT_LAUNCH_COOPERATIVE if cooperative else 0) | (
            _abi.KJIT_LAUNCH_PROGRAMMATIC if programmatic else 0
        )
        extras: dict[str, int] = {}
        if priority is not None:
            extras["priority"], flags = priority, flags | _abi.KJIT_LAUNCH_PRIORITY
        if carveout is not None:
            extras["shared_carveout"], flags = carveout, flags | _abi.KJIT_LAUNCH_CARVEOUT
        for name, value, known in (
            ("cluster_policy", cluster_policy, _CLUSTER_POLICIES),
            ("sync_domain", sync_domain, _SYNC_DOMAINS),
        ):
            if value not in known:
                raise ValueError(f"{name} is {value!r}: must be one of {', '.join(filter(None, known))}")
            if value is not None:
                extras[name] = known[value]
        if flags:
            extras["flags"] = flags
        self.extras = extras

    def write(self, launch: Any) -> None:
        _pack_shape(launch, _SHAPE_OFFSET, *self.numbers)
        if self.extras:
            assign(launch, **self.extras)


class Kernel:
    """A kernel that is loaded. Thread-safe.

        kernel[grid, block](x, y, n)                          # on the current stream of x's framework
        kernel[grid, block, shared_bytes, stream](x, y, n)
        kernel.launch(grid, block, (x, y, n), cluster=2, cooperative=True)

    grid and block are numbers or tuples of up to three. The arguments are one for each of the kernel's parameters, in
    order; the kernel's code says how many bytes each has, and the argument what they hold:

    - an array on a GPU (PyTorch, CuPy, JAX, __cuda_array_interface__, __dlpack__): the address of its first element;
    - int, bool: a whole number that fits, signed or unsigned; float: float or double; complex: two of them;
    - a NumPy scalar, bytes, a ctypes value or struct, a kjit.TensorMap: as many bytes as the parameter has;
    - None: a null pointer.

    An argument that does not fit is a TypeError or OverflowError that names its index. Whether a parameter of 4 bytes
    is an int or a float the code does not say: 1 and 1.0 are different arguments.
    """

    def __init__(self, runtime: Any, handle: ctypes.c_void_p, name: str) -> None:
        #: As it was asked for: a name expression, or the name in the code.
        self.name = name
        self._runtime, self._handle = runtime, handle
        runtime._own(self, lib.kjit_kernel_release, handle)
        count = lib.kjit_kernel_parameter_count(handle)
        if count < 0:
            raise NotImplementedError(f'kernel "{name}": neither its code nor the driver says what parameters it has')
        #: Bytes of each parameter.
        self.parameters: tuple[int, ...] = tuple(
            lib.kjit_kernel_parameter_bytes(handle, index) for index in range(count)
        )
        self._frames: list[_Frame] = []
        self._launchers: dict[Any, Any] = {}
        self._get_device = _cuda.driver().cuCtxGetDevice

    def __repr__(self) -> str:
        return f"<kjit.Kernel {self.name}>"

    def __getitem__(self, how: Any) -> Callable[..., None]:
        """kernel[grid, block], kernel[grid, block, shared], kernel[grid, block, shared, stream]."""
        try:
            return self._launchers[how]  # type: ignore[no-any-return]
        except (KeyError, TypeError):
            pass  # not there yet, or with a list in it
        if not isinstance(how, tuple) or not 2 <= len(how) <= 4:
            raise TypeError("a kernel is launched by kernel[grid, block, shared, stream](…), at least the first two")
        stream = how[3] if len(how) == 4 else None
        launcher = make_launcher(self, Shape(*how[:3]), stream)
        # A framework's stream is not remembered, because that would keep it from being destroyed.
        if stream is None or isinstance(stream, int):
            self._remember(how, launcher)
        return launcher  # type: ignore[no-any-return]

    def _remember(self, how: Any, launcher: Any) -> None:
        if any(isinstance(value, list) for value in how):
            return
        if len(self._launchers) >= _LAUNCHERS_MAX:
            self._launchers.clear()
        self._launchers[how] = launcher

    def launch(
        self,
        grid: Dim,
        block: Dim,
        args: Union[tuple[Any, ...], list[Any]] = (),
        *,
        shared: int = 0,
        stream: Any = None,
        cluster: Optional[Dim] = None,
        cooperative: bool = False,
        programmatic: bool = False,
        priority: Optional[int] = None,
        carveout: Optional[int] = None,
        cluster_policy: Optional[str] = None,
        sync_domain: Optional[str] = None,
    ) -> None:
        """Launch; asynchronous.

        shared: bytes of dynamic shared memory. stream: a framework's stream or its number; None for the current one of
        the first array's framework. cluster: blocks of a cluster, at most 16 in all. cooperative: all blocks run at
        once. programmatic: the blocks may start before the kernel in front of them has ended. priority: in place of the
        stream's. carveout: percent of the unified memory preferred as shared memory. cluster_policy: "spread" or
        "load_balancing". sync_domain: "default" or "remote".
        """
        how = (grid, block, shared, cluster, cooperative, programmatic, priority, carveout, cluster_policy, sync_domain)
        try:
            launcher = self._launchers[how]
        except (KeyError, TypeError):  # not there yet, or with a list in it
            launcher = make_launcher(self, Shape(*how), None)
            self._remember(how, launcher)
        launcher.on(stream, tuple(args))

    def launcher(self, grid: Dim, block: Dim, *, shared: int = 0, cooperative: bool = False) -> Any:
        """What is called with the arguments, for who keeps it: launcher(*args), or launcher.on(stream, args)."""
        return make_launcher(self, Shape(grid, block, shared, cooperative=cooperative), None)

    def _enqueue(self, shape: Shape, stream: Any, args: tuple[Any, ...]) -> None:
        # A launch with attributes has a frame of its own, so that those in the list need not be reset.
        try:
            frame = _Frame(self._handle, self.parameters) if shape.extras else self._frames.pop()
        except IndexError:
            frame = _Frame(self._handle, self.parameters)
        slots, raw = frame.slots, frame.raw
        if len(args) != len(slots):
            raise TypeError(f'kernel "{self.name}" takes {len(slots)} arguments: {len(args)} were given')
        device, first, arrays, waits, index = UNKNOWN_DEVICE, None, None, False, 0
        try:
            for index, value in enumerate(args):
                offset, size = slots[index]
                kind = type(value)
                if kind is int and size in INTEGERS:
                    INTEGERS[size][value < 0](raw, offset, value)
                elif kind is float and size in FLOATS:
                    FLOATS[size](raw, offset, value)
                else:
                    known = _known[kind] if kind in _known else arrays_of(value)
                    if known is None:
                        put(raw, offset, size, value)
                        continue
                    address, where = known.look(value)
                    if size != 8 or where == HOST:
                        raise TypeError(_refuse_array(value, size))
                    POINTER(raw, offset, address)
                    waits = waits or known.waits
                    if arrays is None:
                        arrays, first = known, value
                    if where != device and where >= 0:
                        if device >= 0:
                            raise ValueError(f"on device {where}: the arrays before it are on device {device}")
                        device = where
        except struct.error:
            try:
                put(raw, offset, size, value)  # says what is wrong with it
            except OverflowError as fault:
                raise OverflowError(f"args[{index}]: {fault}") from None
            raise
        except (TypeError, ValueError, OverflowError) as fault:
            if kind is float and isinstance(fault, OverflowError):
                fault = OverflowError(f"{value}: beyond the range of float, which the parameter's {size} bytes hold")
            raise type(fault)(f"args[{index}]: {fault}") from None
        if stream is not None:
            number, waits = stream_number(stream), False
        else:
            number = 0 if arrays is None else arrays.stream(first, device)
        frame.stream.value = number
        shape.write(frame.launch)
        if self._get_device(frame.device_ref) or (frame.device.value != device and device >= 0):
            status = self._launch_elsewhere(frame, device)
        else:
            status = _launch(*frame.arguments)
        if status:
            raise_error(frame.error)
        if waits:
            _cuda.wait_for_stream(number)
        if not shape.extras:
            self._frames.append(frame)

    def _launch_elsewhere(self, frame: _Frame, device: int) -> int:
        """With the arrays' device current; or, for arrays that do not say theirs, any device where none is current."""
        if device < 0:
            _cuda.make_current(_cuda.current_ordinal())
            status: int = _launch(*frame.arguments)
            return status
        with _cuda.device(device):
            status = _launch(*frame.arguments)
            return status

    def occupancy(self, block: Dim, *, shared: int = 0, cluster: Optional[Dim] = None, grid: Dim = 1) -> Occupancy:
        """What of such a launch is resident at a time on the current device. grid counts for clusters alone."""
        if cluster is not None and grid == 1:
            grid = tuple(as_dim("cluster", cluster))
        launch = make_struct(_abi.kjit_launch)
        Shape(grid, block, shared, cluster).write(launch)
        found = make_struct(_abi.kjit_occupancy)
        call(lib.kjit_kernel_get_occupancy, self._handle, ctypes.byref(launch), ctypes.byref(found))
        return Occupancy(found.blocks, found.clusters, found.block_threads, found.grid_blocks)

    def handles(self) -> Handles:
        """The driver's handles, valid until the runtime ends; a kernel that was asked for them stays loaded."""
        found = make_struct(_abi.kjit_kernel_handles)
        call(lib.kjit_kernel_get_handles, self._handle, ctypes.byref(found))
        members = as_dict(found)
        return Handles(*(members[name] or 0 for name in Handles._fields))

    @property
    def artifact(self) -> Artifact:
        """What the kernel was loaded from; a module's kernels have one in common."""
        return read_artifact(lib.kjit_kernel_artifact(self._handle))

    @property
    def info(self) -> KernelInfo:
        """Registers, spills and limits of this kernel."""
        infos = kernel_infos(lib.kjit_kernel_artifact(self._handle))
        for info in infos:
            if self.name in (info.expression, info.name):
                return info
        plain = "".join(self.name.split())
        for info in infos:
            if "".join(info.expression.split()) == plain:
                return info
        return infos[0]
