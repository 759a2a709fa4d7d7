"""Slurm on one node, for tests: munged, slurmctld and slurmd on the loopback interface, in a folder of their own."""

import contextlib
import os
import shutil
import socket
import subprocess
import time

import servers

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

CONFIGURATION = """
ClusterName=kjit
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


class CannotStart(Exception):
    """Why there is no Slurm here."""


def why_not():
    """None when the programs are installed and this user may start them."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        return "not installed: " + ", ".join(missing)
    return None if os.geteuid() == 0 else "slurmd needs root"


@contextlib.contextmanager
def cluster(cpus=8):
    """The environment of Slurm's commands, once the node is idle. CannotStart when that does not happen."""
    with servers.folder() as root:
        (root / "state").mkdir()
        (root / "spool").mkdir()
        key = root / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        (root / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname(), controller=servers.free_port(), daemon=servers.free_port(), root=root, cpus=cpus,
            user="root"))
        environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(root / "slurm.conf")}
        munge = ["munged", "--foreground", "--force", f"--socket={root}/munge.socket", f"--key-file={key}",
                 f"--pid-file={root}/munge.pid", f"--log-file={root}/munge.log", f"--seed-file={root}/munge.seed"]
        processes = []
        try:
            for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
                processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                                  stderr=subprocess.DEVNULL))
            wait_until_idle(environment, processes, root)
            yield environment
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                process.wait()


def wait_until_idle(environment, processes, root, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended = [process.args[0] for process in processes if process.poll() is not None]
        if ended:
            raise CannotStart(f"{ended[0]} ended: {last_words(root)}")
        state = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True)
        if state.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    raise CannotStart(f"the node was not idle after {seconds} s: {last_words(root)}")


def last_words(root):
    logs = [path.read_text(errors="replace").splitlines() for path in sorted(root.glob("*.log"))]
    return "; ".join(lines[-1] for lines in logs if lines)
