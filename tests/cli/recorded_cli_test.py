"""Requests of a user's own sources: recorded by one kjit, built by another that has none of the files. Run with the
path of kjit."""

import hashlib
import shutil
import sys

import harness
from harness import FAILED, USAGE

SOURCE = """#include "parts/factor.h"
#include <cuda_fp16.h>
#if __has_include("parts/absent.h")
#include "parts/absent.h"
#endif
extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= FACTOR * BIAS; }
"""


class RecordedCase(harness.KjitCase):
    program = sys.argv.pop(1)

    def setUp(self):
        super().setUp()
        self.work = self.folder / "work"
        (self.work / "parts").mkdir(parents=True)
        (self.work / "parts/factor.h").write_text("#define FACTOR 3.0f\n")
        (self.work / "scale.cu").write_text(SOURCE)
        self.manifest = self.folder / "app.manifest"

    def record(self, arch="sm_90"):
        """Record the kernel; its key."""
        return self.json("compile", self.work / "scale.cu", "--entry", "scale", "--arch", arch, "-D", "BIAS=2",
                         KJIT_RECORD=self.manifest)["key"]

    def move_away(self):
        """As on another machine: the manifest and its folder are elsewhere, the sources and the cache are gone."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        for path in (self.manifest, self.sources()):
            shutil.move(path, elsewhere)
        shutil.rmtree(self.work)
        shutil.rmtree(self.cache)
        self.manifest = elsewhere / "app.manifest"

    def sources(self):
        return self.manifest.with_name("app.manifest.sources")

    def requests(self):
        return sorted(self.sources().glob("*.request"))

    def texts(self):
        return [path for path in self.sources().iterdir() if path.suffix == ""]

    def warm(self, *arguments):
        return self.json("warm", "--manifest", self.manifest, *arguments)


class Recorded(RecordedCase):
    def test_recorded__is_warmed_where_no_source_is(self):
        key = self.record()
        self.move_away()
        self.assertEqual(self.warm()["built"], 1)
        self.assertEqual([kernel["key"] for kernel in self.json("cache", "list")["entries"]], [key])
        self.assertEqual(self.warm()["cached"], 1)

    def test_recorded__warm_removes_what_a_killed_recorder_left(self):
        self.record()
        left, other = self.sources() / ".0123456789abcdef", self.sources() / ".keep"
        left.write_text("half a file")
        other.write_text("not a recorder's")
        self.warm()
        self.assertEqual((left.exists(), other.exists()), (False, True))

    def test_recorded__program_finds_what_was_warmed(self):
        key = self.record()
        shutil.rmtree(self.cache)
        self.assertEqual(self.warm()["built"], 1)
        found = self.json("compile", self.work / "scale.cu", "--entry", "scale", "--arch", "sm_90", "-D", "BIAS=2")
        self.assertEqual((found["key"], found["source"]), (key, "user"))

    def test_recorded__hit_is_recorded_with_its_sources(self):
        key = self.record()
        shutil.rmtree(self.sources())
        self.manifest.unlink()
        self.assertEqual(self.record(), key)
        self.move_away()
        self.assertEqual(self.warm()["built"], 1)

    def test_recorded__one_line_for_each_kernel(self):
        for arch in ("sm_80", "sm_90", "sm_80"):
            self.record(arch)
        self.assertEqual(len(self.manifest.read_text().splitlines()), 2)
        self.assertEqual(len(self.requests()), 2)
        self.move_away()
        self.assertEqual(self.warm("--jobs", "2")["built"], 2)
        self.assertEqual(self.warm("--arch", "sm_80")["left_out"], 1)
        shards = [self.warm("--shard", f"{index}/2")["in_shard"] for index in (1, 2)]
        self.assertEqual(shards, [1, 1])

    def test_recorded__bundle_and_compile_take_it(self):
        key = self.record()
        self.move_away()
        bundle = self.folder / "app.kjb"
        self.kjit("bundle", "create", bundle, "--manifest", self.manifest)
        self.assertEqual([kernel["family"] for kernel in self.json("bundle", "inspect", bundle)["kernels"]], ["custom"])
        self.assertEqual(self.json("compile", self.requests()[0], "--arch", "sm_90")["key"], key)

    def test_recorded__family_that_lies_elsewhere_takes_its_sources_along(self):
        kernels = self.folder / "kernels"
        kernels.mkdir()
        (self.folder / "records").mkdir()
        self.manifest = self.folder / "records/app.manifest"
        (kernels / "toy.cu").write_text('extern "C" __global__ void toy(int *x) { *x = KJIT_count; }\n')
        (kernels / "toy.yaml").write_text("family: toy\nsource: toy.cu\nentry: toy\nfields:\n"
                                          "  count: {kind: int, range: [1, 8], default: 4}\n")
        key = self.json("compile", "--family", kernels / "toy.yaml", "count=3", "--arch", "sm_90",
                        KJIT_RECORD=self.manifest)["key"]
        self.assertIn(" sm_90 toy count=3\n", self.manifest.read_text())
        shutil.rmtree(kernels)
        self.move_away()
        self.assertEqual(self.warm()["built"], 1)
        self.assertEqual([kernel["key"] for kernel in self.json("cache", "list")["entries"]], [key])


class Refused(RecordedCase):
    def refused(self, *arguments, naming, exit_code=USAGE):
        said = self.kjit("warm", "--manifest", self.manifest, *arguments, exit_code=exit_code).stderr
        self.assertIn(naming, said)

    def test_recorded__damaged_text_is_named(self):
        self.record()
        self.move_away()
        for path in self.texts():
            path.write_text("int damaged;\n")
        self.refused(naming="is damaged: its content has another digest than its name says", exit_code=FAILED)

    def test_recorded__missing_text_is_named(self):
        self.record()
        self.move_away()
        for path in self.texts():
            path.unlink()
        self.refused(naming="is not there: a manifest is copied with the folder of its sources", exit_code=FAILED)

    def test_recorded__line_cannot_leave_the_folder(self):
        self.record()
        name = self.requests()[0].name
        inner = self.folder / "inner"
        inner.mkdir()
        folder = "app.manifest.sources"
        for path in (f"../{folder}/{name}", f"{self.sources()}/{name}", f"a/../../{folder}/{name}"):
            self.manifest = inner / "asked"
            self.manifest.write_text(f"{path} sm_90 custom scale.cu\n")
            self.refused(naming="lies in the manifest's folder or below it")
            self.manifest = self.folder / "app.manifest"

    def test_recorded__text_cannot_include_a_file_of_the_machine(self):
        secret = self.write("secret.h", "#error the secret\n")
        self.record()
        self.move_away()
        request = self.requests()[0].read_bytes()
        words = (b"__global__", b"FACTOR", b"threadIdx")
        texts = {path: path.read_bytes() for path in self.texts()}
        main = next(path for path, text in texts.items() if len(text) < 1000 and all(word in text for word in words))
        evil = f'#include "{secret}"\n'.encode() + texts[main]
        digest = hashlib.blake2b(evil, digest_size=32).hexdigest()
        (self.sources() / digest).write_bytes(evil)
        forged = request.replace(main.name.encode(), digest.encode())
        name = hashlib.blake2b(forged, digest_size=32).hexdigest()
        (self.sources() / f"{name}.request").write_bytes(forged)
        self.manifest.write_text(f"app.manifest.sources/{name}.request sm_90 custom scale.cu\n")
        self.refused(naming="which was not recorded with it", exit_code=FAILED)


if __name__ == "__main__":
    harness.main(sys.modules[__name__], shares_compiles_of=RecordedCase.program)
