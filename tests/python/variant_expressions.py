"""Random score and mask functions: the grammar that draws them, their text, and what Python's own arithmetic makes of
them. Shared by the tests that compare this with the library's evaluators and with kernels."""

import ast
import ctypes
import math
import random
from pathlib import Path

SEQ, HEADS, BATCH = 40, 4, 2

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


def draw(seed):
    """A function by its number: whether it is a mask, its tree and its text. A negative number is one of those kept."""
    if seed < 0:
        return kept()[-1 - seed]
    is_mask = seed % 2 == 1
    generator = Generator(seed, not is_mask)
    tree = generator.tree("bool" if is_mask else "real", generator.random.randint(2, 6))
    text = render(tree)
    return is_mask, tree, f"{text} + 0.0" if not is_mask and text in ("0", "1") else text


def kept():
    """The corpus: functions that together have every operation beside every other, and any that showed a difference."""
    path = Path(__file__).resolve().parents[1] / "fuzz" / "corpus" / "functions.txt"
    drawn = [ast.literal_eval(line) for line in path.read_text().splitlines()]
    return [(is_mask, tree, render(tree)) for is_mask, tree in drawn]


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


def names_at(place, score):
    b, h, q, k = place
    names = {"b": b, "h": h, "q": q, "k": k, "hk": h // 2, "seq_q": SEQ, "seq_kv": SEQ, "score": score}
    names.update({name: value for name, (_, value) in SCALARS.items()})
    return names
