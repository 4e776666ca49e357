"""Lets mkdocstrings show docstrings and methods as this project writes them.

A paragraph of a docstring that begins with names and a colon, such as ``payload: bytes``, becomes a
list of arguments. A method that a class takes from a module (``ack = settlement.ack``) is shown
with its signature and docstring.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ARGUMENT = re.compile(r"(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): ")


def as_markdown(text: str) -> str:
    """A docstring in Markdown: arguments as lists, and names in single backticks."""
    lines = [""]
    for line in text.replace("``", "`").splitlines():
        in_list = lines[-1].startswith(("- ", "  "))
        if found := _ARGUMENT.match(line):
            if lines[-1] and not in_list:
                lines.append("")
            names = ", ".join(f"`{name}`" for name in found[1].split(", "))
            lines.append(f"- {names}: {line[found.end() :]}")
        elif in_list and line.startswith("    "):
            lines.append("  " + line.strip())
        else:
            lines.append(line)
    return "\n".join(lines[1:])


class Docstrings(griffe.Extension):
    """Prepares what griffe has loaded for the pages."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self._prepare(pkg, pkg, set())

    def _prepare(self, package: griffe.Module, found: griffe.Object, seen: set[int]) -> None:
        if id(found) in seen:
            return
        seen.add(id(found))
        if found.docstring is not None:
            found.docstring.value = as_markdown(found.docstring.value)
        for name, member in list(found.members.items()):
            if member.is_alias:
                continue
            if found.is_class and member.is_attribute:
                function = _function(package, member.value)
                if function is not None:
                    found.set_member(name, _method(name, function))
            self._prepare(package, found.members[name], seen)


def _function(package: griffe.Module, value: Any) -> griffe.Function | None:
    """The function of a module that an expression names, if it names one."""
    if not isinstance(value, griffe.ExprAttribute):
        return None
    module, _, name = value.canonical_path.rpartition(".")
    try:
        found = package.modules_collection[module].members[name]
    except (KeyError, ValueError, griffe.AliasResolutionError):
        return None
    return found if isinstance(found, griffe.Function) else None


def _method(name: str, function: griffe.Function) -> griffe.Function:
    """A function as a method, whose first parameter the caller does not give."""
    _, *parameters = function.parameters
    docstring = function.docstring
    method = griffe.Function(
        name,
        parameters=griffe.Parameters(griffe.Parameter("self"), *parameters),
        returns=function.returns,
        docstring=docstring and griffe.Docstring(docstring.value),
    )
    method.overloads = [_method(name, each) for each in function.overloads or ()] or None
    return method
