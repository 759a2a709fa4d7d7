"""Random score and mask functions on a GPU: a kernel, the library's host evaluator and PyTorch compute the same.

usage: gpu_variant_fuzz.py [--seconds S] [--jobs N] [--seed S] [--functions N]

Functions are those of variant_expressions.py, by number. Each becomes a kernel of a random family and a problem of
random lengths; its rows are compared with PyTorch's arithmetic in float64. A row is left out where rounding may decide:
where some pair's value changes with the precision, or leaves the reals. Masks are tried with scores of 0, whose
log-sum-exp is the logarithm of how many keys a row sees, so that one key too many or too few shows. Prints every
difference; leaves with 1 where there is one.
"""

import argparse
import json
import math
import random
import subprocess
import sys
import time

import kjit
import torch
from kjit.variant import from_text
from variant_expressions import BATCH, HEADS, SCALARS, TENSORS, draw, is_real

DEVICE = "cuda"
DTYPES = {3: torch.int32, 4: torch.int64, 6: torch.float32, 7: torch.float64, 11: torch.bool}
HEADS_KV, HEAD_DIM, PLACES = 2, 64, 8
#: Operations that the card approximates, and by how much.
APPROXIMATE = ("tanh", "sigmoid", "erf", "exp2", "sqrt", "/")
FLASH = "(FP16, 64, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax"


def wrap(value):
    return (value + 2**31) % 2**32 - 2**31


class Evaluation:
    """A tree on all pairs of a problem, in one precision; `doubt` marks pairs that the ways need not agree about."""

    def __init__(self, names, tensors, real, tanh_factor=1.0):
        self.names, self.tensors, self.real, self.tanh_factor = names, tensors, real, tanh_factor
        self.doubt = torch.zeros((), dtype=torch.bool, device=DEVICE)

    def value(self, tree):
        operation, *operands = tree
        if operation == "name":
            return self.names[operands[0]]
        if operation in ("int", "real", "bool") and not isinstance(operands[0], tuple):
            dtype = {"int": torch.int64, "real": self.real, "bool": torch.bool}[operation]
            return torch.tensor(operands[0], dtype=dtype, device=DEVICE)
        if operation == "load":
            return self.load(operands[0], [self.value(index) for index in operands[1:]])
        values = [self.value(operand) for operand in operands]
        if any(value.is_floating_point() for value in values) or is_real(tree):
            return self.checked(self.of_reals(operation, values))
        return self.of_integers(operation, values)

    def load(self, name, indices):
        tensor = self.tensors[name]
        found = tensor[tuple(index.clamp(0, size - 1) for index, size in zip(indices, tensor.shape))]
        if found.is_floating_point():
            return found.to(self.real)
        return found if found.dtype == torch.bool else found.long()

    def checked(self, value):
        if value.is_floating_point():
            self.doubt = self.doubt | ~value.isfinite() | (value.abs() > 1e30)
        return value

    def of_reals(self, operation, values):
        a, b = values[0], values[1] if len(values) > 1 else None
        if operation == "where":
            return torch.where(a, b.to(self.real), values[2].to(self.real))
        if operation == "float":
            return a.to(self.real)
        if operation == "int":
            self.doubt = self.doubt | (a.abs() > 2e9)
            return a.nan_to_num(0, 0, 0).clamp(-2e9, 2e9).trunc().long()
        a, b = a.to(self.real), None if b is None else b.to(self.real)
        if operation == "exp2":
            self.doubt = self.doubt | (a.abs() > 80)
        if operation == "sigmoid":
            self.doubt = self.doubt | (a < -80)
        if operation == "/":
            self.doubt = self.doubt | (b == 0)
        unary = {
            "neg": torch.neg, "abs": torch.abs, "floor": torch.floor, "exp2": torch.exp2, "sigmoid": torch.sigmoid,
            "erf": torch.erf, "relu": torch.relu, "tanh": lambda x: torch.tanh(x) * self.tanh_factor,
            "sqrtabs": lambda x: x.abs().sqrt(),
        }  # fmt: skip
        binary = {
            "+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div, "min": torch.minimum, "max": torch.maximum,
            "<": torch.lt, "<=": torch.le,
        }  # fmt: skip
        return unary[operation](a) if operation in unary else binary[operation](a, b)

    def of_integers(self, operation, values):
        a, b = values[0], values[1] if len(values) > 1 else None
        functions = {
            "+": torch.add, "-": torch.sub, "*": torch.mul, "min": torch.minimum, "max": torch.maximum,
            "//": lambda x, y: torch.div(x, y, rounding_mode="floor"), "%": torch.remainder, "&": torch.bitwise_and,
            "|": torch.bitwise_or, "^": torch.bitwise_xor, "<<": lambda x, y: x << y, ">>": lambda x, y: x >> y,
            "neg": lambda x, y: -x, "abs": lambda x, y: x.abs(), "~": lambda x, y: ~x, "int": lambda x, y: x.long(),
            "<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge, "==": torch.eq, "!=": torch.ne,
            "and": torch.logical_and, "or": torch.logical_or, "not": lambda x, y: ~x,
        }  # fmt: skip
        value = torch.where(a, b, values[2]) if operation == "where" else functions[operation](a, b)
        if value.dtype == torch.bool:
            return value
        wrapped = wrap(value)
        if operation in ("+", "-", "neg", "abs", "*"):
            self.doubt = self.doubt | (value != wrapped)  # row intervals compute without a wrap
        return wrapped


def places(batch, seq_q, seq_kv):
    sizes = {"b": batch, "h": HEADS, "q": seq_q, "k": seq_kv}
    names = {}
    for axis, (name, size) in enumerate(sizes.items()):
        names[name] = torch.arange(size, device=DEVICE).view([-1 if at == axis else 1 for at in range(4)])
    names["hk"] = names["h"] // (HEADS // HEADS_KV)
    for name, value in (("seq_q", seq_q), ("seq_kv", seq_kv)):
        names[name] = torch.tensor(value, device=DEVICE)
    return names


def evaluate(tree, names, score, tensors):
    """The values of a tree in float64, and where the ways need not agree."""
    found, doubt = [], torch.zeros((), dtype=torch.bool, device=DEVICE)
    for real, nudge, tanh_factor in (
        (torch.float64, 0.0, 1.0),
        (torch.float64, 2e-5, 1.0006),
        (torch.float64, -2e-5, 0.9994),
        (torch.float32, 0.0, 1.0),
    ):
        scalars = {name: torch.tensor(value, device=DEVICE, dtype=real if kind == "fp32" else torch.int64)
                   for name, (kind, value) in SCALARS.items()}  # fmt: skip
        given = {**names, **scalars, "score": (score * (1 + nudge) + nudge).to(real)}
        evaluation = Evaluation(given, tensors, real, tanh_factor)
        found.append(evaluation.value(tree))
        doubt = doubt | evaluation.doubt
    exact = found[0]
    for other in found[1:]:
        if exact.dtype == torch.bool:
            doubt = doubt | (exact != other)
        else:
            doubt = doubt | ~((exact - other).abs() <= 5e-3 * (1 + exact.abs()))
    return exact, doubt


def reference(q, k, v, values, is_mask):
    """Output and log-sum-exp in float64; (batch, seq_q, heads, columns), (batch, heads, seq_q)."""
    group = HEADS // HEADS_KV
    wide_v = v.double().repeat_interleave(group, 2)
    scores = scores_of(q, k)
    if is_mask:
        scores = scores.masked_fill(~values.expand_as(scores), -math.inf)
    else:
        scores = values.double().expand_as(scores).clamp(-6, 6)
    weights = torch.softmax(scores, -1).nan_to_num(0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, wide_v), torch.logsumexp(scores, -1)


def scores_of(q, k):
    wide_k = k.double().repeat_interleave(HEADS // HEADS_KV, 2)
    return torch.einsum("bqhd,bkhd->bhqk", q.double(), wide_k) * q.shape[-1] ** -0.5


def host_places(text, is_mask, tensors, values, doubt, score, pick):
    """Places at which the host evaluator says another thing than PyTorch."""
    bound = from_text(**text, tensors={name: tensor.cpu() for name, tensor in tensors.items()})
    shape, wrong = score.shape, []
    values, doubt = values.expand(shape), doubt.expand(shape)
    for _ in range(PLACES):
        at = tuple(pick.randrange(size) for size in shape)
        if doubt[at]:
            continue
        sizes = dict(seq_q=shape[2], seq_kv=shape[3], heads_q=HEADS, heads_kv=HEADS_KV)
        found = bound.evaluate(float(score[at]), *at, **sizes)
        expected = values[at].item()
        clamped = expected if is_mask else min(max(expected, -6.0), 6.0)
        if is_mask and found.seen != clamped or not is_mask and abs(found.score - clamped) > 1e-4 * (1 + abs(clamped)):
            wrong.append((at, found, clamped))
    return wrong


def try_one(number):
    """The difference that a function shows, or None; and how many rows were compared."""
    is_mask, tree, text = draw(number)
    pick = random.Random(number)
    batch, seq_q, seq_kv = pick.randint(1, BATCH), pick.randint(1, 280), pick.randint(1, 500)
    dtype = pick.choice((torch.float16, torch.bfloat16))
    tensors = {name: torch.tensor(elements, dtype=DTYPES[kind], device=DEVICE).view(shape)
               for name, (kind, shape, elements) in TENSORS.items() if f"{name}[" in text}  # fmt: skip
    generator = torch.Generator(device=DEVICE).manual_seed(number)
    q, k, v = (torch.randn(shape, generator=generator, device=DEVICE).to(dtype) for shape in (
        (batch, seq_q, HEADS, HEAD_DIM), *((batch, seq_kv, HEADS_KV, HEAD_DIM),) * 2))  # fmt: skip
    if is_mask:
        q.zero_()
    given = {"mask": text} if is_mask else {"score": f"min(max({text}, -6.0), 6.0)"}
    given["params"] = {name: value for name, (_, value) in SCALARS.items()}
    config = FLASH if dtype == torch.float16 and number % 4 < 2 else None
    out, lse = kjit.attention(q, k, v, return_lse=True, config=config, tensors=tensors, **given)
    score = scores_of(q, k)
    values, doubt = evaluate(tree, places(batch, seq_q, seq_kv), score, tensors)
    exact, exact_lse = reference(q, k, v, values, is_mask)
    sure = ~doubt.expand(score.shape).any(-1)  # (batch, heads, seq_q)
    tolerance = 0.02 if any(each in text for each in APPROXIMATE) else 2e-3
    seen = sure & ~exact_lse.isinf()
    wrong_lse = seen & ~((lse.double() - exact_lse).abs() <= tolerance) | sure & (exact_lse.isinf() != lse.isinf())
    error = (out.double() - exact).abs().amax(-1).transpose(1, 2)
    wrong = wrong_lse | sure & ~(error <= 0.02 + tolerance * exact.abs().max())
    why = None
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        row = tuple(at)
        why = f"row {at}: lse {lse[row].item()}, exact {exact_lse[row].item()}, error {error[row].item():.3g}"
    elsewhere = host_places(given, is_mask, tensors, values, doubt, score, pick)
    if elsewhere:
        why = f"the host evaluator: {elsewhere[0]}"
    if why:
        why = f"{number}: {'mask' if is_mask else 'score'} {text}\n  {(batch, seq_q, seq_kv)} {dtype} {config}: {why}"
    return why, int(sure.sum())


def work(asked):
    end, tried, rows, different = time.monotonic() + asked.seconds, 0, 0, []
    number = asked.seed * 1_000_003 + asked.first
    while time.monotonic() < end and tried < asked.functions:
        try:
            why, compared = try_one(number)
        except Exception as fault:  # a refusal is a difference too
            why, compared = f"{number}: {draw(number)[2]}\n  {type(fault).__name__}: {str(fault)[:300]}", 0
        different += [why] if why else []
        tried, rows, number = tried + 1, rows + compared, number + asked.jobs
    print(json.dumps({"tried": tried, "rows": rows, "different": different}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--functions", type=int, default=1_000_000, help="of each job, at most")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_variant_fuzz.py: PyTorch shows no GPU", file=sys.stderr)
        return 3
    if asked.first is not None:
        work(asked)
        return 0
    command = [sys.executable, __file__, *sys.argv[1:], "--first"]
    children = [subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True) for i in range(asked.jobs)]
    found = [json.loads(child.communicate()[0] or '{"tried": 0, "rows": 0, "different": ["a job ended"]}')
             for child in children]  # fmt: skip
    different = [each for one in found for each in one["different"]]
    print("\n".join(different))
    tried, rows = (sum(one[name] for one in found) for name in ("tried", "rows"))
    print(f"{tried} functions on {torch.cuda.get_device_name()}, {rows} rows compared, {len(different)} differences")
    return 1 if different or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
