"""Attention variants: score and mask functions, as texts or as Python functions."""

from __future__ import annotations

import ctypes
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _abi, _recall, _replay, _trace
from ._library import as_dict, as_number, as_text, call, lib, pairs_of, struct, text_or_none
from ._values import Scalars
from .errors import ParseError

Function = Callable[..., Any]
Number = Union[bool, int, float]

#: Variants kept by their text: more than one model has, and a bound for texts whose numbers change at every call.
_KNOWN_MAX = 4096
_known: dict[Any, Variant] = {}


_SCALARS = {"int32": _abi.KJIT_VARIANT_INT32, "fp32": _abi.KJIT_VARIANT_FP32}


def _scalar(declared: tuple[str, str]) -> Any:
    name, kind = declared
    if kind not in list(_SCALARS):
        raise ValueError(f"scalars[{name!r}] is {kind!r}: must be one of {', '.join(_SCALARS)}")
    return _abi.kjit_variant_scalar(as_text("the name of a scalar", name), _SCALARS[kind])


def _tensor(declared: tuple[str, tuple[int, int]]) -> Any:
    name, pair = declared
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(f"tensors[{name!r}] is {pair!r}: must be (dtype, rank)")
    return _abi.kjit_variant_tensor(as_text("the name of a tensor", name), *pair)


class Variant:
    """A checked variant of the library: its text, with declared scalars and tensors. Immutable.

    score, mask: texts of the language of docs/variants.md; None: the score itself, every key.
    scalars: {name: "int32" or "fp32"}; tensors: {name: (dtype, rank)}, dtypes by PyTorch's numbers.
    """

    __slots__ = ("_handle", "_packer", "_keeps", "scalars", "tensors", "score", "mask", "__weakref__")

    def __init__(
        self,
        score: Optional[str] = None,
        mask: Optional[str] = None,
        scalars: Mapping[str, str] = {},
        tensors: Mapping[str, tuple[int, int]] = {},
        *,
        file: Optional[str] = None,
        line: int = 1,
    ) -> None:
        self._handle = ctypes.c_void_p()
        self.score, self.mask = score, mask
        self.scalars, self.tensors = dict(pairs_of("scalars", scalars)), dict(pairs_of("tensors", tensors))
        declared: Any = (_abi.kjit_variant_scalar * max(1, len(self.scalars)))(*map(_scalar, self.scalars.items()))
        views: Any = (_abi.kjit_variant_tensor * max(1, len(self.tensors)))(*map(_tensor, self.tensors.items()))
        self._packer = Scalars(self.scalars)
        text = _abi.kjit_attention_variant_text(
            struct_size=ctypes.sizeof(_abi.kjit_attention_variant_text),
            score=text_or_none("score", score),
            mask=text_or_none("mask", mask),
            scalars=declared,
            scalar_count=len(self.scalars),
            tensors=views,
            tensor_count=len(self.tensors),
            file=text_or_none("file", file),
            line=as_number("line", line, ctypes.c_uint32),
        )
        call(lib.kjit_attention_variant_create, ctypes.byref(self._handle), ctypes.byref(text))
        #: Are there lists of blocks, which follow from the text, its numbers and sizes alone?
        self._keeps = not tensors and self._has_lists()

    def _has_lists(self) -> bool:
        info = self.info
        return bool(info["has_mask"]) and not info["intervals"]

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and lib is not None:  # at exit the module's names may be gone
            lib.kjit_attention_variant_free(handle)

    def pack(self, buffer: Any, values: Sequence[Number]) -> None:
        """Write the values of the scalars into a buffer of int32."""
        self._packer.write(buffer, values)

    def _text(self, function: Any) -> str:
        needed = ctypes.c_size_t()
        call(function, self._handle, None, 0, ctypes.byref(needed))
        text = ctypes.create_string_buffer(needed.value)
        call(function, self._handle, text, needed, None)
        return text.value.decode()

    def explain(self) -> str:
        """The canonical text, what the score is made of, how blocks are found, the digest."""
        return self._text(lib.kjit_attention_variant_explain)

    def kernel_text(self) -> str:
        """The header that the kernels of this variant include."""
        return self._text(lib.kjit_attention_variant_print_kernel)

    @property
    def info(self) -> dict[str, Any]:
        """kjit_variant_info: has_score, has_mask, affine, pointwise, terms, intervals, operations, digest."""
        info = _abi.kjit_variant_info(struct_size=ctypes.sizeof(_abi.kjit_variant_info))
        call(lib.kjit_attention_variant_get_info, self._handle, ctypes.byref(info))
        return as_dict(info)

    @property
    def digest(self) -> str:
        """Variants of one digest are one kernel."""
        return str(self.info["digest"])


class Evaluation(NamedTuple):
    """A variant at one place, computed on the host."""

    score: float
    seen: bool
    score_grad: float


class Bound(NamedTuple):
    """A variant with the values of a call."""

    variant: Variant
    values: tuple[Number, ...]
    tensors: tuple[Any, ...]

    def scalars(self) -> Any:
        """The values as the library takes them: int32, floats by their bits."""
        buffer = (ctypes.c_int32 * max(1, len(self.values)))()
        self.variant.pack(buffer, self.values)
        return buffer

    def evaluate(
        self,
        score: float,
        b: int,
        h: int,
        q: int,
        k: int,
        *,
        seq_q: int,
        seq_kv: int,
        heads_q: int = 1,
        heads_kv: int = 1,
    ) -> Evaluation:
        """Both functions at one place, on the host, in double precision. Tensors must be the processor's."""
        views = (_abi.kjit_tensor * max(1, len(self.tensors)))(*map(tensor_view, self.tensors))
        at = struct(
            _abi.kjit_variant_evaluation,
            seq_q=seq_q,
            seq_kv=seq_kv,
            heads_q=heads_q,
            heads_kv=heads_kv,
            scalar_values=self.scalars(),
            tensors=views,
            score=score,
            b=b,
            h=h,
            q=q,
            k=k,
        )
        call(lib.kjit_attention_variant_evaluate, self.variant._handle, ctypes.byref(at))
        return Evaluation(at.new_score, bool(at.seen), at.score_grad)


class Members(NamedTuple):
    """What a call of attention has besides dense attention and functions."""

    blocks: Any = None
    sinks: Any = None
    window: Optional[tuple[int, int]] = None
    softcap: float = 0.0
    alibi_slopes: Any = None
    bias: Any = None
    attention_chunk: int = 0

    def names(self) -> str:
        """Those that are given, for a message."""
        given = (name for name, value in zip(self._fields, self) if value is not None and not _is_zero(value))
        return ", ".join(given)


#: Of a call that has functions or texts alone.
NO_MEMBERS = Members()


def _is_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == 0


#: PyTorch's numbers of the element types that variants read, by the type's name.
_DTYPES = {
    "uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7, "bool": 11,
    "bfloat16": 15,
}  # fmt: skip


def _dtype_number(tensor: Any) -> int:
    name = str(tensor.dtype).rsplit(".", 1)[-1]
    if name not in _DTYPES:
        raise TypeError(f"a tensor of {name}: attention variants read {', '.join(_DTYPES)}")
    return _DTYPES[name]


def tensor_view(tensor: Any) -> Any:
    """A tensor of PyTorch or numpy as a kjit_tensor."""
    if hasattr(tensor, "data_ptr"):
        device = tensor.get_device() if tensor.is_cuda else _abi.KJIT_DEVICE_HOST
        data, strides = tensor.data_ptr(), tensor.stride()
    else:
        device, data = _abi.KJIT_DEVICE_HOST, tensor.ctypes.data
        strides = tuple(stride // tensor.itemsize for stride in tensor.strides)
    view = _abi.kjit_tensor(data=data, dtype=_dtype_number(tensor), device=device, rank=tensor.ndim)
    view.shape[: tensor.ndim], view.stride[: tensor.ndim] = tuple(tensor.shape), strides
    return view


class Reading(NamedTuple):
    """What functions or texts of a call say. It is made without the library, so that torch.compile can trace it."""

    score: Optional[str]
    mask: Optional[str]
    names: tuple[str, ...]  # of the scalars
    values: tuple[Number, ...]
    tensor_names: tuple[str, ...]
    tensors: tuple[Any, ...]

    def bound(self) -> Bound:
        kinds = tuple(["fp32" if isinstance(value, float) else "int32" for value in self.values])
        try:
            types = tuple([(tensor.dtype, tensor.ndim) for tensor in self.tensors])
        except AttributeError:
            raise self._no_tensor() from None
        key = (self.score, self.mask, self.names, kinds, self.tensor_names, types)
        variant = _known.get(key)
        if variant is None:
            numbers = [(_dtype_number(tensor), tensor.ndim) for tensor in self.tensors]
            scalars, tensors = dict(zip(self.names, kinds)), dict(zip(self.tensor_names, numbers))
            variant = Variant(self.score, self.mask, scalars, tensors)
            self._require_used()
            if len(_known) >= _KNOWN_MAX:
                _known.clear()
            _known[key] = variant
        return Bound(variant, self.values, self.tensors)

    def _require_used(self) -> None:
        """Raise TypeError for a value whose name is in no text. The library has accepted the texts.

        Functions have no such value: each step of theirs is written, used or not.
        """
        words = set(re.findall(r"\w+", f"{self.score or ''} {self.mask or ''}"))
        for what, names in (("params", self.names), ("tensors", self.tensor_names)):
            for name in names:
                if name not in words:
                    given = [text for text in ("score", "mask") if getattr(self, text) is not None]
                    texts, verb = " and ".join(given), "does" if len(given) == 1 else "do"
                    raise TypeError(f"{what}[{name!r}]: {texts} {verb} not use this name")

    def _no_tensor(self) -> TypeError:
        for name, value in zip(self.tensor_names, self.tensors):
            if not (hasattr(value, "dtype") and hasattr(value, "ndim")):
                return TypeError(f"tensors[{name!r}] is a {type(value).__name__}: must be a tensor")
        return TypeError("tensors: must be tensors")


def from_text(
    score: Optional[str] = None,
    mask: Optional[str] = None,
    params: Mapping[str, Number] = {},
    tensors: Mapping[str, Any] = {},
) -> Bound:
    """A variant by its texts, with the values of its scalars and tensors. An int is an int32, a float an fp32."""
    return read(score, mask, None, None, params, tensors).bound()


def _positional(function: Function) -> int:
    """Parameters without a default, as FlexAttention counts them."""
    parameters = inspect.signature(function).parameters.values()
    return sum(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


#: Names of traced scalars and tensors.
_NUMBERS = tuple(f"n{i}" for i in range(_abi.KJIT_VARIANT_SCALAR_COUNT_MAX))
_TENSORS = tuple(f"tensor{i}" for i in range(_abi.KJIT_VARIANT_TENSOR_COUNT_MAX))


def _trace_functions(
    tracer: _trace.Tracer, score_mod: Optional[Function], mask_mod: Optional[Function], watched: bool = False
) -> Any:
    """What they compute, as texts; watched: as trace() has it."""
    for function in (score_mod, mask_mod):
        if function is not None and not callable(function):
            name = "score_mod" if function is score_mod else "mask_mod"
            raise TypeError(f"{name} is a {type(function).__name__}: must be a function")
    return _trace.trace(tracer, ((score_mod, _trace.SCORE_INPUTS), (mask_mod, _trace.MASK_INPUTS)), watched)


def _reading(texts: Any, tensors: tuple[Any, ...], values: tuple[Number, ...]) -> Reading:
    """Of traced texts."""
    score, mask = texts
    if len(tensors) > len(_TENSORS):
        raise TypeError(f"the functions read {len(tensors)} tensors; {len(_TENSORS)} is the most")
    return Reading(score, mask, _NUMBERS[: len(values)], values, _TENSORS[: len(tensors)], tensors)


#: Variants of traced functions, by texts and types.
_traced: dict[Any, Variant] = {}

#: Tracers by the ids of the code of functions that were read, with that code, so that the ids stay its own. A tracer is
#: taken out while it is used, so that no other thread and no function that is read meanwhile has it.
_tracers: dict[Any, tuple[_trace.Tracer, Any]] = {}


def from_functions(score_mod: Optional[Function] = None, mask_mod: Optional[Function] = None) -> Bound:
    """A variant by its functions, as FlexAttention takes them: score_mod(score, b, h, q, k), mask_mod(b, h, q, k).

    The functions are read anew at each call, which takes microseconds, unless nothing that they can see has changed
    (_recall.py): so what they capture may change, and nothing is stale. Raises TypeError with the user's file and line
    for what cannot be computed.
    """
    return Bound(*_of_functions(score_mod, mask_mod))


def _at_function(error: ParseError, score_mod: Optional[Function], mask_mod: Optional[Function]) -> ParseError:
    """The error with the user's file and line, in place of the column of a text that the user has not written."""
    what, _, why = re.sub(r"(line \d+, )?column \d+: ", "", str(error)).partition(": ")
    where = _trace.place_of(mask_mod if what == "mask" else score_mod)
    return ParseError(f"{where}{what}: {why}", **error.__dict__)


def _of_functions(score_mod: Optional[Function], mask_mod: Optional[Function]) -> tuple[Any, ...]:
    """A Bound, or a tuple like one, which is made faster."""
    found, place = _recall.recalled((score_mod, mask_mod))
    if found is not None:
        return found
    codes = getattr(score_mod, "__code__", None), getattr(mask_mod, "__code__", None)
    ids = id(codes[0]), id(codes[1])
    known = _tracers.pop(ids, None)
    tracer = _replay.Tracer() if known is None else known[0]
    texts = _trace_functions(tracer, score_mod, mask_mod, place is not None and _recall.is_watched(place[2]))
    tensors, values = tuple(tracer.tensors), tuple(tracer.values)
    # Traced scalars and tensors are named by their numbers, so that their types tell the rest.
    key = (*texts, tuple([type(value) for value in values]), tuple([(tensor.dtype, tensor.ndim) for tensor in tensors]))
    variant = _traced.get(key)
    if variant is None:
        try:
            variant = _reading(texts, tensors, values).bound().variant
        except ParseError as error:
            raise _at_function(error, score_mod, mask_mod) from None
        if len(_traced) >= _KNOWN_MAX:
            _traced.clear()
        _traced[key] = variant
    bound = variant, values, tensors
    if tracer.is_pure and place is not None:
        _recall.keep(_recall.Place(*place), *bound)
    tracer.restart()
    if len(_tracers) >= _recall.KEPT_MAX:
        _tracers.clear()
    _tracers[ids] = known or (tracer, codes)
    return bound


def require_one_kind(score: Optional[str], mask: Optional[str], functions: bool, params: Any, tensors: Any) -> None:
    if functions and (score is not None or mask is not None or params or tensors):
        raise TypeError("give functions (score_mod, mask_mod) or texts (score, mask, params, tensors), not both")
    if not functions and score is None and mask is None and (params or tensors):
        raise TypeError("params and tensors belong to a score or a mask")


def read(
    score: Optional[str] = None,
    mask: Optional[str] = None,
    score_mod: Optional[Function] = None,
    mask_mod: Optional[Function] = None,
    params: Optional[Mapping[str, Number]] = None,
    tensors: Optional[Mapping[str, Any]] = None,
) -> Reading:
    """The reading of a call that has functions or texts."""
    if score_mod is not None or mask_mod is not None:
        tracer = _trace.Tracer()
        texts = _trace_functions(tracer, score_mod, mask_mod)
        return _reading(texts, tuple(tracer.tensors), tuple(tracer.values))
    params, tensors = params or {}, tensors or {}
    try:
        return Reading(score, mask, tuple(params), tuple(params.values()), tuple(tensors), tuple(tensors.values()))
    except AttributeError:
        pairs_of("params", params), pairs_of("tensors", tensors)  # raise TypeError for what is no mapping
        raise


def bound_of(
    score: Optional[str],
    mask: Optional[str],
    score_mod: Optional[Function],
    mask_mod: Optional[Function],
    params: Optional[Mapping[str, Number]],
    tensors: Optional[Mapping[str, Any]],
) -> Optional[tuple[Any, ...]]:
    """The variant of functions or texts, of which require_one_kind() was asked: a Bound, or a tuple like one."""
    if score_mod is not None or mask_mod is not None:
        return _of_functions(score_mod, mask_mod)
    if score is None and mask is None:
        return None
    return read(score, mask, None, None, params, tensors).bound()


def bind(
    score: Optional[str] = None,
    mask: Optional[str] = None,
    score_mod: Optional[Function] = None,
    mask_mod: Optional[Function] = None,
    params: Optional[Mapping[str, Number]] = None,
    tensors: Optional[Mapping[str, Any]] = None,
) -> Optional[Bound]:
    """The variant of a call; None: the call has none."""
    require_one_kind(score, mask, score_mod is not None or mask_mod is not None, params, tensors)
    bound = bound_of(score, mask, score_mod, mask_mod, params, tensors)
    return None if bound is None else Bound(*bound)


def explain(
    function: Optional[Function] = None,
    *,
    score_mod: Optional[Function] = None,
    mask_mod: Optional[Function] = None,
    block_mask: Any = None,
    score: Optional[str] = None,
    mask: Optional[str] = None,
    params: Optional[Mapping[str, Number]] = None,
    tensors: Optional[Mapping[str, Any]] = None,
) -> str:
    """What kjit makes of functions or texts: the expression, its classes, how blocks are found, the digest.

    A single function is told apart as FlexAttention does: 5 parameters are a score_mod, 4 a mask_mod.
    """
    if function is not None:
        count = _positional(function)
        if count not in (4, 5):
            raise TypeError(f"a score_mod has 5 parameters and a mask_mod 4, and this function has {count}")
        score_mod, mask_mod = (function, mask_mod) if count == 5 else (score_mod, function)
    if block_mask is not None and mask_mod is None:
        if not hasattr(block_mask, "mask_mod"):
            raise TypeError(f"block_mask is a {type(block_mask).__name__}: must be a BlockMask")
        mask_mod = block_mask.mask_mod
    bound = bind(score, mask, score_mod, mask_mod, params, tensors)
    return "score: score\nmask: true\n" if bound is None else bound.variant.explain()


__all__ = ["Bound", "Evaluation", "Variant", "bind", "explain", "from_functions", "from_text"]
