"""Attention on PyTorch tensors on a GPU: right, ordered by streams, capturable, traceable, thread-safe."""

import gc
import random
import threading
import unittest

import kjit
from kjit import flash_attn_interface

try:
    import torch
except ImportError:
    torch = None

DEVICE = "cuda"
HAS_GPU = torch is not None and torch.cuda.is_available()


def needs_gpu(kind):
    return unittest.skipUnless(HAS_GPU, "PyTorch with a GPU is not here")(kind)


def randn(*shape, dtype=None, device=DEVICE):
    return torch.randn(shape, device=device, dtype=dtype or torch.bfloat16)


def problem(batch=2, seq_q=65, seq_kv=130, heads=3, head_dim=64, dtype=None, device=DEVICE, heads_kv=None):
    """(batch, seq, heads, head_dim) tensors."""
    shapes = ((batch, seq_q, heads, head_dim), *((batch, seq_kv, heads_kv or heads, head_dim),) * 2)
    return [randn(*shape, dtype=dtype, device=device) for shape in shapes]


def reference(q, k, v, scale=None, causal=False):
    """Output and log-sum-exp in float64, and the output as 16-bit arithmetic has it. Layout bshd."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    k, v = (tensor.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for tensor in (k, v))
    hidden = torch.zeros(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device)
    if causal:
        hidden = torch.ones_like(hidden).triu(1 + k.shape[1] - q.shape[1])
    scores = (torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) * scale).masked_fill(hidden, -torch.inf)
    weights = scores.softmax(-1).nan_to_num()  # a row that sees no key is zero
    exact = torch.einsum("bhqk,bkhd->bqhd", weights, v.double())
    scores16 = (torch.einsum("bqhd,bkhd->bhqk", q, k) * scale).float().masked_fill(hidden, -torch.inf)
    weights16 = scores16.softmax(-1).nan_to_num().to(q.dtype)
    return exact, scores.logsumexp(-1), torch.einsum("bhqk,bkhd->bqhd", weights16, v)


class Attention(unittest.TestCase):
    def check(self, out, q, k, v, scale=None, lse=None, what="", causal=False):
        """FlashAttention's rule: no further from float64 than twice 16-bit arithmetic, and one rounding."""
        exact, exact_lse, rounded = reference(q, k, v, scale, causal)
        allowed = 2 * (rounded.double() - exact).abs().max() + torch.finfo(q.dtype).eps * exact.abs().max()
        error = (out.double() - exact).abs().max()
        self.assertTrue(torch.isfinite(out).all(), f"{what}: not finite")
        self.assertLessEqual(error.item(), allowed.item(), f"{what}: output")
        if lse is not None:
            empty = exact_lse.isinf()
            self.assertTrue(torch.equal(lse[empty], exact_lse[empty].float()), f"{what}: lse of rows without keys")
            error = (lse.double() - exact_lse)[~empty].abs().max().item()
            self.assertLessEqual(error, 1e-3 * max(1.0, exact_lse[~empty].abs().max().item()), f"{what}: lse")


@needs_gpu
class Correctness(Attention):
    def test_random_problems__are_right_in_both_layouts(self):
        pick = random.Random(20)
        torch.manual_seed(20)
        for _ in range(24):
            dtype = pick.choice([torch.float16, torch.bfloat16])
            sizes = pick.randint(1, 3), pick.randint(1, 300), pick.randint(1, 300), pick.randint(1, 4)
            q, k, v = problem(*sizes, pick.choice([64, 80, 128, 256]), dtype)
            scale, layout = pick.choice([None, 0.05, 0.5]), pick.choice(["bshd", "bhsd"])
            given = [t.transpose(1, 2).contiguous() for t in (q, k, v)] if layout == "bhsd" else (q, k, v)
            out, lse = kjit.attention(*given, scale=scale, layout=layout, return_lse=True)
            self.assertEqual(out.shape, given[0].shape)
            out = out.transpose(1, 2) if layout == "bhsd" else out
            self.check(out, q, k, v, scale, lse, f"{tuple(q.shape)} {k.shape[1]} {dtype} {layout} {scale}")

    def supported(self, *tensors, **options):
        """The result, or None where this GPU has no kernel for it; then the library says so."""
        try:
            return kjit.attention(*tensors, **options)
        except kjit.Unsupported as sentence:
            self.assertLess(torch.cuda.get_device_capability(), (9, 0), str(sentence))
            return None

    def test_causal__is_aligned_bottom_right(self):
        for seq_q, seq_kv, head_dim in ((128, 128, 128), (65, 130, 64), (300, 77, 128), (1, 200, 64)):
            q, k, v = problem(2, seq_q, seq_kv, 3, head_dim)
            result = self.supported(q, k, v, causal=True, return_lse=True)
            if result is not None:
                self.check(result[0], q, k, v, lse=result[1], causal=True, what=f"{seq_q} {seq_kv} {head_dim}")

    def test_grouped_heads__share_keys_and_values(self):
        for heads_kv, causal in ((1, False), (2, True), (4, False)):
            q, k, v = problem(2, 130, 130, 8, 64, heads_kv=heads_kv)
            result = self.supported(q, k, v, causal=causal)
            if result is not None:
                self.check(result, q, k, v, causal=causal, what=str(heads_kv))

    def test_values__may_have_a_head_size_of_their_own(self):
        q, k, v = randn(2, 130, 2, 128), randn(2, 130, 2, 128), randn(2, 130, 2, 64)
        result = self.supported(q, k, v)
        if result is not None:
            self.assertEqual(result.shape, v.shape)
            self.check(result, q, k, v)

    def test_progression__computes_one_thing(self):
        q, k, v = problem(1, 128, 192, 2, 128, torch.float16)
        for config in kjit.config_set("progression"):
            self.check(kjit.forward(config, q, k, v), q, k, v, what=str(config))

    def test_output__is_the_same_bits_each_time(self):
        q, k, v = problem()
        self.assertTrue(torch.equal(kjit.attention(q, k, v), kjit.attention(q, k, v)))

    def test_flash_attn_functions__are_right(self):
        qkv = randn(2, 70, 3, 4, 64)
        q, k, v = qkv.unbind(2)
        self.check(kjit.flash_attn_qkvpacked_func(qkv), q, k, v, what="qkvpacked")
        self.check(kjit.flash_attn_kvpacked_func(q, qkv[:, :, 1:]), q, k, v, what="kvpacked")
        self.check(flash_attn_interface.flash_attn_qkvpacked_func(qkv), q, k, v, what="qkvpacked of version 3")
        heads = randn(2, 70, 8, 64)
        grouped = flash_attn_interface.flash_attn_qkvpacked_func(heads, num_heads_q=4)
        self.check(grouped, *heads.split([4, 2, 2], 2), what="grouped heads of version 3")
        out, lse, probabilities = kjit.flash_attn_func(q, k, v, softmax_scale=0.2, return_attn_probs=True)
        self.check(out, q, k, v, 0.2, lse, "func")
        self.assertIsNone(probabilities)

    def test_strides__are_taken_as_they_are(self):
        wide = randn(2, 65, 6, 128)
        q, k, v = wide[:, :, ::2, :64], wide[:, :, 1::2, 64:], wide[:, :, :3, 64:]
        self.assertFalse(q.is_contiguous() or k.is_contiguous())
        self.check(kjit.attention(q, k, v), q, k, v, what="slices")
        shared = randn(2, 65, 1, 64).expand(2, 65, 3, 64)
        self.check(kjit.attention(q, shared, shared), q, shared, shared, what="expanded")

    def test_out__is_written_where_it_lies(self):
        q, k, v = problem()
        room = torch.full((2, 65, 6, 64), float("nan"), dtype=q.dtype, device=DEVICE)
        out = room[:, :, ::2]
        self.assertIs(kjit.attention(q, k, v, out=out), out)
        self.check(out, q, k, v)
        self.assertTrue(room[:, :, 1::2].isnan().all())
        plain = torch.empty_like(q)
        self.assertIs(kjit.forward(None, q, k, v, plain), plain)

    def test_config__may_be_a_short_form(self):
        q, k, v = problem(dtype=torch.float16)
        text = "(FP16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"
        self.check(kjit.attention(q, k, v, config=text), q, k, v)

    def test_forward_timed__gives_milliseconds(self):
        q, k, v = problem()
        out, milliseconds = kjit.forward_timed(None, q, k, v)
        self.check(out, q, k, v)
        self.assertGreater(milliseconds, 0)

    def test_batch_of_none__gives_none(self):
        q, k, v = problem()
        self.assertEqual(kjit.attention(q[:0], k[:1], v[:1]).shape, (0, 65, 3, 64))


@needs_gpu
class Refusals(Attention):
    def refused(self, kind, sentence, *arguments, **options):
        with self.assertRaisesRegex(kind, sentence):
            kjit.attention(*arguments, **options)

    def test_head_dim__must_be_contiguous(self):
        q, k, v = problem(head_dim=128)
        self.refused(kjit.InvalidArgument, r"q\.stride\[3\]", q[..., ::2], k[..., ::2], v[..., ::2])

    def test_strides__must_be_multiples_of_16_bytes(self):
        q = randn(2, 8, 3, 68)[..., :64]
        self.refused(kjit.InvalidArgument, r"q\.stride\[", q, q, q)

    def test_alignment__must_be_16_bytes(self):
        q = randn(2 * 8 * 3 * 64 + 8)[1:-7].view(2, 8, 3, 64)
        self.refused(kjit.InvalidArgument, r"q\.data is 0x.*multiple of 16", q, q, q)

    def test_host_memory__is_refused(self):
        q = randn(2, 8, 3, 64, device="cpu")
        self.refused(kjit.InvalidArgument, r"q\.device is the host", q, q, q)

    def test_dtypes__are_fp16_and_bf16_and_all_alike(self):
        q, k, v = problem()
        self.refused(kjit.InvalidArgument, r"q\.dtype is FP32 \(6\)", q.float(), k.float(), v.float())
        self.refused(kjit.InvalidArgument, r"k\.dtype is FP16", q, k.half(), v)

    def test_shapes__must_agree(self):
        q, k, v = problem()
        self.refused(kjit.InvalidArgument, r"v\.shape\[1\] \(seq\)", q, k, v[:, :-1])
        self.refused(kjit.InvalidArgument, r"q\.rank is 3", q[0], k, v)

    def test_config__must_fit_the_tensors(self):
        q, k, v = problem()
        text = "(FP16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"
        self.refused(kjit.InvalidConfig, "dtype is FP16", q, k, v, config=text)


def gradients(q, k, v, dout, dlse, causal, dtype):
    """dq, dk and dv by PyTorch in this type, from leaves of their own. Layout bshd."""
    q, k, v = (tensor.detach().to(dtype).requires_grad_() for tensor in (q, k, v))
    keys, values = (tensor.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for tensor in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, keys) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1 + k.shape[1] - q.shape[1])
        scores = scores.masked_fill(hidden, -torch.inf)
    wide = scores if dtype is torch.float64 else scores.float()
    out = torch.einsum("bhqk,bkhd->bqhd", wide.softmax(-1).nan_to_num().to(dtype), values)
    loss = (out * dout.to(dtype)).sum()
    if dlse is not None:
        loss = loss + (wide.logsumexp(-1) * dlse.to(wide.dtype)).sum()
    return torch.autograd.grad(loss, (q, k, v))


class OfGradients(unittest.TestCase):
    def check(self, got, q, k, v, dout, dlse, causal, what):
        """FlashAttention's rule for gradients."""
        exact = gradients(q, k, v, dout, dlse, causal, torch.float64)
        rounded = gradients(q, k, v, dout, dlse, causal, q.dtype)
        for name, mine, ref, ref16 in zip("qkv", got, exact, rounded):
            allowed = 2 * (ref16.double() - ref).abs().max() + 2 * torch.finfo(q.dtype).eps * max(0.3, ref.abs().max())
            self.assertLessEqual((mine.double() - ref).abs().max().item(), allowed.item(), f"{what}: d{name}")


@needs_gpu
class Gradients(OfGradients):
    def run_problem(self, head_dim, heads, heads_kv, seq_q, seq_kv, causal, dtype, with_lse):
        torch.manual_seed(head_dim)
        q, k, v = problem(2, seq_q, seq_kv, heads, head_dim, dtype, heads_kv=heads_kv)
        q, k, v = (tensor.requires_grad_() for tensor in (q, k, v))
        dout = randn(2, seq_q, heads, head_dim, dtype=dtype)
        dlse = torch.randn(2, heads, seq_q, device=DEVICE) if with_lse else None
        out, lse = kjit.attention(q, k, v, causal=causal, return_lse=True)
        loss = (out * dout).sum() if dlse is None else (out * dout).sum() + (lse * dlse).sum()
        got = torch.autograd.grad(loss, (q, k, v))
        self.check(got, q, k, v, dout, dlse, causal, f"{head_dim} {heads}/{heads_kv} {seq_q}/{seq_kv} {causal}")

    def test_gradients__are_right(self):
        self.run_problem(64, 4, 4, 257, 300, True, torch.bfloat16, True)
        self.run_problem(128, 6, 2, 300, 130, False, torch.float16, True)
        self.run_problem(128, 4, 1, 512, 512, True, torch.bfloat16, False)
        self.run_problem(256, 2, 2, 129, 200, True, torch.float16, False)
        self.run_problem(72, 3, 3, 300, 100, True, torch.bfloat16, False)

    def test_compile__gives_the_bits_of_eager(self):
        q, k, v = (tensor.requires_grad_() for tensor in problem())
        dout = randn(*q.shape)
        eager = torch.autograd.grad(kjit.attention(q, k, v, causal=True), (q, k, v), dout)
        traced = torch.compile(lambda *t: kjit.attention(*t, causal=True), fullgraph=True)
        for mine, other in zip(eager, torch.autograd.grad(traced(q, k, v), (q, k, v), dout)):
            self.assertTrue(torch.equal(mine, other))

    def test_autocast__casts_fp32_inputs(self):
        q, k, v = (tensor.requires_grad_() for tensor in problem(dtype=torch.float32))
        with torch.autocast("cuda", torch.bfloat16):
            out = kjit.attention(q, k, v)
        grads = torch.autograd.grad(out.float().square().sum(), (q, k, v))
        self.assertIs(out.dtype, torch.bfloat16)
        self.assertTrue(all(grad.dtype is torch.float32 and grad.isfinite().all() for grad in grads))

    def test_graph__captures_forward_and_backward(self):
        q, k, v = (tensor.requires_grad_() for tensor in problem())
        dout, side, graph = randn(*q.shape), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            eager = torch.autograd.grad(kjit.attention(q, k, v), (q, k, v), dout)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            captured = torch.autograd.grad(kjit.attention(q, k, v), (q, k, v), dout)
        for grad in captured:
            grad.zero_()
        graph.replay()
        torch.cuda.synchronize()
        for mine, other in zip(eager, captured):
            self.assertTrue(torch.equal(mine, other))


@needs_gpu
class Streams(Attention):
    def test_side_stream__orders_the_call_and_does_not_wait(self):
        q, k, v = problem()
        source = randn(*q.shape)
        out = kjit.attention(q, k, v)
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)  # cycles: about a tenth of a second
            q.copy_(source)
            kjit.attention(q, k, v, out=out)
            returned_early = not stream.query()
        stream.synchronize()
        self.assertTrue(returned_early, "the call waited for the GPU")
        self.check(out, source, k, v)

    def test_graph__captures_and_replays(self):
        q, k, v = problem()
        kjit.attention(q, k, v, return_lse=True)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, lse = kjit.attention(q, k, v, return_lse=True)
        for _ in range(3):
            q.copy_(randn(*q.shape))
            graph.replay()
            torch.cuda.synchronize()
            self.check(out, q, k, v, lse=lse)

    def test_plan__launches_again_on_the_same_tensors(self):
        q, k, v = problem()
        plan = kjit.plan(q, k, v, return_lse=True)
        for _ in range(2):
            q.copy_(randn(*q.shape))
            plan.run()
            torch.cuda.synchronize()
            self.check(plan.out, q, k, v, lse=plan.lse)

    def test_plan__run_may_outlive_its_plan(self):
        q, k, v = problem()
        out = torch.empty_like(q)
        run = kjit.plan(q, k, v, out=out).run
        gc.collect()
        run()
        self.check(out, q, k, v)

    def test_plan__runs_on_the_stream_that_is_named_and_in_a_graph(self):
        q, k, v = problem()
        plan, stream = kjit.plan(q, k, v), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        plan.run(stream.cuda_stream)
        stream.synchronize()
        self.check(plan.out, q, k, v)
        plan.out.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plan.run()
        graph.replay()
        torch.cuda.synchronize()
        self.check(plan.out, q, k, v)

    def test_threads__each_with_a_stream_and_no_context_yet(self):
        faults = []
        ready = threading.Barrier(8)
        inputs = [problem(seq_q=40 + 8 * index) for index in range(8)]
        torch.cuda.synchronize()

        def work(index):
            try:
                q, k, v = inputs[index]
                ready.wait()
                with torch.cuda.stream(torch.cuda.Stream()):
                    for _ in range(200):
                        out = kjit.attention(q, k, v)
                    torch.cuda.current_stream().synchronize()
                self.check(out, q, k, v, what=f"thread {index}")
            except BaseException as fault:
                faults.append(fault)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])

    def test_thread__that_never_used_the_gpu_may_call_first(self):
        q, k, v = problem(seq_q=17)
        torch.cuda.synchronize()
        results = []

        def work():
            try:
                results.append(kjit.attention(q, k, v, out=torch.empty_like(q)))
            except BaseException as fault:
                results.append(fault)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertIsInstance(results[0], torch.Tensor, results)
        torch.cuda.synchronize()
        self.check(results[0], q, k, v)


@needs_gpu
class SecondGpu(Attention):
    """run_gpu.py leaves these out where there is one GPU."""

    def test_tensors__of_a_device_that_is_not_current_are_computed_there(self):
        for device in ("cuda:1", "cuda:0"):
            q, k, v = problem(device=device)
            out = kjit.attention(q, k, v)
            self.assertEqual((out.device, torch.cuda.current_device()), (q.device, 0))
            torch.cuda.synchronize(q.device)
            self.check(out, q, k, v, what=device)

    def test_tensors__of_two_devices_are_refused(self):
        q, k, v = problem()
        with self.assertRaisesRegex(kjit.InvalidArgument, r"k\.device is 1"):
            kjit.attention(q, k.to("cuda:1"), v)

    def test_plan__of_another_device_runs_where_it_is_current(self):
        q, k, v = problem(device="cuda:1")
        plan = kjit.plan(q, k, v)
        with torch.cuda.device(1):
            plan.run()
        torch.cuda.synchronize(1)
        self.check(plan.out, q, k, v)


@needs_gpu
class Compile(Attention):
    def setUp(self):
        torch._dynamo.reset()

    def test_compile__traces_without_a_graph_break(self):
        def block(x, k, v):
            out, lse = kjit.attention(x * 2, k, v, return_lse=True)
            return out + 1, lse

        q, k, v = problem()
        out, lse = torch.compile(block, fullgraph=True)(q, k, v)
        self.check(out - 1, q * 2, k, v, lse=lse)

    def test_compile__takes_flash_attn_and_configs(self):
        config = kjit.FlashForwardKernelConfig.choose("bf16", 65, 130, 64, "sm_80")

        def block(q, k, v):
            return kjit.flash_attn_func(q, k, v, softmax_scale=0.1), kjit.forward(config, q, k, v)

        q, k, v = problem()
        first, second = torch.compile(block, fullgraph=True)(q, k, v)
        self.check(first, q, k, v, 0.1)
        self.check(second, q, k, v)

    def test_compile__with_dynamic_shapes_follows_them(self):
        compiled = torch.compile(lambda q, k, v: kjit.attention(q, k, v) * 1, fullgraph=True, dynamic=True)
        for seq in (65, 80, 129):
            q, k, v = problem(seq_q=seq)
            self.check(compiled(q, k, v), q, k, v, what=str(seq))

    def test_operators__pass_pytorchs_own_checks(self):
        q, k, v = problem(1, 16, 16, 2)
        tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
        for operator in (torch.ops.kjit.attention.default, torch.ops.kjit.attention_lse.default):
            torch.library.opcheck(operator, (q, k, v, None, False, "bshd", ""), test_utils=tests)
