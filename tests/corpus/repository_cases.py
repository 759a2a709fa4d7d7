"""Kernels of repositories that no package brings: `python repository_cases.py FOLDER` clones them, at these commits.

KJIT_CORPUS_DIR then names the folder to corpus_test.py. Nothing of them is part of this repository.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

_SAMPLES = "cuda-samples"
REPOSITORIES = {
    _SAMPLES: ("https://github.com/NVIDIA/cuda-samples", "c94ff366aed18c797b8a85dfaac7817b0228b420"),
}
# (repository, file, kernel or name expression, further folders of headers)
_FILES = (
    (_SAMPLES, "Samples/0_Introduction/clock_nvrtc/clock_kernel.cu", "timedReduction", ()),
    (_SAMPLES, "Samples/0_Introduction/matrixMul_nvrtc/matrixMul_kernel.cu", "matrixMulCUDA_block16", ()),
    (_SAMPLES, "Samples/0_Introduction/simpleAssert_nvrtc/simpleAssert_kernel.cu", "testKernel", ()),
    (_SAMPLES, "Samples/0_Introduction/simpleAtomicIntrinsics_nvrtc/simpleAtomicIntrinsics_kernel.cuh", "testKernel",
     ()),
    (_SAMPLES, "Samples/0_Introduction/simpleVoteIntrinsics/simpleVote_kernel.cuh", "VoteAnyKernel1", ()),
    (_SAMPLES, "Samples/0_Introduction/simpleTextureDrv/simpleTexture_kernel.cu", "transformKernel", ()),
    (_SAMPLES, "Samples/0_Introduction/vectorAdd_nvrtc/vectorAdd_kernel.cu", "vectorAdd", ()),
    (_SAMPLES, "Samples/2_Concepts_and_Techniques/inlinePTX_nvrtc/inlinePTX_kernel.cu", "sequence_gpu", ()),
    (_SAMPLES, "Samples/2_Concepts_and_Techniques/scalarProd/scalarProd_kernel.cuh", "scalarProdGPU", ()),
    (_SAMPLES, "Samples/3_CUDA_Features/ptxjit/ptxjit_kernel.cu", "myKernel", ()),
    (_SAMPLES, "Samples/5_Domain_Specific/BlackScholes_nvrtc/BlackScholes_kernel.cuh", "BlackScholesGPU", ()),
    (_SAMPLES, "Samples/5_Domain_Specific/binomialOptions_nvrtc/binomialOptions_kernel.cu", "binomialOptionsKernel",
     ("Common",)),
    (_SAMPLES, "Samples/5_Domain_Specific/dwtHaar1D/dwtHaar1D_kernel.cuh", "dwtHaar1D", ()),
    (_SAMPLES, "Samples/5_Domain_Specific/fastWalshTransform/fastWalshTransform_kernel.cuh", "fwtBatch1Kernel", ()),
    (_SAMPLES, "Samples/5_Domain_Specific/quasirandomGenerator_nvrtc/quasirandomGenerator_kernel.cu",
     "quasirandomGeneratorKernel", ()),
    (_SAMPLES, "Samples/5_Domain_Specific/recursiveGaussian/recursiveGaussian_kernel.cuh", "d_transpose", ()),
)


def cases(root: Path) -> list[dict[str, Any]]:
    """Those whose files are below the folder."""
    found = []
    for repository, name, kernel, folders in _FILES:
        file = root / repository / name
        if file.is_file():
            dirs = [str(file.parent), *(str(root / repository / folder) for folder in folders)]
            found.append({"name": f"{repository}/{file.parent.name}/{file.name}", "text": file.read_text(),
                          "dirs": dirs, "names": [kernel]})
    return found


def fetch(root: Path) -> None:
    for name, (address, commit) in REPOSITORIES.items():
        folder = root / name
        for command in (["init", "-q", str(folder)], ["-C", str(folder), "fetch", "-q", "--depth=1", address, commit],
                        ["-C", str(folder), "checkout", "-q", "FETCH_HEAD"]):
            subprocess.run(["git", *command], check=True)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
