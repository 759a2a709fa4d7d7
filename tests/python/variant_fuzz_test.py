"""Random score and mask functions, computed four ways: by Python, by the library's host evaluator, by the kernel text
as a C++ compiler reads it, and, for blocks of keys, by the ranges of that text. No GPU.

usage: variant_fuzz_test.py CXX KERNEL_SRC
KJIT_VARIANT_FUZZ=N draws N functions instead of 120; KJIT_VARIANT_SEED=S draws others.
"""

import ctypes
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
from variant_expressions import BATCH, ELEMENTS, HEADS, SCALARS, SEQ, TENSORS, Unordered, compute, draw, kept, names_at

CXX, KERNEL_SRC = sys.argv.pop(1), sys.argv.pop(1)
COUNT = int(os.environ.get("KJIT_VARIANT_FUZZ", "120"))
SEED = int(os.environ.get("KJIT_VARIANT_SEED", "1"))
BATCH_OF_FILE = 60  # functions in one C++ file

class Drawn:
    """One function, with its text and its object in the library."""

    def __init__(self, seed):
        self.is_mask, self.tree, self.text = draw(seed)
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


#: The derivative by the element that a load reads, and which element of which tensor that is.
READS = """
extern "C" double read{i}_{load}(const kjit_variant_arguments *a, double s, int b, int h, int q, int k, int *tensor,
                                 long long *element) {{
  *tensor = v{i}::kjit_variant_gradient<{load}>::tensor;
  return v{i}::kjit_variant_gradient<{load}>::at(*a, a->tensors[*tensor], s, b, h, q, k, *element);
}}
"""


def compile_all(drawn, folder):
    parts = ["#define KJIT_VARIANT_REAL double\n#include <kjit/attention/variant_real_ranges.h>\n"]
    for i, each in enumerate(drawn):
        loads = each.variant.kernel_text().count("template <> struct kjit_variant_gradient<")
        body = "\n".join(line for line in each.variant.kernel_text().splitlines() if not line.startswith("#"))
        parts.append(f"namespace v{i} {{\n{body}\n}}\n" + EXPORTS.format(i=i))
        parts += [READS.format(i=i, load=load) for load in range(loads)]
        each.loads = loads
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

    def check_reads(self, i, drawn, machine, loaded, arguments, draw):
        """The derivatives by what is read, beside differences: of elements, which several loads may read."""
        compared = 0
        for _ in range(12 if drawn.loads else 0):
            place = (draw.randrange(BATCH), draw.randrange(HEADS), draw.randrange(SEQ), draw.randrange(SEQ))
            score, sums = draw.uniform(-4, 4), {}
            for load in range(drawn.loads):
                function, tensor, element = getattr(loaded, f"read{i}_{load}"), ctypes.c_int(), ctypes.c_longlong()
                function.restype = ctypes.c_double
                value = function(ctypes.byref(arguments), ctypes.c_double(score), *place, ctypes.byref(tensor),
                                 ctypes.byref(element))  # fmt: skip
                at = tensor.value, element.value
                sums[at] = sums.get(at, 0.0) + value
            for (tensor, element), found in sums.items():
                memory = machine.memory[tensor]
                kept, slopes = memory[element], []
                for step in (2.0**-9, 2.0**-10, -(2.0**-9)):
                    values = []
                    for moved in (kept + step, kept):
                        memory[element] = moved
                        values.append(machine.at(drawn.variant, score, place).new_score)
                    slopes.append((values[0] - values[1]) / step)
                if all(abs(slope - slopes[0]) <= 0.01 * (1 + abs(slopes[0])) for slope in slopes):
                    compared += 1
                    allowed = 0.02 * (1 + abs(slopes[0]))
                    self.assertLessEqual(abs(found - slopes[0]), allowed, (drawn.text, place, score, tensor, element))
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
        self.check([SEED * 1_000_003 + i for i in range(COUNT)])

    def test_kept_functions__are_the_same_in_every_way(self):
        self.check([-1 - i for i in range(len(kept()))])

    def check(self, numbers):
        compared = with_intervals = read = 0
        for first in range(0, len(numbers), BATCH_OF_FILE):
            drawn = [Drawn(number) for number in numbers[first : first + BATCH_OF_FILE]]
            with tempfile.TemporaryDirectory() as folder:
                loaded = compile_all(drawn, folder)
                for i, each in enumerate(drawn):
                    machine = Machine(each)
                    arguments = kernel_arguments(each, machine)
                    check = self.check_mask if each.is_mask else self.check_score
                    compared += check(i, each, machine, loaded, arguments, random.Random(i))
                    read += self.check_reads(i, each, machine, loaded, arguments, random.Random(i))
                    with_intervals += each.intervals > 0
        kinds = f"{with_intervals} with row intervals, {read} derivatives"
        print(f"{len(numbers)} functions, {kinds}, {compared} places compared with Python")
        self.assertGreater(compared, 5 * len(numbers))
        self.assertGreater(read, len(numbers) // 4)


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
