"""Gradients as training needs them: checkpoints, deterministic runs, long and large tensors, graphs, several GPUs."""

import concurrent.futures
import os
import subprocess
import sys
import unittest

import kjit
from gpu_torch import DEVICE, HAS_GPU, OfGradients, needs_gpu, problem, randn, reference, torch

#: Runs that must give equal bits.
RUNS = int(os.environ.get("KJIT_TEST_ROUNDS", "50"))


def gradients_of(tensors, dout, **options):
    return torch.autograd.grad(kjit.attention(*tensors, **options), tensors, dout)


def leaves(**sizes):
    return [tensor.requires_grad_() for tensor in problem(**sizes)]


class Load:
    """Copies on another stream, which disturb the order in which blocks of threads run."""

    def __enter__(self):
        self.stream, self.memory = torch.cuda.Stream(), torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
        return self

    def add(self):
        with torch.cuda.stream(self.stream):
            self.memory.copy_(self.memory.flip(0))

    def __exit__(self, *what):
        self.stream.synchronize()


@needs_gpu
class Training(OfGradients):
    def test_deterministic__runs_under_load_have_equal_bits(self):
        grouped = dict(batch=2, heads=8, heads_kv=4)  # dq is summed in registers
        many = dict(batch=8, heads=16)  # where head sizes are up to 128, tiles of keys take turns at sums in memory
        for head_dim, causal, heads in (
            *((size, causal, heads) for size in (64, 128) for causal in (False, True) for heads in (grouped, many)),
            (256, True, grouped),
        ):
            tensors = leaves(seq_q=1024, seq_kv=1024, head_dim=head_dim, **heads)
            dout = randn(*tensors[0].shape)
            first = gradients_of(tensors, dout, causal=causal, deterministic=True)
            with Load() as load:
                for run in range(RUNS):
                    load.add()
                    again = gradients_of(tensors, dout, causal=causal, deterministic=True)
                    same = [torch.equal(one, other) for one, other in zip(first, again)]
                    self.assertEqual(same, [True] * 3, f"head size {head_dim}, causal {causal}, run {run}")

    def test_deterministic__calls_on_two_streams_at_once_end_with_equal_bits(self):
        for head_dim, causal in ((64, False), (64, True), (128, False), (128, True)):
            tensors = leaves(batch=8, seq_q=1024, seq_kv=1024, heads=16, head_dim=head_dim)
            dout = randn(*tensors[0].shape)
            first = gradients_of(tensors, dout, causal=causal, deterministic=True)
            torch.cuda.synchronize()
            streams, differ = [torch.cuda.Stream() for _ in range(2)], []
            for _ in range(RUNS):  # blocks of both calls stay, and wait for tiles that other blocks work on
                for stream in streams:
                    with torch.cuda.stream(stream):
                        again = gradients_of(tensors, dout, causal=causal, deterministic=True)
                        differ += [(one != other).any() for one, other in zip(first, again)]
            torch.cuda.synchronize()
            self.assertFalse(any(each.item() for each in differ), f"head size {head_dim}, causal {causal}")

    def test_any_order__keys_gradients_have_equal_bits(self):
        tensors = leaves(batch=1, seq_q=2048, seq_kv=2048, heads=4, head_dim=128)
        dout = randn(*tensors[0].shape)
        first = gradients_of(tensors, dout)
        for _ in range(5):
            again = gradients_of(tensors, dout)
            self.assertTrue(torch.equal(first[1], again[1]) and torch.equal(first[2], again[2]))
            self.assertLess((first[0] - again[0]).abs().max().item(), 0.01 * first[0].abs().max().item())

    def test_threads__that_never_used_the_gpu_get_right_gradients_on_one_stream(self):
        q, k, v = problem(batch=1, seq_q=1024, seq_kv=1024, heads=8, head_dim=128)
        dout = randn(*q.shape)
        out, lse = kjit.attention(q, k, v, return_lse=True)
        wanted = [True, True, True]
        first = torch.ops.kjit.attention_backward(dout, None, q, k, v, out, lse, None, False, "bshd", wanted)
        torch.cuda.synchronize()

        def work(_):
            for _ in range(10):
                got = torch.ops.kjit.attention_backward(dout, None, q, k, v, out, lse, None, False, "bshd", wanted)
            return got

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(work, range(8)))
        torch.cuda.synchronize()
        for dq, dk, dv in found:  # dq is summed in any order
            self.assertTrue(torch.equal(dk, first[1]) and torch.equal(dv, first[2]))
            self.assertLess((dq - first[0]).abs().max().item(), 0.01 * first[0].abs().max().item())

    def test_checkpoint__gives_the_same_gradients(self):
        from torch.utils.checkpoint import checkpoint

        tensors = leaves(batch=2, seq_q=300, seq_kv=300, heads=4, head_dim=64)
        dout = randn(*tensors[0].shape)
        options = {"causal": True, "deterministic": True}
        plain = gradients_of(tensors, dout, **options)
        out = checkpoint(lambda *t: kjit.attention(*t, **options), *tensors, use_reentrant=False)
        for one, other in zip(plain, torch.autograd.grad(out, tensors, dout)):
            self.assertTrue(torch.equal(one, other))

    def test_sum_of_expanded_gradients__is_right(self):
        tensors = leaves(batch=2, seq_q=700, seq_kv=900, heads=4, head_dim=128, heads_kv=2)
        out = kjit.attention(*tensors, causal=True)
        dout = randn(1, 1, 4, 1).expand(out.shape)
        got = torch.autograd.grad(out, tensors, dout)
        self.check(got, *tensors, dout, None, True, "expanded")

    def test_transposed_gradients__are_right(self):
        tensors = leaves(batch=2, seq_q=300, seq_kv=400, heads=4, head_dim=64, heads_kv=2)
        dout = randn(2, 4, 300, 64).transpose(1, 2)
        out = kjit.attention(*tensors, causal=True)
        self.assertFalse(dout.is_contiguous())
        self.check(torch.autograd.grad(out, tensors, dout), *tensors, dout, None, True, "heads first")
        dout = randn(64, 2, 4, 300).permute(1, 3, 2, 0)  # columns that lie apart: it is copied
        out = kjit.attention(*tensors, causal=True)
        self.check(torch.autograd.grad(out, tensors, dout), *tensors, dout, None, True, "columns apart")

    def test_small_problems__agree_with_finite_differences(self):
        """As torch.autograd.gradcheck has it: along a random direction, beside differences in float64."""
        problems = (8, 1, False, 3, 5), (16, 2, True, 9, 9), (40, 1, True, 7, 20)
        for head_dim, heads_kv, causal, seq_q, seq_kv in problems:
            tensors = leaves(batch=1, seq_q=seq_q, seq_kv=seq_kv, heads=2, head_dim=head_dim, heads_kv=heads_kv)
            dout, dlse = randn(1, seq_q, 2, head_dim), torch.randn(1, 2, seq_q, device=DEVICE)

            def loss(*at):
                exact, lse, _ = reference(*at, causal=causal)
                return ((exact * dout.double()).sum() + (lse * dlse.double()).sum()).item()

            out, lse = kjit.attention(*tensors, causal=causal, return_lse=True)
            got = torch.autograd.grad((out, lse), tensors, (dout, dlse))
            step, at = 1e-5, [tensor.detach().double() for tensor in tensors]
            along = [torch.randn_like(tensor) for tensor in at]
            ends = [loss(*(t + sign * step * d for t, d in zip(at, along))) for sign in (1, -1)]
            terms = torch.cat([(grad.double() * d).flatten() for grad, d in zip(got, along)])
            error = abs((ends[0] - ends[1]) / (2 * step) - terms.sum().item())
            self.assertLessEqual(error, 0.03 * terms.norm().item(), f"{head_dim} {heads_kv} {causal} {seq_q}/{seq_kv}")

    def test_sums_of_dq__keep_nothing_of_the_call_before(self):
        """A call whose every number is NaN poisons the memory that the next one sums dq in."""
        for head_dim, causal in ((64, False), (64, True), (128, False), (128, True)):
            tensors = leaves(batch=1, seq_q=2048, seq_kv=2048, heads=64, head_dim=head_dim)
            dout = randn(*tensors[0].shape)
            poison = [torch.full_like(tensor, float("nan")).requires_grad_() for tensor in tensors]
            for deterministic in (False, True):
                gradients_of(poison, poison[0].detach(), causal=causal, deterministic=deterministic)
                got = gradients_of(tensors, dout, causal=causal, deterministic=deterministic)
                self.check_last_head(tensors, dout, causal, got, f"{head_dim} {causal} {deterministic}")

    def check_last_head(self, tensors, dout, causal, got, what):
        """The last head of the last batch entry, which lies at the largest addresses."""
        last = [tensor.detach()[-1:, :, -1:] for tensor in (*tensors, dout)]
        self.check([grad[-1:, :, -1:] for grad in got], *last, None, causal, what)

    def test_graph__replays_what_any_order_computes(self):
        """The sums of dq are cleared by every replay."""
        tensors = leaves(batch=1, seq_q=2048, seq_kv=2048, heads=4, head_dim=64)
        dout, side, graph = randn(*tensors[0].shape), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            gradients_of(tensors, dout)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            captured = gradients_of(tensors, dout)
        for _ in range(3):
            for grad in captured:
                grad.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            self.check_last_head(tensors, dout, False, captured, "replayed")

    def test_tensors__of_more_than_2_to_the_31_elements_are_right(self):
        if torch.cuda.mem_get_info()[0] < 64 << 30:
            self.skipTest("less than 64 GiB of free memory")
        tensors = leaves(batch=2100, seq_q=128, seq_kv=128, heads=64, head_dim=128)
        self.assertGreater(tensors[0].numel(), 1 << 31)
        dout = randn(*tensors[0].shape)
        self.check_last_head(tensors, dout, True, gradients_of(tensors, dout, causal=True), "large")
        del tensors, dout
        torch.cuda.empty_cache()

    def test_long_sequences__are_right(self):
        """Beside float64 as far as memory goes: 16k rows; at 64k beside the kernels that add in one order."""
        tensors = leaves(batch=1, seq_q=16384, seq_kv=16384, heads=2, head_dim=128)
        dout = randn(*tensors[0].shape)
        self.check_last_head(tensors, dout, True, gradients_of(tensors, dout, causal=True), "16k")
        torch.cuda.empty_cache()
        tensors = leaves(batch=1, seq_q=65536, seq_kv=65536, heads=2, head_dim=64)
        dout = randn(*tensors[0].shape)
        got = gradients_of(tensors, dout, causal=True)
        same_bits = gradients_of(tensors, dout, causal=True, deterministic=True)
        for one, other in zip(got, same_bits):
            self.assertLess((one - other).abs().max().item(), 0.02 * other.abs().max().item())

    def test_ddp__on_two_gpus_gives_the_gradients_of_one(self):
        if torch.cuda.device_count() < 2:
            self.skipTest("one GPU: two are needed")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, "ddp"]
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # the package that this process found
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=found)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-4000:])


def run_ddp():
    """One process of two: a layer of attention, whose gradients DDP averages, beside the whole batch on one GPU."""
    import torch.distributed as dist

    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    layer = torch.nn.Linear(128, 3 * 128, bias=False, device="cuda", dtype=torch.bfloat16)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            q, k, v = self.layer(x).view(*x.shape[:2], 3, 2, 64).unbind(2)
            return kjit.attention(q, k, v, causal=True, deterministic=True).float().square().mean()

    x = torch.randn(4, 512, 128, device="cuda", dtype=torch.bfloat16)
    dist.broadcast(x, 0)
    model = Model()
    model(x).backward()
    whole = layer.weight.grad.clone()
    layer.weight.grad = None
    parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])  # which must outlive the backward
    parallel(x[2 * rank : 2 * rank + 2]).backward()
    share = (layer.weight.grad.float() - whole.float()).abs().max().item() / whole.abs().max().item()
    print(f"rank {rank}: gradients of DDP and of the whole batch differ by {share:.3g} of the largest", flush=True)
    dist.destroy_process_group()
    return 0 if share <= 0.02 else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["ddp"] and HAS_GPU:
        sys.exit(run_ddp())
    unittest.main()
