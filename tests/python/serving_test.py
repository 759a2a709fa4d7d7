"""FlashAttention's serving functions on the emulator of tests/emulator: PyTorch tensors over the emulated device's
memory, beside float64. No GPU. What a card computes is gpu_serving.py's."""

import ctypes
import os
import sys
import unittest
from unittest import mock

import harness
import kjit
from kjit import _cuda

try:
    import torch
except ImportError:
    torch = None
else:
    from kjit import _prepared, _serving, _torch, flash_attn, flash_attn_interface
    from serving_reference import attention, close_enough, paged_cache, quantised, ragged

DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])


def on_device(tensor):
    """A copy in the emulated device's memory, which this process reaches too."""
    address = ctypes.c_uint64()
    size = max(tensor.numel() * tensor.element_size(), 1)
    assert DRIVER.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size + 256)) == 0
    memory = (ctypes.c_char * size).from_address(address.value)
    copy = torch.frombuffer(memory, dtype=tensor.dtype, count=max(tensor.numel(), 1))[: tensor.numel()]
    copy = copy.view(tensor.shape)
    copy.copy_(tensor)
    return copy


def maker_of(tensor):
    known = tuple(tensor.shape), tensor.stride(), tensor.dtype
    return lambda shape, strides, dtype: on_device(torch.empty_strided(shape, strides, dtype=dtype)), known


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Serving(unittest.TestCase):
    def setUp(self):
        view = _torch._view
        patches = (
            (_serving, "_view", lambda t: view(t)._replace(device=0)),
            (_serving, "_raw_stream", lambda device: 0),
            (_prepared, "maker_of", maker_of),
            (torch, "empty", lambda *shape, _empty=torch.empty, **kind: on_device(_empty(*shape, **kind))),
        )
        for owner, name, value in patches:
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        _serving._calls.__dict__.clear()
        context = _cuda.device(0)
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        torch.manual_seed(1)

    def check(self, found, wanted):
        self.assertEqual(close_enough(found, wanted), "")

    def test_varlen__ragged_batch_is_right(self):
        q, k, v, cu_q, cu_k = (on_device(t) for t in ragged([5, 0, 33], [5, 7, 40], 4, 2, 64))
        for causal in (False, True):
            out = flash_attn.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 33, 40, causal=causal)
            self.check(out, attention(q, k, v, cu_q, cu_k, causal=causal))

    def test_varlen__lse_is_returned(self):
        q, k, v, cu_q, cu_k = (on_device(t) for t in ragged([2, 9], [8, 3], 2, 2, 64))
        with mock.patch.object(torch.Tensor, "new_empty", lambda t, shape, dtype=None: on_device(torch.zeros(shape))):
            out, lse, rest = flash_attn.flash_attn_varlen_func(
                q, k, v, cu_q, cu_k, 9, 8, causal=True, return_attn_probs=True
            )
        self.assertIsNone(rest)
        self.assertEqual(lse.shape, (2, 11))
        self.assertTrue(lse[:, 2:8].isinf().all())  # rows that see no key: the first six of sequence 1
        self.assertTrue(torch.isfinite(lse[:, 8:]).all())

    def test_varlen__block_table_is_read(self):
        q, k, v, cu_q, cu_k = ragged([1, 3], [50, 17], 4, 2, 64)
        wanted = attention(q, k, v, cu_q, cu_k, causal=True)
        k_pages, v_pages, table = paged_cache(k, v, cu_k, 16)
        found = flash_attn_interface.flash_attn_varlen_func(
            on_device(q), on_device(k_pages), on_device(v_pages), on_device(cu_q), None, 3, 50,
            seqused_k=on_device(cu_k.diff()), causal=True, block_table=on_device(table),
        )  # fmt: skip
        self.check(found, wanted)

    def test_kvcache__decode_appends_and_attends(self):
        batch, heads, heads_kv, positions = 2, 4, 2, 40
        lengths = torch.tensor([20, 33], dtype=torch.int32)
        q, k_new, v_new = (torch.randn(batch, 1, h, 64).half() for h in (heads, heads_kv, heads_kv))
        caches = [torch.randn(batch, positions, heads_kv, 64).half() for _ in range(2)]
        keys, values = (
            torch.cat([torch.cat([cache[b, : lengths[b]], new[b]]) for b in range(batch)])
            for cache, new in zip(caches, (k_new, v_new))
        )
        cu_q, cu_k = torch.tensor([0, 1, 2]), torch.tensor([0, 21, 55])
        k_cache, v_cache = (on_device(cache) for cache in caches)
        found = flash_attn.flash_attn_with_kvcache(
            on_device(q), k_cache, v_cache, on_device(k_new), on_device(v_new), cache_seqlens=on_device(lengths),
            causal=True,
        )  # fmt: skip
        self.check(found.flatten(0, 1), attention(q.flatten(0, 1), keys, values, cu_q, cu_k, causal=True))
        for b in range(batch):
            self.assertTrue(torch.equal(v_cache[b, lengths[b]], v_new[b, 0]))

    def test_kvcache__e4m3_cache_is_appended_to_and_attended(self):
        q, k, v, cu_q, cu_k = ragged([1, 1], [50, 17], 4, 2, 64, dtype=torch.bfloat16)
        k_descale, v_descale = torch.tensor([0.01, 0.02]), torch.tensor([0.5, 0.03])
        (k8, k_exact), (v8, v_exact) = quantised(k, k_descale), quantised(v, v_descale)
        begins, last = [0, 50], torch.tensor([49, 66])
        lengths = torch.tensor([49, 16], dtype=torch.int32)
        as_bytes = k8.view(torch.uint8), v8.view(torch.uint8)
        k_pages, v_pages, table = paged_cache(*as_bytes, cu_k, 16, 0x7F)
        for b, begin in enumerate(begins):
            place = table[b, int(lengths[b]) // 16], int(lengths[b]) % 16
            k_pages[place] = v_pages[place] = 0x7F  # what is appended is NaN beforehand
        k_pages, v_pages = (on_device(t.view(torch.float8_e4m3fn)) for t in (k_pages, v_pages))
        out = flash_attn_interface.flash_attn_with_kvcache(
            on_device(q.unsqueeze(1)), k_pages, v_pages, *(on_device(t[last].unsqueeze(1)) for t in (k, v)),
            cache_seqlens=on_device(lengths), page_table=on_device(table), causal=True,
            k_descale=on_device(k_descale).expand(2, 2), v_descale=on_device(v_descale.repeat(2, 1)),
        )  # fmt: skip
        wanted = attention(q.float(), k_exact, v_exact, cu_q, cu_k, causal=True)
        self.assertLess((out.flatten(0, 1).double() - wanted).abs().max().item(), 0.02)
        for b, key in enumerate(last.tolist()):
            place = table[b, int(lengths[b]) // 16], int(lengths[b]) % 16
            self.assertTrue(torch.equal(k_pages[place].view(torch.uint8), k8[key].view(torch.uint8)))
            self.assertTrue(torch.equal(v_pages[place].view(torch.uint8), v8[key].view(torch.uint8)))

    def test_varlen__e4m3_queries_are_widened(self):
        q, k, v, cu_q, cu_k = (on_device(t) for t in ragged([2, 3], [20, 33], 4, 2, 64, dtype=torch.bfloat16))
        one = on_device(torch.ones(2))
        q8, k8, v8 = (on_device(t.to(torch.float8_e4m3fn)) for t in (q, k, v))
        to = torch.Tensor.to
        with mock.patch.object(torch.Tensor, "to", lambda t, *a, **kind: on_device(to(t, *a, **kind))):
            out = flash_attn_interface.flash_attn_varlen_func(
                q8, k8, v8, cu_q, cu_k, 3, 33, causal=True,
                q_descale=on_device(torch.full((2, 2), 0.5)), v_descale=one.expand(2, 2),
            )  # fmt: skip
        self.assertEqual(out.dtype, torch.bfloat16)
        exact = attention(q8.float() * 0.5, k8.float(), v8.float(), cu_q, cu_k, causal=True)
        self.assertLess((out.double() - exact).abs().max().item(), 0.02)

    def test_metadata__gives_the_same_result(self):
        lengths = on_device(torch.tensor([100, 3, 0], dtype=torch.int32))
        q = on_device(torch.randn(3, 1, 4, 64).half())
        k, v = (on_device(torch.randn(3, 128, 2, 64).half()) for _ in range(2))
        metadata = flash_attn_interface.get_scheduler_metadata(3, 1, 128, 4, 2, 64, lengths, torch.float16)
        self.assertNotEqual(metadata[0].item(), 0)
        plain = flash_attn_interface.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths).clone()
        scheduled = flash_attn_interface.flash_attn_with_kvcache(
            q, k, v, cache_seqlens=lengths, scheduler_metadata=metadata
        )
        self.assertTrue(torch.equal(plain, scheduled))
        self.assertEqual(scheduled[2].abs().max().item(), 0)

    def test_combine__is_attention_over_all_keys(self):
        q, k, v, cu_q, cu_k = ragged([3], [40], 2, 2, 64)
        parts = [attention(q, k[s], v[s], cu_q, torch.tensor([0, 20]), lse=True) for s in (slice(20), slice(20, 40))]
        out, lse = flash_attn_interface.flash_attn_combine(
            torch.stack([part[0] for part in parts]), torch.stack([part[1] for part in parts])
        )
        wanted, wanted_lse = attention(q, k, v, cu_q, cu_k, lse=True)
        torch.testing.assert_close(out.double(), wanted.double(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(lse.double(), wanted_lse.double(), atol=1e-5, rtol=1e-5)

    def test_arguments__what_is_wrong_is_named(self):
        q, k, v, cu_q, cu_k = (on_device(t) for t in ragged([2], [8], 3, 2, 64))
        with self.assertRaisesRegex(kjit.InvalidArgument, "heads.*must divide"):
            flash_attn.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 2, 8)
        with self.assertRaisesRegex(TypeError, "cu_seqlens_q .*int32"):
            flash_attn.flash_attn_varlen_func(q, k, v, cu_q.long(), cu_k, 2, 8)
        with self.assertRaisesRegex(NotImplementedError, "^alibi_slopes: kjit does not"):
            flash_attn.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 2, 8, alibi_slopes=q)

    def test_arrays__that_are_too_short_are_not_read(self):
        """The library gets their addresses alone."""
        decode = flash_attn_interface.flash_attn_with_kvcache
        q, cache = on_device(torch.zeros(4, 1, 4, 64).half()), on_device(torch.zeros(8, 16, 2, 64).half())
        good = {
            "cache_seqlens": on_device(torch.ones(4, dtype=torch.int32)),
            "page_table": on_device(torch.zeros(4, 2, dtype=torch.int32)),
        }
        decode(q, cache, cache, **good)
        new = {"k": on_device(torch.zeros(4, 1, 2, 64).half()), "v": on_device(torch.zeros(4, 1, 2, 64).half())}
        turn = on_device(torch.zeros(16, 16).half())
        for why, options in {
            "seqused_k.shape.0. is 3: must be at least 4, the 4": {"cache_seqlens": good["cache_seqlens"][:3]},
            "page_table.shape.0. is 2: must be at least 4": {"page_table": good["page_table"][:2]},
            "leftpad_k.shape.0. is 1": {"cache_leftpad": good["cache_seqlens"][:1]},
            "rotary_cos is torch.float32: must be q's type": {**new, "rotary_cos": turn.float(), "rotary_sin": turn},
            "rotary_sin.shape is .8, 16.: must be rotary_cos'": {**new, "rotary_cos": turn, "rotary_sin": turn[:8]},
            "rotary_cos: must be NULL without k_new": {"rotary_cos": turn, "rotary_sin": turn},
        }.items():
            with self.assertRaisesRegex(ValueError, why):
                decode(q, cache, cache, **{**good, **options})
        q, k, v, cu_q, cu_k = (on_device(t) for t in ragged([2, 3], [8, 9], 4, 2, 64))
        run = flash_attn_interface.flash_attn_varlen_func
        with self.assertRaisesRegex(ValueError, "cu_seqlens_k.shape.0. is 2: must be at least 3, one more than the 2"):
            run(q, k, v, cu_q, cu_k[:2], 3, 9)
        with self.assertRaisesRegex(ValueError, r"sinks.shape is \(3,\): must be \(4,\), q's heads"):
            run(q, k, v, cu_q, cu_k, 3, 9, sinks=on_device(torch.zeros(3)))

    def test_gradients__of_ragged_batches_are_refused_where_they_are_asked_for(self):
        q, k, v, cu_q, cu_k = (on_device(t) for t in ragged([2], [8], 4, 2, 64))
        plain = flash_attn.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 2, 8)
        out, lse, _ = flash_attn.flash_attn_varlen_func(
            q.requires_grad_(), k, v, cu_q, cu_k, 2, 8, return_attn_probs=True
        )
        self.assertTrue(torch.equal(out, plain))
        self.assertFalse(plain.requires_grad)
        for result in (out, lse):
            with self.assertRaisesRegex(NotImplementedError, "gradients over ragged batches"):
                result.float().sum().backward()
        with torch.no_grad():
            self.assertFalse(flash_attn.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 2, 8).requires_grad)

    def test_install__flash_attn_is_kjit(self):
        names = ("flash_attn", "flash_attn.bert_padding", "flash_attn.flash_attn_interface", "flash_attn_interface")
        with mock.patch.dict("sys.modules"):
            kjit.install_as_flash_attn()
            for name in names:
                __import__(name)
            from flash_attn import flash_attn_varlen_func
            from flash_attn.bert_padding import index_first_axis, index_put_first_axis, pad_input, unpad_input

            self.assertIs(flash_attn_varlen_func, flash_attn.flash_attn_varlen_func)
            rows = torch.arange(12.0).view(2, 3, 2)
            mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
            flat, indices, offsets, longest, _ = unpad_input(rows, mask)
            self.assertEqual((offsets.tolist(), longest), ([0, 2, 5], 3))
            self.assertTrue(torch.equal(pad_input(flat, indices, 2, 3), rows * mask.unsqueeze(-1)))
            self.assertTrue(torch.equal(index_first_axis(index_put_first_axis(flat, indices, 6), indices), flat))
            from flash_attn_interface import flash_attn_qkvpacked_func

            self.assertIs(flash_attn_qkvpacked_func, flash_attn_interface.flash_attn_qkvpacked_func)

    def test_install__has_the_rotary_embedding_of_layers(self):
        def turn(row, position, cos, sin, interleaved):
            out, half = row.clone(), cos.shape[1]
            for i in range(half):
                a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
                c, s = cos[position, i], sin[position, i]
                out[..., a], out[..., b] = row[..., a] * c - row[..., b] * s, row[..., a] * s + row[..., b] * c
            return out

        cos, sin, x = torch.randn(13, 3), torch.randn(13, 3), torch.randn(2, 5, 2, 8)
        offsets, cu = torch.tensor([2, 7]), torch.tensor([0, 4, 10], dtype=torch.int32)
        with mock.patch.dict("sys.modules"):
            kjit.install_as_flash_attn()
            from flash_attn.layers.rotary import apply_rotary_emb
        for interleaved in (False, True):
            for given, first in ((0, (0, 0)), (3, (3, 3)), (offsets, (2, 7))):
                flat = x.flatten(0, 1)
                for rows, lengths, more in ((x, (5, 5), {}), (flat, (4, 6), {"cu_seqlens": cu, "max_seqlen": 6})):
                    places = [first[b] + i for b in range(2) for i in range(lengths[b])]
                    wanted = [turn(flat[i], place, cos, sin, interleaved) for i, place in enumerate(places)]
                    found = apply_rotary_emb(rows, cos, sin, interleaved, seqlen_offsets=given, **more)
                    torch.testing.assert_close(found, torch.stack(wanted).view(rows.shape))
        with self.assertRaisesRegex(ValueError, "x has rows up to position 14, and cos 13 rows"):
            apply_rotary_emb(x, cos, sin, seqlen_offsets=9)
        half = x.bfloat16()
        again = apply_rotary_emb(half, cos, sin, inplace=True)
        self.assertIs(again, half)
        torch.testing.assert_close(half, apply_rotary_emb(x.bfloat16(), cos, sin))


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
