"""A hundred thousand calls leave nothing behind."""

import gc

import kjit
from gpu_torch import Attention, needs_gpu, problem, torch


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@needs_gpu
class Leaks(Attention):
    def grown(self, call, count):
        """Bytes that the process and PyTorch's allocator grew by in `count` calls, after a thousand to settle."""
        for _ in range(1000):
            call()
        torch.cuda.synchronize()
        gc.collect()
        before = resident_bytes(), torch.cuda.memory_allocated()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        gc.collect()
        return resident_bytes() - before[0], torch.cuda.memory_allocated() - before[1]

    def test_calls__a_hundred_thousand_leave_nothing(self):
        q, k, v = problem(1, 16, 16, 1)
        host, device = self.grown(lambda: kjit.attention(q, k, v, return_lse=True), 100_000)
        self.assertLess(host, 4 << 20)
        self.assertEqual(device, 0)

    def test_shapes__that_never_come_back_are_forgotten(self):
        q, k, v = problem(1, 16, 4000, 1)
        lengths = iter(range(200, 10**9))

        def call():
            length = 200 + next(lengths) % 3800
            kjit.attention(q, k[:, :length], v[:, :length])

        for _ in range(4000):
            call()
        host, device = self.grown(call, 20_000)
        self.assertLess(host, 8 << 20)
        self.assertEqual(device, 0)

    def test_plans__that_are_dropped_are_gone(self):
        q, k, v = problem(1, 16, 16, 1)
        host, device = self.grown(lambda: kjit.plan(q, k, v), 10_000)
        self.assertLess(host, 4 << 20)
        self.assertEqual(device, 0)
