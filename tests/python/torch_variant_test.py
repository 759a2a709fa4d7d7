"""Attention variants on PyTorch tensors without a GPU: tensors of the processor's memory that are said to be device
0's, and a driver that only counts. What is launched, what is read again, what torch.compile sees. What a kernel
computes is gpu_variants.py's."""

import ctypes
import functools
import gc
import os
import sys
import unittest
import weakref
from unittest import mock

import harness
import kjit
from kjit import variant

try:
    import torch
except ImportError:
    torch = None
else:
    from torch.nn.attention import flex_attention as flex

    from kjit import _backward, _kept, _torch, _torch_variant
    from kjit.variant import from_functions, tensor_view

DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])
DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool", "bfloat16")


def problem(batch=1, seq_q=16, seq_kv=32, heads=2, head_dim=64):
    shapes = ((batch, seq_q, heads, head_dim), *((batch, seq_kv, heads, head_dim),) * 2)
    return [torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes]


def on_device(tensor):
    view = tensor_view(tensor)
    view.device = 0
    return view


def kept_variants():
    """What variants added to the calls that are prepared."""
    return [call.kept.shared.kept[1] for call in _torch._calls.variants.values()]


@unittest.skipIf(torch is None, "PyTorch is not installed")
class OnFakeDevice(unittest.TestCase):
    def setUp(self):
        if kjit.doctor()["nvrtc_status"] != 0:
            self.skipTest("NVRTC is not installed")
        view = _torch._view
        for module, name, value in (
            (_torch, "_view", lambda t: view(t)._replace(device=0)),
            (_torch, "_raw_stream", lambda device: 0x5500),
            (_torch_variant, "tensor_view", on_device),
        ):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        _torch._calls.__dict__.clear()
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(1))
        self.before = DRIVER.asked_launches()

    def launched(self):
        return DRIVER.asked_launches() - self.before


class Calls(OnFakeDevice):
    def test_call__again_is_found_prepared(self):
        q, k, v = problem()
        sinks, bias = torch.zeros(2), torch.zeros(1, 2, 16, 32)
        for size in (3, 4, 5):
            kjit.attention(q, k, v, mask_mod=lambda b, h, i, j: i - j <= size)  # noqa: B023
            kjit.attention(q, k, v, window=(3, 0), sinks=sinks, return_lse=True)
            kjit.attention(q, k, v, bias=bias, softcap=2.0)
        self.assertEqual((len(_torch._calls.variants), self.launched()), (3, 9))

    def test_call__reads_the_numbers_and_tensors_of_each_time(self):
        q, k, v = problem()
        for size in (3, 9):
            slope = torch.rand(2)
            kjit.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slope[h] * (size * j))  # noqa: B023
            (prepared,) = kept_variants()
            self.assertEqual((prepared.scalars[0], prepared.views[0].data), (size, slope.data_ptr()))

    def test_block_lists__are_those_of_each_call(self):
        q, k, v = problem(seq_q=128, seq_kv=256)
        for seed in (1, 2):
            mask = flex.create_block_mask(lambda b, h, i, j: i >= j - seed, 1, 2, 128, 256, device="cpu")  # noqa: B023
            kjit.attention(q, k, v, blocks=mask)
            (prepared,) = kept_variants()
            self.assertEqual(prepared.lists.counts.data, mask.kv_num_blocks.data_ptr())
            self.assertEqual(prepared.lists.full_indices.data, mask.full_kv_indices.data_ptr())

    def test_captured_tensors__may_be_of_any_type_of_numbers(self):
        q, k, v = problem()
        for name in DTYPES:
            table = torch.ones(16, 40).to(getattr(torch, name))[:, ::3]
            kjit.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + table[i, j])  # noqa: B023
        self.assertEqual(self.launched(), len(DTYPES))
        with self.assertRaisesRegex(TypeError, "a tensor of complex64"):
            table = torch.ones(16, 16, dtype=torch.complex64)
            kjit.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + table[i, j])

    def test_tensors__that_were_captured_are_not_kept(self):
        q, k, v = problem()

        def call():
            slope = torch.rand(2)
            kjit.attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slope[h])
            return weakref.ref(slope)

        gone = call()
        gc.collect()
        self.assertIsNone(gone())

    def test_flex_attention__names_what_is_no_block_mask(self):
        q = torch.zeros(1, 2, 16, 64, dtype=torch.bfloat16)
        for wrong, kind in (("causal", "str"), (torch.ones(16, 16), "Tensor"), (lambda b, h, q, k: q >= k, "function")):
            with self.assertRaisesRegex(TypeError, f"^block_mask is a {kind}: must be a BlockMask, or None"):
                kjit.flex_attention(q, q, q, block_mask=wrong)

    def test_flex_attention__gives_what_is_asked_for(self):
        q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in problem(seq_q=128, seq_kv=128))
        mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
        out, aux = kjit.flex_attention(q, k, v, block_mask=mask, return_aux=flex.AuxRequest(lse=True))
        self.assertEqual((out.shape, aux.lse.shape), (q.shape, q.shape[:3]))


class KeptBlocks(OnFakeDevice):
    """Blocks that are found for a BlockMask are found once, while nothing that they follow from has changed."""

    def setUp(self):
        super().setUp()
        _kept._masks.known.clear()
        self.q, self.k, self.v = (tensor.transpose(1, 2).contiguous() for tensor in problem(seq_q=300, seq_kv=300))
        self.doc = torch.zeros(300, dtype=torch.int32)
        self.mask = self.made()

    def made(self):
        same = lambda b, h, i, j: self.doc[i] == self.doc[j]  # noqa: E731
        return flex.create_block_mask(same, None, None, 300, 300, device="cpu")

    def kernels(self, mask=None, **options):
        """How many kernels a call launches: those that find blocks, and attention's own."""
        before = self.launched()
        kjit.flex_attention(self.q, self.k, self.v, block_mask=mask or self.mask, **options)
        return self.launched() - before

    def assert_kept(self, **options):
        self.assertEqual([self.kernels(**options) for _ in range(4)], [3, 3, 1, 1])

    def test_blocks__are_found_once(self):
        self.assert_kept()

    def test_blocks__are_found_again_when_what_they_are_found_from_is_written(self):
        self.assert_kept()
        for written in (self.doc, self.mask.kv_indices, self.mask.full_kv_num_blocks):
            written.add_(0)
            self.assertEqual([self.kernels(), self.kernels()], [3, 1])

    def test_blocks__are_found_again_when_a_tensor_is_another(self):
        self.assert_kept()
        self.doc = self.doc.clone()
        self.assertEqual([self.kernels(), self.kernels()], [3, 1])
        self.mask.kv_indices = self.mask.kv_indices.clone()
        self.assertEqual([self.kernels(), self.kernels()], [3, 1])

    def test_blocks__are_those_of_each_mask(self):
        other = self.made()
        self.assert_kept()
        self.assertEqual([self.kernels(other) for _ in range(4)], [3, 3, 1, 1])
        self.assertEqual([self.kernels(), self.kernels(other)], [1, 1])

    def test_blocks__are_those_of_each_stream(self):
        self.assert_kept()
        with mock.patch.object(_torch, "_raw_stream", lambda device: 0x6600), \
             mock.patch.object(torch.Tensor, "get_device", lambda tensor: 0):  # fmt: skip
            self.assertEqual(len(_kept._masks.states(self.mask)), 1)
            state = _kept.state_of(self.mask, "cpu", 0x6600, ())
        self.assertEqual((len(_kept._masks.states(self.mask)), state[0].item()), (2, 0))

    def test_blocks__of_another_size_are_found_again(self):
        self.assert_kept()
        self.q = torch.cat([self.q, self.q])
        self.k, self.v = torch.cat([self.k, self.k]), torch.cat([self.v, self.v])
        self.assertEqual(self.kernels(), 3)
        self.assertEqual(self.kernels(), 1)

    def test_blocks__are_found_anew_where_that_is_asked_for(self):
        options = {"kernel_options": {"BLOCKS": "anew"}}
        self.assertEqual([self.kernels(**options) for _ in range(4)], [3, 3, 3, 3])

    def test_blocks__of_tensors_of_inference_mode_are_found_anew(self):
        with torch.inference_mode():
            mask = self.made()
            self.assertEqual([self.kernels(mask) for _ in range(4)], [3, 3, 3, 3])

    def calls(self, **options):
        """How many kernels each of four calls of a text launches."""
        launched = []
        for _ in range(4):
            before = self.launched()
            kjit.attention(self.q, self.k, self.v, **options)
            launched.append(self.launched() - before)
        return launched

    def test_blocks__of_a_text_without_tensors_are_found_once_for_its_numbers_and_sizes(self):
        text = "abs(q // width - k // width) <= 1 and q % 2 == k % 2"
        self.assertEqual(self.calls(mask=text, params={"width": 8}), [2, 2, 1, 1])
        self.assertEqual(self.calls(mask=text, params={"width": 9}), [2, 2, 1, 1])
        self.k, self.v = torch.cat([self.k, self.k], 1), torch.cat([self.v, self.v], 1)
        self.assertEqual(self.calls(mask=text, params={"width": 8}), [2, 2, 1, 1])
        self.assertEqual(self.calls(mask_mod=lambda b, h, i, j: (i % 2) == (j % 2)), [2, 2, 1, 1])

    def test_blocks__of_a_text_that_reads_a_tensor_are_found_anew(self):
        self.assertEqual(self.calls(mask="doc[q] == doc[k]", tensors={"doc": self.doc}), [2, 2, 2, 2])

    def test_blocks__of_row_intervals_are_not_kept(self):
        self.assertEqual(self.calls(mask="q >= k"), [1, 1, 1, 1])
        self.assertEqual(len(_kept._masks.known), 0)

    def test_blocks__of_the_operator_are_kept_with_its_lists(self):
        def call(q):
            return kjit.flex_attention(q, self.k, self.v, block_mask=self.mask)

        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
        compiled(self.q)
        launches = []
        for _ in range(3):
            before = self.launched()
            compiled(self.q)
            launches.append(self.launched() - before)
        self.assertEqual(launches, [3, 1, 1])
        torch.compiler.reset()
        del self.mask, compiled, call
        gc.collect()
        self.assertEqual(len(_kept._masks.known), 0)

    def test_blocks__without_memory_are_found_anew(self):
        def refuse(*shape, **options):
            raise torch.OutOfMemoryError

        with mock.patch.object(torch, "empty", refuse):
            self.assertEqual([self.kernels() for _ in range(3)], [3, 3, 3])
        self.assertEqual([self.kernels() for _ in range(2)], [3, 1])

    def test_blocks__go_with_their_mask(self):
        self.assert_kept()
        (state,) = _kept._masks.states(self.mask).values()
        memory = weakref.ref(state.memory)
        del state, self.mask
        gc.collect()
        self.assertIsNone(memory())
        self.assertEqual(len(_kept._masks.known), 0)


def told(args):
    """The data of the first gradient, the length of the second, and the flags of a backward call."""
    return args.variant_gradients[0].data, args.variant_gradients[1].shape[0], args.flags


class Gradients(OnFakeDevice):
    def setUp(self):
        super().setUp()
        self.q, self.k, self.v = (tensor.requires_grad_(True) for tensor in problem())

    def test_backward__is_one_call_of_the_kernels(self):
        slope, sinks = torch.rand(2), torch.zeros(2, requires_grad=True)
        functions = dict(score_mod=lambda s, b, h, i, j: s + slope[h] * (j - i), mask_mod=lambda b, h, i, j: i >= j)
        out = kjit.attention(self.q, self.k, self.v, sinks=sinks, **functions)
        before = self.launched()
        out.sum().backward()
        self.assertEqual((before, self.launched() - before), (1, 2))
        shapes = [tensor.grad.shape for tensor in (self.q, self.k, self.v, sinks)]
        self.assertEqual(shapes, [self.q.shape, self.k.shape, self.v.shape, (2,)])

    def test_members__have_gradients_too(self):
        bias = torch.zeros(1, 2, 16, 32)
        kjit.attention(self.q, self.k, self.v, window=(7, 0), softcap=3.0, bias=bias, return_lse=True)[
            1
        ].sum().backward()
        self.assertEqual((self.launched(), self.q.grad.shape), (3, self.q.shape))

    def test_what_scores_read__has_gradients(self):
        """The forward kernel, and backward the pass for what is read before the two for q, k and v."""
        table = torch.zeros(32, dtype=torch.bfloat16, requires_grad=True)
        bias, slopes = torch.zeros(1, 2, 1, 32, requires_grad=True), torch.zeros(2, requires_grad=True)
        cap = torch.tensor(3.0, requires_grad=True)
        for tensor, options in (
            (table, dict(score_mod=lambda s, b, h, i, j: s + table[j])),
            (table, dict(score="score + t[k]", tensors={"t": table})),
            (cap, dict(score="c * tanh(score / c)", mask="q >= k", tensors={"c": cap})),
            (bias, dict(bias=bias)),
            (slopes, dict(alibi_slopes=slopes, window=(5, 0), causal=True)),
        ):
            for inputs, launches in (((self.q, self.k, self.v), 4), (problem(), 2)):
                before = self.launched()
                out = kjit.attention(*inputs, **options)
                (gradient,) = torch.autograd.grad(out.float().sum(), tensor)
                self.assertEqual((gradient.shape, gradient.dtype), (tensor.shape, tensor.dtype))
                self.assertEqual(self.launched() - before, launches)

    def test_what_scores_read__is_what_the_kernels_get(self):
        t, slope = torch.zeros(32, requires_grad=True), torch.zeros(2)
        seen = []
        launch = _backward._launch
        with mock.patch.object(_backward, "_launch", lambda args, q: (seen.append(told(args)), launch(args, q))):
            out = kjit.attention(self.q, self.k, self.v, score="score + s[h] + t[k]", tensors={"s": slope, "t": t})
            out.float().sum().backward()
        self.assertEqual(seen, [(None, 32, 0)])
        self.assertEqual(t.grad.shape, (32,))

    def test_what_has_no_gradient__is_named(self):
        bias = torch.zeros(1, 2, 16, 32, requires_grad=True)
        out = kjit.attention(self.q, self.k, self.v, bias=bias)
        torch.use_deterministic_algorithms(True)
        try:
            with self.assertRaisesRegex(NotImplementedError, "alibi_slopes, bias, captured tensors"):
                out.sum().backward()
        finally:
            torch.use_deterministic_algorithms(False)
        number = torch.tensor(2.5, requires_grad=True)
        with self.assertRaisesRegex(TypeError, "torch_variant_test.py:[0-9]+: .*requires a gradient, and is read as"):
            kjit.attention(self.q, self.k, self.v, score_mod=lambda s, b, h, i, j: s * number)
        mask = flex.create_block_mask(lambda b, h, i, j: i >= j, 1, 2, 16, 32, device="cpu")
        with self.assertRaisesRegex(NotImplementedError, "lists of blocks have no gradients"):
            kjit.attention(self.q, self.k, self.v, blocks=mask)

    def test_gradients__are_traced_in_one_graph(self):
        def loss(q, k, v):
            return kjit.attention(q * 2, k, v, mask_mod=lambda b, h, i, j: i - j <= 5).float().square().sum()

        torch._dynamo.reset()
        torch.compile(loss, fullgraph=True, backend="aot_eager")(self.q, self.k, self.v).backward()
        self.assertEqual((self.launched(), self.q.grad.shape), (3, self.q.shape))

    def test_gradients__of_what_is_read_are_traced_in_one_graph(self):
        bias, slope = torch.zeros(1, 2, 16, 32, requires_grad=True), torch.zeros(2, requires_grad=True)

        def loss(q, k, v, bias, slope):
            one = kjit.attention(q * 2, k, v, score_mod=lambda s, b, h, i, j: s + slope[h] * (j - i))
            return (one + kjit.attention(q, k, v, bias=bias * 2)).float().square().sum()

        torch._dynamo.reset()
        torch.compile(loss, fullgraph=True, backend="aot_eager")(self.q, self.k, self.v, bias, slope).backward()
        self.assertEqual((bias.grad.shape, slope.grad.shape, self.launched()), (bias.shape, slope.shape, 8))

    def test_gradients__of_gradients_are_refused(self):
        out = kjit.attention(self.q, self.k, self.v, window=(3, 0))
        (dq,) = torch.autograd.grad(out.sum(), self.q, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "no second derivative"):
            dq.sum().backward()

    def test_sink_gradient__is_autograds(self):
        import variant_reference

        q, k, v = (torch.randn(2, n, 2, 8, dtype=torch.float64) for n in (5, 7, 7))
        sinks = torch.randn(2, dtype=torch.float64, requires_grad=True)
        out, lse = variant_reference.attention(q, k, v, sinks=sinks, causal=True, return_lse=True)
        dout, dlse = torch.randn_like(out), torch.randn_like(lse)
        (exact,) = torch.autograd.grad((out, lse), sinks, (dout, dlse))
        found = _torch_variant._sink_gradient(dout, dlse, out.detach(), lse.detach(), sinks.detach(), "bshd")
        torch.testing.assert_close(found, exact, check_dtype=False, rtol=1e-4, atol=1e-5)


class Recalled(OnFakeDevice):
    """A function that comes again is not traced again, and one that sees something else is."""

    def traces(self, *functions):
        traced = mock.Mock(wraps=variant._trace_functions)
        with mock.patch.object(variant, "_trace_functions", traced):
            values = [from_functions(None, function) for function in functions]
        return traced.call_count, values

    def test_functions__made_alike_are_traced_once(self):
        doc = torch.zeros(16, dtype=torch.int32)

        def make(size):
            return lambda b, h, i, j: (doc[i] == doc[j]) & (i - j <= size)

        count, (one, other, third) = self.traces(make(5), make(5), make(6))
        self.assertEqual(count, 2)
        self.assertIs(one.variant, other.variant)
        self.assertIs(one.variant, third.variant)
        self.assertEqual((one.values, other.values, third.values), ((5,), (5,), (6,)))
        self.assertIs(other.tensors[0], doc)

    def test_combined_masks__are_traced_once(self):
        def causal(b, h, i, j):
            return i >= j

        def window(b, h, i, j):
            return i - j < 7

        count, _ = self.traces(*(flex.and_masks(causal, window) for _ in range(3)))
        self.assertEqual(count, 1)

    def test_what_can_change_without_a_sign__is_read_each_time(self):
        class Options:
            size = 3

        options, sizes, lengths = Options(), [3], torch.tensor([3])

        def by_list(b, h, i, j):
            return j < sizes[0]

        for function, change in (
            (lambda b, h, i, j: j < options.size, lambda: setattr(options, "size", 4)),
            (lambda b, h, i, j: j < Options.size, lambda: setattr(Options, "size", 4)),
            (by_list, lambda: sizes.__setitem__(0, 4)),
            (lambda b, h, i, j: j < int(lengths[0]), lambda: lengths.add_(1)),
            (lambda b, h, i, j: j < lengths.sum(), lambda: lengths.sub_(2)),
        ):
            before = self.traces(function)[1][0]
            change()
            count, (after,) = self.traces(function)
            self.assertEqual(count, 1)
            self.assertNotEqual((before.variant.mask, before.values), (after.variant.mask, after.values))

    def test_globals__are_looked_at(self):
        names = {"SIZE": 3}
        exec("def mask(b, h, i, j):\n    return j < SIZE", names)
        self.assertEqual(self.traces(names["mask"])[1][0].values, (3,))
        names["SIZE"] = 8
        self.assertEqual(self.traces(names["mask"])[1][0].values, (8,))

    def test_tensor__of_the_same_id_is_another(self):
        def make():
            table = torch.zeros(16)
            return lambda b, h, i, j: table[i] > j

        for _ in range(20):
            (bound,) = self.traces(make())[1]
            self.assertEqual(len(bound.tensors), 1)
            self.assertIsNotNone(bound.tensors[0])


class Compiled(OnFakeDevice):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()

    def compiled(self, function, *inputs, **options):
        """What torch.compile makes of it in one graph, and the operators in that."""
        nodes = []

        def backend(module, example_inputs):
            nodes.extend(node for node in module.graph.nodes if node.op == "call_function")
            return module.forward

        result = torch.compile(function, fullgraph=True, backend=backend, **options)(*inputs)
        return result, [node for node in nodes if str(node.target) == "kjit.attention_variant"]

    def test_flex_attention__is_one_operator(self):
        q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in problem(seq_q=128, seq_kv=128))
        doc, slope = torch.zeros(1, 128, dtype=torch.int64), torch.rand(2, dtype=torch.float16)

        def mask_mod(b, h, i, j):
            return (doc[b, i] == doc[b, j]) & (i >= j)

        mask = flex.create_block_mask(mask_mod, 1, None, 128, 128, device="cpu")

        def block(q, k, v, slope, mask):
            def score_mod(s, b, h, i, j):
                return 30.0 * torch.tanh(s / 30.0) + slope[h] * (j - i)

            return kjit.flex_attention(q * 2, k, v, score_mod, mask, return_lse=True)

        (out, lse), nodes = self.compiled(block, q, k, v, slope, mask)
        self.assertEqual((out.shape, lse.shape, len(nodes)), (q.shape, q.shape[:3], 1))
        eager = variant.read(
            None, None, lambda s, b, h, i, j: 30.0 * torch.tanh(s / 30.0) + slope[h] * (j - i), mask_mod
        )
        self.assertEqual(nodes[0].args[8:10], (eager.score, eager.mask))

    def test_functions__are_read_as_python_reads_them(self):
        import variant_test

        q, k, v = problem(batch=2, seq_q=96, seq_kv=96, heads=4)
        masks, scores = variant_test.cases()
        kinds = [("mask_mod", name, function) for name, function in masks.items()]
        kinds += [("score_mod", name, function) for name, function in scores.items()]
        for kind, name, function in kinds:
            if name not in COMPILED:
                continue
            with self.subTest(name):
                torch._dynamo.reset()
                functions = {kind: function}
                _, nodes = self.compiled(lambda q, k, v: kjit.attention(q, k, v, **functions), q, k, v)  # noqa: B023
                eager = variant.read(**functions)
                self.assertEqual(nodes[0].args[8:10], (eager.score, eager.mask))

    def test_numbers_of_texts__that_change_do_not_compile_again(self):
        q, k, v = problem()
        compiles = []

        def backend(module, example_inputs):
            compiles.append(module)
            return module.forward

        def block(q, k, v, size):
            return kjit.attention(q, k, v, mask="q - k <= size and q >= k", params={"size": size})

        function = torch.compile(block, fullgraph=True, backend=backend)
        for size in range(5, 12):
            function(q, k, v, size)
            (prepared,) = kept_variants()
            self.assertEqual(prepared.scalars[0], size)
        self.assertEqual(len(compiles), 2)  # the second has the number as an input

    def test_members_and_texts__are_operators_too(self):
        q, k, v = problem()
        sinks, bias = torch.zeros(2), torch.zeros(1, 1, 16, 32, dtype=torch.bfloat16)

        def block(q, k, v):
            one = kjit.attention(q, k, v, window=(7, 0), softcap=3.0, sinks=sinks, bias=bias)
            text = dict(mask="q -\n k <= size", score="cap * tanh(score / cap)", params={"size": 3, "cap": 2.5})
            return one + kjit.attention(q, k, v, **text)

        _, nodes = self.compiled(block, q, k, v)
        self.assertEqual((len(nodes), self.launched(), nodes[1].args[9]), (2, 2, "q -  k <= size"))
        self.assertEqual(len(_torch._calls.variants), 2)

    def test_texts__of_strangers_are_one_line_of_the_program(self):
        """Inductor writes a node as it is printed here into a comment of its program, and compiles that."""
        read = torch.ones(32)
        for end in ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"):
            code = f"{end}raise SystemExit(7){end}#"
            texts = {
                "score": f"score * c{code}", "mask": f"t[q] > w{code}", "config": f"flash_forward{code}",
                "params": {f"w{code}": 3, f"c{code}": 0.5},
            }  # fmt: skip
            with self.subTest(end=end):
                call = functools.partial(kjit.attention, **texts)
                lines = self.printed(lambda q, k, v: call(q, k, v, tensors={f"t{code}": read}))  # noqa: B023
                self.assertEqual([line.count("SystemExit") for line in lines], [6])
                lines = self.printed(functools.partial(kjit.attention, config=texts["config"]))
                self.assertEqual([line.count("SystemExit") for line in lines], [1])

    def printed(self, function):
        """The lines of the operator's node in the program, which is not run."""
        torch._dynamo.reset()
        lines = []

        def backend(module, example_inputs):
            for node in module.graph.nodes:
                if str(node.target).startswith("kjit."):
                    lines.extend(node.format_node().splitlines())
            raise NotImplementedError

        with self.assertRaises(Exception):
            torch.compile(function, fullgraph=True, backend=backend)(*problem())
        return lines

    def test_block_lists__are_inputs_of_the_operator(self):
        q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in problem(seq_q=256, seq_kv=256))
        counts = torch.ones(1, 1, 2, dtype=torch.int32)
        indices = torch.zeros(1, 1, 2, 2, dtype=torch.int32)
        mask = flex.BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=128)
        _, nodes = self.compiled(lambda q, k, v, mask: kjit.flex_attention(q, k, v, block_mask=mask), q, k, v, mask)
        self.assertEqual((len(nodes), self.launched()), (1, 3))  # the states of blocks, the lists, attention

    def test_fake__tells_shapes_without_a_call(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            q, k, v = problem()
            sinks = torch.zeros(2)
            out, lse = kjit.attention(q, k, v[..., :32], sinks=sinks, mask="q >= k", return_lse=True)
            self.assertEqual((out.shape, lse.shape, out.dtype), ((1, 16, 2, 32), (1, 2, 16), torch.bfloat16))
        self.assertEqual(self.launched(), 0)

    def test_operator__passes_pytorchs_own_checks(self):
        arguments = (
            *problem(), None, False, "bshd", "", True, "score + c * t[k]", "q - k <= w", ["w"], [7], ["c"], [0.5],
            ["t"], [torch.zeros(32)], torch.zeros(2), None, None, [], [0] * 6, 0.0,
        )  # fmt: skip
        operator = torch.ops.kjit.attention_variant.default
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


#: Functions with one of each thing that a trace meets; each takes torch.compile a second or more.
COMPILED = ("window", "flamingo", "top-k, by slice", "bool of where", "alibi", "bias, chained", "clamp")


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
