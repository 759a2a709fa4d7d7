"""Score and mask functions from Python: what the tracer makes of them, beside PyTorch's own evaluation of the same
functions, and what it refuses. The worked examples of docs/variants.md are run here. No GPU."""

import importlib.util
import math
import random
import re
import sys
import types
import unittest
from pathlib import Path

import harness
import kjit
from kjit.variant import Bound, bind, from_functions, from_text

try:
    import torch
except ImportError:
    torch = None
else:
    import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]
SEQ, HEADS, BATCH = 96, 4, 2


def at(bound, score, b, h, q, k):
    return bound.evaluate(score, b, h, q, k, seq_q=SEQ, seq_kv=SEQ, heads_q=HEADS, heads_kv=2)


class Texts(unittest.TestCase):
    def test_text__has_its_params(self):
        bound = from_text("cap * tanh(score / cap)", "q - k <= window and q >= k", {"cap": 30.0, "window": 5})
        self.assertAlmostEqual(at(bound, 40.0, 0, 0, 9, 4).score, 30 * math.tanh(40 / 30), places=5)
        self.assertEqual([at(bound, 0, 0, 0, 9, k).seen for k in (3, 4, 9, 10)], [False, True, True, False])

    def test_evaluate__of_a_number_that_does_not_fit_names_it(self):
        bound = from_text(None, "q >= k")
        for name in ("seq_q", "seq_kv", "heads_q", "heads_kv"):
            sizes = {"seq_q": SEQ, "seq_kv": SEQ, "heads_q": HEADS, "heads_kv": 2, name: 2**40}
            with self.assertRaisesRegex(OverflowError, f"{name} is 1099511627776: must be "):
                bound.evaluate(0.0, 0, 0, 9, 4, **sizes)
        for place in ((2**40, 0, 0, 0), (0, 2**40, 0, 0), (0, 0, 2**40, 0), (0, 0, 0, -(2**40))):
            self.assertRaisesRegex(OverflowError, "must be ", at, bound, 0.0, *place)

    def test_text__that_comes_again_is_the_same_variant(self):
        one, other = (from_text(None, "q - k <= w", {"w": w}) for w in (3, 4))
        self.assertIs(one.variant, other.variant)
        self.assertEqual(one.values, (3,))

    def test_error__has_the_librarys_sentence(self):
        with self.assertRaisesRegex(kjit.ParseError, "column 6: .*did you mean window"):
            from_text(None, "q <= windw", {"window": 3})

    def test_error__of_several_lines_has_the_line(self):
        with self.assertRaisesRegex(kjit.ParseError, "mask: line 2, column 14: "):
            from_text(None, "let far = q;\n  far >= k + ")

    def test_params_and_tensors__that_do_not_fit_are_named(self):
        def refused(kind, why, value, name="w"):
            with self.assertRaisesRegex(kind, f"params.'{name}'. is {why}"):
                at(from_text(None, "q - k <= w and k < 1.0 * v", {"w": 1, "v": 2.0, name: value}), 0, 0, 0, 0, 0)

        refused(TypeError, "'5': must be an int or a float", "5")
        refused(TypeError, "None: must be an int or a float", None)
        refused(OverflowError, "2147483648: must be -2147483648 to 2147483647", 1 << 31)
        refused(OverflowError, "1e[+]300: must be within fp32", 1e300, "v")
        with self.assertRaisesRegex(TypeError, "tensors.'t'. is a list: must be a tensor"):
            from_text(None, "t[q] > 0", tensors={"t": [1, 2]})
        with self.assertRaisesRegex(TypeError, "params is .*: must be a mapping"):
            from_text(None, "q <= w", [("w", 3)])

    def test_params_and_tensors__that_no_text_uses_are_named(self):
        with self.assertRaisesRegex(TypeError, "params.'windw'.: score and mask do not use this name"):
            from_text("score", "q - k <= window", {"window": 3, "windw": 4})
        with self.assertRaisesRegex(TypeError, "params.'w'.: mask does not use this name"):
            kjit.explain(mask="q >= k or q < w1", params={"w1": 1, "w": 3})
        with self.assertRaisesRegex(TypeError, "tensors.'t'.: score does not use this name"):
            from_text("score + 1", tensors={"t": types.SimpleNamespace(dtype="torch.float32", ndim=1)})
        from_text("score * s", "let w = 5; q - k <= w + n", {"s": 2.0, "n": 4})  # each is used by one of both

    def test_function__may_read_what_it_does_not_use(self):
        unused = torch.arange(SEQ) if torch else None

        def mask(b, h, q, k):
            q * 17
            if torch:
                unused[q]
            return q >= k

        self.assertTrue(at(from_functions(None, mask), 0, 0, 0, 9, 9).seen)

    def test_function__of_ten_thousand_operations_is_refused(self):
        def chain(score, b, h, q, k):
            for i in range(10000):
                score = score + i * q
            return score

        with self.assertRaisesRegex(kjit.ParseError, r"variant_test.py:\d+: score: the expression is longer than"):
            from_functions(chain)

    def test_parts__that_are_used_again_and_again_cost_no_time(self):
        """Each sum has two ways to the one before it, and the last one 2^60 to the first."""

        def doubled(score, b, h, q, k):
            for _ in range(60):
                score = score + score
            return score

        self.assertEqual(from_functions(doubled).variant.info["operations"], 60)

    def test_function__that_the_library_refuses_is_named_by_its_own_line(self):
        def mask(b, h, q, k):
            return q

        place = rf"^\S*variant_test.py:{mask.__code__.co_firstlineno}: "
        with self.assertRaisesRegex(kjit.ParseError, place + "mask: a mask is a condition"):
            from_functions(None, mask)
        with self.assertRaisesRegex(TypeError, "mask_mod is a int: must be a function"):
            from_functions(None, 5)

    def test_bind__takes_functions_or_texts(self):
        self.assertIsNone(bind())
        with self.assertRaisesRegex(TypeError, "not both"):
            bind(mask="q >= k", mask_mod=lambda b, h, q, k: q >= k)
        with self.assertRaisesRegex(TypeError, "belong to"):
            bind(params={"a": 1})

    def test_function__without_torch_in_it(self):
        bound = from_functions(None, lambda b, h, q, k: (q - k <= 7) & (q >= k))
        self.assertIsInstance(bound, Bound)
        self.assertEqual(bound.variant.info["intervals"], 1)
        self.assertTrue(at(bound, 0, 0, 0, 9, 2).seen)
        self.assertFalse(at(bound, 0, 0, 0, 9, 1).seen)

    def test_window__of_another_size_is_the_same_kernel(self):
        def window(size):
            return lambda b, h, q, k: (q - k <= size) & (q >= k)

        digests = {from_functions(None, window(size)).variant.digest for size in range(3, 23)}
        self.assertEqual(len(digests), 1)

    def test_variant__is_refused_by_arrays_that_are_no_tensors(self):
        with self.assertRaises(NotImplementedError):
            kjit.attention(object(), object(), object(), mask="q >= k")


def cases(seq=SEQ, device="cpu"):
    """{name: mask_mod} and {name: score_mod} for each row of the functions that people write. seq: a multiple of 96."""
    generator = torch.Generator().manual_seed(1)
    scale = seq // SEQ

    def here(tensor):
        return tensor.to(device)

    def uniform(*shape):
        return torch.rand(shape, generator=generator)

    doc = here(torch.repeat_interleave(torch.arange(5), scale * torch.tensor([17, 30, 9, 22, 18])))
    off = here(scale * torch.tensor([0, 17, 47, 56, 78, 96], dtype=torch.int32))
    parent = here(torch.tensor([0, 0, 1, 1, 3]))
    flags, pad = here(uniform(seq) < 0.1), here(uniform(BATCH, seq) < 0.8)
    length, prefix = here(scale * torch.tensor([50, 90])), here(scale * torch.tensor([20, 33]))
    slope, table = here(uniform(HEADS)), here(torch.randn(2 * seq, generator=generator))
    bias = here(torch.randn(BATCH, 1, seq, seq, generator=generator).to(torch.bfloat16)).expand(BATCH, HEADS, seq, seq)
    emb = here(torch.randn(32, HEADS, generator=generator))
    select = here(torch.randint(0, seq // 16, (BATCH, HEADS, seq // 16, 3), generator=generator))
    tiles, tile_size = here(uniform(BATCH, HEADS, seq // 16, seq // 16) < 0.4), here(torch.arange(seq // 16) % 5 + 12)
    interval, image = (
        here(torch.randint(0, seq, (7, 2), generator=generator)),
        here(torch.randint(0, 7, (seq,), generator=generator)),
    )
    group = here(torch.randint(-1, 4, (BATCH, seq), generator=generator))
    graph = here(torch.randint(0, 32, (BATCH, seq, seq), generator=generator, dtype=torch.uint8))
    position, temperature = here(torch.randperm(seq, generator=generator)), torch.tensor(0.7)
    tree = here(uniform(16, 16) < 0.5)
    W, OFF, P, B, C, H = 11, 5, 20, 16, 30.0, HEADS

    def causal(b, h, q, k):
        return q >= k

    def window(b, h, q, k):
        return q - k <= W

    def batchify(inner):
        return lambda b, h, q, k: (q // B == k // B) & inner(b, h, q % B, k % B)

    def bucket(distance):
        far = 8 + (torch.log(distance.float() / 8) / math.log(128 / 8) * 8 + 1e-3).to(torch.int64)
        return torch.where(distance < 8, distance, torch.minimum(far, torch.full_like(far, 15)))

    def t5(score, b, h, q, k):
        back = (k > q).to(torch.int64) * 16
        return score + emb[back + bucket(torch.abs(k - q)), h]

    def morton(i):
        return (i & 1) | ((i >> 1) & 2) | ((i >> 2) & 4)

    def natten(b, h, q, k):
        center = torch.clamp(q // 12, 2, 8 - 1 - 2)
        return ((center - k // 12).abs() <= 2) & (((q % 12).clamp(2, 9) - k % 12).abs() <= 2)

    def tile(i):
        """A place in a picture 12 wide: its tile of 4 by 4."""
        return i // 12 // 4, i % 12 // 4

    def shared_prefix(b, h, q, k):
        d = doc[q]
        before = parent[d]
        return ((k >= off[d]) & (q >= k)) | ((d != before) & (off[before] <= k) & (k < off[before + 1]))

    def diffusion(b, h, q, k):
        half = seq // 2
        bq, bk, q_is_new, k_is_new = q % half // B, k % half // B, q < half, k < half
        same = (bq == bk) & (q_is_new == k_is_new)
        return same | ((bq > bk) & ~k_is_new & q_is_new) | ((bq >= bk) & ~(q_is_new | k_is_new))

    def tiled(b, h, q, k):
        (row, column), (other_row, other_column) = tile(q), tile(k)
        return ((row - other_row).abs() <= 1) & ((column - other_column).abs() <= 1)

    def sta(b, h, q, k):
        (row, column), (other_row, other_column) = tile(q), tile(k)
        row, column = row.clamp(1, 1 + scale), column.clamp(1, 1)
        near = ((row - other_row).abs() <= 1) & ((column - other_column).abs() <= 1)
        return (near & (q < seq - 9) & (k < seq - 9)) | (k >= seq - 9) | (q >= seq - 9)

    from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

    masks = {
        "causal": causal,
        "offset": lambda b, h, q, k: q + OFF >= k,
        "window": and_masks(causal, window),
        "two sided": lambda b, h, q, k: torch.abs(q - k) <= W,
        "dilated": lambda b, h, q, k: (abs(q - k) <= W) & (abs(q - k) % 3 == 0),
        "mini causal": lambda b, h, q, k: q % 32 >= k % 32,
        "left and right": lambda b, h, q, k: (q + OFF - 9 <= k) & (k <= q + OFF + 3),
        "packed causal": lambda b, h, q, k: (k >= off[doc[q]]) & (q >= k),
        "shared prefix": shared_prefix,
        "block diagonal": lambda b, h, q, k: q // 24 == k // 24,
        "block diffusion": diffusion,
        "images": lambda b, h, q, k: (q >= k) | ((group[b, q] == group[b, k]) & (group[b, q] >= 0)),
        "natten, tiled": tiled,
        "sta": sta,
        "svg, spatial": lambda b, h, q, k: (k < P) | (q < P) | ((q - k).abs() < 30),
        "svg, temporal": lambda b, h, q, k: (k < P) | (q < P) | (((q - P) % 24 - (k - P) % 24).abs() < 3),
        "tile map": lambda b, h, q, k: tiles[b, h, q // 16, k // 16] & (k % 16 < tile_size[k // 16]),
        "longformer": lambda b, h, q, k: ((q - k).abs() <= W) | flags[q] | flags[k],
        "streaming": or_masks(and_masks(causal, window), lambda b, h, q, k: k < 4),
        "prefix": or_masks(causal, lambda b, h, q, k: k < prefix[b]),
        "document": lambda b, h, q, k: doc[q] == doc[k],
        "document causal": lambda b, h, q, k: (doc[q] == doc[k]) & causal(b, h, q - off[doc[q]], k - off[doc[k]]),
        "block causal": lambda b, h, q, k: q // B >= k // B,
        "batchify": batchify(causal),
        "chunked": lambda b, h, q, k: torch.logical_and((k - OFF) // B == (q - OFF) // B, k <= q),
        "padding": lambda b, h, q, k: pad[b, k],
        "lengths": lambda b, h, q, k: (k < length[b]) & (q < length[b]),
        "remapped": lambda b, h, q, k: causal(b, h, position[q], position[k]),
        "flamingo": lambda b, h, q, k: (interval[image[k]][0] <= q) & (q < interval[image[k]][1]),
        "natten": natten,
        "morton": lambda b, h, q, k: abs(morton(q) - morton(k)) <= 2,
        "tree": lambda b, h, q, k: (k < P) | ((P <= k) & (k < P + 16) & tree[q.clamp(max=15), (k - P).clamp(0, 15)]),
        "draft": lambda b, h, q, k: (k < P) | ((q // 8 == k // 8) & (k % 8 <= q % 8)),
        "top-k": lambda b, h, q, k: (select[b, h, q // B] == k // B).any(-1),
        "top-k, by slice": lambda b, h, q, k: torch.any(select[b, h, q // B, :] == k // B, dim=-1),
        "not": lambda b, h, q, k: ~(torch.logical_not(q >= k) | torch.ne(k % 3, 1)),
        "noop": noop_mask,
        "bool of where": lambda b, h, q, k: torch.where(q > 20, q >= k, k < 30),
        "xor": lambda b, h, q, k: (q > k) ^ (k % 2 == 0),
        "0-d tensor": lambda b, h, q, k: q - k <= torch.tensor(9),
    }
    scores = {
        "alibi": lambda s, b, h, q, k: s + (k - q) * torch.exp2(-((h + 1) * 8.0 / H)),
        "alibi, slopes": lambda s, b, h, q, k: s - slope[h] * (q + OFF - k).abs(),
        "relative": lambda s, b, h, q, k: s + (q - k),
        "head bias": lambda s, b, h, q, k: s + 2 * h,
        "key bias": lambda s, b, h, q, k: s + table[k],
        "t5": t5,
        "distance": lambda s, b, h, q, k: s + table[q - k + seq] * slope[h],
        "sandwich": lambda s, b, h, q, k: s + table[(q - k + seq).clamp(0, 2 * seq - 1)] * (1 + slope[h]),
        "graphormer": lambda s, b, h, q, k: s + emb[graph[b, q, k].to(torch.int32), h],
        "row bias": lambda s, b, h, q, k: s + table[q] - (q - k),
        "bias": lambda s, b, h, q, k: s + bias[b, h, q, k],
        "bias, chained": lambda s, b, h, q, k: s + bias[b][0][q][k],
        "softcap": lambda s, b, h, q, k: C * torch.tanh(s / C),
        "gelu": lambda s, b, h, q, k: torch.log(F.gelu(s) + 1.5),
        "gelu, tanh": lambda s, b, h, q, k: F.gelu(s, approximate="tanh"),
        "relu": lambda s, b, h, q, k: torch.log(F.relu(s) + 0.5),
        "sigmoid": lambda s, b, h, q, k: torch.log(torch.sigmoid(s) + 0.5) + s.sigmoid(),
        "temperature": lambda s, b, h, q, k: s * temperature + s / 2.0,
        "square": lambda s, b, h, q, k: s * s + torch.square(s) + s**2 + torch.pow(s.abs() + 1, 1.5),
        "conditional": lambda s, b, h, q, k: torch.where(torch.abs(q - k) <= 8, 2 * s, s),
        "pattern": lambda s, b, h, q, k: s + ((q ^ k) & 255).float() * 0.01,
        "clamp": lambda s, b, h, q, k: s.clamp(-1, 1.5) + torch.clamp(s, min=0) + torch.maximum(s, s * 0.5),
        "roots": lambda s, b, h, q, k: (s.abs() + 1).sqrt() + torch.rsqrt(s.abs() + 1) + torch.floor(s) + torch.exp(s),
        "division": lambda s, b, h, q, k: (
            s + q / 3 + torch.div(q, 3, rounding_mode="floor") + torch.remainder(k - 9, 4)
        ),
        "constants": lambda s, b, h, q, k: s + s.new_zeros(()) + torch.ones_like(s) + torch.full_like(s, 3.0),
        "reversed": lambda s, b, h, q, k: 3.0 - s + 1 / (s * s + 1) + torch.sub(s, k, alpha=2) + (7 - q) // 4,
        "erf": lambda s, b, h, q, k: s.erf() + torch.log2(s.abs() + 1) + s.tanh() - s.neg(),
        "masked": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
        "masked, added": lambda s, b, h, q, k: s + torch.where(q >= k, 0, float("-inf")),
    }
    return masks, scores


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Traced(unittest.TestCase):
    def places(self, seed):
        draw = random.Random(seed)
        for _ in range(60):
            yield [draw.randrange(size) for size in (BATCH, HEADS, SEQ, SEQ)]

    def test_mask__is_what_torch_computes(self):
        for name, mask in cases()[0].items():
            bound = from_functions(None, mask)
            for place in self.places(name):
                expected = bool(mask(*(torch.tensor(i) for i in place)))
                self.assertEqual(at(bound, 0.0, *place).seen, expected, (name, place))

    def test_score__is_what_torch_computes(self):
        for name, score_mod in cases()[1].items():
            bound = from_functions(score_mod)
            for place in self.places(name):
                score = random.Random(str(place)).uniform(-3, 3)
                indices = [torch.tensor(i) for i in place]
                expected = float(score_mod(torch.tensor(score, dtype=torch.float64), *indices))
                result = at(bound, score, *place)
                if expected == -math.inf:
                    self.assertFalse(result.seen, (name, place))
                else:
                    self.assertTrue(result.seen)
                    self.assertAlmostEqual(result.score, expected, delta=1e-5 * (1 + abs(expected)), msg=(name, place))

    def test_gradient__is_what_autograd_computes(self):
        for name in ("softcap", "gelu", "sigmoid", "square", "clamp", "roots", "erf", "reversed", "conditional"):
            score_mod = cases()[1][name]
            bound = from_functions(score_mod)
            for place in self.places(name):
                score = torch.tensor(random.Random(str(place)).uniform(-3, 3), dtype=torch.float64, requires_grad=True)
                score_mod(score, *(torch.tensor(i) for i in place)).backward()
                expected = score.grad.item()
                result = at(bound, score.item(), *place).score_grad
                self.assertAlmostEqual(result, expected, delta=1e-4 * (1 + abs(expected)), msg=(name, place))

    def test_window__has_row_intervals_through_pytorchs_combinators(self):
        masks = cases()[0]
        for name, intervals in (("window", 1), ("streaming", 2), ("prefix", 2), ("block causal", 1), ("document", 0)):
            self.assertEqual(from_functions(None, masks[name]).variant.info["intervals"], intervals, name)

    def refuse(self, function, sentence):
        with self.assertRaisesRegex(TypeError, f"variant_test.py:[0-9]+: .*{sentence}"):
            kjit.explain(function)

    def test_control_flow__is_refused_with_what_to_write(self):
        self.refuse(lambda b, h, q, k: q >= k and q < 5, "write torch.where")
        self.refuse(lambda b, h, q, k: True if q > k else False, "write torch.where")
        self.refuse(lambda b, h, q, k: sum(range(q)), "not known while the function is read")
        self.refuse(lambda s, b, h, q, k: s * float(q), "not known")

    def test_unknown_operation__is_named(self):
        self.refuse(lambda s, b, h, q, k: torch.sinc(s), "sinc is not computed")
        self.refuse(lambda s, b, h, q, k: s.cumsum(0), "cumsum is not computed")

    def test_tensor_with_axes_left__is_refused(self):
        table = torch.zeros(4, 5, 64)
        self.refuse(lambda s, b, h, q, k: s + table[h], "3 axes has 1 indices here: index each axis")
        self.refuse(lambda s, b, h, q, k: s * table, "index each of its axes")
        self.refuse(lambda b, h, q, k: (table[h, b] == k).any(), "at most 32 is unrolled")
        self.refuse(lambda s, b, h, q, k: s + table[h, b, q, k], "3 axes has 4 indices")

    def test_too_many_tensors__are_refused(self):
        tensors = [torch.zeros(3) for _ in range(9)]
        with self.assertRaisesRegex(TypeError, "9 tensors; 8 is the most"):
            from_functions(lambda s, b, h, q, k: sum((t[h] for t in tensors), s))

    def test_flex_attention__checks_its_arguments(self):
        q, k = torch.zeros(1, 4, 8, 64), torch.zeros(1, 2, 8, 64)
        with self.assertRaisesRegex(ValueError, "enable_gqa"):
            kjit.flex_attention(q, k, k)
        with self.assertRaisesRegex(ValueError, "BLOCKS is 'x': must be 'mask' or 'anew'"):
            kjit.flex_attention(q, q, q, kernel_options={"BLOCKS": "x"})

    def test_members__of_other_types_are_named(self):
        q = torch.zeros(1, 8, 4, 64, dtype=torch.bfloat16)
        for why, options in {
            "window is 5: must be .left, right.": {"window": 5},
            "window is 'x': must be .left, right.": {"window": "x"},
            "sinks is a list: must be a PyTorch tensor": {"sinks": [0.0] * 4},
            "bias is a float: must be": {"bias": 1.0},
            "tensors.'t'. is a list: must be a tensor": {"mask": "t[q] > 0", "tensors": {"t": [1]}},
            "scale is 'x': must be a number": {"scale": "x"},
        }.items():
            with self.assertRaisesRegex(TypeError, why):
                kjit.attention(q, q, q, **options)


class Examples(unittest.TestCase):
    """Each block of docs/variants.md that is marked as a worked example is run as it stands."""

    def test_docs__worked_examples_run(self):
        text = (ROOT / "docs" / "variants.md").read_text()
        examples = re.findall(r"```python\n# example: ([^\n]*)\n(.*?)```", text, re.DOTALL)
        self.assertGreaterEqual(len(examples), 10)
        for name, code in examples:
            if torch is None and "torch" in code:
                continue
            with self.subTest(name):
                exec(compile(code, f"docs/variants.md: {name}", "exec"), {"kjit": kjit})
        if torch is None:
            self.skipTest("PyTorch is not installed: the examples that use it were left out")

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_sliding_tile__sees_the_tiles_of_its_window(self):
        path = ROOT / "python" / "examples" / "sliding_tile_attention.py"
        spec = importlib.util.spec_from_file_location("sliding_tile_attention", path)
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        for video, tile, window, words in (
            ((6, 4, 6), (2, 2, 2), (3, 1, 3), 5),
            ((5, 2, 4), (1, 2, 1), (3, 1, 3), 0),
            ((2, 3, 15), (2, 1, 3), (1, 3, 5), 7),
        ):
            places, differ = example.compare_on_host(video, tile, window, words)
            self.assertGreater(places, 500)
            self.assertEqual(differ, 0, (video, tile, window))


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
