"""PyTorch's side of the package without a GPU: tensors of the processor's memory that are said to be device 0's, and a
driver that only counts. What a kernel computes is gpu_torch.py's."""

import ctypes
import gc
import os
import sys
import threading
import unittest
from unittest import mock

import harness
import kjit

try:
    import torch
except ImportError:
    torch = None
else:
    from kjit import _abi, _torch, flash_attn_interface

DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])
DRIVER.asked_stream.restype = ctypes.c_void_p
STREAM = 0x5500


def problem(batch=1, seq_q=16, seq_kv=32, heads=2, head_dim=64, **options):
    shapes = ((batch, seq_q, heads, head_dim), *((batch, seq_kv, heads, head_dim),) * 2)
    options.setdefault("dtype", torch.bfloat16)
    return [torch.zeros(shape, **options) for shape in shapes]


def kept_calls():
    """The arguments of the calls that are prepared."""
    return [call.kept.shared.kept[0] for call in _torch._calls.known.values()]


def _torch_backward():
    from kjit import _backward

    return _backward


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@unittest.skipIf(torch is None, "PyTorch is not installed")
class OnFakeDevice(unittest.TestCase):
    def setUp(self):
        if kjit.doctor()["nvrtc_status"] != 0:
            self.skipTest("NVRTC is not installed")
        view = _torch._view
        for name, value in (("_view", lambda t: view(t)._replace(device=0)), ("_raw_stream", lambda device: STREAM)):
            patch = mock.patch.object(_torch, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        _torch._calls.__dict__.clear()
        self.addCleanup(DRIVER.asked_to_fail, 0)
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(1))
        self.before = DRIVER.asked_launches()

    def launched(self):
        return DRIVER.asked_launches() - self.before


class Calls(OnFakeDevice):
    def test_call__is_one_launch(self):
        q, k, v = problem()
        out = kjit.attention(q, k, v)
        self.assertEqual((out.shape, out.dtype, self.launched()), (q.shape, q.dtype, 1))

    def test_call__of_what_is_no_tensor_names_it(self):
        q, k, v = problem()
        for arguments, name in (((q, None, v), "k"), ((q, k, 5), "v")):
            for members in ({}, {"mask": "q >= k"}, {"softcap": 5.0}):
                with self.assertRaisesRegex(TypeError, f"^{name} is a .*: must be a tensor of PyTorch"):
                    kjit.attention(*arguments, **members)

    def test_call__again_is_found_prepared(self):
        q, k, v = problem()
        for _ in range(3):
            kjit.attention(q, k, v)
            kjit.attention(q, k, v, causal=True, return_lse=True)
        self.assertEqual((len(_torch._calls.known), self.launched()), (2, 6))

    def test_strides__reach_the_library_as_they_are(self):
        q, k, v = problem()
        wide = torch.zeros(1, 32, 6, 64, dtype=torch.bfloat16)
        kjit.attention(q, wide[:, :, ::3], v)
        (prepared,) = kept_calls()
        self.assertEqual(list(prepared.args.k.stride), list(wide[:, :, ::3].stride()))

    def test_layout__with_heads_first_gives_the_same_back(self):
        q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in problem())
        out, lse = kjit.attention(q, k, v, layout="bhsd", return_lse=True)
        self.assertEqual((out.shape, lse.shape, lse.dtype), (q.shape, q.shape[:3], torch.float32))

    def test_values__may_have_a_head_size_of_their_own(self):
        q, k, _ = problem(head_dim=128)
        self.assertEqual(kjit.attention(q, k, problem()[2]).shape, (1, 16, 2, 64))

    def test_out__is_given_back(self):
        q, k, v = problem()
        out = torch.empty_like(q)
        self.assertIs(kjit.attention(q, k, v, out=out), out)

    def test_head_size__of_any_number_is_padded_and_cut(self):
        q, k, v = problem(head_dim=100)
        out, lse = kjit.attention(q, k, v, return_lse=True)
        self.assertEqual((out.shape, out.is_contiguous(), lse.shape), (q.shape, True, (1, 2, 16)))
        (prepared,) = kept_calls()
        self.assertEqual((prepared.args.q.shape[3], prepared.args.o.shape[3]), (104, 104))
        self.assertAlmostEqual(prepared.args.scale, 0.1, places=6)  # by the columns that there are
        given = torch.empty_like(v[:, :16])
        self.assertIs(kjit.attention(q, k, v, out=given), given)
        narrow = kjit.attention(problem(head_dim=64)[0], problem(head_dim=64)[1], problem(head_dim=44)[2])
        self.assertEqual(narrow.shape, (1, 16, 2, 44))
        self.assertEqual(kjit.attention(q, k, v, softcap=20.0).shape, q.shape)

    def test_head_size__that_no_kernel_has_is_named_as_it_was_given(self):
        for columns in (300, 257):
            for members in ({}, {"softcap": 20.0}):
                with self.assertRaisesRegex(kjit.Unsupported, f"^a head size of {columns}: kjit has kernels for up to"):
                    kjit.attention(*problem(head_dim=columns), **members)
        q, k, _ = problem(head_dim=64)
        with self.assertRaisesRegex(kjit.Unsupported, "^a head size of 260: "):
            kjit.attention(q, k, problem(head_dim=260)[2])
        with self.assertRaisesRegex(kjit.Unsupported, "head_dim is 304: "):  # which the library itself refuses
            kjit.attention(*problem(head_dim=304))
        self.assertEqual(self.launched(), 0)

    def test_head_size__of_any_number_has_gradients(self):
        q, k, v = (tensor.requires_grad_() for tensor in problem(head_dim=100))
        kjit.attention(q, k, v).sum().backward()
        self.assertEqual([t.grad.shape for t in (q, k, v)], [t.shape for t in (q, k, v)])

    def test_gradients__that_fail_raise_what_went_wrong(self):
        def fails(*given):
            given[-1]._obj.status, given[-1]._obj.message = 1, b"this is what went wrong"
            return 1

        q, k, v = (tensor.requires_grad_() for tensor in problem())
        out = kjit.attention(q, k, v)
        with mock.patch.object(sys.modules["kjit._backward"], "_backward", fails):
            with self.assertRaisesRegex(kjit.Error, "this is what went wrong"):
                out.sum().backward()

    def test_gradients__of_a_large_batch_are_several_calls(self):
        q, k, v = (tensor.requires_grad_() for tensor in problem(batch=3, head_dim=8))
        with mock.patch.object(_torch_backward(), "_BATCH_MAX", 2):
            kjit.attention(q, k, v).sum().backward()
        self.assertEqual([t.grad.shape for t in (q, k, v)], [t.shape for t in (q, k, v)])

    def test_keys_of_none__launch_nothing(self):
        q, k, v = problem()
        out, lse = kjit.attention(q, k[:, :0], v[:, :0], return_lse=True)
        self.assertEqual((out.shape, lse.shape, self.launched()), (q.shape, (1, 2, 16), 0))
        self.assertTrue(bool((lse == float("-inf")).all()) and not out.any())  # the fake driver's memory is this one's

    def test_batch_of_none__launches_nothing(self):
        q, k, v = problem()
        self.assertEqual(kjit.attention(q[:0], k, v).shape, (0, 16, 2, 64))
        self.assertEqual(self.launched(), 0)

    def test_errors__are_the_librarys_and_do_not_stay(self):
        q, k, v = problem()
        with self.assertRaisesRegex(kjit.InvalidArgument, r"q\.stride\[3\]"):
            kjit.attention(problem(head_dim=128)[0][..., ::2], k, v)
        with self.assertRaisesRegex(kjit.InvalidArgument, r"q\.rank is 3"):
            kjit.attention(q[0], k, v, return_lse=True)
        with self.assertRaisesRegex(ValueError, "layout is 'sbhd'"):
            kjit.attention(q, k, v, layout="sbhd")
        kjit.attention(q, k, v)
        self.assertEqual(self.launched(), 1)

    def test_launch__that_fails_is_an_error(self):
        q, k, v = problem()
        text = "(BF16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"
        kjit.attention(q, k, v, config=text)
        DRIVER.asked_to_fail(1)
        with self.assertRaisesRegex(kjit.DriverError, "CUDA_ERROR_UNKNOWN"):
            kjit.attention(q, k, v, config=text)

    def test_flash_attn_functions__launch_once_each(self):
        qkv = torch.zeros(1, 16, 3, 2, 64, dtype=torch.bfloat16)
        self.assertEqual(kjit.flash_attn_qkvpacked_func(qkv, causal=True).shape, (1, 16, 2, 64))
        self.assertEqual(kjit.flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:]).shape, (1, 16, 2, 64))
        out, lse, rest = kjit.flash_attn_func(*qkv.unbind(2), softmax_scale=0.1, return_attn_probs=True)
        self.assertEqual((out.shape, lse.shape, rest), ((1, 16, 2, 64), (1, 2, 16), None))
        self.assertEqual(self.launched(), 3)

    def test_third_flash_attns_packed_form__is_read_where_it_lies(self):
        """By axes, or with the heads of q, k and v one behind the other; seen by the tensors that the call is given."""
        third = flash_attn_interface.flash_attn_qkvpacked_func
        packed = torch.zeros(1, 16, 3, 2, 64, dtype=torch.bfloat16)
        beside = torch.zeros(1, 16, 8, 64, dtype=torch.bfloat16)
        rows = ((packed, None, packed.unbind(2), 2), (beside, 4, beside.split([4, 2, 2], 2), 4))
        for qkv, heads, parts, heads_q in rows:
            with mock.patch.object(flash_attn_interface, "_dense", wraps=flash_attn_interface._dense) as seen:
                out, lse = third(qkv, causal=True, num_heads_q=heads, return_attn_probs=True)
            self.assertEqual((out.shape, lse.shape), ((1, 16, heads_q, 64), (1, heads_q, 16)))
            for given, part in zip(seen.call_args.args, parts):
                told = (given.data_ptr(), given.shape, given.stride())
                self.assertEqual(told, (part.data_ptr(), part.shape, part.stride()))
        self.assertEqual(self.launched(), 2)
        with self.assertRaisesRegex(NotImplementedError, "^q_descale: "):
            third(packed, q_descale=torch.ones(1, 2))

    def test_threads__have_calls_of_their_own(self):
        q, k, v = problem()
        kjit.attention(q, k, v)
        faults = []

        def work():
            try:
                for _ in range(200):
                    kjit.attention(q, k, v)
            except BaseException as fault:
                faults.append(fault)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((faults, self.launched()), ([], 1601))

    def test_forward_timed__gives_milliseconds(self):
        q, k, v = problem()
        out, milliseconds = kjit.forward_timed(None, q, k, v)
        self.assertEqual((out.shape, milliseconds), (q.shape, 1.5))  # the fake driver's clock


class Plans(OnFakeDevice):
    def test_run__is_one_launch_on_the_current_stream_or_the_one_named(self):
        plan = kjit.plan(*problem(), return_lse=True)
        plan.run()
        self.assertEqual((self.launched(), DRIVER.asked_stream()), (1, STREAM))
        plan.run(0x7700)
        self.assertEqual((self.launched(), DRIVER.asked_stream()), (2, 0x7700))
        self.assertEqual((plan.out.shape, plan.lse.shape), ((1, 16, 2, 64), (1, 2, 16)))

    def test_run__may_outlive_its_plan(self):
        run = kjit.plan(*problem()).run
        gc.collect()
        run()
        self.assertEqual(self.launched(), 1)

    def test_run__that_fails_is_an_error_each_time(self):
        plan = kjit.plan(*problem(), config="(BF16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax")
        DRIVER.asked_to_fail(1)
        for _ in range(2):
            with self.assertRaisesRegex(kjit.DriverError, "CUDA_ERROR_UNKNOWN"):
                plan.run()
        DRIVER.asked_to_fail(0)
        plan.run()

    def test_plan__that_is_refused_leaves_nothing(self):
        q, k, v = problem()
        with self.assertRaisesRegex(kjit.InvalidArgument, r"v\.shape\[1\]"):
            kjit.plan(q, k, v[:, :-1])

    def test_plan__ends_when_nobody_can_run_it(self):
        ended = []
        destroy = _torch.lib.kjit_attention_plan_destroy
        with mock.patch.object(_torch.lib, "kjit_attention_plan_destroy", lambda handle: ended.append(destroy(handle))):
            plan = kjit.plan(*problem())
            run = plan.run
            del plan
            gc.collect()
            self.assertEqual(ended, [])
            del run
            gc.collect()
        self.assertEqual(len(ended), 1)

    def test_plan__that_is_alive_at_exit_is_no_matter(self):
        code = (
            "import torch, kjit\n"
            "from kjit import _torch\n"
            "view = _torch._view\n"
            "_torch._view = lambda t: view(t)._replace(device=0)\n"
            "_torch._raw_stream = lambda device: 0\n"
            "q = [torch.zeros(1, 16, 2, 64, dtype=torch.bfloat16) for _ in range(3)]\n"
            "plan = kjit.plan(*q)\nplan.run()\nkept = plan.run\nprint('done')\n"
        )
        result = harness.TemporaryFolder.run_command(self, sys.executable, "-c", code)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "done\n", ""))


class Leaks(OnFakeDevice):
    """On the host; gpu_leaks.py watches the GPU too. What is let through is far less than a leak would leave."""

    def grown(self, call, count):
        for _ in range(1000):
            call()
        gc.collect()
        before = resident_bytes()
        for _ in range(count):
            call()
        gc.collect()
        return resident_bytes() - before

    def test_calls__a_hundred_thousand_leave_nothing(self):
        q, k, v = problem()
        self.assertLess(self.grown(lambda: kjit.attention(q, k, v, return_lse=True), 100_000), 8 << 20)

    def test_plans__that_are_dropped_are_gone(self):
        q, k, v = problem()
        self.assertLess(self.grown(lambda: kjit.plan(q, k, v), 20_000), 8 << 20)


class Operators(OnFakeDevice):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()

    def compiled(self, function, *tensors, **options):
        """What torch.compile makes of it in one graph, and the names of the operators in that."""
        names = []

        def backend(module, inputs):
            names.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
            return module.forward

        return torch.compile(function, fullgraph=True, backend=backend, **options)(*tensors), names

    def test_compile__traces_in_one_graph(self):
        def block(q, k, v):
            out, lse = kjit.attention(q * 2, k, v, causal=True, return_lse=True)
            return kjit.flash_attn_func(out + 1, k, v, softmax_scale=0.1), lse

        (out, lse), names = self.compiled(block, *problem())
        self.assertEqual((out.shape, lse.shape, self.launched()), ((1, 16, 2, 64), (1, 2, 16), 2))
        self.assertEqual([name for name in names if name.startswith("kjit")], ["kjit.attention_lse", "kjit.attention"])

    def test_compile__takes_a_config_and_an_out(self):
        config = kjit.FlashForwardKernelConfig.choose("bf16", 16, 32, 64, "sm_80")
        q, k, v = problem()

        def block(q, k, v, out):
            return kjit.forward(config, q, k, v, out)

        out, names = self.compiled(block, q, k, v, torch.empty_like(q))
        self.assertEqual((out.shape, self.launched()), (q.shape, 1))
        self.assertIn("kjit.attention", names)

    def test_compile__with_dynamic_shapes_follows_them(self):
        function = torch.compile(lambda *t: kjit.attention(*t) * 1, fullgraph=True, dynamic=True, backend="aot_eager")
        with torch.no_grad():
            for seq in (16, 40, 65):
                self.assertEqual(function(*problem(seq_q=seq)).shape[1], seq)

    def test_fake__tells_shapes_without_a_call(self):
        for layout, lse_shape in (("bshd", (1, 2, 16)), ("bhsd", (1, 16, 2))):
            q, k, v = problem(device="meta")
            out, lse = torch.ops.kjit.attention_lse(q, k, v[..., :32], None, False, layout, "")
            self.assertEqual((out.shape, lse.shape), ((1, 16, 2, 32), lse_shape))
        self.assertEqual(self.launched(), 0)

    def test_operators__pass_pytorchs_own_checks(self):
        for operator in (torch.ops.kjit.attention.default, torch.ops.kjit.attention_lse.default):
            arguments = (*problem(), None, False, "bshd", "")
            torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))

    def test_gradients__are_one_call_of_the_kernels_that_are_wanted(self):
        for needed, launches in (((1, 1, 1), 2), ((1, 0, 0), 1), ((0, 0, 1), 1), ((0, 1, 0), 2)):
            tensors = [t.requires_grad_(bool(need)) for t, need in zip(problem(), needed)]
            out = kjit.attention(*tensors)
            before = self.launched()
            out.sum().backward()
            self.assertEqual(self.launched() - before, launches)
            for tensor, need in zip(tensors, needed):
                self.assertEqual(tensor.grad is not None, bool(need))
                self.assertTrue(tensor.grad is None or tensor.grad.shape == tensor.shape)

    def flags_of_backward(self, compiled=False, **options):
        """The flags of the C call that computes the gradients."""
        flags, module = [], _torch_backward()

        def attention(q, k, v):
            return kjit.attention(q, k, v, **options).float().sum()

        with mock.patch.object(module, "_launch", lambda args, q: flags.append(args.flags)):
            function = torch.compile(attention, fullgraph=True, backend="aot_eager") if compiled else attention
            function(*problem(requires_grad=True)).backward()
        return flags

    def test_gradients__have_equal_bits_where_the_caller_says_so(self):
        wanted = _abi.KJIT_ATTENTION_DETERMINISTIC
        self.assertEqual(self.flags_of_backward(), [0])
        self.assertEqual(self.flags_of_backward(deterministic=True), [wanted])
        self.assertEqual(self.flags_of_backward(deterministic=True, compiled=True), [wanted])

    def test_gradients__have_equal_bits_where_pytorch_says_so(self):
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        self.assertEqual(self.flags_of_backward(), [_abi.KJIT_ATTENTION_DETERMINISTIC])

    def test_gradients__of_flash_attn_have_equal_bits_where_the_caller_says_so(self):
        from kjit import flash_attn, flash_attn_interface

        for function in (flash_attn.flash_attn_func, flash_attn_interface.flash_attn_func):
            flags = []
            with mock.patch.object(_torch_backward(), "_launch", lambda args, q: flags.append(args.flags)):
                function(*problem(requires_grad=True), deterministic=True).sum().backward()
            self.assertEqual(flags, [_abi.KJIT_ATTENTION_DETERMINISTIC])

    def test_gradients__of_lse_need_no_gradient_of_the_output(self):
        q, k, v = problem(requires_grad=True)
        kjit.attention(q, k, v, return_lse=True)[1].sum().backward()
        self.assertEqual(self.launched(), 3)
        self.assertEqual(q.grad.shape, q.shape)

    def test_gradients__are_traced_in_one_graph(self):
        def loss(q, k, v):
            return kjit.attention(q * 2, k, v, causal=True).float().square().sum()

        q, k, v = problem(requires_grad=True)
        torch.compile(loss, fullgraph=True, backend="aot_eager")(q, k, v).backward()
        self.assertEqual((self.launched(), q.grad.shape, k.grad.shape), (3, q.shape, k.shape))

    def test_gradients__of_gradients_are_refused(self):
        q, k, v = problem(requires_grad=True)
        (dq,) = torch.autograd.grad(kjit.attention(q, k, v).sum(), q, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "no second derivative"):
            dq.sum().backward()

    def test_gradients__into_a_given_output_are_refused(self):
        q, k, v = problem(requires_grad=True)
        with self.assertRaisesRegex(ValueError, "out is given while gradients are wanted"):
            kjit.attention(q, k, v, out=torch.empty_like(q))

    def test_gradients__are_not_kept_where_nobody_wants_them(self):
        q, k, v = problem(requires_grad=True)
        with torch.no_grad():
            self.assertFalse(kjit.attention(q, k, v).requires_grad)

    def test_backward_operator__passes_pytorchs_own_checks(self):
        q, k, v = problem()
        out, lse = kjit.attention(q, k, v, return_lse=True)
        arguments = (out, None, q, k, v, out, lse, None, False, "bshd", [True, False, True])
        operator = torch.ops.kjit.attention_backward.default
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))

    def test_backward_operator__keeps_strides_of_head_sizes_that_are_padded(self):
        q, k, v = (tensor.transpose(1, 2) for tensor in problem(seq_kv=16, head_dim=20))
        out, lse = kjit.attention(q, k, v, layout="bhsd", return_lse=True)
        found = torch.ops.kjit.attention_backward(out, None, q, k, v, out, lse, None, False, "bhsd", [True] * 3)
        self.assertEqual([gradient.stride() for gradient in found], [tensor.stride() for tensor in (q, k, v)])

    def test_subclasses__go_through_the_operator(self):
        q, k, v = problem()
        out = kjit.attention(torch.nn.Parameter(q, requires_grad=False), k, v)
        self.assertEqual((type(out), self.launched()), (torch.Tensor, 1))


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Imports(harness.TemporaryFolder):
    def test_doctor__shows_pytorch(self):
        result = self.run_command(sys.executable, "-m", "kjit", "doctor")
        self.assertIn(f"torch     {torch.__version__.partition('+')[0]}", result.stdout)

    def test_dtypes__are_pytorchs(self):
        self.assertIs(kjit.DType.BF16.to_torch_dtype(), torch.bfloat16)
        self.assertEqual(kjit.DType.from_string("fp16").to_torch_dtype(), torch.float16)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
