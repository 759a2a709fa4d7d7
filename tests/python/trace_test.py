"""A tracer that has read a function before reads it as a new one does, whatever the function does this time: other
numbers, other tensors, other ways through it. So does the one that compares steps in C and the one in Python."""

import gc
import operator
import random
import sys
import threading
import unittest
import weakref
from unittest import mock

import harness
from kjit import _native_part, _replay, _trace, variant

try:
    import torch
except ImportError:
    torch = None


def fresh(score, mask):
    return variant.read(None, None, score, mask).bound()


def says(bound):
    kinds = [(type(value), repr(value)) for value in bound.values]
    return bound.variant.score, bound.variant.mask, kinds, [id(tensor) for tensor in bound.tensors]


class Traces(unittest.TestCase):
    tracer = _replay.Tracer

    def setUp(self):
        patch = mock.patch.object(_replay, "Tracer", self.tracer)
        patch.start()
        self.addCleanup(patch.stop)
        variant._tracers.clear()
        variant._recall._entries.clear()
        variant._recall._untold.clear()

    def is_read_as_new(self, score, mask):
        self.assertEqual(says(variant.Bound(*variant._of_functions(score, mask))), says(fresh(score, mask)))


class Again(Traces):
    def test_numbers__of_every_kind_are_those_of_now(self):
        held = [0]

        def mask(b, h, i, j):
            held.append(held[0])  # which may do anything: it is read each time
            return (i - j < held[0]) & (held[0] + j > i) & (i >= j)

        numbers = 3, 3, 64, 1, 64, 64.0, 2.5, 2, 2.0, -1, 0, 0.0, -0.0, True, 7, 2**31 - 1, -(2**31), 5.5, 2.0**31, 5.5
        for value in numbers:
            held[0] = value
            self.is_read_as_new(None, mask)

    def test_operators__with_numbers_on_either_side_are_those_of_now(self):
        arithmetic = operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod
        arithmetic += operator.pow, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne
        of_bits = operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift
        seen = []

        def score(s, b, h, i, j):
            seen.append(used)
            made = used(i, j) if number is None else used(number, i) if is_first else used(i, number)
            return s + made

        for used in arithmetic + of_bits:
            for is_first in (False, True):
                for number in (3, 3, 5, 1, None, 5, 3, 2.5, 7.5, True)[: 7 if used in of_bits else 10]:
                    self.is_read_as_new(score, None)

    def test_power__of_three_operands_is_refused(self):
        seen = []

        def score(s, b, h, i, j):
            seen.append(s)
            return pow(s, 2, 3)

        self.assertRaises(TypeError, variant._of_functions, score, None)

    def test_ways__through_a_function_are_those_of_now(self):
        draw, taken = random.Random(5), []

        def some(start, others):
            """A number of random steps; the same ones each time with the same `taken`."""
            made = [start, *others]
            for kind, first, second, number in taken:
                a, b = made[first % len(made)], made[second % len(made)]
                steps = a + b, a - b, a * number, number - a, a // 3, abs(a), a + 1
                made.append(steps[kind % len(steps)] if kind < 7 else a)
            return made[-1]

        def score(s, b, h, i, j):
            taken.append(taken.pop())
            return s + some(i, (j, b, h))

        def mask(b, h, i, j):
            taken.append(taken.pop())
            return some(j, (i, h)) >= some(i, (j,))

        for _ in range(300):
            if not taken or draw.random() < 0.2:
                del taken[:]
            taken.append((draw.randrange(8), draw.randrange(9), draw.randrange(9), draw.choice((3, 4, 0.5, 1, 7.25))))
            if draw.random() < 0.3:
                taken[draw.randrange(len(taken))] = draw.randrange(8), draw.randrange(9), draw.randrange(9), 6
            self.is_read_as_new(score, mask)

    def test_result__that_is_none_names_the_function(self):
        seen = []

        def forgetful(b, h, q, k):
            seen.append(q >= k)

        place = f"{__file__}:{forgetful.__code__.co_firstlineno}"
        with self.assertRaisesRegex(TypeError, f"{place}: the function returns nothing: a return is missing"):
            fresh(None, forgetful)

    def test_result__may_be_a_number(self):
        results = [True]

        def mask(b, h, i, j):
            results.append(results.pop())
            return results[0] if results[0] is not None else i >= j

        for result in (True, None, False, None, True, True):
            results[0] = result
            self.is_read_as_new(None, mask)

    def test_function__that_raised_is_read_again(self):
        wrong = [False]

        def mask(b, h, i, j):
            wrong.append(wrong.pop())
            seen = i - j < 9
            if wrong[0]:
                raise KeyError("of the function")
            return seen & (i >= j)

        for wrong[0] in (False, True, False, False):
            if wrong[0]:
                self.assertRaises(KeyError, variant._of_functions, None, mask)
            else:
                self.is_read_as_new(None, mask)

    def test_function__may_read_its_own_code(self):
        inside = [False]

        def mask(b, h, i, j):
            if not inside[0]:
                inside[0] = True
                self.is_read_as_new(None, mask)
                inside[0] = False
            return (i - j < 40) & (i >= j)

        for _ in range(4):
            self.is_read_as_new(None, mask)

    def test_threads__read_one_code_at_once(self):
        def make(size, held):
            def mask(b, h, i, j):
                held.append(size)
                return (i - j < size) & (i >= j)

            return mask

        wrong = []

        def work(size):
            mask = make(size, [])
            for _ in range(300):
                if variant._of_functions(None, mask)[1] != (size,):
                    wrong.append(size)

        threads = [threading.Thread(target=work, args=(size,)) for size in range(10, 16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


@unittest.skipIf(torch is None, "PyTorch is not installed")
class WithTensors(Traces):
    def test_tensors__are_those_of_now(self):
        kinds = [torch.zeros(3), torch.zeros(3), torch.zeros(3, dtype=torch.int32), torch.zeros(2, 3)]
        held = [kinds[0], kinds[1]]

        def score(s, b, h, i, j):
            held.append(held.pop())
            first, second = (t[h] if t.ndim == 1 else t[b, h] for t in held)
            return s + first * second + (held[1][j] if held[1].ndim == 1 else held[1][i][j])

        for first in kinds:
            for second in kinds:
                held[:] = first, second
                self.is_read_as_new(score, None)
                self.is_read_as_new(score, None)

    def test_number__in_a_tensor_of_the_processor_is_that_of_now(self):
        size = torch.tensor(3)

        def mask(b, h, i, j):
            size.add_(0)
            return i - j < size

        for value in (3, 4, 4, 5):
            size.fill_(value)
            self.is_read_as_new(None, mask)

    def test_nothing__is_kept_alive(self):
        held = [torch.zeros(3)]
        told = weakref.ref(held[0])

        def score(s, b, h, i, j):
            held.append(held.pop())
            return s + held[0][h]

        for _ in range(3):
            variant._of_functions(score, None)
        held[0] = None
        gc.collect()
        self.assertIsNone(told())

    def test_trace__ends_with_its_tracer(self):
        table, seen = torch.zeros(8), []

        def score(s, b, h, i, j):
            seen[:] = [s]
            return s + table[h] * (j - i + 7)

        for _ in range(3):
            variant._of_functions(score, None)
        (known,) = variant._tracers.values()
        told = weakref.ref(known[0])
        self.assertIsInstance(known[0], self.tracer)
        del known, seen[:]
        variant._tracers.clear()
        gc.collect()
        self.assertIsNone(told())

    def test_again__leaves_no_reference_behind(self):
        table, number, seen = torch.zeros(8), 3.25, []

        def score(s, b, h, i, j):
            seen[:] = [s]
            return s + table[h] * (j - i) * number

        for _ in range(3):
            variant._of_functions(score, None)
        ((tracer, _),) = variant._tracers.values()
        told = (table, number, tracer, *(part for step in tracer.steps for part in step))
        before = [sys.getrefcount(thing) for thing in told]
        for _ in range(100):
            variant._of_functions(score, None)
        after = [sys.getrefcount(thing) for thing in told]
        self.assertLess(max(b - a for a, b in zip(before, after)), 10)

    def test_index__of_another_tensor_or_rank_is_that_of_now(self):
        row, table, seen = torch.zeros(8), torch.zeros(8, 8), []

        def score(s, b, h, i, j):
            seen.append(None)
            of_both = (h, j) if is_by_row else (j, h)
            return s + first[i] + (second[of_both] if second.ndim == 2 else second[j])

        for first, second, is_by_row in (
            (row, table, True), (row, table, True), (row, table, False), (row, row, False), (row, table, False),
            (torch.zeros(8), table, False),
        ):  # fmt: skip
            self.is_read_as_new(score, None)
        first = table
        self.assertRaisesRegex(TypeError, "index each", variant._of_functions, score, None)


@unittest.skipIf(_native_part.native is None, "steps are compared in Python")
class IndexInC(unittest.TestCase):
    def test_index__of_a_tensor_that_forgets_the_step_is_another_step(self):
        native, index = _native_part.native, object()
        tracer = _replay.Tracer()

        class Forgetful:
            @property
            def ndim(self):
                tracer._forget(0)
                return 1

        class Mode(native.Mode):
            def go_on(self, *arguments):
                return "another step"

        mode = Mode()
        mode.tracer = tracer
        tracer.steps, tracer.texts = [(_trace.INDEX, 0, (index,), ["what the step gave"])], ["text"]
        native.configure_mode(operator.getitem)
        if torch is not None:
            self.addCleanup(native.configure_mode, torch.Tensor.__getitem__)
        self.assertEqual(mode.__torch_function__(operator.getitem, (), (Forgetful(), index)), "another step")
        self.assertEqual(tracer.at, 0)


@unittest.skipIf(_native_part.native is None, "the steps are compared in Python above")
class AgainInPython(Again):
    tracer = _trace.Tracer


@unittest.skipIf(_native_part.native is None or torch is None, "the steps are compared in Python above")
class WithTensorsInPython(WithTensors):
    tracer = _trace.Tracer


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
