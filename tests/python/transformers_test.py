"""The registration with transformers and the example, with float64 arithmetic in the place of kjit's call: what models
ask for reaches kjit, as functions and without masks, and comes to what their eager attention computes."""

import importlib.util
import sys
import types
import unittest
from unittest import mock

import harness
import kjit

HERE = harness.Path(__file__).resolve().parent
MISSING = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
if not MISSING:
    import torch
    from transformers import AttentionInterface, PreTrainedModel

    import variant_reference
    from kjit import transformers_attention, transformers_inline
    from kjit.transformers_mask import Mask, padding_function
    from transformers_models import MODELS, PROMPT, VOCABULARY, choose, computed, generate, make


def in_sixteen_bits(q, k, v, *, scale, causal):
    """What sdpa gives for the same call, to the bit; causal is aligned bottom right."""
    seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1]) if causal else None
    heads = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    result = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=seen, scale=scale, enable_gqa=True)
    return result.transpose(1, 2)


def unsupported(*tensors, **options):
    raise kjit.Unsupported("no kernel for this", status=1)


def load_example():
    path = HERE.parents[1] / "python" / "examples" / "transformers_generate.py"
    spec = importlib.util.spec_from_file_location("transformers_generate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class WithTransformers(unittest.TestCase):
    def use(self, call):
        for module, name, value in (
            (transformers_attention, "attention", call),
            (transformers_inline, "attention", call),
            (transformers_inline, "_is_on_gpu", lambda tensor: True),
        ):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(transformers_inline.disable)
        transformers_attention.counts.clear()
        transformers_attention.register()

    def record(self):
        """Float64 arithmetic that remembers what it was asked for, and tries the functions on the library."""
        asked = []

        def call(q, k, v, **options):
            asked.append({name for name, value in options.items() if value is not False and name != "scale"})
            if "mask_mod" in options or "score_mod" in options:
                mods = options.get("mask_mod"), options.get("score_mod")
                variant_reference.check_traced(self, q, k, *mods, count=4)
            return variant_reference.attention(q, k, v, **options)

        self.use(call)
        return asked


class Calls(WithTransformers):
    def call(self, name, seq_q=8, mask=None, **options):
        q, k, v = (torch.randn(1, heads, seq, 16) for heads, seq in ((4, seq_q), (2, 8), (2, 8)))
        module = types.SimpleNamespace(is_causal=True, num_key_value_groups=2, training=False)
        options.setdefault("scaling", 0.25)
        attention = AttentionInterface()[name]
        out, weights = attention(module, q, k, v, mask, **options)
        self.assertIsNone(weights)
        causal = mask is None and seq_q > 1 and options.get("is_causal") is not False
        names = {"softcap": "softcap", "position_bias": "bias", "s_aux": "sinks"}
        members = {names[name]: value for name, value in options.items() if name in names}
        if isinstance(mask, torch.Tensor) and mask.dtype is torch.bool:
            members["mask_mod"] = lambda b, h, q, k: mask[b, 0, q, k]
        elif mask is not None:
            members["bias"] = mask
        exact = variant_reference.attention(
            *(tensor.transpose(1, 2) for tensor in (q, k, v)), scale=0.25, causal=causal, **members
        )
        return out, exact

    def test_call__has_the_layout_and_the_mask_of_the_model(self):
        self.use(variant_reference.attention)
        for options in ({}, {"seq_q": 1}, {"is_causal": False}):
            out, exact = self.call("kjit", **options)
            torch.testing.assert_close(out, exact)
            self.assertTrue(out.is_contiguous())
        self.assertEqual(transformers_attention.counts, {"kjit": 3})

    def test_call__takes_masks_of_four_axes_caps_biases_and_sinks(self):
        asked = self.record()
        seen = torch.rand(1, 1, 8, 8) < 0.5
        for options in (
            {"mask": seen | torch.eye(8, dtype=torch.bool)},
            {"mask": torch.randn(1, 1, 8, 8)},
            {"softcap": 2.0},
            {"position_bias": torch.randn(1, 4, 8, 8)},
            {"s_aux": torch.randn(4)},
            {"softcap": 2.0, "s_aux": torch.randn(4), "mask": seen},
        ):
            torch.testing.assert_close(*self.call("kjit", **options))
        self.assertEqual(transformers_attention.counts, {"kjit": 6})
        self.assertEqual(asked[0], {"mask_mod"})
        self.assertEqual(asked[-1], {"mask_mod", "score_mod", "sinks"})

    def test_call__that_is_not_computed_goes_to_the_fallback_and_is_counted(self):
        self.use(variant_reference.attention)
        self.call("kjit", dropout=0.5)
        self.assertEqual(transformers_attention.counts, {"dropout": 1})
        self.use(unsupported)
        out, exact = self.call("kjit")
        torch.testing.assert_close(out, exact)
        self.assertEqual(transformers_attention.counts, {"no kernel for this": 1})

    def test_fallback__of_a_position_bias_is_the_models_own(self):
        self.use(unsupported)
        bias = torch.randn(1, 4, 8, 8)
        own = types.SimpleNamespace(eager_attention_forward=lambda module, *tensors, **given: (given, None))
        with mock.patch.dict(sys.modules, {types.SimpleNamespace.__module__: own}):
            module = types.SimpleNamespace(is_causal=True, training=False)
            tensors = (torch.randn(1, 4, 8, 16) for _ in range(3))
            given, _ = AttentionInterface()["kjit"](module, *tensors, None, scaling=0.25, position_bias=bias)
        self.assertIs(given["position_bias"], bias)

    def test_fallback__can_be_refused(self):
        self.use(unsupported)
        transformers_attention.register("kjit_alone", fallback=None)
        for reason, options in (("no kernel for this", {}), ("dropout", {"dropout": 0.5})):
            with self.assertRaisesRegex(NotImplementedError, f"{reason}: not computed by kjit here"):
                self.call("kjit_alone", **options)

    def test_example__generates_what_sdpa_generates(self):
        self.use(in_sixteen_bits)
        found = load_example().compare("cpu", tokens=12)
        self.assertEqual((found["same_tokens"], found["tokens"]), (12, 12))
        self.assertLess(found["logit_difference"], 0.02 * found["largest_logit"] + 0.01)
        self.assertEqual(found["calls"], {"kjit": 4 * 12})  # layers, tokens


class Masks(WithTransformers):
    def mask(self, **given):
        given = {"batch_size": 2, "q_length": 8, "kv_length": 8, "device": "cpu", **given}
        first = given.get("q_offset", 0)
        return Mask({"cache_position": torch.arange(first, first + given["q_length"]), **given})  # of transformers 4

    def test_causal_mask__needs_no_function(self):
        self.assertEqual(self.mask().seen(8), (True, None))
        self.assertEqual(self.mask(q_length=1, q_offset=7).seen(8), (False, None))
        self.assertEqual(self.mask(attention_mask=torch.ones(2, 8, dtype=torch.bool)).seen(8), (True, None))

    def test_mask__takes_positions_as_transformers_4_gives_them(self):
        given = {"batch_size": 2, "kv_length": 8, "device": "cpu"}
        for first in (0, 3):
            mask = Mask({**given, "cache_position": torch.arange(first, 8)})
            self.assertEqual((mask.shape, mask.seen(8)), ((2, 1, 8 - first, 8), (True, None)))

    def test_mask__of_a_cache_that_is_not_full_is_a_function(self):
        for q_offset in (3, torch.tensor(3)):
            mask = self.mask(q_length=2, q_offset=q_offset)
            seen = mask.seen(8)
            self.assertFalse(seen.causal)
            bound = kjit.variant.bind(mask_mod=seen.mask_mod)
            row = [bound.evaluate(0, 0, 0, 1, k, seq_q=2, seq_kv=8).seen for k in range(8)]
            self.assertEqual(row, mask[0, 0, 1].tolist())
            self.assertEqual(sum(row), 5)

    def test_padding__on_one_side_is_a_row_interval(self):
        for lengths, side in (((3, 8), "left"), ((5, 1), "right")):
            keys = torch.arange(8).expand(2, 8)
            length = torch.tensor(lengths)[:, None]
            given = keys >= 8 - length if side == "left" else keys < length
            mask = self.mask(attention_mask=given)
            bound = kjit.variant.bind(mask_mod=mask.seen(8).mask_mod)
            self.assertEqual(bound.variant.info["intervals"], 1)
            for q in range(8):
                row = [bound.evaluate(0, 1, 0, q, k, seq_q=8, seq_kv=8).seen for k in range(8)]
                self.assertEqual(row, mask.tensor()[1, 0, q].tolist())

    def test_padding__in_the_middle_is_read_key_by_key(self):
        given = torch.tensor([[1, 0, 1, 1]], dtype=torch.bool)
        function = padding_function(given, 3, 1)
        self.assertEqual([bool(function(0, 0, 0, k)) for k in (1, 2, 3)], [False, True, True])
        self.assertIsNone(padding_function(given, 2, 2))

    def test_mask__is_a_tensor_for_models_that_look_into_it(self):
        mask = self.mask()
        exact = torch.ones(8, 8, dtype=torch.bool).tril().expand(2, 1, 8, 8)
        self.assertTrue(torch.equal(mask[:, :, :, :5], exact[..., :5]))
        self.assertTrue(torch.equal(torch.logical_not(mask), ~exact))
        self.assertEqual((mask.shape, mask.dtype, mask.ndim), ((2, 1, 8, 8), torch.bool, 4))


class Inline(WithTransformers):
    """A model that writes its attention out, as T5 does before transformers 5.15."""

    SOURCE = '''
import torch
from torch import nn


class T5Attention(nn.Module):
    dropout = 0.1

    def forward(self, hidden_states, bias=None, output_attentions=False, doubled=False, **options):
        q, k, v = hidden_states
        scores = torch.matmul(q, k.transpose(3, 2))
        scores += torch.zeros(scores.shape, device=scores.device, dtype=scores.dtype) if bias is None else bias
        weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        weights = nn.functional.dropout(weights, p=self.dropout, training=self.training)
        if doubled:
            weights = weights * 2
        return torch.matmul(weights, v), bias, weights
'''

    def setUp(self):
        name = "transformers.models.t5.modeling_t5"
        self.module = types.ModuleType(name)
        exec(self.SOURCE, self.module.__dict__)
        patch = mock.patch.dict(sys.modules, {name: self.module})
        patch.start()
        self.addCleanup(patch.stop)
        self.original = self.module.T5Attention.forward
        patch = mock.patch.dict(transformers_inline.CLASSES, {"t5": "T5Attention"}, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        self.inputs = [torch.randn(2, 4, length, 16) for length in (5, 7, 7)]
        self.bias = torch.randn(1, 4, 5, 7) + torch.tensor([0.0] * 6 + [-1e30])
        self.use(variant_reference.attention)
        self.counts = transformers_attention.counts

    def compare(self, training=False, **options):
        model = self.module.T5Attention().train(training)
        torch.manual_seed(0)
        exact = model(self.inputs, **options)
        transformers_inline.enable(self.counts)
        torch.manual_seed(0)
        found = model(self.inputs, **options)
        transformers_inline.disable()
        self.assertIsInstance(found[2], torch.Tensor)
        for one, other in zip(found, exact):
            torch.testing.assert_close(one, other)

    def test_attention__is_computed_by_kjit_and_counted(self):
        asked = self.record()
        self.compare(bias=self.bias)
        self.compare()
        self.assertEqual((self.counts, asked), ({"transformers": 2}, [{"bias"}, {"bias"}]))

    def test_attention__that_is_not_computed_is_pytorchs_and_counted(self):
        for reason, options in (
            ("dropout", {"training": True}),
            ("output_attentions", {"output_attentions": True}),
            ("layer_head_mask", {"layer_head_mask": torch.ones(4)}),
        ):
            self.counts.clear()
            self.compare(bias=self.bias, **options)
            self.assertEqual(self.counts, {reason: 1})
        self.use(unsupported)
        self.compare(bias=self.bias)
        self.assertEqual(self.counts, {"no kernel for this": 1})

    def test_weights__that_a_model_changes_are_tensors(self):
        self.compare(bias=self.bias, doubled=True)
        self.assertEqual(self.counts, {"scores that the model reads itself": 1})

    def test_disable__gives_the_model_its_own_forward_back(self):
        transformers_inline.enable(self.counts)
        transformers_inline.enable(self.counts)
        self.assertIsNot(self.module.torch, torch)
        transformers_inline.disable()
        self.assertIs(self.module.torch, torch)
        self.assertIs(self.module.T5Attention.forward, self.original)

    def test_mask__of_such_a_model_is_what_it_adds(self):
        config = types.SimpleNamespace(model_type="t5")
        given = {"batch_size": 2, "q_length": 8, "kv_length": 8, "device": "cpu", "dtype": torch.float32}
        given["cache_position"] = torch.arange(8)
        mask = transformers_attention.mask_interface(config=config, **given)
        self.assertTrue(torch.equal(mask, Mask(given).added(torch.float32)))


class Models(WithTransformers):
    """Each model in its smallest form, of random weights: what it generates with eager and with kjit."""

    def forward_counts(self, name):
        """What the calls of one forward() are counted as."""
        self.record()
        model = make(name)
        choose(model, "kjit")
        tokens = torch.randint(2, VOCABULARY, (2, PROMPT))
        with torch.no_grad():
            model(input_ids=tokens, decoder_input_ids=tokens[:, :5])
        return set(transformers_attention.counts), computed(model)

    def top_only(self):
        """set_attn_implementation() as transformers 5.15 to 5.19 have it: T5's parts have configs of their own."""

        def change(model, implementation, **options):
            model.config._attn_implementation_internal = implementation

        return mock.patch.object(PreTrainedModel, "set_attn_implementation", change)

    def test_use__reaches_every_part_of_a_model(self):
        self.assertEqual(*self.forward_counts("t5"))
        with self.top_only():
            self.assertEqual(*self.forward_counts("t5"))

    def test_use__of_eager_reaches_every_part_and_computes_nothing(self):
        self.record()
        model = make("umt5")
        with self.top_only():
            transformers_attention.use(model, "eager")
        parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
        self.assertEqual({part.config._attn_implementation for part in parts}, {"eager"})
        tokens = torch.randint(2, VOCABULARY, (2, PROMPT))
        with torch.no_grad():
            model(input_ids=tokens, decoder_input_ids=tokens[:, :5])
        self.assertEqual(dict(transformers_attention.counts), {})

    def test_use__of_an_unknown_name_says_what_to_do(self):
        with self.assertRaisesRegex(ValueError, r"call register\('nobody'\) first"):
            transformers_attention.use(make("t5"), "nobody")

    def compare(self, name, wanted, **inputs):
        asked = self.record()
        model = make(name)
        exact = generate(model, "eager", **inputs)
        counted = computed(model)
        found = generate(model, "kjit", **inputs)
        transformers_inline.disable()
        self.assertEqual(found.sequences.tolist(), exact.sequences.tolist())
        for one, other in zip(found.logits, exact.logits):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
        self.assertEqual(set(transformers_attention.counts), counted)
        if counted == {"kjit"}:
            self.assertEqual(set().union(*asked), wanted)

    def test_generate__is_that_of_eager(self):
        for name, model in MODELS.items():
            for padded in (False, True):
                with self.subTest(name, padded=padded):
                    self.compare(name, model.padded if padded else model.asked, padded=padded)

    def test_static_cache__is_read_by_its_function(self):
        self.compare("mistral", {"mask_mod"}, cache="static")

    def test_packed_sequences__see_themselves_alone(self):
        model = make("mistral")
        self.record()
        tokens = torch.randint(0, 50, (1, 20), generator=torch.Generator().manual_seed(2))
        positions = torch.cat((torch.arange(12), torch.arange(8)))[None]
        logits = []
        for implementation in ("eager", "kjit"):
            model.set_attn_implementation(implementation)
            with torch.no_grad():
                logits.append(model(tokens, position_ids=positions, use_cache=False).logits)
        torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-3)
        self.assertEqual(set(transformers_attention.counts), {"kjit"})


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
