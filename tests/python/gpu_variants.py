"""Attention variants on a GPU from Python beside float64: functions that people write, gradients, torch.compile,
graphs, FlexAttention's block masks, kjit.enable(), models of transformers."""

import importlib.util
import os
import random
import sys
import unittest

import kjit
from gpu_torch import DEVICE, HAS_GPU, needs_gpu, torch

if torch is not None:
    import variant_reference
    import variant_test
    from variant_reference import scores_and_seen

HAS_TRANSFORMERS = HAS_GPU and importlib.util.find_spec("transformers") is not None


def inputs(seed, batch=2, seq_q=150, seq_kv=210, heads=4, heads_kv=2, head_dim=64, dtype=None):
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    shapes = (batch, seq_q, heads, head_dim), *((batch, seq_kv, heads_kv, head_dim),) * 2
    return [torch.randn(shape, generator=generator, device=DEVICE).to(dtype or torch.bfloat16) for shape in shapes]


def over_pairs(function, kind):
    """The function on index tensors of all pairs, of which one at a time would be too slow."""
    scored = (0,) if kind == "score_mod" else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=(*scored, *dims))
    whole = function
    if scored:
        return lambda s, *places: whole(s, *(place.flatten() for place in places))
    return lambda *places: whole(*(place.flatten() for place in places))


def in_sixteen_bits(q, k, v, **options):
    """The same with probabilities and the output rounded to the inputs' type, sums in fp32."""
    group = q.shape[2] // k.shape[2]
    k, v = (tensor.float().repeat_interleave(group, 2) for tensor in (k, v))
    names = ("scale", "causal", "mask_mod", "score_mod", "softcap", "bias", "window", "alibi_slopes")
    given = {name: options.get(name) for name in names} | {"causal": options.get("causal", False)}
    scores, seen = scores_and_seen(q.float(), k, **given)
    weights = torch.softmax(scores.float().masked_fill(~seen, float("-inf")), -1).nan_to_num(0)
    if options.get("sinks") is not None:
        lse = torch.logsumexp(scores.float().masked_fill(~seen, float("-inf")), -1, keepdim=True)
        sinks = options["sinks"].view(1, -1, 1, 1)
        weights = weights * torch.sigmoid(lse - sinks)
    return torch.einsum("bhqk,bkhd->bqhd", weights.to(q.dtype).float(), v).to(q.dtype)


@needs_gpu
class Variants(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def check(self, name, q, k, v, factor=2.0, by_reference=None, **options):
        """by_reference: what the reference is given in place of the same options."""
        out, lse = kjit.attention(q, k, v, return_lse=True, **options)
        options = {**options, **(by_reference or {})}
        exact, exact_lse = variant_reference.attention(q, k, v, return_lse=True, dtype=torch.float64, **options)
        rounded = in_sixteen_bits(q, k, v, **options)
        allowed = factor * (rounded.double() - exact).abs().max() + torch.finfo(q.dtype).eps * exact.abs().max()
        self.assertLessEqual((out.double() - exact).abs().max().item(), allowed.item(), name)
        empty = exact_lse.isinf()
        self.assertTrue(torch.equal(lse[empty], exact_lse[empty].float()), f"{name}: lse of rows without keys")
        error = (lse.double() - exact_lse).masked_fill(empty, 0).abs().max().item()
        most = exact_lse.masked_fill(empty, 0).abs().max().item()
        self.assertLessEqual(error, 0.02 * max(1.0, most), f"{name}: lse")

    def functions(self, batch, heads, seq_q, seq_kv):
        """The rows of the functions that people write, with captured tensors of several types."""
        keys = max(seq_q, seq_kv)
        doc = (torch.rand(batch, keys, device=DEVICE) < 0.03).cumsum(1).to(torch.int16)
        length = torch.randint(1, seq_kv + 1, (batch,), device=DEVICE)
        flag = torch.rand(keys, device=DEVICE) < 0.1
        slope = torch.rand(heads, device=DEVICE)
        table = torch.randn(2 * keys, device=DEVICE, dtype=torch.float16)
        bias = torch.randn(1, heads, seq_q, seq_kv, device=DEVICE).to(torch.bfloat16).expand(batch, -1, -1, -1)
        position = torch.randperm(keys, device=DEVICE)
        cap, window = torch.tensor(5.0, device=DEVICE), 37
        masks = {
            "streaming": lambda b, h, q, k: ((q - k <= window) & (q >= k)) | (k < 4),
            "document": lambda b, h, q, k: (doc[b, q] == doc[b, k]) & (q >= k),
            "length": lambda b, h, q, k: k < length[b],
            "global": lambda b, h, q, k: ((q - k).abs() <= window) | flag[q] | flag[k],
            "remapped": lambda b, h, q, k: position[q] >= position[k],
            "chunked": lambda b, h, q, k: (k // 64 == q // 64) & (k <= q),
        }
        scores = {
            "alibi": lambda s, b, h, q, k: s + slope[h] * (k - q),
            "softcap": lambda s, b, h, q, k: cap * torch.tanh(s / cap),
            "distance": lambda s, b, h, q, k: s + table[q - k + keys],
            "bias": lambda s, b, h, q, k: s + bias[b, h, q, k],
        }
        return masks, scores

    def test_functions__are_right(self):
        pick = random.Random(5)
        for kind in (0, 1):
            for name in self.functions(1, 2, 64, 64)[kind]:
                sizes = dict(batch=pick.randint(1, 2), seq_q=pick.randint(1, 300), seq_kv=pick.randint(1, 400))
                sizes |= dict(head_dim=pick.choice([40, 64, 128, 256]), heads=4, heads_kv=pick.choice([1, 2, 4]))
                dtype = pick.choice([torch.float16, torch.bfloat16])
                q, k, v = inputs(7, dtype=dtype, **sizes)
                function = self.functions(sizes["batch"], 4, sizes["seq_q"], sizes["seq_kv"])[kind][name]
                options = {("mask_mod", "score_mod")[kind]: function}
                self.check(f"{name} {sizes}", q, k, v, factor=3.0 if name == "softcap" else 2.0, **options)

    def test_every_function_that_people_write__is_right(self):
        """variant_test.cases(), on random lengths, groups, head sizes and types: every sixth, all of them with
        KJIT_TEST_ALL_CONFIGS=1, or of all the part KJIT_TEST_PART=i/n."""
        part, parts = map(int, os.environ.get("KJIT_TEST_PART", "0/1").split("/"))
        step = 1 if parts > 1 or os.environ.get("KJIT_TEST_ALL_CONFIGS") else 6
        length = 4 * variant_test.SEQ
        masks, scores = variant_test.cases(length, DEVICE)
        rows = [("mask_mod", *row) for row in masks.items()] + [("score_mod", *row) for row in scores.items()]
        wrong = []
        for index in range(part, len(rows), parts * step):
            kind, name, function = rows[index]
            pick = random.Random(index)
            sizes = dict(batch=variant_test.BATCH, seq_q=pick.randint(1, length), seq_kv=pick.randint(1, length))
            sizes |= dict(head_dim=pick.choice([40, 64, 96, 128, 192, 256]), heads=variant_test.HEADS)
            sizes |= dict(heads_kv=pick.choice([1, 2, 4]), dtype=pick.choice([torch.float16, torch.bfloat16]))
            if index % 5 == 0:
                sizes["seq_q"] = pick.randint(1, 3)  # packed query heads, split keys
            q, k, v = inputs(index, **sizes)
            try:
                approximate = kind == "score_mod" and any(each in name for each in ("softcap", "tanh", "erf"))
                factor, by_reference = 3.0 if approximate else 2.0, {kind: over_pairs(function, kind)}
                self.check(f"{name} {sizes}", q, k, v, factor, by_reference, **{kind: function})
            except (AssertionError, kjit.Error) as fault:
                wrong.append(f"{name} {sizes}: {fault}")
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_decoding__is_right_with_split_keys(self):
        q, k, v = inputs(2, batch=1, seq_q=1, seq_kv=5000, heads=8, heads_kv=2, head_dim=128)
        masks, _ = self.functions(1, 8, 1, 5000)
        self.check("streaming", q, k, v, mask_mod=lambda b, h, i, j: (4999 - j <= 1000) | (j < 4))
        self.check("length", q, k, v, mask_mod=masks["length"])

    def test_sinks_and_members__are_right(self):
        q, k, v = inputs(4)
        sinks = torch.randn(4, device=DEVICE)
        self.check("sinks", q, k, v, sinks=sinks, window=(40, 0))
        bias = torch.randn(1, 1, 150, 210, device=DEVICE, dtype=torch.bfloat16)
        self.check("members", q, k, v, factor=3.0, softcap=6.0, bias=bias, alibi_slopes=torch.rand(4, device=DEVICE))

    def test_compile__is_right_in_one_graph(self):
        q, k, v = inputs(6, seq_q=210)
        doc = (torch.arange(210, device=DEVICE) // 50)[None].expand(2, -1)

        def block(q, k, v):
            def mask_mod(b, h, i, j):
                return (doc[b, i] == doc[b, j]) & (i >= j)

            return kjit.attention(q * 1, k, v, mask_mod=mask_mod) * 1

        result = torch.compile(block, fullgraph=True)(q, k, v)
        torch.testing.assert_close(result, block(q, k, v), rtol=0, atol=0)

    def test_graph__replays_what_it_captured(self):
        q, k, v = inputs(8)
        size = torch.tensor(5, device=DEVICE)

        def call():
            return kjit.attention(q, k, v, mask_mod=lambda b, h, i, j: (i - j).abs() <= size)

        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        size.fill_(90)
        graph.replay()
        torch.testing.assert_close(out, call(), rtol=0, atol=0)

    def test_block_lists__are_honoured(self):
        from torch.nn.attention.flex_attention import BlockMask

        q, k, v = (t.transpose(1, 2).contiguous() for t in inputs(9, batch=1, seq_q=256, seq_kv=384, heads_kv=4))
        counts = torch.tensor([[[2, 1]]], dtype=torch.int32, device=DEVICE)
        indices = torch.tensor([[[[2, 0, 9], [1, 9, 9]]]], dtype=torch.int32, device=DEVICE)
        mask = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=128)
        out = kjit.flex_attention(q, k, v, block_mask=mask)
        allowed = torch.tensor([[1, 0, 1], [0, 1, 0]], dtype=torch.bool, device=DEVICE)
        exact = variant_reference.attention(
            q, k, v, layout="bhsd", mask_mod=lambda b, h, i, j: allowed[i // 128, j // 128], dtype=torch.float64
        )
        self.assertLessEqual((out.double() - exact).abs().max().item(), 0.02 * exact.abs().max().item())

    def test_block_mask__that_comes_again_is_right_when_it_is_written_to(self):
        """On two streams, in a graph, and after another document and another list were written in place."""
        from torch.nn.attention.flex_attention import BlockMask

        q, k, v = (t.transpose(1, 2).contiguous() for t in inputs(10, batch=1, seq_q=700, seq_kv=700, heads_kv=4))
        doc = torch.zeros(700, dtype=torch.int32, device=DEVICE)
        counts = torch.full((1, 1, 6), 6, dtype=torch.int32, device=DEVICE)
        indices = torch.arange(6, dtype=torch.int32, device=DEVICE).expand(1, 1, 6, 6).contiguous()
        mask = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=128, mask_mod=lambda b, h, i, j: doc[i] == doc[j])

        def check():
            listed = torch.arange(6, device=DEVICE) < counts[0, 0, :, None]
            exact = variant_reference.attention(
                q, k, v, layout="bhsd", dtype=torch.float64,
                mask_mod=lambda b, h, i, j: (doc[i] == doc[j]) & listed[i // 128, j // 128],
            )  # fmt: skip
            out = kjit.flex_attention(q, k, v, block_mask=mask)
            self.assertLessEqual((out.double() - exact).abs().max().item(), 0.02 * exact.abs().max().item())

        for write in (lambda: None, lambda: doc.copy_(torch.arange(700) // 90), lambda: counts[0, 0, 3:].fill_(4)):
            write()
            for _ in range(4):
                check()
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda.synchronize()
                for _ in range(3):
                    check()
            torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = kjit.flex_attention(q, k, v, block_mask=mask)
        doc.copy_(torch.arange(700) // 40)
        graph.replay()
        torch.testing.assert_close(out, kjit.flex_attention(q, k, v, block_mask=mask), rtol=0, atol=0)
        check()

    def test_lists__of_calls_on_three_streams_at_once_give_the_bits_of_a_call_alone(self):
        """Each call's attention kernel begins before its lists are all made, and the calls share multiprocessors."""
        for head_dim, length in ((64, 4096), (128, 8192)):
            q, k, v = inputs(11, 1, length, length, 2048 // head_dim, 2048 // head_dim, head_dim)
            doc = torch.randint(0, 9, (length,), device=DEVICE).sort()[0].int()
            options = {"mask": "doc[q] == doc[k] and q >= k", "tensors": {"doc": doc}}
            alone = kjit.attention(q, k, v, **options)
            streams = [torch.cuda.Stream() for _ in range(3)]
            outs = [torch.full_like(q, float("nan")) for _ in streams]
            torch.cuda.synchronize()
            for _ in range(20):
                for stream, out in zip(streams, outs):
                    with torch.cuda.stream(stream):
                        kjit.attention(q, k, v, out=out, **options)
            torch.cuda.synchronize()
            for out in outs:
                torch.testing.assert_close(out, alone, rtol=0, atol=0)


@needs_gpu
class Gradients(unittest.TestCase):
    def check(self, name, seed=1, **options):
        q, k, v = (tensor.requires_grad_(True) for tensor in inputs(seed, dtype=torch.float16))
        wide = [tensor.detach().double().requires_grad_(True) for tensor in (q, k, v)]
        sinks = options.get("sinks")
        out, lse = kjit.attention(q, k, v, return_lse=True, **options)
        exact_options = dict(options)
        if sinks is not None:
            exact_options["sinks"] = sinks.detach().double().requires_grad_(True)
        exact, exact_lse = variant_reference.attention(*wide, return_lse=True, **exact_options)
        dout = torch.randn_like(out)
        dlse = torch.randn_like(lse).masked_fill(exact_lse.isinf(), 0)
        found = torch.autograd.grad((out, lse), [q, k, v, *([] if sinks is None else [sinks])], (dout, dlse))
        rows = exact_lse.masked_fill(exact_lse.isinf(), 0)
        others = [] if sinks is None else [exact_options["sinks"]]
        right = torch.autograd.grad((exact, rows), [*wide, *others], (dout.double(), dlse.double()))
        for what, one, other in zip(("dq", "dk", "dv", "dsinks"), found, right):
            error = (one.double() - other).abs().max().item()
            self.assertLessEqual(error, 0.01 * other.abs().max().item(), f"{name}: {what}")

    def test_masks_and_scores__have_gradients(self):
        slope = torch.rand(4, device=DEVICE)
        doc = (torch.arange(210, device=DEVICE) // 40)[None].expand(2, -1)
        self.check("window", mask_mod=lambda b, h, q, k: (q >= k) & (q - k <= 50))
        self.check("document", mask_mod=lambda b, h, q, k: doc[b, q] == doc[b, k])
        self.check("alibi", score_mod=lambda s, b, h, q, k: s + slope[h] * (k - q))
        self.check("softcap", softcap=4.0, causal=True)

    def test_what_scores_read__has_gradients(self):
        """Elements of a pair, a row, a column, a head and all, broadcast axes, another type than fp32."""

        def leaf(*shape, dtype=torch.float32):
            return (torch.randn(shape, device=DEVICE) * 0.5).to(dtype).requires_grad_(True)

        # Slopes that prefer near keys, as ALiBi's do. Of others the gradient is a difference of sums over far keys, in
        # which the output's rounding to 16 bits alone can be a tenth.
        bias, slopes = leaf(1, 4, 150, 210), (torch.rand(4, device=DEVICE) * 0.5 + 0.05).requires_grad_(True)
        for name, tensors, make in (
            ("bias", [bias], lambda t: dict(bias=t[0], causal=True)),
            ("bias of all heads", [leaf(2, 1, 150, 210)], lambda t: dict(bias=t[0])),
            ("bias of keys", [leaf(1, 1, 1, 210)], lambda t: dict(bias=t[0], softcap=5.0)),
            ("slopes", [slopes], lambda t: dict(alibi_slopes=t[0], window=(90, 0))),
            ("relative", [leaf(512)], lambda t: dict(score_mod=lambda s, b, h, q, k: s + t[0][q - k + 256])),
            ("rows", [leaf(2, 150)], lambda t: dict(score_mod=lambda s, b, h, q, k: s * (1 + t[0][b, q]))),
            ("columns", [leaf(210)], lambda t: dict(score_mod=lambda s, b, h, q, k: s + t[0][k] * t[0][k])),
            ("cap", [leaf()], lambda t: dict(score_mod=lambda s, b, h, q, k: torch.tanh(s / (2 + t[0])) * (2 + t[0]))),
            (
                "all at once",
                [leaf(4, 150, 210, dtype=torch.bfloat16), leaf(4), leaf()],
                lambda t: dict(
                    score_mod=lambda s, b, h, q, k: torch.tanh(s + t[0][h, q, k]) * t[2] + t[1][h] * s,
                    mask_mod=lambda b, h, q, k: q - k <= 70,
                ),
            ),
        ):
            q, k, v = (tensor.requires_grad_(True) for tensor in inputs(5, dtype=torch.float16))
            wide = [tensor.detach().double().requires_grad_(True) for tensor in (q, k, v)]
            wide_tensors = [tensor.detach().double().requires_grad_(True) for tensor in tensors]
            out = kjit.attention(q, k, v, **make(tensors))
            exact = variant_reference.attention(*wide, **make(wide_tensors))
            dout = torch.randn_like(out)
            found = torch.autograd.grad(out, [*tensors, q, k, v], dout)
            right = torch.autograd.grad(exact, [*wide_tensors, *wide], dout.double())
            for index, (one, other) in enumerate(zip(found, right)):
                error = (one.double() - other).abs().max().item()
                self.assertLessEqual(error, 0.01 * other.abs().max().item(), f"{name}: {index}")

    def test_sinks__have_a_gradient(self):
        sinks = torch.randn(4, device=DEVICE, requires_grad=True)
        self.check("sinks", sinks=sinks, window=(30, 0))


@needs_gpu
class Enabled(unittest.TestCase):
    def test_sdpa__is_kjits_and_comes_back(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        sdpa = torch.nn.functional.scaled_dot_product_attention
        q, k, v = (t.transpose(1, 2).requires_grad_(True) for t in inputs(11, seq_q=128, seq_kv=128, heads_kv=4))
        bias = torch.randn(1, 1, 128, 128, device=DEVICE, dtype=q.dtype)
        right = sdpa(q, k, v, is_causal=True)
        dout = torch.randn_like(right)
        right_gradients = torch.autograd.grad(right, (q, k, v), dout)
        with torch.no_grad():
            right_masked = sdpa(q, k, v, attn_mask=bias)
        kjit.enable()
        try:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                found = sdpa(q, k, v, is_causal=True)
                gradients = torch.autograd.grad(found, (q, k, v), dout)
            self.assertEqual(kjit.enabled_counts["sdpa"], 2)
            with torch.no_grad(), sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
                masked = sdpa(q, k, v, attn_mask=bias)
            self.assertEqual(dict(kjit.enabled_counts), {"sdpa": 3})
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                sdpa(q, k, v, dropout_p=0.5)
            self.assertEqual(kjit.enabled_counts["dropout"], 1)
        finally:
            kjit.disable()
        pairs = [(found, right), (masked, right_masked), *zip(gradients, right_gradients)]
        for one, other in pairs:
            self.assertLessEqual((one - other).abs().max().item(), 0.02 * other.abs().max().item())


@unittest.skipUnless(HAS_TRANSFORMERS, "transformers with a GPU is not here")
class Models(unittest.TestCase):
    def test_models__compute_what_eager_computes(self):
        from kjit import transformers_attention, transformers_inline
        from transformers_models import MODELS, PROMPT, VOCABULARY, choose, computed, generate, make

        transformers_attention.register()
        for name in MODELS:
            for padded in (False, True):
                tokens = torch.randint(2, VOCABULARY, (2, 4 * PROMPT), device=DEVICE)
                mask = torch.ones_like(tokens)
                if padded:
                    mask[0, :9] = 0
                given = dict(input_ids=tokens, attention_mask=mask)
                if name.endswith("t5"):
                    given["decoder_input_ids"] = tokens[:, :PROMPT]
                logits = []
                for dtype, implementation in (
                    (torch.float32, "eager"),
                    (torch.bfloat16, "eager"),
                    (torch.bfloat16, "kjit"),
                ):
                    model = make(name, DEVICE, dtype)
                    choose(model, implementation)
                    expected = computed(model)
                    transformers_attention.counts.clear()
                    with torch.no_grad():
                        logits.append(model(**given).logits.double())
                self.assertEqual(set(transformers_attention.counts), expected, name)
                exact, eager, found = (each[1:] if padded else each for each in logits)
                allowed = 2 * (eager - exact).abs().max() + 0.01 * exact.abs().max()
                self.assertLessEqual((found - exact).abs().max().item(), allowed.item(), name)
                transformers_attention.counts.clear()
                generate(model, "kjit", padded=padded)
                self.assertEqual(set(transformers_attention.counts), expected, name)
                transformers_inline.disable()


if __name__ == "__main__":
    import harness

    harness.main(sys.modules["__main__"])
