"""What a serving call costs the host, by a driver that only counts: no memory after the first step, few kernels in a
server's life, some microseconds. Without a GPU."""

import ctypes
import importlib.util
import math
import os
import sys
import time
import unittest
from unittest import mock

import harness
import kjit

try:
    import torch
except ImportError:
    torch = None
else:
    from kjit import _serving, _torch, flash_attn, flash_attn_interface

DRIVER = ctypes.CDLL(os.environ["KJIT_LIBCUDA"])
HEADS, HEADS_KV, SIZE, PAGE = 32, 8, 128, 16
MOST_KERNELS = 12
PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
DRIVER.asked_attribute.restype = ctypes.c_uint


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def memory(*shape):
    """A tensor that is part of one large one, since nothing is computed."""
    if not _memory:
        _memory.append(torch.zeros(1 << 25, dtype=torch.bfloat16))
    return _memory[0][: math.prod(shape)].view(shape)


_memory = []


class Cache:
    """A cache of pages that many sequences share: nothing is computed, so that what they name is of no matter."""

    def __init__(self, batch, pages=8, dtype=None):
        self.k, self.v = (memory(pages, PAGE, HEADS_KV, SIZE) for _ in "kv")
        if dtype is not None:  # of one byte an element
            self.k, self.v = (t.view(dtype)[..., :SIZE] for t in (self.k, self.v))
        self.table = torch.zeros(batch, pages, dtype=torch.int32)
        self.lengths = torch.ones(batch, dtype=torch.int32)

    def decode(self, batch, rows=1, interface=None, **options):
        """One step of so many sequences; `interface`: by that module's names."""
        interface = interface or flash_attn_interface
        pages = {"block_table" if interface is flash_attn else "page_table": self.table[:batch]}
        return interface.flash_attn_with_kvcache(
            memory(batch, rows, HEADS, SIZE), self.k, self.v, cache_seqlens=self.lengths[:batch], causal=True, **pages,
            **options,
        )  # fmt: skip

    def mixed(self, batch, rows):
        """A step in which some sequences are prefilled and others decoded: `rows` of each."""
        offsets = torch.nn.functional.pad(ints(*rows).cumsum(0), (1, 0)).int()
        return self.ragged(batch, offsets, max(rows), memory(sum(rows), HEADS, SIZE))

    def ragged(self, batch, offsets, longest, q):
        return flash_attn_interface.flash_attn_varlen_func(
            q, self.k, self.v, offsets, None, longest, 131072, num_splits=0,
            seqused_k=self.lengths[:batch], page_table=self.table[:batch], causal=True,
        )  # fmt: skip


@unittest.skipIf(torch is None, "PyTorch is not installed")
class OnFakeDevice(unittest.TestCase):
    """Tensors of the processor's memory are said to be device 0's."""

    def setUp(self):
        if kjit.doctor()["nvrtc_status"] != 0:
            self.skipTest("NVRTC is not installed")
        view = _torch._view
        for owner, name, value in (
            (_serving, "_view", lambda t: view(t)._replace(device=0)),
            (_serving, "_raw_stream", lambda device: 0x5500),
        ):
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        _serving._calls.__dict__.clear()
        DRIVER.cuCtxSetCurrent(ctypes.c_void_p(1))


class Host(OnFakeDevice):
    def ways(self):
        """Every kind of call, by version 2's and version 3's names."""
        cache, new = Cache(4), [memory(4, 1, HEADS_KV, SIZE) for _ in "kv"]
        turned = {"rotary_cos": memory(64, SIZE // 2), "rotary_sin": memory(64, SIZE // 2)}
        q, k, v = memory(512, HEADS, SIZE), memory(512, HEADS_KV, SIZE), memory(512, HEADS_KV, SIZE)
        offsets = ints(0, 128, 256, 384, 512)
        ways = {}
        for version, module in ((2, flash_attn), (3, flash_attn_interface)):
            ways[f"{version}: decode"] = lambda module=module: cache.decode(4, interface=module)
            ways[f"{version}: append, rotary"] = lambda module=module: cache.decode(
                4, interface=module, k=new[0], v=new[1], **turned
            )
            ways[f"{version}: ragged"] = lambda module=module: module.flash_attn_varlen_func(
                q, k, v, offsets, offsets, 128, 128, causal=True
            )
        ways["3: ragged, lse"] = lambda: flash_attn_interface.flash_attn_varlen_func(
            q, k, v, offsets, offsets, 128, 128, causal=True, return_attn_probs=True
        )
        ways["3: mixed"] = lambda: cache.ragged(4, offsets, 128, q)
        return ways

    def test_call__allocates_nothing_after_the_first_step(self):
        ways = self.ways()
        for way in ways.values():
            way()
        before = DRIVER.asked_allocations(), DRIVER.asked_live(), kjit.default_runtime().stats()["kernels_loaded"]
        launches = DRIVER.asked_launches()
        for _ in range(5):
            for name, way in ways.items():
                way()
                now = DRIVER.asked_allocations(), DRIVER.asked_live(), kjit.default_runtime().stats()["kernels_loaded"]
                self.assertEqual(now, before, name)
        self.assertGreaterEqual(DRIVER.asked_launches() - launches, 5 * len(ways))

    def test_call__costs_microseconds(self):
        for name, way in self.ways().items():
            least = 1.0
            for _ in range(5):
                started = time.perf_counter()
                for _ in range(40):
                    way()
                least = min(least, (time.perf_counter() - started) / 40)
            print(f"    {name}: {least * 1e6:.1f} us", flush=True)
            self.assertLess(least, 4e-4, name)  # some 15 us where nothing else runs

    def test_call__of_another_signature_is_another(self):
        """Whatever may change between two calls of one kind is told apart."""
        cache = Cache(4)
        cache.decode(4)
        known = len(_serving._calls.known)
        others = [
            lambda: cache.decode(3),
            lambda: cache.decode(4, rows=2),
            lambda: cache.decode(4, window_size=[8, 0]),
            lambda: cache.decode(4, softcap=3.0),
            lambda: cache.decode(4, sinks=torch.zeros(HEADS)),
            lambda: cache.decode(4, sinks=torch.zeros(HEADS, dtype=torch.bfloat16)),
            lambda: cache.decode(4, out=memory(4, 1, HEADS, SIZE)),
            lambda: cache.decode(4, return_softmax_lse=True),
            lambda: cache.decode(4, cache_leftpad=ints(0, 0, 0, 0)),
            lambda: cache.decode(4, cache_batch_idx=ints(0, 1, 2, 3)),
        ]
        for count, other in enumerate(others):
            for _ in range(2):
                other()
            self.assertEqual(len(_serving._calls.known), known + count + 1, count)

    def test_append__to_few_sequences_is_part_of_what_attends(self):
        turned = {"rotary_cos": memory(64, SIZE // 2), "rotary_sin": memory(64, SIZE // 2)}
        for batch, expected in ((1, 1), (4, 2)):  # the driver that only counts has 16 multiprocessors
            cache, new = Cache(batch), memory(batch, 1, HEADS_KV, SIZE)
            for options in ({}, turned):
                launches = DRIVER.asked_launches()
                cache.decode(batch, k=new, v=new, **options)
                self.assertEqual(DRIVER.asked_launches() - launches, expected)

    def test_append__of_many_keys_is_overlapped_by_what_attends(self):
        """Attention is a programmatic dependent of the append pass in front of it, and of nothing else."""
        cache, new = Cache(4), memory(4, 17, HEADS_KV, SIZE)
        cache.decode(4, k=new, v=new)
        self.assertEqual(DRIVER.asked_attribute(PROGRAMMATIC), 1)
        cache.decode(4)
        self.assertEqual(DRIVER.asked_attribute(PROGRAMMATIC), 0xFFFFFFFF)

    def test_mixed__is_one_launch_where_a_tile_has_all_heads_of_a_group(self):
        """A group of three query heads lies in three tiles; where there is no cache, nothing is decoded."""
        cache, launches = Cache(4), DRIVER.asked_launches()
        cache.mixed(4, (1, 1, 3000, 1))
        self.assertEqual(DRIVER.asked_launches() - launches, 1)
        launches = DRIVER.asked_launches()
        cache.ragged(4, ints(0, 1, 2, 3002, 3003), 3000, memory(3003, 3 * HEADS_KV, SIZE))
        self.assertEqual(DRIVER.asked_launches() - launches, 2)
        q, k, v = memory(3003, HEADS, SIZE), memory(3003, HEADS_KV, SIZE), memory(3003, HEADS_KV, SIZE)
        launches = DRIVER.asked_launches()
        flash_attn.flash_attn_varlen_func(q, k, v, ints(0, 1, 2, 3002, 3003), ints(0, 1, 2, 3002, 3003), 3000, 3000)
        self.assertEqual(DRIVER.asked_launches() - launches, 1)

    def test_columns__that_are_no_neighbours_are_copied(self):
        wide = torch.zeros(8, HEADS, SIZE, 2, dtype=torch.bfloat16)[..., 0]
        keys = torch.zeros(8, HEADS_KV, SIZE, 2, dtype=torch.bfloat16)[..., 0]
        launches = DRIVER.asked_launches()
        for _ in range(2):
            found = flash_attn.flash_attn_varlen_func(wide, keys, keys, ints(0, 8), ints(0, 8), 8, 8)
            self.assertEqual(found.shape, wide.shape)
        self.assertEqual(DRIVER.asked_launches() - launches, 2)

    def test_life__of_a_server_needs_few_kernels(self):
        """Batches of 1 to 256, lengths up to 128k, decoding, several rows at once, prefill, and all of them mixed."""
        for dtype in (None, torch.float8_e4m3fn):
            with self.subTest(cache=dtype):
                self.live(dtype)

    def live(self, dtype):
        runtime = kjit.Runtime()
        patch = mock.patch.object(_serving, "default_runtime", lambda: runtime)
        _serving._calls.__dict__.clear()
        patch.start()
        self.addCleanup(patch.stop)
        cache = Cache(256, dtype=dtype)
        for batch in (1, 2, 8, 17, 64, 256):
            for length in (1, 131072):
                cache.lengths.fill_(length)
                for rows in (1, 2, 4, 5, 8, 16):
                    cache.decode(batch, rows)
                for longest in (1, 9, 64, 512):
                    cache.mixed(batch, [longest] + [1] * (batch - 1))
            cache.decode(batch, k=memory(batch, 1, HEADS_KV, SIZE), v=memory(batch, 1, HEADS_KV, SIZE))
            lengths = cache.lengths[:batch]
            for rows in (1, 4):
                flash_attn_interface.get_scheduler_metadata(
                    batch, rows, 131072, HEADS, HEADS_KV, SIZE, lengths, page_size=PAGE
                )
        kernels = runtime.stats()["kernels_loaded"]
        print(f"    {kernels} kernels", flush=True)
        self.assertGreater(kernels, 4)  # some of every kind; an 8-bit cache has no prefill of its own
        self.assertLessEqual(kernels, MOST_KERNELS)


@unittest.skipIf(torch is None or importlib.util.find_spec("transformers") is None, "transformers is not installed")
class Transformers(OnFakeDevice):
    """A tiny model by FlashAttention's names, which are kjit's: what it asks for is launched, and nothing else is."""

    LAYERS, TOKENS = 2, 3

    def setUp(self):
        super().setUp()
        kjit.install_as_flash_attn()
        import transformers
        from transformers.utils import import_utils

        view = _torch._view
        for owner, name, value in (
            (import_utils, "is_torch_cuda_available", lambda: True),
            (_torch, "_view", lambda t: view(t)._replace(device=0)),
        ):
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.transformers = transformers

    def model(self, version):
        config = self.transformers.LlamaConfig(
            hidden_size=64, intermediate_size=64, num_hidden_layers=self.LAYERS, num_attention_heads=2,
            num_key_value_heads=1, head_dim=64, vocab_size=64, max_position_embeddings=256,
        )  # fmt: skip
        return self.transformers.LlamaForCausalLM._from_config(
            config, attn_implementation=f"flash_attention_{version}", dtype=torch.bfloat16
        ).eval()

    def test_transformers__finds_flash_attention(self):
        import importlib.metadata as metadata

        self.assertEqual(metadata.version("flash_attn"), "2.8.3")
        self.assertEqual(metadata.packages_distributions()["flash_attn_interface"], ["flash-attn-3"])

    def test_transformers__padded_batches_are_launched(self):
        prompts = torch.randint(3, 64, (2, 7))
        mask = torch.ones_like(prompts)
        mask[0, :3] = 0
        for version in (2, 3):
            launches = DRIVER.asked_launches()
            self.model(version).generate(
                prompts, attention_mask=mask, max_new_tokens=self.TOKENS, do_sample=False, pad_token_id=0
            )
            self.assertEqual(DRIVER.asked_launches() - launches, self.LAYERS * self.TOKENS)

    def test_transformers__continuous_batching_is_launched(self):
        """The forward passes of prefill and of each token, whatever else transformers runs to warm up."""
        how = self.transformers.GenerationConfig(
            max_new_tokens=self.TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        try:
            few = self.transformers.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64)
        except (AttributeError, TypeError):
            self.skipTest("this transformers has another way to bound a cache")
        for version in (2, 3):
            launches = DRIVER.asked_launches()
            found = self.model(version).generate_batch(
                [[5, 6, 7, 8], [9, 10]], generation_config=how, continuous_batching_config=few, progress_bar=False
            )
            self.assertEqual([len(each.generated_tokens) for each in found.values()], [self.TOKENS] * 2)
            self.assertGreaterEqual(DRIVER.asked_launches() - launches, self.LAYERS * self.TOKENS)


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
