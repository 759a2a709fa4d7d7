"""The texts that a trace writes, by the part in C and by the one in Python: for each operation and operand the same
text, the same scalars, or the same error. Without PyTorch."""

import json
import operator
import os
import subprocess
import sys
import unittest

import harness
from kjit import _native_part, _trace

OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.lt, operator.le, operator.gt,
    operator.ge, operator.eq, operator.ne,
]  # fmt: skip
OPERANDS = [
    0, 1, -1, 2, 3, -3, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 10**400, 0.0, -0.0, 1.0, 2.5, -2.5, 1e300,
    float("inf"), float("nan"), True, False, None, "text", (1,),
]  # fmt: skip


def outcome(operation, *operands):
    """The text and scalars, or the error, whose line is left out."""
    tracer = _trace.Tracer()
    made = [_trace.Scalar(tracer, name) if name == "q" or name == "k" else name for name in operands]
    try:
        return [tracer.text(operation(*made)), repr(tracer.values), tracer.count]
    except (TypeError, OverflowError) as error:
        return [type(error).__name__, str(error).rpartition(": ")[2]]


def long_trace(q):
    """More scalars, and more lines, than have a name of their own."""
    for number in range(100):
        q = q * (3 + number) + q
    return q


def outcomes():
    found = {}
    for operation in OPERATORS:
        found[f"{operation.__name__} q k"] = outcome(operation, "q", "k")
        for operand in OPERANDS:
            found[f"{operation.__name__} q {operand!r:.20}"] = outcome(operation, "q", operand)
            found[f"{operation.__name__} {operand!r:.20} q"] = outcome(operation, operand, "q")
    found["long"] = outcome(long_trace, "q")
    found["pow"] = outcome(lambda q: pow(q, 2, 3), "q")
    found["hash"] = outcome(hash, "q")
    found["if"] = outcome(lambda q: 1 if q else 2, "q")
    return found


class Texts(unittest.TestCase):
    def test_operators__write_the_same_text_in_c_and_in_python(self):
        if _native_part.native is None:
            self.skipTest(_native_part.MISSING)
        in_c = json.loads(json.dumps(outcomes()))
        ran = subprocess.run(
            [sys.executable, __file__, "--outcomes"], env={**os.environ, "KJIT_NATIVE": "0"}, stdout=subprocess.PIPE,
            check=True,
        )  # fmt: skip
        in_python = json.loads(ran.stdout)
        self.assertEqual(in_c.keys(), in_python.keys())
        for name, found in in_c.items():
            parts = 1 if found[0] == "TypeError" else 3  # Python's own sentences differ
            self.assertEqual(found[:parts], in_python[name][:parts], name)

    def test_operators__write_one_line_each(self):
        self.assertEqual(outcome(lambda q, k: (q - k < 5) & (q >= k), "q", "k"), [
            "let v0 = q - k; let v1 = v0 < n0; let v2 = q >= k; let v3 = v1 & v2; v3", "[5]", 4
        ])  # fmt: skip
        self.assertEqual(outcome(lambda q: 7 - q // 4 * 2.5, "q")[:2], [
            "let v0 = q // 4; let v1 = v0 * n0; let v2 = n1 - v1; v2", "[2.5, 7]"
        ])  # fmt: skip

    def test_scalars__are_bounded(self):
        text, values, _ = outcome(long_trace, "q")
        self.assertEqual(len(json.loads(values)), _trace._SCALARS_MAX)
        self.assertIn("* 102; ", text)

    def test_trace__leaves_no_reference_behind(self):
        tracer = _trace.Tracer()
        q, k = (_trace.Scalar(tracer, name) for name in "qk")
        watched = (tracer, q, k, _trace.Scalar, _trace.Tracer, q.name)
        before = [sys.getrefcount(thing) for thing in watched]
        for _ in range(100):
            (q - k < 5) & (q >= k) | (k // 4 == 2.5)
        after = [sys.getrefcount(thing) for thing in watched]
        self.assertLess(max(b - a for a, b in zip(before, after)), 10)


if __name__ == "__main__":
    if "--outcomes" in sys.argv:
        print(json.dumps(outcomes()))
    else:
        harness.main(sys.modules[__name__])
