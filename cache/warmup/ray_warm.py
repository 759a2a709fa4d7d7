"""Fills a remote store from a Ray cluster: one task a shard, on CPU nodes.

    KJIT_CACHE_REMOTE=redis://cache:6379 python ray_warm.py app.manifest sm_80,sm_90 16
"""

import json
import os
import subprocess
import sys


def warm(manifest, archs, index, count):
    """One shard; the object that `kjit warm --json` prints."""
    result = subprocess.run(["kjit", "warm", "--manifest", manifest, "--arch", archs, "--shard", f"{index}/{count}",
                             "--json"], capture_output=True, text=True)
    if not result.stdout:
        raise RuntimeError(f"shard {index}/{count}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def summary(reports):
    """The sums over all shards, and every failure."""
    names = ("in_shard", "built", "cached", "failed", "interrupted", "not_kept")
    return {**{name: sum(report[name] for report in reports) for name in names},
            "failures": [failure for report in reports for failure in report["failures"]]}


def exit_code(total):
    return 1 if total["failed"] or total["interrupted"] or total["not_kept"] else 0


def main(manifest, archs, count):
    import ray
    ray.init(runtime_env={"env_vars": {name: value for name, value in os.environ.items() if name.startswith("KJIT_")}})
    task = ray.remote(num_cpus=1, max_retries=2)(warm)
    reports = ray.get([task.remote(manifest, archs, index, count) for index in range(1, count + 1)])
    total = summary(reports)
    print(json.dumps(total))
    return exit_code(total)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
