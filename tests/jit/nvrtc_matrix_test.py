"""Every named NVRTC compiles every built-in family without a warning and within the budgets of spills.

usage: nvrtc_matrix_test.py KJIT

KJIT_TEST_NVRTCS names the libraries: files (libnvrtc.so.12) or their folders, separated by ":". Without it the test is
skipped; `tools/fetch-nvrtc 12.8 12.4 ...` fetches some and prints the variable. KJIT_TEST_ALL_CONFIGS=1 takes all of
the kernels below instead of every third one. A table of what each version made of each family is printed at the end.
"""

import concurrent.futures
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
import harness  # noqa: E402

KJIT = Path(sys.argv[1]).resolve()

# Problems that reach every branch of attention_sm90: one and two Q buffers, one to three consumers, masks, heads that
# share a tile, split-KV, head sizes whose wgmma shapes are no powers of two. On sm_90a those of one query have too many
# tiles for attention_serving_sm90, so that they are attention_decode_sm90's.
HEADS = ("head_dim=64", "head_dim=72", "head_dim=128", "head_dim=192,head_dim_v=128", "head_dim=256", "head_dim=40")
SHAPES = ("batch=4,heads_q=16,seq_q=4096,causal=0", "batch=4,heads_q=16,seq_q=4096,causal=1",
          "batch=20,heads_q=64,heads_kv=8,seq_q=1,seq_kv=16384",
          "batch=2,heads_q=32,heads_kv=8,seq_q=128,seq_kv=8192,causal=1")
PROBLEMS = [f"dtype={('fp16', 'bf16')[i % 2]},{head},{shape}"
            for i, (head, shape) in enumerate(itertools.product(HEADS, SHAPES))]
FLASH = ("(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+opt_softmax",
         "(BF16, 128, 128, 64, 4): async+eager+swizzled+load_2_2_0_tiles+buffer+opt_softmax",
         "(BF16, 128, 128, 32, 4): async+eager+swizzled+load_2_2_2_tiles+buffer",
         "(FP16, 64, 64, 64, 4): async+swizzled+load_0_0_0_tiles")
DECODES = [problem for problem in PROBLEMS if "seq_q=1," in problem]
# (family, config, architecture, bytes that may be spilled): what the planner chooses for usual shapes. Budgets are for
# every NVRTC: runs of tiles of 128 rows spill 12 bytes by 12.8 and none by 13.0, runs of 64 rows 316 and 256, of which
# a step of keys reads one word.
HEAD_128 = "dtype=bf16,head_dim=128,head_dim_v=128"
CONFIGS = (
    ("attention_short_sm90", "dtype=bf16,head_dim=64,head_dim_v=64,causal=0,tile_n=128,consumers=4,stages=4,"
     "q_buffers=2,blocks_per_sm=1", "sm_90a", 0),
    ("attention_short_sm90", "dtype=fp16,head_dim=64,head_dim_v=64,causal=1,tile_n=208,consumers=3,stages=3,"
     "q_buffers=2,blocks_per_sm=1", "sm_90a", 96),
    ("attention_backward_sm90", HEAD_128 + ",causal=0,pass=1,consumers=2,tile=64,stages=3,value_stages=3,"
     "pipelined=1,direct=0,staggered=0,persistent=0,stores=0", "sm_90a", 16),
    ("attention_backward_sm90", HEAD_128 + ",causal=0,pass=6,consumers=2,tile=48,stages=3,value_stages=3,"
     "pipelined=1,direct=0,staggered=0,persistent=0,stores=0", "sm_90a", 16),
    ("flash_backward", HEAD_128 + ",causal=0,pass=1,tile_m=128,tile_n=64,n_warps=8,stages=2", "sm_80", 16),
    ("flash_backward", HEAD_128 + ",causal=0,pass=6,tile_m=32,tile_n=128,n_warps=8,stages=2", "sm_80", 16),
    ("attention_serving_sm90", HEAD_128 + ",cache=bf16,rows=64,keys=64,stages=2,blocks_per_sm=2,softcap=0,one_part=1,"
     "gathered=0,runs=0,grouped=0,apart=0", "sm_90a", 0),
    ("attention_serving_sm90", HEAD_128 + ",cache=bf16,rows=64,keys=64,stages=2,blocks_per_sm=2,softcap=0,one_part=1,"
     "gathered=0,runs=0,grouped=0,apart=1", "sm_90a", 0),
    ("attention_serving_sm90", HEAD_128 + ",cache=bf16,rows=128,keys=128,stages=3,blocks_per_sm=1,softcap=0,one_part=1,"
     "gathered=0,runs=0,grouped=0,apart=0", "sm_90a", 0),
    ("attention_serving_sm90", HEAD_128 + ",cache=bf16,rows=64,keys=64,stages=2,blocks_per_sm=2,softcap=0,one_part=1,"
     "gathered=0,runs=1,grouped=0,apart=0", "sm_90a", 320),
    ("attention_serving_sm90", HEAD_128 + ",cache=bf16,rows=64,keys=64,stages=2,blocks_per_sm=2,softcap=0,one_part=1,"
     "gathered=0,runs=1,grouped=1,apart=0", "sm_90a", 320),
    ("attention_serving_sm90", HEAD_128 + ",cache=bf16,rows=64,keys=64,stages=3,blocks_per_sm=2,softcap=0,one_part=1,"
     "gathered=1,runs=0,grouped=0,apart=0", "sm_90a", 0),
    ("attention_serving_sm90", HEAD_128 + ",cache=bf16,rows=64,keys=64,stages=3,blocks_per_sm=2,softcap=0,one_part=1,"
     "gathered=1,runs=1,grouped=0,apart=0", "sm_90a", 192),
    ("attention_serving_sm90", HEAD_128 + ",cache=bf16,rows=128,keys=128,stages=3,blocks_per_sm=1,softcap=0,one_part=1,"
     "gathered=0,runs=1,grouped=0,apart=0", "sm_90a", 32),
    ("attention_serving", "pass=attend," + HEAD_128 +
     ",rows=64,keys=64,warps=4,stages=2,blocks_per_sm=2,paged=1,softcap=0,cache=bf16", "sm_90", 192),
    ("attention_serving", "pass=plan," + HEAD_128 +
     ",rows=64,keys=64,warps=4,stages=2,blocks_per_sm=1,paged=0,softcap=0,cache=bf16", "sm_80", 0),
)
FAMILIES = ("attention_sm90", "attention_decode_sm90", "attention_short_sm90", "flash_forward",
            "attention_backward_sm90", "flash_backward", "attention_serving_sm90", "attention_serving")


def kernels():
    """(family, arguments of `kjit compile`, bytes that may be spilled): the budgets are those of the codegen tests."""
    def sm90(family, problems):
        return [(family, ["--attention", problem, "--arch", "sm_90a"], None) for problem in problems]

    found = sm90("attention_sm90", [problem for problem in PROBLEMS if problem not in DECODES])
    found += sm90("attention_decode_sm90", DECODES)
    for arch in ("sm_80", "sm_89"):
        found += [("flash_forward", ["--attention", problem, "--arch", arch], 96) for problem in PROBLEMS[::2]]
        found += [("flash_forward", ["--flash", text, "--arch", arch], 128 if "128, 128, 64" in text else 0)
                  for text in FLASH]
    if os.environ.get("KJIT_TEST_ALL_CONFIGS") != "1":
        found = found[::6]
    return found + [(family, ["--family", family, config, "--arch", arch], budget)
                    for family, config, arch, budget in CONFIGS]


def spill_budget_sm90(label):
    """As in sm90_codegen_test.c."""
    fields = dict(field.split("=") for field in label.split(",") if "=" in field)
    return 320 if int(fields.get("split", 0)) and int(fields.get("head_dim_v", 0)) > 128 else 16


def compile_one(library, kernel):
    """The description that the command prints, with `fault`: what is wrong with it, or None."""
    family, arguments, budget = kernel
    environment = dict(os.environ, KJIT_NVRTC=str(library), KJIT_CACHE_MODE="off")
    with tempfile.NamedTemporaryFile() as cubin:
        done = subprocess.run([KJIT, "compile", *arguments, "-o", cubin.name, "--json"], env=environment,
                              capture_output=True, text=True, timeout=harness.HANGS_S)
    if done.returncode != 0:
        return {"family": family, "fault": done.stderr.strip() or f"exit code {done.returncode}"}
    made = json.loads(done.stdout)
    if budget is None:
        budget = spill_budget_sm90(made["label"])
    made["fault"] = None
    if made["family"] != family:
        made["fault"] = f"{made['family']} was chosen instead"
    elif made["log"]:
        made["fault"] = made["log"].strip()
    elif made["spill_bytes"] > budget:
        made["fault"] = f"spills {made['spill_bytes']} bytes; the budget is {budget}"
    return made


def named():
    return [Path(name) for name in os.environ.get("KJIT_TEST_NVRTCS", "").split(":") if name]


class NvrtcMatrix(unittest.TestCase):
    def row(self, library, family, made):
        mine = [each for each in made if each["family"] == family]
        clean = [each for each in mine if not each["fault"]]
        compiled = [each for each in mine if "registers" in each]
        self.assertTrue(mine)
        return (f"| {library} | {family} | {len(mine)} | {len(compiled)} | {len(mine) - len(clean)} "
                f"| {max((each['spill_bytes'] for each in compiled), default='-')} "
                f"| {max((each['registers'] for each in compiled), default='-')} "
                f"| {sum(each['compile_ms'] for each in compiled) / max(1, len(compiled)):.0f} |")

    def test_nvrtc_matrix__every_version_compiles_all_families_clean(self):
        if not named():
            self.skipTest("KJIT_TEST_NVRTCS names no NVRTC")
        work = kernels()
        faults, rows = [], []
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for library in named():
                self.assertTrue(library.exists(), f"KJIT_TEST_NVRTCS: {library} is not there")
                made = list(pool.map(lambda kernel, library=library: compile_one(library, kernel), work))
                faults += [f"{library}: {' '.join(kernel[1])}: {each['fault']}"
                           for kernel, each in zip(work, made) if each["fault"]]
                rows += [self.row(library, family, made) for family in FAMILIES]
        print("| NVRTC | family | kernels | compiled | not clean | most spilled, bytes | most registers | mean, ms |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        print("\n".join(rows), flush=True)
        self.assertFalse(faults, "\n".join(faults))


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
