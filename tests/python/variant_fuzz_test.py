"""Random score and mask functions, computed four ways: by Python, by the library's host evaluator, by the kernel text
as a C++ compiler reads it, and, for blocks of keys, by the ranges of that text. No GPU.

usage: variant_fuzz_test.py CXX KERNEL_SRC
KJIT_VARIANT_FUZZ=N draws N functions instead of 120; KJIT_VARIANT_SEED=S draws others.
"""

import ctypes
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import harness
from kjit import _abi
from kjit._library import call, lib
from kjit.variant import Variant

CXX, KERNEL_SRC = sys.argv.pop(1), sys.argv.pop(1)
COUNT = int(os.environ.get("KJIT_VARIANT_FUZZ", "120"))
SEED = int(os.environ.get("KJIT_VARIANT_SEED", "1"))
SEQ, HEADS, BATCH = 40, 4, 2
BATCH_OF_FILE = 60  # functions in one C++ file

# The tensors that functions may read: name -> (dtype, shape, elements).
TENSORS = {
    "doc": (4, (SEQ,), [i // 7 for i in range(SEQ)]),
    "off": (3, (8,), [7 * i for i in range(8)]),
    "pad": (11, (BATCH, SEQ), [i % SEQ < 33 - 9 * (i // SEQ) for i in range(BATCH * SEQ)]),
    "slope": (6, (HEADS,), [0.5, 0.25, -0.125, 2.0]),
    "bias": (7, (HEADS, SEQ, SEQ), [((i * 7919) % 101) / 16 - 3 for i in range(HEADS * SEQ * SEQ)]),
}
TYPES = {"doc": "int", "off": "int", "pad": "bool", "slope": "real", "bias": "real"}
ELEMENTS = {4: ctypes.c_int64, 3: ctypes.c_int32, 11: ctypes.c_uint8, 6: ctypes.c_float, 7: ctypes.c_double}
SCALARS = {"w": ("int32", 9), "n": ("int32", -3), "c": ("fp32", 2.5)}


def wrap(value):
    return (value + 2**31) % 2**32 - 2**31


class Generator:
    """Trees as (operation, operands…); leaves are (kind, value)."""

    def __init__(self, seed, with_score):
        self.random = random.Random(seed)
        self.with_score = with_score

    def leaf(self, kind):
        pick = self.random.choice
        if kind == "int":
            names = ["q", "k", "q", "k", "q", "k", "b", "h", "w", "n", "seq_q", "seq_kv", "hk"]
            return pick([("name", pick(names)), ("name", pick(names)), ("int", pick([0, 1, 2, -1, 3, 7, 16, 100]))])
        if kind == "real":
            names = ["score", "c"] if self.with_score else ["c"]
            return pick([("name", pick(names)), ("name", names[0]), ("real", pick([0.5, 2.0, 1.25, -3.0, 0.1, 30.0]))])
        return ("bool", pick([True, False]))

    def load(self, kind, depth):
        name = self.random.choice([name for name in TENSORS if TYPES[name] == kind])
        return ("load", name, *(("+", self.tree("int", depth - 2), ("name", "b")) for _ in TENSORS[name][1]))

    def tree(self, kind, depth):
        if depth <= 0 or self.random.random() < 0.08:
            return self.leaf(kind)
        if self.random.random() < 0.12:
            return self.load(kind, depth)
        return getattr(self, kind)(depth - 1)

    def int(self, depth):
        pick = self.random.choice
        operation = pick("+ - + - * // % min max & | ^ << >> neg abs ~ where int bool".split())
        if operation in ("//", "%"):
            return (operation, self.tree("int", depth), ("int", pick([1, 2, 3, 5, 8, 16])))
        if operation in ("<<", ">>"):
            return (operation, self.tree("int", depth), ("int", pick([0, 1, 2, 3, 5])))
        if operation in ("neg", "abs", "~"):
            return (operation, self.tree("int", depth))
        if operation == "where":
            return (operation, self.tree("bool", depth), self.tree("int", depth), self.tree("int", depth))
        if operation == "int":
            return (operation, self.tree("real", depth - 1))
        if operation == "bool":
            return ("int", self.tree("bool", depth))
        return (operation, self.tree("int", depth), self.tree("int", depth))

    def real(self, depth):
        pick = self.random.choice
        operation = pick("+ - * + - * / min max neg abs where float floor tanh exp2 sigmoid erf relu sqrtabs".split())
        if operation in ("neg", "abs", "floor", "tanh", "exp2", "sigmoid", "erf", "relu", "sqrtabs"):
            return (operation, self.tree("real", depth))
        if operation == "where":
            return (operation, self.tree("bool", depth), self.tree("real", depth), self.tree("real", depth))
        if operation == "float":
            return (operation, self.tree("int", depth))
        return (operation, self.tree("real", depth), self.tree("real", depth))

    def bool(self, depth):
        pick = self.random.choice
        operation = pick("< <= > >= == != < <= >= < <= >= and or and or not where real".split())
        if operation == "not":
            return (operation, self.tree("bool", depth))
        if operation == "where":
            return (operation, *(self.tree("bool", depth) for _ in range(3)))
        if operation in ("and", "or"):
            return (operation, self.tree("bool", depth), self.tree("bool", depth))
        if operation == "real":
            return (pick(["<", "<="]), self.tree("real", depth - 1), self.tree("real", depth - 1))
        return (operation, self.tree("int", depth), self.tree("int", depth))


def render(tree):
    """The text of a tree."""
    operation, *operands = tree
    if operation == "name":
        return operands[0]
    if operation in ("int", "real", "bool") and not isinstance(operands[0], tuple):
        text = {True: "true", False: "false"}[operands[0]] if operation == "bool" else repr(operands[0])
        return f"({text})" if text.startswith("-") else text
    if operation == "load":
        return f"{operands[0]}[{', '.join(map(render, operands[1:]))}]"
    texts = list(map(render, operands))
    if operation in ("neg", "~", "not"):
        return f"({ {'neg': '-', '~': '~', 'not': 'not '}[operation] }{texts[0]})"
    if operation == "sqrtabs":
        return f"sqrt(abs({texts[0]}))"
    if operation[0].isalpha() and operation not in ("and", "or"):
        return f"{operation}({', '.join(texts)})"
    return f"({texts[0]} {operation} {texts[1]})"


class Unordered(Exception):
    """A sum with k in it wrapped, or a number left the reals: not what the four ways agree about."""


def is_real(tree):
    operation, *operands = tree
    if operation == "name":
        return operands[0] in ("score", "c")
    if operation == "load":
        return TYPES[operands[0]] == "real"
    if operation in ("real", "/", "float", "floor", "tanh", "exp2", "sigmoid", "erf", "relu", "sqrtabs"):
        return True
    if operation in ("int", "bool", "//", "%", "&", "|", "^", "<<", ">>", "~", "and", "or", "not"):
        return False
    if operation in ("<", "<=", ">", ">=", "==", "!="):
        return False
    return is_real(operands[-1])


def compute(tree, names):
    """The value of a tree, by Python's own arithmetic."""
    operation, *operands = tree
    if operation == "name":
        return names[operands[0]]
    if operation in ("int", "real", "bool") and not isinstance(operands[0], tuple):
        value = operands[0]
        return ctypes.c_float(value).value if operation == "real" else value
    if operation == "load":
        return load(operands[0], [compute(index, names) for index in operands[1:]])
    values = [compute(operand, names) for operand in operands]
    a, b = values[0], values[1] if len(values) > 1 else None
    if any(isinstance(value, float) for value in values) or is_real(tree):
        return checked(real(operation, values, a, b))
    return whole(operation, values, a, b, tree)


def checked(value):
    if isinstance(value, float) and (not math.isfinite(value) or abs(value) > 1e30):
        raise Unordered
    return value


def load(name, indices):
    _, shape, elements = TENSORS[name]
    at = 0
    for size, index in zip(shape, indices):
        at = at * size + min(max(index, 0), size - 1)
    return elements[at]


def divide(a, b):
    if b == 0:
        raise Unordered
    return a / b


def exp2(a):
    if abs(a) > 80:
        raise Unordered
    return 2.0**a


def sigmoid(a):
    if a < -80:
        raise Unordered
    return 1 / (1 + math.exp(-a))


def trunc(a):
    """Near an integer a rounding decides, which the ways may do differently."""
    if abs(a - round(a)) < 1e-6 and a != int(a):
        raise Unordered
    return max(min(int(a), 2**31 - 1), -(2**31))


def floor(a):
    if abs(a - round(a)) < 1e-6 and a != math.floor(a):
        raise Unordered
    return float(math.floor(a))


def apart(a, b):
    if a != b and abs(a - b) < 1e-6 * (1 + abs(a)):
        raise Unordered
    return True


REAL = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": divide,
    "min": min, "max": max, "neg": lambda a, b: -a, "abs": lambda a, b: abs(a), "floor": lambda a, b: floor(a),
    "tanh": lambda a, b: math.tanh(a), "exp2": lambda a, b: exp2(a), "sigmoid": lambda a, b: sigmoid(a),
    "erf": lambda a, b: math.erf(a), "relu": lambda a, b: max(a, 0.0), "sqrtabs": lambda a, b: math.sqrt(abs(a)),
    "int": lambda a, b: trunc(a), "float": lambda a, b: float(a),
    "<": lambda a, b: apart(a, b) and a < b, "<=": lambda a, b: apart(a, b) and a <= b,
}  # fmt: skip


def real(operation, values, a, b):
    if operation == "where":
        return float(values[1] if a else values[2])
    return REAL[operation](a, b)


WHOLE = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "min": min, "max": max, "&": lambda a, b: a & b, "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b, "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "neg": lambda a, b: -a,
    "abs": lambda a, b: abs(a), "~": lambda a, b: ~a, "int": lambda a, b: int(a),
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
    "not": lambda a, b: not a,
}  # fmt: skip


def whole(operation, values, a, b, tree):
    value = (values[1] if a else values[2]) if operation == "where" else WHOLE[operation](a, b)
    if isinstance(value, bool):
        return value
    if value != wrap(value) and operation in ("+", "-", "neg", "abs", "*"):
        raise Unordered  # row intervals compute without a wrap
    return wrap(value)


class Drawn:
    """One function, with its text and its object in the library."""

    def __init__(self, seed):
        self.is_mask = seed % 2 == 1
        generator = Generator(seed, not self.is_mask)
        self.tree = generator.tree("bool" if self.is_mask else "real", generator.random.randint(2, 6))
        text = render(self.tree)
        self.text = f"{text} + 0.0" if not self.is_mask and text in ("0", "1") else text
        named = [name for name in TENSORS if f"{name}[" in self.text]
        self.tensors = {name: (TENSORS[name][0], len(TENSORS[name][1])) for name in named}
        texts = {"mask" if self.is_mask else "score": self.text}
        self.variant = Variant(
            **texts, scalars={name: kind for name, (kind, _) in SCALARS.items()}, tensors=self.tensors
        )
        self.intervals = self.variant.info["intervals"]


class Machine:
    """The arguments of both sides, over the same memory."""

    def __init__(self, drawn):
        self.memory = []
        views = (_abi.kjit_tensor * 8)()
        for view, name in zip(views, drawn.tensors):
            dtype, shape, elements = TENSORS[name]
            array = (ELEMENTS[dtype] * len(elements))(*elements)
            self.memory.append(array)
            view.data, view.dtype, view.device, view.rank = ctypes.addressof(array), dtype, -1, len(shape)
            stride = 1
            for axis in reversed(range(len(shape))):
                view.shape[axis], view.stride[axis] = shape[axis], stride
                stride *= shape[axis]
        self.views = views
        bits = [
            value if kind == "int32" else ctypes.c_int32.from_buffer(ctypes.c_float(value)).value
            for kind, value in SCALARS.values()
        ]
        self.scalars = (ctypes.c_int32 * len(bits))(*bits)

    def at(self, variant, score, place):
        b, h, q, k = place
        at = _abi.kjit_variant_evaluation(
            struct_size=ctypes.sizeof(_abi.kjit_variant_evaluation), seq_q=SEQ, seq_kv=SEQ, heads_q=HEADS, heads_kv=2,
            scalar_values=self.scalars, tensors=self.views, score=score, b=b, h=h, q=q, k=k)  # fmt: skip
        call(lib.kjit_attention_variant_evaluate, variant._handle, ctypes.byref(at))
        return at


class Argument(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_int * 4), ("stride", ctypes.c_longlong * 4)]


class Arguments(ctypes.Structure):
    _fields_ = [("sizes", ctypes.c_int * 4), ("scalars", ctypes.c_uint * 32), ("tensors", Argument * 8)]


def kernel_arguments(drawn, machine):
    """kjit_variant_arguments, with the numbers of the text as explain() tells them."""
    arguments = Arguments(sizes=(SEQ, SEQ, HEADS, 2))
    for i, value in enumerate(machine.scalars):
        arguments.scalars[i] = value & 0xFFFFFFFF
    lines = drawn.variant.explain().splitlines()
    types = lines[0].split(";")[0].split()[1:]
    for i in range(len(SCALARS), len(types)):
        number = next(line for line in lines if line.startswith(f"s{i}: ")).split()[1]
        if types[i] == "fp32":
            arguments.scalars[i] = ctypes.c_uint.from_buffer(ctypes.c_float(float(number))).value
        else:
            arguments.scalars[i] = int(number) & 0xFFFFFFFF
    for tensor, view in zip(arguments.tensors, machine.views):
        tensor.data = view.data
        for axis in range(4):
            used = axis < view.rank
            tensor.size[axis], tensor.stride[axis] = (view.shape[axis], view.stride[axis]) if used else (1, 0)
    return arguments


EXPORTS = """
extern "C" double score{i}(const kjit_variant_arguments *a, double s, int b, int h, int q, int k, double *grad) {{
  *grad = v{i}::kjit_variant_score_grad(*a, s, b, h, q, k);
  return v{i}::kjit_variant_score(*a, s, b, h, q, k);
}}
extern "C" int mask{i}(const kjit_variant_arguments *a, int b, int h, int q, int k) {{
  return v{i}::kjit_variant_mask(*a, b, h, q, k);
}}
extern "C" void interval{i}(const kjit_variant_arguments *a, int which, int b, int h, int q, int *lo, int *hi) {{
  v{i}::kjit_variant_interval(*a, which, b, h, q, *lo, *hi);
}}
extern "C" int block{i}(const kjit_variant_arguments *a, int b, int h, int q0, int q1, int k0, int k1) {{
  return v{i}::kjit_variant_block(*a, b, h, q0, q1, k0, k1);
}}
"""


def compile_all(drawn, folder):
    parts = ["#define KJIT_VARIANT_REAL double\n#include <kjit/attention/variant_real_ranges.h>\n"]
    for i, each in enumerate(drawn):
        body = "\n".join(line for line in each.variant.kernel_text().splitlines() if not line.startswith("#"))
        parts.append(f"namespace v{i} {{\n{body}\n}}\n" + EXPORTS.format(i=i))
    source, library = Path(folder, "variants.cc"), Path(folder, "variants.so")
    source.write_text("".join(parts))
    command = [CXX, "-std=c++17", "-O0", "-ffp-contract=off", "-shared", "-fPIC", "-w", f"-I{KERNEL_SRC}"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    for i in range(len(drawn)):
        function = getattr(loaded, f"score{i}")
        function.restype, function.argtypes = (
            ctypes.c_double,
            [ctypes.c_void_p, ctypes.c_double, *(ctypes.c_int,) * 4, ctypes.c_void_p],
        )
    return loaded


def close(a, b):
    return a == b or (a != a and b != b) or abs(a - b) <= 1e-5 * (1 + abs(a))


class Differences(unittest.TestCase):
    def check_score(self, i, drawn, machine, loaded, arguments, draw):
        compared = 0
        for _ in range(30):
            place = (draw.randrange(BATCH), draw.randrange(HEADS), draw.randrange(SEQ), draw.randrange(SEQ))
            score = draw.choice([0.0, 1.0, -1.0, draw.uniform(-4, 4)])
            at = machine.at(drawn.variant, score, place)
            grad = ctypes.c_double()
            value = getattr(loaded, f"score{i}")(ctypes.byref(arguments), score, *place, ctypes.byref(grad))
            self.assertTrue(close(value, at.new_score), (drawn.text, place, score, value, at.new_score))
            self.assertTrue(close(grad.value, at.score_grad), (drawn.text, place, score))
            try:
                expected = compute(drawn.tree, names_at(place, score))
            except Unordered:
                continue
            compared += 1
            self.assertTrue(close(float(expected), at.new_score), (drawn.text, place, score, expected, at.new_score))
        return compared

    def check_mask(self, i, drawn, machine, loaded, arguments, draw):
        compared = 0
        b, h = draw.randrange(BATCH), draw.randrange(HEADS)
        seen = [[0] * SEQ for _ in range(SEQ)]
        for q in range(SEQ):
            for k in range(SEQ):
                seen[q][k] = getattr(loaded, f"mask{i}")(ctypes.byref(arguments), b, h, q, k)
        for _ in range(60):
            q, k = draw.randrange(SEQ), draw.randrange(SEQ)
            try:
                expected = compute(drawn.tree, names_at((b, h, q, k), 0.0))
            except Unordered:
                continue
            compared += 1
            self.assertEqual(bool(expected), bool(seen[q][k]), (drawn.text, (b, h, q, k)))
            self.assertEqual(bool(expected), bool(machine.at(drawn.variant, 0.0, (b, h, q, k)).seen), drawn.text)
            self.check_intervals(i, drawn, loaded, arguments, (b, h, q, k), expected)
        for q0, k0, rows, keys in (
            (0, 0, 16, 8),
            (8, 24, 16, 16),
            (24, 3, 5, 7),
            (0, 0, SEQ, SEQ),
            (39, 39, 1, 1),
            (16, 8, 8, 8),
        ):
            answer = getattr(loaded, f"block{i}")(ctypes.byref(arguments), b, h, q0, q0 + rows, k0, k0 + keys)
            block = [seen[q][k] for q in range(q0, q0 + rows) for k in range(k0, k0 + keys)]
            self.assertTrue(answer == 1 or all(each == (answer == 2) for each in block), (drawn.text, q0, k0, answer))
        return compared

    def check_intervals(self, i, drawn, loaded, arguments, place, expected):
        if not drawn.intervals:
            return
        lo, hi, inside = ctypes.c_int(), ctypes.c_int(), False
        for which in range(drawn.intervals):
            getattr(loaded, f"interval{i}")(
                ctypes.byref(arguments), which, *place[:3], ctypes.byref(lo), ctypes.byref(hi)
            )
            inside = inside or lo.value <= place[3] < hi.value
        self.assertEqual(bool(expected), inside, (drawn.text, place))

    def test_random_functions__are_the_same_in_every_way(self):
        compared = with_intervals = 0
        for first in range(0, COUNT, BATCH_OF_FILE):
            drawn = [Drawn(SEED * 1_000_003 + i) for i in range(first, min(first + BATCH_OF_FILE, COUNT))]
            with tempfile.TemporaryDirectory() as folder:
                loaded = compile_all(drawn, folder)
                for i, each in enumerate(drawn):
                    machine = Machine(each)
                    arguments = kernel_arguments(each, machine)
                    check = self.check_mask if each.is_mask else self.check_score
                    compared += check(i, each, machine, loaded, arguments, random.Random(i))
                    with_intervals += each.intervals > 0
        print(f"{COUNT} functions, {with_intervals} with row intervals, {compared} places compared with Python")
        self.assertGreater(compared, 5 * COUNT)


def names_at(place, score):
    b, h, q, k = place
    names = {"b": b, "h": h, "q": q, "k": k, "hk": h // 2, "seq_q": SEQ, "seq_kv": SEQ, "score": score}
    names.update({name: value for name, (_, value) in SCALARS.items()})
    return names


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
