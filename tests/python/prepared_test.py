"""Prepared calls on PyTorch tensors, in C and in Python: what tells two calls apart, and what reaches the library."""

import ctypes
import struct
import sys
import unittest

import harness

try:
    import torch
except ImportError:
    torch = None
else:
    from kjit import _native_part, _prepared


def base():
    return torch.zeros(4, 6, 8, dtype=torch.float16)


def finds():
    """Both ways of telling calls apart, by name: what a dict has under a signature, and the signature."""

    def by(signature):
        return lambda calls, head, tensors: calls.get(signature(head, tensors))

    signatures = {"Python": _prepared.signature_in_python}
    if _native_part.native is not None:
        signatures["C"] = _native_part.native.signature
    return {way: (by(signature), signature) for way, signature in signatures.items()}


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Signatures(unittest.TestCase):
    def differs(self, one, other, head="head", other_head="head"):
        for way, (find, signature) in finds().items():
            calls = {signature(head, one): "one"}
            with self.subTest(way):
                self.assertEqual(find(calls, head, one), "one")
                self.assertIsNone(find(calls, other_head, other))

    def test_find__knows_equal_tensors(self):
        for way, (find, signature) in finds().items():
            for kind in (torch.Tensor, torch.nn.Parameter):
                known = (kind(base()), None, base()[1])
                with self.subTest(f"{way} {kind.__name__}"):
                    calls = {signature(("a", 1.5), known): 7}
                    self.assertEqual(find(calls, ("a", 1.5), (kind(base()), None, base()[2])), 7)

    def test_find__tells_heads_apart(self):
        self.differs((base(),), (base(),), ("causal", 1), ("causal", 2))

    def test_find__tells_shapes_apart(self):
        self.differs((base(),), (base()[:3],))
        self.differs((base(),), (base()[None],))
        self.differs((torch.zeros(2, 3), torch.zeros(4)), (torch.zeros(2), torch.zeros(3, 4)))

    def test_find__tells_strides_apart(self):
        self.differs((base()[:, :3],), (base()[:, ::2],))
        self.differs((base(),), (base().transpose(0, 1).contiguous().transpose(0, 1),))

    def test_find__tells_types_apart(self):
        for other in (torch.bfloat16, torch.int16, torch.uint16):
            self.differs((base(),), (base().view(other),))
        self.differs((base().view(torch.uint8),), (base().view(torch.bool),))
        self.differs((base().view(torch.uint8),), (base().view(torch.float8_e4m3fn),))

    def test_find__tells_a_missing_tensor(self):
        self.differs((base(), None), (base(), base()))
        self.differs((None, base()), (base(), None))

    def test_find__of_many_tensors_and_axes(self):
        many = tuple(torch.zeros(i + 1, 2, 3, 4) for i in range(60))
        self.differs(many, (*many[:-1], torch.zeros(60, 2, 3, 5)))
        self.differs((torch.zeros((1,) * 12),), (torch.zeros((1,) * 11 + (2,)),))

    def test_find__sees_a_tensor_that_changed(self):
        """The same object with other contents is another call, or the same one where only its memory is another."""
        for change, is_known in (
            (lambda t: t.set_(base().flatten()[1:].view(torch.float16)[:64]), False),
            (lambda t: t.resize_(2, 2), False),
            (lambda t: t.t_() if t.ndim == 2 else t.transpose_(0, 1), False),
            (lambda t: setattr(t, "data", torch.zeros(4, 6, 8, dtype=torch.float32)), False),
            (lambda t: setattr(t, "data", base()), True),
        ):
            for way, (find, signature) in finds().items():
                tensor = base()
                calls = {signature("head", (tensor,)): 1}
                change(tensor)
                with self.subTest(way):
                    self.assertEqual(find(calls, "head", (tensor,)), 1 if is_known else None)

    def test_find__asks_what_is_no_plain_tensor_by_its_methods(self):
        class Own(torch.Tensor):
            def stride(self, *axis):
                return (1, 2, 3)

        self.differs((base(),), (base().as_subclass(Own),))
        for find, signature in finds().values():
            with self.assertRaises(AttributeError):
                find({}, "head", (1,))
            with self.assertRaises(AttributeError):
                signature("head", ("text",))


class Shown(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_uint64), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


READ = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Shown))


class Table(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 3), ("read", READ), ("stream", ctypes.c_void_p),
    ]  # fmt: skip


class Showing:
    """An object that an exchange table of the test's own shows as this."""

    def __init__(self, device=(2, 0), lanes=1, has_strides=True):
        self.device, self.lanes, self.has_strides = device, lanes, has_strides
        self.numbers = (ctypes.c_int64 * 2)(3, 5)
        self.shape, self.dtype = (3, 5), None

    def stride(self):
        return "by attributes"

    def get_device(self):
        return self.device[1]


def show(showing, out):
    numbers = ctypes.cast(showing.numbers, ctypes.POINTER(ctypes.c_int64))
    out[0] = Shown(4096, showing.device, 2, 2, 16, showing.lanes, numbers, numbers, 64)
    if not showing.has_strides:
        out[0].strides = None
    return 0


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Tables(unittest.TestCase):
    """What DLPack's exchange table says of tensors that this machine has none of."""

    def setUp(self):
        if _native_part.native is None:
            self.skipTest(_native_part.MISSING)
        self.read = READ(show)
        self.kept = []

    def configured(self, major=1, older=None, read=True):
        table = Table(major, 0, older, (0, 0, 0), self.read if read else READ(), 0)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        capsule = make(ctypes.addressof(table), b"dlpack_exchange_api", None)
        self.kept += [table, capsule]
        real = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
        if real is None:
            self.skipTest("this PyTorch has no exchange table to go back to")
        self.addCleanup(_native_part.native.configure_tensors, real, torch.Tensor, torch.nn.Parameter)
        return _native_part.native.configure_tensors(capsule, Showing, Showing)

    def is_known(self, one, other):
        return _native_part.native.signature(0, (one,)) == _native_part.native.signature(0, (other,))

    def test_signature__tells_devices_apart(self):
        self.assertTrue(self.configured())
        self.assertTrue(self.is_known(Showing(), Showing()))
        self.assertFalse(self.is_known(Showing(), Showing(device=(2, 1))))
        self.assertFalse(self.is_known(Showing(), Showing(device=(3, 0))))
        self.assertFalse(self.is_known(Showing(), Showing(lanes=2)))

    def test_address__has_the_byte_offset(self):
        self.configured()
        place, function = ctypes.c_uint64(), FUNCTION(lambda *given: 0)
        call = _native_part.native.Call(
            _native_part.address_of(function), (1,), (ctypes.addressof(place),), None, 0, 0, None, (), 0, None, 0, None,
            None,
        )  # fmt: skip
        call.run((Showing(),))
        self.assertEqual(place.value, 4096 + 64)
        place.value = 0
        shown = (Showing(),)
        calls = {_native_part.native.signature(0, shown): call}
        self.assertIs(_native_part.native.launch(calls, 0, shown, ()), shown[0])
        self.assertEqual(place.value, 4096 + 64)

    def test_tensor__without_strides_is_asked_itself(self):
        self.configured()
        self.assertIn("by attributes", _native_part.native.signature(0, (Showing(has_strides=False),)))

    def test_table__of_another_version_is_left(self):
        self.assertFalse(self.configured(major=2))
        self.assertIn("by attributes", _native_part.native.signature(0, (Showing(),)))
        self.configured()
        self.assertTrue(self.configured(major=2, older=ctypes.addressof(self.kept[-2])))
        self.assertFalse(self.configured(read=False))


FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def calls():
    found = {"Python": (_prepared.CallInPython, lambda function: function)}
    if _native_part.native is not None:
        found["C"] = _native_part.native.Call, _native_part.address_of
    return found


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Made(unittest.TestCase):
    """Calls of a function of the test's own."""

    def setUp(self):
        self.places = (ctypes.c_uint64 * 4)()
        self.seen, self.status = [], 0
        self.function = FUNCTION(self.step)

    def step(self, pointer, stream, error):
        self.seen.append((pointer, stream, error, list(self.places)))
        return self.status

    def made(self, way, stream_of=None, places=(0, 1, 2, 3), pointers=(17,), **other):
        kind, convert = calls()[way]
        at = ctypes.addressof(self.places)
        places = tuple(0 if place is None else at + 8 * place for place in places)
        options = dict(makes=(), first=-1, kinds=None, numbers=0, failed=None, unless=None, device=5) | other
        device = options.pop("device")
        return kind(convert(self.function), pointers, places, stream_of, device, 23, self.places, *options.values())


class Calls(Made):
    def test_run__writes_addresses_and_calls(self):
        for way in calls():
            with self.subTest(way):
                tensors = base(), None, base()[1:], torch.nn.Parameter(base())
                run = self.made(way, lambda device: 100 + device, (0, 1, None, 3)).run
                self.places[1], self.places[2] = 8, 9
                self.assertEqual(run(tensors), 0)
                wanted = [tensors[0].data_ptr(), 8, 9, tensors[3].data_ptr()]
                self.assertEqual(self.seen.pop(), (17, 105, 23, wanted))

    def test_run__returns_the_status(self):
        self.status = 7
        for way in calls():
            self.assertEqual(self.made(way, places=()).run(()), 7, way)
            self.assertEqual(self.seen.pop()[1], None)

    def test_on__takes_a_stream(self):
        for way in calls():
            call = self.made(way, lambda device: 1, ())
            self.assertEqual((call.on(9), call.on(None)), (0, 0))
            self.assertEqual([each[1] for each in self.seen], [9, 1])
            self.seen.clear()

    def test_run__reads_the_address_of_each_time(self):
        """A tensor may get other memory between two calls."""
        for way in calls():
            tensor = base()
            call = self.made(way, places=(0,))
            call.run((tensor,))
            tensor.set_(base()[1])
            call.run((tensor,))
            self.assertEqual(self.places[0], tensor.data_ptr(), way)

    def test_run__raises_what_an_object_says(self):
        for way in calls():
            with self.assertRaises(AttributeError):
                self.made(way, places=(0,)).run(("text",))

            def fails(device):
                raise KeyError("stream")

            with self.assertRaises(KeyError):
                self.made(way, fails, ()).run(())
        self.assertEqual(self.seen, [])

    def test_call__in_c_refuses_what_it_cannot_hold(self):
        if _native_part.native is None:
            self.skipTest(_native_part.MISSING)
        for wrong in (dict(pointers=()), dict(pointers=(1, 2, 3, 4))):
            with self.assertRaisesRegex(ValueError, "1 to 3 pointers"):
                self.made("C", **wrong)
        with self.assertRaisesRegex(ValueError, "a tuple of 4"):
            self.made("C").run((base(),))
        make = (base, ())
        few = dict(makes=(make,), places=())
        for wrong in (dict(makes=(make,) * 3), few, dict(first=4), dict(makes=(make,), first=3)):
            with self.assertRaisesRegex(ValueError, "makes at most 2 tensors"):
                self.made("C", **wrong)
        for wrong in (dict(makes=(base,)), dict(makes=((base, []),)), dict(makes=(make,), places=(0, None))):
            with self.assertRaisesRegex(TypeError, "what makes a tensor"):
                self.made("C", **wrong)
        with self.assertRaisesRegex(TypeError, "kinds of numbers"):
            self.made("C", kinds=b"i")
        with self.assertRaises(TypeError):
            _native_part.native.Call(1, (1,), (), None, 0, 0)
        for wrong in (({}, 1, (), 2), ({}, 1, ()), ([], 1, (), ())):
            with self.assertRaises(TypeError):
                _native_part.native.launch(*wrong)


def launches():
    found = {"Python": (_prepared.launch_in_python, _prepared.signature_in_python)}
    if _native_part.native is not None:
        found["C"] = _native_part.native.launch, _native_part.native.signature
    return found


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Launches(Made):
    """A whole call: found by its signature, with tensors that it makes, and numbers."""

    def setUp(self):
        super().setUp()
        self.numbers = (ctypes.c_int32 * 3)()

    def kept(self, way, given, **options):
        return {launches()[way][1]("head", given): self.made(way, **options)}

    def launch(self, way, calls, given, values=()):
        return launches()[way][0](calls, "head", given, values)

    def test_launch__gives_what_was_given_and_made(self):
        out, lse = (torch.zeros, (3,)), (torch.ones, (2, 2))
        for way in launches():
            with self.subTest(way):
                given = (base(), None, base())
                calls = self.kept(way, given, makes=(out, lse), places=(0, None, None, 1, 2), device=-1)
                first, second = self.launch(way, calls, given)
                self.assertEqual((first.shape, second.shape), ((3,), (2, 2)))
                wanted = [given[0].data_ptr(), first.data_ptr(), second.data_ptr(), 0]
                self.assertEqual(self.seen.pop(), (17, None, 23, wanted))
                calls = self.kept(way, given, makes=(out,), places=(0, 1, 2, 3), device=-1)
                self.assertEqual(self.launch(way, calls, given).shape, (3,))
                calls = self.kept(way, given, makes=(lse,), first=2, places=(0, 1, 2, 3), device=-1)
                first, second = self.launch(way, calls, given)
                self.assertIs(first, given[2])
                self.assertEqual(second.shape, (2, 2))
                calls = self.kept(way, given, first=0, places=(0, 1, 2))
                self.assertIs(self.launch(way, calls, given), given[0])
                self.places[:] = [0] * 4
                self.seen.clear()

    def test_launch__leaves_what_it_does_not_know(self):
        for way in launches():
            given = (base(),)
            self.assertIsNone(self.launch(way, {}, given))
            self.assertIsNone(self.launch(way, {launches()[way][1]("head", given): (0, 1)}, given))
            self.assertIsNone(self.launch(way, self.kept(way, given, places=(0,)), (base()[:2],)))
        self.assertEqual(self.seen, [])

    def test_launch__leaves_results_of_another_device(self):
        for way in launches():
            given = (base(),)
            calls = self.kept(way, given, places=(0, 1), makes=((torch.zeros, (3,)),), device=1)
            self.assertIsNone(self.launch(way, calls, given), way)
        self.assertEqual(self.seen, [])

    def test_launch__is_left_where_it_is_asked_to_be(self):
        for way in launches():
            given, leave = (base(),), [True]
            calls = self.kept(way, given, places=(0,), first=0, unless=lambda leave=leave: leave[0])
            self.assertIsNone(self.launch(way, calls, given))
            leave[0] = False
            self.assertIs(self.launch(way, calls, given), given[0])
            calls = self.kept(way, given, places=(0,), first=0, unless=lambda: 1 / 0)
            with self.assertRaises(ZeroDivisionError):
                self.launch(way, calls, given)
        self.assertEqual(len(self.seen), len(launches()))

    def test_launch__writes_numbers(self):
        for way in launches():
            given = (base(),)
            calls = self.kept(
                way, given, places=(0,), first=0, kinds=b"ifi", numbers=ctypes.addressof(self.numbers)
            )
            for values in ((7, 2.5, -(2**31)), (True, float("-inf"), 2**31 - 1), (0, 1e-46, 1)):
                self.assertIs(self.launch(way, calls, given, values), given[0])
                self.assertEqual(bytes(self.numbers), struct.pack("=ifi", *values), (way, values))
            for values in ((2**31, 1.0, 0), (0, 1e39, 0), (0.5, 1.0, 0), (0, 1.0, 2**70), (0, 1.0)):
                self.assertIsNone(self.launch(way, calls, given, values), (way, values))
        self.assertEqual(len(self.seen), 3 * len(launches()))

    def test_launch__tells_of_a_status(self):
        self.status = 7
        for way in launches():
            given, told = (base(),), []
            calls = self.kept(way, given, places=(0,), first=0, failed=lambda *said, told=told: told.append(said))
            self.assertIs(self.launch(way, calls, given), given[0])
            self.assertEqual(told, [(*calls.values(), None)])

            def fails(call, stream):
                raise KeyError("what went wrong")

            with self.assertRaisesRegex(KeyError, "what went wrong"):
                self.launch(way, self.kept(way, given, places=(0,), first=0, failed=fails), given)

    def test_launch__raises_what_makes_the_result_raises(self):
        for way in launches():
            given = (base(),)
            calls = self.kept(way, given, places=(0, 1), makes=((torch.zeros, (-1,)),), device=-1)
            with self.assertRaises(RuntimeError):
                self.launch(way, calls, given)
        self.assertEqual(self.seen, [])

    def test_launch__keeps_a_call_that_is_dropped_meanwhile(self):
        """What makes the result may run any code, a collector's for one."""
        for way in launches():
            given, calls = (base(),), {}

            def make(calls=calls):
                calls.clear()
                return base()

            calls.update(self.kept(way, given, places=(0, 1), makes=((make, ()),), device=-1))
            self.assertEqual(self.launch(way, calls, given).shape, base().shape)

    def test_start__takes_a_stream_and_tells_of_a_status(self):
        if _native_part.native is None:
            self.skipTest(_native_part.MISSING)
        told = []
        call = self.made("C", lambda device: 100 + device, (), failed=lambda *said: told.append(said))
        self.assertEqual([call.start(), call.start(9), call.start(stream=8), call.start(None)], [None] * 4)
        self.assertEqual([each[1] for each in self.seen], [105, 9, 8, 105])
        self.status = 3
        self.assertIsNone(call.start(9))
        self.assertIsNone(call.start())
        self.assertEqual(told, [(call, 9), (call, None)])
        with self.assertRaises(TypeError):
            call.start("nine")
        with self.assertRaises(TypeError):
            call.start(1, 2)

    def test_maker__makes_tensors_alike(self):
        for tensor in (base(), base().transpose(0, 2), torch.zeros(2, 3)[:, :2], torch.zeros(0, 4), torch.zeros(())):
            function, arguments = _prepared.maker_of(tensor)
            made = function(*arguments)
            self.assertEqual((made.shape, made.stride(), made.dtype), (tensor.shape, tensor.stride(), tensor.dtype))
            self.assertIs(type(made), torch.Tensor)
            with torch.inference_mode():
                self.assertTrue(function(*arguments).is_inference())


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
