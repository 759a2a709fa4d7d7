"""Attention on CuPy and JAX arrays through DLPack, and under Hugging Face transformers."""

import importlib.util
import os
import sys
import unittest
from pathlib import Path

import kjit
from gpu_torch import DEVICE, HAS_GPU, Attention, needs_gpu, problem, torch

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX shares the GPU with the other tests


def needs(module):
    return unittest.skipUnless(HAS_GPU and importlib.util.find_spec(module), f"{module} with a GPU is not here")


@needs("cupy")
class CuPy(Attention):
    def setUp(self):
        import cupy

        self.cupy = cupy
        self.tensors = problem(dtype=torch.float16)
        torch.cuda.synchronize()
        self.arrays = [cupy.from_dlpack(tensor) for tensor in self.tensors]

    def test_arrays__are_read_and_written_without_copies(self):
        out = self.cupy.empty_like(self.arrays[0])
        self.assertIs(kjit.attention(*self.arrays, out=out), out)
        self.cupy.cuda.get_current_stream().synchronize()
        self.check(torch.from_dlpack(out), *self.tensors)

    def test_lse__comes_as_an_array(self):
        out, lse = kjit.attention(*self.arrays, return_lse=True, scale=0.2)
        self.cupy.cuda.get_current_stream().synchronize()
        self.assertIsInstance(lse, self.cupy.ndarray)
        self.check(torch.from_dlpack(out), *self.tensors, 0.2, torch.from_dlpack(lse))

    def test_stream__is_cupys_current_one(self):
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            doubled = self.arrays[0] * 2
            out = kjit.attention(doubled, *self.arrays[1:])
        stream.synchronize()
        q, k, v = self.tensors
        self.check(torch.from_dlpack(out), q * 2, k, v)

    def test_errors__are_the_librarys(self):
        with self.assertRaisesRegex(kjit.InvalidArgument, r"v\.shape\[1\]"):
            kjit.attention(self.arrays[0], self.arrays[1], self.arrays[2][:, :-1])


@needs("jax")
class Jax(Attention):
    def setUp(self):
        import jax

        if jax.default_backend() != "gpu":
            self.skipTest("JAX has no GPU here")
        self.jax = jax

    def arrays(self, dtype):
        keys = self.jax.random.split(self.jax.random.key(1), 3)
        shapes = ((2, 65, 3, 64), (2, 130, 3, 64), (2, 130, 3, 64))
        return [self.jax.random.normal(key, shape, dtype) for key, shape in zip(keys, shapes)]

    def as_torch(self, array):
        return torch.from_dlpack(self.jax.block_until_ready(array))

    def test_arrays__of_both_types_are_right(self):
        for dtype in ("float16", "bfloat16"):
            arrays = self.arrays(dtype)
            out, lse = kjit.attention(*arrays, return_lse=True)
            self.assertIsInstance(out, self.jax.Array)
            self.check(self.as_torch(out), *map(self.as_torch, arrays), lse=self.as_torch(lse), what=dtype)

    def test_result__can_be_computed_with(self):
        arrays = self.arrays("bfloat16")
        total = (kjit.attention(*arrays).astype("float32") + 1.0) - 1.0
        self.check(self.as_torch(total).to(torch.bfloat16), *map(self.as_torch, arrays))

    def test_jit__is_refused_with_a_sentence(self):
        with self.assertRaisesRegex(NotImplementedError, "jax.jit"):
            self.jax.jit(kjit.attention)(*self.arrays("float16"))


class Wrapped:
    """An array of a framework that kjit has not heard of."""

    def __init__(self, tensor):
        self.tensor, self.shape = tensor, tensor.shape

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@needs_gpu
class AnyArray(Attention):
    def test_dlpack__alone_is_enough_where_out_is_given(self):
        q, k, v = problem()
        out = torch.empty_like(q)
        kjit.attention(*map(Wrapped, (q, k, v)), out=Wrapped(out))
        self.check(out, q, k, v)

    def test_out__must_be_given(self):
        arrays = [Wrapped(tensor) for tensor in problem()]
        with self.assertRaisesRegex(TypeError, "out: must be given for arrays of type Wrapped"):
            kjit.attention(*arrays)


def load_example():
    here = Path(__file__).resolve().parent
    for folder in (here, here.parents[1] / "python" / "examples"):
        path = folder / "transformers_generate.py"
        if path.exists():
            spec = importlib.util.spec_from_file_location("transformers_generate", path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            return module
    raise FileNotFoundError("transformers_generate.py")


@needs("transformers")
class Transformers(Attention):
    def test_example__generates_what_sdpa_generates(self):
        found = load_example().compare(DEVICE, tokens=32)
        self.assertGreater(found["calls"].get("kjit", 0), 32, found["calls"])
        self.assertLess(found["logit_difference"], 0.02 * found["largest_logit"] + 0.01)
        self.assertGreater(found["same_tokens"], 0)

    def test_fallback__can_be_refused(self):
        from transformers import AttentionInterface

        from kjit import transformers_attention

        transformers_attention.register("kjit_alone", fallback=None)
        q, k, v = (tensor.transpose(1, 2) for tensor in problem())
        module = torch.nn.Module()
        module.is_causal = False
        attention = AttentionInterface()["kjit_alone"]
        out, weights = attention(module, q, k, v, None, scaling=0.125)
        self.assertIsNone(weights)
        self.check(out, *(tensor.transpose(1, 2) for tensor in (q, k, v)), 0.125)
        with self.assertRaisesRegex(NotImplementedError, "attention_mask of 1 axes: not computed by kjit here"):
            attention(module, q, k, v, torch.ones(1, device=DEVICE))


if __name__ == "__main__":
    unittest.main()
