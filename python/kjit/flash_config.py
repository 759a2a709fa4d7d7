"""Configs of the family flash_forward. Their fields, rules, spellings and sets are the library's."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import operator
import os
from typing import Any, NamedTuple

from . import _abi
from ._library import as_number, as_text, call, lib, struct, text_or_none


class _DTypeMethods:
    """What an element type can do. The numbers are PyTorch's ScalarType."""

    @classmethod
    def from_string(cls, text: str) -> Any:
        """A dtype by number or by name in any case."""
        word = text.strip()
        for member in cls:  # type: ignore[attr-defined]
            if word == str(member.value) or word.upper() == member.name:
                return member
        options = ", ".join(f"{member.name} ({member.value})" for member in cls)  # type: ignore[attr-defined]
        raise ValueError(f"dtype is {text!r}: must be one of {options}")

    def to_torch_dtype(self) -> Any:
        import torch

        types = {"FP16": torch.float16, "BF16": torch.bfloat16, "FP32": torch.float32}
        return types[self.name]  # type: ignore[attr-defined]


class _DTypeBase(_DTypeMethods, enum.IntEnum):
    def __str__(self) -> str:
        return self.name


DType = _DTypeBase(
    "DType",
    {name.replace("KJIT_", "", 1): value for name, value in _abi.ENUMS["kjit_dtype"].items() if value},
    module=__name__,
)


class Geometry(NamedTuple):
    """Numbers that follow from a config."""

    threads: int
    shared_bytes: int
    rows_per_warp: int


def _as_int32(name: str, value: Any) -> int:
    number = int(operator.index(value))
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{name} is {number}: must fit 32 bits")
    return number


def _as_dtype(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return DType.from_string(value)
    number = _as_int32(name, value)
    return DType(number) if number in DType._value2member_map_ else number


_READ = {
    "dtype": _as_dtype,
    "int": _as_int32,
    "load": _as_int32,
    "bool": lambda name, value: bool(_as_int32(name, value)),
}
_TYPES: dict[str, type] = {"dtype": DType, "int": int, "load": int, "bool": bool}


class Field(NamedTuple):
    """A row of the library's field table."""

    name: str
    kind: str
    token: str
    text: str


_FAMILY = lib.kjit_family_find(b"flash_forward")
# The library's number of a field's kind as a word.
_KINDS = {
    value: name.replace("KJIT_FIELD_", "", 1).lower() for name, value in _abi.ENUMS["kjit_field_kind"].items()
}


def _read_fields() -> tuple[Field, ...]:
    """The 13 fields of a config. The family's others follow from the problem."""
    rows: list[Field] = []
    while len(rows) < len(_abi.kjit_flash_config._fields_):
        info = lib.kjit_family_field(_FAMILY, len(rows)).contents
        rows.append(Field(info.name.decode(), _KINDS[info.kind], info.token.decode(), info.text.decode()))
    return tuple(rows)


FIELDS = _read_fields()


def _plain_kernel(config: Any) -> Any:
    """The kjit_config of a kjit_flash_config's plain kernel."""
    kernel = _abi.kjit_config()
    call(lib.kjit_config_of_flash, ctypes.byref(config), None, ctypes.byref(kernel))
    return kernel


def _flash_struct(kernel: Any) -> Any:
    """The kjit_flash_config that a kjit_config of the family begins with."""
    return _abi.kjit_flash_config(*kernel.values[: len(FIELDS)])


class _ConfigMethods:
    """What every config can do; the fields are added below."""

    def __post_init__(self) -> None:
        # The class is frozen: what is made once is put in by the way that object.__init__ would use.
        for field in FIELDS:
            object.__setattr__(self, field.name, _READ[field.kind](field.name, getattr(self, field.name)))
        values = {field.name: int(getattr(self, field.name)) for field in FIELDS}
        object.__setattr__(self, "_struct", _abi.kjit_flash_config(**values))
        object.__setattr__(self, "_kernel", _plain_kernel(self._struct))  # type: ignore[attr-defined]
        object.__setattr__(self, "_hash", hash(tuple(values.values())))
        object.__setattr__(self, "_text", self.short_form())  # here, because torch.compile cannot trace the call

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, field.name) for field in FIELDS)

    def __str__(self) -> str:
        text: str = self._text  # type: ignore[attr-defined]
        return text

    @classmethod
    def _from_struct(cls, config: Any) -> Any:
        return cls(*(getattr(config, field.name) for field in FIELDS))  # type: ignore[call-arg]

    @classmethod
    def parse(cls, text: str) -> Any:
        """Read the short form, or either demangled spelling. The values are read, not judged: that is check()."""
        config = _abi.kjit_flash_config()
        call(lib.kjit_flash_config_parse, as_text("text", text), ctypes.byref(config))
        return cls._from_struct(config)

    @classmethod
    def choose(cls, dtype: Any, seq_q: int, seq_kv: int, head_dim: int, arch: str) -> Any:
        """The config that is used where none is given and the architecture has no family of its own."""
        problem = struct(
            _abi.kjit_attention_problem,
            dtype=int(_as_dtype("dtype", dtype)),
            seq_q=seq_q,
            seq_kv=seq_kv,
            head_dim=head_dim,
        )
        kernel = _abi.kjit_config()
        where = arch[:-1] if arch == "sm_90a" else arch  # what is chosen for sm_90a is of another family
        call(
            lib.kjit_attention_choose, None, ctypes.byref(problem), as_text("arch", where), ctypes.byref(kernel), None
        )
        return cls._from_struct(_flash_struct(kernel))

    def _print(self, flags: int) -> str:
        text = ctypes.create_string_buffer(_abi.KJIT_FLASH_CONFIG_TEXT_MAX)
        call(lib.kjit_flash_config_print, self._struct, flags, text, len(text))  # type: ignore[attr-defined]
        return text.value.decode()

    def short_form(self, *, d_head: bool = True, whole_tuple: bool = True) -> str:
        """`(FP16, 128, 64, 64, 4): async+eager+…`. What leaves something out does not parse back."""
        flags = 0 if d_head else _abi.KJIT_PRINT_NO_D_HEAD
        return self._print(flags if whole_tuple else _abi.KJIT_PRINT_NO_TUPLE)

    def to_json(self) -> str:
        """One JSON object, fields in order."""
        return self._print(_abi.KJIT_PRINT_JSON)

    def check(self, arch: str | None = None) -> None:
        """Raise InvalidConfig with the first rule that is broken; with an architecture, also Unsupported."""
        kernel = self._kernel  # type: ignore[attr-defined]
        call(lib.kjit_config_check, ctypes.byref(kernel), text_or_none("arch", arch))

    def canonical(self) -> Any:
        """The config whose machine code is the same, with fields that mean nothing here at their plain value."""
        self.check()
        canonical = lib.kjit_config_canonical(self._kernel)  # type: ignore[attr-defined]
        return type(self)._from_struct(_flash_struct(canonical))

    def geometry(self) -> Geometry:
        self.check()
        numbers = lib.kjit_config_geometry(self._kernel)  # type: ignore[attr-defined]
        rows = self.B_r // self.n_warps  # type: ignore[attr-defined]
        return Geometry(numbers.threads[0], numbers.shared_bytes, rows)

    def ctas_per_sm(self, registers: int, arch: str) -> int:
        """Blocks that fit one multiprocessor at once, with this many registers per thread."""
        self.check(arch)
        kernel = self._kernel  # type: ignore[attr-defined]
        each = as_number("registers", registers, ctypes.c_uint32)
        blocks: int = lib.kjit_config_blocks_per_sm(kernel, each, as_text("arch", arch))
        return blocks


FlashForwardKernelConfig = dataclasses.make_dataclass(
    "FlashForwardKernelConfig",
    [(field.name, _TYPES[field.kind]) for field in FIELDS],
    bases=(_ConfigMethods,),
    namespace={
        "__module__": __name__,
        "__doc__": "One configuration. Ordered field by field, hashable, immutable.\n\n"
        + "\n".join(f"{field.name}: {field.text}" for field in FIELDS),
        "__hash__": lambda self: self._hash,
    },
    frozen=True,
    order=True,
)


def config_set(name: str) -> list[Any]:
    """A named set: "progression", "autotune", "prebuilt" or "progression_all"."""
    count = ctypes.c_size_t()
    call(lib.kjit_flash_config_set, as_text("name", name), None, 0, ctypes.byref(count))
    configs = (_abi.kjit_flash_config * count.value)()
    call(lib.kjit_flash_config_set, as_text("name", name), configs, len(configs), ctypes.byref(count))
    return [FlashForwardKernelConfig._from_struct(config) for config in configs]


def get_kernel_progression_configs(all_block_sizes: bool = False) -> list[Any]:
    return config_set("progression_all" if all_block_sizes else "progression")


def get_autotuning_kernel_configs() -> list[Any]:
    return config_set("autotune")


def get_kernel_configs(key: str | None = None) -> list[Any]:
    """The configs that `key`, or else the environment variable KERNELS, asks for.

    "prog…" is the progression, with "all" in it for all block sizes; "all" and "tune" are the autotuning set;
    "B_r,B_c" is the part of that set with this block shape. Anything else is a ValueError.
    """
    asked = os.environ.get("KERNELS", "") if key is None else key
    if not isinstance(asked, str):
        raise TypeError(f"key is {asked!r}: must be a str")
    if asked.startswith("prog"):
        return get_kernel_progression_configs("all" in asked)
    if asked in ("all", "tune"):
        return get_autotuning_kernel_configs()
    sizes = [part.strip() for part in asked.split(",")]
    if len(sizes) == 2 and all(size.isdecimal() for size in sizes):
        shape = tuple(map(int, sizes))
        return [config for config in get_autotuning_kernel_configs() if (config.B_r, config.B_c) == shape]
    raise ValueError(f'KERNELS is {asked!r}: must begin with "prog", or be "all", "tune" or "B_r,B_c"')
