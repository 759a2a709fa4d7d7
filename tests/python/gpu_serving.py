"""FlashAttention's serving functions on a GPU: FlashAttention-3's own grids of varlen and kvcache beside float64,
poison in everything that no kernel may read, graphs, many sequences, caches beyond 2^31 elements."""

import importlib.util
import random
import unittest
import unittest.mock

import kjit

try:
    import torch
except ImportError:
    torch = None
else:
    from kjit import flash_attn, flash_attn_interface
    from serving_reference import attention, close_enough, paged_cache, quantised, ragged, rotated

HAS_GPU = torch is not None and torch.cuda.is_available()
SEQ_PAIRS = [(1, 128), (1, 339), (3, 799), (3, 1024), (16, 20000), (64, 256), (64, 800), (64, 2048), (128, 128),
             (256, 512), (2048, 3577)]  # fmt: skip
VARLEN_PAIRS = [(1, 1), (1, 3), (2, 1), (511, 1), (3, 513), (64, 128), (128, 128), (256, 256), (113, 203), (128, 217),
                (113, 211), (108, 256), (256, 512), (307, 256), (640, 128), (512, 256), (1024, 1024)]  # fmt: skip


def check(test, found, tensors, what, **how):
    """FlashAttention's rule, by a reference in 16 bits."""
    problem = close_enough(found, attention(*tensors, **how), attention(*tensors, half=True, **how))
    test.assertEqual(problem, "", what)


def each(cases):
    """A method of a case becomes one test for each entry of `cases`, which run_gpu.py shares among processes, because
    most of their time is compiling. The entry is the method's argument; its place is the last part of the name."""

    class Tests:
        def __init__(self, method):
            self.method = method

        def __set_name__(self, owner, name):
            delattr(owner, name)
            for index, one in enumerate(cases):
                setattr(owner, f"{name}_{index}", lambda test, one=one: self.method(test, one))

    return Tests


def ints(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


@unittest.skipUnless(HAS_GPU, "PyTorch with a GPU is not here")
class Varlen(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        random.seed(0)

    @each(((64, "float16", 2), (128, "bfloat16", 6), (256, "bfloat16", 1), (96, "float16", 3)))
    def test_varlen__grid_is_right(self, kind):
        size, dtype, heads_kv = kind[0], getattr(torch, kind[1]), kind[2]
        for most_q, most_k in VARLEN_PAIRS:
            rows = [random.randint(max(0, most_q - 20), most_q) for _ in range(9)]
            keys = [random.randint(max(0, most_k - 20), most_k) for _ in range(9)]
            rows[3] = keys[5] = 0
            q, k, v, cu_q, cu_k = ragged(rows, keys, 6, heads_kv, size, dtype=dtype, device="cuda")
            options = {
                "causal": random.random() < 0.5,
                "window_size": random.choice([(-1, -1), (random.randint(0, most_k), random.randint(0, most_k))]),
                "attention_chunk": random.choice([0, 0, random.randint(1, most_k * 2)]),
                "softcap": random.choice([0.0, 0.0, 15.0]),
            }
            out = flash_attn_interface.flash_attn_varlen_func(q, k, v, cu_q, cu_k, most_q, most_k, **options)
            how = dict(options)
            how["window"], how["chunk"] = how.pop("window_size"), how.pop("attention_chunk")
            check(self, out, (q, k, v, cu_q, cu_k), (size, most_q, most_k, options), **how)

    def test_varlen__many_sequences_are_right(self):
        for count in (1024, 4096):
            rows = [random.choice([0, 1, 1, 1, 5]) for _ in range(count)]
            keys = [random.randint(0, 60) for _ in range(count)]
            tensors = ragged(rows, keys, 4, 2, 64, dtype=torch.bfloat16, device="cuda")
            out = flash_attn.flash_attn_varlen_func(*tensors, 5, 60, causal=True)
            check(self, out, tensors, count, causal=True)

    def test_varlen__nothing_to_do_is_no_error(self):
        q, k, v, cu_q, cu_k = ragged([0, 0], [0, 0], 2, 2, 64, device="cuda")
        self.assertEqual(flash_attn.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 0, 0).shape, (0, 2, 64))
        q, k, v, cu_q, cu_k = ragged([3, 1], [0, 0], 2, 2, 64, device="cuda")
        out, lse, _ = flash_attn.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 3, 1, return_attn_probs=True)
        self.assertTrue((out == 0).all() and (lse == -torch.inf).all())


@unittest.skipUnless(HAS_GPU, "PyTorch with a GPU is not here")
class KvCache(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        random.seed(0)

    def turn(self, q, k, cu_k, used, rotary, interleaved, in_steps, options):
        """q and k as a call with tables of cosines and sines, which become options of it, rotates q and new keys."""
        batch = len(used)
        rows = q.shape[0] // batch
        angles = torch.rand(int(used.max()) + rows, rotary // 2, device="cuda") * 6.3
        tables = [angles.cos().to(q.dtype), angles.sin().to(q.dtype)]
        options.update(rotary_cos=tables[0], rotary_sin=tables[1], rotary_interleaved=interleaved)
        steps = torch.arange(rows, device="cuda")
        q, k = q.clone(), k.clone()
        for b in range(batch):
            own, added = slice(b * rows, (b + 1) * rows), slice(int(cu_k[b + 1]) - rows, int(cu_k[b + 1]))
            q[own] = rotated(q[own], used[b] + (steps if in_steps else 0 * steps), *tables, interleaved)
            k[added] = rotated(k[added], used[b] + steps, *tables, interleaved)
        return q, k

    def place(self, cache, places, pads, count):
        """Rows of a cache as some of `count` rows of a larger one, with slots that hold no key on their left."""
        wider = cache.new_full((count, *cache.shape[1:]), float("nan"))
        for row, place, pad in zip(cache, places.tolist(), pads):
            wider[place] = row.roll(pad, 0)
        return wider

    def one(self, rows, capacity, heads_kv, page, num_splits, causal, window, chunk, new, *, padded=False,
            permuted=False, rotary=0, interleaved=False, planned=False):  # fmt: skip
        """`padded`: slots on the left hold no key; `permuted`: sequences have rows of a larger cache; `rotary`: columns
        that are rotated; `planned`: with a schedule."""
        batch = 3
        lengths = [random.randint(max(1, min(rows, capacity - rows)), max(1, capacity - rows)) for _ in range(batch)]
        lengths[1] = max(lengths[1] // 2, 1)
        total = [length + (rows if new else 0) for length in lengths]
        pads = [random.randint(0, max(0, capacity - all_keys)) if padded else 0 for all_keys in total]
        q, k, v, cu_q, cu_k = ragged([rows] * batch, total, 6, heads_kv, 128, dtype=torch.bfloat16, device="cuda")
        pages = page or capacity
        k_cache, v_cache, table = paged_cache(k, v, cu_k, pages)
        k_new = v_new = None
        if new:  # what is appended is poison in the cache beforehand
            begins = cu_k.tolist()
            k_new, v_new = (torch.stack([t[b - rows : b] for b in begins[1:]]) for t in (k, v))
            for b, length in enumerate(lengths):
                for position in range(length, length + rows):
                    slot = table[b, position // pages], position % pages
                    k_cache[slot] = v_cache[slot] = float("nan")
        options = {"causal": causal, "window_size": window, "attention_chunk": chunk, "num_splits": num_splits}
        used = ints([length + pad for length, pad in zip(lengths, pads)])
        q_turned = q
        if rotary:
            q_turned, k = self.turn(q, k, cu_k, used, rotary, interleaved, causal or window != (-1, -1), options)
        of_cache = {"page_table": None if page is None else table}
        if page is None:  # without pages each sequence's only page is its row of the cache
            rows_of_cache = 2 * batch if permuted else batch
            places = (torch.randperm if permuted else torch.arange)(rows_of_cache, device="cuda")[:batch]
            k_cache, v_cache = (
                self.place(cache[table[:, 0].long()], places, pads, rows_of_cache) for cache in (k_cache, v_cache)
            )
            if permuted:
                of_cache["cache_batch_idx"] = places.int()
            if padded:
                of_cache["cache_leftpad"] = ints(pads)
        if planned:
            of_cache["scheduler_metadata"] = flash_attn_interface.get_scheduler_metadata(
                batch, rows, capacity, 6, heads_kv, 128, used, q.dtype, page_size=page, causal=causal,
                window_size=window, attention_chunk=chunk, num_splits=num_splits, max_seqlen_k_new=rows if new else 0,
                cache_leftpad=of_cache.get("cache_leftpad"),
            )  # fmt: skip
        out, lse = flash_attn_interface.flash_attn_with_kvcache(
            q.unflatten(0, (batch, rows)), k_cache, v_cache, k_new, v_new, cache_seqlens=used, return_softmax_lse=True,
            **of_cache, **options,
        )  # fmt: skip
        how = {"causal": causal, "window": window, "chunk": chunk}
        what = (rows, capacity, heads_kv, page, how, num_splits, new, padded, permuted, rotary, interleaved, planned)
        check(self, out.flatten(0, 1), (q_turned, k, v, cu_q, cu_k), what, **how)
        _, exact = attention(q_turned, k, v, cu_q, cu_k, lse=True, **how)
        found = lse.transpose(1, 2).flatten(0, 1).double()
        self.assertTrue(torch.equal(found.isinf(), exact.isinf()), what)
        self.assertLess((found - exact).nan_to_num(0, 0, 0).abs().max().item(), 2e-3, what)
        if not new:
            return
        for b, length in enumerate(lengths):
            at = length + pads[b] + torch.arange(rows, device="cuda")
            slots = (table[b, at // page].long(), at % page) if page else (places[b], at)
            self.assertTrue(torch.equal(v_cache[slots], v_new[b]), what)
            wanted = k[int(cu_k[b + 1]) - rows : int(cu_k[b + 1])]
            # What is rotated in fp32 may be rounded to the neighbour of 16 bits.
            bound = (wanted.float().abs() * torch.finfo(q.dtype).eps + 1e-3) * bool(rotary)
            self.assertTrue(bool(((k_cache[slots].float() - wanted.float()).abs() <= bound).all()), what)

    @each(SEQ_PAIRS)
    def test_kvcache__grid_is_right(self, lengths):
        rows, capacity = lengths
        random.seed(capacity)
        for heads_kv in (6, 3, 1):
            for page in (None, 1, 4, 128):
                new = random.random() < 0.4 and rows <= 64
                window = random.choice([(-1, -1), (random.randint(0, capacity), random.randint(0, capacity))])
                chunk = random.choice([0, 0, random.randint(1, capacity * 2)])
                self.one(
                    rows, capacity, heads_kv, page, random.choice([0, 0, 1, 3]), random.random() < 0.5, window, chunk,
                    new,
                )  # fmt: skip

    @each(SEQ_PAIRS)
    def test_kvcache__grid_of_rotated_padded_and_permuted_caches_is_right(self, lengths):
        rows, capacity = lengths
        random.seed(capacity + 1)
        for rotary in (0, 64, 128):
            for page in (None, None, 1, 128):
                window = random.choice([(-1, -1), (random.randint(0, capacity), random.randint(0, capacity))])
                self.one(
                    rows, capacity, random.choice([6, 3, 1]), page, random.choice([0, 0, 1, 3]), random.random() < 0.5,
                    window, 0, rows <= 64, padded=page is None and random.random() < 0.5,
                    permuted=page is None and random.random() < 0.5, rotary=rotary if rows <= 64 else 0,
                    interleaved=random.random() < 0.5, planned=random.random() < 0.5,
                )  # fmt: skip

    @each(((1, 8, 2, 128, 16), (1, 32, 2, 64, 64), (4, 32, 2, 128, 16), (1, 8, 8, 256, 16), (1, 6, 3, 80, 1),
           (300, 4, 2, 128, 16)))  # fmt: skip
    def test_kvcache__e4m3_cache_is_right(self, shape):
        rows, heads, heads_kv, size, page = shape
        for dtype in (torch.bfloat16, torch.float16):
            total = [700 + rows, rows, 4000, 33 + rows]
            q, k, v, cu_q, cu_k = ragged([rows] * 4, total, heads, heads_kv, size, dtype=dtype, device="cuda")
            descales = [torch.rand(heads_kv, device="cuda") * 0.05 + 0.005 for _ in "kv"]
            (k8, k_exact), (v8, v_exact) = quantised(k, descales[0]), quantised(v, descales[1])
            cache = paged_cache(k8.view(torch.uint8), v8.view(torch.uint8), cu_k, page, 0x7F)
            k_pages, v_pages, table = cache
            begins = cu_k.tolist()
            new = [torch.cat([t[b - rows : b] for b in begins[1:]]).unflatten(0, (4, rows)) for t in (k, v)]
            place = torch.tensor([[n - rows + i for i in range(rows)] for n in total], device="cuda")
            slot = table.gather(1, place // page).long(), place % page
            k_pages[slot] = v_pages[slot] = 0x7F  # what is appended is NaN beforehand
            out = flash_attn_interface.flash_attn_with_kvcache(
                q.unflatten(0, (4, rows)), k_pages.view(torch.float8_e4m3fn), v_pages.view(torch.float8_e4m3fn),
                *new, cache_seqlens=ints([n - rows for n in total]), page_table=table, causal=True,
                k_descale=descales[0].expand(4, heads_kv), v_descale=descales[1].expand(4, heads_kv),
            )  # fmt: skip
            exact = attention(q.float(), k_exact, v_exact, cu_q, cu_k, causal=True)
            half = attention(q, k_exact.to(dtype), v_exact.to(dtype), cu_q, cu_k, causal=True, half=True)
            self.assertEqual(close_enough(out.flatten(0, 1), exact, half), "", (rows, heads, size, page, dtype))
            for pages, whole in ((k_pages, k8), (v_pages, v8)):
                wanted = torch.cat([whole[b - rows : b] for b in begins[1:]]).view(torch.uint8)
                self.assertTrue(torch.equal(pages[slot].flatten(0, 1), wanted), (rows, heads, size, page, dtype))

    def test_varlen__e4m3_queries_are_right(self):
        tensors = ragged([5, 200, 1], [90, 200, 4000], 8, 2, 128, dtype=torch.bfloat16, device="cuda")
        q8, k8, v8 = (t.to(torch.float8_e4m3fn) for t in tensors[:3])
        scales = [torch.rand(3, 2, device="cuda") + 0.5 for _ in "qkv"]
        scales[0] = scales[0][:, :1].expand(3, 2)  # one for all heads of a sequence
        out = flash_attn_interface.flash_attn_varlen_func(
            q8, k8, v8, *tensors[3:], 200, 4000, causal=True,
            q_descale=scales[0], k_descale=scales[1], v_descale=scales[2],
        )  # fmt: skip
        self.assertEqual(out.dtype, torch.bfloat16)
        q, k, v = (
            t.double() * s.double().repeat_interleave(c.diff(), 0).repeat_interleave(t.shape[1] // 2, 1)[..., None]
            for t, s, c in zip((q8, k8, v8), scales, (tensors[3], tensors[4], tensors[4]))
        )
        exact = attention(q, k, v, *tensors[3:], causal=True)
        self.assertLess((out.double() - exact).abs().max().item(), 0.02 * exact.abs().max().item())

    def test_kvcache__beyond_2_31_elements_is_right(self):
        pages, page, heads, size = 65536, 32, 8, 128  # 2^31 elements of keys
        if torch.cuda.mem_get_info()[0] < 12 << 30:
            self.skipTest("not 12 GiB free")
        shape = (pages + 8, page, heads, size)
        k_cache, v_cache = (torch.empty(shape, dtype=torch.bfloat16, device="cuda") for _ in "kv")
        table = ints([[pages + 7 - i for i in range(4)], [0, pages // 2, pages - 1, pages]])
        k, v = (torch.randn(8 * page, heads, size, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        for cache, rows in ((k_cache, k), (v_cache, v)):
            cache[table.flatten().long()] = rows.view(8, page, heads, size)
        lengths, q = [128, 100], torch.randn(2, 1, 64, size, dtype=torch.bfloat16, device="cuda")
        out = flash_attn_interface.flash_attn_with_kvcache(
            q, k_cache, v_cache, cache_seqlens=ints(lengths), page_table=table
        )
        k, v = torch.cat([k[:128], k[128:228]]), torch.cat([v[:128], v[128:228]])
        check(self, out.flatten(0, 1), (q.flatten(0, 1), k, v, ints([0, 1, 2]), ints([0, 128, 228])), "large")

    def test_kvcache__graph_is_replayed_with_other_lengths(self):
        batch, capacity, page = 8, 512, 16
        tensors = ragged([1] * batch, [capacity] * batch, 8, 2, 128, dtype=torch.bfloat16, device="cuda")
        q, k, v, cu_q, cu_k = tensors
        k_cache, v_cache, table = paged_cache(k, v, cu_k, page)
        lengths = ints([1] * batch)
        static_q = q.unflatten(0, (batch, 1)).clone()

        def step():
            metadata = flash_attn_interface.get_scheduler_metadata(
                batch, 1, capacity, 8, 2, 128, lengths, torch.bfloat16, page_size=page
            )
            return [
                flash_attn_interface.flash_attn_with_kvcache(
                    static_q, k_cache, v_cache, cache_seqlens=lengths, page_table=table, scheduler_metadata=each
                )
                for each in (None, metadata)
            ]

        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs = step()
        for _ in range(5):
            chosen = [random.choice([0, 1, random.randint(1, capacity)]) for _ in range(batch)]
            lengths.copy_(ints(chosen))
            cut = ints([0, *torch.tensor(chosen).cumsum(0).tolist()])
            used = [slice(b * capacity, b * capacity + n) for b, n in enumerate(chosen)]
            keys, values = (torch.cat([t[rows] for rows in used]) for t in (k, v))
            before = None
            for _ in range(3):
                graph.replay()
                torch.cuda.synchronize()
                for out in outs:
                    check(self, out.flatten(0, 1), (q, keys, values, cu_q, cut), chosen)
                    self.assertTrue(before is None or torch.equal(out, before), "other bits")
                    before = out.clone()


@unittest.skipUnless(HAS_GPU, "PyTorch with a GPU is not here")
class Mixed(unittest.TestCase):
    """Sequences of many rows and of few, of which some have very many keys, in one call."""

    ROWS = [300, 1, 1, 5, 0, 1, 64, 1]
    KEYS = [700, 9000, 17, 900, 30, 4000, 64, 1]

    def setUp(self):
        torch.manual_seed(0)
        random.seed(0)

    def tensors(self, heads_kv):
        return ragged(self.ROWS, self.KEYS, 8, heads_kv, 128, dtype=torch.bfloat16, device="cuda")

    def test_mixed__batches_are_right(self):
        for page, heads_kv in ((1, 2), (4, 8), (16, 2), (16, 1), (16, 8), (64, 2), (256, 4)):
            q, k, v, cu_q, cu_k = self.tensors(heads_kv)
            k_cache, v_cache, table = paged_cache(k, v, cu_k, page)
            for num_splits in (0, 1, 3):
                out = flash_attn_interface.flash_attn_with_kvcache(
                    q, k_cache, v_cache, cache_seqlens=ints(self.KEYS), page_table=table, cu_seqlens_q=cu_q,
                    max_seqlen_q=300, causal=True, num_splits=num_splits,
                )  # fmt: skip
                check(self, out, (q, k, v, cu_q, cu_k), (page, heads_kv, num_splits), causal=True)

    def test_mixed__graph_is_replayed_with_other_lengths(self):
        q, k, v, cu_q, cu_k = self.tensors(2)
        k_cache, v_cache, table = paged_cache(k, v, cu_k, 16)
        lengths, begins = ints(self.KEYS), cu_k.tolist()

        def step():
            paged = flash_attn_interface.flash_attn_with_kvcache(
                q, k_cache, v_cache, cache_seqlens=lengths, page_table=table, cu_seqlens_q=cu_q, max_seqlen_q=300,
                causal=True,
            )  # fmt: skip
            ragged_keys = flash_attn_interface.flash_attn_varlen_func(
                q, k, v, cu_q, cu_k, 300, 9000, seqused_k=lengths, causal=True
            )
            return paged, ragged_keys

        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs = step()
        for _ in range(4):
            rows = random.sample(self.ROWS, len(self.ROWS))
            keys = [random.choice([0, n, random.randint(0, n)]) for n in self.KEYS]
            cu_q.copy_(ints([0, *torch.tensor(rows).cumsum(0).tolist()]))
            lengths.copy_(ints(keys))
            cut = ints([0, *torch.tensor(keys).cumsum(0).tolist()])
            used = [torch.cat([t[b : b + n] for b, n in zip(begins, keys)]) for t in (k, v)]
            before = None
            for _ in range(2):
                graph.replay()
                torch.cuda.synchronize()
                for out in outs:
                    check(self, out, (q, *used, cu_q, cut), (rows, keys), causal=True)
                self.assertTrue(before is None or torch.equal(outs[0], before), "other bits")
                before = outs[0].clone()

    def test_append__is_captured_and_replayed(self):
        batch, capacity, page, new = 5, 256, 16, 3
        kind = {"dtype": torch.bfloat16, "device": "cuda"}
        k_cache, v_cache = (torch.full((batch * capacity // page, page, 2, 128), float("nan"), **kind) for _ in "kv")
        table = torch.randperm(batch * capacity // page, device="cuda").int().view(batch, -1)
        q, k_new, v_new = (torch.randn(batch, new, heads, 128, **kind) for heads in (8, 2, 2))
        lengths = ints([0] * batch)

        def step():
            return flash_attn_interface.flash_attn_with_kvcache(
                q, k_cache, v_cache, k_new, v_new, cache_seqlens=lengths, page_table=table, causal=True
            )

        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = step()
        keys, values = [], []
        for index in range(6):
            for tensor in (q, k_new, v_new):
                tensor.normal_()
            lengths.fill_(index * new)
            keys.append(k_new.clone())
            values.append(v_new.clone())
            graph.replay()
            torch.cuda.synchronize()
            all_keys, all_values = torch.cat(keys, 1), torch.cat(values, 1)
            count = all_keys.shape[1]
            cu_q, cu_k = (ints(range(0, batch * n + 1, n)) for n in (new, count))
            given = q.flatten(0, 1), all_keys.flatten(0, 1), all_values.flatten(0, 1), cu_q, cu_k
            check(self, out.flatten(0, 1), given, index, causal=True)
            for cache, wanted in ((k_cache, all_keys), (v_cache, all_values)):
                found = cache[table.long()].view(batch, capacity, 2, 128)[:, :count]
                self.assertTrue(torch.equal(found, wanted), index)


@unittest.skipUnless(HAS_GPU and importlib.util.find_spec("transformers"), "a GPU, PyTorch or transformers is not here")
class Transformers(unittest.TestCase):
    """A tiny model by FlashAttention's names, which are kjit's, beside sdpa: the same tokens, but where two of them are
    as likely as 16 bits can tell."""

    PROMPTS = [[5, 6, 7, 8, 9], [9, 10], [3] * 40, list(range(4, 60)), [33], [40, 41, 42, 43]]
    TOKENS = 8
    needs_the_gpu_alone = True  # continuous batching has a race of transformers' own that a shared card brings out

    def setUp(self):
        kjit.install_as_flash_attn()
        import transformers

        torch.manual_seed(3)
        self.transformers = transformers
        config = transformers.LlamaConfig(
            hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=64, vocab_size=64, max_position_embeddings=512, initializer_range=0.2,
        )  # fmt: skip
        self.model = transformers.LlamaForCausalLM._from_config(config, dtype=torch.bfloat16).cuda().eval()
        self.wanted = [self.generate("sdpa", torch.tensor([prompt]).cuda())[0] for prompt in self.PROMPTS]

    def generate(self, implementation, prompts, mask=None):
        self.model.set_attn_implementation(implementation)
        mask = torch.ones_like(prompts) if mask is None else mask
        out = self.model.generate(
            prompts, attention_mask=mask, max_new_tokens=self.TOKENS, do_sample=False, pad_token_id=0, eos_token_id=None
        )
        return out[:, prompts.shape[1] :].tolist()

    def check_tokens(self, found, what):
        alike = sum(one == other for one, other in zip(found, self.wanted))
        self.assertGreaterEqual(alike, len(self.wanted) - 1, (what, found, self.wanted))

    def test_transformers__padded_batches_give_the_same_tokens(self):
        longest = max(map(len, self.PROMPTS))
        prompts = torch.tensor([[0] * (longest - len(p)) + p for p in self.PROMPTS]).cuda()
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in self.PROMPTS]).cuda()
        for version in (2, 3):
            launches = kjit.default_runtime().stats()["launches"]
            self.check_tokens(self.generate(f"flash_attention_{version}", prompts, mask), version)
            self.assertGreaterEqual(kjit.default_runtime().stats()["launches"] - launches, 2 * self.TOKENS)

    def wait_for_cleared_inputs(self):
        """Make transformers wait for what it clears before its first batch.

        Its batches have two sets of inputs on the device. Before the first batch it clears them on the default stream,
        and waits for its own three streams alone, which the default stream does not wait for. Where other programs use
        the GPU, inputs may therefore be cleared behind the copy of the first batch, which then writes no keys to the
        cache, or takes every sequence's token from row 0, with any attention (transformers 5.17 and 5.23).
        """
        from transformers.generation.continuous_batching import input_outputs

        ios = getattr(input_outputs, "ContinuousBatchingAsyncIOs", None)
        if ios is None:  # an older version, whose batches do not overlap
            return
        clear = ios.reset

        def clear_and_wait(self):
            clear(self)
            torch.cuda.synchronize()

        patch = unittest.mock.patch.object(ios, "reset", clear_and_wait)
        patch.start()
        self.addCleanup(patch.stop)

    def test_transformers__continuous_batching_gives_the_same_tokens(self):
        how = self.transformers.GenerationConfig(
            max_new_tokens=self.TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        options = {}
        if hasattr(self.transformers, "ContinuousBatchingConfig"):
            options["continuous_batching_config"] = self.transformers.ContinuousBatchingConfig(
                num_blocks=64, max_batch_tokens=256
            )
            self.wait_for_cleared_inputs()
        for version in (2, 3):
            self.model.set_attn_implementation(f"flash_attention_{version}")
            launches = kjit.default_runtime().stats()["launches"]
            found = self.model.generate_batch(self.PROMPTS, generation_config=how, progress_bar=False, **options)
            tokens = [found[name].generated_tokens for name in sorted(found, key=lambda name: int(name.split("_")[-1]))]
            self.check_tokens(tokens, version)
            self.assertGreater(kjit.default_runtime().stats()["launches"] - launches, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
