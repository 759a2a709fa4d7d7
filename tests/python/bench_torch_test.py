"""The benchmarks' inputs and the peers' checks on the processor: float64 rows beside PyTorch's own attention."""

import importlib.util
import sys
import unittest
from unittest import mock

import harness
from attention_problems import Problem

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    import attention_calls
    import attention_inputs
    from gpu_clock import medians


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class OnProcessor(unittest.TestCase):
    def setUp(self):
        for target, name, value in (
            (attention_inputs, "DEVICE", "cpu"),
            (torch.cuda, "synchronize", lambda: None),
            (torch.cuda, "empty_cache", lambda: None),
        ):
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)


PROBLEMS = (
    Problem(2, 3, 3, 33, 70, 64, 64),
    Problem(2, 4, 4, 100, 100, 64, 64, True),
    Problem(1, 6, 2, 20, 50, 32, 64, True, "fp16"),
    Problem(2, 8, 1, 1, 90, 128, 128),
)


def by_pytorch(inputs):
    problem = inputs.problem
    seen = torch.ones(problem.seq_q, problem.seq_kv, dtype=torch.bool)
    seen = seen.tril(problem.seq_kv - problem.seq_q) if problem.causal else seen
    return scaled_dot_product_attention(*inputs.bhsd, attn_mask=seen, enable_gqa=True).transpose(1, 2)


class Inputs(OnProcessor):
    def test_error__of_pytorchs_attention_is_allowed(self):
        for problem in PROBLEMS:
            inputs = attention_inputs.Inputs(problem)
            out = by_pytorch(inputs)
            self.assertEqual(out.shape, inputs.empty_out().shape)
            error = inputs.error(out)
            self.assertTrue(inputs.is_right(error), f"{problem}: {error} {inputs.allowed}")

    def test_error__of_what_is_wrong_is_not_allowed(self):
        for problem in PROBLEMS:
            inputs = attention_inputs.Inputs(problem)
            out = by_pytorch(inputs)
            for wrong in (out + 0.1, out.roll(1, dims=2) if problem.heads_q > 1 else out * 2, out * float("nan")):
                self.assertFalse(inputs.is_right(inputs.error(wrong)), problem)


class Calls(OnProcessor):
    def prepared(self, problem, **peers):
        return attention_calls.prepare(attention_inputs.Inputs(problem), peers)

    def test_prepare__keeps_who_is_right_and_says_why_others_are_not(self):
        def missing(inputs):
            raise ModuleNotFoundError("No module named 'flash'\nand more")

        def full(inputs):
            raise torch.OutOfMemoryError("too much")

        runs, reasons = self.prepared(
            PROBLEMS[0],
            right=lambda inputs: lambda: by_pytorch(inputs),
            wrong=lambda inputs: lambda: by_pytorch(inputs) + 1,
            missing=missing,
            full=full,
        )
        self.assertEqual(list(runs), ["right"])
        self.assertRegex(reasons.pop("wrong"), r"^WRONG: error 1\.?\d*, allowed 0\.\d+")
        self.assertEqual(reasons, {"missing": "ModuleNotFoundError: No module named 'flash'", "full": "out of memory"})

    def test_pytorchs_flash__takes_both_masks_and_groups(self):
        for problem in (PROBLEMS[0], PROBLEMS[1], PROBLEMS[3]):
            runs, reasons = self.prepared(problem, FA2=attention_calls.PEERS["FA2"])
            self.assertEqual((list(runs), reasons), (["FA2"], {}), problem)

    def test_pytorchs_causal_mask__is_not_ours_where_lengths_differ(self):
        _, reasons = self.prepared(PROBLEMS[2], FA2=attention_calls.PEERS["FA2"])
        self.assertEqual(reasons, {"FA2": "NotImplementedError: its causal mask is aligned top left"})


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Medians(unittest.TestCase):
    def test_medians__leave_out_who_has_no_time(self):
        self.assertEqual(medians({"a": [3.0, 1.0, 2.0], "b": []}), {"a": 2.0})


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
