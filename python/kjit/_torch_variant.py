"""Attention variants on PyTorch tensors: called directly where it can be, as an operator where PyTorch has to see it.

An operator takes no functions, so it is given the text that they were read to, with the numbers and tensors that they
capture; under torch.compile they are read while the program is traced.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, Optional

import torch

from . import _abi, _backward, _kept, _prepared, _torch
from ._library import assign
from .runtime import Config
from .variant import NO_MEMBERS, Bound, Members, Reading, bound_of, read, tensor_view

_Tensor = torch.Tensor
_fp32 = torch.float32
_launch, _is_compiling, _is_grad_enabled = _prepared.launch, _torch._is_compiling, _torch._is_grad_enabled
_int32_pointer = ctypes.POINTER(ctypes.c_int32)


class Lists:
    """The block lists of a call: those of FlexAttention's BlockMask, where they lie.

    mask: the object with which what is found of them is kept (_kept.py); None: nothing is kept.
    """

    __slots__ = ("counts", "indices", "full_counts", "full_indices", "rows", "keys", "mask")

    def __init__(
        self, counts: Any, indices: Any, full_counts: Any, full_indices: Any, rows: int, keys: int, mask: Any = None
    ) -> None:
        self.counts, self.indices, self.full_counts, self.full_indices = counts, indices, full_counts, full_indices
        self.rows, self.keys, self.mask = rows, keys, mask

    @classmethod
    def of(cls, blocks: Any, keeps: bool = True) -> Lists:
        if isinstance(blocks, Lists):
            return blocks
        lists = blocks.kv_num_blocks, blocks.kv_indices, blocks.full_kv_num_blocks, blocks.full_kv_indices
        return cls(*lists, *blocks.BLOCK_SIZE, blocks if keeps else None)

    def tensors(self) -> tuple[Any, Any, Any, Any]:
        return self.counts, self.indices, self.full_counts, self.full_indices


class _Prepared:
    """What a variant adds to a prepared call for tensors of one signature, on one thread."""

    def __init__(
        self, args: Any, bound: Optional[Bound], members: Members, tensors: tuple[Any, ...], kept: Optional[_Tensor]
    ) -> None:
        #: Of each tensor, the view in the library's arguments that a run writes its address to.
        self.views: list[Any] = [None if tensor is None else tensor_view(tensor) for tensor in tensors]
        views = self.views
        self.scalars, self.variant, numbers, count = None, None, None, 0
        if bound is not None:  # not its tensors: they change
            count, self.variant = len(bound.tensors), bound.variant
            args.variant = bound.variant._handle
            self.scalars = (ctypes.c_int32 * max(1, len(bound.values)))()
            args.scalar_values = ctypes.cast(self.scalars, _int32_pointer)
            if bound.values:
                numbers = _prepared.Numbers(self.scalars, bound.variant._packer)
            own = (_abi.kjit_tensor * max(1, count))(*views[:count])
            args.variant_tensors = ctypes.cast(own, ctypes.POINTER(_abi.kjit_tensor))
            views[:count] = [own[i] for i in range(count)]
        self._set_members(args, members, views[count:])
        if members.blocks is not None:
            self._set_lists(args, members.blocks, views, count + 3)
        places = tuple([0 if view is None else ctypes.addressof(view) for view in views])
        if kept is not None:
            places += (ctypes.addressof(args) + type(args).kept.offset,)
        self.more = _torch.More(places, numbers, self)

    def _set_members(self, args: Any, members: Members, views: list[Any]) -> None:
        for name, view in zip(("sinks", "alibi_slopes", "bias"), views):
            if view is not None:
                setattr(args, name, ctypes.pointer(view))
        if members.window is not None:
            args.flags |= _abi.KJIT_ATTENTION_WINDOW
            left, right = members.window
            assign(args, window_left=left, window_right=right)
        assign(args, softcap=members.softcap, attention_chunk=members.attention_chunk)

    def _set_lists(self, args: Any, blocks: Lists, views: list[Any], at: int) -> None:
        """The struct holds copies of the views from `at` on, so it is those that a run writes to."""
        lists = self.lists = _abi.kjit_block_lists()
        for i, name in enumerate(("counts", "indices", "full_counts", "full_indices"), at):
            if views[i] is not None:
                setattr(lists, name, views[i])
                views[i] = getattr(lists, name)
        lists.query_rows, lists.key_rows = blocks.rows, blocks.keys
        args.blocks = ctypes.pointer(lists)


def _first(
    calls: dict[Any, Any], head: Any, given: tuple[Any, ...], bound: Optional[Bound], members: Members,
    kept: Optional[_Tensor],
) -> Any:  # fmt: skip
    """A call that launch() left. `kept` is the last of `given`, or None."""
    asked, tensors, out = _torch.Asked(*head[0]), given[:3], given[3]
    signature, values = _prepared.signature(head, given), () if bound is None else bound.values
    if signature in calls:
        return _prepared.launch_slowly(calls[signature], given, values)
    cast = _torch._autocast(tensors)
    if cast is not tensors:
        return direct(cast, asked, out, bound, members)
    if _torch.is_ragged(tensors[0], tensors[2]):
        return _torch.padded(lambda wide, asked, out: direct(wide, asked, out, bound, members), tensors, asked, out)
    made, lse, computes = _torch.first_outputs(tensors, asked, out)
    if not computes:
        return made if lse is None else (made, lse)
    call = _torch._Call((*tensors, made, lse), asked)
    more = _Prepared(call.args, bound, members, given[4:] if kept is None else given[4:-1], kept).more
    prepared = call.prepare(given, made, lse, more)
    del made, lse  # the call makes its own
    _torch.keep(calls, signature, tensors, prepared)
    return _prepared.launch_slowly(prepared, given, values)


def direct(
    tensors: tuple[Any, ...], asked: tuple[Any, ...], out: Optional[torch.Tensor], bound: Optional[tuple[Any, ...]],
    members: Optional[tuple[Any, ...]],
) -> Any:  # fmt: skip
    """Launch on these tensors, past PyTorch's dispatcher.

    asked, bound, members: an _torch.Asked, a Bound and a Members, or tuples like them, which are made faster.
    """
    try:
        calls = _torch._calls.variants
    except AttributeError:
        calls = _torch._calls.variants = {}
    variant, values, others = bound or (None, (), ())
    numbers: Optional[tuple[Any, ...]] = None
    kept = None
    if members is not None:
        blocks, sinks, window, softcap, slopes, bias, chunk = members
        if blocks is None:
            others, numbers = (*others, sinks, slopes, bias), (window, softcap, chunk)
        else:
            lists, numbers = blocks.tensors(), (window, softcap, chunk, blocks.rows, blocks.keys)
            if blocks.mask is not None:
                kept = _kept_state(tensors[0], blocks.mask, (*others, *lists))
            others = (*others, sinks, slopes, bias, *lists)
    if variant is not None and variant._keeps and (members is None or members[0] is None):
        kept = _kept_state(tensors[0], variant, (), (values, tensors[0].shape, tensors[1].shape))
    if kept is not None:
        others = (*others, kept)
    head, given = (asked, variant, numbers), (*tensors, out, *others)
    result = _launch(calls, head, given, values)
    if result is not None:
        return result
    named = NO_MEMBERS if members is None else Members(*members)
    return _first(calls, head, given, None if bound is None else Bound(*bound), named, kept)


def _kept_state(q: _Tensor, mask: Any, read: tuple[Any, ...], call: tuple[Any, ...] = ()) -> Optional[_Tensor]:
    device = q.get_device()
    place = device, _torch._raw_stream(device) if device >= 0 else 0, call
    return _kept.state_of(mask, q.device, place, read)


# The operator. Its second result is empty where it is not wanted.

torch.library.define(
    "kjit::attention_variant",
    "(Tensor q, Tensor k, Tensor v, float? scale, bool causal, str layout, str config, bool return_lse, "
    "str? score, str? mask, str[] int_names, SymInt[] ints, str[] float_names, float[] floats, str[] tensor_names, "
    "Tensor[] tensors, Tensor? sinks, Tensor? alibi_slopes, Tensor? bias, Tensor[] blocks, SymInt[] sizes, "
    "float softcap) -> (Tensor, Tensor)",
    tags=torch.Tag.needs_fixed_stride_order,
)

# `sizes` holds the window, 1 and its two bounds or three zeros, the chunk, and a list block's rows and keys.


def _sizes(members: Members) -> list[int]:
    window = (0, 0, 0) if members.window is None else (1, *members.window)
    blocks = (0, 0) if members.blocks is None else (members.blocks.rows, members.blocks.keys)
    return [*window, members.attention_chunk, *blocks]


def _members_of(sinks: Any, alibi_slopes: Any, bias: Any, blocks: Any, sizes: Any, softcap: float) -> Members:
    window = (int(sizes[1]), int(sizes[2])) if sizes[0] else None
    lists = None
    if blocks:
        full, full_indices = (blocks[2], blocks[3]) if len(blocks) > 2 else (None, None)
        lists = Lists(blocks[0], blocks[1], full, full_indices, int(sizes[4]), int(sizes[5]), blocks[1])
    return Members(lists, sinks, window, softcap, alibi_slopes, bias, int(sizes[3]))


@torch.library.impl("kjit::attention_variant", "default")
def _attention_variant(
    q: Any, k: Any, v: Any, scale: Any, causal: bool, layout: str, config: str, return_lse: bool,
    score: Any, mask: Any, int_names: Any, ints: Any, float_names: Any, floats: Any, tensor_names: Any,
    tensors: Any, sinks: Any, alibi_slopes: Any, bias: Any, blocks: Any, sizes: Any, softcap: float,
) -> Any:  # fmt: skip
    members = None
    if sinks is not None or alibi_slopes is not None or bias is not None or softcap or any(sizes):
        members = _members_of(sinks, alibi_slopes, bias, blocks, sizes, softcap)
    bound = None
    if score is not None or mask is not None:
        names, values = (*int_names, *float_names), (*map(int, ints), *floats)
        bound = Reading(score, mask, names, values, tuple(tensor_names), tuple(tensors)).bound()
    result = direct((q, k, v), (scale, causal, layout, return_lse, config or None), None, bound, members)
    return result if return_lse else (result, q.new_empty((0,), dtype=torch.float32))


def _attention_variant_fake(
    q: Any, k: Any, v: Any, scale: Any, causal: bool, layout: str, config: str, return_lse: bool, *rest: Any
) -> Any:
    lse = _torch._empty_lse(q, layout) if return_lse else q.new_empty((0,), dtype=torch.float32)
    return _torch._empty_out(q, v), lse


torch.library.register_fake("kjit::attention_variant", _attention_variant_fake)


# What autograd keeps of it, and the operator of its gradients: those of q, k, v, of the sinks, and in a list those of
# what the score function reads: alibi_slopes, bias, and the tensors of the texts. Of what is not wanted they are empty.

torch.library.define(
    "kjit::attention_variant_backward",
    "(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, float? scale, bool causal, "
    "str layout, str? score, str? mask, str[] int_names, SymInt[] ints, str[] float_names, float[] floats, "
    "str[] tensor_names, Tensor[] tensors, Tensor? sinks, Tensor? alibi_slopes, Tensor? bias, SymInt[] sizes, "
    "float softcap, bool[4] wanted, bool[] reads) -> (Tensor, Tensor, Tensor, Tensor, Tensor[])",
    tags=torch.Tag.needs_fixed_stride_order,
)


def _fill(args: Any, bound: Optional[Bound], members: Members) -> list[Any]:
    """Put a variant into arguments that are used once. Returns what must stay alive during the call."""
    kept: list[Any] = []
    if bound is not None:
        scalars = bound.scalars()
        views = (_abi.kjit_tensor * max(1, len(bound.tensors)))(*map(tensor_view, bound.tensors))
        args.variant = bound.variant._handle
        args.scalar_values = ctypes.cast(scalars, _int32_pointer)
        args.variant_tensors = ctypes.cast(views, ctypes.POINTER(_abi.kjit_tensor))
        kept += [scalars, views]
    for name in ("sinks", "alibi_slopes", "bias"):
        tensor = getattr(members, name)
        if tensor is not None:
            kept.append(tensor_view(tensor))
            setattr(args, name, ctypes.pointer(kept[-1]))
    if members.window is not None:
        args.flags |= _abi.KJIT_ATTENTION_WINDOW
        args.window_left, args.window_right = members.window
    args.softcap, args.attention_chunk = members.softcap, members.attention_chunk
    return kept


def _add_gradients(args: Any, gradients: list[torch.Tensor], reads: list[bool], has_variant: bool) -> list[Any]:
    """Where the kernels add the gradients of what is read, in the order of `reads`."""
    views = [tensor_view(gradient) if want else _abi.kjit_tensor() for gradient, want in zip(gradients, reads)]
    for name, view, want in zip(("dalibi_slopes", "dbias"), views, reads):
        if want:
            setattr(args, name, ctypes.pointer(view))
    if has_variant and any(reads[2:]):
        array = (_abi.kjit_tensor * max(1, len(views) - 2))(*views[2:])
        args.variant_gradients = ctypes.cast(array, ctypes.POINTER(_abi.kjit_tensor))
        views.append(array)
    return views


def _sink_gradient(dout: Any, dlse: Any, out: Any, lse: Any, sinks: Any, layout: str) -> torch.Tensor:
    """Of each head: the sum over its rows of -exp(sink - lse) · delta, delta being rowsum(dO · O) - dLSE."""
    delta = (dout.float() * out.float()).sum(-1)
    delta = delta if layout == "bhsd" else delta.transpose(1, 2)
    delta = delta if dlse is None else delta - dlse
    return -(torch.exp(sinks.view(1, -1, 1) - lse) * delta).sum((0, 2))  # type: ignore[no-any-return]


@torch.library.impl("kjit::attention_variant_backward", "default")
def _attention_variant_backward(
    dout: Any, dlse: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, scale: Any, causal: bool, layout: str,
    score: Any, mask: Any, int_names: Any, ints: Any, float_names: Any, floats: Any, tensor_names: Any, tensors: Any,
    sinks: Any, alibi_slopes: Any, bias: Any, sizes: Any, softcap: float, wanted: Any, reads: Any,
) -> Any:  # fmt: skip
    if any(reads) and torch.are_deterministic_algorithms_enabled():
        raise NotImplementedError(
            "the gradients of what a score function reads (alibi_slopes, bias, captured tensors) are summed in any "
            "order: torch.use_deterministic_algorithms() does not allow it"
        )
    members = _members_of(sinks, alibi_slopes, bias, (), sizes, softcap)
    bound = None
    if score is not None or mask is not None:
        names, values = (*int_names, *float_names), (*map(int, ints), *floats)
        bound = Reading(score, mask, names, values, tuple(tensor_names), tuple(tensors)).bound()
    read = [alibi_slopes, bias, *tensors]
    sums = [
        torch.zeros(t.shape if want else (0,), dtype=torch.float32, device=q.device) for t, want in zip(read, reads)
    ]
    # Variants' kernels sum the gradients of q, k and v in one order anyway, and the flag keeps it so.
    gradients = _backward.backward(
        dout, dlse, q, k, v, out, lse, scale, causal, layout, list(wanted[:3]), not any(reads),
        lambda args: [*_fill(args, bound, members), *_add_gradients(args, sums, reads, bound is not None)], any(reads),
    )  # fmt: skip
    of_sinks = q.new_empty((0,), dtype=torch.float32)
    if wanted[3]:
        of_sinks = _sink_gradient(dout, dlse, out, lse, sinks, layout)
    return (*gradients, of_sinks, [each.to(t.dtype) if want else each for each, t, want in zip(sums, read, reads)])


def _attention_variant_backward_fake(dout: Any, dlse: Any, q: Any, k: Any, v: Any, *rest: Any) -> Any:
    tensors, sinks, slopes, bias = rest[12:16]
    wanted, reads = rest[18:]
    nothing = q.new_empty((0,), dtype=torch.float32)
    of_sinks = torch.empty_like(sinks) if wanted[3] else nothing
    of_read = [t.new_empty(t.shape) if want else torch.empty_like(nothing)
               for t, want in zip((slopes, bias, *tensors), reads)]  # fmt: skip
    return (*(_backward._empty(tensor, want) for tensor, want in zip((q, k, v), wanted)), of_sinks, of_read)


torch.library.register_fake("kjit::attention_variant_backward", _attention_variant_backward_fake)


def _no_gradient_of(value: Any) -> Any:
    """What autograd takes for an input without a gradient: a list of tensors has a list of nothing."""
    is_list = isinstance(value, list) and all(isinstance(each, torch.Tensor) for each in value)
    return [None] * len(value) if is_list else None


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, scale, causal, layout, _, ctx.has_lse, score, mask, int_names, ints, float_names, floats, names = inputs[
        :15
    ]
    tensors, sinks, slopes, bias, _, sizes, softcap = inputs[15:]
    ctx.said = scale, causal, layout, score, mask, int_names, ints, float_names, floats, names
    ctx.numbers, ctx.nothing = (sizes, softcap), [_no_gradient_of(value) for value in inputs]
    ctx.save_for_backward(q, k, v, *output, sinks, slopes, bias, *tensors)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dout: Any, dlse: Any) -> Any:
    q, k, v, out, lse, sinks, slopes, bias, *tensors = ctx.saved_tensors
    needed = ctx.needs_input_grad
    wanted = [*needed[:3], sinks is not None and needed[16]]
    of_tensors = list(needed[15]) if isinstance(needed[15], (list, tuple)) else [bool(needed[15])] * len(tensors)
    reads = [slopes is not None and needed[17], bias is not None and needed[18], *of_tensors]
    found = list(ctx.nothing)
    if (dout is None and dlse is None) or not any((*wanted, *reads)):
        return tuple(found)
    dout = torch.zeros_like(out) if dout is None else dout
    *gradients, read = torch.ops.kjit.attention_variant_backward(
        dout, dlse, q, k, v, out, lse, *ctx.said, tensors, sinks, slopes, bias, *ctx.numbers, wanted, reads
    )
    read = [gradient if want else None for gradient, want in zip(read, reads)]
    for place, gradient, want in zip((0, 1, 2, 16), gradients, wanted):
        found[place] = gradient if want else None
    found[17], found[18], found[15] = read[0], read[1], read[2:]
    return tuple(found)


torch.library.register_autograd("kjit::attention_variant", _gradients, setup_context=_setup_context)
torch.library.register_autograd("kjit::attention_variant_backward", _backward._no_second_derivative)


def _refuse_lists(members: Members) -> None:
    if members.blocks is not None:
        raise NotImplementedError("lists of blocks have no gradients: give the mask alone")


def _as_operator(
    tensors: Any, scale: Any, causal: bool, layout: str, out: Any, return_lse: bool, config: Any, said: Any,
    members: Members, wants_gradient: bool,
) -> Any:  # fmt: skip
    reading = Reading(None, None, (), (), (), ()) if said is None else read(*said)
    if wants_gradient:
        _refuse_lists(members)
        if out is not None:
            raise ValueError("out is given while gradients are wanted: they need an output that nobody writes over")
    ints = [(name, value) for name, value in zip(reading.names, reading.values) if not isinstance(value, float)]
    floats = [(name, value) for name, value in zip(reading.names, reading.values) if isinstance(value, float)]
    blocks = [] if members.blocks is None else [tensor for tensor in members.blocks.tensors() if tensor is not None]
    result, lse = torch.ops.kjit.attention_variant(
        *tensors, scale, causal, layout, _torch.config_text(config), return_lse or wants_gradient,
        None if reading.score is None else _torch.one_line(reading.score),
        None if reading.mask is None else _torch.one_line(reading.mask),
        [_torch.one_line(name) for name, _ in ints], [int(value) for _, value in ints],
        [_torch.one_line(name) for name, _ in floats], [value for _, value in floats],
        [_torch.one_line(name) for name in reading.tensor_names], list(reading.tensors),
        members.sinks, members.alibi_slopes, members.bias, blocks, _sizes(members), float(members.softcap),
    )  # fmt: skip
    if out is not None:
        result = out.copy_(result)
    return (result, lse) if return_lse else result


def _requires_gradient(said: Optional[tuple[Any, ...]], members: Optional[tuple[Any, ...]]) -> bool:
    """Does a tensor of a text, or a member, require one? Those that functions capture are asked when they are read."""
    if members is not None:
        _, sinks, _, _, slopes, bias, _ = members
        for tensor in (sinks, slopes, bias):
            if tensor is not None and tensor.requires_grad:
                return True
    if said is None or not said[5]:
        return False
    return _one_requires_gradient(said[5].values())


def _one_requires_gradient(tensors: Iterable[Any]) -> bool:
    for tensor in tensors:  # a loop is half of what any() takes
        if getattr(tensor, "requires_grad", False):  # what is no tensor is named when the text is read
            return True
    return False


def attention_variant(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: Optional[float],
    causal: bool,
    layout: str,
    out: Optional[torch.Tensor],
    return_lse: bool,
    config: Optional[Config],
    said: Optional[tuple[Any, ...]],
    members: Optional[tuple[Any, ...]],
) -> Any:
    """kjit.attention() with a variant. `said` is what bind() takes, None where plain members say everything; `members`
    a tuple like Members, None where there are none."""
    if members is not None and members[0] is not None:
        members = (Lists.of(members[0]), *members[1:])
    captured_wants = False
    if type(q) is _Tensor and type(k) is _Tensor and type(v) is _Tensor and not _is_compiling():
        can_have_gradient = _is_grad_enabled()
        if not can_have_gradient or not (
            q.requires_grad or k.requires_grad or v.requires_grad or _requires_gradient(said, members)
        ):
            bound = None if said is None else bound_of(*said)
            captured_wants = can_have_gradient and bound is not None and _one_requires_gradient(bound[2])
            if not captured_wants:
                return direct((q, k, v), (scale, causal, layout, return_lse, config), out, bound, members)
    q, k, v = _torch._autocast((q, k, v))
    wants_gradient = captured_wants or _is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or _requires_gradient(said, members)
    )
    named = NO_MEMBERS if members is None else Members(*members)
    return _as_operator((q, k, v), scale, causal, layout, out, return_lse, config, said, named, wants_gradient)
