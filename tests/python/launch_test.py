"""Calls from Python through the library to a driver that only counts: contexts, streams, waiting, errors. No GPU."""

import ctypes
import os
import sys
import threading
import types
import unittest
from unittest import mock

import harness
import kjit
from arrays import Array
from kjit import _cuda

TEXT = "(FP16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"
DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])
DRIVER.asked_stream.restype = ctypes.c_void_p


def arrays(kind=Array, **options):
    """q, k, v."""
    return kind(2, 5, 3, 64, **options), kind(2, 7, 3, 64, **options), kind(2, 7, 3, 64, **options)


class Launches(unittest.TestCase):
    def setUp(self):
        if kjit.doctor()["nvrtc_status"] != 0:
            self.skipTest("NVRTC is not installed")
        self.addCleanup(DRIVER.asked_to_fail, 0)
        patch = mock.patch.object(_cuda, "wait_for_stream")
        self.waited = patch.start()
        self.addCleanup(patch.stop)
        DRIVER.cuCtxSetCurrent(None)
        self.before = DRIVER.asked_launches()

    def launched(self):
        return DRIVER.asked_launches() - self.before


class AnyArray(Launches):
    def test_call__is_one_launch_on_the_default_stream_and_waited_for(self):
        q, k, v = arrays()
        out = Array(2, 5, 3, 64)
        self.assertIs(kjit.attention(q, k, v, out=out), out)
        self.assertEqual((self.launched(), DRIVER.asked_stream()), (1, None))
        self.waited.assert_called_once_with(0)
        self.assertEqual(q.asked, [1])  # the default stream in DLPack's terms

    def test_context__is_the_arrays_inside_and_what_it_was_afterwards(self):
        for device, before in ((0, -1), (1, -1), (1, 0)):
            DRIVER.cuCtxSetCurrent(ctypes.c_void_p(before + 1))
            q, k, v = arrays(device=device)
            kjit.attention(q, k, v, out=Array(2, 5, 3, 64, device=device))
            self.assertEqual(DRIVER.asked_current(), before)
        self.assertEqual(self.launched(), 3)

    def test_config__is_used_in_place_of_the_choice(self):
        q, k, v = arrays()
        kjit.forward(kjit.FlashForwardKernelConfig.parse(TEXT), q, k, v, Array(2, 5, 3, 64))
        self.assertEqual(self.launched(), 1)

    def test_tensors__of_two_devices_are_refused(self):
        q, k, v = arrays()
        with self.assertRaisesRegex(kjit.InvalidArgument, r"k\.device is 1"):
            kjit.attention(q, Array(2, 7, 3, 64, device=1), v, out=Array(2, 5, 3, 64))

    def test_shapes__that_do_not_agree_are_the_librarys_sentence(self):
        q, k, _ = arrays()
        with self.assertRaisesRegex(kjit.InvalidArgument, r"v\.shape\[1\] \(seq\)"):
            kjit.attention(q, k, Array(2, 6, 3, 64), out=Array(2, 5, 3, 64))
        self.assertEqual(self.launched(), 0)

    def test_launch__that_fails_is_an_error_and_leaves_the_context(self):
        q, k, v = arrays()
        DRIVER.asked_to_fail(1)
        with self.assertRaises(kjit.DriverError) as caught:
            kjit.attention(q, k, v, out=Array(2, 5, 3, 64), config=TEXT)
        self.assertIn("CUDA_ERROR_UNKNOWN", str(caught.exception))
        self.assertEqual((caught.exception.cause, DRIVER.asked_current()), (999, -1))
        self.waited.assert_not_called()

    def test_out__must_be_given(self):
        with self.assertRaisesRegex(TypeError, "out: must be given for arrays of type Array"):
            kjit.attention(*arrays())

    def test_thread__without_a_context_gets_one_and_keeps_its_own(self):
        found = []

        def work():
            DRIVER.cuCtxSetCurrent(None)
            _cuda.make_current(1)
            found.append(DRIVER.asked_current())
            _cuda.make_current(0)
            found.append(DRIVER.asked_current())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(found, [1, 1])

    def test_describe_attention__is_what_the_rules_choose_for_the_card_that_is_here(self):
        runtime, described, sizes = kjit.default_runtime(), [], {"heads_q": 16, "seq_q": 512}
        self.assertEqual(runtime.device_info(0)["multiprocessors"], 16)

        def work():
            described.append(runtime.describe_attention("bf16", 64, **sizes))

        thread = threading.Thread(target=work)  # which has no context yet
        thread.start()
        thread.join()
        # Tiles of three consumers fill 16 multiprocessors, as those of one do the 132 of the architecture's usual card.
        self.assertIn("consumers=3", described[0])
        self.assertIn("consumers=1", runtime.describe_attention("bf16", 64, "sm_90a", **sizes))

    def test_doctor__shows_the_devices(self):
        names = [kjit.default_runtime().device_info(ordinal)["arch_specific"] for ordinal in range(2)]
        self.assertEqual(names, ["sm_90a", "sm_80"])


class CuPyArray(Array):
    __module__ = "cupy"


class CuPy(Launches):
    """A stand-in for CuPy: its stream, its way to make an array."""

    STREAM = 0x7700

    def setUp(self):
        super().setUp()
        module = types.SimpleNamespace(
            cuda=types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=self.STREAM)),
            empty=lambda shape, dtype: CuPyArray(*shape, bits=32 if dtype == "float32" else 16),
        )
        patch = mock.patch.dict(sys.modules, cupy=module)
        patch.start()
        self.addCleanup(patch.stop)

    def test_call__is_on_cupys_stream_and_not_waited_for(self):
        q, k, v = arrays(CuPyArray)
        out, lse = kjit.attention(q, k, v, return_lse=True)
        self.assertEqual((type(out), out.shape, lse.shape), (CuPyArray, (2, 5, 3, 64), (2, 3, 5)))
        self.assertEqual((self.launched(), DRIVER.asked_stream(), q.asked), (1, self.STREAM, [self.STREAM]))
        self.waited.assert_not_called()

    def test_output__has_the_columns_of_v(self):
        q, k, _ = arrays(CuPyArray)
        self.assertEqual(kjit.attention(q, k, CuPyArray(2, 7, 3, 128)).shape, (2, 5, 3, 128))


class JaxArray(Array):
    __module__ = "jax"
    sharding = "here"


class JaxTracer(Array):
    __module__ = "jax"


class Jax(Launches):
    """A stand-in for JAX: an array is waited for before it is read, and the result before JAX sees it."""

    def setUp(self):
        super().setUp()
        self.ready = []
        module = types.SimpleNamespace(
            core=types.SimpleNamespace(Tracer=JaxTracer),
            block_until_ready=lambda array: self.ready.append(array) or array,
            numpy=types.SimpleNamespace(zeros=lambda shape, dtype, device: JaxArray(*shape)),
        )
        patch = mock.patch.dict(sys.modules, jax=module)
        patch.start()
        self.addCleanup(patch.stop)

    def test_call__waits_for_its_arrays_and_for_the_result(self):
        q, k, v = arrays(JaxArray)
        out = kjit.attention(q, k, v)
        self.assertEqual((type(out), self.ready), (JaxArray, [q, k, v, out]))
        self.assertEqual((self.launched(), DRIVER.asked_stream()), (1, None))
        self.waited.assert_called_once_with(0)

    def test_tracer__is_refused_with_a_sentence(self):
        with self.assertRaisesRegex(NotImplementedError, "jax.jit"):
            kjit.attention(*arrays(JaxTracer))

    def test_out__that_would_change_under_jax_is_refused(self):
        q, k, v = arrays(JaxArray)
        with self.assertRaisesRegex(TypeError, "out: JAX's arrays are immutable"):
            kjit.attention(q, k, v, out=JaxArray(2, 5, 3, 64))


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
