"""What the real compiler makes of examples/gemm: no spills, no serialised products. And the choice by shape."""

import random
import unittest

import kjit

import gemm

# Bytes; where the epilogue of the largest tile has too few registers.
SPILLS = {(192, 1): 96, (192, 2): 136, (192, 3): 136, (192, 4): 32}

SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (1, 4096, 4096), (16, 28672, 4096), (128, 28672, 4096),
          (128, 6144, 4096), (1000, 1000, 1000), (776, 3000, 1232))


class Choice(unittest.TestCase):
    def test_choose__takes_a_legal_config_for_every_problem(self):
        pick = random.Random(1)
        for _ in range(3000):
            problem = gemm.Problem(*(int(2 ** pick.uniform(0, 14)) for _ in "mnk"))
            base = gemm.Config(
                a_layout=pick.randrange(2),
                b_layout=pick.randrange(2),
                epilogue=pick.randrange(5),
                dtype=pick.choice((5, 15)),
            )
            config = gemm.choose(problem, base)
            self.assertIsNone(config.broken_rule(), (problem, config))
            self.assertGreater(config.grid(problem.m, problem.n, 132), 0)

    def test_broken_rule__names_what_does_not_fit(self):
        self.assertIn("shared memory", gemm.Config(stages=8).broken_rule())
        self.assertIn("sums", gemm.Config(BM=256, BN=256, stages=2).broken_rule())


class Code(unittest.TestCase):
    def compile(self, config, arch):
        return gemm.Kernel(kjit.default_runtime(), config, arch).artifact

    def check(self, config, arch):
        artifact = self.compile(config, arch)
        most = SPILLS.get((config.BN, config.epilogue), 0) if config.pingpong else 0
        self.assertLessEqual(artifact.spill_bytes, most, config)
        self.assertNotIn("(C75", artifact.log, config)

    def test_chosen_configs__compile_without_spills_or_serialised_products(self):
        for number, shape in enumerate(SHAPES):
            base = gemm.Config(b_layout=gemm.COLUMN, epilogue=number % 5)
            self.check(gemm.choose(gemm.Problem(*shape), base), "sm_90a")

    def test_clusters__compile_without_spills(self):
        self.check(gemm.Config(BM=256, BN=128, cluster_m=2, cluster_n=2, stages=3, a_layout=1), "sm_90a")
        self.check(gemm.Config(BN=128, split_k=4, cluster_n=2, dtype=5, epilogue=4), "sm_90a")

    def test_mma__compiles_without_spills_for_sm_80(self):
        for layouts in range(4):
            base = gemm.Config(a_layout=layouts // 2, b_layout=layouts % 2, epilogue=layouts)
            self.check(gemm.choose_mma(base), "sm_80")


if __name__ == "__main__":
    try:
        kjit.compile_source('extern "C" __global__ void empty() {}', "empty", "sm_80")
    except kjit.NoNvrtc as missing:
        print(f"{missing}: 1 SKIPPED TEST(S)")
    else:
        unittest.main()
