"""kjit behind PyTorch's names without a GPU: the operators' kernels are put where tensors of the processor look, and
arithmetic stands in for kjit's calls."""

import sys
import types
import unittest
import warnings
from unittest import mock

import harness
import kjit
from kjit import enabling

try:
    import torch
except ImportError:
    torch = None
else:
    from torch.nn.attention import flex_attention as flex

    import variant_reference
    from kjit import _backward, _torch, _torch_variant

HAS_KERNELS = torch is not None and hasattr(torch.library, "get_kernel")


def dense(q, k, v, scale, causal, layout, out, return_lse, config):
    assert not torch.is_grad_enabled()
    result, lse = variant_reference.attention(q, k, v, scale=scale, causal=causal, layout=layout, return_lse=True)
    result = result if out is None else out.copy_(result)
    return (result, lse.float()) if return_lse else result


def biased(q, k, v, scale, causal, layout, out, return_lse, config, said, members):
    return out.copy_(variant_reference.attention(q, k, v, scale=scale, causal=causal, layout=layout, bias=members.bias))


@unittest.skipUnless(HAS_KERNELS, "PyTorch with torch.library.get_kernel is not here")
class Enabled(unittest.TestCase):
    def setUp(self):
        for module, name, value in (
            (enabling, "_KEY", "CPU"),
            (_torch, "attention", dense),
            (_torch_variant, "attention_variant", biased),
        ):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(kjit.disable)
        self.q, self.k, self.v = (torch.randn(1, 2, n, 16) for n in (6, 9, 9))
        self.q.requires_grad_(True)

    def flash(self, **options):
        return torch.ops.aten._scaled_dot_product_flash_attention(self.q, self.k, self.v, **options)

    def test_flash_operator__is_kjits_until_disable(self):
        kjit.enable()
        for causal in (False, True):
            out = self.flash(is_causal=causal, scale=0.3)[0]
            sdpa = torch.nn.functional.scaled_dot_product_attention
            torch.testing.assert_close(out, sdpa(self.q, self.k, self.v, is_causal=causal, scale=0.3))
        self.assertEqual(kjit.enabled_counts, {"sdpa": 2})
        if hasattr(torch.nn.attention, "current_flash_attention_impl"):
            self.assertEqual(torch.nn.attention.current_flash_attention_impl(), "kjit")
        kjit.disable()
        with self.assertRaises((NotImplementedError, RuntimeError)):
            self.flash()
        self.assertEqual(kjit.enabled_counts, {"sdpa": 2})

    def test_enable__prints_no_warning_of_what_it_replaces(self):
        def warn(name, *given, **named):
            warnings.warn(f"Warning only once.\n  Overriding a previously registered kernel\n  operator: {name}")
            warnings.warn("of something else")

        doors = types.SimpleNamespace(library=types.SimpleNamespace(impl=warn))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            enabling._Doors._put(doors, "some_operator", lambda: None)
        self.assertEqual([str(one.message) for one in said], ["of something else"])

    def test_masks__are_biases(self):
        kjit.enable()
        bias = torch.randn(1, 1, 6, 9)
        self.q.requires_grad_(False)
        call = torch.ops.aten._scaled_dot_product_efficient_attention
        out = call(self.q, self.k, self.v, bias, False)[0]
        exact = torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=bias)
        torch.testing.assert_close(out, exact)

    def test_what_is_not_computed__goes_on_and_is_counted(self):
        went = []

        class Original:
            @staticmethod
            def call_boxed(keys, *given, **named):
                went.append((given, named))
                return "PyTorch's"

        kernel = enabling._with_fallback(Original, enabling._flash)
        self.assertEqual(kernel(None, self.q, self.k, self.v, 0.5, scale=2.0), "PyTorch's")
        self.assertEqual((len(went), went[0][1]), (1, {"scale": 2.0}))
        self.assertEqual(enabling.enabled_counts["dropout"], 1)
        with mock.patch.object(_torch, "attention", side_effect=kjit.Unsupported("no kernel for this", status=1)):
            kernel(None, self.q, self.k, self.v)
        self.assertEqual(enabling.enabled_counts["no kernel for this"], 1)
        enabling._with_fallback(Original, enabling._flash)(None, self.k, self.q, self.q, 0.0, True)
        self.assertEqual(enabling.enabled_counts["causal attention with more queries than keys"], 1)

    def test_backward__has_zeros_for_keys_that_nobody_sees(self):
        given = []

        def backward(dout, dlse, q, k, v, out, lse, scale, causal, layout, wanted):
            given.append((k.shape, causal, layout))
            return torch.ones_like(q), torch.ones_like(k), torch.ones_like(v)

        with mock.patch.object(_backward, "backward", backward):
            dq, dk, dv = enabling._flash_backward(
                self.q, self.q, self.k, self.v, self.q, None, None, None, 6, 9, 0.0, True, None, None
            )
        self.assertEqual(given, [((1, 2, 6, 16), True, "bhsd")])
        self.assertEqual((dk.shape, dk[:, :, 6:].abs().sum(), dv[:, :, :6].mean()), (self.k.shape, 0, 1))

    def test_flex_attention__is_replaced_where_it_was_imported_and_comes_back(self):
        user = types.ModuleType("enabling_user")
        user.flex_attention = original = flex.flex_attention
        with mock.patch.dict(sys.modules, {"enabling_user": user}):
            kjit.enable(flex=True)
            self.assertIs(user.flex_attention, flex.flex_attention)
            self.assertIsNot(user.flex_attention, original)
            q, k, v = self.q.detach(), self.k, self.v
            torch.testing.assert_close(user.flex_attention(q, k, v), original(q, k, v))
            self.assertEqual(kjit.enabled_counts, {"tensors that are not on a GPU": 1})
            kjit.disable()
        self.assertIs(user.flex_attention, original)
        self.assertIs(flex.flex_attention, original)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
