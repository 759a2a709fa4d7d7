"""Reads the recipes of cache/warmup, so that tests can run what is written in them.

read_yaml() knows the part of YAML that the recipes use, because a test has to run where no YAML library is: maps,
lists, plain and quoted scalars, flow lists and ">-". read_dockerfile() gives a Dockerfile's instructions in order."""

import json
import re


class Unknown(Exception):
    """The recipe uses something that is not read here."""


def _scalar(text):
    text = text.strip()
    if text.startswith("["):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return [_scalar(item) for item in text.strip("[]").split(",")]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text[:1] in ("{", "|", "&", "*", "!", "%", "@"):
        raise Unknown(text)
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return {"true": True, "false": False, "": None, "null": None}.get(text, text)


def _without_comment(line):
    return "" if line.lstrip().startswith("#") else re.sub(r"\s+#(?=[^'\"]*$).*", "", line)


class _Reader:
    def __init__(self, text):
        self.lines = [line.rstrip() for line in map(_without_comment, text.splitlines()) if line.strip()]
        self.at = 0

    def indent(self):
        line = self.lines[self.at] if self.at < len(self.lines) else ""
        return len(line) - len(line.lstrip()) if line else -1

    def block(self, indent):
        return self.list(indent) if self.lines[self.at].lstrip().startswith("- ") else self.map(indent)

    def list(self, indent):
        items = []
        while self.indent() == indent and self.lines[self.at].lstrip().startswith("- "):
            # What follows the dash is a block of its own, two columns farther in.
            self.lines[self.at] = " " * (indent + 2) + self.lines[self.at].lstrip()[2:]
            first = self.lines[self.at].strip()
            if re.match(r"[\w-]+:( |$)", first):
                items.append(self.map(indent + 2))
            else:
                items.append(_scalar(first))
                self.at += 1
        return items

    def map(self, indent):
        values = {}
        while self.indent() == indent and not self.lines[self.at].lstrip().startswith("- "):
            name, colon, rest = self.lines[self.at].strip().partition(":")
            if not colon or name in values:
                raise Unknown(self.lines[self.at])
            self.at += 1
            if rest.strip() == ">-":
                values[name] = self.folded(indent)
            elif rest.strip():
                values[name] = _scalar(rest)
            else:
                deeper = self.indent() > indent or (self.indent() == indent
                                                    and self.lines[self.at].lstrip().startswith("- "))
                values[name] = self.block(self.indent()) if deeper else None
        return values

    def folded(self, indent):
        words = []
        while self.indent() > indent:
            words.append(self.lines[self.at].strip())
            self.at += 1
        return " ".join(words)


def read_yaml(text):
    reader = _Reader(text)
    value = reader.block(0)
    if reader.at != len(reader.lines):
        raise Unknown(reader.lines[reader.at])
    return value


def read_dockerfile(text):
    """[(instruction, its text)]; continued lines are joined."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]
