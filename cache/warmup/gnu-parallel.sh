#!/usr/bin/env bash
# Eight parts on the machines of a list, by GNU parallel. It sets PARALLEL_SEQ (1 to 8), and "/8" says how many there
# are. The folder is shared by the machines; without a shared one, each fills its own and the folders are copied
# together afterwards.
#
#   cache/warmup/gnu-parallel.sh HOSTS_FILE
set -euo pipefail
parallel --sshloginfile "$1" --env KJIT_CACHE_DIR --jobs 1 -N0 \
    kjit warm --set prebuilt --arch sm_80,sm_90 --shard /8 ::: {1..8}
