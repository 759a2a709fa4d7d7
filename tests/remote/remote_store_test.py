"""Remote stores as processes meet them: real servers where they are installed, faults, stampedes, writers that are
killed. The programs are remote_probe's; the compiler is the fake one, so what is counted is how often it is asked."""

import contextlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))

import harness  # noqa: E402
import servers  # noqa: E402
import storage_helper  # noqa: E402

PROBE = None
# Nothing here takes longer than this beyond the time limits that the cases set themselves.
SLACK_S = 20
# Few, for the sake of CI's time; cache/README.md has the results of 200 processes and of 1,000 rounds.
STAMPEDE = int(os.environ.get("KJIT_TEST_STAMPEDE", "40"))
KILLS = int(os.environ.get("KJIT_TEST_ROUNDS", "20"))  # over each store


def moto_is_there():
    python = os.environ.get("KJIT_TEST_MOTO_PYTHON")
    if python:
        return subprocess.run([python, "-c", "import moto.server"], capture_output=True).returncode == 0
    return importlib.util.find_spec("moto") is not None


def curl_is_there():
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    return "libcurl.so.4" in listed or "libcurl-gnutls.so.4" in listed


def nginx_is_there():
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin") is not None


def redis_is_there():
    return (shutil.which("redis-server") or shutil.which("valkey-server")) is not None


class RemoteCase(unittest.TestCase):
    def probe(self, url, what, *numbers, code=0, **environment):
        aws = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
        result = subprocess.run([PROBE, url, what, *map(str, numbers)], capture_output=True, text=True,
                                timeout=harness.HANGS_S, env={**os.environ, **aws, **environment})
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def shares(self, url, kernels=20):
        """One machine builds, the next one compiles nothing."""
        first = self.probe(url, "get", kernels, PROBE_END_MS="60000")
        self.assertEqual((first["compiles"], first["remote_puts"]), (kernels, kernels))
        second = self.probe(url, "get", kernels)
        self.assertEqual((second["compiles"], second["remote_hits"], second["remote_errors"]), (0, kernels, 0))
        if "KJIT_TEST_FIGURES" in os.environ:
            print(f"# {url.split('|')[0]}: {kernels} hits in {1e3 * second['seconds']:.1f} ms", flush=True)
        return second

    def figure(self, store, counts):
        if "KJIT_TEST_FIGURES" in os.environ:
            print(f"# {store}: {counts}", flush=True)

    def stampedes_once(self, store, url):
        """All ask for one cold key at the same time, and one of them builds it."""
        counts = self.probe(url + "|connect_ms=20000|total_ms=20000", "stampede", STAMPEDE, 200)
        self.figure(f"{store}, {STAMPEDE} processes", counts)
        self.assertEqual((counts["wrong"], counts["compiles"]), (0, 1))

    def survives_kills(self, store, url):
        counts = self.probe(url, "kill", KILLS)
        self.figure(store, counts)
        self.assertEqual(counts["wrong"], 0)
        return counts

    def survives(self, url, kernels=6, limit_s=6.0, **counters):
        """Whatever the store does: all kernels right, all built, within the bound, and counted as given: a number, or
        the least and the most."""
        began = time.monotonic()
        counts = self.probe(url, "get", kernels)
        took = time.monotonic() - began
        self.assertTrue(counts["right"])
        self.assertEqual((counts["compiles"], counts["remote_hits"], counts["remote_waits"]), (kernels, 0, 0))
        self.assertGreater(counts["remote_errors"] + counts["remote_refused"], 0)
        for name, expected in counters.items():
            least, most = expected if isinstance(expected, tuple) else (expected, expected)
            self.assertTrue(least <= counts[f"remote_{name}"] <= most, f"{name}: {counts}")
        self.assertLess(counts["seconds"] + counts["end_seconds"], limit_s)
        self.assertLess(took, limit_s + SLACK_S)
        return counts


# What a store that fails whatever it is asked counts for six kernels: three failures open the circuit, a put of the
# background may be under way then, and nothing is written.
DEAD = {"errors": (3, 5), "refused": 0, "misses": 0, "puts": 0, "dropped": 6, "leases": 0}
# A store that answers, but never with an entry: each is refused, and replaced where puts succeed.
LYING = {"errors": 0, "refused": 6, "misses": 0, "puts": 6, "dropped": 0, "leases": 0}


@unittest.skipUnless(curl_is_there(), "libcurl is not installed")
class HttpTest(RemoteCase):
    def test_http__a_second_machine_compiles_nothing(self):
        with servers.faulty() as server:
            self.shares(server.url)

    def test_http__hundred_kernels_come_in_well_under_a_second(self):
        with servers.faulty() as server:
            self.shares(server.url, 100)

    def fault(self, fault, expected, options="", **keywords):
        with servers.faulty(fault) as server, servers.faulty() as other:
            server.elsewhere = other.url
            self.survives(server.url + options, **expected, **keywords)
            self.assertEqual(other.asked, 0)

    def test_http__error_500_is_a_failure(self):
        self.fault("500", DEAD)

    def test_http__redirect_is_not_followed(self):
        self.fault("redirect", DEAD)

    def test_http__answer_that_is_cut_off_is_a_failure(self):
        self.fault("cut", DEAD)

    def test_http__what_is_no_http_is_a_failure(self):
        self.fault("garbage", DEAD)

    def test_http__endless_headers_are_a_failure(self):
        self.fault("headers", DEAD)

    def test_http__page_of_a_portal_is_refused(self):
        self.fault("lie", LYING)

    def test_http__gigabyte_is_refused_after_what_its_header_says(self):
        # Each get is refused by its size; each put and each lease fails, because its answer is too long. Three of those
        # in a row open the circuit.
        self.fault("gigabyte", {**DEAD, "errors": (3, 18), "refused": (1, 6)})

    def test_http__stall_costs_three_time_limits_at_most(self):
        self.fault("stall", DEAD, "|total_ms=200", limit_s=6.0)

    def test_http__drip_costs_three_time_limits_at_most(self):
        self.fault("drip", DEAD, "|total_ms=200", limit_s=6.0)

    def test_http__circuit_opens_and_the_store_is_left_alone(self):
        with servers.faulty("500") as server:
            self.survives(server.url, kernels=50)
            self.assertLess(server.asked, 8)

    def test_http__nobody_listens(self):
        with servers.deaf_port() as port:
            self.survives(f"http://127.0.0.1:{port}", **DEAD)

    def test_http__read_only_and_write_only_clients(self):
        with servers.faulty() as server:
            self.assertEqual(self.probe(server.url + "|ro", "get", 3)["remote_puts"], 0)
            self.assertEqual(server.objects, {})
            self.assertEqual(self.probe(server.url + "|wo", "get", 3)["remote_puts"], 3)
            self.assertEqual(self.probe(server.url + "|wo", "get", 3)["remote_hits"], 0)

    def test_http__stampede_builds_once_where_the_server_heeds_conditions(self):
        with servers.faulty() as server:
            self.stampedes_once("http", server.url)

    def test_http__lease_of_a_dead_builder_runs_out(self):
        with servers.faulty() as server:
            self.probe(server.url, "get", 1)
            self.assertEqual(len(server.objects), 1)  # the entry; the lease was given back
            server.objects.clear()
            real = server.objects

            class Leased(dict):
                """Every lease has been taken by one who died long ago."""
                def __contains__(self, path):
                    if path not in real and not self.seen:
                        self.seen = True
                        self[path] = b"kjit-lease 1 1000 nobody\n"
                    return dict.__contains__(self, path)
            server.objects = Leased()
            server.objects.seen = False
            counts = self.probe(server.url, "get", 1)
            self.assertEqual(counts["remote_leases"], 1)
            self.assertLess(counts["seconds"], 5)

    def test_http__random_answers_are_survived(self):
        generator = random.Random(17)
        with servers.faulty() as server:
            self.probe(server.url, "get", 8)
            for path, body in list(server.objects.items()):
                cut = bytearray(body[:generator.randrange(len(body))] if generator.random() < 0.5 else body)
                for _ in range(3):
                    if cut:
                        cut[generator.randrange(len(cut))] ^= 1 << generator.randrange(8)
                server.objects[path] = bytes(cut)
            counts = self.probe(server.url, "get", 8)
            self.assertTrue(counts["right"])
            self.assertGreater(counts["remote_refused"], 0)

    @unittest.skipUnless(nginx_is_there(), "nginx is not installed")
    def test_nginx__a_second_machine_compiles_nothing(self):
        with servers.nginx() as url:
            self.shares(url, 100)

    @unittest.skipUnless(nginx_is_there(), "nginx is not installed")
    def test_nginx__stampede_without_leases_is_right(self):
        with servers.nginx() as url:
            counts = self.probe(url + "|connect_ms=20000|total_ms=20000", "stampede", STAMPEDE, 20)
            self.figure("nginx", counts)
            self.assertEqual(counts["wrong"], 0)
            self.assertGreaterEqual(counts["compiles"], 1)

    @unittest.skipUnless(nginx_is_there(), "nginx is not installed")
    def test_nginx__killed_writers_leave_nothing_wrong(self):
        with servers.nginx() as url:
            self.survives_kills("nginx", url)

    @unittest.skipUnless(moto_is_there(), "moto's server is not installed")
    def test_s3__a_second_machine_compiles_nothing(self):
        with servers.s3() as url:
            self.shares(url + "|total_ms=20000", 5)

    @unittest.skipUnless(moto_is_there(), "moto's server is not installed")
    def test_s3__stampede_is_right(self):
        # moto looks whether an object is there and puts it in two steps, so two may get the lease.
        with servers.s3() as url:
            counts = self.probe(url + "|connect_ms=20000|total_ms=20000", "stampede", STAMPEDE, 200)
            self.figure(f"s3, {STAMPEDE} processes", counts)
            self.assertEqual(counts["wrong"], 0)
            self.assertLess(counts["compiles"], STAMPEDE / 2)


class HelperTest(RemoteCase):
    """ccache's storage helpers: one in this process, and programs that kjit starts."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="kjit-helper-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def fault(self, fault, expected, options="|total_ms=1000", **keywords):
        with storage_helper.running(self.folder, fault) as helper:
            return self.survives(helper.url + options, **expected, **keywords)

    def test_helper__a_second_machine_compiles_nothing(self):
        with storage_helper.running(self.folder) as helper:
            self.shares(helper.url + "|total_ms=20000", 100)

    def test_helper__stampede_builds_once(self):
        with storage_helper.running(self.folder) as helper:
            self.stampedes_once("helper", helper.url)

    def test_helper__killed_writers_leave_nothing_wrong(self):
        with storage_helper.running(self.folder) as helper:
            self.assertEqual(self.survives_kills("helper", helper.url)["refused"], 0)

    def test_helper__that_says_nothing_is_a_failure(self):
        self.fault("silent", DEAD, "|connect_ms=200", limit_s=6.0)

    def test_helper__greeting_that_is_cut_is_a_failure(self):
        self.fault("short greeting", DEAD, "|connect_ms=200", limit_s=6.0)

    def test_helper__of_another_version_is_not_asked(self):
        self.fault("version", DEAD)

    def test_helper__without_objects_is_not_asked(self):
        self.fault("incapable", DEAD)

    def test_helper__stall_costs_three_time_limits_at_most(self):
        self.fault("stall", DEAD, "|total_ms=200", limit_s=6.0)

    def test_helper__drip_costs_a_time_limit_a_get(self):
        # Puts succeed and close the circuit again, so each of the six gets may last as long as its limit.
        self.fault("drip", {"errors": (3, 12), "refused": 0, "misses": 0, "leases": 0}, "|total_ms=200", limit_s=6.0)

    def test_helper__error_message_is_a_failure(self):
        self.fault("error", DEAD)

    def test_helper__answer_that_is_cut_off_is_a_failure(self):
        self.fault("cut", {**DEAD, "puts": (0, 6), "dropped": (0, 6)})

    def test_helper__unknown_answer_is_a_failure(self):
        self.fault("garbage", DEAD)

    def test_helper__gigabyte_is_not_read(self):
        self.fault("gigabyte", {"errors": (3, 12), "refused": 0, "misses": 0, "leases": 0})

    def test_helper__value_longer_than_its_entry_is_refused(self):
        self.fault("long value", {"refused": 6, "misses": 0, "leases": 0})

    def test_helper__what_is_no_entry_is_refused_and_replaced(self):
        # A machine that has the lease looks again before it builds, and is lied to again.
        self.fault("lie", {**LYING, "refused": 12, "leases": 6})

    def test_helper__nobody_listens_at_a_socket_that_others_serve(self):
        self.survives(f"crsh:{self.folder}/nobody", **DEAD)

    def started(self, **attributes):
        """The URL of a helper that kjit starts, and what its environment needs."""
        program = self.folder / "ccache-storage-test"
        if not program.exists():
            program.symlink_to(Path(storage_helper.__file__).resolve())
        attributes = {"log": self.folder / "log", "seconds": 300, **attributes}
        url = "ccache+test://somewhere/else|connect_ms=20000|total_ms=20000" + "".join(
            f"|@{name}={value}" for name, value in attributes.items())
        return url, {"PATH": f"{self.folder}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(self.folder)}

    def helpers(self):
        return [line.split() for line in (self.folder / "log").read_text().splitlines()]

    @staticmethod
    def is_running(process):
        """Not when it has ended and nobody has waited for it, since it listens no longer."""
        try:
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def end_helpers(self):
        """Kill those that the tests have started, and wait until they listen no longer."""
        for process in [int(line[0]) for line in self.helpers()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            deadline = time.monotonic() + SLACK_S
            while self.is_running(process) and time.monotonic() < deadline:
                time.sleep(0.01)

    def test_helper__is_started_once_and_serves_all_processes(self):
        url, environment = self.started()
        self.addCleanup(self.end_helpers)
        self.assertEqual(self.probe(url, "get", 3, PROBE_END_MS="60000", **environment)["remote_puts"], 3)
        self.assertEqual(self.probe(url, "get", 3, **environment)["remote_hits"], 3)
        self.assertEqual([line[1:] for line in self.helpers()], [["test://somewhere/else", "600"]])

    def test_helper__many_processes_start_one(self):
        url, environment = self.started()
        self.addCleanup(self.end_helpers)
        counts = self.probe(url, "stampede", STAMPEDE, 100, **environment)
        self.assertEqual((counts["wrong"], counts["compiles"]), (0, 1))
        self.assertEqual(len(self.helpers()), 1)

    def test_helper__that_was_killed_is_started_again(self):
        url, environment = self.started()
        self.addCleanup(self.end_helpers)
        self.probe(url, "get", 1, PROBE_END_MS="60000", **environment)
        self.end_helpers()
        self.assertEqual(self.probe(url, "get", 1, PROBE_END_MS="60000", **environment)["remote_puts"], 1)
        self.assertEqual(len(self.helpers()), 2)

    def test_helper__other_settings_are_another_helper(self):
        self.addCleanup(self.end_helpers)
        for layout in ("flat", "bazel"):
            url, environment = self.started(layout=layout)
            self.probe(url, "get", 1, PROBE_END_MS="60000", **environment)
        self.assertEqual(len(self.helpers()), 2)

    def test_helper__that_is_not_installed_is_a_failure(self):
        url, environment = self.started()
        self.survives(url.replace("+test:", "+missing:"), **DEAD)

    def test_helper__folder_that_others_may_enter_is_not_used(self):
        url, environment = self.started()
        (self.folder / "kjit").mkdir(mode=0o755)
        counts = self.probe(url, "get", 1, **environment)
        self.assertEqual((counts["remote_errors"], counts["remote_puts"]), (1, 0))
        self.assertFalse((self.folder / "log").exists())


class RedisTest(RemoteCase):
    @unittest.skipUnless(redis_is_there(), "redis-server is not installed")
    def test_redis__a_second_machine_compiles_nothing(self):
        with servers.redis() as url:
            self.shares(url, 100)

    @unittest.skipUnless(redis_is_there(), "redis-server is not installed")
    def test_redis__stampede_builds_once(self):
        with servers.redis() as url:
            self.stampedes_once("redis", url)

    @unittest.skipUnless(redis_is_there(), "redis-server is not installed")
    def test_redis__killed_writers_leave_nothing_wrong(self):
        with servers.redis() as url:
            self.assertEqual(self.survives_kills("redis", url)["refused"], 0)

    @unittest.skipUnless(redis_is_there(), "redis-server is not installed")
    def test_redis__wrong_password_is_a_miss(self):
        with servers.redis() as url:
            self.survives(url.replace(":pass@", ":other@"))

    def test_redis__faults_cost_a_miss_within_the_bound(self):
        generator = random.Random(3)
        answers = [b"$1073741824\r\n" + bytes(1 << 20), b"$-2\r\n", b"$5\r\nhello\r\n", b"*1\r\n$1\r\na\r\n", b"\r\n",
                   b"$99999999999999999999\r\n", b"-ERR no\r\n", b":1\r\n", b"+" + b"x" * 100000]
        answers += [generator.randbytes(generator.randrange(1, 60)) for _ in range(10)]
        for answer in answers:
            with self.subTest(answer[:40]), servers.redis_liar(answer) as url:
                self.survives(url + "|total_ms=200", limit_s=6.0, puts=0, dropped=6, misses=0, leases=0)

    def test_redis__stall_costs_three_time_limits_at_most(self):
        with servers.redis_liar("stall") as url:
            self.survives(url + "|total_ms=200", limit_s=6.0, **DEAD)


if __name__ == "__main__":
    # usage: remote_store_test.py REMOTE_PROBE [CLASS...]; all of them by default
    PROBE = sys.argv[1]
    classes = {"HttpTest", "HelperTest", "RedisTest"}
    for left_out in classes - set(sys.argv[2:] or classes):
        delattr(sys.modules[__name__], left_out)
    harness.main(sys.modules[__name__])
