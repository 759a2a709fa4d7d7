"""The kjit command as people and scripts use it: exit codes, JSON, messages. usage: cli_test.py KJIT"""

import fcntl
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import harness
from harness import DONE, FAILED, NO_GPU, NO_NVRTC, NOWHERE, REALLY_COMPILES, USAGE

KJIT = Path(sys.argv[1]).resolve()

PIPE_BYTES = 4096  # the least that Linux gives a pipe, and less than a kernel
SHORT_FORM = "(FP16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"
KERNEL = '''
struct scale_args { float *data; unsigned count; float factor; };
extern "C" __global__ void __launch_bounds__(THREADS) scale(const __grid_constant__ scale_args args) {
  const unsigned i = blockIdx.x * THREADS + threadIdx.x;
  if (i < args.count) args.data[i] *= args.factor;
}
'''


def block_writing(cache):
    """Put a file where a cache folder has the one for files that are being written, which stops even root."""
    (cache / "tmp").rmdir()
    (cache / "tmp").write_text("")


class CommandCase(harness.KjitCase):
    program = KJIT

    def compile_scale(self, *arguments, **keywords):
        source = self.write("scale.cu", KERNEL)
        return self.json("compile", source, "--entry", "scale", "--arch", "sm_80", "-D", "THREADS=256", *arguments,
                         **keywords)


class Completion(CommandCase):
    def words(self, *arguments):
        return self.kjit("completion", "words", *arguments).stdout.split()

    def test_completion__words_are_the_commands_of_the_help(self):
        overview = self.kjit("help").stdout
        for word in self.words():
            self.assertIn(f"\n  {word} ", overview)

    def test_completion__words_of_a_command_are_its_actions_and_options(self):
        words = self.words("cache")
        self.assertEqual(words[:3], ["path", "list", "show"])
        self.assertIn("--max-bytes", words)
        self.assertIn("--jobs", self.words("warm"))

    def test_completion__every_option_of_the_usage_is_offered(self):
        for command in self.words():
            usage = self.kjit(command, "--help").stdout
            offered = set(self.words(command))
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", usage.split("\n\n")[0]):
                self.assertIn(option, offered, command)

    def test_completion__bash_script_completes_an_option(self):
        script = self.write("kjit.bash", self.kjit("completion", "bash").stdout)
        ask = (f'PATH={KJIT.parent}:$PATH; source {script}; COMP_WORDS=(kjit cache --max); COMP_CWORD=2; _kjit; '
               'echo "${COMPREPLY[@]}"')
        self.assertEqual(self.run_command("bash", "-c", ask).stdout, "--max-bytes\n")

    def test_completion__unknown_shell_is_named(self):
        self.refused("completion", "csh", naming="'csh'")
        self.refused("completion", naming="a shell is missing")
        self.refused("completion", "words", "nothing", naming="'nothing'")


class Usage(CommandCase):
    def test_kjit__without_arguments_is_a_usage_error(self):
        self.assertIn("usage:", self.kjit(exit_code=USAGE).stderr)

    def test_kjit__help_lists_every_command(self):
        text = self.kjit("help").stdout
        for command in ("doctor", "compile", "warm", "cache", "run", "bench", "completion"):
            self.assertIn(f"\n  {command} ", text)
            self.assertIn("usage: kjit " + command, self.kjit(command, "--help").stdout)

    def test_kjit__version_is_printed(self):
        self.assertRegex(self.kjit("--version").stdout, r"^kjit \d+\.\d+\.\d+\n$")

    def test_kjit__unknown_command_is_named(self):
        self.refused("compil", naming="'compil'")

    def test_kjit__message_is_one_line_whatever_was_typed(self):
        self.refused("com\npile\x1b[31m", naming="'com?pile?[31m'")
        self.refused("compile", "--attention", "dtype=fp16\n", "--arch", "sm_80", naming="fp16?")

    def test_options__unknown_one_is_named(self):
        for command in ("doctor", "compile", "warm"):
            self.refused(command, "--verbos", naming="'--verbos'")
        self.refused("cache", "list", "--verbos", naming="'--verbos'")

    def test_options__missing_value_is_named(self):
        self.refused("compile", "--flash", naming="'--flash'")

    def test_options__value_of_a_flag_is_refused(self):
        self.refused("doctor", "--json=1", naming="--json")

    def test_options__number_out_of_range_is_named(self):
        for value in ("0", "-1", "x", "1x", "99999999999999999999", ""):
            self.refused("warm", "--set", "progression", "--arch", "sm_80", "--jobs", value, naming="--jobs")

    def test_environment__value_that_is_none_is_shown_with_the_rule(self):
        for name, value, rule in (
            ("KJIT_CACHE_MODE", "r0", "must be rw, ro or off"),
            ("KJIT_CACHE_MAX_BYTES", "10Q", "must be a number of bytes from 1 on"),
            ("KJIT_CACHE_SOURCES", "all", "must be a number of bytes from 1 on"),
            ("KJIT_TIERED", "-3", "must be on, off or a number from 1 on"),
            ("KJIT_COMPILE_SERVER", "2", "must be on, off"),
        ):
            self.refused("cache", "path", naming=f'{name}: "{value}"; {rule}', **{name: value})

    def test_problem__unknown_key_is_named_beside_those_that_are_known(self):
        known = "known are dtype, head_dim, head_dim_v, batch, heads_q, heads_kv, seq_q, seq_kv, causal"
        self.refused("describe", "dtype=bf16,heads=3", naming=f"column 12: unknown key 'heads'; {known}")

    def test_output__path_that_is_empty_is_refused(self):
        self.refused("compile", "--attention", "dtype=bf16,head_dim=64", "--arch", "sm_80", "-o", "", naming="is empty")

    def test_options__unexpected_word_is_named(self):
        self.refused("doctor", "now", naming="'now'")

    def test_compile__needs_exactly_one_subject(self):
        self.refused("compile", "--arch", "sm_80", naming="FILE.cu")
        self.refused("compile", "--flash", SHORT_FORM, "--attention", "x", "--arch", "sm_80", naming="FILE.cu")

    def test_compile__options_of_files_are_refused_elsewhere(self):
        self.refused("compile", "--flash", SHORT_FORM, "--arch", "sm_80", "-DX=1", naming="-D")

    def test_compile__needs_arch_and_entry(self):
        self.refused("compile", "--flash", SHORT_FORM, naming="--arch")
        self.refused("compile", "x.cu", "--arch", "sm_80", naming="--entry")

    def test_warm__shard_out_of_range_is_refused(self):
        for shard in ("0/2", "3/2", "1", "1/0", "a/b", "/2"):
            self.refused("warm", "--set", "progression", "--arch", "sm_80", "--shard", shard, naming=shard)

    def test_cache__unknown_action_is_named(self):
        self.refused("cache", "lst", naming="'lst'")

    def test_cache__options_belong_to_their_action(self):
        self.refused("cache", "list", "--repair", naming="--repair")
        self.refused("cache", "verify", "--max-bytes", "1", naming="--max-bytes")

    def test_cache__missing_argument_is_named(self):
        self.refused("cache", "show", naming="KEY")


class Output(CommandCase):
    def test_output__that_cannot_be_written_is_a_failure(self):
        for command in (("--help",), ("--version",), ("doctor",), ("describe", "--cards"), ("warm", "--help"),
                        ("describe", "--card", "H100", "dtype=bf16,head_dim=128")):
            with open("/dev/full", "w") as full:
                result = subprocess.run([KJIT, *command], env=harness.full_environment(self.environment), stdout=full,
                                        stderr=subprocess.PIPE, text=True, timeout=harness.HANGS_S)
            self.assertEqual(result.returncode, FAILED)
            self.assertEqual(result.stderr, "kjit: standard output could not be written\n")

    def test_output__takes_the_place_of_files_alone(self):
        """Of /dev/null, for one, if root says so: a pipe stands for it here."""
        pipe, link = self.folder / "pipe", self.folder / "link"
        os.mkfifo(pipe)
        link.symlink_to(pipe)
        self.compile_scale()
        for path in pipe, link:
            for command in (("cache", "export"), ("bundle", "create")):
                self.refused(*command, path, naming="it is there, and is no regular file", exit_code=FAILED)
            self.assertTrue(path.is_fifo())
        self.assertTrue(link.is_symlink())
        self.assertEqual({entry.name for entry in self.folder.iterdir()}, {"pipe", "link", "cache", "scale.cu"})

    def test_output__goes_to_the_file_that_a_link_names(self):
        real, link = self.folder / "real", self.folder / "link"
        link.symlink_to("real")
        for command in (("compile", self.write("scale.cu", KERNEL), "--entry", "scale", "--arch", "sm_80", "-D",
                         "THREADS=256", "-o"), ("cache", "export"), ("bundle", "create")):
            real.write_bytes(b"old")
            self.kjit(*command, link)
            self.assertEqual(os.readlink(link), "real")
            self.assertGreater(real.stat().st_size, 1000, command)
        self.assertEqual({entry.name for entry in self.folder.iterdir()}, {"real", "link", "cache", "scale.cu"})

    def test_output__that_a_pipe_refuses_leaves_its_link(self):
        """Of a device too: a pipe that loses its reader stands for one, because root could lose a real one."""
        pipe, link = self.folder / "pipe", self.folder / "link"
        os.mkfifo(pipe)
        link.symlink_to("pipe")
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        command = (KJIT, "compile", "--flash", SHORT_FORM, "--arch", "sm_80", "-o", link)
        with subprocess.Popen(command, env=harness.full_environment(self.environment), stderr=subprocess.PIPE,
                              text=True, restore_signals=False) as process:  # SIGPIPE would end it
            select.select([reader], [], [], harness.HANGS_S)
            os.close(reader)
            self.assertIn("Broken pipe", process.communicate(timeout=harness.HANGS_S)[1])
        self.assertEqual(process.returncode, FAILED)
        self.assertEqual(os.readlink(link), "pipe")
        self.assertTrue(pipe.is_fifo())

    def test_output__of_compile_goes_into_a_pipe(self):
        cubin = self.folder / "scale.cubin"
        self.compile_scale("-o", cubin)
        reader, writer = os.pipe()
        self.run_command(KJIT, "compile", self.folder / "scale.cu", "--entry", "scale", "--arch", "sm_80",
                         "-DTHREADS=256", "-o", f"/proc/self/fd/{writer}", environment=self.environment,
                         pass_fds=[writer])
        os.close(writer)
        with open(reader, "rb") as stream:
            self.assertEqual(stream.read(), cubin.read_bytes())


class Doctor(CommandCase):
    def test_doctor__says_what_there_is(self):
        report = self.json("doctor")
        self.assertTrue(report["nvrtc"]["found"])
        self.assertRegex(report["nvrtc"]["identity"], r"^nvrtc-")
        self.assertEqual(report["cache"]["path"], str(self.cache))
        self.assertTrue(report["cache"]["usable"])

    def test_doctor__says_what_is_missing_and_what_to_do(self):
        report = self.json("doctor", KJIT_NVRTC=NOWHERE, KJIT_LIBCUDA=NOWHERE)
        self.assertFalse(report["nvrtc"]["found"])
        self.assertIn(NOWHERE, report["nvrtc"]["message"])
        self.assertFalse(report["driver"]["found"])
        self.assertIn(NOWHERE, report["driver"]["message"])
        text = self.kjit("doctor", KJIT_NVRTC=NOWHERE, KJIT_LIBCUDA=NOWHERE).stdout
        self.assertIn("compile   no", text)
        self.assertIn("run       no", text)

    def test_doctor__tries_whether_the_cache_can_be_written(self):
        self.assertIn("keep      yes", self.kjit("doctor").stdout)
        self.assertIn("keep      no", self.kjit("doctor", KJIT_CACHE_MODE="ro").stdout)
        block_writing(self.cache)
        self.assertIn("keep      no", self.kjit("doctor").stdout)
        found = self.json("doctor")["cache"]
        self.assertFalse(found["usable"])
        self.assertIn("cannot be written: Not a directory", found["message"])


class Log(CommandCase):
    def test_log__level_comes_from_the_environment(self):
        self.cache.write_text("not a folder")
        command = ("compile", "--flash", SHORT_FORM, "--arch", "sm_80")
        self.assertIn("kjit: warning: ", self.kjit(*command).stderr)
        self.assertEqual(self.kjit(*command, KJIT_LOG="error").stderr, "")

    def test_log__unknown_level_is_named(self):
        self.refused("cache", "path", naming="loud", KJIT_LOG="loud")


class Compile(CommandCase):
    FIELDS = {"key": str, "arch": str, "source": str, "cubin_bytes": int, "compile_ms": float, "registers": int,
              "spill_bytes": int, "shared_bytes": int, "threads": int}

    def check_shape(self, result):
        for field, kind in self.FIELDS.items():
            self.assertIsInstance(result[field], kind, field)
        self.assertRegex(result["key"], r"^[0-9a-f]{64}$")
        self.assertGreater(result["cubin_bytes"], 0)
        self.assertGreater(result["registers"], 0)

    def test_compile__flash_is_built_then_found(self):
        first = self.json("compile", "--flash", SHORT_FORM, "--arch", "sm_80")
        self.check_shape(first)
        self.assertEqual((first["source"], first["threads"], first["arch"]), ("built", 128, "sm_80"))
        self.assertEqual(first["shared_bytes"], (64 + 2 * 32) * 64 * 2)
        second = self.json("compile", "--flash", SHORT_FORM, "--arch", "sm_80")
        self.assertEqual(second["source"], "user")
        for field in ("key", "cubin_bytes", "registers", "spill_bytes", "compile_ms"):
            self.assertEqual(first[field], second[field], field)

    def test_compile__names_that_are_no_utf8_are_told(self):
        folder = os.path.join(os.fsencode(self.folder), b"d\xe9p\xf4t")
        os.mkdir(folder)
        source = os.path.join(folder, b"caf\xe9.cu")
        with open(source, "w", encoding="ascii") as file:
            file.write(KERNEL)
        named = ("compile", os.fsdecode(source), "--entry", "scale", "--arch", "sm_90")
        found = self.json(*named, "-DTHREADS=64", "--show-key", "--show-source",
                          KJIT_CACHE_DIR=os.fsdecode(os.path.join(folder, b"cache")))
        self.assertEqual(found["label"], "caf?.cu")
        self.assertIn("caf?.cu", found["key_text"])
        self.assertIn("caf?.cu", found["source_text"])
        failed = self.json(*named, exit_code=FAILED)  # THREADS is not defined
        self.assertEqual(failed["error"]["status"], "KJIT_ERR_COMPILE")
        self.assertIn("caf?.cu", failed["log"])

    def test_json__paths_that_are_no_utf8_are_told(self):
        cache = os.fsdecode(os.path.join(os.fsencode(self.folder), b"caf\xe9"))
        self.assertTrue(self.json("cache", "path", KJIT_CACHE_DIR=cache)["path"].endswith("caf?"))
        self.assertTrue(self.json("doctor", KJIT_CACHE_DIR=cache)["cache"]["path"].endswith("caf?"))

    def test_compile__attention_chooses_a_config(self):
        result = self.json("compile", "--attention", "dtype=bf16,head_dim=64,seq_q=1000", "--arch", "sm_80")
        self.check_shape(result)
        self.assertTrue(result["label"].startswith("(BF16, 64, "), result["label"])

    def test_compile__attention_names_what_the_kernel_computes(self):
        for text, behind in (("head_dim=64,causal=1", " causal=1"), ("head_dim=64,heads_q=8,heads_kv=2", " grouped=1"),
                             ("head_dim=64,heads_q=8,heads_kv=1", "opt_softmax"),
                             ("head_dim=64,head_dim_v=32", " head_dim_v=32"),
                             ("head_dim=40", " head_dim=40")):
            asked = self.json("compile", "--attention", "dtype=fp16," + text, "--arch", "sm_86")
            self.assertTrue(asked["label"].endswith(behind), asked["label"])
            named = self.json("compile", "--flash", asked["label"], "--arch", "sm_86")
            self.assertEqual((named["key"], named["source"]), (asked["key"], "user"))

    def test_compile__attention_refuses_what_nothing_computes(self):
        for text in ("head_dim=44", "head_dim=264", "head_dim=64,head_dim_v=20"):
            self.refused("compile", "--attention", "dtype=fp16," + text, "--arch", "sm_80",
                         naming=text.split(",")[-1].replace("=", " is "), exit_code=FAILED)

    def test_compile__attention_chooses_the_family_of_hopper(self):
        result = self.json("compile", "--attention",
                           "dtype=bf16,head_dim=192,head_dim_v=128,causal=1,heads_q=6,heads_kv=2",
                           "--arch", "sm_90a")
        self.check_shape(result)
        self.assertEqual(result["family"], "attention_sm90")
        self.assertTrue(result["label"].startswith("dtype=bf16,head_dim=192,head_dim_v=128,causal=1,"), result["label"])
        self.assertEqual(result["spill_bytes"], 0)
        self.refused("compile", "--attention", "dtype=bf16,head_dim=100", "--arch", "sm_90a",
                     naming="head_dim is 100: attention_sm90 takes multiples of 8", exit_code=FAILED)

    def test_compile__attention_names_the_wrong_key_or_value(self):
        for text, naming in (("head_dim=64", "dtype"), ("dtype=fp16", "head_dim"),
                             ("dtype=fp16,head_dim=64,foo=1", "'foo'"),
                             ("dtype=fp8,head_dim=64", "fp8"), ("dtype=fp16,head_dim=0", "head_dim=0"),
                             ("dtype=fp16,head_dim=64,head_dim=64", "twice"), ("dtype=fp16,,head_dim=64", "column 12"),
                             ("dtype=fp16,head_dim=64,", "column 24"), ("dtype=fp16,head_dim=64,scale=-1", "scale=-1"),
                             ("dtype=fp16,head_dim=64,scale=nan", "scale=nan"), ("", "column 1")):
            self.refused("compile", "--attention", text, "--arch", "sm_80", naming=naming)

    def test_compile__short_form_error_says_where(self):
        self.refused("compile", "--flash", SHORT_FORM + "+fast", "--arch", "sm_80", naming="fast")

    def test_compile__illegal_config_is_refused_before_compiling(self):
        self.refused("compile", "--flash", SHORT_FORM.replace("64, 64, 32", "64, 72, 32"), "--arch", "sm_80",
                     naming="B_r",
                     exit_code=FAILED)

    def test_compile__malformed_arch_is_named(self):
        self.refused("compile", "--flash", SHORT_FORM, "--arch", "sm80", naming="sm80")

    def test_compile__file_takes_defines_and_writes_the_cubin(self):
        output = self.folder / "scale.cubin"
        result = self.compile_scale("-o", output)
        self.check_shape(result)
        self.assertEqual((result["threads"], result["entry"], result["source"]), (256, "scale", "built"))
        self.assertEqual(output.read_bytes()[:4], b"\x7fELF")
        self.assertEqual(output.stat().st_size, result["cubin_bytes"])

    def test_compile__key_does_not_depend_on_where_the_file_lies(self):
        first = self.compile_scale()
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "scale.cu").write_text(KERNEL)
        second = self.json("compile", elsewhere / "scale.cu", "--entry=scale", "--arch=sm_80", "-DTHREADS=256")
        self.assertEqual((second["key"], second["source"]), (first["key"], "user"))

    def test_compile__headers_are_found_beside_the_file_and_by_folder(self):
        (self.folder / "include").mkdir()
        self.write("include/far.h", "#define FAR 2\n")
        self.write("near.h", "#define NEAR 1\n")
        source = self.write("k.cu", '#include "near.h"\n#include <far.h>\n'
                                    'extern "C" __global__ void k(int *p) { *p = NEAR + FAR; }\n')
        command = ("compile", source, "--entry", "k", "--arch", "sm_80", "-I", self.folder / "include")
        first = self.json(*command)
        self.write("include/far.h", "#define FAR 3\n")
        second = self.json(*command)
        self.assertEqual(second["source"], "built")
        self.assertNotEqual(first["key"], second["key"])

    def test_compile__rejected_source_gives_the_log_with_the_files_own_line(self):
        source = self.write("bad.cu", 'extern "C" __global__ void k(int *p) {\n  *p = nothing;\n}\n')
        command = ("compile", source, "--entry", "k", "--arch", "sm_80")
        self.assertIn("bad.cu(2)", self.kjit(*command, exit_code=FAILED).stderr)
        result = self.json(*command, exit_code=FAILED)
        self.assertEqual(result["error"]["status"], "KJIT_ERR_COMPILE")
        self.assertIn("nothing", result["log"])

    def test_compile__missing_file_is_named(self):
        self.refused("compile", "/nonexistent/k.cu", "--entry", "k", "--arch", "sm_80", naming="/nonexistent/k.cu",
                     exit_code=FAILED)

    def test_compile__output_that_cannot_be_written_is_named(self):
        self.refused("compile", "--flash", SHORT_FORM, "--arch", "sm_80", "-o", "/nonexistent/k.cubin",
                     naming="/nonexistent/k.cubin", exit_code=FAILED)

    def test_compile__source_is_shown_without_a_compile(self):
        text = self.kjit("compile", "--flash", SHORT_FORM, "--arch", "sm_80", "--show-source",
                         KJIT_NVRTC=NOWHERE).stdout
        self.assertIn("#define KJIT_B_c 32\n", text)
        source = self.write("scale.cu", KERNEL)
        text = self.kjit("compile", source, "--entry", "scale", "--arch", "sm_80", "-DTHREADS=64", "--show-source",
                         KJIT_NVRTC=NOWHERE).stdout
        self.assertTrue(text.startswith("#define THREADS 64\n"), text)
        self.assertTrue(text.endswith(KERNEL))

    def test_compile__key_is_shown_with_what_it_covers(self):
        result = self.compile_scale("--show-key", "--show-source")
        self.assertIn("scale.cu", result["key_text"])
        self.assertNotIn(str(self.folder), result["key_text"])
        self.assertIn("#define THREADS 256", result["source_text"])
        shown = self.kjit("compile", self.folder / "scale.cu", "--entry", "scale", "--arch", "sm_80", "-DTHREADS=256",
                          "--show-key").stdout
        self.assertEqual(shown.splitlines()[0], result["key"])

    def test_compile__without_nvrtc_has_its_own_exit_code(self):
        result = self.json("compile", "--flash", SHORT_FORM, "--arch", "sm_80", exit_code=NO_NVRTC, KJIT_NVRTC=NOWHERE)
        self.assertEqual(result["error"]["status"], "KJIT_ERR_NO_NVRTC")
        self.assertIn(NOWHERE, result["error"]["message"])

    def test_compile__warm_cache_needs_no_nvrtc(self):
        first = self.json("compile", "--flash", SHORT_FORM, "--arch", "sm_80")
        second = self.json("compile", "--flash", SHORT_FORM, "--arch", "sm_80", KJIT_NVRTC=NOWHERE)
        self.assertEqual((second["source"], second["cubin_bytes"]), ("user", first["cubin_bytes"]))

    def test_compile__without_a_cache_works_and_leaves_no_file(self):
        result = self.json("compile", "--flash", SHORT_FORM, "--arch", "sm_80", KJIT_CACHE_MODE="off")
        self.assertEqual(result["source"], "built")
        self.assertFalse(self.cache.exists())


class Warm(CommandCase):
    MANIFEST = ("# two of one kind, one of another\n\n"
                f"flash_forward sm_80,sm_90 {SHORT_FORM}\n"
                f"  flash_forward\tsm_80   {SHORT_FORM}\r\n"
                "attention sm_80 dtype=bf16,head_dim=64\n")

    def warm(self, *arguments, **keywords):
        return self.json("warm", "--manifest", self.write("manifest", self.MANIFEST), *arguments, **keywords)

    def test_warm__what_a_kernel_computes_is_part_of_its_line(self):
        lines = [f"flash_forward sm_80 {SHORT_FORM}{behind}\n"
                 for behind in ("", " causal=1", "  causal = 1 , head_dim=64")]
        report = self.json("warm", "--manifest", self.write("manifest", "".join(lines)))
        self.assertEqual([report[name] for name in ("requested", "distinct", "built")], [3, 2, 2])

    def test_warm__twice_finds_all_the_second_time(self):
        first = self.warm("--jobs", "2")
        counts = ("requested", "distinct", "built", "cached", "failed")
        self.assertEqual([first[name] for name in counts], [4, 3, 3, 0, 0])
        self.assertIsInstance(first["seconds"], float)
        second = self.warm()
        self.assertEqual([second[name] for name in counts], [4, 3, 0, 3, 0])

    def test_warm__shards_are_disjoint_and_together_the_whole(self):
        built = [self.warm("--shard", f"{index}/3")["built"] for index in (1, 2, 3)]
        self.assertEqual(sum(built), 3)
        self.assertEqual(self.warm()["cached"], 3)

    def test_warm__architectures_stand_in_place_of_a_manifests_own(self):
        result = self.warm("--arch", "sm_86")
        self.assertEqual((result["requested"], result["distinct"], result["built"]), (3, 2, 2))

    def test_warm__malformed_architectures_are_named(self):
        for archs in ("sm_80,", ",sm_80", "sm_80,,sm_90", "80", "sm_80,sm_8x"):
            self.refused("warm", "--set", "progression", "--arch", archs, naming=archs.split(",")[-1])

    def test_warm__set_for_an_architecture(self):
        result = self.json("warm", "--set", "progression", "--arch", "sm_80", "--shard", "1/7")
        self.assertEqual(result["requested"], 7)
        self.assertEqual(result["failed"], 0)

    def test_warm__unknown_set_lists_those_there_are(self):
        self.refused("warm", "--set", "all", "--arch", "sm_80", naming="prebuilt", exit_code=FAILED)

    def test_warm__progress_goes_to_stderr_alone(self):
        result = self.kjit("warm", "--manifest", self.write("manifest", self.MANIFEST))
        self.assertEqual(result.stdout.count("\n"), 1)
        self.assertIn("3 built", result.stdout)

    def test_warm__manifest_errors_have_line_and_column(self):
        tail = SHORT_FORM.split(": ")[1]
        for line, naming in (("flash sm_80 x", ":3: "), ("flash_forward", "column 14"),
                             ("flash_forward sm_80", "column 20"),
                             ("flash_forward sm_80 " + SHORT_FORM.replace("eager", "eagr"), "column 50"),
                             ("flash_forward sm_80, " + SHORT_FORM, "sm_80"),
                             ("flash_forward sm_8x " + SHORT_FORM, "sm_8x"),
                             ("attention sm_80 dtype=bf16,head_dim=64,foo=1", "column 40"),
                             ("serving sm_80 heads=32/8 head_dim=64 dtype=bf16 pages=1",
                              "column 49: unknown key 'pages'; known are heads"),
                             ("serving sm_80 heads=32/5 head_dim=64 dtype=bf16", "column 15"),
                             ("serving sm_80 heads=8 dtype=bf16", "head_dim"),
                             ("serving sm_80 heads=8 head_dim=64 dtype=bf16 cache=fp32", "column 46"),
                             ("flash_forward sm_80 " + tail, "column 21"), ("x" * 5000, "4096")):
            path = self.write("manifest", f"# first\n\n{line}\n")
            result = self.kjit("warm", "--manifest", path, exit_code=USAGE)
            self.assertIn(f"{path}:3: ", result.stderr)
            self.assertIn(naming, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def kernels_of(self, line):
        """The kernels that a manifest's line asks for: what cannot be built without NVRTC, by name."""
        report = self.json("warm", "--manifest", self.write("manifest", f"{line}\n"), exit_code=NO_NVRTC,
                           KJIT_NVRTC=NOWHERE)
        kernels = {failure["request"] for failure in report["failures"]}
        self.assertEqual(len(kernels), report["distinct"])
        return kernels

    def test_warm__a_served_model_is_a_few_kernels(self):
        line = "serving sm_90,sm_90a heads=32/8 head_dim=128 page=16 dtype=bf16"
        wide, narrow = self.kernels_of(line), self.kernels_of(f"{line} cache=e4m3")
        # Of attention_serving, attention_serving_sm90 (five or three with one_part) and attention_prefill_sm90.
        self.assertEqual(len(wide), 5 + 6 + 1, wide)
        self.assertEqual(len(narrow), 5 + 6 + 1, narrow)
        self.assertEqual(len([kernel for kernel in wide if "one_part=1" in kernel]), 5)
        self.assertEqual(len([kernel for kernel in narrow if "one_part=1" in kernel]), 3)
        self.assertEqual({kernel.split(",")[0].split("pass=")[-1] for kernel in wide & narrow}, {"plan"})
        self.assertEqual(len(wide & narrow), 1)
        for head in 64, 128, 256:
            for page in 0, 16:
                every = self.kernels_of(f"serving sm_90,sm_90a heads=32/8 head_dim={head} page={page} dtype=bf16")
                # Without pages there are two prefill kernels, and a server meets at most twelve (docs/serving.md).
                self.assertLessEqual(len(every), 12 if page else 13, every)

    def test_warm__kernels_of_a_served_model_are_built(self):
        """One kernel in twelve, because serving_codegen_test compiles them all."""
        line = "serving sm_90,sm_90a heads=32/8 head_dim=128 page=16 dtype=bf16"
        shard = () if os.environ.get("KJIT_TEST_ALL_CONFIGS") else ("--shard", "1/12")
        result = self.json("warm", "--manifest", self.write("manifest", f"{line}\n"), *shard)
        self.assertGreater(result["in_shard"], 0)
        self.assertEqual((result["failed"], result["built"]), (0, result["in_shard"]))

    def test_warm__a_problem_and_its_config_of_hopper_are_one(self):
        lines = ("attention sm_90a dtype=bf16,head_dim=64,batch=16,heads_q=16\n"
                 "attention_sm90 sm_90a dtype=bf16,head_dim=64,head_dim_v=64,causal=0,consumers=3,tile_n=128,stages=2,"
                 "q_buffers=2,o_chunks=0,ping_pong=1,rescale_slack=15,packed=1,split=0\n")
        result = self.json("warm", "--manifest", self.write("manifest", lines))
        self.assertEqual((result["requested"], result["distinct"], result["built"]), (2, 1, 1))

    def test_warm__kernel_in_front_of_a_config_comes_with_it(self):
        kernels = self.kernels_of("attention sm_90a dtype=bf16,head_dim=200,heads_q=16,seq_q=6000")
        self.assertIn("attention_padding sm_90a rows=64", " ".join(kernels))
        self.assertEqual(len(kernels), 2, kernels)

    def test_warm__kernels_that_cannot_be_kept_are_a_failure(self):
        self.kjit("doctor")  # makes the folder
        block_writing(self.cache)
        report = self.json("warm", "--manifest", self.write("manifest", self.MANIFEST), exit_code=FAILED)
        self.assertEqual((report["built"], report["failed"], report["not_kept"]), (3, 0, 3))
        again = self.kjit("warm", "--manifest", self.folder / "manifest", exit_code=FAILED)
        self.assertIn(f"3 of the kernels built could not be written into the cache folder {self.cache}", again.stderr)
        none = self.kjit("warm", "--manifest", self.folder / "manifest", exit_code=FAILED, KJIT_CACHE_DIR="/dev/null/x")
        self.assertIn("there is no cache folder for the kernels built (3)", none.stderr)

    def test_warm__where_nothing_is_to_be_kept_nothing_is_missing(self):
        manifest = self.write("manifest", self.MANIFEST)
        self.kjit("doctor")  # makes the folder, which has to be there to be read
        for mode in "ro", "off":
            report = self.json("warm", "--manifest", manifest, KJIT_CACHE_MODE=mode, KJIT_BUNDLE="/nonexistent")
            self.assertEqual((report["built"], report["not_kept"]), (3, 0))

    def test_warm__empty_list_of_architectures_is_refused(self):
        self.refused("warm", "--set", "progression", "--arch", "", naming="--arch is empty")
        self.refused("warm", "--set", "progression", "--arch", "sm_80,,sm_90",
                     naming="',sm_90': an architecture is expected here, as in sm_80,sm_90a")

    def test_warm__manifest_that_is_not_there_is_named(self):
        self.refused("warm", "--manifest", "/nonexistent/m", naming="/nonexistent/m", exit_code=FAILED)

    def first_compile(self, process):
        """The process that compiles the first kernel: a child of the compile server, which is a child of kjit."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            children = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
            parents = {}
            for child in children:
                try:
                    parents[child] = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
                except OSError:  # it has ended
                    pass
            for child, parent in parents.items():
                if parents.get(parent) == process.pid:
                    return child
            time.sleep(0.005)
        self.fail("no process compiles")

    def wait_until_busy(self, process):
        """Until a process has computed for 50 ms: a compiler's process says first that it has begun its job, and one
        that ends before that is replaced."""
        least = 0.05 * os.sysconf("SC_CLK_TCK")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            if int(words[11]) + int(words[12]) >= least:  # in the process, and in the system for it
                return
            time.sleep(0.001)
        self.fail("the compiler's process computes nothing")

    def killed_once(self, number, **environment):
        """A run of three kernels one after the other, in which the process that compiles the first gets a signal."""
        command = [str(KJIT), "warm", "--manifest", self.write("manifest", self.MANIFEST), "--jobs", "1", "--json"]
        process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=harness.full_environment(self.environment | environment | REALLY_COMPILES))
        compiler = self.first_compile(process)
        self.wait_until_busy(compiler)
        os.kill(compiler, number)
        out, err = process.communicate(timeout=harness.HANGS_S)
        self.assertEqual(process.returncode, FAILED, err)
        report = json.loads(out)
        self.assertEqual((report["built"], report["failed"]), (2, 1), report)
        self.assertIn(report["failures"][0]["request"], err)
        return report["failures"][0]

    def test_warm__compiler_that_crashes_costs_one_kernel(self):
        # A sanitizer would catch the signal itself and end the process with an exit code of its own.
        unhandled = {name: f"{os.environ.get(name, '')}:handle_segv=0" for name in ("ASAN_OPTIONS", "TSAN_OPTIONS")}
        self.assertIn("SIGSEGV", self.killed_once(signal.SIGSEGV, **unhandled)["message"])

    def test_warm__compiler_that_is_killed_for_memory_costs_one_kernel(self):
        failure = self.killed_once(signal.SIGKILL)
        self.assertEqual(failure["status"], "KJIT_ERR_NO_MEMORY")
        self.assertIn("SIGKILL", failure["message"])
        again = self.warm()
        self.assertEqual((again["built"], again["cached"]), (1, 2))

    def test_warm__interrupted_keeps_what_is_done_and_says_how_to_go_on(self):
        process = subprocess.Popen([str(KJIT), "warm", "--set", "autotune", "--arch", "sm_80", "--jobs", "1", "--json"],
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=harness.full_environment(self.environment | REALLY_COMPILES))
        self.first_compile(process)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        out, err = process.communicate(timeout=harness.HANGS_S)
        self.assertLess(time.monotonic() - sent, 10)
        self.assertEqual(process.returncode, -signal.SIGINT, err)
        self.assertEqual(json.loads(out)["failed"], 0)
        self.assertIn("the same command goes on", err)

    def test_warm__works_without_a_compile_server(self):
        result = self.warm("--jobs", "2", KJIT_COMPILE_SERVER="off")
        self.assertEqual((result["built"], result["failed"]), (3, 0))

    def test_warm__without_nvrtc_has_its_own_exit_code(self):
        result = self.warm(exit_code=NO_NVRTC, KJIT_NVRTC=NOWHERE)
        self.assertEqual((result["failed"], result["built"]), (3, 0))
        self.assertEqual(result["failures"][0]["status"], "KJIT_ERR_NO_NVRTC")


class Cache(CommandCase):
    def setUp(self):
        super().setUp()
        self.key = self.compile_scale()["key"]

    def entry_file(self):
        files = [path for path in self.cache.rglob("*") if path.is_file() and path.stat().st_size > 2000
                 and self.key[:8] in str(path)]
        self.assertEqual(len(files), 1, [str(path) for path in self.cache.rglob("*")])
        return files[0]

    def test_cache__path_is_the_folder(self):
        self.assertEqual(self.kjit("cache", "path").stdout, f"{self.cache}\n")
        self.assertEqual(self.json("cache", "path"), {"path": str(self.cache)})

    def test_cache__path_without_a_folder_fails(self):
        self.kjit("cache", "path", exit_code=FAILED, KJIT_CACHE_MODE="off")

    def test_cache__list_shows_each_entry(self):
        entries = self.json("cache", "list")["entries"]
        self.assertEqual([(entry["key"], entry["arch"], entry["label"], entry["damaged"]) for entry in entries],
                         [(self.key, "sm_80", "scale.cu", False)])
        self.assertRegex(self.kjit("cache", "list").stdout, rf"{self.key[:12]} .* custom scale\.cu\n")

    def test_cache__show_gives_the_cubin_its_disassembly_and_what_was_compiled(self):
        cubin = self.folder / "out.cubin"
        self.kjit("cache", "show", self.key, "--cubin", cubin)
        self.assertEqual(cubin.read_bytes()[:4], b"\x7fELF")
        self.assertEqual(cubin.stat().st_size, self.json("cache", "show", self.key)["cubin_bytes"])
        shown = self.kjit("cache", "show", self.key, "--source").stdout
        self.assertIn('#line 1 "scale.cu"', shown)
        self.assertRegex(shown, r"// [0-9a-f]{64}  scale.cu\n")
        if shutil.which("nvdisasm"):
            self.assertIn("EXIT", self.kjit("cache", "show", self.key, "--sass").stdout)
        self.refused("cache", "show", self.key, "--sass", "--source", naming="--sass")
        self.refused("cache", "list", "--sass", naming="belong to show")

    def test_cache__show_takes_the_first_digits(self):
        entry = self.json("cache", "show", self.key[:6])
        self.assertEqual((entry["key"], entry["entry"]), (self.key, "scale"))
        self.assertIn("scale.cu", entry["key_text"])
        self.assertIn(self.key, self.kjit("cache", "show", self.key).stdout)

    def test_cache__show_of_an_unknown_key_fails(self):
        unknown = "0" * 12 if not self.key.startswith("0" * 4) else "f" * 12
        self.refused("cache", "show", unknown, naming=unknown, exit_code=FAILED)

    def test_cache__why_names_the_field_that_differs(self):
        other = self.json("compile", self.folder / "scale.cu", "--entry", "scale", "--arch", "sm_80", "-DTHREADS=128")
        result = self.json("cache", "why", other["key"])
        self.assertEqual(result["nearest"], self.key)
        self.assertIn("THREADS", json.dumps(result["differences"]))
        self.assertIn("THREADS 128", self.kjit("cache", "why", other["key"]).stdout)

    def test_cache__why_takes_the_key_that_compile_shows(self):
        wanted = self.kjit("compile", self.folder / "scale.cu", "--entry", "scale", "--arch", "sm_80", "-DTHREADS=64",
                           "--show-key", KJIT_CACHE_MODE="ro").stdout
        for text in (wanted, wanted.split("\n", 1)[1]):
            result = self.run_command(KJIT, "cache", "why", "-", "--json", environment=self.environment, input=text)
            self.assertEqual(result.returncode, DONE, result.stderr)
            self.assertEqual(json.loads(result.stdout), {"nearest": self.key, "differences": [
                {"field": "prologue", "wanted": "#define THREADS 64", "found": "#define THREADS 256"}]})

    def test_cache__why_shows_the_line_that_differs(self):
        header, source = self.folder / "taps.h", self.folder / "taps.cu"
        source.write_text('#include "taps.h"\nextern "C" __global__ void taps(int *out) { *out = TAPS; }\n')
        keys = []
        for taps in (7, 9):
            header.write_text(f"#pragma once\n#define TAPS {taps}\n")
            keys.append(self.json("compile", source, "--entry", "taps", "--arch", "sm_80")["key"])
        shown = self.kjit("cache", "why", keys[1]).stdout
        self.assertIn("  taps.h:2:\n    wanted  #define TAPS 9\n    found   #define TAPS 7\n", shown)
        (difference,) = self.json("cache", "why", keys[1])["differences"]
        self.assertEqual((difference["line"], difference["found_line"]), (2, "#define TAPS 7"))
        shutil.rmtree(self.cache / "texts")
        self.assertRegex(self.kjit("cache", "why", keys[1]).stdout, r"  source taps\.h\n    wanted  [0-9a-f]{64}\n")

    def test_cache__export_then_import_restores_the_entries(self):
        file = self.folder / "export"
        written = self.json("cache", "export", file)
        self.assertEqual((written["entries"], written["damaged"]), (1, 0))
        self.kjit("cache", "clear")
        taken = self.json("cache", "import", file)
        self.assertEqual((taken["entries"], taken["bytes"], taken["damaged"]), (1, written["bytes"], 0))
        self.assertEqual(self.compile_scale(KJIT_NVRTC=NOWHERE)["source"], "user")

    def test_cache__export_takes_what_the_filter_accepts(self):
        file = self.folder / "export"
        for text, entries in (("arch=sm_80,family=custom", 1), ("arch=sm_90", 0), ("label=scale", 1),
                              ("key=" + self.key[:8], 1)):
            self.assertEqual(self.json("cache", "export", file, text)["entries"], entries, text)
        self.refused("cache", "export", file, "colour=red", naming="colour")

    def test_cache__import_takes_what_is_sound_of_a_damaged_file(self):
        file = self.folder / "export"
        self.kjit("cache", "export", file)
        whole = bytearray(file.read_bytes())
        whole[len(whole) // 2] ^= 1
        self.kjit("cache", "clear")
        file.write_bytes(whole)
        self.assertEqual(self.json("cache", "import", file, exit_code=FAILED)["damaged"], 1)
        file.write_bytes(whole[:-100])
        self.assertEqual(self.json("cache", "import", file, exit_code=FAILED)["error"]["status"], "KJIT_ERR_CORRUPT")
        self.assertEqual(self.json("cache", "list")["entries"], [])

    def test_cache__every_action_says_in_json_why_it_failed(self):
        for words in (("show", "0000"), ("why", "0000"), ("export", "/nonexistent/export"),
                      ("import", "/nonexistent/export")):
            result = self.json("cache", *words, exit_code=FAILED)
            self.assertIn(words[1], result["error"]["message"])
        for words in (("clear",), ("prune",), ("verify", "--repair"), ("import", self.folder / "scale.cu")):
            result = self.json("cache", *words, exit_code=FAILED, KJIT_CACHE_MODE="ro")
            self.assertIn("read-only", result["error"]["message"])

    def test_cache__actions_refuse_what_is_not_theirs(self):
        for words, naming in ((("export",), "FILE"), (("import",), "FILE"), (("why",), "KEY"),
                              (("list", "--repair"), "--repair"),
                              (("clear", "--max-bytes", "1"), "--max-bytes"), (("import", "a", "b"), "'b'"),
                              (("export", "a", "b", "c"), "'c'"), (("stats", "--key", "x"), "--key"),
                              (("mend",), "'mend'")):
            self.refused("cache", *words, naming=naming)

    def test_cache__label_that_is_no_utf8_is_listed(self):
        source = os.path.join(os.fsencode(self.folder), b"caf\xe9.cu")
        with open(source, "w", encoding="ascii") as file:
            file.write(KERNEL)
        self.kjit("compile", os.fsdecode(source), "--entry", "scale", "--arch", "sm_90", "-DTHREADS=64")
        labels = {entry["label"] for entry in self.json("cache", "list")["entries"]}
        self.assertEqual(labels, {"scale.cu", "caf?.cu"})

    def test_cache__stats_count_over_processes(self):
        self.compile_scale()
        stats = self.json("cache", "stats")
        self.assertEqual((stats["entries"], stats["builds"], stats["hits"], stats["misses"]), (1, 1, 1, 1))
        self.assertIn("hits", self.kjit("cache", "stats").stdout)

    def test_cache__verify_finds_a_damaged_entry(self):
        self.assertEqual(self.json("cache", "verify")["damaged"], 0)
        path = self.entry_file()
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
        damaged = bytearray(path.read_bytes())
        damaged[-100] ^= 1
        path.write_bytes(damaged)
        self.assertEqual(self.json("cache", "verify", exit_code=FAILED)["damaged"], 1)
        self.assertIn("damaged", self.kjit("cache", "list").stdout)
        repaired = self.json("cache", "verify", "--repair")
        self.assertEqual((repaired["damaged"], repaired["removed"]), (1, 1))
        self.assertEqual(self.json("cache", "verify")["damaged"], 0)

    def test_cache__damaged_entry_is_rebuilt_by_the_next_compile(self):
        path = self.entry_file()
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
        path.write_bytes(path.read_bytes()[:-10])
        self.assertEqual(self.compile_scale()["source"], "built")
        self.assertEqual(self.compile_scale()["source"], "user")

    def test_cache__prune_and_clear_remove_entries(self):
        self.assertEqual(self.json("cache", "prune")["removed"], 0)
        self.assertEqual(self.json("cache", "prune", "--max-bytes", "0")["removed"], 1)
        self.compile_scale()
        self.assertEqual(self.json("cache", "clear")["removed"], 1)
        self.assertEqual(self.json("cache", "list")["entries"], [])

    def test_cache__clear_of_an_empty_cache_is_no_error(self):
        self.kjit("cache", "clear")
        self.kjit("cache", "clear")


class Describe(CommandCase):
    PROBLEM = "dtype=bf16,head_dim=128,heads_q=32,seq_q=4096,causal=1"

    def test_describe__is_the_choice_on_a_card_that_is_not_here(self):
        found = self.json("describe", self.PROBLEM, "--card", "H20")
        self.assertEqual((found["family"], found["card"]["multiprocessors"]), ("attention_sm90", 78))
        self.assertTrue(found["config"].startswith("dtype=bf16,head_dim=128,"), found["config"])
        self.assertIn("flash_forward (BF16, 128,", self.kjit("describe", self.PROBLEM, "--card", "a100").stdout)

    def test_describe__tells_of_copies_in_front(self):
        problem = "dtype=bf16,head_dim=200,heads_q=16,seq_q=6000"
        self.assertEqual(self.json("describe", problem, "--card", "H100")["front"], "attention_padding")
        self.assertIn("behind attention_padding", self.kjit("describe", problem, "--card", "H100").stdout)
        self.assertIsNone(self.json("describe", self.PROBLEM, "--card", "H100")["front"])

    def test_describe__lists_the_cards_that_are_known(self):
        self.assertIn("GH200", self.json("describe", "--cards"))
        self.assertRegex(self.kjit("describe", "--cards").stdout, r"\nH20 +sm_90a +78 ")

    def test_describe__faults_are_named(self):
        self.refused("describe", self.PROBLEM, "--card", "H2", naming="no card 'H2'", exit_code=FAILED)
        self.refused("describe", "dtype=bf16,head_dim=300", naming="head_dim is 300", exit_code=FAILED)
        self.refused("describe", naming="one problem, or --cards")
        here = self.kjit("describe", self.PROBLEM, exit_code=NO_GPU, KJIT_LIBCUDA=NOWHERE)
        self.assertIn("no card is named (--card; 'kjit describe --cards' lists them), and no GPU is", here.stderr)
        self.assertIn("With --card it needs no\nGPU.", self.kjit("describe", "--help").stdout)
        self.refused("describe", "head_dim=64", "--card", "H200", naming="dtype")


class NoGpu(CommandCase):
    def test_run__without_a_driver_has_its_own_exit_code(self):
        result = self.kjit("run", "attention", "--shape", "1,64,1,64", exit_code=NO_GPU, KJIT_LIBCUDA=NOWHERE)
        self.assertNotEqual(result.stderr, "")

    def test_bench__without_a_driver_has_its_own_exit_code(self):
        self.kjit("bench", "attention", "--shape", "1,64,1,64", exit_code=NO_GPU, KJIT_LIBCUDA=NOWHERE)


if __name__ == "__main__":
    harness.main(sys.modules[__name__], shares_compiles_of=KJIT)
