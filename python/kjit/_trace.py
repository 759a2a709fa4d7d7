"""Score and mask functions of Python to texts of the variant language.

The function is called once with objects in place of its numbers. Each operation on such an object writes one `let` of
the text, so the text is as long as the function's work, however often a value is used. A tensor that is indexed by such
an object becomes a tensor of the variant. The operands of arithmetic and comparisons that are plain numbers become
scalars of the variant, so that the same function with another number has the same text; other numbers are written into
the text, where the library makes launch parameters of most. _trace_torch.py has what PyTorch's functions and tensors
need besides.

A tracer keeps the steps of its last trace. While the next one takes the same steps, each gives the object that it gave
last time, and no text is made: that a step is the same is seen by its operands, which are the same objects. From the
first other step on, the trace is written anew. So a function that is traced at each call costs a comparison a step,
which is made in C where there is such a part (_replay.py).
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any, Callable, Optional, Union

#: any() and all() over an axis write one comparison for each of its elements.
UNROLLED_MAX = 32

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def place() -> str:
    """'file:line: ' of the user's line that is being run."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE) and f"{os.sep}torch{os.sep}" not in name:
            return f"{name}:{frame.f_lineno}: "
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def place_of(function: Any) -> str:
    """'file:line: ' of a function's first line; nothing for what is not written in Python."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: " if code else ""


class TraceError(TypeError):
    """A function that cannot be an attention variant. The message begins with the user's file and line: of `function`,
    its first line, where it is given because it has returned; otherwise the line that is being run."""

    def __init__(self, message: str, function: Any = None) -> None:
        super().__init__((place_of(function) or place()) + message)


#: Operations whose plain operand becomes a scalar. Divisors of integers, shifts and bit masks are part of the code.
_SCALAR_SIGNS = frozenset(("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!="))

#: Scalars of a trace; the library has room for 32, which the numbers that stay in the text share.
_SCALARS_MAX = 24


def _is_free(value: Any) -> bool:
    """May a plain number be a scalar? Those that functions have by their nature stay in the text."""
    return value not in (-1, 0, 1, 2) and -(2**31) <= value < 2**31


#: What a step is told by, and what it gave: an operator's sign, with "r" before it where the plain number comes first,
#: and its operands; "[]", the number of a tensor and its indices; None where a step is told by its text alone. In place
#: of a plain number that became a scalar stands what says so of its type.
Step = tuple[Optional[str], Any, Any, Any]
FREE_NUMBERS = {int: object(), float: object()}
INDEX = "[]"


class Tracer:
    """One trace: the steps that were taken, and the tensors and numbers met. It may be used for one trace after the
    other, on one thread at a time."""

    def __init__(self) -> None:
        #: The steps of the last trace, of which this one has taken the first `at`.
        self.steps: list[Step] = []
        self.texts: list[str] = []
        self.at = 0
        #: Where the function that is read began, and by where each began and ended: what it gave, and its text.
        self.began = 0
        self.ends: dict[tuple[int, int], tuple[Scalar, str]] = {}
        self.inputs: dict[tuple[str, ...], list[Scalar]] = {}
        self.tensors: list[Any] = []
        self.values: list[Union[int, float]] = []
        #: PyTorch computed nothing on the way that the text does not hold: equal functions have equal traces.
        self.is_pure = True
        self.mode: Any = None

    def number(self, name: str) -> Scalar:
        """A new number of this trace."""
        return Scalar(self, name)

    def new_mode(self) -> Any:
        """What lets PyTorch's functions reach this trace."""
        from . import _trace_torch

        return _trace_torch.Mode(self)

    def restart(self) -> None:
        """Begin the next trace. What the last one met is forgotten but for its steps."""
        self.at = self.began = 0
        self.tensors, self.values = [], []
        self.is_pure = True

    def tensor_number(self, tensor: Any) -> int:
        tensors = self.tensors
        for i, known in enumerate(tensors):
            if known is tensor:
                return i
        tensors.append(tensor)
        return len(tensors) - 1

    def tensor_name(self, tensor: Any) -> str:
        return f"tensor{self.tensor_number(tensor)}"

    def operand(self, sign: str, value: Any) -> str:
        """The operand of an operation as text; a plain number becomes a scalar where it may be one."""
        kind = type(value)
        if (kind is int or kind is float) and sign in _SCALAR_SIGNS and len(self.values) < _SCALARS_MAX:
            if _is_free(value):
                self.values.append(value)
                return f"n{len(self.values) - 1}"
        return as_text(value, self)

    def value(self, text: str, does: Any = None, first: Any = None, second: Any = None) -> Scalar:
        """Take a step. The last three: what it is told by next time."""
        at = self.at
        self.at = at + 1
        if at < len(self.steps):
            if self.texts[at] == text:
                result: Scalar = self.steps[at][3]
                if does is not None:
                    self.steps[at] = (does, first, second, result)
                return result
            self._forget(at)
        result = self.number(f"v{at}")
        self.steps.append((does, first, second, result))
        self.texts.append(text)
        return result

    def _forget(self, at: int) -> None:
        """The steps from this one on are others than last time."""
        del self.steps[at:], self.texts[at:]
        self.ends = {places: end for places, end in self.ends.items() if places[1] <= at}

    def text(self, result: Any) -> str:
        """The whole text, of a function that gave this."""
        began, at = self.began, self.at
        self.began = at
        known = self.ends.get((began, at))
        if known is not None and known[0] is result:
            return known[1]
        lets = [f"let v{i} = {self.texts[i]}; " for i in range(began, at)]
        text = "".join(lets) + as_text(result)
        if isinstance(result, Scalar):
            self.ends[began, at] = result, text
        return text


def as_text(value: Any, tracer: Optional[Tracer] = None) -> str:
    """A value as an operand of the language. A 0-d tensor on a GPU is read where it lies, without waiting for it."""
    if isinstance(value, Scalar):
        return value.name
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value) if value >= 0 else f"({value})"
    if kind is float:
        return _float_text(value)
    if isinstance(value, Partial):
        raise TraceError(f"a tensor of {value.rank} axes has {len(value.indices)} indices here: index each axis")
    if getattr(value, "ndim", 0):
        raise TraceError(f"a tensor of shape {tuple(value.shape)} beside a number: index each of its axes")
    if getattr(value, "is_cuda", False) and tracer is not None:
        return tracer.tensor_name(value)
    if hasattr(value, "item"):  # a 0-d tensor of the processor, a numpy number
        if getattr(value, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
            raise TraceError("a tensor of the processor's memory requires a gradient, and is read as a number: put it "
                             "on the GPU, or detach() it")  # fmt: skip
        if tracer is not None and kind.__module__ != "numpy":  # whose numbers do not change
            tracer.is_pure = False
        return as_text(value.item())
    if isinstance(value, int):  # of an enumeration
        return as_text(int(value))
    raise TraceError(f"a {kind.__name__} is no number that an attention variant can use")


def _float_text(value: float) -> str:
    if math.isinf(value):
        return "inf" if value > 0 else "(-inf)"
    if math.isnan(value):
        raise TraceError("nan is no number that an attention variant can use")
    text = repr(value)
    return text if value >= 0 and text[0] != "-" else f"({text})"


def _operator(does: str, write: Callable[[Scalar, Any], Any]) -> Callable[[Scalar, Any], Any]:
    """An operator of a traced number and something else, whose steps are told by `does`.

    write: makes the step's text, where it is not the last trace's again.
    """

    def operate(self: Scalar, other: Any) -> Any:
        tracer = self.tracer
        at = tracer.at
        if at < len(tracer.steps):
            known, first, second, result = tracer.steps[at]
            if known is does and first is self:
                if second is other:
                    tracer.at = at + 1
                    return result
                if second is FREE_NUMBERS.get(type(other)) and _is_free(other):
                    tracer.at = at + 1
                    tracer.values.append(other)
                    return result
        return write(self, other)

    return operate


#: Of each operator: what tells a step of it and the function that writes one, forward and with the plain number first.
OPERATORS: dict[str, tuple[str, Callable[..., Any], str, Callable[..., Any]]] = {}


def _infix(sign: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    reversed_sign = "r" + sign

    def write_forward(self: Scalar, other: Any) -> Any:
        tracer = self.tracer
        if isinstance(other, Scalar):
            return tracer.value(f"{self.name} {sign} {other.name}", sign, self, other)
        if not is_operand(other):
            return NotImplemented
        text = tracer.operand(sign, other)
        return tracer.value(f"{self.name} {sign} {text}", *_told(sign, self, other, text))

    def write_reverse(self: Scalar, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        text = self.tracer.operand(sign, other)
        return self.tracer.value(f"{text} {sign} {self.name}", *_told(reversed_sign, self, other, text))

    OPERATORS[sign] = sign, write_forward, reversed_sign, write_reverse
    return _operator(sign, write_forward), _operator(reversed_sign, write_reverse)


def _told(does: str, first: Scalar, other: Any, text: str) -> tuple[Any, Any, Any]:
    """What a step of a traced number beside something else is told by, which has become this text."""
    kind = type(other)
    if kind is not int and kind is not float:
        return None, None, None  # of a tensor, a bool and the like other things count than which object it is
    return does, first, FREE_NUMBERS[kind] if text[0] == "n" else other


def is_operand(value: Any) -> bool:
    """Numbers and tensors; as_text() refuses by name those of which an axis is not indexed."""
    return isinstance(value, (Scalar, bool, int, float, Partial)) or hasattr(value, "ndim")


_VALUE_IS_NEEDED = (
    "the value of an index or score is not known while the function is read: write torch.where(condition, a, b) for "
    "if and else, & | ~ for and, or, not, and give loops a plain number"
)


class Scalar:
    """A number of the function: an index, the score, or what was made of them."""

    #: What a tensor of no axes says of itself, for functions that ask.
    shape: tuple[int, ...] = ()
    ndim = 0
    device = None
    dtype = None

    def __init__(self, tracer: Tracer, name: str) -> None:
        self.tracer = tracer
        self.name = name

    __add__, __radd__ = _infix("+")
    __sub__, __rsub__ = _infix("-")
    __mul__, __rmul__ = _infix("*")
    __truediv__, __rtruediv__ = _infix("/")
    __floordiv__, __rfloordiv__ = _infix("//")
    __mod__, __rmod__ = _infix("%")
    __pow__, __rpow__ = _infix("**")
    __and__, __rand__ = _infix("&")
    __or__, __ror__ = _infix("|")
    __xor__, __rxor__ = _infix("^")
    __lshift__, __rlshift__ = _infix("<<")
    __rshift__, __rrshift__ = _infix(">>")
    __lt__ = _infix("<")[0]
    __le__ = _infix("<=")[0]
    __gt__ = _infix(">")[0]
    __ge__ = _infix(">=")[0]
    __eq__ = _infix("==")[0]
    __ne__ = _infix("!=")[0]
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Scalar:
        return self.tracer.value(f"-{self.name}")

    def __pos__(self) -> Scalar:
        return self

    def __invert__(self) -> Scalar:
        return self.tracer.value(f"~{self.name}")

    def __abs__(self) -> Scalar:
        return self.call("abs")

    def call(self, function: str, *others: Any) -> Scalar:
        operands = ", ".join((self.name, *(as_text(other, self.tracer) for other in others)))
        return self.tracer.value(f"{function}({operands})")

    def __bool__(self) -> bool:
        raise TraceError(_VALUE_IS_NEEDED)

    def __int__(self) -> int:
        raise TraceError(_VALUE_IS_NEEDED)

    def __float__(self) -> float:
        raise TraceError(_VALUE_IS_NEEDED)

    def __index__(self) -> int:
        raise TraceError(_VALUE_IS_NEEDED)

    def __iter__(self) -> Any:
        raise TraceError("a number cannot be iterated over")

    def __getitem__(self, index: Any) -> Scalar:
        if index is None or index is Ellipsis or index == ():
            return self
        raise TraceError("a number has no axis that could be indexed: the tensor has more indices than axes")

    # The methods of a tensor that score and mask functions use.

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by Python and by torch.compile, never by a user's function
            raise AttributeError(name)
        word = METHODS.get(name)
        if word is None:
            raise TraceError(f"{name} is not computed by attention variants; there are {', '.join(sorted(METHODS))}")
        return lambda *operands, **named: method(self, name, operands, named)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        from . import _trace_torch

        return _trace_torch.apply(function, arguments, named or {})


def _clamp(value: Scalar, least: Any = None, most: Any = None, **named: Any) -> Scalar:
    least, most = named.get("min", least), named.get("max", most)
    if least is not None:
        value = value.call("max", least)
    return value if most is None else value.call("min", most)


def _cast(value: Scalar, dtype: Any = None, **named: Any) -> Scalar:
    """x.to(dtype): a device or another tensor in its place changes nothing."""
    dtype = named.get("dtype", dtype)
    name = str(dtype).rsplit(".", 1)[-1]
    if name.startswith(("float", "bfloat", "double", "half")):
        return value.call("float")
    if name.startswith(("int", "uint", "long")):
        return value.call("int")
    return value.call("bool") if name == "bool" else value


def _constant(number: Any) -> Callable[..., Scalar]:
    def make(value: Scalar, *operands: Any, dtype: Any = None, **named: Any) -> Scalar:
        made = value.tracer.value(as_text(number))
        return made if dtype is None else _cast(made, dtype)

    return make


def _new_full(
    value: Scalar, size: Any, fill: Any = None, *, fill_value: Any = None, dtype: Any = None, **named: Any
) -> Any:
    return _constant(fill if fill_value is None else fill_value)(value, dtype=dtype)


def _full_like(value: Scalar, fill: Any = None, *, fill_value: Any = None, dtype: Any = None, **named: Any) -> Any:
    return _new_full(value, (), fill, fill_value=fill_value, dtype=dtype)


def _same(value: Scalar, *operands: Any, **named: Any) -> Scalar:
    return value


def _swapped(sign: str) -> Callable[..., Any]:
    return lambda a, b: operate(sign, a, b)


def operate(sign: str, a: Any, b: Any) -> Scalar:
    """a <sign> b, one of them a Scalar."""
    tracer: Tracer = a.tracer if isinstance(a, Scalar) else b.tracer
    return tracer.value(f"{tracer.operand(sign, a)} {sign} {tracer.operand(sign, b)}")


def _call(function: str) -> Callable[..., Any]:
    def run(value: Any, *others: Any) -> Scalar:
        scalar = next(each for each in (value, *others) if isinstance(each, Scalar))
        operands = ", ".join(as_text(each, scalar.tracer) for each in (value, *others))
        return scalar.tracer.value(f"{function}({operands})")

    return run


def _scaled(sign: str) -> Callable[..., Any]:
    """add and sub, with PyTorch's alpha."""

    def run(a: Any, b: Any, *, alpha: Any = 1) -> Scalar:
        return operate(sign, a, b if alpha == 1 else operate("*", b, alpha))

    return run


def _div(a: Any, b: Any, *, rounding_mode: Optional[str] = None) -> Scalar:
    if rounding_mode not in (None, "floor"):
        raise TraceError(f"div with rounding_mode={rounding_mode!r}: only None and 'floor' are computed")
    return operate("/" if rounding_mode is None else "//", a, b)


def _gelu(value: Scalar, approximate: str = "none") -> Scalar:
    if approximate == "none":
        return value.call("gelu")
    cube = operate("*", operate("*", value, value), value)
    inner = operate("*", operate("+", value, operate("*", cube, 0.044715)), math.sqrt(2 / math.pi))
    return operate("*", operate("*", value, 0.5), operate("+", inner.call("tanh"), 1))


def _where(condition: Any, a: Any, b: Any) -> Scalar:
    return _call("where")(condition, a, b)  # type: ignore[no-any-return]


def _not(value: Any) -> Scalar:
    return value.call("bool").__invert__()  # type: ignore[no-any-return]


def _logical(sign: str) -> Callable[..., Any]:
    return lambda a, b: operate(sign, _call("bool")(a), _call("bool")(b))


#: Functions and methods by their name in PyTorch. The first operand of most may also be a number.
METHODS: dict[str, Callable[..., Any]] = {
    "abs": _call("abs"), "absolute": _call("abs"), "neg": lambda a: -a, "negative": lambda a: -a,
    "add": _scaled("+"), "sub": _scaled("-"), "subtract": _scaled("-"), "rsub": lambda a, b: operate("-", b, a),
    "mul": _swapped("*"), "multiply": _swapped("*"), "div": _div, "divide": _div, "true_divide": _swapped("/"),
    "floor_divide": _swapped("//"), "remainder": _swapped("%"), "pow": _swapped("**"), "square": lambda a: a * a,
    "lt": _swapped("<"), "le": _swapped("<="), "gt": _swapped(">"), "ge": _swapped(">="), "eq": _swapped("=="),
    "ne": _swapped("!="), "less": _swapped("<"), "less_equal": _swapped("<="), "greater": _swapped(">"),
    "greater_equal": _swapped(">="), "not_equal": _swapped("!="),
    "bitwise_and": _swapped("&"), "bitwise_or": _swapped("|"), "bitwise_xor": _swapped("^"),
    "bitwise_not": lambda a: ~a, "bitwise_left_shift": _swapped("<<"), "bitwise_right_shift": _swapped(">>"),
    "logical_and": _logical("&"), "logical_or": _logical("|"), "logical_xor": _logical("^"), "logical_not": _not,
    "minimum": _call("min"), "maximum": _call("max"), "min": _call("min"), "max": _call("max"),
    "clamp": _clamp, "clip": _clamp, "clamp_min": lambda a, least: _clamp(a, least),
    "clamp_max": lambda a, most: _clamp(a, None, most), "where": _where,
    "exp": _call("exp"), "exp2": _call("exp2"), "log": _call("log"), "log2": _call("log2"), "tanh": _call("tanh"),
    "sigmoid": _call("sigmoid"), "erf": _call("erf"), "sqrt": _call("sqrt"), "rsqrt": _call("rsqrt"),
    "relu": lambda a, inplace=False: a.call("relu"), "gelu": _gelu, "floor": _call("floor"),
    "float": _call("float"), "half": _call("float"), "bfloat16": _call("float"), "double": _call("float"),
    "int": _call("int"), "long": _call("int"), "bool": _call("bool"), "to": _cast, "type": _cast,
    "new_ones": _constant(1), "new_zeros": _constant(0), "ones_like": _constant(1), "zeros_like": _constant(0),
    "new_full": _new_full, "full_like": _full_like, "new_tensor": lambda a, number, **named: _constant(number)(a),
    "unsqueeze": _same, "squeeze": _same, "clone": _same, "detach": _same, "contiguous": _same, "view": _same,
    "reshape": _same, "expand": _same, "any": _same, "all": _same,
}  # fmt: skip


def method(value: Any, name: str, operands: Any, named: dict[str, Any]) -> Any:
    try:
        return METHODS[name](value, *operands, **named)
    except TraceError:
        raise
    except TypeError as error:
        raise TraceError(f"{name}: {error}") from None


class Partial:
    """A tensor with indices for some of its axes; with the last one it is a number."""

    __slots__ = ("tracer", "tensor", "indices", "rank")

    def __init__(self, tracer: Tracer, tensor: Any, indices: tuple[Any, ...]) -> None:
        self.tracer, self.tensor, self.indices = tracer, tensor, indices
        self.rank: int = tensor.ndim

    @property
    def ndim(self) -> int:
        return self.rank - len(self.indices)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[len(self.indices) :])

    def __getitem__(self, index: Any) -> Any:
        return index_tensor(self.tracer, self.tensor, self.indices + (index if type(index) is tuple else (index,)))

    def elements(self) -> list[Scalar]:
        """The last axis as numbers."""
        if self.ndim != 1 or self.shape[0] > UNROLLED_MAX:
            raise TraceError(
                f"a comparison of {tuple(self.shape)} elements: only one axis of at most {UNROLLED_MAX} is unrolled"
            )
        return [self[i] for i in range(self.shape[0])]

    def compare(self, sign: str, other: Any) -> Vector:
        others = other.elements() if isinstance(other, Partial) else [other] * self.shape[0]
        return Vector([operate(sign, a, b) for a, b in zip(self.elements(), others)])

    def __eq__(self, other: Any) -> Any:
        return self.compare("==", other)

    def __ne__(self, other: Any) -> Any:
        return self.compare("!=", other)

    def __lt__(self, other: Any) -> Any:
        return self.compare("<", other)

    def __le__(self, other: Any) -> Any:
        return self.compare("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self.compare(">", other)

    def __ge__(self, other: Any) -> Any:
        return self.compare(">=", other)

    __hash__ = None  # type: ignore[assignment]

    def any(self, *axes: Any, **named: Any) -> Scalar:
        return Vector(self.elements()).any()

    def all(self, *axes: Any, **named: Any) -> Scalar:
        return Vector(self.elements()).all()

    def to(self, *dtype: Any, **named: Any) -> Partial:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(f"{name} of a tensor with {self.ndim} axes left: index each axis, or compare and any()")

    __torch_function__ = Scalar.__torch_function__


class Vector:
    """Conditions along a short axis, for any() and all()."""

    __slots__ = ("conditions",)

    def __init__(self, conditions: list[Scalar]) -> None:
        self.conditions = conditions

    def _joined(self, sign: str) -> Scalar:
        joined = self.conditions[0].call("bool")
        for condition in self.conditions[1:]:
            joined = operate(sign, joined, condition.call("bool"))
        return joined

    def any(self, *axes: Any, **named: Any) -> Scalar:
        return self._joined("|")

    def all(self, *axes: Any, **named: Any) -> Scalar:
        return self._joined("&")

    def _with(self, sign: str, other: Any) -> Vector:
        others = other.conditions if isinstance(other, Vector) else [other] * len(self.conditions)
        return Vector([operate(sign, a, b) for a, b in zip(self.conditions, others)])

    def __and__(self, other: Any) -> Vector:
        return self._with("&", other)

    def __or__(self, other: Any) -> Vector:
        return self._with("|", other)

    def __invert__(self) -> Vector:
        return Vector([~condition for condition in self.conditions])

    __torch_function__ = Scalar.__torch_function__


def index_tensor(tracer: Tracer, tensor: Any, indices: tuple[Any, ...]) -> Any:
    """tensor[indices], some of them Scalars."""
    rank = tensor.ndim
    if len(indices) == rank <= 4:  # the common case first: a number for each axis
        for index in indices:
            if not isinstance(index, Scalar):
                break
        else:
            number = tracer.tensor_number(tensor)
            names = ", ".join([index.name for index in indices])
            return tracer.value(f"tensor{number}[{names}]", INDEX, number, indices)
    indices = tuple(index for index in indices if index is not Ellipsis)
    while indices and isinstance(indices[-1], slice) and indices[-1] == slice(None):
        indices = indices[:-1]
    for index in indices:
        if not is_operand(index) or getattr(index, "ndim", 0) != 0:
            raise TraceError(f"an index is a number, and here is a {type(index).__name__}: index each axis by one")
        if type(index) is int and index < 0:
            raise TraceError("an index counts from 0 here: write the size minus something instead of a negative one")
    if len(indices) > rank:
        raise TraceError(f"a tensor of {rank} axes has {len(indices)} indices")
    if len(indices) < rank:
        return Partial(tracer, tensor, indices)
    if rank > 4:
        raise TraceError(f"a tensor of {rank} axes: attention variants read tensors of at most 4")
    return tracer.value(f"{tracer.tensor_name(tensor)}[{', '.join(as_text(index, tracer) for index in indices)}]")


def trace(
    tracer: Tracer, functions: tuple[tuple[Optional[Callable[..., Any]], tuple[str, ...]], ...], watched: bool = False
) -> list[Any]:
    """The texts of functions, each with the names of its inputs; None for one that is not given.

    watched: note in tracer.is_pure whether an nn.Module is called.
    """
    mode = tracer.mode
    if mode is None:
        if "torch" not in sys.modules:
            return _texts(tracer, functions)
        mode = tracer.mode = tracer.new_mode()
    with mode:
        if not watched:
            return _texts(tracer, functions)
        with mode.watch():
            return _texts(tracer, functions)


def _texts(tracer: Tracer, functions: Any) -> list[Any]:
    texts: list[Any] = []
    for function, inputs in functions:
        if function is None:
            texts.append(None)
        else:
            scalars = tracer.inputs.get(inputs)
            if scalars is None:
                scalars = tracer.inputs[inputs] = [tracer.number(name) for name in inputs]
            result = function(*scalars)
            if result is None:
                raise TraceError("the function returns nothing: a return is missing", function)
            texts.append(tracer.text(result))
    return texts


SCORE_INPUTS = ("score", "b", "h", "q", "k")
MASK_INPUTS = ("b", "h", "q", "k")

Number = Union[bool, int, float]
