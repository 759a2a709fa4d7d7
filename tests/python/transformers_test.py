"""The registration with transformers and the example, with plain arithmetic in the place of kjit's call."""

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
    from torch.nn.functional import scaled_dot_product_attention
    from transformers import AttentionInterface

    from kjit import transformers_attention


def stand_in(q, k, v, *, scale, causal):
    """What kjit.attention computes; causal is aligned bottom right."""
    seq_q, seq_kv = q.shape[1], k.shape[1]
    heads = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    seen = torch.ones(seq_q, seq_kv, dtype=torch.bool).tril(seq_kv - seq_q) if causal else None
    return scaled_dot_product_attention(*heads, attn_mask=seen, scale=scale, enable_gqa=True).transpose(1, 2)


def unsupported(*tensors, **options):
    raise kjit.Unsupported("no kernel for this", status=1)


def load_example():
    path = HERE.parents[1] / "python" / "examples" / "transformers_generate.py"
    spec = importlib.util.spec_from_file_location("transformers_generate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Transformers(unittest.TestCase):
    def use(self, call):
        patch = mock.patch.object(transformers_attention, "attention", call)
        patch.start()
        self.addCleanup(patch.stop)
        transformers_attention.counts.clear()

    def call(self, name, seq_q=8, mask=None, **options):
        q, k, v = (torch.randn(1, heads, seq, 16) for heads, seq in ((4, seq_q), (2, 8), (2, 8)))
        module = types.SimpleNamespace(is_causal=True, num_key_value_groups=2, training=False)
        options.setdefault("scaling", 0.25)
        attention = AttentionInterface()[name]
        out, weights = attention(module, q, k, v, mask, **options)
        self.assertIsNone(weights)
        causal = seq_q > 1 and options.get("is_causal") is not False
        exact = stand_in(*(tensor.transpose(1, 2) for tensor in (q, k, v)), scale=0.25, causal=causal)
        return out, exact

    def test_call__has_the_layout_and_the_mask_of_the_model(self):
        self.use(stand_in)
        transformers_attention.register()
        for options in ({}, {"seq_q": 1}, {"is_causal": False}):
            out, exact = self.call("kjit", **options)
            torch.testing.assert_close(out, exact)
            self.assertTrue(out.is_contiguous())
        self.assertEqual(transformers_attention.counts, {"kjit": 3})

    def test_call__that_is_not_computed_goes_to_the_fallback_and_is_counted(self):
        self.use(stand_in)
        transformers_attention.register()
        self.call("kjit", mask=torch.ones(1, 1, 8, 8, dtype=torch.bool))
        self.call("kjit", dropout=0.5)
        self.assertEqual(transformers_attention.counts, {"attention_mask": 1, "dropout": 1})
        self.use(unsupported)
        out, exact = self.call("kjit")
        torch.testing.assert_close(out, exact)
        self.assertEqual(transformers_attention.counts, {"no kernel for this": 1})

    def test_fallback__can_be_refused(self):
        self.use(unsupported)
        transformers_attention.register("kjit_alone", fallback=None)
        for reason, options in (
            ("no kernel for this", {}),
            ("dropout", {"dropout": 0.5}),
            ("softcap", {"softcap": 30.0}),
        ):
            with self.assertRaisesRegex(NotImplementedError, f"{reason}: not computed by kjit here"):
                self.call("kjit_alone", **options)

    def test_example__generates_what_sdpa_generates(self):
        self.use(stand_in)
        found = load_example().compare("cpu", tokens=12)
        self.assertEqual((found["same_tokens"], found["tokens"]), (12, 12))
        self.assertLess(found["logit_difference"], 0.02 * found["largest_logit"] + 0.01)
        self.assertEqual(found["calls"], {"kjit": 4 * 12})  # layers, tokens


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
