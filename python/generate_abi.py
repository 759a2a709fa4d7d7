#!/usr/bin/env python3
"""Writes kjit/_abi.py (the C API for ctypes) and kjit/flash_config.pyi (a config's fields for type checkers).

usage: generate_abi.py INCLUDE_DIR STUB_TEMPLATE OUT_DIR COMPILER...

Both are made of the public headers, as the C preprocessor leaves them: what a struct holds, which functions there are
and what a constant is worth stands in include/kjit and nowhere else.
"""

import re
import subprocess
import sys
from pathlib import Path

NUMBERS = {
    "int8_t": "c_int8", "uint8_t": "c_uint8", "int16_t": "c_int16", "uint16_t": "c_uint16",
    "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64",
    "size_t": "c_size_t", "int": "c_int", "float": "c_float", "double": "c_double", "char": "c_char",
}  # fmt: skip

# The kinds of KJIT_FLASH_FORWARD_FIELDS as Python types.
FIELD_TYPES = {"DTYPE": "DType", "INT": "int", "LOAD": "int", "BOOL": "bool"}
# What may be given for them.
PARAMETER_TYPES = {"DType": "Union[DType, int, str]"}


class Headers:
    """The declarations of the headers, each turned into a line of Python."""

    def __init__(self):
        self.kinds = {}  # name of a typedef: "enum", "struct", "opaque" or "callback"
        self.constants = {}
        self.enums = {}
        self.lines = []
        self.functions = []

    def read(self, text):
        for declaration in declarations(text):
            if match := re.fullmatch(r"struct (\w+)", declaration):
                self.kinds[match[1]] = "opaque"  # until the header that defines it
            elif match := re.fullmatch(r"typedef enum (\w+) \{(.*)\} \w+", declaration):
                self.add_enum(*match.groups())
            elif match := re.fullmatch(r"typedef struct (\w+) \{(.*)\} \w+", declaration):
                self.add_struct(*match.groups())
            elif match := re.fullmatch(r"typedef struct \w+ \*?(\w+)", declaration):
                self.kinds[match[1]] = "handle" if "*" in declaration else "opaque"
            elif match := re.fullmatch(r"struct (\w+)", declaration):  # announced, and defined further down
                self.kinds[match[1]] = "opaque"
            elif match := re.fullmatch(r"typedef (.+?)\(\*(\w+)\)\((.*)\)", declaration):
                self.kinds[match[2]] = "callback"
                self.lines.append(f"\n{match[2]} = {self.callback(match[1], match[3])}")
            elif match := re.fullmatch(r"(.+?)(kjit_\w+)\((.*)\)", declaration):
                self.add_function(*match.groups())
            else:
                raise SystemExit(f"generate_abi.py: cannot read this declaration: {declaration}")

    def add_enum(self, name, body):
        self.kinds[name] = "enum"
        members = self.enums[name] = {}
        for member in filter(None, (part.strip() for part in body.split(","))):
            constant, _, value = member.partition("=")
            members[constant.strip()] = int(value.strip(), 0)
        self.constants.update(members)

    def add_struct(self, name, body):
        self.kinds[name] = "struct"
        members = []
        for member in filter(None, (part.strip() for part in body.split(";"))):
            members += self.members(member)
        fields = "".join(f'        ("{member}", {kind}),\n' for member, kind in members)
        self.lines.append(f"\n\nclass {name}(Structure):\n    _fields_ = [\n{fields}    ]\n")

    def members(self, text):
        """The (name, type) pairs of one member declaration: several names may share a type."""
        if match := re.fullmatch(r"(.+?)\(\*(\w+)\)\((.*)\)", text):
            return [(match[2], self.callback(match[1], match[3]))]
        first, *others = (part.strip() for part in text.split(","))
        match = re.fullmatch(r"(.+?[\s*])(\w+(?:\[\w+\])*)", first)
        pairs = []
        for declarator in (match[2], *others):
            name, *sizes = re.findall(r"\w+", declarator)
            kind = self.type(match[1])
            for size in reversed(sizes):
                kind = f"{kind} * {int(size, 0)}"
            pairs.append((name, kind))
        return pairs

    def add_function(self, result, name, parameters):
        kinds = [self.type(re.sub(r"\w+(\[\d+\])?$", lambda m: "*" if m[1] else "", p)) for p in split(parameters)]
        self.functions.append(f'    "{name}": ({self.type(result)}, [{", ".join(kinds)}]),')

    def callback(self, result, parameters):
        kinds = [self.type(result), *(self.type(re.sub(r"\w+$", "", p)) for p in split(parameters))]
        return f"CFUNCTYPE({', '.join(kinds)})"

    def type(self, text):
        """The ctypes spelling of a C type."""
        stars = text.count("*")
        base = text.replace("*", " ").replace("const", " ").replace("struct ", " ").strip()
        kind = self.kinds.get(base)
        if base == "char" and stars:
            # Text to read is bytes; text to take over must keep its address, to be given back.
            if stars == 1:
                return "c_char_p" if "const" in text else "c_void_p"
            return "POINTER(c_char_p)" if "const" in text else "POINTER(c_void_p)"
        if base == "void" and stars == 0:
            return "None"
        if base == "void" or kind in ("opaque", "handle"):
            depth, inner = stars - (kind != "handle"), "c_void_p"
        elif kind == "enum":
            depth, inner = stars, "c_int"
        elif kind in ("struct", "callback"):
            depth, inner = stars, base
        elif base in NUMBERS:
            depth, inner = stars, NUMBERS[base]
        else:
            raise SystemExit(f"generate_abi.py: unknown type: {text}")
        return "POINTER(" * depth + inner + ")" * depth


def split(parameters):
    parts = [part.strip() for part in parameters.split(",")]
    return [] if parts == ["void"] else parts


def preprocess(compiler, include, *options):
    command = [*compiler, "-E", *options, f"-I{include}", "-x", "c", str(include / "kjit" / "kjit.h")]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"generate_abi.py: {' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def own_lines(text):
    """What stands in the headers themselves, by the line markers; not what they include."""
    own, kept = False, []
    for line in text.splitlines():
        if marker := re.match(r'# \d+ "([^"]*)"', line):
            own = "/kjit/" in marker[1]
        elif own:
            kept.append(line)
    return " ".join(kept)


def declarations(text):
    """Each top-level declaration on one line, without attributes and function bodies."""
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
    found, current, depth = [], "", 0
    for char in text:
        depth += (char == "{") - (char == "}")
        current += char
        if depth == 0 and (char == ";" or (char == "}" and current.lstrip().startswith("static inline"))):
            found.append(" ".join(current.rstrip(";").split()))
            current = ""
    return [declaration for declaration in found if declaration and not declaration.startswith("static inline")]


def defines(text):
    """The numbers and texts among the #defines of the headers."""
    found = {}
    for name, value in re.findall(r"^#define (KJIT_\w+) (.+)$", text, flags=re.MULTILINE):
        value = value.strip().strip("()")
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)[uUlL]*", value):
            found[name] = int(value.rstrip("uUlL"), 0)
        elif match := re.fullmatch(r"UINT(8|16|32|64)_MAX", value):
            found[name] = 2 ** int(match[1]) - 1
        elif re.fullmatch(r'"[^"\\]*"', value):
            found[name] = value[1:-1]
    return found


def stub_fields(macros):
    table = re.search(r"^#define KJIT_FLASH_FORWARD_FIELDS\(X\) (.+)$", macros, flags=re.MULTILINE)[1]
    rows = re.findall(r'X\((\w+), (\w+), "[^"]*", "[^"]*"\)', table)
    return [(name, FIELD_TYPES[kind]) for name, kind in rows]


def write_abi(path, headers, macros):
    constants = {**defines(macros), **headers.constants}
    types = "\n".join([*headers.lines, *headers.functions])
    names = {"Structure", *re.findall(r"\b(?:c_\w+|CFUNCTYPE|POINTER)\b", types)}
    text = [
        '"""The C API for ctypes, made of include/kjit by generate_abi.py. Not to be edited."""',
        "",
        f"from ctypes import {', '.join(sorted(names))}",
        "",
        *(f"{name} = {value!r}" for name, value in sorted(constants.items())),
        "",
        "# name: members",
        "ENUMS = {",
        *(f'    "{name}": {members!r},' for name, members in headers.enums.items()),
        "}",
        "",
        *headers.lines,
        "",
        "# name: (result, parameters)",
        "FUNCTIONS = {",
        *headers.functions,
        "}",
        "",
    ]
    path.write_text("\n".join(text))


def write_stub(path, template, dtypes, fields):
    """The template's lines with @…@ are replaced: what a type checker is told of classes made at import."""
    lines = {
        "    @DTYPES@": "\n".join(
            f"    {name.replace('KJIT_', '', 1)} = {value}" for name, value in dtypes.items() if value
        ),
        "    @MEMBERS@": "\n".join(f"    {name}: {kind}" for name, kind in fields),
        "        @PARAMETERS@": "\n".join(
            f"        {name}: {PARAMETER_TYPES.get(kind, kind)}," for name, kind in fields
        ),
    }
    for line, text in lines.items():
        template = template.replace(line, text)
    path.write_text(template)


def main():
    if len(sys.argv) < 5:
        raise SystemExit(__doc__)
    include, template, out = (Path(argument) for argument in sys.argv[1:4])
    compiler = sys.argv[4:]
    macros = preprocess(compiler, include, "-dM")
    headers = Headers()
    headers.read(own_lines(preprocess(compiler, include)))
    out.mkdir(parents=True, exist_ok=True)
    write_abi(out / "_abi.py", headers, macros)
    write_stub(out / "flash_config.pyi", template.read_text(), headers.enums["kjit_dtype"], stub_fields(macros))


if __name__ == "__main__":
    main()
