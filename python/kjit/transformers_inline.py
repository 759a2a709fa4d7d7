"""Models of Hugging Face transformers whose attention is written out in their own forward(): T5 and its relatives.

Releases of transformers before 5.15 do not let the attention of these models be replaced by its name
(transformers_attention.py). Their forward() multiplies queries by keys with torch.matmul, adds one bias, which is the
position bias and the mask, and multiplies softmax of that by the values. While such a forward() runs, the first product
is an object that notes what is done to it; the second one computes attention from what was noted. Whatever else is
done to the object is done to the tensor that it stands for, by PyTorch. So everything around attention, such as
caches, stays the model's own in every release.

kjit.enable(transformers=True) switches this on for the process, kjit.disable() off.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
from collections import Counter
from typing import Any, Callable, Optional

import torch

from .attention import attention
from .errors import Error

#: The classes whose forward() has this form, by the module of transformers that has them. Not computed: LongT5's
#: attention by blocks (LongT5LocalAttention, LongT5TransientGlobalAttention), and Pix2Struct.
CLASSES = {
    "t5": "T5Attention",
    "mt5": "MT5Attention",
    "umt5": "UMT5Attention",
    "longt5": "LongT5Attention",
    "switch_transformers": "SwitchTransformersAttention",
    "udop": "UdopAttention",
    "pop2piano": "Pop2PianoAttention",
}

#: What a module has by this name when its attention can be replaced by an interface.
_INTERFACE = "ALL_ATTENTION_FUNCTIONS"

_matmul = torch.matmul
_now = threading.local()


class Scores:
    """Scores of queries and keys that nobody has computed yet, or with `is_softmax` the weights made of them.

    query: (batch, heads, seq_q, columns), key: (batch, heads, seq_kv, columns); bias: what was added, broadcast to
    (batch, heads, seq_q, seq_kv), None: nothing. Immutable, so that the same scores may be used twice.
    """

    __slots__ = ("query", "key", "bias", "is_softmax", "_known")

    def __init__(self, query: torch.Tensor, key: torch.Tensor, bias: Any = None, is_softmax: bool = False) -> None:
        self.query, self.key, self.bias, self.is_softmax = query, key, bias, is_softmax
        self._known: Optional[torch.Tensor] = None

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.query.shape[:3], self.key.shape[2]))

    @property
    def dtype(self) -> torch.dtype:
        return self.query.dtype

    @property
    def device(self) -> torch.device:
        return self.query.device

    def tensor(self) -> torch.Tensor:
        """The scores or weights themselves, because the model does with them what attention does not."""
        counts = getattr(_now, "counts", None)
        if self._known is None and counts is not None:
            counts["scores that the model reads itself"] += 1
        return self._compute()

    def _compute(self) -> torch.Tensor:
        """The scores or weights, computed by PyTorch as the model does it, once."""
        if self._known is None:
            found = _matmul(self.query, self.key.transpose(2, 3))
            found = found if self.bias is None else found + self.bias
            if self.is_softmax:
                found = torch.softmax(found.float(), -1).to(self.dtype)
            self._known = found
        return self._known

    def times(self, value: torch.Tensor) -> torch.Tensor:
        """The weights times the values, (batch, heads, seq_q, columns): attention."""
        try:
            views = (each.transpose(1, 2) for each in (self.query, self.key, value))
            result: torch.Tensor = attention(*views, scale=1.0, bias=self.bias).transpose(1, 2)
        except (Error, NotImplementedError) as error:
            _now.counts[str(error)] += 1
            return _matmul(self._compute(), value)
        _now.counts["transformers"] += 1
        return result

    def __add__(self, bias: Any) -> Any:
        if self.is_softmax or self.bias is not None or not isinstance(bias, torch.Tensor) or bias.ndim != 4:
            return self.tensor() + bias
        return Scores(self.query, self.key, bias)

    def float(self) -> Scores:
        """Scores are summed in fp32 anyway."""
        return self

    def type_as(self, other: Any) -> Any:
        return self if other.dtype is self.dtype else self.tensor().type_as(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(cls, function: Any, kinds: Any, given: Any = (), named: Any = None) -> Any:
        """What PyTorch's functions do with it: softmax over the keys is noted, the rest is done to the tensor."""
        named = named or {}
        scores = given[0]
        if type(scores) is Scores:
            is_last = named.get("dim", given[1] if len(given) > 1 else None) in (-1, 3)
            if function is torch.nn.functional.softmax and is_last and not scores.is_softmax:
                return Scores(scores.query, scores.key, scores.bias, is_softmax=True)
            if function is torch.nn.functional.dropout and not (named.get("training", True) and named.get("p", 0.5)):
                return scores
        return function(*map(_plain, given), **{name: _plain(value) for name, value in named.items()})


def _plain_operator(name: str) -> Callable[..., Any]:
    def operate(self: Scores, *others: Any) -> Any:
        return getattr(self.tensor(), name)(*map(_plain, others))

    return operate


for _name in ("sub", "mul", "truediv", "radd", "rsub", "rmul", "matmul", "getitem", "neg"):
    setattr(Scores, f"__{_name}__", _plain_operator(f"__{_name}__"))


def _plain(value: Any) -> Any:
    return value.tensor() if type(value) is Scores else value


def _is_transposed(key: torch.Tensor) -> bool:
    """Are these keys, (batch, heads, columns, seq_kv), whose columns lie beside each other?"""
    return key.ndim == 4 and key.stride(2) == 1 and (key.stride(3) != 1 or key.shape[3] == 1)


def _noting_matmul(one: Any, other: Any, **named: Any) -> Any:
    """torch.matmul, which notes the first product of an attention and computes attention at the second."""
    if type(one) is Scores:
        return one.times(other) if one.is_softmax and not named else _matmul(one.tensor(), _plain(other), **named)
    if getattr(_now, "counts", None) is None or named or one.ndim != 4 or not _is_transposed(other):
        return _matmul(one, other, **named)
    return Scores(one, other.transpose(2, 3))


def _copy_of_torch() -> types.ModuleType:
    """PyTorch's module as a model sees it, with another matmul."""
    copy = types.ModuleType("torch")
    copy.__dict__.update(torch.__dict__)
    copy.__dict__["matmul"] = _noting_matmul
    return copy


def _is_on_gpu(tensor: Any) -> bool:
    return bool(tensor.is_cuda)


def _is_off(option: Any) -> bool:
    return option is None or option is False


def _reason_against(module: Any, hidden: Any, named: dict[str, Any]) -> str:
    """Why a forward() is for PyTorch alone; "" if it is not."""
    if module.training and module.dropout:
        return "dropout"
    if not _is_on_gpu(hidden):
        return "tensors that are not on a GPU"
    unusual = ("output_attentions", "layer_head_mask")
    return next((name for name in unusual if not _is_off(named.get(name))), "")


def _noting(forward: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def noting(self: Any, hidden_states: Any, *given: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return forward(self, hidden_states, *given, **named)
        reason = _reason_against(self, hidden_states, named)
        if reason:
            counts[reason] += 1
            return forward(self, hidden_states, *given, **named)
        _now.counts = counts
        try:
            found = forward(self, hidden_states, *given, **named)
        finally:
            _now.counts = None
        return tuple(map(_plain, found)) if isinstance(found, tuple) else found

    return noting


_replaced: list[tuple[Any, str, Any]] = []


def _replace(owner: Any, name: str, value: Any) -> None:
    _replaced.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def _modules() -> list[tuple[types.ModuleType, str]]:
    """Those that this release of transformers has, with the name of the class."""
    found = []
    for name, of_class in CLASSES.items():
        try:
            module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        except ImportError:
            continue
        if not hasattr(module, _INTERFACE) and hasattr(module, of_class):
            found.append((module, of_class))
    return found


def enable(counts: Counter[str]) -> None:
    """Compute the attention of these models by kjit from now on, in every thread; `counts` says how often."""
    if _replaced:
        return
    copy = _copy_of_torch()
    for module, name in _modules():
        kind = getattr(module, name)
        _replace(kind, "forward", _noting(kind.forward, counts))
        _replace(module, "torch", copy)


def disable() -> None:
    """Give the models their own forward() back."""
    while _replaced:
        setattr(*_replaced.pop())


@functools.lru_cache(maxsize=256)
def _has_own_attention(module: types.ModuleType) -> bool:
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
    return not hasattr(module, _INTERFACE) and any(
        "Attention" in kind.__name__ and issubclass(kind, torch.nn.Module) for kind in kinds
    )


def is_inline(config: Any) -> bool:
    """Is this the config of a model whose module is loaded, has attention of its own, and no interface for it?"""
    kind = getattr(config, "model_type", "")
    module = sys.modules.get(f"transformers.models.{kind}.modeling_{kind}")
    return module is not None and _has_own_attention(module)
