"""Fills a remote store from a Dask cluster: one task a shard, on CPU workers.

    KJIT_CACHE_REMOTE=redis://cache:6379 python dask_warm.py app.manifest sm_80,sm_90 16 [SCHEDULER]
"""

import json
import sys

from ray_warm import exit_code, summary, warm


def main(manifest, archs, count, scheduler=None):
    from dask.distributed import Client
    with Client(scheduler) as client:
        client.upload_file(__file__.replace("dask_warm", "ray_warm"))
        futures = [client.submit(warm, manifest, archs, index, count, pure=False, retries=2)
                   for index in range(1, count + 1)]
        total = summary(client.gather(futures))
    print(json.dumps(total))
    return exit_code(total)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:5]))
