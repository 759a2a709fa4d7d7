"""Kernel families: a kernel with the constants that decide its machine code, by a family file (docs/families.md)."""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import weakref
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _abi, _cuda, tuning
from ._arrays import DTYPE_NAMES, DTYPE_NUMBERS, arrays_of, dtype_number
from ._launcher import make_launcher
from ._library import as_path, as_text, call, lib, path_or_none, text_or_none
from ._values import HALF, bfloat16_bits, describe, is_numpy_scalar, put_float, put_integer
from .artifact import Artifact, kernel_infos
from .kernel import Kernel, Shape
from .runtime import Runtime, runtime_or_default

_KINDS = {number: name.replace("KJIT_FIELD_", "", 1).lower() for name, number in _abi.ENUMS["kjit_field_kind"].items()}

#: Element types as family files spell them.
_DTYPE_TEXTS = {
    {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "float8_e4m3fn": "fp8_e4m3"}.get(
        name, name
    ): number
    for name, number in DTYPE_NUMBERS.items()
}
_DTYPE_WORDS = {number: text for text, number in _DTYPE_TEXTS.items()}

#: Shapes of launches that a kernel remembers: they follow from the integers alone.
_LAUNCHERS_MAX = 1024

Value = Union[int, bool, str]


class FamilyField(NamedTuple):
    """One field of a family."""

    name: str
    #: "int", "bool", "dtype", "enum" or "load".
    kind: str
    #: One line of documentation.
    text: str
    #: Of an enum.
    values: tuple[str, ...]
    #: The legal values in words, "one of 64, 96, 128"; "" for kjit's own families, whose text has it.
    legal: str = ""


class FamilyParameter(NamedTuple):
    """One parameter of a family's kernel."""

    name: str
    #: As written, "const dtype*".
    type: str
    bytes: int


def _frozen(self: Any, name: str, *value: Any) -> None:
    raise AttributeError(f"{name}: a config cannot be changed; make another with replace()")


class FamilyConfig:
    """A config of one family: frozen, ordered, hashable. Each Family has a subclass of it, family.Config."""

    __slots__ = ("_config", "_values")
    family: Family
    _config: Any
    _values: dict[str, Value]
    __setattr__ = _frozen
    __delattr__ = _frozen

    def __init__(self, **fields: Any) -> None:
        text = ",".join(f"{name}={_as_text(name, value)}" for name, value in fields.items())
        self._take(type(self)._read(text))

    def _take(self, config: Any) -> None:
        object.__setattr__(self, "_config", config)
        values = {field.name: _typed(field, config.values[index]) for index, field in enumerate(self.family.fields)}
        object.__setattr__(self, "_values", values)

    @classmethod
    def _read(cls, text: str) -> Any:
        config = _abi.kjit_config()
        call(lib.kjit_config_parse, cls.family._handle, as_text("text", text), ctypes.byref(config))
        return config

    @classmethod
    def _of(cls, config: Any) -> Any:
        made = cls.__new__(cls)
        made._take(config)
        return made

    @classmethod
    def _of_copy(cls, config: Any) -> Any:
        """Of a config whose memory the library takes back."""
        return cls._of(_abi.kjit_config.from_buffer_copy(config))

    @classmethod
    def parse(cls, text: str) -> Any:
        """Read `name=value,name=value`. The values are read, not judged: that is check()."""
        return cls._of(cls._read(text))

    def __getattr__(self, name: str) -> Value:
        values: dict[str, Value] = object.__getattribute__(self, "_values")
        try:
            return values[name]
        except KeyError:
            raise AttributeError(f"a config of {self.family.name} has no field {name}") from None

    def as_dict(self) -> dict[str, Value]:
        """The fields in order."""
        return dict(self._values)

    def replace(self, **fields: Any) -> Any:
        """The config with these fields changed."""
        return type(self)(**{**self._values, **fields})

    def _print(self, flags: int) -> str:
        text = ctypes.create_string_buffer(_abi.KJIT_CONFIG_TEXT_MAX)
        call(lib.kjit_config_print, ctypes.byref(self._config), flags, text, len(text))
        return text.value.decode()

    def __str__(self) -> str:
        return self._print(0)

    def __repr__(self) -> str:
        return f"<{self.family.name} {self}>"

    def to_json(self) -> str:
        """One JSON object, fields in order."""
        return self._print(_abi.KJIT_PRINT_JSON)

    def _order(self, other: Any) -> int:
        order: int = lib.kjit_config_compare(ctypes.byref(self._config), ctypes.byref(other._config))
        return order

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FamilyConfig) and self._order(other) == 0

    def __lt__(self, other: Any) -> bool:
        return self._order(other) < 0 if isinstance(other, FamilyConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.family.name, tuple(self._values.values())))

    def __reduce__(self) -> Any:
        return _restore, (self.family._origin, str(self))

    def check(self, arch: Optional[str] = None) -> None:
        """Raise InvalidConfig with the first rule that is broken; with an architecture, also Unsupported."""
        call(lib.kjit_config_check, ctypes.byref(self._config), text_or_none("arch", arch))

    def canonical(self) -> Any:
        """The config whose machine code is the same, with fields that mean nothing here at their plain value."""
        self.check()
        return type(self)._of(lib.kjit_config_canonical(ctypes.byref(self._config)))

    def geometry(self) -> FamilyGeometry:
        """Threads, dynamic shared memory and cluster, as the kernel is launched."""
        self.check()
        config = lib.kjit_config_canonical(ctypes.byref(self._config))
        numbers = lib.kjit_config_geometry(ctypes.byref(config))
        return FamilyGeometry(tuple(numbers.threads), numbers.shared_bytes, tuple(numbers.cluster))

    def source(self, runtime: Optional[Runtime] = None) -> str:
        """The source that is compiled for the config, its constants first."""
        return _source(self, runtime_or_default(runtime))


functools.total_ordering(FamilyConfig)


class FamilyGeometry(NamedTuple):
    """Numbers of a launch that follow from a config alone."""

    threads: tuple[int, ...]
    shared_bytes: int
    #: Blocks of a cluster; all 0: no cluster.
    cluster: tuple[int, ...]


def _source(config: FamilyConfig, runtime: Runtime) -> str:
    text = ctypes.c_void_p()
    call(lib.kjit_config_source, runtime.handle, ctypes.byref(config._config), ctypes.byref(text))
    try:
        return ctypes.string_at(text.value or 0).decode()
    finally:
        lib.kjit_text_free(runtime.handle, text)


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        if "," in value or "=" in value:
            raise ValueError(f"{name} is {value!r}: must be one value")
        return value
    if type(value).__module__.partition(".")[0] in ("torch", "numpy", "jax", "jaxlib", "ml_dtypes"):
        number = DTYPE_NUMBERS.get(str(getattr(value, "dtype", value)).rpartition(".")[2].rstrip("'>"))
        if number is not None and not hasattr(value, "item"):
            return str(number)
    return str(int(value))


def _typed(field: FamilyField, number: int) -> Value:
    if field.kind == "bool":
        return bool(number)
    if field.kind == "dtype":
        return _DTYPE_WORDS.get(number, number)
    if field.kind == "enum" and 0 <= number < len(field.values):
        return field.values[number]
    return number


def _fields(handle: Any) -> tuple[FamilyField, ...]:
    rows: list[FamilyField] = []
    while row := lib.kjit_family_field(handle, len(rows)):
        info = row.contents
        count = getattr(info, "value_count", 0)
        values = tuple(info.value_names[index].decode() for index in range(count))
        text, legal = (info.text or b"").decode(), (info.legal or b"").decode()
        rows.append(FamilyField(info.name.decode(), _KINDS[info.kind], text, values, legal))
    return tuple(rows)


def _config_class(family: Family) -> type[FamilyConfig]:
    """A subclass of FamilyConfig whose signature and annotations are the family's fields."""
    types: dict[str, type] = {"bool": bool, "dtype": str, "enum": str}
    annotations = {field.name: types.get(field.kind, int) for field in family.fields}
    lines = "\n".join(f"{field.name}: {field.text}" for field in family.fields)
    made = type(
        "Config",
        (FamilyConfig,),
        {
            "__slots__": (),
            "__doc__": f"A config of {family.name}: frozen, ordered, hashable.\n\n{lines}",
            "__annotations__": annotations,
            "family": family,
        },
    )
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=...)
        for name, kind in annotations.items()
    ]
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return made


class Family:
    """A kernel family: of a family file, of its text, or one of kjit's own.

        gemm = kjit.Family("gemm.yaml")
        cfg = gemm.Config(BM=128, BN=64, epilogue="bias")
        kernel = gemm.get(cfg)
        kernel.launch(None, a, b, c, m, n, k)

    The source is read when the family is opened: who edits it opens the family again. Thread-safe.
    """

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        handle = ctypes.c_void_p()
        call(lib.kjit_family_open, ctypes.byref(handle), as_path("path", path))
        self._begin(handle, ("open", os.path.abspath(os.fspath(path))))

    def _begin(self, handle: ctypes.c_void_p, origin: Any) -> None:
        self._handle, self._origin = handle, origin
        self.name: str = lib.kjit_family_name(handle).decode()
        #: The fields in order.
        self.fields = _fields(handle)
        self._parameters = _parameters(handle)
        #: The kernel's parameters in order; none for kjit's own families, which have calls of their own.
        self.parameters = tuple(FamilyParameter(each.name, each.type, each.bytes) for each in self._parameters)
        #: The class of the family's configs: family.Config(field=value, …); fields with a default may be left out.
        self.Config = _config_class(self)
        self._kernels: dict[Any, FamilyKernel] = {}
        _opened[origin] = self

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.kjit_family_release(self._handle)

    def __repr__(self) -> str:
        return f"<kjit.Family {self.name}>"

    @classmethod
    def parse(
        cls, text: str, *, name: str = "family.yaml", folder: Union[None, str, os.PathLike[str]] = None
    ) -> Family:
        """A family of a file's text. name: what messages call it. folder: what its paths are relative to."""
        handle, content = ctypes.c_void_p(), as_text("text", text)
        where = as_text("name", name), path_or_none("folder", folder)
        call(lib.kjit_family_parse, ctypes.byref(handle), content, len(content), *where)
        made = cls.__new__(cls)
        made._begin(handle, ("parse", text, name, None if folder is None else os.path.abspath(os.fspath(folder))))
        return made

    @classmethod
    def find(cls, name: str) -> Family:
        """One of kjit's own families, such as "attention_sm90"."""
        handle = ctypes.c_void_p(lib.kjit_family_find(as_text("name", name)))
        if not handle:
            raise LookupError(f"{name!r}: kjit has no family of that name")
        made = cls.__new__(cls)
        made._begin(handle, ("find", name))
        return made

    def legal(self, field: str) -> str:
        """A field's legal values in words: "one of 64, 96, 128"; "" for kjit's own families: see their field.text."""
        for each in self.fields:
            if each.name == field:
                return each.legal
        raise LookupError(f"{field!r}: {self.name} has the fields {', '.join(each.name for each in self.fields)}")

    @property
    def warnings(self) -> list[str]:
        """What looks like a mistake in the file and is none for sure: a field that the source never uses."""
        found: list[str] = []
        while text := lib.kjit_family_warning(self._handle, len(found)):
            found.append(text.decode())
        return found

    def set(self, name: str) -> list[FamilyConfig]:
        """The configs of a named set. NotFound lists the sets that there are."""
        count = ctypes.c_size_t()
        call(lib.kjit_family_set, self._handle, as_text("name", name), 0, None, ctypes.byref(count))
        configs = []
        for index in range(count.value):
            config = _abi.kjit_config()
            call(lib.kjit_family_set, self._handle, as_text("name", name), index, ctypes.byref(config), None)
            configs.append(self.Config._of(config))
        return configs

    def _config(self, config: Union[FamilyConfig, str]) -> FamilyConfig:
        if isinstance(config, str):
            return self.Config.parse(config)  # type: ignore[no-any-return]
        if config.family is not self and config.family.name != self.name:
            raise TypeError(f"a config of {config.family.name}: must be one of {self.name}")
        return config

    def compile(
        self,
        config: Union[FamilyConfig, str],
        arch: Optional[str] = None,
        *,
        no_compile: bool = False,
        runtime: Optional[Runtime] = None,
    ) -> Artifact:
        """The kernel of a config from memory, the cache or the compiler; no GPU needed.

        arch: "sm_90a", …; by default that of the current GPU, with its own features. no_compile: a miss is NotFound.
        """
        runtime = runtime_or_default(runtime)
        where = as_text("arch", arch or runtime.device_arch(specific=True))
        flags = _abi.KJIT_BUILD_NO_COMPILE if no_compile else 0
        return runtime._take(lib.kjit_config_build, ctypes.byref(self._config(config)._config), where, flags)

    def choose(
        self, problem: Union[str, dict[str, Any]], arch: Optional[str] = None, *, runtime: Optional[Runtime] = None
    ) -> tuning.Choice:
        """The config for a problem: of a tuned table's row, if there is one for its class, else by the family's
        `choose`, else the defaults; and which of them it was.

        problem: given fields and integer parameters, {"dtype": "bf16", "m": 4096} or "dtype=bf16,m=4096". arch: an
        architecture without a card; by default the current GPU.
        """
        return tuning.choose(self, problem, arch, runtime)

    def tune(
        self,
        problem: Union[str, dict[str, Any]],
        time: tuning.Timer,
        *,
        set: Optional[str] = None,
        check: Optional[tuning.Checker] = None,
        arch: Optional[str] = None,
        most: int = 0,
        runs: int = 25,
        margin: float = 0.01,
        publish: bool = True,
        runtime: Optional[Runtime] = None,
    ) -> tuning.Tuned:
        """Find the fastest config for a problem, and put it into the table that choose() of later processes asks.

        time(config, cubin): microseconds of one run of it; an exception drops the candidate. check(config, cubin): is
        the result right? set: the candidates; by default those around what choose() says, by one or two fields. most:
        how many at most. runs: of each finalist. margin: what a config must be faster by, twice. publish=False keeps
        nothing. arch: an architecture without a card; by default the current GPU. Kernels are compiled in turn: `kjit
        warm --family` compiles them in parallel before.
        """
        runtime = runtime_or_default(runtime)
        calls = tuning.Calls(time, check, self.Config._of_copy)
        calls.options.set = text_or_none("set", set)
        made = tuning.problem_of(self._handle, problem)
        asked = _abi.kjit_tune_problem(family=ctypes.pointer(made))
        where = (runtime.handle, ctypes.byref(asked), *tuning.place(runtime, arch))
        return tuning.run(calls, where, most=most, runs=runs, margin=margin, publish=publish)

    def get(
        self, config: Union[FamilyConfig, str], arch: Optional[str] = None, *, runtime: Optional[Runtime] = None
    ) -> FamilyKernel:
        """The kernel of a config, compiled and loaded. Configs with equal machine code have one kernel."""
        runtime = runtime_or_default(runtime)
        known = self._kernels.get((id(runtime), config, arch))
        if known is not None:
            return known
        if not self._parameters:
            raise NotImplementedError(f"{self.name}: a family of kjit's own is launched by kjit.attention()")
        where = arch or runtime.device_arch(specific=True)
        checked = self._config(config)
        checked.check(where)
        plain = checked.canonical()
        kernel = self._kernels.get((id(runtime), plain, where))
        if kernel is None:
            made = FamilyKernel(self, plain, where, runtime)
            kernel = self._kernels.setdefault((id(runtime), plain, where), made)
        return self._kernels.setdefault((id(runtime), config, arch), kernel)


# The family that was opened last from each place, for configs that come from elsewhere.
_opened: weakref.WeakValueDictionary[Any, Family] = weakref.WeakValueDictionary()


def _restore(origin: Any, text: str) -> FamilyConfig:
    """A config that was pickled: of the family that is open, or else is opened now."""
    family = _opened.get(origin)
    if family is None:
        how, *rest = origin
        if how == "parse":
            family = Family.parse(rest[0], name=rest[1], folder=rest[2])
        else:
            family = Family(rest[0]) if how == "open" else Family.find(rest[0])
    return family.Config.parse(text)  # type: ignore[no-any-return]


class _Parameter(NamedTuple):
    """A row of kjit_parameter_info; dtype_field is the index of the field that says the dtype, -1 for none."""

    name: str
    type: str
    kind: int
    bytes: int
    dtype: int
    dtype_field: int
    is_signed: bool


def _parameters(handle: Any) -> tuple[_Parameter, ...]:
    rows: list[_Parameter] = []
    while row := lib.kjit_family_parameter(handle, len(rows)):
        info = row.contents
        rows.append(
            _Parameter(
                info.name.decode(),
                info.type.decode(),
                info.kind,
                info.bytes,
                info.dtype,
                info.dtype_field,
                bool(info.is_signed),
            )
        )
    return tuple(rows)


def _as_whole(value: Any, row: _Parameter) -> int:
    if isinstance(value, int):
        return value
    if is_numpy_scalar(value) and value.dtype.kind in "iub":
        return int(value)
    raise TypeError(f"{type(value).__name__}: must be a whole number, for {row.type}")


def _take_integer(row: _Parameter, dtype: int) -> Callable[[Any], Any]:
    scratch, half = bytearray(row.bytes), 1 << (8 * row.bytes - 1)
    low, end = (-half, half) if row.is_signed else (0, 2 * half)

    def take(value: Any) -> Any:
        if type(value) is int and low <= value < end and row.type != "bool":
            return value
        number = _as_whole(value, row)
        if row.type == "bool" and number not in (0, 1):
            raise ValueError(f"{number}: must be True or False, for bool")
        put_integer(scratch, 0, row.bytes, number, row.is_signed)
        return number

    return take


def _take_float(row: _Parameter, dtype: int) -> Callable[[Any], Any]:
    name = DTYPE_NAMES.get(dtype, "")

    def take(value: Any) -> Any:
        if type(value) is float and name == "float64":
            return value
        if isinstance(value, bytes):
            return value
        if not isinstance(value, (int, float)) and not (is_numpy_scalar(value) and value.dtype.kind in "iufV"):
            raise TypeError(f"{type(value).__name__}: must be a number, for {row.type}")
        number, scratch = float(value), bytearray(row.bytes)
        if name == "bfloat16":
            return bfloat16_bits(number).to_bytes(2, "little")
        if name == "float16":
            try:
                HALF(scratch, 0, number)
            except (OverflowError, ValueError):
                raise OverflowError(f"{number}: beyond the range of fp16") from None
            return bytes(scratch)
        if name not in ("float32", "float64"):
            raise TypeError(f"a number for {row.type}: must be its {row.bytes} bytes")
        put_float(scratch, 0, row.bytes, number)
        return number

    return take


def _take_array(row: _Parameter, dtype: int) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if value is None or isinstance(value, ctypes.c_void_p):
            return value
        if arrays_of(value) is None:
            raise TypeError(describe(value) if not isinstance(value, int) else f"int: must be an array, for {row.type}")
        found = dtype_number(value)
        if dtype >= 0 and found is not None and found != dtype:
            words = _DTYPE_WORDS.get(found), _DTYPE_WORDS.get(dtype)
            raise TypeError(f"an array of {words[0]}: must be of {words[1]}, for {row.type}")
        return value

    return take


def _take_bytes(row: _Parameter, dtype: int) -> Callable[[Any], Any]:
    return lambda value: value


_TAKERS = {
    _abi.ENUMS.get("kjit_parameter_kind", {}).get("KJIT_PARAMETER_INTEGER", 0): _take_integer,
    _abi.ENUMS.get("kjit_parameter_kind", {}).get("KJIT_PARAMETER_FLOAT", 1): _take_float,
    _abi.ENUMS.get("kjit_parameter_kind", {}).get("KJIT_PARAMETER_POINTER", 2): _take_array,
}


class FamilyKernel:
    """The kernel of a config, loaded. Thread-safe."""

    def __init__(self, family: Family, config: FamilyConfig, arch: str, runtime: Runtime) -> None:
        self.family, self.config, self._runtime = family, config, runtime
        geometry = config.geometry()
        self._block, self._shared = geometry.threads, geometry.shared_bytes
        self._cluster = geometry.cluster if any(geometry.cluster) else None
        names: list[str] = []
        #: What was compiled.
        self.artifact = runtime._take(
            lib.kjit_config_build,
            ctypes.byref(config._config),
            as_text("arch", arch),
            0,
            visit=lambda handle: names.extend(info.name for info in kernel_infos(handle)),
        )
        entry = self.artifact.entry
        self.kernel = _load(runtime, config, entry if entry in names or not names else names[0], arch)
        rows = family._parameters
        if tuple(row.bytes for row in rows) != self.kernel.parameters:
            raise TypeError(
                f"{family.name}: the file declares parameters of {[row.bytes for row in rows]} bytes, and kernel "
                f'"{self.kernel.name}" has {list(self.kernel.parameters)}'
            )
        numbers = config._config.values
        self._takers = []
        for row in rows:
            dtype = numbers[row.dtype_field] if row.dtype_field >= 0 else row.dtype
            self._takers.append((row.name, _TAKERS.get(row.kind, _take_bytes)(row, dtype)))
        self._integers = [i for i, row in enumerate(rows) if _TAKERS.get(row.kind) is _take_integer]
        self._sms: Optional[int] = None
        self._launchers: dict[tuple[int, ...], Any] = {}

    def __repr__(self) -> str:
        return f"<kjit.FamilyKernel {self.family.name} {self.config}>"

    def grid(self, *args: Any) -> tuple[int, int, int]:
        """The grid of a launch with these arguments, by the family's expressions."""
        return self._grid(self._checked(args))

    def _checked(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(args) != len(self._takers):
            names = ", ".join(name for name, _ in self._takers)
            raise TypeError(f"{self.family.name} takes {len(self._takers)} arguments, {names}: {len(args)} were given")
        found = []
        try:
            for (_, take), value in zip(self._takers, args):
                found.append(take(value))
        except (TypeError, ValueError, OverflowError) as fault:
            index = len(found)
            raise type(fault)(f"args[{index}] ({self._takers[index][0]}): {fault}") from None
        return tuple(found)

    def _grid(self, args: tuple[Any, ...]) -> tuple[int, int, int]:
        numbers = (ctypes.c_int64 * len(args))()
        for index in self._integers:
            numbers[index] = args[index]
        if self._sms is None:
            self._sms = self._runtime.device_info()["multiprocessors"]
        grid = (ctypes.c_uint32 * 3)()
        call(lib.kjit_family_grid, ctypes.byref(self.config._config), numbers, self._sms, grid)
        return grid[0], grid[1], grid[2]

    def launch(self, stream: Any, *args: Any) -> None:
        """Launch; asynchronous. stream: a framework's, or None for the current one of the first array's framework.

        args: one for each of family.parameters, checked against it: a whole number in the range of its type, a number,
        an array on the GPU whose elements have the declared type, None for a null pointer, a kjit.TensorMap, or bytes.
        A wrong one is a TypeError or OverflowError that names its index and the parameter.
        """
        checked = self._checked(args)
        numbers = tuple([checked[index] for index in self._integers])
        launcher = self._launchers.get(numbers)
        if launcher is None:
            shape = Shape(self._grid(checked), self._block, self._shared, self._cluster)
            launcher = make_launcher(self.kernel, shape, None)
            if len(self._launchers) >= _LAUNCHERS_MAX:
                self._launchers.clear()
            self._launchers[numbers] = launcher
        launcher.on(stream, checked)

    def __call__(self, *args: Any, stream: Any = None) -> None:
        """launch() on the current stream, or on the one that is named."""
        self.launch(stream, *args)


def _load(runtime: Runtime, config: FamilyConfig, name: str, arch: str) -> Kernel:
    """The config's kernel, loaded, under the name that its artifact has for it."""
    handle = ctypes.c_void_p()
    _cuda.ensure_current()
    where = (ctypes.byref(config._config), as_text("arch", arch), 0)
    call(lib.kjit_config_get_kernel, runtime.handle, *where, ctypes.byref(handle))
    return Kernel(runtime, handle, name)
