# SPDX-License-Identifier: BSD-3-Clause
"""What the rules look at: the files of the checkout, and their syntax trees."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "jupyter_gpubroker"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One text file; ``path`` is relative to the checkout."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree (Python only); empty where it cannot be parsed."""
        return ast.Module([], []) if self.broken else ast.parse(self.text, self.path)

    @cached_property
    def broken(self) -> str:
        """Why it cannot be parsed; empty if it can."""
        try:
            ast.parse(self.text, self.path)
        except SyntaxError as error:
            return self.at(error.lineno or 1, error.msg)
        return ""

    @property
    def module(self) -> tuple[str, ...]:
        """Its dotted name below the package: ``("core", "model")``; () is the package root."""
        parts = Path(self.path).with_suffix("").parts[1:]
        return parts[:-1] if parts[-1] == "__init__" else parts

    @property
    def package(self) -> tuple[str, ...]:
        """The package that its relative imports start from."""
        return self.module if self.path.endswith("__init__.py") else self.module[:-1]

    def at(self, node: ast.AST | int, text: str) -> str:
        """A finding at a node or a line number."""
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path}:{line}: {text}"

    def inside(self, *folders: str) -> bool:
        """Whether it lies in one of these folders."""
        return self.path.startswith(tuple(f"{folder}/" for folder in folders))


@cache
def files() -> tuple[str, ...]:
    """Every file that is, or would be, committed, in a stable order."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(path for path in sorted({*out.split("\0")}) if (ROOT / path).is_file())


@cache
def sources() -> tuple[Source, ...]:
    """Every text file of the checkout."""
    return tuple(Source(path, text) for path in files() if (text := _text(path)) is not None)


def _text(path: str) -> str | None:
    try:
        return (ROOT / path).read_text("utf-8")
    except UnicodeDecodeError:
        return None


def python(*folders: str) -> tuple[Source, ...]:
    """The Python files in these folders, or all."""
    every = (source for source in sources() if source.path.endswith(".py"))
    return tuple(source for source in every if not folders or source.inside(*folders))


def functions(source: Source) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            yield node


def public(body: Sequence[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """The public names of a module or class body, and those of its public classes."""
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)
        elif isinstance(node, ast.If | ast.Try):
            yield from public(node.body)
