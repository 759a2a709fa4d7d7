"""Remote stores as processes meet them: real servers where they are installed, faults, stampedes, writers that are
killed. The programs are remote_probe's; the compiler is the fake one, so what is counted is how often it is asked."""

import contextlib
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))

import harness  # noqa: E402
import servers  # noqa: E402

PROBE = None
# Nothing here takes longer than this beyond the time limits that the cases set themselves.
SLACK_S = 20
STAMPEDE = int(os.environ.get("KJIT_TEST_STAMPEDE", "200"))
KILLS = int(os.environ.get("KJIT_TEST_KILLS", "100"))  # over each of two stores


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

    def survives(self, url, kernels=6, limit_s=6.0):
        """Whatever the store does: all kernels right, all built, within the bound."""
        began = time.monotonic()
        counts = self.probe(url, "get", kernels)
        took = time.monotonic() - began
        self.assertTrue(counts["right"])
        self.assertEqual((counts["compiles"], counts["remote_hits"]), (kernels, 0))
        self.assertGreater(counts["remote_errors"] + counts["remote_refused"], 0)
        self.assertLess(counts["seconds"] + counts["end_seconds"], limit_s)
        self.assertLess(took, limit_s + SLACK_S)
        return counts


@unittest.skipUnless(curl_is_there(), "libcurl is not installed")
class HttpTest(RemoteCase):
    def test_http__a_second_machine_compiles_nothing(self):
        with servers.faulty() as server:
            self.shares(server.url)

    def test_http__hundred_kernels_come_in_well_under_a_second(self):
        with servers.faulty() as server:
            self.shares(server.url, 100)

    def test_http__faults_cost_a_miss_within_the_bound(self):
        for fault in ("500", "redirect", "cut", "gigabyte", "garbage", "lie", "headers"):
            with self.subTest(fault), servers.faulty(fault) as server, servers.faulty() as other:
                server.elsewhere = other.url
                self.survives(server.url)
                self.assertEqual(other.asked, 0)

    def test_http__stalls_cost_three_time_limits_at_most(self):
        for fault in ("stall", "drip"):
            with self.subTest(fault), servers.faulty(fault) as server:
                self.survives(server.url + "|total_ms=200", limit_s=3.0)

    def test_http__circuit_opens_and_the_store_is_left_alone(self):
        with servers.faulty("500") as server:
            self.survives(server.url, kernels=50)
            self.assertLess(server.asked, 8)

    def test_http__nobody_listens(self):
        self.survives(f"http://127.0.0.1:{servers.free_port()}")

    def test_http__read_only_and_write_only_clients(self):
        with servers.faulty() as server:
            self.assertEqual(self.probe(server.url + "|ro", "get", 3)["remote_puts"], 0)
            self.assertEqual(server.objects, {})
            self.assertEqual(self.probe(server.url + "|wo", "get", 3)["remote_puts"], 3)
            self.assertEqual(self.probe(server.url + "|wo", "get", 3)["remote_hits"], 0)

    def test_http__stampede_builds_once_where_the_server_heeds_conditions(self):
        with servers.faulty() as server:
            counts = self.probe(server.url + "|connect_ms=20000|total_ms=20000", "stampede", STAMPEDE, 200)
        self.assertEqual((counts["wrong"], counts["compiles"]), (0, 1))

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
            counts = self.probe(url + "|connect_ms=20000|total_ms=20000", "stampede", 40, 20)
            self.assertEqual(counts["wrong"], 0)
            self.assertGreaterEqual(counts["compiles"], 1)

    @unittest.skipUnless(nginx_is_there(), "nginx is not installed")
    def test_nginx__killed_writers_leave_nothing_wrong(self):
        with servers.nginx() as url:
            counts = self.probe(url, "kill", KILLS)
            self.assertEqual(counts["wrong"], 0)

    @unittest.skipUnless(moto_is_there(), "moto's server is not installed")
    def test_s3__a_second_machine_compiles_nothing(self):
        with servers.s3() as url:
            self.shares(url + "|total_ms=20000", 5)


class RedisTest(RemoteCase):
    @unittest.skipUnless(redis_is_there(), "redis-server is not installed")
    def test_redis__a_second_machine_compiles_nothing(self):
        with servers.redis() as url:
            self.shares(url, 100)

    @unittest.skipUnless(redis_is_there(), "redis-server is not installed")
    def test_redis__stampede_builds_once(self):
        with servers.redis() as url:
            counts = self.probe(url + "|connect_ms=20000|total_ms=20000", "stampede", STAMPEDE, 200)
            self.assertEqual((counts["wrong"], counts["compiles"]), (0, 1))

    @unittest.skipUnless(redis_is_there(), "redis-server is not installed")
    def test_redis__killed_writers_leave_nothing_wrong(self):
        with servers.redis() as url:
            counts = self.probe(url, "kill", KILLS)
            self.assertEqual((counts["wrong"], counts["refused"]), (0, 0))

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
                self.survives(url + "|total_ms=200", limit_s=4.0)

    def test_redis__stall_costs_three_time_limits_at_most(self):
        with servers.redis_liar("stall") as url:
            self.survives(url + "|total_ms=200", limit_s=3.0)


if __name__ == "__main__":
    PROBE = sys.argv[1]
    harness.main(sys.modules[__name__])
