"""What a call becomes before the library sees it: arguments, DLPack capsules, and what is not computed. No GPU."""

import ctypes
import inspect
import sys
import unittest

import harness
import kjit
from arrays import BFLOAT, Array
from kjit import _abi, _arguments, _dlpack, flash_attn_interface

FP16, HOST = _abi.KJIT_FP16, _abi.KJIT_DEVICE_HOST


def view(*shape, strides=None, device=0):
    return _arguments.View(4096, FP16, device, shape, strides or _dlpack._compact_strides(list(shape)))


def build(q, k, v, o, lse=None, scale=None, causal=False, layout="bshd"):
    return _arguments.build(q, k, v, o, lse, scale=scale, causal=causal, layout=layout)


class Arguments(unittest.TestCase):
    def test_bshd__is_taken_as_it_is(self):
        args = build(*[view(2, 5, 3, 64)] * 4, scale=0.25)
        self.assertEqual(list(args.q.shape), [2, 5, 3, 64])
        self.assertEqual(list(args.q.stride), [960, 192, 64, 1])
        self.assertEqual((args.q.rank, args.q.dtype, args.scale), (4, FP16, 0.25))
        self.assertEqual(args.struct_size, ctypes.sizeof(args))
        self.assertIsNone(args.lse.data)

    def test_bhsd__becomes_the_librarys_order(self):
        args = build(*[view(2, 3, 5, 64)] * 4, layout="bhsd")
        self.assertEqual(list(args.q.shape), [2, 5, 3, 64])
        self.assertEqual(list(args.q.stride), [960, 64, 320, 1])

    def test_lse__is_the_same_in_both_layouts(self):
        args = build(*[view(2, 3, 5, 64)] * 4, lse=view(2, 3, 5), layout="bhsd")
        self.assertEqual((args.lse.rank, list(args.lse.shape)[:3]), (3, [2, 3, 5]))

    def test_rank__is_left_to_the_library(self):
        self.assertEqual(build(view(5, 64), *[view(1, 5, 3, 64)] * 3).q.rank, 2)
        self.assertEqual(build(view(1, 2, 3, 5, 64), *[view(1, 5, 3, 64)] * 3).q.rank, 5)

    def test_layout__that_is_none_is_named(self):
        with self.assertRaisesRegex(ValueError, "layout is 'sbhd': must be one of bshd, bhsd"):
            build(*[view(1, 1, 1, 64)] * 4, layout="sbhd")

    def test_scale__of_zero_is_not_the_default(self):
        with self.assertRaisesRegex(ValueError, "scale is 0"):
            build(*[view(1, 1, 1, 64)] * 4, scale=0.0)

    def test_causal__is_a_flag(self):
        self.assertEqual(build(*[view(1, 8, 1, 64)] * 4, causal=True).flags, _abi.KJIT_ATTENTION_CAUSAL)
        self.assertEqual(build(*[view(1, 8, 1, 64)] * 4).flags, 0)


class FlashAttention(unittest.TestCase):
    def test_arguments__that_are_not_computed_are_named(self):
        with self.assertRaisesRegex(NotImplementedError, "^dropout_p="):
            kjit.flash_attn_func(None, None, None, dropout_p=0.1)
        refused = {"window_size": (128, 0), "softcap": 30.0, "alibi_slopes": [0.5]}
        for name, value in refused.items():  # of what is no tensor of PyTorch
            with self.assertRaisesRegex(NotImplementedError, f"^{name.removesuffix('_size')}: "):
                kjit.flash_attn_func(None, None, None, **{name: value})

    def test_signatures__are_flash_attentions(self):
        tail = ["dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic"]
        heads = {
            kjit.flash_attn_func: ["q", "k", "v"],
            kjit.flash_attn_kvpacked_func: ["q", "kv"],
            kjit.flash_attn_qkvpacked_func: ["qkv"],
        }
        for function, head in heads.items():
            self.assertEqual(list(inspect.signature(function).parameters), [*head, *tail, "return_attn_probs"])

    def test_signatures__of_the_third_version_begin_as_its_own(self):
        """Names, order and defaults, as its releases have them; what other engines added comes behind."""
        descales = {"q_descale": None, "k_descale": None, "v_descale": None}
        mask = {"window_size": (-1, -1), "attention_chunk": 0, "softcap": 0.0}
        scaled = {"softmax_scale": None, "causal": False}
        end = {"deterministic": False, "sm_margin": 0, "return_attn_probs": False}
        kernel = {"num_splits": 1, "pack_gqa": None}
        ragged = ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
        cache = ["k", "v", "qv", "rotary_cos", "rotary_sin", "cache_seqlens", "cache_batch_idx", "cache_leftpad",
                 "page_table", "cu_seqlens_q", "cu_seqlens_k_new", "max_seqlen_q", "rotary_seqlens"]  # fmt: skip
        packed = {"deterministic": False, "num_heads_q": None, "sm_margin": 0, "return_attn_probs": False}
        rows = {
            "flash_attn_qkvpacked_func": (["qkv"], {**scaled, **descales, **mask, **packed}),
            "flash_attn_func": (["q", "k", "v"], {**scaled, "qv": None, **descales, **mask, **kernel, **end}),
            "flash_attn_varlen_func": (
                ["q", "k", "v", *ragged],
                {"seqused_q": None, "seqused_k": None, **scaled, "qv": None, **descales, **mask, **kernel, **end},
            ),
            "flash_attn_with_kvcache": (
                ["q", "k_cache", "v_cache"],
                {**dict.fromkeys(cache), **descales, **scaled, **mask, "rotary_interleaved": True,
                 "scheduler_metadata": None, "num_splits": 0, "pack_gqa": None, "sm_margin": 0,
                 "return_softmax_lse": False},
            ),
            "flash_attn_combine": (["out_partial", "lse_partial"], {"out": None, "out_dtype": None}),
        }  # fmt: skip
        for name, (needed, given) in rows.items():
            parameters = inspect.signature(getattr(flash_attn_interface, name)).parameters.values()
            found = {p.name: p.default for p in parameters if p.kind != p.KEYWORD_ONLY}
            wanted = {**dict.fromkeys(needed, inspect.Parameter.empty), **given}
            self.assertEqual(list(found.items()), list(wanted.items()), name)


class Capsules(unittest.TestCase):
    """Capsules made by hand, of memory that nobody touches."""

    def test_view__of_a_capsule_without_strides_is_compact(self):
        array = Array(2, 5, 3, 64, device=1, data=4096)
        found = _dlpack._view(array.__dlpack__())
        self.assertEqual((found.data, found.dtype, found.device), (4128, FP16, 1))
        self.assertEqual((list(found.shape), list(found.strides)), ([2, 5, 3, 64], [960, 192, 64, 1]))

    def test_view__of_a_versioned_capsule_reads_behind_the_header(self):
        array = Array(2, 5, 3, 64, name=b"dltensor_versioned", strides=(1, 2, 3, 4), code=BFLOAT)
        found = _dlpack._view(array.__dlpack__())
        self.assertEqual((found.dtype, list(found.strides)), (_abi.KJIT_BF16, [1, 2, 3, 4]))

    def test_view__of_another_type_leaves_it_to_the_library(self):
        array = Array(2, 5, 3, 64, bits=64)
        self.assertEqual(_dlpack._view(array.__dlpack__()).dtype, _abi.KJIT_DTYPE_NONE)

    def test_view__of_host_memory_says_so(self):
        array = Array(2, 5, 3, 64, host=True)
        self.assertEqual(_dlpack._view(array.__dlpack__()).device, HOST)

    def test_view__of_something_else_is_refused(self):
        array = Array(2, 5, 3, 64, name=b"used_dltensor")
        with self.assertRaisesRegex(TypeError, "no DLPack capsule"):
            _dlpack._view(array.__dlpack__())

    def test_attention__on_what_is_no_tensor_says_what_it_is(self):
        with self.assertRaisesRegex(TypeError, "q is a list: must be a tensor"):
            kjit.attention([1], [2], [3])

    def test_attention__on_host_memory_is_refused(self):
        array = Array(2, 5, 3, 64, host=True)
        with self.assertRaisesRegex(ValueError, "Array in host memory"):
            kjit.attention(array, array, array, out=array)
        self.assertEqual(array.asked, [])

    def test_timed_and_plan__take_pytorch_tensors(self):
        with self.assertRaisesRegex(TypeError, "forward_timed takes PyTorch tensors"):
            kjit.forward_timed(None, 1, 2, 3)
        with self.assertRaisesRegex(TypeError, "plan takes PyTorch tensors"):
            kjit.plan(1, 2, 3)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
