"""Functions that come again are not traced again, and functions that see something else are: whatever a trace can
depend on is changed here, one thing at a time, by the walk in C and by the one in Python."""

import collections
import dataclasses
import functools
import itertools
import math
import random
import sys
import threading
import time
import types
import typing
import unittest
from unittest import mock

import harness
from kjit import _native_part, _recall, variant

try:
    import torch
except ImportError:
    torch = None

SIZE = 3
MODULE = types.ModuleType("settings")
MODULE.size = 3


def recalls():
    found = {"Python": _recall.recall_in_python}
    if _native_part.native is not None:
        found["C"] = _native_part.native.recall
    return found


class Recalls(unittest.TestCase):
    def setUp(self):
        self.clear()

    def clear(self):
        _recall._entries.clear()
        _recall._untold.clear()

    def trace(self, function):
        """The bound variant, and whether the function was traced for it."""
        traced = mock.Mock(wraps=variant._trace_functions)
        with mock.patch.object(variant, "_trace_functions", traced):
            bound = variant.from_functions(None, function)
        return bound, traced.call_count == 1

    def says(self, bound):
        return bound.variant.mask, repr(bound.values), tuple(map(id, bound.tensors))

    def each_way(self):
        for way, recall in recalls().items():
            self.clear()
            with mock.patch.object(_recall, "recall", recall):
                yield way

    def sees(self, make):
        """make() gives a function and what changes something that it sees."""
        for _ in self.each_way():
            function, change = make()
            before, _ = self.trace(function)
            self.trace(function)  # a class that Python has looked at is told in C, by another key
            again, is_traced = self.trace(function)
            self.assertEqual((self.says(again), is_traced), (self.says(before), False))
            change()
            after, is_traced = self.trace(function)
            self.assertTrue(is_traced)
            self.assertNotEqual(self.says(after), self.says(before))
            fresh = variant.read(None, None, None, function).bound()
            self.assertEqual(self.says(after), self.says(fresh))

    def is_traced_each_time(self, make):
        for _ in self.each_way():
            function = make()
            for _ in range(3):
                self.assertTrue(self.trace(function)[1])


class Seen(Recalls):
    def test_cell__is_seen(self):
        def make():
            size = 3

            def change():
                nonlocal size
                size = 4

            return lambda b, h, i, j: i - j < size, change

        self.sees(make)

    def test_zero__of_another_sign_is_seen(self):
        def make():
            zero = [0.0]
            return lambda b, h, i, j: i / (j * math.copysign(1, zero[0])) > 1, lambda: zero.__setitem__(0, -0.0)

        self.sees(make)

    def test_kind__of_a_number_is_seen(self):
        def make():
            size = [3]
            return lambda b, h, i, j: i / 2 < size[0], lambda: size.__setitem__(0, 3.0)

        self.sees(make)

    def test_set__is_seen(self):
        for kind in (set, frozenset):

            def make(kind=kind):
                held = [kind((3, 5))]
                return lambda b, h, i, j: i - j < max(held[0]), lambda: held.__setitem__(0, kind((3, 6)))

            self.sees(make)

    def test_number_of_numpy__is_seen(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")

        def make():
            held = [numpy.int64(3)]
            return lambda b, h, i, j: i - j < held[0], lambda: held.__setitem__(0, numpy.int64(4))

        self.sees(make)

    def test_default__is_seen(self):
        def make():
            def mask(b, h, i, j, size=3):
                return i - j < size

            return mask, lambda: setattr(mask, "__defaults__", (4,))

        self.sees(make)

    def test_keyword_default__is_seen(self):
        def make():
            def mask(b, h, i, j, *, size=3):
                return i - j < size

            return mask, lambda: setattr(mask, "__kwdefaults__", {"size": 4})

        self.sees(make)

    def test_global__is_seen(self):
        def make():
            names = {"SIZE": 3}
            exec("def mask(b, h, i, j):\n    return (lambda x: x < SIZE)(i - j)", names)
            return names["mask"], lambda: names.__setitem__("SIZE", 4)

        self.sees(make)

    def test_builtin__that_a_global_hides_is_seen(self):
        def make():
            names = {}
            exec("def mask(b, h, i, j):\n    return i - j < max(3, 2)", names)
            return names["mask"], lambda: names.__setitem__("max", lambda a, b: b)

        self.sees(make)

    def test_code__is_seen(self):
        def make():
            def mask(b, h, i, j):
                return i - j < 3

            return mask, lambda: setattr(mask, "__code__", (lambda b, h, i, j: i - j < 4).__code__)

        self.sees(make)

    def test_function__that_is_called_is_seen(self):
        def make():
            sizes = [3]

            def inner(x):
                return x < sizes[0]

            return lambda b, h, i, j: inner(i - j), lambda: sizes.__setitem__(0, 4)

        self.sees(make)

    def test_elements__are_seen(self):
        for holder, change in (
            (lambda: [3, 5], lambda held: held.__setitem__(0, 4)),
            (lambda: [3, 5], lambda held: held.insert(0, 4)),
            (lambda: {0: 3, "other": 5}, lambda held: held.__setitem__(0, 4)),
            (lambda: {0: [3]}, lambda held: held.__setitem__(0, [4])),
            (lambda: ([3], [5]), lambda held: held[0].__setitem__(0, 4)),
        ):

            def make(holder=holder, change=change):
                held = holder()

                def mask(b, h, i, j):
                    first = held[0]
                    return i - j < (first[0] if isinstance(first, list) else first)

                return mask, lambda: change(held)

            self.sees(make)

    def test_length__of_a_list_is_seen(self):
        def make():
            sizes = [3, 3]
            return lambda b, h, i, j: i - j < len(sizes), lambda: sizes.append(3)

        self.sees(make)

    def test_lists__that_are_one_are_seen(self):
        def make():
            inner = [3]
            pair = [inner, inner]
            return (lambda b, h, i, j: i - j < (7 if pair[0] is pair[1] else 8)), lambda: pair.__setitem__(1, [3])

        self.sees(make)

    def test_attributes__are_seen(self):
        class Plain:
            def __init__(self):
                self.size, self.unread = 3, object()

        class Slots:
            __slots__ = ("size",)

            def __init__(self):
                self.size = 3

        @dataclasses.dataclass
        class Data:
            size: int = 3

        class Deep:
            def __init__(self):
                self.inner = Plain()

            @property
            def size(self):
                return self.inner.size

        class Called:
            def __init__(self):
                self.limit = 3

            def size(self):
                return self.limit

        for kind in (Plain, Slots, Data, types.SimpleNamespace):
            self.sees(lambda kind=kind: self.by_attribute(kind(size=3) if kind is types.SimpleNamespace else kind()))

        def deep():
            held = Deep()
            return lambda b, h, i, j: i - j < held.size, lambda: setattr(held.inner, "size", 4)

        def called():
            held = Called()
            return lambda b, h, i, j: i - j < held.size(), lambda: setattr(held, "limit", 4)

        self.sees(deep)
        self.sees(called)

    def by_attribute(self, held, owner=None):
        return lambda b, h, i, j: i - j < held.size, lambda: setattr(owner or held, "size", 4)

    def test_attributes__of_classes_are_seen(self):
        def kinds():
            class Base:
                size = 3

            class Sub(Base):
                pass

            return Base, Sub

        def base():
            of_base, sub = kinds()
            return self.by_attribute(sub(), of_base)

        def hidden():
            _, sub = kinds()
            return self.by_attribute(sub(), sub)

        def by_itself():
            _, sub = kinds()
            return self.by_attribute(sub())

        def of_the_class():
            of_base, sub = kinds()
            return self.by_attribute(sub, of_base)

        def becomes_a_property():
            _, sub = kinds()
            held = sub()
            return self.by_attribute(held)[0], lambda: setattr(sub, "size", property(lambda self: 4))

        def of_another_class():
            class Other:
                size = 4

            held = kinds()[1]()
            return self.by_attribute(held)[0], lambda: setattr(held, "__class__", Other)

        for make in (base, hidden, by_itself, of_the_class, becomes_a_property, of_another_class):
            with self.subTest(make.__name__):
                self.sees(make)

    def test_methods__are_seen(self):
        def make():
            class Masks:
                def __init__(self):
                    self.size = 3

                def limit(self):
                    return self.size

                @staticmethod
                def half(size):
                    return size / 2

                def mask(self, b, h, i, j):
                    return i - j < self.half(self.limit())

                def __call__(self, b, h, i, j):
                    return i - j < self.limit()

            return Masks

        def state(of):
            held = make()()
            return of(held), lambda: setattr(held, "size", 4)

        def code(of, name, other):
            kind = make()
            return of(kind()), lambda: setattr(kind, name, other)

        def mask(held):
            return held.mask

        self.sees(lambda: state(mask))
        self.sees(lambda: state(lambda held: held))
        self.sees(lambda: state(lambda held: lambda b, h, i, j: held(b, h, i, j)))
        self.sees(lambda: code(mask, "limit", lambda self: 9))
        self.sees(lambda: code(mask, "half", staticmethod(lambda size: 9)))
        self.sees(lambda: code(lambda held: held, "__call__", lambda self, b, h, i, j: i < 9))

    def test_named_tuple__is_seen(self):
        class Sizes(typing.NamedTuple):
            left: int
            right: int

        def make():
            sizes = [Sizes(3, 1), collections.namedtuple("Other", "left right")(5, 6)]
            return (lambda b, h, i, j: i - j < sizes[0].left + sizes[1].right), lambda: sizes.__setitem__(
                0, Sizes(4, 1)
            )

        self.sees(make)

    def test_module__is_seen(self):
        def make():
            MODULE.size = 3
            return lambda b, h, i, j: i - j < MODULE.size, lambda: setattr(MODULE, "size", 4)

        self.sees(make)

    def test_partial__is_seen(self):
        def mask(size, b, h, i, j, more=0):
            return i - j < size[0] + more

        def make(**named):
            size = [3]
            return functools.partial(mask, size, **named), lambda: size.__setitem__(0, 4)

        self.sees(make)
        self.sees(lambda: make(more=5))
        for _ in self.each_way():
            self.assertNotEqual(
                *(self.says(self.trace(functools.partial(mask, [3], more=more))[0]) for more in (1, 2))
            )

    def test_circle__ends(self):
        for _ in self.each_way():
            circle = [3]
            circle.append(circle)
            for is_traced in (True, False):
                self.assertIs(self.trace(lambda b, h, i, j: i - j < circle[0])[1], is_traced)  # noqa: B023


class NotTold(Recalls):
    """What may change without a sign."""

    def test_code__that_writes_is_run_each_time(self):
        held, calls = types.SimpleNamespace(size=3), []

        def by_attribute(b, h, i, j):
            held.size = 3
            return i - j < held.size

        def counts(b, h, i, j):
            calls.append(1)
            return i - j < 3

        def of_cell():
            count = 0

            def mask(b, h, i, j):
                nonlocal count
                count = not count
                return i - j < count

            return mask

        def by_item(b, h, i, j):
            sizes[0] = 3
            return i - j < 3

        sizes = [1]
        for make in (lambda: by_attribute, lambda: counts, of_cell, lambda: by_item):
            self.is_traced_each_time(make)

    def test_code__that_finds_values_by_other_ways_is_run_each_time(self):
        held, numbers = types.SimpleNamespace(size=3), itertools.count()

        def by_name(b, h, i, j):
            return i - j < getattr(held, "size")  # noqa: B009

        def by_dict(b, h, i, j):
            return i - j < held.__dict__["size"]

        def by_import(b, h, i, j):
            from sys import maxsize

            return i - j < maxsize % 7

        def by_error(b, h, i, j):
            try:
                return i - j < held.missing
            except AttributeError:
                return i < j

        def by_clock(b, h, i, j):
            return i - j < int(time.time() // 1e9)

        def by_chance(b, h, i, j):
            return i - j < random.randint(3, 4)

        def by_iterator(b, h, i, j):
            return i - j < next(numbers)

        for function in (by_name, by_dict, by_import, by_error, by_clock, by_chance, by_iterator):
            with self.subTest(function.__name__):
                self.is_traced_each_time(lambda function=function: function)

    def test_objects__with_ways_of_their_own_are_asked_each_time(self):
        class Looks:
            def __getattr__(self, name):
                return 3

        class LooksAll:
            def __getattribute__(self, name):
                return 3

        class Items:
            size = 3

            def __getitem__(self, index):
                return 3

        class Descriptor:
            def __get__(self, owner, kind):
                return 3

        class Described:
            size = Descriptor()

        class Meta(type):
            size = 3

        class OfMeta(metaclass=Meta):
            pass

        class Made:
            size = 3

            def __new__(cls):
                return object.__new__(cls)

        class Cached:
            @functools.cached_property
            def size(self):
                return 3

        for held in (Looks(), LooksAll(), Items(), Described(), OfMeta, Made(), Cached()):
            with self.subTest(type(held).__name__):
                self.is_traced_each_time(lambda held=held: lambda b, h, i, j: i - j < held.size)
        for held in (Items(), collections.deque([3]), collections.OrderedDict({0: 3}), collections.defaultdict(int)):
            with self.subTest(type(held).__name__):
                self.is_traced_each_time(lambda held=held: lambda b, h, i, j: i - j < held[0])

    def test_class__that_gets_an_operator_is_asked_each_time(self):
        for _ in self.each_way():

            class Held:
                size = 3

            held = Held()

            def mask(b, h, i, j):
                return i - j < held.size  # noqa: B023

            self.assertEqual([self.trace(mask)[1] for _ in range(3)][::2], [True, False])
            Held.__add__ = lambda self, other: 3
            self.assertTrue(self.trace(mask)[1])
            self.assertTrue(self.trace(mask)[1])

    def test_long_and_deep_things__are_read_each_time(self):
        deep = []
        for _ in range(20):
            deep = [deep]
        for held in (list(range(1000)), {i: i for i in range(1000)}, tuple(range(1000)), deep):
            self.is_traced_each_time(lambda held=held: lambda b, h, i, j: i - j < len(held))

    def test_function__with_attributes_is_run_each_time(self):
        def make():
            def inner(x):
                return x < 3

            inner.size = 3
            return lambda b, h, i, j: inner(i - j)

        self.is_traced_each_time(make)

    def test_untold_code__is_looked_at_again(self):
        """Others of the same code may be told."""
        for _ in self.each_way():

            def make(held):
                return lambda b, h, i, j: i - j < held[0]

            self.trace(make(collections.deque([3])))
            found = [self.trace(make([3]))[1] for _ in range(2 * _recall._RETRIED + 2)]
            self.assertIn(False, found)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Tensors(Recalls):
    def documents(self, doc):
        return lambda b, h, i, j: doc[i] == doc[j]

    def test_tensor__of_the_same_kind_is_read_in_its_place(self):
        for _ in self.each_way():
            one, other = (torch.zeros(16, dtype=torch.int32) for _ in range(2))
            self.assertTrue(self.trace(self.documents(one))[1])
            bound, is_traced = self.trace(self.documents(other))
            self.assertFalse(is_traced)
            self.assertEqual(len(bound.tensors), 1)
            self.assertIs(bound.tensors[0], other)

    def test_tensor__of_another_kind_is_seen(self):
        base = torch.zeros(32, 4, dtype=torch.int32)
        for other in (
            base[:, 1], base[:16, 0].contiguous(), base[:16].view(torch.float32)[:, 0], base[:16], base[0, 0],
            base[:16, 0].to("meta"), torch.nn.Parameter(base[:16, 0].float()), base[:16, 0].view(torch.uint32),
        ):  # fmt: skip
            for _ in self.each_way():
                held = [base[:16, 0]]
                function = lambda b, h, i, j: held[0][i if held[0].ndim else ...] > 1  # noqa: B023, E731
                if held[0].ndim != other.ndim:
                    function = lambda b, h, i, j: held[0].ndim > 1  # noqa: B023, E731
                self.trace(function)
                self.assertFalse(self.trace(function)[1])
                held[0] = other
                with mock.patch.object(variant.Reading, "bound", lambda self: variant.Bound(None, (), ())):
                    self.assertTrue(self.trace(function)[1])

    def test_tensor__that_changes_in_place_is_seen(self):
        for change in (
            lambda t: t.resize_(8), lambda t: setattr(t, "data", torch.zeros(16)),
            lambda t: t.set_(torch.zeros(32, dtype=torch.int32)[::2]), lambda t: t.unsqueeze_(0),
        ):  # fmt: skip
            for _ in self.each_way():
                doc = torch.zeros(16, dtype=torch.int32)
                function = lambda b, h, i, j: (doc[i] if doc.ndim == 1 else doc[0, i]) > 1  # noqa: B023, E731
                self.trace(function)
                change(doc)
                self.assertTrue(self.trace(function)[1])

    def test_tensors__that_are_one_are_told_from_two(self):
        def make(one, other):
            return lambda b, h, i, j: one[i] == other[j]

        for _ in self.each_way():
            one, other = torch.zeros(16), torch.zeros(16)
            self.assertEqual(len(self.trace(make(one, one))[0].tensors), 1)
            bound, is_traced = self.trace(make(one, other))
            self.assertEqual((len(bound.tensors), is_traced), (2, True))
            bound, is_traced = self.trace(make(other, one))
            self.assertFalse(is_traced)
            self.assertIs(bound.tensors[0], other)
            self.assertIs(bound.tensors[1], one)

    def test_tensors__are_found_wherever_they_are(self):
        class Held:
            pass

        for _ in self.each_way():
            for is_traced in (True, None, False):
                held, tables = Held(), {"slope": torch.rand(4)}
                held.doc = torch.zeros(16, dtype=torch.int32)

                def mask(b, h, i, j, of=(torch.zeros(4),)):
                    return (held.doc[i] == held.doc[j]) & (tables["slope"][h] > of[0][h])  # noqa: B023

                bound, was_traced = self.trace(mask)
                self.assertIn(is_traced, (None, was_traced))
                wanted = held.doc, tables["slope"], mask.__defaults__[0][0]
                self.assertEqual([id(each) for each in bound.tensors], [id(each) for each in wanted])

    def test_tensor__with_attributes_is_read_each_time(self):
        def make():
            doc = torch.zeros(16)
            doc.size_of_mine = 3
            return lambda b, h, i, j: doc[i] > doc.size_of_mine

        self.is_traced_each_time(make)

    def test_what_pytorch_computes__is_computed_each_time(self):
        lengths = torch.tensor([3, 4])
        for function in (
            lambda b, h, i, j: j < int(lengths[0]),
            lambda b, h, i, j: j < lengths.sum(),
            lambda b, h, i, j: j < lengths.data_ptr() % 7,
            lambda b, h, i, j: j < lengths._version,
            lambda b, h, i, j: j < (3 if lengths.requires_grad else 4),
            lambda b, h, i, j: j < int(torch.randint(3, (1,))),
        ):
            self.is_traced_each_time(lambda function=function: function)

    def neural(self, **more):
        """An nn.Module with a number, a buffer, a parameter and a module, and a function that reads them."""

        class Inner(torch.nn.Module):
            step = 2

        class Own(torch.nn.Module):
            size = 3

            def __init__(self):
                super().__init__()
                self.register_buffer("length", torch.tensor([3, 4]))
                self.slope = torch.nn.Parameter(torch.ones(2))
                self.inner = Inner()

            def mask(self, b, h, i, j):
                return (i - j < self.size) & (j < self.length[b]) & (self.slope[h] * j > self.inner.step)

        return type("More", (Own,), more)() if more else Own()

    def test_neural_modules__are_seen(self):
        def set_class(own):
            type(own).size = 4

        def set_inner(own):
            own.inner = self.neural()
            own.inner.step = 5

        for change in (
            set_class,
            set_inner,
            lambda own: setattr(own, "size", 5),
            lambda own: setattr(own.inner, "step", 7),
            lambda own: own.register_buffer("length", torch.tensor([3, 4], dtype=torch.int32)),
            lambda own: own.__dict__.__setitem__("slope", torch.ones(2, dtype=torch.float64)),
            lambda own: setattr(type(own), "mask", lambda self, b, h, i, j: i >= j),
        ):

            def make(change=change):
                own = self.neural()
                return lambda b, h, i, j: own.mask(b, h, i, j), lambda: change(own)

            with torch.no_grad():
                self.sees(make)

    def test_neural_module__gives_the_tensors_of_now(self):
        for _ in self.each_way():
            own = self.neural()
            self.trace(own.mask)
            own.slope = torch.nn.Parameter(torch.zeros(2))
            own.length = torch.tensor([5, 6])
            bound, is_traced = self.trace(own.mask)
            self.assertFalse(is_traced)
            self.assertEqual(set(map(id, bound.tensors)), {id(own.slope), id(own.length)})

    def test_neural_module__that_is_called_is_asked_each_time(self):
        class Shift(torch.nn.Module):
            def forward(self, i):
                return i + 1

        def hooked():
            own = self.neural()
            own.shift = Shift()
            return lambda b, h, i, j: own.shift(i) - j < 3

        self.is_traced_each_time(hooked)
        for each in ("children", "parameters", "named_buffers"):

            def counted(each=each):
                own = self.neural()
                return lambda b, h, i, j: i - j < len(list(getattr_of(own, each)()))

            def getattr_of(own, each):
                return {"children": own.children, "parameters": own.parameters}.get(each, own.named_buffers)

            self.is_traced_each_time(counted)

    def test_neural_module__with_ways_of_its_own_is_asked_each_time(self):
        def asked(self, name):
            return torch.nn.Module.__getattr__(self, name)

        self.is_traced_each_time(lambda: self.neural(__getattr__=asked).mask)

        class Late:
            late = 3

        class Mixed(torch.nn.Module, Late):
            def mask(self, b, h, i, j):
                return i - j < self.late

        self.is_traced_each_time(lambda: Mixed().mask)

    def test_profile__is_what_it_was(self):
        own, before = self.neural(), sys.getprofile()
        for _ in self.each_way():
            self.trace(own.mask)
            self.assertIs(sys.getprofile(), before)

    def test_functions__of_pytorch_are_told(self):
        for _ in self.each_way():
            for is_traced in (True, False):
                found = self.trace(
                    lambda b, h, i, j: torch.where(i > j, torch.abs(i), torch.nn.functional.relu(j)) > math.sqrt(2)
                )
                self.assertIs(found[1], is_traced)

    def test_nothing__is_kept_alive(self):
        import gc
        import weakref

        class Held:
            pass

        for _ in self.each_way():
            held = Held()
            held.doc = torch.zeros(16)
            self.trace(lambda b, h, i, j: held.doc[i] > 1)  # noqa: B023
            gone = weakref.ref(held), weakref.ref(held.doc)
            del held
            gc.collect()
            self.assertEqual([each() for each in gone], [None, None])

    def test_threads__recall_each_their_own(self):
        for _ in self.each_way():
            wrong = []

            def work(number):
                for step in range(200):
                    doc, size = torch.zeros(16 + number), number * 7 + step % 3
                    bound = variant.from_functions(None, lambda b, h, i, j: doc[i] > size)  # noqa: B023
                    if bound.tensors[0] is not doc or bound.values not in ((size,), ()):
                        wrong.append((number, step))  # noqa: B023

            threads = [threading.Thread(target=work, args=(3 + number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])


class Walks(Recalls):
    def test_walk__in_c_leaves_no_reference_behind(self):
        if _native_part.native is None:
            self.skipTest(_native_part.MISSING)
        marker, held = object(), types.SimpleNamespace(size=[3, {"a": (1, 2.5, None, "text")}])

        def function(b, h, i, j, more=(3, b"bytes")):
            return i - j < held.size[0] + SIZE

        def refused(b, h, i, j):
            return marker

        for each, is_told in ((function, True), (refused, False)):
            for _ in range(3):
                self.assertEqual(_native_part.native.recall({}, (each, None))[1] is not None, is_told)
            watched = (each, each.__code__, marker, held, held.size, held.size[1], each.__globals__, None.__class__)
            before = [sys.getrefcount(thing) for thing in watched]
            for _ in range(100):
                _native_part.native.recall({}, (each, None))
            after = [sys.getrefcount(thing) for thing in watched]
            self.assertLess(max(b - a for a, b in zip(before, after)), 10)
        with self.assertRaises(TypeError):
            _native_part.native.recall({}, [function])


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
