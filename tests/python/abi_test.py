"""What is generated from the headers, beside what a C compiler makes of them."""

import ctypes
import dataclasses
import subprocess
import sys

import harness
import kjit
from kjit import _abi, _library

COMPILER, INCLUDE = sys.argv[1:3]


def structs():
    return [kind for name, kind in vars(_abi).items() if name.startswith("kjit_") and hasattr(kind, "_fields_")]


def layout(kind):
    """name, size, then name, offset and size of each member."""
    members = [(name, getattr(kind, name).offset, getattr(kind, name).size) for name, _ in kind._fields_]
    return [(kind.__name__, ctypes.sizeof(kind)), *members]


def probe(kind):
    """C statements that print layout(kind)."""
    name = kind.__name__
    lines = [f'printf("{name} %zu\\n", sizeof({name}));']
    for member, _ in kind._fields_:
        size = f"sizeof(({name} *)0)->{member}"
        lines.append(f'printf("{member} %zu %zu\\n", offsetof({name}, {member}), {size});')
    return "\n".join(lines)


class Abi(harness.TemporaryFolder):
    def compiled_layouts(self):
        body = "\n".join(probe(kind) for kind in structs())
        source = self.write("probe.c", f"#include <kjit/kjit.h>\n#include <stdio.h>\nint main(void) {{\n{body}\n}}\n")
        program = self.folder / "probe"
        subprocess.run([COMPILER, f"-I{INCLUDE}", source, "-o", program], check=True)
        lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
        return [(words[0], *map(int, words[1:])) for words in map(str.split, lines)]

    def test_layouts__of_every_struct_are_the_compilers(self):
        self.assertGreater(len(structs()), 10)
        self.assertEqual([row for kind in structs() for row in layout(kind)], self.compiled_layouts())

    def test_functions__of_the_headers_are_all_in_the_library(self):
        missing = [name for name in _abi.FUNCTIONS if not hasattr(_library.lib, name)]
        self.assertEqual(missing, [])
        self.assertGreater(len(_abi.FUNCTIONS), 30)

    def test_constants__are_the_compilers(self):
        names = [name for name, value in vars(_abi).items() if name.startswith("KJIT_") and isinstance(value, int)]
        prints = "\n".join(f'printf("%llu\\n", (unsigned long long)({name}));' for name in names)
        source = self.write(
            "values.c", f"#include <kjit/kjit.h>\n#include <stdio.h>\nint main(void) {{\n{prints}\n}}\n"
        )
        program = self.folder / "values"
        subprocess.run([COMPILER, f"-I{INCLUDE}", source, "-o", program], check=True)
        values = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
        self.assertEqual([getattr(_abi, name) % 2**64 for name in names], [int(value) for value in values])

    def test_stub__has_the_fields_of_the_library(self):
        stub = (harness.Path(kjit.__file__).parent / "flash_config.pyi").read_text()
        for field in kjit.FIELDS:
            self.assertIn(f"\n    {field.name}: ", stub)
        self.assertNotIn("@", stub.replace("@classmethod", ""))

    def test_artifact__has_the_members_of_the_library(self):
        members = [name for name, _ in _abi.kjit_artifact_info._fields_ if name not in ("struct_size", "reserved")]
        self.assertEqual([field.name for field in dataclasses.fields(kjit.Artifact)], [*members, "phases"])

    def test_library__that_is_not_there_is_named(self):
        result = self.run_command(
            sys.executable, "-c", "import kjit", environment={"KJIT_LIBRARY": "/nowhere/libkjit.so"}
        )
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("libkjit could not be loaded: /nowhere/libkjit.so", result.stderr)

    def test_import__brings_no_framework_in(self):
        frameworks = ("torch", "cupy", "jax", "numpy", "transformers")
        code = f"import sys, kjit; print([name for name in {frameworks} if name in sys.modules])"
        self.assertEqual(self.run_command(sys.executable, "-c", code).stdout.strip(), "[]")


if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
