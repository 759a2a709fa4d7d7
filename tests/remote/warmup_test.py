"""The recipes of cache/warmup as a scheduler runs them, with a compiler that answers at once: each fills a cache by
eight parts, and the check over all parts says that nothing is missing.

usage: warmup_test.py KJIT FAKE_NVRTC

KJIT_TEST_WARMUP_NVRTC names an NVRTC to be used instead, and KJIT_TEST_WARMUP_MANIFEST a manifest for it. Slurm is
started where it is installed and KJIT_TEST_SLURM is set; KJIT_TEST_RAY_PYTHON and KJIT_TEST_DASK_PYTHON name Pythons
that have Ray and Dask."""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))

import harness  # noqa: E402
import recipes  # noqa: E402
import slurm  # noqa: E402
import storage_helper  # noqa: E402
from harness import FAILED, NOWHERE  # noqa: E402

KJIT, FAKE_NVRTC = (Path(word).resolve() for word in sys.argv[1:3])
WARMUP = ROOT / "cache/warmup"
KERNELS = 20
SHARDS = 8
ARCHS = "sm_80,sm_90"

FAMILY = """family: number
doc: writes a number
source: number.cu
entry: k
fields:
  number: {kind: int, range: [1, 1000], default: 1, doc: what it writes}
block: [1]
grid: 1
parameters:
  out: int32*
"""
SOURCE = 'extern "C" __global__ void k(int *out) { *out = KJIT_number; }\n'


class WarmupCase(harness.KjitCase):
    """A machine: the folder app/ stands for the application's in the image, and kjit is on the PATH."""

    program = KJIT

    def setUp(self):
        super().setUp()
        self.app = self.folder / "app"
        self.app.mkdir()
        (self.app / "number.cu").write_text(SOURCE)
        (self.app / "number.yaml").write_text(FAMILY)
        self.manifest = self.app / "app.manifest"
        own = os.environ.get("KJIT_TEST_WARMUP_MANIFEST")
        lines = "".join(f"number.yaml sm_80 number={i}\n" for i in range(1, KERNELS + 1))
        self.manifest.write_text(Path(own).read_text() if own else lines)
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "kjit").symlink_to(KJIT)
        schedulers = {name: None for name in os.environ if name.startswith(("SLURM_", "JOB_COMPLETION", "PARALLEL_"))}
        self.environment.update(schedulers, PATH=f"{programs}:{os.environ['PATH']}", KJIT_COMPILE_SERVER="off",
                                KJIT_NVRTC=os.environ.get("KJIT_TEST_WARMUP_NVRTC", FAKE_NVRTC))
        self.distinct = self.json("warm", "--check", "--manifest", self.manifest, "--arch", ARCHS, "--remote",
                                  f"crsh:{self.folder}/nobody|total_ms=1", exit_code=FAILED)["distinct"]

    def placed(self, text):
        """The paths of an image or of a runner, in this machine's folder."""
        text = re.sub(r"(?<![\w.])/app/", f"{self.app}/", str(text))
        return re.sub(r"(?<![\w.])/opt/kjit", f"{self.folder}/opt/kjit", text).replace("/tmp/kernels.key",
                                                                                       f"{self.folder}/kernels.key")

    def run_words(self, words, code=0, **environment):
        result = self.run_command(*words, environment={**self.environment, **environment})
        self.assertEqual(result.returncode, code, f"{words}\n{result.stdout}\n{result.stderr}")
        return result

    def holds_all(self, folder):
        """The folder answers the whole manifest without a compiler."""
        report = self.json("warm", "--manifest", self.manifest, "--arch", ARCHS, KJIT_CACHE_DIR=folder,
                           KJIT_NVRTC=NOWHERE)
        self.assertEqual((report["cached"], report["built"], report["failed"]), (self.distinct, 0, 0))


class Resume(WarmupCase):
    def warm(self, *arguments, **keywords):
        return self.kjit("warm", "--manifest", self.manifest, "--arch", ARCHS, *arguments, **keywords)

    def test_warm_resume__says_what_is_there_and_builds_the_rest(self):
        self.warm("--shard", "1/4")
        result = self.warm("--resume", "--json")
        report = json.loads(result.stdout)
        part = -(-self.distinct // 4)
        self.assertIn(f"resuming: {part} of {self.distinct} are there\n", result.stderr)
        self.assertEqual((report["cached"], report["built"]), (part, self.distinct - part))
        self.assertEqual(report["in_shard"], self.distinct)

    def test_warm_resume__from_a_store_by_a_machine_with_an_empty_folder(self):
        with storage_helper.running(self.folder) as store:
            self.environment["KJIT_CACHE_REMOTE"] = f"{store.url}|total_ms=20000"
            self.warm("--shard", "2/4")
            result = self.warm("--shard", "2/4", "--resume", KJIT_CACHE_DIR=self.folder / "empty")
        self.assertIn(" 0 built, ", result.stdout)

    def test_warm_resume__with_nothing_there_builds_all(self):
        self.assertIn(f"{self.distinct} built, 0 from the cache", self.warm("--resume").stdout)


class Check(WarmupCase):
    def check(self, store, code, *arguments):
        return self.json("warm", "--check", "--manifest", self.manifest, "--arch", ARCHS, "--remote", store.url,
                         *arguments, exit_code=code)

    def test_warm_check__says_what_a_shard_that_did_not_run_has_left_out(self):
        with storage_helper.running(self.folder) as store:
            for index in range(1, SHARDS + 1):
                if index != 3:
                    self.kjit("warm", "--manifest", self.manifest, "--arch", ARCHS, "--shard", f"{index}/{SHARDS}",
                              KJIT_CACHE_REMOTE=store.url, KJIT_CACHE_DIR=self.folder / f"machine{index}")
            missing = self.check(store, FAILED)
            self.assertEqual(missing["missing"] + missing["present"], self.distinct)
            self.assertIn(missing["missing"], (self.distinct // SHARDS, self.distinct // SHARDS + 1))
            self.kjit("warm", "--manifest", self.manifest, "--arch", ARCHS, "--shard", f"3/{SHARDS}",
                      KJIT_CACHE_REMOTE=store.url)
            self.assertEqual(self.check(store, 0)["present"], self.distinct)


class NotKept(WarmupCase):
    def test_warm__store_does_not_stand_for_a_folder(self):
        with storage_helper.running(self.folder) as store:
            report = self.json("warm", "--manifest", self.manifest, "--arch", ARCHS, exit_code=FAILED,
                               KJIT_CACHE_REMOTE=f"{store.url}|ro|total_ms=20000", KJIT_CACHE_DIR="/dev/null/none")
        self.assertEqual((report["built"], report["not_kept"]), (self.distinct, self.distinct))


class Kubernetes(WarmupCase):
    def setUp(self):
        super().setUp()
        self.job = recipes.read_yaml((WARMUP / "kubernetes-job.yaml").read_text())
        self.container = self.job["spec"]["template"]["spec"]["containers"][0]

    def test_kubernetes__manifest_is_an_indexed_job(self):
        self.assertEqual((self.job["apiVersion"], self.job["kind"]), ("batch/v1", "Job"))
        self.assertRegex(self.job["metadata"]["name"], r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
        spec, pod = self.job["spec"], self.job["spec"]["template"]["spec"]
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertLessEqual(spec["parallelism"], spec["completions"])
        self.assertIn(pod["restartPolicy"], ("OnFailure", "Never"))  # a Job takes no other
        self.assertLessEqual(set(spec), {"completionMode", "completions", "parallelism", "template"})
        self.assertLessEqual(set(pod), {"restartPolicy", "containers", "volumes"})
        self.assertLessEqual(set(self.container), {"name", "image", "command", "env", "volumeMounts"})
        self.assertEqual({mount["name"] for mount in self.container["volumeMounts"]},
                         {volume["name"] for volume in pod["volumes"]})
        folder = {item["name"]: item["value"] for item in self.container["env"]}["KJIT_CACHE_DIR"]
        self.assertIn(folder, [mount["mountPath"] for mount in self.container["volumeMounts"]])
        command = self.container["command"]
        self.assertEqual(command[command.index("--shard") + 1], f"/{spec['completions']}")

    def test_kubernetes__pods_fill_the_volume_together(self):
        # A pod's environment: what the manifest says, its index, and the names of its service account and host.
        volume = self.folder / "volume"
        words = [self.placed(word) for word in self.container["command"]]
        built = 0
        for index in range(self.job["spec"]["completions"]):
            environment = {item["name"]: item["value"] for item in self.container["env"]}
            environment.update(KJIT_CACHE_DIR=volume, JOB_COMPLETION_INDEX=str(index), HOSTNAME=f"kjit-warm-{index}",
                               KUBERNETES_SERVICE_HOST="10.0.0.1", KUBERNETES_SERVICE_PORT="443")
            built += json.loads(self.run_words([*words, "--json"], **environment).stdout)["built"]
        self.assertEqual(built, self.distinct)
        self.holds_all(volume)

    def test_kubernetes__pod_that_is_started_again_builds_the_rest(self):
        words = [self.placed(word) for word in self.container["command"]]
        environment = {"KJIT_CACHE_DIR": self.folder / "volume", "JOB_COMPLETION_INDEX": "0"}
        self.run_words(words, **environment)
        self.assertIn(" 0 built", self.run_words(words, **environment).stdout)


class Schedulers(WarmupCase):
    """Without --shard's number: what each scheduler sets is enough."""

    def built_by(self, *arguments, **environment):
        return self.json("warm", "--manifest", self.manifest, "--arch", ARCHS, *arguments, **environment)["built"]

    def test_slurm_variables__need_no_shard(self):
        built = [self.built_by(SLURM_ARRAY_TASK_ID=str(task), SLURM_ARRAY_TASK_COUNT=str(SHARDS),
                               SLURM_ARRAY_TASK_MIN="10", SLURM_ARRAY_TASK_STEP="5")
                 for task in range(10, 10 + 5 * SHARDS, 5)]
        self.assertEqual(sum(built), self.distinct)
        self.assertLessEqual(max(built) - min(built), 1)

    def test_job_completion_index__needs_the_number_of_parts(self):
        built = [self.built_by("--shard", f"/{SHARDS}", JOB_COMPLETION_INDEX=str(index)) for index in range(SHARDS)]
        self.assertEqual(sum(built), self.distinct)

    def run_array(self):
        """Submit the recipe, and wait; what each of its tasks printed."""
        with slurm.cluster() as environment:
            environment = {**environment, **{name: str(value) for name, value in self.environment.items() if value},
                           "KJIT_CACHE_DIR": str(self.folder / "shared")}
            # Slurm's commands are not kjit's concern: the PATH that finds them stays.
            environment["PATH"] += ":" + slurm.PATH
            done = subprocess.run(["sbatch", "--wait", "--cpus-per-task=1", f"--output={self.folder}/task-%a",
                                   str(WARMUP / "slurm.sbatch")], env=environment, cwd=self.app, capture_output=True,
                                  text=True, timeout=harness.HANGS_S)
            said = [path.read_text() for path in sorted(self.folder.glob("task-*"))]
            self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}{said}")
            return said

    @unittest.skipIf(slurm.why_not() or "KJIT_TEST_SLURM" not in os.environ,
                     slurm.why_not() or "takes ten seconds: set KJIT_TEST_SLURM=1")
    def test_slurm__array_of_eight_fills_a_folder(self):
        try:
            said = self.run_array()
        except slurm.CannotStart as reason:
            self.skipTest(str(reason))
        self.assertEqual(len(said), SHARDS)
        built = [int(re.search(r"(\d+) built", text).group(1)) for text in said]
        self.assertEqual(sum(built), self.distinct)
        for index, text in enumerate(said):
            self.assertIn(f"shard {index + 1}/{SHARDS}, by SLURM_ARRAY_TASK_ID", text)
        self.holds_all(self.folder / "shared")


class Image(WarmupCase):
    def build(self, **arguments):
        """Do the Dockerfile's instructions in order. Returns the environment of a container of the image."""
        values, container = {}, {}
        for instruction, text in recipes.read_dockerfile((WARMUP / "Dockerfile").read_text()):
            if instruction == "ARG":
                name, _, default = text.partition("=")
                values[name] = arguments.get(name, default.strip('"'))
            elif instruction == "ENV":
                name, _, value = text.partition("=")
                container[name] = self.placed(value)
            elif instruction == "RUN":
                self.run_words(["/bin/sh", "-e", "-c", self.placed(text)], KJIT_CACHE_DIR=None, **values, **container)
            else:
                self.assertEqual(instruction, "FROM")
        return container

    def starts(self, container):
        """A container compiles nothing, without NVRTC and without a store."""
        report = self.json("warm", "--manifest", self.manifest, "--arch", ARCHS, KJIT_CACHE_DIR=self.folder / "own",
                           KJIT_NVRTC=NOWHERE, **container)
        self.assertEqual((report["cached"], report["failed"]), (self.distinct, 0))

    def test_image__without_a_store_compiles_while_it_is_built(self):
        self.starts(self.build())

    def test_image__takes_from_a_store_and_writes_nothing_to_it(self):
        with storage_helper.running(self.folder) as store:
            self.kjit("warm", "--manifest", self.manifest, "--arch", ARCHS, "--shard", "1/2",
                      KJIT_CACHE_REMOTE=store.url)
            before = dict(store.objects)
            container = self.build(KERNEL_STORE=store.url)
            self.assertEqual(store.objects, before)
            self.assertGreater(store.asked, 0)
        self.starts(container)


class Workflow(WarmupCase):
    def setUp(self):
        super().setUp()
        self.workflow = recipes.read_yaml((WARMUP / "github-workflow.yaml").read_text())
        self.kjit("bundle", "keygen", self.folder / "team")
        (self.app / "kernels.pub").write_text((self.folder / "team.pub").read_text())

    def filled_in(self, text, store, shard):
        """The expressions of a workflow that the recipe uses."""
        values = {"vars.KERNEL_STORE": store, "secrets.KERNELS_KEY": (self.folder / "team.key").read_text().strip(),
                  "matrix.shard": str(shard)}
        return self.placed(re.sub(r"\$\{\{ *([\w.]+) *\}\}", lambda match: values[match.group(1)], str(text)))

    def run_job(self, name, store, shard=None):
        """The steps of a job in order; a failure leaves out the others but those that always run."""
        job, code = self.workflow["jobs"][name], 0
        outputs = []
        for step in job["steps"]:
            if code and step.get("if") != "always()":
                continue
            environment = {key: self.filled_in(value, store, shard)
                           for key, value in {**job.get("env", {}), **step.get("env", {})}.items()}
            runner = {**self.environment, "KJIT_CACHE_DIR": self.folder / f"runner-{shard}", **environment}
            result = self.run_command("bash", "-e", "-c", self.filled_in(step["run"], store, shard), environment=runner)
            code = code or result.returncode
            outputs.append(result.stdout + result.stderr)
        return code, "\n".join(outputs)

    def test_workflow__jobs_fill_the_store_and_the_check_agrees(self):
        shards = self.workflow["jobs"]["warm"]["strategy"]["matrix"]["shard"]
        self.assertEqual(shards, list(range(1, SHARDS + 1)))
        self.assertEqual(self.workflow["jobs"]["check"]["needs"], "warm")
        with storage_helper.running(self.folder) as store:
            for shard in shards:
                code, said = self.run_job("warm", store.url, shard)
                self.assertEqual(code, 0, said)
                self.assertFalse((self.folder / "kernels.key").exists())
            code, said = self.run_job("check", store.url)
            self.assertEqual(code, 0, said)
            self.assertIn(f"{self.distinct} in the store, 0 missing", said)

    def test_workflow__check_fails_when_a_job_did_not_run(self):
        with storage_helper.running(self.folder) as store:
            self.run_job("warm", store.url, 1)
            code, said = self.run_job("check", store.url)
        self.assertNotEqual(code, 0)
        self.assertIn("missing", said)

    def test_workflow__check_believes_no_stranger(self):
        with storage_helper.running(self.folder) as store:
            self.kjit("warm", "--manifest", self.manifest, "--arch", ARCHS, KJIT_CACHE_REMOTE=store.url)
            code, said = self.run_job("check", store.url)
        self.assertNotEqual(code, 0)
        self.assertIn(" 0 in the store", said)


class Clusters(WarmupCase):
    """Ray and Dask, each as a cluster of this machine."""

    def fills(self, script, python, *arguments):
        with storage_helper.running(self.folder) as store:
            self.environment.update(KJIT_CACHE_REMOTE=f"{store.url}|total_ms=20000",
                                    KJIT_CACHE_DIR=self.folder / "worker")
            result = self.run_words([python, WARMUP / script, self.manifest, ARCHS, "4", *arguments])
            report = json.loads(result.stdout.splitlines()[-1])
            self.assertEqual((report["built"], report["failed"]), (self.distinct, 0))
            self.assertEqual(len(store.objects), self.distinct)

    @unittest.skipUnless("KJIT_TEST_RAY_PYTHON" in os.environ, "KJIT_TEST_RAY_PYTHON names no Python with Ray")
    def test_ray__tasks_fill_the_store(self):
        self.fills("ray_warm.py", os.environ["KJIT_TEST_RAY_PYTHON"])

    @unittest.skipUnless("KJIT_TEST_DASK_PYTHON" in os.environ, "KJIT_TEST_DASK_PYTHON names no Python with Dask")
    def test_dask__tasks_fill_the_store(self):
        self.fills("dask_warm.py", os.environ["KJIT_TEST_DASK_PYTHON"])


class Reading(unittest.TestCase):
    def test_recipes__are_read_as_a_yaml_library_reads_them(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("PyYAML is not installed")
        for path in WARMUP.glob("*.yaml"):
            theirs = yaml.safe_load(path.read_text())
            if True in theirs:
                theirs["on"] = theirs.pop(True)  # the workflow's key "on", which YAML 1.1 takes for a truth value
            self.assertEqual(recipes.read_yaml(path.read_text()), theirs, path.name)


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
