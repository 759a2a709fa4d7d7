"""FlashAttention-3 beside cuDNN on another day: an estimate of it where it cannot be imported.

TFLOP/s on one NVIDIA H200, bf16, 16k tokens, heads * head_dim = 2048, L2 flushed; FA3 built with ptxas 13.0, cuDNN
9.19 through PyTorch 2.11, both in the same run. What carries over from there to a run is their ratio.
"""

from __future__ import annotations

from typing import Optional

from attention_problems import SEQS, Problem, is_cell

#: (head_dim, causal): FA3 and cuDNN at SEQS. A figure that was a range is its middle.
_MEASURED = {
    (64, False): ((330, 386, 502, 523, 568, 533), (387, 435, 461, 471, 487, 463)),
    (64, True): ((224, 303, 428, 492, 541, 545), (260, 337, 394, 432, 461, 467)),
    (128, False): ((521, 635, 695, 721, 741, 705), (524, 589, 614, 610, 623, 653)),
    (128, True): ((327, 488, 618, 694, 733, 724.5), (338, 436, 505, 573, 569, 567)),
    (256, False): ((535, 675, 750, 777, 784, 767), (521, 622, 694, 658, 692, 695)),
    (256, True): ((342, 498, 635, 725, 777, 752), (342, 455, 544, 603, 613, 619)),
}

WORDS = (
    "FA3~ was not measured here: it is this run's cuDNN times FA3/cuDNN of another run on an H200 (bench/fa3_table.py)."
)


def ratio_to_cudnn(problem: Problem) -> Optional[float]:
    """FA3 over cuDNN; None where it was not measured."""
    if problem.dtype != "bf16" or not is_cell(problem):
        return None
    fa3, cudnn = (figures[SEQS.index(problem.seq_q)] for figures in _MEASURED[problem.head_dim, problem.causal])
    return fa3 / cudnn
