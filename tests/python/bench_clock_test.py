"""The clock of the benchmarks on a PyTorch that only writes down what is enqueued: no GPU, no PyTorch."""

import importlib
import sys
import types
import unittest
from unittest import mock

import harness

ROUNDS, WARM_UP = 5, 1


class FakeTorch(types.ModuleType):
    """`log` is what was enqueued, in order; `passed`: whether the GPU is past any event that it is asked about."""

    uint8 = "uint8"

    def __init__(self, has_sleep=True):
        super().__init__("torch")
        self.log, self.passed, self.sleeps = [], False, []
        fake = self

        class Event:
            def __init__(self, enable_timing):
                self.place = None

            def record(self):
                self.place = len(fake.log)
                fake.log.append("event")

            def query(self):
                return fake.passed

            def elapsed_time(self, end):
                return float(end.place - self.place)

        self.cuda = types.SimpleNamespace(
            Event=Event,
            synchronize=lambda: self.log.append("synchronize"),
            current_device=lambda: 0,
            get_device_properties=lambda device: types.SimpleNamespace(L2_cache_size=50 << 20),
        )
        if has_sleep:
            self.cuda._sleep = self._sleep

    def _sleep(self, cycles):
        self.log.append("spin")
        self.sleeps.append(cycles)

    def empty(self, size, **options):
        return types.SimpleNamespace(zero_=lambda: self.log.append("flush" if size == 100 << 20 else "fill"))

    def zeros(self, size, **options):
        return types.SimpleNamespace(add_=lambda value: self.log.append(f"add {value} to {size}"))

    def ones(self, size, **options):
        return types.SimpleNamespace(size=size)

    def sum(self, memory, dim, out):
        self.log.append(f"read {memory.size}")


class Host:
    """The host's clock: it goes on only where a call costs something."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def call(self, seconds, log, name):
        def run():
            self.now += seconds
            log.append(name)

        return run


class ClockCase(unittest.TestCase):
    """A fresh gpu_clock on a fake PyTorch."""

    def load(self, **options):
        self.torch, self.host = FakeTorch(**options), Host()
        with mock.patch.dict(sys.modules, {"torch": self.torch}):
            sys.modules.pop("gpu_clock", None)
            self.gpu_clock = importlib.import_module("gpu_clock")
        patch = mock.patch("time.perf_counter", self.host.perf_counter)
        patch.start()
        self.addCleanup(patch.stop)
        return self.gpu_clock

    def runs(self, **seconds):
        return {name: self.host.call(cost, self.torch.log, name) for name, cost in seconds.items()}

    def timed(self, name):
        """What was enqueued around each timed call of this name: the three before it, and the one behind."""
        log = self.torch.log
        places = [place for place, entry in enumerate(log) if entry == name]
        return [log[max(place - 3, 0) : place + 2] for place in places[3:]]  # three are to see what it costs the host


class Spins(ClockCase):
    def test_spin__stands_between_flush_and_first_event_of_every_timed_call(self):
        clock = self.load().Clock()
        clock.rounds(self.runs(a=1e-6, b=2e-6), ROUNDS, warm_up=WARM_UP, seldom=self.runs(limit=1e-6))
        for name, count in (("a", ROUNDS), ("b", ROUNDS), ("limit", 2)):
            expected = [["flush", "spin", "event", name, "event"]] * (count + WARM_UP)
            self.assertEqual(self.timed(name), expected, name)

    def test_spin__is_there_where_l2_is_left_as_it_is(self):
        clock = self.load().Clock(flush=False)
        clock.rounds(self.runs(a=1e-6), ROUNDS)
        self.assertEqual({tuple(part[1:]) for part in self.timed("a")}, {("spin", "event", "a", "event")})
        self.assertNotIn("flush", self.torch.log)

    def test_flush__reads_where_it_is_asked_to(self):
        module = self.load()
        clock = module.Clock(by="reads")
        clock.rounds(self.runs(a=1e-6), ROUNDS)
        read = f"read {module.READ_BYTES // 4}"
        self.assertEqual({tuple(part) for part in self.timed("a")}, {(read, "spin", "event", "a", "event")})

    def test_spin__has_a_least_length(self):
        module = self.load()
        module.Clock().rounds(self.runs(a=1e-6, b=5e-6), ROUNDS)
        self.assertEqual(set(self.torch.sleeps), {round(module.LEAST_SPIN * module.FASTEST_CLOCK_HZ)})

    def test_spin__is_longer_than_what_the_slowest_call_costs_the_host(self):
        module = self.load()
        module.Clock().rounds(self.runs(a=1e-6), ROUNDS, seldom=self.runs(slow=100e-6))
        (cycles,) = set(self.torch.sleeps)
        self.assertAlmostEqual(cycles / module.FASTEST_CLOCK_HZ, module.SPIN_MARGIN * 100e-6, delta=1e-9)

    def test_spin__is_not_of_what_the_first_call_costs_the_host(self):
        module, costs = self.load(), iter([4.0, 1e-6, 2e-6])
        clock = module.Clock()

        def compiled():
            self.host.now += next(costs, 1e-6)

        clock.rounds({"compiled": compiled}, ROUNDS)
        self.assertEqual(set(self.torch.sleeps), {round(module.LEAST_SPIN * module.FASTEST_CLOCK_HZ)})

    def test_spin__has_a_limit_for_calls_that_wait_for_the_gpu(self):
        module = self.load()
        module.Clock().rounds(self.runs(waits=0.5), ROUNDS)
        self.assertEqual(set(self.torch.sleeps), {round(module.MOST_SPIN * module.FASTEST_CLOCK_HZ)})

    def test_spin__is_measured_anew_for_other_calls(self):
        module = self.load()
        clock = module.Clock()
        clock.rounds(self.runs(slow=100e-6), ROUNDS)
        self.torch.sleeps.clear()
        clock.rounds(self.runs(a=1e-6), ROUNDS)
        self.assertEqual(set(self.torch.sleeps), {round(module.LEAST_SPIN * module.FASTEST_CLOCK_HZ)})

    def test_late__counts_the_calls_that_the_gpu_did_not_wait_for(self):
        clock = self.load().Clock()
        clock.rounds(self.runs(a=1e-6), ROUNDS)
        self.assertEqual(clock.late, 0)
        self.torch.passed = True
        clock.rounds(self.runs(a=1e-6, b=1e-6), ROUNDS, warm_up=WARM_UP)
        self.assertEqual(clock.late, 2 * (ROUNDS + WARM_UP))


class WithoutSleep(ClockCase):
    def test_memory__is_filled_where_pytorch_cannot_sleep(self):
        clock = self.load(has_sleep=False).Clock()
        clock.rounds(self.runs(a=1e-6), ROUNDS)
        self.assertEqual({tuple(part) for part in self.timed("a")}, {("flush", "fill", "event", "a", "event")})

    def test_memory__is_filled_as_long_as_the_slowest_call_costs_the_host(self):
        clock = self.load(has_sleep=False).Clock()
        clock.rounds(self.runs(a=110e-6), ROUNDS, warm_up=0)
        self.assertEqual(self.torch.log.count("fill"), 5 * ROUNDS)

    def test_memory__is_not_filled_where_l2_is_to_be_kept(self):
        module = self.load(has_sleep=False)
        with self.assertRaisesRegex(NotImplementedError, "no torch.cuda._sleep"):
            module.Clock(flush=False)


class Times(ClockCase):
    def test_rounds__give_a_time_of_each_round_and_of_every_fourth(self):
        clock = self.load().Clock()
        times = clock.rounds(self.runs(a=1e-6, b=1e-6), 9, seldom=self.runs(limit=1e-6))
        self.assertEqual({name: len(each) for name, each in times.items()}, {"a": 9, "b": 9, "limit": 3})
        self.assertEqual({value for each in times.values() for value in each}, {2.0})  # between its own two events

    def test_rounds__are_at_least_some_where_time_is_up(self):
        module = self.load()
        times = module.Clock().rounds(self.runs(a=1e-6), 30, until=0)
        self.assertEqual(len(times["a"]), module.LEAST_ROUNDS)

    def test_empty_launch__is_one_addition_to_one_element(self):
        run = self.load().make_empty()
        run()
        self.assertEqual(self.torch.log, ["add 1 to 1"])


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
